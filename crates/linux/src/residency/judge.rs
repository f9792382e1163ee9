//! Tells a line that was found in the cache from one that was not, by what lines take just now that
//! surely are there and that surely are not: latencies drift with clocks and neighbours.

use std::collections::VecDeque;

use huepage_policy::residency::Errors;

/// Latencies that are remembered of each kind.
const REMEMBERED: usize = 128;
/// Latencies of each kind before anything is told apart.
const LEAST: usize = 32;
/// The smallest difference between the two kinds that can be told from noise, in nanoseconds.
const LEAST_GAP: u64 = 6;
/// How far above a hit the cut lies at most, in nanoseconds: lines not loaded for long may come from
/// memory, and those of the process from the next cache, which is nearer.
const FARTHEST: u64 = 15;

/// Lines that are counted for how often it is wrong, before older ones count half.
const MOST_TOLD: u64 = 1 << 14;

/// What was seen lately of lines of one kind.
#[derive(Clone, Debug, Default)]
struct Recent(VecDeque<u64>);

impl Recent {
    fn note(&mut self, took: u64) {
        if self.0.len() == REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(took);
    }

    fn median(&self) -> Option<u64> {
        let mut all: Vec<u64> = self.0.iter().copied().collect();
        all.sort_unstable();
        (all.len() >= LEAST).then(|| all[all.len() / 2])
    }
}

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    there: Recent,
    gone: Recent,
    /// Lines of both kinds that were told apart, and those of them told wrongly.
    told: [[u64; 2]; 2],
}

impl Judge {
    /// A line that was loaded just before took so many nanoseconds.
    pub fn there(&mut self, took: u64) {
        self.tell(0, |cut| took >= cut);
        self.there.note(took);
    }

    /// A line that was not loaded for long took so many.
    pub fn gone(&mut self, took: u64) {
        self.tell(1, |cut| took < cut);
        self.gone.note(took);
    }

    fn tell(&mut self, kind: usize, wrong: impl FnOnce(u64) -> bool) {
        let Some(cut) = self.cut() else { return };
        let told = &mut self.told[kind];
        if told[0] == MOST_TOLD {
            told.iter_mut().for_each(|count| *count /= 2);
        }
        told[0] += 1;
        told[1] += u64::from(wrong(cut));
    }

    /// How often it is wrong, by what it says of lines of which it is known.
    pub fn errors(&self) -> Errors {
        let share = |[all, wrong]: [u64; 2]| wrong as f64 / all.max(1) as f64;
        Errors { found: share(self.told[1]), lost: share(self.told[0]) }
    }

    /// The medians of both kinds, in nanoseconds, once enough was seen.
    pub fn medians(&self) -> Option<[u64; 2]> {
        Some([self.there.median()?, self.gone.median()?])
    }

    /// From how many nanoseconds on a line was not in the cache; `None` if that cannot be told.
    pub fn cut(&self) -> Option<u64> {
        let [there, gone] = self.medians()?;
        (gone >= there + LEAST_GAP).then(|| there + ((gone - there) / 2).min(FARTHEST))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_lies_between_the_kinds_and_follows_them() {
        let mut judge = Judge::default();
        for i in 0..LEAST as u64 {
            assert_eq!(judge.cut(), None);
            judge.there(50 + i % 3);
            judge.gone(90 + i % 20);
        }
        assert_eq!((judge.medians(), judge.cut()), (Some([51, 98]), Some(66)));
        for _ in 0..2 * REMEMBERED {
            judge.there(150);
            judge.gone(160);
        }
        assert_eq!(judge.cut(), Some(155));
        for took in [150, 150, 170, 150] {
            judge.there(took);
        }
        (0..4).for_each(|_| judge.gone(160));
        let errors = judge.errors();
        assert!(errors.lost > 0.0 && errors.lost < 0.7 && errors.found < 0.5, "{errors:?}");
    }

    #[test]
    fn kinds_that_are_alike_are_not_told_apart() {
        let mut judge = Judge::default();
        for _ in 0..LEAST {
            judge.there(50);
            judge.gone(50 + LEAST_GAP - 1);
        }
        assert_eq!(judge.cut(), None);
        assert!(judge.medians().is_some());
    }
}
