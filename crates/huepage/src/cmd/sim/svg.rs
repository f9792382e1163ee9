//! A heat map as an SVG drawing, in memory: a line of squares for each line of the picture.
//! Who writes it where is the command's business.

use plotters::prelude::*;

use super::heat::Picture;
use crate::drawing::{Drawn, drawing};

/// Width of the drawing in pixels.
const WIDTH: u32 = 960;
/// Height of a line, and of what is around all lines.
const LINE: u32 = 22;
const AROUND: u32 = 110;
/// From nothing to the most: dark where it is hot, and told apart without seeing colours.
const RAMP: [RGBColor; 5] = [
    RGBColor(0xff, 0xff, 0xe5),
    RGBColor(0xfe, 0xc4, 0x4f),
    RGBColor(0xec, 0x70, 0x14),
    RGBColor(0xa5, 0x2a, 0x08),
    RGBColor(0x3f, 0x0d, 0x12),
];

/// Draws a picture that has at least one cell.
///
/// # Errors
/// With the words of the drawing library.
pub fn draw(picture: &Picture, title: &str) -> Result<String, String> {
    drawing(|text| render(picture, title, text))
}

fn render(picture: &Picture, title: &str, text: &mut String) -> Drawn {
    let (lines, width) = (picture.lines.len(), picture.width());
    let height = AROUND + LINE * u32::try_from(lines)?;
    let root = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let longest = picture.lines.iter().map(|line| line.label.len()).max().unwrap_or(0);
    let caption = format!("{title}: {}, white 0, black {:.0}", picture.title, picture.most());
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(30 + 7 * u32::try_from(longest)?)
        // Lines go down, coordinates up.
        .build_cartesian_2d(0.0..width as f64, lines as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(picture.across)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_labels(0)
        .draw()?;
    let most = picture.most();
    for (row, line) in picture.lines.iter().enumerate() {
        let top = row as f64;
        let squares = line.cells.iter().enumerate().map(|(at, &cell)| {
            let corners = [(at as f64, top), ((at + 1) as f64, top + 0.95)];
            Rectangle::new(corners, shade(cell / most).filled())
        });
        chart.draw_series(squares)?;
        let (x, y) = chart.backend_coord(&(0.0, top + 0.5));
        let place = (x - 6 - 7 * i32::try_from(line.label.len())?, y - 6);
        root.draw_text(&line.label, &("monospace", 12).into_text_style(&root), place)?;
    }
    root.present()?;
    Ok(())
}

/// Between the colours of the ramp.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
fn shade(share: f64) -> RGBColor {
    let place = share.clamp(0.0, 1.0) * (RAMP.len() - 1) as f64;
    let below = (place as usize).min(RAMP.len() - 2);
    let part = place - below as f64;
    let mix = |a: u8, b: u8| (f64::from(a) + part * (f64::from(b) - f64::from(a))).round() as u8;
    let (a, b) = (RAMP[below], RAMP[below + 1]);
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::super::heat::Line;
    use super::*;

    #[test]
    fn the_drawing_has_a_square_for_each_cell_in_its_shade_and_a_name_for_each_line() {
        let line = |label: &str, cells: &[f64]| Line {
            label: label.to_owned(),
            note: String::new(),
            cells: cells.to_vec(),
        };
        let lines = vec![line("colors=1", &[0.0, 10.0]), line("colors=2", &[5.0, 10.0, 0.0])];
        let picture = Picture { title: "misses".to_owned(), across: "colour", lines };
        let text = draw(&picture, "a run").unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for word in ["a run: misses", "black 10", "colors=1", "colors=2", "colour"] {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
        let squares = |color: &str| text.matches(&format!("fill=\"{color}\"")).count();
        assert_eq!(squares("#3F0D12"), 2);
        assert_eq!(squares("#FFFFE5"), 2);
        assert_eq!(squares("#EC7014"), 1);
    }

    #[test]
    fn shades_go_from_one_end_of_the_ramp_to_the_other() {
        assert_eq!(shade(0.0), RAMP[0]);
        assert_eq!(shade(0.5), RAMP[2]);
        assert_eq!(shade(1.0), RAMP[4]);
        assert_eq!(shade(9.0), RAMP[4]);
    }
}
