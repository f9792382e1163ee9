//! `huepage-conflict`: lines that are used again and again, or not. Each command does one thing and prints
//! JSON; see `huepage_bench::conflict`.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use huepage_bench::conflict::{ConflictOptions, VisitOrder, run};
use huepage_bench::{ended, sys};

/// Walk through memory that fits the cache, through more than fits, or scan
#[derive(Parser)]
#[command(version, after_help = "Example:\n  huepage-conflict hot --cache-kib 2048 --seconds 5")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A walk through half of the cache
    Hot(ConflictOptions),
    /// A walk through three caches
    Large(ConflictOptions),
    /// A scan of sixteen caches
    Stream(ConflictOptions),
}

fn start(command: &Command) -> io::Result<()> {
    let (Command::Hot(options) | Command::Large(options) | Command::Stream(options)) = command;
    options.cpu.map_or(Ok(()), sys::pin)?;
    match command {
        Command::Hot(options) => run(options, 0.5, VisitOrder::Walk),
        Command::Large(options) => run(options, 3.0, VisitOrder::Walk),
        Command::Stream(options) => run(options, 16.0, VisitOrder::Scan),
    }
}

fn main() -> ExitCode {
    ended(
        "huepage-conflict",
        start(&Cli::parse().command),
        "try a smaller --cache-kib or another --cpu",
    )
}
