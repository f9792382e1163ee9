//! Tells a line that was found in the private cache from one that was not, by what lines take just now
//! of which it is known where they are: latencies drift with clocks and neighbours. Where the next
//! cache is too near for this machine's clock, lines that are there count as found, and it is said.

use std::collections::VecDeque;

use huepage_policy::residency::Errors;

use super::levels::Levels;

/// Latencies that are remembered of each kind.
const REMEMBERED_LATENCIES: usize = 128;
/// Latencies of each kind before anything is told apart.
const FEWEST_LATENCIES: usize = 32;
/// The smallest difference between what is there and what is not that can be told from noise, in
/// nanoseconds.
const LEAST_GAP_NS: u64 = 6;
/// How far above a hit the cut lies at most, in nanoseconds, if it may be anywhere: lines not loaded for
/// long may come from memory, and those of the process from the next cache, which is nearer.
const FARTHEST_CUT_NS: u64 = 15;
/// The private cache and the next are told apart if no more looks than this go wrong, of both together.
const MOST_WRONG_SHARE: f64 = 0.5;
/// Cuts that differ by less in that are as good.
const SAME_WRONG_SHARE: f64 = 0.01;
/// By what share lines that are there take more or less until latencies are other ones.
const DRIFT_SHARE: f64 = 0.1;

/// Lines that are counted for how often it is wrong, before older ones count half.
const COUNTED_LINES: u64 = 1 << 14;

/// What was seen lately of lines of one kind.
#[derive(Clone, Debug, Default)]
struct Recent(VecDeque<u64>);

impl Recent {
    fn note(&mut self, took: u64) {
        if self.0.len() == REMEMBERED_LATENCIES {
            self.0.pop_front();
        }
        self.0.push_back(took);
    }

    fn mean(&self) -> Option<f64> {
        let sum: u64 = self.0.iter().sum();
        (self.0.len() >= FEWEST_LATENCIES).then(|| sum as f64 / self.0.len() as f64)
    }

    fn median(&self) -> Option<u64> {
        (self.0.len() >= FEWEST_LATENCIES).then(|| median(self.0.iter().copied()))
    }
}

/// How both levels are told apart.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Apart {
    /// From so many nanoseconds on a line was not in the private cache.
    cut: u64,
    /// Shares of lines told wrongly: those of the next cache, and those of the private one.
    errors: Errors,
    /// The median of lines of the next cache.
    next: u64,
}

impl Apart {
    /// Where most of both kinds are on the right side; none if too few are.
    fn of(Levels { private, next }: &Levels) -> Option<Apart> {
        if private.len().min(next.len()) < FEWEST_LATENCIES {
            return None;
        }
        let middle = median(next.iter().copied());
        if middle < median(private.iter().copied()) + LEAST_GAP_NS {
            return None;
        }
        let mut cuts: Vec<u64> = private.iter().chain(next).copied().collect();
        cuts.sort_unstable();
        cuts.dedup();
        let wrong: Vec<Errors> = cuts.iter().map(|&cut| wrong(private, next, cut)).collect();
        let sum = |errors: &Errors| errors.found + errors.lost;
        let least = wrong.iter().map(sum).min_by(f64::total_cmp)?;
        // Of cuts that are as good, the one in the middle: latencies drift to either side.
        let good = |errors: &&Errors| sum(errors) <= least + SAME_WRONG_SHARE;
        let first = wrong.iter().position(|errors| good(&errors))?;
        let last = first + wrong[first..].iter().take_while(good).count() - 1;
        let at = first + (last - first) / 2;
        let below = at.checked_sub(1).map_or(cuts[at], |before| cuts[before]);
        // The others may be lines of memory, if that cache takes few from ours, and its own be nearer.
        let lowest = first.checked_sub(1).map_or(cuts[first], |before| cuts[before] + 1);
        let nearest = lowest.max(median(private.iter().copied()) + FARTHEST_CUT_NS);
        let cut = (below + cuts[at]).div_ceil(2).min(nearest);
        (least <= MOST_WRONG_SHARE).then_some(Apart { cut, errors: wrong[at], next: middle })
    }
}

fn wrong(private: &[u64], next: &[u64], cut: u64) -> Errors {
    let share = |some: &[u64], is: fn(u64, u64) -> bool| {
        some.iter().filter(|took| is(**took, cut)).count() as f64 / some.len() as f64
    };
    Errors {
        found: share(next, |took, cut| took < cut),
        lost: share(private, |took, cut| took >= cut),
    }
}

fn median(all: impl Iterator<Item = u64>) -> u64 {
    let mut all: Vec<u64> = all.collect();
    all.sort_unstable();
    all[all.len() / 2]
}

/// Lines that were counted, and those of them that were of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Share([u64; 2]);

impl Share {
    fn note(&mut self, is: bool) {
        if self.0[0] == COUNTED_LINES {
            self.0.iter_mut().for_each(|count| *count /= 2);
        }
        self.0[0] += 1;
        self.0[1] += u64::from(is);
    }

    /// `none` before anything was counted.
    fn or(self, none: f64) -> f64 {
        if self.0[0] == 0 { none } else { self.0[1] as f64 / self.0[0] as f64 }
    }
}

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(super) struct HitClassifier {
    there: Recent,
    gone: Recent,
    apart: Option<Apart>,
    /// What lines that are there took after the levels were measured, and how many were seen since.
    then: Option<f64>,
    since: usize,
    /// Lines of both kinds that were told apart, and those of them told wrongly.
    told: [Share; 2],
    /// Lines of the process that were not in the private cache, and those of them in the next.
    near: Share,
}

impl HitClassifier {
    /// A line that was loaded just before took so many nanoseconds.
    pub fn there(&mut self, took: u64) {
        if let Some(cut) = self.cut() {
            self.told[0].note(took >= cut);
        }
        self.there.note(took);
        self.since += 1;
        if self.since == REMEMBERED_LATENCIES {
            self.then = self.there.mean();
        }
    }

    /// A line that was not loaded for long took so many.
    pub fn gone(&mut self, took: u64) {
        if let Some(cut) = self.cut() {
            self.told[1].note(took < cut);
        }
        self.gone.note(took);
    }

    /// A line of the process took so many; whether it was in the cache.
    pub fn found(&mut self, took: u64) -> Option<bool> {
        let found = took < self.cut()?;
        if let (Some(apart), false) = (self.apart, found) {
            self.near.note(took < self.far(apart));
        }
        Some(found)
    }

    /// From how many nanoseconds on a line came from beyond the next cache.
    fn far(&self, apart: Apart) -> u64 {
        let gone = self.gone.median().unwrap_or(0);
        if gone >= apart.next + LEAST_GAP_NS { apart.next.midpoint(gone) } else { u64::MAX }
    }

    /// Both levels were measured.
    pub fn learn(&mut self, levels: &Levels) {
        self.apart = Apart::of(levels);
        (self.then, self.since) = (None, 0);
    }

    /// Whether lines in the next cache are told from those in the private one, and how many of both
    /// together are told wrongly.
    pub fn apart(&self) -> Option<f64> {
        self.apart.map(|apart| apart.errors.found + apart.errors.lost)
    }

    /// Whether latencies are others than after the levels were measured.
    pub fn drifted(&self) -> bool {
        let both = self.there.mean().zip(self.then);
        both.is_some_and(|(now, then)| (now - then).abs() > DRIFT_SHARE * then)
    }

    /// How often it is wrong, by what it says of lines of which it is known.
    pub fn errors(&self) -> Errors {
        let Some(Apart { errors, .. }) = self.apart else {
            return Errors { found: self.told[1].or(0.0), lost: self.told[0].or(0.0) };
        };
        // Only those of the next cache that are told as such were counted.
        let near = self.near.or(1.0) / (1.0 - errors.found).max(0.1);
        let far = 1.0 - self.near.or(1.0);
        Errors { found: errors.found * near / (near + far), ..errors }
    }

    /// The medians of lines there and gone, in nanoseconds, once enough was seen.
    pub fn medians(&self) -> Option<[u64; 2]> {
        Some([self.there.median()?, self.gone.median()?])
    }

    /// From how many nanoseconds on a line was not in the cache; `None` if that cannot be told.
    pub fn cut(&self) -> Option<u64> {
        if let Some(apart) = self.apart {
            return Some(apart.cut);
        }
        let [there, gone] = self.medians()?;
        (gone >= there + LEAST_GAP_NS).then(|| there + ((gone - there) / 2).min(FARTHEST_CUT_NS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cut_lies_between_the_kinds_and_follows_them() {
        let mut classifier = HitClassifier::default();
        for i in 0..FEWEST_LATENCIES as u64 {
            assert_eq!(classifier.cut(), None);
            classifier.there(50 + i % 3);
            classifier.gone(90 + i % 20);
        }
        assert_eq!((classifier.medians(), classifier.cut()), (Some([51, 98]), Some(66)));
        for _ in 0..2 * REMEMBERED_LATENCIES {
            classifier.there(150);
            classifier.gone(160);
        }
        assert_eq!(classifier.cut(), Some(155));
        for took in [150, 150, 170, 150] {
            classifier.there(took);
        }
        (0..4).for_each(|_| classifier.gone(160));
        let errors = classifier.errors();
        assert!(errors.lost > 0.0 && errors.lost < 0.7 && errors.found < 0.5, "{errors:?}");
    }

    /// A clock with steps of ten nanoseconds: what lies between two steps is either, by chance.
    fn coarse(took: u64, n: u64) -> Vec<u64> {
        (0..n).map(|i| (took + i * 7 % 10) / 10 * 10).collect()
    }

    #[test]
    fn a_coarse_clock_tells_levels_that_are_a_step_apart() {
        let mut classifier = HitClassifier::default();
        classifier.learn(&Levels { private: coarse(71, 200), next: coarse(80, 200) });
        assert!(classifier.apart().is_some_and(|wrong| wrong < 0.15), "{classifier:?}");
        assert_eq!((classifier.found(70), classifier.found(80)), (Some(true), Some(false)));
        assert!(classifier.errors().lost > 0.05, "those that were told as the next step");
        classifier.learn(&Levels { private: coarse(71, 200), next: coarse(74, 200) });
        assert_eq!(classifier.apart(), None, "too near");
        classifier.learn(&Levels { private: coarse(71, 10), next: coarse(100, 10) });
        assert_eq!((classifier.apart(), classifier.cut()), (None, None), "too few");
    }

    #[test]
    fn a_fine_clock_cuts_in_the_middle() {
        let mut classifier = HitClassifier::default();
        let some = |from: u64| (0..100).map(|i| from + i % 5).collect();
        classifier.learn(&Levels { private: some(40), next: some(60) });
        assert_eq!((classifier.apart(), classifier.cut()), (Some(0.0), Some(52)));
        classifier.learn(&Levels { private: some(40), next: some(120) });
        assert_eq!(classifier.cut(), Some(42 + FARTHEST_CUT_NS), "that may be memory");
        classifier.learn(&Levels { private: some(40), next: some(60) });
        // What memory brings is none of those that are told wrongly.
        (0..FEWEST_LATENCIES).for_each(|_| classifier.gone(150));
        (0..100)
            .for_each(|i| assert_eq!(classifier.found(if i < 50 { 61 } else { 150 }), Some(false)));
        assert!((classifier.near.or(0.0) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn it_is_noticed_that_latencies_are_others_now() {
        let mut classifier = HitClassifier::default();
        (0..REMEMBERED_LATENCIES).for_each(|_| classifier.there(60));
        classifier.learn(&Levels::default());
        // Lines may be timed in another way from then on.
        (0..REMEMBERED_LATENCIES).for_each(|_| classifier.there(70));
        assert!(!classifier.drifted());
        (0..REMEMBERED_LATENCIES).for_each(|_| classifier.there(60));
        assert!(classifier.drifted());
    }

    #[test]
    fn kinds_that_are_alike_are_not_told_apart() {
        let mut classifier = HitClassifier::default();
        for _ in 0..FEWEST_LATENCIES {
            classifier.there(50);
            classifier.gone(50 + LEAST_GAP_NS - 1);
        }
        assert_eq!(classifier.cut(), None);
        assert!(classifier.medians().is_some());
    }
}
