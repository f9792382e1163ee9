//! What a thread that watches a process and the one that has its pages moved say to each other, and what
//! both leave for the report: wishes one way, answers the other. Decides nothing; what wishes and answers are
//! is the business of those who use it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

/// Decisions that are kept.
const KEPT: usize = 64;

/// Something that was decided, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// Seconds since the process was first watched.
    pub at: f64,
    /// For a person.
    pub what: String,
}

/// A report of a process that has its decisions in it.
pub(crate) trait Decided {
    /// Where they are.
    fn decisions(&mut self) -> &mut Vec<Decision>;
}

#[derive(Debug)]
struct State<W, A, R> {
    wish: Option<W>,
    answer: Option<A>,
    report: R,
}

/// See the module's head: of wishes, answers and a report.
#[derive(Debug)]
pub(crate) struct Board<W, A, R> {
    stop: AtomicBool,
    state: Mutex<State<W, A, R>>,
}

impl<W, A, R: Clone + Decided> Board<W, A, R> {
    pub fn new(report: R) -> Self {
        let state = Mutex::new(State { wish: None, answer: None, report });
        Board { stop: AtomicBool::new(false), state }
    }

    fn state(&self) -> MutexGuard<'_, State<W, A, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Wishes for this and nothing else; the answer to an earlier wish is none to this.
    pub fn wish(&self, wish: W) {
        let mut state = self.state();
        (state.wish, state.answer) = (Some(wish), None);
    }

    pub fn take_wish(&self) -> Option<W> {
        self.state().wish.take()
    }

    /// What became of the last wish.
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
    pub fn note(&self, at: f64, what: String) {
        let mut state = self.state();
        let decisions = state.report.decisions();
        if decisions.len() == KEPT {
            decisions.remove(0);
        }
        decisions.push(Decision { at, what });
    }

    pub fn report(&self) -> R {
        self.state().report.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Report(Vec<Decision>);

    impl Decided for Report {
        fn decisions(&mut self) -> &mut Vec<Decision> {
            &mut self.0
        }
    }

    #[test]
    fn an_answer_is_told_once_and_only_to_the_last_wish() {
        let board: Board<u8, u8, Report> = Board::new(Report::default());
        board.wish(1);
        board.answer(10);
        board.wish(2);
        assert_eq!(
            (board.take_answer(), board.take_wish(), board.take_wish()),
            (None, Some(2), None)
        );
        board.answer(20);
        assert_eq!((board.take_answer(), board.take_answer()), (Some(20), None));
    }

    #[test]
    fn the_latest_decisions_are_kept() {
        let board: Board<u8, u8, Report> = Board::new(Report::default());
        (0..100).for_each(|n| board.note(f64::from(n), n.to_string()));
        let kept = board.report().0;
        assert_eq!((kept.len(), kept[0].at, kept[63].what.as_str()), (KEPT, 36.0, "99"));
    }
}
