//! `huepage-walk`: the latency of a random pointer walk, as one line of JSON. It measures
//! and does nothing else; see `huepage_bench::walk`.

use std::process::ExitCode;

use clap::Parser;
use huepage_bench::ended;
use huepage_bench::walk::{self, Latency, WalkOptions};

/// Time a random pointer walk over a footprint
#[derive(Parser)]
#[command(version, after_help = "Example:\n  huepage-walk --kib 512 --seconds 2 --cpu 0")]
struct Cli {
    #[command(flatten)]
    options: WalkOptions,
}

fn print(found: &Latency) -> std::io::Result<()> {
    println!("{}", serde_json::to_string(found)?);
    Ok(())
}

fn main() -> ExitCode {
    ended(
        "huepage-walk",
        walk::walk(&Cli::parse().options).and_then(|found| print(&found)),
        "check --cpu, --kib and the named pipes",
    )
}
