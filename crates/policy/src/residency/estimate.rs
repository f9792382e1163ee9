//! How often memory is used, and which share of that misses the cache, from how much of it is there.
//! See [the module above](super) for what that rests on.

use serde::Serialize;

use super::{Errors, Segment};

/// Uses between two times that a line could fall out of the cache, above which more cannot be told: a
/// line that is used so often is there in 98 of 100 looks.
const MOST: f64 = 4.0;

/// Uses of a line within the time after which an unused one falls out, if it is there in a share
/// `there` of all looks, 0 to 1; at most 4.
pub fn uses(there: f64) -> f64 {
    (-(-there.clamp(0.0, 1.0)).ln_1p()).min(MOST)
}

/// Lines of these segments that are asked for and missed in the time in which a line that nobody uses falls
/// out: what could be saved by leaving them more room.
pub fn misses_in_a_turnover(segments: &[Segment], errors: Errors, lines_per_page: f64) -> f64 {
    let terms = segments.iter().filter_map(|s| Term::of(s, errors));
    terms.map(|t| t.pages * lines_per_page * t.uses * (1.0 - t.there)).sum()
}

/// The share of the requests to the cache that miss. Requests that a nearer cache answers are none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The share, 0 to 1.
    pub miss_rate: f64,
    /// It is wrong by less than this in 19 of 20 cases, as far as chance goes: what the model leaves out
    /// (how often lines that are always there are used) is not in it.
    pub margin: f64,
    /// Looks that it is made of.
    pub samples: u64,
}

impl Estimate {
    /// Of what was seen of all of a program's memory; none if nothing of it is used.
    pub fn of(segments: &[Segment], errors: Errors) -> Option<Estimate> {
        let terms: Vec<Term> = segments.iter().filter_map(|s| Term::of(s, errors)).collect();
        let requests: f64 = terms.iter().map(|t| t.pages * t.uses).sum();
        let misses: f64 = terms.iter().map(|t| t.pages * t.uses * (1.0 - t.there)).sum();
        if requests <= 0.0 {
            return None;
        }
        let miss_rate = misses / requests;
        let variance: f64 = terms.iter().map(|t| t.variance(miss_rate)).sum();
        let samples = segments.iter().map(|s| s.samples).sum();
        Some(Estimate { miss_rate, margin: (2.0 * variance.sqrt() / requests).min(1.0), samples })
    }
}

/// A segment's part in the sums.
struct Term {
    pages: f64,
    there: f64,
    uses: f64,
    samples: f64,
}

impl Term {
    fn of(segment: &Segment, errors: Errors) -> Option<Term> {
        let there = segment.there(errors);
        let pages = segment.used_pages();
        let samples = segment.samples as f64;
        (samples > 0.0 && pages > 0.0).then(|| Term { pages, there, uses: uses(there), samples })
    }

    /// How much the chance in its samples moves the ratio of both sums, squared.
    fn variance(&self, miss_rate: f64) -> f64 {
        // Beyond the most uses nothing changes any more but the hits.
        let (d_misses, d_requests) = if self.uses < MOST {
            (1.0 - self.uses, 1.0 / (1.0 - self.there))
        } else {
            (-MOST, 0.0)
        };
        let there = self.there.clamp(0.5 / (self.samples + 1.0), 1.0 - 0.5 / (self.samples + 1.0));
        let slope = self.pages * (d_misses - miss_rate * d_requests);
        slope * slope * there * (1.0 - there) / self.samples
    }
}

#[cfg(test)]
mod tests {
    use huepage_color::Vpn;

    use super::*;

    fn segment(pages: u64, samples: u64, found: u64) -> Segment {
        let sampled_pages = u32::try_from(pages).unwrap();
        let (first, last) = (Vpn(0), Vpn(pages - 1));
        Segment { first, last, sampled_pages, used: sampled_pages, samples, found, pages }
    }

    #[test]
    fn what_is_never_there_misses_and_what_is_always_there_hits() {
        let nothing = Errors::default();
        let scan = Estimate::of(&[segment(10_000, 10_000, 300)], nothing).unwrap();
        assert!(scan.miss_rate > 0.95 && scan.samples == 10_000, "{scan:?}");
        let hot = Estimate::of(&[segment(100, 10_000, 10_000)], nothing).unwrap();
        assert!(hot.miss_rate < 1e-3, "{hot:?}");
        assert!(Estimate::of(&[], nothing).is_none());
        assert!(Estimate::of(&[segment(10, 0, 0)], nothing).is_none());
    }

    /// Pages used at random with equal rates: a cache that holds a share p of them misses 1 - p.
    #[test]
    fn random_use_of_more_than_fits() {
        for there in [1, 3, 5, 9] {
            let found = Estimate::of(&[segment(1000, 1000, there * 100)], Errors::default());
            let expected = 1.0 - there as f64 / 10.0;
            assert!((found.unwrap().miss_rate - expected).abs() < 0.002, "{there}: {found:?}");
        }
    }

    #[test]
    fn what_is_used_and_not_there_could_be_saved() {
        let none = Errors::default();
        let missed = |there: u64| misses_in_a_turnover(&[segment(100, 1000, there)], none, 64.0);
        // Half there is used 0.69 times, and missed every other time.
        assert!((missed(500) / 6400.0 - 0.3466).abs() < 0.001, "{}", missed(500));
        assert!(missed(999) < missed(500) / 10.0 && missed(10) < missed(500) / 10.0);
        assert_eq!(misses_in_a_turnover(&[], none, 64.0), 0.0);
    }

    #[test]
    fn looks_that_are_wrong_are_taken_out() {
        let errors = Errors { found: 0.02, lost: 0.08 };
        assert!((errors.correct(0.02 + 0.9 * 0.5) - 0.5).abs() < 1e-12);
        assert_eq!((errors.correct(0.01), errors.correct(0.95)), (0.0, 1.0));
    }

    #[test]
    fn more_samples_have_a_smaller_margin() {
        let margin = |samples: u64| {
            let both =
                [segment(400, samples, samples * 7 / 10), segment(4000, samples, samples / 20)];
            Estimate::of(&both, Errors::default()).unwrap().margin
        };
        assert!(margin(100) > 2.0 * margin(1000) && margin(100_000) < 0.01);
    }
}
