//! Figure 15: how often PostMark finds a block in the page cache, by the size of memory and the
//! threshold. Only the page cache is simulated, one use of a block at a time; the pool of 32,000
//! files is made first and not counted.

use std::collections::BTreeSet;

use super::cases::{ALONE, SrmPart};
use super::changes::SrmChange;
use super::place::PaperMachine;
use super::run::{SrmOutcome, touch_blocks};
use super::variants::{SrmVariant, machine};
use crate::run::RunFailed;
use huepage_sim::bytes::Bytes;
use huepage_sim::experiment::{FrameMapping, WishError};
use huepage_sim::pagecache::PageCacheSpec;
use huepage_sim::system::System;
use huepage_sim::workloads::{FileAccess, FileOp, WorkloadSpec};

/// Memory in MiB (section 4.5: from 512 MiB to 4 GiB).
pub const MEMORIES: [u64; 4] = [512, 1024, 2048, 4096];
/// The same where there is little time, with an eighth of the files.
pub const QUICK: [u64; 1] = [512];
/// What is compared.
pub const VARIANTS: [SrmVariant; 3] = [SrmVariant::Linux, SrmVariant::Srm(128), SrmVariant::SRM];

/// Files of the pool (section 4.5), and the bytes of one on average.
const FILES: u64 = 32_000;
const FILE_BYTES: u64 = 256 << 10;

/// About how many uses of blocks a run has.
pub const fn uses(quick: bool) -> u64 {
    let files = if quick { FILES / 8 } else { FILES };
    // Making the pool, and as many transactions, of which half make a file.
    VARIANTS.len() as u64 * files * (64 + 48)
}

/// Runs PostMark in so many MiB of memory under each of the variants.
///
/// # Errors
/// When a machine cannot be built or go on.
pub fn hits<E>(
    memory: u64,
    quick: bool,
    heard: &dyn Fn(u64),
) -> Result<Vec<SrmOutcome>, RunFailed<E>> {
    let files = if quick { FILES / 8 } else { FILES };
    let systems = VARIANTS.iter().map(|&variant| Ok((variant, ready(variant, memory)?)));
    let mut systems = systems.collect::<Result<Vec<_>, RunFailed<E>>>()?;
    let spec = format!("postmark:size={},rounds=1", files * FILE_BYTES);
    let spec: WorkloadSpec = spec.parse().map_err(|e| WishError::new(format!("{e}")))?;
    let (mut pool, mut failed, mut done) = (Pool::new(files), None, 0);
    spec.run_files(&mut |call| {
        if pool.is_made_before(&call) {
            systems.iter_mut().for_each(|(_, system)| system.forget_counts());
        }
        let ran = systems.iter_mut().try_for_each(|(_, system)| touch_blocks(system, 0, 0, call));
        failed = failed.or(ran.err());
        done += call.bytes.div_ceil(4096) * VARIANTS.len() as u64;
        if done >= 1 << 18 {
            heard(std::mem::take(&mut done));
        }
    });
    failed.map_or(Ok(()), |error| Err(RunFailed::Machine(error)))?;
    systems.into_iter().map(|(variant, system)| outcome(variant, memory, &system)).collect()
}

/// A machine with 64 colours, as in the paper's reckoning, whose disk counts the blocks read.
fn ready<E>(variant: SrmVariant, memory: u64) -> Result<System, RunFailed<E>> {
    let mut machine = machine(PaperMachine::Xeon)?;
    machine.memory = Bytes(memory << 20);
    machine.page_cache = Some(PageCacheSpec { miss_latency: 1, ..PageCacheSpec::default() });
    // Without colours any frame is as good as another, and the lowest is found at once.
    let (mut system, placement) = variant.build(machine, FrameMapping::InOrder)?;
    system.use_files(0, 0)?;
    placement.prepare(&mut system, 0)?;
    Ok(system)
}

fn outcome<E>(
    variant: SrmVariant,
    memory: u64,
    system: &System,
) -> Result<SrmOutcome, RunFailed<E>> {
    system.check().map_err(RunFailed::Unsound)?;
    let costs = system.costs(0);
    Ok(SrmOutcome {
        part: SrmPart::Hits,
        place: PaperMachine::Xeon,
        program: "postmark".into(),
        among: vec!["postmark".into()],
        beside: ALONE.into(),
        variant,
        change: SrmChange::Nothing,
        counts: true,
        instructions: costs.instructions,
        cycles: costs.cycles(),
        misses: costs.memory,
        policy_cycles: costs.management_cycles(),
        moved: costs.recolorings,
        file_hits: costs.file_hits,
        // A block that is new is not read.
        file_reads: costs.file_cycles,
        memory,
    })
}

/// The files as they are made at the start.
struct Pool {
    wanted: u64,
    made: BTreeSet<u32>,
    latest: u32,
    complete: bool,
}

impl Pool {
    const fn new(wanted: u64) -> Pool {
        Pool { wanted, made: BTreeSet::new(), latest: 0, complete: false }
    }

    /// Whether this call is the first of a transaction.
    fn is_made_before(&mut self, call: &FileAccess) -> bool {
        if self.complete {
            return false;
        }
        if call.op == FileOp::Create && (self.made.len() as u64) < self.wanted {
            self.made.insert(call.file.0);
            self.latest = call.file.0;
            return false;
        }
        self.complete = call.op != FileOp::Write || call.file.0 != self.latest;
        self.complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use huepage_sim::workloads::FileNumber;

    #[test]
    fn the_pool_is_complete_before_the_first_transaction() {
        let mut pool = Pool::new(2);
        let call = |op, file| FileAccess { file: FileNumber(file), op, offset: 0, bytes: 0 };
        let calls = [
            (FileOp::Create, 5, false),
            (FileOp::Write, 5, false),
            (FileOp::Create, 6, false),
            (FileOp::Write, 6, false),
            (FileOp::Write, 5, true),
            (FileOp::Create, 7, false),
            (FileOp::Delete, 5, false),
        ];
        for (op, file, first) in calls {
            assert_eq!(pool.is_made_before(&call(op, file)), first, "{op:?} {file}");
        }
    }
}
