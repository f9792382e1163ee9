//! Which of the remembered colours hold now. A host takes memory back in blocks that are free
//! as a whole and gives other memory later, so that what was remembered of a block before is
//! worth nothing: what was remembered in one epoch of a block is believed once pages of it have
//! been measured as remembered. Pages whose colours were not known say nothing of the others.
//! This module measures nothing, and does not keep the colours themselves.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use huepage_color::{NumberHash, Pfn};

use crate::color::probe::{block, place_in_block};
use crate::kernel::page_tables::Bits512;

/// Pages of a block that are measured before what is remembered of the block is believed.
/// In a block that got other memory both agree once in colours squared times.
pub(super) const BLOCK_CHECKS: usize = 2;
/// How long it is believed for new pages: reporting waits for two seconds.
const VALID_FOR: Duration = Duration::from_secs(2);

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
struct BlockValidity {
    /// When the last frame was measured.
    at: Instant,
    /// Frames measured since the block was last left alone.
    lately: Bits512,
    /// Those of them that were found as remembered.
    agreed: usize,
    /// When enough of them had been, or the epoch began.
    whole: Option<Instant>,
    /// Frames ever measured, or taken as remembered.
    ever: Bits512,
    /// Frames measured since frames were last found moved.
    since: Bits512,
}

/// What this process has found of blocks.
#[derive(Debug, Default)]
pub(super) struct ColorValidity {
    blocks: HashMap<u64, BlockValidity, NumberHash>,
    /// Whether frames were ever found moved, one by one: then no frame of a block vouches for another.
    doubts: bool,
}

impl ColorValidity {
    /// Whether a frame that comes anew has to be measured though a colour is remembered,
    /// `current` or of an earlier epoch.
    pub(super) fn due(&self, frame: Pfn, current: bool, now: Instant) -> bool {
        let known = |validity: &BlockValidity| {
            fresh(validity.at, now) && validity.lately.get(place_in_block(frame))
        };
        let validity = self.blocks.get(&block(frame));
        let doubtful = self.doubts
            && !validity.is_some_and(|validity| validity.since.get(place_in_block(frame)));
        let believed = !doubtful && current && self.is_valid(block(frame), now);
        !(validity.is_some_and(known) || believed)
    }

    /// The host was found to move frames: what was measured so far holds for pages in use until they are
    /// measured again, and for no other.
    pub(super) fn doubt(&mut self) {
        self.doubts = true;
        for validity in self.blocks.values_mut() {
            (validity.since, validity.lately, validity.agreed) = Default::default();
            validity.whole = None;
        }
    }

    /// Whether what is remembered of the present epoch of a block holds for new pages.
    pub(super) fn is_valid(&self, block: u64, now: Instant) -> bool {
        let whole = self.blocks.get(&block).and_then(|validity| validity.whole);
        whole.is_some_and(|at| fresh(at, now))
    }

    /// Whether the remembered colour of a frame was found right, or believed, at some time: enough
    /// for a page that has been in use ever since.
    pub(super) fn vouched(&self, frame: Pfn) -> bool {
        self.blocks
            .get(&block(frame))
            .is_some_and(|validity| validity.ever.get(place_in_block(frame)))
    }

    /// A frame was measured: as it was remembered, or for the first time.
    pub(super) fn measured(&mut self, frame: Pfn, as_remembered: bool, now: Instant) {
        let (validity, place) = (self.of(frame, now), place_in_block(frame));
        if !fresh(validity.at, now) {
            (validity.lately, validity.agreed) = (Bits512::NONE, 0);
        }
        validity.agreed += usize::from(as_remembered && !validity.lately.get(place));
        validity.at = now;
        validity.lately.set(place);
        validity.ever.set(place);
        validity.since.set(place);
        if as_remembered && validity.agreed >= BLOCK_CHECKS {
            validity.whole = Some(now);
        }
    }

    /// What is remembered of a frame was believed.
    pub(super) fn taken(&mut self, frame: Pfn, now: Instant) {
        self.of(frame, now).ever.set(place_in_block(frame));
    }

    /// Another epoch of a block began: all that is current in it is true.
    pub(super) fn began(&mut self, frame: Pfn, now: Instant) {
        self.of(frame, now).whole = Some(now);
    }

    /// What was remembered of a block does not hold.
    pub(super) fn forget(&mut self, block: u64) {
        self.blocks.remove(&block);
    }

    fn of(&mut self, frame: Pfn, now: Instant) -> &mut BlockValidity {
        let [lately, ever, since] = [Bits512::NONE; 3];
        let new = BlockValidity { at: now, lately, agreed: 0, whole: None, ever, since };
        self.blocks.entry(block(frame)).or_insert(new)
    }
}

fn fresh(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < VALID_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: Pfn = Pfn(513);

    #[test]
    fn a_block_is_believed_after_two_pages_that_were_as_remembered() {
        let (mut validity, now) = (ColorValidity::default(), Instant::now());
        let neighbour = Pfn(700);
        for (frame, due) in [(512, true), (1023, true), (600, false)] {
            assert_eq!(validity.due(neighbour, true, now), due, "before {frame}");
            assert!(!validity.vouched(neighbour));
            validity.measured(Pfn(frame), true, now);
            assert!(!validity.due(Pfn(frame), true, now) && validity.vouched(Pfn(frame)));
        }
        assert!(validity.due(neighbour, false, now), "of an earlier epoch");
        validity.taken(neighbour, now);
        assert!(validity.vouched(neighbour));
        assert!(
            validity.due(Pfn(511), true, now) && validity.due(Pfn(1024), true, now),
            "other blocks"
        );
    }

    #[test]
    fn the_same_page_twice_is_one_page() {
        let (mut validity, now) = (ColorValidity::default(), Instant::now());
        (0..5).for_each(|_| validity.measured(Pfn(512), true, now));
        assert!(validity.due(OTHER, true, now));
    }

    #[test]
    fn pages_of_unknown_colour_say_nothing_of_the_others() {
        let (mut validity, now) = (ColorValidity::default(), Instant::now());
        (600..900).for_each(|frame| validity.measured(Pfn(frame), false, now));
        assert!(validity.due(OTHER, true, now) && !validity.vouched(OTHER));
        assert!(!validity.due(Pfn(777), true, now) && validity.vouched(Pfn(777)));
    }

    #[test]
    fn a_block_left_alone_has_to_be_checked_anew() {
        let (mut validity, start) = (ColorValidity::default(), Instant::now());
        (512..514).for_each(|frame| validity.measured(Pfn(frame), true, start));
        let later = start + VALID_FOR;
        assert!(!validity.due(Pfn(600), true, later - Duration::from_millis(1)));
        assert!(validity.due(Pfn(600), true, later) && validity.due(Pfn(512), true, later));
        validity.measured(Pfn(514), true, later);
        assert!(validity.due(Pfn(600), true, later), "one of two");
        assert!(validity.due(Pfn(512), true, later), "measured before");
        assert!(validity.vouched(Pfn(512)), "in use ever since");
        validity.measured(Pfn(512), true, later);
        assert!(!validity.due(Pfn(600), true, later));
    }

    #[test]
    fn what_does_not_hold_is_forgotten() {
        let (mut validity, now) = (ColorValidity::default(), Instant::now());
        (512..514).for_each(|frame| validity.measured(Pfn(frame), true, now));
        validity.forget(1);
        assert!(validity.due(Pfn(512), true, now) && !validity.vouched(Pfn(512)));
    }

    #[test]
    fn after_frames_were_found_moved_none_vouches_for_another() {
        let (mut validity, now) = (ColorValidity::default(), Instant::now());
        (512..520).for_each(|frame| validity.measured(Pfn(frame), true, now));
        assert!(!validity.due(Pfn(600), true, now));
        validity.doubt();
        assert!(validity.due(Pfn(600), true, now) && validity.due(Pfn(512), true, now));
        assert!(validity.vouched(Pfn(512)), "in use ever since");
        (512..520).for_each(|frame| validity.measured(Pfn(frame), true, now));
        assert!(!validity.due(Pfn(512), true, now), "measured since");
        assert!(validity.due(Pfn(600), true, now));
    }

    #[test]
    fn what_is_current_in_an_epoch_just_begun_is_true() {
        let (mut validity, now) = (ColorValidity::default(), Instant::now());
        validity.began(Pfn(512), now);
        assert!(!validity.due(OTHER, true, now) && validity.due(OTHER, false, now));
        assert!(!validity.is_valid(1, now + VALID_FOR));
    }
}
