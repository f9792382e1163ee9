//! Observations made ready for algebra: addresses reduced to the directions in which they vary,
//! sorted into groups, and split into a part to learn from and a part held out. Directions that
//! hardly any observation varies are *blind*: a mask may have them or not and nobody could
//! tell, so they are taken out here and reported. Repetitions are taken out first, as the part
//! held out says nothing of what was learned from the same lines. No hash is looked for.

use std::collections::BTreeMap;

use huepage_color::gf2;

use crate::columns::Columns;
use crate::distinct;
use crate::obs::{LineGroupId, Observations};
use crate::search::{SearchBudget, search};
use crate::vectors::VectorGroup;
use fastrand::Rng;

/// Observations that must vary a direction before anything is said of it: at 35 % wrong, 48
/// that agree by chance have odds of about 1 to 10^4, and the final doubt is computed anyway.
const LEAST_VARIED: u64 = 48;
/// Lines, and pairs, that are looked at, drawn at random if there are more: far more than any
/// hash takes, and few enough for the checks after the search to take seconds.
const MOST: usize = 1 << 18;
/// Trials to find blind directions. Being nearly constant, each turns up in most of them.
const BLIND_TRIALS: u64 = 1500;

/// What can be computed with.
#[derive(Clone, Debug, Default)]
pub struct VectorSample {
    /// The address bit behind each coordinate.
    bits: Vec<u32>,
    /// Address bits that vary at all.
    pub varied: u64,
    /// Parities that are constant over the sample, reduced.
    pub blind: Vec<u64>,
    /// What was XORed to the addresses of lines to make their vectors.
    pub origin: u64,
    /// Classified lines to learn from, by group, and conflicting differences last.
    pub train: Vec<VectorGroup>,
    /// The same, held out.
    pub held: Vec<VectorGroup>,
    /// Differences seen not to conflict: to learn from, and held out.
    pub apart: [Vec<u64>; 2],
}

impl VectorSample {
    /// Prepares observations. Costs a few hundred microseconds per thousand.
    pub fn new(seen: &Observations, dice: &mut Rng) -> VectorSample {
        let mut raw = Raw::new(seen, dice);
        let exact = gf2::reduce(&raw.vectors());
        let bits = pivots(&exact);
        let blind = raw.drop_rare(&bits, dice);
        let rest = gf2::reduce(&raw.vectors());
        let varied = exact.iter().fold(0, |all, row| all | row);
        let mut sample = VectorSample { bits: pivots(&rest), varied, ..VectorSample::default() };
        sample.blind = annihilator(&rest, varied);
        sample.origin = raw.origin;
        debug_assert!(sample.blind.len() >= blind);
        sample.split(raw, dice);
        sample
    }

    /// How many directions vary.
    pub fn dimensions(&self) -> usize {
        self.bits.len()
    }

    /// The address mask of a mask over coordinates.
    pub fn mask(&self, coordinates: u64) -> u64 {
        scatter(coordinates, &self.bits)
    }

    /// Classified lines and conflicting differences in all.
    pub fn vectors(&self) -> usize {
        self.train.iter().chain(&self.held).map(|g| g.vectors.len()).sum()
    }

    /// Every group with what of it is learned from and what is held out.
    pub fn all(&self) -> Vec<VectorGroup> {
        let whole = |(train, held): (&VectorGroup, &VectorGroup)| VectorGroup {
            vectors: [train.vectors.as_slice(), &held.vectors].concat(),
            ..*train
        };
        self.train.iter().zip(&self.held).map(whole).collect()
    }

    /// Columns of some groups.
    pub fn columns(&self, groups: &[&[VectorGroup]]) -> Columns {
        let mut columns = Columns::new(self.dimensions());
        for at in 0..self.train.len() {
            let all: Vec<u64> = groups.iter().flat_map(|g| g[at].vectors.iter().copied()).collect();
            columns.push(&all, self.train[at].anchored);
        }
        columns
    }

    /// Three quarters to learn from, one held out, of every group.
    fn split(&mut self, raw: Raw, dice: &mut Rng) {
        let compress = |v: &u64| gather(*v, &self.bits);
        let mut add = |id, vectors: &[u64], anchored| {
            let mut vectors: Vec<u64> = vectors.iter().map(compress).collect();
            dice.shuffle(&mut vectors);
            let held = vectors.split_off(vectors.len() - vectors.len() / 4);
            self.train.push(VectorGroup { id, vectors, anchored });
            self.held.push(VectorGroup { id, vectors: held, anchored });
        };
        raw.groups.iter().for_each(|(&id, vectors)| add(id, vectors, false));
        if !raw.same.is_empty() {
            add(LineGroupId(u16::MAX), &raw.same, true);
        }
        let mut apart: Vec<u64> = raw.apart.iter().map(compress).collect();
        dice.shuffle(&mut apart);
        let held = apart.split_off(apart.len() - apart.len() / 4);
        self.apart = [apart, held];
    }
}

/// Vectors over address bits: lines relative to the first one, differences as they are.
struct Raw {
    origin: u64,
    groups: BTreeMap<LineGroupId, Vec<u64>>,
    same: Vec<u64>,
    apart: Vec<u64>,
}

impl Raw {
    fn new(seen: &Observations, dice: &mut Rng) -> Raw {
        let lines = drawn(distinct::lines(seen), dice);
        let origin = lines.first().map_or(0, |(addr, _)| addr.0);
        let (groups, same, apart) = (BTreeMap::new(), Vec::new(), Vec::new());
        let mut raw = Raw { origin, groups, same, apart };
        for (addr, group) in lines {
            raw.groups.entry(group).or_default().push(addr.0 ^ origin);
        }
        for (a, b, conflict) in drawn(distinct::pairs(seen), dice) {
            if conflict { &mut raw.same } else { &mut raw.apart }.push(a.0 ^ b.0);
        }
        raw.drop_stray();
        raw
    }

    /// Groups far smaller than the others are wrong numbers, not slices.
    fn drop_stray(&mut self) {
        let all: usize = self.groups.values().map(Vec::len).sum();
        let least = (all / (10 * self.groups.len().max(1))).max(2);
        self.groups.retain(|_, vectors| vectors.len() >= least);
    }

    fn vectors(&self) -> Vec<u64> {
        self.lists().flatten().copied().collect()
    }

    fn lists(&self) -> impl Iterator<Item = &Vec<u64>> {
        self.groups.values().chain([&self.same, &self.apart])
    }

    /// Drops the few vectors that vary a direction which nearly all others do not; how many
    /// such directions there were.
    fn drop_rare(&mut self, bits: &[u32], dice: &mut Rng) -> usize {
        let lines: Vec<u64> = self.groups.values().flatten().map(|&v| gather(v, bits)).collect();
        let pairs = self.same.iter().chain(&self.apart).map(|&v| gather(v, bits)).collect();
        let groups = [(lines, false), (pairs, true)].map(|(vectors, anchored)| VectorGroup {
            id: LineGroupId(0),
            vectors,
            anchored,
        });
        let mut columns = Columns::new(bits.len());
        groups.iter().for_each(|group| columns.push(&group.vectors, group.anchored));
        let least = columns.vectors() - LEAST_VARIED.min(columns.vectors() / 8);
        let budget =
            SearchBudget { trials: BLIND_TRIALS, rank: bits.len(), patience: BLIND_TRIALS };
        let found = search(&groups, &columns, least, budget, dice).masks;
        for &coordinates in &found {
            self.drop_minority(scatter(coordinates, bits));
        }
        found.len()
    }

    fn drop_minority(&mut self, mask: u64) {
        let lines = self.groups.values().flatten();
        let (ones, all) =
            lines.fold((0, 0), |(ones, all), &v| (ones + gf2::parity(v, mask), all + 1));
        let usual = u64::from(2 * ones > all);
        self.groups.values_mut().for_each(|g| g.retain(|&v| gf2::parity(v, mask) == usual));
        // What remains is moved to the origin, so that the direction is gone for good.
        let origin = self.groups.values().flatten().next().copied().unwrap_or(0);
        self.groups.values_mut().flatten().for_each(|v| *v ^= origin);
        self.origin ^= origin;
        for pairs in [&mut self.same, &mut self.apart] {
            pairs.retain(|&v| gf2::parity(v, mask) == 0);
        }
    }
}

/// [`MOST`] of the items.
fn drawn<T>(mut items: Vec<T>, dice: &mut Rng) -> Vec<T> {
    if items.len() > MOST {
        dice.shuffle(&mut items);
        items.truncate(MOST);
    }
    items
}

/// The lowest bit of every row of a reduced basis.
fn pivots(basis: &[u64]) -> Vec<u32> {
    basis.iter().map(|row| row.trailing_zeros()).collect()
}

/// Masks whose parity is 0 for the whole span of a reduced `basis`, among the bits of `varied`.
fn annihilator(basis: &[u64], varied: u64) -> Vec<u64> {
    let pivot = basis.iter().fold(0, |all, row| all | 1 << row.trailing_zeros());
    let other = (0..64).filter(|bit| (varied & !pivot) >> bit & 1 == 1);
    let mask = |bit: u32| {
        let rows = basis.iter().filter(|row| *row >> bit & 1 == 1);
        rows.fold(1_u64 << bit, |mask, row| mask | 1 << row.trailing_zeros())
    };
    gf2::reduce(&other.map(mask).collect::<Vec<_>>())
}

/// The bits of `value` at `bits`, packed.
fn gather(value: u64, bits: &[u32]) -> u64 {
    bits.iter().zip(0..).fold(0, |packed, (&bit, at)| packed | (value >> bit & 1) << at)
}

/// Undoes [`gather`].
fn scatter(packed: u64, bits: &[u32]) -> u64 {
    bits.iter().zip(0..).fold(0, |value, (&bit, at)| value | (packed >> at & 1) << bit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::obs::{GroupScope, Labels};
    use huepage_color::PhysAddr;

    fn seen(addresses: impl Iterator<Item = u64>) -> Observations {
        let mut seen = Observations::new(GroupScope::Slice, Labels::Free);
        addresses.for_each(|a| seen.member(PhysAddr(a), LineGroupId((a >> 6 & 3) as u16)));
        seen
    }

    #[test]
    fn constant_and_coupled_bits_are_blind() {
        let mut dice = Rng::with_seed(1);
        // Bit 12 is constant, bits 14 and 16 always go together.
        let address = |r: u64| (r & 0xfff0f << 6 & !(1 << 12 | 1 << 16)) | (r >> 14 & 1) << 16;
        let draw: Vec<u64> = (0..2000).map(|_| address(dice.u64(..) >> 20)).collect();
        let sample = VectorSample::new(&seen(draw.into_iter()), &mut dice);
        assert_eq!(sample.blind, [1 << 14 | 1 << 16]);
        assert_eq!(sample.varied >> 12 & 1, 0);
        assert_eq!(sample.dimensions(), sample.varied.count_ones() as usize - 1);
    }

    #[test]
    fn a_bit_that_few_vary_is_blind_too_and_those_few_are_dropped() {
        let mut dice = Rng::with_seed(2);
        let mut address = || {
            let rare = u64::from(dice.f64() < 0.01) << 30;
            dice.u64(..) >> 44 << 6 | 1 << 31 | rare
        };
        let mut draw: Vec<u64> = (0..2000).map(|_| address()).collect();
        draw.sort_unstable();
        draw.dedup();
        let all = draw.len();
        let rare = draw.iter().filter(|&&a| a >> 30 & 1 == 1).count();
        let sample = VectorSample::new(&seen(draw.into_iter()), &mut dice);
        assert!(rare > 5, "{rare}");
        assert_eq!((sample.blind.as_slice(), sample.dimensions()), ([1 << 30].as_slice(), 20));
        assert_eq!(sample.vectors(), all - rare);
    }

    #[test]
    fn lines_written_often_are_one_vector() {
        let mut dice = Rng::with_seed(3);
        let draw: Vec<u64> = (0..200).map(|_| dice.u64(..) >> 24 << 6).collect();
        let sample = VectorSample::new(&seen(draw.iter().copied().cycle().take(2000)), &mut dice);
        assert_eq!(sample.vectors(), 200);
        let held: Vec<u64> = sample.held.iter().flat_map(|g| &g.vectors).copied().collect();
        let learned = sample.train.iter().flat_map(|g| &g.vectors);
        assert_eq!(learned.filter(|v| held.contains(v)).count(), 0);
    }
}
