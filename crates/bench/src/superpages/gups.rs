//! Random updates of a table, as HPCC's RandomAccess makes them: nearly every one misses the
//! TLB where pages are small. It does not check its table; see the test for that.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use clap::Args;

use super::pace::Pace;
use crate::mix::Rng;
use crate::sys::MappedMemory;

/// Updates between two looks at the clock.
const BATCH: usize = 4096;

/// What to do.
#[derive(Args, Clone, Copy, Debug)]
pub struct Gups {
    /// Size of the table, in MiB
    #[arg(long, default_value_t = 512)]
    pub mib: usize,
    /// Seed of the updates
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How long, and whether to wait for others.
    #[command(flatten)]
    pub pace: Pace,
}

/// The table.
#[derive(Debug)]
pub struct GupsTable(MappedMemory);

impl GupsTable {
    /// One of which every page is in memory.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn new(mib: usize) -> io::Result<GupsTable> {
        let area = MappedMemory::private((mib << 8).max(1))?;
        (0..area.pages()).for_each(|page| area.page(page)[0].store(page as u64, Relaxed));
        Ok(GupsTable(area))
    }

    /// So many updates. The same ones once more undo them.
    pub fn update(&self, rng: &mut Rng, count: usize) {
        let words = self.0.words();
        for _ in 0..count {
            let random = rng.u64(..);
            let word = &words[place(random, words.len())];
            word.store(word.load(Relaxed) ^ random, Relaxed);
        }
    }

    /// Writes to one word.
    pub fn touch(&self, rng: &mut Rng) {
        self.update(rng, 1);
    }
}

/// A random number as a place in a table.
fn place(random: u64, len: usize) -> usize {
    usize::try_from((u128::from(random) * len as u128) >> 64).unwrap_or(0)
}

/// Runs it.
///
/// # Errors
/// Those of memory, and of standard input and output.
pub fn run(options: &Gups) -> io::Result<()> {
    let table = GupsTable::new(options.mib)?;
    let mut rng = Rng::with_seed(options.seed);
    options.pace.present(|setup| {
        options.pace.measure(setup, || {
            table.update(&mut rng, BATCH);
            BATCH as u64
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_updates_undo_themselves() {
        let table = GupsTable::new(1).unwrap();
        table.update(&mut Rng::with_seed(5), 100_000);
        let changed = table.0.words().iter().enumerate();
        let changed = changed.filter(|(at, w)| at % 512 != 0 && w.load(Relaxed) != 0).count();
        assert!(changed > 60_000, "{changed}");
        table.update(&mut Rng::with_seed(5), 100_000);
        for (at, word) in table.0.words().iter().enumerate() {
            let first = if at % 512 == 0 { at as u64 / 512 } else { 0 };
            assert_eq!(word.load(Relaxed), first);
        }
    }
}
