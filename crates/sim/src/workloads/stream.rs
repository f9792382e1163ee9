//! A workload as an iterator: it runs on a thread of its own and hands its accesses over block
//! by block, a few blocks ahead at most. For whoever mixes several programs and wants to take
//! the next access of each when its turn comes.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::Spec;
use super::memory::Sink;
use crate::record::Record;

/// Records per block: 64 KiB, so that handing over costs little per record.
const BLOCK: usize = 4096;
/// Blocks that may wait.
const AHEAD: usize = 4;

/// The accesses of a workload from start to end. Dropping it ends the thread at its next block.
#[derive(Debug)]
pub struct Stream {
    blocks: Receiver<Vec<Record>>,
    block: std::vec::IntoIter<Record>,
}

impl Stream {
    /// Starts a workload.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn start(spec: Spec) -> std::io::Result<Stream> {
        let (sender, blocks) = sync_channel(AHEAD);
        let feeder = Feeder { sender, block: Vec::with_capacity(BLOCK) };
        thread::Builder::new().name(spec.workload().name.into()).spawn(move || {
            spec.run(feeder);
        })?;
        Ok(Stream { blocks, block: Vec::new().into_iter() })
    }
}

impl Iterator for Stream {
    type Item = Record;

    #[inline]
    fn next(&mut self) -> Option<Record> {
        if let Some(record) = self.block.next() {
            return Some(record);
        }
        self.block = self.blocks.recv().ok()?.into_iter();
        self.block.next()
    }
}

struct Feeder {
    sender: SyncSender<Vec<Record>>,
    block: Vec<Record>,
}

/// Why a kernel's thread ends early.
struct NobodyListens;

impl Sink for Feeder {
    #[inline]
    fn access(&mut self, record: Record) {
        self.block.push(record);
        if self.block.len() == BLOCK {
            let block = std::mem::replace(&mut self.block, Vec::with_capacity(BLOCK));
            if self.sender.send(block).is_err() {
                // A kernel has no way to be stopped but this; no message is printed.
                std::panic::resume_unwind(Box::new(NobodyListens));
            }
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        // The last, short block; if nobody listens it is not missed.
        let _ = self.sender.send(std::mem::take(&mut self.block));
    }
}
