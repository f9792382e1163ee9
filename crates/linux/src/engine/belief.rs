//! Which of the remembered colours hold now. A host takes memory back in blocks that are free
//! as a whole and gives other memory later, so that what was remembered of a block before is
//! worth nothing: what was remembered in one epoch of a block is believed once pages of it have
//! been measured as remembered. Pages whose colours were not known say nothing of the others.
//! This module measures nothing, and does not keep the colours themselves.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use huepage_color::{NumberHash, Pfn};

use crate::probe::{BLOCK_FRAMES, block, place_in_block};

/// Pages of a block that are measured before what is remembered of the block is believed.
/// In a block that got other memory both agree once in colours squared times.
pub(super) const BLOCK_CHECKS: usize = 2;
/// How long it is believed for new pages: reporting waits for two seconds.
const BELIEF: Duration = Duration::from_secs(2);

/// Some frames of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Frames([u64; BLOCK_FRAMES / 64]);

impl Frames {
    fn insert(&mut self, frame: Pfn) {
        let place = place_in_block(frame);
        self.0[place / 64] |= 1 << (place % 64);
    }

    fn contains(&self, frame: Pfn) -> bool {
        let place = place_in_block(frame);
        self.0[place / 64] >> (place % 64) & 1 == 1
    }
}

/// What is known of a block.
#[derive(Clone, Copy, Debug)]
struct Belief {
    /// When the last frame was measured.
    at: Instant,
    /// Frames measured since the block was last left alone.
    lately: Frames,
    /// Those of them that were found as remembered.
    agreed: usize,
    /// When enough of them had been, or the epoch began.
    whole: Option<Instant>,
    /// Frames ever measured, or taken as remembered.
    ever: Frames,
    /// Frames measured since frames were last found moved.
    since: Frames,
}

/// What this process has found of blocks.
#[derive(Debug, Default)]
pub(super) struct Beliefs {
    blocks: HashMap<u64, Belief, NumberHash>,
    /// Whether frames were ever found moved, one by one: then no frame of a block vouches for another.
    doubts: bool,
}

impl Beliefs {
    /// Whether a frame that comes anew has to be measured though a colour is remembered,
    /// `current` or of an earlier epoch.
    pub(super) fn due(&self, frame: Pfn, current: bool, now: Instant) -> bool {
        let known = |belief: &Belief| fresh(belief.at, now) && belief.lately.contains(frame);
        let belief = self.blocks.get(&block(frame));
        let doubtful = self.doubts && !belief.is_some_and(|belief| belief.since.contains(frame));
        let believed = !doubtful && current && self.believes(block(frame), now);
        !(belief.is_some_and(known) || believed)
    }

    /// The host was found to move frames: what was measured so far holds for pages in use until they are
    /// measured again, and for no other.
    pub(super) fn doubt(&mut self) {
        self.doubts = true;
        for belief in self.blocks.values_mut() {
            (belief.since, belief.lately, belief.agreed) = Default::default();
            belief.whole = None;
        }
    }

    /// Whether what is remembered of the present epoch of a block holds for new pages.
    pub(super) fn believes(&self, block: u64, now: Instant) -> bool {
        let whole = self.blocks.get(&block).and_then(|belief| belief.whole);
        whole.is_some_and(|at| fresh(at, now))
    }

    /// Whether the remembered colour of a frame was found right, or believed, at some time: enough
    /// for a page that has been in use ever since.
    pub(super) fn vouched(&self, frame: Pfn) -> bool {
        self.blocks.get(&block(frame)).is_some_and(|belief| belief.ever.contains(frame))
    }

    /// A frame was measured: as it was remembered, or for the first time.
    pub(super) fn measured(&mut self, frame: Pfn, as_remembered: bool, now: Instant) {
        let belief = self.of(frame, now);
        if !fresh(belief.at, now) {
            (belief.lately, belief.agreed) = (Frames::default(), 0);
        }
        belief.agreed += usize::from(as_remembered && !belief.lately.contains(frame));
        belief.at = now;
        belief.lately.insert(frame);
        belief.ever.insert(frame);
        belief.since.insert(frame);
        if as_remembered && belief.agreed >= BLOCK_CHECKS {
            belief.whole = Some(now);
        }
    }

    /// What is remembered of a frame was believed.
    pub(super) fn taken(&mut self, frame: Pfn, now: Instant) {
        self.of(frame, now).ever.insert(frame);
    }

    /// Another epoch of a block began: all that is current in it is true.
    pub(super) fn began(&mut self, frame: Pfn, now: Instant) {
        self.of(frame, now).whole = Some(now);
    }

    /// What was remembered of a block does not hold.
    pub(super) fn forget(&mut self, block: u64) {
        self.blocks.remove(&block);
    }

    fn of(&mut self, frame: Pfn, now: Instant) -> &mut Belief {
        let frames = Frames::default();
        let (lately, ever, since) = (frames, frames, frames);
        let new = Belief { at: now, lately, agreed: 0, whole: None, ever, since };
        self.blocks.entry(block(frame)).or_insert(new)
    }
}

fn fresh(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < BELIEF
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: Pfn = Pfn(513);

    #[test]
    fn a_block_is_believed_after_two_pages_that_were_as_remembered() {
        let (mut beliefs, now) = (Beliefs::default(), Instant::now());
        let neighbour = Pfn(700);
        for (frame, due) in [(512, true), (1023, true), (600, false)] {
            assert_eq!(beliefs.due(neighbour, true, now), due, "before {frame}");
            assert!(!beliefs.vouched(neighbour));
            beliefs.measured(Pfn(frame), true, now);
            assert!(!beliefs.due(Pfn(frame), true, now) && beliefs.vouched(Pfn(frame)));
        }
        assert!(beliefs.due(neighbour, false, now), "of an earlier epoch");
        beliefs.taken(neighbour, now);
        assert!(beliefs.vouched(neighbour));
        assert!(
            beliefs.due(Pfn(511), true, now) && beliefs.due(Pfn(1024), true, now),
            "other blocks"
        );
    }

    #[test]
    fn the_same_page_twice_is_one_page() {
        let (mut beliefs, now) = (Beliefs::default(), Instant::now());
        (0..5).for_each(|_| beliefs.measured(Pfn(512), true, now));
        assert!(beliefs.due(OTHER, true, now));
    }

    #[test]
    fn pages_of_unknown_colour_say_nothing_of_the_others() {
        let (mut beliefs, now) = (Beliefs::default(), Instant::now());
        (600..900).for_each(|frame| beliefs.measured(Pfn(frame), false, now));
        assert!(beliefs.due(OTHER, true, now) && !beliefs.vouched(OTHER));
        assert!(!beliefs.due(Pfn(777), true, now) && beliefs.vouched(Pfn(777)));
    }

    #[test]
    fn a_block_left_alone_has_to_be_checked_anew() {
        let (mut beliefs, start) = (Beliefs::default(), Instant::now());
        (512..514).for_each(|frame| beliefs.measured(Pfn(frame), true, start));
        let later = start + BELIEF;
        assert!(!beliefs.due(Pfn(600), true, later - Duration::from_millis(1)));
        assert!(beliefs.due(Pfn(600), true, later) && beliefs.due(Pfn(512), true, later));
        beliefs.measured(Pfn(514), true, later);
        assert!(beliefs.due(Pfn(600), true, later), "one of two");
        assert!(beliefs.due(Pfn(512), true, later), "measured before");
        assert!(beliefs.vouched(Pfn(512)), "in use ever since");
        beliefs.measured(Pfn(512), true, later);
        assert!(!beliefs.due(Pfn(600), true, later));
    }

    #[test]
    fn what_does_not_hold_is_forgotten() {
        let (mut beliefs, now) = (Beliefs::default(), Instant::now());
        (512..514).for_each(|frame| beliefs.measured(Pfn(frame), true, now));
        beliefs.forget(1);
        assert!(beliefs.due(Pfn(512), true, now) && !beliefs.vouched(Pfn(512)));
    }

    #[test]
    fn after_frames_were_found_moved_none_vouches_for_another() {
        let (mut beliefs, now) = (Beliefs::default(), Instant::now());
        (512..520).for_each(|frame| beliefs.measured(Pfn(frame), true, now));
        assert!(!beliefs.due(Pfn(600), true, now));
        beliefs.doubt();
        assert!(beliefs.due(Pfn(600), true, now) && beliefs.due(Pfn(512), true, now));
        assert!(beliefs.vouched(Pfn(512)), "in use ever since");
        (512..520).for_each(|frame| beliefs.measured(Pfn(frame), true, now));
        assert!(!beliefs.due(Pfn(512), true, now), "measured since");
        assert!(beliefs.due(Pfn(600), true, now));
    }

    #[test]
    fn what_is_current_in_an_epoch_just_begun_is_true() {
        let (mut beliefs, now) = (Beliefs::default(), Instant::now());
        beliefs.began(Pfn(512), now);
        assert!(!beliefs.due(OTHER, true, now) && beliefs.due(OTHER, false, now));
        assert!(!beliefs.believes(1, now + BELIEF));
    }
}
