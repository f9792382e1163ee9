//! A sparse array: of a large area one page in so many is in use, and these are walked in
//! random order, each step needing the one before. Superpages would make the walk faster and
//! the memory many times larger. It is checked only that every page leads somewhere.
//!
//! Which page of so many is random: at a fixed distance all of them would share a few sets of
//! the cache wherever the memory is contiguous, and the walk would measure that.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use clap::Args;

use super::pace::Pace;
use crate::mix::{Rng, scramble};
use crate::sys::{MappedMemory, PageProt};

/// Steps between two looks at the clock.
const BATCH: usize = 4096;
/// Cache lines of a page, in words.
const LINE: usize = 8;
/// Cache lines of a page.
const LINES: usize = 64;

/// What to do.
#[derive(Args, Clone, Copy, Debug)]
pub struct Sparse {
    /// Size of the area, in MiB
    #[arg(long, default_value_t = 8192)]
    pub mib: usize,
    /// One page in so many is in use
    #[arg(long, default_value_t = 64, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub every: usize,
    /// How long, and whether to wait for others.
    #[command(flatten)]
    pub pace: Pace,
}

/// The array. Each page in use has, in a line that differs from page to page, one more than
/// the number of the next one: a page without its contents leads nowhere.
#[derive(Debug)]
struct Array {
    area: MappedMemory,
    every: usize,
}

impl Array {
    fn new(pages: usize, every: usize, rng: &mut Rng) -> io::Result<Array> {
        let area = MappedMemory::reserve(pages.max(1))?;
        area.protect(0..area.pages(), PageProt::Write)?;
        let array = Array { area, every };
        let mut order: Vec<usize> = (0..array.used()).collect();
        (1..order.len()).rev().for_each(|last| order.swap(last, rng.usize(..last + 1)));
        for (at, page) in order.iter().enumerate() {
            let next = order[(at + 1) % order.len()] as u64 + 1;
            array.word(*page).store(next, Relaxed);
        }
        Ok(array)
    }

    fn used(&self) -> usize {
        self.area.pages().div_ceil(self.every)
    }

    fn word(&self, number: usize) -> &std::sync::atomic::AtomicU64 {
        let within = usize::try_from(scramble(number as u64) % self.every as u64).unwrap_or(0);
        let page = (number * self.every + within).min(self.area.pages() - 1);
        &self.area.page(page)[number % LINES * LINE]
    }

    /// So many steps from a page in use; gives where they end, or nothing if a page is lost.
    fn walk(&self, from: usize, steps: usize) -> Option<usize> {
        let mut at = from;
        for _ in 0..steps {
            at = usize::try_from(self.word(at).load(Relaxed)).ok()?.checked_sub(1)?;
        }
        Some(at)
    }
}

/// Runs it.
///
/// # Errors
/// When a page lost its contents; those of memory, and of standard input and output.
pub fn run(options: &Sparse) -> io::Result<()> {
    let array = Array::new(options.mib << 8, options.every, &mut Rng::with_seed(9))?;
    let mut at = Some(0);
    options.pace.present(|setup| {
        options.pace.measure(setup, || {
            at = at.and_then(|at| array.walk(at, BATCH));
            BATCH as u64
        })
    })?;
    at.map(|_| ()).ok_or_else(|| io::Error::other("a page lost its contents"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walk_sees_every_page_in_use_once_and_no_other_is_in_memory() {
        let array = Array::new(2048, 64, &mut Rng::with_seed(1)).unwrap();
        array.area.advise(0..2048, libc::MADV_NOHUGEPAGE).unwrap();
        let (mut seen, mut at) = ([false; 32], 0);
        for _ in 0..32 {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = array.walk(at, 1).unwrap();
        }
        assert_eq!((at, array.walk(at, 32)), (0, Some(0)));
        array.area.advise(64..128, libc::MADV_DONTNEED).unwrap();
        assert_eq!(array.walk(0, 32), None);
    }
}
