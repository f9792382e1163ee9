//! Observations of a hash that is known: what a perfect source would see, and what a source
//! sees that errs. For trying out solvers, in tests and by `huepage probe hash --source sim`.

use huepage_color::{IndexFunction, PhysAddr};

use crate::obs::{GroupScope, Labels, LineGroupId, Observation, Observations};
use fastrand::Rng;

/// Lines classified by slice as a counter would, in any set.
pub fn slices(hash: &IndexFunction, lines: impl Iterator<Item = PhysAddr>) -> Observations {
    let mut seen = Observations::new(GroupScope::Slice, Labels::Numbered);
    lines.for_each(|addr| seen.member(addr, LineGroupId(hash.locate(addr).slice)));
    seen
}

/// Pairs of lines and whether they have slice and set in common.
pub fn pairs(
    hash: &IndexFunction,
    lines: impl Iterator<Item = (PhysAddr, PhysAddr)>,
) -> Observations {
    let mut seen = Observations::new(GroupScope::Set, Labels::Free);
    lines.for_each(|(a, b)| seen.pair(a, b, hash.locate(a) == hash.locate(b)));
    seen
}

/// Random lines of the first `bits` address bits that have the set bits of `like` under an
/// index of `set_bits`; of any set if `set_bits` is 0.
pub fn lines(
    bits: u32,
    line_bits: u32,
    set_bits: u32,
    like: PhysAddr,
    dice: &mut Rng,
) -> impl Iterator<Item = PhysAddr> + '_ {
    let fixed = ((1_u64 << set_bits) - 1) << line_bits;
    let free = ((1_u64 << bits) - 1) >> line_bits << line_bits & !fixed;
    std::iter::repeat_with(move || PhysAddr(dice.u64(..) & free | like.0 & fixed))
}

/// Makes a share (0 to 1) of observations wrong, each by itself: another of the groups that
/// occur, any as likely, or the opposite of what a pair showed.
pub fn corrupt(seen: &mut Observations, share: f64, dice: &mut Rng) {
    let mut groups: Vec<LineGroupId> = seen.members().map(|member| member.1).collect();
    groups.sort_unstable();
    groups.dedup();
    for one in &mut seen.list {
        if dice.f64() >= share {
            continue;
        }
        match one {
            Observation::Pair { conflict, .. } => *conflict = !*conflict,
            Observation::Member { group, .. } => *group = another(&groups, *group, dice),
        }
    }
}

fn another(groups: &[LineGroupId], not: LineGroupId, dice: &mut Rng) -> LineGroupId {
    let at = groups.binary_search(&not).unwrap_or(0);
    let pick = dice.usize(..groups.len() - 1);
    groups.get(pick + usize::from(pick >= at)).copied().unwrap_or(not)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_that_is_wrong_is_the_one_asked_for() {
        let hash = IndexFunction::xor(6, 10, vec![0x1b5f575440, 0x2eb5faa880]).unwrap();
        let mut dice = Rng::with_seed(4);
        let draw: Vec<PhysAddr> = lines(34, 6, 0, PhysAddr(0), &mut dice).take(10_000).collect();
        let right = slices(&hash, draw.into_iter());
        let mut wrong = right.clone();
        corrupt(&mut wrong, 0.2, &mut dice);
        let differ = right.list.iter().zip(&wrong.list).filter(|(a, b)| a != b).count();
        assert!((1850..2150).contains(&differ), "{differ}");
    }

    #[test]
    fn lines_of_one_set_differ_in_nothing_that_chooses_it() {
        let mut dice = Rng::with_seed(4);
        let like = PhysAddr(0x1_2345_6789);
        for line in lines(34, 6, 11, like, &mut dice).take(100) {
            assert_eq!((line.0 ^ like.0) & 0x1_ffc0, 0);
            assert_eq!((line.0 & 63, line.0 >> 34), (0, 0));
        }
    }
}
