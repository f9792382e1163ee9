//! Releases that are waited for, since they may take their time: they do not hold the daemon. A process may be
//! stopped for as long as somebody likes; who asks is answered by a deadline all the same.

use std::time::{Duration, Instant};

use huepage_linux::control::socket::Responder;
use serde_json::{Value, json};

/// Longest that a request waits.
const PATIENCE: Duration = Duration::from_secs(4);

/// A release that is not answered yet.
struct PendingRelease {
    pid: i32,
    until: Instant,
    answer: Responder,
}

/// Requests that wait for the agents of processes to leave them.
#[derive(Default)]
pub struct PendingReleases(Vec<PendingRelease>);

impl PendingReleases {
    /// Answers once a process is released.
    pub fn wait(&mut self, pid: i32, answer: Responder) {
        self.0.push(PendingRelease { pid, until: Instant::now() + PATIENCE, answer });
    }

    /// Answers what can be answered, and what has waited for long enough. `releasing`: processes whose
    /// agents have not left them yet.
    pub fn turn(&mut self, releasing: &[i32]) {
        let now = Instant::now();
        let mut left = Vec::new();
        for asked in self.0.drain(..) {
            match answer(asked.pid, releasing, now >= asked.until) {
                Some(value) => asked.answer.ok(value),
                None => left.push(asked),
            }
        }
        self.0 = left;
    }
}

/// What is to be answered, if anything is by now.
fn answer(pid: i32, releasing: &[i32], late: bool) -> Option<Value> {
    match releasing.contains(&pid) {
        false => Some(json!({ "released": pid })),
        true => late.then(|| json!({ "releasing": pid })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_is_told_when_it_is_done_or_late() {
        assert_eq!(answer(7, &[6, 7], false), None);
        assert_eq!(answer(7, &[6, 7], true), Some(json!({ "releasing": 7 })));
        assert_eq!(answer(7, &[6], false), Some(json!({ "released": 7 })));
    }
}
