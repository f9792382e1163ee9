//! Waking a thread that waits in poll(2): a counter that becomes readable (eventfd). Where no descriptor is left
//! there is none, and who waits looks again after a moment.

use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};

/// See the module's head.
#[derive(Debug)]
pub struct Bell(Option<OwnedFd>);

impl Default for Bell {
    fn default() -> Bell {
        Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok())
    }
}

impl Bell {
    /// Wakes who waits now, or the next to wait.
    pub fn ring(&self) {
        self.0.as_ref().map(|fd| rustix::io::write(fd, &1_u64.to_ne_bytes()));
    }

    /// What was rung so far is heard.
    pub fn hush(&self) {
        self.0.as_ref().map(|fd| rustix::io::read(fd, &mut [0_u8; 8]));
    }

    /// What becomes readable when it is rung.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.0.as_ref().map(|fd| fd.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::kernel::wait::ready;

    #[test]
    fn it_is_heard_until_it_is_hushed() {
        let bell = Bell::default();
        let rung = || ready(&[(bell.descriptor().unwrap(), libc::POLLIN)], Duration::ZERO)[0];
        assert!(!rung());
        bell.ring();
        bell.ring();
        assert!(rung() && rung());
        bell.hush();
        assert!(!rung());
    }
}
