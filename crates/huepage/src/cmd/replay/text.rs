//! What was recorded and what came of it, one recording at a time: for a person by area and in a sentence
//! for each policy, and as JSON. The rows that put policies side by side are in [`super::rows`].

use std::fmt::Write as _;

use huepage_linux::services::superpages::replayed;
use huepage_policy::coloris::offline::OfflineDivision;
use huepage_policy::conflict::replayed::ConflictOutcome;
use huepage_policy::recording::residency::{self, ResidencyTotals};
use huepage_policy::recording::touches::{self, AreaTouched, SampledEvent};
use huepage_policy::recording::{RecordedSensor, Recording};
use huepage_policy::residency::{AreaSeen, Estimate};
use serde::Serialize;

use super::drive::{Driven, PolicyOutcome, Read, RocsSays};
use crate::cmd::record::{self, HEADER, LISTED};
use crate::style::{self, Style};
use crate::top::text;

/// Decisions listed for a person.
const DECISIONS: usize = 20;

/// A recording as JSON.
#[derive(Serialize)]
#[serde(untagged)]
pub enum ReplayedRecording<'a> {
    Residency(Box<OfResidency<'a>>),
    Touches(Box<OfTouches<'a>>),
}

#[derive(Serialize)]
pub struct OfResidency<'a> {
    pid: i32,
    sensor: &'a str,
    /// Bytes of the cache that was watched.
    cache_bytes: u64,
    /// Looks that saw something, and the time of the last.
    looks: u64,
    last: f64,
    samples: u64,
    found: u64,
    /// What the sensor said at the end; none if the recording was cut short.
    totals: Option<&'a ResidencyTotals>,
    estimate: Option<Estimate>,
    areas: Vec<Area<'a, AreaSeen>>,
    rocs: Option<&'a RocsSays>,
    conflicts: Option<&'a ConflictOutcome>,
}

#[derive(Serialize)]
pub struct OfTouches<'a> {
    pid: i32,
    sensor: RecordedSensor,
    event: Option<SampledEvent>,
    tlb: touches::RecordedTlb,
    /// Looks, or lines with samples, and the time of the last.
    looks: u64,
    last: f64,
    pages: u64,
    touched: u64,
    samples: u64,
    surveys: u64,
    /// What the sensor said at the end; none if the recording was cut short.
    totals: Option<&'a touches::TouchTotals>,
    areas: Vec<Area<'a, AreaTouched>>,
    rocs: Option<&'a RocsSays>,
    superpages: Vec<Superpages<'a>>,
}

/// What a superpage policy would do.
#[derive(Serialize)]
struct Superpages<'a> {
    policy: String,
    #[serde(flatten)]
    outcome: &'a replayed::ReplayOutcome,
}

#[derive(Serialize)]
struct Area<'a, T> {
    #[serde(flatten)]
    seen: &'a T,
    /// Pages of it that ROCS would confine.
    confined: Option<u64>,
}

/// A recording as JSON.
pub fn replayed(read: &Read) -> ReplayedRecording<'_> {
    match &read.recorded {
        Recording::Residency(found) => {
            ReplayedRecording::Residency(Box::new(of_residency(read, found)))
        }
        Recording::Touches(found) => ReplayedRecording::Touches(Box::new(of_touches(read, found))),
    }
}

fn of_residency<'a>(
    read: &'a Read,
    recorded: &'a residency::ResidencyRecording,
) -> OfResidency<'a> {
    let residency::ResidencyRecording { head, tally, looks, last, totals } = recorded;
    OfResidency {
        pid: head.pid,
        sensor: &head.sensor,
        cache_bytes: head.cache_bytes,
        looks: *looks,
        last: *last,
        samples: tally.samples(),
        found: tally.found(),
        totals: totals.as_ref(),
        estimate: recorded.estimate(),
        areas: areas(&tally.areas, rocs(read)),
        rocs: rocs(read),
        conflicts: conflicts(read),
    }
}

fn of_touches<'a>(read: &'a Read, recorded: &'a touches::TouchRecording) -> OfTouches<'a> {
    let touches::TouchRecording { head, tally, last, totals, .. } = recorded;
    let superpages = |(policy, outcome): &'a (Driven, PolicyOutcome)| match outcome {
        PolicyOutcome::Superpages(outcome) => Some(Superpages { policy: policy.text(), outcome }),
        _ => None,
    };
    OfTouches {
        pid: head.pid,
        sensor: head.sensor,
        event: head.samples.as_ref().map(|samples| samples.event),
        tlb: head.tlb,
        looks: tally.looks,
        last: *last,
        pages: tally.pages,
        touched: tally.touched,
        samples: tally.samples,
        surveys: tally.surveys,
        totals: totals.as_ref(),
        areas: areas(&tally.areas, rocs(read)),
        rocs: rocs(read),
        superpages: read.outcomes.iter().filter_map(superpages).collect(),
    }
}

fn areas<'a, T>(all: &'a [T], rocs: Option<&RocsSays>) -> Vec<Area<'a, T>> {
    let confined = |at: usize| rocs.and_then(|rocs| rocs.by_area.get(at).copied());
    all.iter().enumerate().map(|(at, seen)| Area { seen, confined: confined(at) }).collect()
}

fn rocs(read: &Read) -> Option<&RocsSays> {
    read.outcomes.iter().find_map(|(_, outcome)| match outcome {
        PolicyOutcome::Rocs(says) => Some(says),
        _ => None,
    })
}

fn conflicts(read: &Read) -> Option<&ConflictOutcome> {
    read.outcomes.iter().find_map(|(_, outcome)| match outcome {
        PolicyOutcome::Conflicts(outcome) => Some(outcome),
        _ => None,
    })
}

/// A recording for a person.
pub fn words(read: &Read) -> String {
    let (mut text, whole) = match &read.recorded {
        Recording::Residency(found) => (seen(found, rocs(read)), found.totals.is_some()),
        Recording::Touches(found) => {
            let totals = found.totals.as_ref();
            (
                record::touched_words(&found.head, &found.tally, totals, Style::stdout()),
                totals.is_some(),
            )
        }
    };
    for (policy, outcome) in &read.outcomes {
        text += &sentence(policy, outcome);
    }
    if !whole {
        text += "the recording was cut short: it has no totals to hold this against\n";
    }
    text
}

/// What a residency sensor saw, by area.
fn seen(recorded: &residency::ResidencyRecording, rocs: Option<&RocsSays>) -> String {
    let tally = &recorded.tally;
    let seen = tally.areas.iter().enumerate().filter(|(_, area)| area.samples > 0);
    let mut areas: Vec<(usize, &AreaSeen)> = seen.collect();
    areas.sort_by(|(_, a), (_, b)| b.cached_bytes().total_cmp(&a.cached_bytes()));
    let confined = rocs.map(|_| "confined");
    let header: Vec<&str> = HEADER.into_iter().chain(confined).collect();
    let mut table = Style::stdout().table(&header);
    for &(at, area) in areas.iter().take(LISTED) {
        let confined = rocs.and_then(|rocs| rocs.by_area.get(at)).map(|n| format!("{} KiB", n * 4));
        table.add_row(record::cells(area).into_iter().chain(confined));
    }
    let mut text = style::lay_out(table);
    if areas.len() > LISTED {
        let more = style::count((areas.len() - LISTED) as u64, "area", "areas");
        let _ = writeln!(text, "and {more} with less in the cache");
    }
    let _ = writeln!(
        text,
        "process {}: {} lines timed in {} looks over {:.1} s, {} found; misses {}",
        recorded.head.pid,
        tally.samples(),
        recorded.looks,
        recorded.last,
        tally.found(),
        text::misses(recorded.estimate()),
    );
    text
}

/// What a policy would do.
fn sentence(policy: &Driven, outcome: &PolicyOutcome) -> String {
    match outcome {
        PolicyOutcome::Nothing => String::new(),
        PolicyOutcome::Superpages(_) if policy.is_nothing() => String::new(),
        PolicyOutcome::Superpages(found) => superpages(policy, found),
        PolicyOutcome::Rocs(rocs) => format!(
            "ROCS would confine {} KiB of {} KiB in {} of {} colours ({} ways)\n",
            rocs.confined * 4,
            rocs.sampled * 4,
            rocs.buffer_colors,
            rocs.colors,
            rocs.ways,
        ),
        PolicyOutcome::Conflicts(found) => crowded(found),
    }
}

fn superpages(policy: &Driven, found: &replayed::ReplayOutcome) -> String {
    let refused: Vec<String> =
        found.refused.iter().map(|(why, count)| format!("{count} {why}")).collect();
    let refused = match refused.is_empty() {
        true => "nothing refused".to_owned(),
        false => format!("not built: {}", refused.join(", ")),
    };
    let half = found.half_after.map(|at| format!(", half of them within {at:.1} s"));
    format!(
        "{} would build {} superpages{}, {refused}; {} pages of memory added\n",
        policy.text(),
        found.promotions,
        half.unwrap_or_default(),
        found.filled_pages,
    )
}

fn crowded(found: &ConflictOutcome) -> String {
    let crowd: u64 = found.crowds.iter().map(|crowd| crowd.pages).sum();
    let share = |share: Option<f64>| text::percent(share);
    format!(
        "snapshot-in-use would move {} of {} pages in use, {crowd} of which crowd {} colours ({}); in the cache {}, then {}\n",
        found.recolorings,
        found.pages,
        found.crowds.len(),
        found.stage,
        share(found.residency_before),
        share(found.residency),
    )
}

/// What would be decided about a division, for a person.
pub fn decided(policy: &Driven, division: &OfflineDivision, reads: &[Read]) -> String {
    let mut text = String::new();
    let changes = division.decisions.iter().filter(|(_, one)| one.is_change());
    let count = changes.clone().count();
    let _ = writeln!(text, "{} would change {count} partitions", policy.text());
    for (at, one) in changes.take(DECISIONS) {
        let name = reads.get(one.app.0).map_or("", |read| read.name.as_str());
        let _ = writeln!(text, "  {at:.0} s, {name}: {} -> {}, {}", one.from, one.to, one.reason);
    }
    if count > DECISIONS {
        let _ = writeln!(text, "  and {} more", count - DECISIONS);
    }
    text
}
