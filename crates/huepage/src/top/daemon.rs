//! Where decisions of policies come from and where a wish to freeze one goes to. Whoever keeps policies
//! running for whole groups implements this; without it only what supervisors did can be shown.

use super::snapshot::Decision;
use crate::daemon::journal::Entry;
use crate::daemon::protocol::{GroupStatus, Request, Status, ask, line};

/// Somebody who decides for groups and can be asked to stop.
pub trait Daemon: Send {
    /// What was decided since this was asked last, the oldest first.
    ///
    /// # Errors
    /// One line, when nobody answers; it is asked again at the next moment.
    fn decisions(&mut self) -> Result<Vec<Decision>, String>;

    /// Whether the policy of a group is frozen; `None` for a group that it does not know.
    fn is_frozen(&mut self, group: &str) -> Option<bool>;

    /// Freezes the policy of a group, or lets it go on.
    ///
    /// # Errors
    /// One line, for the user.
    fn freeze(&mut self, group: &str, frozen: bool) -> Result<(), String>;
}

/// What is said where there is none.
pub const NO_DAEMON: &str = "no daemon";

/// `huepage daemon`, asked over its socket. It decides for all of its groups or for none.
struct Running {
    /// When the last decision was made that was told of.
    told: f64,
    groups: Vec<String>,
    frozen: bool,
}

/// Decisions that are asked for at a time.
const LAST: usize = 64;

impl Running {
    /// How it is now; `None` where it does not answer.
    fn ask(&mut self) -> Option<()> {
        let status: Status = serde_json::from_value(ask(Request::Status).ok()?).ok()?;
        let groups: Vec<GroupStatus> = serde_json::from_value(ask(Request::Groups).ok()?).ok()?;
        self.frozen = status.frozen;
        self.groups = groups.into_iter().map(|group| group.name).collect();
        Some(())
    }
}

impl Daemon for Running {
    fn decisions(&mut self) -> Result<Vec<Decision>, String> {
        let _ = self.ask();
        let answer = ask(Request::Decisions { last: LAST }).map_err(|error| error.message)?;
        let mut entries: Vec<Entry> = serde_json::from_value(answer).map_err(|e| e.to_string())?;
        entries.retain(|entry| entry.at > self.told);
        entries.sort_by(|a, b| a.at.total_cmp(&b.at));
        self.told = entries.last().map_or(self.told, |entry| entry.at);
        let told = |entry: Entry| Decision { at: entry.at, text: line(&entry), group: entry.group };
        Ok(entries.into_iter().map(told).collect())
    }

    fn is_frozen(&mut self, group: &str) -> Option<bool> {
        self.groups.iter().any(|name| name == group).then_some(self.frozen)
    }

    fn freeze(&mut self, group: &str, frozen: bool) -> Result<(), String> {
        if !self.groups.iter().any(|name| name == group) {
            return Err(format!("the daemon has no group `{group}`; select one of its own"));
        }
        ask(if frozen { Request::Freeze } else { Request::Thaw }).map_err(|error| error.message)?;
        self.frozen = frozen;
        Ok(())
    }
}

/// The daemon of this machine, if one runs.
pub fn find() -> Option<Box<dyn Daemon>> {
    let mut running = Running { told: 0.0, groups: Vec::new(), frozen: false };
    running.ask()?;
    Some(Box::new(running))
}
