//! What was used last stands before the TLB, as a first level does: pages by their lowest bits, and
//! superpages by theirs. What is found there is not looked up, and grows no younger in the TLB. Says
//! only what is there.

use huepage_color::Vpn;

use super::SUPERPAGE_PAGES;

/// See the module's head.
#[derive(Clone, Debug)]
pub(super) struct Front {
    pages: [u64; FRONT],
    blocks: [u64; FRONT],
}

/// Entries of each kind before the TLB.
const FRONT: usize = 64;
/// No page of a trace.
pub(super) const EMPTY: Front = Front { pages: [u64::MAX; FRONT], blocks: [u64::MAX; FRONT] };

impl Front {
    #[inline]
    pub(super) fn has(&self, page: Vpn) -> bool {
        let block = page.0 / SUPERPAGE_PAGES;
        self.pages[slot(page.0)] == page.0 || self.blocks[slot(block)] == block
    }

    pub(super) fn enter(&mut self, page: Vpn, huge: bool) {
        let block = page.0 / SUPERPAGE_PAGES;
        match huge {
            true => self.blocks[slot(block)] = block,
            false => self.pages[slot(page.0)] = page.0,
        }
    }
}

#[inline]
fn slot(number: u64) -> usize {
    usize::try_from(number % FRONT as u64).unwrap_or(0)
}
