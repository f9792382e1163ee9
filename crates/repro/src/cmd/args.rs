//! The command line, and the help that explains it: a command for each paper, whose words are in the
//! paper's file.

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::asked::{AllArgs, Asked, RomerArgs};
use crate::engine::{Paper, Study};
use crate::{coloris, rocs, romer, scolari, srm};

/// Run the experiments of papers again, in the simulator
#[derive(Parser, Debug)]
#[command(name = "huepage-repro", version, max_term_width = 100)]
#[command(after_long_help = "Example:\n  huepage-repro romer --quick")]
pub struct ReproCli {
    /// Whose.
    #[command(subcommand)]
    pub paper: PaperArgs,
}

/// The papers.
#[derive(Subcommand, Debug)]
pub enum PaperArgs {
    Romer(RomerArgs),
    Rocs(Asked),
    Coloris(Asked),
    Srm(Asked),
    Scolari(Asked),
    /// All of them, one after the other, with one page of HTML
    #[command(after_long_help = ALL_EXAMPLES)]
    All(AllArgs),
}

const ALL_EXAMPLES: &str = "Examples:
  huepage-repro all --quick
  huepage-repro all --traces /var/tmp/traces --html papers.html
  huepage-repro all --traces /var/tmp/traces --markdown docs/reproductions

Recording needs PostgreSQL and qemu-user; without --traces, what is said of real programs is left out.";

/// All papers.
pub fn papers() -> [&'static Paper; 5] {
    let [romer, rocs, coloris] =
        [romer::RomerStudy::paper(), rocs::RocsStudy::paper(), coloris::ColorisStudy::paper()];
    [romer, rocs, coloris, srm::SrmStudy::paper(), scolari::ScolariStudy::paper()]
}

impl ReproCli {
    /// The arguments of this process; ends it where they make no sense.
    pub fn read() -> ReproCli {
        let describe = |command: Command, paper: &'static Paper| {
            command.mut_subcommand(&*paper.name, |command| described(command, paper))
        };
        let command = papers().into_iter().fold(ReproCli::command(), describe);
        ReproCli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit())
    }
}

fn described(command: Command, paper: &'static Paper) -> Command {
    let long = format!("{}\n\n{}", paper.about, paper.description);
    let command = command.about(&*paper.about).long_about(long).after_long_help(&*paper.examples);
    let command = command.mut_arg("tables", |tables| {
        let known = std::iter::once("all").chain(paper.groups());
        let known: PossibleValuesParser = known.collect::<Vec<_>>().into();
        let name = if paper.option == "table" { "TABLE" } else { "FIGURE" };
        tables.long(&*paper.option).help(&*paper.option_help).value_parser(known).value_name(name)
    });
    match &paper.only {
        Some(only) => command.mut_arg("only", |arg| arg.help(&**only)),
        None => command,
    }
}
