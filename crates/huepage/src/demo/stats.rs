//! Medians and spreads of few repetitions. Nothing here knows what was repeated.

use serde::Serialize;

/// What several repetitions of one measurement say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Repeated {
    /// The median.
    pub median: f64,
    /// The distance between the quartiles as a share of the median.
    pub spread: f64,
}

impl Repeated {
    /// Sums repetitions up; NaN of none.
    pub fn of(values: &[f64]) -> Repeated {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let median = quantile(&sorted, 2);
        let spread = (quantile(&sorted, 3) - quantile(&sorted, 1)) / median;
        Repeated { median, spread }
    }
}

/// The given quartile (0 to 4) of sorted values, between two of them if need be.
fn quantile(sorted: &[f64], quartile: usize) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let (whole, part) = (last * quartile / 4, last * quartile % 4);
    let next = sorted[(whole + 1).min(last)];
    sorted[whole] + (next - sorted[whole]) * part as f64 / 4.0
}

/// Repetitions that lie so far from the median that something else was at work: farther than 14.8 times
/// the median distance, as hyperfine has it.
pub fn outliers(values: &[f64]) -> usize {
    let middle = median(values);
    let away: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let usual = median(&away) / 0.6745;
    away.iter().filter(|away| usual > 0.0 && **away > 14.826 * usual).count()
}

/// The median; NaN of nothing.
pub fn median(values: &[f64]) -> f64 {
    Repeated::of(values).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quartiles() {
        let r = Repeated::of(&[5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((r.median, r.spread), (3.0, 2.0 / 3.0));
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn what_is_far_from_all_others_is_an_outlier() {
        assert_eq!(outliers(&[1.0, 1.01, 0.99, 1.0, 1.02, 3.0]), 1);
        assert_eq!(outliers(&[1.0, 1.2, 0.9, 1.1, 1.3]), 0);
        assert_eq!((outliers(&[1.0]), outliers(&[])), (0, 0));
    }

    #[test]
    fn one_stray_repetition_of_five_moves_neither_much() {
        let r = Repeated::of(&[10.0, 10.1, 9.9, 10.0, 90.0]);
        assert_eq!(r.median, 10.0);
        assert!(r.spread < 0.02);
    }
}
