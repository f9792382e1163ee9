//! How fast a process passes through memory that it does not come back to soon, without any counter: some
//! of that memory is marked as not touched, and a moment later it is read how much of it was. A program
//! that is held up less by misses passes through more of it in the same CPU time. Decides nothing.

use std::ops::Range;
use std::time::Duration;

use huepage_color::PAGE_BYTES;
use huepage_policy::residency::Segment;

use crate::kernel::page_tables::{AddressSpace, BlockMapping, PageTables};
use crate::kernel::process_memory::{ProcessMemory, SUPERPAGE_BYTES, SUPERPAGE_PAGES};

/// Pages that are marked in a look, at most: a millisecond and a half.
const MOST_MARKED_PAGES: u64 = 16_384;
/// Pages in a row of what is looked at where that is not everything. Many short rows are met evenly by
/// a program that goes from one end to the other.
const ROW_PAGES: u64 = 32;
/// Bounds of the moment, and what it begins with.
const SHORTEST_WINDOW: Duration = Duration::from_micros(500);
const LONGEST_WINDOW: Duration = Duration::from_millis(64);
const FIRST_WINDOW: Duration = Duration::from_millis(4);
/// The share of the pages that is to be touched in a moment.
const WANTED_TOUCHED_SHARE: Range<f64> = 0.1..0.5;
/// Fewer than this are too few to say anything.
const LEAST_TOUCHED_SHARE: f64 = 0.02;

/// Neighbouring pages within 2 MiB.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    block: u64,
    /// Counted from the block's first.
    pages: Range<u64>,
    /// It was one superpage: touched as a whole or not at all, and counted so even after it is none.
    whole: bool,
}

impl Row {
    fn bytes(&self) -> Range<u64> {
        let at = self.block * SUPERPAGE_BYTES;
        at + self.pages.start * PAGE_BYTES..at + self.pages.end * PAGE_BYTES
    }

    /// Pages of it that were touched.
    fn touched(&self, found: &BlockMapping) -> u64 {
        let all = self.pages.end - self.pages.start;
        match found {
            BlockMapping::Pages { accessed, .. } => {
                let touched = self.pages.clone().filter(|&page| accessed.get(page as usize));
                let count = touched.count() as u64;
                if self.whole && count > 0 { all } else { count }
            }
            BlockMapping::Huge { accessed: true } => all,
            _ => 0,
        }
    }
}

/// See the module's head.
pub(crate) struct Pace {
    tables: PageTables,
    space: AddressSpace,
    process: ProcessMemory,
    rows: Vec<Row>,
    window: Duration,
    looks: u32,
    /// Pages touched since the last time that was asked, and CPU seconds of the process.
    seen: (f64, f64),
}

impl Pace {
    /// Looks after which the moment stays as it is: what is compared is to be measured alike.
    pub const ADAPTING_LOOKS: u32 = 6;

    /// Of a process; `None` where page tables cannot be read.
    pub fn open(pid: i32) -> Option<Pace> {
        let tables = PageTables::open().ok()?;
        let (space, process) = (tables.space(pid).ok()?, ProcessMemory::open(pid).ok()?);
        let (rows, seen) = (Vec::new(), (0.0, 0.0));
        Some(Pace { tables, space, process, rows, window: FIRST_WINDOW, looks: 0, seen })
    }

    /// It is measured in these segments from now on.
    pub fn choose(&mut self, passing: &[Segment]) {
        let all: u64 = passing.iter().map(|s| s.last.0 + 1 - s.first.0).sum();
        let apart = all.div_ceil(MOST_MARKED_PAGES).max(1) * ROW_PAGES;
        let blocks = |s: &Segment| s.first.0 / SUPERPAGE_PAGES..s.last.0 / SUPERPAGE_PAGES + 1;
        let blocks: Vec<u64> = passing.iter().flat_map(blocks).collect();
        let mut found = Vec::with_capacity(blocks.len());
        (self.looks, self.seen, self.window) = (0, (0.0, 0.0), FIRST_WINDOW);
        self.rows.clear();
        if self.tables.read(&self.space, &blocks, &mut found).is_err() {
            return;
        }
        let huge = |block: u64| {
            let at = blocks.iter().position(|&b| b == block);
            at.is_some_and(|at| matches!(found[at], BlockMapping::Huge { .. }))
        };
        self.rows = passing.iter().flat_map(|s| rows(s, apart, &huge)).collect();
        self.rows.dedup();
    }

    /// Whether it can be measured at all.
    pub fn is_known(&self) -> bool {
        !self.rows.is_empty()
    }

    /// Marks and looks, which takes a moment. Nothing is learned while the process does not run.
    pub fn look(&mut self) {
        if !self.is_known() {
            return;
        }
        let ranges: Vec<Range<u64>> = self.rows.iter().map(Row::bytes).collect();
        let done = self.process.forget(&ranges);
        // What lies behind a range that is not there any more is not asked for again.
        self.rows.truncate(done.max(1));
        let before = self.process.cpu_time();
        std::thread::sleep(self.window);
        let blocks: Vec<u64> = self.rows.iter().map(|row| row.block).collect();
        let mut found = Vec::with_capacity(blocks.len());
        let read = self.tables.read(&self.space, &blocks, &mut found);
        let ran = self.process.cpu_time().saturating_sub(before);
        if done == 0 || read.is_err() {
            self.rows.clear();
            return;
        }
        let touched: u64 = self.rows.iter().zip(&found).map(|(row, b)| row.touched(b)).sum();
        self.note(touched as f64, ran);
    }

    fn note(&mut self, touched: f64, ran: Duration) {
        if ran < self.window / 8 {
            return;
        }
        let all: u64 = self.rows.iter().map(|row| row.pages.end - row.pages.start).sum();
        let share = touched / all.max(1) as f64;
        self.looks += 1;
        if self.looks <= Self::ADAPTING_LOOKS {
            self.window = adapted(self.window, share);
            self.seen = (0.0, 0.0);
        } else {
            self.seen = (self.seen.0 + touched, self.seen.1 + ran.as_secs_f64());
        }
        if self.looks == Self::ADAPTING_LOOKS && share < LEAST_TOUCHED_SHARE {
            self.rows.clear();
        }
    }

    /// Pages touched in a second of CPU time since this was asked last; `None` if nothing was seen.
    pub fn take(&mut self) -> Option<f64> {
        let (touched, seconds) = std::mem::take(&mut self.seen);
        (seconds > 0.0).then(|| touched / seconds)
    }
}

/// A moment in which a part of the pages is touched, and not all.
fn adapted(window: Duration, share: f64) -> Duration {
    if share > WANTED_TOUCHED_SHARE.end {
        (window / 2).max(SHORTEST_WINDOW)
    } else if share < WANTED_TOUCHED_SHARE.start {
        (window * 2).min(LONGEST_WINDOW)
    } else {
        window
    }
}

/// Rows of a segment, one every so many pages. Superpages are looked at as a whole: to mark a part of one
/// would break it.
fn rows(segment: &Segment, apart: u64, huge: &impl Fn(u64) -> bool) -> Vec<Row> {
    let (first, end) = (segment.first.0, segment.last.0 + 1);
    let mut rows = Vec::new();
    let mut at = first;
    while at < end {
        let (block, inside) = (at / SUPERPAGE_PAGES, at % SUPERPAGE_PAGES);
        if huge(block) {
            rows.push(Row { block, pages: 0..SUPERPAGE_PAGES, whole: true });
            at = (block + 1).max((at + apart) / SUPERPAGE_PAGES) * SUPERPAGE_PAGES;
            continue;
        }
        let stop = (at + ROW_PAGES).min(end).min((block + 1) * SUPERPAGE_PAGES);
        rows.push(Row { block, pages: inside..inside + stop - at, whole: false });
        at = if apart > ROW_PAGES { at + apart } else { stop };
    }
    joined(rows)
}

/// Neighbours within a block as one row.
fn joined(rows: Vec<Row>) -> Vec<Row> {
    let mut out: Vec<Row> = Vec::new();
    for row in rows {
        match out.last_mut() {
            Some(last) if last.block == row.block && last.pages.end == row.pages.start => {
                last.pages.end = row.pages.end;
            }
            _ => out.push(row),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
    use std::time::Instant;

    use huepage_color::Vpn;

    use super::*;
    use crate::kernel::process_memory::thread_time;
    use huepage_testing::skip;

    fn segment(first: u64, last: u64) -> Segment {
        let (pages, first, last) = (last + 1 - first, Vpn(first), Vpn(last));
        Segment { first, last, sampled_pages: 1, used: 1, samples: 1, found: 0, pages }
    }

    fn pages(rows: &[Row]) -> u64 {
        rows.iter().map(|row| row.pages.end - row.pages.start).sum()
    }

    #[test]
    fn a_small_segment_is_looked_at_as_a_whole() {
        let found = rows(&segment(500, 1100), ROW_PAGES, &|_| false);
        let expected = [(0, 500..512), (1, 0..512), (2, 0..77)];
        let expected = expected.map(|(block, pages)| Row { block, pages, whole: false });
        assert_eq!(found, expected);
    }

    #[test]
    fn of_a_large_one_short_rows_are_and_superpages_as_a_whole() {
        let found = rows(&segment(0, 8191), 4 * ROW_PAGES, &|_| false);
        assert_eq!((found.len(), pages(&found)), (64, 2048));
        let found = rows(&segment(100, 8191), 4 * ROW_PAGES, &|block| block == 1);
        assert_eq!(found.iter().filter(|row| row.whole).count(), 1);
        assert!(found.iter().all(|row| row.block != 1 || row.pages == (0..512)));
        let found = rows(&segment(0, 8191), 32 * ROW_PAGES, &|_| true);
        assert_eq!(
            found.iter().map(|row| row.block).collect::<Vec<_>>(),
            [0, 2, 4, 6, 8, 10, 12, 14]
        );
    }

    #[test]
    fn the_moment_is_as_long_as_it_takes() {
        let ms = Duration::from_millis;
        assert_eq!(adapted(ms(4), 0.9), ms(2));
        assert_eq!(adapted(ms(4), 0.3), ms(4));
        assert_eq!((adapted(ms(4), 0.01), adapted(LONGEST_WINDOW, 0.0)), (ms(8), LONGEST_WINDOW));
        assert_eq!(adapted(SHORTEST_WINDOW, 1.0), SHORTEST_WINDOW);
    }

    /// Goes through the memory, so many pages in a millisecond of its own time, until it is told to end.
    fn pass(memory: &[AtomicU8], per_ms: &AtomicUsize) {
        let mut at = 0;
        loop {
            let until = thread_time() + Duration::from_millis(1);
            match per_ms.load(Relaxed) {
                0 => return,
                n => (0..n).for_each(|i| _ = memory[(at + i) * 4096 % memory.len()].load(Relaxed)),
            }
            at += per_ms.load(Relaxed);
            while thread_time() < until {}
        }
    }

    #[test]
    fn passing_faster_is_seen() {
        let Some(mut pace) = Pace::open(std::process::id().cast_signed()) else {
            return skip("passing_faster_is_seen", "not root, or no BPF; run as root");
        };
        let memory: Vec<AtomicU8> = (0..32 << 20).map(|i: u32| AtomicU8::new(i as u8)).collect();
        let first = (memory.as_ptr() as u64).div_ceil(PAGE_BYTES);
        let per_ms = AtomicUsize::new(50);
        let mut measured = |speed: usize| {
            per_ms.store(speed, Relaxed);
            pace.choose(&[segment(first, first + 8000)]);
            (0..Pace::ADAPTING_LOOKS + 10).for_each(|_| pace.look());
            pace.take()
        };
        // Other tests run in this process meanwhile, whose time counts too, and other programs may leave this one no
        // time to pass anything.
        let is_faster = |&(slow, fast): &(Option<f64>, Option<f64>)| {
            let ratio = slow.zip(fast).map_or(0.0, |(slow, fast)| fast / slow);
            ratio > 1.5 && ratio < 12.0
        };
        let until = Instant::now() + Duration::from_secs(60);
        let found = std::thread::scope(|scope| {
            scope.spawn(|| pass(&memory, &per_ms));
            let mut found = (measured(50), measured(200));
            while !is_faster(&found) && Instant::now() < until {
                found = (measured(50), measured(200));
            }
            per_ms.store(0, Relaxed);
            found
        });
        assert!(is_faster(&found), "{found:?}");
    }

    #[test]
    fn what_was_a_superpage_counts_as_a_whole() {
        let row = |whole| Row { block: 0, pages: 0..512, whole };
        assert_eq!(row(true).touched(&BlockMapping::Huge { accessed: true }), 512);
        assert_eq!(row(true).touched(&BlockMapping::Huge { accessed: false }), 0);
        assert_eq!(row(false).touched(&BlockMapping::Absent), 0);
    }
}
