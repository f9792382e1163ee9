//! What a run or a process looks like in figures: as JSON and as a few lines of text.

use std::collections::BTreeMap;

use huepage_color::ColorSet;
use huepage_linux::counters::Misses;
use huepage_linux::engine::{GroupReport, Kept, MemberStatus};
use huepage_linux::filecache::text::TextReport;
use huepage_linux::superpages;
use huepage_policy::Census;
use serde::Serialize;

use crate::cmd::page_cache::report::PageCacheReport;

/// Compliance as a figure with its parts.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Compliance {
    /// Resident pages that can be moved.
    pub movable: u64,
    /// Of these, in the partition's colours.
    pub in_colors: u64,
    /// Their share, 0 to 1, less what is estimated to have been moved by the host and not found yet: by
    /// what was measured again lately.
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
    /// From the command to the program's first instruction.
    pub start_seconds: f64,
    /// From the command to colours being known; none if they never were.
    pub colors_seconds: Option<f64>,
    /// From the command to the stock of a process being full; none if it never was.
    pub stock_seconds: Option<f64>,
    /// At the last audit of each process.
    pub compliance: Compliance,
    /// The share over time, from the first audit of each process to its last, with what
    /// audits found before their repairs; 0 to 1, none if nothing was audited twice.
    pub compliance_over_time: Option<f64>,
    /// What measuring pages again found and took, of all processes.
    pub kept: Kept,
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
    /// What became of program text and libraries, where they were to be placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<TextReport>,
    /// What became of the files that were opened, where they were to be placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_cache: Option<PageCacheReport>,
    /// What was done about superpages, where they may leave the partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub superpages: Option<superpages::Report>,
    /// Why no superpages are built, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_superpages: Option<String>,
    /// The program was ended by a signal that dumps core, and pages had been moved: those that were out at
    /// that moment are not in the dump.
    pub core_may_lack_pages: bool,
    /// What hardware counters say, where they were asked and exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Misses>,
}

impl Default for Compliance {
    fn default() -> Compliance {
        Compliance { movable: 0, in_colors: 0, share: 1.0 }
    }
}

impl Compliance {
    /// Less what is estimated to have been moved and not found yet.
    pub fn less(self, kept: &Kept) -> Compliance {
        Compliance { share: self.share * (1.0 - kept.stale), ..self }
    }
}

impl From<&Census> for Compliance {
    fn from(census: &Census) -> Compliance {
        let total = census.total();
        let share = census.compliance().unwrap_or(1.0);
        Compliance { movable: total.movable(), in_colors: total.inside, share }
    }
}

/// The censuses of several processes in one; `None` if none was looked at.
pub fn census(members: &[MemberStatus]) -> Option<Census> {
    let mut all = members.iter().filter_map(|m| m.census.as_ref());
    let mut sum = all.next()?.clone();
    all.for_each(|census| sum.merge(census));
    Some(sum)
}

/// What measuring pages again found and took, over all processes: their times are those of the one that
/// was held longest, estimates those of the worst.
pub fn kept(members: &[MemberStatus]) -> Kept {
    members.iter().map(|member| member.kept).fold(Kept::default(), |all, one| Kept {
        measured: all.measured + one.measured,
        moved: all.moved + one.moved,
        cpu_seconds: all.cpu_seconds + one.cpu_seconds,
        seconds: all.seconds.max(one.seconds),
        lately: all.lately + one.lately,
        stale: all.stale.max(one.stale),
    })
}

/// The same in words; none if nothing was measured again.
pub fn kept_text(kept: &Kept) -> Option<String> {
    let Kept { measured, moved, cpu_seconds, seconds, lately, .. } = *kept;
    let share = if seconds > 0.0 { 100.0 * cpu_seconds / seconds } else { 0.0 };
    (measured > 0).then(|| {
        format!(
            "measured again: {measured} pages, {lately} of them in the last minute; {moved} moved by the host; {share:.2} % of a CPU"
        )
    })
}

/// The share of movable pages that were inside, over time and processes.
pub fn over_time(members: &[MemberStatus]) -> Option<f64> {
    let sum = |which: usize| members.iter().map(|m| m.page_seconds[which]).sum::<f64>();
    (sum(0) > 0.0).then(|| sum(1) / sum(0))
}

/// `a / b` for counts of pages, which are far below 2^53.
#[allow(clippy::cast_precision_loss, reason = "counts of pages are far below 2^53")]
pub fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 0.0 } else { a as f64 / b as f64 }
}

/// Pages left alone, by the words for the reason.
pub fn left_alone(census: &Census) -> BTreeMap<String, u64> {
    census.obstacles().map(|(why, pages)| (why.text().into(), pages)).collect()
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
        let (found, kept) = (census(&members), kept(&members));
        let compliance = found.as_ref().map_or_else(Compliance::default, Compliance::from);
        let sum = |f: fn(&MemberStatus) -> u64| members.iter().map(f).sum();
        RunReport {
            colors: colors.to_string(),
            of: colors.universe(),
            level,
            colors_from,
            program_seconds: program,
            gather_seconds: gather,
            prepare_seconds: prepare,
            start_seconds: prepare + gather,
            colors_seconds: None,
            stock_seconds: members.iter().filter_map(|m| m.stock_after_seconds).reduce(f64::min),
            compliance: compliance.less(&kept),
            kept,
            compliance_over_time: over_time(&members),
            faults_served: sum(|m| m.faults_served),
            placed: sum(|m| m.placed),
            recolored: sum(|m| m.recolored),
            fallback_pages: sum(|m| m.fallback_pages),
            refused: found.as_ref().map(left_alone).unwrap_or_default(),
            missed: group.missed,
            text: None,
            page_cache: None,
            superpages: None,
            no_superpages: None,
            counters: None,
            core_may_lack_pages: false,
            processes: members,
        }
    }

    /// What is said of pages that came in any colour.
    fn fallback(&self) -> String {
        let short: u64 = self.processes.iter().map(|m| m.short_of_memory).sum();
        if short > 0 {
            return format!(
                "\nhuepage: the stock was given back {} as a memory limit of the program's control groups left no room; {} pages came in any colour; a smaller --stock or a larger limit avoids it",
                if short == 1 { "once".into() } else { format!("{short} times") },
                self.fallback_pages
            );
        }
        if self.fallback_pages == 0 {
            return String::new();
        }
        format!(
            "\nhuepage: {} pages came in any colour as the stock was empty, and were recoloured when it was not; --wait or a larger --stock avoids it",
            self.fallback_pages
        )
    }

    /// What is said of where pages were found.
    fn inside(&self) -> String {
        let c = &self.compliance;
        if self.processes.iter().all(|member| member.census.is_none()) {
            let why = match self.colors_seconds {
                Some(_) => "it ended before its pages were looked at",
                None => {
                    "colours were not known before it ended: it ran as it would without huepage"
                }
            };
            return why.into();
        }
        let over_time = self.compliance_over_time;
        let over_time = over_time.map(|share| format!(", {:.2} % over time", share * 100.0));
        format!(
            "{:.2} % of {} movable pages inside after the last audit{}",
            c.share * 100.0,
            c.movable,
            over_time.unwrap_or_default()
        )
    }

    /// When what was ready.
    fn when(&self) -> String {
        let after = |what: &str, seconds: Option<f64>| {
            seconds.map(|seconds| format!(", {what} after {seconds:.2} s"))
        };
        let colors = after("colours known", self.colors_seconds);
        let stock = after("stock full", self.stock_seconds);
        format!(
            "started after {:.2} s{}{}, ended {:.2} s later",
            self.start_seconds,
            colors.unwrap_or_default(),
            stock.unwrap_or_default(),
            self.program_seconds
        )
    }

    /// A few lines for a person.
    pub fn text(&self) -> String {
        let mut text = format!(
            "huepage: colours {} of {} ({}, {}); {}\n\
             huepage: {}; {} pages placed at {} faults, {} recoloured",
            self.colors,
            self.of,
            self.level,
            self.colors_from,
            self.inside(),
            self.when(),
            self.placed,
            self.faults_served,
            self.recolored,
        );
        text += &self.fallback();
        text +=
            &kept_text(&self.kept).map_or_else(String::new, |told| format!("\nhuepage: {told}"));
        if !self.refused.is_empty() {
            let list: Vec<String> =
                self.refused.iter().map(|(why, n)| format!("{n} {why}")).collect();
            text += &format!("\nhuepage: left alone: {}", list.join(", "));
        }
        let foreign: usize = self.processes.iter().map(|m| m.foreign_most).sum();
        if foreign > 0 {
            text += &format!(
                "\nhuepage: {} served by the program's own userfaultfd: left alone",
                if foreign == 1 { "1 area".into() } else { format!("{foreign} areas") }
            );
        }
        if let Some(report) = &self.text {
            text += &format!("\nhuepage: {}", crate::text::line(report));
        }
        if let Some(files) = &self.page_cache {
            text += &format!("\n{}", files.text());
        }
        if let Some(report) = &self.superpages {
            text += &format!("\n{}", report.text());
        }
        if self.core_may_lack_pages {
            text += "\nhuepage: a core dump may lack pages that were being moved; `huepage detach` a program before you have it dump";
        }
        for (pid, why) in &self.missed {
            text += &format!("\nhuepage: process {pid} was not confined: {why}");
        }
        text
    }
}
