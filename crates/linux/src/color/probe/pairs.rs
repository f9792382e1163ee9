//! Which line is loaded before one that is timed: another of its page, so that the translation is at
//! hand, as far away as chance has it, and none that is timed itself or lies beside one.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use huepage_color::PAGE_BYTES;

use super::timing::pair;
use fastrand::Rng;

/// Pairs of lines in a page; processors fetch both lines of one together.
const PAIRS: u64 = PAGE_BYTES / 128;

/// Lines in the form that the timed loop takes. Costs some tens of nanoseconds for each.
pub(crate) fn paired(lines: &[u64]) -> Vec<u64> {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    let mut random = Rng::with_seed(CALLS.fetch_add(1, Ordering::Relaxed));
    let mut timed: HashMap<u64, u32> = HashMap::with_capacity(lines.len());
    for line in lines {
        *timed.entry(line / PAGE_BYTES).or_default() |= 1 << (line % PAGE_BYTES / 128);
    }
    let page = |line: u64| line / PAGE_BYTES;
    let paired = |&line: &u64| pair(line, before(line, timed[&page(line)], &mut random));
    lines.iter().map(paired).collect()
}

/// The line to load before one of a page of which some pairs of lines are timed.
fn before(line: u64, timed: u32, random: &mut Rng) -> u64 {
    let free = [!(timed | timed << 1 | timed >> 1), !timed, !(1 << (line % PAGE_BYTES / 128))];
    let free = free.into_iter().find(|free| *free != 0).unwrap_or(0);
    let mut any = || random.usize(..PAIRS as usize) as u64;
    let mut at = any();
    while free >> at & 1 == 0 {
        at = any();
    }
    line / PAGE_BYTES * PAGE_BYTES + at * 128 + random.usize(..2) as u64 * 64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pair: u64) -> [u64; 2] {
        [pair & !4095 | (pair & 63) << 6, pair & !63]
    }

    #[test]
    fn the_line_before_is_of_the_same_page_and_near_none_that_is_timed() {
        let page = 0x7f12_3456_7000;
        let lines: Vec<u64> = [0, 192, 1024, 4032].map(|offset| page + offset).into();
        for (line, pair) in
            std::iter::repeat_with(|| lines.iter().zip(paired(&lines))).take(100).flatten()
        {
            let [timed, before] = split(pair);
            assert_eq!((timed, before / 4096), (*line, page / 4096));
            assert!(lines.iter().all(|line| line.abs_diff(before) >= 128), "{before:#x}");
        }
    }

    #[test]
    fn its_distance_varies() {
        let lines: Vec<u64> = (0..1000).map(|i| (i << 12) | ((i % 64) << 6)).collect();
        let mut distances: Vec<i64> = paired(&lines)
            .into_iter()
            .map(split)
            .map(|[timed, before]| timed.cast_signed() - before.cast_signed())
            .collect();
        distances.sort_unstable();
        let most = distances.chunk_by(|a, b| a == b).map(<[i64]>::len).max();
        assert!(most < Some(40), "{most:?} of 1000 lines have the same distance");
    }

    #[test]
    fn a_page_of_which_all_is_timed_has_another_line_before_each() {
        let lines: Vec<u64> = (0..64).map(|i| i << 6).collect();
        for (line, pair) in lines.iter().zip(paired(&lines)) {
            let [timed, before] = split(pair);
            assert!(timed == *line && before / 128 != timed / 128);
        }
    }
}
