//! Where decisions of policies come from and where a wish to freeze one goes to: the daemon. Without it only what
//! supervisors did can be shown.

use super::snapshot::TopDecision;
use crate::daemon::figures::GroupFigures;
use crate::daemon::journal::{JournalEntry, line};
use crate::daemon::protocol::{DaemonRequest, DaemonStatus, GroupStatus, ask};

/// What is said where there is none.
pub const NO_DAEMON: &str = "no daemon";

/// `huepage daemon`, asked over its socket. It decides for all of its groups or for none.
pub struct DaemonClient {
    /// When the last decision was made that was told of.
    told: f64,
    groups: Vec<GroupStatus>,
    frozen: bool,
}

/// Decisions that are asked for at a time.
const LAST: usize = 64;

impl DaemonClient {
    /// The daemon of this machine, if one runs.
    pub fn find() -> Option<DaemonClient> {
        let mut running = DaemonClient { told: 0.0, groups: Vec::new(), frozen: false };
        running.ask()?;
        Some(running)
    }

    /// How it is now; `None` where it does not answer.
    fn ask(&mut self) -> Option<()> {
        let status: DaemonStatus = serde_json::from_value(ask(DaemonRequest::Status).ok()?).ok()?;
        self.groups = serde_json::from_value(ask(DaemonRequest::Groups).ok()?).ok()?;
        self.frozen = status.frozen;
        Some(())
    }

    /// What was decided since this was asked last, the oldest first.
    ///
    /// # Errors
    /// One line, when nobody answers; it is asked again at the next moment.
    pub fn decisions(&mut self) -> Result<Vec<TopDecision>, String> {
        let _ = self.ask();
        let answer = ask(DaemonRequest::Decisions { last: LAST }).map_err(|error| error.message)?;
        let mut entries: Vec<JournalEntry> =
            serde_json::from_value(answer).map_err(|e| e.to_string())?;
        entries.retain(|entry| entry.at > self.told);
        entries.sort_by(|a, b| a.at.total_cmp(&b.at));
        self.told = entries.last().map_or(self.told, |entry| entry.at);
        let told = |entry: JournalEntry| TopDecision {
            at: entry.at,
            text: line(&entry),
            group: entry.group,
        };
        Ok(entries.into_iter().map(told).collect())
    }

    /// Whether the policy of a group is frozen, and its figures; `None` for a group that it does not know.
    pub fn group(&self, name: &str) -> Option<(bool, GroupFigures)> {
        let found = self.groups.iter().find(|group| group.name == name)?;
        Some((self.frozen, found.figures.clone()))
    }

    /// Freezes the policies of all its groups, or lets them go on.
    ///
    /// # Errors
    /// One line, for the user.
    pub fn freeze(&mut self, frozen: bool) -> Result<(), String> {
        ask(if frozen { DaemonRequest::Freeze } else { DaemonRequest::Thaw })
            .map_err(|error| error.message)?;
        self.frozen = frozen;
        Ok(())
    }
}
