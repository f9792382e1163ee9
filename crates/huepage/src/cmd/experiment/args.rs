//! The arguments of `huepage experiment` and the help that explains them.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use huepage_sim::experiments::run::Batches;

use super::coloris::args::ColorisArgs;
use super::found::Output;
use super::markdown::word;
use super::rocs::args::RocsArgs;
use super::romer::args::RomerArgs;
use super::scolari::args::ScolariArgs;
use super::srm::args::SrmArgs;
use super::work;
use crate::exit::{CmdError, ExitCode};

/// Reproduce the experiments of papers
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  huepage experiment romer --quick")]
pub struct ExperimentArgs {
    /// Which one.
    #[command(subcommand)]
    pub command: Experiment,
}

/// The experiments.
#[derive(Subcommand, Debug)]
pub enum Experiment {
    Romer(RomerArgs),
    Rocs(RocsArgs),
    Coloris(ColorisArgs),
    Srm(SrmArgs),
    Scolari(ScolariArgs),
}

/// What every experiment is told.
#[derive(Args, Debug)]
pub struct Common {
    /// Short runs: under two minutes on two CPUs
    #[arg(long)]
    pub quick: bool,

    /// Real programs among the workloads.
    #[command(flatten)]
    pub traces: Traces,

    /// Only the workload or trace of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Where results go.
    #[command(flatten)]
    pub output: Output,
}

impl Common {
    /// Begins the accesses of a built-in workload, or of the trace of this name.
    pub fn begin(
        &self,
        spec: Option<&str>,
        name: &str,
    ) -> Result<Batches<'static, CmdError>, CmdError> {
        spec.map_or_else(|| work::trace(self.traces.path(name)?), work::workload)
    }

    /// The options that make a run another than the whole one, as words of a command; `ids` were
    /// given with `option`. Traces are none of them: they only add to what is run.
    pub fn told(&self, option: &str, ids: &[String]) -> Vec<String> {
        let quick = self.quick.then(|| "--quick".to_owned());
        let ids = named(ids).into_iter().map(|id| format!("--{option} {id}"));
        let only = self.only.iter().map(|name| format!("--only {}", word(name)));
        quick.into_iter().chain(ids).chain(only).collect()
    }

    /// Whether this name is wanted: any, if none was given.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

/// Takes these tables or figures, or `all`.
pub fn one_of(ids: impl Iterator<Item = &'static str>) -> PossibleValuesParser {
    std::iter::once("all").chain(ids).collect::<Vec<_>>().into()
}

/// Takes a name for something that may not be called as anything else is.
pub fn take_name(
    taken: &mut BTreeSet<String>,
    name: &str,
    of: &dyn Display,
) -> Result<(), CmdError> {
    if taken.insert(name.to_owned()) {
        return Ok(());
    }
    let what = format!("a workload is already named `{name}`; give {of} a name of its own");
    Err(CmdError::new(ExitCode::Usage, what))
}

/// What was asked for by name; nothing if all of it was.
pub fn named(ids: &[String]) -> Vec<&str> {
    let named = ids.iter().map(String::as_str).filter(|id| *id != "all");
    if ids.iter().any(|id| id == "all") { Vec::new() } else { named.collect() }
}

/// Real programs among the workloads.
#[derive(Args, Debug)]
pub struct Traces {
    /// A real program among the workloads, from a trace; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_trace)]
    pub trace: Vec<(String, PathBuf)>,
}

impl Traces {
    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.trace.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Outcomes are found by name: none may be `taken`, by a built-in workload or another trace;
    /// and every file must be readable.
    pub fn check(&self, mut taken: BTreeSet<String>) -> Result<(), CmdError> {
        for (name, path) in &self.trace {
            take_name(&mut taken, name, &path.display())?;
        }
        self.trace.iter().try_for_each(|(_, path)| work::trace(path).map(drop))
    }

    /// The file of the trace of this name.
    pub fn path(&self, name: &str) -> Result<&Path, CmdError> {
        let path = self.trace.iter().find(|(own, _)| own == name).map(|(_, path)| path.as_path());
        path.ok_or_else(|| CmdError::internal(format!("no trace named {name}")))
    }
}

fn parse_trace(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok((name.to_owned(), PathBuf::from(path)))
        }
        _ => Err("expected a name and a file, such as gcc=gcc.trace".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_have_a_name_and_a_file() {
        assert_eq!(parse_trace("gcc=a=b"), Ok(("gcc".to_owned(), "a=b".into())));
        assert!(parse_trace("gcc").is_err() && parse_trace("=x").is_err());
    }
}
