//! The method of Scolari et al. (2016, section 4.1): address bits that the hash uses alike form
//! a cluster. Two lines of one group that differ in two bits speak for putting these together
//! (similarity); two such lines of different groups, each with a neighbour at distance one in
//! the other, for keeping them apart (dissimilarity). Counts below a gap in their sizes are
//! taken for noise, and the best clustering is found by integer programming (`grouping`). Which cluster goes
//! into which parity is another question: see [`mod@crate::configure`].

use std::collections::{BTreeMap, HashMap};

use huepage_color::NumberHash;
use thiserror::Error;

use crate::bound::ratio;
use crate::grouping::best_grouping;
use crate::obs::{LineGroupId, Observations};

/// Fewest counts, of similarity and dissimilarity together, that a pair of bits must have.
const LEAST: u32 = 2;

/// Address bits that the hash uses alike.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cluster(pub Vec<u32>);

/// A clustering.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    /// The clusters, the one with the lowest bit first.
    pub clusters: Vec<Cluster>,
    /// Bits that vary and do not change the group.
    pub unused: Vec<u32>,
    /// Counts of pairs of bits that were kept, and those dropped as noise.
    pub counts: (u64, u64),
    /// Of the counts that were kept, the share that the clustering agrees with, 0 to 1.
    pub agree: f64,
}

/// Why there is no clustering.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ClusterError {
    /// Bits of which no neighbours were observed.
    #[error(
        "no two lines that differ in bits {a} and {b} alone were observed; observe neighbours of some lines, or use --method algebra"
    )]
    NoCounts { a: u32, b: u32 },
    /// No bit changes the group.
    #[error("no address bit changes the group; observe lines of more than one")]
    NoBits,
    /// The counts contradict each other too much.
    #[error("the integer program of {bits} bits takes too long; use --method algebra")]
    Unsolved { bits: usize },
}

/// Clusters the address bits by what groups of lines say. Takes a hash look-up per observation
/// and pair of bits, and an integer program of one variable per pair of bits.
///
/// # Errors
/// `NoCounts` if the observations hold too few neighbours, `NoBits`, `Unsolved`.
pub fn cluster(seen: &Observations) -> Result<Clusters, ClusterError> {
    let counts = Counts::new(seen);
    if counts.bits.is_empty() {
        return Err(ClusterError::NoBits);
    }
    let kept = counts.above_noise()?;
    let clusters = solve(&counts.bits, &kept)?;
    let together = |(a, b): &Pair| clusters.iter().any(|c| c.0.contains(a) && c.0.contains(b));
    let right = kept.iter().filter(|(pair, weight)| together(pair) == (**weight > 0));
    let agree: u64 = right.map(|(_, weight)| u64::from(weight.unsigned_abs())).sum();
    let all: u64 = kept.values().map(|weight| u64::from(weight.unsigned_abs())).sum();
    Ok(Clusters {
        clusters,
        unused: counts.unused.clone(),
        counts: (all, counts.total() - all),
        agree: ratio(agree, all),
    })
}

type Pair = (u32, u32);

/// How often pairs of bits were seen to go together and not to.
struct Counts {
    bits: Vec<u32>,
    unused: Vec<u32>,
    similar: BTreeMap<Pair, u32>,
    dissimilar: BTreeMap<Pair, u32>,
}

impl Counts {
    fn new(seen: &Observations) -> Counts {
        let groups: HashMap<u64, LineGroupId, NumberHash> =
            seen.members().map(|(addr, group)| (addr.0, group)).collect();
        let (bits, unused) = used(&groups);
        let mut counts =
            Counts { bits, unused, similar: BTreeMap::new(), dissimilar: BTreeMap::new() };
        for (&line, &group) in &groups {
            counts.add(&groups, line, group);
        }
        counts
    }

    fn add(
        &mut self,
        groups: &HashMap<u64, LineGroupId, NumberHash>,
        line: u64,
        group: LineGroupId,
    ) {
        for (at, &a) in self.bits.iter().enumerate() {
            for &b in &self.bits[at + 1..] {
                match groups.get(&(line ^ 1 << a ^ 1 << b)) {
                    Some(&other) if other == group => *self.similar.entry((a, b)).or_default() += 1,
                    Some(_) => *self.dissimilar.entry((a, b)).or_default() += 1,
                    None => {}
                }
            }
        }
    }

    fn total(&self) -> u64 {
        self.similar.values().chain(self.dissimilar.values()).copied().map(u64::from).sum()
    }

    /// Similarity less dissimilarity, the counts of either below its noise left out.
    fn above_noise(&self) -> Result<BTreeMap<Pair, i32>, ClusterError> {
        let cut = (threshold(&self.similar), threshold(&self.dissimilar));
        let mut kept = BTreeMap::new();
        for (at, &a) in self.bits.iter().enumerate() {
            for &b in &self.bits[at + 1..] {
                let count = |of: &BTreeMap<Pair, u32>| of.get(&(a, b)).copied().unwrap_or(0);
                let (same, other) = (count(&self.similar), count(&self.dissimilar));
                if same + other < LEAST {
                    return Err(ClusterError::NoCounts { a, b });
                }
                let same = if same < cut.0 { 0 } else { same };
                let other = if other < cut.1 { 0 } else { other };
                kept.insert((a, b), same.cast_signed() - other.cast_signed());
            }
        }
        Ok(kept)
    }
}

/// Bits that vary, and of these whether a flip alone mostly changes the group.
fn used(groups: &HashMap<u64, LineGroupId, NumberHash>) -> (Vec<u32>, Vec<u32>) {
    let first = groups.keys().next().copied().unwrap_or(0);
    let varied = groups.keys().fold(0, |all, line| all | (line ^ first));
    let changes = |bit: &u32| {
        let pairs =
            groups.iter().filter_map(|(line, g)| Some((g, groups.get(&(line ^ 1 << bit))?)));
        let (same, all) =
            pairs.fold((0, 0), |(same, all), (a, b)| (same + u32::from(a == b), all + 1));
        2 * same <= all
    };
    (0..64).filter(|bit| varied >> bit & 1 == 1).partition(changes)
}

/// The count from which on counts are not noise: above the widest gap, as a ratio, between
/// counts of neighbouring size; 0 if there is none of at least two. The paper saw two groups of
/// sizes, thousands and far fewer.
fn threshold(counts: &BTreeMap<Pair, u32>) -> u32 {
    let mut sizes: Vec<u32> = counts.values().copied().collect();
    sizes.sort_unstable();
    let gap = |pair: &[u32]| ratio(u64::from(pair[1]), u64::from(pair[0]));
    let widest = sizes.windows(2).max_by(|a, b| gap(a).total_cmp(&gap(b)));
    widest.filter(|pair| gap(pair) >= 2.0).map_or(0, |pair| pair[1])
}

/// The best clustering: the objective of the paper (equation 1) less its constant part, under its
/// transitivity (equation 2), which groups have by themselves.
fn solve(bits: &[u32], weights: &BTreeMap<Pair, i32>) -> Result<Vec<Cluster>, ClusterError> {
    let weight = |a: &u32, b: &u32| {
        let pair = (*a.min(b), *a.max(b));
        i64::from(weights.get(&pair).copied().unwrap_or(0))
    };
    let row = |a: &u32| bits.iter().map(|b| weight(a, b)).collect();
    let table: Vec<Vec<i64>> = bits.iter().map(row).collect();
    let groups = best_grouping(&table).ok_or(ClusterError::Unsolved { bits: bits.len() })?;
    let mut clusters: BTreeMap<usize, Cluster> = BTreeMap::new();
    for (&bit, group) in bits.iter().zip(groups) {
        clusters.entry(group).or_insert_with(|| Cluster(Vec::new())).0.push(bit);
    }
    let mut clusters: Vec<Cluster> = clusters.into_values().collect();
    clusters.sort();
    Ok(clusters)
}
