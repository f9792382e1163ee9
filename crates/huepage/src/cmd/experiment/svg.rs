//! Papers' figures as SVG drawings, in memory: points and lines, stacked bars, shades over two
//! sizes. What they show is in `huepage_sim::experiments::report`.

use huepage_sim::experiments::report::{Figure, Group, Shape};
use plotters::prelude::*;

use crate::drawing::{Drawn, drawing};

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// Distinguishable also without red and green.
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
const HEIGHT: u32 = 560;

/// Draws a figure.
///
/// # Errors
/// With the words of the drawing library.
pub fn draw(figure: &Figure) -> Result<String, String> {
    drawing(|text| render(figure, text))
}

fn render(figure: &Figure, text: &mut String) -> Drawn {
    let width = match &figure.shape {
        Shape::Bars { groups, .. } => {
            let bars: usize = groups.iter().map(|(_, bars)| bars.len() + 1).sum();
            (260 + 12 * u32::try_from(bars)?).max(700)
        }
        _ => 900,
    };
    let root = SVGBackend::with_string(text, (width, HEIGHT)).into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(&figure.title, ("sans-serif", 18))?;
    match &figure.shape {
        Shape::Points { across, up, joined, series } => {
            points(&root, across, up, *joined, series)?;
        }
        Shape::Bars { up, parts, groups } => bars(&root, up, parts, groups)?,
        Shape::Shades { across, up, rows } => shades(&root, across, up, rows)?,
    }
    root.present()?;
    Ok(())
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max).max(1e-3) * 1.05
}

fn points(
    root: &Area<'_>,
    across: &str,
    up: &str,
    joined: bool,
    series: &[(String, Vec<(f64, f64)>)],
) -> Drawn {
    let all = || series.iter().flat_map(|(_, points)| points.iter().copied());
    let (right, top) = (largest(all().map(|p| p.0)), largest(all().map(|p| p.1)));
    let mut chart = ChartBuilder::on(root)
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(56)
        .build_cartesian_2d(-0.02 * right..right, 0.0..top)?;
    chart.configure_mesh().x_desc(across).y_desc(up).light_line_style(WHITE).draw()?;
    for ((name, points), color) in series.iter().zip(PALETTE.iter().cycle()) {
        let dots = points.iter().map(|&point| Circle::new(point, 4, color.filled()));
        chart
            .draw_series(dots)?
            .label(name)
            .legend(|(x, y)| Circle::new((x + 8, y), 4, color.filled()));
        if joined {
            chart.draw_series(LineSeries::new(points.iter().copied(), color))?;
        }
    }
    chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
    Ok(())
}

fn bars(root: &Area<'_>, up: &str, parts: &[&str], groups: &[Group]) -> Drawn {
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
fn name_bars(root: &Area<'_>, groups: &[Group], place: impl Fn(f64) -> (i32, i32)) -> Drawn {
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

/// Dark is much.
fn shades(
    root: &Area<'_>,
    across: &(&str, Vec<usize>),
    up: &(&str, Vec<usize>),
    rows: &[Vec<f64>],
) -> Drawn {
    let all = || rows.iter().flatten().copied();
    let (low, high) = (all().fold(f64::MAX, f64::min), all().fold(0.0, f64::max));
    let (wide, tall) = (across.1.len() as f64, up.1.len() as f64);
    let mut chart = ChartBuilder::on(root)
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..wide, 0.0..tall)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc(across.0)
        .y_desc(up.0)
        .x_labels(0)
        .y_labels(0)
        .draw()?;
    for (y, row) in rows.iter().enumerate() {
        for (x, &value) in row.iter().enumerate() {
            let share = (value - low) / (high - low).max(1e-9);
            let corner = (x as f64, y as f64);
            let corners = [corner, (corner.0 + 1.0, corner.1 + 1.0)];
            chart.draw_series([Rectangle::new(corners, gray(share).filled())])?;
            let ink = if share > 0.5 { WHITE } else { BLACK };
            let style = ("sans-serif", 13).into_font().color(&ink);
            let place = chart.backend_coord(&(corner.0 + 0.35, corner.1 + 0.55));
            root.draw_text(&format!("{value:.3}"), &style, place)?;
        }
    }
    name_shades(root, &across.1, &up.1, |x, y| chart.backend_coord(&(x, y)))
}

/// Sizes along both axes.
fn name_shades(
    root: &Area<'_>,
    across: &[usize],
    up: &[usize],
    place: impl Fn(f64, f64) -> (i32, i32),
) -> Drawn {
    let style = ("sans-serif", 13).into_text_style(root);
    for (x, size) in across.iter().enumerate() {
        let (px, py) = place(x as f64 + 0.45, 0.0);
        root.draw_text(&size.to_string(), &style, (px, py + 8))?;
    }
    for (y, size) in up.iter().enumerate() {
        let (px, py) = place(0.0, y as f64 + 0.5);
        root.draw_text(&size.to_string(), &style, (px - 28, py - 6))?;
    }
    Ok(())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
fn gray(share: f64) -> RGBColor {
    let level = (255.0 - 215.0 * share.clamp(0.0, 1.0)) as u8;
    RGBColor(level, level, level)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(shape: Shape) -> String {
        draw(&Figure { name: "n".into(), title: "a title".into(), shape }).unwrap()
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
