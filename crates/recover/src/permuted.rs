//! Slices that are no power of two: the slice is looked up in a *base sequence* at the low bits
//! of the line number, XORed with a number that is linear in the high bits (McCalpin 2021). The
//! base sequence has to be seen line by line, so observations are needed of one whole block of
//! lines and of some dozen lines of a block for each high bit. Then a high bit's part of the
//! permutation is the one shift that makes its block like the first. What the observations do
//! not cover is reported as unknown; nothing is filled in.

use std::collections::{BTreeMap, HashMap};

use huepage_color::{IndexError, IndexFunction, NumberHash, gf2};

use crate::bound::{ln_tail, ratio};
use crate::distinct;
use crate::obs::{LineGroupId, Observations};
use fastrand::Rng;

/// Shortest and longest base sequence tried, as log2 of its lines.
const INDEX_BITS: std::ops::RangeInclusive<u32> = 3..=14;
/// Share of a block's lines that must have been seen for it to serve as the base.
const COVERED: f64 = 0.9;
/// Chance, as a natural logarithm, below which a shift is believed.
const LN_SHIFT: f64 = -20.7;
/// Blocks that a length of the base sequence is tried on before all are.
const TRIED: usize = 32;

/// A base sequence and its permutation.
#[derive(Clone, Debug, PartialEq)]
pub struct Permuted {
    /// Group of each line of the first 2^n lines; `None` where no line was seen.
    pub base: Vec<Option<LineGroupId>>,
    /// Entries that rest on one observation, and so are as likely wrong as it is.
    pub single: usize,
    /// Mask i gives bit i of the number that the place in the base sequence is XORed with;
    /// over the address bits in `known`.
    pub permutation: Vec<u64>,
    /// Address bits above the base sequence whose effect is known.
    pub known: u64,
    /// Observations explained and compared, those that make up the base left out.
    pub agree: (u64, u64),
    /// Natural logarithm of a bound on the probability of that by chance.
    pub ln_doubt: f64,
    line_bits: u32,
}

impl Permuted {
    /// The slice's group at an address, as far as it is known.
    pub fn group(&self, addr: u64) -> Option<LineGroupId> {
        let low = addr >> self.line_bits & (self.base.len() as u64 - 1);
        let at = low ^ gf2::evaluate(&self.permutation, addr);
        usize::try_from(at).ok().and_then(|at| self.base.get(at).copied().flatten())
    }

    /// The index function, if the base sequence is complete and groups are below 256.
    ///
    /// # Errors
    /// As [`IndexFunction::permuted`]; `BadBase` for a base with holes.
    pub fn index(&self, set_bits: u32) -> Result<IndexFunction, IndexError> {
        let slice =
            |entry: &Option<LineGroupId>| entry.and_then(|group| u8::try_from(group.0).ok());
        let base: Option<Vec<u8>> = self.base.iter().map(slice).collect();
        let base = base.ok_or(IndexError::BadBase { length: 0 })?;
        IndexFunction::permuted(self.line_bits, set_bits, base, self.permutation.clone())
    }
}

/// Finds base sequence and permutation, if the observations hold them: one block of lines
/// nearly whole, and for each high bit a dozen lines of some block that has it. The shortest
/// base sequence that explains them is taken. Takes up to a second for 60,000 observations.
pub fn recover_permuted(seen: &Observations, line_bits: u32) -> Option<Permuted> {
    let lines: Vec<(u64, LineGroupId)> =
        distinct::lines(seen).iter().map(|(addr, group)| (addr.0 >> line_bits, *group)).collect();
    INDEX_BITS.into_iter().find_map(|bits| Blocks::new(&lines, bits)?.solve(line_bits))
}

/// Observations by block of 2^`bits` lines.
struct Blocks {
    bits: u32,
    blocks: BTreeMap<u64, Vec<(usize, LineGroupId)>>,
    /// The block that serves as base, by majority.
    first: u64,
    base: Vec<Option<LineGroupId>>,
    /// The share of the most frequent group, which a wrong shift gets right.
    chance: f64,
}

impl Blocks {
    fn new(lines: &[(u64, LineGroupId)], bits: u32) -> Option<Blocks> {
        let mut blocks: BTreeMap<u64, Vec<(usize, LineGroupId)>> = BTreeMap::new();
        let mut counts: BTreeMap<LineGroupId, u64> = BTreeMap::new();
        for &(line, group) in lines {
            let at = usize::try_from(line & ((1 << bits) - 1)).ok()?;
            blocks.entry(line >> bits).or_default().push((at, group));
            *counts.entry(group).or_default() += 1;
        }
        let (&first, most) = blocks.iter().max_by_key(|(_, seen)| seen.len())?;
        let base = majority(most.iter().copied(), 1 << bits);
        let covered = ratio(base.iter().flatten().count() as u64, 1 << bits);
        let chance = ratio(counts.values().copied().max()?, lines.len() as u64);
        (covered >= COVERED).then_some(Blocks { bits, blocks, first, base, chance })
    }

    fn solve(&self, line_bits: u32) -> Option<Permuted> {
        let least = self.least()?;
        let rich = || self.blocks.iter().filter(|(_, seen)| seen.len() >= least);
        let good = rich().take(TRIED).filter(|(_, seen)| self.shift(seen).is_some()).count();
        if good * 10 < rich().take(TRIED).count() * 9 || good < 2 {
            return None;
        }
        let shifts: Vec<(u64, u64)> =
            rich().filter_map(|(&block, seen)| Some((block, self.shift(seen)?))).collect();
        let map = Map::fit(&shifts, self.first)?;
        self.assemble(&map, line_bits)
    }

    /// Lines of a block that are enough to tell a shift from chance, were 1 in 4 wrong.
    fn least(&self) -> Option<usize> {
        let ways = f64::from(self.bits) * std::f64::consts::LN_2;
        (4..200_u64)
            .find(|&n| ln_tail(n * 3 / 4, n, self.chance) + ways < LN_SHIFT)
            .and_then(|n| usize::try_from(n).ok())
    }

    /// The shift that makes a block like the base, unless chance could do that.
    fn shift(&self, seen: &[(usize, LineGroupId)]) -> Option<u64> {
        let fits = |shift: usize| {
            let same = |&&(at, group): &&(usize, LineGroupId)| self.base[at ^ shift] == Some(group);
            seen.iter().filter(same).count() as u64
        };
        let (agree, shift) = (0..self.base.len()).map(|shift| (fits(shift), shift)).max()?;
        let ways = f64::from(self.bits) * std::f64::consts::LN_2;
        let sure = ln_tail(agree, seen.len() as u64, self.chance) + ways < LN_SHIFT;
        sure.then_some(shift as u64)
    }

    fn assemble(&self, map: &Map, line_bits: u32) -> Option<Permuted> {
        let low = self.bits + line_bits;
        let known = map.known << low;
        let masks = (0..self.bits).map(|bit| map.mask(bit) << low);
        let permutation: Vec<u64> = masks.collect();
        // All blocks whose shift is known vote on the base.
        let place = |block: u64, at: usize| at as u64 ^ gf2::evaluate(&permutation, block << low);
        let inside = || self.blocks.iter().filter(|(block, _)| map.covers(**block));
        let votes = inside().flat_map(|(&block, seen)| {
            seen.iter().filter_map(move |&(at, group)| {
                Some((usize::try_from(place(block, at)).ok()?, group))
            })
        });
        let votes: Vec<(usize, LineGroupId)> = votes.collect();
        let base = majority(votes.iter().copied(), self.base.len());
        let mut counts = vec![0_u64; base.len()];
        votes.iter().for_each(|vote| counts[vote.0] += 1);
        let single = counts.iter().filter(|&&n| n == 1).count();
        // An entry is not evidence for itself: one vote less for each, on either side.
        let right = votes.iter().filter(|vote| base[vote.0] == Some(vote.1)).count() as u64;
        let own = counts.iter().filter(|&&n| n > 0).count() as u64;
        let agree = (right.saturating_sub(own), votes.len() as u64 - own);
        let ln_doubt = ln_tail(agree.0, agree.1, self.chance.max(0.5));
        (ln_doubt < LN_SHIFT).then_some(Permuted {
            base,
            single,
            permutation,
            known,
            agree,
            ln_doubt,
            line_bits,
        })
    }
}

/// The most frequent group of every place.
fn majority(
    seen: impl Iterator<Item = (usize, LineGroupId)>,
    places: usize,
) -> Vec<Option<LineGroupId>> {
    let mut votes: HashMap<u64, Vec<(LineGroupId, u32)>, NumberHash> = HashMap::default();
    for (at, group) in seen {
        let counts = votes.entry(at as u64).or_default();
        match counts.iter_mut().find(|count| count.0 == group) {
            Some(count) => count.1 += 1,
            None => counts.push((group, 1)),
        }
    }
    let best = |counts: &Vec<(LineGroupId, u32)>| counts.iter().max_by_key(|c| c.1).map(|c| c.0);
    (0..places as u64).map(|at| votes.get(&at).and_then(best)).collect()
}

/// A linear map from block numbers to shifts.
struct Map {
    /// Rows in echelon form by lowest bit: a difference of blocks, and its shift.
    rows: Vec<(u64, u64)>,
    known: u64,
    constant: u64,
}

impl Map {
    /// The map that explains the shifts, relative to the `first` block's, which is 0. Shifts
    /// can be wrong though each is unlikely to be: those in the minority are.
    fn fit(shifts: &[(u64, u64)], first: u64) -> Option<Map> {
        let mut dice = Rng::with_seed(first);
        let mut order: Vec<(u64, u64)> = shifts.iter().map(|&(b, s)| (b ^ first, s)).collect();
        (0..50).find_map(|_| {
            let rows = eliminate(&order);
            let right = order.iter().filter(|&&(b, s)| reduce(&rows, b, s) == (0, 0)).count();
            if right * 20 >= order.len() * 19 {
                let known = known(&rows);
                return Some(Map { rows, known, constant: first });
            }
            dice.shuffle(&mut order);
            None
        })
    }

    /// The mask, over block numbers, of one bit of the shift.
    fn mask(&self, bit: u32) -> u64 {
        let bits = (0..64).filter(|at| self.known >> at & 1 == 1);
        bits.filter(|&at| reduce(&self.rows, 1 << at, 0).1 >> bit & 1 == 1)
            .fold(0, |mask, at| mask | 1 << at)
    }

    /// Whether the shift of a block follows from bits whose effect is known.
    fn covers(&self, block: u64) -> bool {
        (block ^ self.constant) & !self.known == 0
    }
}

/// Echelon form by lowest bit, each row cleared of the lowest bits of all others.
fn eliminate(shifts: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut rows: Vec<(u64, u64)> = Vec::new();
    for &(block, shift) in shifts {
        let (block, shift) = reduce(&rows, block, shift);
        if block != 0 {
            let low = block.trailing_zeros();
            for row in rows.iter_mut().filter(|row| row.0 >> low & 1 == 1) {
                *row = (row.0 ^ block, row.1 ^ shift);
            }
            rows.push((block, shift));
        }
    }
    rows
}

fn reduce(rows: &[(u64, u64)], block: u64, shift: u64) -> (u64, u64) {
    rows.iter().fold((block, shift), |(block, shift), row| {
        let has = block >> row.0.trailing_zeros() & 1;
        (block ^ (row.0 * has), shift ^ (row.1 * has))
    })
}

/// Bits whose own effect is in the span of the rows.
fn known(rows: &[(u64, u64)]) -> u64 {
    (0..64).filter(|&bit| reduce(rows, 1 << bit, 0).0 == 0).fold(0, |known, bit| known | 1 << bit)
}
