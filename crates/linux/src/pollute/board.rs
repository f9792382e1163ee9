//! What the watcher of polluting pages wishes to have confined, and what became of it.

use super::report::ProcessReport;
use crate::board::{Decided, Decision};
use crate::engine::MemberStatus;

/// What the policy wants confined: exactly these pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    /// Ranges of addresses, in bytes.
    pub ranges: Vec<(u64, u64)>,
}

/// Between the thread that watches and the one that moves.
pub(super) type Board = crate::board::Board<Wish, Result<(), String>, ProcessReport>;

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

    /// The wish was carried out; what is known of the member now.
    pub fn carried_out(&self, status: Option<&MemberStatus>) {
        if let Some(status) = status {
            let total = status.census.as_ref().map(|census| census.total());
            self.change(|report| {
                report.pages_in_buffer = total.map_or(0, |total| total.inside);
                report.pages_left_outside = total.map_or(0, |total| total.movable() - total.inside);
                report.recolored = status.recolored;
            });
        }
        self.answer(Ok(()));
    }

    /// The wish cannot be carried out.
    pub fn refuse(&self, why: &str) {
        self.answer(Err(why.to_owned()));
    }
}
