//! Observations with repetitions taken out. A line that is written down a hundred times, or all
//! pairs among some dozen lines, say no more than these lines do. Counted as they are written,
//! what is learned from one copy would be confirmed by the next, and every bound on the doubt
//! would be far too low.

use std::cmp::Ordering;
use std::collections::HashMap;

use huepage_color::{NumberHash, PhysAddr};

use crate::obs::{LineGroupId, Observation, Observations};
use fastrand::Rng;

/// Address bits within a line: no cache that huepage runs on has shorter ones.
const IN_LINE: u64 = 63;

/// Every classified line once, in the group that it was most often found in and in the order of
/// seeing. Lines found as often in two groups are left out.
pub fn lines(seen: &Observations) -> Vec<(PhysAddr, LineGroupId)> {
    let members = seen.members().zip(0..);
    let votes = members.map(|((addr, group), at)| (line(addr), group, at)).collect();
    let mut elected = elected(votes);
    elected.sort_unstable_by_key(|vote| vote.2);
    elected.into_iter().map(|(line, group, _)| (PhysAddr(line), group)).collect()
}

/// Timed pairs that say something of their own: one for each difference of lines, with the
/// answer that most gave, and none that follows from others. Whether two lines conflict follows
/// where both are classified, and where a chain of pairs leads from one to the other.
pub fn pairs(seen: &Observations) -> Vec<(PhysAddr, PhysAddr, bool)> {
    let mut told = elected(differences(seen));
    // Which pairs of a circle stay must not depend on their answers or addresses.
    Rng::with_seed(1).shuffle(&mut told);
    let mut joined = Joined::classified(seen);
    told.retain(|&(difference, _, a)| joined.join(a, a ^ difference));
    let pair = |(difference, conflict, a): (u64, bool, u64)| {
        (PhysAddr(a), PhysAddr(a ^ difference), conflict)
    };
    told.into_iter().map(pair).collect()
}

/// What pairs say of their difference, with one of the two lines.
fn differences(seen: &Observations) -> Vec<(u64, bool, u64)> {
    let of = |one: &Observation| match *one {
        Observation::Pair { a, b, conflict } => Some((line(a) ^ line(b), conflict, line(a))),
        Observation::Member { .. } => None,
    };
    seen.list.iter().filter_map(of).collect()
}

const fn line(addr: PhysAddr) -> u64 {
    addr.0 & !IN_LINE
}

/// One vote on each question, for the answer that most votes give; none if two answers have as
/// many. A vote is the question, the answer, and something to know it by.
fn elected<A: Ord + Copy>(mut votes: Vec<(u64, A, u64)>) -> Vec<(u64, A, u64)> {
    votes.sort_unstable();
    votes.chunk_by(|a, b| a.0 == b.0).filter_map(majority).collect()
}

/// The first vote for the most frequent answer of sorted votes, if there is one such answer.
fn majority<A: Ord + Copy>(votes: &[(u64, A, u64)]) -> Option<(u64, A, u64)> {
    let mut best = (0, None);
    for same in votes.chunk_by(|a, b| a.1 == b.1) {
        match same.len().cmp(&best.0) {
            Ordering::Greater => best = (same.len(), same.first().copied()),
            Ordering::Equal => best.1 = None,
            Ordering::Less => {}
        }
    }
    best.1
}

/// Lines whose conflicts follow from each other: every line but one of a set leads to another.
#[derive(Default)]
struct Joined(HashMap<u64, u64, NumberHash>);

impl Joined {
    /// All classified lines in one set: their groups say which of them conflict.
    fn classified(seen: &Observations) -> Joined {
        let mut joined = Joined::default();
        let mut members = seen.members().map(|(addr, _)| line(addr));
        if let Some(first) = members.next() {
            members.for_each(|other| _ = joined.join(first, other));
        }
        joined
    }

    /// Joins the sets of two lines; whether they were two.
    fn join(&mut self, a: u64, b: u64) -> bool {
        let (a, b) = (self.last(a), self.last(b));
        if a != b {
            self.0.insert(a, b);
        }
        a != b
    }

    /// The line that those of a set lead to. The way is made shorter for the next time.
    fn last(&mut self, mut line: u64) -> u64 {
        while let Some(&next) = self.0.get(&line) {
            let Some(&after) = self.0.get(&next) else { return next };
            self.0.insert(line, after);
            line = after;
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::obs::{GroupScope, Labels};

    fn nothing() -> Observations {
        Observations::new(GroupScope::Slice, Labels::Free)
    }

    #[test]
    fn a_line_counts_once_and_as_most_say() {
        let mut seen = nothing();
        for (addr, group) in [(0x1040, 2), (0x80, 1), (0x1049, 2), (0x1040, 3), (0x80, 0)] {
            seen.member(PhysAddr(addr), LineGroupId(group));
        }
        assert_eq!(lines(&seen), [(PhysAddr(0x1040), LineGroupId(2))]);
        seen.member(PhysAddr(0x80), LineGroupId(0));
        assert_eq!(
            lines(&seen),
            [(PhysAddr(0x1040), LineGroupId(2)), (PhysAddr(0x80), LineGroupId(0))]
        );
    }

    #[test]
    fn pairs_that_follow_from_others_do_not_count() {
        let mut seen = nothing();
        let mut dice = Rng::with_seed(2);
        let draw: Vec<PhysAddr> = (0..24).map(|_| PhysAddr(dice.u64(..) >> 30)).collect();
        for (at, &a) in draw.iter().enumerate() {
            draw[at..].iter().for_each(|&b| seen.pair(a, b, dice.f64() < 0.5));
        }
        assert_eq!(pairs(&seen).len(), 23);
        draw[..10].iter().for_each(|&a| seen.member(a, LineGroupId(0)));
        assert_eq!(pairs(&seen).len(), 14);
    }

    #[test]
    fn a_difference_counts_once_and_as_most_say() {
        let mut seen = nothing();
        for (a, conflict) in [(0x1000, true), (0x2000, false), (0x4000, true), (0x8000, true)] {
            seen.pair(PhysAddr(a), PhysAddr(a ^ 0x40), conflict);
        }
        let told: Vec<bool> = pairs(&seen).iter().map(|pair| pair.2).collect();
        assert_eq!(told, [true]);
    }
}
