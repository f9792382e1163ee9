//! Misses of programs that take long to touch as many pages as the TLB holds: scans, and whatever
//! computes much. A TLB that replaces by age holds what was touched in the time in which as many
//! pages are touched as it has entries, and the misses are the slope of the number of pages touched
//! over time at that point (Denning and Schwartz, "Properties of the working-set model", CACM 15(3),
//! 1972, sections 3 and 5). That holds in whatever order pages are touched. The slope is seen where
//! the window is so long that this point lies in its second half: pages first touched there.
//!
//! Windows shorter than [`accessed`](super::accessed) can take are not for this: then chance is
//! assumed ([`replay`](super::replay)).

use std::time::Duration;

use huepage_color::Vpn;

use super::replay::{MISSES_PER_SAMPLE, MOST_TOUCHES, ReplayedLook, part, replay, scale};
use super::sensor::{Miss, SampledBlock, SensorLook};
use super::shape::TlbShape;
use crate::kernel::process_memory::SUPERPAGE_PAGES;
use crate::sensors::superpage_map::SuperpageMap;
use fastrand::Rng;

/// What a look counts among the looks before it.
const NEWEST_LOOK_WEIGHT: f64 = 0.3;

/// Pages touched in the first half of a window and in all of it, as shares of what the TLB holds,
/// over the last looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fill {
    first: f64,
    whole: f64,
}

impl Fill {
    /// Another look, at pages that have `room` entries.
    pub fn note(&mut self, sampled: &[SampledBlock], room: f64) {
        let (mut late, mut whole) = (0, 0);
        for one in sampled {
            late += one.late.len();
            whole += one.touched.len();
        }
        let smooth =
            |old: f64, pages: usize| (pages as f64 / room - old).mul_add(NEWEST_LOOK_WEIGHT, old);
        self.first = smooth(self.first, whole - late);
        self.whole = smooth(self.whole, whole);
    }

    /// The window is twice as long from now on; what another half adds falls as it did.
    pub fn double(&mut self) {
        let growth = self.whole / self.first.max(1e-9);
        (self.first, self.whole) = (self.whole, self.whole * growth.clamp(1.0, 2.0));
    }

    /// The window is half as long from now on.
    pub fn halve(&mut self) {
        let growth = self.whole / self.first.max(1e-9);
        (self.first, self.whole) = (self.first / growth.clamp(1.0, 2.0), self.first);
    }

    /// Whether the TLB is turned over in the second half of the window.
    pub fn is_late(&self) -> bool {
        self.first < 1.0 && self.whole > 1.0
    }

    /// Whether half the window would do.
    pub fn is_long(&self) -> bool {
        self.first > 1.5
    }

    /// Whether it is too short to be sure that the TLB is turned over in it.
    pub fn is_short(&self) -> bool {
        self.whole < 1.3
    }
}

/// The misses that a look stands for, whichever way holds for it.
pub(crate) fn misses(
    shape: &TlbShape,
    map: &SuperpageMap,
    look: &SensorLook,
    random: &mut Rng,
) -> ReplayedLook {
    if look.slow {
        return late(look.window, &look.sampled, random);
    }
    replay(shape, part(shape, map, &look.sampled), look.window, &look.sampled, random)
}

/// The misses that pages touched late stand for. In each block a page is told once before, as a miss
/// counts for a superpage only if another of its pages is in the TLB.
fn late(window: Duration, sampled: &[SampledBlock], random: &mut Rng) -> ReplayedLook {
    let half = (window.as_secs_f64() / 2.0).max(1e-6);
    let mut found = ReplayedLook::default();
    for one in sampled.iter().filter(|one| !one.late.is_empty()) {
        let each = scale(one) * one.stands_for / half / MISSES_PER_SAMPLE as f64;
        found.rates.push((one.block, one.late.len() as f64 * scale(one) / half));
        let miss = |page: u16| Miss {
            page: Vpn(one.block * SUPERPAGE_PAGES + u64::from(page)),
            victim: None,
        };
        let mut told = Vec::new();
        for &page in &one.late {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
            let times = (each + random.f64()).floor() as usize;
            let room = MOST_TOUCHES.saturating_sub(found.misses.len() + told.len());
            told.extend(std::iter::repeat_n(miss(page), times.min(room)));
        }
        let another = told.first().and_then(|first: &Miss| {
            one.touched.iter().copied().map(miss).find(|other| other.page != first.page)
        });
        found.misses.extend(another);
        found.misses.extend(told);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(block: u64, touched: u16, late: u16) -> SampledBlock {
        let (touched, late) = ((0..touched).collect(), (touched - late..touched).collect());
        SampledBlock { block, pages: 128, touched, late, resident: 512, stands_for: 0.5 }
    }

    #[test]
    fn the_misses_of_a_scan_are_its_pages_as_often_as_it_passes() {
        // A scan of 256 blocks in a second: a window of 20 ms sees 5 of them, half of them late.
        let blocks = 0..256;
        let seen = |block| if block < 5 { sampled(block, 128, 64) } else { sampled(block, 0, 0) };
        let looks: Vec<SampledBlock> = blocks.map(seen).collect();
        let found = late(Duration::from_millis(20), &looks, &mut Rng::with_seed(1));
        let rate: f64 = found.rates.iter().map(|(_, rate)| rate).sum();
        assert!((rate / (256.0 * 512.0) - 1.0).abs() < 0.03, "{rate}");
        let told = (found.misses.len() - found.rates.len()) as f64 * MISSES_PER_SAMPLE as f64;
        assert!((told / (256.0 * 512.0 * 0.5) - 1.0).abs() < 0.1, "{told}");
    }

    #[test]
    fn a_page_alone_is_told_alone() {
        let alone = sampled(7, 1, 1);
        let found = late(Duration::from_micros(2), &[alone], &mut Rng::with_seed(1));
        assert!(
            found.misses.len() > 100
                && found.misses.iter().all(|m| m.page == Vpn(7 * SUPERPAGE_PAGES))
        );
        let two = sampled(7, 2, 1);
        let found = late(Duration::from_micros(2), &[two], &mut Rng::with_seed(1));
        assert_eq!(found.misses[0].page, Vpn(7 * SUPERPAGE_PAGES), "so that the other counts");
        assert!(found.misses[1..].iter().all(|miss| miss.page == Vpn(7 * SUPERPAGE_PAGES + 1)));
        assert!(found.misses.len() <= MOST_TOUCHES + 1);
    }

    #[test]
    fn windows_are_long_short_or_right() {
        let mut fill = Fill::default();
        assert!(fill.is_short() && !fill.is_late());
        for _ in 0..30 {
            fill.note(&[sampled(0, 128, 64)], 85.0);
        }
        assert!(fill.is_late() && !fill.is_short() && !fill.is_long());
        fill.double();
        assert!(!fill.is_late() && !fill.is_short(), "{fill:?}");
        (0..2).for_each(|_| fill.halve());
        assert!(fill.is_short(), "{fill:?}");
    }
}
