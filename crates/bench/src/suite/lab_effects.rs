//! The papers' effects live: programs under a stock kernel on an emulated machine without and with what is tried,
//! beside the simulator on the same machine file, and the paper. What is run is in `bench/lab-effects.toml`. An
//! effect is how many times more lines of the last level a program misses, by its accesses, without than with; or how
//! many times more cycles its pages take beyond the nearest TLB.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;
use serde_json::Value;

use crate::figures::round;
use crate::harness::{Bench, Suite, bounded, progress, wanted};
use crate::residency::Said;
use crate::suite::lab::machine;
use crate::verdict::SuiteVerdict;

/// By how much lab and simulator may differ.
const AGREED: f64 = 1.3;
/// Guests take minutes, on a busy machine more.
const LONGEST: Duration = Duration::from_secs(3 * 3600);
const PAGE: u64 = 4096;
/// Where in a program addresses stand that are confined.
const CONFINED: &str = "START-END";
/// Where the file of a daemon is written.
const GROUPS: &str = "groups.toml";
/// What is run.
const EFFECTS: &str = include_str!("../../../../bench/lab-effects.toml");
/// What the page says around its tables, which take the place of the line [`HERE`].
const WORDS: &str = include_str!("lab_effects.md");
const HERE: &str = "<!-- effects -->\n\n";
/// What it says was run.
const COMMAND: &str = "huepage-bench lab-effects";

/// What is asked for.
#[derive(Args, Clone, Debug)]
pub struct LabEffects {
    /// Only this effect; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// The kernel, as `huepage lab --kernel` takes it
    #[arg(long)]
    kernel: Option<String>,
    /// Also write a page, as docs/reproductions/lab.md
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
    /// A file of `machines`, without ending.
    machine: String,
    /// What lines of that file begin with that are left out.
    leave_out: Option<String>,
    lab: LabRun,
    /// A run of its own of what is tried; else it is the last guest of the one above.
    lab_with: Option<LabRun>,
    #[serde(default)]
    counted: Counted,
    /// What the simulator runs in place of the programs.
    workloads: Vec<String>,
    /// Options of the simulator, those of what it is compared with, and those of what is tried.
    simulated: Vec<String>,
    #[serde(default)]
    without: Vec<String>,
    with: Vec<String>,
    /// The same of an experiment on a difference: what is changed, and to what.
    #[serde(default)]
    experiment: Vec<Experiment>,
    /// How many times more cycles an instruction has to take in the lab without what is tried.
    gain: Option<f64>,
    /// The effect is the share of all that was counted which is saved: the simulator may have nothing left.
    #[serde(default)]
    saved: bool,
    /// The paper's figure, and where that is from.
    paper: Option<f64>,
    paper_says: String,
    about: String,
}

impl Effect {
    /// How large it is: how many times more without what is tried, or the share that is saved.
    fn size(&self, misses: Misses) -> f64 {
        if self.saved { 1.0 - misses.0[1] / misses.0[0] } else { misses.ratio() }
    }

    /// Whether the lab and something else have it as large.
    fn agrees(&self, lab: Misses, other: Misses) -> bool {
        (1.0 / AGREED..=AGREED).contains(&(self.size(lab) / self.size(other)))
    }

    /// Fails where nothing was counted.
    fn checked(&self, misses: Misses) -> io::Result<Misses> {
        let least = if self.saved { -1.0 } else { 0.0 };
        let counted = misses.0[0] > 0.0 && misses.0[1] > least;
        counted
            .then_some(misses)
            .ok_or_else(|| io::Error::other(format!("no {}: {:?}", self.counted.words(), misses.0)))
    }

    /// The machine's description, written into a directory where it is not as it comes.
    fn machine_file(&self, dir: &Path, even: bool) -> io::Result<PathBuf> {
        let path = machine(&format!("{}.toml", self.machine));
        if self.leave_out.is_none() && !even {
            return Ok(path);
        }
        let left_out = |line: &str| self.leave_out.iter().any(|word| line.starts_with(word));
        let text = std::fs::read_to_string(path)?;
        let kept =
            text.lines().filter(|line| !left_out(line)).map(|line| match line.split_once(" = ") {
                Some((key, _)) if even && key.ends_with("latency") => format!("{key} = 1"),
                _ => line.to_owned(),
            });
        let path = dir.join(format!("{}{}.toml", self.name, if even { "-even" } else { "" }));
        std::fs::write(&path, kept.collect::<Vec<_>>().join("\n"))?;
        Ok(path)
    }
}

/// What is counted of an effect, by accesses.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Counted {
    /// Lines that the last level misses.
    #[default]
    Lines,
    /// Cycles that pages take beyond the nearest TLB.
    Pages,
}

impl Counted {
    const fn words(self) -> &'static str {
        match self {
            Counted::Lines => "misses per access",
            Counted::Pages => "cycles of TLBs per access",
        }
    }

    /// Of the first program in a guest.
    fn in_lab(self, guest: &Value) -> io::Result<f64> {
        let program = &guest["programs"][0];
        let share = match self {
            Counted::Lines => program["miss_share"].as_f64(),
            Counted::Pages => by_accesses(&program["tlb"]["cycles"], program),
        };
        share.ok_or_else(|| io::Error::other(format!("no {}: {guest}", self.words())))
    }

    /// Of a program that was simulated.
    fn simulated(self, space: &Value) -> Option<f64> {
        let what = match self {
            Counted::Lines => "memory",
            Counted::Pages => "tlb_cycles",
        };
        by_accesses(&space[what], space)
    }
}

/// Something for each access of a program.
fn by_accesses(what: &Value, program: &Value) -> Option<f64> {
    let accesses = program["accesses"].as_f64().filter(|accesses| *accesses > 0.0);
    Some(what.as_f64()? / accesses?)
}

/// A run of the lab.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LabRun {
    /// Each on a processor of its own; the first is the one that is looked at.
    programs: Vec<String>,
    options: Vec<String>,
    /// The file of a daemon that governs the last guest.
    groups: Option<String>,
    /// What takes the place of [`CONFINED`] in programs.
    confine: Option<Confined>,
}

/// Arrays of a program are confined by hand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Confined {
    /// What says where they are: addresses are the same in every guest.
    places: String,
    /// Shares of its arrays, in the order in which it makes them, from the beginning of each.
    shares: Vec<f64>,
}

impl Confined {
    /// From what a program said of its arrays: whole pages of each, the first and one past the last.
    fn places_in(&self, said: &str) -> Option<String> {
        let arrays = said.lines().filter_map(|line| match serde_json::from_str(line.trim()) {
            Ok(Said::Array(at, bytes)) => Some((at, bytes)),
            _ => None,
        });
        let places = arrays.zip(&self.shares).map(|((at, bytes), share)| {
            // Arrays have some megabytes.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "see above"
            )]
            let bytes = (bytes as f64 * share) as u64;
            let end = (at + bytes).next_multiple_of(PAGE);
            format!("{:x}-{end:x}", at / PAGE * PAGE)
        });
        let places: Vec<String> = places.collect();
        (places.len() == self.shares.len()).then(|| places.join(" --confine "))
    }
}

/// The simulator once more, with something else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    title: String,
    /// Every latency is a cycle, so that programs are equally fast whatever they miss, as in the lab.
    #[serde(default)]
    even: bool,
    /// Options without and with what is tried, in place of the effect's.
    without: Option<Vec<String>>,
    with: Option<Vec<String>>,
}

/// Misses per access, or cycles per instruction, without and with what is tried.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Misses([f64; 2]);

impl Misses {
    /// How many times more without.
    fn ratio(self) -> f64 {
        self.0[0] / self.0[1]
    }
}

/// What was found of an effect.
struct Found {
    lab: Misses,
    /// Cycles for each instruction, where the guests had a PMU.
    cycles: Option<Misses>,
    /// What the policy decided, in words, where one did.
    decided: Option<String>,
    simulated: Misses,
    /// Cycles for each instruction there.
    simulated_cycles: Misses,
    /// Walks for each access, in the lab and simulated, where pages are counted.
    walks: Option<[Misses; 2]>,
    experiments: Vec<(String, Misses)>,
    /// What speaks against the figures of the lab.
    flaw: Option<String>,
}

impl Suite for LabEffects {
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let file: EffectFile = toml::from_str(EFFECTS).map_err(io::Error::other)?;
        let asked = file.effect.into_iter().filter(|effect| wanted(&self.only, &effect.name));
        let mut done = Vec::new();
        for effect in asked {
            let (kernel, file) = (self.kernel.as_deref(), effect.machine_file(bench.dir, false)?);
            match (Laboratory { bench, kernel, effect: &effect, file }).found() {
                Ok(found) => {
                    note(&effect, &found, verdict);
                    done.push((effect, found));
                }
                Err(error) => verdict.miss(format!("{}: cannot be measured: {error}", effect.name)),
            }
        }
        let written = |path| std::fs::write(path, page(&done, &self.only));
        self.markdown.as_ref().map_or(Ok(()), written)
    }
}

/// Where an effect is looked for.
struct Laboratory<'a> {
    bench: Bench<'a>,
    kernel: Option<&'a str>,
    effect: &'a Effect,
    /// The machine's description.
    file: PathBuf,
}

impl Laboratory<'_> {
    fn found(&self) -> io::Result<Found> {
        let Effect { name, experiment, .. } = self.effect;
        progress(&format!("{name}: simulated"));
        let [simulated, simulated_cycles, simulated_walks] =
            self.both(&self.file, &self.effect.without, &self.effect.with)?;
        let experiments =
            experiment.iter().map(|one| self.tried(one)).collect::<io::Result<_>>()?;
        progress(&format!("{name}: in the lab"));
        let guests = self.in_lab()?;
        let lab = self.misses(&guests)?;
        let flaw = guests.iter().find_map(flaw);
        let [before, after] = guests.each_ref().map(cycles);
        let cycles = before.zip(after).map(|(before, after)| Misses([before, after]));
        let [before, after] = guests.each_ref().map(walks);
        let walks = before.zip(after).map(|(before, after)| Misses([before, after]));
        let walks = walks.map(|walks| [walks, simulated_walks]);
        let walks = walks.filter(|_| matches!(self.effect.counted, Counted::Pages));
        let decided = decided(&guests[1]).or_else(|| built(&guests[1]));
        Ok(Found { lab, cycles, decided, simulated, simulated_cycles, walks, experiments, flaw })
    }

    /// What an experiment finds.
    fn tried(&self, experiment: &Experiment) -> io::Result<(String, Misses)> {
        let file = self.effect.machine_file(self.bench.dir, experiment.even)?;
        let Effect { without, with, .. } = self.effect;
        let without = experiment.without.as_ref().unwrap_or(without);
        let with = experiment.with.as_ref().unwrap_or(with);
        let [misses, ..] = self.both(&file, without, with)?;
        Ok((experiment.title.clone(), misses))
    }

    /// What is counted of two guests.
    fn misses(&self, guests: &[Value; 2]) -> io::Result<Misses> {
        let [without, with] = guests.each_ref().map(|guest| self.effect.counted.in_lab(guest));
        self.effect.checked(Misses([without?, with?]))
    }

    /// What the lab says of two guests, without and with what is tried.
    fn in_lab(&self) -> io::Result<[Value; 2]> {
        let Effect { lab, lab_with, .. } = self.effect;
        let mut guests = self.guests(lab)?;
        if let Some(with) = lab_with {
            guests = [guests.pop(), self.guests(with)?.pop()].into_iter().flatten().collect();
        }
        let last = guests.last_chunk::<2>().cloned();
        last.ok_or_else(|| io::Error::other("the lab had fewer than two guests"))
    }

    fn lab(&self) -> std::process::Command {
        let mut command = self.bench.huepage.command(["lab", "--machine"]);
        command.arg(&self.file);
        self.kernel.iter().for_each(|kernel| _ = command.arg("--kernel").arg(kernel));
        command
    }

    /// What the lab says of its guests, in their order.
    fn guests(&self, run: &LabRun) -> io::Result<Vec<Value>> {
        let mut command = self.lab();
        command.arg("--json");
        let confined = run.confine.as_ref().map(|confined| self.places(confined)).transpose()?;
        for (number, program) in run.programs.iter().enumerate() {
            let program = match &confined {
                Some(places) => &program.replace(CONFINED, places),
                None => program,
            };
            command.args(["--on", &number.to_string(), program]);
        }
        if let Some(groups) = &run.groups {
            let file = self.bench.dir.join(GROUPS);
            std::fs::write(&file, groups)?;
            command.arg("--config").arg(file);
        }
        let said: Value =
            bounded(command.args(&run.options).args(self.bench.options), LONGEST)?.json()?;
        Ok(said["columns"].as_array().cloned().unwrap_or_default())
    }

    /// Where what is confined lies in every guest, as options say it.
    fn places(&self, confined: &Confined) -> io::Result<String> {
        let mut command = self.lab();
        let one = ["--cpus", "1", "boot", "--", &confined.places];
        let said = bounded(command.args(one), LONGEST)?.text();
        confined.places_in(&said).ok_or_else(|| io::Error::other(format!("no arrays in {said:?}")))
    }

    /// What the first program misses in the simulator, its cycles, and its walks, without and with what is tried; with
    /// more options.
    fn both(&self, file: &Path, without: &[String], with: &[String]) -> io::Result<[Misses; 3]> {
        let (without, with) = (self.simulated(file, without)?, self.simulated(file, with)?);
        let [misses, cycles, walks] = [0, 1, 2].map(|what| Misses([without[what], with[what]]));
        Ok([self.effect.checked(misses)?, cycles, walks])
    }

    fn simulated(&self, file: &Path, options: &[String]) -> io::Result<[f64; 3]> {
        let mut command = self.bench.huepage.command(["sim", "--json", "--machine"]);
        command.arg(file);
        self.effect.workloads.iter().for_each(|workload| _ = command.arg("-w").arg(workload));
        let said: Value =
            bounded(command.args(&self.effect.simulated).args(options), LONGEST)?.json()?;
        let found = simulated(&said, self.effect.counted);
        found.ok_or_else(|| io::Error::other(format!("no misses in {said}")))
    }
}

/// What is counted of the first program, by its accesses, its cycles by its instructions, and all walks by its accesses.
fn simulated(said: &Value, counted: Counted) -> Option<[f64; 3]> {
    let space = &said["report"]["spaces"][0];
    let amount = |what: &str| space[what].as_f64().filter(|amount| *amount > 0.0);
    let cycles = amount("cycles")? / amount("instructions")?;
    Some([counted.simulated(space)?, cycles, by_accesses(&said["report"]["walks"], space)?])
}

/// Walks for each access of the first program.
fn walks(guest: &Value) -> Option<f64> {
    let program = &guest["programs"][0];
    by_accesses(&program["tlb"]["walks"], program)
}

/// Pages of 2 MiB that were built of the first program.
fn built(guest: &Value) -> Option<String> {
    let report = &guest["programs"][0]["report"]["superpages"];
    Some(format!("{} pages of 2 MiB built", report["promoted"].as_u64()?))
}

/// Cycles for each instruction of the first program.
fn cycles(guest: &Value) -> Option<f64> {
    let of = |what: &str| guest["programs"][0][what].as_f64().filter(|amount| *amount > 0.0);
    Some(of("cycles")? / of("instructions")?)
}

/// What the policy that watched the first program for pages that pollute decided.
fn decided(guest: &Value) -> Option<String> {
    let process = &guest["programs"][0]["report"]["pollute"]["processes"][0];
    let number = |what: &str| process[what].as_u64();
    let (stage, sensor) = (process["stage"].as_str()?, process["sensor"].as_str()?);
    let (pages, trials) = (number("pages_in_buffer")?, number("trials")?);
    Some(format!(
        "{stage}; {pages} pages in the buffer, trials: {trials}, by the sensor `{sensor}`"
    ))
}

/// Why a guest tells nothing.
fn flaw(guest: &Value) -> Option<String> {
    let ended = |program: &Value| program["ended_early"].as_str().map(str::to_owned);
    let ends = guest["programs"].as_array()?.iter().find_map(ended);
    ends.or_else(|| guest["unsettled"].as_str().map(str::to_owned))
}

/// A row, and what is missed.
fn note(effect: &Effect, found: &Found, verdict: &mut SuiteVerdict) {
    let [lab, simulated] = [found.lab, found.simulated];
    let apart = effect.size(lab) / effect.size(simulated);
    verdict.row([
        ("effect", effect.name.as_str().into()),
        ("lab_without", round(lab.0[0])),
        ("lab_with", round(lab.0[1])),
        ("lab", round(effect.size(lab))),
        ("simulated_without", round(simulated.0[0])),
        ("simulated_with", round(simulated.0[1])),
        ("simulated", round(effect.size(simulated))),
        ("paper", effect.paper.map_or(Value::Null, round)),
        ("lab_over_simulated", round(apart)),
        ("lab_cycles", found.cycles.map_or(Value::Null, |cycles| round(cycles.ratio()))),
        ("simulated_cycles", round(found.simulated_cycles.ratio())),
    ]);
    let name = &effect.name;
    if let Some(flaw) = &found.flaw {
        verdict.miss(format!("{name}: {flaw}"));
    }
    if let Some(least) = effect.gain {
        let gained = found.cycles.map_or(0.0, Misses::ratio);
        verdict.require(gained >= least, || {
            format!("{name}: {gained:.2} times fewer cycles in the lab, {least} are asked for")
        });
    }
    let explained = found.experiments.iter().any(|(_, misses)| effect.agrees(lab, *misses));
    verdict.require(effect.agrees(lab, simulated) || explained, || {
        format!("{name}: lab and simulator differ by {apart:.2}, and no experiment says why")
    });
}

/// The page of what was done, where `only` some effects were asked for, or all.
fn page(done: &[(Effect, Found)], only: &[String]) -> String {
    let mut text =
        "| | lab | simulated | paper | lab / simulated |\n|---|---:|---:|---:|---:|\n".to_owned();
    for (effect, found) in done {
        let (lab, simulated) = (effect.size(found.lab), effect.size(found.simulated));
        let (title, paper, over) = (&effect.title, paper(effect), lab / simulated);
        let _ = writeln!(text, "| {title} | {lab:.2} | {simulated:.2} | {paper} | {over:.2} |");
    }
    text.push('\n');
    done.iter().for_each(|(effect, found)| text += &section(effect, found));
    let asked: String = only.iter().map(|name| format!(" --only {name}")).collect();
    WORDS.replace(HERE, &text).replace(COMMAND, &format!("{COMMAND}{asked}"))
}

fn paper(effect: &Effect) -> String {
    effect.paper.map_or("-".to_owned(), |paper| format!("{paper:.2}"))
}

/// What was run, as a list.
fn how(effect: &Effect) -> String {
    let Effect { machine, leave_out, lab, lab_with, .. } = effect;
    let without = leave_out.as_ref().map_or(String::new(), |word| format!(" without its `{word}`"));
    let mut text = format!("- Machine: `{machine}`{without}\n- Lab: {}\n", run(lab));
    if let Some(with) = lab_with {
        let _ = writeln!(text, "- With: {}", run(with));
    }
    if let Some(groups) = lab_with.as_ref().and_then(|with| with.groups.as_ref()) {
        let _ = writeln!(text, "- `{GROUPS}`:\n\n```toml\n{groups}```\n");
    }
    let workloads = code(effect.workloads.iter().flat_map(|workload| ["-w", workload]));
    let [options, without, with] = [&effect.simulated, &effect.without, &effect.with].map(code);
    let without =
        if effect.without.is_empty() { String::new() } else { format!("; without: {without}") };
    let _ = writeln!(text, "- Simulated: {workloads} {options}{without}; with: {with}");
    text
}

/// The part of the page about an effect.
fn section(effect: &Effect, found: &Found) -> String {
    let Effect { title, about, .. } = effect;
    let head = head(effect);
    let mut text = format!("## {title}\n\n{about}\n\n{}\n{head}\n", how(effect));
    text += &line(effect, "lab", found.lab, found.lab);
    text += &line(effect, "simulated", found.simulated, found.lab);
    for (title, misses) in &found.experiments {
        text += &line(effect, title, *misses, found.lab);
    }
    let _ = writeln!(text, "| paper: {} | | | {} | |\n", effect.paper_says, paper(effect));
    if let Some(cycles) = found.cycles {
        let [lab, simulated] = [cycles, found.simulated_cycles].map(|cycles| {
            let ([without, with], ratio) = (cycles.0, cycles.ratio());
            format!("{without:.2} without, {with:.2} with, {ratio:.2} times")
        });
        let _ = writeln!(
            text,
            "Cycles for each instruction in the lab: {lab}; simulated: {simulated}.\n"
        );
    }
    if let Some([lab, simulated]) = found.walks {
        let [lab, simulated] = [lab, simulated].map(|walks| {
            let [without, with] = walks.0;
            format!("{without:.4} without, {with:.4} with")
        });
        let _ = writeln!(text, "Walks per access in the lab: {lab}; simulated: {simulated}.\n");
    }
    if let Some(decided) = &found.decided {
        let _ = writeln!(text, "What the policy decided in the lab: {decided}.\n");
    }
    if let Some(flaw) = &found.flaw {
        let _ = writeln!(text, "Not sound: {flaw}.\n");
    }
    text
}

fn head(effect: &Effect) -> String {
    let (what, size) = (effect.counted.words(), if effect.saved { "saved" } else { "ratio" });
    format!("| | {what}, without | with | {size} | lab over it |\n|---|---:|---:|---:|---:|")
}

fn line(effect: &Effect, title: &str, misses: Misses, lab: Misses) -> String {
    let (size, [without, with]) = (effect.size(misses), misses.0);
    let over = effect.size(lab) / size;
    format!("| {title} | {without:.4} | {with:.4} | {size:.2} | {over:.2} |\n")
}

/// A run of the lab as it is typed.
fn run(run: &LabRun) -> String {
    let numbered = run.programs.iter().enumerate();
    let programs = numbered.map(|(number, program)| format!("`--on {number} '{program}'` "));
    let config = run.groups.as_ref().map(|_| format!("`--config {GROUPS}` "));
    programs.chain(config).collect::<String>() + &code(&run.options)
}

/// Options as they are typed.
fn code(options: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let quoted = options.into_iter().map(|option| match option.as_ref() {
        option if option.contains(' ') => format!("'{option}'"),
        option => option.to_owned(),
    });
    format!("`{}`", quoted.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects() -> Vec<Effect> {
        toml::from_str::<EffectFile>(EFFECTS).unwrap().effect
    }

    fn found(lab: [f64; 2], experiments: Vec<(String, Misses)>) -> Found {
        let [simulated, simulated_cycles] = [Misses([0.2, 0.1]), Misses([9.0, 4.0])];
        let (cycles, decided) = (Some(Misses([3.0, 2.0])), Some("confined".to_owned()));
        let (lab, flaw) = (Misses(lab), None);
        let walks = Some([Misses([0.5, 0.0]), Misses([0.25, 0.0])]);
        Found { lab, cycles, decided, simulated, simulated_cycles, walks, experiments, flaw }
    }

    #[test]
    fn every_effect_has_a_machine_and_workloads_that_exist() {
        let dir = tempfile::tempdir().unwrap();
        for effect in effects() {
            for even in [false, true] {
                let path = effect.machine_file(dir.path(), even).unwrap();
                let text = std::fs::read_to_string(path).unwrap();
                huepage_sim::machine::Machine::parse(&text).unwrap();
                let left_out = |word: &String| !text.lines().any(|line| line.starts_with(word));
                assert!(effect.leave_out.iter().all(left_out), "{text}");
                assert_eq!(even, text.lines().any(|line| line == "memory_latency = 1"), "{text}");
            }
            for workload in &effect.workloads {
                workload.parse::<huepage_sim::workloads::WorkloadSpec>().unwrap();
            }
        }
    }

    #[test]
    fn what_differs_is_missed_unless_an_experiment_says_why() {
        let effect = &effects()[0];
        let missed = |found: &Found| {
            let mut verdict = SuiteVerdict::new("lab-effects");
            note(effect, found, &mut verdict);
            verdict.missed.len()
        };
        assert_eq!(missed(&found([0.5, 0.2], Vec::new())), 0);
        assert_eq!(missed(&found([0.6, 0.2], Vec::new())), 1);
        let why = |misses| vec![("why".to_owned(), Misses(misses))];
        assert_eq!(missed(&found([0.6, 0.2], why([0.3, 0.1]))), 0);
        assert_eq!(missed(&found([0.6, 0.2], why([0.1, 0.1]))), 1);
        let flawed = Found { flaw: Some("it ended".to_owned()), ..found([0.5, 0.2], Vec::new()) };
        assert_eq!(missed(&flawed), 1);
    }

    #[test]
    fn what_is_saved_may_be_all_of_it() {
        let effect = Effect { saved: true, ..effects().remove(0) };
        assert_eq!(effect.size(Misses([0.4, 0.1])), 0.75);
        let nothing_left = effect.checked(Misses([0.3, 0.0])).unwrap();
        assert!(!effect.agrees(Misses([0.4, 0.1]), nothing_left));
        assert!(effect.agrees(Misses([0.4, 0.05]), Misses([0.3, 0.0])));
        assert!(effect.checked(Misses([0.0, 0.0])).is_err(), "nothing to save");
        let counted = Effect { saved: false, ..effect };
        assert!(counted.checked(Misses([0.3, 0.0])).is_err(), "a ratio of everything");
    }

    #[test]
    fn a_gain_that_is_asked_for_is_of_cycles_in_the_lab() {
        let missed = |gain| {
            let effect = Effect { gain: Some(gain), ..effects().remove(0) };
            let mut verdict = SuiteVerdict::new("lab-effects");
            note(&effect, &found([0.5, 0.2], Vec::new()), &mut verdict);
            verdict.missed
        };
        assert_eq!(missed(1.5).len(), 0);
        assert!(missed(1.6)[0].contains("1.50 times fewer cycles"));
    }

    #[test]
    fn a_guest_tells_what_its_first_program_misses() {
        let guest = |share: f64| serde_json::json!({ "programs": [{ "miss_share": share }, {}] });
        let missed = |guest: &Value| Counted::Lines.in_lab(guest);
        assert_eq!((missed(&guest(0.4)).unwrap(), flaw(&guest(0.4))), (0.4, None));
        assert!(missed(&serde_json::json!({ "programs": [{}] })).is_err());
        let tlb = serde_json::json!({ "cycles": 30, "walks": 5 });
        let program = serde_json::json!({ "accesses": 10, "tlb": tlb, "report": {
            "superpages": { "promoted": 7 }
        } });
        let guest = serde_json::json!({ "programs": [program] });
        assert_eq!((Counted::Pages.in_lab(&guest).unwrap(), walks(&guest)), (3.0, Some(0.5)));
        assert_eq!(built(&guest).as_deref(), Some("7 pages of 2 MiB built"));
        let early = serde_json::json!({ "programs": [{}, { "ended_early": "exit status: 2" }] });
        assert_eq!(flaw(&early).as_deref(), Some("exit status: 2"));
        let late = serde_json::json!({ "programs": [], "unsettled": "pages were moved" });
        assert_eq!(flaw(&late).as_deref(), Some("pages were moved"));
    }

    #[test]
    fn a_guest_with_a_pmu_tells_its_cycles_and_what_was_decided() {
        let program = serde_json::json!({ "instructions": 50, "cycles": 150, "report": {
            "pollute": { "processes": [
                { "stage": "confined", "sensor": "pmu", "pages_in_buffer": 7, "trials": 1 }
            ] }
        } });
        let guest = serde_json::json!({ "programs": [program] });
        assert_eq!(cycles(&guest), Some(3.0));
        let said = "confined; 7 pages in the buffer, trials: 1, by the sensor `pmu`";
        assert_eq!(decided(&guest).as_deref(), Some(said));
        let plain = serde_json::json!({ "programs": [{ "accesses": 9 }] });
        assert_eq!((cycles(&plain), decided(&plain)), (None, None));
    }

    #[test]
    fn arrays_are_confined_by_whole_pages() {
        let confined = Confined { places: String::new(), shares: vec![1.0, 0.5] };
        let said = "boot\n{\"array\":[8208,8192]}\n{\"array\":[40960,16384]}\n{\"done\":[1,0.1]}\n";
        assert_eq!(confined.places_in(said).as_deref(), Some("2000-5000 --confine a000-c000"));
        assert_eq!(confined.places_in("{\"array\":[8208,8192]}"), None);
    }

    #[test]
    fn the_simulator_tells_of_the_first_program() {
        let of = |lines: u64, counted| {
            let space = serde_json::json!({
                "memory": lines, "accesses": 50, "cycles": 30, "instructions": 20, "tlb_cycles": 10
            });
            let report = serde_json::json!({ "spaces": [space, {}], "walks": 25 });
            simulated(&serde_json::json!({ "report": report }), counted)
        };
        let lines = Counted::Lines;
        assert_eq!((of(5, lines), of(0, lines)), (Some([0.1, 1.5, 0.5]), Some([0.0, 1.5, 0.5])));
        assert_eq!(of(0, Counted::Pages), Some([0.2, 1.5, 0.5]));
    }

    #[test]
    fn the_page_has_a_row_and_a_section_for_each_effect() {
        let why = || vec![("another order".to_owned(), Misses([0.3, 0.1]))];
        let done: Vec<_> =
            effects().into_iter().map(|effect| (effect, found([0.6, 0.2], why()))).collect();
        let page = page(&done, &["rocs".to_owned()]);
        assert!(page.contains("`huepage-bench lab-effects --only rocs --markdown "), "{page}");
        assert!(!page.contains(HERE) && page.contains("## What the lab does not show"));
        for (effect, _) in &done {
            let sizes = if effect.saved { "0.67 | 0.50" } else { "3.00 | 2.00" };
            assert!(page.contains(&format!("| {} | {sizes} |", effect.title)), "{page}");
            assert!(page.contains(&format!("## {}\n", effect.title)), "{page}");
        }
        assert!(page.contains("| another order | 0.3000 | 0.1000 | 3.00 | 1.00 |"), "{page}");
        assert!(page.contains("3.00 without, 2.00 with, 1.50 times; simulated: 9.00 "), "{page}");
        assert!(page.contains("decided in the lab: confined."), "{page}");
        assert!(page.contains("lab: 0.5000 without, 0.0000 with; simulated: 0.2500 "), "{page}");
    }
}
