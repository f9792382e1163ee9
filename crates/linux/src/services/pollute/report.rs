//! What is told of the pollute buffer: per process what was found, what was confined, what that brought
//! and what it cost.

use serde::{Deserialize, Serialize};

use crate::watch::request_slot::WatchDecision;

/// Addresses as people read them.
mod hexadecimal {
    use serde::de::{Deserialize as _, Deserializer, Error as _};
    use serde::ser::Serializer;

    pub fn serialize<S: Serializer>(address: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{address:#x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(D::Error::custom)
    }
}

/// An area of which pages were confined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AreaConfined {
    /// Its first byte; in JSON in hexadecimal.
    #[serde(with = "hexadecimal")]
    pub start: u64,
    /// One past its last byte; in JSON in hexadecimal.
    #[serde(with = "hexadecimal")]
    pub end: u64,
    /// What it is, for a person.
    pub name: String,
    /// Pages of it that are confined.
    pub pages: u64,
    /// Pages of it that are in memory.
    pub resident: u64,
    /// The share of its lines that was in the cache when that was decided, 0 to 1.
    pub there: f64,
}

/// Of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PollutedProcess {
    /// The process.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Who tells which pages pollute: `pmu` or `residency`.
    pub sensor: String,
    /// What that goes by.
    #[serde(default)]
    pub sensor_detail: String,
    /// Why it is not the PMU; empty if it is, or if residency was asked for.
    #[serde(default)]
    pub sensor_because: String,
    /// What the policy is doing.
    pub stage: String,
    /// Lines that the process brings into the cache in a second of its CPU time, as estimated at last.
    pub fills_per_second: Option<f64>,
    /// Instructions that it does in a second of its CPU time, where they are counted.
    #[serde(default)]
    pub instructions_per_second: Option<f64>,
    /// Instructions per cycle, where they are counted.
    #[serde(default)]
    pub instructions_per_cycle: Option<f64>,
    /// The share of its requests that miss, as estimated before anything was confined.
    pub miss_rate_before: Option<f64>,
    /// The same at last.
    pub miss_rate: Option<f64>,
    /// How far that may be off by chance.
    pub miss_rate_margin: Option<f64>,
    /// Profiles made.
    pub profiles: u32,
    /// Mappings tried.
    pub trials: u32,
    /// Seconds from the first look until a mapping was chosen; `None` before.
    pub placed_after: Option<f64>,
    /// The areas that are confined, or were last.
    pub areas: Vec<AreaConfined>,
    /// Pages in the buffer after the last move.
    pub pages_in_buffer: u64,
    /// Pages that should be there and could not be moved, then.
    pub pages_left_outside: u64,
    /// Pages recoloured.
    pub recolored: u64,
    /// Seconds watched.
    pub seconds: f64,
    /// CPU seconds that watching took.
    pub cpu_seconds: f64,
    /// Loads that were sampled, where they are.
    #[serde(default)]
    pub samples: u64,
    /// The share of the sampled requests of the last profile that missed.
    #[serde(default)]
    pub sampled_miss_rate: Option<f64>,
    /// Samples that were lost because nobody took them in time.
    #[serde(default)]
    pub samples_lost: u64,
    /// CPU seconds of the process itself that samples took, at two microseconds for each interrupt.
    #[serde(default)]
    pub interrupt_seconds: f64,
    /// What was decided, with reasons; the last ones.
    pub decisions: Vec<WatchDecision>,
}

/// Of all processes of a supervisor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolluteReport {
    /// The colours of the buffer.
    pub buffer: String,
    /// Of so many.
    pub of: u16,
    /// Each process that was watched.
    pub processes: Vec<PollutedProcess>,
}

impl PolluteReport {
    /// For a person, a line or two for each process.
    pub fn text(&self) -> String {
        let head = format!("pollute buffer: colours {} of {}", self.buffer, self.of);
        let lines = self.processes.iter().flat_map(PollutedProcess::lines);
        [head].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }
}

impl PollutedProcess {
    /// Who tells, by what, and why nobody better.
    fn sensor_text(&self) -> String {
        let because = match self.sensor_because.as_str() {
            "" => String::new(),
            why => format!("; not pmu: {why}"),
        };
        let detail = match self.sensor_detail.as_str() {
            "" => String::new(),
            detail => format!(": {detail}"),
        };
        format!("{}{detail}{because}", self.sensor)
    }

    /// How fast it is, where that is counted.
    fn progress_text(&self) -> Option<String> {
        let (rate, ipc) = (self.instructions_per_second?, self.instructions_per_cycle?);
        Some(format!(
            "  {:.0} million instructions a second, {ipc:.2} per cycle; {} loads sampled, {} lost",
            rate / 1e6,
            self.samples,
            self.samples_lost,
        ))
    }

    fn lines(&self) -> Vec<String> {
        let percent = |rate: Option<f64>| {
            rate.map_or("?".to_owned(), |rate| format!("{:.0} %", 100.0 * rate))
        };
        let cpu = 100.0 * (self.cpu_seconds + self.interrupt_seconds) / self.seconds.max(1e-9);
        let effect = match (self.miss_rate, self.miss_rate_before) {
            (None, _) | (_, None) => "effect not measured".to_owned(),
            (now, before) => {
                format!("misses {} of its requests, {} before", percent(now), percent(before))
            }
        };
        let mut lines = vec![format!(
            "process {} ({}): {}; {effect}; {} pages in the buffer, \
             {} recoloured; watching took {cpu:.1} % of a CPU ({})",
            self.pid,
            self.name,
            self.stage,
            self.pages_in_buffer,
            self.recolored,
            self.sensor_text(),
        )];
        lines.extend(self.progress_text());
        lines.extend(self.areas.iter().map(|area| {
            format!(
                "  {:#x}-{:#x} {}: {} of {} pages confined, {:.0} % of them were in the cache",
                area.start,
                area.end,
                area.name,
                area.pages,
                area.resident,
                100.0 * area.there,
            )
        }));
        lines
            .extend(self.decisions.last().map(|last| format!("  {:.1} s: {}", last.at, last.what)));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_hexadecimal_and_an_effect_is_measured_or_said_not_to_be() {
        let (name, start, end) = ("heap".to_owned(), 0x7f00_0000, 0x7f40_0000);
        let area = AreaConfined { start, end, name, pages: 1, resident: 2, there: 0.5 };
        let json = serde_json::to_value(&area).expect("JSON");
        assert_eq!(json["start"], "0x7f000000");
        assert_eq!(serde_json::from_value::<AreaConfined>(json).expect("an area"), area);
        let mut process = PollutedProcess::default();
        assert!(process.lines()[0].contains("effect not measured"));
        (process.miss_rate_before, process.miss_rate) = (Some(0.5), Some(0.25));
        assert!(process.lines()[0].contains("misses 25 % of its requests, 50 % before"));
    }
}
