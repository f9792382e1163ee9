//! A workload as an iterator: it runs on a thread of its own and hands its accesses over block
//! by block, a few blocks ahead at most. For whoever mixes several programs and wants to take
//! the next access of each when its turn comes.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::memory::{AccessSink, Traced};
use super::{FileAccess, FileNumber, FileOp, WorkloadSpec};
use crate::record::Record;

/// Records per block: 64 KiB, so that handing over costs little per record.
const BLOCK: usize = 4096;
/// Blocks that may wait.
const AHEAD: usize = 4;

/// The accesses of a workload from start to end. Dropping it ends the thread at its next block.
#[derive(Debug)]
pub struct WorkloadStream {
    blocks: Receiver<RecordBlock>,
    block: RecordBlock,
    /// Records of the block that were handed out.
    at: usize,
}

/// Accesses in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordBlock {
    /// The accesses.
    pub records: Vec<Record>,
    /// Files deleted, each with the number of accesses before that; in order.
    pub deleted: Vec<(usize, FileNumber)>,
}

impl RecordBlock {
    fn empty() -> RecordBlock {
        RecordBlock { records: Vec::with_capacity(BLOCK), deleted: Vec::new() }
    }

    /// What is left from an access on.
    fn rest(mut self, at: usize) -> RecordBlock {
        self.records.drain(..at);
        self.deleted.retain(|&(before, _)| before >= at);
        self.deleted.iter_mut().for_each(|(before, _)| *before -= at);
        self
    }
}

impl WorkloadStream {
    /// Starts a workload.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(spec: WorkloadSpec) -> std::io::Result<WorkloadStream> {
        let (sender, blocks) = sync_channel(AHEAD);
        let feeder = Feeder { sender, block: RecordBlock::empty() };
        thread::Builder::new().name(spec.workload().name.into()).spawn(move || {
            spec.run_in(&mut Traced::new(feeder));
        })?;
        Ok(WorkloadStream { blocks, block: RecordBlock::default(), at: 0 })
    }

    /// The next accesses, with the deletions of files among them; none at the end.
    pub fn next_block(&mut self) -> Option<RecordBlock> {
        if self.at < self.block.records.len() {
            let at = std::mem::take(&mut self.at);
            return Some(std::mem::take(&mut self.block).rest(at));
        }
        (self.block, self.at) = (RecordBlock::default(), 0);
        self.blocks.recv().ok()
    }
}

impl Iterator for WorkloadStream {
    type Item = Record;

    #[inline]
    fn next(&mut self) -> Option<Record> {
        if self.at == self.block.records.len() {
            (self.block, self.at) = (self.blocks.recv().ok()?, 0);
        }
        let record = self.block.records.get(self.at).copied();
        self.at += usize::from(record.is_some());
        record
    }
}

struct Feeder {
    sender: SyncSender<RecordBlock>,
    block: RecordBlock,
}

/// Why a kernel's thread ends early.
struct NobodyListens;

impl AccessSink for Feeder {
    #[inline]
    fn access(&mut self, record: Record) {
        self.block.records.push(record);
        if self.block.records.len() == BLOCK {
            let block = std::mem::replace(&mut self.block, RecordBlock::empty());
            if self.sender.send(block).is_err() {
                // A kernel has no way to be stopped but this; no message is printed.
                std::panic::resume_unwind(Box::new(NobodyListens));
            }
        }
    }

    fn file(&mut self, access: FileAccess) {
        if access.op == FileOp::Delete {
            self.block.deleted.push((self.block.records.len(), access.file));
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        // The last, short block; if nobody listens it is not missed.
        let _ = self.sender.send(std::mem::take(&mut self.block));
    }
}
