//! The runs of `huepage experiment romer`: a workload with some of the variants of its part.

use huepage_sim::experiments::romer::{Outcome, Program, Variant, run};

use crate::cmd::experiment::args::Common;
use crate::cmd::experiment::work::Job;

/// Variants that share one stream of accesses: enough to make it worth while, few enough to
/// keep all CPUs busy to the end.
pub const AT_ONCE: usize = 8;

/// A workload under some variants of one part.
pub fn job(args: &Common, program: Program, variants: Vec<Variant>) -> Job<'_, Outcome> {
    let each = if args.quick { program.quick } else { program.limit };
    let most = each * variants.len() as u64;
    Job::new(program.name.clone(), most, move |heard| {
        let open = || args.begin(program.spec.as_deref(), &program.name);
        run::run(&program, &variants, args.quick, &open, heard)
    })
}
