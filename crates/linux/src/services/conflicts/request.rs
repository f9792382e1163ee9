//! What the watcher of conflicts wants moved, and what became of it.

use huepage_color::{Color, Vpn};

use super::report::ConflictingProcess;
use crate::engine::Placed;
use crate::watch::request_slot::{WatchDecision, WatchReport};

/// Pages and the colours that they are to have.
pub(super) type MoveRequest = Vec<(Vpn, Color)>;
/// What became of a request.
pub(super) type Answer = Result<Vec<Placed>, String>;
/// Between the thread that watches and the one that moves.
pub(super) type RequestSlot =
    crate::watch::request_slot::RequestSlot<MoveRequest, Answer, ConflictingProcess>;

impl WatchReport for ConflictingProcess {
    fn for_process(pid: i32) -> ConflictingProcess {
        ConflictingProcess { pid, ..ConflictingProcess::default() }
    }

    fn decisions(&mut self) -> &mut Vec<WatchDecision> {
        &mut self.decisions
    }
}

impl RequestSlot {
    /// What became of the request, and the seconds that moving took in all, if that is known.
    pub fn placed(&self, answer: Answer, seconds: Option<f64>) {
        self.change(|report| {
            if let Ok(placed) = &answer {
                let moved = placed.iter().filter(|(_, there)| *there).count() as u64;
                report.recolored += moved;
                report.refused += placed.len() as u64 - moved;
            }
            report.recolor_seconds = seconds.unwrap_or(report.recolor_seconds);
        });
        self.answer(answer);
    }
}
