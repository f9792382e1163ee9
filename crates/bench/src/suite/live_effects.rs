//! The papers' effects on this machine: programs without and with what is tried, in turns, beside the simulator with
//! this machine's caches, on the accesses that these programs made when they were recorded. What is run is in
//! `bench/live-effects.toml`. An effect is how many times longer the first program takes for the same work without than
//! with, by its CPU time once it has settled. Nothing is promised: a reader sees how far the simulator can be believed.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use super::daemon::World;
use crate::figures::{Spread, median, round};
use crate::harness::{Bench, Guard, Suite, interleaved, measured, progress, tool, wanted};
use crate::host_machine::{self, HostCosts};
use crate::launch::{Dialogue, succeeds};
use crate::pagecache::files;
use crate::residency::Said;
use crate::verdict::SuiteVerdict;
use crate::walk::Latency;

/// Recording and simulating take minutes, on a busy machine more.
const LONGEST: Duration = Duration::from_secs(3600);
/// Bytes of the file that a program may read.
const FILE_BYTES: u64 = 64 << 20;
/// huepage's exit status where the machine lacks something.
const LACKING: i32 = 101;
/// What programs are told when they are recorded in place of how long to run: recording ends them.
const FOREVER: &str = "1000000";
/// What is run.
const EFFECTS: &str = include_str!("../../../../bench/live-effects.toml");
/// What the page says around its tables, which take the place of the line [`HERE`].
const WORDS: &str = include_str!("live_effects.md");
const HERE: &str = "<!-- effects -->\n\n";

/// What is asked for.
#[derive(Args, Clone, Debug)]
pub struct LiveEffects {
    /// Only this effect; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// Runs of each kind
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The CPU that programs run on
    #[arg(long, default_value_t = 1)]
    cpu: usize,
    /// Also write a page, as docs/reproductions/live.md
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EffectFile {
    effect: Vec<Effect>,
}

/// An effect, and how to have it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Effect {
    name: String,
    title: String,
    /// The policy, as the simulator and huepage take it.
    policy: String,
    /// Options of `huepage run` for the program of this number, where it is not the daemon that acts.
    #[serde(default)]
    run: Vec<String>,
    #[serde(default)]
    runs: usize,
    /// Where in the report it stands what was moved or built.
    moved: Option<String>,
    /// Caches of this machine up to this level; behind them is memory that costs as much as the next.
    farthest: u32,
    /// Options of the simulator.
    simulated: Vec<String>,
    /// Accesses that are recorded, and those of them before anything counts.
    records: u64,
    warm_up: u64,
    about: String,
    program: Vec<EffectProgram>,
}

/// A program; the first is the one that is looked at.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EffectProgram {
    command: Vec<String>,
    /// What the simulator runs in place of a recording.
    workload: Option<String>,
    /// What the daemon's file says of its group.
    group: Option<String>,
}

/// Time of the first program without and with what is tried, and what was moved.
struct Times {
    without: Vec<f64>,
    with: Vec<f64>,
    moved: Option<f64>,
}

impl Times {
    /// How many times as long without, of each pair of runs.
    fn ratios(&self) -> Spread {
        let ratios = self.without.iter().zip(&self.with).map(|(without, with)| without / with);
        Spread::of(ratios.collect::<Vec<_>>())
    }
}

/// Cycles for an access of the first program in the simulator, without and with, and what was moved.
#[derive(Clone, Copy)]
struct SimulatedEffect {
    cycles: [f64; 2],
    moved: f64,
}

impl SimulatedEffect {
    fn ratio(&self) -> f64 {
        self.cycles[0] / self.cycles[1]
    }
}

/// What was found of an effect; or why this machine cannot show it live, as huepage said.
struct Found {
    live: Result<Times, String>,
    simulated: SimulatedEffect,
}

impl Suite for LiveEffects {
    const TOOLS: &'static [&'static str] = &["huepage-walk", "huepage-stream", "huepage-kernel"];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let file: EffectFile = toml::from_str(EFFECTS).map_err(io::Error::other)?;
        progress("this machine's caches are timed");
        let costs = HostCosts::measure()?;
        let asked = file.effect.into_iter().filter(|effect| wanted(&self.only, &effect.name));
        let mut done = Vec::new();
        for effect in asked {
            let place = EffectPlace { bench, setting: self, effect: &effect, costs: &costs };
            match place.found() {
                Ok(found) => {
                    note(&effect, &found, verdict);
                    done.push((effect, found));
                }
                Err(error) => verdict.miss(format!("{}: cannot be measured: {error}", effect.name)),
            }
        }
        let written = |path| std::fs::write(path, page(&done, &costs.description(u32::MAX)));
        self.markdown.as_ref().map_or(Ok(()), written)
    }
}

/// Where an effect is looked for.
struct EffectPlace<'a> {
    bench: Bench<'a>,
    setting: &'a LiveEffects,
    effect: &'a Effect,
    costs: &'a HostCosts,
}

impl EffectPlace<'_> {
    fn found(&self) -> io::Result<Found> {
        let name = &self.effect.name;
        progress(&format!("{name}: recorded and simulated"));
        let simulated = self.simulate()?;
        progress(&format!("{name}: live"));
        let live = match self.live() {
            Err(error) => Err(refusal(&error.to_string()).ok_or(error)?),
            Ok(times) => Ok(times),
        };
        Ok(Found { simulated, live })
    }

    /// A program with its numbers.
    fn command(&self, program: &EffectProgram) -> io::Result<Command> {
        let l2 = host_machine::caches()?.into_iter().find(|(level, _)| *level == 2);
        let l2 = l2.map_or(1 << 20, |(_, own)| own.size_bytes);
        let file = self.file().display().to_string();
        let known = [("cpu", self.setting.cpu.to_string()), ("file", file)];
        let mut words = program.command.iter().map(|word| filled(word, l2, &known));
        let first = words.next().unwrap_or_default();
        let mut command = Command::new(tool(&first).unwrap_or_else(|_| first.into()));
        command.args(words);
        Ok(command)
    }

    fn file(&self) -> PathBuf {
        self.bench.dir.join("live-effects.txt")
    }

    fn live(&self) -> io::Result<Times> {
        let mut moved = Vec::new();
        let [without, with] = interleaved(self.setting.rounds, [false, true], |with| {
            let (time, report) = self.once(with)?;
            if with {
                let place = self.effect.moved.as_deref();
                moved.extend(place.and_then(|place| report.pointer(place)?.as_f64()));
            }
            Ok(time)
        })?;
        let moved = (!moved.is_empty()).then(|| median(&moved));
        Ok(Times { without, with, moved })
    }

    /// A run of all programs: the time of the first, and the report of the one that is under huepage.
    fn once(&self, with: bool) -> io::Result<(f64, Value)> {
        // What a run before placed is gone.
        files::fill(&self.file(), FILE_BYTES, 5)?;
        let report = tempfile::NamedTempFile::new()?;
        let path = report.path().to_string_lossy().into_owned();
        let all = || self.effect.program.iter().enumerate();
        let command = |(number, program)| {
            let plain = self.command(program)?;
            let under = with && !self.effect.run.is_empty() && number == self.effect.runs;
            let options =
                ["--report", &path].into_iter().chain(self.effect.run.iter().map(String::as_str));
            let options = options.chain(self.bench.options.iter().copied());
            Ok(if under { self.bench.huepage.run(options, &plain) } else { plain })
        };
        let mut commands = all().map(command).collect::<io::Result<Vec<Command>>>()?.into_iter();
        let mut first = commands.next().ok_or_else(|| io::Error::other("no program"))?;
        let mut first = Dialogue::start(&mut first)?;
        // Of a group the daemon is told the number; what has none may not end by itself.
        let start = |(mut command, program): (Command, &EffectProgram)| match program.group {
            Some(_) => Guard::quiet(&mut command),
            None => Guard::load(&command),
        };
        let others = commands.zip(&self.effect.program[1..]).map(start);
        let others: Vec<Guard> = others.collect::<io::Result<_>>()?;
        let pids = [first.guard.id()].into_iter().chain(others.iter().map(Guard::id));
        let _daemon = if with { self.daemon(pids.collect())? } else { None };
        let time = time_of(&mut first)?;
        first.end()?;
        drop(others);
        let report = std::fs::read(report.path())?;
        Ok((time, serde_json::from_slice(&report).unwrap_or_default()))
    }

    /// The daemon with a group for each program, if the effect is its.
    fn daemon(&self, pids: Vec<u32>) -> io::Result<Option<(Guard, World)>> {
        let groups = self.effect.program.iter().zip(pids).enumerate();
        let groups: String = groups
            .filter_map(|(number, (program, pid))| {
                let said = program.group.as_ref()?;
                Some(format!("[[group]]\nname = \"program{number}\"\npid = {pid}\n{said}\n"))
            })
            .collect();
        if groups.is_empty() {
            return Ok(None);
        }
        let world = World::new(self.bench.huepage)?;
        world.write("probe", &format!("engine = \"{}\"\n{groups}", self.effect.policy))?;
        let daemon = world.start()?;
        Ok(Some((daemon, world)))
    }

    /// The first program's time for an access in the simulator.
    fn simulate(&self) -> io::Result<SimulatedEffect> {
        let (mut traces, mut workloads) = (Vec::new(), Vec::new());
        for (number, program) in self.effect.program.iter().enumerate() {
            match &program.workload {
                Some(workload) => workloads.extend(["-w".to_owned(), workload.clone()]),
                None => traces.push(self.record(program, number)?.display().to_string()),
            }
        }
        let programs = [traces, workloads].concat();
        let warm_up = self.effect.warm_up.to_string();
        let warm = ["--warm-up", &warm_up];
        let policy = ["--policy", &self.effect.policy];
        let without = self.simulated(&programs, &warm)?;
        let with = self.simulated(&programs, &[warm, policy].concat())?;
        // What is moved before anything counts is told by a run that counts all.
        let whole = self.simulated(&programs, &policy)?;
        let cycles =
            [&without, &with].map(|said| number(said, "cycles") / number(said, "accesses"));
        let moved = number(&whole, "recolorings") + number(&whole, "promotions");
        Ok(SimulatedEffect { cycles, moved })
    }

    fn record(&self, program: &EffectProgram, number: usize) -> io::Result<PathBuf> {
        let path = self.bench.dir.join(format!("{}-{number}.trace", self.effect.name));
        let plain = self.command(program)?;
        let mut trace =
            self.bench.huepage.command(["trace", "--quiet", "--force", "--stop-at-limit"]);
        trace.args(["--limit", &self.effect.records.to_string(), "--output"]).arg(&path).arg("--");
        trace
            .arg(plain.get_program())
            .args(lasting(plain.get_args().map(|word| word.to_string_lossy())));
        succeeds(&mut trace, LONGEST)?;
        Ok(path)
    }

    /// What the simulator says of the first program.
    fn simulated(&self, programs: &[String], more: &[&str]) -> io::Result<Value> {
        let mut sim = self.bench.huepage.command(["sim", "--json", "--level", "2", "--machine"]);
        let machine = self.bench.dir.join(format!("{}.toml", self.effect.name));
        std::fs::write(&machine, self.costs.description(self.effect.farthest))?;
        sim.arg(machine).args(programs).args(&self.effect.simulated).args(more);
        let said: Value = measured(&mut sim, LONGEST)?;
        let first = said["report"]["spaces"][0].clone();
        let is_there = first["accesses"].as_f64() > Some(0.0);
        is_there.then_some(first).ok_or_else(|| io::Error::other("nothing was counted"))
    }
}

/// Why huepage does nothing here, from how it ended, without what to do then; none where something else went wrong.
fn refusal(error: &str) -> Option<String> {
    let why = error.strip_prefix(&format!("{LACKING}: huepage: "))?;
    Some(why.split("; ").next().unwrap_or(why).to_owned())
}

fn number(said: &Value, name: &str) -> f64 {
    said[name].as_f64().unwrap_or(0.0)
}

/// A word of a command with its numbers: parts of the L2 in whole pages, in KiB, and what is known by name.
fn filled(word: &str, l2: u64, known: &[(&str, String)]) -> String {
    let Some((before, (name, after))) =
        word.split_once('{').and_then(|(b, rest)| Some((b, rest.split_once('}')?)))
    else {
        return word.to_owned();
    };
    let part = name.strip_suffix(" L2").map(|part| {
        let (over, under) = part.split_once('/').unwrap_or((part, "1"));
        let [over, under] = [over, under].map(|number| number.parse::<u64>().unwrap_or(1).max(1));
        (l2 * over / under / 4096 * 4).to_string()
    });
    let value =
        part.or_else(|| known.iter().find(|(own, _)| *own == name).map(|(_, value)| value.clone()));
    format!("{before}{}{}", value.unwrap_or_default(), filled(after, l2, known))
}

/// The words of a program that is to run until its recording ends it, and tells nothing.
fn lasting<T: Into<String>>(words: impl Iterator<Item = T>) -> Vec<String> {
    let mut words: Vec<String> = words.map(Into::into).collect();
    for at in 1..words.len() {
        match words[at - 1].as_str() {
            "--seconds" => FOREVER.clone_into(&mut words[at]),
            "--settle" => "0".clone_into(&mut words[at]),
            _ => {}
        }
    }
    words
}

/// Time of a program for its work, in any unit, as it says itself.
fn time_of(program: &mut Dialogue) -> io::Result<f64> {
    loop {
        let line: Value = program.line()?;
        if let Ok(walk) = serde_json::from_value::<Latency>(line.clone()) {
            return Ok(walk.cpu);
        }
        if let Ok(Said::Steady(work, seconds)) = serde_json::from_value(line) {
            return Ok(seconds / work as f64);
        }
    }
}

fn note(effect: &Effect, found: &Found, verdict: &mut SuiteVerdict) {
    let live = match &found.live {
        Ok(live) => live,
        Err(why) => return verdict.skip(format!("{}: {why}", effect.name)),
    };
    let ratios = live.ratios();
    verdict.row([
        ("effect", effect.name.as_str().into()),
        ("live", round(ratios.median)),
        ("live_min", round(ratios.min)),
        ("live_max", round(ratios.max)),
        ("pairs", live.with.len().into()),
        ("moved", live.moved.map_or(Value::Null, round)),
        ("simulated", round(found.simulated.ratio())),
        ("moved_simulated", round(found.simulated.moved)),
        ("live_over_simulated", round(ratios.median / found.simulated.ratio())),
    ]);
}

/// The page of what was done on a machine.
fn page(done: &[(Effect, Found)], description: &str) -> String {
    let mut text = "| | live, median (least to most) | simulated | live / simulated | moved live | moved simulated |\n\
                    |---|---:|---:|---:|---:|---:|\n"
        .to_owned();
    for (effect, found) in done {
        let _ = writeln!(text, "| {} | {} |", effect.title, cells(found));
    }
    text.push('\n');
    done.iter().for_each(|(effect, found)| text += &section(effect, found));
    let _ =
        write!(text, "## The machine, as the simulator has it\n\n```toml\n{description}```\n\n");
    WORDS.replace(HERE, &text)
}

/// The cells of an effect.
fn cells(Found { live, simulated }: &Found) -> String {
    let (ratio, built) = (simulated.ratio(), simulated.moved);
    let Ok(live) = live else {
        return format!("not on this machine | {ratio:.2} | - | - | {built:.0}");
    };
    let Spread { median, min, max } = live.ratios();
    let moved = live.moved.map_or("-".to_owned(), |moved| format!("{moved:.0}"));
    let over = median / ratio;
    format!("{median:.2} ({min:.2} to {max:.2}) | {ratio:.2} | {over:.2} | {moved} | {built:.0}")
}

/// The part of the page about an effect.
fn section(effect: &Effect, found: &Found) -> String {
    let Effect { title, about, policy, run, simulated, program, .. } = effect;
    let mut text = format!("## {title}\n\n{}\n\n", about.trim());
    for (number, program) in program.iter().enumerate() {
        let command = program.command.join(" ");
        let under = if !run.is_empty() && number == effect.runs {
            format!("; with: under `huepage run {}`", run.join(" "))
        } else {
            program.group.as_ref().map_or(String::new(), |group| {
                format!("; with: in a group of the daemon, `{}`", group.replace('\n', "`, `"))
            })
        };
        let workload = program.workload.as_ref();
        let workload = workload.map_or(String::new(), |own| format!("; simulated as `-w {own}`"));
        let _ = writeln!(text, "- `{command}`{under}{workload}");
    }
    let options = simulated.join(" ");
    let _ = writeln!(
        text,
        "- Simulated: {} accesses, from {} on, caches up to level {}, `--policy {policy} {options}`\n",
        effect.records, effect.warm_up, effect.farthest
    );
    if let Err(why) = &found.live {
        let _ = writeln!(text, "Not on this machine: {why}.\n");
    }
    text.replace(" `\n", "`\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects() -> Vec<Effect> {
        toml::from_str::<EffectFile>(EFFECTS).unwrap().effect
    }

    fn found(without: f64) -> Found {
        let live = Times { without: vec![without; 3], with: vec![2.0, 1.0, 4.0], moved: Some(7.0) };
        Found { live: Ok(live), simulated: SimulatedEffect { cycles: [30.0, 20.0], moved: 5.0 } }
    }

    #[test]
    fn words_get_their_numbers() {
        let known = [("cpu", "1".to_owned())];
        let filled = |word| filled(word, 1 << 20, &known);
        assert_eq!(filled("{3/4 L2}"), "768");
        assert_eq!(filled("random:size={16 L2}K,cpu={cpu}"), "random:size=16384K,cpu=1");
        assert_eq!(filled("plain"), "plain");
    }

    #[test]
    fn every_effect_can_be_had() {
        for effect in effects() {
            let first = &effect.program[0];
            assert!(first.workload.is_none(), "{}: its own trace", effect.name);
            let acts = !effect.run.is_empty() || first.group.is_some();
            assert!(acts && effect.runs < effect.program.len(), "{}", effect.name);
            let known = [("cpu", "0".to_owned()), ("file", "f".to_owned())];
            for program in &effect.program {
                let words: Vec<String> =
                    program.command.iter().map(|word| filled(word, 1 << 20, &known)).collect();
                assert!(words.iter().all(|word| !word.contains('{') && !word.is_empty()));
                if words[0] == "huepage-kernel" {
                    words[1].parse::<huepage_sim::workloads::WorkloadSpec>().unwrap();
                }
            }
        }
    }

    #[test]
    fn a_program_that_is_recorded_lasts() {
        let words = ["--kib", "4", "--settle", "9", "--seconds", "3"];
        let lasting = lasting(words.into_iter());
        assert_eq!(lasting, ["--kib", "4", "--settle", "0", "--seconds", FOREVER]);
    }

    #[test]
    fn what_the_machine_cannot_show_is_told_and_other_errors_are_misses() {
        let why = refusal("101: huepage: the clock is coarse; leave it out").unwrap();
        assert_eq!(why, "the clock is coarse");
        assert_eq!(refusal("125: huepage: no"), None);
        let effect = effects().remove(0);
        let found = Found { live: Err(why), ..found(3.0) };
        let mut verdict = SuiteVerdict::new("live-effects");
        note(&effect, &found, &mut verdict);
        assert!(
            verdict.missed.is_empty() && verdict.rows.is_empty() && verdict.unmeasured().len() == 1
        );
        let page = page(&[(effect, found)], "");
        assert!(
            page.contains("not on this machine | 1.50 |")
                && page.contains("Not on this machine: the clock is")
        );
    }

    #[test]
    fn the_page_has_pairs_in_its_medians_and_says_what_was_run() {
        let done: Vec<(Effect, Found)> =
            effects().into_iter().map(|effect| (effect, found(3.0))).collect();
        let page = page(&done, "name = \"x\"\n");
        assert!(!page.contains(HERE), "{page}");
        for (effect, _) in &done {
            let row = format!("| {} | 1.50 (0.75 to 3.00) | 1.50 | 1.00 | 7 | 5 |", effect.title);
            assert!(
                page.contains(&row) && page.contains(&format!("## {}\n", effect.title)),
                "{page}"
            );
        }
        assert!(page.contains("name = \"x\"") && page.contains("--pollute-buffer=rocs-model"));
    }
}
