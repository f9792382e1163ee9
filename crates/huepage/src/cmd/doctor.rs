//! `huepage doctor`: what works here and what does not, measured, each with the reason and what to do
//! about it. `info` has the quick facts; this takes some seconds and times the machine.
//!
//! Measurements are functions of `huepage_linux::color::doctor`; here they are put in order, and `checks`
//! says what to make of them.

use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{Cell, Color as Ink};
use huepage_color::{CacheGeometry, CacheLevel, LevelChoice};
use huepage_linux::color::doctor::clock::LoadClock;
use huepage_linux::color::doctor::colors::{ColorTimes, ProbedColors};
use huepage_linux::color::doctor::moves::HostMoves;
use huepage_linux::color::doctor::neighbors::Neighbors;
use huepage_linux::color::doctor::replacement::EvictionPoint;
use huepage_linux::color::doctor::siblings::Pair;
use huepage_linux::color::doctor::{neighbors, siblings};
use huepage_linux::color::probe::{ProbeError, ProbeParams, VerdictReport, quietest_cpu};
use huepage_linux::kernel::cpus::allowed_cpus;
use huepage_linux::kernel::machine::{Features, HostMachine, Privileges, Roots};
use serde::Serialize;

use crate::exit::{CmdError, ExitCode};
use crate::json::pretty;
use crate::partition::internal;
use crate::steps::Steps;
use crate::style::{self, Style};

mod checks;

use checks::{Check, CheckState};

const EXAMPLES: &str = "\
Examples:
  huepage doctor
  huepage doctor --json | jq '.checks[] | select(.state != \"ok\")'
  huepage doctor > /dev/null && huepage run --share 25% -- ./program";

/// Measure what works here and what does not, with the reason and what to do
///
/// Takes ten seconds or so and changes nothing: the step of the clock, how long colours take, what
/// streaming evicts, who else uses the cores, which CPUs share one, how many pages the host moves;
/// and the features and privileges of `huepage info`. Ends with 0 if huepage works here, and with 1
/// if something that it needs is missing.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The version of the JSON output; it grows when a field goes or changes its meaning.
const SCHEMA: u32 = 1;
/// How long each CPU is watched, and how many are at most.
const WATCHED: Duration = Duration::from_millis(250);
const MOST_CPUS: usize = 8;
/// Pairs of CPUs that are measured at most; each takes 0.3 s.
const MOST_PAIRS: usize = 10;
/// How long building colours may take: a little longer than `run` waits for them, since what takes
/// long works. On a machine with ten times more to do than it has CPUs it took half a minute.
const BUILDING: Duration = Duration::from_secs(90);
/// Pages whose moves are watched, 32 MiB, and how long at least.
const SAMPLE: usize = 8192;
const SAMPLED_FOR: Duration = Duration::from_secs(6);

/// What was measured, or why it could not be.
#[derive(Serialize)]
#[serde(untagged)]
enum Found<T> {
    /// It was.
    Measured(T),
    /// It was not.
    Failed {
        /// The reason, and what to do.
        error: String,
    },
}

impl<T> Found<T> {
    fn failed(error: impl ToString) -> Found<T> {
        Found::Failed { error: error.to_string() }
    }
}

impl<T, E: ToString> From<Result<T, E>> for Found<T> {
    fn from(result: Result<T, E>) -> Found<T> {
        result.map_or_else(|error| Found::failed(error), Found::Measured)
    }
}

/// What the caches say of themselves, as far as colours of the L2 need it.
#[derive(Clone, Serialize)]
struct L2 {
    level: CacheLevel,
    size_bytes: u64,
    ways: u32,
    colors: u16,
    /// Lines of a page that are timed together.
    lines_together: u32,
}

/// All that was found; its JSON form is the output of `--json`.
#[derive(Serialize)]
struct Report {
    schema: u32,
    /// Version of huepage.
    version: &'static str,
    /// Whether huepage works here.
    works: bool,
    checks: Vec<Check>,
    /// The processor.
    cpu: Option<String>,
    /// The hypervisor, if this is a guest of one that shows itself.
    hypervisor: Option<String>,
    cache: Found<L2>,
    clock: LoadClock,
    colors: Found<ColorTimes>,
    /// Whether frame numbers tell colours.
    frame_numbers: Found<VerdictReport>,
    replacement: Found<Vec<EvictionPoint>>,
    neighbors: Vec<Neighbors>,
    siblings: Vec<Pair>,
    moves: Found<HostMoves>,
    kernel: Features,
    privileges: Privileges,
    /// Seconds that it took.
    seconds: f64,
}

/// Measures, and tells.
pub fn run(args: &DoctorArgs) -> Result<u8, CmdError> {
    let report = measure();
    let text = match args.json {
        true => pretty(&report)?,
        false => render(&report, Style::stdout()),
    };
    style::print(&text).map_err(internal)?;
    Ok(status(&report).status())
}

fn status(report: &Report) -> ExitCode {
    if report.works { ExitCode::Ok } else { ExitCode::Lacking }
}

fn measure() -> Report {
    let (began, cpus) = (Instant::now(), allowed_cpus());
    let pairs = siblings::pairs(&cpus, MOST_PAIRS);
    let watched = &cpus[..cpus.len().min(MOST_CPUS)];
    let steps = Steps::new(planned(watched.len(), pairs.len()));
    steps.say("kernel and clock");
    let (machine, roots) = (HostMachine::read(), Roots::default());
    let (kernel, privileges) = (Features::probe(&roots), Privileges::read(&roots));
    let clock = LoadClock::measure();
    let geometry = geometry(&machine);
    let params = geometry.and_then(|g| Ok((ProbeParams::for_cache(&g).map_err(text)?, g)));
    steps.say("colours");
    let mut colors = params.clone().and_then(|(params, _)| {
        ProbedColors::measure(&params, &quietest_first(&cpus), BUILDING, SAMPLE).map_err(text)
    });
    judged(Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        works: false,
        checks: Vec::new(),
        cpu: machine.as_ref().ok().map(|machine| machine.cpu.name.clone()),
        hypervisor: machine.ok().and_then(|m| Some(m.hypervisor?.name.to_string())),
        cache: params.map(|(params, geometry)| L2::of(&params, &geometry)).into(),
        clock,
        replacement: after(&mut colors, ProbedColors::replacement),
        frame_numbers: after(&mut colors, |colors| colors.verdict()),
        neighbors: watch_neighbors(&steps, watched),
        siblings: measure_pairs(&steps, &pairs),
        moves: watch_moves(&steps, &mut colors),
        colors: colors.map(|colors| colors.times().clone()).into(),
        kernel,
        privileges,
        seconds: began.elapsed().as_secs_f64(),
    })
}

fn watch_neighbors(steps: &Steps, cpus: &[usize]) -> Vec<Neighbors> {
    steps.say("neighbours");
    let watch = |&cpu: &usize| {
        steps.show();
        neighbors::watch(cpu, WATCHED)
    };
    cpus.iter().filter_map(watch).collect()
}

fn measure_pairs(steps: &Steps, pairs: &[[usize; 2]]) -> Vec<Pair> {
    steps.say("which CPUs share a core");
    let pair = |&pair: &[usize; 2]| {
        steps.show();
        siblings::measure(pair)
    };
    pairs.iter().filter_map(pair).collect()
}

/// Waits until colours are old enough to tell whether the host moves pages.
fn watch_moves(steps: &Steps, colors: &mut Result<ProbedColors, String>) -> Found<HostMoves> {
    steps.say("pages that the host moves");
    after(colors, |colors| {
        while colors.age() < SAMPLED_FOR {
            steps.show();
            thread::sleep(Duration::from_millis(100));
        }
        colors.moves()
    })
}

/// The report with what follows from what was measured.
fn judged(mut report: Report) -> Report {
    report.checks = checks::all(&report);
    report.works = report.checks.iter().all(|check| check.state != CheckState::Bad);
    report
}

/// The CPUs, with the one that others use least in front.
fn quietest_first(cpus: &[usize]) -> Vec<usize> {
    let best = quietest_cpu();
    let others = cpus.iter().copied().filter(|&cpu| cpu != best);
    std::iter::once(best).chain(others).collect()
}

/// What it takes as a rule.
fn planned(cpus: usize, pairs: usize) -> Duration {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let meanwhile = WATCHED * count(cpus) + Duration::from_millis(300) * count(pairs);
    Duration::from_secs(1) + meanwhile.max(SAMPLED_FOR)
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn geometry<E: ToString>(machine: &Result<HostMachine, E>) -> Result<CacheGeometry, String> {
    let machine = machine.as_ref().map_err(ToString::to_string)?;
    let cache = machine.cache(LevelChoice::Level(CacheLevel::L2)).map_err(text)?;
    Ok(cache.geometry.clone())
}

/// What needs colours, if there are any.
fn after<T>(
    colors: &mut Result<ProbedColors, String>,
    measure: impl FnOnce(&mut ProbedColors) -> Result<T, ProbeError>,
) -> Found<T> {
    match colors {
        Ok(colors) => measure(colors).into(),
        Err(_) => Found::failed("colours could not be told apart; see `colors`"),
    }
}

impl L2 {
    fn of(params: &ProbeParams, geometry: &CacheGeometry) -> L2 {
        L2 {
            level: geometry.level,
            size_bytes: geometry.size_bytes,
            ways: geometry.ways,
            colors: params.colors,
            lines_together: params.depth,
        }
    }
}

fn render(report: &Report, style: Style) -> String {
    let cpu = report.cpu.as_deref().unwrap_or("an unknown processor");
    let place = report.hypervisor.as_ref().map(|name| format!(", guest of {name}"));
    let mut table = style.table(&["", "what", "found here"]);
    for check in &report.checks {
        let (word, ink) = match check.state {
            CheckState::Ok => ("ok", Ink::Green),
            CheckState::Note => ("note", Ink::Yellow),
            CheckState::Bad => ("bad", Ink::Red),
        };
        let advice = check.advice.iter().map(|advice| format!("\n-> {advice}"));
        let found = check.found.clone() + &advice.collect::<String>();
        table.add_row([Cell::new(word).fg(ink), Cell::new(check.name), Cell::new(found)]);
    }
    let bad = report.checks.iter().filter(|check| check.state == CheckState::Bad).count();
    let verdict = match bad {
        0 => style.green("huepage works here"),
        1 => style.red("huepage does not work here: 1 thing is missing"),
        n => style.red(format!("huepage does not work here: {n} things are missing")),
    };
    let (seconds, place) = (report.seconds, place.unwrap_or_default());
    format!("{cpu}{place}\n\n{}\n{verdict} ({seconds:.0} s)\n", style::lay_out(table))
}

#[cfg(test)]
mod tests {
    use super::checks::example;
    use super::*;

    #[test]
    fn every_check_is_a_row_with_its_advice() {
        let report = example();
        let text = render(&report, Style::plain());
        for check in &report.checks {
            assert!(text.contains(check.name) && text.contains(&check.found), "{text}");
            assert!(check.advice.iter().all(|advice| text.contains(&format!("-> {advice}"))));
        }
        assert!(text.contains("huepage works here (9 s)"), "{text}");
        assert!(text.lines().all(|line| line.trim_end() == line), "{text}");
    }

    #[test]
    fn what_is_missing_decides_the_status() {
        let mut report = example();
        assert_eq!(status(&report), ExitCode::Ok);
        report.works = false;
        assert_eq!(status(&report).status(), 1);
    }

    #[test]
    fn json_has_named_fields_and_errors_in_the_place_of_figures() {
        let mut report = example();
        report.moves = Found::failed("no colours; see `colors`");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["schema"], 1);
        assert_eq!(json["replacement"][3]["times_ways"], 5);
        assert_eq!(json["siblings"][0]["relation"], "apart");
        assert_eq!(json["clock"]["step_ticks"], 26);
        assert_eq!(json["moves"]["error"], "no colours; see `colors`");
        assert!(json["neighbors"][0]["felt"]["high"].is_f64(), "{json:#}");
    }

    #[test]
    fn the_plan_is_seconds_on_small_and_large_machines() {
        assert_eq!(planned(2, 1), Duration::from_secs(7));
        assert!(planned(MOST_CPUS, MOST_PAIRS) < Duration::from_secs(10));
    }
}
