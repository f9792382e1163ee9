//! Refusals on canned files, and the whole path on a swap device of the test's own (zram), which is
//! removed afterwards.

use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::kernel::procfs::fake::{Fake, own_pid};
use crate::kernel::testing::{Anonymous, alone, live};
use huepage_testing::skip;

const HEAD: &str = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";

#[test]
fn without_swap_or_with_full_swap_nothing_is_taken() {
    let why = |text: &str| {
        let fake = Fake::new();
        fake.put("swaps", text);
        PageOutSampler::is_supported(&fake.root).map_err(|e| e.to_string())
    };
    assert!(why("").unwrap_err().contains("no swap"));
    assert!(why(HEAD).unwrap_err().contains("no swap"));
    let full = format!("{HEAD}/dev/zram0 partition 100 100 -2\n");
    assert!(why(&full).unwrap_err().contains("full"));
    let room = format!("{full}/a\\040file file\t\t200\t\t10\t\t-3\n");
    assert_eq!(why(&room), Ok(()));
    assert!(why(&format!("{HEAD}nonsense\n")).is_err());
}

#[test]
fn pages_that_may_not_be_taken_are_told_apart() {
    const ANON: u64 = 1 << 12;
    const HERE: u64 = 1 << 63 | 1 << 56;
    let fake = Fake::new();
    let flags = [0, ANON, ANON | 1 << 22, ANON | 1 << 15, ANON | 1 << 18, ANON | 1 << 33, 1 << 24];
    let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
    fake.put("kpageflags", bytes(&flags)).put("swaps", format!("{HEAD}/a file 9 1 0\n"));
    fake.put(&format!("{}/pagemap", own_pid()), bytes(&[0]));
    let sampler = PageOutSampler::open(fake.root.clone(), own_pid()).unwrap();
    let fault = |word: u64| {
        let mut refusals = Refusals::default();
        let count = sampler.fault_of(PageEntry(word), &mut refusals).unwrap();
        if let Some(count) = count {
            *count += 1;
        }
        refusals
    };
    let none = Refusals::default();
    assert_eq!(fault(HERE | 1), none);
    assert_eq!([0, 1 << 62].map(fault), [Refusals { absent: 1, ..none }; 2]);
    let shared = [1 << 63 | 1, HERE | 1 << 61 | 1].map(fault);
    assert_eq!(shared, [Refusals { shared: 1, ..none }; 2]);
    assert_eq!([HERE | 2, HERE | 3].map(fault), [Refusals { huge: 1, ..none }; 2]);
    let locked = [HERE | 4, HERE | 5, HERE | 6].map(fault);
    assert_eq!(locked, [Refusals { locked: 1, ..none }; 3]);
    let mut refusals = Refusals::default();
    let hidden = sampler.fault_of(PageEntry(HERE), &mut refusals);
    assert!(matches!(hidden, Err(PageOutError::Denied(_))));
}

#[test]
fn a_process_that_has_ended_is_gone() {
    let fake = Fake::new();
    fake.put("swaps", format!("{HEAD}/a file 9 1 0\n"));
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    for pid in [child.id().cast_signed(), 0, -5] {
        let error = PageOutSampler::open(fake.root.clone(), pid).unwrap_err();
        assert!(
            matches!(error, PageOutError::Process(ProcError::NoProcess(gone)) if gone == pid),
            "{error}"
        );
    }
}

/// A swap device in compressed memory, of its own, undone when dropped.
struct Swap {
    number: String,
    on: bool,
    /// One at a time: when another one ends, its pages come back as if touched.
    _turn: fs::File,
}

impl Swap {
    /// `None` where the kernel has no zram, or this is not root.
    fn new() -> Option<Swap> {
        let turn = fs::File::create(std::env::temp_dir().join("huepage-test-swap.lock")).ok()?;
        turn.lock().ok()?;
        // To read this file is to make a device.
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").ok()?.trim().to_owned();
        let mut swap = Swap { number, on: false, _turn: turn };
        let size = format!("/sys/block/zram{}/disksize", swap.number);
        fs::write(size, "64M").ok()?;
        swap.on = swap.run("mkswap") && swap.run("swapon");
        swap.on.then_some(swap)
    }

    fn device(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    fn run(&self, program: &str) -> bool {
        let output = Command::new(program).arg(self.device()).output();
        output.is_ok_and(|output| output.status.success())
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        let off = !self.on || self.run("swapoff");
        let removed = fs::write("/sys/class/zram-control/hot_remove", &self.number);
        if !off || removed.is_err() {
            eprintln!("could not remove {}: {removed:?}", self.device().display());
        }
    }
}

/// Swap of the test's own, else the machine's; none without root.
fn swap(name: &str) -> Option<Option<Swap>> {
    let root = rustix::process::geteuid().is_root();
    let made = if root { Swap::new() } else { None };
    if root && made.is_none() && PageOutSampler::is_supported(&ProcRoot::default()).is_ok() {
        return Some(None);
    }
    live(name, made.ok_or("page-out sampling takes root, and swap or zram")).map(Some)
}

/// One test for all of it: there is one swap, and pages of one test are not to disturb another.
#[test]
fn pages_that_are_touched_come_back_and_the_others_stay_away() {
    let name = "pages_that_are_touched_come_back_and_the_others_stay_away";
    if !alone(module_path!(), name) {
        return;
    }
    let Some(_swap) = swap(name) else { return };
    let mut sampler = PageOutSampler::open(ProcRoot::default(), own_pid()).unwrap();
    let area = Anonymous::new(700);
    // The last page was never touched, the one before is locked.
    (0..699).for_each(|page| area.touch(page));
    area.lock(698);
    let all: Vec<u64> = (0..700).map(|page| area.page(page) + 5).collect();
    let started = std::time::Instant::now();
    let first = sampler.page_out(&all[100..]).unwrap();
    eprintln!("{name}: {first:?} in {:?}", started.elapsed());
    assert_eq!((first.refused.locked, first.refused.absent), (1, 1), "{first:?}");
    assert_eq!(first.refused.left, 598 - MOST_PER_CALL, "{first:?}");
    // Pages that other CPUs still hold in their lists of new pages stay.
    assert!(first.out >= MOST_PER_CALL * 9 / 10, "{first:?}");
    assert_eq!((first.out, first.out + first.refused.kept), (sampler.waiting(), MOST_PER_CALL));
    area.unlock(698);
    check_returns(&area, &mut sampler);
    check_shared_and_huge(&mut sampler);
}

/// Pages come back one by one as they are read, and the others stay away.
fn check_returns(area: &Anonymous, sampler: &mut PageOutSampler) {
    let mut out = Vec::new();
    sampler.returned(&mut out).unwrap();
    assert!(out.iter().all(|(_, state)| *state == Returned::Away), "{out:?}");
    let page_of = |address: u64| usize::try_from((address - area.start()) / PAGE_BYTES).unwrap();
    let pages: Vec<usize> = out.iter().map(|(address, _)| page_of(*address)).collect();
    for &page in pages.iter().step_by(3) {
        assert_eq!(area.read(page), page as u8 | 1, "contents");
    }
    sampler.returned(&mut out).unwrap();
    let back = |s: &(u64, Returned)| s.1 == Returned::Touched;
    let found: Vec<usize> =
        out.iter().filter(|s| back(s)).map(|(address, _)| page_of(*address)).collect();
    assert_eq!(found, pages.iter().copied().step_by(3).collect::<Vec<_>>());
    assert_eq!(sampler.waiting(), pages.len() - found.len());
    // Told once; what is freed is no touch.
    area.advise(libc::MADV_DONTNEED);
    sampler.returned(&mut out).unwrap();
    assert!(out.iter().all(|(_, state)| *state == Returned::Freed), "{out:?}");
    assert_eq!((out.len(), sampler.waiting()), (pages.len() - found.len(), 0));
}

fn check_shared_and_huge(sampler: &mut PageOutSampler) {
    // The text of this program.
    let code = check_shared_and_huge as fn(&mut PageOutSampler) as usize as u64;
    let done = sampler.page_out(&[code]).unwrap();
    assert_eq!((done.out, done.refused.shared), (0, 1), "{done:?}");
    let area = Anonymous::new(1024);
    area.advise(libc::MADV_HUGEPAGE);
    (0..1024).for_each(|page| area.touch(page));
    let middle = area.start().next_multiple_of(2 << 20);
    if let Err(error) = area.collapse(middle) {
        return skip("check of huge pages", error);
    }
    let done = sampler.page_out(&[middle, middle + PAGE_BYTES]).unwrap();
    assert_eq!((done.out, done.refused.huge), (0, 2), "{done:?}");
}
