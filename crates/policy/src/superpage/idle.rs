//! Superpages that nobody uses any more. The engine tells now and then which of them were touched
//! since it last asked; one that was not touched so many times in a row is given up, a few at a
//! time. Its pages are then what they were: holes that it filled are holes again, and in a
//! partition they can go back into their colours.
//!
//! Not in the papers: Romer's superpages are only broken when one of their pages changes (1998,
//! section 3.7). No clock: intervals are the engine's. Memory: an entry for each superpage told of.

use std::collections::BTreeMap;

use huepage_color::Vpn;

/// How patiently, and how many at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Intervals without a touch; at least 1.
    pub intervals: u32,
    /// Superpages given up in one interval at most.
    pub at_once: usize,
}

impl Default for Patience {
    /// Eight intervals: a phase of the program that leaves it alone is over by then, as a rule. Four
    /// at once: each takes some 0.1 ms in which the program may have to wait.
    fn default() -> Patience {
        Patience { intervals: 8, at_once: 4 }
    }
}

/// Which superpages are idle.
#[derive(Clone, Debug, Default)]
pub struct Idle {
    patience: Patience,
    /// Intervals without a touch, by first base page.
    unused: BTreeMap<u64, u32>,
}

impl Idle {
    /// Nothing was told yet.
    pub const fn new(patience: Patience) -> Idle {
        Idle { patience, unused: BTreeMap::new() }
    }

    /// An interval is over: superpages that were asked about, by first base page, and whether they
    /// were touched in it. Those to give up, the longest idle first; what is over the limit comes
    /// next time. Logarithmic time for each.
    pub fn look(&mut self, told: impl IntoIterator<Item = (Vpn, bool)>) -> Vec<Vpn> {
        let mut idle: Vec<(u32, u64)> = Vec::new();
        for (page, touched) in told {
            let unused = self.unused.entry(page.0).or_insert(0);
            *unused = if touched { 0 } else { unused.saturating_add(1) };
            if *unused >= self.patience.intervals.max(1) {
                idle.push((*unused, page.0));
            }
        }
        idle.sort_unstable_by_key(|&(unused, page)| (std::cmp::Reverse(unused), page));
        idle.truncate(self.patience.at_once);
        idle.into_iter().map(|(_, page)| Vpn(page)).collect()
    }

    /// A superpage is none any more.
    pub fn forget(&mut self, page: Vpn) {
        self.unused.remove(&page.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(intervals: u32, at_once: usize) -> Idle {
        Idle::new(Patience { intervals, at_once })
    }

    #[test]
    fn one_touch_is_enough_to_stay() {
        let mut idle = idle(3, 4);
        for touched in [false, false, true, false, false] {
            assert_eq!(idle.look([(Vpn(512), touched)]), []);
        }
        assert_eq!(idle.look([(Vpn(512), false)]), [Vpn(512)]);
        idle.forget(Vpn(512));
        assert_eq!(idle.look([(Vpn(512), false)]), [], "built anew");
    }

    #[test]
    fn only_a_few_go_at_a_time_the_longest_idle_first() {
        let mut idle = idle(2, 2);
        let all = |from: u64| (from..5).map(|at| (Vpn(at * 512), false));
        assert_eq!(idle.look(all(3)), []);
        assert_eq!(idle.look(all(0)), [Vpn(3 * 512), Vpn(4 * 512)]);
        [3, 4].iter().for_each(|at| idle.forget(Vpn(at * 512)));
        assert_eq!(idle.look(all(0).take(3)), [Vpn(0), Vpn(512)]);
        [0, 1].iter().for_each(|at| idle.forget(Vpn(at * 512)));
        assert_eq!(idle.look(all(2).take(1)), [Vpn(1024)]);
    }
}
