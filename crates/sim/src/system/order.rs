//! A batch through caches that go access by access, with what goes on beside: colours are
//! counted, and where caches have to know the time or page tables are read through them, each
//! access is told when it is and what its translation took.

use huepage_color::Pfn;

use super::fast::{Room, Tick};
use super::{ColorCounts, RunError, System};
use crate::cache::batch::LineRequest;
use crate::cache::order::{Beside, Requests};
use crate::frames::Frames;
use crate::record::Record;
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
        let told = self.tells_tlbs();
        if told {
            room.tick(batch, &self.tlb_stalls);
        }
        let mut found = vec![0; self.stalls[0].len()];
        let walked = self.run_beside(core, room, told, &mut found);
        let costs = &mut self.spaces[usize::from(space)].costs;
        costs.buffer_cycles += self.hierarchy.take_extra();
        costs.tlb_cycles += walked;
        self.charge_misses(space, &found);
        Ok(())
    }

    /// Runs requests, whose time is known if they are `told`; the cycles of reading page tables.
    fn run_beside(&mut self, core: usize, room: &Room, told: bool, found: &mut [u64]) -> u64 {
        let System { cores, hierarchy, frames, colors, line_bits, colored, .. } = self;
        let (lines, line_bits, core) = (room.requests(), *line_bits, &mut cores[core]);
        let [path, walk_path] = [&core.paths[0], &core.walk_path];
        let all = Requests { lines, line_bits, indexes: &room.indexes, walk_path };
        let mut beside = Timed {
            lines,
            found,
            colors: Colors { frames, colors, level: *colored, line_bits },
            ticks: if told { &room.ticks[..] } else { &[] },
            walks: &room.walks,
            walk_stalls: &self.walk_stalls,
            stalls: &self.stalls[0],
            timed: self.timed,
            clock: core.clock,
            now: hierarchy.now,
            walked: 0,
            waited: 0,
        };
        hierarchy.run_in_order(path, all, &mut beside);
        let Timed { clock, now, walked, waited, .. } = beside;
        hierarchy.give_extra(waited);
        if self.timed {
            hierarchy.now = now;
            core.clock = clock;
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

/// Counts by the depth that answered, and the time where caches have to know it. What the nearest cache
/// answers is not counted.
struct Timed<'a> {
    lines: &'a [LineRequest],
    found: &'a mut [u64],
    colors: Colors<'a>,
    /// What each takes, or nothing where nobody has to know.
    ticks: &'a [Tick],
    /// Entries that are yet to be read.
    walks: &'a [(u16, u64)],
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
    fn start(&self, at: usize) -> Option<u64> {
        self.timed.then(|| self.clock + self.ticks[at].instructions)
    }

    #[inline(always)]
    fn entry(&mut self, at: usize) -> Option<u64> {
        let (&(asker, entry), rest) = self.walks.split_first()?;
        (usize::from(asker) == at).then(|| {
            self.walks = rest;
            entry
        })
    }

    #[inline(always)]
    fn walked(&mut self, depth: usize, waited: u64) -> u64 {
        let read = self.walk_stalls[depth];
        self.walked += read + waited;
        self.clock += read + waited;
        read
    }

    #[inline(always)]
    fn hit(&mut self, at: usize) {
        if let Some(&Tick { instructions, cycles }) = self.ticks.get(at) {
            self.now = self.clock + instructions;
            self.clock += cycles;
        }
    }

    #[inline(always)]
    fn done(&mut self, at: usize, depth: usize, now: u64, waited: u64) {
        self.found[depth] += 1;
        let Colors { frames, colors, level, line_bits } = &mut self.colors;
        if let Some(level) = level.filter(|_| depth > 0) {
            let frame = Pfn(self.lines[at].line() << *line_bits >> 12);
            colors.note(frames.color(frame), depth, level);
        }
        self.now = now;
        self.waited += waited;
        let cycles = self.ticks.get(at).map_or(0, |tick| tick.cycles);
        self.clock += cycles + self.stalls[depth] + waited;
    }
}
