//! How much cache a program needs, from its time in growing shares of it: the curve of figures 9
//! and 10 of Scolari et al. (2016), and what is said of it. Measures nothing.

use serde::Serialize;

/// Slowdown in the smallest share from which a program is called sensitive, as a factor (section
/// 5.3 of the paper: 30 %).
pub const SENSITIVE: f64 = 1.3;
/// Slowdown that does not count, as a factor.
const NEAR: f64 = 1.05;

/// A share, and the time in it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SharePoint {
    /// Colours.
    pub colors: u16,
    /// Time, in whatever unit: seconds or cycles.
    pub time: f64,
}

/// What a curve says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CacheNeed {
    /// Time in the smallest share over that in the largest.
    pub slowdown: f64,
    /// Whether that is 1.3 at least.
    pub sensitive: bool,
    /// Where more cache stops to pay: the point farthest below the straight line from the first
    /// to the last, on the scale of colours. None for a program that is not sensitive.
    pub knee: Option<u16>,
    /// The smallest share from which on nothing is slower than the largest by more than 5 %.
    pub enough: u16,
}

/// Judges a curve whose shares grow; none of fewer than two points, or of times that are none.
pub fn need(curve: &[SharePoint]) -> Option<CacheNeed> {
    let (first, last) = (curve.first()?, curve.last()?);
    let fine = curve.iter().all(|point| point.time.is_finite() && point.time > 0.0);
    if !fine || !curve.is_sorted_by(|a, b| a.colors < b.colors) || curve.len() < 2 {
        return None;
    }
    let slowdown = first.time / last.time;
    let sensitive = slowdown >= SENSITIVE;
    let slower = |point: &&SharePoint| point.time > NEAR * last.time;
    let beyond = curve.iter().rposition(|point| slower(&point)).map_or(0, |at| at + 1);
    let knee = sensitive.then(|| farthest(curve, *first, *last)).flatten();
    Some(CacheNeed { slowdown, sensitive, knee, enough: curve[beyond].colors })
}

/// The point farthest below the line between the ends; none if no point is below it.
fn farthest(curve: &[SharePoint], first: SharePoint, last: SharePoint) -> Option<u16> {
    let below = |point: &SharePoint| {
        let across = f64::from(point.colors - first.colors) / f64::from(last.colors - first.colors);
        (first.time + across * (last.time - first.time) - point.time, point.colors)
    };
    let best = curve.iter().map(below).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(below, _)| *below > 0.0).map(|(_, colors)| colors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(times: &[f64]) -> Vec<SharePoint> {
        let point = |(at, &time): (usize, &f64)| SharePoint { colors: 1 << at, time };
        times.iter().enumerate().map(point).collect()
    }

    #[test]
    fn the_knee_is_where_the_working_set_fits() {
        let found = need(&curve(&[10.0, 9.8, 2.1, 2.0, 2.0])).unwrap();
        assert_eq!((found.knee, found.enough, found.sensitive), (Some(4), 4, true));
        let found = need(&curve(&[10.0, 9.8, 9.0, 2.0, 2.0])).unwrap();
        assert_eq!((found.knee, found.enough), (Some(8), 8));
    }

    #[test]
    fn a_program_that_does_not_care_has_no_knee() {
        let found = need(&curve(&[1.02, 1.0, 1.01, 1.0])).unwrap();
        assert_eq!((found.knee, found.enough, found.sensitive), (None, 1, false));
    }

    #[test]
    fn a_bump_later_counts_as_slower() {
        let found = need(&curve(&[2.0, 1.0, 1.2, 1.0])).unwrap();
        assert_eq!(found.enough, 8, "in 4 colours it was slower by more than 5 %");
    }

    #[test]
    fn a_straight_line_has_no_knee() {
        let points =
            [1_u16, 2, 3].map(|colors| SharePoint { colors, time: 4.0 - f64::from(colors) });
        assert_eq!(need(&points).unwrap().knee, None);
    }

    #[test]
    fn what_is_no_curve_is_not_judged() {
        assert_eq!(need(&[]), None);
        assert_eq!(need(&curve(&[1.0])), None);
        assert_eq!(need(&curve(&[1.0, f64::NAN])), None);
        let twice = [SharePoint { colors: 1, time: 2.0 }, SharePoint { colors: 1, time: 1.0 }];
        assert_eq!(need(&twice), None);
    }
}
