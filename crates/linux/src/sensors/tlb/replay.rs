//! From pages that were touched in a moment to the misses of the TLB that they stand for. A page
//! that is touched or not in a window of time tells how often its block is touched, as far as
//! touches come by chance; a stream of touches as often as that is played through a model of the
//! TLB, and its misses are told as those of all the time and all the pages that they stand for.
//!
//! Nothing is remembered from one window to the next. For touches that do not come by chance see
//! [`turnover`](super::turnover).

use std::time::Duration;

use huepage_color::Vpn;

use super::sensor::{Miss, SampledBlock};
use crate::kernel::process_memory::SUPERPAGE_PAGES;
use crate::sensors::superpage_map::SuperpageMap;
use crate::sensors::tlb::TlbShape;
use crate::sensors::tlb::shape::SampledTlb;
use fastrand::Rng;

/// Misses that one told miss stands for.
pub const MISSES_PER_SAMPLE: u64 = 128;
/// Touches played at most.
pub(crate) const MOST_TOUCHES: usize = 8192;
/// And at least.
const FEWEST_TOUCHES: usize = 64;

/// What a look came to.
#[derive(Clone, Debug, Default)]
pub struct ReplayedLook {
    /// Misses, each of which stands for [`MISSES_PER_SAMPLE`], in order.
    pub misses: Vec<Miss>,
    /// Misses a second, of each block that was looked at and has some.
    pub rates: Vec<(u64, f64)>,
}

/// Touches a second of each page of a block that was looked at, by how many were touched in a
/// window of so many seconds. If all were, it is at least as often as would leave one out in half of
/// all windows.
fn rate(sampled: &SampledBlock, window: f64) -> f64 {
    let (n, touched) = (f64::from(sampled.pages), sampled.touched.len() as f64);
    let missed = (n - touched).max(0.5);
    -(missed / n.max(1.0)).ln().min(0.0) / window
}

/// Blocks with the sums of their touches a second, so that one can be drawn.
struct Urn<'a> {
    sampled: Vec<&'a SampledBlock>,
    sums: Vec<f64>,
}

impl<'a> Urn<'a> {
    fn new(sampled: &'a [SampledBlock], window: f64) -> Urn<'a> {
        let (mut sum, mut sums) = (0.0, Vec::new());
        let sampled: Vec<&SampledBlock> =
            sampled.iter().filter(|s| !s.touched.is_empty()).collect();
        for &one in &sampled {
            sum += rate(one, window) * f64::from(one.pages);
            sums.push(sum);
        }
        Urn { sampled, sums }
    }

    /// Touches a second.
    fn all(&self) -> f64 {
        self.sums.last().copied().unwrap_or(0.0)
    }

    /// The place of a block and a page of it that was touched.
    fn draw(&self, random: &mut Rng) -> (usize, Vpn) {
        let at = random.f64() * self.all();
        let block = self.sums.partition_point(|&sum| sum <= at).min(self.sums.len() - 1);
        let SampledBlock { block: number, touched, .. } = self.sampled[block];
        let page = touched[random.usize(..touched.len())];
        (block, Vpn(number * SUPERPAGE_PAGES + u64::from(page)))
    }
}

/// The part of the TLB that the pages of a look have: as much of what superpages leave of it as they
/// are of all single pages.
pub(crate) fn part(shape: &TlbShape, map: &SuperpageMap, sampled: &[SampledBlock]) -> f64 {
    let pages: u64 = sampled.iter().map(|one| u64::from(one.pages)).sum();
    let huge = map.blocks.values().filter(|block| block.huge).count();
    let left = shape.entries.saturating_sub(huge) as f64 / shape.entries.max(1) as f64;
    left * (pages as f64 / single_pages(map).max(pages).max(1) as f64)
}

/// Resident pages that are not of superpages.
pub(crate) fn single_pages(map: &SuperpageMap) -> u64 {
    let small = map.blocks.values().filter(|block| !block.huge);
    small.map(|block| u64::from(block.resident)).sum()
}

/// Plays a look at some pages of a program; `share` is the part of the TLB that they have. Costs some
/// 50 ns a touch, of which there are at most 16,384.
pub fn replay(
    shape: &TlbShape,
    share: f64,
    window: Duration,
    sampled: &[SampledBlock],
    random: &mut Rng,
) -> ReplayedLook {
    let urn = Urn::new(sampled, window.as_secs_f64().max(1e-6));
    let distinct: usize = urn.sampled.iter().map(|one| one.touched.len()).sum();
    let room = shape.entries as f64 * share;
    if (distinct as f64) <= room || distinct == 0 {
        return ReplayedLook::default();
    }
    let (seconds, touches) = length(&urn);
    let mut model = SampledTlb::new(shape, share);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "entries")]
    let warm = (2.0 * room) as usize;
    for _ in 0..warm.clamp(FEWEST_TOUCHES, MOST_TOUCHES) {
        model.touch(0, urn.draw(random).1);
    }
    let mut found = Vec::new();
    for _ in 0..touches {
        let (block, page) = urn.draw(random);
        found.extend(model.touch(0, page).map(|victim| (block, Miss { page, victim })));
    }
    tell(&urn, &found, seconds, random)
}

/// How long a time is played, in seconds, and the touches in it: so long that a miss of it stands
/// for about [`MISSES_PER_SAMPLE`].
fn length(urn: &Urn) -> (f64, usize) {
    let stands = |one: &&SampledBlock| scale(one) * one.stands_for;
    let mean = urn.sampled.iter().map(stands).sum::<f64>() / urn.sampled.len() as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
    let touches = (urn.all() * mean / MISSES_PER_SAMPLE as f64) as usize;
    let touches = touches.clamp(FEWEST_TOUCHES, MOST_TOUCHES);
    (touches as f64 / urn.all(), touches)
}

/// Pages of a block for each that was looked at.
pub(crate) fn scale(sampled: &SampledBlock) -> f64 {
    f64::from(sampled.resident) / f64::from(sampled.pages.max(1))
}

/// Each miss as often as it has to be told.
fn tell(urn: &Urn, found: &[(usize, Miss)], seconds: f64, random: &mut Rng) -> ReplayedLook {
    let mut counts = vec![0_u32; urn.sampled.len()];
    let mut misses = Vec::new();
    for &(at, miss) in found {
        counts[at] += 1;
        let one = urn.sampled[at];
        let times = scale(one) * one.stands_for / seconds / MISSES_PER_SAMPLE as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
        let whole = (times + random.f64()).floor() as usize;
        let room = MOST_TOUCHES.saturating_sub(misses.len());
        misses.extend(std::iter::repeat_n(miss, whole.min(room)));
    }
    let rates = urn.sampled.iter().zip(&counts).filter(|(_, count)| **count > 0);
    let rates = rates.map(|(one, &count)| (one.block, f64::from(count) / seconds * scale(one)));
    ReplayedLook { rates: rates.collect(), misses }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: TlbShape = TlbShape { entries: 1024, known: true, walk_ns: 30 };
    const WINDOW: Duration = Duration::from_millis(10);

    fn sampled(block: u64, pages: u32, touched: u16) -> SampledBlock {
        let touched = (0..touched).collect();
        SampledBlock {
            block,
            pages,
            touched,
            resident: 512,
            stands_for: 0.5,
            ..SampledBlock::default()
        }
    }

    fn play(share: f64, sampled: &[SampledBlock]) -> ReplayedLook {
        replay(&SHAPE, share, WINDOW, sampled, &mut Rng::with_seed(7))
    }

    #[test]
    fn what_fits_the_tlb_has_no_misses() {
        let few: Vec<SampledBlock> = (0..8).map(|block| sampled(block, 128, 100)).collect();
        assert!(play(1.0, &few).misses.is_empty());
        assert!(play(1.0, &[]).rates.is_empty());
    }

    #[test]
    fn a_walk_by_chance_has_the_misses_of_its_touches() {
        // Half of the pages in 10 ms: 69.3 touches a second and page, 128 of 512 looked at.
        let walk: Vec<SampledBlock> = (0..64).map(|block| sampled(block, 128, 64)).collect();
        let found = play(0.25, &walk);
        let rate: f64 = found.rates.iter().map(|(_, rate)| rate).sum();
        // The model holds 256 of 4,096 pages: 94 % miss.
        let expected = 69.3 * 512.0 * 64.0 * 0.94;
        assert!((rate / expected - 1.0).abs() < 0.1, "{rate} of {expected}");
        let told = found.misses.len() as f64 * MISSES_PER_SAMPLE as f64;
        assert!((told / (expected * 0.5) - 1.0).abs() < 0.1, "{told}");
        assert!(found.misses.iter().all(|miss| miss.victim != Some(miss.page)));
    }

    #[test]
    fn all_touched_is_often_but_not_always() {
        let rates = [10, 128].map(|n| rate(&sampled(0, 128, n), 0.01));
        assert!(rates[0] > 8.0 && rates[0] < 8.2, "{rates:?}");
        assert!(rates[1] > 500.0 && rates[1] < 2000.0, "{rates:?}");
    }

    #[test]
    fn telling_is_bounded() {
        let mut walk: Vec<SampledBlock> = (0..64).map(|block| sampled(block, 128, 120)).collect();
        walk.iter_mut().for_each(|one| one.stands_for = 1e6);
        assert_eq!(play(0.01, &walk).misses.len(), MOST_TOUCHES);
    }
}
