//! The runs of `huepage experiment rocs`: a workload under everything.

use huepage_sim::experiments::rocs::{Lengths, Outcome, Program, run};

use crate::cmd::experiment::args::Common;
use crate::cmd::experiment::work::Job;

/// A workload.
pub fn job(args: &Common, program: Program) -> Job<'_, Outcome> {
    let lengths = Lengths::of(args.quick);
    Job::new(program.name.clone(), most(&program, lengths), move |heard| {
        let open = || args.begin(program.spec, &program.name);
        run::run(&program, lengths, &open, heard).map(|outcome| vec![outcome])
    })
}

/// An access in three instructions, more or less; most end long before.
fn most(program: &Program, lengths: Lengths) -> u64 {
    let trials = 4 * lengths.most() + (lengths.offline + 1) * (lengths.steps as u64 + 2);
    (program.start + trials * program.trial) / 3
}
