//! Which pages of a running process are in the cache, found without any counter: a thread of ours on
//! the CPU of the process wakes a few hundred times a second and times one load of a line of a few
//! dozen of its pages. A line that is found was used lately; how often that is so estimates reuse.
//!
//! `line_timer` times lines by their physical addresses, in the kernel: the process is not touched and
//! may unmap what it likes meanwhile. `levels` finds out what lines take that are in the private cache
//! or the next, `hit_classifier` tells hits from misses, `sample_set` chooses pages
//! and counts. What is done with the answer is decided elsewhere.

mod hit_classifier;
mod levels;
mod sample_set;
mod survival;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::color::line_timer::{ResidencyError, TimedLine, Timer};
use hit_classifier::HitClassifier;
pub use huepage_policy::residency::{AreaSeen, SampledPage};
use levels::Levels;
use sample_set::SampleSet;
use survival::Survival;

use crate::color::probe::OwnPages;
use crate::color::probe::frame_number_verdict::frames_of;
use crate::kernel::area_references::AreaReferences;
use crate::kernel::cpus::OnCpu;
use crate::kernel::page_tables::{AddressSpace, BlockMapping, PageTables};
use crate::kernel::process_memory::{ProcessMemory, thread_time};
use crate::kernel::procfs::{Pagemap, ProcRoot, Stat};
use fastrand::Rng;
use huepage_color::{Pfn, Vpn};
use huepage_policy::residency::{Errors, Estimate, ResidencyTally, Segment};

/// Time between two looks, at least.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
/// Time between two looks, at most: lines that are surely not in the cache are to stay unlike others.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// What a look takes of the process beside its own CPU time: two switches, and caches that are filled
/// anew after them.
const DISTURBANCE: Duration = Duration::from_micros(30);
/// After so long it is looked up anew where the pages are.
const LOCATE_INTERVAL: Duration = Duration::from_secs(3);
/// Lines of each kind in a look by which hits are told from misses.
const CONTROL_LINES: usize = 4;
/// One look in so many is followed by a brief one at lines of ours that it loaded.
const LOOKS_PER_BRIEF_LOOK: u64 = 4;
/// So long after, at least; up to eight times as long.
const BRIEF_PAUSE: Duration = Duration::from_micros(500);
/// Threads that are asked at a time.
const THREADS_ASKED: usize = 16;
/// Looks after which it is asked anew on which CPU the process runs.
const LOOKS_PER_CPU_CHECK: u64 = 16;
/// After so long it is measured anew what lines take; where they are seen to take another time, sooner.
const MEASURE_INTERVAL: Duration = Duration::from_secs(30);
const MEASURE_INTERVAL_DRIFTED: Duration = Duration::from_secs(5);
/// So often, each time.
const MEASURE_REPEATS: usize = 3;
/// With more looks wrong than this, of both kinds together, other ways of timing are tried.
const WRONG_SHARE: f64 = 0.1;
/// Memory that is never all in the cache, in times of its size.
const COLD_CACHE_SIZES: u64 = 8;

/// What a watch has seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ResidencyReport {
    /// The process.
    pub pid: i32,
    /// Who tells: always `residency`.
    pub sensor: &'static str,
    /// Looks made while the process ran.
    pub looks: u64,
    /// Lines timed of its pages.
    pub samples: u64,
    /// Those that were found in the cache.
    pub found: u64,
    /// Seconds that the watch lasted.
    pub seconds: f64,
    /// CPU seconds that it took.
    pub cpu_seconds: f64,
    /// The share of the process's requests to the private cache that miss, as estimated from what is there;
    /// `None` where that cannot be told from the cache behind it.
    pub miss_rate: Option<f64>,
    /// By how much that may be wrong by chance.
    pub miss_rate_margin: Option<f64>,
    /// Lines that the process brings into the cache in a second of its CPU time, as estimated from how
    /// long lines stay that nobody uses; at most so many if nothing was seen to go.
    pub fills_per_second: Option<f64>,
    /// Whether that is only a bound.
    pub fills_at_most: bool,
    /// Nanoseconds that a line takes that is in the cache, and one that is not, with those of the
    /// measurement; `None` before enough was seen.
    pub latencies: Option<[u64; 2]>,
    /// Whether a line in the cache behind the private one counts as missing; else the clock is too coarse
    /// to tell it from one in the private cache.
    pub private_only: bool,
    /// How often looks are wrong.
    pub errors: Errors,
    /// The areas of the process with anything resident.
    pub areas: Vec<AreaSeen>,
}

/// What one look found: the sampled_pages of pages whose line was timed, and whether it was in the cache.
pub type LinesSeen = Vec<(usize, bool)>;

/// See the module's head. Made by, and for, one thread, which follows the process from CPU to CPU until
/// it is dropped.
pub struct Watch {
    pid: i32,
    root: ProcRoot,
    pagemap: Pagemap,
    clock: ProcessMemory,
    timer: Timer,
    classifier: HitClassifier,
    cold: Vec<Pfn>,
    /// The pages of these frames.
    own: OwnPages,
    measured: Option<Instant>,
    sample_set: SampleSet,
    survival: Survival,
    cache_lines: u64,
    tables: Option<(PageTables, AddressSpace)>,
    located: Instant,
    random: Rng,
    /// Back to where the thread may run when this is dropped.
    place: Option<OnCpu>,
    cpu: Option<u32>,
    ran: Duration,
    budget: f64,
    /// When it began, by the clock and by the CPU time of this thread.
    began: (Instant, Duration),
    /// The same from when the budget counts.
    paced: (Instant, Duration),
    /// Whether what it took to begin counts.
    counts_start: bool,
    looks: u64,
    /// Looks at lines of ours alone.
    brief: u64,
}

impl Watch {
    /// Begins to watch a process, whose private cache has so many bytes, for at most a share `budget` of
    /// one CPU.
    ///
    /// # Errors
    /// When the process has ended, or the kernel does not let us.
    pub fn open(pid: i32, cache_bytes: u64, budget: f64) -> Result<Watch, ResidencyError> {
        let root = ProcRoot::default();
        let gone = |_| ResidencyError::Gone(pid);
        let began = (Instant::now(), thread_time());
        let (clock, timer) = (ProcessMemory::open(pid).map_err(gone)?, Timer::open()?);
        // What it ran before does not say that it runs.
        let ran = clock.cpu_time();
        let (own, cold) = cold(cache_bytes)?;
        let mut random = Rng::with_seed(u64::from(pid.unsigned_abs()));
        let sample_set = SampleSet::choose(&root, pid, &mut random)?;
        let mut watch = Watch {
            survival: Survival::default(),
            cache_lines: cache_bytes / 64,
            tables: None,
            pid,
            pagemap: root.pagemap(pid)?,
            clock,
            timer,
            classifier: HitClassifier::default(),
            cold,
            own,
            measured: None,
            sample_set,
            located: Instant::now(),
            random,
            place: OnCpu::anywhere().ok(),
            cpu: None,
            ran,
            budget,
            began,
            paced: began,
            counts_start: false,
            looks: 0,
            brief: 0,
            root,
        };
        watch.sample_set.locate(&watch.pagemap)?;
        watch.paced = (Instant::now(), watch.spent());
        Ok(watch)
    }

    /// Sleeps, then looks at some lines; what was seen of them, which is nothing while the process does
    /// not run and in the first moments.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn look(&mut self) -> Result<LinesSeen, ResidencyError> {
        std::thread::sleep(self.pause());
        let ran = self.clock.cpu_time();
        if ran <= self.ran {
            let stat = self.root.stat(self.pid).ok().filter(|stat| !stat.is_dead());
            return stat.map(|_| LinesSeen::new()).ok_or(ResidencyError::Gone(self.pid));
        }
        self.ran = ran;
        if self.looks.is_multiple_of(LOOKS_PER_CPU_CHECK) {
            self.follow();
        }
        if self.located.elapsed() >= LOCATE_INTERVAL {
            self.sample_set.locate(&self.pagemap)?;
            self.located = Instant::now();
        }
        self.measure()?;
        let (lines, sampled_pages) = self.lines();
        let took = self.timer.time(&lines)?;
        self.looks += 1;
        let seen = self.classify(&took, &sampled_pages);
        if self.looks.is_multiple_of(LOOKS_PER_BRIEF_LOOK) {
            self.look_briefly()?;
        }
        Ok(seen)
    }

    /// Soon after a look, at lines of ours that were loaded then: looks are too far apart to see how
    /// quickly lines go that go quickly.
    fn look_briefly(&mut self) -> Result<(), ResidencyError> {
        let Some(cut) = self.classifier.cut() else { return Ok(()) };
        std::thread::sleep(BRIEF_PAUSE * (1 << self.random.usize(..4)));
        self.brief += 1;
        let ran = self.clock.cpu_time();
        let newest = |survival: &mut Survival| survival.take(survival.waiting() - 1, ran);
        let aged: Vec<(TimedLine, Duration)> = (0..CONTROL_LINES.min(self.survival.waiting()))
            .filter_map(|_| newest(&mut self.survival))
            .collect();
        let lines: Vec<TimedLine> = aged.iter().map(|(line, _)| *line).collect();
        let timed = self.timer.time(&lines)?.into_iter().zip(aged);
        let told = timed.filter_map(|(took, (_, age))| Some((age, took? < cut)));
        told.for_each(|(age, found)| self.survival.note(age, found));
        Ok(())
    }

    /// From now on looking may take this share of one CPU.
    pub fn set_budget(&mut self, budget: f64) {
        if (budget - self.budget).abs() > f64::EPSILON {
            (self.budget, self.paced) = (budget, (Instant::now(), self.spent()));
        }
    }

    /// The budget holds from the start: what it took to begin is saved on looks, which are few until then.
    pub fn count_start(&mut self) {
        (self.paced, self.counts_start) = (self.began, true);
    }

    /// What it has taken so far of the process's CPU, to begin included.
    fn spent(&self) -> Duration {
        thread_time() + DISTURBANCE * u32::try_from(self.looks + self.brief).unwrap_or(u32::MAX)
    }

    /// Finds out what lines take in the private cache and the next, if that is not known or may have
    /// changed.
    fn measure(&mut self) -> Result<(), ResidencyError> {
        let due = self.measured.is_none_or(|at| {
            at.elapsed() >= MEASURE_INTERVAL
                || at.elapsed() >= MEASURE_INTERVAL_DRIFTED && self.classifier.drifted()
        });
        if !due {
            return Ok(());
        }
        let first = self.measured.replace(Instant::now()).is_none();
        self.learn()?;
        if self.classifier.apart().is_none_or(|wrong| wrong > WRONG_SHARE) {
            self.learn_best()?;
        }
        if first && !self.counts_start {
            self.paced = (Instant::now(), self.spent());
        }
        Ok(())
    }

    /// By the present way of timing.
    fn learn(&mut self) -> Result<(), ResidencyError> {
        let own = (&self.own, &self.cold[..]);
        let mut levels = Levels::default();
        for _ in 0..MEASURE_REPEATS {
            levels.measure(&mut self.timer, own, 64 * self.cache_lines, &mut self.random)?;
        }
        self.classifier.learn(&levels);
        Ok(())
    }

    /// By each way of timing, of which the one stays that tells most.
    fn learn_best(&mut self) -> Result<(), ResidencyError> {
        let mut best: Option<(f64, usize)> = None;
        for way in 0..Timer::WAYS {
            self.timer.shift(way);
            self.learn()?;
            let wrong = self.classifier.apart().unwrap_or(f64::INFINITY);
            if best.is_none_or(|(least, _)| wrong < least) {
                best = Some((wrong, way));
            }
        }
        self.timer.shift(best.map_or(0, |(_, way)| way));
        self.learn()
    }

    /// How long to sleep so that the share of a CPU is kept.
    fn pause(&self) -> Duration {
        let (start, cpu) = self.paced;
        pause(self.spent().saturating_sub(cpu), start.elapsed(), self.budget)
    }

    /// Goes to the CPU on which the process runs: its private cache is what it has used. Where several
    /// threads run, they have their turns.
    fn follow(&mut self) {
        let Ok(threads) = self.root.tasks(self.pid) else { return };
        let first = self.random.usize(..threads.len().max(1));
        let turns = threads[first..].iter().chain(&threads[..first]).take(THREADS_ASKED);
        let stats: Vec<Stat> = turns.filter_map(|&thread| self.root.stat(thread).ok()).collect();
        let running = stats.iter().find(|stat| stat.state == 'R').or(stats.first());
        let Some(cpu) = running.map(|stat| stat.processor) else { return };
        if self.cpu != Some(cpu) && self.place.as_ref().is_some_and(|p| p.go(cpu as usize).is_ok())
        {
            self.cpu = Some(cpu);
        }
    }

    /// Lines to time, and whose they are: first some to be loaded, the same ones again and others that
    /// were not loaded for long, in turns with those of the process.
    fn lines(&mut self) -> (Vec<TimedLine>, Vec<Whose>) {
        let aged = self.aged_lines();
        let mut cold = || {
            let frame = self.cold[self.random.usize(..self.cold.len())];
            TimedLine { frame, index: self.random.usize(..64).to_le_bytes()[0] }
        };
        let warm: [TimedLine; CONTROL_LINES] = std::array::from_fn(|_| cold());
        let mut rest: Vec<(TimedLine, Whose)> =
            warm.iter().map(|&line| (line, Whose::There)).collect();
        rest.extend(aged);
        warm.iter().for_each(|&line| self.survival.loaded(line, self.ran));
        rest.extend((0..CONTROL_LINES).map(|_| (cold(), Whose::Gone)));
        let sampled_pages = self.sample_set.frames.len();
        for _ in rest.len()..Timer::MOST - CONTROL_LINES {
            let sampled_page = self.random.usize(..sampled_pages.max(1));
            let index = self.random.usize(..64).to_le_bytes()[0];
            let frame = self.sample_set.frames.get(sampled_page).copied().flatten();
            rest.extend(
                frame.map(|frame| (TimedLine { frame, index }, Whose::SampledPage(sampled_page))),
            );
        }
        self.random.shuffle(&mut rest);
        let first = warm.into_iter().map(|line| (line, Whose::Nobody));
        first.chain(rest).unzip()
    }

    /// Lines of ours that were loaded some looks ago and not since.
    fn aged_lines(&mut self) -> Vec<(TimedLine, Whose)> {
        let mut one = |_| {
            let at = self.random.usize(..self.survival.waiting().max(1));
            self.survival.take(at, self.ran).map(|(line, age)| (line, Whose::Aged(age)))
        };
        (0..CONTROL_LINES).filter_map(&mut one).collect()
    }

    fn classify(&mut self, took: &[Option<u64>], whose: &[Whose]) -> LinesSeen {
        let timed = took.iter().zip(whose).filter_map(|(took, whose)| Some(((*took)?, whose)));
        let mut seen = LinesSeen::new();
        let cut = self.classifier.cut();
        for (took, whose) in timed {
            match (*whose, cut) {
                (Whose::There, _) => self.classifier.there(took),
                (Whose::Gone, _) => self.classifier.gone(took),
                (Whose::SampledPage(sampled_page), _) => {
                    seen.extend(self.classifier.found(took).map(|is| (sampled_page, is)))
                }
                (Whose::Aged(age), Some(cut)) => self.survival.note(age, took < cut),
                _ => {}
            }
        }
        seen.iter()
            .for_each(|&(sampled_page, found)| self.sample_set.tally.note(sampled_page, found));
        seen
    }

    /// The pages that are looked at are chosen anew, and nothing is known of them yet. Memory that came
    /// since the last time is among them.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn choose_anew(&mut self) -> Result<(), ResidencyError> {
        self.sample_set = SampleSet::choose(&self.root, self.pid, &mut self.random)?;
        self.sample_set.locate(&self.pagemap)?;
        Ok(())
    }

    /// Looks at these pages from now on, ascending, and at no others; nothing is known of them yet. They are
    /// taken for one area of heap.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn look_only_at(&mut self, pages: &[Vpn]) -> Result<(), ResidencyError> {
        self.sample_set = SampleSet::of_pages(pages);
        self.sample_set.locate(&self.pagemap)?;
        self.located = Instant::now();
        Ok(())
    }

    /// What was seen lately of pages is forgotten: [`Self::segments`] and [`Self::estimate`] are about
    /// what comes now.
    pub fn forget(&mut self) {
        self.sample_set.tally.forget();
    }

    /// From now on it is noted which pages are used at all, by their accessed bits: a few nanoseconds for
    /// each resident page. Where they cannot be read, all are taken to be used.
    pub fn begin_uses(&mut self) {
        if self.tables.is_none() {
            self.tables =
                PageTables::open().ok().and_then(|t| t.space(self.pid).ok().map(|s| (t, s)));
        }
        if self.tables.is_some()
            && AreaReferences::new(self.root.clone(), self.pid).clear().is_err()
        {
            self.tables = None;
        }
    }

    /// Which pages were used since [`Self::begin_uses`].
    pub fn end_uses(&mut self) {
        let Some((tables, space)) = &mut self.tables else { return };
        let mut blocks: Vec<u64> = self
            .sample_set
            .tally
            .sampled_pages
            .iter()
            .map(|sampled_page| sampled_page.page.0 >> 9)
            .collect();
        blocks.dedup();
        let mut found = Vec::new();
        if tables.read(space, &blocks, &mut found).is_err() {
            return;
        }
        let seen: HashMap<u64, BlockMapping> = blocks.into_iter().zip(found).collect();
        self.sample_set.tally.note_uses(|page| match seen.get(&(page.0 >> 9)) {
            Some(BlockMapping::Pages { accessed, .. }) => accessed.get((page.0 & 511) as usize),
            Some(BlockMapping::Huge { accessed }) => *accessed,
            _ => false,
        });
    }

    /// Pages that are used alike, by what was seen lately, each with its area's place in the report.
    pub fn segments(&self) -> Vec<(usize, Segment)> {
        self.sample_set.tally.segments()
    }

    /// Segments with what was seen lately in place of what was seen before; those of
    /// [`Self::segments`], made since pages were last chosen anew.
    pub fn recount(&self, segments: &[(usize, Segment)]) -> Vec<Segment> {
        self.sample_set.tally.recount(segments)
    }

    /// How often looks are wrong.
    pub fn errors(&self) -> Errors {
        self.classifier.errors()
    }

    /// The share of requests that miss, by what was seen lately; `None` before anything was.
    pub fn estimate(&self) -> Option<Estimate> {
        self.sample_set.tally.estimate_with(self.errors())
    }

    /// Lines that are brought into the cache in a second of the process's CPU time, and whether that is
    /// only a bound from above; `None` before enough was seen. A line that nobody uses falls out when as
    /// many came as the cache has.
    pub fn fills(&self) -> Option<(f64, bool)> {
        let (half, longer) = self.survival.half_life()?;
        Some((self.cache_lines as f64 / half.as_secs_f64(), longer))
    }

    /// CPU time of the process when it was last looked at.
    pub fn ran(&self) -> Duration {
        self.ran
    }

    /// What was counted so far.
    pub fn tally(&self) -> &ResidencyTally {
        &self.sample_set.tally
    }

    /// The pages that are looked at, and what was seen of each.
    pub fn sampled_pages(&self) -> &[SampledPage] {
        &self.sample_set.tally.sampled_pages
    }

    /// What was seen so far.
    pub fn report(&self) -> ResidencyReport {
        let private_only = self.classifier.apart().is_some();
        let (estimate, fills) = (self.estimate().filter(|_| private_only), self.fills());
        let tally = &self.sample_set.tally;
        ResidencyReport {
            miss_rate: estimate.map(|estimate| estimate.miss_rate),
            miss_rate_margin: estimate.map(|estimate| estimate.margin),
            fills_per_second: fills.map(|(fills, _)| fills),
            fills_at_most: fills.is_some_and(|(_, longer)| longer),
            pid: self.pid,
            sensor: "residency",
            looks: self.looks,
            samples: tally.samples(),
            found: tally.found(),
            seconds: self.began.0.elapsed().as_secs_f64(),
            cpu_seconds: thread_time().saturating_sub(self.began.1).as_secs_f64(),
            latencies: self.classifier.medians(),
            private_only,
            errors: self.errors(),
            areas: tally.areas.clone(),
        }
    }
}

/// How long to sleep after so much CPU time in so much time, for it to be no more than a share.
fn pause(spent: Duration, elapsed: Duration, budget: f64) -> Duration {
    let due = spent.div_f64(budget.max(1e-4));
    due.saturating_sub(elapsed).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// Pages of ours that are never all in a cache of so many bytes, and their frames.
fn cold(cache_bytes: u64) -> Result<(OwnPages, Vec<Pfn>), ResidencyError> {
    let pages =
        usize::try_from(COLD_CACHE_SIZES * cache_bytes / 4096).unwrap_or(1 << 15).min(1 << 15);
    let own = OwnPages::populated(pages)?;
    let frames = frames_of(&own)?;
    Ok((own, frames))
}

/// Whose a timed line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// Loaded so that it is there the next time.
    Nobody,
    /// Ours, loaded just before.
    There,
    /// Ours, not loaded for long.
    Gone,
    /// Ours, loaded when the process had run so much less.
    Aged(Duration),
    /// Of this sampled page.
    SampledPage(usize),
}
