//! `huepage demo`: what a share of the cache does, measured on this machine in half a minute.
//!
//! Three parts in order: the latency staircase, a hot set beside a stream, a real program in
//! half the colours. Each stands by itself and has its share of the time: one that shows nothing
//! in it is told with the reason, and the others are shown.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use huepage_color::{CacheGeometry, CacheLevel};
use huepage_linux::color::doctor::neighbors;
use huepage_linux::color::doctor::neighbors::Neighbors;
use huepage_linux::color::probe::quietest_cpu;
use huepage_linux::kernel::cpus::OnCpu;
use serde::Serialize;

use crate::demo::hot_set::{self, HotSet};
use crate::demo::lab::Limits;
use crate::demo::plot::{self, Ink};
use crate::demo::pool::{self, DemoPool};
use crate::demo::program::{self, DemoProgram};
use crate::demo::staircase::{self, Staircase};
use crate::demo::{DemoCache, svg};
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};
use crate::report;
use crate::steps::Steps;
use crate::style::{self, Style};
use crate::whole_file;

const EXAMPLES: &str = "\
Examples:
  huepage demo
  huepage demo --svg staircase.svg";

/// Show on this machine what a share of the cache does
///
/// Takes half a minute, 45 seconds at most: the latency of a random walk in fewer and fewer
/// colours, a hot set beside a stream that is confined and not, and a real program in half the
/// colours. It runs before others meanwhile (niceness -5). What this machine is too busy to show is
/// told with the reason; the rest is shown.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct DemoArgs {
    /// Draw the latency staircase to FILE
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Fewer footprints and repetitions: less than half the time, more noise
    #[arg(long)]
    pub quick: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The time of the parts that walk: when each is over, counted from the beginning, and how long it
/// takes if nothing is in doubt.
#[derive(Clone, Copy)]
struct WalkTimes {
    /// The latest end of measuring colours.
    colors: Duration,
    stairs: Limits,
    beside: Limits,
}

/// The time of a demonstration.
#[derive(Clone, Copy)]
struct Schedule {
    /// In all, if nothing is in doubt.
    planned: Duration,
    /// Walks before the program, as a rule; measuring colours takes a second or two.
    early: WalkTimes,
    /// Walks after the program, if colours took too long.
    late: WalkTimes,
    /// The latest end of the program if walks are still to come, and otherwise.
    program: [Duration; 2],
}

impl Schedule {
    /// That of a full or of a quick demonstration.
    fn new(quick: bool) -> Schedule {
        let s = Duration::from_secs;
        let part = |aim, until| Limits { aim: s(aim), until: s(until) };
        let times = |colors, stairs, beside| WalkTimes { colors: s(colors), stairs, beside };
        let late = times(32, part(5, 38), part(2, 42));
        let (planned, early) = match quick {
            true => (s(11), times(8, part(4, 14), part(2, 18))),
            false => (s(18), times(12, part(8, 27), part(4, 33))),
        };
        Schedule { planned, early, late, program: [s(28), s(44)] }
    }
}

/// What is added to the niceness, for the half minute that it takes: before others, not alone.
const FIRST: i32 = -5;

/// How long the core is watched to say why a part shows nothing.
const COMPANY: Duration = Duration::from_millis(200);

/// What is left of a part: its figures if there are any, and what speaks against them.
#[derive(Serialize)]
struct Part<T> {
    #[serde(flatten)]
    found: Option<T>,
    doubts: Vec<String>,
}

impl<T> Part<T> {
    /// What was measured, or why it could not be.
    fn of(found: Result<T, CmdError>, doubts: impl FnOnce(&T) -> Vec<String>) -> Part<T> {
        match found {
            Ok(found) => Part { doubts: doubts(&found), found: Some(found) },
            Err(error) => Part { doubts: vec![error.message], found: None },
        }
    }

    /// The figures, if nothing speaks against them.
    fn shown(&self) -> Option<&T> {
        self.found.as_ref().filter(|_| self.doubts.is_empty())
    }

    /// Adds to the doubts about figures who else uses the core, if that matters.
    fn explain(&mut self, company: Option<&Neighbors>) {
        let Some(company) = company.filter(|_| self.found.is_some() && !self.doubts.is_empty())
        else {
            return;
        };
        let [felt, away] = [company.felt.estimate, company.away.estimate].map(|x| x * 100.0);
        if felt.max(away) >= 1.0 {
            self.doubts.push(format!(
                "others are felt on the core {felt:.0} % of the time, and on the CPU {away:.0} %"
            ));
        }
    }

    /// In one line.
    fn why_not(&self) -> String {
        self.doubts.join("; ")
    }
}

/// The demonstration in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// All parts show what they should.
    Shown,
    /// Some do.
    Partly,
    /// None does.
    Noisy,
    /// The program's output was not that of its native run.
    Wrong,
}

/// Everything that the demonstration found; its JSON form is the output of `--json`.
#[derive(Serialize)]
struct Demo {
    /// The processor.
    cpu: String,
    /// The cache that was partitioned.
    cache: DemoCache,
    /// Its level.
    level: CacheLevel,
    /// What to think of it.
    verdict: Verdict,
    staircase: Part<Staircase>,
    beside: Part<HotSet>,
    program: Part<DemoProgram>,
    /// Seconds that it took in all.
    seconds: f64,
}

/// Runs the demonstration.
pub fn run(args: DemoArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    if let Some(path) = &args.svg {
        whole_file::can_be_written(path)?;
    }
    let demo = measure(args.quick)?;
    let text = if args.json { report::json(&demo)? } else { render(&demo) };
    style::print(&text).map_err(internal)?;
    end(&demo)?;
    match (&args.svg, demo.staircase.shown()) {
        (Some(path), Some(stairs)) => write_svg(path, stairs, &demo)?,
        (Some(path), None) => {
            eprintln!("huepage: {} was not drawn, as there is no staircase", path.display());
        }
        _ => {}
    }
    Ok(ExitCode::Ok.status())
}

fn measure(quick: bool) -> Result<Demo, CmdError> {
    // Best effort: on a machine with more to do than it has CPUs, all parts get three times as much done.
    let _ = rustix::process::nice(FIRST);
    let (began, schedule) = (Instant::now(), Schedule::new(quick));
    let steps = Steps::new(schedule.planned);
    let (cpu, geometry) = pool::l2()?;
    let (cache, level) = (DemoCache::of(&geometry)?, geometry.level);
    let walks = Walks::start(&geometry, cache, quick, began);
    let early = walks.measure(schedule.early, &steps);
    let until = schedule.program[usize::from(early.is_some())];
    let found = program::measure(quick, began + until, &steps);
    let program = Part::of(found, DemoProgram::doubts);
    let late = || walks.measure(schedule.late, &steps);
    let (staircase, beside) = early.or_else(late).unwrap_or_else(|| {
        let seconds = schedule.late.colors.as_secs();
        neither(format!("no colours within {seconds} s; see `huepage doctor`"))
    });
    let shown = [staircase.shown().is_some(), beside.shown().is_some(), program.shown().is_some()];
    let wrong = program.found.as_ref().is_some_and(|found| !found.same_output);
    let (verdict, seconds) = (judge(shown, wrong), began.elapsed().as_secs_f64());
    Ok(Demo { cpu, cache, level, verdict, staircase, beside, program, seconds })
}

/// Both parts that walk.
type Walked = (Part<Staircase>, Part<HotSet>);

/// None of the two, for this reason.
fn neither(why: String) -> Walked {
    let doubts = vec![why];
    (Part { found: None, doubts: doubts.clone() }, Part { found: None, doubts })
}

/// The parts that walk through memory of measured colours, all on one CPU.
struct Walks {
    cache: DemoCache,
    quick: bool,
    cpu: usize,
    began: Instant,
    pool: Receiver<Result<DemoPool, CmdError>>,
}

impl Walks {
    /// Begins to measure colours, on a thread of its own that ends with the process.
    fn start(geometry: &CacheGeometry, cache: DemoCache, quick: bool, began: Instant) -> Walks {
        let (sender, pool) = mpsc::channel();
        let (geometry, cpu) = (geometry.clone(), quietest_cpu());
        thread::spawn(move || sender.send(DemoPool::measured(&geometry, cache, cpu, began)));
        Walks { cache, quick, cpu, began, pool }
    }

    /// Walks, if colours are known in time.
    fn measure(&self, times: WalkTimes, steps: &Steps) -> Option<Walked> {
        steps.say("measuring colours");
        let left = times.colors.saturating_sub(self.began.elapsed());
        match self.pool.recv_timeout(left) {
            Ok(Ok(pool)) => Some(self.walk(pool, times, steps)),
            Ok(Err(error)) => Some(neither(error.message)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(neither("measuring colours broke off".into()))
            }
        }
    }

    fn walk(&self, mut pool: DemoPool, times: WalkTimes, steps: &Steps) -> Walked {
        // A walk that migrates is noisier, not wrong.
        let _pinned = OnCpu::new(self.cpu);
        let effort = staircase::Effort::new(self.quick);
        let found = staircase::measure(&mut pool, self.cache, effort, times.stairs, steps);
        let mut staircase = Part::of(found, |found| found.doubts(self.cache));
        let found = hot_set::measure(&mut pool, self.cache, times.beside, steps);
        let mut beside = Part::of(found, HotSet::doubts);
        if !staircase.doubts.is_empty() || !beside.doubts.is_empty() {
            let company = neighbors::watch(self.cpu, COMPANY);
            staircase.explain(company.as_ref());
            beside.explain(company.as_ref());
        }
        (staircase, beside)
    }
}

/// What to think of a demonstration by the parts that were shown.
fn judge(shown: [bool; 3], wrong: bool) -> Verdict {
    match shown.iter().filter(|&&shown| shown).count() {
        _ if wrong => Verdict::Wrong,
        0 => Verdict::Noisy,
        3 => Verdict::Shown,
        _ => Verdict::Partly,
    }
}

/// An error if nothing could be shown, or something went wrong.
fn end(demo: &Demo) -> Result<(), CmdError> {
    match demo.verdict {
        Verdict::Shown | Verdict::Partly => Ok(()),
        Verdict::Noisy => {
            let first = demo.staircase.why_not();
            let first = first.trim_end_matches("; see `huepage doctor`");
            let what = format!("nothing could be shown here: {first}; see `huepage doctor`");
            Err(CmdError::new(ExitCode::Noisy, what))
        }
        Verdict::Wrong => {
            let name = demo.program.found.as_ref().map_or("the program", |found| &found.name);
            Err(CmdError::internal(format!("{name} wrote something else than natively")))
        }
    }
}

fn render(demo: &Demo) -> String {
    let style = Style::stdout();
    let kib = demo.cache.bytes / 1024;
    let (level, colors) = (demo.level, demo.cache.colors);
    let mut out = format!("{}: {level} of {kib} KiB in {colors} colours\n\n", demo.cpu);
    section(&mut out, style, "1. A random walk in fewer and fewer colours", &demo.staircase, |s| {
        stairs(s, demo, style)
    });
    section(&mut out, style, "2. A hot set beside a stream", &demo.beside, |b| hot(b, demo, style));
    section(&mut out, style, "3. A real program in half the colours", &demo.program, |p| {
        real(p, style)
    });
    let _ = writeln!(out, "{}", style.dim(format!("{:.0} s in all", demo.seconds)));
    out
}

/// A heading, and then the figures of a part or why there are none.
fn section<T>(
    out: &mut String,
    style: Style,
    heading: &str,
    part: &Part<T>,
    show: impl FnOnce(&T) -> String,
) {
    let _ = writeln!(out, "{}", style.bold(heading));
    match part.shown() {
        Some(found) => *out += &show(found),
        None => {
            let _ = writeln!(out, "   {}: {}", style.yellow("not shown"), part.why_not());
        }
    }
    out.push('\n');
}

fn stairs(found: &Staircase, demo: &Demo, style: Style) -> String {
    let ink = Ink::for_terminal(style);
    let mut headings = vec!["KiB walked".to_owned()];
    headings.extend(found.shares.iter().map(|s| match s.colors {
        1 => "1 colour".into(),
        n => format!("{n} colours"),
    }));
    let mut table = style.table(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    for (at, kib) in found.footprints_kib.iter().enumerate() {
        let ns = found.shares.iter().map(|share| format!("{:.1}", share.ns[at].median));
        table.add_row(std::iter::once(kib.to_string()).chain(ns));
    }
    let half = demo.cache.bytes / 2048;
    let effect = found.effect.map_or(f64::NAN, |effect| effect.median);
    let drawing = plot::draw(found, &ink);
    let effect = style.green(format!("{effect:.1}x slower"));
    let remark = found.remark(demo.cache).map(|text| format!("   {text}\n")).unwrap_or_default();
    format!(
        "   ns per access, medians; every share of the colours is a smaller cache\n{}\n\
         {drawing}   {half} KiB in a quarter of the colours: {effect} than in all\n{remark}",
        style::lay_out(table)
    )
}

fn hot(found: &HotSet, demo: &Demo, style: Style) -> String {
    let (hot, stream) = (found.hot_kib, found.stream_kib);
    let rest = demo.cache.colors - 1;
    let ratio = style.green(format!("{:.1}x faster", found.ratio.median));
    let mut table = style.table(&["", "ns per access of the hot set"]);
    let rows = [
        ("   nothing confined", found.unconfined_ns.median),
        ("   stream in 1 colour", found.confined_ns.median),
    ];
    for (what, ns) in rows {
        table.add_row([what.to_owned(), format!("{ns:.1}")]);
    }
    format!(
        "   {hot} KiB walked at random, {stream} KiB streamed after every lap, one CPU\n{}   \
         stream confined to 1 colour, hot set in the other {rest}: {ratio} \
         (medians of {} pairs)\n",
        style::lay_out(table),
        found.rounds
    )
}

fn real(found: &DemoProgram, style: Style) -> String {
    let DemoProgram { name, colors, of, colors_from, movable, .. } = found;
    let percent = style.green(format!("{:.2} %", found.compliance * 100.0));
    let output = match found.same_output {
        true => format!("same output ({} bytes)", found.output_bytes),
        false => style.red("other output than natively"),
    };
    let fallback = match found.fallback_pages {
        0 => String::new(),
        1 => "   1 page came in another colour first and was recoloured\n".into(),
        n => format!("   {n} pages came in other colours first and were recoloured\n"),
    };
    let passes = match (found.native_pass, found.confined_pass) {
        (Some(native), Some(confined)) => format!(
            "   a pass over its data: {native:.2} s of CPU natively, {confined:.2} s confined\n"
        ),
        _ => String::new(),
    };
    format!(
        "   {name}, unmodified, in colours {colors} of {of} ({colors_from}): {output}\n   \
         {percent} of its {movable} movable pages in its colours, {:.1} s after its start\n\
         {fallback}{passes}   \
         ran for {:.1} s, until its pages were seen there; {:.1} s of preparation\n",
        found.complied_after.unwrap_or(f64::NAN),
        found.confined_seconds,
        found.prepare_seconds
    )
}

fn write_svg(path: &Path, stairs: &Staircase, demo: &Demo) -> Result<(), CmdError> {
    let kib = demo.cache.bytes / 1024;
    let title = format!("Random walk in shares of the {} cache ({kib} KiB)", demo.level);
    let text = svg::draw(stairs, &title).map_err(internal)?;
    whole_file::save(path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::lab::model::CACHE;
    use crate::demo::staircase::examples::ideal;
    use crate::demo::stats::Repeated;

    fn part<T>(found: T) -> Part<T> {
        Part { found: Some(found), doubts: vec![] }
    }

    fn demo() -> Demo {
        let r = |median| Repeated { median, spread: 0.1 };
        let beside = HotSet {
            hot_kib: 512,
            stream_kib: 1024,
            unconfined_ns: r(25.0),
            confined_ns: r(8.0),
            ratio: r(3.1),
            faster: 9,
            rounds: 9,
        };
        let program = DemoProgram {
            name: "sort".into(),
            colors: "0-7".into(),
            of: 16,
            colors_from: "probed".into(),
            same_output: true,
            output_bytes: 10,
            movable: 100,
            in_colors: 100,
            compliance: 1.0,
            complied_after: Some(0.8),
            fallback_pages: 0,
            native_pass: Some(0.2),
            confined_pass: Some(0.21),
            confined_seconds: 1.1,
            prepare_seconds: 0.5,
        };
        Demo {
            cpu: "a processor".into(),
            cache: CACHE,
            level: CacheLevel::L2,
            verdict: Verdict::Shown,
            staircase: part(ideal()),
            beside: part(beside),
            program: part(program),
            seconds: 30.0,
        }
    }

    #[test]
    fn what_was_shown_is_printed() {
        let text = render(&demo());
        for word in ["3.0x slower", "3.1x faster", "100.00 %", "KiB walked", "30 s in all"] {
            assert!(text.contains(word), "{word} is missing:\n{text}");
        }
        assert!(!text.contains("not shown"), "{text}");
    }

    #[test]
    fn a_part_that_fails_is_told_in_a_line_and_the_others_are_shown() {
        let mut demo = demo();
        demo.beside.doubts = vec!["gained in only 2 of 9".into(), "by only 1.10x".into()];
        demo.staircase = Part::of(Err(CmdError::new(ExitCode::Noisy, "no colours")), |_| vec![]);
        let text = render(&demo);
        let told: Vec<&str> = text.lines().filter(|l| l.contains("not shown: ")).collect();
        assert_eq!(told.len(), 2, "{text}");
        assert!(told[0].ends_with("no colours"), "{text}");
        assert!(told[1].contains("gained in only 2 of 9; by only 1.10x"), "{text}");
        assert!(!text.contains("3.1x") && text.contains("same output"), "{text}");
    }

    #[test]
    fn company_on_the_core_is_told_with_doubts_alone() {
        use huepage_linux::color::doctor::Interval;
        let share = |estimate| Interval { estimate, low: 0.0, high: 1.0 };
        let company = Neighbors { cpu: 0, felt: share(0.4), away: share(0.1), seconds: 0.2 };
        let explained = |found: Option<i32>, doubts: &[&str], company: &Neighbors| {
            let doubts = doubts.iter().map(|&doubt| doubt.into()).collect();
            let mut part = Part { found, doubts };
            part.explain(Some(company));
            part.why_not()
        };
        let text = explained(Some(1), &["only 1.10x"], &company);
        assert!(text.starts_with("only 1.10x; others are felt on the core 40 %"), "{text}");
        assert_eq!(explained(Some(1), &[], &company), "");
        assert_eq!(explained(None, &["no colours"], &company), "no colours");
        let alone = Neighbors { felt: share(0.0), away: share(0.0), ..company };
        assert_eq!(explained(Some(1), &["only 1.10x"], &alone), "only 1.10x");
    }

    #[test]
    fn parts_decide_the_verdict_and_the_verdict_the_status() {
        let status = |verdict| {
            let found = Demo { verdict, ..demo() };
            end(&found).map_or_else(|error| error.code, |()| ExitCode::Ok)
        };
        let all = [
            ([true, true, true], false, Verdict::Shown, ExitCode::Ok),
            ([false, true, true], false, Verdict::Partly, ExitCode::Ok),
            ([false, false, true], false, Verdict::Partly, ExitCode::Ok),
            ([true, false, false], false, Verdict::Partly, ExitCode::Ok),
            ([false, false, false], false, Verdict::Noisy, ExitCode::Noisy),
            ([true, true, true], true, Verdict::Wrong, ExitCode::Internal),
        ];
        for (shown, wrong, verdict, code) in all {
            assert_eq!(judge(shown, wrong), verdict, "{shown:?} {wrong}");
            assert_eq!(status(verdict), code, "{verdict:?}");
        }
    }

    #[test]
    fn where_nothing_could_be_shown_the_error_says_why_and_what_to_do() {
        let why = "no colours within 32 s; see `huepage doctor`";
        let mut demo = demo();
        demo.verdict = Verdict::Noisy;
        demo.staircase = Part::of(Err(CmdError::new(ExitCode::Noisy, why)), |_| vec![]);
        let message = end(&demo).unwrap_err().message;
        assert!(message.ends_with("no colours within 32 s; see `huepage doctor`"), "{message}");
        assert_eq!(message.matches("doctor").count(), 1, "{message}");
    }

    #[test]
    fn a_wrong_output_is_never_called_the_same() {
        let mut demo = demo();
        demo.program.found.as_mut().unwrap().same_output = false;
        let text = render(&demo);
        assert!(text.contains("other output") && !text.contains("same output"), "{text}");
    }

    #[test]
    fn json_has_figures_doubts_and_the_verdict() {
        let mut demo = demo();
        demo.beside = Part { found: None, doubts: vec!["no colours".into()] };
        let value: serde_json::Value = serde_json::from_str(&report::json(&demo).unwrap()).unwrap();
        assert_eq!(value["verdict"], "shown");
        assert_eq!(value["staircase"]["shares"][2]["colors"], 4);
        assert_eq!(value["beside"], serde_json::json!({ "doubts": ["no colours"] }));
        assert_eq!(value["program"]["same_output"], true);
    }

    #[test]
    fn parts_end_one_after_the_other_within_45_seconds() {
        for quick in [false, true] {
            let Schedule { planned, early, late, program } = Schedule::new(quick);
            let usual = [early.colors, early.stairs.until, early.beside.until, program[1]];
            let slow =
                [early.colors, program[0], late.colors, late.stairs.until, late.beside.until];
            for ends in [&usual[..], &slow[..]] {
                assert!(ends.is_sorted() && ends[ends.len() - 1] < Duration::from_secs(45));
            }
            for times in [early, late] {
                assert!(times.stairs.aim < times.stairs.until - times.colors);
                assert!(times.beside.aim < times.beside.until - times.stairs.until);
            }
            assert!(planned < program[1]);
        }
    }

    #[test]
    fn colours_that_are_late_or_never_come_are_told_from_those_that_fail() {
        let (sender, pool) = mpsc::channel();
        let walks = Walks { cache: CACHE, quick: true, cpu: 0, began: Instant::now(), pool };
        let mut times = Schedule::new(true).early;
        times.colors = Duration::ZERO;
        assert!(walks.measure(times, &Steps::hidden()).is_none());
        sender.send(Err(CmdError::new(ExitCode::Noisy, "no colour"))).unwrap();
        let failed = walks.measure(times, &Steps::hidden()).unwrap();
        assert_eq!(
            (failed.0.why_not(), failed.1.why_not()),
            ("no colour".into(), "no colour".into())
        );
        drop(sender);
        let broken = walks.measure(times, &Steps::hidden()).unwrap();
        assert!(broken.0.why_not().contains("broke off"));
    }
}
