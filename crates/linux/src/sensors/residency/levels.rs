//! What a line takes that is in the private cache and one that is in the cache behind it, from lines of
//! ours that were brought to either just before. Fills the private cache of this CPU while it does so.

use std::ops::Range;

use huepage_color::Pfn;

use crate::color::line_timer::{ResidencyError, TimedLine, Timer};
use crate::color::probe::OwnPages;
use fastrand::Rng;

/// Bytes of a nearest cache, at most: what was loaded last may be in that.
const NEAREST_BYTES: usize = 64 << 10;
/// How often what is to be private is loaded: caches do not always keep what is used once.
const PRIVATE_LOADS: usize = 4;
const PAGE_BYTES_USIZE: usize = 4096;

/// Nanoseconds that lines of both kinds took, with those of the measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) private: Vec<u64>,
    pub(super) next: Vec<u64>,
}

impl Levels {
    /// Measures once more, with the first pages of `own`, whose frames are `frames`, for a private cache of so many
    /// bytes; nothing if there are too few pages. Takes some hundred microseconds.
    ///
    /// # Errors
    /// When the kernel does not run the timer.
    pub fn measure(
        &mut self,
        timer: &mut Timer,
        (own, frames): (&OwnPages, &[Pfn]),
        cache_bytes: u64,
        random: &mut Rng,
    ) -> Result<(), ResidencyError> {
        let Some([next, private]) = stretches(cache_bytes, frames.len()) else { return Ok(()) };
        own.load(next.start..private.start);
        (0..PRIVATE_LOADS).for_each(|_| own.load(private.clone()));
        own.load(private.end..private.end + NEAREST_BYTES / PAGE_BYTES_USIZE);
        // What is private first: timing the others takes its place.
        let mut times = |pages: Range<usize>| time(timer, &frames[pages], random);
        self.private.extend(times(private)?);
        self.next.extend(times(next)?);
        Ok(())
    }
}

/// Pages of which, all between them loaded and [`NEAREST_BYTES`] bytes more, the first are in the next cache
/// alone, and the second in the private one but in none before it.
fn stretches(cache_bytes: u64, pages: usize) -> Option<[Range<usize>; 2]> {
    let cache = usize::try_from(cache_bytes).ok()? / PAGE_BYTES_USIZE;
    let nearest = NEAREST_BYTES / PAGE_BYTES_USIZE;
    let last = (4 * cache).checked_sub(nearest)?;
    let private = last.checked_sub((cache / 2).checked_sub(nearest)?)?..last;
    (last + nearest <= pages && !private.is_empty()).then_some([0..cache, private])
}

/// One line of each page.
fn time(timer: &mut Timer, frames: &[Pfn], random: &mut Rng) -> Result<Vec<u64>, ResidencyError> {
    let mut line = |&frame| TimedLine { frame, index: random.usize(..64).to_le_bytes()[0] };
    let lines: Vec<TimedLine> = frames.iter().map(&mut line).collect();
    let mut took = Vec::with_capacity(lines.len());
    for some in lines.chunks(Timer::MOST) {
        took.extend(timer.time(some)?.into_iter().flatten());
    }
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_lie_apart_and_in_what_there_is() {
        for kib in [256_u64, 512, 1024, 1280, 2048, 4096] {
            let cache = usize::try_from(kib / 4).unwrap();
            let pages = 4 * cache;
            let [next, private] = stretches(kib << 10, pages).unwrap();
            assert!(private.len() >= cache / 4 && private.end + 16 == pages, "{kib}: {private:?}");
            assert!(private.start >= next.end + 2 * cache, "twice the cache between them: {kib}");
            assert_eq!(stretches(kib << 10, pages - 1), None);
        }
        assert_eq!(stretches(64 << 10, 1000), None, "nothing is behind the nearest");
    }
}
