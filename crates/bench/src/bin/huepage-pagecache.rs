//! `huepage-pagecache`: readers of cached files, hot sets beside them, and load. Each command
//! does one thing and prints one line of JSON; see `huepage_bench::pagecache`.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use huepage_bench::ended;
use huepage_bench::pagecache::{beside, load, scan};
use serde_json::Value;

/// Read cached files, walk a hot set beside it, or make load
#[derive(Parser)]
#[command(
    version,
    after_help = "Example:\n  huepage-pagecache beside --file f --kib 256,512 --cpu 0"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A hot set with scans of a file between its laps
    Beside(beside::ScannedWalk),
    /// A hot set until standard input ends
    Hot(beside::Hot),
    /// A file from end to end, again and again
    Repeat(scan::Repeat),
    /// Random pages of a file
    Random(scan::RandomReads),
    /// Fault pages in until told to stop
    Hog(load::Hog),
    /// Read files from the disk until told to stop
    Readers(load::Readers),
    /// Hold memory until told to stop
    Hold(load::HoldMemory),
}

fn run(command: &Command) -> io::Result<()> {
    let found: Value = match command {
        Command::Beside(options) => serde_json::to_value(beside::beside(options)?),
        Command::Hot(options) => serde_json::to_value(beside::hot(options)?),
        Command::Repeat(options) => serde_json::to_value(scan::repeat(options)?),
        Command::Random(options) => serde_json::to_value(scan::random(options)?),
        Command::Hog(options) => serde_json::to_value(load::hog(*options)?),
        Command::Readers(options) => serde_json::to_value(load::readers(options)?),
        Command::Hold(options) => serde_json::to_value(load::hold(*options)?),
    }?;
    println!("{found}");
    Ok(())
}

fn main() -> ExitCode {
    ended(
        "huepage-pagecache",
        run(&Cli::parse().command),
        "check the file, --cpu and that you are root",
    )
}
