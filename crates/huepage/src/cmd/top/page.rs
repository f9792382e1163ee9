//! What `huepage top --once` saw as a page: colours of each group over time, pages of each process by colour, and
//! what was decided when.

use huepage_color::ColorSet;

use crate::cmd::sim::heat::{HeatLine, Picture};
use crate::cmd::sim::svg;
use crate::html;
use crate::top::changes;
use crate::top::snapshot::{GroupNow, TopDecision, TopSnapshot};
use crate::top::text;

/// Places of a line over time, and processes drawn, at most.
const CELLS: usize = 64;
const MOST_PROCESSES: usize = 32;

/// A page with what was printed above the drawings.
///
/// # Errors
/// With the words of the drawing library.
pub fn page(moments: &[TopSnapshot], printed: &str) -> Result<String, String> {
    let pictures = [over_time(moments), by_color(moments)];
    let drawn = pictures.iter().flatten().map(|picture| svg::draw(picture, "huepage top"));
    let mut parts = drawn.collect::<Result<Vec<String>, String>>()?;
    parts.extend(decided(moments));
    Ok(html::report("huepage top", printed, &parts))
}

/// How many colours each group had at each moment.
fn over_time(moments: &[TopSnapshot]) -> Option<Picture> {
    let mut groups: Vec<&GroupNow> = Vec::new();
    for group in moments.iter().flat_map(|moment| &moment.groups) {
        if !groups.iter().any(|known| known.id() == group.id()) {
            groups.push(group);
        }
    }
    let last_of_each: Vec<&TopSnapshot> = moments
        .chunks(moments.len().div_ceil(CELLS).max(1))
        .filter_map(|some| some.last())
        .collect();
    let held = |moment: &&TopSnapshot, group: &GroupNow| {
        let now = moment.groups.iter().find(|now| now.id() == group.id());
        let colors = now.and_then(|now| ColorSet::parse(&now.colors, now.of).ok());
        colors.map_or(0.0, |colors| f64::from(colors.len()))
    };
    let line = |group: &&GroupNow| HeatLine {
        label: text::name(&group.label(), 20),
        note: format!("of {}", group.of),
        cells: last_of_each.iter().map(|moment| held(moment, group)).collect(),
    };
    let lines: Vec<HeatLine> = groups.iter().map(line).collect();
    let title = "colours of each group".to_owned();
    (!lines.is_empty()).then_some(Picture {
        title,
        across: "looks, from the first to the last",
        lines,
    })
}

/// Resident pages of each process by colour, at the end.
fn by_color(moments: &[TopSnapshot]) -> Option<Picture> {
    let all = &moments.last()?.processes;
    let confined = all.iter().filter(|process| !process.pages_by_color.is_empty());
    let lines = confined.take(MOST_PROCESSES).map(|process| HeatLine {
        label: format!("{} {}", process.pid, text::name(&process.name, 14)),
        note: process.colors.as_ref().map_or_else(String::new, |colors| format!("has {colors}")),
        cells: process.pages_by_color.iter().map(|&pages| pages as f64).collect(),
    });
    let lines: Vec<HeatLine> = lines.collect();
    let title = "resident pages by colour".to_owned();
    (!lines.is_empty()).then_some(Picture { title, across: "colour", lines })
}

/// What became different between moments, and what was decided, by the seconds since the first.
fn decided(moments: &[TopSnapshot]) -> Option<String> {
    let (first, last) = (moments.first()?, moments.last()?);
    let between = moments.windows(2).flat_map(|pair| changes::between(&pair[0], &pair[1]));
    let own = changes::between(first, last);
    let told = last.decisions.iter().filter(|of| !own.contains(of)).cloned();
    let mut all: Vec<TopDecision> = between.chain(told).collect();
    all.sort_by(|a, b| a.at.total_cmp(&b.at));
    let row = |of: &TopDecision| {
        let after = format!("{:.1}", (of.at - first.at).max(0.0));
        vec![after, text::name(&of.group, 40), text::name(&of.text, 400)]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let headings = ["seconds", "group", "decided"].map(str::to_owned);
    (!rows.is_empty()).then(|| html::table(&headings, &rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::snapshot::ProcessNow;

    fn moment(at: f64, colors: &str) -> TopSnapshot {
        let group = GroupNow { colors: colors.to_owned(), of: 8, ..GroupNow::default() };
        let group = GroupNow { name: Some("web<1>".to_owned()), supervisor: 7, ..group };
        let pages_by_color = vec![0, 5, 9];
        let process = ProcessNow { pid: 4711, pages_by_color, ..ProcessNow::default() };
        TopSnapshot { at, groups: vec![group], processes: vec![process], ..TopSnapshot::default() }
    }

    #[test]
    fn colours_are_drawn_over_time_and_pages_by_colour() {
        let mut moments = [moment(10.0, "0-3"), moment(11.0, "0-1"), moment(12.0, "")];
        let picture = over_time(&moments).unwrap();
        assert_eq!(picture.lines[0].cells, [4.0, 2.0, 0.0]);
        assert_eq!(by_color(&moments).unwrap().lines[0].cells, [0.0, 5.0, 9.0]);
        let text = "gives 2 <colours>".to_owned();
        moments[2].decisions = vec![TopDecision { at: 11.5, group: "web".to_owned(), text }];
        let page = page(&moments, "a table\n").unwrap();
        assert_eq!(page.matches("<svg").count(), 2, "{page}");
        for part in
            ["<td>1.5</td>", "0-3 became 0-1", "gives 2 &lt;colours&gt;", "web&lt;1&gt;", "a table"]
        {
            assert!(page.contains(part), "{part} in {page}");
        }
    }

    #[test]
    fn long_watches_have_as_many_places_as_fit() {
        let moments: Vec<TopSnapshot> = (0..1000).map(|at| moment(f64::from(at), "0")).collect();
        assert!(over_time(&moments).unwrap().width() <= CELLS);
        assert_eq!(over_time(&[]), None);
        assert!(page(&[], "nothing\n").unwrap().contains("nothing"));
    }
}
