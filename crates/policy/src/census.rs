//! The count behind `inspect` and behind every claim of compliance: resident pages by kind of
//! area and by colour, and those outside the partition by what keeps them there. It counts
//! what it is told; finding the pages is the business of an engine or an independent reader.

use std::collections::BTreeMap;

use huepage_color::{Color, ColorSet};
use serde::{Deserialize, Serialize};

use crate::event::{AreaKind, MoveRefusal, ResidentPage};

/// Pages of one kind of area.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CensusRow {
    /// Movable pages inside the partition.
    pub inside: u64,
    /// Movable pages in a colour outside the partition.
    pub outside: u64,
    /// Movable pages whose colour is unknown; they do not count as compliant.
    pub unknown: u64,
    /// Pages that cannot be moved because of what they are or because somebody holds their
    /// frame, in whatever colour; see [`MoveRefusal::holds_page`].
    pub unmovable: u64,
}

impl CensusRow {
    /// All pages of the row.
    pub const fn resident(&self) -> u64 {
        self.movable() + self.unmovable
    }

    /// The pages that can be moved in principle.
    pub const fn movable(&self) -> u64 {
        self.inside + self.outside + self.unknown
    }

    fn add(&mut self, other: &CensusRow) {
        self.inside += other.inside;
        self.outside += other.outside;
        self.unknown += other.unknown;
        self.unmovable += other.unmovable;
    }
}

/// A census of the resident pages of a group, for one partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Census {
    /// The partition that compliance is measured against.
    pub partition: ColorSet,
    kinds: BTreeMap<AreaKind, CensusRow>,
    /// Pages of each colour, movable or not.
    colors: Vec<u64>,
    /// Pages of unknown colour, movable or not.
    pub uncolored: u64,
    /// Pages not inside the partition for which something is known to be in the way.
    #[serde(rename = "left_alone")]
    obstacles: BTreeMap<MoveRefusal, u64>,
}

impl Census {
    /// An empty census.
    pub fn new(partition: ColorSet) -> Census {
        let colors = vec![0; usize::from(partition.universe())];
        let (kinds, obstacles) = (BTreeMap::new(), BTreeMap::new());
        Census { partition, kinds, colors, uncolored: 0, obstacles }
    }

    /// Counts one page. Pages that are only not moved yet count as movable.
    ///
    /// # Panics
    /// If its colour is not one of the partition's level.
    pub fn count(&mut self, page: &ResidentPage) {
        match page.color {
            Some(color) => self.colors[usize::from(color.0)] += 1,
            None => self.uncolored += 1,
        }
        let inside = page.color.map(|color| self.partition.contains(color));
        let row = self.kinds.entry(page.kind).or_default();
        *match (page.obstacle.is_some_and(MoveRefusal::holds_page), inside) {
            (true, _) => &mut row.unmovable,
            (false, Some(true)) => &mut row.inside,
            (false, Some(false)) => &mut row.outside,
            (false, None) => &mut row.unknown,
        } += 1;
        if let Some(why) = page.obstacle.filter(|_| inside != Some(true)) {
            *self.obstacles.entry(why).or_default() += 1;
        }
    }

    /// Counts pages that cannot be moved and whose colours nobody looked up.
    pub fn count_held(&mut self, kind: AreaKind, why: MoveRefusal, pages: u64) {
        if pages > 0 {
            self.uncolored += pages;
            self.kinds.entry(kind).or_default().unmovable += pages;
            *self.obstacles.entry(why).or_default() += pages;
        }
    }

    /// Counts up to `pages` pages that were counted as outside, of whatever kind, as held for
    /// the reason `why`: somebody who tried to move them found that out. Kinds in the order of
    /// tables; never more than there are.
    pub fn excuse(&mut self, why: MoveRefusal, pages: u64) {
        let mut left = pages;
        for row in self.kinds.values_mut() {
            for from in [&mut row.outside, &mut row.unknown] {
                let some = left.min(*from);
                *from -= some;
                row.unmovable += some;
                left -= some;
            }
        }
        if left < pages {
            *self.obstacles.entry(why).or_default() += pages - left;
        }
    }

    /// Says of up to `pages` pages that were counted as outside why they are there by choice: they go on
    /// counting as outside. Never of more than there are for which nothing was said so far.
    pub fn explain(&mut self, why: MoveRefusal, pages: u64) {
        let told: u64 = self.obstacles().filter(|(why, _)| !why.holds_page()).map(|of| of.1).sum();
        let total = self.total();
        let some = pages.min((total.outside + total.unknown).saturating_sub(told));
        if some > 0 {
            *self.obstacles.entry(why).or_default() += some;
        }
    }

    /// The kinds of area that have pages.
    pub fn kinds(&self) -> impl Iterator<Item = (AreaKind, &CensusRow)> + '_ {
        self.kinds.iter().map(|(&kind, row)| (kind, row))
    }

    /// Every colour with its number of pages, ascending.
    pub fn colors(&self) -> impl Iterator<Item = (Color, u64)> + '_ {
        (0..).map(Color).zip(self.colors.iter().copied())
    }

    /// Pages not inside the partition by what is in the way of moving them.
    pub fn obstacles(&self) -> impl Iterator<Item = (MoveRefusal, u64)> + '_ {
        self.obstacles.iter().map(|(&why, &pages)| (why, pages))
    }

    /// The sum over all kinds.
    pub fn total(&self) -> CensusRow {
        let mut total = CensusRow::default();
        self.kinds.values().for_each(|row| total.add(row));
        total
    }

    /// The share of movable resident pages inside the partition, 0 to 1; `None` if there is no
    /// such page and so nothing to claim.
    pub fn compliance(&self) -> Option<f64> {
        let total = self.total();
        (total.movable() > 0).then(|| total.inside as f64 / total.movable() as f64)
    }

    /// Adds the pages of another process of the same group.
    ///
    /// # Panics
    /// If the partitions differ.
    pub fn merge(&mut self, other: &Census) {
        assert_eq!(self.partition, other.partition, "censuses of two partitions");
        for (&kind, row) in &other.kinds {
            self.kinds.entry(kind).or_default().add(row);
        }
        self.colors.iter_mut().zip(&other.colors).for_each(|(mine, theirs)| *mine += theirs);
        self.uncolored += other.uncolored;
        for (&why, pages) in &other.obstacles {
            *self.obstacles.entry(why).or_default() += pages;
        }
    }
}
