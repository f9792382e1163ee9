//! A given hash held against observations: how many it explains, beside how many any hash with
//! as many slices would by chance. Whoever gives a hash is not believed; this is the check.

use std::collections::BTreeMap;

use huepage_color::{IndexFunction, PhysAddr, gf2};

use crate::bound::ln_tail;
use crate::linear::ratio;
use crate::obs::{GroupId, Observation, Observations};

/// What became of one comparison.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// Observations compared.
    pub seen: u64,
    /// Those that the hash explains.
    pub agree: u64,
    /// The share that it would explain by chance, 0 to 1: that of a hash with one parity less,
    /// of which every group gets half right.
    pub chance: f64,
    /// Natural logarithm of a bound on the probability that so many agree by chance.
    pub ln_chance: f64,
    /// The judgement.
    pub verdict: Verdict,
}

/// The judgement of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The hash explains far more than chance and most of what was seen.
    Agrees,
    /// It does not explain half of what the nearest wrong hash would fail at.
    Disagrees,
    /// Too few observations, or too many of them wrong.
    Unclear,
}

/// Doubt, as a natural logarithm, up to which a verdict is given (one in a million).
const LN_SURE: f64 = -13.8;

/// Compares a function of the address (the slice, as a number below `values`) with
/// observations. Pairs count only if by the function they conflict: most do not, whatever the
/// hash is. So pairs alone cannot show that a hash has a mask too many; lines do.
pub fn verify(seen: &Observations, values: usize, slice: impl Fn(PhysAddr) -> u64) -> Agreement {
    let (lines, pairs) = (lines(seen, &slice), pairs(seen, &slice));
    let (agree, all) = (lines.0 + pairs.0, lines.1 + pairs.1);
    let groups = seen.members().map(|m| m.1).collect::<std::collections::BTreeSet<_>>().len();
    // With a mask wrong, half of the lines of a value belong to another group; with fewer
    // values than groups, never more than their ratio can be right.
    let fit = if groups > values { ratio(values as u64, groups as u64) } else { 1.0 };
    let chance = 0.5_f64.min(fit);
    let ln_chance = ln_tail(agree, all, chance);
    let against = ln_tail(all - agree, all, 1.0 - 0.6);
    let verdict = match () {
        () if ln_chance < LN_SURE && fit > 0.99 => Verdict::Agrees,
        () if against < LN_SURE || (fit < 0.75 && all > 100) => Verdict::Disagrees,
        () => Verdict::Unclear,
    };
    Agreement { seen: all, agree, chance, ln_chance, verdict }
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
fn lines(seen: &Observations, slice: impl Fn(PhysAddr) -> u64) -> (u64, u64) {
    let mut counts: BTreeMap<(u64, GroupId), u64> = BTreeMap::new();
    let mut all = 0;
    for (addr, group) in seen.members() {
        *counts.entry((slice(addr), group)).or_default() += 1;
        all += 1;
    }
    let mut cells: Vec<_> = counts.into_iter().collect();
    cells.sort_unstable_by_key(|&(_, count)| std::cmp::Reverse(count));
    let mut taken: (Vec<u64>, Vec<GroupId>) = Default::default();
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
    let told = seen.list.iter().filter_map(|one| match *one {
        Observation::Pair { a, b, conflict } => Some((slice(a) == slice(b), conflict)),
        Observation::Member { .. } => None,
    });
    told.filter(|&(should, _)| should)
        .fold((0, 0), |(agree, all), (_, does)| (agree + u64::from(does), all + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;
    use crate::synth;

    const RIGHT: [u64; 2] = [0x1b5f575440, 0x2eb5faa880];

    fn seen(wrong: f64, n: usize) -> Observations {
        let hash = IndexFunction::xor(6, 11, RIGHT.to_vec()).unwrap();
        let mut dice = Dice::new(8);
        let draw: Vec<PhysAddr> = synth::lines(38, 6, 0, PhysAddr(0), &mut dice).take(n).collect();
        let mut seen = synth::slices(&hash, draw.into_iter());
        synth::corrupt(&mut seen, wrong, &mut dice);
        seen
    }

    fn verdict(masks: &[u64], wrong: f64, n: usize) -> Verdict {
        verify(&seen(wrong, n), 1 << masks.len(), parities(masks)).verdict
    }

    #[test]
    fn the_right_hash_agrees_under_any_labels_and_a_wrong_one_does_not() {
        assert_eq!(verdict(&RIGHT, 0.05, 2000), Verdict::Agrees);
        assert_eq!(verdict(&[RIGHT[0] ^ RIGHT[1], RIGHT[0]], 0.2, 2000), Verdict::Agrees);
        assert_eq!(verdict(&[RIGHT[0], RIGHT[1] ^ 1 << 20], 0.05, 2000), Verdict::Disagrees);
        assert_eq!(verdict(&RIGHT[..1], 0.0, 2000), Verdict::Disagrees);
        assert_eq!(verdict(&[RIGHT[0], RIGHT[1], 0x3cccc93100], 0.0, 2000), Verdict::Disagrees);
    }

    #[test]
    fn few_observations_give_no_verdict() {
        assert_eq!(verdict(&RIGHT, 0.0, 8), Verdict::Unclear);
        assert_eq!(verdict(&RIGHT, 0.45, 500), Verdict::Unclear);
    }
}
