//! Answers that have to wait for a process, and what may take its time to end: neither holds the daemon.
//! A process may be stopped for as long as somebody likes; who asks is answered by a deadline all the same.

use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use huepage_linux::control::Responder;
use serde_json::{Value, json};

use crate::exit::ExitCode;

/// Longest that a request waits.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a request waits for.
enum Waits {
    /// That the agent has left a process.
    Release(i32),
    /// That pages of a process were measured.
    Verify(i32, Receiver<(usize, usize)>),
}

/// A request that is not answered yet.
struct Asked {
    waits: Waits,
    until: Instant,
    answer: Responder,
}

/// Requests that wait for processes.
#[derive(Default)]
pub struct Pending(Vec<Asked>);

impl Pending {
    /// Answers once a process is released.
    pub fn release(&mut self, pid: i32, answer: Responder) {
        self.wait(Waits::Release(pid), answer);
    }

    /// Answers once pages of a process were measured.
    pub fn verify(&mut self, pid: i32, result: Receiver<(usize, usize)>, answer: Responder) {
        self.wait(Waits::Verify(pid, result), answer);
    }

    fn wait(&mut self, waits: Waits, answer: Responder) {
        self.0.push(Asked { waits, until: Instant::now() + PATIENCE, answer });
    }

    /// Answers what can be answered, and what has waited for long enough. `releasing`: processes whose
    /// agents have not left them yet.
    pub fn turn(&mut self, releasing: &[i32]) {
        let now = Instant::now();
        let mut left = Vec::new();
        for asked in self.0.drain(..) {
            match asked.waits.outcome(releasing, now >= asked.until) {
                Some(Ok(value)) => asked.answer.ok(value),
                Some(Err((code, why))) => asked.answer.fail(code, &why),
                None => left.push(asked),
            }
        }
        self.0 = left;
    }
}

impl Waits {
    /// What is to be answered, if anything is by now.
    fn outcome(&self, releasing: &[i32], late: bool) -> Option<Result<Value, (i32, String)>> {
        match self {
            Waits::Release(pid) if !releasing.contains(pid) => Some(Ok(json!({ "released": pid }))),
            Waits::Release(pid) => late.then(|| Ok(json!({ "releasing": pid }))),
            Waits::Verify(pid, result) => match result.try_recv() {
                Ok((measured, right)) => {
                    Some(Ok(json!({ "measured": measured, "as_believed": right })))
                }
                Err(TryRecvError::Disconnected) => {
                    let what = format!("process {pid} ended meanwhile; see `huepage ctl groups`");
                    Some(Err((i32::from(ExitCode::NotAttached.status()), what)))
                }
                Err(TryRecvError::Empty) => late.then(|| {
                    let what = format!("process {pid} is stopped or busy; try again when it runs");
                    Err((i32::from(ExitCode::Internal.status()), what))
                }),
            },
        }
    }
}

/// Drops a value on a thread of its own: its end may wait for a process.
pub fn drop_behind<T: Send + 'static>(value: T) {
    std::thread::spawn(move || drop(value));
}

/// The same, and waits so long for it; whether it ended in time.
pub fn drop_within<T: Send + 'static>(value: T, limit: Duration) -> bool {
    let (done, ended) = channel();
    std::thread::spawn(move || {
        drop(value);
        let _ = done.send(());
    });
    ended.recv_timeout(limit).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_told_when_it_is_done_or_late() {
        let waits = Waits::Release(7);
        assert_eq!(waits.outcome(&[6, 7], false), None);
        assert_eq!(waits.outcome(&[6, 7], true), Some(Ok(json!({ "releasing": 7 }))));
        assert_eq!(waits.outcome(&[6], false), Some(Ok(json!({ "released": 7 }))));
    }

    #[test]
    fn a_measurement_is_told_when_it_comes_or_cannot() {
        let (answer, result) = channel();
        let waits = Waits::Verify(7, result);
        assert_eq!(waits.outcome(&[], false), None);
        let (code, why) = waits.outcome(&[], true).unwrap().unwrap_err();
        assert!(code == 125 && why.contains("process 7 is stopped"), "{why}");
        answer.send((9, 8)).unwrap();
        let told = json!({ "measured": 9, "as_believed": 8 });
        assert_eq!(waits.outcome(&[], false), Some(Ok(told)));
        drop(answer);
        assert_eq!(waits.outcome(&[], false).unwrap().unwrap_err().0, 111);
    }

    #[test]
    fn what_does_not_end_is_not_waited_for() {
        struct Slow(Receiver<()>);
        impl Drop for Slow {
            fn drop(&mut self) {
                let _ = self.0.recv();
            }
        }
        let (go_on, waits) = channel();
        assert!(!drop_within(Slow(waits), Duration::from_millis(20)));
        go_on.send(()).unwrap();
        assert!(drop_within(1, Duration::from_secs(60)));
    }
}
