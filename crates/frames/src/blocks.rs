//! A set of numbers that are close together, as blocks of memory are: a bit for each, and a
//! bit for each word of bits that is not empty, level upon level. To add, to remove, to ask
//! and to find the lowest all take the same few steps, whatever the set holds. Memory is two
//! bits or less for each number up to the largest that was ever in it.

use std::iter;

/// Bits in a word.
const BITS: u64 = 64;

/// The set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Blocks {
    /// The lowest level has a bit for each number; the highest is one word.
    levels: Vec<Vec<u64>>,
    len: u64,
}

/// The word of a number, and its bit there.
const fn place(number: u64) -> (usize, u64) {
    ((number / BITS) as usize, 1 << (number % BITS))
}

impl Blocks {
    /// How many numbers it holds.
    pub(crate) const fn len(&self) -> u64 {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let (word, bit) = place(number);
        self.levels.first().and_then(|level| level.get(word)).is_some_and(|bits| bits & bit != 0)
    }

    pub(crate) fn insert(&mut self, number: u64) {
        if self.contains(number) {
            return;
        }
        self.make_room(number);
        self.len += 1;
        let mut at = number;
        for level in &mut self.levels {
            let (word, bit) = place(at);
            let was = level[word];
            level[word] |= bit;
            if was != 0 {
                return;
            }
            at /= BITS;
        }
    }

    /// Whether it was there.
    pub(crate) fn remove(&mut self, number: u64) -> bool {
        if !self.contains(number) {
            return false;
        }
        self.len -= 1;
        let mut at = number;
        for level in &mut self.levels {
            let (word, bit) = place(at);
            level[word] &= !bit;
            if level[word] != 0 {
                break;
            }
            at /= BITS;
        }
        true
    }

    /// All of them, ascending. Words without any are passed over one by one.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let words = (0_u64..).zip(self.levels.first().into_iter().flatten().copied());
        words.filter(|&(_, bits)| bits != 0).flat_map(|(word, bits)| {
            let left = iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)));
            left.take_while(|&bits| bits != 0)
                .map(move |bits| word * BITS + u64::from(bits.trailing_zeros()))
        })
    }

    /// Takes the lowest out.
    pub(crate) fn pop_first(&mut self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let lowest = self.levels.iter().rev().fold(0, |at, level| {
            let word = usize::try_from(at).ok().and_then(|at| level.get(at)).copied();
            at * BITS + u64::from(word.unwrap_or(0).trailing_zeros())
        });
        self.remove(lowest);
        Some(lowest)
    }

    /// Makes every level long enough for a number, and adds levels until the highest is a word.
    fn make_room(&mut self, number: u64) {
        let words =
            iter::successors(Some(place(number).0), |&word| (word > 0).then_some(word / 64));
        for (depth, word) in words.enumerate() {
            if depth == self.levels.len() {
                let below = self.levels.last().map_or(&[][..], Vec::as_slice);
                let mut level = vec![0; below.len().div_ceil(64)];
                for (at, _) in below.iter().enumerate().filter(|(_, bits)| **bits != 0) {
                    level[at / 64] |= 1 << (at % 64);
                }
                self.levels.push(level);
            }
            let level = &mut self.levels[depth];
            if level.len() <= word {
                level.resize(word + 1, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_an_ordered_set(
            steps in proptest::collection::vec((0_u8..4, 0_u64..400_000), 1..400)
        ) {
            let (mut ours, mut naive) = (Blocks::default(), BTreeSet::new());
            for (step, number) in steps {
                // Small numbers first, so that levels are added while it holds some.
                let number = number >> (number % 19);
                match step {
                    0 | 1 => {
                        ours.insert(number);
                        naive.insert(number);
                    }
                    2 => prop_assert_eq!(ours.remove(number), naive.remove(&number)),
                    _ => prop_assert_eq!(ours.pop_first(), naive.pop_first()),
                }
                prop_assert_eq!(ours.contains(number), naive.contains(&number));
                prop_assert_eq!(ours.len(), naive.len() as u64);
            }
            prop_assert!(ours.iter().eq(naive.iter().copied()));
            while let Some(lowest) = naive.pop_first() {
                prop_assert_eq!(ours.pop_first(), Some(lowest));
            }
            prop_assert!(ours.is_empty());
        }
    }
}
