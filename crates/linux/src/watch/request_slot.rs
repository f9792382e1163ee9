//! What a thread that watches a process and the one that has its pages moved say to each other, and what
//! both leave for the report: requests one way, answers the other. Decides nothing; what requests and answers
//! are is up to those who use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Decisions that are kept.
const KEPT_DECISIONS: usize = 64;

/// Something that was decided, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchDecision {
    /// Seconds since the process was first watched.
    pub at: f64,
    /// For a person.
    pub what: String,
}

/// The report of a process that is watched.
pub(crate) trait WatchReport: Clone {
    /// Of a process of which nothing is known yet.
    fn for_process(pid: i32) -> Self;

    /// What was decided.
    fn decisions(&mut self) -> &mut Vec<WatchDecision>;
}

#[derive(Debug)]
struct State<W, A, R> {
    request: Option<W>,
    answer: Option<A>,
    report: R,
}

/// See the module's head: of requests, answers and a report.
#[derive(Debug)]
pub(crate) struct RequestSlot<W, A, R> {
    stop: AtomicBool,
    state: Mutex<State<W, A, R>>,
}

impl<W, A, R> RequestSlot<W, A, R> {
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl<W, A, R: WatchReport> RequestSlot<W, A, R> {
    pub fn new(report: R) -> Self {
        let state = Mutex::new(State { request: None, answer: None, report });
        RequestSlot { stop: AtomicBool::new(false), state }
    }

    fn state(&self) -> MutexGuard<'_, State<W, A, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for this and nothing else; the answer to an earlier request is none to this.
    pub fn post(&self, request: W) {
        let mut state = self.state();
        (state.request, state.answer) = (Some(request), None);
    }

    pub fn take_request(&self) -> Option<W> {
        self.state().request.take()
    }

    /// What became of the last request.
    pub fn answer(&self, answer: A) {
        self.state().answer = Some(answer);
    }

    /// The same, told once.
    pub fn take_answer(&self) -> Option<A> {
        self.state().answer.take()
    }

    pub fn change(&self, change: impl FnOnce(&mut R)) {
        change(&mut self.state().report);
    }

    /// Notes a decision.
    pub fn log_decision(&self, at: f64, what: String) {
        let mut state = self.state();
        let decisions = state.report.decisions();
        if decisions.len() == KEPT_DECISIONS {
            decisions.remove(0);
        }
        decisions.push(WatchDecision { at, what });
    }

    pub fn report(&self) -> R {
        self.state().report.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Report(Vec<WatchDecision>);

    impl WatchReport for Report {
        fn for_process(_: i32) -> Report {
            Report::default()
        }

        fn decisions(&mut self) -> &mut Vec<WatchDecision> {
            &mut self.0
        }
    }

    #[test]
    fn an_answer_is_told_once_and_only_to_the_last_request() {
        let slot: RequestSlot<u8, u8, Report> = RequestSlot::new(Report::default());
        slot.post(1);
        slot.answer(10);
        slot.post(2);
        assert_eq!(
            (slot.take_answer(), slot.take_request(), slot.take_request()),
            (None, Some(2), None)
        );
        slot.answer(20);
        assert_eq!((slot.take_answer(), slot.take_answer()), (Some(20), None));
    }

    #[test]
    fn the_latest_decisions_are_kept() {
        let slot: RequestSlot<u8, u8, Report> = RequestSlot::new(Report::default());
        (0..100).for_each(|n| slot.log_decision(f64::from(n), n.to_string()));
        let kept = slot.report().0;
        assert_eq!((kept.len(), kept[0].at, kept[63].what.as_str()), (KEPT_DECISIONS, 36.0, "99"));
    }
}
