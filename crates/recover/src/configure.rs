//! Which cluster of address bits goes into which parity (Scolari et al. 2016, section 4.1,
//! "configuration choice"): every way to give clusters a set of parities each is tried on
//! lines whose slice is known by its own number, from a counter or from the latency by which
//! the nearest core tells its slice. The ways multiply with the factorial of the clusters, as
//! the paper says; linear algebra has no such limit.

use huepage_color::gf2;
use thiserror::Error;

use crate::bound::{ln_tail, ratio};
use crate::cluster::Cluster;
use crate::distinct;
use crate::obs::{Labels, Observations};

/// Ways that are tried at most; seven clusters in three parities have 5,040.
const MOST: u64 = 100_000;
/// Lines that are looked at; more make no difference to the choice.
const LINES: usize = 400;
/// The doubt up to which a configuration is chosen, as a natural logarithm.
const LN_SURE: f64 = -13.8;

/// The chosen configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Configured {
    /// One mask per bit of the slice's number, the lowest first.
    pub masks: Vec<u64>,
    /// Ways tried.
    pub tried: u64,
    /// Lines it predicts, of those looked at.
    pub agree: (u64, u64),
    /// Lines that the next best way predicts.
    pub next: u64,
}

/// Why none was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ConfigureError {
    /// Numbers of groups are not slices.
    #[error(
        "the clusters are found, but no line tells the number of its slice; observe by counter or latency, or use --method algebra"
    )]
    NoNumbers,
    /// More clusters than sets of parities, or too many ways.
    #[error("{clusters} clusters cannot be tried in {parities} parities; use --method algebra")]
    TooMany { clusters: usize, parities: u32 },
    /// Slices that are no power of two.
    #[error(
        "{slices} slices are no power of two; use --method algebra, which says what is known of such a hash"
    )]
    NotLinear { slices: u16 },
    /// None fits, or two fit alike.
    #[error(
        "no configuration stands out: the best is right on {best} of {all} lines, the next on {next}; observe more lines by number"
    )]
    Unclear { best: u64, next: u64, all: u64 },
}

/// Chooses the configuration by lines with numbered slices.
///
/// # Errors
/// `NoNumbers` without such lines, `NotLinear`, `TooMany`, `Unclear`.
pub fn configure(clusters: &[Cluster], seen: &Observations) -> Result<Configured, ConfigureError> {
    let lines: Vec<(u64, u16)> =
        distinct::lines(seen).iter().map(|(addr, group)| (addr.0, group.0)).take(LINES).collect();
    if seen.labels != Labels::Numbered || lines.is_empty() {
        return Err(ConfigureError::NoNumbers);
    }
    let slices = seen.members().map(|(_, group)| group.0).max().unwrap_or(0).saturating_add(1);
    if !slices.is_power_of_two() || slices == 1 {
        return Err(ConfigureError::NotLinear { slices });
    }
    let parities = slices.trailing_zeros();
    check_size(clusters.len(), parities)?;
    let masks: Vec<u64> =
        clusters.iter().map(|c| c.0.iter().fold(0, |mask, bit| mask | 1 << bit)).collect();
    let mut tried =
        Tried { lines: packed(&masks, &lines), ways: 0, best: (0, Vec::new()), next: 0 };
    tried.place(&mut Vec::new(), masks.len(), 1 << parities);
    tried.choose(&masks, parities)
}

fn check_size(clusters: usize, parities: u32) -> Result<(), ConfigureError> {
    let kinds = (1_u64 << parities.min(16)) - 1;
    let clusters_wide = clusters as u64;
    let ways = (0..clusters_wide).try_fold(1_u64, |ways, used| {
        ways.checked_mul(kinds.checked_sub(used).filter(|&left| left > 0)?)
    });
    match ways {
        Some(ways) if ways <= MOST => Ok(()),
        _ => Err(ConfigureError::TooMany { clusters, parities }),
    }
}

/// Each line as the parities of all clusters, with the number of its slice.
fn packed(masks: &[u64], lines: &[(u64, u16)]) -> Vec<(u64, u16)> {
    lines.iter().map(|&(addr, slice)| (gf2::evaluate(masks, addr), slice)).collect()
}

struct Tried {
    lines: Vec<(u64, u16)>,
    ways: u64,
    /// Lines predicted, and the parities of each cluster.
    best: (u64, Vec<u16>),
    next: u64,
}

impl Tried {
    /// Gives the remaining clusters every set of parities that no other has.
    fn place(&mut self, given: &mut Vec<u16>, clusters: usize, kinds: u16) {
        if given.len() == clusters {
            return self.score(given);
        }
        for kind in (1..kinds).filter(|kind| !given.contains(kind)).collect::<Vec<_>>() {
            given.push(kind);
            self.place(given, clusters, kinds);
            given.pop();
        }
    }

    /// Lines whose slice the way predicts, up to one constant: bits that did not vary.
    fn score(&mut self, given: &[u16]) {
        self.ways += 1;
        let mut offsets = vec![0_u64; 1 << 8];
        for &(parities, slice) in &self.lines {
            let kinds = given.iter().zip(0..).filter(|&(_, at)| parities >> at & 1 == 1);
            let predicted = kinds.fold(0, |sum, (kind, _)| sum ^ kind);
            offsets[usize::from((predicted ^ slice) & 0xff)] += 1;
        }
        let right = offsets.into_iter().max().unwrap_or(0);
        if right > self.best.0 {
            self.next = std::mem::replace(&mut self.best, (right, given.to_vec())).0;
        } else {
            self.next = self.next.max(right);
        }
    }

    fn choose(self, masks: &[u64], parities: u32) -> Result<Configured, ConfigureError> {
        let (best, given) = self.best;
        let (next, all) = (self.next, self.lines.len() as u64);
        let sure = ln_tail(best, all, 0.5_f64.max(ratio(next, all))) < LN_SURE;
        if !sure {
            return Err(ConfigureError::Unclear { best, next, all });
        }
        let mask = |bit: u32| {
            let used = masks.iter().zip(&given).filter(|(_, kind)| **kind >> bit & 1 == 1);
            used.fold(0, |mask, (cluster, _)| mask | cluster)
        };
        let masks = (0..parities).map(mask).collect();
        Ok(Configured { masks, tried: self.ways, agree: (best, all), next })
    }
}
