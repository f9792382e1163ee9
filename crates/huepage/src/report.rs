//! What a run or a process looks like in figures: as JSON and as a few lines of text.

use std::collections::BTreeMap;
use std::time::Instant;

use huepage_color::PAGE_BYTES;
use huepage_linux::engine::{Group, MemberStatus, UpkeepReport};
use huepage_linux::kernel::counters::{MissCounters, Misses};
use huepage_policy::Census;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::exit::CmdError;
use crate::json::pretty;
use crate::partition::{Prepared, schemata};
use crate::plan::Plan;
use crate::services::Reports;
use crate::style::count;
use crate::supervise::Supervisor;

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

/// What this version writes; it grows when a field changes its name, its unit or its meaning.
pub const SCHEMA: u32 = 1;

/// JSON for a person, its `schema` first, and a newline.
///
/// # Errors
/// If the value is no object.
pub fn json(value: &impl Serialize) -> Result<String, CmdError> {
    let mut versioned = serde_json::Map::from_iter([("schema".to_owned(), SCHEMA.into())]);
    match serde_json::to_value(value).map_err(CmdError::internal)? {
        Value::Object(fields) => versioned.extend(fields),
        other => return Err(CmdError::internal(format!("no object: {other}"))),
    }
    pretty(&Value::Object(versioned))
}

/// Writes pairs as a list of a `name` and a `value` each.
///
/// # Errors
/// Those of the serializer.
pub fn name_pairs<K: Serialize, V: Serialize, S: Serializer>(
    pairs: &[(K, V)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Named<'a, K, V> {
        name: &'a K,
        value: &'a V,
    }
    serializer.collect_seq(pairs.iter().map(|(name, value)| Named { name, value }))
}

/// What `colors_from` of a report means, in words: whether colours were measured.
pub fn known(colors_from: &str) -> &'static str {
    match colors_from {
        "probed" => "measured",
        "declared" => "declared, not measured",
        _ => "assumed by frame number, not measured",
    }
}

/// The same where there is room for a word or two.
pub fn measured(colors_from: &str) -> &'static str {
    if colors_from == "probed" { "measured" } else { "not measured" }
}

/// The report of one run, with a partition or without.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The colours of the partition, or of the files; none where no colour is looked at.
    #[serde(flatten)]
    pub colors: Option<ColorReport>,
    /// From the program's first instruction to its end.
    pub program_seconds: f64,
    /// Gathering and probing before it started.
    pub gather_seconds: f64,
    /// Preparing: opening the colour source, starting the agent.
    pub prepare_seconds: f64,
    /// From the command to the program's first instruction.
    pub start_seconds: f64,
    /// What became of its memory, where all of it was to lie in the partition.
    #[serde(flatten)]
    pub confinement: Option<ConfinementReport>,
    /// What services did.
    #[serde(flatten)]
    pub services: Reports,
    /// The program was ended by a signal that dumps core, and pages had been moved: those that were out at
    /// that moment are not in the dump.
    pub core_may_lack_pages: bool,
    /// What hardware counters say, where they were asked and exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Misses>,
}

/// Colours of a cache.
#[derive(Clone, Debug, Serialize)]
pub struct ColorReport {
    /// The colours.
    pub colors: String,
    /// Colours there are.
    pub of: u16,
    /// The cache level.
    pub level: String,
    /// How colours are known.
    pub colors_from: String,
    /// The same as resctrl would write it, where colours are whole ways.
    pub schemata: Option<String>,
}

/// What became of memory that was to lie in a partition.
#[derive(Clone, Debug, Serialize)]
pub struct ConfinementReport {
    /// From the command to colours being known; none if they never were.
    pub colors_seconds: Option<f64>,
    /// Why they were not known, where finding them failed.
    pub colors_unknown_because: Option<String>,
    /// Why they mean nothing to other processes of huepage: partitions of these may overlap.
    pub colors_private_because: Option<String>,
    /// From the command to the stock of a process being full; none if it never was.
    pub stock_seconds: Option<f64>,
    /// Bytes of stock at the last look, of all processes; they count as their memory.
    pub stock_bytes: u64,
    /// At the last audit of each process.
    pub compliance: Compliance,
    /// The share over time, from the first audit of each process to its last, with what
    /// audits found before their repairs; 0 to 1, none if nothing was audited twice.
    pub compliance_over_time: Option<f64>,
    /// What measuring pages again found and took, of all processes.
    pub kept: UpkeepReport,
    /// Faults answered.
    pub faults_served: u64,
    /// Pages placed for them.
    pub placed: u64,
    /// Pages recoloured while the program ran.
    pub recolored: u64,
    /// Pages of any colour, placed since the stock was empty.
    pub fallback_pages: u64,
    /// Resident pages left alone, by reason.
    pub left_alone: BTreeMap<String, u64>,
    /// Every process.
    pub processes: Vec<MemberStatus>,
    /// Processes that could not be confined.
    pub missed: Vec<Missed>,
}

/// A process that could not be confined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// The process.
    pub pid: i32,
    /// Why.
    pub reason: String,
}

impl Default for Compliance {
    fn default() -> Compliance {
        Compliance { movable: 0, in_colors: 0, share: 1.0 }
    }
}

impl Compliance {
    /// For a person. Of nothing there is no share, and what was not measured is no proof.
    pub fn text(&self, colors_from: &str) -> String {
        let Compliance { share, in_colors, movable } = self;
        match (movable, colors_from) {
            (0, _) => "compliance: no movable page is resident".to_owned(),
            (_, "probed") => format!(
                "compliance {:.2} %: {in_colors} of {movable} movable resident pages are in the partition{}",
                share * 100.0,
                self.stale_text()
            ),
            _ => format!(
                "compliance: {in_colors} of {movable} movable resident pages by frame number (not measured; \
                 `huepage verify` does)"
            ),
        }
    }

    /// Of how many pages more is believed than the share has: they are sampled, and the host has moved some.
    fn stale_text(&self) -> String {
        match (self.in_colors as f64 - self.share * self.movable as f64).round() {
            stale if stale >= 1.0 => format!(
                ", but for about {stale} that the host has moved by an estimate from those measured again"
            ),
            _ => String::new(),
        }
    }

    /// Less what is estimated to have been moved and not found yet.
    pub fn less(self, kept: &UpkeepReport) -> Compliance {
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
pub fn kept(members: &[MemberStatus]) -> UpkeepReport {
    members.iter().map(|member| member.upkeep).fold(UpkeepReport::default(), |all, one| {
        UpkeepReport {
            measured: all.measured + one.measured,
            moved: all.moved + one.moved,
            cpu_seconds: all.cpu_seconds + one.cpu_seconds,
            seconds: all.seconds.max(one.seconds),
            lately: all.lately + one.lately,
            stale: all.stale.max(one.stale),
        }
    })
}

/// The same in words; none if nothing was measured again.
pub fn kept_text(kept: &UpkeepReport) -> Option<String> {
    let UpkeepReport { measured, moved, cpu_seconds, seconds, lately, .. } = *kept;
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

/// Bytes of stock of processes.
pub fn stock_bytes(members: &[MemberStatus]) -> u64 {
    members.iter().map(|member| member.stock).sum::<u64>() * PAGE_BYTES
}

/// Stock, for a person.
pub fn stock_text(bytes: u64) -> String {
    format!("stock {:.1} MiB, counted in the process's memory", ratio(bytes, 1 << 20))
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

impl ConfinementReport {
    /// Sums a group up; the command `began` then.
    fn new(group: &Group, began: Instant) -> ConfinementReport {
        let report = group.report();
        let members = report.members;
        let (found, kept) = (census(&members), kept(&members));
        let compliance = found.as_ref().map_or_else(Compliance::default, Compliance::from);
        let sum = |f: fn(&MemberStatus) -> u64| members.iter().map(f).sum();
        let known = group.colors_known();
        let missed = report.missed.into_iter().map(|(pid, reason)| Missed { pid, reason });
        ConfinementReport {
            colors_seconds: known.map(|at| at.duration_since(began).as_secs_f64()),
            colors_unknown_because: group.colors_unknown_because(),
            colors_private_because: group.colors_private_because(),
            stock_seconds: members.iter().filter_map(|m| m.stock_after_seconds).reduce(f64::min),
            stock_bytes: stock_bytes(&members),
            compliance: compliance.less(&kept),
            kept,
            compliance_over_time: over_time(&members),
            faults_served: sum(|m| m.faults_served),
            placed: sum(|m| m.placed),
            recolored: sum(|m| m.recolored),
            fallback_pages: sum(|m| m.fallback_pages),
            left_alone: found.as_ref().map(left_alone).unwrap_or_default(),
            missed: missed.collect(),
            processes: members,
        }
    }

    /// What is said where others do not know these colours.
    fn private(&self) -> Option<String> {
        let why = self.colors_private_because.as_ref()?;
        Some(format!(
            "huepage: colours could not be shared with others ({why}): they have other numbers elsewhere, and partitions may overlap"
        ))
    }

    /// What is said of pages that came in any colour.
    fn fallback(&self) -> Option<String> {
        let short: u64 = self.processes.iter().map(|m| m.short_of_memory).sum();
        let pages = count(self.fallback_pages, "page", "pages");
        if short > 0 {
            return Some(format!(
                "huepage: the stock was given back {} as a memory limit of the program's control groups left no room; {pages} came in any colour; a smaller --stock or a larger limit avoids it",
                if short == 1 { "once".into() } else { format!("{short} times") },
            ));
        }
        (self.fallback_pages > 0).then(|| {
            format!(
                "huepage: {pages} came in any colour as the stock was empty; those that stay are recoloured; a larger --stock avoids it"
            )
        })
    }

    /// What is said of where pages were found, by colours that were measured or not.
    fn inside(&self, measured: bool) -> String {
        let c = &self.compliance;
        if self.processes.iter().all(|member| member.census.is_none()) {
            let why = self.colors_unknown_because.as_ref();
            let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
            return match self.colors_seconds {
                Some(_) => "it ended before its pages were looked at".into(),
                None => format!(
                    "colours were not known before it ended{why}: it ran as it would without huepage"
                ),
            };
        }
        let over_time = self.compliance_over_time;
        let over_time = over_time.map(|share| format!(", {:.2} % over time", share * 100.0));
        let over_time = over_time.unwrap_or_default();
        let Compliance { movable, in_colors, share } = *c;
        match (movable, measured) {
            (0, _) => "no movable page was resident at the last audit".into(),
            (_, true) => {
                let share = share * 100.0;
                format!(
                    "{share:.2} % of {movable} movable pages inside after the last audit{over_time}"
                )
            }
            (_, false) => format!(
                "{in_colors} of {movable} movable pages inside by frame number (not measured){over_time}"
            ),
        }
    }

    /// What the stock took of the program's memory.
    fn stock(&self) -> Option<String> {
        (self.stock_bytes > 0).then(|| format!("huepage: {}", stock_text(self.stock_bytes)))
    }

    /// What was left alone, with the reasons.
    fn left_alone(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if !self.left_alone.is_empty() {
            let pages =
                |(why, &n): (&String, &u64)| format!("{} ({why})", count(n, "page", "pages"));
            let list: Vec<String> = self.left_alone.iter().map(pages).collect();
            lines.push(format!("huepage: left alone: {}", list.join(", ")));
        }
        let foreign: usize = self.processes.iter().map(|m| m.foreign_most).sum();
        if foreign > 0 {
            lines.push(format!(
                "huepage: {} served by the program's own userfaultfd: left alone",
                count(foreign as u64, "area", "areas")
            ));
        }
        lines
    }
}

impl RunReport {
    /// Of a run that begins; what is not known yet is nothing.
    pub fn new(plan: &Plan, prepared: &Prepared) -> RunReport {
        let colors = &prepared.config.colors;
        let looks = plan.confines() || plan.page_cache.is_on();
        RunReport {
            schema: SCHEMA,
            colors: looks.then(|| ColorReport {
                colors: colors.to_string(),
                of: colors.universe(),
                level: prepared.cache.level.to_string(),
                colors_from: prepared.provenance.to_string(),
                schemata: schemata(colors, &prepared.cache),
            }),
            program_seconds: 0.0,
            gather_seconds: 0.0,
            prepare_seconds: 0.0,
            start_seconds: 0.0,
            confinement: None,
            services: Reports::default(),
            core_may_lack_pages: false,
            counters: None,
        }
    }

    /// Ends the services, and sums up what was done since the command `began`.
    pub fn finish(
        &mut self,
        supervisor: &mut Supervisor,
        counters: Option<MissCounters>,
        began: Instant,
        dumped_core: bool,
    ) {
        self.start_seconds = self.prepare_seconds + self.gather_seconds;
        self.services = supervisor.finish_services();
        supervisor.group.poll_members();
        if let Some(colors) = &mut self.colors {
            colors.colors_from = supervisor.group.provenance().to_string();
        }
        if supervisor.confines() {
            let confinement = ConfinementReport::new(&supervisor.group, began);
            self.core_may_lack_pages = dumped_core && confinement.recolored > 0;
            self.confinement = Some(confinement);
        }
        self.counters = counters.and_then(|mut counters| counters.read().ok());
    }

    /// When what was ready.
    fn when(&self) -> String {
        let after = |what: &str, seconds: Option<f64>| {
            seconds.map(|seconds| format!(", {what} after {seconds:.2} s"))
        };
        let confinement = self.confinement.as_ref();
        let colors = after("colours known", confinement.and_then(|c| c.colors_seconds));
        let stock = after("stock full", confinement.and_then(|c| c.stock_seconds));
        format!(
            "started after {:.2} s{}{}, ended {:.2} s later",
            self.start_seconds,
            colors.unwrap_or_default(),
            stock.unwrap_or_default(),
            self.program_seconds
        )
    }

    /// The first lines: which colours, where pages are, and when.
    fn head(&self) -> Vec<String> {
        let words = |c: &ColorReport| {
            let ColorReport { colors, of, level, colors_from, .. } = c;
            format!("colours {colors} of {of} ({level}, {})", known(colors_from))
        };
        let measured = self.colors.as_ref().is_some_and(|c| c.colors_from == "probed");
        let colors = self.colors.as_ref().map(words);
        match (&self.confinement, colors) {
            (Some(c), Some(colors)) => vec![
                format!("huepage: {colors}; {}", c.inside(measured)),
                format!(
                    "huepage: {}; {} placed at {}, {} recoloured",
                    self.when(),
                    count(c.placed, "page", "pages"),
                    count(c.faults_served, "fault", "faults"),
                    c.recolored
                ),
            ],
            (_, Some(colors)) => vec![format!("huepage: files in the {colors}, {}", self.when())],
            (_, None) => vec![format!("huepage: {}", self.when())],
        }
    }

    /// A few lines for a person.
    pub fn text(&self) -> String {
        let mut lines = self.head();
        if let Some(c) = &self.confinement {
            lines.extend(c.private());
            lines.extend(c.fallback());
            lines.extend(c.stock());
            lines.extend(kept_text(&c.kept).map(|text| format!("huepage: {text}")));
            lines.extend(c.left_alone());
        }
        lines.extend(self.services.text());
        if self.core_may_lack_pages {
            lines.push("huepage: a core dump may lack pages that were being moved; `huepage detach` a program before you have it dump".to_owned());
        }
        let missed = self.confinement.iter().flat_map(|c| &c.missed);
        lines.extend(missed.map(|Missed { pid, reason }| {
            format!("huepage: process {pid} was not confined: {reason}")
        }));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_has_moved_by_estimate_is_told_beside_what_is_believed() {
        let found = |share| Compliance { movable: 1000, in_colors: 1000, share };
        let all = "compliance 100.00 %: 1000 of 1000 movable resident pages are in the partition";
        assert_eq!(found(1.0).text("probed"), all);
        let less = found(0.99).text("probed");
        assert!(less.starts_with("compliance 99.00 %: 1000 of 1000 "), "{less}");
        assert!(less.contains("but for about 10 that the host has moved"), "{less}");
    }

    #[test]
    fn of_nothing_there_is_no_share_and_what_was_not_measured_is_no_proof() {
        let found = Compliance { movable: 200, in_colors: 199, share: 0.995 };
        assert!(found.text("probed").starts_with("compliance 99.50 %: 199 of 200"));
        for from in ["pfn", "declared"] {
            let text = found.text(from);
            assert!(text.contains("199 of 200") && text.contains("not measured"), "{text}");
            assert!(!text.contains('%'), "{text}");
            assert!(!Compliance::default().text(from).contains('0'), "a figure of nothing");
        }
    }
}
