//! Ctrl-C and the signals by which batch engines end jobs: noted, so that a command can end in
//! good order. What that is, the command itself knows.

use std::sync::atomic::{AtomicI32, Ordering};

use huepage_linux::inject::launch::relay::{SignalRelay, stop_like};

use crate::exit::CmdError;
use crate::partition::internal;

/// Signals of this process while a run goes on.
#[derive(Debug)]
pub struct Interrupt {
    relay: SignalRelay,
    ended_by: AtomicI32,
}

impl Interrupt {
    /// Listens from now on; to be called before any thread is started.
    pub fn listen() -> Result<Interrupt, CmdError> {
        let relay = SignalRelay::new().map_err(internal)?;
        Ok(Interrupt { relay, ended_by: AtomicI32::new(0) })
    }

    /// The signal that asked for the end, if one has come. A system call.
    pub fn signal(&self) -> Option<i32> {
        while let Ok(Some(incoming)) = self.relay.next() {
            match incoming.signal {
                end @ (libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT) => {
                    self.ended_by.store(end, Ordering::Relaxed);
                }
                other => stop_like(other),
            }
        }
        Some(self.ended_by.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
    }
}
