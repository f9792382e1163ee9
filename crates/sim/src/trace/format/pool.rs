//! Threads that encode blocks: encoding is what recording a program waits for. Blocks come
//! back in the order in which they were given, whatever thread is done first, and the same
//! thread always gets the same blocks, so that equal records make equal files.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::block::Encoder;
use super::{BLOCK_HEAD, BLOCK_RECORDS};
use crate::record::Record;

/// Blocks that a thread has at once: the one it encodes and the next.
const AT_ONCE: usize = 2;

/// A block but for its head, for which there is room.
pub struct Piece {
    /// Room for the head, then the payload.
    pub packed: Vec<u8>,
    /// Records in it.
    pub records: usize,
    /// Instructions of its records.
    pub instructions: u64,
}

/// The pieces of a batch, and the batch to be used again.
type Encoded = (io::Result<Vec<Piece>>, Vec<Record>);

struct Worker {
    todo: SyncSender<Vec<Record>>,
    done: Receiver<Encoded>,
}

/// Encoders on threads of their own. They end when it is dropped.
pub struct EncoderPool {
    workers: Vec<Worker>,
    batch: Vec<Record>,
    /// Batches given, and batches got back.
    given: usize,
    got: usize,
}

impl EncoderPool {
    /// Starts that many threads, at least one.
    pub fn new(threads: usize) -> io::Result<EncoderPool> {
        let workers = (0..threads.max(1)).map(|_| Worker::start()).collect::<io::Result<_>>()?;
        Ok(EncoderPool { workers, batch: Vec::with_capacity(BLOCK_RECORDS), given: 0, got: 0 })
    }

    /// Takes a record; true when there is a batch to hand over.
    #[inline]
    pub fn push(&mut self, record: &Record) -> bool {
        self.batch.push(*record);
        self.batch.len() == BLOCK_RECORDS
    }

    /// Hands the records over to a thread. Gives pieces that are next in the file, if it had
    /// to wait for some.
    pub fn hand_over(&mut self) -> io::Result<Vec<Piece>> {
        let full = self.given - self.got == self.workers.len() * AT_ONCE;
        let (pieces, used) = if full { self.take()? } else { Default::default() };
        let batch = std::mem::replace(&mut self.batch, used);
        let worker = &self.workers[self.given % self.workers.len()];
        worker.todo.send(batch).map_err(|_| gone())?;
        self.given += 1;
        Ok(pieces)
    }

    /// The next pieces of the file; none when all were given.
    pub fn collect(&mut self) -> io::Result<Option<Vec<Piece>>> {
        if !self.batch.is_empty() {
            return self.hand_over().map(Some);
        }
        if self.got == self.given { Ok(None) } else { self.take().map(|(pieces, _)| Some(pieces)) }
    }

    fn take(&mut self) -> io::Result<(Vec<Piece>, Vec<Record>)> {
        let worker = &self.workers[self.got % self.workers.len()];
        let (pieces, mut used) = worker.done.recv().map_err(|_| gone())?;
        self.got += 1;
        used.clear();
        Ok((pieces?, used))
    }
}

fn gone() -> io::Error {
    io::Error::other("a thread that encodes has ended")
}

impl Worker {
    fn start() -> io::Result<Worker> {
        let (todo, batches) = sync_channel::<Vec<Record>>(AT_ONCE);
        let (sender, done) = sync_channel(AT_ONCE);
        let mut encoder = Encoder::new()?;
        thread::Builder::new().name("packer".to_owned()).spawn(move || {
            for batch in batches {
                if sender.send((encode(&mut encoder, &batch), batch)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Worker { todo, done })
    }
}

/// One piece for a batch, more if dictionaries fill.
fn encode(encoder: &mut Encoder, batch: &[Record]) -> io::Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut instructions = 0;
    for record in batch {
        if !encoder.push(record) {
            pieces.push(piece(encoder, std::mem::take(&mut instructions))?);
            encoder.push(record);
        }
        instructions += u64::from(record.instructions);
    }
    pieces.push(piece(encoder, instructions)?);
    Ok(pieces)
}

fn piece(encoder: &mut Encoder, instructions: u64) -> io::Result<Piece> {
    let records = encoder.len();
    let mut packed = vec![0; BLOCK_HEAD];
    encoder.finish(&mut packed)?;
    Ok(Piece { packed, records, instructions })
}
