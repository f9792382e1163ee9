//! The runs of `huepage experiment rocs`: a workload under everything.

use huepage_sim::experiments::rocs::{Lengths, Outcome, Program, run};

use crate::cmd::experiment::args::Common;
use crate::cmd::experiment::work::{Piece, failed};
use crate::exit::CmdError;

/// A workload.
pub struct Work<'a> {
    /// What was asked for.
    pub args: &'a Common,
    /// The workload.
    pub program: Program,
}

impl Piece for Work<'_> {
    type Outcome = Outcome;

    fn name(&self) -> String {
        self.program.name.clone()
    }

    /// An access in three instructions, more or less; most end long before.
    fn most(&self) -> u64 {
        let lengths = Lengths::of(self.args.quick);
        let trials = 4 * lengths.most() + (lengths.offline + 1) * (lengths.steps as u64 + 2);
        (self.program.start + trials * self.program.trial) / 3
    }

    fn run(&self, heard: &dyn Fn(u64)) -> Result<Vec<Outcome>, CmdError> {
        let open = || self.args.begin(self.program.spec, &self.program.name);
        let outcome = run::run(&self.program, Lengths::of(self.args.quick), &open, heard);
        outcome.map(|outcome| vec![outcome]).map_err(|error| failed(&self.name(), error))
    }
}
