//! Which memory a forked child must find empty.
//!
//! The program may ask at any moment for memory to be wiped in its children, after the last
//! audit and before a fork that happens while pages are out. So the kernel's own list of areas
//! is read when a child has been made and some of its pages would have to be copied, which is
//! rare. Reading takes time in proportion to the memory of the program: some milliseconds for
//! each GiB. The forking thread waits for it, so the flags are those that the fork saw.

use crate::smaps::Lines;
use crate::sys;

/// The areas of the program with their flags: `/proc/PID/smaps`.
#[derive(Clone, Copy)]
pub struct Areas {
    /// Negative: there is none, and nothing counts as wiped.
    pub fd: i64,
}

impl Areas {
    /// Calls `each` with start and end of every area that is wiped on fork.
    pub fn wiped(self, mut each: impl FnMut(u64, u64)) {
        if self.fd < 0 || sys::rewind(self.fd) < 0 {
            return;
        }
        let mut lines = Lines::EMPTY;
        let mut buffer = [0u8; 4096];
        loop {
            let n = sys::read(self.fd, buffer.as_mut_ptr(), buffer.len());
            if n <= 0 {
                return;
            }
            for &byte in buffer.iter().take(n as usize) {
                lines.take(byte, &mut each);
            }
        }
    }
}
