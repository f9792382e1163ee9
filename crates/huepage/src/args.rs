//! The command line: every command, every option, and the help that explains them.
//!
//! Values that need to know the machine (is colour 40 one of its colours?) are checked by the
//! commands; only what can be judged from the text alone is judged here.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use huepage_linux::containers::ContainerId;
use serde::{Deserialize, Serialize};

use crate::cmd::page_cache::args::PageCacheArgs;
use crate::exit;

/// Give any Linux program its own share of the processor cache
///
/// huepage moves the pages of a running, unmodified program to physical frames that use only
/// some sets of the cache (its colours). It needs no special hardware and no patched kernel.
#[derive(Parser, Debug)]
#[command(name = "huepage", version, max_term_width = 100, after_long_help = long_footer())]
#[command(after_help = "Start with `huepage info`. Exit statuses: `huepage --help`.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    Run(RunArgs),
    Attach(AttachArgs),
    Detach(DetachArgs),
    Inspect(InspectArgs),
    Info(InfoArgs),
    Doctor(crate::cmd::doctor::DoctorArgs),
    Demo(DemoArgs),
    Trace(crate::cmd::trace::args::TraceArgs),
    Sim(crate::cmd::sim::args::SimArgs),
    Experiment(crate::cmd::experiment::args::ExperimentArgs),
    Group(crate::cmd::group::args::GroupArgs),
    Daemon(crate::cmd::daemon::DaemonArgs),
    Ctl(crate::cmd::ctl::CtlArgs),
    Profile(crate::cmd::profile::args::ProfileArgs),
    Probe(crate::cmd::probe::args::ProbeArgs),
    /// Place files for a supervisor
    #[command(name = crate::cmd::page_cache::SERVICE, hide = true)]
    PageCacheService,
    Warm(crate::cmd::warm::args::WarmArgs),
    Record(crate::cmd::record::RecordArgs),
    Replay(crate::cmd::replay::ReplayArgs),
    Top(crate::cmd::top::TopArgs),
}

fn long_footer() -> String {
    format!(
        "Examples:\n  \
         huepage info                         what this machine's caches are like\n  \
         huepage doctor                       what works here, measured in some seconds\n  \
         huepage run --share 50% -- xz -k f   run a program in half the L2 cache\n  \
         huepage demo                         see it work, in half a minute\n\n{}",
        exit::help_table()
    )
}

const RUN_EXAMPLES: &str = "\
Examples:
  huepage run --share 25% -- sqlite3 my.db < queries.sql
  huepage run --colors 0-7 -- python3 script.py
  huepage run --level llc --colors 0-3,12 --colors-from pfn -- ./server
  huepage run --share 50% --report run.json -q -- make -j2
  huepage run --share 25% --wait -- ./benchmark
  huepage run --page-cache srm -- grep -r error /srv/logs
  huepage run --superpages approx-online -- ./solver
  huepage run --pollute-buffer -- ./join
  huepage run --recolor-conflicts -- ./solver

Standard input and output, signals and the exit status are the program's own. Statuses of
huepage itself (100-127) are listed by `huepage --help`.";

/// Run a program inside a share of the cache
///
/// Starts CMD, keeps its memory in frames of the chosen colours, and does the same for its
/// children. What cannot be moved (shared memory, private file pages, pinned pages) is left
/// alone, counted and reported.
#[derive(Args, Debug)]
#[command(after_long_help = RUN_EXAMPLES, mut_arg("colors", or_alone))]
pub struct RunArgs {
    #[command(flatten)]
    pub partition: PartitionArgs,

    /// Find colours and gather frames before the program starts, so that all of its pages come in them
    ///
    /// Without it the program starts at once: pages that come before colours are known lie anywhere, and
    /// are moved while it runs. A program that ends before runs as it would without huepage. --strict, --text
    /// place, --page-cache and --superpages imply --wait.
    #[arg(long)]
    pub wait: bool,

    #[command(flatten)]
    pub page_cache: PageCacheArgs,

    #[command(flatten)]
    pub text: crate::text::TextArgs,

    #[command(flatten)]
    pub superpages: crate::superpages::SuperpageArgs,

    #[command(flatten)]
    pub pollute: crate::pollute::PolluteArgs,

    #[command(flatten)]
    pub conflicts: crate::conflicts::ConflictArgs,

    /// Write a report of the run to FILE, as JSON, when it ends
    ///
    /// The report holds pages per colour and kind of area, compliance, faults served, pages
    /// recoloured, and pages refused with the reason.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,

    /// Print the closing report on standard error as JSON instead of as text
    #[arg(long)]
    pub json: bool,

    /// Count cache misses of the program in hardware where that is possible, for the report
    #[arg(long)]
    pub counters: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// The program and its arguments
    #[arg(
        required = true,
        value_name = "CMD",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub command: Vec<OsString>,
}

/// The partition: which colours of which cache, and how its memory is handled.
#[derive(Args, Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PartitionArgs {
    /// The cache to partition
    #[arg(long, value_enum, default_value_t = Level::L2)]
    pub level: Level,

    /// The colours to use: a list, a bit mask or a share (0-7,12 or 0xff or 25%)
    ///
    /// `huepage info` says how many colours each cache has. Colours count from 0. `all` is all of
    /// them, `rest` what no running partition holds.
    #[arg(long, value_name = "SET", required_unless_present = "share", conflicts_with = "share")]
    pub colors: Option<String>,

    /// The share of the cache to use, for instance 25%
    ///
    /// Rounded down to whole colours; a share below one colour is an error.
    #[arg(long, value_name = "PERCENT")]
    pub share: Option<String>,

    /// How the colour of a frame is known [default: what `huepage info` finds]
    ///
    /// pfn: from the frame number, right on bare metal and in guests backed by huge pages;
    /// probe: measured by timing, right where the frame number says nothing; declared: from the
    /// frame number, on your word, nothing is measured; declared=FILE: by the hash in FILE, as
    /// `huepage probe hash --output` writes it.
    #[arg(long, value_name = "SOURCE", value_parser = parse_colors_from)]
    pub colors_from: Option<ColorsFrom>,

    /// Take frames of any colour when the partition has no memory left, and warn (the default)
    #[arg(long, conflicts_with = "strict")]
    pub fallback: bool,

    /// Wait for memory of the partition when it has none left, or end with status 109
    ///
    /// `run` implies --wait: frames are gathered before the program starts.
    #[arg(long)]
    pub strict: bool,

    /// Frames to keep ready for the program, for instance 64M [default: 32M]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub stock: Option<u64>,

    /// Pages placed at each fault, in one batch (1 to 512)
    #[arg(long, value_name = "PAGES", default_value_t = FAULT_AROUND,
          value_parser = clap::value_parser!(u32).range(1..=512))]
    pub fault_around: u32,

    /// Milliseconds a child lives before it is confined; shorter ones run as they are
    #[arg(long, value_name = "MS", default_value_t = CHILD_DELAY)]
    pub child_delay: u64,

    /// Recolour every page over and over (a test of the engine, never useful otherwise)
    #[arg(long, hide = true)]
    pub storm: bool,
}

/// Where something is done without a partition too, no colours are needed.
fn or_alone(colors: clap::Arg) -> clap::Arg {
    const OTHERS: [&str; 5] =
        ["share", "page_cache", "superpages", "pollute_buffer", "recolor_conflicts"];
    colors.required_unless_present_any(OTHERS)
}

impl Default for PartitionArgs {
    /// What the command line says when it says nothing.
    fn default() -> PartitionArgs {
        PartitionArgs {
            level: Level::L2,
            colors: None,
            share: None,
            colors_from: None,
            fallback: false,
            strict: false,
            stock: None,
            fault_around: FAULT_AROUND,
            child_delay: CHILD_DELAY,
            storm: false,
        }
    }
}

/// Pages placed at each fault, when nothing is said.
const FAULT_AROUND: u32 = 64;
/// Milliseconds a child lives before it is confined, when nothing is said.
const CHILD_DELAY: u64 = 20;

/// A cache that can be partitioned.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The second level, private to a core on most machines
    L2,
    /// The last level, shared by cores
    Llc,
}

/// Where colours come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ColorsFrom {
    /// From the frame number: right on bare metal and in guests backed by huge pages
    Pfn,
    /// Measured by timing: right where the frame number says nothing
    Probe,
    /// From the frame number, on your word: nothing is measured; by the hash of a file, or by
    /// plain bits
    Declared(Option<PathBuf>),
}

impl TryFrom<String> for ColorsFrom {
    type Error = String;

    fn try_from(text: String) -> Result<ColorsFrom, String> {
        parse_colors_from(&text)
    }
}

impl From<ColorsFrom> for String {
    fn from(from: ColorsFrom) -> String {
        match from {
            ColorsFrom::Pfn => "pfn".to_owned(),
            ColorsFrom::Probe => "probe".to_owned(),
            ColorsFrom::Declared(None) => "declared".to_owned(),
            ColorsFrom::Declared(Some(file)) => format!("declared={}", file.display()),
        }
    }
}

/// As on the command line.
pub fn parse_colors_from(text: &str) -> Result<ColorsFrom, String> {
    match (text, text.strip_prefix("declared=")) {
        ("pfn", _) => Ok(ColorsFrom::Pfn),
        ("probe", _) => Ok(ColorsFrom::Probe),
        ("declared", _) => Ok(ColorsFrom::Declared(None)),
        (_, Some(file)) if !file.is_empty() => Ok(ColorsFrom::Declared(Some(file.into()))),
        _ => Err("expected pfn, probe, declared or declared=FILE".to_owned()),
    }
}

const ATTACH_EXAMPLES: &str = "\
Examples:
  huepage attach --share 25% 4711              confine a running process
  huepage attach --colors 8-15 4711 4712       two processes in one partition
  huepage attach --share 50% --foreground 4711 stay, and undo with Ctrl-C
  huepage attach --page-cache srm 4711         only place the files that it opens
  huepage attach --superpages throttle 4711    only build superpages where they pay
  huepage attach --pollute-buffer=1/8 4711     only confine what pollutes the cache
  huepage attach --recolor-conflicts 4711      only spread pages that crowd a few colours";

/// Confine running processes to a share of the cache
///
/// Recolours what is resident and serves later faults from the chosen colours. A daemon stays
/// behind until `huepage detach` or the end of the processes.
#[derive(Args, Debug)]
#[command(after_long_help = ATTACH_EXAMPLES, mut_arg("colors", or_alone),
          mut_arg("pollute_buffer", |buffer| buffer.require_equals(true)))]
pub struct AttachArgs {
    #[command(flatten)]
    pub partition: PartitionArgs,

    #[command(flatten)]
    pub page_cache: PageCacheArgs,

    #[command(flatten)]
    pub text: crate::text::TextArgs,

    #[command(flatten)]
    pub superpages: crate::superpages::SuperpageArgs,

    #[command(flatten)]
    pub pollute: crate::pollute::PolluteArgs,

    #[command(flatten)]
    pub conflicts: crate::conflicts::ConflictArgs,

    /// Stay in the foreground; Ctrl-C detaches
    #[arg(long)]
    pub foreground: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// All processes of a container, those to come included: 12 or more digits of its identifier, or its
    /// name for containerd or runc
    #[arg(long, value_name = "ID")]
    pub container: Option<ContainerId>,

    /// The processes
    #[arg(required_unless_present = "container", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x40_0000))]
    pub pids: Vec<u32>,
}

/// Release a process: it keeps running, and its pages stay where they are
#[derive(Args, Debug)]
#[command(after_long_help = "Example:\n  huepage detach 4711")]
pub struct DetachArgs {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x40_0000))]
    pub pid: u32,
}

const INSPECT_EXAMPLES: &str = "\
Examples:
  huepage inspect 4711                colours, compliance and refusals of a process
  huepage inspect 4711 --verify 1000  measure 1000 of its pages now, and say how many were as believed
  huepage inspect 4711 --json | jq .compliance";

/// Show where the pages of a process are
///
/// Pages per colour and per kind of area, compliance, faults served, pages recoloured, and
/// pages refused with the reason.
#[derive(Args, Debug)]
#[command(after_long_help = INSPECT_EXAMPLES)]
pub struct InspectArgs {
    /// The process
    #[arg(value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x40_0000))]
    pub pid: u32,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Measure the colours of N sampled pages again
    #[arg(long, value_name = "N")]
    pub verify: Option<usize>,
}

const INFO_EXAMPLES: &str = "\
Examples:
  huepage info
  huepage info --json | jq .verdict
  huepage info --no-probe    without the measurement: at once, and with no load";

/// Show caches, colours, kernel features and privileges of this machine
///
/// Ends with the verdict on colours: does the frame number select cache sets here, or must
/// colours be probed? The verdict is measured, which takes a second or two and needs root.
#[derive(Args, Debug)]
#[command(after_long_help = INFO_EXAMPLES)]
pub struct InfoArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Skip the measurement, and with it the verdict
    #[arg(long)]
    pub no_probe: bool,
}

const DEMO_EXAMPLES: &str = "\
Examples:
  huepage demo
  huepage demo --svg staircase.svg";

/// Show on this machine what a share of the cache does
///
/// Takes half a minute, 45 seconds at most: the latency of a random walk in fewer and fewer
/// colours, a hot set beside a stream that is confined and not, and a real program in half the
/// colours. It runs before others meanwhile (niceness -5). What this machine is too busy to show is
/// told with the reason; the rest is shown.
#[derive(Args, Debug)]
#[command(after_long_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Draw the latency staircase to FILE
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Fewer footprints and repetitions: less than half the time, more noise
    #[arg(long)]
    pub quick: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Reads a size in bytes: a whole number, alone or with K, M or G (powers of 1024).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let expected = || format!("`{text}` is not a size; write for instance 512K, 32M or 1G");
    let (digits, shift) = match text.chars().last() {
        Some('k' | 'K') => (&text[..text.len() - 1], 10),
        Some('m' | 'M') => (&text[..text.len() - 1], 20),
        Some('g' | 'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: u64 = digits.parse().map_err(|_| expected())?;
    let bytes = number.checked_mul(1 << shift).ok_or_else(expected)?;
    if bytes == 0 { Err(expected()) } else { Ok(bytes) }
}

/// What `huepage run OPTIONS -- ls` is taken for, or what is said against it.
#[cfg(test)]
pub fn parsed_run(options: &[&str]) -> Result<RunArgs, String> {
    let words = [&["huepage", "run"], options, &["--", "ls"]].concat();
    match Cli::try_parse_from(words).map_err(|e| e.to_string())?.command {
        Command::Run(args) => Ok(args),
        other => panic!("{other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_take_suffixes() {
        assert_eq!(parse_size("32M"), Ok(32 << 20));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("2g"), Ok(2 << 30));
    }

    #[test]
    fn bad_sizes_say_what_was_expected() {
        for bad in ["", "M", "0", "-1M", "1.5G", "99999999999G", "é"] {
            let error = parse_size(bad).unwrap_err();
            assert!(error.contains("32M"), "{bad}: {error}");
        }
    }

    #[test]
    fn options_after_the_program_are_the_program_s() {
        let cli =
            Cli::try_parse_from(["huepage", "run", "--share", "50%", "--", "ls", "--json", "-q"]);
        let Command::Run(run) = cli.unwrap().command else { panic!("not run") };
        assert_eq!(run.command, ["ls", "--json", "-q"]);
        assert!(!run.json && !run.quiet);
    }

    #[test]
    fn colors_and_share_exclude_each_other_and_one_is_needed() {
        assert!(Cli::try_parse_from(["huepage", "run", "--", "ls"]).is_err());
        let both = ["huepage", "run", "--share", "50%", "--colors", "1", "--", "ls"];
        assert!(Cli::try_parse_from(both).is_err());
    }
}
