//! The runs of `huepage experiment coloris`: one case each.

use huepage_sim::experiments::coloris::corun::Failed;
use huepage_sim::experiments::coloris::{Case, Outcome, Program, run};
use huepage_sim::experiments::romer::run::Batches;

use super::args::ColorisArgs;
use crate::cmd::experiment::work::{self, Piece};
use crate::exit::{CmdError, ExitCode};

/// A case.
pub struct Work<'a> {
    /// What was asked for.
    pub args: &'a ColorisArgs,
    /// Programs on a machine.
    pub case: Case,
}

impl Piece for Work<'_> {
    type Outcome = Outcome;

    fn name(&self) -> String {
        self.case.name()
    }

    /// Cycles: how many accesses there will be is not known beforehand.
    fn most(&self) -> u64 {
        let mut cores: Vec<u16> = self.case.programs.iter().map(|&(_, core, _)| core).collect();
        cores.sort_unstable();
        cores.dedup();
        self.case.times(self.args.quick).end * cores.len() as u64
    }

    fn run(&self, heard: &dyn Fn(u64)) -> Result<Vec<Outcome>, CmdError> {
        let open = |program: &Program| open(self.args, program);
        let outcome = run(&self.case, self.args.quick, &open, heard);
        outcome.map(|outcome| vec![outcome]).map_err(|failed| match failed {
            Failed::Source(error) => error,
            Failed::Empty(name) => {
                let what = format!("{name} has no accesses; give another trace");
                CmdError::new(ExitCode::Usage, what)
            }
            Failed::Wish(what) => CmdError::internal(what),
            Failed::Machine(error) => CmdError::new(ExitCode::Usage, error),
            Failed::Unsound(what) => {
                let name = self.case.name();
                CmdError::internal(format!("the simulator lost count in {name}: {what}"))
            }
        })
    }
}

/// Begins a program's accesses.
fn open(args: &ColorisArgs, program: &Program) -> Result<Batches<'static, CmdError>, CmdError> {
    match &program.spec {
        Some(spec) => work::workload(spec),
        None => args.traces.open(&program.name),
    }
}
