//! A write buffer between a cache and what is below it: writes wait in order and are retired
//! one after the other, each taking the same time; the processor stalls only when the buffer
//! is full, or when it reads what still waits (the buffer of Romer 1998, table 4-2, has four
//! entries). Delivering what is retired is the business of the hierarchy.

use serde::{Deserialize, Serialize};

/// The shape of a write buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BufferSpec {
    /// Writes that can wait.
    pub entries: usize,
    /// Cycles to retire one; 0 means that a write waits until the next one comes.
    pub retire: u64,
    /// Whether a write to a line that waits already joins it.
    #[serde(default = "yes")]
    pub merge: bool,
}

const fn yes() -> bool {
    true
}

/// A write that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// Where it writes.
    pub address: u64,
    /// log2 of the bytes it writes; 0 for less than a line.
    pub bits: u32,
    arrived: u64,
}

/// The writes that wait, the oldest first.
#[derive(Clone, Debug)]
pub(super) struct WriteBuffer {
    spec: BufferSpec,
    line_bits: u32,
    /// Those before `first` have been retired; they make room when there is none.
    all: Vec<Held>,
    first: usize,
    /// When the write retired last was done.
    idle_since: u64,
}

impl WriteBuffer {
    pub(super) fn new(spec: BufferSpec, line_bits: u32) -> WriteBuffer {
        let all = Vec::with_capacity(4 * (spec.entries + 1));
        WriteBuffer { spec, line_bits, all, first: 0, idle_since: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.held().len()
    }

    #[inline(always)]
    fn held(&self) -> &[Held] {
        &self.all[self.first..]
    }

    /// Those that were retired make room.
    #[cold]
    fn tidy(&mut self) {
        self.all.drain(..std::mem::take(&mut self.first));
    }

    /// Whether a write to the line of an address waits.
    #[inline(always)]
    pub(super) fn holds(&self, address: u64) -> bool {
        self.held().iter().any(|held| self.same_line(held.address, address))
    }

    /// Takes the oldest out if it is retired by now and not the only one.
    #[inline(always)]
    pub(super) fn due(&mut self, now: u64) -> Option<Held> {
        match self.held() {
            [oldest, _, ..] if self.done(oldest) <= now => self.retire().map(|(held, _)| held),
            _ => None,
        }
    }

    /// Takes the oldest out, and when it is retired.
    #[inline(always)]
    pub(super) fn retire(&mut self) -> Option<(Held, u64)> {
        let oldest = self.held().first().copied()?;
        self.idle_since = self.done(&oldest);
        self.first += 1;
        Some((oldest, self.idle_since))
    }

    /// Adds a write, even if there is no room yet.
    #[inline(always)]
    pub(super) fn push(&mut self, address: u64, bits: u32, now: u64) {
        if self.all.len() == self.all.capacity() {
            self.tidy();
        }
        self.all.push(Held { address, bits, arrived: now });
    }

    /// Lets the youngest write join an older one to the same line; whether there is one.
    #[inline(always)]
    pub(super) fn merge_last(&mut self) -> bool {
        let line_bits = self.line_bits;
        let Some((last, older)) = self.all[self.first..].split_last_mut() else { return false };
        let same = |held: &&mut Held| held.address >> line_bits == last.address >> line_bits;
        let Some(held) = older.iter_mut().find(same).filter(|_| self.spec.merge) else {
            return false;
        };
        held.bits = held.bits.max(last.bits);
        self.all.pop();
        true
    }

    /// Whether there are more than fit; then the youngest arrives when the oldest is retired.
    #[inline(always)]
    pub(super) fn delay_last(&mut self) -> bool {
        let full = self.len() > self.spec.entries;
        let done = self.held().first().filter(|_| full).map(|oldest| self.done(oldest));
        if let (Some(done), Some(last)) = (done, self.all.last_mut()) {
            last.arrived = last.arrived.max(done);
        }
        full
    }

    /// Takes out all writes to the line of an address: how many.
    pub(super) fn take(&mut self, address: u64) -> u64 {
        self.tidy();
        let (before, line_bits) = (self.len(), self.line_bits);
        self.all.retain(|held| held.address >> line_bits != address >> line_bits);
        (before - self.len()) as u64
    }

    #[inline(always)]
    fn same_line(&self, one: u64, other: u64) -> bool {
        one >> self.line_bits == other >> self.line_bits
    }

    #[inline(always)]
    fn done(&self, held: &Held) -> u64 {
        self.idle_since.max(held.arrived) + self.spec.retire
    }
}
