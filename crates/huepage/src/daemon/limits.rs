//! How many processes each group may have, so that no group's fill up the daemon for the others: a group is
//! limited by itself, and all together are; of what all may have, an equal part of it is kept for each.

/// A group: its own limit, and the processes that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSize {
    /// Processes that it may have by its own limit.
    pub most: usize,
    /// Processes that it has.
    pub has: usize,
}

/// Processes that each group may have when all together may have `total`. None has to give any up. Taken
/// one after the other they never come to more than `total`, and each has its equal part whatever others do.
pub fn allowances(total: usize, groups: &[GroupSize]) -> Vec<usize> {
    let part = total / groups.len().max(1);
    let kept = |group: &GroupSize| group.has.max(group.most.min(part));
    let all: usize = groups.iter().map(kept).sum();
    let allowance = |group: &GroupSize| {
        let left = total.saturating_sub(all - kept(group));
        group.most.min(left.max(part))
    };
    groups.iter().map(allowance).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_leaves_the_others_their_part() {
        let of = |most, has| GroupSize { most, has };
        assert_eq!(allowances(10, &[of(10, 10)]), [10]);
        assert_eq!(allowances(10, &[of(9, 5), of(9, 0)]), [5, 5]);
        assert_eq!(allowances(10, &[of(9, 5), of(2, 0)]), [8, 2], "what nobody can use is free");
        assert_eq!(allowances(0, &[]), [0; 0]);
    }

    /// Whatever order processes come in.
    #[test]
    fn all_together_never_have_more_and_nobody_less() {
        // A generator of its own: the same cases everywhere.
        let mut seed = 20_usize;
        let mut below = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..300 {
            let total = 1 + below(39);
            let most = |_| GroupSize { most: 1 + below(39), has: 0 };
            let mut groups: Vec<GroupSize> = (0..total % 5 + 1).map(most).collect();
            let part = total / groups.len();
            for _ in 0..200 {
                let may = allowances(total, &groups);
                assert!(may.iter().zip(&groups).all(|(&n, of)| n >= of.most.min(part)));
                assert!(may.iter().zip(&groups).all(|(&n, of)| n <= of.most));
                let at = below(groups.len());
                groups[at].has += usize::from(groups[at].has < may[at]);
                let all: usize = groups.iter().map(|of| of.has).sum();
                assert!(all <= total, "{groups:?} of {total}");
            }
        }
    }
}
