//! Pages that are kept out of superpages for a while since they were moved: what bounds how often
//! a page is promoted and moved in turns (the ping-pong of Romer 1998, section 6.6). The while
//! doubles with each move, so that in a time t a page is held at most about log2(t / first) times.
//! [`Tradeoff`](crate::combined::Tradeoff) holds single pages, and the range of a superpage by its first page.
//!
//! Knows no clock: the time is told, in any unit. An entry for each page ever held.

use std::collections::BTreeMap;

use huepage_color::Vpn;

use crate::backoff::Doubling;

/// Doublings at most: a while that never ends for any unit of time.
const MOST: u32 = 32;

/// A page that was moved.
#[derive(Clone, Copy, Debug)]
struct Held {
    rests: Doubling,
    until: u64,
}

/// The pages that are held; see the [module](self).
#[derive(Clone, Debug, Default)]
pub struct Holds {
    first: u64,
    held: BTreeMap<u64, Held>,
}

impl Holds {
    /// None yet; a page is held for `first` after its first move, or, for 0, never.
    pub const fn new(first: u64) -> Holds {
        Holds { first, held: BTreeMap::new() }
    }

    /// A page was moved now: it is held for twice as long as the last time. Logarithmic time.
    pub fn hold(&mut self, page: Vpn, now: u64) {
        let rests = Doubling::new(self.first, MOST);
        let held = self.held.entry(page.0).or_insert(Held { rests, until: 0 });
        held.until = now.saturating_add(held.rests.take());
    }

    /// Whether any of the 2^`order` base pages around a page is held now. Time in proportion to
    /// those of them that ever were.
    pub fn holds(&self, page: Vpn, order: u32, now: u64) -> bool {
        self.held.range(range_of(page, order)).any(|(_, held)| held.until > now)
    }
}

/// The base pages of the page of 2^`order` of them around a page.
pub(crate) fn range_of(page: Vpn, order: u32) -> std::ops::Range<u64> {
    let order = order.min(52);
    let first = page.0 >> order << order;
    first..first.saturating_add(1 << order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_twice_as_long() {
        let mut holds = Holds::new(10);
        let mut now = 100;
        for time in [10, 20, 40, 80] {
            holds.hold(Vpn(513), now);
            assert!(holds.holds(Vpn(600), 9, now) && holds.holds(Vpn(513), 0, now + time - 1));
            assert!(!holds.holds(Vpn(513), 0, now + time));
            now += time;
        }
        assert!(!holds.holds(Vpn(511), 9, 100), "a neighbour is nobody's business");
        for _ in 0..100 {
            holds.hold(Vpn(513), now);
        }
        assert!(holds.holds(Vpn(513), 0, now + (10 << MOST) - 1));
    }

    #[test]
    fn for_no_time_nothing_is_held() {
        let mut holds = Holds::new(0);
        holds.hold(Vpn(1), 7);
        assert!(!holds.holds(Vpn(1), 9, 7));
    }
}
