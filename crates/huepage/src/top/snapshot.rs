//! What is known at one moment of groups, processes and what they have in the cache. Data alone: how
//! it is found out is in `source` and `residency`. Printed as it is by `huepage top --once --json`.

use std::collections::BTreeMap;

use huepage_color::ColorSet;
use huepage_policy::residency::{AreaSeen, Estimate, SampledPage};
use serde::Serialize;

use super::heat::HeatRow;
use crate::daemon::figures::GroupFigures;
use crate::report::{Compliance, Missed};

/// A moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TopSnapshot {
    /// When, in seconds since 1970.
    pub at: f64,
    /// Partitions, by their supervisors' pids.
    pub groups: Vec<GroupNow>,
    /// Processes in partitions and those that were named, by pid.
    pub processes: Vec<ProcessNow>,
    /// What policies decided since the moment before.
    pub decisions: Vec<TopDecision>,
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
    /// Processes that could not be confined.
    pub missed: Vec<Missed>,
    /// Superpages, where they are built.
    pub superpages: Option<SuperpagesNow>,
    /// Whether policies of its daemon are frozen; `None` of a group without one.
    pub frozen: Option<bool>,
    /// What its daemon counts of it, as `huepage ctl groups` has it; `None` of a group without one.
    pub figures: Option<GroupFigures>,
    /// Why the supervisor does not answer.
    pub trouble: Option<String>,
}

/// What tells groups apart: one supervisor may hold several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopGroupId {
    supervisor: i32,
    name: Option<String>,
}

impl GroupNow {
    /// What tells it from others.
    pub fn id(&self) -> TopGroupId {
        TopGroupId { supervisor: self.supervisor, name: self.name.clone() }
    }

    /// How it is called: its name, or that of its supervisor.
    pub fn label(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("run {}", self.supervisor))
    }
}

/// What was done about superpages since the group exists.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SuperpagesNow {
    pub promoted: u64,
    pub demoted: u64,
    /// Not built, by the reason.
    pub refused: BTreeMap<String, u64>,
}

/// A process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ProcessNow {
    pub pid: i32,
    pub name: String,
    /// The supervisor of its partition, if it has one.
    pub supervisor: Option<i32>,
    /// The name of its group, if that has one.
    pub group: Option<String>,
    /// The colours it is confined to.
    pub colors: Option<ColorSet>,
    /// Its resident memory, in bytes.
    pub resident_bytes: u64,
    /// After the last audit of its supervisor.
    pub compliance: Option<Compliance>,
    /// Resident pages of each colour, after that audit.
    pub pages_by_color: Vec<u64>,
    /// What its supervisor counts, since it is confined.
    pub counts: Option<MemberCounts>,
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

impl ProcessNow {
    /// The group that it belongs to, if it belongs to any.
    pub fn group_id(&self) -> Option<TopGroupId> {
        self.supervisor.map(|supervisor| TopGroupId { supervisor, name: self.group.clone() })
    }
}

/// What a supervisor counts of a member.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemberCounts {
    pub faults_served: u64,
    /// Pages placed for them.
    pub placed: u64,
    /// Pages of any colour, placed since the stock was empty.
    pub fallback_pages: u64,
    pub recolored: u64,
    pub audits: u64,
    /// Resident pages left alone, by the reason.
    pub refused: BTreeMap<String, u64>,
}

/// What was seen of a process in the cache.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ResidencyNow {
    /// The caches that were looked at: `L2`, or `L2+L3` where the clock cannot tell one from the other.
    pub cache: &'static str,
    /// Lines looked at.
    pub samples: u64,
    /// Those that were in the cache.
    pub found: u64,
    /// Bytes of it in the cache, as estimated.
    pub cached_bytes: f64,
    /// How often it misses, as estimated; `None` where that cannot be told of one cache.
    pub estimate: Option<Estimate>,
    /// Its areas, by address.
    pub areas: Vec<AreaSeen>,
    /// Its pages that were looked at.
    #[serde(skip)]
    pub sampled_pages: Vec<SampledPage>,
}

impl ResidencyNow {
    /// From what was counted; `private` where the private cache was told from the one behind it.
    pub fn of(
        areas: &[AreaSeen],
        sampled_pages: &[SampledPage],
        estimate: Option<Estimate>,
        private: bool,
    ) -> ResidencyNow {
        ResidencyNow {
            cache: looked_at(private),
            samples: areas.iter().map(|area| area.samples).sum(),
            found: areas.iter().map(|area| area.found).sum(),
            cached_bytes: areas.iter().map(AreaSeen::cached_bytes).sum(),
            estimate: estimate.filter(|_| private),
            areas: areas.to_vec(),
            sampled_pages: sampled_pages.to_vec(),
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

/// What the caches are called that were looked at: with a coarse clock, a line in either is found.
pub fn looked_at(private: bool) -> &'static str {
    if private { "L2" } else { "L2+L3" }
}

/// Something that a policy decided, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopDecision {
    /// When, in seconds since 1970.
    pub at: f64,
    /// The group that it is about.
    pub group: String,
    /// What, and why, in one line.
    pub text: String,
}
