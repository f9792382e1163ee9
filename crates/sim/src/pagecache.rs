//! The page cache: which blocks of files are in memory, in which frames, and which of them
//! goes when a frame is needed. Two lists as Linux has them, or one by age; and a coloured zone
//! beside them, from which a policy gets frames of the colour it wants (SRM-buffer 2011,
//! figure 6).
//!
//! Frames are given to it and taken from it by the machine, which also counts and charges, and
//! reads ahead. No limit on dirty pages, no memory of what was evicted (Linux's refaults).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use huepage_color::{Color, NumberHash, Pfn};
use serde::{Deserialize, Serialize};

use crate::bytes::Bytes;

/// Which page leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PageReplacement {
    /// Linux's: a page enters the inactive list, is activated at its second use, and leaves
    /// from the old end of the inactive list, which is filled up from the old end of the active
    /// one whenever it is the shorter (kernel 2.6.31 and later, `mm/swap.c` and `mm/vmscan.c`).
    #[default]
    ActiveInactive,
    /// The one whose last use is longest ago.
    Lru,
}

/// A page cache as a machine's description has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageCacheSpec {
    /// Most memory it takes; if absent, all that programs do not need.
    pub size: Option<Bytes>,
    /// Cycles that a program waits for a block from the disk.
    #[serde(default)]
    pub miss_latency: u64,
    /// Cycles that it waits for a dirty page to be written before its frame is used again.
    #[serde(default)]
    pub write_latency: u64,
    /// Which page leaves.
    #[serde(default)]
    pub replacement: PageReplacement,
    /// Most blocks that are read at a time where a file is read in order; 0 or 1: no read-ahead.
    /// Linux has 32 (128 KiB). A program waits once for all of them.
    #[serde(default)]
    pub read_ahead: u64,
}

impl PageCacheSpec {
    /// Most pages it holds.
    pub fn pages(&self) -> u64 {
        self.size.map_or(u64::MAX, |size| size.0 >> 12)
    }
}

/// A block of a file, as large as a base page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePage {
    /// Which file.
    pub file: u64,
    /// Which block of it, from 0.
    pub block: u64,
}

/// Where a page stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// On the active list.
    Active,
    /// On the inactive list, or on the only one.
    Inactive,
    /// In the coloured zone: still found, but next to go.
    Zone,
}

/// A page in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    /// What is in it.
    pub page: FilePage,
    /// Its frame.
    pub frame: Pfn,
    /// The colour of the frame; none where colours play no part.
    pub color: Option<Color>,
    /// Whether it was written and the disk does not know.
    pub dirty: bool,
    /// Which list it is on.
    pub standing: Standing,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    frame: Pfn,
    color: Option<Color>,
    standing: Standing,
    dirty: bool,
    /// Used once since it came to its list; the next use activates it.
    referenced: bool,
    /// Its place in its list: the lowest is the oldest.
    stamp: u64,
}

/// Pages by the time at which they came to a list.
type List = BTreeMap<u64, FilePage>;

/// The pages of files in memory.
#[derive(Clone, Debug)]
pub struct PageCache {
    replacement: PageReplacement,
    pages: BTreeMap<FilePage, Entry>,
    frames: HashMap<u64, FilePage, NumberHash>,
    active: List,
    inactive: List,
    /// Stamps of inactive pages by colour, so that the oldest of a colour is found at once.
    by_color: Vec<BTreeSet<u64>>,
    zone: Vec<List>,
    clock: u64,
    entered: u64,
    left: u64,
}

impl PageCache {
    /// An empty one on a machine of so many colours, 1 where they play no part.
    pub fn new(replacement: PageReplacement, colors: u16) -> PageCache {
        let colors = usize::from(colors.max(1));
        PageCache {
            replacement,
            pages: BTreeMap::new(),
            frames: HashMap::default(),
            active: List::new(),
            inactive: List::new(),
            by_color: vec![BTreeSet::new(); colors],
            zone: vec![List::new(); colors],
            clock: 0,
            entered: 0,
            left: 0,
        }
    }

    /// Pages in memory.
    pub fn len(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// How often pages have left: a page that was found is still there while this stays.
    pub const fn departures(&self) -> u64 {
        self.left
    }

    /// A page, if it is there. Not a use.
    pub fn get(&self, page: FilePage) -> Option<Cached> {
        self.pages.get(&page).map(|entry| cached(page, entry))
    }

    /// The page in a frame.
    pub fn page_in(&self, frame: Pfn) -> Option<FilePage> {
        self.frames.get(&frame.0).copied()
    }

    /// Notes a use; the page's frame, or none if it is not there. Logarithmic.
    pub fn find(&mut self, page: FilePage) -> Option<Pfn> {
        let entry = *self.pages.get(&page)?;
        if self.replacement == PageReplacement::Lru {
            self.move_to(page, Standing::Inactive, false);
            return Some(entry.frame);
        }
        match (entry.standing, entry.referenced) {
            (Standing::Zone, false) => self.move_to(page, Standing::Inactive, true),
            (Standing::Inactive | Standing::Zone, true) => {
                self.move_to(page, Standing::Active, false);
            }
            (Standing::Inactive, false) | (Standing::Active, _) => {
                self.pages.entry(page).and_modify(|entry| entry.referenced = true);
            }
        }
        Some(entry.frame)
    }

    /// Notes that a page was written.
    pub fn soil(&mut self, page: FilePage) {
        self.pages.entry(page).and_modify(|entry| entry.dirty = true);
    }

    /// A page that was not there arrives in a frame, for its first use.
    ///
    /// # Panics
    /// If it is there already, or the frame holds another page.
    pub fn enter(&mut self, page: FilePage, frame: Pfn, color: Option<Color>) {
        let home = self.frames.insert(frame.0, page);
        assert!(home.is_none(), "{frame} has a page already");
        let (standing, stamp) = (Standing::Inactive, self.tick());
        let entry = Entry { frame, color, standing, dirty: false, referenced: true, stamp };
        assert!(self.pages.insert(page, entry).is_none(), "{page:?} arrives twice");
        self.link(page, &entry);
        self.entered += 1;
    }

    /// Takes the page out whose turn it is: the oldest of the zone, else of the inactive list.
    pub fn evict(&mut self) -> Option<Cached> {
        let oldest = self.zone.iter().filter_map(|list| list.first_key_value()).min();
        let page = match oldest {
            Some((_, &page)) => page,
            None => self.oldest_inactive()?,
        };
        self.remove(page)
    }

    /// Takes a page out whose frame has a colour: from the zone, else the oldest inactive one.
    pub fn evict_color(&mut self, color: Color) -> Option<Cached> {
        let at = usize::from(color.0);
        let page = match self.zone.get(at)?.first_key_value() {
            Some((_, &page)) => page,
            None => {
                self.balance();
                *self.inactive.get(self.by_color[at].first()?)?
            }
        };
        self.remove(page)
    }

    /// Takes a particular page out.
    pub fn remove(&mut self, page: FilePage) -> Option<Cached> {
        let entry = self.pages.remove(&page)?;
        self.unlink(&entry);
        self.frames.remove(&entry.frame.0);
        self.left += 1;
        Some(cached(page, &entry))
    }

    /// Takes all pages of a file out, as when it is deleted; in order.
    pub fn remove_file(&mut self, file: u64) -> Vec<Cached> {
        let all = FilePage { file, block: 0 }..=FilePage { file, block: u64::MAX };
        let pages: Vec<FilePage> = self.pages.range(all).map(|(&page, _)| page).collect();
        pages.into_iter().filter_map(|page| self.remove(page)).collect()
    }

    /// Moves the oldest inactive pages to the zone until every colour has more than `threshold`
    /// pages there, those that `free` counts by colour included, or no inactive page is left.
    /// How many were moved.
    pub fn refill(&mut self, threshold: u64, free: &[u64]) -> u64 {
        let stock =
            |zone: &[List], at: usize| zone[at].len() as u64 + free.get(at).copied().unwrap_or(0);
        let mut short: BTreeSet<usize> =
            (0..self.zone.len()).filter(|&at| stock(&self.zone, at) <= threshold).collect();
        let mut moved = 0;
        while !short.is_empty() {
            let Some(page) = self.oldest_inactive() else { break };
            let Some(at) = self.retire(page) else { break };
            moved += 1;
            if stock(&self.zone, at) > threshold {
                short.remove(&at);
            }
        }
        moved
    }

    /// Keeps its stamp, so that the zone goes by age as well; the colour's place.
    fn retire(&mut self, page: FilePage) -> Option<usize> {
        let mut entry = *self.pages.get(&page)?;
        self.unlink(&entry);
        entry.standing = Standing::Zone;
        self.pages.insert(page, entry);
        self.link(page, &entry);
        Some(place(entry.color))
    }

    /// Pages in the zone by colour.
    pub fn zone(&self) -> Vec<u64> {
        self.zone.iter().map(|list| list.len() as u64).collect()
    }

    /// Pages of a colour in the zone.
    pub fn zone_of(&self, color: Color) -> u64 {
        self.zone.get(usize::from(color.0)).map_or(0, |list| list.len() as u64)
    }

    /// A page lies in another frame from now on, at its old place in its list; the frame that it
    /// had, or none if it is not there.
    ///
    /// # Panics
    /// If the new frame holds a page.
    pub fn replace(&mut self, page: FilePage, frame: Pfn, color: Option<Color>) -> Option<Pfn> {
        let old = *self.pages.get(&page)?;
        self.unlink(&old);
        self.frames.remove(&old.frame.0);
        let home = self.frames.insert(frame.0, page);
        assert!(home.is_none(), "{frame} has a page already");
        let new = Entry { frame, color, ..old };
        self.pages.insert(page, new);
        self.link(page, &new);
        Some(old.frame)
    }

    /// Pages on the active list, and on the inactive one.
    pub fn lengths(&self) -> (u64, u64) {
        (self.active.len() as u64, self.inactive.len() as u64)
    }

    /// Pages of the inactive list, the next to leave first.
    pub fn inactive(&self) -> impl Iterator<Item = Cached> + '_ {
        self.inactive.values().filter_map(|&page| self.get(page))
    }

    /// All pages, by file and block.
    pub fn pages(&self) -> impl Iterator<Item = Cached> + '_ {
        self.pages.iter().map(|(&page, entry)| cached(page, entry))
    }

    /// Fills the inactive list up, and gives its oldest page.
    fn oldest_inactive(&mut self) -> Option<FilePage> {
        self.balance();
        self.inactive.first_key_value().map(|(_, &page)| page)
    }

    /// The active list is never the longer one when a page has to go.
    fn balance(&mut self) {
        while self.active.len() > self.inactive.len() {
            let Some((_, &page)) = self.active.first_key_value() else { return };
            // As the kernel does, which leaves the mark: one use and it is active again.
            let referenced = self.pages.get(&page).is_some_and(|entry| entry.referenced);
            self.move_to(page, Standing::Inactive, referenced);
        }
    }

    /// Puts a page to the young end of a list.
    fn move_to(&mut self, page: FilePage, standing: Standing, referenced: bool) {
        let stamp = self.tick();
        let Some(entry) = self.pages.get_mut(&page) else { return };
        let old = *entry;
        (entry.standing, entry.referenced, entry.stamp) = (standing, referenced, stamp);
        let new = *entry;
        self.unlink(&old);
        self.link(page, &new);
    }

    const fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn link(&mut self, page: FilePage, entry: &Entry) {
        self.list(entry).insert(entry.stamp, page);
        if entry.standing == Standing::Inactive {
            self.by_color[place(entry.color)].insert(entry.stamp);
        }
    }

    fn unlink(&mut self, entry: &Entry) {
        self.list(entry).remove(&entry.stamp);
        if entry.standing == Standing::Inactive {
            self.by_color[place(entry.color)].remove(&entry.stamp);
        }
    }

    fn list(&mut self, entry: &Entry) -> &mut List {
        match entry.standing {
            Standing::Active => &mut self.active,
            Standing::Inactive => &mut self.inactive,
            Standing::Zone => &mut self.zone[place(entry.color)],
        }
    }

    /// What must hold at any time: every page is on one list, at the place it says, and in one
    /// frame; none got lost. Time in proportion to the pages.
    ///
    /// # Errors
    /// In words, what does not hold.
    pub fn check(&self) -> Result<(), String> {
        let zone: usize = self.zone.iter().map(List::len).sum();
        let listed = self.active.len() + self.inactive.len() + zone;
        let colored: usize = self.by_color.iter().map(BTreeSet::len).sum();
        let (pages, frames) = (self.pages.len(), self.frames.len());
        if [listed, frames] != [pages; 2] || colored != self.inactive.len() {
            return Err(format!(
                "{pages} file pages, {listed} on lists, {frames} in frames, {colored} by colour"
            ));
        }
        if self.entered - self.left != self.len() {
            let (entered, left) = (self.entered, self.left);
            return Err(format!("{entered} file pages came, {left} left, {pages} are there"));
        }
        let astray = |(page, entry): &(&FilePage, &Entry)| {
            let list = match entry.standing {
                Standing::Active => &self.active,
                Standing::Inactive => &self.inactive,
                Standing::Zone => &self.zone[place(entry.color)],
            };
            list.get(&entry.stamp) != Some(page) || self.page_in(entry.frame) != Some(**page)
        };
        match self.pages.iter().find(astray) {
            Some((page, _)) => Err(format!("{page:?} is not where the page cache has it")),
            None => Ok(()),
        }
    }
}

const fn cached(page: FilePage, entry: &Entry) -> Cached {
    let &Entry { frame, color, dirty, standing, .. } = entry;
    Cached { page, frame, color, dirty, standing }
}

/// The place of a colour in lists by colour.
fn place(color: Option<Color>) -> usize {
    color.map_or(0, |color| usize::from(color.0))
}
