//! What was seen of a process by address and time, as a picture: a line for a stretch of its memory, a cell for a
//! moment, darker where more of what was looked at was found.

use std::collections::{BTreeMap, BTreeSet};

use huepage_policy::recording::touches::TouchStep;

use crate::cmd::sim::heat::{HeatLine, Picture};
use crate::report::ratio;

/// Lines and cells of a picture, at most.
const MOST_LINES: usize = 24;
const CELLS: usize = 64;
/// Pages of a block, of which a line has one at least.
const BLOCK_PAGES: u64 = 512;

/// Looks, by when and where.
#[derive(Debug, Default)]
pub struct TimeHeat(Vec<LookAt>);

#[derive(Clone, Copy, Debug)]
struct LookAt {
    seconds: f64,
    block: u64,
    looked: u32,
    found: u32,
}

impl TimeHeat {
    /// A page was looked at.
    pub fn note(&mut self, seconds: f64, page: u64, found: bool) {
        let (block, found) = (page / BLOCK_PAGES, u32::from(found));
        self.0.push(LookAt { seconds, block, looked: 1, found });
    }

    /// The pages of a step of a recording, or its samples.
    pub fn note_step(&mut self, step: &TouchStep) {
        match step {
            TouchStep::Look(look) => self.0.extend(look.groups.iter().map(|group| {
                let found = u32::try_from(group.touched.len()).unwrap_or(u32::MAX);
                LookAt { seconds: look.at, block: group.block, looked: group.pages, found }
            })),
            TouchStep::Samples(samples) => {
                let all = samples.missed.iter().chain(&samples.hit);
                all.for_each(|&page| self.note(samples.at, page, true));
            }
            TouchStep::Survey(_) => {}
        }
    }

    /// The picture of what was seen in so many seconds, by its title; none of nothing. Of samples a cell is how many
    /// there were.
    pub fn picture(&self, title: &str, seconds: f64, sampled: bool) -> Option<Picture> {
        let blocks: BTreeSet<u64> = self.0.iter().map(|look| look.block).collect();
        let blocks: Vec<u64> = blocks.into_iter().collect();
        let stretch = blocks.len().div_ceil(MOST_LINES).max(1);
        let place: BTreeMap<u64, usize> =
            blocks.iter().enumerate().map(|(at, &block)| (block, at / stretch)).collect();
        let mut sums = vec![[(0_u64, 0_u64); CELLS]; blocks.len().div_ceil(stretch)];
        for look in &self.0 {
            #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "a cell")]
            let cell = (look.seconds / seconds.max(1e-9) * CELLS as f64) as usize;
            let (looked, found) = &mut sums[place[&look.block]][cell.min(CELLS - 1)];
            *looked += u64::from(look.looked);
            *found += u64::from(look.found);
        }
        let line = |(blocks, sums): (&[u64], &[(u64, u64); CELLS])| HeatLine {
            label: format!("{:x}", blocks.first().unwrap_or(&0) * BLOCK_PAGES * 4096),
            note: format!("{} MiB", 2 * blocks.len()),
            cells: sums.iter().map(|&sum| cell(sum, sampled)).collect(),
        };
        let lines: Vec<HeatLine> = blocks.chunks(stretch).zip(&sums).map(line).collect();
        let title = title.to_owned();
        (!lines.is_empty()).then_some(Picture {
            title,
            across: "time, in 64ths of the recording",
            lines,
        })
    }
}

#[allow(clippy::cast_precision_loss, reason = "looks")]
fn cell((looked, found): (u64, u64), sampled: bool) -> f64 {
    if sampled { found as f64 } else { ratio(found, looked) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_fall_into_lines_by_address_and_cells_by_time() {
        let mut heat = TimeHeat::default();
        assert!(heat.picture("nothing", 1.0, false).is_none());
        for (seconds, page, found) in [(0.0, 512, true), (0.1, 513, false), (9.99, 5120, true)] {
            heat.note(seconds, page, found);
        }
        let picture = heat.picture("in the cache", 10.0, false).unwrap();
        let lines: Vec<_> = picture.lines.iter().map(|l| (&*l.label, &*l.note)).collect();
        assert_eq!(lines, [("200000", "2 MiB"), ("1400000", "2 MiB")]);
        assert_eq!((picture.lines[0].cells[0], picture.lines[1].cells[63]), (0.5, 1.0));
        assert_eq!(picture.lines[0].cells.iter().sum::<f64>(), 0.5);
    }

    #[test]
    fn large_processes_have_as_many_lines_as_fit() {
        let mut heat = TimeHeat::default();
        (0..1000).for_each(|block| heat.note(0.5, block * BLOCK_PAGES, true));
        let picture = heat.picture("", 1.0, true).unwrap();
        assert!(picture.lines.len() <= MOST_LINES && picture.width() == CELLS);
        assert_eq!(picture.lines[0].note, "84 MiB");
        assert_eq!(picture.lines[0].cells[32], 42.0, "samples are counted");
    }
}
