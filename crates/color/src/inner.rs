//! Which colours of an outer level leave a private inner level whole. Choosing frames for a
//! colour of the LLC also fixes address bits that select sets of the L2; a partition made of
//! such colours would shrink the L2 as well. This module says how much of the inner level a
//! set of outer colours reaches, and sorts the outer colours into groups that reach all of it.

use crate::gf2;
use crate::index::IndexFunction;
use crate::map::{ColorMap, MapError, Provenance};
use crate::set::{Color, ColorSet};
use crate::{CacheLevel, PhysAddr};

/// For every outer colour, the inner colours that its frames can have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InnerReach {
    reach: Vec<ColorSet>,
    inner: u16,
}

impl InnerReach {
    /// Compares 4 KiB colours of the two index functions.
    ///
    /// # Errors
    /// As [`ColorMap::computed`], for either of them.
    pub fn new(outer: &IndexFunction, inner: &IndexFunction) -> Result<InnerReach, MapError> {
        let outer_map = ColorMap::computed(CacheLevel::L3, outer, Provenance::Declared)?;
        let inner_map = ColorMap::computed(CacheLevel::L2, inner, Provenance::Declared)?;
        let masks = |map: &ColorMap| map.classes().map_or_else(Vec::new, |c| c.masks().to_vec());
        let joint = gf2::reduce(&[masks(&outer_map), masks(&inner_map)].concat());
        let mut reach = vec![ColorSet::empty(inner_map.colors()); usize::from(outer_map.colors())];
        for value in 0..1_u64 << joint.len() {
            let pfn = PhysAddr(gf2::representative(&joint, value)).pfn();
            if let (Some(o), Some(i)) = (outer_map.color(pfn), inner_map.color(pfn)) {
                reach[usize::from(o.0)].insert(i);
            }
        }
        Ok(InnerReach { reach, inner: inner_map.colors() })
    }

    /// The inner colours that frames of one outer colour can have.
    ///
    /// # Panics
    /// If the outer level has no such colour.
    pub fn of(&self, outer: Color) -> &ColorSet {
        &self.reach[usize::from(outer.0)]
    }

    /// The inner colours left to a partition of outer colours; the inner level is whole if the
    /// result [is full](ColorSet::is_full).
    ///
    /// # Panics
    /// If the set belongs to another level (has another universe).
    pub fn left(&self, outer: &ColorSet) -> ColorSet {
        assert_eq!(usize::from(outer.universe()), self.reach.len(), "set of another level");
        outer.iter().fold(ColorSet::empty(self.inner), |all, c| all.union(self.of(c)))
    }

    /// Outer colours sorted into small groups that each leave the inner level whole;
    /// partitions made of whole groups are safe. One group means that no partition is.
    pub fn safe_groups(&self) -> Vec<ColorSet> {
        let outer = u16::try_from(self.reach.len()).unwrap_or(crate::MAX_COLORS);
        let mut unused = ColorSet::all(outer);
        let mut groups: Vec<ColorSet> = Vec::new();
        while !unused.is_empty() {
            let group = self.grow(&unused);
            if self.left(&group).is_full() {
                unused = unused.difference(&group);
                groups.push(group);
                continue;
            }
            // What is left over cannot stand alone: it goes with the last group.
            let last = groups.pop().unwrap_or_else(|| ColorSet::empty(outer));
            groups.push(last.union(&unused));
            break;
        }
        groups
    }

    /// The lowest unused colours that each add inner colours, until nothing is missing.
    fn grow(&self, unused: &ColorSet) -> ColorSet {
        let mut group = ColorSet::empty(unused.universe());
        let mut have = ColorSet::empty(self.inner);
        for color in unused.iter() {
            if !self.of(color).is_subset(&have) {
                group.insert(color);
                have = have.union(self.of(color));
            }
            if have.is_full() {
                break;
            }
        }
        group
    }
}
