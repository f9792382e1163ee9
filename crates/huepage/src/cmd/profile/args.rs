//! The arguments of `huepage profile` and the help that explains them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::runs::TimedProgram;
use crate::partition::{ColorsFrom, Level, parse_colors_from};

const EXAMPLES: &str = "\
Examples:
  huepage profile -- bzip2 -k -c corpus.tar
  huepage profile --sizes 1,2,4,8,16 --repeat 5 -- gnugo --mode gtp < game.gtp
  huepage profile --co-run 'stress-ng --stream 1' -- sqlite3 my.db < queries.sql
  huepage profile --json --svg curve.svg -- ./a.out | jq .need
  huepage profile --sim gcc.trace --machine machines/xeon-e5-1410.toml

huepage runs the program several times and discards its standard output. If standard input is a file, \
each run reads it from the start; otherwise it is empty. Ctrl-C ends the current run and leaves nothing \
behind.";

/// Find out how much cache a program needs
///
/// Runs it in growing shares of the cache, in turns with runs outside of any partition, and says how
/// much slower it is in each, whether it is sensitive (30 % slower in the smallest share), where
/// the knee of its curve is, and which share is enough for 95 % of its speed.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct ProfileArgs {
    /// The shares, in colours [default: powers of two, and all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    pub sizes: Vec<u16>,

    /// Runs in each share; the first one outside a partition is not counted
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,

    /// The cache to partition [default: the L2; of a simulated machine the farthest]
    #[arg(long, value_enum)]
    pub level: Option<Level>,

    /// How the colour of a frame is known [default: what `huepage info` finds]
    #[arg(long, value_name = "SOURCE", value_parser = parse_colors_from)]
    pub colors_from: Option<ColorsFrom>,

    /// A shell command to run at the same time, again and again, in the colours that are left
    #[arg(long, value_name = "CMD", conflicts_with = "sim")]
    pub co_run: Option<String>,

    /// The curve of a trace on a simulated machine instead
    #[arg(long, value_name = "TRACE", requires = "machine", conflicts_with = "command")]
    pub sim: Option<PathBuf>,

    /// The machine for --sim: a file, or a name of `machines/`
    #[arg(long, value_name = "FILE", requires = "sim")]
    pub machine: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Draw the curve into a file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Also write table, verdict and curve into a page of HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// The program and its arguments
    #[arg(
        required_unless_present = "sim",
        value_name = "CMD",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}

impl ProfileArgs {
    /// What is run in each share.
    pub fn timed(&self) -> TimedProgram {
        TimedProgram {
            command: self.command.clone(),
            level: self.level.unwrap_or(Level::L2),
            colors_from: self.colors_from.clone(),
            co_run: self.co_run.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};
    use crate::cmd::run::parsed_plan;

    #[test]
    fn runs_have_the_plan_that_their_options_make() {
        let words =
            ["huepage", "profile", "--level", "llc", "--colors-from", "declared", "--", "true"];
        let Command::Profile(args) = Cli::try_parse_from(words).unwrap().command else {
            unreachable!("it is a profile")
        };
        let plan = args.timed().plan("0-3".to_owned());
        assert!(plan.check().is_ok() && plan.partition.level == Level::Llc);
        let options = plan.partition.options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        assert_eq!(parsed_plan(&options).unwrap(), plan);
    }
}
