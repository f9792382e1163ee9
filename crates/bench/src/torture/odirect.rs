//! O_DIRECT: the disk reads and writes the memory itself, while pages are pinned.
//!
//! A file of known contents is read past the page cache into random places, and written from
//! them, with everything verified. Half of each page is counted up by another thread during
//! the transfer, so that a page replaced in flight loses one or the other. On file systems
//! that refuse O_DIRECT the mode says so and checks nothing.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Ctx, TorturePlan, TortureWorker};
use crate::mix::{Rng, pattern, range};
use crate::sys::{self, MappedMemory, PAGE, WORDS};

/// The sites of this mode.
pub const SITES: [&str; 4] =
    ["odirect.read", "odirect.write", "odirect.half-page", "odirect.counters"];

const FILE_PAGES: usize = 512;
const HALF: usize = WORDS / 2;
const HALF_BYTES: usize = PAGE / 2;

struct Shared {
    /// Read into as whole pages.
    whole: MappedMemory,
    /// First halves are read into, second halves counted up by the other thread.
    halves: MappedMemory,
    end: AtomicBool,
}

/// The contents of the file: word `place` of it.
fn content(place: u64) -> u64 {
    pattern(place / WORDS as u64, 3, place % WORDS as u64)
}

fn make_file(ctx: &Ctx) -> Result<std::os::fd::OwnedFd, String> {
    let path = ctx.plan.dir.join(format!("huepage-torture-{}", std::process::id()));
    let file = sys::open_direct(&path).map_err(|e| format!("cannot open with O_DIRECT: {e}"))?;
    std::fs::remove_file(&path).map_err(|e| e.to_string())?;
    let area = MappedMemory::private(FILE_PAGES).map_err(|e| e.to_string())?;
    for (place, word) in (0..).zip(area.words()) {
        word.store(content(place), Ordering::Relaxed);
    }
    match sys::pwrite_from(file.as_fd(), area.words(), 0) {
        Ok(n) if n == FILE_PAGES * PAGE => Ok(file),
        other => Err(format!("cannot write with O_DIRECT: {other:?}")),
    }
}

fn read_whole(ctx: &Ctx, file: BorrowedFd<'_>, area: &MappedMemory, rng: &mut Rng) {
    let pages = range(rng, area.pages(), 16);
    let from = rng.usize(..FILE_PAGES - pages.len());
    let words = &area.words()[pages.start * WORDS..pages.end * WORDS];
    let got = sys::pread_into(file, words, from * PAGE);
    ctx.expect("odirect.read", size_of_val(words) as u64, got.unwrap_or(0) as u64);
    ctx.sabotage("odirect.read", words);
    ctx.expect_words("odirect.read", words, |place| content((from * WORDS) as u64 + place));
}

/// Reads 2 KiB into the first half of each of some pages.
fn read_halves(ctx: &Ctx, file: BorrowedFd<'_>, area: &MappedMemory, rng: &mut Rng) {
    for page in range(rng, area.pages(), 4) {
        let from = rng.usize(..FILE_PAGES * 2);
        let words = &area.page(page)[..HALF];
        match sys::pread_into(file, words, from * HALF_BYTES) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                return ctx.skip("odirect.half-page: this disk reads whole pages only");
            }
            got => ctx.expect("odirect.half-page", HALF_BYTES as u64, got.unwrap_or(0) as u64),
        }
        ctx.sabotage("odirect.half-page", words);
        ctx.expect_words("odirect.half-page", words, |at| content((from * HALF) as u64 + at));
    }
}

/// Writes pages to the end of the file and reads them back elsewhere.
fn write_back(ctx: &Ctx, file: BorrowedFd<'_>, area: &MappedMemory, rng: &mut Rng) {
    let (from, to, epoch) = (rng.usize(..16), 16 + rng.usize(..area.pages() - 16), rng.u64(..));
    let (source, target) = (area.page(from), area.page(to));
    for (place, word) in (0..).zip(source) {
        word.store(pattern(from as u64, epoch, place), Ordering::Relaxed);
    }
    let offset = FILE_PAGES * PAGE;
    let sent = sys::pwrite_from(file, source, offset);
    let got = sent.and_then(|_| sys::pread_into(file, target, offset));
    ctx.expect("odirect.write", PAGE as u64, got.unwrap_or(0) as u64);
    ctx.sabotage("odirect.write", target);
    ctx.expect_words("odirect.write", target, |at| pattern(from as u64, epoch, at));
}

fn transfer(ctx: &Ctx, shared: &Shared) {
    let heart = ctx.heart("odirect");
    let mut rng = Rng::with_seed(ctx.plan.seed ^ 0xd1);
    match make_file(ctx) {
        Err(why) => {
            ctx.skip(&format!("odirect: {why}; give --dir a directory on a disk"));
        }
        Ok(file) => {
            while !ctx.done() {
                read_whole(ctx, file.as_fd(), &shared.whole, &mut rng);
                read_halves(ctx, file.as_fd(), &shared.halves, &mut rng);
                write_back(ctx, file.as_fd(), &shared.whole, &mut rng);
                heart.beat();
            }
        }
    }
    shared.end.store(true, Ordering::Release);
}

/// Counts up the second halves; every word must at all times hold what it was left with.
fn count_up(ctx: &Ctx, shared: &Shared) {
    let heart = ctx.heart("odirect counter");
    let mut lap = 0;
    while !shared.end.load(Ordering::Acquire) {
        if lap > 0 {
            ctx.sabotage("odirect.counters", &shared.halves.page(3)[HALF..]);
        }
        let mut wrong = 0;
        for page in 0..shared.halves.pages() {
            wrong += bump(&shared.halves.page(page)[HALF..], lap);
        }
        if wrong > 0 {
            ctx.complain("odirect.counters", &format!("{wrong} lost updates beside a read"));
        }
        ctx.record("odirect.counters", (shared.halves.pages() * HALF) as u64, wrong);
        lap += 1;
        heart.beat();
    }
}

/// Adds 1 to every word and counts those that did not hold `lap`.
fn bump(words: &[AtomicU64], lap: u64) -> u64 {
    let mut wrong = 0;
    for word in words {
        wrong += u64::from(word.load(Ordering::Relaxed) != lap);
        word.store(lap + 1, Ordering::Relaxed);
    }
    wrong
}

/// The threads of this mode.
pub fn workers(plan: &TorturePlan) -> Vec<TortureWorker<'static>> {
    let whole = MappedMemory::private((plan.mib * 16).clamp(64, 1024)).expect("memory for reads");
    let halves = MappedMemory::private(32).expect("memory for half pages");
    let shared = Arc::new(Shared { whole, halves, end: AtomicBool::new(false) });
    let other = Arc::clone(&shared);
    vec![
        Box::new(move |ctx: &Ctx| transfer(ctx, &shared)),
        Box::new(move |ctx: &Ctx| count_up(ctx, &other)),
    ]
}
