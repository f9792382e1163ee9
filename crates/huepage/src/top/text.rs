//! Figures, strips and names as short texts, for the screen and for `--once` alike.

use huepage_color::{Color, ColorSet};
use huepage_policy::residency::Estimate;

use super::snapshot::{GroupNow, ProcessNow};
pub use crate::figures::{UNKNOWN, bytes, count, percent};
use crate::report::measured;

/// Heights of a strip's cells.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A miss rate with its margin: `12.3±1.2%`.
pub fn misses(estimate: Option<Estimate>) -> String {
    let text = |e: Estimate| format!("{:.1}±{:.1}%", e.miss_rate * 100.0, e.margin * 100.0);
    estimate.map_or_else(|| UNKNOWN.into(), text)
}

/// A name of somebody else's: nothing in it moves the cursor, and it is not longer than that.
pub fn name(name: &str, most: usize) -> String {
    let clean = |c: char| if c.is_control() { '?' } else { c };
    let clean: Vec<char> = name.chars().map(clean).collect();
    match clean.len() > most && most > 0 {
        true => clean[..most - 1].iter().chain(&['…']).collect(),
        false => clean.into_iter().collect(),
    }
}

/// The end of a path, which says more than its beginning.
pub fn tail(name: &str, most: usize) -> String {
    let length = name.chars().count();
    if length <= most || most == 0 {
        return self::name(name, most.max(1));
    }
    let end: String = name.chars().skip(length - (most - 1)).collect();
    format!("…{}", self::name(&end, most))
}

/// A cell of a strip of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripCell {
    /// How much is there: higher for more pages; a dot where nothing is and nothing is to be.
    pub glyph: char,
    /// Whether the colours are in the partition; `None` if in part.
    pub inside: Option<bool>,
}

/// Pages per colour in at most `most` cells, for a partition of them.
pub fn strip(process: &ProcessNow, most: usize) -> Vec<StripCell> {
    let Some(colors) = &process.colors else { return Vec::new() };
    let universe = usize::from(colors.universe());
    let cells = universe.min(most.max(1));
    let spans: Vec<(usize, usize)> =
        (0..cells).map(|at| (at * universe / cells, (at + 1) * universe / cells)).collect();
    let pages = |&(from, to): &(usize, usize)| -> u64 {
        let some = process.pages_by_color.get(from..to).unwrap_or_default();
        some.iter().sum::<u64>() / (to - from) as u64
    };
    let highest = spans.iter().map(pages).max().unwrap_or(0);
    let cell = |span: &(usize, usize)| {
        let inside = inside(colors, *span);
        StripCell { glyph: glyph(pages(span), highest, inside), inside }
    };
    spans.iter().map(cell).collect()
}

fn inside(colors: &ColorSet, (from, to): (usize, usize)) -> Option<bool> {
    let own = (from..to).filter(|&c| u16::try_from(c).is_ok_and(|c| colors.contains(Color(c))));
    match own.count() {
        0 => Some(false),
        own if own == to - from => Some(true),
        _ => None,
    }
}

fn glyph(pages: u64, highest: u64, inside: Option<bool>) -> char {
    match (pages, inside) {
        (0, Some(false)) => '·',
        (0, _) => '_',
        (pages, _) => {
            let height = (pages * HEIGHTS.len() as u64).div_ceil(highest.max(1));
            HEIGHTS[usize::try_from(height).unwrap_or(HEIGHTS.len()).clamp(1, HEIGHTS.len()) - 1]
        }
    }
}

/// A group in a line.
pub fn group(group: Option<&GroupNow>) -> String {
    let Some(group) = group else { return "in no partition".to_owned() };
    let GroupNow { colors, of, level, colors_from, .. } = group;
    let mut text = match group.superpages {
        Some(_) if colors.is_empty() => format!("{}: superpages, no colours", group.label()),
        _ => format!(
            "{}: colours {colors} of {of} ({level}, {})",
            group.label(),
            measured(colors_from)
        ),
    };
    if let Some(built) = group.superpages.as_ref().filter(|_| !colors.is_empty()) {
        text += &format!(", {} superpages", built.promoted);
    }
    if group.frozen == Some(true) {
        text += ", frozen";
    }
    if let Some(trouble) = &group.trouble {
        text += &format!("; {trouble}");
    }
    name(&text, usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let sizes = [0.0, 912.0, 1023.9, 4096.0, 456.0 * 1024.0, 1.25e9, 3e15];
        let sizes: Vec<String> = sizes.into_iter().map(bytes).collect();
        assert_eq!(sizes, ["0", "912", "1.0K", "4.0K", "456K", "1.2G", "2.7P"]);
        assert_eq!([count(0.4), count(999.7), count(45_000.0)], ["0", "1.0k", "45k"]);
        assert_eq!(
            [percent(Some(0.9993)), percent(Some(1.0)), percent(None)],
            ["99.93%", "100%", "-"]
        );
        let estimate = Estimate { miss_rate: 0.1234, margin: 0.012, samples: 9 };
        assert_eq!(misses(Some(estimate)), "12.3±1.2%");
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        assert_eq!(name("a\x1b[2Jb", 20), "a?[2Jb");
        assert_eq!(name("a-long-name", 6), "a-lon…");
        assert_eq!(tail("/usr/lib/libc.so.6", 10), "…ibc.so.6"[..].replace('…', "…l"));
        assert_eq!(tail("short", 10), "short");
    }

    #[test]
    fn a_strip_shows_pages_and_the_partition() {
        let mut process =
            ProcessNow { colors: ColorSet::parse("0-3", 8).ok(), ..Default::default() };
        let text = |p: &ProcessNow, n| strip(p, n).iter().map(|c| c.glyph).collect::<String>();
        assert_eq!(text(&process, 16), "____····");
        process.pages_by_color = vec![100, 50, 13, 0, 1, 0, 0, 0];
        assert_eq!(text(&process, 16), "█▄▂_▁···");
        assert_eq!(text(&process, 4), "█▁··");
        assert_eq!(strip(&process, 3)[1].inside, None);
        assert_eq!(text(&ProcessNow::default(), 4), "");
    }
}
