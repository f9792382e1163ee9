//! The runs of the experiments: a case, or the page cache alone in so much memory; and where the
//! programs' accesses come from.

use std::collections::BTreeSet;
use std::path::Path;

use huepage::exit::CmdError;
use huepage::inputs::source;
use huepage_sim::record::Record;
use huepage_sim::schedule::{AccessSource, BoxedSource};
use huepage_sim::workloads::WorkloadSpec;

use super::cases::SrmCase;
use super::hits;
use super::pool::PoolPlacement;
use super::programs::SrmProgram;
use super::run::{SrmOutcome, run};
use crate::asked::Asked;
use crate::work::StudyJob;

/// Programs beside each other. Programs beside those that count, and rounds until the last has
/// ended, come on top of the accesses: a guess.
pub fn job(asked: &Asked, case: SrmCase) -> StudyJob<'_, SrmOutcome> {
    let most = case.limit * (case.programs.len() + case.others.len()) as u64;
    StudyJob::new(name(&case), most, move |heard| {
        run(&case, &|program| open(asked, program), heard)
    })
}

fn name(case: &SrmCase) -> String {
    let names = case.programs.iter().map(|program| program.name.as_str());
    let others = (!case.others.is_empty()).then_some(case.beside.as_str());
    names.chain(others).collect::<Vec<_>>().join(" + ")
}

/// The page cache alone in so many MiB.
pub fn hits_job(asked: &Asked, memory: u64) -> StudyJob<'_, SrmOutcome> {
    let name = format!("postmark in {memory} MiB");
    StudyJob::new(name, hits::uses(asked.quick), move |heard| {
        hits::hits(memory, asked.quick, heard)
    })
}

/// Begins a program's accesses.
fn open(asked: &Asked, program: &SrmProgram) -> Result<BoxedSource<'static, CmdError>, CmdError> {
    if let Some(spec) = &program.spec {
        let spec: WorkloadSpec = spec.parse().map_err(CmdError::internal)?;
        return source::workload(spec, program.volume);
    }
    let path = asked.traces.path(&program.name)?;
    if program.volume > 0 { pooled(path, program.volume) } else { source::trace(path) }
}

/// A trace whose buffer pool is a file.
struct Pooled {
    inner: BoxedSource<'static, CmdError>,
    pool: PoolPlacement,
    volume: u32,
}

/// Looks for the pool, which takes one time through the trace.
fn pooled(path: &Path, volume: u32) -> Result<BoxedSource<'static, CmdError>, CmdError> {
    let (mut inner, mut batch, mut pages) = (source::trace(path)?, Vec::new(), BTreeSet::new());
    while inner.next(&mut batch)? {
        PoolPlacement::note(&batch, &mut pages);
    }
    inner.restart()?;
    Ok(Box::new(Pooled { inner, pool: PoolPlacement::find(&pages), volume }))
}

impl AccessSource<CmdError> for Pooled {
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
