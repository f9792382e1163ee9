//! The search for masks: trials of information-set decoding until masks that agree with enough
//! observations are found, each improved by flipping bits before it counts. What agreement is
//! enough, and what the masks mean, is the caller's business.

use huepage_color::gf2;

use crate::bound::{ln_tail, ratio};
use crate::columns::Columns;
use crate::decode::{OPEN, trial};
use crate::vectors::VectorGroup;
use fastrand::Rng;

/// How long to search.
#[derive(Clone, Copy, Debug)]
pub struct SearchBudget {
    /// Trials in all.
    pub trials: u64,
    /// Independent masks after which nothing more is wanted.
    pub rank: usize,
    /// Trials without a new mask, once there is one, after which the search ends; raised to
    /// what a mask like the weakest found would need.
    pub patience: u64,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct FoundMasks {
    /// Independent masks, over coordinates.
    pub masks: Vec<u64>,
    /// Trials made.
    pub trials: u64,
}

/// Searches for masks with which at least `least` vectors of `columns` agree; `groups` are the
/// same vectors.
pub fn search(
    groups: &[VectorGroup],
    columns: &Columns,
    least: u64,
    budget: SearchBudget,
    dice: &mut Rng,
) -> FoundMasks {
    let mut found = FoundMasks::default();
    let groups: Vec<VectorGroup> =
        groups.iter().filter(|g| !g.vectors.is_empty()).cloned().collect();
    let weights = running_sums(&groups);
    let bits = columns.bits();
    if groups.is_empty() || bits == 0 {
        return found;
    }
    let (mut last, mut patience) = (0, budget.trials);
    while found.trials < budget.trials
        && found.masks.len() < budget.rank
        && found.trials - last < patience
    {
        found.trials += 1;
        let basis = trial(&groups, &weights, bits, dice);
        let before = found.masks.len();
        for mask in candidates(&basis, columns, least) {
            // What follows from masks found need not be improved to be found again.
            if is_new(&found.masks, mask) {
                keep(&mut found.masks, polish(mask, columns));
            }
        }
        if found.masks.len() > before {
            last = found.trials;
            patience = budget.patience.max(enough(&found.masks, columns));
        }
    }
    found
}

/// The agreement below which a mask is none, over all masks and constants there could be, with
/// a chance of e^`ln_chance` that one is none all the same.
pub fn least(columns: &Columns, ln_chance: f64) -> u64 {
    let all = columns.vectors();
    let ways = ratio((columns.bits() + columns.free_groups()) as u64, 1) * std::f64::consts::LN_2;
    let enough = |agree: &u64| ln_tail(*agree, all, 0.5) + ways < ln_chance;
    (all / 2..=all).find(enough).unwrap_or(all + 1)
}

/// How many vectors there are up to and with each group.
fn running_sums(groups: &[VectorGroup]) -> Vec<usize> {
    let add = |sum: &mut usize, group: &VectorGroup| {
        *sum += group.vectors.len();
        Some(*sum)
    };
    groups.iter().scan(0, add).collect()
}

/// The members of the span of `basis` that agree well enough.
fn candidates(basis: &[u64], columns: &Columns, least: u64) -> Vec<u64> {
    let rows: Vec<Vec<u64>> = basis.iter().map(|&mask| columns.parities(mask)).collect();
    let mut sum = vec![0; columns.words()];
    let mut mask = 0;
    let mut good = Vec::new();
    // Gray's order: one row more or less at each step.
    for step in 1_u32..1 << basis.len() {
        let change = step.trailing_zeros() as usize;
        mask ^= basis[change];
        sum.iter_mut().zip(&rows[change]).for_each(|(sum, word)| *sum ^= word);
        if columns.agreement(&sum) >= least {
            good.push(mask);
        }
    }
    good
}

/// Flips one or two bits as long as more vectors agree: a mask with a bit too many that few
/// observations vary agrees nearly as well as the right one.
fn polish(mut mask: u64, columns: &Columns) -> u64 {
    let mut best = columns.agree(mask);
    loop {
        let flips = small(columns.bits()).map(|flip| mask ^ flip).filter(|&m| m != 0);
        let better = flips.map(|m| (columns.agree(m), m)).max_by_key(|found| found.0);
        match better.filter(|found| found.0 > best) {
            Some((agree, found)) => (best, mask) = (agree, found),
            None => return mask,
        }
    }
}

/// All masks of one and two bits.
pub fn small(bits: usize) -> impl Iterator<Item = u64> {
    let pairs = move |a: usize| (a + 1..bits).map(move |b| 1_u64 << a | 1 << b);
    (0..bits).flat_map(move |a| std::iter::once(1_u64 << a).chain(pairs(a)))
}

/// Independent masks, each as far improved as more vectors than it was found with can tell.
pub fn polished(masks: &[u64], columns: &Columns) -> Vec<u64> {
    let mut kept = Vec::new();
    masks.iter().for_each(|&mask| keep(&mut kept, polish(mask, columns)));
    kept
}

fn keep(masks: &mut Vec<u64>, mask: u64) {
    if is_new(masks, mask) {
        masks.push(mask);
    }
}

/// Whether a mask is not in the span of independent `masks`.
pub fn is_new(masks: &[u64], mask: u64) -> bool {
    gf2::rank(&[masks, &[mask]].concat()) > masks.len()
}

/// What [`trials`] says of the weakest of these masks.
fn enough(masks: &[u64], columns: &Columns) -> u64 {
    let weakest = masks.iter().map(|&mask| columns.agree(mask)).min().unwrap_or(0);
    trials(ratio(weakest, columns.vectors()), columns.bits())
}

/// Twenty times the trials that a mask of `bits` bits should need which agrees with a share
/// `right` (0 to 1) of the vectors.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate between 20 and 10^12"
)]
pub fn trials(right: f64, bits: usize) -> u64 {
    let exponent = f64::from(u32::try_from(bits.saturating_sub(OPEN)).unwrap_or(u32::MAX));
    (20.0 * right.powf(-exponent)).min(1e12) as u64
}
