//! What the runs of all experiments have in common: machines, where accesses come from, policies that are
//! looked into, and why a run fails.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use huepage_policy::{Action, Event, Policy};
use huepage_sim::experiment::{Experiment, FrameMapping, WishError};
use huepage_sim::machine::Machine;
use huepage_sim::record::Record;
use huepage_sim::system::{RunError, System};

/// The machine of a description that is part of this program.
///
/// # Errors
/// When it is not sound.
pub fn machine(text: &str) -> Result<Machine, WishError> {
    Machine::parse(text).map_err(|error| WishError::new(error.to_string()))
}

/// A machine that chooses frames in this way for everybody.
pub fn experiment(machine: Machine, mapping: FrameMapping) -> Experiment {
    let (level, partitions, audit) = (None, Vec::new(), None);
    Experiment { machine, level, mapping, partitions, audit, fragment: 0.0 }
}

/// The same at work.
///
/// # Errors
/// When it cannot be built.
pub fn system(machine: Machine, mapping: FrameMapping) -> Result<System, WishError> {
    experiment(machine, mapping).build()
}

/// Something that several share.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A policy that others can look into.
pub struct SharedPolicy<P>(pub Arc<Mutex<P>>);

impl<P: Policy> Policy for SharedPolicy<P> {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        lock(&self.0).handle(event, actions);
    }
}

/// Replaces its argument by the next accesses; false at the end.
pub type BatchReader<'a, E> = Box<dyn FnMut(&mut Vec<Record>) -> Result<bool, E> + 'a>;

/// The accesses of the first program of a trace, which is the one that counts, up to a limit.
pub struct OwnAccesses<'a, E> {
    batches: BatchReader<'a, E>,
    batch: Vec<Record>,
    space: Option<u16>,
    left: u64,
    /// Whether that was all.
    pub over: bool,
}

impl<'a, E> OwnAccesses<'a, E> {
    /// So many of them at most.
    pub const fn new(batches: BatchReader<'a, E>, limit: u64) -> OwnAccesses<'a, E> {
        OwnAccesses { batches, batch: Vec::new(), space: None, left: limit, over: false }
    }

    /// Hands over those of the next batch, as accesses of space 0 and thread 0.
    pub fn next(&mut self, mut take: impl FnMut(Record)) -> Result<(), RunFailed<E>> {
        self.over =
            self.left == 0 || !(self.batches)(&mut self.batch).map_err(RunFailed::Source)?;
        let Some(first) = self.batch.first().filter(|_| !self.over) else { return Ok(()) };
        let space = *self.space.get_or_insert(first.space);
        for record in self.batch.iter().filter(|record| record.space == space) {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            take(Record { space: 0, thread: 0, ..*record });
        }
        Ok(())
    }
}

/// Why a run failed.
#[derive(Debug)]
pub enum RunFailed<E> {
    /// The source of accesses.
    Source(E),
    /// A source that has to begin again at its end has no accesses; its name.
    Empty(String),
    /// A machine, variant or workload cannot be built.
    Wish(WishError),
    /// A machine cannot go on.
    Machine(RunError),
    /// A machine has lost count; in words.
    Unsound(String),
}

impl<E> From<WishError> for RunFailed<E> {
    fn from(error: WishError) -> Self {
        RunFailed::Wish(error)
    }
}

impl<E> From<RunError> for RunFailed<E> {
    fn from(error: RunError) -> Self {
        RunFailed::Machine(error)
    }
}
