//! The threads that read who has come to wait. A read opens the file once more, and waits for a lease that
//! somebody holds on it, for as long as the kernel gives the holder to return it: 45 s. Nobody else may
//! wait for that, so another thread reads on as soon as none is left that could.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::kernel::fanotify::{FanotifyError, FileNotifier, FileOpening};

/// Most threads: who holds so many leases at once ends the service, not the waiting of others.
const MOST_READERS: usize = 32;
/// A read that takes longer waits for somebody.
const SLOW_READ: Duration = Duration::from_millis(10);
/// How often a thread that reads nothing looks whether it is to end.
const IDLE_LOOK: Duration = Duration::from_secs(1);
/// Opens that the kernel could not show, and refused, before the gate opens for good.
const MOST_UNREADABLE_OPENS: u64 = 3;

/// What the threads do with who has come.
pub(super) type Admit = dyn Fn(FileOpening) + Send + Sync;

/// The threads, of which one at least can read.
pub(super) struct Readers {
    shared: Arc<Shared>,
}

struct Shared {
    notifier: FileNotifier,
    admit: Box<Admit>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    threads: usize,
    /// Reads under way, by the thread, and when they began.
    reading: BTreeMap<u64, Instant>,
    /// Threads that there have been.
    begun: u64,
    unreadable: u64,
    failed: Option<FanotifyError>,
    over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Readers {
    /// None yet: [`Self::look_after`] starts the first.
    pub(super) fn new(notifier: FileNotifier, admit: Box<Admit>) -> Readers {
        Readers { shared: Arc::new(Shared { notifier, admit, state: Mutex::default() }) }
    }

    /// Starts a thread if none is left that could read; opens that the kernel refused so far.
    ///
    /// # Errors
    /// What a thread has met, or that too many of them wait.
    pub(super) fn look_after(&self) -> Result<u64, FanotifyError> {
        let mut state = self.shared.lock();
        if let Some(error) = state.failed.take() {
            return Err(error);
        }
        let now = Instant::now();
        let slow = |since: &Instant| now.saturating_duration_since(*since) > SLOW_READ;
        if state.reading.values().filter(|since| slow(since)).count() < state.threads {
            return Ok(state.unreadable);
        }
        if state.threads >= MOST_READERS {
            return Err(FanotifyError::Leases);
        }
        (state.begun, state.threads) = (state.begun + 1, state.threads + 1);
        let (shared, own) = (Arc::clone(&self.shared), state.begun);
        let thread = std::thread::Builder::new().name("gate".to_owned());
        let unreadable = state.unreadable;
        drop(state);
        thread.spawn(move || shared.read_on(own)).map_err(FanotifyError::Resources)?;
        Ok(unreadable)
    }

    /// Nobody has to wait any more; who still does is let.
    pub(super) fn end(&self) {
        self.shared.lock().over = true;
        self.shared.notifier.unmark_all();
        // Who had come before that is read and let by a thread that can.
        let _ = self.look_after();
    }
}

impl Shared {
    fn read_on(&self, own: u64) {
        let group = (self.notifier.as_raw_fd(), libc::POLLIN);
        loop {
            let come = crate::kernel::wait::ready(&[group], IDLE_LOOK)[0];
            if come && !self.read_one(own) {
                return;
            }
            let mut state = self.lock();
            if !come && state.over {
                state.threads -= 1;
                return;
            }
        }
    }

    /// Whether this thread is still wanted; it does not count any more if not.
    fn read_one(&self, own: u64) -> bool {
        self.lock().reading.insert(own, Instant::now());
        let read = self.notifier.read();
        let mut state = self.lock();
        state.reading.remove(&own);
        let spare = state.threads - state.reading.len() > 1;
        let (opening, failed) = match read {
            Ok(opening) => (opening, None),
            Err(FanotifyError::Unreadable(source)) => {
                state.unreadable += 1;
                let enough = state.unreadable >= MOST_UNREADABLE_OPENS;
                (None, enough.then_some(FanotifyError::Unreadable(source)))
            }
            Err(error) => (None, Some(error)),
        };
        let wanted = !spare && failed.is_none();
        state.failed = failed.or(state.failed.take());
        state.threads -= usize::from(!wanted);
        drop(state);
        opening.into_iter().for_each(&self.admit);
        wanted
    }
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Readers").field("threads", &self.shared.lock().threads).finish()
    }
}
