//! The arguments of `huepage experiment romer` and the help that explains them.

use clap::Args;
use huepage_sim::experiments::romer;

use crate::cmd::experiment::args::Traces;
use crate::cmd::experiment::found::Output;

const EXAMPLES: &str = "\
Examples:
  huepage experiment romer --quick                   every table on short runs
  huepage experiment romer --table 3-4 --table 3-5   superpages alone
  huepage experiment romer --trace gcc=gcc.trace --trace perl=perl.trace --json > romer.json
  huepage experiment romer --svg figures --markdown docs/reproductions/romer.md

scripts/trace-romer.sh records gcc, Ghostscript and Perl. Short runs do not repay superpages that
the whole ones do: --quick shows that everything works, not what the claims say.";

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

fn parse_table(text: &str) -> Result<String, String> {
    let known = || romer::tables::ALL.iter().map(|(id, ..)| *id);
    if text == "all" || known().any(|id| id == text) {
        return Ok(text.to_owned());
    }
    Err(format!("expected all or one of {}", known().collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_checked_before_anything_runs() {
        assert_eq!(parse_table("3-4"), Ok("3-4".to_owned()));
        assert!(parse_table("3-9").unwrap_err().contains("6-4"));
    }
}
