//! Papers' figures as SVG text in memory: points and lines, stacked bars, shades over two sizes. What
//! they show is in `crate::report`.

use huepage::drawing::{DrawResult, drawing, shade};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::report::{BarGroup, Drawing, Shape};

/// One color each, distinguishable also without red and green.
const PALETTE: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0x99, 0x99, 0x99),
];
/// Height of points and of bars, in pixels.
const HEIGHT: u32 = 560;
/// Height of a row of shades, and of what surrounds all rows, in pixels.
const ROW_HEIGHT: u32 = 22;
const GRID_MARGINS: u32 = 110;
/// Digits after the point of the number on a shade.
const DIGITS: usize = 3;

/// An area of a drawing.
type SvgArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws a figure on white, below its title.
///
/// # Errors
/// With the words of the drawing library.
pub fn draw(figure: &Drawing) -> Result<String, String> {
    drawing(|text| {
        let root = SVGBackend::with_string(text, size(&figure.shape)?).into_drawing_area();
        root.fill(&WHITE)?;
        let area = root.titled(&figure.title, ("sans-serif", 18))?;
        match &figure.shape {
            Shape::Points { across, up, joined, series } => {
                points(&area, (across, up), *joined, series)
            }
            Shape::Bars { up, parts, groups } => bars(&area, up, parts, groups),
            Shape::Shades { across, up, rows } => shades(&area, across, up, rows),
        }?;
        root.present()?;
        Ok(())
    })
}

/// Width and height in pixels.
fn size(shape: &Shape) -> Result<(u32, u32), std::num::TryFromIntError> {
    Ok(match shape {
        Shape::Points { .. } => (900, HEIGHT),
        Shape::Bars { groups, .. } => {
            let places = groups.iter().map(|(_, bars)| bars.len() + 1).sum::<usize>();
            ((260 + 12 * u32::try_from(places)?).max(700), HEIGHT)
        }
        Shape::Shades { rows, .. } => (960, GRID_MARGINS + ROW_HEIGHT * u32::try_from(rows.len())?),
    })
}

/// The largest value with some room above, which is more than 0.
fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max).max(1e-3) * 1.05
}

/// `across` and `up` are the words of the axes.
fn points(
    area: &SvgArea<'_>,
    (across, up): (&str, &str),
    joined: bool,
    series: &[(String, Vec<(f64, f64)>)],
) -> DrawResult {
    let all = || series.iter().flat_map(|(_, points)| points);
    let right = largest(all().map(|point| point.0));
    let mut chart =
        ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(56)
            .build_cartesian_2d(-0.02 * right..right, 0.0..largest(all().map(|point| point.1)))?;
    chart.configure_mesh().x_desc(across).y_desc(up).light_line_style(WHITE).draw()?;
    for ((name, points), color) in series.iter().zip(PALETTE.iter().cycle()) {
        let dots = points.iter().map(|&point| Circle::new(point, 4, color.filled()));
        let legend = |(x, y)| Circle::new((x + 8, y), 4, color.filled());
        chart.draw_series(dots)?.label(name).legend(legend);
        if joined {
            chart.draw_series(LineSeries::new(points.iter().copied(), color))?;
        }
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    Ok(())
}

/// The word of an axis, and its values.
type Sizes = (&'static str, Vec<usize>);

/// Rows of cells, each a shade between the least and the most of all; the largest size is the first
/// row.
fn shades(area: &SvgArea<'_>, across: &Sizes, up: &Sizes, rows: &[Vec<f64>]) -> DrawResult {
    let all = || rows.iter().flatten().copied();
    let (least, most) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let share = |cell: f64| (cell - least) / (most - least).max(1e-9);
    let names: Vec<String> = up.1.iter().map(|size| format!("{size} {}", up.0)).collect();
    let longest = names.iter().map(String::len).max().unwrap_or(0);
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(30 + 7 * u32::try_from(longest)?)
        // Rows go down, coordinates up.
        .build_cartesian_2d(0.0..width as f64, rows.len() as f64..0.0)?;
    chart.configure_mesh().disable_mesh().x_desc(across.0).x_labels(0).y_labels(0).draw()?;
    let plain = ("monospace", 12).into_text_style(area);
    for (row, (name, cells)) in names.iter().zip(rows).rev().enumerate() {
        let top = row as f64;
        let square = |(at, &cell): (usize, &f64)| {
            let corners = [(at as f64, top), ((at + 1) as f64, top + 0.95)];
            Rectangle::new(corners, shade(share(cell)).filled())
        };
        chart.draw_series(cells.iter().enumerate().map(square))?;
        let (x, y) = chart.backend_coord(&(0.0, top + 0.5));
        area.draw_text(name, &plain, (x - 6 - 7 * i32::try_from(name.len())?, y - 6))?;
        for (at, &cell) in cells.iter().enumerate() {
            let ink = if share(cell) > 0.5 { WHITE } else { BLACK };
            let style = ("monospace", 12).into_font().color(&ink);
            let (x, _) = chart.backend_coord(&(at as f64 + 0.35, top + 0.5));
            area.draw_text(&format!("{cell:.DIGITS$}"), &style, (x, y - 6))?;
        }
    }
    for (at, column) in across.1.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(at as f64 + 0.45, rows.len() as f64));
        area.draw_text(&column.to_string(), &plain, (x, y + 6))?;
    }
    Ok(())
}

fn bars(root: &SvgArea<'_>, up: &str, parts: &[&str], groups: &[BarGroup]) -> DrawResult {
    let total = |bar: &(String, Vec<f64>)| bar.1.iter().sum::<f64>();
    let top = largest(groups.iter().flat_map(|(_, bars)| bars.iter().map(total)));
    let places: usize = groups.iter().map(|(_, bars)| bars.len() + 1).sum();
    let mut chart = ChartBuilder::on(root)
        .margin(12)
        .x_label_area_size(150)
        .y_label_area_size(56)
        .build_cartesian_2d(0.0..places as f64, 0.0..top)?;
    chart.configure_mesh().disable_x_mesh().y_desc(up).x_labels(0).draw()?;
    for (part, (name, color)) in parts.iter().zip(PALETTE).enumerate() {
        let mut at = 0.0;
        let mut boxes = Vec::new();
        for (_, bars) in groups {
            for (_, heights) in bars {
                let below: f64 = heights[..part].iter().sum();
                let corners = [(at + 0.1, below), (at + 0.9, below + heights[part])];
                boxes.push(Rectangle::new(corners, color.filled()));
                at += 1.0;
            }
            at += 1.0;
        }
        chart
            .draw_series(boxes)?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], color.filled()));
    }
    name_bars(root, groups, |at| chart.backend_coord(&(at, 0.0)))?;
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    Ok(())
}

/// Policies below their bars, and workloads below these. `place` of a bar's number.
fn name_bars(
    root: &SvgArea<'_>,
    groups: &[BarGroup],
    place: impl Fn(f64) -> (i32, i32),
) -> DrawResult {
    let mut at = 0.0;
    let down = ("sans-serif", 10).into_font().transform(FontTransform::Rotate90).color(&BLACK);
    for (program, bars) in groups {
        let (x, y) = place(at);
        root.draw_text(program, &("sans-serif", 12).into_text_style(root), (x, y + 90))?;
        for (policy, _) in bars {
            let (x, y) = place(at + 0.9);
            root.draw_text(policy, &down, (x, y - 24))?;
            at += 1.0;
        }
        at += 1.0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(shape: Shape) -> String {
        draw(&Drawing { name: "n".into(), title: "a title".into(), shape }).unwrap()
    }

    fn lines(joined: bool) -> String {
        let series = vec![("one".to_owned(), vec![(1.0, 1.0), (4.0, 2.5)])];
        drawn(Shape::Points { across: "KiB walked", up: "ns", joined, series })
    }

    #[test]
    fn lines_have_a_title_axes_a_legend_and_their_points() {
        let text = lines(true);
        assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        for word in ["a title", "KiB walked", "ns", "one"] {
            assert!(text.contains(word), "{word} is missing");
        }
        assert_eq!(text.matches("<circle").count(), 3, "two points and the legend");
        let joined = |text: &str| text.matches("stroke=\"#0072B2\"").count();
        assert!(joined(&lines(true)) > joined(&lines(false)));
    }

    #[test]
    fn bars_have_their_names_and_a_box_for_each_part() {
        let bar = |name: &str| (name.to_owned(), vec![0.25, 0.5]);
        let groups = vec![("p".to_owned(), vec![bar("DM"), bar("CML")])];
        let text = drawn(Shape::Bars { up: "MCPI", parts: vec!["a", "b"], groups });
        assert!(text.contains("DM") && text.contains("CML"));
        assert_eq!(text.matches("fill=\"#0072B2\"").count(), 3, "two bars and the legend");
    }

    fn grid() -> String {
        let (across, up) = (("color", vec![16, 32]), ("colors", vec![4, 8]));
        drawn(Shape::Shades { across, up, rows: vec![vec![0.0, 10.0], vec![5.0, 10.0, 0.0]] })
    }

    #[test]
    fn a_grid_has_a_square_for_each_cell_in_its_shade_and_a_name_for_each_row() {
        let text = grid();
        for word in ["a title", "4 colors", "8 colors", "color"] {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
        assert!(text.find("8 colors") < text.find("4 colors"), "the largest size is the first row");
        let squares = |color: &str| text.matches(&format!("fill=\"{color}\"")).count();
        assert_eq!(squares("#3F0D12"), 2);
        assert_eq!(squares("#FFFFE5"), 2);
        assert_eq!(squares("#EC7014"), 1);
    }

    #[test]
    fn cells_have_numbers_and_columns_names() {
        let text = grid();
        for word in ["16", "32", "0.000", "5.000", "10.000"] {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
    }
}
