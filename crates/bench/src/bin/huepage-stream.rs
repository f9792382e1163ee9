//! `huepage-stream`: reads a footprint from end to end, again and again or in turns with
//! `huepage-walk`. It prints the number of passes; see `huepage_bench::walk`.

use std::process::ExitCode;

use clap::Parser;
use huepage_bench::ended;
use huepage_bench::walk::{self, WalkOptions};

/// Stream over a footprint, polluting the cache
#[derive(Parser)]
#[command(version, after_help = "Example:\n  huepage-stream --kib 1024 --seconds 2 --cpu 0")]
struct Cli {
    #[command(flatten)]
    options: WalkOptions,
}

fn main() -> ExitCode {
    ended(
        "huepage-stream",
        walk::stream(&Cli::parse().options).map(|passes| println!("{{\"passes\":{passes}}}")),
        "check --cpu, --kib and the named pipes",
    )
}
