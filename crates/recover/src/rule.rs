//! Whether what contradicts some masks follows a rule. A source errs independently of addresses;
//! a hash that is not linear differs from its best linear approximation by the address: on some
//! places of a base sequence always, on others never. Parities that go with the contradictions
//! are searched for, and believed, one or a few together, if within lines of one value of the
//! masks contradictions depend on them more than chance can do (a likelihood-ratio test). A
//! source that errs more often in one slice than in another is no rule. The masks themselves
//! are not looked for here.

use std::collections::HashMap;

use huepage_color::{NumberHash, gf2};

use crate::bound::ratio;
use crate::columns::Columns;
use crate::obs::LineGroupId;
use crate::search::{SearchBudget, least, search, trials};
use crate::vectors::VectorGroup;
use fastrand::Rng;

/// Logarithm of the chance with which errors without any rule are taken for some: about 10^-4.
/// A mistake costs a hash that could have been told; a rule not seen, a wrong hash.
const LN_RULE: f64 = -9.2;
/// The same for a candidate, which the test decides on: a dozen or so by chance.
const LN_CANDIDATE: f64 = 2.5;
/// Trials in what contradicts the masks. Linear approximations of base sequences of up to 64
/// lines leave errors of which 7 in 10 have some parity in common.
const TRIALS: u64 = 20_000;
/// Trials in all observations if many are wrong; takes some seconds.
const TRIALS_MANY_WRONG: u64 = 400_000;
/// Share of errors from which all observations say more of a rule than the errors alone do: a
/// parity of correlation c with the slice has c / 2e with the errors, and sqrt(e) the certainty.
const MANY_WRONG: f64 = 0.2;
/// Parities tested together, at most: a base sequence of 64 lines has six.
const TOGETHER: usize = 5;
/// Observations that each combination of parities must have on average for the test to hold.
const PER_CELL: usize = 20;

/// What one line or pair says of the masks.
#[derive(Clone, Copy, Debug)]
pub struct MaskVerdict {
    /// The line, or the difference of the pair, in coordinates of the sample.
    pub vector: u64,
    /// The parities that the masks give it.
    pub value: u64,
    /// Whether it was not seen where, or as, these say.
    pub contradicts: bool,
}

/// A parity that contradictions depend on, over `bits` coordinates; `all` are the observations
/// by group. Milliseconds, and up to seconds where many are wrong.
pub fn find(
    verdicts: &[MaskVerdict],
    bits: usize,
    all: &[VectorGroup],
    dice: &mut Rng,
) -> Option<u64> {
    let errors: Vec<u64> =
        verdicts.iter().filter(|verdict| verdict.contradicts).map(|v| v.vector).collect();
    let wrong = ratio(errors.len() as u64, verdicts.len() as u64);
    let group = [VectorGroup { id: LineGroupId(0), vectors: errors, anchored: false }];
    let found = candidates(&group, bits, TRIALS, dice);
    believed(verdicts, bits, &found).or_else(|| {
        let more = if wrong < MANY_WRONG { None } else { Some(TRIALS_MANY_WRONG) };
        let found = candidates(all, bits, more?, dice);
        believed(verdicts, bits, &found)
    })
}

/// Parities that vectors of the groups have more often than chance would let them, best first.
fn candidates(groups: &[VectorGroup], bits: usize, most: u64, dice: &mut Rng) -> Vec<u64> {
    let mut columns = Columns::new(bits);
    groups.iter().for_each(|group| columns.push(&group.vectors, group.anchored));
    let least = least(&columns, LN_CANDIDATE);
    if least > columns.vectors() {
        return Vec::new();
    }
    let trials = trials(ratio(least, columns.vectors()), bits).min(most);
    let budget = SearchBudget { trials, rank: bits, patience: trials };
    let mut found = search(groups, &columns, least, budget, dice).masks;
    found.sort_by_key(|&mask| std::cmp::Reverse(columns.agree(mask)));
    found
}

/// The first of the candidates that alone, or with those before it, contradictions depend on.
fn believed(verdicts: &[MaskVerdict], bits: usize, found: &[u64]) -> Option<u64> {
    let alone = found.iter().position(|&mask| depends(verdicts, bits, &[mask]));
    let together = || {
        let depend = |&count: &usize| depends(verdicts, bits, &found[..count]);
        (2..=found.len().min(TOGETHER)).find(depend).map(|_| 0)
    };
    alone.or_else(together).map(|at| found[at])
}

/// Whether contradictions depend on these parities, given the value of the masks: chance among
/// all the parities there are is below e^[`LN_RULE`].
fn depends(verdicts: &[MaskVerdict], bits: usize, parities: &[u64]) -> bool {
    let mut cells: HashMap<u64, [u64; 2], NumberHash> = HashMap::default();
    let mut whole: HashMap<u64, [u64; 2], NumberHash> = HashMap::default();
    for verdict in verdicts {
        let fine = verdict.value << parities.len() | gf2::evaluate(parities, verdict.vector);
        let at = usize::from(verdict.contradicts);
        cells.entry(fine).or_default()[at] += 1;
        whole.entry(verdict.value).or_default()[at] += 1;
    }
    if cells.len() * PER_CELL > verdicts.len() {
        return false;
    }
    let gain = likelihood(cells.values()) - likelihood(whole.values());
    let ways = ratio((bits * parities.len()) as u64, 1) * std::f64::consts::LN_2;
    ln_chi_square(gain, cells.len() - whole.len()) + ways < LN_RULE
}

/// Logarithm of the likelihood of what was seen in some cells, each with a rate of its own.
fn likelihood<'a>(cells: impl Iterator<Item = &'a [u64; 2]>) -> f64 {
    let part = |count: u64, all: u64| {
        if count == 0 { 0.0 } else { ratio(count, 1) * ratio(count, all).ln() }
    };
    cells.map(|&[right, wrong]| part(right, right + wrong) + part(wrong, right + wrong)).sum()
}

/// Logarithm of the chance that twice `gain` is exceeded by chi-square of `freedom` degrees;
/// odd numbers of degrees are taken for the next even one, which is never less.
fn ln_chi_square(gain: f64, freedom: usize) -> f64 {
    // The tail of 2m degrees is that of a Poisson sum: e^-t times the sum of t^i / i! below m.
    let terms = (1..freedom.div_ceil(2)).scan(1.0, |term, i| {
        *term *= gain.max(0.0) / ratio(i as u64, 1);
        Some(*term)
    });
    (1.0 + terms.sum::<f64>()).ln() - gain.max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_of_chi_square() {
        // Quantiles of 1 in 1000: 13.816 at 2 degrees, 18.467 at 4, 39.252 at 16.
        for (twice, freedom) in [(13.816, 2), (18.467, 4), (39.252, 16), (13.816, 1)] {
            let tail = ln_chi_square(twice / 2.0, freedom);
            assert!((tail - 0.001_f64.ln()).abs() < 0.001, "{freedom}: {tail}");
        }
        assert_eq!(ln_chi_square(-1.0, 2), 0.0);
    }

    fn verdicts(wrong: impl Fn(u64, &mut Rng) -> bool) -> Vec<MaskVerdict> {
        let mut dice = Rng::with_seed(5);
        let mut one = || {
            let vector = dice.u64(..) >> 40;
            MaskVerdict { vector, value: vector & 1, contradicts: wrong(vector, &mut dice) }
        };
        (0..2000).map(|_| one()).collect()
    }

    fn found(verdicts: &[MaskVerdict]) -> Option<u64> {
        find(verdicts, 24, &[], &mut Rng::with_seed(1))
    }

    #[test]
    fn a_rule_of_several_bits_is_found_and_chance_is_none() {
        let two_places =
            |v: u64, dice: &mut Rng| dice.f64() < if v & 0xe0 == 0 { 0.85 } else { 0.1 };
        let rule = found(&verdicts(two_places)).unwrap();
        assert!(rule & !0xe1 == 0 && rule & 0xe0 != 0, "{rule:#x}");
        assert_eq!(found(&verdicts(|_, dice| dice.f64() < 0.15)), None);
    }

    #[test]
    fn a_slice_that_errs_more_often_is_no_rule() {
        let by_slice = |v: u64, dice: &mut Rng| dice.f64() < if v & 1 == 0 { 0.02 } else { 0.18 };
        assert_eq!(found(&verdicts(by_slice)), None);
    }
}
