//! Finds out what is to be known at a moment: asks the registry who holds partitions, their supervisors
//! what became of members, `/proc` for the rest, and takes what the looks have found meanwhile.

use std::time::{Duration, SystemTime};

use huepage_linux::color::partition_registry::{Registry, RegistryEntry};
use huepage_linux::control::socket;
use huepage_linux::control::socket::SupervisorRequest;
use huepage_linux::engine::MemberStatus;
use huepage_linux::kernel::procfs::ProcRoot;
use huepage_linux::services::superpages;
use serde::Deserialize;

use super::daemon::{DaemonClient, NO_DAEMON};
use super::heat;
use super::residency::Asking;
use super::snapshot::{GroupNow, MemberCounts, ProcessNow, SuperpagesNow, TopSnapshot};
use crate::exit::CmdError;
use crate::partition::internal;
use crate::report::{Compliance, Missed, left_alone};

/// How long a supervisor may take to answer.
const PATIENCE: Duration = Duration::from_millis(1500);
/// Cells in a row of a map that is printed.
const CELLS: usize = 64;

/// Who is asked.
pub struct TopSource {
    root: ProcRoot,
    registry: Registry,
    named: Vec<i32>,
    looks: Asking,
    /// Whoever decides, if anybody does.
    pub daemon: Option<DaemonClient>,
    /// Whether maps are wanted of the processes that were named.
    pub maps: bool,
}

/// What a supervisor answers about a member.
#[derive(Deserialize)]
struct Told {
    status: Option<MemberStatus>,
    #[serde(default)]
    superpages: Option<superpages::Report>,
}

/// What it answers otherwise.
#[derive(Deserialize)]
struct Pinged {
    #[serde(default)]
    missed: Vec<(i32, String)>,
}

impl TopSource {
    /// Of these processes and those in partitions.
    ///
    /// # Errors
    /// When the registry cannot be used.
    pub fn open(named: Vec<i32>, looks: Asking) -> Result<TopSource, CmdError> {
        let (root, registry) = (ProcRoot::default(), Registry::open().map_err(internal)?);
        let daemon = DaemonClient::find();
        Ok(TopSource { root, registry, named, looks, daemon, maps: false })
    }

    /// What is known now. Waits for supervisors, for each a second and a half at most.
    ///
    /// # Errors
    /// When the registry cannot be read.
    pub fn look(&mut self) -> Result<TopSnapshot, CmdError> {
        let mut now = TopSnapshot { at: seconds_since_1970(), ..TopSnapshot::default() };
        for entry in self.registry.list().map_err(internal)? {
            let (group, members) = self.group(&entry);
            now.groups.push(group);
            now.processes.extend(members);
        }
        for &pid in &self.named {
            if !now.processes.iter().any(|process| process.pid == pid) {
                now.processes.extend(self.process(pid));
            }
        }
        now.processes.sort_by_key(|process| process.pid);
        self.add_residency(&mut now);
        self.add_decisions(&mut now);
        Ok(now)
    }

    /// A group with its members.
    fn group(&self, entry: &RegistryEntry) -> (GroupNow, Vec<ProcessNow>) {
        let mut group = GroupNow {
            supervisor: entry.pid,
            name: entry.group.clone(),
            level: entry.level.to_string(),
            colors_from: entry.provenance.to_string(),
            colors: entry.colors.to_string(),
            of: entry.colors.universe(),
            members: entry.members.clone(),
            ..GroupNow::default()
        };
        match self.ask::<Pinged>(entry, &SupervisorRequest::Ping) {
            Ok(pinged) => group.missed = pinged.missed.into_iter().map(missed).collect(),
            Err(trouble) => group.trouble = Some(trouble),
        }
        let members = entry.members.iter().filter_map(|&pid| self.member(pid, entry, &mut group));
        let members = members.collect();
        (group, members)
    }

    fn ask<T: for<'a> Deserialize<'a>>(
        &self,
        of: &RegistryEntry,
        request: &SupervisorRequest,
    ) -> Result<T, String> {
        let path = self.registry.socket_path(of.pid);
        let answer = socket::call(&path, request, PATIENCE).map_err(|e| e.to_string())?;
        serde_json::from_value(answer).map_err(|e| e.to_string())
    }

    fn member(&self, pid: i32, entry: &RegistryEntry, group: &mut GroupNow) -> Option<ProcessNow> {
        let mut process = self.process(pid)?;
        (process.supervisor, process.group) = (Some(entry.pid), entry.group.clone());
        process.colors = Some(entry.colors.clone()).filter(|colors| !colors.is_empty());
        // One that does not answer is not asked again for each of its members.
        if group.trouble.is_some() {
            return Some(process);
        }
        // A member may have left since.
        let Ok(told) = self.ask::<Told>(entry, &SupervisorRequest::Status { pid }) else {
            return Some(process);
        };
        group.superpages = told.superpages.map(superpages_now);
        if let Some(status) = told.status {
            if let Some(census) = &status.census {
                process.compliance = Some(Compliance::from(census).less(&status.upkeep));
                process.pages_by_color = census.colors().map(|(_, pages)| pages).collect();
            }
            process.counts = Some(counts(&status));
        }
        Some(process)
    }

    /// What `/proc` says; `None` of a process that has ended.
    fn process(&self, pid: i32) -> Option<ProcessNow> {
        let status = self.root.status(pid).ok().filter(|status| status.state != 'Z')?;
        let resident_bytes = self.root.statm(pid).ok()?.resident * huepage_color::PAGE_BYTES;
        Some(ProcessNow { pid, name: status.name, resident_bytes, ..ProcessNow::default() })
    }

    fn add_residency(&self, now: &mut TopSnapshot) {
        // Those that were named first: they are what the user is after.
        let mut pids: Vec<i32> = now.processes.iter().map(|process| process.pid).collect();
        pids.sort_by_key(|pid| !self.named.contains(pid));
        self.looks.want(&pids);
        for process in &mut now.processes {
            match self.looks.known(process.pid) {
                Some(Ok(residency)) => process.residency = Some(residency),
                Some(Err(why)) => process.no_residency = Some(why),
                None => process.no_residency = Some("its turn is still to come".to_owned()),
            }
            if self.maps && self.named.contains(&process.pid) {
                let of = |found: &super::snapshot::ResidencyNow| {
                    heat::rows(&found.areas, &found.sampled_pages, CELLS)
                };
                process.heat = process.residency.as_ref().map(of);
            }
        }
    }

    fn add_decisions(&mut self, now: &mut TopSnapshot) {
        let Some(daemon) = &mut self.daemon else {
            now.no_daemon = Some(NO_DAEMON.to_owned());
            return;
        };
        match daemon.decisions() {
            Ok(decisions) => now.decisions = decisions,
            Err(why) => now.no_daemon = Some(why),
        }
        for group in &mut now.groups {
            let told = daemon.group(&group.label());
            (group.frozen, group.figures) =
                told.map_or((None, None), |(frozen, figures)| (Some(frozen), Some(figures)));
        }
    }
}

fn seconds_since_1970() -> f64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}

fn counts(status: &MemberStatus) -> MemberCounts {
    MemberCounts {
        faults_served: status.faults_served,
        placed: status.placed,
        fallback_pages: status.fallback_pages,
        recolored: status.recolored,
        audits: status.audits,
        refused: status.census.as_ref().map(left_alone).unwrap_or_default(),
    }
}

fn missed((pid, reason): (i32, String)) -> Missed {
    Missed { pid, reason }
}

fn superpages_now(report: superpages::Report) -> SuperpagesNow {
    SuperpagesNow {
        promoted: report.promoted,
        demoted: report.demoted,
        refused: report.refused.into_iter().map(|(why, n)| (why.to_string(), n)).collect(),
    }
}
