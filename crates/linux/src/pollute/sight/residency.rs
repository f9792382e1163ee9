//! Polluting pages by which lines are in the cache: no counter is needed. How fast the process is follows
//! from its pace through what passes by, or from its miss rate, see the driver.

use std::time::{Duration, Instant};

use huepage_color::CacheLevel;
use huepage_policy::residency::{Estimate, Segment, misses_in_a_turnover};

use super::{Figures, Profiled, Resident, STRETCH, SensorKind, Sight, SightError, resident_pages};
use crate::engine::census::obstacle;
use crate::pmu::calls::Calls;
use crate::pollute::Settings;
use crate::pollute::driver::{Driver, Offer, Seen, Wants};
use crate::pollute::pace::Pace;
use crate::pollute::report::AreaConfined;
use crate::procfs::{Pagemap, ProcRoot};
use crate::residency::{AreaSeen, ResidencyError, Watch};

/// CPU time of the process that a profile takes, and how long it may take by the clock.
const PROFILE: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(8));
/// CPU time of the process between two counts while something is measured.
const SHORT_STRETCH: Duration = Duration::from_millis(60);
/// Counts that are of the same looks, while nothing happens.
const TOGETHER: u32 = 8;
/// What looking may take, in times of the share of a CPU that is asked for: little while nothing
/// happens, and more for a second or two when something is found out.
const BUDGET: [f64; 2] = [0.2, 3.0];
/// CPU time of the process between two looks at its pace, and while something is measured.
const PACE: [Duration; 2] = [Duration::from_millis(400), Duration::from_millis(30)];
/// Memory with less of its lines than this in the cache passes by, where no plan says what does.
const PASSES: f64 = 0.5;
const LINES_PER_PAGE: f64 = 64.0;

/// See the module's head.
pub(in crate::pollute) struct Looked {
    pid: i32,
    pagemap: Pagemap,
    /// The level of the cache that has the buffer.
    level: CacheLevel,
    watch: Watch,
    /// Segments of the last profile, with their areas' places.
    segments: Vec<(usize, Segment)>,
    areas: Vec<AreaSeen>,
    resident: Resident,
    /// A profile is being made since this CPU time and time.
    profiling: Option<(Duration, Instant)>,
    /// CPU time at the last estimate.
    counted: Duration,
    /// Counts since looks were forgotten.
    counts: u32,
    estimate: Option<Estimate>,
    cpu: f64,
    cache_lines: f64,
    pace: Option<Pace>,
    /// CPU time at the last look at the pace.
    paced: Duration,
    /// Whether something is measured just now.
    measuring: bool,
    /// Calls that are the program's progress, and how many there were at the last count.
    calls: Option<(Calls, u64)>,
}

impl Looked {
    pub fn of(pid: i32, settings: &Settings) -> Result<Looked, SightError> {
        let watch = Watch::of(pid, settings.cache_bytes, settings.cpu)?;
        let calls = settings.progress.as_ref().map(|function| Calls::of(pid, function));
        let calls = calls.transpose()?;
        Ok(Looked {
            pid,
            pagemap: ProcRoot::default().pagemap(pid)?,
            level: settings.level,
            watch,
            segments: Vec::new(),
            areas: Vec::new(),
            resident: Resident::new(),
            profiling: None,
            counted: Duration::ZERO,
            counts: 0,
            estimate: None,
            cpu: settings.cpu,
            cache_lines: settings.cache_bytes as f64 / 64.0,
            pace: Pace::of(pid),
            paced: Duration::ZERO,
            measuring: false,
            calls: calls.map(|calls| (calls, 0)),
        })
    }

    fn estimated(&self) -> Option<Estimate> {
        if self.segments.is_empty() {
            return self.watch.estimate();
        }
        Estimate::of(&self.watch.recount(&self.segments), self.watch.errors())
    }

    fn end_profile(&mut self, driver: &mut Driver) -> Result<Profiled, SightError> {
        self.watch.end_uses();
        self.areas = self.watch.report().areas;
        self.segments = self.watch.segments();
        let movable = movable_areas(self.pid)?;
        // Of memory that cannot be moved nothing is told: the policy would wish in vain.
        let told = self.segments.iter().filter(|(at, _)| movable.contains(&self.areas[*at].start));
        let told: Vec<Segment> = told.map(|(_, segment)| *segment).collect();
        self.resident.clear();
        for segment in &told {
            let pages = resident_pages(&self.pagemap, segment.first, segment.last)?;
            self.resident.insert(segment.first, pages);
        }
        let pages =
            |segment: &Segment| self.resident.get(&segment.first).cloned().unwrap_or_default();
        let reviewing = driver.is_reviewing();
        let wants = driver.profile(&told, self.watch.errors(), pages);
        let why = if reviewing { None } else { self.weigh(&told, driver) };
        self.counted = self.watch.ran();
        self.estimate = self.estimated();
        self.keep_time(driver);
        let of = format!("{} segments", told.len());
        Ok(Profiled { wants, of: why.map_or(of.clone(), |why| format!("{of}: {why}")) })
    }

    /// What passes by tells from now on how fast the process is; and whether to confine it is worth it.
    fn weigh(&mut self, told: &[Segment], driver: &mut Driver) -> Option<String> {
        let (errors, planned) = (self.watch.errors(), driver.planned());
        let passes = |segment: &&Segment| match (&planned, self.resident.get(&segment.first)) {
            (Some(planned), Some(pages)) => {
                2 * pages.iter().filter(|page| planned.contains(page)).count() > pages.len()
            }
            _ => segment.used > 0 && segment.there(errors) < PASSES,
        };
        let (passing, kept): (Vec<&Segment>, Vec<&Segment>) = told.iter().partition(passes);
        let [passing, kept]: [Vec<Segment>; 2] =
            [passing, kept].map(|part| part.into_iter().copied().collect());
        // A function that was not called so far tells nothing.
        let called = self.calls.as_ref().is_some_and(|(_, calls)| *calls > 0);
        if !called {
            self.choose_pace(&passing);
        }
        driver.go_by_pace(called || self.pace.as_ref().is_some_and(Pace::is_known));
        let (fills, _) = self.watch.fills()?;
        let pages = planned.filter(|planned| !planned.is_empty())?.len();
        let missed = misses_in_a_turnover(&kept, errors, LINES_PER_PAGE);
        let saved = missed * fills / self.cache_lines;
        driver.weigh(Offer { saved, pages, ran: self.watch.ran() })
    }

    /// How fast the program has got on: calls in a second of its CPU time, or pages that it passed.
    fn progress(&mut self, time: Duration) -> Result<Option<f64>, SightError> {
        if let Some((calls, before)) = &mut self.calls {
            let now = calls.read()?;
            let made = now.saturating_sub(std::mem::replace(before, now));
            if now > 0 {
                return Ok(Some(made as f64 / time.as_secs_f64().max(1e-9)));
            }
        }
        Ok(self.pace.as_mut().filter(|pace| pace.is_known()).and_then(Pace::take))
    }

    /// The first looks only find out how long one is to take.
    fn choose_pace(&mut self, passing: &[Segment]) {
        let Some(pace) = &mut self.pace else { return };
        pace.choose(passing);
        for _ in 0..Pace::TRIED {
            pace.look();
        }
    }

    fn look_at_pace(&mut self) {
        let (ran, every) = (self.watch.ran(), PACE[usize::from(self.measuring)]);
        let due = self.profiling.is_none() && ran.saturating_sub(self.paced) >= every;
        if let Some(pace) = self.pace.as_mut().filter(|pace| due && pace.is_known()) {
            pace.look();
            self.paced = ran;
        }
    }

    /// How often to look depends on what the policy is doing.
    fn keep_time(&mut self, driver: &Driver) {
        self.measuring = driver.is_measuring();
        self.watch.set_budget(self.cpu * BUDGET[usize::from(driver.is_curious())]);
    }
}

impl Sight for Looked {
    fn kind(&self) -> SensorKind {
        SensorKind::Residency
    }

    fn detail(&self) -> String {
        // Lines are timed on the processor that runs it: what is found there is in its own cache.
        let seen = match self.level.0 {
            0..=2 => String::new(),
            _ => format!(", which sees the L2 in place of the {}", self.level),
        };
        format!("lines of its memory, timed by the kernel{seen}")
    }

    fn look(&mut self) -> Result<(), SightError> {
        self.watch.look()?;
        self.look_at_pace();
        Ok(())
    }

    fn ran(&self) -> Duration {
        self.watch.ran()
    }

    fn stretch(&self) -> Duration {
        if self.measuring { SHORT_STRETCH } else { STRETCH }
    }

    fn count(&mut self, driver: &mut Driver) -> Result<Wants, SightError> {
        let ran = self.watch.ran();
        let time = ran.saturating_sub(std::mem::replace(&mut self.counted, ran));
        let estimate = self.estimated();
        let seen = Seen {
            pace: self.progress(time)?,
            miss_rate: estimate.map(|e| e.miss_rate),
            fills: self.watch.fills().and_then(known_fills),
        };
        let wants = driver.ran(time, seen);
        self.estimate = estimate.or(self.estimate);
        self.counts += 1;
        if !wants.moves && (driver.is_curious() || self.counts >= TOGETHER) {
            self.watch.forget();
            self.counts = 0;
        }
        self.keep_time(driver);
        Ok(wants)
    }

    fn forget(&mut self) -> Result<(), SightError> {
        self.watch.forget();
        if let Some((calls, before)) = &mut self.calls {
            *before = calls.read()?;
        }
        self.counted = self.watch.ran();
        Ok(())
    }

    fn begin_profile(&mut self) -> Result<(), SightError> {
        self.watch.set_budget(self.cpu * BUDGET[1]);
        self.watch.choose_anew()?;
        self.watch.begin_uses();
        self.profiling = Some((self.watch.ran(), Instant::now()));
        Ok(())
    }

    fn profile(&mut self, driver: &mut Driver) -> Result<Option<Profiled>, SightError> {
        let Some((ran, since)) = self.profiling else { return Ok(None) };
        let enough = self.watch.ran().saturating_sub(ran) >= PROFILE.0;
        if !enough && since.elapsed() < PROFILE.1 {
            return Ok(None);
        }
        self.profiling = None;
        self.end_profile(driver).map(Some)
    }

    fn figures(&self) -> Figures {
        Figures {
            miss_rate: self.estimate.map(|e| (e.miss_rate, e.margin)),
            fills_per_second: self.watch.fills().map(|(fills, _)| fills),
            ..Figures::default()
        }
    }

    fn areas(&self, driver: &Driver) -> Vec<AreaConfined> {
        let mut found: Vec<AreaConfined> = Vec::new();
        let errors = self.watch.errors();
        for (at, segment) in &self.segments {
            let pages = self.resident.get(&segment.first).into_iter().flatten();
            let confined = pages.filter(|page| driver.confines(**page)).count() as u64;
            let area = &self.areas[*at];
            if confined == 0 {
                continue;
            }
            let there = segment.there(errors) * confined as f64;
            match found.last_mut().filter(|last| last.start == area.start) {
                Some(last) => {
                    (last.pages, last.there) = (last.pages + confined, last.there + there)
                }
                None => found.push(AreaConfined {
                    start: area.start,
                    end: area.end,
                    name: if area.name.is_empty() {
                        area.kind.to_string()
                    } else {
                        area.name.clone()
                    },
                    pages: confined,
                    resident: area.resident,
                    there,
                }),
            }
        }
        found.iter_mut().for_each(|area| area.there /= area.pages as f64);
        found
    }
}

/// Lines brought in in a second, if that is known; a bound that is low enough says that it is nothing.
fn known_fills((fills, at_most): (f64, bool)) -> Option<f64> {
    match at_most {
        false => Some(fills),
        true => (fills < Driver::LITTLE).then_some(0.0),
    }
}

/// Where the areas begin whose pages can be moved.
fn movable_areas(pid: i32) -> Result<Vec<u64>, ResidencyError> {
    let areas = ProcRoot::default().maps(pid)?;
    Ok(areas.iter().filter(|area| obstacle(area).is_none()).map(|area| area.start).collect())
}
