//! The arguments of `huepage sim` and the help that explains them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, FromArgMatches as _, Subcommand, ValueEnum};
use huepage_sim::experiment::{FrameMapping, Shard, Sweep};
use huepage_sim::partial::SamplePlan;
use huepage_sim::workloads::WorkloadSpec;

use crate::cmd::policy::PolicyChoice;
use crate::values::parse_count;

const EXAMPLES: &str = "\
Examples:
  huepage sim -m cascade-lake gcc.trace
  huepage sim -m m.toml -w art -w swim --colors 0-3 --colors 4-31
  huepage sim -m m.toml -w mesh --policy snapshot-miss:period=5000
  huepage sim -m m.toml gcc.trace --sweep l3.size=1M,2M,4M --svg misses.svg
  huepage sim -m m.toml gcc.trace --level 2 --sweep colors=1..16 --csv
  huepage sim -m m.toml gcc.trace --threads 2
  huepage sim -m m.toml gcc.trace --heat pages --svg pages.svg
  huepage sim -m m.toml gcc.trace --sample 100:50k --warm-up 2M
  huepage sim -m m.toml gcc.trace --window 3/8 --json > 3.jsonl
  huepage sim -m m.toml gcc.trace --sweep seed=1..5 --resume all.jsonl
  huepage sim -m m.toml p.trace --sweep colors=1..8 --shard 2/8 --json > 2.jsonl
  huepage sim merge *.jsonl > all.jsonl

m.toml is a file of yours; the names of files in `machines/` do without one. Ctrl-C and SIGTERM end a sweep with 128 and the \
signal's number; the output has the finished points, and with --resume the same command does the rest.";

const MERGE_EXAMPLES: &str = "\
Examples:
  huepage sim merge 1.jsonl 2.jsonl 3.jsonl > all.jsonl
  huepage sim merge part-*.jsonl --csv > all.csv";

/// Run traces or built-in workloads on a simulated machine
///
/// Caches, TLBs and the operating system's choice of frames in one pass: misses are counted
/// exactly. Machines are described by files; those of `machines/` are built in.
#[derive(Args, Debug)]
#[command(
    after_long_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct SimArgs {
    /// What to do instead of running.
    #[command(subcommand)]
    pub command: Option<SimCommand>,

    #[command(flatten)]
    pub run: SimRunArgs,
}

/// Other commands.
#[derive(Subcommand, Debug)]
pub enum SimCommand {
    Merge(SweepMergeArgs),
}

/// A run.
#[derive(Args, Debug, Clone)]
pub struct SimRunArgs {
    /// The machine's description
    #[arg(short, long, value_name = "FILE", required_unless_present = "policy")]
    pub machine: Option<PathBuf>,

    /// Traces to run, each a program of its own; any format that `huepage trace` reads
    #[arg(value_name = "TRACE")]
    pub traces: Vec<PathBuf>,

    /// A built-in workload, for instance art or art:size=3M,seed=7; may be repeated
    #[arg(short, long, value_name = "NAME[:KEY=VALUE,…]")]
    pub workload: Vec<WorkloadSpec>,

    /// The policy that governs every program; `list` lists all, `NAME:help` the keys of one
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]")]
    pub policy: Option<PolicyChoice>,

    /// How frames are chosen: in-order, random, random:SEED, coloring, bin-hopping, reservation:ORDER, or
    /// identity for traces of physical addresses
    /// [default: random:1, or what the policy needs]
    #[arg(long, value_name = "CHOICE")]
    pub mapping: Option<FrameMapping>,

    /// Partition of a program, by order of the programs; the last one is that of the rest
    #[arg(long, value_name = "SET")]
    pub colors: Vec<String>,

    /// The cache level that colours are of [default: the farthest with more than one]
    #[arg(long, value_name = "N")]
    pub level: Option<u8>,

    /// Let pages lie anywhere at first and have the live engine's policy move them, looking
    /// every so many cycles: short for --policy static:every=CYCLES
    #[arg(long, value_name = "CYCLES", requires = "colors", conflicts_with = "policy",
          value_parser = parse_count)]
    pub audit: Option<u64>,

    /// Spoil this share (0 to 1) of memory's large blocks beforehand
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = parse_share)]
    pub fragment: f64,

    /// Cycles that a program runs before the next one on its core
    #[arg(long, value_name = "CYCLES", default_value_t = 10_000_000,
          value_parser = parse_quantum)]
    pub quantum: u64,

    /// Begin programs again until every one has ended once
    #[arg(long)]
    pub restart: bool,

    /// Count nothing before so many accesses of each program, or `all` before a window
    /// [default: 0; 1000000 before each part with --window and --sample]
    #[arg(long, value_name = "ACCESSES", value_parser = parse_warm_up)]
    pub warm_up: Option<u64>,

    /// End each program after so many accesses
    #[arg(long, value_name = "ACCESSES", default_value_t = u64::MAX, hide_default_value = true,
          value_parser = parse_count)]
    pub limit: u64,

    /// Run by so many threads where the machine's caches can be divided: LRU, write-back, no policy, one program
    ///
    /// Counts are those of one thread. The points of a sweep share the machine's CPUs without it.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["sweep", "policy", "window", "sample"],
          value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// Count only one of so many equal parts of a trace, such as 3/8
    ///
    /// All before it is skipped, but for the accesses of --warm-up: they fill caches and TLBs. `huepage sim merge`
    /// adds windows up; with --warm-up all their sum is the run of the whole trace.
    #[arg(long, value_name = "I/N", conflicts_with_all = ["sample", "restart"])]
    pub window: Option<Shard>,

    /// Count only so many short parts of a trace, evenly spread, and tell how sure their rates are
    ///
    /// A part is 100000 accesses long, or as said. Each is warmed as a window is, and finds what is left of the one
    /// before.
    #[arg(long, value_name = "PARTS[:ACCESSES]", conflicts_with = "restart")]
    pub sample: Option<SamplePlan>,

    /// Also run the whole trace, and tell how far --window or --sample is from it
    #[arg(long)]
    pub against_whole: bool,

    /// Vary a number: colors=1..16, seed=1..9, memory=1G,2G, audit, fragment, l2.size, policy.KEY, …
    ///
    /// Repeated, every combination is run. Runs share the machine's CPUs.
    #[arg(long, value_name = "KEY=VALUES")]
    pub sweep: Vec<Sweep>,

    /// Run only a part of the sweep's points, such as 1/8
    #[arg(long, value_name = "I/N", requires = "sweep")]
    pub shard: Option<Shard>,

    /// Print one JSON object per run and line
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,

    /// Print comma-separated values, a line per run
    #[arg(long)]
    pub csv: bool,

    /// What the heat map shows
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = HeatOf::Colors)]
    pub heat: HeatOf,

    /// Also draw the result into an SVG file: of a sweep the misses, else the heat map
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Also write tables and the drawing into a page of HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Keep finished points in a file, and do only those that are not in it
    ///
    /// The file is made if it is not there. It holds JSON lines that `huepage sim merge` reads.
    #[arg(long, value_name = "FILE", requires = "sweep")]
    pub resume: Option<PathBuf>,
}

/// The run of these options and traces, which begin with no name of a program.
///
/// # Errors
/// As clap has them.
pub fn parse(words: Vec<OsString>) -> Result<SimRunArgs, clap::Error> {
    let command = SimRunArgs::augment_args(clap::Command::new("sim").no_binary_name(true));
    SimRunArgs::from_arg_matches(&command.try_get_matches_from(words)?)
}

/// What a heat map shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HeatOf {
    /// Misses by colour, a line for each point of a sweep
    Colors,
    /// Misses per page, by region of memory
    Pages,
    /// Accesses per page, by region of memory
    Accesses,
}

/// Put the results of a sweep's parts together, in the order of the whole sweep; add windows up
#[derive(Args, Debug)]
#[command(after_long_help = MERGE_EXAMPLES, after_help = MERGE_EXAMPLES)]
pub struct SweepMergeArgs {
    /// Files that `huepage sim` wrote: JSON lines (--json, --resume)
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// Print comma-separated values instead of JSON lines
    #[arg(long)]
    pub csv: bool,
}

fn parse_warm_up(text: &str) -> Result<u64, String> {
    if text == "all" {
        Ok(u64::MAX)
    } else {
        parse_count(text).map_err(|e| format!("{e}, or `all`"))
    }
}

fn parse_quantum(text: &str) -> Result<u64, String> {
    let cycles = parse_count(text)?;
    if cycles >= 1000 { Ok(cycles) } else { Err("expected 1000 cycles or more".to_owned()) }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "expected a number from 0 to 1".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("expected 0 to 1".to_owned()) }
}
