//! What the watcher of conflicts wishes to have moved, and what became of it.

use huepage_color::{Color, Vpn};

use super::report::ProcessReport;
use crate::board::{Decided, Decision};
use crate::engine::Placed;

/// Pages and the colours that they are to have.
pub(super) type Wish = Vec<(Vpn, Color)>;
/// What became of a wish.
pub(super) type Answer = Result<Vec<Placed>, String>;
/// Between the thread that watches and the one that moves.
pub(super) type Board = crate::board::Board<Wish, Answer, ProcessReport>;

impl Decided for ProcessReport {
    fn decisions(&mut self) -> &mut Vec<Decision> {
        &mut self.decisions
    }
}

impl Board {
    /// Of a process.
    pub fn of(pid: i32) -> Board {
        Board::new(ProcessReport { pid, ..ProcessReport::default() })
    }

    /// What became of the wish, and the seconds that moving took in all, if that is known.
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
