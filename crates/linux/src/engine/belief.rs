//! Which of the remembered colours hold now. A host takes memory back in blocks that are free
//! as a whole and gives other memory later, so that what was remembered of a block before is
//! worth nothing: a block is believed once pages of it that were remembered have been measured
//! as remembered. Pages whose colours were not known say nothing of the others. This module
//! measures nothing, and does not keep the colours themselves.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use huepage_color::{NumberHash, Pfn};

/// Frames that a host takes back and gives anew together, when all of them are free: the
/// block of free page reporting, and of huge pages.
const BLOCK_BITS: u32 = 9;
/// Pages of a block that are measured before what is remembered of the block is believed.
/// In a block that got other memory both agree once in colours squared times.
pub(super) const BLOCK_CHECKS: usize = 2;
/// How long it is believed for new pages: reporting waits for two seconds.
const BELIEF: Duration = Duration::from_secs(2);

/// The number of the block of a frame.
pub(super) const fn block(frame: Pfn) -> u64 {
    frame.0 >> BLOCK_BITS
}

/// The frames of a block.
pub(super) fn frames(block: u64) -> impl Iterator<Item = Pfn> {
    let first = block << BLOCK_BITS;
    (first..first + (1 << BLOCK_BITS)).map(Pfn)
}

/// Some frames of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Frames([u64; 1 << (BLOCK_BITS - 6)]);

impl Frames {
    const fn place(frame: Pfn) -> (usize, u64) {
        let within = frame.0 & ((1 << BLOCK_BITS) - 1);
        ((within >> 6) as usize, 1 << (within & 63))
    }

    fn insert(&mut self, frame: Pfn) {
        let (word, bit) = Frames::place(frame);
        self.0[word] |= bit;
    }

    fn contains(&self, frame: Pfn) -> bool {
        let (word, bit) = Frames::place(frame);
        self.0[word] & bit != 0
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
    /// When enough of them had been.
    whole: Option<Instant>,
    /// Frames ever measured.
    ever: Frames,
}

/// What this process has found of blocks.
#[derive(Debug, Default)]
pub(super) struct Beliefs {
    blocks: HashMap<u64, Belief, NumberHash>,
}

impl Beliefs {
    /// Whether a frame that comes anew has to be measured though a colour is remembered.
    pub(super) fn due(&self, frame: Pfn, now: Instant) -> bool {
        let fresh = |at: Instant| now.duration_since(at) < BELIEF;
        self.blocks.get(&block(frame)).is_none_or(|belief| {
            let measured = fresh(belief.at) && belief.lately.contains(frame);
            !measured && !belief.whole.is_some_and(fresh)
        })
    }

    /// Whether the remembered colour of a frame was found right at some time: enough for a page
    /// that has been in use ever since.
    pub(super) fn vouched(&self, frame: Pfn) -> bool {
        let belief = self.blocks.get(&block(frame));
        belief.is_some_and(|belief| belief.whole.is_some() || belief.ever.contains(frame))
    }

    /// A frame was measured: as it was remembered, or for the first time.
    pub(super) fn measured(&mut self, frame: Pfn, as_remembered: bool, now: Instant) {
        let (lately, ever) = (Frames::default(), Frames::default());
        let new = Belief { at: now, lately, agreed: 0, whole: None, ever };
        let belief = self.blocks.entry(block(frame)).or_insert(new);
        if now.duration_since(belief.at) >= BELIEF {
            (belief.lately, belief.agreed) = (lately, 0);
        }
        belief.agreed += usize::from(as_remembered && !belief.lately.contains(frame));
        belief.at = now;
        belief.lately.insert(frame);
        belief.ever.insert(frame);
        if as_remembered && belief.agreed >= BLOCK_CHECKS {
            belief.whole = Some(now);
        }
    }

    /// What was remembered of a block does not hold.
    pub(super) fn forget(&mut self, block: u64) {
        self.blocks.remove(&block);
    }
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
            assert_eq!(beliefs.due(neighbour, now), due, "before {frame}");
            assert_eq!(beliefs.vouched(neighbour), !due);
            beliefs.measured(Pfn(frame), true, now);
            assert!(!beliefs.due(Pfn(frame), now) && beliefs.vouched(Pfn(frame)));
        }
        assert!(beliefs.due(Pfn(511), now) && beliefs.due(Pfn(1024), now), "other blocks");
    }

    #[test]
    fn the_same_page_twice_is_one_page() {
        let (mut beliefs, now) = (Beliefs::default(), Instant::now());
        (0..5).for_each(|_| beliefs.measured(Pfn(512), true, now));
        assert!(beliefs.due(OTHER, now));
    }

    #[test]
    fn pages_of_unknown_colour_say_nothing_of_the_others() {
        let (mut beliefs, now) = (Beliefs::default(), Instant::now());
        (600..900).for_each(|frame| beliefs.measured(Pfn(frame), false, now));
        assert!(beliefs.due(OTHER, now) && !beliefs.vouched(OTHER));
        assert!(!beliefs.due(Pfn(777), now) && beliefs.vouched(Pfn(777)));
    }

    #[test]
    fn a_block_left_alone_has_to_be_checked_anew() {
        let (mut beliefs, start) = (Beliefs::default(), Instant::now());
        (512..514).for_each(|frame| beliefs.measured(Pfn(frame), true, start));
        let later = start + BELIEF;
        assert!(!beliefs.due(Pfn(600), later - Duration::from_millis(1)));
        assert!(beliefs.due(Pfn(600), later) && beliefs.due(Pfn(512), later));
        beliefs.measured(Pfn(514), true, later);
        assert!(beliefs.due(Pfn(600), later), "one of two");
        assert!(beliefs.due(Pfn(512), later), "measured before");
        assert!(beliefs.vouched(Pfn(600)), "in use ever since");
        beliefs.measured(Pfn(512), true, later);
        assert!(!beliefs.due(Pfn(600), later));
    }

    #[test]
    fn what_does_not_hold_is_forgotten() {
        let (mut beliefs, now) = (Beliefs::default(), Instant::now());
        (512..514).for_each(|frame| beliefs.measured(Pfn(frame), true, now));
        beliefs.forget(1);
        assert!(beliefs.due(Pfn(512), now) && !beliefs.vouched(Pfn(512)));
        assert_eq!(frames(1).map(block).collect::<Vec<_>>(), [1; 512]);
    }
}
