//! What a latency says: two histograms of latencies, of pages whose own class was streamed and of
//! pages that another class was streamed against, and the logarithm of their ratio. Both are learnt
//! from pages of known class, all the time. Where neighbours evict lines too, the histograms
//! overlap and a latency says less: noise costs time, and does not mislead.

/// Bins of a histogram.
const BINS: usize = 20;
/// Bins below the latency of a page that was not evicted.
const BELOW: i32 = 3;
/// The most that one latency may say, in nats: noise has a memory, which histograms do not show.
const BOUND: f32 = 4.5;
/// Latencies from which on old ones are forgotten, and the share that is kept.
const OWN_ENOUGH: f32 = 400.0;
const OTHER_ENOUGH: f32 = 6000.0;
const KEPT: f32 = 0.8;
/// Latencies that are left of what was learnt before a rest.
const OWN_AFTER_REST: f32 = 16.0;
const OTHER_AFTER_REST: f32 = 100.0;
/// Latencies that the prior counts for.
const BELIEVED: f32 = 24.0;
/// What is added to each bin, so that no ratio is infinite.
const SMOOTHING: f32 = 0.1;
/// The least that a kind of weather must say to be listened to, in nats: less is what chance gives.
const LEAST: f32 = 0.2;
/// Share of latencies from which on a bin is used.
const USED: f32 = 0.01;

/// Latencies in bins of `unit` ticks, relative to that of a page that was not evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Ticks in a bin.
    pub(crate) unit: i32,
}

impl Scale {
    /// The bin of a latency that is so many ticks above the base.
    pub(crate) fn bin(self, above: i32) -> usize {
        // Unsigned, which divides in half the time: this is done for each page of each round.
        let above_lowest = (above + BELOW * self.unit).max(0).cast_unsigned();
        ((above_lowest / self.unit.cast_unsigned()) as usize).min(BINS - 1)
    }
}

/// What was learnt in one kind of weather.
#[derive(Clone, Debug)]
pub(crate) struct Likelihood {
    own: [f32; BINS],
    other: [f32; BINS],
    ratios: [f32; BINS],
    info: f32,
    /// Latencies of pages whose own class was streamed that were noted and not forgotten at a rest: all of
    /// `own` but the prior.
    learnt: f32,
}

impl Likelihood {
    /// A weak prior: an evicted page is three bins slower than others. Its own class evicts a page with the
    /// probability `own`, and neighbours evict the share `other` of pages that should have stayed (0 to 1).
    pub(crate) fn new(own: f32, other: f32) -> Likelihood {
        let first_evicted = 2 * BELOW as usize;
        let evicted_bins = BINS - first_evicted;
        let believed = |evicted: f32| {
            std::array::from_fn(|bin| match bin < first_evicted {
                true => BELIEVED * (1.0 - evicted) / first_evicted as f32,
                false => BELIEVED * evicted / evicted_bins as f32,
            })
        };
        let (own, other) = (believed(own), believed(other));
        let mut new = Likelihood { own, other, ratios: [0.0; BINS], info: 0.0, learnt: 0.0 };
        new.settle();
        new
    }

    /// Notes the latency of a page of known class; `own` if that class was streamed.
    pub(crate) fn note(&mut self, own: bool, bin: usize) {
        let counts = if own { &mut self.own } else { &mut self.other };
        counts[bin] += 1.0;
        self.learnt += f32::from(u8::from(own));
    }

    /// Computes the ratios anew, then forgets some of what is old: the machine changes.
    pub(crate) fn settle(&mut self) {
        let smooth = |counts: &[f32; BINS]| {
            let all = counts.iter().sum::<f32>() + SMOOTHING * BINS as f32;
            counts.map(|count| (count + SMOOTHING) / all)
        };
        let (own, other) = (smooth(&self.own), smooth(&self.other));
        self.info = -self.by_chance();
        for (ratio, (p, q)) in self.ratios.iter_mut().zip(own.into_iter().zip(other)) {
            *ratio = (p / q).ln().clamp(-BOUND, BOUND);
            self.info += (p - q) * *ratio;
        }
        if self.info < LEAST {
            (self.ratios, self.info) = ([0.0; BINS], 0.0);
        }
        forget(&mut self.own, OWN_ENOUGH, KEPT * OWN_ENOUGH);
        forget(&mut self.other, OTHER_ENOUGH, KEPT * OTHER_ENOUGH);
    }

    /// What two histograms of the same latencies would seem to say, by chance, in nats.
    fn by_chance(&self) -> f32 {
        let (own, other): (f32, f32) = (self.own.iter().sum(), self.other.iter().sum());
        let used = |(a, b): &(&f32, &f32)| (*a / own).max(*b / other) > USED;
        let bins = self.own.iter().zip(&self.other).filter(used).count();
        bins as f32 * (own.recip() + other.recip())
    }

    /// Forgets most: after a rest little of what was learnt before holds.
    pub(crate) fn rest(&mut self) {
        self.learnt = self.learnt.min(OWN_AFTER_REST);
        forget(&mut self.own, OWN_AFTER_REST, OWN_AFTER_REST);
        forget(&mut self.other, OTHER_AFTER_REST, OTHER_AFTER_REST);
    }

    /// The share of pages that their own class was found to evict, beyond that of others which are evicted: by the
    /// latency from which on that is most.
    pub(crate) fn evicts(&self) -> f32 {
        let (own, other): (f32, f32) = (self.own.iter().sum(), self.other.iter().sum());
        let slower = self.own.iter().zip(&self.other).rev().scan(0.0, |sum, (a, b)| {
            *sum += a / own - b / other;
            Some(*sum)
        });
        slower.fold(0.0, f32::max)
    }

    /// Whether latencies were found to tell which class is streamed, by enough of them that it is neither
    /// chance nor the prior.
    pub(crate) fn tells(&self) -> bool {
        self.learnt >= OWN_ENOUGH && self.info > 0.0
    }

    /// Log-likelihood ratio of "own class streamed" to "another" for a latency, in nats.
    pub(crate) fn ratio(&self, bin: usize) -> f32 {
        self.ratios[bin]
    }

    /// The lead that a page's class is expected to gain over another by both being streamed, in nats.
    pub(crate) fn info(&self) -> f32 {
        self.info
    }
}

/// Scales counts down to `left` in all if there are more than `most`.
fn forget(counts: &mut [f32; BINS], most: f32, left: f32) {
    let all: f32 = counts.iter().sum();
    if all > most {
        counts.iter_mut().for_each(|count| *count *= left / all);
    }
}

/// The latency below which `percent` of some lie; 0 of none.
pub(crate) fn quantile(latencies: &mut [u16], percent: usize) -> u16 {
    let place = latencies.len() * percent / 100;
    match latencies.get(place) {
        Some(_) => *latencies.select_nth_unstable(place).1,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { unit: 26 };

    fn learnt(own: &[(i32, usize)], other: &[(i32, usize)]) -> Likelihood {
        let mut likelihood = Likelihood::new(0.97, 0.03);
        for (is_own, list) in [(true, own), (false, other)] {
            for &(above, times) in list {
                (0..times).for_each(|_| likelihood.note(is_own, SCALE.bin(above)));
            }
        }
        likelihood.settle();
        likelihood
    }

    #[test]
    fn bins_end_at_both_ends() {
        let bins = [-1000, -79, -78, -1, 0, 25, 26, 441, 442, 70_000].map(|a| SCALE.bin(a));
        assert_eq!(bins, [0, 0, 0, 2, 3, 3, 4, 19, 19, 19]);
    }

    #[test]
    fn what_is_clear_says_much_and_never_all() {
        let clear = learnt(&[(104, 390)], &[(0, 5000)]);
        assert!(clear.ratio(SCALE.bin(104)) > 4.0 && clear.ratio(SCALE.bin(104)) <= BOUND);
        assert!(clear.ratio(SCALE.bin(0)) < -4.0 && clear.info() > 7.0, "{}", clear.info());
    }

    #[test]
    fn what_neighbours_evict_says_less() {
        let noisy = learnt(&[(104, 380), (0, 10)], &[(0, 1000), (104, 4000)]);
        let bin = SCALE.bin(104);
        assert!((0.0..0.5).contains(&noisy.ratio(bin)), "{}", noisy.ratio(bin));
        assert!((0.2..2.0).contains(&noisy.info()), "{}", noisy.info());
        let same = learnt(&[(104, 1000), (0, 333)], &[(0, 2500), (104, 7500)]);
        assert_eq!((same.info(), same.ratio(bin)), (0.0, 0.0));
        assert!((0.1..0.25).contains(&noisy.evicts()) && same.evicts() < 0.05);
    }

    #[test]
    fn the_old_is_forgotten() {
        let mut likelihood = learnt(&[(104, 390)], &[(0, 5000)]);
        let bin = SCALE.bin(26);
        assert!(likelihood.ratio(bin).abs() < BOUND);
        likelihood.rest();
        (0..40).for_each(|_| likelihood.note(true, bin));
        likelihood.settle();
        assert!(likelihood.ratio(bin) > 3.0, "{}", likelihood.ratio(bin));
    }

    #[test]
    fn quantiles_of_short_and_long_lists() {
        assert_eq!(quantile(&mut [], 50), 0);
        assert_eq!(quantile(&mut [9], 50), 9);
        assert_eq!(quantile(&mut [60, 70, 80, 2000, 61], 50), 70);
        assert_eq!(quantile(&mut [60, 70, 80, 2000, 61], 40), 70);
    }
}
