//! The runs of `huepage experiment srm`: a case, or the page cache alone in so much memory.

use std::collections::BTreeSet;
use std::path::Path;

use huepage_sim::experiments::srm::hits;
use huepage_sim::experiments::srm::pool::Pool;
use huepage_sim::experiments::srm::programs::{Program, Work as Accesses};
use huepage_sim::experiments::srm::run::Boxed;
use huepage_sim::experiments::srm::{Case, Outcome, run};
use huepage_sim::record::Record;
use huepage_sim::schedule::Source;
use huepage_sim::workloads::Spec;

use crate::cmd::experiment::args::Common;
use crate::cmd::experiment::work::Job;
use crate::cmd::sim::source;
use crate::exit::CmdError;

/// Programs beside each other. Programs beside those that count, and rounds until the last has
/// ended, come on top of the accesses: a guess.
pub fn job(args: &Common, case: Case) -> Job<'_, Outcome> {
    let most = case.limit * (case.programs.len() + case.others.len()) as u64;
    Job::new(name(&case), most, move |heard| run(&case, &|program| open(args, program), heard))
}

fn name(case: &Case) -> String {
    let names = case.programs.iter().map(|program| program.name.as_str());
    let others = (!case.others.is_empty()).then_some(case.beside.as_str());
    names.chain(others).collect::<Vec<_>>().join(" + ")
}

/// The page cache alone in so many MiB.
pub fn hits_job(args: &Common, memory: u64) -> Job<'_, Outcome> {
    let name = format!("postmark in {memory} MiB");
    Job::new(name, hits::uses(args.quick), move |heard| hits::hits(memory, args.quick, heard))
}

/// Begins a program's accesses.
fn open(args: &Common, program: &Program) -> Result<Boxed<'static, CmdError>, CmdError> {
    match &program.work {
        Accesses::Spec(spec) => {
            let spec: Spec = spec.parse().map_err(CmdError::internal)?;
            source::workload(spec, program.volume)
        }
        Accesses::Trace(name) if program.volume > 0 => {
            pooled(args.traces.path(name)?, program.volume)
        }
        Accesses::Trace(name) => source::trace(args.traces.path(name)?),
    }
}

/// A trace whose buffer pool is a file.
struct Pooled {
    inner: Boxed<'static, CmdError>,
    pool: Pool,
    volume: u32,
}

/// Looks for the pool, which takes one time through the trace.
fn pooled(path: &Path, volume: u32) -> Result<Boxed<'static, CmdError>, CmdError> {
    let (mut inner, mut batch, mut pages) = (source::trace(path)?, Vec::new(), BTreeSet::new());
    while inner.next(&mut batch)? {
        Pool::note(&batch, &mut pages);
    }
    inner.restart()?;
    Ok(Box::new(Pooled { inner, pool: Pool::find(&pages), volume }))
}

impl Source<CmdError> for Pooled {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, CmdError> {
        let more = self.inner.next(batch)?;
        self.pool.rewrite(batch);
        Ok(more)
    }

    fn restart(&mut self) -> Result<(), CmdError> {
        self.inner.restart()
    }

    fn volume(&self) -> Option<u32> {
        Some(self.volume)
    }
}
