//! Drawings in memory: a curve with error bars and its knee marked, which all commands that draw lines share.
//! What is drawn is theirs, and who writes it where is the command's business.

use plotters::coord::combinators::LogCoord;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

/// What the drawing library says of a step.
pub type DrawResult = Result<(), Box<dyn std::error::Error>>;

/// Width and height of a curve in pixels.
const SIZE: (u32, u32) = (800, 500);
/// One colour per line, distinguishable also without red and green.
const PALETTE: [RGBColor; 5] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xd5, 0x5e, 0x00),
];
/// From nothing to the most: dark where it is hot, and told apart without seeing colours.
const RAMP: [RGBColor; 5] = [
    RGBColor(0xff, 0xff, 0xe5),
    RGBColor(0xfe, 0xc4, 0x4f),
    RGBColor(0xec, 0x70, 0x14),
    RGBColor(0xa5, 0x2a, 0x08),
    RGBColor(0x3f, 0x0d, 0x12),
];
/// Half of the width of an error bar's ends, as a factor on the logarithmic axis.
const CAP: f64 = 1.02;

/// The text of what `render` draws.
///
/// # Errors
/// With the words of the drawing library.
pub fn drawing(render: impl FnOnce(&mut String) -> DrawResult) -> Result<String, String> {
    let mut text = String::new();
    render(&mut text).map_err(|e| e.to_string())?;
    Ok(text)
}

/// A curve's place: across by powers of 2, upwards as it says.
type Chart<'a, 'b, Up> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, Up>>;

/// Lines over sizes that double.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlotCurve<'a> {
    /// Above all.
    pub title: &'a str,
    /// What is across, on a logarithmic axis to base 2.
    pub across: &'a str,
    /// What is upwards.
    pub up: &'a str,
    /// Whether the axis upwards is logarithmic too; else it begins at 0.
    pub log_up: bool,
    /// A line each with its name.
    pub lines: Vec<(String, Vec<PlotPoint>)>,
    /// Where more stops to pay.
    pub knee: Option<f64>,
}

/// A place on a line, and how far repetitions went.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlotPoint {
    /// Across; more than 0.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// The lowest and the highest repetition; the same where there was one.
    pub range: [f64; 2],
}

impl PlotPoint {
    /// Of the median, the lowest and the highest of some repetitions.
    pub fn of(x: f64, repetitions: &[f64]) -> PlotPoint {
        let mut sorted = repetitions.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |part: usize| sorted.get(part).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        let y = (at(last / 2) + at(last.div_ceil(2))) / 2.0;
        PlotPoint { x, y, range: [at(0), at(last)] }
    }
}

impl PlotCurve<'_> {
    /// As SVG.
    ///
    /// # Errors
    /// With the words of the drawing library.
    pub fn draw(&self) -> Result<String, String> {
        let [low, high] = self.heights();
        drawing(|text| match self.log_up {
            true => self.render((low * 0.9..high * 1.1).log_scale(), low, text),
            false => self.render(0.0..high * 1.05, 0.0, text),
        })
    }

    fn points(&self) -> impl Iterator<Item = &PlotPoint> {
        self.lines.iter().flat_map(|(_, points)| points)
    }

    /// The lowest and the highest of all.
    fn heights(&self) -> [f64; 2] {
        let low = self.points().map(|point| point.range[0]).fold(f64::MAX, f64::min);
        let high = self.points().map(|point| point.range[1]).fold(f64::MIN_POSITIVE, f64::max);
        [low.min(high), high]
    }

    fn render<Up>(&self, up: Up, floor: f64, text: &mut String) -> DrawResult
    where
        Up: AsRangedCoord<Value = f64>,
        Up::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let first = self.points().map(|point| point.x).fold(f64::MAX, f64::min);
        let last = self.points().map(|point| point.x).fold(first * 2.0, f64::max);
        let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(42)
            .y_label_area_size(64)
            .build_cartesian_2d((first..last).log_scale().base(2.0), up)?;
        chart
            .configure_mesh()
            .x_desc(self.across)
            .y_desc(self.up)
            .x_label_formatter(&|x| doubled(*x))
            .y_label_formatter(&|y| short(*y))
            .light_line_style(WHITE)
            .draw()?;
        self.lines_on(&mut chart, floor)?;
        if self.lines.len() > 1 || self.knee.is_some() {
            self.name_lines(&mut chart)?;
        }
        root.present()?;
        Ok(())
    }

    /// The names of lines and knee, in a box.
    fn name_lines<'a, 'b: 'a, Up>(&self, chart: &mut Chart<'a, 'b, Up>) -> DrawResult
    where
        Up: Ranged<ValueType = f64>,
    {
        // Where lines are low: a staircase rises, times fall.
        let corner = match self.log_up {
            true => SeriesLabelPosition::UpperLeft,
            false => SeriesLabelPosition::UpperRight,
        };
        chart
            .configure_series_labels()
            .position(corner)
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.2))
            .draw()?;
        Ok(())
    }

    /// Draws the knee, and the lines with their error bars.
    fn lines_on<Up>(&self, chart: &mut Chart<'_, '_, Up>, floor: f64) -> DrawResult
    where
        Up: Ranged<ValueType = f64>,
    {
        if let Some(knee) = self.knee {
            let line = [(knee, floor.max(f64::MIN_POSITIVE)), (knee, self.heights()[1])];
            chart
                .draw_series([PathElement::new(line, BLACK.mix(0.4).stroke_width(1))])?
                .label(format!("knee: {}", short(knee)))
                .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLACK.mix(0.4)));
        }
        for ((name, points), color) in self.lines.iter().zip(PALETTE.iter().cycle()) {
            let line = points.iter().map(|point| (point.x, point.y));
            chart
                .draw_series(LineSeries::new(line, color.stroke_width(2)).point_size(3))?
                .label(name)
                .legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], color.stroke_width(3))
                });
            let bars = points.iter().filter(|point| point.range[0] < point.range[1]).map(error_bar);
            chart.draw_series(bars.map(|bar| PathElement::new(bar, color.stroke_width(1))))?;
        }
        Ok(())
    }
}

/// From the lowest to the highest, with ends across.
fn error_bar(point: &PlotPoint) -> Vec<(f64, f64)> {
    let ([low, high], x) = (point.range, point.x);
    let [left, right] = [x / CAP, x * CAP];
    vec![(left, low), (right, low), (x, low), (x, high), (left, high), (right, high)]
}

/// A number in few characters: `0.5`, `64`, `2M`.
pub fn short(number: f64) -> String {
    let scaled = [(1e9, "G"), (1e6, "M"), (1e4, "k")].into_iter().find(|(unit, _)| number >= *unit);
    let (unit, name) =
        scaled.map_or((1.0, ""), |(unit, name)| (if unit == 1e4 { 1e3 } else { unit }, name));
    let rounded = (number / unit * 100.0).round() / 100.0;
    format!("{rounded}{name}")
}

/// A number on the axis of doublings: sizes in bytes have binary units, as `256K`.
fn doubled(number: f64) -> String {
    let units =
        [(1_u64 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")].map(|(n, name)| (n as f64, name));
    let fits = |unit: &f64| number >= 4096.0 && number % unit == 0.0;
    match units.into_iter().find(|(unit, _)| fits(unit)) {
        Some((unit, name)) => format!("{}{name}", number / unit),
        None => short(number),
    }
}

/// Between the colours of the ramp.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 255")]
pub fn shade(share: f64) -> RGBColor {
    let place = share.clamp(0.0, 1.0) * (RAMP.len() - 1) as f64;
    let below = (place as usize).min(RAMP.len() - 2);
    let part = place - below as f64;
    let mix = |a: u8, b: u8| (f64::from(a) + part * (f64::from(b) - f64::from(a))).round() as u8;
    let (a, b) = (RAMP[below], RAMP[below + 1]);
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(log_up: bool) -> PlotCurve<'static> {
        let points = [(1.0, [3.0, 4.0, 3.5]), (2.0, [2.0, 2.0, 2.0]), (16.0, [1.0, 1.1, 1.0])];
        let points = points.map(|(x, y)| PlotPoint::of(x, &y)).to_vec();
        let lines = vec![("walk".to_owned(), points)];
        let (title, across, up) = ("a title", "colours", "slowdown");
        PlotCurve { title, across, up, log_up, lines, knee: Some(2.0) }
    }

    #[test]
    fn a_curve_has_its_names_its_knee_and_error_bars_where_repetitions_differ() {
        for log_up in [false, true] {
            let text = curve(log_up).draw().unwrap();
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
            for word in ["a title", "colours", "slowdown", "walk", "knee: 2"] {
                assert!(text.contains(word), "{word} is missing");
            }
            let one = vec![("walk".to_owned(), curve(log_up).lines[0].1[1..2].to_vec())];
            let one = PlotCurve { lines: one, ..curve(log_up) };
            let bars = "stroke=\"#0072B2\" stroke-width=\"1\" points";
            assert_eq!(text.matches(bars).count(), 2, "two points vary: {text}");
            assert_eq!(one.draw().unwrap().matches(bars).count(), 0, "one does not");
        }
    }

    #[test]
    fn doublings_are_equally_far_apart() {
        let points = [1.0, 2.0, 4.0, 8.0, 16.0].map(|x| PlotPoint::of(x, &[1.0]));
        let lines = vec![("even".to_owned(), points.to_vec())];
        let text = PlotCurve { title: "t", lines, ..PlotCurve::default() }.draw().unwrap();
        let circles = text.split("<circle ").skip(1);
        let across = |circle: &str| circle.split("cx=\"").nth(1)?.split('"').next()?.parse().ok();
        let at: Vec<i32> = circles.filter_map(across).collect();
        assert_eq!(at.len(), 5, "{text}");
        let steps: Vec<i32> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(steps.iter().all(|step| (step - steps[0]).abs() <= 1), "{steps:?}");
    }

    #[test]
    fn a_point_is_the_median_with_its_range() {
        let point = PlotPoint::of(4.0, &[3.0, 1.0, 2.0, 10.0]);
        assert_eq!((point.y, point.range), (2.5, [1.0, 10.0]));
        let numbers = [0.5, 64.0, 4096.0, 12_345.0, 2e6, 3.25e9].map(short);
        assert_eq!(numbers, ["0.5", "64", "4096", "12.35k", "2M", "3.25G"]);
        let sizes = [16.0, 2048.0, 262_144.0, 1_572_864.0, 4_194_304.0, 50_000.0].map(doubled);
        assert_eq!(sizes, ["16", "2048", "256K", "1536K", "4M", "50k"]);
    }

    #[test]
    fn shades_go_from_one_end_of_the_ramp_to_the_other() {
        assert_eq!(shade(0.0), RAMP[0]);
        assert_eq!(shade(0.5), RAMP[2]);
        assert_eq!(shade(1.0), RAMP[4]);
        assert_eq!(shade(9.0), RAMP[4]);
    }
}
