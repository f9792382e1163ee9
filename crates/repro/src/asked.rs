//! What is asked of an experiment: its tables, its workloads, how long they run, and where results go.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::Args;
#[cfg(test)]
use clap::{Command, FromArgMatches as _};
use huepage::exit::{CmdError, ExitCode};
use huepage_sim::workloads::WorkloadSpec;

use crate::run::BatchReader;
use crate::work;

/// Where results go.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// Print JSON: outcomes, tables, figures and claims
    #[arg(long)]
    pub json: bool,

    /// Draw the figures into a directory, which is made
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,

    /// Also write tables and claims into a file, as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,

    /// Also write claims, figures and tables into a file: a page of HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

/// What is asked of an experiment.
#[derive(Args, Debug)]
pub struct Asked {
    /// Tables and figures.
    #[arg(long, default_value = "all")]
    tables: Vec<String>,

    /// Short runs: under two minutes on two CPUs
    #[arg(long)]
    pub quick: bool,

    /// Real programs among the workloads.
    #[command(flatten)]
    pub traces: TraceWorkloads,

    /// Only the workload or trace of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Where results go.
    #[command(flatten)]
    pub output: OutputArgs,

    /// Other lengths and workloads.
    #[arg(skip)]
    pub more: More,
}

/// Lengths and workloads of one's own.
#[derive(Args, Clone, Debug, Default)]
pub struct More {
    /// End every workload after so many accesses, instead of after its own limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub accesses: Option<u64>,

    /// Another workload, as `huepage sim --workload` has them; may be repeated
    #[arg(long, value_name = "NAME=SPEC", value_parser = parse_workload)]
    pub workload: Vec<(String, String)>,
}

/// What is asked of the thesis's experiments.
#[derive(Args, Debug)]
pub struct RomerArgs {
    #[command(flatten)]
    asked: Asked,
    #[command(flatten)]
    more: More,
}

impl RomerArgs {
    /// All of it.
    pub fn asked(self) -> Asked {
        Asked { more: self.more, ..self.asked }
    }
}

/// What is asked of all experiments at once.
#[derive(Args, Debug)]
pub struct AllArgs {
    /// Short runs: some minutes on two CPUs
    #[arg(long)]
    pub quick: bool,

    /// Where the traces are that papers want; those that are not there are recorded (scripts/trace-srm.sh)
    #[arg(long, value_name = "DIR")]
    pub traces: Option<PathBuf>,

    /// Write a page of each into a directory, as Markdown
    #[arg(long, value_name = "DIR")]
    pub markdown: Option<PathBuf>,

    /// Write claims, figures and tables of all into one page of HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl Asked {
    /// All of an experiment.
    pub fn whole(quick: bool, trace: Vec<(String, PathBuf)>, markdown: Option<PathBuf>) -> Asked {
        Asked {
            tables: vec!["all".to_owned()],
            quick,
            traces: TraceWorkloads { trace },
            only: Vec::new(),
            output: OutputArgs { json: false, svg: None, markdown, html: None },
            more: More::default(),
        }
    }

    /// What these words ask for.
    #[cfg(test)]
    pub fn of(words: impl IntoIterator<Item = String>) -> Asked {
        let command = Asked::augment_args(Command::new("of").no_binary_name(true));
        let matches = command.try_get_matches_from(words).expect("words that make sense");
        Asked::from_arg_matches(&matches).expect("what was asked")
    }

    /// Begins the accesses of a built-in workload, or of the trace of this name.
    pub fn begin(
        &self,
        spec: Option<&str>,
        name: &str,
    ) -> Result<BatchReader<'static, CmdError>, CmdError> {
        spec.map_or_else(|| work::trace(self.traces.path(name)?), work::workload)
    }

    /// The options that make a run another than the whole one, as words of a command; tables are
    /// named by `option`. Traces are none of them: they only add to what is run.
    pub fn told(&self, option: &str) -> Vec<String> {
        let quick = self.quick.then(|| "--quick".to_owned());
        let ids = self.ids().into_iter().map(|id| format!("--{option} {id}"));
        let only = self.only.iter().map(|name| format!("--only {}", word(name)));
        let accesses = self.more.accesses.iter().map(|count| format!("--accesses {count}"));
        let workload = |(name, spec): &(String, String)| {
            format!("--workload {}", word(&format!("{name}={spec}")))
        };
        let more = accesses.chain(self.more.workload.iter().map(workload));
        quick.into_iter().chain(ids).chain(only).chain(more).collect()
    }

    /// Tables and figures that were asked for by name; none if all were.
    pub fn ids(&self) -> Vec<&str> {
        let all = self.tables.iter().any(|id| id == "all");
        self.tables.iter().map(String::as_str).filter(|_| !all).collect()
    }

    /// Whether this name is wanted: any, if none was given.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
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

/// Real programs among the workloads.
#[derive(Args, Debug)]
pub struct TraceWorkloads {
    /// A real program among the workloads, from a trace; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_trace)]
    pub trace: Vec<(String, PathBuf)>,
}

impl TraceWorkloads {
    /// Their names.
    pub fn names(&self) -> Vec<&str> {
        self.trace.iter().map(|(name, _)| name.as_str()).collect()
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

fn parse_workload(text: &str) -> Result<(String, String), String> {
    let (name, spec) = text.split_once('=').unwrap_or(("", text));
    if name.is_empty() {
        return Err("expected a name and a workload, such as long=gups:rounds=9".to_owned());
    }
    spec.parse::<WorkloadSpec>().map_err(|error| error.to_string())?;
    Ok((name.to_owned(), spec.to_owned()))
}

/// A word as a shell takes it: names may have blanks.
pub fn word(text: &str) -> String {
    if text.contains(char::is_whitespace) { format!("'{text}'") } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_have_a_name_and_a_file() {
        assert_eq!(parse_trace("gcc=a=b"), Ok(("gcc".to_owned(), "a=b".into())));
        assert!(parse_trace("gcc").is_err() && parse_trace("=x").is_err());
    }

    #[test]
    fn another_workload_has_a_name_and_can_be_started() {
        let found = parse_workload("long=gups:rounds=9");
        assert_eq!(found, Ok(("long".to_owned(), "gups:rounds=9".to_owned())));
        assert!(parse_workload("gups").is_err() && parse_workload("a=nothing").is_err());
    }
}
