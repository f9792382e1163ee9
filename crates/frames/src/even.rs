//! Handing frames out in the order in which they lie in memory, as evenly over the colours as
//! a rotation would to within a few frames. Frames that follow each other in memory can be
//! moved together, which an exact rotation never allows. It knows colours and counts only;
//! frames that have to wait are kept by the caller, as in a [`ColorPool`](crate::ColorPool).

use huepage_color::{Color, ColorSet};

/// How evenly frames were handed out over the colours of a partition.
///
/// At every moment no colour of the partition is ahead of another by more than the tolerance,
/// if only colours are noted that were admitted. Cost: a look at the count of every colour for
/// each frame.
#[derive(Clone, Debug)]
pub struct Evenness {
    partition: ColorSet,
    /// Frames handed out per colour, less those that every colour of the partition has had.
    ahead: Vec<u32>,
    tolerance: u32,
}

impl Evenness {
    /// Nothing handed out yet; `tolerance` is at least 1, which is as even as a rotation.
    ///
    /// # Panics
    /// If the tolerance is 0: then nothing could ever be handed out.
    pub fn new(partition: ColorSet, tolerance: u32) -> Evenness {
        assert!(tolerance > 0, "a tolerance of 0 admits nothing");
        let ahead = vec![0; usize::from(partition.universe())];
        Evenness { partition, ahead, tolerance }
    }

    /// Whether a frame of this colour may be handed out now.
    pub fn admits(&self, color: Color) -> bool {
        self.partition.contains(color) && self.ahead[usize::from(color.0)] < self.tolerance
    }

    /// Notes that a frame of this colour was handed out, admitted or not.
    pub fn note(&mut self, color: Color) {
        if !self.partition.contains(color) {
            return;
        }
        self.ahead[usize::from(color.0)] += 1;
        let least = self.partition.iter().map(|c| self.ahead[usize::from(c.0)]).min();
        if least.is_some_and(|least| least > 0) {
            self.partition.iter().for_each(|c| self.ahead[usize::from(c.0)] -= 1);
        }
    }
}
