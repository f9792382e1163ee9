//! Conflict recolouring, live: pages of a running process that are used again and again, are of one
//! colour, and are more than the ways of the cache get frames of colours with room. Which ones is decided
//! by a policy after Romer 1998, usually Snapshot-Miss of the pages in use (`huepage_policy::conflict::in_use`),
//! with sensors of our own in place of its TLB handler and miss counter.
//!
//! `in_use` finds the pages that are used again and again, `looks` tells whether their lines are in the cache,
//! `watcher` looks at one process on a thread of its own, `request` is what it and the engine's thread say
//! to each other, [`Recolorers`] looks after all processes of a supervisor, `report` is told.
//!
//! A process gets an agent when the first of its pages is to move, and none before.

mod looks;
pub mod offline;
mod report;
mod request;
mod watcher;

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use huepage_color::{CacheGeometry, CacheLevel, ColorSet};
use huepage_policy::conflict::CacheShape;
pub use huepage_policy::conflict::in_use::Crowd;
use huepage_policy::conflict::in_use::{InUse, InUseSettings};
use huepage_policy::{Policy, registry};

pub use crate::watch::request_slot::WatchDecision;
pub use report::{ConflictReport, ConflictingProcess};

use crate::color::frame_colors::ColorMethod;
use crate::color::probe::ProbeParams;
use crate::engine::{EngineError, Group, Placed};
use crate::kernel::pmu::loads::LoadEvents;
use crate::kernel::process_tree::ProcessRoots;
use crate::services::pollute::SensorKind;
use crate::watch::host::{self, Host};
use request::{Answer, MoveRequest};

/// How long moving pages may take.
const MOVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Processes that used less CPU time are not watched: most are over soon.
const LEAST_CPU_TIME: Duration = Duration::from_millis(200);

/// The cache, and what is allowed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who decides: a policy of `--recolor-conflicts`.
    pub policy: registry::Settings,
    /// Colours of the cache, at least 2.
    pub colors: u16,
    /// Lines of a set of it, at least 1.
    pub ways: u16,
    /// Its bytes.
    pub cache_bytes: u64,
    /// Its level.
    pub level: CacheLevel,
    /// Who tells whether lines of the pages in use are in it.
    pub sensor: SensorKind,
    /// Colours that pages are never moved to, as others hold them.
    pub keep_off: ColorSet,
    /// How the colours of frames are known.
    pub method: ColorMethod,
    /// Share of one CPU that watching a process may take, 0 to 1.
    pub cpu: f64,
    /// Pages of a process that are moved in a second, at most; at least 1.
    pub rate: u32,
}

impl Settings {
    /// The policy of a process.
    fn policy(&self) -> Result<InUse<Box<dyn Policy + Send>>, registry::Error> {
        let (colors, ways) = (self.colors, self.ways);
        let shape = CacheShape { colors, ways, lines_per_page: 64 };
        self.policy.in_use(InUseSettings::new(shape, self.rate, self.keep_off.clone()))
    }
}

/// Why conflicts cannot be seen in this cache by a sensor; none where they can.
pub fn obstacle(cache: &CacheGeometry, sensor: SensorKind) -> Option<String> {
    if sensor == SensorKind::Pmu {
        return LoadEvents::here(cache.level).err().map(|error| error.reason());
    }
    match ProbeParams::for_cache(cache) {
        Ok(params) if params.depth > 1 => {
            Some("the clock's steps are too large to tell colours while a program runs".to_owned())
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// A process that is watched.
type Watched = host::Watched<MoveRequest, Answer, ConflictingProcess, Underway>;

/// Pages that are being moved.
struct Underway {
    since: Instant,
    /// Where it is told what became of them; none while it is waited to try again.
    told: Option<Receiver<Vec<Placed>>>,
    request: MoveRequest,
    /// How often it will be tried again if no page at all can be moved: an agent may just have come, or
    /// somebody hold the process.
    again: u32,
}

/// How often pages are tried again of which none was moved, and after how long.
const MOVE_TRIES: u32 = 5;
const MOVE_RETRY_INTERVAL: Duration = Duration::from_millis(300);

/// Looks after the processes of a supervisor. Dropping it ends the watching; pages stay where they are.
pub struct Recolorers {
    settings: Settings,
    host: Host<MoveRequest, Answer, ConflictingProcess, Underway>,
}

impl Recolorers {
    /// Of these processes and those that descend from them.
    pub fn new(settings: Settings, roots: ProcessRoots) -> Recolorers {
        Recolorers { settings, host: Host::new(roots, LEAST_CPU_TIME) }
    }

    /// One turn, every few milliseconds: new processes, and what policies ask for. The partition of `group`
    /// is for no pages.
    pub fn poll_processes(&mut self, group: &mut Group) {
        let settings = &self.settings;
        self.host.admit(
            |_| true,
            |pid, slot| {
                let settings = settings.clone();
                std::thread::spawn(move || watcher::run(pid, &settings, &slot))
            },
        );
        // What was moved was of the program before; the next one is looked at anew.
        self.host.take_replaced().into_iter().for_each(|pid| _ = group.release(pid));
        self.host.watched().for_each(|(pid, watched)| watched.poll_requests(pid, group));
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

    /// What was done so far.
    pub fn report(&self) -> ConflictReport {
        let (of, ways) = (self.settings.colors, self.settings.ways);
        ConflictReport { of, ways, processes: self.host.reports() }
    }
}

impl Underway {
    /// What became of the pages, once that is known.
    fn answer(&mut self, pid: i32, group: &Group) -> Option<Answer> {
        let Some(told) = &self.told else {
            if self.since.elapsed() < MOVE_RETRY_INTERVAL {
                return None;
            }
            (self.since, self.told) = (Instant::now(), group.place(pid, self.request.clone()));
            self.again -= 1;
            return self.told.is_none().then(|| Err("the process ended".to_owned()));
        };
        match told.try_recv() {
            Ok(placed) if self.again > 0 && placed.iter().all(|(_, there)| !there) => {
                (self.since, self.told) = (Instant::now(), None);
                None
            }
            Ok(placed) => Some(Ok(placed)),
            Err(TryRecvError::Empty) if self.since.elapsed() < MOVE_TIMEOUT => None,
            Err(_) => Some(Err("the engine does not answer, or the process ended".to_owned())),
        }
    }
}

impl Watched {
    fn poll_requests(&mut self, pid: i32, group: &mut Group) {
        if let Some(mut underway) = self.underway.take() {
            match underway.answer(pid, group) {
                Some(answer) => {
                    let seconds = group.status(pid).map(|status| status.recolor_seconds[0]);
                    self.slot.placed(answer, seconds);
                }
                None => self.underway = Some(underway),
            }
            return;
        }
        let Some(request) = self.slot.take_request() else { return };
        match self.carry_out(pid, request.clone(), group) {
            Ok(Some(told)) => {
                let (since, told) = (Instant::now(), Some(told));
                self.underway = Some(Underway { since, told, request, again: MOVE_TRIES });
            }
            Ok(None) => self.slot.answer(Err("the process ended".to_owned())),
            Err(error) => self.slot.answer(Err(error.to_string())),
        }
    }

    /// Has the engine move pages; where it will tell what became of them.
    fn carry_out(
        &mut self,
        pid: i32,
        request: MoveRequest,
        group: &mut Group,
    ) -> Result<Option<Receiver<Vec<Placed>>>, EngineError> {
        if !self.taken {
            group.take_running(pid, |_, _| ())?;
            self.taken = true;
        }
        Ok(group.place(pid, request))
    }
}
