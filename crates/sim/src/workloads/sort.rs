//! Merge sort of records of one cache line each.

use super::Parameters;
use super::memory::{Array, Checksum, ProgramMemory, SplitMix};

/// Words of a record; the first is its key.
const RECORD: usize = 8;

/// Sorts an array of 64-byte records by a two-way merge without recursion, `rounds` times with
/// fresh keys. The size is that of the array and of the room it is merged into.
///
/// Stands for mergesort (SRM-buffer section 2: 64-byte records, an array of up to 1.5 MiB and
/// a working set of twice that): each pass reads one array and writes the other from start
/// to end, so that a record comes back after one whole pass; while both fit in the cache all
/// is well, and a scan beside it takes that away (114 % slower).
pub fn mergesort<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = (p.size / (2 * 8 * RECORD)).max(1);
    let mut sum = Checksum::default();
    let (mut from, mut to) = (m.array(n * RECORD), m.array(n * RECORD));
    for round in 0..p.rounds {
        let mut random = SplitMix::new(p.seed.wrapping_add(round as u64));
        m.fill(&mut from, |_| random.word());
        sort(m, &mut from, &mut to);
        for at in (0..n).map(|record| record * RECORD) {
            sum.add(m.load(&from, at));
        }
    }
    sum.value()
}

/// Sorts `from`, with `to` as room.
fn sort<M: ProgramMemory>(m: &mut M, from: &mut Array<u64>, to: &mut Array<u64>) {
    let n = from.len() / RECORD;
    let mut run = 1;
    while run < n {
        for start in (0..n).step_by(2 * run) {
            merge(m, from, to, [start, (start + run).min(n), (start + 2 * run).min(n)]);
        }
        std::mem::swap(from, to);
        run *= 2;
    }
}

/// Merges the two sorted runs between three bounds.
fn merge<M: ProgramMemory>(m: &mut M, from: &Array<u64>, to: &mut Array<u64>, bounds: [usize; 3]) {
    let [start, middle, end] = bounds;
    let (mut left, mut right) = (start, middle);
    for out in start..end {
        m.work(6);
        let take_left = right == end
            || left < middle && m.load(from, left * RECORD) <= m.load(from, right * RECORD);
        let taken = if take_left { &mut left } else { &mut right };
        for word in 0..RECORD {
            let value = m.load(from, *taken * RECORD + word);
            m.store(to, out * RECORD + word, value);
        }
        *taken += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Native;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_are_sorted_whole_and_in_order(keys in prop::collection::vec(0_u64..20, 1..100)) {
            let word = |at: usize| match at % RECORD {
                0 => keys[at / RECORD],
                _ => (at / RECORD) as u64,
            };
            let mut a = Native.filled(keys.len() * RECORD, word);
            let mut room = Native.array(keys.len() * RECORD);
            sort(&mut Native, &mut a, &mut room);
            let mut want: Vec<(u64, u64)> = keys.iter().copied().zip(0..).collect();
            want.sort();
            for (record, (key, number)) in a.peek().chunks(RECORD).zip(want) {
                prop_assert_eq!(record[0], key);
                prop_assert!(record[1..].iter().all(|&word| word == number));
            }
        }
    }
}
