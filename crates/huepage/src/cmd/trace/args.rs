//! The arguments of `huepage trace` and the help that explains them.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use huepage_sim::trace::Format;

use crate::values::parse_count;

const EXAMPLES: &str = "\
Examples:
  huepage trace -o gcc.trace -- gcc -O2 -c big.c    a program and its children
  huepage trace import lackey.out.xz -o gcc.trace   a trace of another tool
  huepage trace info gcc.trace                      what it holds, at once
  huepage trace slice gcc.trace --from 1M --count 5M -o part.trace
  huepage trace merge a.trace b.trace -o both.trace two programs side by side";

/// Record the memory accesses of a program; look at traces, cut, merge and import them
///
/// `huepage trace -- CMD` records. Every command reads the project's own traces and those of valgrind's lackey, Dinero and
/// ChampSim, and raw addresses, also packed by gzip or xz; `-` is standard input.
#[derive(Args, Debug)]
#[command(
    after_long_help = EXAMPLES,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct TraceArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<TraceCommand>,

    #[command(flatten)]
    pub record: super::record::TraceRecordArgs,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum TraceCommand {
    Info(TraceInfoArgs),
    Head(HeadArgs),
    Stats(StatsArgs),
    Slice(SliceArgs),
    Merge(TraceMergeArgs),
    Import(ImportArgs),
}

/// A trace to read.
#[derive(Args, Debug)]
pub struct From {
    /// The trace; `-` for standard input
    #[arg(value_name = "TRACE")]
    pub path: PathBuf,

    /// Its format, if it cannot be told: huepage, lackey, din, champsim, drmemtrace, raw or raw-loads
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,
}

/// A trace to write.
#[derive(Args, Debug)]
pub struct To {
    /// The trace to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,

    /// Overwrite it if it exists
    #[arg(long)]
    pub force: bool,
}

/// Show what a trace is of and how much it holds
///
/// Takes the counts from the index at its end. A trace without one is read to its end or to
/// the damage; what is usable is shown, and the damage reported.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  huepage trace info gcc.trace
  huepage trace info --check gcc.trace && echo sound
  huepage trace info gcc.trace --json | jq .records")]
pub struct TraceInfoArgs {
    #[command(flatten)]
    pub from: From,

    /// Read all of it and check every block
    #[arg(long)]
    pub check: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Print the first accesses of a trace
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  huepage trace head gcc.trace
  huepage trace head -n 3 --from 1M gcc.trace
  huepage trace head -n 1000 --json gcc.trace | jq -s 'map(.bytes) | add'")]
pub struct HeadArgs {
    #[command(flatten)]
    pub from_trace: From,

    /// How many
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = parse_count)]
    pub count: u64,

    /// The number of the first, from 0
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse_count)]
    pub from: u64,

    /// Print a line of JSON for each
    #[arg(long)]
    pub json: bool,
}

/// Count the accesses of a trace by kind, space, thread and page
///
/// Reads the whole trace; memory grows with the pages it touches.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  huepage trace stats gcc.trace
  huepage trace stats --top 100 gcc.trace
  huepage trace stats gcc.trace --json | jq .pages")]
pub struct StatsArgs {
    #[command(flatten)]
    pub from: From,

    /// How many of the most accessed pages to list
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Copy a part of a trace to a new one
///
/// Seeks where the trace is the project's own. Of a damaged trace, what comes before the
/// damage is copied: that is how to save it.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  huepage trace slice gcc.trace --from 1M --count 500k -o part.trace
  huepage trace slice gcc.trace --skip-instructions 1G -o warm.trace
  huepage trace slice damaged.trace -o saved.trace")]
pub struct SliceArgs {
    #[command(flatten)]
    pub from_trace: From,

    #[command(flatten)]
    pub to: To,

    /// The number of the first access to copy, from 0
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = parse_count)]
    pub from: u64,

    /// Accesses to copy [default: all]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    pub count: Option<u64>,

    /// Begin after that many instructions
    #[arg(long, value_name = "N", conflicts_with = "from", value_parser = parse_count)]
    pub skip_instructions: Option<u64>,
}

/// Interleave traces, as if their programs ran side by side
///
/// Accesses are ordered by the instructions that each trace has retired; a trace that counts
/// none advances by one at each access. Every address space of every trace gets a number of
/// its own.
#[derive(Args, Debug)]
#[command(after_long_help = "\
Example:
  huepage trace merge gcc.trace sqlite.trace -o both.trace")]
pub struct TraceMergeArgs {
    /// The traces, two or more
    #[arg(value_name = "TRACE", required = true, num_args = 2..)]
    pub paths: Vec<PathBuf>,

    /// Their format, if it cannot be told: huepage, lackey, din, champsim, drmemtrace, raw or raw-loads
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<Format>,

    #[command(flatten)]
    pub to: To,
}

/// Take over a trace of another tool
///
/// Reads valgrind's lackey (`--trace-mem=yes`), Dinero's din, ChampSim's instructions and raw
/// little-endian 64-bit addresses (`raw`: the top bit marks stores; `raw-loads`: all load).
#[derive(Args, Debug)]
#[command(after_long_help = "\
Examples:
  huepage trace import 429.mcf.champsimtrace.xz -o mcf.trace
  huepage trace import --format raw addresses.bin -o walk.trace
  valgrind --tool=lackey --trace-mem=yes --log-fd=9 ls 9>&1 >/dev/null |
      huepage trace import - --program ls -o ls.trace")]
pub struct ImportArgs {
    #[command(flatten)]
    pub from: From,

    #[command(flatten)]
    pub to: To,

    /// The program that was traced, for the header [default: the file's name]
    #[arg(long, value_name = "NAME")]
    pub program: Option<String>,
}
