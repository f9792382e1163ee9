//! Papers' figures as SVG drawings, in memory: points and lines, stacked bars, shades over two
//! sizes. What they show is in `crate::report`.

use crate::drawing::{DrawResult, Grid, LineChart, PALETTE, SvgArea, drawing, largest};
use crate::report::{BarGroup, Drawing, Shape};
use plotters::prelude::*;

const HEIGHT: u32 = 560;

/// Draws a figure.
///
/// # Errors
/// With the words of the drawing library.
pub fn draw(figure: &Drawing) -> Result<String, String> {
    let title = figure.title.as_str();
    match &figure.shape {
        Shape::Points { across, up, joined, series } => {
            LineChart { title, across, up, joined: *joined, series }.draw()
        }
        Shape::Bars { up, parts, groups } => {
            let places = groups.iter().map(|(_, bars)| bars.len() + 1).sum::<usize>();
            let width = 260 + 12 * u32::try_from(places).map_err(|e| e.to_string())?;
            drawing((width.max(700), HEIGHT), title, |area| bars(area, up, parts, groups))
        }
        Shape::Shades { across, up, rows } => shades(title, across, up, rows),
    }
}

/// The largest size is the first row.
fn shades(
    title: &str,
    across: &(&str, Vec<usize>),
    up: &(&str, Vec<usize>),
    rows: &[Vec<f64>],
) -> Result<String, String> {
    let all = || rows.iter().flatten().copied();
    let shades = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let columns: Vec<String> = across.1.iter().map(usize::to_string).collect();
    let named = up.1.iter().zip(rows).rev();
    let rows: Vec<_> = named.map(|(size, row)| (format!("{size} {}", up.0), row.clone())).collect();
    let across = across.0;
    Grid { title, across, shades, columns: &columns, rows: &rows, digits: 3 }.draw()
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

    #[test]
    fn every_shape_is_drawn_with_its_names_and_numbers() {
        let series = vec![("one".to_owned(), vec![(0.0, 1.0), (5.0, 0.5)])];
        let text = drawn(Shape::Points { across: "x", up: "y", joined: true, series });
        assert!(text.contains("a title") && text.contains("one"));
        assert_eq!(text.matches("<circle").count(), 3, "two points and the legend");
        let bar = |name: &str| (name.to_owned(), vec![0.25, 0.5]);
        let groups = vec![("p".to_owned(), vec![bar("DM"), bar("CML")])];
        let text = drawn(Shape::Bars { up: "MCPI", parts: vec!["a", "b"], groups });
        assert!(text.contains("DM") && text.contains("CML"));
        assert_eq!(text.matches("fill=\"#0072B2\"").count(), 3, "two bars and the legend");
        let sizes = ("pages", vec![2, 4]);
        let rows = vec![vec![0.5, 0.25], vec![0.125, 0.75]];
        let text = drawn(Shape::Shades { across: sizes.clone(), up: sizes, rows });
        for value in ["0.500", "0.250", "0.125", "0.750"] {
            assert!(text.contains(value), "{value}");
        }
    }
}
