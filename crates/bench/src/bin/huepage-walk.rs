//! `huepage-walk`: the latency of a random pointer walk, as one line of JSON. It measures
//! and does nothing else; see `huepage_bench::walk`.

use std::process::ExitCode;

use clap::Parser;
use huepage_bench::walk::{self, WalkOptions};

/// Time a random pointer walk over a footprint
#[derive(Parser)]
#[command(version, after_help = "Example:\n  huepage-walk --kib 512 --seconds 2 --cpu 0")]
struct Cli {
    #[command(flatten)]
    options: WalkOptions,
}

fn main() -> ExitCode {
    let result = walk::walk(&Cli::parse().options);
    match result.and_then(|latency| serde_json::to_string(&latency).map_err(Into::into)) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("huepage-walk: {error}; check --cpu, --kib and the named pipes");
            ExitCode::FAILURE
        }
    }
}
