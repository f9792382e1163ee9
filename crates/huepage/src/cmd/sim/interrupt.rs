//! Ctrl-C and the signals by which batch engines end jobs: noted, so that a run can end in
//! good order with what it has finished. What that is, the run itself knows.

use std::sync::atomic::{AtomicI32, Ordering};

use huepage_linux::launch::relay::{SignalRelay, stop_like};
use huepage_sim::record::Record;
use huepage_sim::schedule::Source;
use huepage_sim::workloads::FileId;

use super::source::Boxed;
use crate::exit::{CmdError, ExitCode};
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

    /// Has a source end with an error once the end was asked for.
    pub fn guard(&self, source: Boxed) -> Box<dyn Source<CmdError> + '_> {
        Box::new(Guarded { source, interrupt: self })
    }
}

struct Guarded<'a> {
    source: Boxed,
    interrupt: &'a Interrupt,
}

impl Source<CmdError> for Guarded<'_> {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, CmdError> {
        match self.interrupt.signal() {
            None => self.source.next(batch),
            Some(signal) => Err(CmdError::new(
                ExitCode::Internal,
                format!("ended by signal {signal}; run it again"),
            )),
        }
    }

    fn restart(&mut self) -> Result<(), CmdError> {
        self.source.restart()
    }

    fn volume(&self) -> Option<u32> {
        self.source.volume()
    }

    fn deletions(&self) -> &[(usize, FileId)] {
        self.source.deletions()
    }
}
