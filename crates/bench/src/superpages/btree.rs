//! Random look-ups in a B-tree that grew by random insertions, so that neighbours in the tree
//! lie anywhere in the heap. Every look-up is checked.

use std::collections::BTreeMap;
use std::io;

use clap::Args;

use super::pace::Pace;
use crate::mix::{Rng, scramble};

/// Look-ups between two looks at the clock.
const BATCH: usize = 1024;

/// What to do.
#[derive(Args, Clone, Copy, Debug)]
pub struct Btree {
    /// Entries
    #[arg(long, default_value_t = 4_000_000)]
    pub entries: usize,
    /// How long, and whether to wait for others.
    #[command(flatten)]
    pub pace: Pace,
}

/// A tree in which the scrambled number has the number.
fn grow(entries: usize) -> BTreeMap<u64, u64> {
    let mut tree = BTreeMap::new();
    (0..entries as u64).for_each(|number| _ = tree.insert(scramble(number), number));
    tree
}

/// Looks up so many; gives how many were right.
fn look_up(tree: &BTreeMap<u64, u64>, rng: &mut Rng, count: usize) -> usize {
    let right = |number: u64| tree.get(&scramble(number)) == Some(&number);
    (0..count).filter(|_| right(rng.usize(..tree.len().max(1)) as u64)).count()
}

/// Runs it.
///
/// # Errors
/// When a look-up is wrong; those of standard input and output.
pub fn run(options: &Btree) -> io::Result<()> {
    let (tree, mut rng, mut wrong) = (grow(options.entries), Rng::with_seed(1), 0);
    options.pace.present(|setup| {
        options.pace.measure(setup, || {
            wrong += BATCH - look_up(&tree, &mut rng, BATCH);
            BATCH as u64
        })
    })?;
    if wrong == 0 { Ok(()) } else { Err(io::Error::other(format!("{wrong} look-ups were wrong"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_found_and_what_is_wrong_is_counted() {
        let mut tree = grow(1000);
        assert_eq!(look_up(&tree, &mut Rng::with_seed(1), 500), 500);
        tree.values_mut().for_each(|value| *value += 1);
        assert_eq!(look_up(&tree, &mut Rng::with_seed(1), 500), 0);
    }
}
