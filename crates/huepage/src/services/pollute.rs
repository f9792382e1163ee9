//! The pollute buffer: the options, and the service that confines pages. Which pages are confined is decided
//! by the policy; how they are found and moved is in `huepage_linux::services::pollute`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use huepage_color::{CacheGeometry, ColorMap, ColorSet, Provenance};
use huepage_linux::color::frame_colors::ColorMethod;
use huepage_linux::engine::Group;
use huepage_linux::kernel::pmu::calls::Function;
use huepage_linux::kernel::process_tree::ProcessRoots;
use huepage_linux::services::pollute::{Polluters, SensorKind, Settings, lacking};
use huepage_policy::registry::{LiveOption, Settings as Policy};
use serde::{Deserialize, Serialize};

use super::{Context, Reports, Service};
use crate::deferred_drop::drop_behind;
use crate::exit::{CmdError, ExitCode};
use crate::headings::{FEATURES, TUNING};
use crate::partition::{self, DividedColors, PartitionArgs};
use crate::values::parse_cpu;

/// Pages that pollute the cache are confined to a small part of it.
#[derive(Args, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PolluteArgs {
    /// Find pages that pollute the cache and confine them to a part of it, by default 1/16 (experimental)
    ///
    /// A fraction, a share, a number of colours or colours by name: 1/16, 6.25%, "2 colors", 0-1; of a
    /// partition, if there is one. Or a policy with its keys: rocs-model, rocs; their key `buffer` is the share. The rest of the program stays where it
    /// is; only without a partition, with the sensor `pmu` and colours from frame numbers, pages that crowd a colour may get others. It is
    /// watched by performance counters where the machine has them, else without; one that hardly misses is
    /// not touched, and where confining does not help it is undone.
    #[arg(long, help_heading = FEATURES, value_name = "PART|POLICY", num_args = 0..=1,
          default_missing_value = "1/16")]
    pub pollute_buffer: Option<PolluteChoice>,

    /// How the pages are chosen: short for a policy [default: model]
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_enum, value_name = "HOW", requires = "pollute_buffer")]
    pub pollute_search: Option<PolluteSearch>,

    /// Who tells which pages pollute
    ///
    /// The report names it, with its cost and, where it is not the PMU, the reason.
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_enum, value_name = "SENSOR", requires = "pollute_buffer",
          default_value_t = PolluteSensor::Auto)]
    pub pollute_sensor: PolluteSensor,

    /// What watching a process may cost, as a share of one CPU
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "PERCENT", default_value = "1%",
          requires = "pollute_buffer", value_parser = parse_cpu)]
    pub pollute_cpu: f64,

    /// Judge what is tried by how often the program calls this function, as FILE:SYMBOL or FILE:0xOFFSET
    ///
    /// One that is called once for each unit of work: each call costs about a microsecond more. Else it is
    /// judged by how fast the program passes through its memory, or by counted instructions.
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "FUNCTION", requires = "pollute_buffer",
          value_parser = parse_function)]
    pub pollute_progress: Option<String>,

    /// Confine these addresses, in hexadecimal, and look for no others (repeatable)
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "START-END", requires = "pollute_buffer",
          value_parser = parse_range)]
    pub confine: Vec<(u64, u64)>,

    /// The colours that the buffer has, of a group that goes on.
    #[arg(skip)]
    #[serde(skip)]
    held: Option<String>,
}

impl Default for PolluteArgs {
    /// What the command line says when it says nothing.
    fn default() -> PolluteArgs {
        PolluteArgs {
            pollute_buffer: None,
            pollute_search: None,
            pollute_cpu: 0.01,
            confine: Vec::new(),
            pollute_sensor: PolluteSensor::Auto,
            pollute_progress: None,
            held: None,
        }
    }
}

/// How pages are chosen.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolluteSearch {
    /// rocs-model: worked out from how pages are used, and tried once
    Model,
    /// rocs: more and more of those that miss most are tried, as in the paper; slower
    Empirical,
}

impl PolluteSearch {
    /// The policy that it is short for.
    const fn policy(self) -> &'static str {
        match self {
            PolluteSearch::Model => "rocs-model",
            PolluteSearch::Empirical => "rocs",
        }
    }
}

/// The value of `--pollute-buffer`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PolluteChoice {
    /// Which part of the colours the buffer is, for the usual policy.
    Part(CachePart),
    /// By this policy; its key `buffer` says which part.
    By(Policy),
}

impl FromStr for PolluteChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<PolluteChoice, String> {
        let is_name = text.starts_with(|c: char| c.is_ascii_alphabetic()) && text != "all";
        if !is_name {
            return text.parse().map(PolluteChoice::Part);
        }
        let policy = LiveOption::PolluteBuffer.parse(text).map_err(|error| error.to_string())?;
        match CachePart::of(&policy) {
            Some(_) => Ok(PolluteChoice::By(policy)),
            None => Err(format!("`buffer` of {} is a share above 0 and below 1", policy.name())),
        }
    }
}

impl fmt::Display for PolluteChoice {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PolluteChoice::Part(part) => part.fmt(to),
            PolluteChoice::By(policy) => policy.fmt(to),
        }
    }
}

impl From<PolluteChoice> for String {
    fn from(buffer: PolluteChoice) -> String {
        buffer.to_string()
    }
}

impl TryFrom<String> for PolluteChoice {
    type Error = String;

    fn try_from(text: String) -> Result<PolluteChoice, String> {
        text.parse()
    }
}

/// Who tells which pages pollute.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolluteSensor {
    /// The PMU where the machine has one, else residency
    Auto,
    /// Samples of loads, counted misses and instructions
    Pmu,
    /// Lines of the program's memory that are timed: which of them are in the cache
    Residency,
}

/// A part of the cache, or of the colours of a group.
#[derive(Clone, Debug, PartialEq)]
pub enum CachePart {
    /// A fraction, above 0 and below 1; in whole colours it is rounded down, to one at least.
    Of(f64),
    /// So many colours.
    Count(u16),
    /// These colours, as a list or a mask.
    Colors(String),
}

impl FromStr for CachePart {
    type Err = String;

    fn from_str(text: &str) -> Result<CachePart, String> {
        let wrong = || {
            format!(
                "`{text}` is no part of a cache; write for instance 1/16, 6.25%, \"2 colors\" or 0-1"
            )
        };
        let text = text.trim();
        if let Some(n) = text.strip_suffix("colors").or_else(|| text.strip_suffix("color")) {
            let n = n.trim().parse().ok().filter(|&n| n > 0);
            return n.map(CachePart::Count).ok_or_else(wrong);
        }
        let percent = text.strip_suffix('%');
        if !text.contains('/') && percent.is_none() {
            return Ok(CachePart::Colors(text.to_owned()));
        }
        let percent = percent.and_then(|n| n.trim().parse::<f64>().ok()).map(|n| n / 100.0);
        let part = fraction(text).or(percent).filter(|part| (1e-6..1.0).contains(part));
        part.map(CachePart::Of).ok_or_else(wrong)
    }
}

fn fraction(text: &str) -> Option<f64> {
    let (above, below) = text.split_once('/')?;
    let (above, below): (u32, u32) = (above.trim().parse().ok()?, below.trim().parse().ok()?);
    (above > 0 && above < below).then(|| f64::from(above) / f64::from(below))
}

impl fmt::Display for CachePart {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CachePart::Of(part) => write!(to, "{}%", 100.0 * part),
            CachePart::Count(n) => write!(to, "{n} colors"),
            CachePart::Colors(text) => to.write_str(text),
        }
    }
}

impl CachePart {
    /// That of a policy's key `buffer`; none if it is nothing or all.
    fn of(policy: &Policy) -> Option<CachePart> {
        policy.ratio("buffer").filter(|share| (1e-6..1.0).contains(share)).map(CachePart::Of)
    }

    /// How many of so many colours that is, if it does not name them.
    pub fn count(&self, colors: u16) -> Option<u16> {
        match self {
            CachePart::Count(n) => Some(*n),
            CachePart::Of(part) => {
                // A little more than the part: a third of three is one.
                let n = (f64::from(colors) * part + 1e-6).floor();
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                // It is between 0 and `colors`.
                let n = n as u16;
                Some(n.max(1))
            }
            CachePart::Colors(_) => None,
        }
    }

    /// Which of the colours of a group are the buffer, unless they are named: of those that were it `before` as
    /// many as may stay, then the last ones. One colour at least is left for the rest.
    pub fn choose(
        &self,
        colors: &ColorSet,
        before: Option<&ColorSet>,
    ) -> Result<ColorSet, CmdError> {
        let Some(count) = self.count(colors.len()) else { return self.named(colors) };
        let most = colors.len().saturating_sub(1).min(count);
        let stays = |color: &_| before.is_some_and(|before| before.contains(*color));
        let all: Vec<_> = colors.iter().collect();
        let kept = all.iter().filter(|color| stays(color));
        let others = all.iter().rev().filter(|color| !stays(color));
        let mut buffer = ColorSet::empty(colors.universe());
        kept.chain(others).take(usize::from(most)).for_each(|&color| _ = buffer.insert(color));
        Ok(buffer)
    }

    /// The colours that are named, if they are some of these.
    fn named(&self, colors: &ColorSet) -> Result<ColorSet, CmdError> {
        let wrong = |error| CmdError::new(ExitCode::Colors, error);
        let buffer = ColorSet::parse(&self.to_string(), colors.universe()).map_err(wrong)?;
        if buffer.difference(colors).is_empty() && buffer != *colors {
            return Ok(buffer);
        }
        let what = format!(
            "the buffer {buffer} is to be a part of the colours {colors}; name some of them, or a fraction"
        );
        Err(CmdError::new(ExitCode::Colors, what))
    }
}

fn parse_function(text: &str) -> Result<String, String> {
    Function::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
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
    pub const fn is_on(&self) -> bool {
        self.pollute_buffer.is_some()
    }

    /// The buffer is to have these colours, whichever part of them was asked for.
    pub fn hold(&mut self, colors: &str) {
        self.held = Some(colors.to_owned());
    }

    /// The part that is the buffer, if there is to be one.
    pub fn part(&self) -> Option<CachePart> {
        let asked = self.pollute_buffer.as_ref()?;
        if let Some(colors) = &self.held {
            return Some(CachePart::Colors(colors.clone()));
        }
        match asked {
            PolluteChoice::Part(part) => Some(part.clone()),
            PolluteChoice::By(policy) => CachePart::of(policy),
        }
    }

    /// The policy that chooses its pages.
    pub fn policy(&self) -> Policy {
        let short = self.pollute_search.unwrap_or(PolluteSearch::Model).policy();
        match &self.pollute_buffer {
            Some(PolluteChoice::By(policy)) => policy.clone(),
            _ => Policy::parse(short).unwrap_or_else(|_| unreachable!("the registry has it")),
        }
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

    /// Refuses a measure of progress that the sensor does not go by, and two policies.
    pub fn check(&self) -> Result<(), CmdError> {
        if let (Some(PolluteChoice::By(policy)), Some(_)) =
            (&self.pollute_buffer, self.pollute_search)
        {
            let what =
                format!("--pollute-buffer says {policy} already; leave out --pollute-search");
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        if self.pollute_progress.is_some() && self.pollute_sensor == PolluteSensor::Pmu {
            let what = "counted instructions tell of progress; leave out --pollute-progress or --pollute-sensor";
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        Ok(())
    }

    /// Why this machine lacks the sensor that is asked for.
    pub fn lacking(&self, cache: &CacheGeometry) -> Option<String> {
        let sensor = self.sensor().filter(|_| self.is_on() && self.confine.is_empty())?;
        let why = lacking(sensor, cache.level, cache.last_level)?;
        Some(format!("{why} (--pollute-sensor residency)"))
    }

    /// A buffer for processes of which nothing else is confined, as a partition to ask for.
    pub fn alone(&self, args: &PartitionArgs) -> Result<PartitionArgs, CmdError> {
        if let Some(why) = self.lacking(&partition::chosen_cache(args.level())?) {
            return Err(CmdError::new(ExitCode::Kernel, why));
        }
        let mut wanted = args.clone();
        let part = self.part();
        if let Some(CachePart::Colors(text)) = part {
            wanted.colors = Some(text);
            return Ok(wanted);
        }
        let colors = partition::colors_of(args.level(), args.colors_from.as_ref())?;
        let count = part.and_then(|part| part.count(colors));
        let part = f64::from(count.unwrap_or(1)) / f64::from(colors);
        // A little more than the part, for rounding goes down.
        wanted.share = Some(format!("{:.3}%", (100.0 * part + 0.001).min(100.0)));
        Ok(wanted)
    }

    /// What is asked for, in a line.
    pub fn line(&self) -> Option<String> {
        let (part, policy) = (self.part()?, self.policy());
        Some(format!("a pollute buffer of {part} of its colours, by {policy}"))
    }

    /// What the options say of a buffer in a cache.
    fn settings(&self, buffer: ColorSet, context: &Context<'_>) -> Settings {
        let cache = context.cache;
        Settings {
            buffer,
            level: cache.level,
            is_last: cache.last_level,
            sensor: self.sensor(),
            progress: self.pollute_progress.as_deref().and_then(|text| Function::parse(text).ok()),
            cache_bytes: cache.size_bytes,
            ways: u16::try_from(cache.ways).unwrap_or(u16::MAX),
            probed: context.provenance == Provenance::Probed,
            computed: computed(context),
            policy: self.policy(),
            cpu: self.pollute_cpu,
            fixed: (!self.confine.is_empty()).then(|| self.confine.clone()),
        }
    }
}

/// Confines pages that pollute.
struct PolluteService {
    polluters: Polluters,
    /// Whether all else is confined too: then the policy knows the cache as the group has it.
    confined: bool,
    /// The colours of the buffer.
    buffer: ColorSet,
    /// Whether processes are found by their parents.
    below: bool,
    members: Vec<i32>,
}

/// Starts the service; see [`super::Service`].
pub fn start(
    options: &PolluteArgs,
    context: &Context<'_>,
) -> Result<Option<Box<dyn Service>>, CmdError> {
    if !options.is_on() {
        return Ok(None);
    }
    if let Some(why) = options.lacking(context.cache) {
        return Err(CmdError::new(ExitCode::Kernel, why));
    }
    let confined = context.colors.buffer.is_some();
    let model = model(context.colors);
    if model.len() == model.universe() {
        let what = "the buffer has all colours, so that nothing would be confined; give it fewer";
        return Err(CmdError::new(ExitCode::Colors, what));
    }
    let settings = options.settings(model, context);
    Ok(Some(Box::new(PolluteService {
        polluters: Polluters::new(settings, context.roots.clone()),
        confined,
        buffer: buffer(context.colors).clone(),
        below: matches!(context.roots, ProcessRoots::Below(_)),
        members: Vec::new(),
    })))
}

/// How colours follow from frame numbers, where the buffer is all that is asked for: pages of a partition are
/// somebody else's to move.
fn computed(context: &Context<'_>) -> Option<ColorMap> {
    match context.source.method() {
        ColorMethod::Computed(map) if context.colors.buffer.is_none() => Some(map),
        _ => None,
    }
}

fn buffer(colors: &DividedColors) -> &ColorSet {
    colors.buffer.as_ref().unwrap_or(&colors.own)
}

/// The buffer in the cache as the group has it: so many colours, of which the last are the buffer.
fn model(colors: &DividedColors) -> ColorSet {
    let Some(buffer) = &colors.buffer else { return colors.own.clone() };
    let all = ColorSet::all(colors.held.len().max(1));
    let first = all.len().saturating_sub(buffer.len());
    let mut model = ColorSet::empty(all.universe());
    all.iter().skip(usize::from(first)).for_each(|color| _ = model.insert(color));
    model
}

impl Service for PolluteService {
    fn admit(&mut self, members: &[i32]) {
        if self.below {
            return;
        }
        self.polluters.set_roots(ProcessRoots::With(members.to_vec()));
        if self.confined {
            let gone = self.members.iter().filter(|pid| !members.contains(pid));
            gone.for_each(|&pid| self.polluters.release(pid));
        }
        self.members = members.to_vec();
    }

    fn tick(&mut self, group: &mut Group, _members: &[i32]) {
        self.polluters.poll_processes(group);
        if self.confined && !self.below {
            // Who looks after a group for long does not keep what is known of those that ended.
            drop(self.polluters.take_ended());
        }
    }

    fn release(&mut self, pid: i32) {
        self.polluters.release(pid);
    }

    fn recolor(&mut self, colors: &DividedColors) {
        self.polluters.set_buffer(model(colors));
        self.buffer = buffer(colors).clone();
    }

    fn report(&self, into: &mut Reports) {
        let mut report = self.polluters.report();
        // The policy knows only how many colours there are.
        (report.buffer, report.of) = (self.buffer.to_string(), self.buffer.universe());
        into.pollute = Some(report);
    }

    fn withdraw(self: Box<Self>) {
        drop_behind(self.polluters);
    }

    fn turn(&self) -> Option<Duration> {
        super::move_turn(self.polluters.move_pages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::run::parsed_plan as run;

    #[test]
    fn a_buffer_has_a_size_or_colours() {
        let buffer = |args: &[&str]| run(args).map(|args| args.pollute.part().unwrap());
        assert_eq!(buffer(&["--pollute-buffer"]), Ok(CachePart::Of(1.0 / 16.0)));
        assert_eq!(buffer(&["--pollute-buffer", "1/8"]), Ok(CachePart::Of(0.125)));
        assert_eq!(buffer(&["--pollute-buffer=6.25%"]), Ok(CachePart::Of(1.0 / 16.0)));
        assert_eq!(buffer(&["--pollute-buffer=0-1"]), Ok(CachePart::Colors("0-1".to_owned())));
        assert_eq!(buffer(&["--pollute-buffer=2 colors"]), Ok(CachePart::Count(2)));
        for wrong in ["3/2", "0/4", "100%", "0 colors"] {
            assert!(buffer(&["--pollute-buffer", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_policy_may_be_named_with_its_keys_or_in_short() {
        let args = |args: &[&str]| run(args).unwrap().pollute;
        let named = args(&["--pollute-buffer=rocs-model:buffer=1/8,margin=2%"]);
        assert_eq!(
            (named.part(), named.policy().ratio("margin")),
            (Some(CachePart::Of(0.125)), Some(0.02))
        );
        assert!(named.line().unwrap().ends_with("by rocs-model:buffer=0.125,margin=0.02"));
        let short = args(&["--pollute-buffer", "--pollute-search", "empirical"]);
        assert_eq!(
            (short.part(), short.policy().name()),
            (Some(CachePart::Of(1.0 / 16.0)), "rocs")
        );
        assert_eq!(args(&["--pollute-buffer"]).policy().name(), "rocs-model");
        assert_eq!(args(&["--pollute-buffer=rocs"]).part(), short.part());
        let both = args(&["--pollute-buffer=rocs", "--pollute-search", "model"]);
        assert!(both.check().unwrap_err().message.contains("leave out --pollute-search"));
        assert!(short.check().is_ok() && named.check().is_ok());
        for wrong in ["rocs:buffer=0", "rocs:buffer=1", "rocs:x=1", "srm", "zzz"] {
            assert!(run(&["--pollute-buffer", wrong]).is_err(), "{wrong}");
        }
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
    fn the_buffer_moves_no_more_than_it_has_to() {
        let set = |text: &str| ColorSet::parse(text, 16).unwrap();
        let choose = |part: &CachePart, colors: &str, before: Option<&str>| {
            part.choose(&set(colors), before.map(set).as_ref()).unwrap()
        };
        let half = CachePart::Of(0.5);
        assert_eq!(choose(&half, "0-7", None), set("4-7"));
        assert_eq!(choose(&half, "0-9", Some("4-7")), set("4-7,9"));
        assert_eq!(choose(&half, "0-5", Some("4-7")), set("3-5"));
        assert_eq!(choose(&CachePart::Count(9), "0-3", None), set("1-3"));
        assert_eq!(choose(&CachePart::Of(1.0 / 16.0), "5", None).len(), 0);
        assert_eq!(
            (CachePart::Of(1.0 / 3.0).count(3), CachePart::Of(0.01).count(3)),
            (Some(1), Some(1))
        );
        let named = CachePart::Colors("2-3".to_owned());
        assert_eq!(choose(&named, "0-3", None), set("2-3"));
        for colors in ["0-2", "2-3"] {
            assert_eq!(named.choose(&set(colors), None).unwrap_err().code, ExitCode::Colors);
        }
    }

    #[test]
    fn the_policy_sees_the_cache_as_the_group_has_it() {
        let set = |text: &str, of| ColorSet::parse(text, of).unwrap();
        let part = |held: &str, buffer: &str| DividedColors {
            held: set(held, 16),
            own: set(held, 16).difference(&set(buffer, 16)),
            buffer: Some(set(buffer, 16)),
            files: set(held, 16),
        };
        assert_eq!(model(&part("0-7", "6-7")), set("6-7", 8));
        assert_eq!(model(&part("4-7", "4")), set("3", 4));
    }
}
