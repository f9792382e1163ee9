//! The runs of `huepage experiment scolari`: one case each.

use huepage_sim::experiments::scolari::{Case, Outcome, Program, run};

use crate::cmd::experiment::args::Common;
use crate::cmd::experiment::work::{Piece, failed};
use crate::exit::CmdError;

/// A case.
pub struct Work<'a> {
    /// What was asked for.
    pub args: &'a Common,
    /// Programs on the machine.
    pub case: Case,
}

impl Piece for Work<'_> {
    type Outcome = Outcome;

    fn name(&self) -> String {
        self.case.name()
    }

    /// Cycles: how many accesses there will be is not known beforehand.
    fn most(&self) -> u64 {
        self.case.times(self.args.quick).end * self.case.programs.len() as u64
    }

    fn run(&self, heard: &dyn Fn(u64)) -> Result<Vec<Outcome>, CmdError> {
        let open = |program: &Program| self.args.begin(program.spec.as_deref(), &program.name);
        let outcome = run(&self.case, self.args.quick, &open, heard);
        outcome.map(|outcome| vec![outcome]).map_err(|error| failed(&self.name(), error))
    }
}
