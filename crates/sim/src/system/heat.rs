//! The machine's side of counting by page: what is counted, and when. The counts and their
//! regions are in [`crate::heat`].

use huepage_color::Vpn;

use super::System;
use crate::heat::Heat;

impl System {
    /// Counts accesses and misses by page from now on.
    pub fn count_pages(&mut self) {
        self.heat = Some(Box::default());
    }

    /// What was counted by page, if it was asked for.
    pub fn heat(&self) -> Option<&Heat> {
        self.heat.as_deref()
    }

    /// An access that went so deep; nothing unless asked for.
    #[inline]
    pub(super) fn note_heat(&mut self, space: u16, page: Vpn, depth: usize) {
        if let Some(heat) = &mut self.heat {
            let level = self.colored.unwrap_or(self.stalls[0].len().saturating_sub(2));
            heat.note(space, page, depth > level);
        }
    }
}
