//! What the watcher of polluting pages wants confined, and what became of it.

use huepage_color::{Color, Vpn};

use super::report::PollutedProcess;
use crate::engine::MemberStatus;
use crate::watch::request_slot::{WatchDecision, WatchReport};

/// What the policy wants confined: exactly these pages; and which others it wants moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ConfineRequest {
    /// Ranges of addresses, in bytes.
    pub ranges: Vec<(u64, u64)>,
    /// Pages that go to these colours, outside the buffer.
    pub elsewhere: Vec<(Vpn, Color)>,
}

/// Between the thread that watches and the one that moves.
pub(super) type RequestSlot =
    crate::watch::request_slot::RequestSlot<ConfineRequest, Result<(), String>, PollutedProcess>;

impl WatchReport for PollutedProcess {
    fn for_process(pid: i32) -> PollutedProcess {
        PollutedProcess { pid, ..PollutedProcess::default() }
    }

    fn decisions(&mut self) -> &mut Vec<WatchDecision> {
        &mut self.decisions
    }
}

impl RequestSlot {
    /// The request was carried out; what is known of the member now.
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

    /// The request cannot be carried out.
    pub fn refuse(&self, why: &str) {
        self.answer(Err(why.to_owned()));
    }
}
