//! Tests on the running kernel, which take root.

use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;
use crate::kernel::procfs::fake::own_pid;
use crate::kernel::testing::{Anonymous, live};
use crate::sensors::superpage_map::SuperpageMap;
use huepage_testing::skip;

const PAGE: usize = 4096;
const BLOCK: u64 = 2 << 20;

/// The accessed bits of all memory of this process are cleared together.
static ALONE: Mutex<()> = Mutex::new(());

/// Reads page tables, in one test at a time, unless this process may not.
fn tables(test: &str) -> Option<(PageTables, MutexGuard<'static, ()>)> {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Some((live(test, PageTables::open())?, alone))
}

/// Memory of our own that begins at a block.
struct Memory {
    area: Anonymous,
    /// Pages before the first block.
    before: usize,
    blocks: usize,
}

impl Memory {
    fn new(blocks: usize, advice: libc::c_int) -> Memory {
        let area = Anonymous::new((blocks + 1) * 512);
        area.advise(advice);
        let before = (area.start().next_multiple_of(BLOCK) - area.start()) as usize / PAGE;
        Memory { area, before, blocks }
    }

    fn touch(&self, pages: impl Iterator<Item = usize>) {
        pages.for_each(|page| self.area.touch(self.before + page));
    }

    /// Takes all rights to the first pages away.
    fn protect(&self, pages: usize) {
        self.area.protect(self.before..self.before + pages, libc::PROT_NONE);
    }

    fn list(&self) -> Vec<u64> {
        (0..self.blocks).map(|i| self.area.page(self.before + i * 512) / BLOCK).collect()
    }
}

/// Forgets which pages this process touched, in page tables and in TLBs.
fn forget(memory: &Memory) {
    fs::write("/proc/self/clear_refs", "1").unwrap();
    memory.area.leave_tlb();
}

fn read(tables: &mut PageTables, blocks: &[u64]) -> Vec<BlockMapping> {
    let own = tables.space(own_pid()).unwrap();
    let mut found = Vec::new();
    tables.read(&own, blocks, &mut found).unwrap();
    assert_eq!(found.len(), blocks.len());
    found
}

#[test]
fn pages_touched_since_the_bits_were_cleared_are_seen_and_no_others() {
    let Some((mut tables, _alone)) = tables("pages_touched_since") else { return };
    let memory = Memory::new(4, libc::MADV_NOHUGEPAGE);
    memory.touch(0..2048);
    forget(&memory);
    memory.touch((0..2048).step_by(10));
    for (i, block) in read(&mut tables, &memory.list()).into_iter().enumerate() {
        let BlockMapping::Pages { present, accessed } = block else { panic!("{block:?}") };
        assert_eq!(present, Bits512::ALL);
        let touched: Vec<usize> = accessed.iter().collect();
        let wanted: Vec<usize> = (0..512).filter(|page| (i * 512 + page) % 10 == 0).collect();
        assert_eq!(touched, wanted);
    }
}

#[test]
fn pages_without_rights_and_pages_never_touched_are_not_present() {
    let Some((mut tables, _alone)) = tables("pages_without_rights") else { return };
    let memory = Memory::new(1, libc::MADV_NOHUGEPAGE);
    memory.touch(0..100);
    memory.protect(50);
    let [BlockMapping::Pages { present, accessed }] = read(&mut tables, &memory.list())[..] else {
        panic!("mapped page by page")
    };
    assert_eq!(present.iter().collect::<Vec<_>>(), (50..100).collect::<Vec<_>>());
    assert_eq!(present, accessed);
}

#[test]
fn superpages_and_holes_are_told_from_pages() {
    let Some((mut tables, _alone)) = tables("superpages_and_holes") else { return };
    // The kernel has no free block at times, as behind builds that filled its page cache.
    let mut tried = (0..100).map(|attempt| {
        std::thread::sleep(std::time::Duration::from_millis(100) * attempt.min(1));
        let memory = Memory::new(2, libc::MADV_HUGEPAGE);
        memory.touch(0..1);
        let found = read(&mut tables, &memory.list());
        assert!(found[1] == BlockMapping::Absent && found[0] != BlockMapping::Absent);
        (memory, found[0])
    });
    let Some((memory, found)) = tried.find(|(_, found)| matches!(found, BlockMapping::Huge { .. }))
    else {
        return skip("the half with superpages", "none was got");
    };
    assert_eq!(found, BlockMapping::Huge { accessed: true });
    forget(&memory);
    assert_eq!(read(&mut tables, &memory.list())[0], BlockMapping::Huge { accessed: false });
}

#[test]
fn as_many_pages_are_counted_as_the_kernel_says_are_there() {
    let Some((mut tables, _alone)) = tables("as_many_pages") else { return };
    let memory = Memory::new(70, libc::MADV_NOHUGEPAGE);
    // All of one block, none of the next, some of the others, and of those some only read.
    memory.touch((0..512).chain(1024..1100).chain((2048..69 * 512).step_by(77)));
    (1200..1230).for_each(|page| _ = memory.area.read(memory.before + page));
    let (root, blocks) = (ProcRoot::default(), memory.list());
    let inside = |map: SuperpageMap| -> Vec<_> {
        map.blocks.into_iter().filter(|(at, _)| blocks.contains(at)).collect()
    };
    let space = tables.space(own_pid()).unwrap();
    let read: Result<_, Box<dyn std::error::Error>> =
        SuperpageMap::from_tables(&root, &mut tables, &space);
    let counted = inside(read.unwrap());
    assert_eq!(counted, inside(SuperpageMap::from_proc(&root, own_pid()).unwrap()));
    assert_eq!(counted.len(), 67, "{counted:?}");
    let [first, second] = [counted[0].1, counted[1].1];
    assert_eq!((first.resident, first.zero, second.resident, second.zero), (512, 0, 76, 30));
}

#[test]
fn pages_that_may_not_be_touched_count_and_superpages_too() {
    let Some((mut tables, _alone)) = tables("pages_that_may_not") else { return };
    let (memory, space) = (Memory::new(2, libc::MADV_HUGEPAGE), tables.space(own_pid()).unwrap());
    memory.touch(512..513);
    let mut found = Vec::new();
    let first = memory.list()[0];
    tables.count(&space, first..first + 2, |at, count| found.push((at, count))).unwrap();
    let [(at, count)] = found[..] else { panic!("one block is there: {found:?}") };
    assert_eq!(at, first + 1);
    assert!(count.huge && count.resident == 512 || count.resident == 1, "{count:?}");

    let memory = Memory::new(1, libc::MADV_NOHUGEPAGE);
    memory.touch(0..100);
    memory.protect(50);
    let mut found = Vec::new();
    let first = memory.list()[0];
    tables.count(&space, first..first + 1, |_, count| found.push(count)).unwrap();
    assert_eq!(found, [BlockResidency { resident: 100, zero: 0, huge: false }]);
}

#[test]
fn nothing_is_seen_of_the_kernel() {
    let Some((mut tables, _alone)) = tables("nothing_is_seen") else { return };
    let code = 0xffff_ffff_8100_0000 >> 21;
    assert_eq!(
        read(&mut tables, &[0, code, code & 0x7ff_ffff, u64::MAX]),
        [BlockMapping::Absent; 4]
    );
}

#[test]
fn many_blocks_are_read_in_order() {
    let Some((mut tables, _alone)) = tables("many_blocks") else { return };
    let memory = Memory::new(3 * BATCH, libc::MADV_NOHUGEPAGE);
    let blocks = memory.list();
    memory.touch((0..blocks.len()).step_by(2).map(|i| i * 512 + i));
    for (i, block) in read(&mut tables, &blocks).into_iter().enumerate() {
        match block {
            BlockMapping::Pages { present, .. } => assert!(present.get(i) && present.count() == 1),
            _ => assert!(block == BlockMapping::Absent && i % 2 == 1, "{i}: {block:?}"),
        }
    }
}

#[test]
fn a_process_that_went_is_noticed() {
    let Some((mut tables, _alone)) = tables("a_process_that_went") else { return };
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let space = tables.space(pid).unwrap();
    assert_eq!(space.pid(), pid);
    let mut found = vec![BlockMapping::Absent];
    child.kill().unwrap();
    child.wait().unwrap();
    let gone = |result| matches!(result, Err(TablesError::NoProcess(p)) if p == pid);
    assert!(gone(tables.read(&space, &[0; 200], &mut found)));
    assert_eq!(found.len(), 1, "nothing was appended");
    assert!(gone(tables.space(pid).map(|_| ())));
    assert!(matches!(tables.space(-1), Err(TablesError::NoProcess(-1))));
    assert!(tables.space(2).is_err(), "a thread of the kernel has no memory");
}

#[test]
fn another_process_is_read() {
    let Some((mut tables, _alone)) = tables("another_process") else { return };
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let areas = ProcRoot::default().maps(pid).unwrap();
    let stack = areas.iter().find(|area| area.name == "[stack]").unwrap();
    let last = stack.end - 1;
    let space = tables.space(pid).unwrap();
    let mut found = Vec::new();
    let done = tables.read(&space, &[last >> 21], &mut found);
    child.kill().unwrap();
    child.wait().unwrap();
    done.unwrap();
    let BlockMapping::Pages { present, .. } = found[0] else { panic!("{found:?}") };
    assert!(present.get(usize::try_from(last >> 12 & 511).unwrap()));
}
