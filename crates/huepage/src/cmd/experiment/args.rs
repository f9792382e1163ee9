//! The arguments of `huepage experiment` and the help that explains them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use huepage_sim::experiments::romer;

const EXAMPLES: &str = "\
Examples:
  huepage experiment romer --quick                   every table on short runs
  huepage experiment romer --table 3-4 --table 3-5   superpages alone
  huepage experiment romer --trace gcc=gcc.trace --trace perl=perl.trace --json > romer.json
  huepage experiment romer --svg figures --markdown docs/reproductions/romer.md

scripts/trace-romer.sh records gcc, Ghostscript and Perl. Short runs do not repay superpages that
the whole ones do: --quick shows that everything works, not what the claims say.";

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
}

/// Superpages and recolouring: the tables of Romer's thesis (1998) beside ours
///
/// Runs workloads that stand for the thesis's on its simulated machines under its policies and
/// later ones, on all CPUs, and says which of its statements hold.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct RomerArgs {
    /// A table (3-4, 3-5, 4-6, 5-2, 5-3, 6-3, 6-4, 6-5), a figure as a table (f3-3, f3-4, f4-1,
    /// f4-1r, f5-4, f6-6), or all; may be repeated
    #[arg(long, value_name = "TABLE", default_value = "all", value_parser = parse_table)]
    pub table: Vec<String>,

    /// Short runs: under two minutes on two CPUs
    #[arg(long)]
    pub quick: bool,

    /// A real program among the workloads, from a trace; may be repeated
    #[arg(long, value_name = "NAME=FILE", value_parser = parse_trace)]
    pub trace: Vec<(String, PathBuf)>,

    /// Only the workload or trace of this name; may be repeated
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,

    /// Print JSON: outcomes, tables, figures and claims
    #[arg(long)]
    pub json: bool,

    /// Draw the figures into a directory, which is made
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,

    /// Also write tables and claims into a file, as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

fn parse_table(text: &str) -> Result<String, String> {
    let known = || romer::tables::ALL.iter().map(|(id, ..)| *id);
    if text == "all" || known().any(|id| id == text) {
        return Ok(text.to_owned());
    }
    Err(format!("expected all or one of {}", known().collect::<Vec<_>>().join(", ")))
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
    fn tables_and_traces_are_checked_before_anything_runs() {
        assert_eq!(parse_table("3-4"), Ok("3-4".to_owned()));
        assert!(parse_table("3-9").unwrap_err().contains("6-4"));
        assert_eq!(parse_trace("gcc=a=b"), Ok(("gcc".to_owned(), "a=b".into())));
        assert!(parse_trace("gcc").is_err() && parse_trace("=x").is_err());
    }
}
