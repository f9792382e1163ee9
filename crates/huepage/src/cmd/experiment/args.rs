//! The arguments of `huepage experiment` and the help that explains them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use huepage_sim::experiments::romer::run::Batches;

use super::coloris::args::ColorisArgs;
use super::rocs::args::RocsArgs;
use super::romer::args::RomerArgs;
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
        if let Some((name, path)) = self.trace.iter().find(|(name, _)| !taken.insert(name.clone()))
        {
            let path = path.display();
            let what =
                format!("a workload is already named `{name}`; give {path} a name of its own");
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        self.trace.iter().try_for_each(|(_, path)| work::trace(path).map(drop))
    }

    /// Begins the accesses of the trace of this name.
    pub fn open(&self, name: &str) -> Result<Batches<'static, CmdError>, CmdError> {
        work::trace(self.path(name)?)
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
