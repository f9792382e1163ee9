//! A given hash held against observations: how many it explains, beside how many any hash with
//! as many slices would by chance. Whoever gives a hash is not believed; this is the check.

use std::collections::{BTreeMap, BTreeSet};

use huepage_color::{IndexFunction, PhysAddr, gf2};

use crate::bound::{ln_tail, ratio};
use crate::columns::Columns;
use crate::distinct;
use crate::linear::{RecoverOptions, Recovery, combine, recover};
use crate::obs::{LineGroupId, Observations};
use crate::search::small;

/// What became of one comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HashAgreement {
    /// Lines and pairs compared, each counted once.
    pub seen: u64,
    /// Those that the hash explains.
    pub agree: u64,
    /// The share that it would explain by chance, 0 to 1: that of a hash with one parity less,
    /// of which every group gets half right.
    pub chance: f64,
    /// Natural logarithm of a bound on the probability that so many agree by chance.
    pub ln_chance: f64,
    /// The judgement.
    pub verdict: HashVerdict,
}

/// The judgement of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashVerdict {
    /// The hash explains far more than chance and most of what was seen.
    Agrees,
    /// It does not explain half of what the nearest wrong hash would fail at, or masks that say
    /// something else were recovered, or explain more with a bit or two changed.
    Disagrees,
    /// Too few observations, or too many of them wrong.
    Unclear,
}

/// Doubt, as a natural logarithm, up to which a verdict is given (one in a million).
const LN_SURE: f64 = -13.8;
/// Lines that changed bits are tried on, at most: seconds for 256 slices.
const MOST: usize = 1 << 18;

/// Compares a function of the address (the slice, as a number below `values`) with
/// observations. Pairs count only if by the function they conflict: most do not, whatever the
/// hash is. So pairs alone cannot show that a hash has a mask too many; lines do.
pub fn verify(
    seen: &Observations,
    values: usize,
    slice: impl Fn(PhysAddr) -> u64,
) -> HashAgreement {
    let members = distinct::lines(seen);
    let (lines, pairs) = (lines(&members, &slice), pairs(seen, &slice));
    let (agree, all) = (lines.0 + pairs.0, lines.1 + pairs.1);
    let groups = members.iter().map(|m| m.1).collect::<BTreeSet<_>>().len();
    // With a mask wrong, half of the lines of a value belong to another group; with fewer
    // values than groups, never more than their ratio can be right.
    let fit = if groups > values { ratio(values as u64, groups as u64) } else { 1.0 };
    let chance = 0.5_f64.min(fit);
    let ln_chance = ln_tail(agree, all, chance);
    let against = ln_tail(all - agree, all, 1.0 - 0.6);
    let verdict = match () {
        () if ln_chance < LN_SURE && fit > 0.99 => HashVerdict::Agrees,
        () if against < LN_SURE || (fit < 0.75 && all > 100) => HashVerdict::Disagrees,
        () => HashVerdict::Unclear,
    };
    HashAgreement { seen: all, agree, chance, ln_chance, verdict }
}

/// As [`verify`] for a hash of parities, and what the observations give by themselves. Masks
/// that are wrong only in bits which observations seldom vary explain nearly all of them: so
/// masks that are recovered and differ count more, and those that a changed bit improves fail.
pub fn verify_masks(
    seen: &Observations,
    masks: &[u64],
    options: &RecoverOptions,
) -> (HashAgreement, Recovery) {
    let mut found = verify(seen, 1 << masks.len(), parities(masks));
    let recovery = recover(seen, options);
    if recovery.confirms(masks) == Some(false) || improvable(seen, masks) {
        found.verdict = HashVerdict::Disagrees;
    }
    (found, recovery)
}

/// Whether a parity of the hash agrees with more lines if one or two address bits are changed
/// in it, by more than errors could do that are independent of the address.
fn improvable(seen: &Observations, masks: &[u64]) -> bool {
    let (columns, varied) = (by_group(seen), seen.varied());
    let flips: Vec<u64> = small(64).filter(|flip| flip & !varied == 0).collect();
    let ways = ratio((flips.len() as u64) << masks.len(), 1).ln();
    let better = |mask: u64| {
        let agree = columns.agree(mask);
        flips.iter().any(|flip| ways + improved(&columns, agree, mask, *flip) < LN_SURE)
    };
    (1_u64..1 << masks.len()).any(|pick| better(combine(masks, pick)))
}

/// Logarithm of a bound on the chance that changing `flip` gains so much on the `agree` lines
/// of a right mask. It turns the parity of the lines that have the flip's rarer parity, and of
/// these a right mask explains more than half.
fn improved(columns: &Columns, agree: u64, mask: u64, flip: u64) -> f64 {
    let parities = columns.parities(mask ^ flip);
    let lead = columns.agreement(&parities).saturating_sub(agree);
    if lead == 0 || !columns.tells_apart(&parities) {
        return 0.0;
    }
    let turned = columns.vectors() - columns.agree(flip);
    ln_tail(u64::midpoint(turned, lead).min(turned), turned, 0.5)
}

/// Lines by group, over address bits; some of them if there are very many.
fn by_group(seen: &Observations) -> Columns {
    let mut groups: BTreeMap<LineGroupId, Vec<u64>> = BTreeMap::new();
    let lines = distinct::lines(seen);
    let step = lines.len().div_ceil(MOST).max(1);
    for (addr, group) in lines.into_iter().step_by(step) {
        groups.entry(group).or_default().push(addr.0);
    }
    let mut columns = Columns::new(64);
    groups.values().for_each(|lines| columns.push(lines, false));
    columns
}

/// The slice of a hash that is a vector of parities.
pub fn parities(masks: &[u64]) -> impl Fn(PhysAddr) -> u64 + '_ {
    |addr| gf2::evaluate(masks, addr.0)
}

/// The slice of any index function.
pub fn slices(index: &IndexFunction) -> impl Fn(PhysAddr) -> u64 + '_ {
    |addr| u64::from(index.locate(addr).slice)
}

/// Lines explained by the best way to give each value a group of its own, and all lines.
fn lines(members: &[(PhysAddr, LineGroupId)], slice: impl Fn(PhysAddr) -> u64) -> (u64, u64) {
    let mut counts: BTreeMap<(u64, LineGroupId), u64> = BTreeMap::new();
    let mut all = 0;
    for &(addr, group) in members {
        *counts.entry((slice(addr), group)).or_default() += 1;
        all += 1;
    }
    let mut cells: Vec<_> = counts.into_iter().collect();
    cells.sort_unstable_by_key(|&(_, count)| std::cmp::Reverse(count));
    let mut taken: (Vec<u64>, Vec<LineGroupId>) = Default::default();
    let mut agree = 0;
    for ((value, group), count) in cells {
        if !taken.0.contains(&value) && !taken.1.contains(&group) {
            taken.0.push(value);
            taken.1.push(group);
            agree += count;
        }
    }
    (agree, all)
}

/// Of the pairs that should conflict, those that do.
fn pairs(seen: &Observations, slice: impl Fn(PhysAddr) -> u64) -> (u64, u64) {
    let told = distinct::pairs(seen).into_iter().filter(|&(a, b, _)| slice(a) == slice(b));
    told.fold((0, 0), |(agree, all), (.., does)| (agree + u64::from(does), all + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synth;
    use fastrand::Rng;

    const RIGHT: [u64; 2] = [0x1b5f575440, 0x2eb5faa880];

    fn seen(wrong: f64, n: usize) -> Observations {
        let hash = IndexFunction::xor(6, 11, RIGHT.to_vec()).unwrap();
        let mut dice = Rng::with_seed(8);
        let draw: Vec<PhysAddr> = synth::lines(38, 6, 0, PhysAddr(0), &mut dice).take(n).collect();
        let mut seen = synth::slices(&hash, draw.into_iter());
        synth::corrupt(&mut seen, wrong, &mut dice);
        seen
    }

    fn verdict(masks: &[u64], wrong: f64, n: usize) -> HashVerdict {
        verify(&seen(wrong, n), 1 << masks.len(), parities(masks)).verdict
    }

    #[test]
    fn the_right_hash_agrees_under_any_labels_and_a_wrong_one_does_not() {
        assert_eq!(verdict(&RIGHT, 0.05, 2000), HashVerdict::Agrees);
        assert_eq!(verdict(&[RIGHT[0] ^ RIGHT[1], RIGHT[0]], 0.2, 2000), HashVerdict::Agrees);
        assert_eq!(verdict(&[RIGHT[0], RIGHT[1] ^ 1 << 20], 0.05, 2000), HashVerdict::Disagrees);
        assert_eq!(verdict(&RIGHT[..1], 0.0, 2000), HashVerdict::Disagrees);
        assert_eq!(verdict(&[RIGHT[0], RIGHT[1], 0x3cccc93100], 0.0, 2000), HashVerdict::Disagrees);
    }

    #[test]
    fn a_mask_wrong_in_a_bit_that_is_seldom_set_disagrees() {
        let mut all = seen(0.0, 2000);
        let mut dice = Rng::with_seed(3);
        let hash = IndexFunction::xor(6, 11, RIGHT.to_vec()).unwrap();
        let rare = |addr: PhysAddr| {
            PhysAddr(if dice.f64() < 0.06 { addr.0 | 1 << 30 } else { addr.0 & !(1 << 30) })
        };
        let lines: Vec<PhysAddr> = all.members().map(|member| member.0).map(rare).collect();
        all = synth::slices(&hash, lines.into_iter());
        synth::corrupt(&mut all, 0.05, &mut Rng::with_seed(4));
        let judged =
            |masks: &[u64]| verify_masks(&all, masks, &RecoverOptions::default()).0.verdict;
        let wrong = [RIGHT[0], RIGHT[1] ^ 1 << 30];
        assert_eq!(verify(&all, 4, parities(&wrong)).verdict, HashVerdict::Agrees);
        assert_eq!(judged(&wrong), HashVerdict::Disagrees);
        assert_eq!(judged(&RIGHT), HashVerdict::Agrees);
        // Bit 40 never varies: nobody can tell.
        assert_eq!(judged(&[RIGHT[0] ^ 1 << 40, RIGHT[1]]), HashVerdict::Agrees);
    }

    #[test]
    fn repetitions_confirm_nothing() {
        let few = seen(0.0, 8);
        let mut often = few.clone();
        (0..99).for_each(|_| often.list.extend_from_slice(&few.list));
        let judged = |seen| verify(seen, 4, parities(&RIGHT));
        assert_eq!(judged(&often), judged(&few));
        assert_eq!(judged(&often).verdict, HashVerdict::Unclear);
    }

    #[test]
    fn few_observations_give_no_verdict() {
        assert_eq!(verdict(&RIGHT, 0.0, 8), HashVerdict::Unclear);
        assert_eq!(verdict(&RIGHT, 0.45, 500), HashVerdict::Unclear);
    }
}
