//! The staircase as an SVG drawing: a line for each share, both axes logarithmic.

use super::staircase::{Staircase, WalkedShare};
use crate::drawing::{PlotCurve, PlotPoint};
use crate::style::count;

/// Draws a staircase.
///
/// # Errors
/// With the words of the drawing library.
pub fn draw(stairs: &Staircase, title: &str) -> Result<String, String> {
    let line = |share: &WalkedShare| {
        let points = stairs.footprints_kib.iter().zip(&share.ns);
        let points = points.map(|(&kib, ns)| PlotPoint::of(kib as f64, &[ns.median])).collect();
        (count(u64::from(share.colors), "colour", "colours"), points)
    };
    let lines = stairs.shares.iter().map(line).collect();
    let (across, up) = ("KiB walked", "ns per access");
    PlotCurve { title, across, up, log_up: true, lines, knee: None }.draw()
}

#[cfg(test)]
mod tests {
    use super::super::staircase::examples::ideal;
    use super::*;

    #[test]
    fn the_drawing_has_axes_a_legend_and_a_line_per_share() {
        let text = draw(&ideal(), "a staircase").unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for word in ["a staircase", "KiB walked", "ns per access", "16 colours", "1 colour"] {
            assert!(text.contains(word), "{word} is missing");
        }
        for color in ["#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00"] {
            assert!(text.contains(color), "{color} is missing");
        }
    }
}
