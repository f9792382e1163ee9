//! What to make of what `huepage doctor` measured: a line for each, with its state, and what to do if
//! something is to be done. Nothing is measured here.

use std::fmt::Write as _;

use huepage_linux::color::doctor::Interval;
use huepage_linux::color::doctor::siblings::{CpuRelation, Pair};
use huepage_linux::color::probe::FrameVerdict;
use huepage_linux::kernel::machine::{FeatureNeed, FeatureState as Has};
use serde::Serialize;

use super::{Found, Report};
use crate::cmd::info::obstacles;

/// Seconds and microseconds from which on colours take long.
const LONG_SECONDS: f64 = 3.0;
const LONG_US: f64 = 30.0;
/// Share of the time from which on neighbours matter.
const FELT: f64 = 0.05;
/// Share of the time from which on a CPU has too little time of its own.
const AWAY: f64 = 0.25;
/// Share of a set that five times the ways should evict.
const EVICTS: f64 = 0.9;
/// Share that is all, as far as a measurement goes.
const ALL: f64 = 0.97;
/// CPUs and pairs that a line names, at most.
const NAMED: usize = 6;

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// As it should be.
    Ok,
    /// huepage works, but slower, or without something.
    Note,
    /// huepage does not work.
    Bad,
}

/// One line.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// What was looked at.
    pub name: &'static str,
    /// How it is.
    pub state: CheckState,
    /// What was found.
    pub found: String,
    /// What to do, if anything.
    pub advice: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: String) -> Check {
        Check { name, state: CheckState::Ok, found, advice: None }
    }

    fn note(name: &'static str, found: String, advice: impl Into<String>) -> Check {
        Check { name, state: CheckState::Note, found, advice: Some(advice.into()) }
    }

    /// Of an error, which ends with what to do after a semicolon.
    fn bad(name: &'static str, error: &str) -> Check {
        let (found, advice) = match error.rsplit_once("; ") {
            Some((found, advice)) => (found, Some(advice.to_owned())),
            None => (error, None),
        };
        Check { name, state: CheckState::Bad, found: found.to_owned(), advice }
    }
}

/// All lines.
pub fn all(report: &Report) -> Vec<Check> {
    let mut checks = needed(report);
    checks.extend(features(report));
    checks.extend([cache(report), clock(report), colors(report)]);
    checks.extend(frame_numbers(report));
    checks.extend([replacement(report), neighbors(report), siblings(report), moves(report)]);
    checks
}

/// Kernel and privileges: what is missing, or that nothing is.
fn needed(report: &Report) -> Vec<Check> {
    let missing = obstacles(&report.kernel, &report.privileges);
    if missing.is_empty() {
        let release = &report.kernel.release;
        return vec![Check::ok(
            "kernel",
            format!("Linux {release} and this user have what is needed"),
        )];
    }
    let privileges = report.privileges.missing.len();
    let check = |(i, text): (usize, &String)| {
        let name = if i < privileges { "privileges" } else { "kernel" };
        Check::bad(name, &text.replacen(": ", "; ", 1))
    };
    missing.iter().enumerate().map(check).collect()
}

/// What the kernel lacks that huepage does without.
fn features(report: &Report) -> Option<Check> {
    let useful = report.kernel.list.iter().filter(|f| f.need == FeatureNeed::Useful);
    let lacking: Vec<String> = useful
        .filter(|feature| feature.state != Has::Present)
        .map(|feature| format!("{} ({})", feature.title, feature.why))
        .collect();
    let found = || format!("without {}", lacking.join(", "));
    (!lacking.is_empty()).then(|| Check::note("kernel", found(), "nothing: huepage does without"))
}

fn cache(report: &Report) -> Check {
    match &report.cache {
        Found::Failed { error } => Check::bad("cache", error),
        Found::Measured(cache) => {
            let (level, kib, ways) = (cache.level, cache.size_bytes >> 10, cache.ways);
            Check::ok(
                "cache",
                format!("{level} of {kib} KiB, {ways} ways, {} colours", cache.colors),
            )
        }
    }
}

fn clock(report: &Report) -> Check {
    let (clock, together) = (
        &report.clock,
        match &report.cache {
            Found::Measured(cache) => cache.lines_together,
            Found::Failed { .. } => 1,
        },
    );
    if clock.step_ticks == 1 {
        return Check::ok("clock", "fine enough to time a single cache line".into());
    }
    let (ticks, ns) = (clock.step_ticks, clock.step_ns());
    let found = format!(
        "moves by {ticks} ticks ({ns:.0} ns): too coarse for single cache lines, so {together} are timed together"
    );
    Check::note("clock", found, "nothing: it costs time only, but `--recolor-conflicts` is refused")
}

fn colors(report: &Report) -> Check {
    let times = match &report.colors {
        Found::Failed { error } => return Check::bad("colours", error),
        Found::Measured(times) => times,
    };
    let unclear = match times.undecided {
        0 => String::new(),
        n => format!("; {n} of {} stayed unclear", times.pages),
    };
    let found = format!(
        "{} told apart in {:.2} s, then {:.1} us for a page{unclear}",
        times.colors, times.seconds, times.us_per_page
    );
    if times.seconds > LONG_SECONDS || times.us_per_page > LONG_US {
        return Check::note(
            "colours",
            found,
            "see `neighbours` below: noise costs time, nothing else",
        );
    }
    Check::ok("colours", found)
}

fn frame_numbers(report: &Report) -> Option<Check> {
    const NAME: &str = "frames";
    let found = match &report.frame_numbers {
        Found::Measured(found) => found,
        // What is missing for it is told above.
        Found::Failed { .. } => return None,
    };
    let share = found.share * 100.0;
    Some(match found.verdict {
        FrameVerdict::FrameNumberSelects => Check::ok(
            NAME,
            format!("their numbers tell the colours ({share:.1} %): nothing to measure"),
        ),
        FrameVerdict::MustProbe => {
            let what = "their numbers do not tell the colours";
            Check::ok(NAME, format!("{what} ({share:.1} % at best): huepage measures them"))
        }
        FrameVerdict::Unclear => {
            let what = format!("their numbers tell {share:.1} % of the colours at best");
            Check::note(NAME, what, "run with `--colors-from probe`")
        }
    })
}

fn replacement(report: &Report) -> Check {
    const NAME: &str = "eviction";
    let points = match &report.replacement {
        Found::Failed { error } => return Check::note(NAME, error.clone(), "see `colours` above"),
        Found::Measured(points) => points,
    };
    let list = |show: fn(&_) -> String| points.iter().map(show).collect::<Vec<_>>().join(", ");
    let times = list(|point| point.times_ways.to_string());
    let shares = list(|point| format!("{:.0}", point.evicted * 100.0));
    let mut found = format!("streaming {times} times the ways evicts {shares} % of a set");
    match (points.first(), points.last()) {
        (Some(first), _) if first.evicted > ALL => found += ": the oldest line goes first",
        (_, Some(last)) if last.evicted < EVICTS => {
            return Check::note(NAME, found, "nothing: telling colours takes longer");
        }
        _ => {}
    }
    Check::ok(NAME, found)
}

fn neighbors(report: &Report) -> Check {
    const NAME: &str = "neighbours";
    let mut found = String::new();
    for (i, one) in report.neighbors.iter().take(NAMED).enumerate() {
        let (felt, away) = (percent(&one.felt), one.away.estimate * 100.0);
        let _ = match i {
            0 => write!(
                found,
                "CPU {}: others on its core {felt} of the time, on itself {away:.0} %",
                one.cpu
            ),
            _ => write!(found, "; CPU {}: {felt}, {away:.0} %", one.cpu),
        };
    }
    let more = report.neighbors.len().saturating_sub(NAMED);
    if more > 0 {
        let _ = write!(found, "; and {more} more");
    }
    let disturbed = |one: &huepage_linux::color::doctor::neighbors::Neighbors| {
        one.felt.estimate > FELT || one.away.estimate > AWAY
    };
    match report.neighbors.iter().filter(|one| disturbed(one)).count() {
        _ if report.neighbors.is_empty() => Check::note(
            NAME,
            "no CPU could be watched".into(),
            "run `huepage doctor` where at least one CPU is allowed",
        ),
        0 => Check::ok(NAME, found),
        _ => Check::note(
            NAME,
            found,
            "colours take longer; end other programs, or ask the host for a core of your own",
        ),
    }
}

/// A share with its uncertainty.
fn percent(share: &Interval) -> String {
    let half = (share.high - share.low) * 50.0;
    format!("{:.0} % (+-{:.0})", share.estimate * 100.0, half)
}

fn siblings(report: &Report) -> Check {
    const NAME: &str = "cores";
    if report.siblings.is_empty() {
        return Check::ok(
            NAME,
            "one CPU, which shares its core with no other of this machine".into(),
        );
    }
    let words = |pair: &Pair| {
        let ([one, other], share) = (pair.cpus, &pair.share);
        let (low, high) = (share.low * 100.0, share.high * 100.0);
        let what = match pair.relation {
            CpuRelation::Siblings => "share one",
            CpuRelation::Apart => "do not share one",
            CpuRelation::AtTimes => "share one at times",
            CpuRelation::Unclear => "may share one",
        };
        format!("CPUs {one} and {other} {what} ({low:.0}-{high:.0} % of the time)")
    };
    let found: Vec<String> = report.siblings.iter().take(NAMED).map(words).collect();
    let found = found.join("; ");
    if let Some(pair) = report.siblings.iter().find(|pair| contradicts(pair)) {
        let [one, other] = pair.cpus;
        let what = format!("{found}. The kernel was told otherwise of {one} and {other}");
        return Check::note(
            NAME,
            what,
            "go by what was measured, and measure again when it matters",
        );
    }
    let moving = report.siblings.iter().any(|pair| pair.relation == CpuRelation::AtTimes);
    if moving {
        return Check::note(NAME, found, "the host moves CPUs; ask it to pin them");
    }
    Check::ok(NAME, found)
}

/// Whether the kernel says something else than was measured.
fn contradicts(pair: &Pair) -> bool {
    match pair.relation {
        CpuRelation::Siblings => pair.claimed == Some(false),
        CpuRelation::Apart => pair.claimed == Some(true),
        CpuRelation::AtTimes | CpuRelation::Unclear => false,
    }
}

fn moves(report: &Report) -> Check {
    const NAME: &str = "moves";
    let moves = match &report.moves {
        Found::Failed { error } => return Check::note(NAME, error.clone(), "see `colours` above"),
        Found::Measured(moves) => moves,
    };
    let (pages, seconds) = (moves.pages, moves.seconds);
    let [rate, low, high] =
        [moves.per_minute.estimate, moves.per_minute.low, moves.per_minute.high].map(|x| x * 100.0);
    if moves.moved == 0 {
        let found = format!(
            "the host moved none of {pages} pages in {seconds:.1} s: at most {high:.1} % a minute"
        );
        return Check::ok(NAME, found);
    }
    let found = format!(
        "the host moved {} of {pages} pages in {seconds:.1} s: {rate:.1} % a minute ({low:.1}-{high:.1})",
        moves.moved
    );
    Check::note(
        NAME,
        found,
        "`huepage inspect PID --verify 1000` measures a program's pages again; a host with huge pages moves none",
    )
}

/// A report of a guest where all is well, for tests.
#[cfg(test)]
pub fn example() -> Report {
    use huepage_color::CacheLevel;
    use huepage_linux::color::doctor::clock::LoadClock;
    use huepage_linux::color::doctor::colors::ColorTimes;
    use huepage_linux::color::doctor::moves::HostMoves;
    use huepage_linux::color::doctor::neighbors::Neighbors;
    use huepage_linux::color::doctor::replacement::EvictionPoint;
    use huepage_linux::color::probe::VerdictReport;
    use huepage_linux::kernel::machine::{Features, Privileges, Roots};

    let roots = Roots::default();
    let (mut kernel, mut privileges) = (Features::probe(&roots), Privileges::read(&roots));
    kernel.list.iter_mut().for_each(|feature| feature.state = Has::Present);
    privileges.missing.clear();
    let interval = |estimate| Interval { estimate, low: estimate, high: estimate + 0.02 };
    let point = |(times_ways, evicted)| EvictionPoint { times_ways, evicted, error: 0.01 };
    let verdict = FrameVerdict::MustProbe;
    let cache = super::L2 {
        level: CacheLevel::L2,
        size_bytes: 1 << 20,
        ways: 8,
        colors: 32,
        lines_together: 4,
    };
    let times =
        ColorTimes { colors: 32, seconds: 0.4, pages: 8192, undecided: 0, us_per_page: 6.5 };
    let neighbors = Neighbors { cpu: 0, felt: interval(0.01), away: interval(0.02), seconds: 0.25 };
    let pair = Pair {
        cpus: [0, 1],
        relation: CpuRelation::Apart,
        share: interval(0.0),
        claimed: Some(false),
    };
    let mut report = Report {
        schema: 1,
        version: "0",
        works: true,
        checks: Vec::new(),
        cpu: Some("a processor".into()),
        hypervisor: Some("KVM".into()),
        cache: Found::Measured(cache),
        clock: LoadClock { step_ticks: 26, ticks_per_us: 2600.0 },
        colors: Found::Measured(times),
        frame_numbers: Found::Measured(VerdictReport {
            verdict,
            samples: 8192,
            colors: 32,
            share: 0.05,
            chance: 0.05,
        }),
        replacement: Found::Measured(
            [(1, 0.4), (2, 0.7), (3, 0.85), (5, 0.98)].map(point).to_vec(),
        ),
        neighbors: vec![neighbors],
        siblings: vec![pair],
        moves: Found::Measured(HostMoves {
            pages: 8192,
            moved: 0,
            seconds: 6.0,
            per_minute: interval(0.0),
        }),
        kernel,
        privileges,
        seconds: 9.0,
    };
    report.checks = all(&report);
    report
}

#[cfg(test)]
mod tests {
    use huepage_linux::kernel::machine::FeatureId;

    use super::*;

    /// The state of a line, and its text with the advice, after a change to a good report.
    fn line(name: &str, change: impl FnOnce(&mut Report)) -> (CheckState, String) {
        let mut report = example();
        change(&mut report);
        let checks = all(&report);
        let worst =
            checks.iter().filter(|check| check.name == name).max_by_key(|check| check.state as u8);
        let check = worst.unwrap_or_else(|| panic!("no {name} in {checks:?}"));
        (check.state, format!("{} -> {}", check.found, check.advice.as_deref().unwrap_or("-")))
    }

    #[test]
    fn a_good_machine_is_good_but_for_its_clock() {
        for check in &example().checks {
            let wanted = if check.name == "clock" { CheckState::Note } else { CheckState::Ok };
            assert_eq!(check.state, wanted, "{check:?}");
        }
        let (_, clock) = line("clock", |_| ());
        assert!(clock.contains("26 ticks (10 ns)") && clock.contains("so 4 are"), "{clock}");
        let (state, _) = line("clock", |report| report.clock.step_ticks = 1);
        assert_eq!(state, CheckState::Ok);
    }

    #[test]
    fn only_what_is_needed_is_bad() {
        let lack = |id: FeatureId| {
            move |report: &mut Report| {
                let feature = report.kernel.list.iter_mut().find(|feature| feature.id == id);
                feature.unwrap().state = Has::Missing;
            }
        };
        let (state, text) = line("kernel", lack(FeatureId::UffdMove));
        assert!(
            state == CheckState::Bad && text.contains("UFFDIO_MOVE") && text.contains("6.8"),
            "{text}"
        );
        let (state, text) = line("kernel", lack(FeatureId::Bpf));
        assert!(state == CheckState::Note && text.contains("without BPF"), "{text}");
        let (state, text) = line("privileges", |report| {
            report.privileges.missing.push("CAP_X not in effect: run as root".into());
        });
        assert!(state == CheckState::Bad && text == "CAP_X not in effect -> run as root", "{text}");
        let failed = |report: &mut Report| report.colors = Found::failed("found 3 of 32; run `x`");
        assert_eq!(line("colours", failed), (CheckState::Bad, "found 3 of 32 -> run `x`".into()));
        let failed = |report: &mut Report| report.cache = Found::failed("no L2; do this");
        assert_eq!(line("cache", failed).0, CheckState::Bad);
    }

    #[test]
    fn what_costs_time_is_noted() {
        let busy = Interval { estimate: 0.4, low: 0.3, high: 0.5 };
        let (state, text) = line("neighbours", |report| report.neighbors[0].felt = busy);
        assert!(
            state == CheckState::Note && text.contains("CPU 0: others on its core 40 % (+-10)"),
            "{text}"
        );
        let (state, text) = line("moves", |report| {
            let Found::Measured(moves) = &mut report.moves else { panic!() };
            (moves.moved, moves.per_minute) =
                (12, Interval { estimate: 0.015, low: 0.01, high: 0.02 });
        });
        assert!(
            state == CheckState::Note && text.contains("12 of 8192") && text.contains("1.5 %"),
            "{text}"
        );
        let slow = |report: &mut Report| {
            let Found::Measured(times) = &mut report.colors else { panic!() };
            times.us_per_page = 80.0;
        };
        assert_eq!(line("colours", slow).0, CheckState::Note);
    }

    #[test]
    fn a_kernel_that_was_told_otherwise_is_not_believed() {
        let (state, text) = line("cores", |report| report.siblings[0].claimed = Some(true));
        assert!(state == CheckState::Note && text.contains("told otherwise of 0 and 1"), "{text}");
        let (state, text) =
            line("cores", |report| report.siblings[0].relation = CpuRelation::AtTimes);
        assert!(state == CheckState::Note && text.contains("share one at times"), "{text}");
        let (state, text) = line("cores", |report| report.siblings.clear());
        assert!(state == CheckState::Ok && text.contains("one CPU"), "{text}");
    }

    #[test]
    fn the_curve_says_which_line_goes_first() {
        let curve = |shares: [f64; 4]| {
            line("eviction", move |report| {
                let Found::Measured(points) = &mut report.replacement else { panic!() };
                points.iter_mut().zip(shares).for_each(|(point, share)| point.evicted = share);
            })
        };
        let (state, text) = curve([0.99, 1.0, 1.0, 1.0]);
        assert!(state == CheckState::Ok && text.contains("oldest line goes first"), "{text}");
        let (state, text) = curve([0.05, 0.5, 0.8, 1.0]);
        assert!(
            state == CheckState::Ok
                && text.contains("1, 2, 3, 5 times the ways evicts 5, 50, 80, 100 %"),
            "{text}"
        );
        assert_eq!(curve([0.1, 0.2, 0.3, 0.5]).0, CheckState::Note);
    }
}
