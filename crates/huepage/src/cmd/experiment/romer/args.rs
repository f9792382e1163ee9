//! The arguments of `huepage experiment romer` and the help that explains them.

use clap::Args;
use huepage_sim::experiments::romer;
use huepage_sim::workloads::Spec;

use crate::cmd::experiment::args::{Common, one_of};

const EXAMPLES: &str = "\
Examples:
  huepage experiment romer --quick                   every table on short runs
  huepage experiment romer --table 3-4 --table 3-5   superpages alone
  huepage experiment romer --trace gcc=gcc.trace --trace perl=perl.trace --json > romer.json
  huepage experiment romer --accesses 200000000 --table 3-4 --trace gs=gs.trace --only gs
  huepage experiment romer --workload long=gups:rounds=9 --only long --accesses 300000000
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
    #[arg(long, value_name = "TABLE", default_value = "all")]
    #[arg(value_parser = one_of(romer::tables::ALL.iter().map(|(id, ..)| *id)))]
    pub table: Vec<String>,

    /// End every workload after so many accesses, instead of after its own limit
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub accesses: Option<u64>,

    /// Another workload, as `huepage sim --workload` has them; may be repeated
    #[arg(long, value_name = "NAME=SPEC", value_parser = parse_workload)]
    pub workload: Vec<(String, String)>,

    /// What every experiment is told.
    #[command(flatten)]
    pub common: Common,
}

fn parse_workload(text: &str) -> Result<(String, String), String> {
    let (name, spec) = text.split_once('=').unwrap_or(("", text));
    if name.is_empty() {
        return Err("expected a name and a workload, such as long=gups:rounds=9".to_owned());
    }
    spec.parse::<Spec>().map_err(|error| error.to_string())?;
    Ok((name.to_owned(), spec.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_workload_has_a_name_and_can_be_started() {
        let found = parse_workload("long=gups:rounds=9");
        assert_eq!(found, Ok(("long".to_owned(), "gups:rounds=9".to_owned())));
        assert!(parse_workload("gups").is_err() && parse_workload("a=nothing").is_err());
    }
}
