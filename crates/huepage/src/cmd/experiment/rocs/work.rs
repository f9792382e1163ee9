//! The runs of `huepage experiment rocs`: a workload under everything.

use huepage_sim::experiments::rocs::run::{self, RunFailed};
use huepage_sim::experiments::rocs::{Lengths, Outcome, Program};

use super::args::RocsArgs;
use crate::cmd::experiment::work::{self, Piece};
use crate::exit::{CmdError, ExitCode};

/// A workload.
pub struct Work<'a> {
    /// What was asked for.
    pub args: &'a RocsArgs,
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
        let name = &self.program.name;
        let open = || match self.program.spec {
            Some(spec) => work::workload(spec),
            None => self.args.traces.open(name),
        };
        let outcome = run::run(&self.program, Lengths::of(self.args.quick), &open, heard);
        outcome.map(|outcome| vec![outcome]).map_err(|error| match error {
            RunFailed::Source(error) => error,
            RunFailed::Wish(error) => CmdError::internal(error),
            RunFailed::Machine(error) => CmdError::new(ExitCode::Usage, error),
            RunFailed::Unsound(what) => {
                CmdError::internal(format!("the simulator lost count on {name}: {what}"))
            }
        })
    }
}
