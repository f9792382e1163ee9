//! The pollute buffer, live: pages of a running process that pollute the cache are confined to a few
//! colours, by ROCS (2008): with its counters and samples where the machine has them, else with the residency
//! sensor in their place.
//!
//! `watcher` looks at one process on a thread of its own and drives the policy, `sensor` is what it sees with,
//! `request` is what it and the engine's thread say to each other,
//! [`Polluters`] looks after all processes of a supervisor and has the engine carry out what they ask for,
//! `report` is told. Which pages pollute, and whether moving them is worth it, is decided by
//! `huepage_policy::rocs::weighed`.
//!
//! A process is not touched before the policy wants pages of it moved; then it gets an agent, whose
//! partition is the buffer and is for those pages alone.

mod report;
mod request;
mod sensor;
mod watcher;

use std::time::{Duration, Instant};

use huepage_color::{CacheLevel, ColorMap, ColorSet};
use huepage_policy::registry;
use huepage_policy::rocs::weighed::WeighedSettings;

pub use crate::watch::request_slot::WatchDecision;
pub use report::{AreaConfined, PolluteReport, PollutedProcess};
pub use sensor::{SensorKind, lacking};

use crate::engine::{EngineError, Group, Scope};
use crate::kernel::pmu::calls::Function;
use crate::kernel::process_tree::ProcessRoots;
use crate::watch::host::{self, Host};
use request::ConfineRequest;
use sensor::PollutionSensors;

/// How long moving pages may take before the policy goes on with what was moved.
const MOVE_TIMEOUT: Duration = Duration::from_secs(15);
/// Share of the pages that has to be moved before it does.
const MOVED_SHARE: f64 = 0.95;
/// Processes that used less CPU time are not watched: most are over soon.
const LEAST_CPU_TIME: Duration = Duration::from_secs(1);

/// What the buffer is, and what watching may cost.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The colours of the buffer; its universe are those of the cache.
    pub buffer: ColorSet,
    /// The level of the cache.
    pub level: CacheLevel,
    /// Whether no cache is behind it.
    pub is_last: bool,
    /// Bytes of the cache.
    pub cache_bytes: u64,
    /// Lines of a set of it.
    pub ways: u16,
    /// Whether colours have to be measured, which makes moving pages dear.
    pub probed: bool,
    /// How colours follow from frame numbers, where pages outside the buffer may be moved as well.
    pub computed: Option<ColorMap>,
    /// How pages are chosen: a policy of `--pollute-buffer`.
    pub policy: registry::Settings,
    /// Share of one CPU that watching a process may take, 0 to 1.
    pub cpu: f64,
    /// Who tells which pages pollute; none: the best that this machine has.
    pub sensor: Option<SensorKind>,
    /// The function whose calls are the program's progress, if one was named.
    pub progress: Option<Function>,
    /// Ranges of addresses to confine from the beginning, in place of choosing.
    pub fixed: Option<Vec<(u64, u64)>>,
}

impl Settings {
    /// Those of the policy, by what it is told with.
    fn policy(&self, sensor: SensorKind) -> WeighedSettings {
        let (method, buffer) = (self.policy.method(self.ways), self.buffer.clone());
        let usual = match sensor {
            SensorKind::Pmu => WeighedSettings::counted(buffer, method, self.probed),
            SensorKind::Residency => WeighedSettings::estimated(buffer, method, self.probed),
        };
        let rocs = self.policy.rocs_over(usual.rocs);
        WeighedSettings { rocs, ..usual }
    }
}

/// A process that is watched: what is being carried out since when, and how many audits had been made by then.
type Watched = host::Watched<ConfineRequest, Result<(), String>, PollutedProcess, (Instant, u64)>;

/// Looks after the processes of a supervisor. Dropping it ends the watching; pages stay where they are.
pub struct Polluters {
    settings: Settings,
    sensors: PollutionSensors,
    host: Host<ConfineRequest, Result<(), String>, PollutedProcess, (Instant, u64)>,
}

impl Polluters {
    /// Of these processes and those that descend from them.
    pub fn new(settings: Settings, roots: ProcessRoots) -> Polluters {
        let sensors = PollutionSensors::open(settings.sensor, settings.level, settings.is_last);
        let least = if settings.fixed.is_some() { Duration::ZERO } else { LEAST_CPU_TIME };
        Polluters { settings, sensors, host: Host::new(roots, least) }
    }

    /// One turn, every few milliseconds: new processes, and what policies ask for. `group` has the buffer
    /// as its partition, for no pages at first.
    pub fn poll_processes(&mut self, group: &mut Group) {
        // Where the buffer is part of a partition, it is of those that are in it.
        let may = |pid| !group.has_buffer() || group.holds(pid);
        let (settings, sensors) = (&self.settings, &self.sensors);
        self.host.admit(may, |pid, slot| {
            let (settings, sensors) = (settings.clone(), sensors.clone());
            std::thread::spawn(move || watcher::run(pid, &settings, &sensors, &slot))
        });
        for pid in self.host.take_replaced() {
            // What was confined was of the program before; the next one is looked at anew. A member
            // that has other pages confined too was taken anew by then, with an empty buffer.
            if !group.has_buffer() {
                group.release(pid);
            }
        }
        self.host.watched().for_each(|(pid, watched)| watched.poll_requests(pid, group));
    }

    /// Processes that are watched from now on are given a buffer of these colours; those that are
    /// already go on with the one they have.
    pub fn set_buffer(&mut self, buffer: ColorSet) {
        self.settings.buffer = buffer;
    }

    /// Whether pages are being moved for one of its processes.
    pub fn move_pages(&self) -> bool {
        self.host.is_moving()
    }

    /// Looks after these processes and what descends from them from now on.
    pub fn set_roots(&mut self, roots: ProcessRoots) {
        self.host.set_roots(roots);
    }

    /// A process is let go: its pages stay where they are.
    pub fn release(&mut self, pid: i32) {
        self.host.release(pid);
    }

    /// What was done about processes that have ended, since it was asked for last: who looks after a
    /// group for long does not keep it.
    pub fn take_ended(&mut self) -> Vec<PollutedProcess> {
        self.host.take_ended()
    }

    /// What was done so far.
    pub fn report(&self) -> PolluteReport {
        PolluteReport {
            buffer: self.settings.buffer.to_string(),
            of: self.settings.buffer.universe(),
            processes: self.host.reports(),
        }
    }
}

impl Watched {
    fn poll_requests(&mut self, pid: i32, group: &mut Group) {
        if let Some((since, audits)) = self.underway {
            let status = group.status_of_scope(pid);
            let enough = status.is_some_and(|status| {
                let inside = status.census.as_ref().and_then(|census| census.compliance());
                status.audits > audits && inside.is_none_or(|share| share >= MOVED_SHARE)
            });
            if enough || since.elapsed() > MOVE_TIMEOUT {
                self.underway = None;
                self.slot.carried_out(group.status_of_scope(pid).as_ref());
            }
            return;
        }
        let Some(request) = self.slot.take_request() else { return };
        match self.carry_out(pid, request, group) {
            Ok(audits) => self.underway = Some((Instant::now(), audits)),
            Err(error) => self.slot.refuse(&error.to_string()),
        }
    }

    /// Has the engine move pages; how many audits it had made by then.
    fn carry_out(
        &mut self,
        pid: i32,
        request: ConfineRequest,
        group: &mut Group,
    ) -> Result<u64, EngineError> {
        if !self.taken && !group.has_buffer() {
            group.take_running(pid, |_, _| ())?;
        }
        self.taken = true;
        let audits = group.status(pid).map_or(0, |status| status.audits);
        if !request.elsewhere.is_empty() {
            // What becomes of them is not waited for: the audit that is waited for comes later.
            drop(group.place(pid, request.elsewhere));
        }
        group.rescope(pid, Scope::new(request.ranges));
        Ok(audits + 1)
    }
}
