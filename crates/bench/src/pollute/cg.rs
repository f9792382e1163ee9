//! Products of a sparse matrix with a vector, as conjugate gradients and MM of SciMark2 make them
//! (SRM-buffer 2011, section 4.3: values and columns are read once per product, beside scattered reads of
//! a vector). NPB's CG of class A has 14,000 rows of some 130 elements: a vector of 110 KiB beside 22 MiB. The
//! same proportions (0.005) with the vector half of the cache: there are 100 caches of matrix.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::PolluterOptions;
use crate::mix::Rng;
use crate::sys::{self, MappedMemory};

/// Elements of a row.
const PER_ROW: usize = 130;
/// Rows between two looks at the clock.
const BATCH: usize = 256;

/// Runs it.
///
/// # Errors
/// When there is no memory, or nobody to talk to.
pub fn run(options: &PolluterOptions) -> io::Result<()> {
    let mut rng = Rng::with_seed(2);
    let vector = MappedMemory::private(options.of_cache(0.5) / sys::PAGE)?;
    let matrix = MappedMemory::private(options.of_cache(100.0) / sys::PAGE)?;
    let n = vector.words().len();
    for word in vector.words() {
        word.store(f64::to_bits(rng.usize(..1000) as f64 / 1000.0), Relaxed);
    }
    // An element is its column above and its value below, as twelve bytes would be beside each other.
    for word in matrix.words() {
        word.store((rng.usize(..n) as u64) << 32 | rng.u64(..) & 0xffff, Relaxed);
    }
    let (rows, mut row, mut sum) = (matrix.words().len() / PER_ROW, 0, 0.0);
    options.present(&[&matrix], &[&vector], || {
        for _ in 0..BATCH {
            for element in &matrix.words()[row * PER_ROW..(row + 1) * PER_ROW] {
                let element = element.load(Relaxed);
                let x = f64::from_bits(
                    vector.words()[usize::try_from(element >> 32).unwrap_or(0)].load(Relaxed),
                );
                sum += x * (element & 0xffff) as f64;
            }
            row = (row + 1) % rows;
        }
        (BATCH * PER_ROW) as u64
    })?;
    std::hint::black_box(sum);
    Ok(())
}
