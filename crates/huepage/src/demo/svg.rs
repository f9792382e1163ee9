//! The staircase as an SVG drawing. The text is drawn in memory; who writes it where is the
//! command's business.

use plotters::prelude::*;

use super::staircase::Staircase;
use crate::drawing::{Drawn, drawing};

/// Width and height in pixels.
const SIZE: (u32, u32) = (800, 500);
/// One colour per share, distinguishable also without red and green.
const PALETTE: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xd5, 0x5e, 0x00),
];

/// Draws a staircase.
///
/// # Errors
/// With the words of the drawing library.
pub fn draw(stairs: &Staircase, title: &str) -> Result<String, String> {
    drawing(|text| render(stairs, title, text))
}

fn render(stairs: &Staircase, title: &str, text: &mut String) -> Drawn {
    let kib: Vec<f64> = stairs.footprints_kib.iter().map(|&kib| kib as f64).collect();
    let (first, last) = (kib[0], kib[kib.len() - 1]);
    let all = || stairs.shares.iter().flat_map(|s| &s.ns).map(|c| c.median);
    let (low, high) = (all().fold(f64::MAX, f64::min) * 0.9, all().fold(1.0, f64::max) * 1.1);
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(52)
        .build_cartesian_2d((first..last).log_scale().base(2.0), (low..high).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("KiB walked")
        .y_desc("ns per access")
        .x_label_formatter(&|kib| format!("{kib:.0}"))
        .y_label_formatter(&|ns| format!("{ns:.0}"))
        .light_line_style(WHITE)
        .draw()?;
    for (share, color) in stairs.shares.iter().zip(PALETTE.iter().cycle()) {
        let points: Vec<(f64, f64)> =
            kib.iter().copied().zip(share.ns.iter().map(|c| c.median)).collect();
        let name = format!("{} colour{}", share.colors, if share.colors == 1 { "" } else { "s" });
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(3))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], color.stroke_width(3)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    root.present()?;
    Ok(())
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
