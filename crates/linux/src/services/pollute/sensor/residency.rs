//! Polluting pages by which lines are in the cache: no counter is needed. How fast the process is follows
//! from its pace through what passes by, or from its miss rate, see the policy.

use std::time::{Duration, Instant};

use huepage_color::CacheLevel;
use huepage_policy::residency::{Estimate, Segment, misses_in_a_turnover};
use huepage_policy::rocs::weighed::{
    ConfinementStep, MoveEstimate, StretchSeen, Weighed, WeighedSettings,
};

use super::{
    PollutionSensor, PollutionSensorError, Profiled, Resident, STRETCH_CPU_TIME, SensorKind,
    SensorReadings, resident_pages,
};
use crate::color::line_timer::ResidencyError;
use crate::kernel::pmu::calls::Calls;
use crate::kernel::procfs::{Pagemap, ProcRoot, obstacle};
use crate::sensors::pace::Pace;
use crate::sensors::residency::{AreaSeen, Watch};
use crate::services::pollute::Settings;
use crate::services::pollute::report::AreaConfined;

/// CPU time of the process that a profile takes, and how long it may take by the clock.
const PROFILE_CPU_TIME: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(8));
/// CPU time of the process between two counts while something is measured.
const MEASURING_STRETCH: Duration = Duration::from_millis(60);
/// Counts that are of the same looks, while nothing happens.
const COUNTS_TOGETHER: u32 = 8;
/// CPU time of the process between two looks at its pace, and while something is measured.
const PACE_INTERVALS: [Duration; 2] = [Duration::from_millis(400), Duration::from_millis(30)];
const LINES_PER_PAGE: f64 = 64.0;

/// See the module's head.
pub(in crate::services::pollute) struct ResidencySensor {
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

impl ResidencySensor {
    pub fn open(pid: i32, settings: &Settings) -> Result<ResidencySensor, PollutionSensorError> {
        let watch = Watch::open(pid, settings.cache_bytes, settings.cpu)?;
        let calls = settings.progress.as_ref().map(|function| Calls::open(pid, function));
        let calls = calls.transpose()?;
        Ok(ResidencySensor {
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
            pace: Pace::open(pid),
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

    fn end_profile(&mut self, policy: &mut Weighed) -> Result<Profiled, PollutionSensorError> {
        self.watch.end_uses();
        self.areas = self.watch.report().areas;
        self.segments = self.watch.segments();
        let movable = movable_areas(self.pid)?;
        // Memory that cannot be moved is left out: the policy would ask in vain.
        let told = self.segments.iter().filter(|(at, _)| movable.contains(&self.areas[*at].start));
        let told: Vec<Segment> = told.map(|(_, segment)| *segment).collect();
        self.resident.clear();
        for segment in &told {
            let pages = resident_pages(&self.pagemap, segment.first, segment.last)?;
            self.resident.insert(segment.first, pages);
        }
        let pages =
            |segment: &Segment| self.resident.get(&segment.first).cloned().unwrap_or_default();
        let reviewing = policy.is_reviewing();
        let wants = policy.profile(&told, self.watch.errors(), pages);
        let why = if reviewing { None } else { self.estimate_moves(&told, policy) };
        self.counted = self.watch.ran();
        self.estimate = self.estimated();
        self.keep_time(policy);
        let of = format!("{} segments", told.len());
        Ok(Profiled { wants, of: why.map_or(of.clone(), |why| format!("{of}: {why}")) })
    }

    /// What passes by tells from now on how fast the process is; and whether to confine it is worth it.
    fn estimate_moves(&mut self, told: &[Segment], policy: &mut Weighed) -> Option<String> {
        let (errors, planned) = (self.watch.errors(), policy.planned());
        let passes = |segment: &&Segment| match (&planned, self.resident.get(&segment.first)) {
            (Some(planned), Some(pages)) => {
                2 * pages.iter().filter(|page| planned.contains(page)).count() > pages.len()
            }
            _ => segment.used > 0 && segment.there(errors) < WeighedSettings::PASSING,
        };
        let (passing, kept): (Vec<&Segment>, Vec<&Segment>) = told.iter().partition(passes);
        let [passing, kept]: [Vec<Segment>; 2] =
            [passing, kept].map(|part| part.into_iter().copied().collect());
        // A function that was not called so far tells nothing.
        let called = self.calls.as_ref().is_some_and(|(_, calls)| *calls > 0);
        if !called {
            self.choose_pace(&passing);
        }
        policy.go_by_pace(called || self.pace.as_ref().is_some_and(Pace::is_known));
        let (fills, _) = self.watch.fills()?;
        let pages = planned.filter(|planned| !planned.is_empty())?.len();
        let missed = misses_in_a_turnover(&kept, errors, LINES_PER_PAGE);
        let saved = missed * fills / self.cache_lines;
        policy.weigh(MoveEstimate { saved, pages, ran: self.watch.ran() })
    }

    /// How fast the program has got on: calls in a second of its CPU time, or pages that it passed.
    fn progress(&mut self, time: Duration) -> Result<Option<f64>, PollutionSensorError> {
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
        for _ in 0..Pace::ADAPTING_LOOKS {
            pace.look();
        }
    }

    fn look_at_pace(&mut self) {
        let (ran, every) = (self.watch.ran(), PACE_INTERVALS[usize::from(self.measuring)]);
        let due = self.profiling.is_none() && ran.saturating_sub(self.paced) >= every;
        if let Some(pace) = self.pace.as_mut().filter(|pace| due && pace.is_known()) {
            pace.look();
            self.paced = ran;
        }
    }

    /// How often to look depends on what the policy is doing.
    fn keep_time(&mut self, policy: &Weighed) {
        self.measuring = policy.is_measuring();
        self.watch.set_budget(self.cpu * WeighedSettings::EFFORT[usize::from(policy.is_curious())]);
    }
}

impl PollutionSensor for ResidencySensor {
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

    fn look(&mut self) -> Result<(), PollutionSensorError> {
        self.watch.look()?;
        self.look_at_pace();
        Ok(())
    }

    fn ran(&self) -> Duration {
        self.watch.ran()
    }

    fn stretch(&self) -> Duration {
        if self.measuring { MEASURING_STRETCH } else { STRETCH_CPU_TIME }
    }

    fn count(&mut self, policy: &mut Weighed) -> Result<ConfinementStep, PollutionSensorError> {
        let ran = self.watch.ran();
        let time = ran.saturating_sub(std::mem::replace(&mut self.counted, ran));
        let estimate = self.estimated();
        let seen = StretchSeen {
            pace: self.progress(time)?,
            miss_rate: estimate.map(|e| e.miss_rate),
            fills: self.watch.fills().and_then(known_fills),
        };
        let wants = policy.ran(time, seen);
        self.estimate = estimate.or(self.estimate);
        self.counts += 1;
        if !wants.moves && (policy.is_curious() || self.counts >= COUNTS_TOGETHER) {
            self.watch.forget();
            self.counts = 0;
        }
        self.keep_time(policy);
        Ok(wants)
    }

    fn forget(&mut self) -> Result<(), PollutionSensorError> {
        self.watch.forget();
        if let Some((calls, before)) = &mut self.calls {
            *before = calls.read()?;
        }
        self.counted = self.watch.ran();
        Ok(())
    }

    fn begin_profile(&mut self) -> Result<(), PollutionSensorError> {
        self.watch.set_budget(self.cpu * WeighedSettings::EFFORT[1]);
        self.watch.choose_anew()?;
        self.watch.begin_uses();
        self.profiling = Some((self.watch.ran(), Instant::now()));
        Ok(())
    }

    fn profile(&mut self, policy: &mut Weighed) -> Result<Option<Profiled>, PollutionSensorError> {
        let Some((ran, since)) = self.profiling else { return Ok(None) };
        let enough = self.watch.ran().saturating_sub(ran) >= PROFILE_CPU_TIME.0;
        if !enough && since.elapsed() < PROFILE_CPU_TIME.1 {
            return Ok(None);
        }
        self.profiling = None;
        self.end_profile(policy).map(Some)
    }

    fn readings(&self) -> SensorReadings {
        SensorReadings {
            miss_rate: self.estimate.map(|e| (e.miss_rate, e.margin)),
            fills_per_second: self.watch.fills().map(|(fills, _)| fills),
            ..SensorReadings::default()
        }
    }

    fn areas(&self, policy: &Weighed) -> Vec<AreaConfined> {
        let mut found: Vec<AreaConfined> = Vec::new();
        let errors = self.watch.errors();
        for (at, segment) in &self.segments {
            let pages = self.resident.get(&segment.first).into_iter().flatten();
            let confined = pages.filter(|page| policy.confines(**page)).count() as u64;
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
        true => (fills < WeighedSettings::LITTLE).then_some(0.0),
    }
}

/// Where the areas begin whose pages can be moved.
fn movable_areas(pid: i32) -> Result<Vec<u64>, ResidencyError> {
    let areas = ProcRoot::default().maps(pid)?;
    Ok(areas.iter().filter(|area| obstacle(area).is_none()).map(|area| area.start).collect())
}
