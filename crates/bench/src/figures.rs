//! Medians, spreads, and how figures are rounded.

use std::borrow::Borrow;

use serde_json::Value;

/// A figure in the middle, and both ends.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// That of some values; NaN in the middle if there are none.
    pub fn of<F: Borrow<f64>>(values: impl IntoIterator<Item = F>) -> Spread {
        let values: Vec<f64> = values.into_iter().map(|value| *value.borrow()).collect();
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Spread { median: median(values), min, max }
    }

    /// With its ends in brackets.
    pub fn text(self) -> Value {
        if self.median.is_nan() {
            return Value::Null;
        }
        format!("{:.3} [{:.3}, {:.3}]", self.median, self.min, self.max).into()
    }
}

/// The median; NaN of nothing.
pub fn median<F: Borrow<f64>>(values: impl IntoIterator<Item = F>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().map(|value| *value.borrow()).collect();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => f64::NAN,
        (n, half) if n % 2 == 1 => sorted[half],
        (_, half) => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// Values over others, pair by pair.
pub fn ratios(own: &[f64], other: &[f64]) -> Vec<f64> {
    own.iter().zip(other).map(|(own, other)| own / other).collect()
}

/// Rounds for JSON: four digits behind the point are more than is measured. NaN is null.
pub fn round(value: f64) -> Value {
    Value::from((value * 1e4).round() / 1e4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([0.0; 0]).is_nan() && round(f64::NAN).is_null());
        assert_eq!(ratios(&[1.0, 4.0, 9.0], &[2.0, 2.0]), [0.5, 2.0]);
    }
}
