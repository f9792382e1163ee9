//! The staircase on a terminal: footprints across, nanoseconds up, both on logarithmic axes, one
//! mark per share. Unicode where the locale has it, plain ASCII elsewhere.

use std::fmt::Write as _;

use comfy_table::Color;

use super::staircase::{Staircase, WalkedShare};
use crate::style::Style;

/// Characters of the drawing area.
const WIDTH: usize = 62;
const HEIGHT: usize = 16;

/// Characters and colour of a drawing.
#[derive(Clone, Copy, Debug)]
pub struct Ink {
    marks: [char; 5],
    trace: char,
    up: char,
    tick: char,
    corner: char,
    across: char,
    style: Style,
}

impl Ink {
    /// What this terminal can show.
    pub fn for_terminal(style: Style) -> Ink {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        let unicode = locale.contains("utf-8") || locale.contains("utf8");
        if unicode { Ink::unicode(style) } else { Ink::ascii(style) }
    }

    /// Unicode marks.
    pub const fn unicode(style: Style) -> Ink {
        let marks = ['●', '■', '▲', '◆', '○'];
        Ink { marks, trace: '·', up: '│', tick: '┤', corner: '└', across: '─', style }
    }

    /// Plain marks.
    pub const fn ascii(style: Style) -> Ink {
        let marks = ['@', '#', 'A', 'x', 'o'];
        Ink { marks, trace: '.', up: '|', tick: '+', corner: '+', across: '-', style }
    }

    /// The mark of a share, in its colour.
    pub fn mark(&self, share: usize) -> String {
        self.paint(share, self.marks[share % self.marks.len()])
    }

    fn paint(&self, share: usize, mark: char) -> String {
        if !self.style.colored() {
            return mark.to_string();
        }
        let codes = [Color::Green, Color::Cyan, Color::Blue, Color::Yellow, Color::Red];
        let code = match codes[share % codes.len()] {
            Color::Green => 32,
            Color::Cyan => 36,
            Color::Blue => 34,
            Color::Yellow => 33,
            _ => 31,
        };
        format!("\x1b[{code}m{mark}\x1b[0m")
    }
}

/// A cell of the drawing: which share, and its mark or its trace.
type Cell = Option<(usize, char)>;

/// The vertical axis, logarithmic, from one number of nanoseconds to another.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Scale {
    low: f64,
    high: f64,
}

/// Numbers that have a tick if they lie on the axis.
const ROUND: [f64; 12] =
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0];

impl Scale {
    /// A scale for all medians, with a little room at both ends.
    fn of(stairs: &Staircase) -> Scale {
        let all = || stairs.shares.iter().flat_map(|s| &s.ns).map(|c| c.median);
        let low = all().fold(f64::MAX, f64::min).max(0.1) * 0.9;
        Scale { low, high: all().fold(low * 2.0, f64::max) * 1.1 }
    }

    /// The row, 0 at the top, of a latency.
    fn row(self, ns: f64) -> usize {
        HEIGHT - 1 - cell_of((ns / self.low).ln() / (self.high / self.low).ln(), HEIGHT)
    }

    /// The number that stands at a row, if any does.
    fn tick(self, row: usize) -> Option<f64> {
        let inside = |ns: &f64| (self.low..=self.high).contains(ns);
        ROUND.into_iter().filter(inside).find(|&ns| self.row(ns) == row)
    }
}

/// Draws a staircase, with axes, units and a legend.
pub fn draw(stairs: &Staircase, ink: &Ink) -> String {
    let scale = Scale::of(stairs);
    let mut grid = vec![[const { None }; WIDTH]; HEIGHT];
    for (share, line) in stairs.shares.iter().enumerate() {
        trace(&mut grid, share, line, stairs, scale, ink);
    }
    for (share, line) in stairs.shares.iter().enumerate() {
        for (point, ns) in line.ns.iter().enumerate() {
            let x = column(stairs, point);
            grid[scale.row(ns.median)][x] = Some((share, ink.marks[share % ink.marks.len()]));
        }
    }
    let mut out = String::from("  ns per access\n");
    for (y, cells) in grid.iter().enumerate() {
        let _ = writeln!(out, "{}{}", left(y, scale, ink), line(cells, ink));
    }
    out + &bottom(stairs, ink) + &legend(stairs, ink)
}

/// The column of a footprint, by its logarithm.
fn column(stairs: &Staircase, point: usize) -> usize {
    let log = |kib: usize| (kib.max(1) as f64).log2();
    let kib = &stairs.footprints_kib;
    let (first, last) = (log(kib[0]), log(kib[kib.len() - 1]));
    cell_of((log(kib[point]) - first) / (last - first).max(f64::EPSILON), WIDTH)
}

/// A fraction of a side of `cells`, as the number of a cell.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a side")]
fn cell_of(fraction: f64, cells: usize) -> usize {
    ((fraction.clamp(0.0, 1.0) * (cells - 1) as f64).round() as usize).min(cells - 1)
}

/// Dots between the points of a share.
fn trace(
    grid: &mut [[Cell; WIDTH]],
    share: usize,
    line: &WalkedShare,
    stairs: &Staircase,
    scale: Scale,
    ink: &Ink,
) {
    for (point, pair) in line.ns.windows(2).enumerate() {
        let (from, to) = (column(stairs, point), column(stairs, point + 1));
        for step in 0..to - from {
            let part = step as f64 / (to - from) as f64;
            let ns = pair[0].median * (pair[1].median / pair[0].median).powf(part);
            grid[scale.row(ns)][from + step] = Some((share, ink.trace));
        }
    }
}

/// The axis at the left of a row, with a number where a round one falls.
fn left(y: usize, scale: Scale, ink: &Ink) -> String {
    match scale.tick(y) {
        Some(ns) => format!("{ns:>6} {}", ink.tick),
        None => format!("{:>6} {}", "", ink.up),
    }
}

fn line(cells: &[Cell; WIDTH], ink: &Ink) -> String {
    let painted = cells.iter().map(|cell| match cell {
        Some((share, mark)) => ink.paint(*share, *mark),
        None => " ".into(),
    });
    painted.collect::<String>().trim_end().to_owned()
}

/// The lower axis: a line, footprints that have room, and the unit.
fn bottom(stairs: &Staircase, ink: &Ink) -> String {
    let mut labels = String::new();
    for (point, kib) in stairs.footprints_kib.iter().enumerate() {
        let label = kib.to_string();
        let start = (8 + column(stairs, point)).saturating_sub(label.len() / 2);
        if labels.is_empty() || start > labels.len() {
            labels += &" ".repeat(start.saturating_sub(labels.len()));
            labels += &label;
        }
    }
    let axis: String = std::iter::repeat_n(ink.across, WIDTH).collect();
    format!("{:>6} {}{axis}\n{labels}  KiB walked\n", "", ink.corner)
}

fn legend(stairs: &Staircase, ink: &Ink) -> String {
    let entry = |(share, line): (usize, &WalkedShare)| match line.colors {
        1 => format!("{} 1 colour", ink.mark(share)),
        n => format!("{} {n} colours", ink.mark(share)),
    };
    let entries: Vec<String> = stairs.shares.iter().enumerate().map(entry).collect();
    format!("        {}\n", entries.join("   "))
}

#[cfg(test)]
mod tests {
    use super::super::staircase::examples::ideal;
    use super::*;

    #[test]
    fn every_share_and_both_axes_are_there() {
        let text = draw(&ideal(), &Ink::ascii(Style::plain()));
        for mark in ['@', '#', 'A', 'x', 'o'] {
            assert!(text.contains(mark), "{mark} is missing:\n{text}");
        }
        for word in ["ns per access", "KiB walked", "16 colours", "1 colour", " 64 ", "2048"] {
            assert!(text.contains(word), "{word} is missing:\n{text}");
        }
        assert!(text.is_ascii() && text.lines().all(|l| l.len() <= 84), "{text}");
    }

    #[test]
    fn higher_is_slower_and_further_right_is_larger() {
        let stairs = ideal();
        let scale = Scale::of(&stairs);
        assert!((4.0..5.0).contains(&scale.low) && (25.0..30.0).contains(&scale.high));
        assert_eq!((scale.row(scale.low), scale.row(scale.high)), (HEIGHT - 1, 0));
        let ticks: Vec<f64> = (0..HEIGHT).filter_map(|row| scale.tick(row)).collect();
        assert_eq!(ticks, [20.0, 10.0, 5.0]);
        assert_eq!((column(&stairs, 0), column(&stairs, 8)), (0, WIDTH - 1));
        assert!(column(&stairs, 3) < column(&stairs, 4));
    }

    #[test]
    fn impossible_latencies_do_not_break_the_drawing() {
        let mut stairs = ideal();
        stairs.shares[0].ns[0].median = f64::NAN;
        stairs.shares[1].ns[1].median = 0.0;
        stairs.shares[2].ns[2].median = 1e9;
        assert!(draw(&stairs, &Ink::ascii(Style::plain())).lines().count() > HEIGHT);
    }

    #[test]
    fn unicode_and_plain_drawings_differ_only_in_characters() {
        let plain = draw(&ideal(), &Ink::ascii(Style::plain()));
        let fancy = draw(&ideal(), &Ink::unicode(Style::plain()));
        let lengths = |text: &str| text.lines().map(|l| l.chars().count()).collect::<Vec<_>>();
        assert_eq!(lengths(&plain), lengths(&fancy));
        assert!(fancy.contains('●') && fancy.contains('└'));
    }
}
