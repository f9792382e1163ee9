//! `huepage-kernel`: a workload of the simulator as a program; see `huepage_bench::residency`.

use std::process::ExitCode;

use clap::Parser;
use huepage_bench::ended;
use huepage_bench::residency::{Kernel, run};

/// Run a workload of the simulator's library natively, and say where its arrays lie
#[derive(Parser)]
#[command(
    version,
    after_help = "Example:\n  huepage-kernel random:size=4M,rounds=1000 --seconds 5"
)]
struct Cli {
    #[command(flatten)]
    kernel: Kernel,
}

fn main() -> ExitCode {
    ended("huepage-kernel", run(&Cli::parse().kernel), "choose another --cpu")
}
