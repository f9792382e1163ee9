//! What a run counted, for people and files, and what must hold after it.

use huepage_color::Color;
use serde::{Serialize, Serializer};

use super::{PageCacheState, System};
use crate::cache::CacheCounts;
use crate::cost::{ProgramCosts, Rates};
use crate::tlb::TlbCounts;
use crate::walk::{HashedTable, Tables};

/// Accesses and misses per colour at one cache level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ColorCounts {
    /// Requests that reached the level.
    pub accesses: Vec<u64>,
    /// Of these, misses.
    pub misses: Vec<u64>,
}

impl ColorCounts {
    /// As many counts, of nothing.
    pub(super) fn zeros(&self) -> ColorCounts {
        let zero = vec![0; self.accesses.len()];
        ColorCounts { accesses: zero.clone(), misses: zero }
    }

    /// Adds other counts.
    pub(super) fn add(&mut self, other: &ColorCounts) {
        let pairs = [(&mut self.accesses, &other.accesses), (&mut self.misses, &other.misses)];
        for (sums, counts) in pairs {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
    }

    /// Notes requests that reach the level, or those of them that it `missed`; each with how
    /// often it counts.
    #[inline(always)]
    pub(super) fn note_all(
        &mut self,
        requests: impl Iterator<Item = (Option<Color>, u64)>,
        missed: bool,
    ) {
        let counts = if missed { &mut self.misses } else { &mut self.accesses };
        for (color, times) in requests {
            if let Some(Color(color)) = color {
                counts[usize::from(color)] += times;
            }
        }
    }

    /// Notes an access that went as far as `depth`, for counts at `level`.
    pub(super) fn note(&mut self, color: Option<Color>, depth: usize, level: usize) {
        if let Some(Color(color)) = color.filter(|_| depth >= level) {
            self.accesses[usize::from(color)] += 1;
            self.misses[usize::from(color)] += u64::from(depth > level);
        }
    }
}

/// One program of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpaceReport {
    /// Its address space.
    pub space: u16,
    /// Sums.
    #[serde(flatten)]
    pub costs: ProgramCosts,
    /// All its cycles.
    pub cycles: u64,
    /// Figures per instruction.
    #[serde(flatten)]
    pub rates: Rates,
    /// Share of its uses of file blocks that the page cache answered; none without files.
    pub file_hit_ratio: Option<f64>,
    /// Base pages that it has in memory at the end.
    pub pages: u64,
    /// Base pages in memory more than were touched, per page touched (Romer 1998, section 3.1).
    pub memory_overhead: f64,
    /// Its base pages by colour, where the machine has colours.
    pub pages_by_color: Vec<u64>,
}

/// Counts of a part of the machine, with its name.
#[derive(Serialize)]
struct Named<'a, T> {
    name: &'a str,
    #[serde(flatten)]
    counts: T,
}

fn named<S: Serializer>(parts: &[(String, impl Serialize)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(parts.iter().map(|(name, counts)| Named { name, counts }))
}

/// Lines of a cache level, by colour.
#[derive(Serialize)]
struct Lines<'a> {
    lines_by_color: &'a [u64],
}

fn named_lines<S: Serializer>(parts: &[(String, Vec<u64>)], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(
        parts.iter().map(|(name, lines_by_color)| Named { name, counts: Lines { lines_by_color } }),
    )
}

/// The counts of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The machine's name.
    pub machine: String,
    /// Each cache level, summed over its copies.
    #[serde(serialize_with = "named")]
    pub caches: Vec<(String, CacheCounts)>,
    /// Each TLB level, summed over cores.
    #[serde(serialize_with = "named")]
    pub tlbs: Vec<(String, TlbCounts)>,
    /// Translations that no TLB had.
    pub walks: u64,
    /// Lines read from memory.
    pub memory_reads: u64,
    /// Lines and writes that went to memory.
    pub memory_writes: u64,
    /// Frames in use at the end.
    pub frames_used: u64,
    /// Frames of another colour than the one that was due.
    pub frames_outside: u64,
    /// Accesses and misses by colour, if asked for.
    pub colors: Option<ColorCounts>,
    /// Lines at the end in each cache level, by colour, where the machine has colours.
    #[serde(serialize_with = "named_lines")]
    pub occupancy: Vec<(String, Vec<u64>)>,
    /// The pages of files in memory at the end; none if no file was touched.
    pub page_cache: Option<PageCacheState>,
    /// Each program.
    pub spaces: Vec<SpaceReport>,
}

impl System {
    /// Ends a warm-up: counts start at zero, contents and mappings stay.
    pub fn forget_counts(&mut self) {
        self.let_go();
        self.forget_shared();
        self.forget_parts();
        // Never refused.
        let _ = self.each_twin(|twin| {
            twin.forget_counts();
            Ok(())
        });
        self.hierarchy.forget_counts();
        self.walks = 0;
        self.spaces.iter_mut().for_each(|state| state.costs = ProgramCosts::default());
        let tlbs = self.cores.iter_mut().flat_map(|core| &mut core.tlbs);
        tlbs.for_each(|tlb| tlb.counts = TlbCounts::default());
        self.colors.accesses.fill(0);
        self.colors.misses.fill(0);
        self.heat.iter_mut().for_each(|heat| heat.forget());
    }

    /// Ends a run: what waits in write buffers goes down.
    pub fn finish(&mut self) {
        self.put_together();
        self.hierarchy.flush_buffers();
    }

    /// What was counted.
    pub fn report(&self) -> Report {
        Report {
            machine: self.machine.name.clone(),
            caches: self.cache_counts(),
            tlbs: self.tlb_counts(),
            walks: self.walks,
            memory_reads: self.hierarchy.memory_reads,
            memory_writes: self.hierarchy.memory_writes,
            frames_used: self.frames.used(),
            frames_outside: self.frames.outside(),
            colors: self.colored.map(|_| self.colors.clone()),
            occupancy: self.occupancy(),
            page_cache: self.page_cache_report(),
            spaces: self.space_reports(),
        }
    }

    fn cache_counts(&self) -> Vec<(String, CacheCounts)> {
        let parts = self.machine.cache.iter().map(|spec| (spec.part(), CacheCounts::default()));
        let mut sums: Vec<_> = parts.collect();
        for (cache, &spec) in self.hierarchy.caches().iter().zip(&self.specs) {
            sums[spec].1.add(&cache.counts);
        }
        sums
    }

    fn tlb_counts(&self) -> Vec<(String, TlbCounts)> {
        let parts = self.machine.tlb.iter().map(|spec| (spec.part(), TlbCounts::default()));
        let mut sums: Vec<_> = parts.collect();
        for core in &self.cores {
            for (sum, tlb) in sums.iter_mut().zip(&core.tlbs) {
                sum.1.accesses += tlb.counts.accesses;
                sum.1.misses += tlb.counts.misses;
            }
        }
        sums
    }

    fn occupancy(&self) -> Vec<(String, Vec<u64>)> {
        if self.frames.colors() <= 1 {
            return Vec::new();
        }
        let zero = vec![0; usize::from(self.frames.colors())];
        let parts = self.machine.cache.iter().map(|spec| (spec.part(), zero.clone()));
        let mut sums: Vec<_> = parts.collect();
        for (cache, &spec) in self.hierarchy.caches().iter().zip(&self.specs) {
            for (address, _) in cache.lines() {
                let frame = huepage_color::PhysAddr(address).pfn();
                if let Some(color) = self.frames.color(frame) {
                    sums[spec].1[usize::from(color.0)] += 1;
                }
            }
        }
        sums
    }

    fn space_reports(&self) -> Vec<SpaceReport> {
        let used = (0_u16..).zip(&self.spaces).filter(|(_, state)| state.is_used());
        used.map(|(space, state)| {
            let overhead = state.most_mapped.max(state.touched) - state.touched;
            SpaceReport {
                space,
                costs: state.costs,
                cycles: state.costs.cycles(),
                rates: state.costs.rates(),
                file_hit_ratio: state.costs.file_hit_ratio(),
                pages: state.table.mapped(),
                memory_overhead: overhead as f64 / state.touched.max(1) as f64,
                pages_by_color: self.pages_by_color(space),
            }
        })
        .collect()
    }

    fn pages_by_color(&self, space: u16) -> Vec<u64> {
        if self.frames.colors() <= 1 {
            return Vec::new();
        }
        let mut sums = vec![0; usize::from(self.frames.colors())];
        for (_, at) in self.spaces[usize::from(space)].table.pages() {
            for frame in at.frame().0..at.frame().0 + (1 << at.order()) {
                if let Some(color) = self.frames.color(huepage_color::Pfn(frame)) {
                    sums[usize::from(color.0)] += 1;
                }
            }
        }
        sums
    }

    /// What must hold after every run: the caches are sound, each frame belongs to one page of
    /// a program, a table or a file and is counted as used, once by its colour, no request was
    /// lost between levels, and no page on the way through the page cache.
    ///
    /// # Errors
    /// In words, what does not hold.
    pub fn check(&self) -> Result<(), String> {
        self.hierarchy.check()?;
        self.page_cache().check()?;
        let all = self.spaces.iter().flat_map(|state| state.table.pages());
        let block = |(_, at): (_, crate::space::PageMapping)| {
            at.frame().0..at.frame().0 + (1 << at.order())
        };
        let tables = self.spaces.iter().filter_map(|state| state.tables.as_ref());
        let hashed = self.hashed.iter().flat_map(HashedTable::frames);
        let watches = self.spaces.iter().filter_map(|state| state.watch.as_ref());
        let handlers = watches.flat_map(|watch| watch.handler.values().copied());
        let own = tables.flat_map(Tables::frames).chain(hashed).chain(handlers);
        let own = own.map(|frame| frame.0);
        let files = self.page_cache().pages().map(|page| page.frame.0);
        let mut frames: Vec<u64> = all.flat_map(block).chain(own).chain(files).collect();
        let n = frames.len() as u64;
        frames.sort_unstable();
        frames.dedup();
        if frames.len() as u64 != n || n != self.frames.used() {
            let (distinct, used) = (frames.len(), self.frames.used());
            return Err(format!("{n} pages in {distinct} frames of {used} handed out"));
        }
        (0_u16..).zip(&self.spaces).try_for_each(|(space, state)| {
            let found = self.pages_by_color(space);
            let differ =
                (0..found.len()).find(|&c| state.by_color.get(c).copied().unwrap_or(0) != found[c]);
            differ.map_or(Ok(()), |color| {
                let (found, counted) = (found[color], state.by_color.get(color));
                Err(format!("space {space}: {found} pages of color {color}, {counted:?} counted"))
            })
        })
    }
}
