//! Files that would fit the cache and are scanned again and again, beyond SRM-buffer 2011 (its
//! section 4.5: in a few colours such a file misses at every scan, 12 to 17 % slower). A file is
//! one if several scans of it in a row were whole and no more blocks of all files were used from
//! the beginning of one to that of the next than the cache has pages: with all colours it would
//! have hit. Its blocks are then spread evenly, as many moves as that takes, and blocks that come
//! back later go where fewest are. When such scans stop, nothing is moved back.
//!
//! A use takes constant time; spreading takes the blocks and colours of the file. It keeps an entry
//! per cached block of the files that are no larger than the cache.

use std::collections::BTreeMap;
use std::collections::HashMap;

use huepage_color::{Color, NumberHash};

/// When a file counts as scanned again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rescan {
    /// Pages of the cache: larger files are not looked at.
    pub cache_pages: u64,
    /// Whole scans in a row, each near the one before, at least 1.
    pub scans: u32,
}

impl Rescan {
    /// Two: a file that is read twice is not moved, one of which a third scan begins is.
    pub const SCANS: u32 = 2;

    /// For a cache of so many pages.
    pub const fn new(cache_pages: u64) -> Rescan {
        Rescan { cache_pages, scans: Rescan::SCANS }
    }
}

/// Files that are looked at.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    settings: Rescan,
    colors: u16,
    files: HashMap<u64, Seen, NumberHash>,
    /// Uses of blocks so far, of all files.
    clock: u64,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    /// Where blocks were placed.
    colors: BTreeMap<u64, Color>,
    /// Where moves come from that were asked for and not refused.
    before: BTreeMap<u64, Color>,
    pages: u64,
    /// When the scan began, the blocks it has used, and the latest of them.
    began: u64,
    touched: u64,
    latest: u64,
    /// Whole scans in a row that came soon after the one before.
    near: u32,
    spread: bool,
}

impl Seen {
    /// A scan is over; whether it had nearly all blocks, three in four.
    const fn is_whole(&self) -> bool {
        4 * self.touched >= 3 * self.pages
    }

    fn crowd(&self, colors: u16) -> Vec<u64> {
        let mut crowd = vec![0; usize::from(colors)];
        for color in self.colors.values() {
            crowd[usize::from(color.0)] += 1;
        }
        crowd
    }
}

impl Watched {
    pub(super) fn new(settings: Rescan, colors: u16) -> Watched {
        Watched { settings, colors, files: HashMap::default(), clock: 0 }
    }

    /// A block gets a frame of a colour.
    pub(super) fn placed(&mut self, file: u64, block: u64, pages: u64, to: Color) {
        if pages > self.settings.cache_pages {
            self.files.remove(&file);
            return;
        }
        let seen = self.files.entry(file).or_default();
        seen.pages = pages;
        seen.colors.insert(block, to);
        seen.before.remove(&block);
    }

    /// The colour of the fewest blocks of a file that is spread; none if it is not.
    pub(super) fn spread_color(&self, file: u64) -> Option<Color> {
        let seen = self.files.get(&file).filter(|seen| seen.spread)?;
        let crowd = seen.crowd(self.colors);
        (0..self.colors).map(Color).min_by_key(|color| crowd[usize::from(color.0)])
    }

    /// A block was read from the disk: a use that is followed by its placement.
    pub(super) fn missed(&mut self, file: u64, block: u64) {
        self.used_now(file, block);
    }

    /// A block was used; the moves that spread its file, if it is time for that.
    pub(super) fn used(&mut self, file: u64, block: u64) -> Vec<(u64, Color)> {
        let colors = self.colors;
        match self.used_now(file, block) {
            Some(seen) if !seen.spread => {
                seen.spread = true;
                spread(seen, colors)
            }
            _ => Vec::new(),
        }
    }

    /// Keeps the books of scans; the file, if it is scanned again and again.
    fn used_now(&mut self, file: u64, block: u64) -> Option<&mut Seen> {
        self.clock += 1;
        let seen = self.files.get_mut(&file)?;
        if block <= seen.latest && seen.touched > 0 {
            let soon = self.clock - seen.began <= self.settings.cache_pages;
            seen.near = if soon && seen.is_whole() { seen.near + 1 } else { 0 };
            seen.spread &= seen.near > 0;
            (seen.began, seen.touched) = (self.clock, 0);
        }
        seen.touched += 1;
        seen.latest = block;
        (seen.near >= self.settings.scans).then_some(seen)
    }

    /// A move could not be made.
    pub(super) fn refused(&mut self, file: u64, block: u64) {
        if let Some(seen) = self.files.get_mut(&file)
            && let Some(old) = seen.before.remove(&block)
        {
            seen.colors.insert(block, old);
        }
    }

    pub(super) fn gone(&mut self, file: u64) {
        self.files.remove(&file);
    }
}

/// Blocks of colours with more than their share go to colours with less; those that come first in
/// the file stay.
fn spread(seen: &mut Seen, colors: u16) -> Vec<(u64, Color)> {
    let share = (seen.colors.len() as u64).div_ceil(u64::from(colors));
    let crowd = seen.crowd(colors);
    let mut room = crowd.iter().map(|&n| share.saturating_sub(n)).collect::<Vec<u64>>();
    let (mut kept, mut moves, mut to) = (vec![0; usize::from(colors)], Vec::new(), 0_u16);
    for (&block, color) in &seen.colors {
        let own = &mut kept[usize::from(color.0)];
        *own += 1;
        if *own <= share {
            continue;
        }
        while to < colors && room[usize::from(to)] == 0 {
            to += 1;
        }
        let Some(left) = room.get_mut(usize::from(to)) else { break };
        *left -= 1;
        moves.push((block, Color(to)));
    }
    for &(block, to) in &moves {
        if let Some(old) = seen.colors.insert(block, to) {
            seen.before.insert(block, old);
        }
    }
    moves
}
