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
    /// Few: what takes from the front moves the rest.
    held: Vec<Held>,
    /// When the write retired last was done.
    idle_since: u64,
}

impl WriteBuffer {
    pub(super) fn new(spec: BufferSpec, line_bits: u32) -> WriteBuffer {
        let held = Vec::with_capacity(spec.entries + 1);
        WriteBuffer { spec, line_bits, held, idle_since: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether a write to the line of an address waits.
    pub(super) fn holds(&self, address: u64) -> bool {
        self.held.iter().any(|held| self.same_line(held.address, address))
    }

    /// Takes the oldest out if it is retired by now and not the only one.
    pub(super) fn due(&mut self, now: u64) -> Option<Held> {
        if self.held.len() < 2 {
            return None;
        }
        let oldest = self.held.first()?;
        if self.done(oldest) > now {
            return None;
        }
        self.retire().map(|(held, _)| held)
    }

    /// Takes the oldest out, and when it is retired.
    pub(super) fn retire(&mut self) -> Option<(Held, u64)> {
        let oldest = self.held.first().copied()?;
        self.idle_since = self.done(&oldest);
        self.held.remove(0);
        Some((oldest, self.idle_since))
    }

    /// Adds a write, even if there is no room yet.
    pub(super) fn push(&mut self, address: u64, bits: u32, now: u64) {
        self.held.push(Held { address, bits, arrived: now });
    }

    /// Lets the youngest write join an older one to the same line; whether there is one.
    pub(super) fn merge_last(&mut self) -> bool {
        let Some(&last) = self.held.last().filter(|_| self.spec.merge) else { return false };
        let (line_bits, older) = (self.line_bits, self.held.len() - 1);
        let same = |held: &&mut Held| held.address >> line_bits == last.address >> line_bits;
        let Some(held) = self.held.iter_mut().take(older).find(same) else { return false };
        held.bits = held.bits.max(last.bits);
        self.held.pop();
        true
    }

    /// Whether there are more than fit; then the youngest arrives when the oldest is retired.
    pub(super) fn delay_last(&mut self) -> bool {
        let full = self.held.len() > self.spec.entries;
        let done = self.held.first().filter(|_| full).map(|oldest| self.done(oldest));
        if let (Some(done), Some(last)) = (done, self.held.last_mut()) {
            last.arrived = last.arrived.max(done);
        }
        full
    }

    /// Takes out all writes to the line of an address: how many.
    pub(super) fn take(&mut self, address: u64) -> u64 {
        let (before, line_bits) = (self.held.len(), self.line_bits);
        self.held.retain(|held| held.address >> line_bits != address >> line_bits);
        (before - self.held.len()) as u64
    }

    fn same_line(&self, one: u64, other: u64) -> bool {
        one >> self.line_bits == other >> self.line_bits
    }

    fn done(&self, held: &Held) -> u64 {
        self.idle_since.max(held.arrived) + self.spec.retire
    }
}
