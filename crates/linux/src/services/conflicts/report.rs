//! What is told of conflicts: per process what was found, what was moved, what that brought and what it
//! cost.

use huepage_policy::conflict::in_use::Crowd;
use serde::{Deserialize, Serialize};

use crate::watch::request_slot::WatchDecision;

/// Of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConflictingProcess {
    /// The process.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// What is being done about it.
    pub stage: String,
    /// Pages that were used again and again when that was last looked at.
    pub pages_in_use: u64,
    /// The most of them of one colour, then.
    pub most_of_a_color: u64,
    /// Colours that any of them had, then.
    pub colors_in_use: u16,
    /// The same when that was first looked at.
    pub colors_in_use_before: u16,
    /// Colours with more pages in use than fit, when pages were first moved.
    pub crowds: Vec<Crowd>,
    /// Times that conflicts were found.
    pub conflicts: u32,
    /// Pages moved.
    pub recolored: u64,
    /// Pages that were to be moved and could not be.
    pub refused: u64,
    /// The share of the lines of pages in use that was in the cache before any was moved, as estimated;
    /// 0 to 1.
    pub residency_before: Option<f64>,
    /// The same at last.
    pub residency: Option<f64>,
    /// Looks at which pages are in use.
    pub snapshots: u32,
    /// Seconds watched.
    pub seconds: f64,
    /// CPU seconds that watching took.
    pub cpu_seconds: f64,
    /// Seconds that moving pages took.
    pub recolor_seconds: f64,
    /// What was decided, with reasons; the last ones.
    pub decisions: Vec<WatchDecision>,
}

/// Of all processes of a supervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConflictReport {
    /// Colours of the cache.
    pub of: u16,
    /// Pages of a colour that fit.
    pub ways: u16,
    /// Each process that was watched.
    pub processes: Vec<ConflictingProcess>,
}

impl ConflictReport {
    /// For a person, a line or two for each process.
    pub fn text(&self) -> String {
        let head = format!("conflicts: {} colours, {} pages of each fit", self.of, self.ways);
        let lines = self.processes.iter().flat_map(ConflictingProcess::lines);
        [head].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }
}

impl ConflictingProcess {
    fn lines(&self) -> Vec<String> {
        let percent = |share: Option<f64>| {
            share.map_or("a share not measured".to_owned(), |share| {
                format!("{:.0} %", 100.0 * share)
            })
        };
        let cpu = 100.0 * self.cpu_seconds / self.seconds.max(1e-9);
        let mut lines = vec![format!(
            "process {} ({}): {}; {} pages in use in {} colours, {} of one at most; {} of their lines in \
             the cache, {} before; {} pages recoloured in {:.1} ms, {} refused; watching took {cpu:.1} % of a CPU",
            self.pid,
            self.name,
            self.stage,
            self.pages_in_use,
            self.colors_in_use,
            self.most_of_a_color,
            percent(self.residency),
            percent(self.residency_before),
            self.recolored,
            1000.0 * self.recolor_seconds,
            self.refused,
        )];
        lines.extend(self.crowds.iter().map(|crowd| {
            format!("  colour {}: {} pages in use at first", crowd.color, crowd.pages)
        }));
        lines
            .extend(self.decisions.last().map(|last| format!("  {:.1} s: {}", last.at, last.what)));
        lines
    }
}
