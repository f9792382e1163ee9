//! Even use of a partition: each of its colours is to hold as many pages of a program. All colours have as many
//! ways, so a partition is full as soon as one of its colours is: pages that walk over it in turn then miss in that
//! colour, however much room there is in others. Frames from the stock come evenly; pages that a program had before
//! there was any stay where they are as long as that is inside, and lie as the kernel happened to put them.
//!
//! The pages of an address space are told in the order of their addresses, as what is used together lies
//! together more often than not; so each stretch of it is even, and not only the whole.

use huepage_color::{Color, ColorSet, Vpn};

use crate::backoff::Doubling;
use crate::settled::Audited;

/// Numbers of a [`ColorBalance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceSettings {
    /// A colour may have this part of the mean over it: a tenth.
    pub part: u64,
    /// Pages over the mean that are allowed at least.
    pub slack: u64,
    /// Pages that move at once.
    pub most: usize,
    /// Doublings of the pause, in audits, between looks that change nothing.
    pub doublings: u32,
}

impl Default for BalanceSettings {
    fn default() -> BalanceSettings {
        BalanceSettings { part: 10, slack: 1, most: 4096, doublings: 6 }
    }
}

/// Decides when pages are looked at for that, and which ones move where; see the [module](self).
#[derive(Clone, Debug)]
pub struct ColorBalance {
    settings: BalanceSettings,
    rests: Doubling,
    /// Audits until the next look.
    rest: u64,
    /// Movable pages at the last one.
    movable: u64,
}

impl ColorBalance {
    /// Nothing was looked at yet.
    pub const fn new(settings: BalanceSettings) -> ColorBalance {
        let rests = Doubling::new(1, settings.doublings);
        ColorBalance { settings, rests, rest: 0, movable: 0 }
    }

    /// Whether pages are to be looked at after an audit: once it wants nothing moved itself, and not again and
    /// again while nothing changes.
    pub fn is_due(&mut self, found: &Audited) -> bool {
        if found.wanted > 0 {
            return false;
        }
        self.rest = self.rest.saturating_sub(1);
        let changed =
            found.movable.abs_diff(self.movable) > self.movable / (2 * self.settings.part);
        if changed {
            self.rests.reset();
        }
        let due = changed || self.rest == 0;
        if due {
            self.movable = found.movable;
        }
        due
    }

    /// Of pages in colours of a partition, told by ascending address, those that move, each with its new colour:
    /// up to any page, no colour has more than the mean and what is allowed over it.
    pub fn plan(&self, partition: &ColorSet, pages: &[(Vpn, Color)]) -> Vec<(Vpn, Color)> {
        let colors: Vec<Color> = partition.iter().collect();
        let all = u64::from(partition.len().max(1));
        let slack = (pages.len() as u64 / (all * self.settings.part)).max(self.settings.slack);
        let mut counts = vec![0_u64; usize::from(partition.universe())];
        let mut moves = Vec::new();
        for ((page, color), seen) in pages.iter().zip(1_u64..) {
            let own = usize::from(color.0);
            counts[own] += 1;
            if counts[own] * all <= seen + slack * all {
                continue;
            }
            // Where several have as few, small programs are not all to begin with the same.
            let from = usize::try_from(page.0 % all).unwrap_or(0);
            let turn = colors[from..].iter().chain(&colors[..from]);
            let Some(to) = turn.min_by_key(|color| counts[usize::from(color.0)]) else { break };
            counts[own] -= 1;
            counts[usize::from(to.0)] += 1;
            moves.push((*page, *to));
            if moves.len() >= self.settings.most {
                break;
            }
        }
        moves
    }

    /// So many pages were moved of those that a plan had.
    pub const fn evened(&mut self, moved: usize) {
        if moved > 0 {
            self.rests.reset();
            self.rest = 0;
        } else {
            self.rest = self.rests.take() + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn balance() -> ColorBalance {
        ColorBalance::new(BalanceSettings::default())
    }

    fn pages(colors: impl IntoIterator<Item = u16>) -> Vec<(Vpn, Color)> {
        (70..).map(Vpn).zip(colors.into_iter().map(Color)).collect()
    }

    /// Pages of each colour of a partition after a plan was carried out.
    fn after(partition: &ColorSet, mut pages: Vec<(Vpn, Color)>) -> (Vec<(Vpn, Color)>, usize) {
        let moves = balance().plan(partition, &pages);
        for (page, to) in &moves {
            let at = pages.iter().position(|of| of.0 == *page).expect("one of them");
            assert!(partition.contains(*to) && pages[at].1 != *to);
            pages[at].1 = *to;
        }
        (pages, moves.len())
    }

    /// The most pages of a colour, and the mean.
    fn fullest(partition: &ColorSet, pages: &[(Vpn, Color)]) -> (usize, f64) {
        let of = |color: Color| pages.iter().filter(|page| page.1 == color).count();
        let most = partition.iter().map(of).max().unwrap_or(0);
        (most, pages.len() as f64 / f64::from(partition.len()))
    }

    #[test]
    fn frames_in_a_row_stay_where_they_are() {
        let partition = ColorSet::first(54, 64).difference(&ColorSet::first(3, 64));
        assert_eq!(balance().plan(&partition, &pages((0..1000).map(|n| 3 + n % 51))), []);
        // What the stock has out of order by less than is allowed.
        assert_eq!(balance().plan(&partition, &pages((0..1000).map(|n| 3 + (n ^ 1) % 51))), []);
    }

    #[test]
    fn one_crowded_color_is_spread_over_the_others() {
        let partition = ColorSet::first(8, 16);
        let (pages, moved) = after(&partition, pages([5; 640]));
        let (most, mean) = fullest(&partition, &pages);
        assert!(most as f64 <= mean * 1.1 && moved <= 560, "{most} of {mean}, {moved} moved");
    }

    #[test]
    fn small_programs_do_not_begin_with_the_same_colors() {
        let partition = ColorSet::all(64);
        let first = |at: u64| {
            let pages = [(Vpn(at), Color(9)), (Vpn(at + 1), Color(9))];
            balance().plan(&partition, &pages)[0].1
        };
        assert_ne!(first(100), first(203));
    }

    #[test]
    fn it_looks_when_pages_have_come_and_rests_while_nothing_changes() {
        let mut balance = balance();
        let quiet = |movable| Audited { movable, ..Audited::default() };
        assert!(!balance.is_due(&Audited { wanted: 1, ..quiet(100) }), "an audit comes first");
        assert!(balance.is_due(&quiet(100)));
        balance.evened(7);
        assert!(balance.is_due(&quiet(100)), "until nothing moves");
        balance.evened(0);
        let looks: Vec<u64> = (0..400)
            .filter(|_| {
                let due = balance.is_due(&quiet(100));
                if due {
                    balance.evened(0);
                }
                due
            })
            .collect();
        assert!((4..12).contains(&looks.len()), "{looks:?}");
        assert!(!balance.is_due(&quiet(102)) && balance.is_due(&quiet(120)));
    }

    proptest! {
        #[test]
        fn every_stretch_and_the_whole_are_even(
            colors in prop::collection::vec(0..51_u16, 1..1500),
        ) {
            let partition = ColorSet::first(51, 128);
            let (pages, _) = after(&partition, pages(colors));
            let allowed = (pages.len() / 510).max(1) as f64;
            for end in (1..=pages.len()).step_by(97).chain([pages.len()]) {
                let (most, mean) = fullest(&partition, &pages[..end]);
                prop_assert!(most as f64 <= mean + allowed, "{most} of {mean} up to {end}");
            }
            prop_assert_eq!(balance().plan(&partition, &pages), []);
        }
    }
}
