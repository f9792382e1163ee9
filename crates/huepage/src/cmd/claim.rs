//! What a supervisor says of a process, and what that claims of its pages.

use std::time::Duration;

use huepage_linux::control::socket::SupervisorRequest;
use huepage_linux::engine::MemberStatus;
use serde::Deserialize;

use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::target::ask;

/// What a supervisor claims of a process in a partition.
#[derive(Debug, Deserialize)]
pub struct PartitionClaim {
    /// The colours.
    pub colors: String,
    /// Colours there are.
    pub of: u16,
    /// The cache level.
    pub level: String,
    /// How colours are known.
    pub colors_from: String,
    /// Ranges of ours in the process.
    #[serde(skip)]
    pub own: Vec<(u64, u64)>,
}

impl PartitionClaim {
    /// Whether colours were measured, so that their names mean the same in every measurement.
    pub fn is_measured(&self) -> bool {
        self.colors_from == "probed"
    }
}

/// The part of what a supervisor says that claims something.
#[derive(Deserialize)]
struct Claimed {
    partition: PartitionClaim,
    status: MemberStatus,
}

/// What is claimed of a process; `None` of one in no partition.
///
/// # Errors
/// When its supervisor does not answer, or does not know colours yet.
pub fn claim(pid: i32) -> Result<Option<PartitionClaim>, CmdError> {
    let Some(told) = told_if_any(pid)?.filter(|told| told["status"].is_object()) else {
        return Ok(None);
    };
    if told["colors_known"] == false {
        let what = "colours are being measured; nothing is confined yet, try again in a moment";
        return Err(CmdError::new(ExitCode::Noisy, what));
    }
    let Claimed { partition, status } = serde_json::from_value(told).map_err(internal)?;
    Ok(Some(PartitionClaim { own: status.own, ..partition }))
}

/// What its supervisor says of a process.
pub fn told(pid: i32) -> Result<serde_json::Value, CmdError> {
    ask(pid, &SupervisorRequest::Status { pid }, Duration::from_secs(10))
}

/// The same; `None` of a process in no partition.
pub fn told_if_any(pid: i32) -> Result<Option<serde_json::Value>, CmdError> {
    match told(pid) {
        Err(error) if error.code == ExitCode::NotAttached => Ok(None),
        told => told.map(Some),
    }
}
