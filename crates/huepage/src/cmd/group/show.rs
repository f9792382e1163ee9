//! `huepage group list` and `show`: what is stored beside what runs. Where pages are is measured
//! here and now, as `huepage inspect` does.

use std::time::Duration;

use comfy_table::Table;
use huepage_linux::color::partition_registry::RegistryEntry;
use huepage_linux::control::groups::{GroupStore, Stored};
use huepage_linux::control::socket::SupervisorRequest;
use huepage_linux::kernel::procfs::ProcRoot;
use serde::Serialize;

use super::args::{ListArgs, ShowArgs};
use super::{call, running, serve, stored};
use crate::cmd::inspect;
use crate::exit::CmdError;
use crate::partition::internal;
use crate::report::{self, Compliance, Missed};
use crate::style::{self, Style};

/// A group in a list.
#[derive(Serialize)]
struct GroupRow {
    name: String,
    colors: String,
    of: Option<u16>,
    level: Option<String>,
    /// How colours are known.
    colors_from: Option<String>,
    cgroup: Option<String>,
    supervisor: Option<i32>,
    processes: Vec<i32>,
    /// What is the matter, and what to do; nothing for a group that runs.
    stopped: Option<String>,
}

/// What `list` prints.
#[derive(Serialize)]
struct GroupList {
    groups: Vec<GroupRow>,
}

/// A process of a group.
#[derive(Serialize)]
struct ShownMember {
    pid: i32,
    name: String,
    /// Where its pages are; none when it ended meanwhile.
    compliance: Option<Compliance>,
}

/// What `show` prints.
#[derive(Serialize)]
struct Group {
    #[serde(flatten)]
    row: GroupRow,
    members: Vec<ShownMember>,
    /// Processes that could not be taken.
    missed: Vec<Missed>,
}

fn row(store: &GroupStore, group: &Stored) -> Result<GroupRow, CmdError> {
    let definition = serve::definition(group)?;
    let entry = running(&group.name).ok();
    let stopped = match &entry {
        Some(_) => None,
        None => {
            let alive = store.survivors(group).map_err(internal)?.alive.len();
            let all = group.members.len();
            Some(format!(
                "no supervisor, {alive} of {all} processes still run; `huepage group start {}`",
                group.name
            ))
        }
    };
    let asked =
        definition.plan.partition.colors.or(definition.plan.partition.share).unwrap_or_default();
    Ok(GroupRow {
        name: group.name.clone(),
        colors: entry.as_ref().map(|e| e.colors.to_string()).or(definition.held).unwrap_or(asked),
        of: entry.as_ref().map(|e| e.colors.universe()),
        level: entry.as_ref().map(|e| e.level.to_string()),
        colors_from: entry.as_ref().map(|e| e.provenance.to_string()),
        cgroup: definition.cgroup,
        supervisor: entry.as_ref().map(|e| e.pid),
        processes: entry.map(|e| e.members).unwrap_or_default(),
        stopped,
    })
}

/// Prints all groups.
pub fn list(args: &ListArgs) -> Result<(), CmdError> {
    let store = GroupStore::open().map_err(internal)?;
    let groups = store.all().map_err(internal)?;
    let rows = groups.iter().map(|group| row(&store, group)).collect::<Result<Vec<_>, _>>()?;
    let text = if args.json {
        report::json(&GroupList { groups: rows })?
    } else if rows.is_empty() {
        "no groups; `huepage group create --help` says how to make one\n".to_owned()
    } else {
        style::lay_out(table(&rows))
    };
    style::print(&text).map_err(internal)
}

fn table(rows: &[GroupRow]) -> Table {
    let headings = ["group", "colours", "cache", "processes", "control group", "state"];
    let mut table = Style::stdout().table(&headings);
    for row in rows {
        let of = row.of.map_or(String::new(), |of| format!(" of {of}"));
        let supervisor = row.supervisor.map(|pid| format!("supervisor {pid}"));
        table.add_row([
            row.name.clone(),
            row.colors.clone() + &of,
            row.level.clone().unwrap_or_default(),
            row.processes.len().to_string(),
            row.cgroup.clone().unwrap_or_default(),
            row.stopped.clone().or(supervisor).unwrap_or_default(),
        ]);
    }
    table
}

/// Prints one group.
pub fn show(args: &ShowArgs) -> Result<(), CmdError> {
    let (store, group) = stored(&args.name)?;
    let row = row(&store, &group)?;
    let entry = running(&args.name).ok();
    let pids = row.processes.clone();
    let members = pids.into_iter().map(member).collect();
    let missed = entry.as_ref().map(missed).unwrap_or_default();
    let group = Group { row, members, missed };
    let text = if args.json { report::json(&group)? } else { words(&group) };
    style::print(&text).map_err(internal)
}

fn member(pid: i32) -> ShownMember {
    let status = ProcRoot::default().status(pid);
    let name = status.map(|status| status.name).unwrap_or_default();
    ShownMember { pid, name, compliance: inspect::compliance(pid).ok() }
}

fn words(group: &Group) -> String {
    let mut text = style::lay_out(table(std::slice::from_ref(&group.row)));
    let colors_from = group.row.colors_from.as_deref().unwrap_or_default();
    for ShownMember { pid, name, compliance } in &group.members {
        let found = compliance.as_ref().map(|found| found.text(colors_from));
        text += &format!("{pid:>8} {name}: {}\n", found.unwrap_or_else(|| "ended".to_owned()));
    }
    for Missed { pid, reason } in &group.missed {
        text += &format!("{pid:>8} left alone: {reason}\n");
    }
    text
}

/// Processes that a group could not take, with the reason; none if nobody answers.
pub fn missed(entry: &RegistryEntry) -> Vec<Missed> {
    let answer = call(entry, &SupervisorRequest::Ping, Duration::from_secs(10)).unwrap_or_default();
    let pairs: Vec<_> = serde_json::from_value(answer["missed"].clone()).unwrap_or_default();
    pairs.into_iter().map(|(pid, reason)| Missed { pid, reason }).collect()
}

/// A list for a sentence.
pub fn pids(pids: &[i32]) -> String {
    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
