//! `huepage-bench SUITE --save FILE`: the figures of a verdict go into the results of a machine, each with
//! its bar, the command, the day and the commit of the checkout.

use std::path::Path;
use std::process::Command;

use super::SpecError;
use super::results::{MachineResults, ResultEntry, ResultMachine};
use crate::promises::{Bar, Promises};
use crate::verdict::{PromiseFigure, SuiteVerdict};

/// What was run, when, and of which code.
pub struct RunOrigin {
    /// The command line.
    pub command: String,
    /// The day, as 2026-11-25.
    pub date: String,
    /// The commit, with `+` where files have changed since.
    pub commit: String,
}

impl RunOrigin {
    /// Of this process, with the checkout at `root`.
    ///
    /// # Errors
    /// Where `git` or `date` cannot be asked: a figure without its code says nothing.
    pub fn here(root: &Path) -> Result<RunOrigin, SpecError> {
        let words = measuring(std::env::args().skip(1));
        let at = root.to_string_lossy();
        let changed = said("git", &["-C", &at, "status", "--porcelain", "--untracked-files=no"])?;
        let mark = if changed.is_empty() { "" } else { "+" };
        Ok(RunOrigin {
            command: format!("huepage-bench {}", words.join(" ")),
            date: said("date", &["-u", "+%F"])?,
            commit: said("git", &["-C", &at, "rev-parse", "--short", "HEAD"])? + mark,
        })
    }
}

/// Options that say where things lie on one machine, and nothing of what is measured.
const PLACES: [&str; 3] = ["--save", "--huepage", "--dir"];

/// The words of a command line but those that only name places.
fn measuring(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let (mut words, mut is_place) = (Vec::new(), false);
    for word in arguments {
        let option = word.split('=').next().is_some_and(|name| PLACES.contains(&name));
        if !option && !is_place {
            words.push(word);
            continue;
        }
        is_place = option && !word.contains('=');
    }
    words
}

/// What a program says, without the end of the line.
fn said(program: &'static str, arguments: &[&str]) -> Result<String, SpecError> {
    let failed = |why: String| SpecError::Origin(program, why);
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Takes the figures of a verdict up in the results of a machine; how many. A new file begins with this machine.
///
/// # Errors
/// Where the promises or the results cannot be read, a figure has no bar, or nothing was measured.
pub fn save(
    verdict: &SuiteVerdict,
    path: &Path,
    root: &Path,
    origin: &RunOrigin,
) -> Result<usize, SpecError> {
    if verdict.figures.is_empty() {
        return Err(SpecError::NoFigures(verdict.suite.clone()));
    }
    let promises = Promises::read(root)?;
    let mut results = match path.exists() {
        true => MachineResults::load(path)?,
        false => MachineResults::new(ResultMachine::this(&name_of(path))),
    };
    for figure in &verdict.figures {
        results.record(entry(figure, &promises, origin)?);
    }
    results.store(path)?;
    Ok(verdict.figures.len())
}

fn name_of(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A figure with its bar.
fn entry(
    figure: &PromiseFigure,
    promises: &Promises,
    origin: &RunOrigin,
) -> Result<ResultEntry, SpecError> {
    let promised = promises.get(figure.id).and_then(|promise| promise.bar(&figure.of));
    let Some(bar) = promised else { return Err(SpecError::NoBar(figure.id, figure.of.clone())) };
    let Bar { text, unit, .. } = bar;
    Ok(ResultEntry {
        id: figure.id.to_owned(),
        of: figure.of.clone(),
        figure: figure.figure,
        unit: unit.clone(),
        spread: figure.spread,
        holds: bar.holds(figure.figure),
        bar: text.clone(),
        command: origin.command.clone(),
        date: origin.date.clone(),
        commit: origin.commit.clone(),
        note: None,
    })
}

impl ResultMachine {
    /// This one, as far as the kernel describes it.
    pub fn this(name: &str) -> ResultMachine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let processors = read("/proc/cpuinfo");
        let field = |key: &str| {
            let line = processors.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value.trim())
        };
        let l2 = |what: &str| read(&format!("/sys/devices/system/cpu/cpu0/cache/index2/{what}"));
        let kib = read("/proc/meminfo")
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().split(' ').next()?.parse().ok())
            .unwrap_or(0u32);
        let cpus = processors.lines().filter(|line| line.starts_with("processor")).count();
        let (family, model) = (field("cpu family"), field("model\t"));
        ResultMachine {
            name: name.to_owned(),
            cpu: format!("{}, family {family}, model {model}, {cpus} CPUs", field("model name")),
            kernel: read("/proc/sys/kernel/osrelease"),
            caches: format!("L2 {}, {} ways", l2("size"), l2("ways_of_associativity")),
            guest: field("flags").split(' ').any(|flag| flag == "hypervisor"),
            pmu: Path::new("/sys/bus/event_source/devices/cpu").exists(),
            memory_gib: Some(kib.div_ceil(1 << 20)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_saved_without_the_places_of_one_machine() {
        let line = "kept-true --huepage /a/b --minutes 2 --save=c --dir d --share 25%";
        let words = measuring(line.split(' ').map(str::to_owned));
        assert_eq!(words, ["kept-true", "--minutes", "2", "--share", "25%"]);
    }
}
