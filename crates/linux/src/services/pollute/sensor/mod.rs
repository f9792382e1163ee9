//! What a watcher sees of its process: one interface for performance counters with samples of loads
//! ([`pmu`]) and for looks at what is in the cache ([`residency`]), and which of them this machine has.
//! Each turns what it sees into what the driver tells the policy; none decides anything.

pub(super) mod pmu;
pub(super) mod residency;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use huepage_color::{CacheLevel, PAGE_BYTES, Vpn};
use huepage_policy::rocs::weighed::{ConfinementStep, Weighed};
use serde::{Deserialize, Serialize};

use super::Settings;
use super::report::AreaConfined;
use crate::color::line_timer::ResidencyError;
use crate::kernel::pmu::PmuError;
use crate::kernel::pmu::counts::CacheEvents;
use crate::kernel::pmu::loads::LoadEvents;
use crate::kernel::procfs::{Categories, Pagemap, PagemapRegion, ProcError, ScanQuery};

/// CPU time of the process between two counts.
const STRETCH_CPU_TIME: Duration = Duration::from_millis(240);

/// Who tells which pages pollute, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SensorKind {
    /// Samples of loads with who answered them, counted misses and instructions.
    Pmu,
    /// Lines of its memory, timed: which of them are in the cache.
    Residency,
}

impl SensorKind {
    /// The name as the command line has it.
    pub const fn text(self) -> &'static str {
        match self {
            SensorKind::Pmu => "pmu",
            SensorKind::Residency => "residency",
        }
    }
}

impl fmt::Display for SensorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.text())
    }
}

/// Why a process cannot be watched any longer.
#[derive(Debug, thiserror::Error)]
pub(super) enum PollutionSensorError {
    /// Lines of it cannot be timed.
    #[error(transparent)]
    Residency(#[from] ResidencyError),
    /// It cannot be sampled or counted.
    #[error(transparent)]
    Pmu(#[from] PmuError),
    /// `/proc` cannot be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

impl PollutionSensorError {
    /// Whether the process is simply gone.
    pub fn is_gone(&self) -> bool {
        match self {
            PollutionSensorError::Residency(error) => matches!(error, ResidencyError::Gone(_)),
            PollutionSensorError::Pmu(error) => error.is_gone(),
            PollutionSensorError::Proc(error) => error.is_gone(),
        }
    }
}

/// A profile was made.
#[derive(Debug)]
pub(super) struct Profiled {
    /// What the policy wants now.
    pub wants: ConfinementStep,
    /// What it was made of, for a person.
    pub of: String,
}

/// What is known of the process, for the report.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SensorReadings {
    /// The share of its requests that miss, and how far that may be off.
    pub miss_rate: Option<(f64, f64)>,
    /// Lines that it brings in in a second of its CPU time.
    pub fills_per_second: Option<f64>,
    /// Instructions in a second of its CPU time.
    pub instructions_per_second: Option<f64>,
    /// Instructions per cycle.
    pub instructions_per_cycle: Option<f64>,
    /// Samples taken, and samples lost.
    pub samples: [u64; 2],
    /// The share of the sampled requests of the last profile that missed.
    pub sampled_miss_rate: Option<f64>,
    /// CPU time of the process that samples took, as estimated.
    pub interrupts: Duration,
}

/// A sensor for one process.
pub(super) trait PollutionSensor {
    /// Who tells.
    fn kind(&self) -> SensorKind;

    /// What it goes by, for a person.
    fn detail(&self) -> String;

    /// Sleeps for a moment, then looks.
    fn look(&mut self) -> Result<(), PollutionSensorError>;

    /// CPU time of the process when it was looked at last.
    fn ran(&self) -> Duration;

    /// CPU time of the process between two counts, now.
    fn stretch(&self) -> Duration {
        STRETCH_CPU_TIME
    }

    /// A stretch of time is over: what it was like goes to the policy.
    fn count(&mut self, policy: &mut Weighed) -> Result<ConfinementStep, PollutionSensorError>;

    /// What was seen since the last count does not count: pages were moved.
    fn forget(&mut self) -> Result<(), PollutionSensorError>;

    /// A profile begins.
    fn begin_profile(&mut self) -> Result<(), PollutionSensorError>;

    /// Goes on with it; none until it is over.
    fn profile(&mut self, policy: &mut Weighed) -> Result<Option<Profiled>, PollutionSensorError>;

    /// What is known of the process.
    fn readings(&self) -> SensorReadings;

    /// The areas of which pages are confined.
    fn areas(&self, policy: &Weighed) -> Vec<AreaConfined>;
}

/// What this machine can see with, found once for all processes.
#[derive(Clone)]
pub(super) struct PollutionSensors {
    pmu: Option<Arc<pmu::Events>>,
    /// Why not by the PMU; empty if so, or if residency was asked for.
    because: String,
    /// Whether there is to be no other.
    forced: bool,
}

impl PollutionSensors {
    /// The best there is, or the sensor that is asked for, of the cache of a level, which is the last one
    /// or not.
    pub fn open(asked: Option<SensorKind>, level: CacheLevel, is_last: bool) -> PollutionSensors {
        let found = match asked {
            Some(SensorKind::Residency) => Err(String::new()),
            _ => events(level, is_last).map_err(|error| error.reason()),
        };
        let forced = asked.is_some();
        match found {
            Ok(pmu) => {
                PollutionSensors { pmu: Some(Arc::new(pmu)), because: String::new(), forced }
            }
            Err(because) => PollutionSensors { pmu: None, because, forced },
        }
    }

    /// Opens a sensor for a process, the other one where it cannot be had and either may be; with the reason
    /// why it is not the better one.
    pub fn open_for(
        &self,
        pid: i32,
        settings: &Settings,
    ) -> Result<(Box<dyn PollutionSensor>, String), PollutionSensorError> {
        let mut because = self.because.clone();
        if let Some(events) = &self.pmu {
            match pmu::PmuSensor::open(pid, events, settings) {
                Ok(sensor) => return Ok((Box::new(sensor), String::new())),
                Err(error) if self.forced || error.is_gone() => return Err(error),
                Err(error) => because = error.to_string(),
            }
        }
        Ok((Box::new(residency::ResidencySensor::open(pid, settings)?), because))
    }
}

fn events(level: CacheLevel, is_last: bool) -> Result<pmu::Events, PmuError> {
    Ok(pmu::Events { loads: LoadEvents::here(level)?, counts: CacheEvents::here(level, is_last)? })
}

/// Why a sensor cannot be had here for the cache of a level, which is the last one or not; `None` if it can,
/// as far as is known before a process is looked at.
pub fn lacking(sensor: SensorKind, level: CacheLevel, is_last: bool) -> Option<String> {
    match sensor {
        SensorKind::Residency => None,
        SensorKind::Pmu => events(level, is_last).err().map(|error| error.to_string()),
    }
}

/// The pages in memory between two pages, the ends included.
fn resident_pages(pagemap: &Pagemap, first: Vpn, last: Vpn) -> Result<Vec<Vpn>, ProcError> {
    let mut query = ScanQuery::present();
    query.none_of = Categories::PFNZERO;
    query.report = Categories::PRESENT;
    let mut regions: Vec<PagemapRegion> = Vec::new();
    pagemap.scan(first.0 * PAGE_BYTES..(last.0 + 1) * PAGE_BYTES, &query, &mut regions)?;
    let pages = regions.iter().flat_map(|r| r.start / PAGE_BYTES..r.end / PAGE_BYTES);
    Ok(pages.map(Vpn).collect())
}

/// Pages by the first page of what they belong to.
type Resident = HashMap<Vpn, Vec<Vpn>>;
