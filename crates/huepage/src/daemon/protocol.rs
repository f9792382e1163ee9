//! What `huepage ctl` asks of the daemon and what it hears: one JSON object per line, as between all of
//! huepage's processes, over a socket of the daemon's own beside those of supervisors.

use std::path::PathBuf;
use std::time::Duration;

use huepage_linux::color::partition_registry::Registry;
use huepage_linux::control::socket;
use huepage_linux::control::socket::ControlError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::figures::GroupFigures;
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::services::Reports;

/// What can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub enum DaemonRequest {
    /// How it is: `Status`.
    Status,
    /// How groups are: a list of `GroupStatus`.
    Groups,
    /// What was decided last: a list of `Entry`.
    Decisions {
        /// So many.
        last: usize,
    },
    /// The figures for Prometheus, as text.
    Metrics,
    /// Change nothing until thawed.
    Freeze,
    /// Decide again.
    Thaw,
    /// Read the file again.
    Reload,
    /// Release everybody and end.
    Stop,
}

/// How the daemon is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Its process.
    pub pid: u32,
    /// The file that it was told by.
    pub config: PathBuf,
    /// The cache.
    pub level: String,
    /// Its colours.
    pub of: u16,
    /// How they are known.
    pub colors_from: String,
    /// Those that neither a group nor a partition of others has.
    pub free: String,
    /// Hardware for the same, which is left to others.
    pub resctrl: String,
    /// What tells of miss rates, and why nothing better.
    #[serde(default)]
    pub sensor: String,
    /// Whether nothing is changed now.
    pub frozen: bool,
    /// Seconds that it runs.
    pub seconds: f64,
    /// Groups.
    pub groups: usize,
    /// Processes in them.
    pub processes: usize,
    /// Decisions since it runs, those included that changed nothing.
    pub decisions: u64,
    /// What is done for groups besides colours, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What is the matter, one line each.
    pub troubles: Vec<String>,
}

/// How a group is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Its name.
    pub name: String,
    /// Its colours.
    pub colors: String,
    /// When they change.
    pub rule: String,
    /// Whether they change with what is read.
    #[serde(default)]
    pub follows: bool,
    /// Its processes.
    pub processes: Vec<i32>,
    /// Who reads: `pmu`, `residency` or `command`; nobody where nothing is read.
    #[serde(default)]
    pub sensor: Option<String>,
    /// What it wants: more, same, less or nothing.
    pub want: String,
    /// Why pages did not wait though they were to.
    #[serde(default)]
    pub eager: Option<String>,
    /// What is asked for besides, one line each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Its figures.
    #[serde(flatten)]
    pub figures: GroupFigures,
    /// What services did for it.
    #[serde(flatten)]
    pub services: Reports,
    /// Of its colours, those kept for polluting pages.
    #[serde(default)]
    pub buffer: Option<String>,
    /// Why it cannot be watched, or has nobody.
    pub trouble: Option<String>,
}

/// Where the daemon listens.
pub fn socket(registry: &Registry) -> PathBuf {
    registry.directory().join("daemon.sock")
}

/// Asks the daemon.
///
/// # Errors
/// When none runs, or it refuses.
pub fn ask(request: DaemonRequest) -> Result<Value, CmdError> {
    let registry = Registry::open().map_err(internal)?;
    let answer = socket::call(&socket(&registry), &request, Duration::from_secs(60));
    answer.map_err(|error| match error {
        ControlError::Absent(_) => {
            let what = "no daemon runs; start one with `huepage daemon --config FILE`";
            CmdError::new(ExitCode::NotAttached, what)
        }
        ControlError::Refused { message, code } => {
            let own = ExitCode::ALL.into_iter().find(|e| i32::from(e.status()) == code);
            CmdError::new(own.unwrap_or(ExitCode::Internal), message)
        }
        other => internal(other),
    })
}
