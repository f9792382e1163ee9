//! Heat maps of a run or a sweep: what is to be seen, for terminal and SVG alike, and the
//! terminal's drawing of it. The SVG's is in `svg`.

use std::fmt::Write as _;

use huepage_sim::heat::{Heat, HeatRegion};
use serde_json::Value;

use super::args::HeatOf;
use super::curve::{self, parameters};
use crate::style::Style;

/// Most lines of a picture of pages.
const REGIONS: usize = 24;
/// Marks of a line when nobody says how wide the terminal is.
const WIDTH: usize = 64;

/// Lines of cells.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// What a cell says.
    pub title: String,
    /// What a place in a line is.
    pub across: &'static str,
    /// The lines, from above.
    pub lines: Vec<HeatLine>,
}

/// A line of a picture.
#[derive(Clone, Debug, PartialEq)]
pub struct HeatLine {
    /// What is at its left.
    pub label: String,
    /// What is at its right, where its scale is its own.
    pub note: String,
    /// A number for each place.
    pub cells: Vec<f64>,
}

impl Picture {
    /// The greatest of all cells; never 0.
    pub fn most(&self) -> f64 {
        let cells = self.lines.iter().flat_map(|line| &line.cells);
        let most = cells.copied().fold(0.0, f64::max);
        if most > 0.0 { most } else { 1.0 }
    }

    /// The longest line.
    pub fn width(&self) -> usize {
        self.lines.iter().map(|line| line.cells.len()).max().unwrap_or(0)
    }
}

/// Misses by colour, a line for each row of a sweep. None where nothing was counted by colour.
pub fn colors(rows: &[Value]) -> Option<Picture> {
    let lines: Vec<HeatLine> = rows.iter().filter_map(color_line).collect();
    let level = rows.first().and_then(curve::level).unwrap_or_default();
    let title = format!("{level} misses by colour").trim_start().to_owned();
    (!lines.is_empty()).then_some(Picture { title, across: "colour", lines })
}

fn color_line(row: &Value) -> Option<HeatLine> {
    let misses = row["report"]["colors"]["misses"].as_array()?;
    let cells: Vec<f64> = misses.iter().filter_map(Value::as_f64).collect();
    let label: Vec<String> =
        parameters(row).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    let label = label.join(" ");
    (cells.len() > 1).then_some(HeatLine { label, note: String::new(), cells })
}

/// Accesses or misses per page, a line for each region of memory, at most so wide. Misses are those of
/// `cache`.
pub fn pages(heat: &Heat, of: HeatOf, cache: &str, width: usize) -> Picture {
    let regions = heat.regions(REGIONS, width);
    let title = match of {
        HeatOf::Accesses => "accesses per page".to_owned(),
        _ => format!("{cache} misses per page"),
    };
    let lines = regions.iter().map(|region| page_line(region, of)).collect();
    Picture { title, across: "pages of a region", lines }
}

fn page_line(region: &HeatRegion, of: HeatOf) -> HeatLine {
    let per_page = |bin: &huepage_sim::heat::PageCounts| {
        let sum = if of == HeatOf::Accesses { bin.accesses } else { bin.misses };
        sum as f64 / region.pages_per_bin as f64
    };
    HeatLine {
        label: format!("{}:{:x}", region.space, region.first.0 << 12),
        note: format!(
            "{} of {} pages, {} a mark",
            region.touched, region.span, region.pages_per_bin
        ),
        cells: region.bins.iter().map(per_page).collect(),
    }
}

/// The picture for a terminal: blocks in colour, or marks from light to dark without.
pub fn text(picture: &Picture, style: Style) -> String {
    let most = picture.most();
    let cells = || picture.lines.iter().flat_map(|line| &line.cells);
    let least = cells().copied().fold(f64::INFINITY, f64::min).min(most);
    let mut text = format!("\n{}, {} to {} (█):\n", picture.title, round(least), round(most));
    let lines: Vec<(String, &str, &[f64])> = if let [line] = &picture.lines[..]
        && line.label.is_empty()
    {
        // A run by itself: its colours in rows, each named by its first.
        let parts = line.cells.chunks(WIDTH).enumerate();
        parts.map(|(at, part)| ((at * WIDTH).to_string(), "", part)).collect()
    } else {
        picture.lines.iter().map(|l| (l.label.clone(), l.note.as_str(), &l.cells[..])).collect()
    };
    let label = lines.iter().map(|(label, ..)| label.chars().count()).max().unwrap_or(0).max(5);
    let width = picture.width().min(room(label));
    for (name, note, cells) in lines {
        let marks: String =
            fit(cells, width).into_iter().map(|share| mark(share / most, style)).collect();
        let _ = writeln!(text, "{}", format!("{name:>label$} |{marks}| {note}").trim_end());
    }
    text
}

/// Marks that a line has room for.
pub fn room(label: usize) -> usize {
    let terminal = comfy_table::Table::new().width().map(usize::from);
    // A note is at most forty characters.
    terminal.map_or(WIDTH, |width| width.saturating_sub(label + 44).clamp(16, 256))
}

/// Means of neighbouring cells, where there are more than fit.
fn fit(cells: &[f64], width: usize) -> Vec<f64> {
    let each = cells.len().div_ceil(width.max(1)).max(1);
    cells.chunks(each).map(|part| part.iter().sum::<f64>() / part.len() as f64).collect()
}

/// Nothing is blank; anything is at least the lightest mark.
fn mark(share: f64, style: Style) -> String {
    const MARKS: [char; 5] = [' ', '░', '▒', '▓', '█'];
    /// Of the 256 colours that terminals agree on: from black over purple and red to yellow.
    const RAMP: [u8; 11] = [16, 53, 54, 90, 125, 161, 197, 203, 209, 215, 229];
    if style.colored() {
        let color = RAMP[step(share, RAMP.len() - 1)];
        format!("\x1b[48;5;{color}m \x1b[0m")
    } else {
        MARKS[step(share, MARKS.len() - 1)].to_string()
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to `steps`")]
fn step(share: f64, steps: usize) -> usize {
    ((share * steps as f64).ceil() as usize).min(steps)
}

/// Whole numbers as such, others with a digit.
fn round(number: f64) -> String {
    if number.fract() == 0.0 { format!("{number:.0}") } else { format!("{number:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use huepage_color::Vpn;
    use serde_json::json;

    fn row(value: &str, misses: &[u64]) -> Value {
        json!({"point": 0, "level": "L2", "parameters": [{"name": "colors", "value": value}],
               "report": {"colors": {"misses": misses}}})
    }

    #[test]
    fn a_sweep_has_a_line_for_each_value_on_one_scale() {
        let picture = colors(&[row("1", &[8, 0]), row("2", &[2, 4])]).unwrap();
        let text = text(&picture, Style::plain());
        assert!(text.contains("L2 misses by colour, 0 to 8 (█)"), "{text}");
        assert!(text.contains("colors=1 |█ |\n") && text.contains("colors=2 |░▒|\n"), "{text}");
        assert!(!text.contains('\x1b'));
        assert_eq!(colors(&[json!({"report": {"colors": null}})]), None);
    }

    #[test]
    fn a_run_by_itself_shows_its_colours_in_rows() {
        let mut alone = row("", &[1; 100]);
        alone["parameters"] = json!([]);
        let text = text(&colors(&[alone]).unwrap(), Style::plain());
        let full = |n| "█".repeat(n);
        assert!(text.contains(&format!("    0 |{}|\n   64 |{}|\n", full(64), full(36))), "{text}");
    }

    #[test]
    fn pages_are_shown_by_region_with_their_mean() {
        let mut heat = Heat::default();
        for page in 0..200 {
            for _ in 0..=page / 100 {
                heat.note(3, Vpn(0x10 + page), page >= 100);
            }
        }
        heat.note(3, Vpn(0x1000), false);
        let picture = pages(&heat, HeatOf::Pages, "L2", 2);
        assert_eq!(picture.title, "L2 misses per page");
        assert_eq!(picture.lines[0].cells, [0.0, 2.0]);
        assert_eq!(picture.lines[0].label, "3:10000");
        assert_eq!(pages(&heat, HeatOf::Accesses, "L2", 2).lines[0].cells, [1.0, 2.0]);
        let text = text(&picture, Style::plain());
        assert!(text.contains("3:10000 | █| 200 of 200 pages, 100 a mark\n"), "{text}");
        assert!(text.contains("3:1000000 | | 1 of 1 pages"), "{text}");
    }

    #[test]
    fn steps_are_within_their_marks() {
        assert_eq!([0.0, 0.01, 0.25, 0.26, 1.0, 7.0].map(|s| step(s, 4)), [0, 1, 1, 2, 4, 4]);
        assert_eq!(fit(&[1.0, 3.0, 5.0], 2), [2.0, 5.0]);
        assert_eq!(fit(&[1.0, 3.0], 2), [1.0, 3.0]);
    }
}
