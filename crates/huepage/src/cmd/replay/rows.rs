//! What policies made of recordings, as rows of the form that `huepage sim` gives the points of a sweep:
//! names, units and places are its own where they mean the same, so that `huepage sim merge` puts both
//! into one file. What only one of them knows, the other leaves out.

use huepage_policy::coloris::offline::OfflineDivision;
use huepage_policy::recording::Recording;
use serde::Serialize;
use serde_json::Value;

use super::drive::{Driven, PolicyOutcome, Read, sensor};
use crate::exit::CmdError;
use crate::partition::internal;
use crate::report::name_pairs;
use crate::style::{self, Style};

/// A policy and what came of it.
#[derive(Debug, Serialize)]
pub struct ReplayRow {
    /// Its number among the rows.
    point: usize,
    /// What was varied: the policy, and the recording where there are several.
    #[serde(serialize_with = "name_pairs")]
    parameters: Vec<(&'static str, String)>,
    report: Report,
}

#[derive(Debug, Serialize)]
struct Report {
    /// What stands for a simulated machine.
    machine: &'static str,
    sensor: &'static str,
    /// Translations that no TLB had, as estimated.
    #[serde(skip_serializing_if = "Option::is_none")]
    walks: Option<u64>,
    spaces: Vec<Space>,
}

/// A process of a recording.
#[derive(Debug, Default, Serialize)]
struct Space {
    space: u16,
    recording: String,
    /// Base pages that it has in memory.
    pages: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    promotions: Option<u64>,
    /// Actions that could not be carried out.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusals: Option<u64>,
    /// Pages that get another frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    recolorings: Option<u64>,
    /// Base pages that superpages add, for each that is resident without them.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_overhead: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tlb_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promotion_seconds: Option<f64>,
    /// The share of its requests to the cache that miss, as estimated or foretold.
    #[serde(skip_serializing_if = "Option::is_none")]
    miss_rate: Option<f64>,
    /// The colours that it has in the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    colors: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pages_by_color: Vec<u64>,
}

/// The rows of all recordings and policies, numbered from `first` on.
pub fn rows(
    reads: &[Read],
    divisions: &[(Driven, OfflineDivision)],
    first: usize,
) -> Vec<ReplayRow> {
    let mut rows = Vec::new();
    for read in reads {
        for (policy, outcome) in &read.outcomes {
            rows.push(row(first + rows.len(), reads, read, policy, outcome));
        }
    }
    for (policy, division) in divisions {
        rows.push(divided(first + rows.len(), reads, policy, division));
    }
    rows
}

fn row(
    point: usize,
    reads: &[Read],
    read: &Read,
    policy: &Driven,
    outcome: &PolicyOutcome,
) -> ReplayRow {
    let mut parameters = vec![("policy", policy.text())];
    if reads.len() > 1 {
        parameters.push(("recording", read.name.clone()));
    }
    let recording = read.name.clone();
    let mut space = Space { recording, pages: pages(&read.recorded), ..Space::default() };
    let mut walks = None;
    match outcome {
        PolicyOutcome::Nothing => space.miss_rate = miss_rate(&read.recorded),
        PolicyOutcome::Superpages(found) => {
            walks = knows_misses(&read.recorded).then_some(found.walks);
            space.pages = found.resident_pages;
            space.promotions = Some(found.promotions);
            space.refusals = Some(found.refused.values().sum());
            let own = found.resident_pages.max(1) as f64;
            space.memory_overhead = Some(found.filled_pages as f64 / own);
            space.tlb_seconds = walks.map(|_| found.tlb_seconds);
            space.promotion_seconds = Some(found.promotion_seconds);
        }
        PolicyOutcome::Rocs(found) => space.recolorings = Some(found.confined),
        PolicyOutcome::Conflicts(found) => {
            space.recolorings = Some(found.recolorings);
            space.pages_by_color.clone_from(&found.pages_by_color);
            space.miss_rate = found.residency.map(|there| 1.0 - there);
        }
    }
    let report = report(read, walks, vec![space]);
    ReplayRow { point, parameters, report }
}

fn divided(point: usize, reads: &[Read], policy: &Driven, division: &OfflineDivision) -> ReplayRow {
    let mut parameters = vec![("policy", policy.text())];
    if reads.len() > 1 {
        let names: Vec<&str> = reads.iter().map(|read| read.name.as_str()).collect();
        parameters.push(("recording", names.join(" ")));
    }
    let space = |(space, (read, became)): (u16, (&Read, _))| {
        let became: &huepage_policy::coloris::offline::Became = became;
        Space {
            space,
            recording: read.name.clone(),
            pages: pages(&read.recorded),
            miss_rate: became.miss_rate.map(|[_, last]| last),
            colors: Some(became.colors[1].to_string()),
            ..Space::default()
        }
    };
    let spaces = (0..).zip(reads.iter().zip(&division.groups)).map(space).collect();
    ReplayRow { point, parameters, report: report(&reads[0], None, spaces) }
}

fn report(read: &Read, walks: Option<u64>, spaces: Vec<Space>) -> Report {
    Report { machine: "a recording", sensor: sensor(&read.recorded).text(), walks, spaces }
}

/// Resident pages.
fn pages(recorded: &Recording) -> u64 {
    match recorded {
        Recording::Residency(found) => found.tally.areas.iter().map(|area| area.resident).sum(),
        Recording::Touches(found) => found.tally.resident,
    }
}

fn miss_rate(recorded: &Recording) -> Option<f64> {
    match recorded {
        Recording::Residency(found) => found.estimate().map(|estimate| estimate.miss_rate),
        Recording::Touches(_) => None,
    }
}

/// Whether a recording says anything of TLB misses.
fn knows_misses(recorded: &Recording) -> bool {
    use huepage_policy::recording::touches::SampledEvent;
    let Recording::Touches(found) = recorded else { return false };
    let of_misses = |event: SampledEvent| event == SampledEvent::TlbMisses;
    found.head.samples.as_ref().is_none_or(|samples| of_misses(samples.event))
}

/// As values, for files.
pub fn values(rows: &[ReplayRow]) -> Result<Vec<Value>, CmdError> {
    rows.iter().map(|row| serde_json::to_value(row).map_err(internal)).collect()
}

/// A cell of a table for a row and a process of it; none where it has nothing to say.
type Cell = fn(&ReplayRow, &Space) -> Option<String>;

/// The columns, as the tables of `huepage sim` call them where they have them.
const COLUMNS: [(&str, Cell); 11] = [
    ("space", |row, space| (row.report.spaces.len() > 1).then(|| space.space.to_string())),
    ("pages", |_, space| Some(space.pages.to_string())),
    ("TLB misses", |row, _| row.report.walks.map(|n| n.to_string())),
    ("TLB s", |_, space| space.tlb_seconds.map(|s| format!("{s:.3}"))),
    ("promoted", |_, space| space.promotions.map(|n| n.to_string())),
    ("promotion s", |_, space| space.promotion_seconds.map(|s| format!("{s:.3}"))),
    ("refused", |_, space| space.refusals.map(|n| n.to_string())),
    ("memory overhead", |_, space| space.memory_overhead.map(percent)),
    ("recolored", |_, space| space.recolorings.map(|n| n.to_string())),
    ("miss rate", |_, space| space.miss_rate.map(percent)),
    ("colours", |_, space| space.colors.clone()),
];

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// A line for each policy and process, with the columns that any has something for.
pub fn table(rows: &[ReplayRow]) -> String {
    let all = || rows.iter().flat_map(|row| row.report.spaces.iter().map(move |s| (row, s)));
    let used = |cell: &Cell| all().any(|(row, space)| cell(row, space).is_some());
    let columns: Vec<(&str, Cell)> = COLUMNS.into_iter().filter(|(_, cell)| used(cell)).collect();
    let keys: Vec<&str> = rows
        .first()
        .map_or_else(Vec::new, |row| row.parameters.iter().map(|(key, _)| *key).collect());
    let names = columns.iter().map(|(name, _)| *name);
    let mut table = Style::stdout().table(&keys.into_iter().chain(names).collect::<Vec<_>>());
    for (row, space) in all() {
        let parameters = row.parameters.iter().map(|(_, value)| value.clone());
        let cells = columns.iter().map(|(_, cell)| cell(row, space).unwrap_or_default());
        table.add_row(parameters.chain(cells));
    }
    style::lay_out(table)
}
