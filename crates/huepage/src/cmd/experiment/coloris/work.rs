//! The runs of `huepage experiment coloris`: one case each.

use huepage_sim::experiments::coloris::{Case, Outcome, Program, run};

use crate::cmd::experiment::args::Common;
use crate::cmd::experiment::work::Job;

/// A case, in cycles: how many accesses there will be is not known beforehand.
pub fn job(args: &Common, case: Case) -> Job<'_, Outcome> {
    let mut cores: Vec<u16> = case.programs.iter().map(|&(_, core, _)| core).collect();
    cores.sort_unstable();
    cores.dedup();
    let most = case.times(args.quick).end * cores.len() as u64;
    Job::new(case.name(), most, move |heard| {
        let open = |program: &Program| args.begin(program.spec.as_deref(), &program.name);
        run(&case, args.quick, &open, heard).map(|outcome| vec![outcome])
    })
}
