//! What the runs of all experiments have in common: where accesses come from, and why a run fails.

use huepage_sim::experiment::WishError;
use huepage_sim::record::Record;
use huepage_sim::system::RunError;

/// Replaces its argument by the next accesses; false at the end.
pub type BatchReader<'a, E> = Box<dyn FnMut(&mut Vec<Record>) -> Result<bool, E> + 'a>;

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
