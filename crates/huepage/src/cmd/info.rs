//! `huepage info`: caches and their colours, kernel features, privileges, and the verdict on
//! colours, which `verdict` has measured.
//!
//! Facts come from `huepage_linux::kernel::machine`; here they become tables or JSON. Whatever cannot
//! be had is said in its place, and the rest is printed: only a failing output is an error.

use std::fmt::Write as _;

use clap::Args;
use comfy_table::{Cell, Color};
use huepage_color::{CacheGeometry, CacheKind, CacheLevel, LevelChoice, PageSize};
use huepage_linux::kernel::machine::{
    CacheFinding, CacheSource, ColorBasis, CpuList, FeatureId, FeatureNeed, FeatureState, Features,
    FindingKind, HostCache, HostMachine, KernelFeature, Privileges, Roots, Seccomp, SliceBasis,
};
use serde::Serialize;

use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::report;
use crate::style::{self, Style};

mod hashed;
mod verdict;

use verdict::VerdictOutcome;

const EXAMPLES: &str = "\
Examples:
  huepage info
  huepage info --json | jq .verdict
  huepage info --no-probe    without the measurement: at once, no load";

/// Show caches, colours, kernel features and privileges of this machine
///
/// Ends with the verdict on colours: does the frame number select cache sets here, or must
/// colours be probed? The verdict is measured, which takes a second or two and needs root.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct InfoArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Skip the measurement, and with it the verdict
    #[arg(long)]
    pub no_probe: bool,
}

/// Everything that `info` knows; its JSON form is the output of `--json`.
#[derive(Serialize)]
struct Report {
    /// Version of huepage.
    version: &'static str,
    /// Processor and caches, or null.
    machine: Option<HostMachine>,
    /// Why there is no `machine`.
    machine_error: Option<String>,
    /// Kernel features.
    kernel: Features,
    /// Privileges of this process.
    privileges: Privileges,
    /// Whether `run` and `attach` can work here, as far as features and privileges go.
    ready: bool,
    /// Whether the frame number tells colours here, and how that was found.
    verdict: VerdictOutcome,
}

/// Prints the report.
pub fn run(args: InfoArgs) -> Result<u8, CmdError> {
    let report = Report::gather(&Roots::default(), args.no_probe);
    let text = if args.json { report::json(&report)? } else { render(&report, Style::stdout()) };
    style::print(&text).map_err(internal)?;
    Ok(ExitCode::Ok.status())
}

impl Report {
    fn gather(roots: &Roots, no_probe: bool) -> Report {
        let (machine, machine_error) = match HostMachine::read() {
            Ok(machine) => (Some(machine), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let (kernel, privileges) = (Features::probe(roots), Privileges::read(roots));
        let ready = kernel.lacking().next().is_none() && privileges.suffice();
        let version = env!("CARGO_PKG_VERSION");
        let verdict = match &machine {
            _ if no_probe => VerdictOutcome::skipped("not asked for (--no-probe)"),
            _ if !kernel.has(FeatureId::FrameNumbers) => VerdictOutcome::skipped(
                "frame numbers are hidden from this user; run huepage as root",
            ),
            Some(machine) => verdict::measure(machine),
            None => VerdictOutcome::skipped("the caches are not known"),
        };
        Report { version, machine, machine_error, kernel, privileges, ready, verdict }
    }
}

fn render(report: &Report, style: Style) -> String {
    let mut out = String::new();
    match (&report.machine, &report.machine_error) {
        (Some(machine), _) => {
            section(&mut out, style, "Processor", &processor(machine));
            section(&mut out, style, "Caches", &caches(machine, style));
            section(&mut out, style, "Colours by page size", &colors(machine, style));
            section(&mut out, style, "Remarks", &remarks(machine, style));
        }
        (None, error) => {
            section(&mut out, style, "Caches", error.as_deref().unwrap_or_default());
        }
    }
    let kernel = format!("Kernel {}", report.kernel.release);
    section(&mut out, style, &kernel, &features(&report.kernel, style));
    section(&mut out, style, "Privileges", &privileges(&report.privileges));
    section(&mut out, style, "Ready for `huepage run`", &readiness(report, style));
    section(&mut out, style, "Verdict on colours", &report.verdict.render(style));
    out.pop();
    out
}

/// A heading and an indented body; nothing at all if the body is empty.
fn section(out: &mut String, style: Style, heading: &str, body: &str) {
    if body.is_empty() {
        return;
    }
    let _ = writeln!(out, "{}", style.bold(heading));
    for line in body.lines() {
        let _ = writeln!(out, "  {}", line.trim_end());
    }
    out.push('\n');
}

fn processor(machine: &HostMachine) -> String {
    let (count, list) = (machine.online.len(), &machine.online);
    let threads = machine.threads_per_core;
    let place = match &machine.hypervisor {
        Some(h) if h.name == "unknown" => format!("guest of a hypervisor `{}`", h.signature),
        Some(h) => format!("guest of {}", h.name),
        None => "no hypervisor shows itself".into(),
    };
    format!("{}\n{place}; {count} CPUs online ({list}), threads a core: {threads}\n", machine.cpu)
}

fn caches(machine: &HostMachine, style: Style) -> String {
    let headings =
        ["level", "holds", "size", "ways", "sets", "line", "slices", "CPUs that share it"];
    let mut table = style.table(&headings);
    for cache in &machine.caches {
        let g = &cache.geometry;
        table.add_row([
            g.level.to_string(),
            holds(g.kind).into(),
            size(g.size_bytes),
            g.ways.to_string(),
            g.sets.to_string(),
            size(g.line_bytes.into()),
            slices(cache),
            sharers(&cache.instances),
        ]);
    }
    style::lay_out(table)
}

fn holds(kind: CacheKind) -> &'static str {
    match kind {
        CacheKind::Data => "data",
        CacheKind::Instruction => "code",
        CacheKind::Unified => "both",
    }
}

/// A size in the largest unit that divides it.
fn size(bytes: u64) -> String {
    match bytes {
        0 => "0".into(),
        b if b.is_multiple_of(1 << 30) => format!("{} GiB", b >> 30),
        b if b.is_multiple_of(1 << 20) => format!("{} MiB", b >> 20),
        b if b.is_multiple_of(1 << 10) => format!("{} KiB", b >> 10),
        b => format!("{b} B"),
    }
}

fn slices(cache: &HostCache) -> String {
    match (&cache.slices, cache.geometry.slices) {
        (Some(claim), _) => {
            let likely = if claim.basis == SliceBasis::Inference { "~" } else { "" };
            format!("{likely}{} x {}", claim.slices, claim.sets_per_slice)
        }
        (None, Some(count)) => count.to_string(),
        (None, None) => "?".into(),
    }
}

/// The instances of a cache; those of large machines are only counted.
fn sharers(instances: &[CpuList]) -> String {
    let all = instances.iter().map(CpuList::to_string);
    match instances.len() {
        0 => "?".into(),
        1..=4 => all.collect::<Vec<_>>().join(" | "),
        n => format!("{} | ... ({n} of them)", all.take(2).collect::<Vec<_>>().join(" | ")),
    }
}

fn colors(machine: &HostMachine, style: Style) -> String {
    let sizes = [PageSize::BASE.bytes(), 64 << 10, PageSize::HUGE.bytes(), 1 << 30];
    let mut headings = vec!["level".to_owned()];
    headings.extend(sizes.map(size));
    headings.push("how it is known".into());
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table = style.table(&headings);
    let data = machine.caches.iter().filter(|c| c.geometry.kind != CacheKind::Instruction);
    for cache in data {
        let mut row = vec![cache.geometry.level.to_string()];
        row.extend(sizes.map(|bytes| count(cache, bytes)));
        row.push(basis(cache));
        table.add_row(row);
    }
    style::lay_out(table)
}

fn count(cache: &HostCache, page_bytes: u64) -> String {
    let found = cache.colors.iter().find(|c| c.page_bytes == page_bytes);
    found.map_or_else(|| "?".into(), |c| c.colors.to_string())
}

fn basis(cache: &HostCache) -> String {
    let text = match cache.colors.first().map(|c| c.basis) {
        Some(ColorBasis::Linear) => "plain address bits choose the set",
        Some(ColorBasis::SetBits) => "set bits; the slice hash may add some",
        Some(ColorBasis::Hash) => "set bits and published slice hash",
        None if cache.sensible() => "the index of this cache is not public",
        None => "the report is nonsense",
    };
    text.into()
}

fn remarks(machine: &HostMachine, style: Style) -> String {
    let mut out = String::new();
    for cache in &machine.caches {
        for finding in &cache.findings {
            remark(&mut out, style, &format!("{}: ", cache.geometry.level), finding);
        }
        let place = cache.geometry.level;
        match cache.source {
            CacheSource::Both => {}
            CacheSource::Sysfs => out.push_str(&format!("{place}: told by sysfs alone\n")),
            CacheSource::Cpuid => out.push_str(&format!("{place}: told by CPUID alone\n")),
        }
        if let Some(claim) = &cache.slices {
            let (count, sets) = (claim.slices, claim.sets_per_slice);
            let _ = writeln!(out, "{place}: {count} slices of {sets} sets, {}", claim.why);
            for line in hashed::explained(private(machine, cache), cache) {
                let _ = writeln!(out, "{place}: {line}");
            }
        }
    }
    for finding in &machine.findings {
        remark(&mut out, style, "", finding);
    }
    out
}

/// The L2 before a cache.
fn private<'a>(machine: &'a HostMachine, cache: &HostCache) -> Option<&'a CacheGeometry> {
    let private = machine.cache(LevelChoice::Level(CacheLevel::L2)).ok()?;
    (private.geometry.level < cache.geometry.level).then_some(&private.geometry)
}

fn remark(out: &mut String, style: Style, place: &str, finding: &CacheFinding) {
    let kind = match finding.kind {
        FindingKind::Nonsense => style.red(finding.kind),
        FindingKind::Difference | FindingKind::Doubt => style.yellow(finding.kind),
    };
    let _ = writeln!(out, "{place}{kind}: {}", finding.text);
}

fn features(features: &Features, style: Style) -> String {
    let mut table = style.table(&["feature (* needed)", "here", "what for"]);
    for feature in &features.list {
        let star = if feature.need == FeatureNeed::Required { "*" } else { "" };
        table.add_row([
            Cell::new(format!("{}{star}", feature.title)),
            Cell::new(feature.state).fg(state_color(feature)),
            Cell::new(feature.why),
        ]);
    }
    let mut out = style::lay_out(table);
    for feature in
        features.list.iter().filter(|f| !f.detail.is_empty()).filter(|f| f.id != FeatureId::Release)
    {
        let _ = writeln!(out, "{}", style.dim(format!("{}: {}", feature.title, feature.detail)));
    }
    out
}

fn state_color(feature: &KernelFeature) -> Color {
    match (feature.state, feature.need) {
        (FeatureState::Present, _) => Color::Green,
        (_, FeatureNeed::Required) => Color::Red,
        (_, FeatureNeed::Useful) => Color::Yellow,
    }
}

fn privileges(found: &Privileges) -> String {
    let namespace = if found.user_namespace { ", in a user namespace" } else { "" };
    let mut out = format!("effective user {}{namespace}\n", found.euid);
    let names = |effective| {
        let chosen = found.capabilities.iter().filter(|cap| cap.effective == effective);
        chosen.map(|cap| cap.name).collect::<Vec<_>>().join(" ")
    };
    for (label, effective) in [("capabilities", true), ("lacking", false)] {
        let names = names(effective);
        if !names.is_empty() {
            let _ = writeln!(out, "{label}: {names}");
        }
    }
    let scope = found.ptrace_scope.map_or("no Yama".into(), |n| format!("ptrace_scope {n}"));
    let seccomp = match found.seccomp {
        Seccomp::Off => "no seccomp filter",
        Seccomp::Strict => "strict seccomp",
        Seccomp::Filter => "a seccomp filter",
        Seccomp::Unknown => "seccomp unknown",
    };
    let lockdown = found.lockdown.as_deref().unwrap_or("absent");
    let _ = writeln!(out, "{scope}; {seccomp}; lockdown {lockdown}");
    out
}

fn readiness(report: &Report, style: Style) -> String {
    if report.ready {
        return format!("{}, as far as kernel and privileges go\n", style.green("yes"));
    }
    let mut out = format!("{}\n", style.red("no"));
    for obstacle in obstacles(&report.kernel, &report.privileges) {
        let _ = writeln!(out, "{obstacle}");
    }
    out
}

/// What `run` and `attach` need and is missing: privileges first, then features with what to do
/// after a colon.
pub(super) fn obstacles(kernel: &Features, privileges: &Privileges) -> Vec<String> {
    let mut all = privileges.missing.clone();
    let told = !all.is_empty();
    for feature in kernel.lacking() {
        let advice = match feature.state {
            FeatureState::NeedsPrivilege if told => continue,
            FeatureState::NeedsPrivilege => "run as root, outside of containers",
            _ => "use Linux 6.8 or newer with it built in",
        };
        all.push(format!("{} {}: {advice}", feature.title, feature.state));
    }
    all
}
