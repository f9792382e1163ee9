//! A workload as an iterator: it runs on a thread of its own and hands its accesses over block
//! by block, a few blocks ahead at most. For whoever mixes several programs and wants to take
//! the next access of each when its turn comes.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::memory::Sink;
use super::{FileAccess, FileId, FileOp, Spec};
use crate::record::Record;

/// Records per block: 64 KiB, so that handing over costs little per record.
const BLOCK: usize = 4096;
/// Blocks that may wait.
const AHEAD: usize = 4;

/// The accesses of a workload from start to end. Dropping it ends the thread at its next block.
#[derive(Debug)]
pub struct Stream {
    blocks: Receiver<Block>,
    block: Block,
    /// Records of the block that were handed out.
    at: usize,
}

/// Accesses in a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// The accesses.
    pub records: Vec<Record>,
    /// Files deleted, each with the number of accesses before that; in order.
    pub deleted: Vec<(usize, FileId)>,
}

impl Block {
    fn empty() -> Block {
        Block { records: Vec::with_capacity(BLOCK), deleted: Vec::new() }
    }

    /// What is left from an access on.
    fn rest(mut self, at: usize) -> Block {
        self.records.drain(..at);
        self.deleted.retain(|&(before, _)| before >= at);
        self.deleted.iter_mut().for_each(|(before, _)| *before -= at);
        self
    }
}

impl Stream {
    /// Starts a workload.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(spec: Spec) -> std::io::Result<Stream> {
        let (sender, blocks) = sync_channel(AHEAD);
        let feeder = Feeder { sender, block: Block::empty() };
        thread::Builder::new().name(spec.workload().name.into()).spawn(move || {
            spec.run(feeder);
        })?;
        Ok(Stream { blocks, block: Block::default(), at: 0 })
    }

    /// The next accesses, with the deletions of files among them; none at the end.
    pub fn next_block(&mut self) -> Option<Block> {
        if self.at < self.block.records.len() {
            let at = std::mem::take(&mut self.at);
            return Some(std::mem::take(&mut self.block).rest(at));
        }
        (self.block, self.at) = (Block::default(), 0);
        self.blocks.recv().ok()
    }
}

impl Iterator for Stream {
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
    sender: SyncSender<Block>,
    block: Block,
}

/// Why a kernel's thread ends early.
struct NobodyListens;

impl Sink for Feeder {
    #[inline]
    fn access(&mut self, record: Record) {
        self.block.records.push(record);
        if self.block.records.len() == BLOCK {
            let block = std::mem::replace(&mut self.block, Block::empty());
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
