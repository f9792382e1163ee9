//! `huepage-stream`: reads a footprint from end to end, again and again or in turns with
//! `huepage-walk`. It prints the number of passes; see `huepage_bench::walk`.

use std::process::ExitCode;

use clap::Parser;
use huepage_bench::walk::{self, WalkOptions};

/// Stream over a footprint, polluting the cache
#[derive(Parser)]
#[command(version, after_help = "Example:\n  huepage-stream --kib 1024 --seconds 2 --cpu 0")]
struct Cli {
    #[command(flatten)]
    options: WalkOptions,
}

fn main() -> ExitCode {
    match walk::stream(&Cli::parse().options) {
        Ok(passes) => {
            println!("{{\"passes\":{passes}}}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("huepage-stream: {error}; check --cpu, --kib and the named pipes");
            ExitCode::FAILURE
        }
    }
}
