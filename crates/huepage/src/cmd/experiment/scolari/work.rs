//! The runs of `huepage experiment scolari`: one case each.

use huepage_sim::experiments::scolari::{Case, Outcome, Program, run};

use crate::cmd::experiment::args::Common;
use crate::cmd::experiment::work::Job;

/// A case, in cycles: how many accesses there will be is not known beforehand.
pub fn job(args: &Common, case: Case) -> Job<'_, Outcome> {
    let most = case.times(args.quick).end * case.programs.len() as u64;
    Job::new(case.name(), most, move |heard| {
        let open = |program: &Program| args.begin(program.spec.as_deref(), &program.name);
        run(&case, args.quick, &open, heard).map(|outcome| vec![outcome])
    })
}
