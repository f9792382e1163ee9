//! `huepage-superpages`: programs whose speed hangs on the TLB. Each command does one thing and
//! prints one line of JSON; see `huepage_bench::superpages`.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use huepage_bench::ended;
use huepage_bench::superpages::{btree, cg, gups, heartbeat, pace, sparse};

/// Update a table, look up a tree, solve, walk a sparse array, or feel for stalls
#[derive(Parser)]
#[command(version, after_help = "Example:\n  huepage-superpages gups --mib 512 --seconds 5")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random updates of a table
    Gups(gups::Gups),
    /// Random look-ups in a B-tree
    Btree(btree::Btree),
    /// Conjugate gradients on a sparse matrix
    Cg(cg::Cg),
    /// A walk through a sparse array
    Sparse(sparse::Sparse),
    /// Random updates, and the longest stall of a thread beside them
    Heartbeat(heartbeat::Heartbeat),
}

fn run(command: &Command) -> io::Result<()> {
    match command {
        Command::Gups(options) => gups::run(options),
        Command::Btree(options) => btree::run(options),
        Command::Cg(options) => cg::run(options),
        Command::Sparse(options) => sparse::run(options),
        Command::Heartbeat(options) => heartbeat::run(options),
    }
}

fn main() -> ExitCode {
    pace::born();
    ended("huepage-superpages", run(&Cli::parse().command), "try smaller sizes")
}
