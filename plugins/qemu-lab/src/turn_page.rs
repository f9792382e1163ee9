//! The page by which the guest's kernel says whose turn it is on a processor: a program says which page that is, by its
//! next access after a mark.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::lab::LabWord;

const PAGE: u64 = 4096;

/// The page; 0: not known.
static TURN_PAGE: AtomicU64 = AtomicU64::new(0);
/// A processor whose next access by a program is to that page; none: the last number.
static AWAITED: AtomicU32 = AtomicU32::new(u32::MAX);

/// The next access of a program on a processor is to the page.
pub fn await_page(cpu: u32) {
    AWAITED.store(cpu, Relaxed);
}

/// Learns from an access of a program.
#[inline]
pub fn note(word: LabWord) {
    if !word.is_kernel() && AWAITED.load(Relaxed) == word.cpu() as u32 {
        AWAITED.store(u32::MAX, Relaxed);
        TURN_PAGE.store(word.address() & !(PAGE - 1), Relaxed);
    }
}

/// Where in the page the kernel stores; none if it does something else.
#[inline]
pub fn stored(word: LabWord) -> Option<u64> {
    let at = word.address();
    let told = word.is_kernel() && word.is_store() && at & !(PAGE - 1) == TURN_PAGE.load(Relaxed);
    told.then_some(at % PAGE)
}
