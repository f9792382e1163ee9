//! Holding a process still for some milliseconds: all its threads are stopped with ptrace, which
//! its parent does not see, and go on when the hold is dropped. Nothing in the process is read or
//! changed; a few calls that wait, such as epoll_wait(2), may end with EINTR, as after a stop and
//! SIGCONT (see signal(7)). A supervisor that dies meanwhile lets go by dying.

use std::sync::{PoisonError, RwLockWriteGuard, TryLockError};
use std::time::{Duration, Instant};

use super::ptrace::{Held, STOP_LIMIT, Tracee};
use super::reaper::Reaper;
use super::{InjectError, TRACING};
use crate::kernel::procfs::ProcRoot;

/// How long to wait for the threads to stop. Those that wait in the kernel for longer do not run
/// anyway.
const PATIENCE: Duration = Duration::from_millis(20);
/// How long to wait for other threads of ours that trace somebody.
const TURN: Duration = Duration::from_millis(200);

/// Processes that are held still until this is dropped.
pub struct Hold {
    threads: Held,
    /// Nobody else of ours traces or waits for children meanwhile.
    _turn: RwLockWriteGuard<'static, ()>,
}

impl Hold {
    /// Holds all threads of these processes but the agent's, and those that a tracer has stopped
    /// already. Takes a fraction of a millisecond for a few threads. Threads that do not stop soon
    /// are let go as soon as they do.
    ///
    /// # Errors
    /// When a process is gone or traced by somebody else, or others of ours trace for long; nobody
    /// is held then.
    pub fn on(root: &ProcRoot, pids: &[i32]) -> Result<Hold, InjectError> {
        let turn = turn(pids.first().copied().unwrap_or(0))?;
        let mut hold = Hold { threads: Held::default(), _turn: turn };
        let (until, mut reaper) = (Instant::now() + PATIENCE, Reaper::default());
        // Threads that still run may have made others.
        while hold.interrupt(root, pids, &mut reaper)? {
            hold.threads.await_stops(until);
        }
        Ok(hold)
    }

    /// Tells every thread that was not told yet to stop; whether there was one.
    fn interrupt(
        &mut self,
        root: &ProcRoot,
        pids: &[i32],
        reaper: &mut Reaper,
    ) -> Result<bool, InjectError> {
        let before = self.threads.0.len();
        for &pid in pids {
            let is_child = root.status(pid)?.ppid == std::process::id().cast_signed();
            for tid in root.tasks(pid)? {
                let thread = Tracee { tid, is_child: is_child && tid == pid };
                // Ours must answer while the program's are held. Names say nothing: the program gives them.
                if crate::inject::agent::is_ours(tid) || self.threads.0.contains_key(&thread) {
                    continue;
                }
                reaper.watch(thread, pid);
                match thread.seize_now(0) {
                    // What has ended stays listed until its parent or tracer has heard of it.
                    Err(InjectError::Gone(_) | InjectError::Denied(_))
                        if root.status(tid).map_or(true, |s| s.is_dead() || s.state == 't') =>
                    {
                        continue;
                    }
                    other => other?,
                };
                self.threads.0.insert(thread, false);
                let _ = thread.interrupt();
            }
        }
        Ok(self.threads.0.len() > before)
    }

    /// Whether nobody had to be stopped.
    pub fn is_empty(&self) -> bool {
        self.threads.0.is_empty()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.threads.release(STOP_LIMIT);
    }
}

/// The turn to trace, if others of ours let go of theirs soon.
fn turn(pid: i32) -> Result<RwLockWriteGuard<'static, ()>, InjectError> {
    let start = Instant::now();
    loop {
        match TRACING.try_write() {
            Ok(turn) => return Ok(turn),
            Err(TryLockError::Poisoned(turn)) => return Ok(PoisonError::into_inner(turn)),
            Err(TryLockError::WouldBlock) if start.elapsed() > TURN => {
                return Err(InjectError::Stuck(pid));
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Stdio};

    use super::*;
    use crate::kernel::testing::live;

    /// A process that computes all the time.
    struct Busy(Child);

    impl Busy {
        fn start() -> Busy {
            let mut shell = Command::new("sh");
            shell.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
            Busy(shell.spawn().expect("a shell"))
        }

        fn pid(&self) -> i32 {
            self.0.id().cast_signed()
        }

        /// Clock ticks that it computed.
        fn ticks(&self) -> u64 {
            let stat = ProcRoot::default().stat(self.pid()).expect("it runs");
            stat.utime + stat.stime
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn is_traced(pid: i32) -> bool {
        ProcRoot::default().status(pid).is_ok_and(|status| status.tracer != 0)
    }

    #[test]
    fn a_held_process_stands_still_and_goes_on() {
        let busy = Busy::start();
        let held = Hold::on(&ProcRoot::default(), &[busy.pid()]);
        let Some(hold) = live("a_held_process_stands_still", held) else { return };
        assert!(hold.threads.0.values().all(|&stopped| stopped) && is_traced(busy.pid()));
        let before = busy.ticks();
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(busy.ticks(), before);
        drop(hold);
        assert!(!is_traced(busy.pid()));
        let start = Instant::now();
        while busy.ticks() == before && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(busy.ticks() > before, "it does not go on");
    }

    #[test]
    fn a_process_that_is_killed_while_held_ends() {
        let mut busy = Busy::start();
        let held = Hold::on(&ProcRoot::default(), &[busy.pid()]);
        let Some(hold) = live("a_process_that_is_killed_while_held_ends", held) else { return };
        busy.0.kill().expect("killed");
        drop(hold);
        let status = busy.0.wait().expect("its end is still to be heard of");
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn who_is_held_already_is_left_to_that() {
        let busy = Busy::start();
        let held = Hold::on(&ProcRoot::default(), &[busy.pid()]);
        let Some(hold) = live("who_is_held_already_is_left_to_that", held) else { return };
        let pid = busy.pid();
        let other = std::thread::spawn(move || Hold::on(&ProcRoot::default(), &[pid]).is_err());
        assert!(other.join().expect("no panic"), "two of ours hold at a time");
        let state = ProcRoot::default().status(pid).map(|status| status.state);
        assert!(state.is_ok_and(|state| state == 't') && !hold.is_empty());
    }

    #[test]
    fn who_is_gone_is_not_held() {
        let mut busy = Busy::start();
        let pid = busy.pid();
        busy.0.kill().expect("ended");
        busy.0.wait().expect("reaped");
        assert!(Hold::on(&ProcRoot::default(), &[pid]).is_err());
        // And nobody else is kept from tracing.
        drop(turn(pid).expect("free"));
    }
}
