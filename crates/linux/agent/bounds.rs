//! Ranges that cut no area in two. A range is named by the supervisor from a list of areas that may have
//! changed since: the program may have unmapped what the range ended at, and put memory of its own there. To
//! watch a part of such an area would make it two, for good once both have pages, and the kernel refuses to
//! move these with one `mremap`.

use crate::protocol::WITHOUT_LOCKS;
use crate::sys::{self, PAGE};

/// Lengths that no mapping can get, for address spaces of 56 and of 47 bits: the kernel takes the first that
/// is no longer than the address space.
const TOO_LONG: [u64; 2] = [0xff_ffff_ffff_f000, 0x7fff_ffff_f000];

/// The part of the range `[start, end)` at whose ends no area goes on; empty if there is none. Costs two system
/// calls where nothing is cut. The whole range where these are among the calls to do `without`.
pub fn uncut((start, end): (u64, u64), without: u64) -> (u64, u64) {
    if without & WITHOUT_LOCKS != 0 {
        return (start, end);
    }
    let (start, end) = (start & !(PAGE - 1), end & !(PAGE - 1));
    let (mut first, mut last) = (start, end);
    if is_one_area(start.wrapping_sub(PAGE), start.wrapping_add(PAGE)) {
        // The area's end: by halves, since what holds up to there is one area and what goes beyond is not.
        let (mut low, mut high) = (start, end);
        while low < high {
            let middle = low + ((high - low) / PAGE).div_ceil(2) * PAGE;
            if is_one_area(start.wrapping_sub(PAGE), middle) {
                low = middle
            } else {
                high = middle - PAGE
            }
        }
        first = low;
    }
    if is_one_area(end.wrapping_sub(PAGE), end.wrapping_add(PAGE)) {
        let (mut low, mut high) = (first, end);
        while low < high {
            let middle = low + (high - low) / PAGE / 2 * PAGE;
            if is_one_area(middle, end.wrapping_add(PAGE)) {
                high = middle
            } else {
                low = middle + PAGE
            }
        }
        last = low;
    }
    (first, last)
}

/// Whether one area holds all of `[from, to)`. The kernel is asked to make it longer than anything can be, which
/// it refuses: for want of room if it is one, at once if it is not.
fn is_one_area(from: u64, to: u64) -> bool {
    let bytes = to.wrapping_sub(from);
    let (mut refused, mut i) = (sys::EINVAL, 0);
    while i < TOO_LONG.len() && refused == sys::EINVAL {
        // SAFETY: `i` is below the length.
        let too_long = unsafe { *TOO_LONG.as_ptr().add(i) };
        if bytes >= too_long {
            return false;
        }
        refused = sys::grow(from, bytes, too_long);
        i += 1;
    }
    // EAGAIN: more than the program may lock.
    refused == sys::ENOMEM || refused == sys::EAGAIN
}
