//! Ctrl-C and the signals by which batch engines end jobs: noted, so that a command can end in
//! good order. What that is, the command itself knows.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use huepage_linux::inject::launch::relay::{SignalRelay, stop_like};

use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;

/// How long a command may take to end in good order where it may wait for who never answers.
const GRACE: Duration = Duration::from_secs(2);
/// How often such a command asks for signals beside its work.
const ASKED: Duration = Duration::from_millis(50);

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

    /// The same for a command that waits for files and pipes of others: what it does must bear to be ended at any
    /// moment, which it is two seconds after a signal.
    pub fn listen_impatiently() -> Result<Arc<Interrupt>, CmdError> {
        let interrupt = Arc::new(Interrupt::listen()?);
        let own = Arc::clone(&interrupt);
        thread::spawn(move || {
            while own.signal().is_none() {
                thread::sleep(ASKED);
            }
            thread::sleep(GRACE);
            std::process::exit(own.end_status().into());
        });
        Ok(interrupt)
    }

    /// Becomes readable when a signal comes.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.relay.as_fd()
    }

    /// Says that a signal ended the command; the status, as a shell has it.
    pub fn end_status(&self) -> u8 {
        eprintln!("huepage: interrupted; nothing is left running, run it again");
        let status = self.signal().and_then(|signal| u8::try_from(128 + signal).ok());
        status.unwrap_or(ExitCode::Internal.status())
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
