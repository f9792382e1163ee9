//! What decides how well huepage works on a machine, measured: how finely time can be read ([`clock`]), who else uses the cores
//! ([`neighbors`]), which CPUs share one ([`siblings`]), what streaming evicts ([`replacement`]),
//! how many pages the host moves ([`moves`]), and how long colours take ([`colors`]). Each says how
//! sure it is. What to make of it, and what to do, is the command's.

mod additions;
pub mod clock;
pub mod colors;
pub mod moves;
pub mod neighbors;
pub mod replacement;
pub mod siblings;

use serde::Serialize;

/// A share with the interval that it lies in with a probability of 95 %, all 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// The estimate.
    pub estimate: f64,
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// Standard deviations to either side of a mean that hold 95 %.
const SIGMAS: f64 = 1.96;

impl Interval {
    /// `some` of `all` independent trials, by Wilson's score; anything is possible of none.
    pub fn of_trials(some: usize, all: usize) -> Interval {
        if all == 0 {
            return Interval { estimate: 0.0, low: 0.0, high: 1.0 };
        }
        let (n, share) = (all as f64, some as f64 / all as f64);
        let z2 = SIGMAS * SIGMAS;
        let center = share + z2 / (2.0 * n);
        let half = SIGMAS * ((share * (1.0 - share) + z2 / (4.0 * n)) / n).sqrt();
        let scale = 1.0 + z2 / n;
        let (low, high) = ((center - half) / scale, (center + half) / scale);
        // Rounding must not leave the estimate outside.
        Interval { estimate: share, low: low.clamp(0.0, share), high: high.clamp(share, 1.0) }
    }

    /// The mean of several measurements of a share, each of a time of its own.
    pub fn of_means(means: &[f64]) -> Interval {
        let n = means.len() as f64;
        if means.len() < 2 {
            return Interval {
                estimate: means.first().copied().unwrap_or(0.0),
                low: 0.0,
                high: 1.0,
            };
        }
        let mean = means.iter().sum::<f64>() / n;
        let variance = means.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let half = SIGMAS * (variance / n).sqrt();
        let [estimate, low, high] = [mean, mean - half, mean + half].map(|x| x.clamp(0.0, 1.0));
        Interval { estimate, low, high }
    }

    /// How often something happens that happened `times` times, as multiples of `times`' unit: the
    /// estimate and its ends, by Byar's approximation of Poisson's.
    fn of_count(times: usize) -> [f64; 3] {
        let end = |n: f64, sign: f64| {
            n * (1.0 - 1.0 / (9.0 * n) + sign * SIGMAS / (3.0 * n.sqrt())).powi(3)
        };
        let k = times as f64;
        let low = if times == 0 { 0.0 } else { end(k, -1.0).max(0.0) };
        [k, low, end(k + 1.0, 1.0)]
    }
}

/// The middle of some numbers, or what lies at another share of them; 0 of none.
fn quantile(numbers: &mut [u32], share: f64) -> u32 {
    let last = numbers.len().saturating_sub(1);
    match numbers.len() {
        0 => 0,
        _ => *numbers.select_nth_unstable((last as f64 * share).round() as usize).1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_their_estimates_and_shrink_with_trials() {
        let width = |i: Interval| i.high - i.low;
        for (some, all) in [(0, 20), (1, 20), (10, 20), (20, 20)] {
            let (few, many) =
                (Interval::of_trials(some, all), Interval::of_trials(some * 50, all * 50));
            assert!(few.low <= few.estimate && few.estimate <= few.high, "{few:?}");
            assert!(
                few.low >= 0.0 && few.high <= 1.0 && width(many) < width(few),
                "{few:?} {many:?}"
            );
        }
        assert_eq!(width(Interval::of_trials(0, 0)), 1.0);
        // Of textbooks: 10 of 20 lie between 0.299 and 0.701.
        let half = Interval::of_trials(10, 20);
        assert!((half.low - 0.299).abs() < 0.001 && (half.high - 0.701).abs() < 0.001, "{half:?}");
    }

    #[test]
    fn means_that_agree_are_sure_and_others_are_not() {
        let (sure, unsure) =
            (Interval::of_means(&[0.5; 10]), Interval::of_means(&[0.0, 1.0, 0.0, 1.0]));
        assert_eq!((sure.low, sure.high), (0.5, 0.5));
        assert!(unsure.low < 0.1 && unsure.high > 0.9, "{unsure:?}");
        assert_eq!(Interval::of_means(&[0.3]).high, 1.0);
    }

    #[test]
    fn counts_have_the_intervals_of_poisson() {
        // Exact ends: 0 has 0 to 3.69, 10 has 4.80 to 18.39.
        let [none, ten] = [0, 10].map(Interval::of_count);
        assert!(none[1] == 0.0 && (none[2] - 3.69).abs() < 0.15, "{none:?}");
        assert!((ten[1] - 4.80).abs() < 0.05 && (ten[2] - 18.39).abs() < 0.05, "{ten:?}");
    }

    #[test]
    fn quantiles_of_few() {
        assert_eq!(quantile(&mut [], 0.5), 0);
        assert_eq!([0.0, 0.5, 1.0].map(|share| quantile(&mut [3, 1, 2], share)), [1, 2, 3]);
    }
}
