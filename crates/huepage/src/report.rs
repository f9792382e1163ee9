//! What a run or a process looks like in figures: as JSON and as a few lines of text.

use std::collections::BTreeMap;

use huepage_color::ColorSet;
use huepage_linux::engine::{GroupReport, MemberStatus};
use serde::Serialize;

/// Compliance as a figure with its parts.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Compliance {
    /// Resident pages that can be moved.
    pub movable: u64,
    /// Of these, in the partition's colours.
    pub in_colors: u64,
    /// Their share, 0 to 1.
    pub share: f64,
}

/// The report of one run.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The partition.
    pub colors: String,
    /// Colours there are.
    pub of: u16,
    /// The cache level.
    pub level: String,
    /// How colours are known.
    pub colors_from: String,
    /// From the program's first instruction to its end.
    pub program_seconds: f64,
    /// Gathering and probing before it started.
    pub gather_seconds: f64,
    /// Preparing: opening the colour source, starting the agent.
    pub prepare_seconds: f64,
    /// At the last audit of each process.
    pub compliance: Compliance,
    /// Faults answered.
    pub faults_served: u64,
    /// Pages placed for them.
    pub placed: u64,
    /// Pages recoloured while the program ran.
    pub recolored: u64,
    /// Pages of any colour, placed since the stock was empty.
    pub fallback_pages: u64,
    /// Resident pages left alone, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Every process.
    pub processes: Vec<MemberStatus>,
    /// Processes that could not be confined.
    pub missed: Vec<(i32, String)>,
}

/// Compliance over several processes.
pub fn compliance(members: &[MemberStatus]) -> Compliance {
    let movable = members.iter().map(|m| m.census.movable()).sum();
    let in_colors = members.iter().map(|m| m.census.in_colors()).sum();
    let share = if movable == 0 { 1.0 } else { ratio(in_colors, movable) };
    Compliance { movable, in_colors, share }
}

/// `a / b` for counts of pages, which are far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "counts of pages are far below 2^53")]
pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Pages left alone, by reason, over several processes.
pub fn left_alone(members: &[MemberStatus]) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for (reason, n) in members.iter().flat_map(|m| &m.census.left_alone) {
        *sum.entry(reason.clone()).or_default() += n;
    }
    sum
}

impl RunReport {
    /// Sums a group up.
    pub fn new(
        colors: &ColorSet,
        level: String,
        colors_from: String,
        group: GroupReport,
        [program, gather, prepare]: [f64; 3],
    ) -> RunReport {
        let members = group.members;
        let sum = |f: fn(&MemberStatus) -> u64| members.iter().map(f).sum();
        RunReport {
            colors: colors.to_string(),
            of: colors.universe(),
            level,
            colors_from,
            program_seconds: program,
            gather_seconds: gather,
            prepare_seconds: prepare,
            compliance: compliance(&members),
            faults_served: sum(|m| m.faults_served),
            placed: sum(|m| m.placed),
            recolored: sum(|m| m.recolored),
            fallback_pages: sum(|m| m.fallback_pages),
            refused: left_alone(&members),
            missed: group.missed,
            processes: members,
        }
    }

    /// A few lines for a person.
    pub fn text(&self) -> String {
        let c = &self.compliance;
        let mut text = format!(
            "huepage: colours {} of {} ({}, {}); {:.2} % of {} movable pages inside after the last audit\n\
             huepage: {:.2} s after {:.2} s of preparation; {} pages placed at {} faults, {} recoloured",
            self.colors,
            self.of,
            self.level,
            self.colors_from,
            c.share * 100.0,
            c.movable,
            self.program_seconds,
            self.gather_seconds + self.prepare_seconds,
            self.placed,
            self.faults_served,
            self.recolored,
        );
        if self.fallback_pages > 0 {
            text += &format!(
                "\nhuepage: {} pages came in any colour as the stock was empty, and were recoloured when it was not; a larger --stock avoids it",
                self.fallback_pages
            );
        }
        if !self.refused.is_empty() {
            let list: Vec<String> =
                self.refused.iter().map(|(why, n)| format!("{n} {why}")).collect();
            text += &format!("\nhuepage: left alone: {}", list.join(", "));
        }
        for (pid, why) in &self.missed {
            text += &format!("\nhuepage: process {pid} was not confined: {why}");
        }
        text
    }
}
