//! What was measured, by machine: `bench/results/MACHINE.json`, one result a line, so that a new
//! measurement shows as one changed line.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::{Deserialize, Serialize};

/// The version of the form.
const SCHEMA: u32 = 1;

/// Why results cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ResultsError {
    /// A file cannot be read or written.
    #[error("{}: {}; name a file that can be read and written", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// A file is no file of results.
    #[error("{}: {}; expected results of `huepage-bench --save`", .0.display(), .1)]
    Form(PathBuf, serde_json::Error),
    /// A file of another version.
    #[error("{}: schema {}; this program knows schema {SCHEMA}", .0.display(), .1)]
    Schema(PathBuf, u32),
}

/// What was measured on one machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineResults {
    /// The version of the form.
    pub schema: u32,
    /// Where.
    pub machine: ResultMachine,
    /// What, in the order of the promises.
    pub results: Vec<ResultEntry>,
}

/// A machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultMachine {
    /// The name of its file.
    pub name: String,
    /// Maker, model, clock and number of CPUs.
    pub cpu: String,
    /// The release of its kernel.
    pub kernel: String,
    /// The cache that is partitioned.
    pub caches: String,
    /// Whether it is a virtual machine.
    pub guest: bool,
    /// Whether it has hardware counters.
    pub pmu: bool,
    /// Its memory, in GiB, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_gib: Option<u32>,
}

/// One figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultEntry {
    /// The promise.
    pub id: String,
    /// Which of its bars; empty where there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub of: String,
    /// The median of the runs, in the bar's unit.
    pub figure: f64,
    /// The bar's unit.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// The lowest and the highest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<[f64; 2]>,
    /// Whether the figure is as promised.
    pub holds: bool,
    /// The bar, as the promise has it.
    pub bar: String,
    /// What measured it.
    pub command: String,
    /// The day, as 2026-11-25.
    pub date: String,
    /// What was measured; for figures older than `--save`, the commit that noted them.
    pub commit: String,
    /// Conditions that matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl MachineResults {
    /// Nothing yet.
    pub fn new(machine: ResultMachine) -> MachineResults {
        MachineResults { schema: SCHEMA, machine, results: Vec::new() }
    }

    /// Reads a file.
    pub fn load(path: &Path) -> Result<MachineResults, ResultsError> {
        let text =
            fs::read_to_string(path).map_err(|error| ResultsError::Io(path.into(), error))?;
        let results: MachineResults =
            serde_json::from_str(&text).map_err(|error| ResultsError::Form(path.into(), error))?;
        match results.schema {
            SCHEMA => Ok(results),
            found => Err(ResultsError::Schema(path.into(), found)),
        }
    }

    /// All files of a checkout, by name.
    pub fn all(root: &Path) -> Result<Vec<MachineResults>, ResultsError> {
        let folder = root.join("bench/results");
        let failed = |error| ResultsError::Io(folder.clone(), error);
        let entries: Result<Vec<_>, _> = fs::read_dir(&folder).map_err(failed)?.collect();
        let mut files: Vec<PathBuf> =
            entries.map_err(failed)?.into_iter().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        files.sort();
        files.iter().map(|path| MachineResults::load(path)).collect()
    }

    /// Takes a figure up, in place of an earlier one of the same.
    pub fn record(&mut self, entry: ResultEntry) {
        let same = |had: &&mut ResultEntry| (&had.id, &had.of) == (&entry.id, &entry.of);
        match self.results.iter_mut().find(same) {
            Some(had) => *had = entry,
            None => self.results.push(entry),
        }
    }

    /// Writes a file.
    pub fn store(&self, path: &Path) -> Result<(), ResultsError> {
        let text = self.text().map_err(|error| ResultsError::Form(path.into(), error))?;
        fs::write(path, text).map_err(|error| ResultsError::Io(path.into(), error))
    }

    /// The figure of a promise.
    pub fn get(&self, id: &str, of: &str) -> Option<&ResultEntry> {
        self.results.iter().find(|entry| entry.id == id && entry.of == of)
    }

    fn text(&self) -> Result<String, serde_json::Error> {
        let machine = serde_json::to_string(&self.machine)?;
        let lines: Result<Vec<String>, _> = self
            .results
            .iter()
            .map(|entry| serde_json::to_string(entry).map(|line| format!("    {line}")))
            .collect();
        let lines = lines?.join(",\n");
        let head = format!("{{\n  \"schema\": {},\n  \"machine\": {machine},\n", self.schema);
        Ok(format!("{head}  \"results\": [\n{lines}\n  ]\n}}\n"))
    }
}
