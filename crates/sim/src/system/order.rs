//! A batch through caches that go access by access, with what goes on beside: colours are
//! counted, and where caches have to know the time or page tables are read through them, each
//! access is told when it is and what its translation took.

use huepage_color::Pfn;

use super::fast::{Room, Tick};
use super::{ColorCounts, RunError, System};
use crate::cache::order::{Beside, Requests};
use crate::cache::{Hierarchy, Path};
use crate::frames::Frames;
use crate::record::{AccessKind, Record};
use crate::tlb::TlbPage;

impl System {
    /// Runs a batch through the caches access by access, and does what [`Self::after_miss`] does
    /// for one that nobody watches.
    pub(super) fn ask_caches_in_order(
        &mut self,
        core: usize,
        batch: &[Record],
        room: &mut Room,
    ) -> Result<(), RunError> {
        let Some(&Record { space, .. }) = batch.first() else { return Ok(()) };
        self.find_walks(core, space, room)?;
        room.indexes.clear();
        if self.hierarchy.is_virtual(&self.cores[core].paths[0]) {
            room.index(batch);
        }
        let mut found = vec![0; self.stalls[0].len()];
        let walked = if self.tells_tlbs() {
            room.tick(batch, &self.tlb_stalls);
            self.run_timed(core, room, &mut found)
        } else {
            let (caches, path, all, mut counts) = self.in_order(core, room, &mut found);
            caches.run_in_order(path, all, &mut counts);
            0
        };
        let costs = &mut self.spaces[usize::from(space)].costs;
        costs.buffer_cycles += self.hierarchy.take_extra();
        costs.tlb_cycles += walked;
        self.charge_misses(space, &found);
        Ok(())
    }

    /// What a run needs: caches, the way through them, requests, and what counts them.
    fn in_order<'a>(
        &'a mut self,
        core: usize,
        room: &'a Room,
        found: &'a mut [u64],
    ) -> (&'a mut Hierarchy, &'a Path, Requests<'a>, Counts<'a>) {
        let System { cores, hierarchy, frames, colors, line_bits, colored, .. } = self;
        let (lines, line_bits) = (room.requests(), *line_bits);
        let colors = Colors { frames, colors, level: *colored, line_bits };
        let all = Requests { lines, line_bits, indexes: &room.indexes };
        (hierarchy, &cores[core].paths[0], all, Counts { lines, found, colors })
    }

    /// Runs requests whose time is known; the cycles of reading page tables.
    fn run_timed(&mut self, core: usize, room: &Room, found: &mut [u64]) -> u64 {
        let (stalls, walk_path) = (self.stalls[0].clone(), self.cores[core].walk_path.clone());
        let (timed, clock, now) = (self.timed, self.cores[core].clock, self.hierarchy.now);
        let walk_stalls = &stalls[self.walk_depth..];
        let (caches, path, all, counts) = self.in_order(core, room, found);
        let (walks, ticks, walk_path) = (&room.walks[..], &room.ticks[..], &walk_path);
        let (walked, waited) = (0, 0);
        let mut beside = Timed {
            counts,
            ticks,
            walks,
            walk_path,
            walk_stalls,
            stalls: &stalls,
            timed,
            clock,
            now,
            walked,
            waited,
        };
        caches.run_in_order(path, all, &mut beside);
        let Timed { clock, now, walked, waited, .. } = beside;
        caches.give_extra(waited);
        if timed {
            caches.now = now;
            self.cores[core].clock = clock;
        }
        walked
    }

    /// What walkers read for the pages that no TLB had.
    fn find_walks(&mut self, core: usize, space: u16, room: &mut Room) -> Result<(), RunError> {
        room.walks.clear();
        if !self.walks_tables {
            return Ok(());
        }
        let levels = self.machine.walk.as_ref().map_or(1, |spec| spec.levels);
        for asked in &room.pages[..room.listed] {
            let page = TlbPage::of(space, asked.page(), 0);
            let walker = self.cores[core].walker.as_mut();
            let skip = walker.map_or(0, |w| w.skip(space, asked.page(), page.order, levels));
            let walk = self.find_entries(space, asked.page(), page.order)?;
            room.walks.extend(walk.entries(skip).iter().map(|entry| (asked.asker(), entry.0)));
        }
        Ok(())
    }
}

/// Counts by the colour of frames.
struct Colors<'a> {
    frames: &'a Frames,
    colors: &'a mut ColorCounts,
    /// The depth that they are counted at, if any.
    level: Option<usize>,
    line_bits: u32,
}

/// Counts by the depth that answered. Those of the nearest cache are not needed.
struct Counts<'a> {
    lines: &'a [crate::cache::batch::LineRequest],
    found: &'a mut [u64],
    colors: Colors<'a>,
}

impl Beside for Counts<'_> {
    #[inline(always)]
    fn is_due(&self, _: usize) -> bool {
        false
    }

    #[inline(always)]
    fn is_ever_due(&self) -> bool {
        false
    }

    #[inline(always)]
    fn prepare(&mut self, _: usize, _: &mut Hierarchy) {}

    #[inline(always)]
    fn hit(&mut self, _: usize) {}

    #[inline(always)]
    fn done(&mut self, at: usize, depth: usize, _: &mut Hierarchy) {
        self.found[depth] += 1;
        let Colors { frames, colors, level, line_bits } = &mut self.colors;
        if let Some(level) = level.filter(|_| depth > 0) {
            let frame = Pfn(self.lines[at].line() << *line_bits >> 12);
            colors.note(frames.color(frame), depth, level);
        }
    }
}

/// The same with the time.
struct Timed<'a> {
    counts: Counts<'a>,
    ticks: &'a [Tick],
    /// Entries that are yet to be read.
    walks: &'a [(u16, u64)],
    walk_path: &'a Path,
    walk_stalls: &'a [u64],
    stalls: &'a [u64],
    /// Whether caches go by the time.
    timed: bool,
    /// The core's cycles up to now, the instructions of this record not included.
    clock: u64,
    /// The time at the end of the latest access.
    now: u64,
    walked: u64,
    waited: u64,
}

impl Beside for Timed<'_> {
    #[inline(always)]
    fn is_due(&self, at: usize) -> bool {
        self.walks.first().is_some_and(|&(asker, _)| usize::from(asker) == at)
    }

    #[inline(always)]
    fn is_ever_due(&self) -> bool {
        !self.walks.is_empty()
    }

    #[inline(always)]
    fn prepare(&mut self, at: usize, caches: &mut Hierarchy) {
        if self.timed {
            caches.now = self.clock + self.ticks[at].instructions;
        }
        while let Some((&(asker, entry), rest)) = self.walks.split_first() {
            if usize::from(asker) != at {
                break;
            }
            let depth = caches.access(self.walk_path, entry, AccessKind::Load);
            let read = self.walk_stalls[depth];
            caches.now += read;
            let cycles = read + caches.take_extra();
            self.walked += cycles;
            self.clock += cycles;
            self.walks = rest;
        }
    }

    #[inline(always)]
    fn hit(&mut self, at: usize) {
        let Tick { instructions, cycles } = self.ticks[at];
        self.now = self.clock + instructions;
        self.clock += cycles;
    }

    #[inline(always)]
    fn done(&mut self, at: usize, depth: usize, caches: &mut Hierarchy) {
        self.now = caches.now;
        let waited = caches.take_extra();
        self.waited += waited;
        self.counts.done(at, depth, caches);
        self.clock += self.ticks[at].cycles + self.stalls[depth] + waited;
    }
}
