//! The first command: `huepage run --share 25%` of a program that ends at once and of one of 64 MiB, from a
//! store without classes and from one that has them, in several kinds of noise. How long the program
//! waits for its first instruction, whether it ends as it should, and how long its memory takes to be in its
//! colours, which are measured again at the end.
//!
//! Each run has directories of its own, so that nothing else of huepage on this machine is in the way.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use huepage_color::Pfn;
use serde_json::{Map, Value};
use tempfile::TempDir;

use super::frames;
use super::noise::{BackgroundLoad, Noise};
use crate::figures::{median, round};
use crate::harness::{Bench, Suite, SuiteFigures, bounded, chosen, tool, word};
use crate::launch::{Captured, Huepage, RIGHT, kill_tree};
use crate::sys;
use crate::verdict::SuiteVerdict;

/// The share of its memory that has to be in its colours.
const SHARE: f64 = 0.99;
/// Memory of the larger program.
const MIB: u64 = 64;
/// How long that program lives at least, and at most.
const LIFE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(20));
/// Time between two looks at its frames, which take a millisecond; and at most until huepage is asked about
/// them, which costs too much to be done while colours are being found.
const LOOK: Duration = Duration::from_millis(50);
const ASK: Duration = Duration::from_secs(2);
/// After so long a run counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pages that are measured again at the end.
const VERIFIED: &str = "500";

/// Whether there are classes already.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassStore {
    /// A new one for each run
    Empty,
    /// One that has them
    Kept,
}

/// What is run.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstProgram {
    /// One that ends at once
    True,
    /// One with 64 MiB of memory, for two seconds at least
    #[value(name = "64MiB")]
    Large,
}

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct FirstCommand {
    /// Runs in each cell
    #[arg(long, default_value_t = 100)]
    runs: usize,
    /// The store; may be repeated [default: both]
    #[arg(long, value_enum)]
    store: Vec<ClassStore>,
    /// The load; may be repeated [default: all]
    #[arg(long, value_enum)]
    load: Vec<BackgroundLoad>,
    /// The program; may be repeated [default: both]
    #[arg(long, value_enum)]
    program: Vec<FirstProgram>,
}

/// What the figures are of.
const OF: &[&str] = &[
    "wrong endings",
    "median start",
    "worst start",
    "inside from empty store",
    "inside from kept store",
    "inside under load",
];

impl Suite for FirstCommand {
    const FIGURES: SuiteFigures = &[("P22", OF)];
    const TOOLS: &'static [&'static str] = &["huepage-torture", "huepage-walk", "huepage-stream"];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        for load in chosen(&self.load) {
            let _noise = Noise::start(load)?;
            for store in chosen(&self.store) {
                for program in chosen(&self.program) {
                    let cell = Cell { bench, load, store, program };
                    cell.measure(verdict, self.runs)?;
                }
            }
        }
        verdict.is_part =
            !(self.store.is_empty() && self.load.is_empty() && self.program.is_empty());
        figures(verdict);
        Ok(())
    }
}

/// The figures of the promise: the worst cell of each kind.
fn figures(verdict: &mut SuiteVerdict) {
    let number = |row: &Map<String, Value>, name: &str| row.get(name).and_then(Value::as_f64);
    let worst = |column: &str, cells: &dyn Fn(&str) -> bool| {
        let is_meant =
            |row: &&Map<String, Value>| row["program, store, load"].as_str().is_some_and(cells);
        let those = verdict.rows.iter().filter(is_meant);
        those.filter_map(|row| number(row, column)).fold(f64::NAN, f64::max)
    };
    let wrong = |row: &Map<String, Value>| Some(number(row, "runs")? - number(row, "right")?);
    let wrong: Vec<f64> = verdict.rows.iter().filter_map(wrong).collect();
    // Nothing was wrong with none.
    let wrong = if wrong.is_empty() { f64::NAN } else { wrong.iter().sum() };
    let found = [
        ("wrong endings", wrong),
        ("median start", worst("start s", &|_| true)),
        ("worst start", worst("worst s", &|_| true)),
        ("inside from empty store", worst("inside s", &|name| name.ends_with("empty, idle"))),
        ("inside from kept store", worst("inside s", &|name| name.ends_with("kept, idle"))),
        ("inside under load", worst("inside s", &|name| !name.ends_with("idle"))),
    ];
    found.into_iter().for_each(|(of, figure)| verdict.worst("P22", of, figure, None));
}

/// One kind of run.
struct Cell<'a> {
    bench: Bench<'a>,
    load: BackgroundLoad,
    store: ClassStore,
    program: FirstProgram,
}

/// Where a run keeps what it keeps.
struct Place(TempDir);

impl Place {
    /// In memory, as the store has to be.
    fn new() -> io::Result<Place> {
        Ok(Place(tempfile::tempdir_in("/dev/shm")?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// huepage that keeps everything here.
    fn huepage(&self, bench: Bench<'_>) -> Huepage {
        let both = [("HUEPAGE_CLASSES_DIR", "classes"), ("HUEPAGE_RUNTIME_DIR", "run")];
        let places = both.map(|(name, dir)| (name, self.path(dir))).to_vec();
        Huepage { places, ..bench.huepage.clone() }
    }
}

/// What came of a run; times in seconds from the command.
#[derive(Default)]
struct Run {
    /// To the first instruction.
    start: Option<f64>,
    /// To the memory being in its colours.
    inside: Option<f64>,
    /// To colours being known, and to the stock being full, as huepage says.
    known: Option<f64>,
    full: Option<f64>,
    /// Pages measured again, and those as believed.
    verified: (u64, u64),
    /// What went wrong.
    trouble: Option<String>,
}

/// The pages of a program with their frames.
type Pages = Vec<(u64, Pfn)>;

/// What is seen of the frames of a program.
struct Watch {
    /// When its pages were looked at, where that changed anything.
    looks: Vec<(Duration, Pages)>,
    /// When huepage was asked about them, and whether they have changed since.
    asked: Instant,
    changed: bool,
}

impl Watch {
    fn new() -> Watch {
        Watch { looks: Vec::new(), asked: Instant::now(), changed: true }
    }

    /// Looks; whether its memory is there and does not move any more, and huepage was not asked about it.
    fn look(&mut self, pid: u32) -> bool {
        let (least, now) = (MIB << 20, sys::monotonic());
        let is_large = |bytes: u64| (least..least + (2 << 20)).contains(&bytes);
        let Some(pages) =
            i32::try_from(pid).ok().and_then(|pid| frames::pages_in(pid, is_large).ok())
        else {
            return false;
        };
        if self.looks.last().is_none_or(|(_, before)| *before != pages) {
            self.looks.push((now, pages));
            self.changed = true;
            return false;
        }
        let all = self.looks.last().is_some_and(|(_, pages)| pages.len() as u64 >= MIB * 256);
        all && (self.changed || self.asked.elapsed() > ASK)
    }

    fn note_asked(&mut self) {
        (self.asked, self.changed) = (Instant::now(), false);
    }

    /// Since when [`SHARE`] of the pages lie where they lie now.
    fn since(&self) -> Option<Duration> {
        let (_, last) = self.looks.last()?;
        let settled = |pages: &Pages| {
            let old: HashMap<u64, Pfn> = pages.iter().copied().collect();
            let same = last.iter().filter(|(page, frame)| old.get(page) == Some(frame)).count();
            same as f64 >= SHARE * last.len() as f64
        };
        self.looks.iter().rev().take_while(|(_, pages)| settled(pages)).last().map(|(at, _)| *at)
    }
}

impl Cell<'_> {
    fn name(&self) -> String {
        format!("{}, {}, {}", word(self.program), word(self.store), word(self.load))
    }

    fn measure(&self, verdict: &mut SuiteVerdict, runs: usize) -> io::Result<()> {
        let kept = Place::new()?;
        if self.store == ClassStore::Kept {
            self.warm(&kept)?;
        }
        let mut all = Vec::new();
        for _ in 0..runs {
            let fresh = if self.store == ClassStore::Empty { Some(Place::new()?) } else { None };
            all.push(self.once(fresh.as_ref().unwrap_or(&kept))?);
        }
        self.judge(verdict, &all);
        Ok(())
    }

    /// The command that starts `program`.
    fn command(&self, place: &Place, options: &[&str], program: &[&str]) -> io::Result<Command> {
        let mut plain = Command::new(tool("huepage-torture")?);
        let options = ["--share", "25%"].iter().chain(self.bench.options).chain(options);
        let run = place.huepage(self.bench).run(options, plain.args(program));
        if self.load != BackgroundLoad::Stream {
            return Ok(run);
        }
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(run.get_program()).args(run.get_args());
        command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Ok(command)
    }

    /// Has the classes built.
    fn warm(&self, place: &Place) -> io::Result<()> {
        let stamp = place.path("warm");
        let program = ["stamp", &stamp.to_string_lossy()];
        let end = bounded(&mut self.command(place, &["--wait"], &program)?, PATIENCE)?;
        let failed = || format!("the store cannot be filled: {}", end.err.trim());
        if end.status == 0 { Ok(()) } else { Err(io::Error::other(failed())) }
    }

    fn once(&self, place: &Place) -> io::Result<Run> {
        let paths = ["stamp", "report"].map(|name| place.path(name));
        paths.iter().for_each(|path| _ = fs::remove_file(path));
        let [stamp, report] = &paths;
        let mib = MIB.to_string();
        let (stamp_text, life) = (stamp.to_string_lossy(), LIFE.1.as_secs().to_string());
        let right = RIGHT.to_string();
        let program = match self.program {
            FirstProgram::True => vec!["stamp", &stamp_text],
            FirstProgram::Large => {
                let seconds = ["answer", "--mib", &mib, "--seconds", &life];
                [&seconds[..], &["--right", &right, "--stamp", &stamp_text]].concat()
            }
        };
        let options = ["--report", &report.to_string_lossy()];
        let mut command = self.command(place, &options, &program)?;
        let began = sys::monotonic();
        let (mut child, mut run) = (Captured::start(&mut command)?, Run::default());
        self.attend(&mut child, place, stamp, began, &mut run);
        let end = child.wait()?;
        run.start = stamped(stamp).map(|(at, _)| at.saturating_sub(began).as_secs_f64());
        let told: Value =
            serde_json::from_slice(&fs::read(report).unwrap_or_default()).unwrap_or_default();
        (run.known, run.full) = (told["colors_seconds"].as_f64(), told["stock_seconds"].as_f64());
        let expected = if self.program == FirstProgram::True { 0 } else { RIGHT };
        if end.status != expected || run.start.is_none() {
            let (status, said) = (Some(end.status), end.err.trim());
            run.trouble = Some(format!("status {status:?} for {expected}: {said}"));
        }
        Ok(run)
    }

    /// Looks after a run until it ends, or has to be killed.
    fn attend(
        &self,
        child: &mut Captured,
        place: &Place,
        stamp: &Path,
        began: Duration,
        run: &mut Run,
    ) {
        let (started, mut looked, mut told) = (Instant::now(), Instant::now(), false);
        let (mut watch, huepage) = (Watch::new(), place.huepage(self.bench));
        while child.alive() {
            if started.elapsed() > PATIENCE {
                return kill_tree(child.id());
            }
            std::thread::sleep(Duration::from_millis(2));
            if self.program == FirstProgram::True || told || looked.elapsed() < LOOK {
                continue;
            }
            let Some((_, pid)) = stamped(stamp) else { continue };
            if run.inside.is_none() && watch.look(pid) {
                watch.note_asked();
                let inside = is_inside(&huepage, pid).then(|| watch.since()).flatten();
                run.inside = inside.map(|since| since.saturating_sub(began).as_secs_f64());
            }
            looked = Instant::now();
            if run.inside.is_some() && started.elapsed() > LIFE.0 {
                run.verified = verify(&huepage, pid);
                told = sys::kill(pid, libc::SIGTERM).is_ok();
            }
        }
    }

    /// Adds the row of the cell, and what went wrong in it.
    fn judge(&self, verdict: &mut SuiteVerdict, all: &[Run]) {
        let (name, large) = (self.name(), self.program == FirstProgram::Large);
        let of = |get: fn(&Run) -> Option<f64>| all.iter().filter_map(get).collect::<Vec<f64>>();
        let (starts, inside) = (of(|run| run.start), of(|run| run.inside));
        let worst = |values: &[f64]| values.iter().copied().fold(f64::NAN, f64::max);
        let right = all.iter().filter(|run| run.trouble.is_none()).count();
        let (measured, believed) =
            all.iter().fold((0, 0), |sum, run| (sum.0 + run.verified.0, sum.1 + run.verified.1));
        // What never was counts as late: as long as the program lived.
        let late = vec![LIFE.1.as_secs_f64(); all.len() - inside.len()];
        let middle = median([&inside[..], &late].concat());
        verdict.row([
            ("program, store, load", name.clone().into()),
            ("runs", all.len().into()),
            ("right", right.into()),
            ("start s", round(median(&starts))),
            ("worst s", round(worst(&starts))),
            ("known s", round(median(of(|run| run.known)))),
            ("stock s", round(median(of(|run| run.full)))),
            ("inside", if large { inside.len().into() } else { Value::Null }),
            ("inside s", if large { round(middle) } else { Value::Null }),
            ("inside worst s", round(worst(&inside))),
            ("verified", measured.into()),
            ("as believed", believed.into()),
        ]);
        for why in all.iter().filter_map(|run| run.trouble.as_ref()) {
            verdict.miss(format!("{name}: {why}"));
        }
    }
}

/// Whether a program's memory is there and in its colours.
fn is_inside(huepage: &Huepage, pid: u32) -> bool {
    let found = huepage.inspect(pid).unwrap_or_default();
    let compliance = &found["compliance"];
    let enough = compliance["movable"].as_u64().is_some_and(|pages| pages >= MIB * 256);
    enough && compliance["share"].as_f64().is_some_and(|share| share >= SHARE)
}

/// Pages measured again, and those as believed.
fn verify(huepage: &Huepage, pid: u32) -> (u64, u64) {
    let command = ["inspect", "--json", &pid.to_string(), "--verify", VERIFIED];
    let found: Value = huepage.json(&command).unwrap_or_default();
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let colors = found["verified"]["pages_by_color"].as_array().into_iter().flatten();
    let decided = colors.map(|color| number(&color["pages"])).sum();
    (decided, number(&found["verified"]["inside_pages"]))
}

/// When a program says that it began, and its pid.
fn stamped(file: &Path) -> Option<(Duration, u32)> {
    let text = fs::read_to_string(file).ok()?;
    let (nanos, pid) = text.strip_suffix('\n')?.split_once(' ')?;
    Some((Duration::from_nanos(nanos.parse().ok()?), pid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_settled_since_most_pages_lie_where_they_stay() {
        let pages =
            |moved: u64| (0..1000).map(|i| (i, Pfn(i + u64::from(i < moved) * 5000))).collect();
        let looks = [(1, 700), (2, 5), (3, 500), (4, 9), (5, 3), (6, 0)];
        let looks = looks.map(|(at, moved)| (Duration::from_secs(at), pages(moved))).to_vec();
        let watch = Watch { looks, ..Watch::new() };
        assert_eq!(watch.since(), Some(Duration::from_secs(4)), "9 of 1000 moved later");
        assert_eq!(Watch::new().since(), None);
    }
}
