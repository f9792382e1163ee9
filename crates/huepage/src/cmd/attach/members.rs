//! Which processes are meant: some by number, those of a container or of a control group, and those that begin
//! there later.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clap::Args;
use huepage_linux::color::partition_registry::Registry;
use huepage_linux::kernel::cgroup::{self, Cgroup};
use huepage_linux::kernel::containers::{Container, ContainerError, ContainerId};
use huepage_linux::kernel::process_memory::thread_time;
use huepage_linux::kernel::procfs::{ProcRoot, ProcessHandle};

use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::supervise::Supervisor;

/// The processes.
#[derive(Args, Debug)]
pub struct Members {
    /// All processes of a container, those to come included: 12 or more digits of its identifier, or its
    /// name for containerd or runc
    #[arg(long, value_name = "ID")]
    pub container: Option<ContainerId>,

    /// All processes of a control group and of those below it, those to come included
    ///
    /// A directory, or a name below /sys/fs/cgroup (version 2) or one of its hierarchies (version 1).
    #[arg(long, value_name = "CGROUP", conflicts_with = "container")]
    pub cgroup: Option<String>,

    /// The processes
    #[arg(required_unless_present_any = ["container", "cgroup"], value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x40_0000))]
    pub pids: Vec<u32>,
}

impl Members {
    /// Where processes begin that are to be taken, too.
    pub fn place(&self) -> Result<Option<Place>, CmdError> {
        if let Some(name) = &self.cgroup {
            let found = Cgroup::find(name, cgroup::MOUNT.as_ref());
            let usage = |error| CmdError::new(ExitCode::Usage, error);
            return found.map(|group| Some(Place::Cgroup(group))).map_err(usage);
        }
        let find = |id| Container::find(id, &ProcRoot::default(), cgroup::MOUNT.as_ref());
        let found = self.container.as_ref().map(find).transpose().map_err(container_error)?;
        Ok(found.map(Place::Container))
    }

    /// Each process once: those that were named, and those of the place.
    pub fn pids_with(&self, place: Option<&Place>) -> Result<Vec<i32>, CmdError> {
        let mut pids: BTreeSet<i32> = self.pids.iter().map(|&pid| pid.cast_signed()).collect();
        if let Some(place) = place {
            let root = ProcRoot::default();
            let inside = place.processes().map_err(container_error)?;
            // What has ended is in its control group until its parent has heard of it.
            let alive = |pid: &i32| root.status(*pid).is_ok_and(|status| !status.is_dead());
            let (before, inside) = (pids.len(), inside.into_iter().filter(alive));
            pids.extend(inside.filter(|&pid| pid != std::process::id().cast_signed()));
            if let (Some(name), true) = (&self.cgroup, pids.len() == before && before == 0) {
                let what = format!(
                    "no process is in the control group {name}; for those to come `huepage group create NAME --cgroup {name}`"
                );
                return Err(CmdError::new(ExitCode::NoSuchProcess, what));
            }
        }
        Ok(pids.into_iter().collect())
    }

    /// Whether some are not named one by one.
    pub const fn has_place(&self) -> bool {
        self.container.is_some() || self.cgroup.is_some()
    }

    /// Whether this one was named.
    pub fn names(&self, pid: i32) -> bool {
        self.pids.contains(&pid.cast_unsigned())
    }
}

fn container_error(error: ContainerError) -> CmdError {
    let code = match &error {
        ContainerError::Cgroup(_) | ContainerError::Proc(_) => return internal(error),
        ContainerError::Absent(_) => ExitCode::NoSuchProcess,
        _ => ExitCode::Usage,
    };
    CmdError::new(code, error.to_string())
}

/// Where processes come and go.
pub enum Place {
    /// A container.
    Container(Container),
    /// A control group.
    Cgroup(Cgroup),
}

impl Place {
    fn processes(&self) -> Result<Vec<i32>, ContainerError> {
        match self {
            Place::Container(container) => container.processes(),
            Place::Cgroup(group) => Ok(group.processes()?),
        }
    }
}

/// How often a place is looked into at most.
const LOOK: Duration = Duration::from_millis(100);

/// Takes the processes that begin in a place.
pub struct Joining {
    place: Place,
    next_look: Instant,
}

impl Joining {
    /// From some time on; those that are there are taken already.
    pub fn new(place: Place) -> Joining {
        Joining { place, next_look: Instant::now() + LOOK }
    }

    /// Looks for processes, if it is time.
    pub fn look_when_due(&mut self, supervisor: &mut Supervisor) {
        if Instant::now() >= self.next_look {
            let start = thread_time();
            self.look(supervisor);
            let pause = supervisor.group.pause_after(thread_time().saturating_sub(start));
            self.next_look = Instant::now() + pause.max(LOOK);
        }
    }

    /// Invites those that no other partition has. Children of members are taken without that.
    fn look(&self, supervisor: &mut Supervisor) {
        let own = std::process::id().cast_signed();
        // What cannot be read for a moment is read again.
        let Ok(others) = Registry::open().and_then(|registry| registry.list()) else { return };
        let taken = |pid: &i32| others.iter().any(|e| e.pid != own && e.members.contains(pid));
        let root = ProcRoot::default();
        let listed = || self.place.processes().unwrap_or_default();
        let mut pids = listed();
        pids.retain(|pid| *pid != own && !taken(pid) && !is_below(*pid, supervisor.members()));
        let held = pids.into_iter().filter_map(|pid| ProcessHandle::open(&root, pid).ok());
        let mut held: Vec<_> = held.collect();
        // Who is listed still is the process that is held now.
        let still = listed();
        held.retain(|one| still.contains(&one.pid()));
        supervisor.invite(held);
    }
}

/// Whether a process is one of these or comes from one.
fn is_below(pid: i32, members: &[i32]) -> bool {
    const DEEPEST: usize = 64;
    let root = ProcRoot::default();
    let parent = |&pid: &i32| root.status(pid).ok().map(|status| status.ppid);
    std::iter::successors(Some(pid), parent).take(DEEPEST).any(|pid| members.contains(&pid))
}
