//! The runs of `huepage experiment coloris`: one case each.

use huepage_sim::experiments::coloris::{Case, Outcome, Program, run};

use crate::cmd::experiment::args::Common;
use crate::cmd::experiment::work::{Piece, failed};
use crate::exit::CmdError;

/// A case.
pub struct Work<'a> {
    /// What was asked for.
    pub args: &'a Common,
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
        let open = |program: &Program| self.args.begin(program.spec.as_deref(), &program.name);
        let outcome = run(&self.case, self.args.quick, &open, heard);
        outcome.map(|outcome| vec![outcome]).map_err(|error| failed(&self.name(), error))
    }
}
