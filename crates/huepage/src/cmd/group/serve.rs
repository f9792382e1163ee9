//! The supervisor of a group: holds its colours, takes the processes of its control group, and
//! keeps on the disk whom it has. Ends on SIGTERM or when the group is deleted, and releases all.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use huepage_color::ColorSet;
use huepage_linux::color::partition_registry::{Registry, RegistryEntry};
use huepage_linux::control::groups::{GroupStore, Stored};
use huepage_linux::inject::launch::relay::{SignalRelay, outlive_parent};
use huepage_linux::kernel::cgroup;
use huepage_linux::kernel::cgroup::Cgroup;
use huepage_linux::kernel::process_memory::thread_time;
use huepage_linux::kernel::process_tree::ProcessRoots;
use huepage_linux::kernel::procfs::{ProcRoot, ProcessHandle};

use super::args::Definition;
use super::stored;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, Prepared, internal};
use crate::plan::Plan;
use crate::supervise::Supervisor;

/// How often a control group is looked into at most.
const LOOK: Duration = Duration::from_millis(100);

/// What a stored group was defined as.
pub fn definition(group: &Stored) -> Result<Definition, CmdError> {
    serde_json::from_value(group.definition.clone()).map_err(|error| {
        let name = &group.name;
        let what = format!("group {name} is of another version ({error}); delete it, create it");
        CmdError::new(ExitCode::BadFile, what)
    })
}

/// Is the supervisor until the end of the group.
pub fn serve(name: &str) -> Result<(), CmdError> {
    let (store, group) = stored(name)?;
    let mut definition = definition(&group)?;
    let relay = SignalRelay::new().map_err(internal)?;
    let plan = held(&definition);
    let prepared = plan.prepare(partition::prepare)?;
    let colors = prepared.config.colors.to_string();
    let held = plan.divide(&prepared.config.colors, None)?.held;
    if !definition.overlap {
        check_free(&prepared, &held)?;
    }
    let cgroup = definition.cgroup.as_deref();
    let cgroup = cgroup.map(|name| Cgroup::find(name, cgroup::MOUNT.as_ref())).transpose();
    let cgroup = cgroup.map_err(internal)?;
    definition.held = (!held.is_empty()).then_some(colors);
    let nobody = ProcessRoots::With(Vec::new());
    let mut keeper = StoredGroup {
        supervisor: Supervisor::open(&plan, prepared, nobody, true)?,
        name: name.to_owned(),
        definition: serde_json::to_value(&definition).map_err(internal)?,
        store,
        kept: Vec::new(),
        cgroup,
        before: group,
        next_look: Instant::now(),
    };
    // Whoever waits for this name ends when it is there.
    outlive_parent();
    keeper.supervisor.set_name(name)?;
    keeper.run(&relay)
}

/// The plan, with the colours that the group had before.
fn held(definition: &Definition) -> Plan {
    let mut plan = definition.plan.clone();
    match &definition.held {
        Some(colors) if plan.confines() => {
            (plan.partition.colors, plan.partition.share) = (Some(colors.clone()), None);
        }
        Some(colors) if plan.pollute.is_on() => plan.pollute.hold(colors),
        _ => {}
    }
    plan
}

/// Groups overlap only if asked.
fn check_free(prepared: &Prepared, own: &ColorSet) -> Result<(), CmdError> {
    let clash = |entry: &RegistryEntry| {
        (entry.level, entry.provenance) == (prepared.cache.level, prepared.provenance)
            && entry.colors.universe() == own.universe()
            && !entry.colors.intersection(own).is_empty()
    };
    let others = prepared.registry.list().map_err(internal)?;
    let Some(other) = others.iter().find(|entry| clash(entry)) else { return Ok(()) };
    let holder = other
        .group
        .as_ref()
        .map_or_else(|| format!("supervisor {}", other.pid), |name| format!("group {name}"));
    let common = other.colors.intersection(own);
    let what = format!("{holder} holds the colours {common}; choose others, or add --overlap");
    Err(CmdError::new(ExitCode::Colors, what))
}

/// A group that keeps on the disk what its supervisor would need to begin again.
struct StoredGroup {
    supervisor: Supervisor,
    name: String,
    definition: serde_json::Value,
    store: GroupStore,
    kept: Vec<i32>,
    cgroup: Option<Cgroup>,
    /// The group as a supervisor before this one left it: of its members those that run on and are
    /// not taken yet.
    before: Stored,
    next_look: Instant,
}

impl StoredGroup {
    /// Whatever ends it, everybody is released.
    fn run(&mut self, relay: &SignalRelay) -> Result<(), CmdError> {
        let ended = self.turns(relay);
        self.supervisor.release_all();
        ended
    }

    fn turns(&mut self, relay: &SignalRelay) -> Result<(), CmdError> {
        self.forget_ended();
        self.keep()?;
        while !self.supervisor.dissolved && !self.is_told_to_end(relay)? {
            if Instant::now() >= self.next_look {
                let start = thread_time();
                self.look();
                let spent = thread_time().saturating_sub(start);
                let pause = self.supervisor.group.pause_after(spent);
                self.next_look = Instant::now() + pause.max(LOOK);
            }
            self.supervisor.turn(&[relay.as_fd().as_raw_fd()])?;
            if self.supervisor.members() != self.kept {
                self.keep()?;
            }
        }
        Ok(())
    }

    /// A member of before that has ended, or is taken again, is not asked for any more: its number
    /// may be another process's.
    fn forget_ended(&mut self) {
        let alive = self.store.survivors(&self.before).map(|found| found.alive).unwrap_or_default();
        let kept = &self.kept;
        self.before.members.retain(|of| alive.contains(&of.pid) && !kept.contains(&of.pid));
    }

    /// Invites the processes of the control group that no other partition has.
    fn look(&mut self) {
        self.forget_ended();
        // A registry that cannot be read for a moment is no reason to end.
        let Ok(others) = Registry::open().and_then(|r| r.list()) else { return };
        let own = std::process::id().cast_signed();
        let is_free = |pid: i32| {
            pid != own
                && !others.iter().any(|e| e.pid == pid || e.members.contains(&pid) && e.pid != own)
        };
        let root = ProcRoot::default();
        let before = self.before.members.iter().filter(|of| is_free(of.pid));
        let mut all: Vec<ProcessHandle> = before.filter_map(|of| of.hold(&root)).collect();
        if let Some(cgroup) = &self.cgroup {
            // A control group that cannot be read for a moment is looked into again.
            let found = cgroup.hold(&root, |pid| is_free(pid) && !self.kept.contains(&pid));
            all.extend(found.unwrap_or_default());
        }
        self.supervisor.invite(all);
    }

    /// A supervisor that is ended from outside leaves the group as it is, to be started again.
    fn keep(&mut self) -> Result<(), CmdError> {
        self.kept = self.supervisor.members().to_vec();
        let waiting = self.before.members.iter().map(|of| of.pid);
        let mut all: Vec<i32> = self.kept.iter().copied().chain(waiting).collect();
        all.sort_unstable();
        all.dedup();
        self.store.put(&self.name, self.definition.clone(), &all).map_err(internal)
    }

    fn is_told_to_end(&self, relay: &SignalRelay) -> Result<bool, CmdError> {
        let mut told = false;
        while let Some(signal) = relay.next().map_err(internal)? {
            told |= [libc::SIGINT, libc::SIGTERM].contains(&signal.signal);
        }
        Ok(told)
    }
}
