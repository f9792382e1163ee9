//! Frames that are taken and not cut out of their blocks yet: a bit for each, and the order in which
//! they were taken. A bit is one place of memory to look at, where cutting a frame out of a block of 2^11
//! touches a dozen.

/// Frames, counted from the base of their zone.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted {
    frames: Vec<u64>,
    /// Empty as long as there are none.
    bits: Vec<u64>,
}

impl Noted {
    pub(super) const fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Adds a frame below `end`, if it is not there; whether it was not.
    #[inline]
    pub(super) fn add(&mut self, frame: u64, end: u64) -> bool {
        if self.bits.is_empty() {
            // Zeroes that the kernel pages in as they are looked at.
            self.bits = vec![0; place(end) + 1];
        }
        let (word, bit) = (&mut self.bits[place(frame)], 1 << (frame % 64));
        let is_new = *word & bit == 0;
        if is_new {
            *word |= bit;
            self.frames.push(frame);
        }
        is_new
    }

    /// Whether none of `count` frames from one on is there.
    pub(super) fn has_none(&self, first: u64, count: u64) -> bool {
        let has =
            |frame| self.bits.get(place(frame)).is_some_and(|word| word >> (frame % 64) & 1 == 1);
        self.is_empty() || !(first..first + count).any(has)
    }

    /// All of them, as they were taken.
    pub(super) fn into_frames(self) -> Vec<u64> {
        self.frames
    }
}

const fn place(frame: u64) -> usize {
    (frame / 64) as usize
}
