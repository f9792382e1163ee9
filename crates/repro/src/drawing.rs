//! Drawings as SVG text in memory: lines through points, and grids of shades. What they show is the
//! caller's, and so is the file.

use std::ops::Range;

pub use huepage::drawing::DrawResult;
use huepage::drawing::shade;
use plotters::coord::Shift;
use plotters::prelude::*;

/// Name and points.
pub type Series = (String, Vec<(f64, f64)>);

/// One color each, distinguishable also without red and green.
pub const PALETTE: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x00, 0x00, 0x00),
    RGBColor(0x99, 0x99, 0x99),
];
/// Width and height of lines, and width of a grid, in pixels.
const LINES_SIZE: (u32, u32) = (900, 560);
const GRID_WIDTH: u32 = 960;
/// Height of a grid's row, and of what surrounds all rows, in pixels.
const ROW_HEIGHT: u32 = 22;
const GRID_MARGINS: u32 = 110;

/// An area of a drawing.
pub type SvgArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The text of what `render` draws on white below `title`.
///
/// # Errors
/// With the words of the drawing library.
pub fn drawing(
    size: (u32, u32),
    title: &str,
    render: impl FnOnce(&SvgArea<'_>) -> DrawResult,
) -> Result<String, String> {
    let mut text = String::new();
    let drawn = (|| {
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE)?;
        let area = root.titled(title, ("sans-serif", 18))?;
        render(&area)?;
        root.present()?;
        DrawResult::Ok(())
    })();
    drawn.map_err(|e| e.to_string())?;
    Ok(text)
}

/// Lines through points, or points alone.
pub struct LineChart<'a> {
    /// What it shows.
    pub title: &'a str,
    /// Below the horizontal axis.
    pub across: &'a str,
    /// Left of the vertical axis.
    pub up: &'a str,
    /// Whether the points of a series are joined.
    pub joined: bool,
    /// What is drawn.
    pub series: &'a [Series],
}

impl LineChart<'_> {
    /// Draws them.
    ///
    /// # Errors
    /// With the words of the drawing library.
    pub fn draw(&self) -> Result<String, String> {
        let points = || self.series.iter().flat_map(|(_, points)| points);
        let (across, up) = (points().map(|p| p.0), points().map(|p| p.1));
        let right = largest(across);
        let (across, up) = (-0.02 * right..right, 0.0..largest(up));
        drawing(LINES_SIZE, self.title, |area| self.render(area, across, up))
    }

    fn render(&self, area: &SvgArea<'_>, across: Range<f64>, up: Range<f64>) -> DrawResult {
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(56)
            .build_cartesian_2d(across, up)?;
        let mut mesh = chart.configure_mesh();
        mesh.x_desc(self.across).y_desc(self.up).light_line_style(WHITE).draw()?;
        for ((name, points), color) in self.series.iter().zip(PALETTE.iter().cycle()) {
            let dots = points.iter().map(|&point| Circle::new(point, 4, color.filled()));
            let legend = |(x, y)| Circle::new((x + 8, y), 4, color.filled());
            chart.draw_series(dots)?.label(name).legend(legend);
            if self.joined {
                chart.draw_series(LineSeries::new(points.iter().copied(), color))?;
            }
        }
        chart.configure_series_labels().border_style(BLACK).background_style(WHITE).draw()?;
        Ok(())
    }
}

/// The largest value with some room above, which is more than 0.
pub fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max).max(1e-3) * 1.05
}

/// Rows of cells, each a shade between the least and the most; there is at least one cell.
pub struct Grid<'a> {
    /// What it shows.
    pub title: &'a str,
    /// Below the horizontal axis.
    pub across: &'a str,
    /// What is drawn in the lightest and in the darkest color.
    pub shades: (f64, f64),
    /// Names of columns.
    pub columns: &'a [String],
    /// Name and cells of each row, from above.
    pub rows: &'a [(String, Vec<f64>)],
    /// Digits after the point of the number in each cell.
    pub digits: usize,
}

impl Grid<'_> {
    /// Draws it.
    ///
    /// # Errors
    /// With the words of the drawing library.
    pub fn draw(&self) -> Result<String, String> {
        let rows = u32::try_from(self.rows.len()).map_err(|e| e.to_string())?;
        let size = (GRID_WIDTH, GRID_MARGINS + ROW_HEIGHT * rows);
        drawing(size, self.title, |area| self.render(area))
    }

    fn render(&self, area: &SvgArea<'_>) -> DrawResult {
        let width = self.rows.iter().map(|(_, cells)| cells.len()).max().unwrap_or(0);
        let longest = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(30 + 7 * u32::try_from(longest)?)
            // Rows go down, coordinates up.
            .build_cartesian_2d(0.0..width as f64, self.rows.len() as f64..0.0)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_mesh().x_desc(self.across).x_labels(0).y_labels(0).draw()?;
        for (row, (name, cells)) in self.rows.iter().enumerate() {
            let top = row as f64;
            let square = |(at, &cell): (usize, &f64)| {
                let corners = [(at as f64, top), ((at + 1) as f64, top + 0.95)];
                Rectangle::new(corners, shade(self.share(cell)).filled())
            };
            chart.draw_series(cells.iter().enumerate().map(square))?;
            self.name(area, row, name, |x, y| chart.backend_coord(&(x, y)))?;
        }
        Ok(())
    }

    /// Names a row, writes the numbers of its cells, and below the last row the names of columns.
    fn name(
        &self,
        area: &SvgArea<'_>,
        row: usize,
        name: &str,
        place: impl Fn(f64, f64) -> (i32, i32),
    ) -> DrawResult {
        let middle = row as f64 + 0.5;
        let plain = ("monospace", 12).into_text_style(area);
        let (x, y) = place(0.0, middle);
        area.draw_text(name, &plain, (x - 6 - 7 * i32::try_from(name.len())?, y - 6))?;
        for (at, &cell) in self.rows[row].1.iter().enumerate() {
            let ink = if self.share(cell) > 0.5 { WHITE } else { BLACK };
            let style = ("monospace", 12).into_font().color(&ink);
            let (text, (x, y)) =
                (format!("{cell:.*}", self.digits), place(at as f64 + 0.35, middle));
            area.draw_text(&text, &style, (x, y - 6))?;
        }
        for (at, column) in self.columns.iter().enumerate().filter(|_| row + 1 == self.rows.len()) {
            let (x, y) = place(at as f64 + 0.45, row as f64 + 1.0);
            area.draw_text(column, &plain, (x, y + 6))?;
        }
        Ok(())
    }

    fn share(&self, cell: f64) -> f64 {
        let (least, most) = self.shades;
        (cell - least) / (most - least).max(1e-9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(joined: bool) -> String {
        let series = [("one".to_owned(), vec![(1.0, 1.0), (4.0, 2.5)])];
        let (title, across, up) = ("a title", "KiB walked", "ns");
        LineChart { title, across, up, joined, series: &series }.draw().unwrap()
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

    fn grid() -> String {
        let row = |name: &str, cells: &[f64]| (name.to_owned(), cells.to_vec());
        let rows = [row("colors=1", &[0.0, 10.0]), row("colors=2", &[5.0, 10.0, 0.0])];
        let (title, across, shades) = ("a run", "color", (0.0, 10.0));
        let columns = &["first".to_owned(), "second".to_owned()];
        Grid { title, across, shades, columns, rows: &rows, digits: 1 }.draw().unwrap()
    }

    #[test]
    fn a_grid_has_a_square_for_each_cell_in_its_shade_and_a_name_for_each_row() {
        let text = grid();
        for word in ["a run", "colors=1", "colors=2", "color"] {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
        let squares = |color: &str| text.matches(&format!("fill=\"{color}\"")).count();
        assert_eq!(squares("#3F0D12"), 2);
        assert_eq!(squares("#FFFFE5"), 2);
        assert_eq!(squares("#EC7014"), 1);
    }

    #[test]
    fn cells_have_numbers_and_columns_names() {
        let text = grid();
        for word in ["first", "second", "10.0", "5.0"] {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
    }
}
