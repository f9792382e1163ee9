//! What the sensors of TLB misses see of a process, for a recording: which of its pages were touched, or
//! which accesses were sampled, beside what is resident where. Tells no policy and builds nothing; the form
//! is that of `huepage_policy::recording::touches`, files are written elsewhere.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use huepage_color::{CacheLevel, PAGE_BYTES};
use huepage_policy::pace::CpuBudget;
use huepage_policy::recording::touches::{
    RecordedArea, RecordedTlb, ResidentBlock, SampledEvent, Sampling, Survey, TouchHead, TouchLook,
    TouchSamples, TouchStep, TouchTally, TouchTotals,
};
use huepage_policy::recording::{LAST, RecordedSensor as Name, VERSION};

use super::accessed::AccessedBits;
use super::sensor;
use super::sensor::MissSensor as _;
use crate::kernel::page_tables::PageTables;
use crate::kernel::pmu::loads::{LoadEvents, SECONDS_PER_SAMPLE};
use crate::kernel::pmu::{Drained, PmuSample, Sampler};
use crate::kernel::process_memory::{ProcessMemory, thread_time};
use crate::kernel::procfs::{ProcError, ProcRoot};
use crate::sensors::superpage_map::{SuperpageMap, is_memory};
use crate::sensors::tlb::events::PmuSource;
use crate::sensors::tlb::fallbacks::PERIOD_MISSES;
use crate::sensors::tlb::{SensorError, TlbShape};
use fastrand::Rng;

/// Longest sleep between two turns.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);
/// Sleep after a look, at least.
const SHORTEST_SLEEP: Duration = Duration::from_millis(10);
/// How long samples are gathered.
const GATHER_WINDOW: Duration = Duration::from_millis(20);
/// Time between two surveys, at least.
const SURVEY_INTERVAL: Duration = Duration::from_millis(100);
/// Surveys take no more than one part in so many of the time.
const SURVEY_TIME_PARTS: u32 = 400;

/// What is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Which pages were touched.
    AccessedBits,
    /// Samples; of loads, those that asked the cache of a level.
    Samples(SampledEvent, CacheLevel),
}

/// Who sees it.
enum TouchSensor {
    Bits(Box<AccessedBits>),
    Misses(Sampler),
    Loads(Sampler, CacheLevel),
}

/// Watches one process, from the thread that made it.
pub struct TouchRecorder {
    root: ProcRoot,
    start: u64,
    process: ProcessMemory,
    sensor: TouchSensor,
    map: SuperpageMap,
    surveyed: Option<(Instant, Duration)>,
    head: TouchHead,
    tally: TouchTally,
    random: Rng,
    budget: CpuBudget,
    began: Instant,
    /// CPU time of this thread at the beginning.
    cpu_then: Duration,
    /// The same when the credit was told last.
    charged: Duration,
    /// CPU seconds of the process, now and when it was looked at last.
    cpu: f64,
    looked_at: f64,
    drained: Drained,
}

impl TouchRecorder {
    /// Begins to watch a process for at most this share of one CPU. Takes some 20 ms.
    ///
    /// # Errors
    /// When the process has ended, the sensor cannot be had here, or the user may not.
    pub fn open(pid: i32, what: What, share: f64) -> Result<TouchRecorder, SensorError> {
        let (root, began, cpu_then) = (ProcRoot::default(), Instant::now(), thread_time());
        let start = root.stat(pid)?.start_time;
        let process = ProcessMemory::open(pid).map_err(|_| ProcError::NoProcess(pid))?;
        let (sensor, samples) = open(pid, what, share)?;
        let (head, cpu) = (head(&root, pid, samples)?, process.cpu_time().as_secs_f64());
        Ok(TouchRecorder {
            tally: TouchTally::of(&head),
            head,
            start,
            process,
            sensor,
            map: SuperpageMap::default(),
            surveyed: None,
            random: Rng::with_seed(u64::from(pid.unsigned_abs())),
            budget: CpuBudget::new(share, Duration::ZERO),
            began,
            cpu_then,
            charged: cpu_then,
            cpu,
            // What it did before is none of the recording.
            looked_at: cpu,
            drained: Drained::default(),
            root,
        })
    }

    /// The first line of the recording.
    pub fn head(&self) -> &TouchHead {
        &self.head
    }

    /// What was counted so far.
    pub fn tally(&self) -> &TouchTally {
        &self.tally
    }

    /// Sleeps for a moment, 200 ms at most, then looks; the lines that come of it, which are none while
    /// the process does not run or enough was spent.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn steps(&mut self) -> Result<Vec<TouchStep>, SensorError> {
        let mut steps = Vec::new();
        let paid = self.budget.wait(self.began.elapsed()).is_zero();
        self.check_alive()?;
        if paid && self.is_survey_due() {
            steps.extend(self.survey()?);
        }
        let seen = match &self.sensor {
            TouchSensor::Bits(_) if paid && self.cpu > self.looked_at => self.look()?,
            TouchSensor::Bits(_) => None,
            TouchSensor::Misses(_) | TouchSensor::Loads(..) => self.sample()?,
        };
        steps.extend(seen);
        steps.iter().for_each(|step| self.tally.note(step));
        let spent = thread_time();
        self.budget.spend(spent.saturating_sub(std::mem::replace(&mut self.charged, spent)));
        if matches!(self.sensor, TouchSensor::Bits(_)) {
            let rest = self.budget.wait(self.began.elapsed());
            std::thread::sleep(rest.clamp(SHORTEST_SLEEP, LONGEST_SLEEP));
        }
        Ok(steps)
    }

    /// The last line of the recording.
    pub fn totals(&self, ended: bool) -> TouchTotals {
        let TouchTally { looks, pages, touched, samples, .. } = self.tally;
        TouchTotals {
            looks,
            pages,
            touched,
            samples,
            lost: self.drained.lost,
            unusable: self.drained.unusable,
            seconds: self.now(),
            cpu_seconds: thread_time().saturating_sub(self.cpu_then).as_secs_f64(),
            ended,
        }
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Notes what CPU time the process has used.
    fn check_alive(&mut self) -> Result<(), SensorError> {
        let (pid, stat) = (self.head.pid, self.root.stat(self.head.pid)?);
        if stat.start_time != self.start || stat.is_dead() {
            return Err(ProcError::NoProcess(pid).into());
        }
        // A process that is just ending has none any more.
        self.cpu = self.process.cpu_time().as_secs_f64().max(self.cpu);
        Ok(())
    }

    fn is_survey_due(&self) -> bool {
        let Some((at, cost)) = self.surveyed else { return true };
        self.cpu > self.looked_at && at.elapsed() >= SURVEY_INTERVAL.max(cost * SURVEY_TIME_PARTS)
    }

    /// What is resident now, if that is otherwise than before.
    fn survey(&mut self) -> Result<Option<TouchStep>, SensorError> {
        let (pid, began) = (self.head.pid, thread_time());
        self.map = match &mut self.sensor {
            TouchSensor::Bits(bits) => bits.survey(&self.root, pid)?,
            TouchSensor::Misses(_) | TouchSensor::Loads(..) => {
                SuperpageMap::from_proc(&self.root, pid)?
            }
        };
        let resident = self.root.statm(pid)?.resident;
        let first = self.surveyed.is_none();
        self.surveyed = Some((Instant::now(), thread_time().saturating_sub(began)));
        let (blocks, gone) = self.tally.changes(&blocks(&self.map));
        let same = blocks.is_empty() && gone.is_empty() && !first;
        let survey = Survey { survey: self.now(), resident, blocks, gone };
        Ok((!same).then_some(TouchStep::Survey(survey)))
    }

    fn look(&mut self) -> Result<Option<TouchStep>, SensorError> {
        let TouchSensor::Bits(bits) = &mut self.sensor else { return Ok(None) };
        let seen = bits.look(&self.map, &self.process, self.cpu, &mut self.random)?;
        self.looked_at = self.cpu;
        let (at, cpu) = (self.now(), self.cpu);
        Ok((!seen.sampled.is_empty()).then(|| TouchStep::Look(of_look(seen, at, cpu))))
    }

    fn sample(&mut self) -> Result<Option<TouchStep>, SensorError> {
        std::thread::sleep(GATHER_WINDOW);
        let mut found = Vec::new();
        let mut samples = TouchSamples::default();
        match &mut self.sensor {
            TouchSensor::Misses(sampler) => {
                self.drained += sampler.drain(&mut found)?;
                samples.missed = found.iter().filter_map(page).collect();
            }
            TouchSensor::Loads(sampler, level) => {
                self.drained += sampler.drain(&mut found)?;
                (samples.missed, samples.hit) = requests(&found, *level);
            }
            TouchSensor::Bits(_) => {}
        }
        self.looked_at = self.cpu;
        let any = !(samples.missed.is_empty() && samples.hit.is_empty());
        (samples.at, samples.cpu) = (self.now(), self.cpu);
        Ok(any.then_some(TouchStep::Samples(samples)))
    }
}

/// Pages of loads that asked the cache of a level: those that missed, and those that did not.
fn requests(samples: &[PmuSample], level: CacheLevel) -> (Vec<u64>, Vec<u64>) {
    let asked = samples
        .iter()
        .filter_map(|sample| Some((page(sample)?, sample.source.served()?.missed(level)?)));
    let (missed, hit): (Vec<_>, Vec<_>) = asked.partition(|(_, missed)| *missed);
    let pages = |some: Vec<(u64, bool)>| some.into_iter().map(|(page, _)| page).collect();
    (pages(missed), pages(hit))
}

/// The page of a sample, of those that a process can have.
fn page(sample: &PmuSample) -> Option<u64> {
    (sample.address < LAST).then_some(sample.address / PAGE_BYTES)
}

fn of_look(seen: sensor::SensorLook, at: f64, cpu: f64) -> TouchLook {
    let window_ns = u64::try_from(seen.window.as_nanos()).unwrap_or(u64::MAX);
    TouchLook { at, cpu, window_ns, slow: seen.slow, groups: seen.sampled }
}

fn blocks(map: &SuperpageMap) -> BTreeMap<u64, ResidentBlock> {
    let block = |(&at, block): (&u64, &crate::sensors::superpage_map::BlockResidency)| {
        let (resident, zero, huge) = (block.resident, block.zero, block.huge);
        (at, ResidentBlock { at, resident, zero, huge })
    };
    map.blocks.iter().map(block).collect()
}

/// Opens a sensor; what it samples.
fn open(pid: i32, what: What, share: f64) -> Result<(TouchSensor, Option<Sampling>), SensorError> {
    let sampling = |event, source: &str, period, level| {
        Some(Sampling { event, source: source.to_owned(), period, level })
    };
    Ok(match what {
        What::AccessedBits => {
            let tables = Rc::new(RefCell::new(PageTables::open()?));
            (TouchSensor::Bits(Box::new(AccessedBits::open(&tables, pid)?)), None)
        }
        What::Samples(event @ SampledEvent::TlbMisses, _) => {
            let source = PmuSource::here();
            let (sampler, period) =
                (source.open(pid, PERIOD_MISSES)?, source.period(PERIOD_MISSES));
            (TouchSensor::Misses(sampler), sampling(event, &format!("{source:?}"), period, None))
        }
        What::Samples(event @ SampledEvent::PageFaults, _) => {
            let sampler = PmuSource::PageFaults.open(pid, 1)?;
            (TouchSensor::Misses(sampler), sampling(event, "page faults, by the kernel", 1, None))
        }
        What::Samples(event @ SampledEvent::Loads, level) => {
            let events = LoadEvents::here(level)?;
            // Each takes the process an interrupt.
            let most = (share / SECONDS_PER_SAMPLE).max(1.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "saturates"
            )]
            let sampler = events.open(pid, most as u64)?;
            let source = events.source().text();
            (TouchSensor::Loads(sampler, level), sampling(event, source, 0, Some(level.0)))
        }
    })
}

fn head(root: &ProcRoot, pid: i32, samples: Option<Sampling>) -> Result<TouchHead, SensorError> {
    let shape = TlbShape::read();
    let tlb = RecordedTlb { entries: shape.entries as u64, walk_ns: shape.walk_ns };
    let areas = root.maps(pid)?.into_iter();
    let areas = areas.filter(|area| is_memory(area) && area.end <= LAST).map(|area| RecordedArea {
        start: area.start,
        end: area.end,
        kind: area.kind(),
        name: area.name,
    });
    let sensor = if samples.is_some() { Name::Pmu } else { Name::AccessedBits };
    let huepage_recording = VERSION;
    Ok(TouchHead { huepage_recording, sensor, pid, tlb, samples, areas: areas.collect() })
}
