//! Polluting pages as ROCS (2008) finds them: by samples of loads with who answered them, judged by counted
//! instructions and cycles, woken by counted misses.
//!
//! Samples are taken only while the policy makes a profile, and each interrupts the process: what that takes
//! is added up, and no profile begins while it is above the share that watching may cost. Only pages that
//! were sampled are known, and only those that can be moved are told.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use huepage_color::{CacheLevel, ColorMap, PAGE_BYTES, Vpn};
use huepage_policy::rocs::weighed::{ConfinementStep, Weighed};

use super::{
    PollutionSensor, PollutionSensorError, Profiled, SensorKind, SensorReadings, resident_pages,
};
use crate::kernel::pmu::counts::{CacheEvents, PmuCounts, ProcessCounts};
use crate::kernel::pmu::loads::{LoadEvents, SECONDS_PER_SAMPLE};
use crate::kernel::pmu::{Drained, PmuError, PmuSample, Sampler};
use crate::kernel::process_memory::ProcessMemory;
use crate::kernel::procfs::{Area, Pagemap, ProcRoot, obstacle};
use crate::services::pollute::Settings;
use crate::services::pollute::report::AreaConfined;

/// Time between two looks while there are samples to take, and while there are none.
const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(50)];
/// CPU time of the process between two counts.
const COUNT_CPU_TIME: Duration = Duration::from_millis(200);
/// CPU time of the process after which a profile ends that has enough samples.
const PROFILE_CPU_TIME: Duration = Duration::from_secs(3);
/// Requests to the cache that are enough then.
const ENOUGH_REQUESTS: u64 = 4000;
/// A profile may interrupt so many times as often as is allowed on the whole.
const BURST_FACTOR: f64 = 10.0;

/// The events of this machine.
#[derive(Clone, Debug)]
pub(in crate::services::pollute) struct Events {
    /// Which loads went where.
    pub loads: LoadEvents,
    /// What was asked for and missed.
    pub counts: CacheEvents,
}

/// Where samples of a process come from: the kernel, or a recording.
pub(in crate::services::pollute) trait Loads {
    /// Appends those since the last call.
    fn drain(&mut self, out: &mut Vec<PmuSample>) -> Result<Drained, PmuError>;
}

impl Loads for Sampler {
    fn drain(&mut self, out: &mut Vec<PmuSample>) -> Result<Drained, PmuError> {
        Sampler::drain(self, out)
    }
}

/// Requests to a cache, made of loads: of pages that may be moved, those that asked it at all.
#[derive(Debug, Default)]
pub(in crate::services::pollute) struct Requests {
    /// Areas whose pages can be moved, by where they begin.
    movable: BTreeMap<u64, Area>,
    /// Samples and misses of each page.
    pages: BTreeMap<Vpn, [u64; 2]>,
    all: u64,
    missed: u64,
}

impl Requests {
    /// Of memory with these areas.
    pub fn of(areas: Vec<Area>) -> Requests {
        let movable = areas.into_iter().filter(|area| obstacle(area).is_none());
        Requests {
            movable: movable.map(|area| (area.start, area)).collect(),
            ..Requests::default()
        }
    }

    fn area(&self, address: u64) -> Option<&Area> {
        let (_, area) = self.movable.range(..=address).next_back()?;
        (address < area.end).then_some(area)
    }

    /// The page of a load that asked the cache of a level, and whether it missed.
    pub fn take(&mut self, sample: &PmuSample, level: CacheLevel) -> Option<(Vpn, bool)> {
        let missed = sample.source.served()?.missed(level)?;
        self.area(sample.address)?;
        let page = Vpn(sample.address / PAGE_BYTES);
        let counts = self.pages.entry(page).or_default();
        (counts[0], counts[1]) = (counts[0] + 1, counts[1] + u64::from(missed));
        self.all += 1;
        self.missed += u64::from(missed);
        Some((page, missed))
    }

    /// The areas of which pages are confined; `resident` counts the pages of one that are in memory.
    pub fn areas(
        &self,
        policy: &Weighed,
        resident: impl Fn(&Area) -> Option<u64>,
    ) -> Vec<AreaConfined> {
        let mut found: Vec<AreaConfined> = Vec::new();
        let mut answered: Vec<[u64; 2]> = Vec::new();
        for (page, counts) in self.pages.iter().filter(|(page, _)| policy.confines(**page)) {
            let Some(area) = self.area(page.0 * PAGE_BYTES) else { continue };
            if found.last().is_none_or(|last| last.start != area.start) {
                let name = match area.name.as_str() {
                    "" => area.kind().to_string(),
                    name => name.to_owned(),
                };
                let (pages, there) = (0, 0.0);
                let resident = resident(area).unwrap_or(0);
                let (start, end) = (area.start, area.end);
                found.push(AreaConfined { start, end, name, pages, resident, there });
                answered.push([0, 0]);
            }
            if let (Some(area), Some(sum)) = (found.last_mut(), answered.last_mut()) {
                area.pages += 1;
                *sum = [sum[0] + counts[0], sum[1] + counts[1]];
                area.there = 1.0 - sum[1] as f64 / sum[0].max(1) as f64;
            }
        }
        found
    }
}

/// See the module's head.
pub(in crate::services::pollute) struct PmuSensor {
    pid: i32,
    root: ProcRoot,
    pagemap: Pagemap,
    clock: ProcessMemory,
    events: Events,
    level: CacheLevel,
    computed: Option<ColorMap>,
    cpu: f64,
    began: Instant,
    counters: ProcessCounts,
    /// What was told, and the CPU time then.
    told: (PmuCounts, Duration),
    ran: Duration,
    /// What the last stretch of time had, and how long it was.
    last: (PmuCounts, Duration),
    sampler: Option<Box<dyn Loads>>,
    samples: Vec<PmuSample>,
    drained: Drained,
    requests: Requests,
    /// CPU time when the profile began.
    profiling: Duration,
}

impl PmuSensor {
    pub fn open(
        pid: i32,
        events: &Events,
        settings: &Settings,
    ) -> Result<PmuSensor, PollutionSensorError> {
        let root = ProcRoot::default();
        let clock = ProcessMemory::open(pid).map_err(|_| PmuError::gone(pid))?;
        let ran = clock.cpu_time();
        // That there are not enough files, say, is better known now than when a profile is wanted.
        drop(events.loads.open(pid, 1)?);
        Ok(PmuSensor {
            pid,
            pagemap: root.pagemap(pid)?,
            root,
            clock,
            counters: ProcessCounts::open(pid, &events.counts)?,
            events: events.clone(),
            level: settings.level,
            computed: settings.computed.clone(),
            cpu: settings.cpu,
            began: Instant::now(),
            told: (PmuCounts::default(), ran),
            ran,
            last: (PmuCounts::default(), Duration::ZERO),
            sampler: None,
            samples: Vec::new(),
            drained: Drained::default(),
            requests: Requests::default(),
            profiling: Duration::ZERO,
        })
    }

    /// CPU time of the process that its interrupts took.
    fn interrupts(&self) -> Duration {
        Duration::from_secs_f64(self.drained.taken() as f64 * SECONDS_PER_SAMPLE)
    }

    /// Whether samples have taken no more than they may.
    fn may_sample(&self) -> bool {
        self.interrupts() <= self.began.elapsed().mul_f64(self.cpu)
    }

    /// Tells the policy of the loads that were sampled.
    fn tell_loads(
        &mut self,
        policy: &mut Weighed,
    ) -> Result<ConfinementStep, PollutionSensorError> {
        let Some(sampler) = &mut self.sampler else { return Ok(ConfinementStep::default()) };
        self.samples.clear();
        self.drained += sampler.drain(&mut self.samples)?;
        let (requests, level) = (&mut self.requests, self.level);
        let asked = self.samples.iter().filter_map(|sample| requests.take(sample, level));
        let (map, pagemap) = (self.computed.as_ref(), &self.pagemap);
        let color = |page| map?.color(pagemap.entry(page).ok()?.pfn().filter(|pfn| pfn.0 != 0)?);
        Ok(policy.sampled(asked.collect::<Vec<_>>(), color))
    }

    fn resident(&self, area: &Area) -> Option<u64> {
        let (first, last) = (Vpn(area.start / PAGE_BYTES), Vpn(area.end / PAGE_BYTES - 1));
        Some(resident_pages(&self.pagemap, first, last).ok()?.len() as u64)
    }
}

impl PollutionSensor for PmuSensor {
    fn kind(&self) -> SensorKind {
        SensorKind::Pmu
    }

    fn detail(&self) -> String {
        format!("{}, counted {}", self.events.loads.source().text(), self.events.counts.text())
    }

    fn look(&mut self) -> Result<(), PollutionSensorError> {
        std::thread::sleep(PAUSES[usize::from(self.sampler.is_none())]);
        let ran = self.clock.cpu_time();
        if ran <= self.ran {
            let stat = self.root.stat(self.pid);
            if stat.is_err() || stat.is_ok_and(|stat| matches!(stat.state, 'Z' | 'X')) {
                return Err(PmuError::gone(self.pid).into());
            }
        }
        self.ran = ran.max(self.ran);
        Ok(())
    }

    fn ran(&self) -> Duration {
        self.ran
    }

    fn count(&mut self, policy: &mut Weighed) -> Result<ConfinementStep, PollutionSensorError> {
        let now = self.counters.read()?;
        let (before, since) = std::mem::replace(&mut self.told, (now, self.ran));
        self.last = (now.since(before), self.ran.saturating_sub(since));
        Ok(policy.counted(self.last.0.into()))
    }

    fn forget(&mut self) -> Result<(), PollutionSensorError> {
        self.told = (self.counters.read()?, self.ran);
        Ok(())
    }

    fn begin_profile(&mut self) -> Result<(), PollutionSensorError> {
        self.profiling = self.ran;
        self.requests = Requests::of(self.root.maps(self.pid)?);
        if self.may_sample() {
            let most = BURST_FACTOR * self.cpu / SECONDS_PER_SAMPLE;
            let sampler = self.events.loads.open(self.pid, most as u64)?;
            self.sampler = Some(Box::new(sampler));
        }
        Ok(())
    }

    /// Without samples the policy gives up waiting for them after some time, which goes on meanwhile.
    fn profile(&mut self, policy: &mut Weighed) -> Result<Option<Profiled>, PollutionSensorError> {
        let mut wants = self.tell_loads(policy)?;
        let late = self.ran.saturating_sub(self.profiling) >= PROFILE_CPU_TIME;
        if late && self.requests.all >= ENOUGH_REQUESTS && policy.listens {
            wants = policy.sampled_all();
        }
        if policy.listens && self.ran.saturating_sub(self.told.1) >= COUNT_CPU_TIME {
            wants = self.count(policy)?;
        }
        if policy.listens {
            return Ok(None);
        }
        let rested =
            if self.sampler.take().is_none() { ", as interrupts had cost enough" } else { "" };
        let (all, pages) = (self.requests.all, self.requests.pages.len());
        Ok(Some(Profiled { wants, of: format!("{all} requests to {pages} pages{rested}") }))
    }

    fn readings(&self) -> SensorReadings {
        let (counts, time) = self.last;
        let seconds = time.as_secs_f64();
        let rate = |amount: f64| (seconds > 0.0).then(|| amount / seconds);
        SensorReadings {
            miss_rate: counts.miss_rate().map(|rate| (rate, 0.0)),
            fills_per_second: rate(counts.misses),
            instructions_per_second: rate(counts.instructions),
            instructions_per_cycle: counts.per_cycle(),
            samples: [self.drained.samples, self.drained.lost],
            sampled_miss_rate: (self.requests.all > 0)
                .then(|| self.requests.missed as f64 / self.requests.all as f64),
            interrupts: self.interrupts(),
        }
    }

    fn areas(&self, policy: &Weighed) -> Vec<AreaConfined> {
        self.requests.areas(policy, |area| self.resident(area))
    }
}

#[cfg(test)]
mod tests;
