//! A heat map as an SVG drawing, in memory: a line of squares for each line of the picture, in shades of the
//! logarithm, and a bar that says which shade is how much. Who writes it where is the command's business.

use plotters::prelude::*;

use super::heat::Picture;
use crate::drawing::{DrawResult, drawing, shade, short};

/// Width of the drawing in pixels.
const WIDTH: u32 = 960;
/// Height of a line, and of what is around all lines.
const LINE: u32 = 22;
const AROUND: u32 = 150;
/// Height of letters, in pixels.
const TEXT: i32 = 12;
/// Squares of the bar of shades, their width and height in pixels.
const STEPS: i32 = 32;
const STEP: (i32, i32) = (8, 12);

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Draws a picture that has at least one cell.
///
/// # Errors
/// With the words of the drawing library.
pub fn draw(picture: &Picture, title: &str) -> Result<String, String> {
    drawing(|text| render(picture, title, text))
}

fn render(picture: &Picture, title: &str, text: &mut String) -> DrawResult {
    let height = AROUND + LINE * u32::try_from(picture.lines.len())?;
    let root = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    lines_on(&root, picture, title)?;
    color_bar(&root, (i32::try_from(height)? - 44, picture.most()))?;
    root.present()?;
    Ok(())
}

/// The axis, and a line of squares for each line.
fn lines_on(root: &Area<'_>, picture: &Picture, title: &str) -> DrawResult {
    let (lines, width) = (picture.lines.len(), picture.width());
    let longest = picture.lines.iter().map(|line| line.label.len()).max().unwrap_or(0);
    let caption = format!("{title}: {}", picture.title);
    let mut chart = ChartBuilder::on(root)
        .caption(caption, ("sans-serif", 16))
        .margin(12)
        .margin_bottom(52)
        .x_label_area_size(40)
        .y_label_area_size(30 + 7 * u32::try_from(longest)?)
        // Lines go down, coordinates up.
        .build_cartesian_2d(0.0..width as f64, lines as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(picture.across)
        // Else they are as small as the drawing is low.
        .x_label_style(("sans-serif", TEXT))
        .axis_desc_style(("sans-serif", TEXT))
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_labels(0)
        .draw()?;
    let most = picture.most();
    for (row, line) in picture.lines.iter().enumerate() {
        let top = row as f64;
        let squares = line.cells.iter().enumerate().map(|(at, &cell)| {
            let corners = [(at as f64, top), ((at + 1) as f64, top + 0.95)];
            Rectangle::new(corners, shade(logarithmic(cell, most)).filled())
        });
        chart.draw_series(squares)?;
        let (x, y) = chart.backend_coord(&(0.0, top + 0.5));
        let place = (x - 6 - 7 * i32::try_from(line.label.len())?, y - 6);
        root.draw_text(&line.label, &("monospace", TEXT).into_text_style(root), place)?;
    }
    Ok(())
}

/// Shades from nothing to the most, with the numbers that they stand for.
fn color_bar(root: &Area<'_>, (top, most): (i32, f64)) -> DrawResult {
    let left = 60;
    let style = ("sans-serif", TEXT).into_text_style(root);
    for step in 0..STEPS {
        let corner = (left + step * STEP.0, top);
        let corners = [corner, (corner.0 + STEP.0, top + STEP.1)];
        let share = f64::from(step) / f64::from(STEPS - 1);
        root.draw(&Rectangle::new(corners, shade(share).filled()))?;
    }
    for (part, share) in [(0, 0.0), (1, 0.5), (2, 1.0)] {
        let number = short((1.0 + most).powf(share) - 1.0);
        root.draw_text(
            &number,
            &style,
            (left + part * (STEPS / 2) * STEP.0 - 4, top + STEP.1 + 4),
        )?;
    }
    Ok(())
}

/// A number's part of the most, 0 to 1, so that few are told from none where one place has nearly all.
fn logarithmic(number: f64, most: f64) -> f64 {
    number.max(0.0).ln_1p() / most.ln_1p()
}

#[cfg(test)]
mod tests {
    use super::super::heat::HeatLine;
    use super::*;

    #[test]
    fn the_drawing_has_a_square_for_each_cell_in_its_shade_and_a_name_for_each_line() {
        let line = |label: &str, cells: &[f64]| HeatLine {
            label: label.to_owned(),
            note: String::new(),
            cells: cells.to_vec(),
        };
        let lines = vec![line("colors=1", &[0.0, 10.0]), line("colors=2", &[5.0, 10.0, 0.0])];
        let picture = Picture { title: "misses".to_owned(), across: "colour", lines };
        let text = draw(&picture, "a run").unwrap();
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for word in ["a run: misses", ">\n10\n<", "colors=1", "colors=2", "colour"] {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
        let squares = |color: &str| text.matches(&format!("fill=\"{color}\"")).count();
        // With those of the bar.
        assert_eq!(squares("#3F0D12"), 2 + 1);
        assert_eq!(squares("#FFFFE5"), 2 + 1);
        assert_eq!(text.matches("<rect").count(), 1 + 5 + 32);
        let sizes = text.split("font-size=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        let sizes: Vec<f64> = sizes.map(|size| size.parse().unwrap()).collect();
        assert!(sizes.iter().all(|size| *size > 9.0), "two lines, letters to read: {sizes:?}");
    }

    #[test]
    fn few_are_told_from_none_beside_many() {
        assert_eq!((logarithmic(0.0, 1e6), logarithmic(1e6, 1e6)), (0.0, 1.0));
        let few = logarithmic(100.0, 1e6);
        assert!((0.3..0.4).contains(&few), "{few}: linear it would be nothing");
    }
}
