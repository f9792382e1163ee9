//! What was done about superpages, and what it cost. Sums only.

use std::collections::BTreeMap;

use huepage_policy::registry;
use serde::{Deserialize, Serialize};

use super::spare::Took;
use crate::kernel::process_memory::NotBuilt;
use crate::sensors::tlb::MissSensorKind;

/// From so many seconds on CPU time is told as a share.
const SHARE_SECONDS: f64 = 1.0;

/// Of one or more processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Who decides.
    pub policy: registry::Settings,
    /// Who tells of misses.
    pub source: MissSensorKind,
    /// Why no better source is used, in a few words; empty if there is none better.
    pub source_because: String,
    /// Pages that the last TLB of this machine holds.
    pub tlb_entries: usize,
    /// Superpages built.
    pub promoted: u64,
    /// Superpages broken again by us, for the memory they took or as they were idle.
    pub demoted: u64,
    /// Of these, those that nobody had used for long.
    #[serde(default)]
    pub idle: u64,
    /// Superpages that were not built, by reason.
    pub refused: BTreeMap<NotBuilt, u64>,
    /// Pages that superpages have added to what the program had resident, those now there.
    pub filled_pages: u64,
    /// Misses a second that were sensed in memory that is superpages now, when they were built.
    pub saved_misses_per_second: f64,
    /// The same over the time since, until a program ended.
    pub saved_misses: f64,
    /// Why a process could not be looked at, the last time.
    pub trouble: Option<String>,
    /// Looks at what is touched.
    pub looks: u64,
    /// Pages looked at.
    pub sampled_pages: u64,
    /// CPU time of sensing and deciding, in seconds.
    pub policy_cpu_seconds: f64,
    /// CPU time of building and breaking, in seconds.
    pub construction_cpu_seconds: f64,
    /// Of these, in processes of a partition, by their agents.
    #[serde(default)]
    pub agent_cpu_seconds: f64,
    /// CPU microseconds, lately, of the call that makes a superpage: a program that touches it may
    /// have to wait for them.
    pub construction_us: f64,
    /// The longest such call of all, by the clock.
    #[serde(default)]
    pub longest_stall_us: f64,
    /// Seconds that all this is about.
    pub seconds: f64,
}

impl Report {
    pub(super) fn new(policy: registry::Settings, tlb_entries: usize) -> Report {
        Report {
            policy,
            source: MissSensorKind::None,
            source_because: String::new(),
            tlb_entries,
            promoted: 0,
            demoted: 0,
            idle: 0,
            refused: BTreeMap::new(),
            filled_pages: 0,
            saved_misses_per_second: 0.0,
            saved_misses: 0.0,
            trouble: None,
            looks: 0,
            sampled_pages: 0,
            policy_cpu_seconds: 0.0,
            construction_cpu_seconds: 0.0,
            agent_cpu_seconds: 0.0,
            construction_us: 0.0,
            longest_stall_us: 0.0,
            seconds: 0.0,
        }
    }

    pub(super) fn refuse(&mut self, why: NotBuilt) {
        *self.refused.entry(why).or_default() += 1;
    }

    /// A superpage was built, which took so long.
    pub(super) fn built(&mut self, took: Took) {
        let us = took.stall.as_secs_f64() * 1e6;
        self.construction_cpu_seconds += took.all.as_secs_f64();
        self.longest_stall_us = self.longest_stall_us.max(took.wait.as_secs_f64() * 1e6);
        let first = self.construction_us == 0.0;
        self.construction_us = if first { us } else { self.construction_us.mul_add(0.9, us * 0.1) };
    }

    /// The CPU time of sensing and deciding, of one CPU.
    pub fn policy_share(&self) -> f64 {
        self.policy_cpu_seconds / self.seconds.max(1e-9)
    }

    /// What sensing and deciding took: a share says nothing of a time in which little else was done.
    fn policy_text(&self) -> String {
        if self.seconds < SHARE_SECONDS {
            return format!("{:.0} ms of CPU", self.policy_cpu_seconds * 1e3);
        }
        format!("{:.2} % of a CPU", self.policy_share() * 100.0)
    }

    /// For a person, in one paragraph.
    pub fn text(&self) -> String {
        let refused: Vec<String> =
            self.refused.iter().map(|(why, count)| format!("{count} {why}")).collect();
        let because = if self.source_because.is_empty() {
            String::new()
        } else {
            format!(": {}", self.source_because)
        };
        let refused = match refused.is_empty() {
            true => "nothing refused".to_owned(),
            false => format!("refused: {}", refused.join(", ")),
        };
        let idle = if self.idle > 0 { format!(" ({} idle)", self.idle) } else { String::new() };
        let trouble = self.trouble.as_ref().map(|why| format!("\n{why}")).unwrap_or_default();
        format!(
            "superpages ({}, misses by {}{because}): {} built, {} broken{idle}, {refused}\n\
             effect not measured; at the rate of before, their memory had missed {:.1} million times since; \
             {} pages of memory added; policy {}, building {:.2} s, {:.1} ms at a time at most{trouble}",
            self.policy,
            self.source,
            self.promoted,
            self.demoted,
            self.saved_misses / 1e6,
            self.filled_pages,
            self.policy_text(),
            self.construction_cpu_seconds,
            self.longest_stall_us / 1e3,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_text_names_what_decided_and_what_was_refused() {
        let mut report = Report::new(crate::services::superpages::usual_policy(), 1536);
        report.source = MissSensorKind::AccessedBits;
        report.refuse(NotBuilt::Sparse);
        for (all, stall) in [(3, 2), (2, 1)] {
            let [all, stall] = [all, stall].map(Duration::from_millis);
            report.built(Took { all, stall, wait: all });
        }
        (report.promoted, report.seconds, report.policy_cpu_seconds) = (2, 10.0, 0.05);
        let text = report.text();
        assert!(text.contains("effect not measured"), "{text}");
        assert!(
            Report::new(crate::services::superpages::usual_policy(), 9)
                .text()
                .contains("nothing refused")
        );
        for part in [
            "approx-online",
            "accessed-bits",
            "2 built",
            "1 too sparse",
            "0.50 %",
            "3.0 ms at a time",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        report.seconds = 0.0001;
        assert!(report.text().contains("policy 50 ms of CPU"), "{}", report.text());
        assert!((report.construction_us - 1900.0).abs() < 1.0);
        assert!((report.construction_cpu_seconds - 0.005).abs() < 1e-9);
    }
}
