//! The options about the pollute buffer, and what they start. Which pages are confined is decided by
//! the policy; how they are found and moved is in `huepage_linux::pollute`.

use clap::{Args, ValueEnum};
use huepage_color::{CacheGeometry, ColorSet, Provenance};
use huepage_linux::engine::Scope;
use huepage_linux::filecache::kin::Heads;
use huepage_linux::pmu::calls::Function;
use huepage_linux::pollute::{Polluters, Search, SensorKind, Settings, lacking};

use crate::args::PartitionArgs;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, Plan};
use crate::superpages::parse_cpu;

/// Where help lists them.
const HEADING: &str = "Pollute buffer";

/// Pages that pollute the cache are confined to a small part of it.
#[derive(Args, Debug, Clone, PartialEq)]
pub struct PolluteArgs {
    /// Find pages that pollute the cache and confine them to a part of it, by default 1/16
    ///
    /// A fraction, a share or colours: 1/16, 6.25%, 0-1. The rest of the program stays where it is. It is
    /// watched by performance counters where the machine has them, else without; one that hardly misses is
    /// not touched, and where confining does not help it is undone.
    #[arg(long, help_heading = HEADING, value_name = "PART", num_args = 0..=1,
          default_missing_value = "1/16", value_parser = parse_part)]
    pub pollute_buffer: Option<String>,

    /// How the pages are chosen
    #[arg(long, help_heading = HEADING, value_enum, value_name = "HOW", requires = "pollute_buffer",
          default_value_t = PolluteSearch::Model)]
    pub pollute_search: PolluteSearch,

    /// Who tells which pages pollute
    ///
    /// The report names it, with its cost and, where it is not the PMU, the reason.
    #[arg(long, help_heading = HEADING, value_enum, value_name = "SENSOR", requires = "pollute_buffer",
          default_value_t = PolluteSensor::Auto)]
    pub pollute_sensor: PolluteSensor,

    /// What watching a process may cost, as a share of one CPU
    #[arg(long, help_heading = HEADING, value_name = "PERCENT", default_value = "1%",
          requires = "pollute_buffer", value_parser = parse_cpu)]
    pub pollute_cpu: f64,

    /// Judge what is tried by how often the program calls this function, as FILE:SYMBOL or FILE:0xOFFSET
    ///
    /// One that is called once for each unit of work: each call costs about a microsecond more. Else it is
    /// judged by how fast the program passes through its memory, or by counted instructions.
    #[arg(long, help_heading = HEADING, value_name = "FUNCTION", requires = "pollute_buffer",
          value_parser = |text: &str| Function::parse(text).map_err(|error| error.to_string()))]
    pub pollute_progress: Option<Function>,

    /// Confine these addresses, in hexadecimal, and look for no others (repeatable)
    #[arg(long, help_heading = HEADING, value_name = "START-END", requires = "pollute_buffer",
          value_parser = parse_range)]
    pub confine: Vec<(u64, u64)>,
}

impl Default for PolluteArgs {
    /// What the command line says when it says nothing.
    fn default() -> PolluteArgs {
        PolluteArgs {
            pollute_buffer: None,
            pollute_search: PolluteSearch::Model,
            pollute_cpu: 0.01,
            confine: Vec::new(),
            pollute_sensor: PolluteSensor::Auto,
            pollute_progress: None,
        }
    }
}

/// How pages are chosen.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolluteSearch {
    /// Worked out from how pages are used, and tried once
    Model,
    /// More and more of those that miss most are tried, as in the paper: slower
    Empirical,
}

/// Who tells which pages pollute.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolluteSensor {
    /// The PMU where the machine has one, else residency
    Auto,
    /// Samples of loads, counted misses and instructions
    Pmu,
    /// Lines of the program's memory that are timed: which of them are in the cache
    Residency,
}

/// A fraction as a share of the cache; others are for colours to understand.
pub fn fraction(text: &str) -> Option<f64> {
    let (above, below) = text.split_once('/')?;
    let (above, below): (u32, u32) = (above.trim().parse().ok()?, below.trim().parse().ok()?);
    (above > 0 && above < below).then(|| f64::from(above) / f64::from(below))
}

fn parse_part(text: &str) -> Result<String, String> {
    if text.contains('/') && fraction(text).is_none() {
        return Err(format!(
            "`{text}` is no part of a cache; write for instance 1/16, 6.25% or 0-1"
        ));
    }
    Ok(text.to_owned())
}

/// Two addresses, in hexadecimal, as whole pages.
pub fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let expected = || format!("`{text}` is no range; write for instance 7f0000000000-7f0000400000");
    let (start, end) = text.split_once('-').ok_or_else(expected)?;
    let address = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    let (start, end) = address(start).zip(address(end)).ok_or_else(expected)?;
    let pages = (start & !4095, end.saturating_add(4095) & !4095);
    if start < end { Ok(pages) } else { Err(expected()) }
}

impl PolluteArgs {
    /// Whether pages are to be confined.
    pub fn is_on(&self) -> bool {
        self.pollute_buffer.is_some()
    }

    /// Refuses what cannot be had together.
    pub fn check(&self, without_partition: bool, superpages: bool) -> Result<(), CmdError> {
        let what = match (self.is_on(), without_partition, superpages) {
            (true, false, _) => {
                "a pollute buffer is for a program that has the other colours to itself; leave out --colors and --share"
            }
            (true, _, true) => {
                "pages of a pollute buffer are single ones; leave out --superpages or --pollute-buffer"
            }
            _ => return Ok(()),
        };
        Err(CmdError::new(ExitCode::Usage, what))
    }

    /// The sensor that is asked for; none: the best there is.
    fn sensor(&self) -> Option<SensorKind> {
        match self.pollute_sensor {
            // Where calls tell of progress, counted instructions are not asked.
            PolluteSensor::Auto => self.pollute_progress.as_ref().map(|_| SensorKind::Residency),
            PolluteSensor::Pmu => Some(SensorKind::Pmu),
            PolluteSensor::Residency => Some(SensorKind::Residency),
        }
    }

    /// Refuses a sensor that this machine does not have.
    fn check_sensor(&self, args: &PartitionArgs) -> Result<(), CmdError> {
        if self.pollute_progress.is_some() && self.pollute_sensor == PolluteSensor::Pmu {
            let what = "counted instructions tell of progress; leave out --pollute-progress or --pollute-sensor";
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        let Some(sensor) = self.sensor().filter(|_| self.confine.is_empty()) else { return Ok(()) };
        let cache = partition::chosen_cache(args.level)?;
        let lacking = lacking(sensor, cache.level, cache.last_level);
        let told = |why| format!("{why} (--pollute-sensor residency)");
        lacking.map_or(Ok(()), |why| Err(CmdError::new(ExitCode::Kernel, told(why))))
    }

    /// The buffer as a partition: what is to be asked of a plan.
    pub fn partition(&self, args: &PartitionArgs) -> Result<PartitionArgs, CmdError> {
        self.check_sensor(args)?;
        let mut wanted = args.clone();
        let text = self.pollute_buffer.clone().unwrap_or_default();
        if let Some(part) = fraction(&text) {
            let colors = partition::colors_of(args.level, args.colors_from.as_ref())?;
            let part = part.max(1.0 / f64::from(colors));
            // A little more than the part, for rounding goes down.
            wanted.share = Some(format!("{:.3}%", 100.0 * part + 0.001));
        } else if text.ends_with('%') {
            wanted.share = Some(text);
        } else {
            wanted.colors = Some(text);
        }
        Ok(wanted)
    }

    /// The plan of a partition that is for no pages yet, and who decides which.
    pub fn start(&self, mut plan: Plan, heads: Heads) -> Result<(Plan, Polluters), CmdError> {
        let buffer = plan.config.colors.clone();
        if buffer.len() == buffer.universe() {
            let what =
                "the buffer has all colours, so that nothing would be confined; give it fewer";
            return Err(CmdError::new(ExitCode::Colors, what));
        }
        plan.config.scope = Some(Scope::default());
        // A child is watched like its parent, and not taken before there is a reason.
        plan.config.child_delay = std::time::Duration::MAX;
        let settings = self.settings(buffer, &plan.cache, plan.provenance);
        Ok((plan, Polluters::new(settings, heads)))
    }

    /// What the options say of a buffer in a cache.
    pub fn settings(
        &self,
        buffer: ColorSet,
        cache: &CacheGeometry,
        provenance: Provenance,
    ) -> Settings {
        Settings {
            buffer,
            level: cache.level,
            is_last: cache.last_level,
            sensor: self.sensor(),
            progress: self.pollute_progress.clone(),
            cache_bytes: cache.size_bytes,
            ways: u16::try_from(cache.ways).unwrap_or(u16::MAX),
            probed: provenance == Provenance::Probed,
            search: match self.pollute_search {
                PolluteSearch::Model => Search::Model,
                PolluteSearch::Empirical => Search::Empirical,
            },
            cpu: self.pollute_cpu,
            fixed: (!self.confine.is_empty()).then(|| self.confine.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed_run as run;

    #[test]
    fn a_buffer_has_a_size_or_colours() {
        let buffer = |args: &[&str]| run(args).map(|args| args.pollute.pollute_buffer);
        assert_eq!(buffer(&["--pollute-buffer"]).unwrap().as_deref(), Some("1/16"));
        assert_eq!(buffer(&["--pollute-buffer", "1/8"]).unwrap().as_deref(), Some("1/8"));
        assert_eq!(buffer(&["--pollute-buffer=0-1"]).unwrap().as_deref(), Some("0-1"));
        assert!(buffer(&["--pollute-buffer", "3/2"]).is_err());
        assert_eq!((fraction("1/16"), fraction("0/4"), fraction("6%")), (Some(0.0625), None, None));
    }

    #[test]
    fn a_sensor_may_be_asked_for() {
        let sensor = |args: &[&str]| run(args).map(|args| args.pollute.sensor());
        assert_eq!(sensor(&["--pollute-buffer"]).unwrap(), None);
        let asked = ["--pollute-buffer", "--pollute-sensor", "pmu"];
        assert_eq!(sensor(&asked).unwrap(), Some(SensorKind::Pmu));
        assert!(run(&["--share", "50%", "--pollute-sensor", "pmu"]).is_err(), "about nothing");
        assert!(run(&["--pollute-buffer", "--pollute-sensor", "best"]).is_err());
    }

    #[test]
    fn ranges_are_whole_pages() {
        assert_eq!(parse_range("1001-2001"), Ok((0x1000, 0x3000)));
        assert_eq!(parse_range("0x7f00-0x8000"), Ok((0x7000, 0x8000)));
        for wrong in ["", "12", "20-10", "x-y", "5-5"] {
            assert!(parse_range(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_had_together_is_refused() {
        let args = run(&["--pollute-buffer"]).unwrap().pollute;
        assert!(args.check(true, false).is_ok());
        assert!(args.check(false, false).is_err() && args.check(true, true).is_err());
        let without = run(&["--share", "25%"]).unwrap().pollute;
        assert!(without.check(false, true).is_ok());
    }
}
