//! The runs of `huepage experiment romer`: a workload with some of the variants of its part.

use huepage_sim::experiments::romer::{Outcome, Program, Variant, run};

use super::args::RomerArgs;
use crate::cmd::experiment::work::{Piece, failed};
use crate::exit::CmdError;

/// Variants that share one stream of accesses: enough to make it worth while, few enough to
/// keep all CPUs busy to the end.
pub const AT_ONCE: usize = 8;

/// A workload under some variants.
pub struct Work<'a> {
    /// What was asked for.
    pub args: &'a RomerArgs,
    /// The workload.
    pub program: Program,
    /// Of one part.
    pub variants: Vec<Variant>,
}

impl Piece for Work<'_> {
    type Outcome = Outcome;

    fn name(&self) -> String {
        self.program.name.clone()
    }

    fn most(&self) -> u64 {
        let each = if self.args.common.quick { self.program.quick } else { self.program.limit };
        each * self.variants.len() as u64
    }

    fn run(&self, heard: &dyn Fn(u64)) -> Result<Vec<Outcome>, CmdError> {
        let open = || self.args.common.begin(self.program.spec.as_deref(), &self.program.name);
        let outcomes =
            run::run(&self.program, &self.variants, self.args.common.quick, &open, heard);
        outcomes.map_err(|error| failed(&self.name(), error))
    }
}
