//! What is known at one moment of groups, processes and what they have in the cache. Data alone: how
//! it is found out is in `source` and `looks`. Printed as it is by `huepage top --once --json`.

use std::collections::BTreeMap;

use huepage_color::ColorSet;
use huepage_policy::residency::{AreaSeen, Estimate, Seat};
use serde::Serialize;

use super::heat::HeatRow;
use crate::report::Compliance;

/// A moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// When, in seconds since 1970.
    pub at: f64,
    /// Partitions, by their supervisors' pids.
    pub groups: Vec<GroupNow>,
    /// Processes in partitions and those that were named, by pid.
    pub processes: Vec<ProcessNow>,
    /// What policies decided since the moment before.
    pub decisions: Vec<Decision>,
    /// Why nobody tells of decisions and freezes policies; `None` where a daemon does.
    pub no_daemon: Option<String>,
}

/// A partition and who holds it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct GroupNow {
    /// Pid of the supervisor.
    pub supervisor: i32,
    /// The name of the group, if it has one.
    pub name: Option<String>,
    /// The cache that is partitioned, such as `L2`.
    pub level: String,
    /// How colours are known.
    pub colors_from: String,
    /// The colours of the partition; none of them where nothing is confined.
    pub colors: String,
    /// Colours there are.
    pub of: u16,
    /// Pids of its processes.
    pub members: Vec<i32>,
    /// Processes that could not be confined, with the reason.
    pub missed: Vec<(i32, String)>,
    /// Superpages, where they are built.
    pub superpages: Option<SuperpagesNow>,
    /// Whether its policy is frozen; `None` where nobody knows.
    pub frozen: Option<bool>,
    /// Why the supervisor does not answer.
    pub trouble: Option<String>,
}

impl GroupNow {
    /// How it is called: its name, or that of its supervisor.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("run {}", self.supervisor))
    }
}

/// What was done about superpages since the group exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SuperpagesNow {
    /// Built.
    pub promoted: u64,
    /// Broken again.
    pub demoted: u64,
    /// Not built, by the reason.
    pub refused: BTreeMap<String, u64>,
}

/// A process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessNow {
    /// Its pid.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// The supervisor of its partition, if it has one.
    pub supervisor: Option<i32>,
    /// The colours it is confined to.
    pub colors: Option<ColorSet>,
    /// Its resident memory, in bytes.
    pub resident_bytes: u64,
    /// After the last audit of its supervisor.
    pub compliance: Option<Compliance>,
    /// Resident pages of each colour, after that audit.
    pub pages_by_color: Vec<u64>,
    /// What its supervisor counts, since it is confined.
    pub counts: Option<Counts>,
    /// Pages recoloured a second since the moment before; `None` at the first.
    pub recolored_per_second: Option<f64>,
    /// What of it is in the cache, if that was looked at.
    pub residency: Option<ResidencyNow>,
    /// Why that is not known.
    pub no_residency: Option<String>,
    /// Residency by address, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heat: Option<Vec<HeatRow>>,
}

/// What a supervisor counts of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Counts {
    /// Faults answered.
    pub faults_served: u64,
    /// Pages placed for them.
    pub placed: u64,
    /// Pages of any colour, placed since the stock was empty.
    pub fallback_pages: u64,
    /// Pages recoloured.
    pub recolored: u64,
    /// Audits made.
    pub audits: u64,
    /// Resident pages left alone, by the reason.
    pub refused: BTreeMap<String, u64>,
}

/// What was seen of a process in the cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResidencyNow {
    /// Lines looked at.
    pub samples: u64,
    /// Those that were in the cache.
    pub found: u64,
    /// Bytes of it in the cache, as estimated.
    pub cached_bytes: f64,
    /// How often it misses, as estimated.
    pub estimate: Option<Estimate>,
    /// Its areas, by address.
    pub areas: Vec<AreaSeen>,
    /// Its pages that were looked at.
    #[serde(skip)]
    pub seats: Vec<Seat>,
}

impl ResidencyNow {
    /// From what was counted.
    pub fn of(areas: &[AreaSeen], seats: &[Seat], estimate: Option<Estimate>) -> ResidencyNow {
        ResidencyNow {
            samples: areas.iter().map(|area| area.samples).sum(),
            found: areas.iter().map(|area| area.found).sum(),
            cached_bytes: areas.iter().map(AreaSeen::cached_bytes).sum(),
            estimate,
            areas: areas.to_vec(),
            seats: seats.to_vec(),
        }
    }

    /// The areas with most in the cache, the first of all first.
    pub fn hottest(&self) -> Vec<&AreaSeen> {
        let mut areas: Vec<&AreaSeen> = self.areas.iter().filter(|a| a.found > 0).collect();
        areas.sort_by(|a, b| {
            b.cached_bytes().total_cmp(&a.cached_bytes()).then(a.start.cmp(&b.start))
        });
        areas
    }
}

/// Something that a policy decided, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    /// When, in seconds since 1970.
    pub at: f64,
    /// The group that it is about.
    pub group: String,
    /// What, and why, in one line.
    pub text: String,
}
