//! `huepage-polluter`: programs with memory that passes by what they use again and again. Each command
//! does one thing and prints JSON; see `huepage_bench::pollute`.

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use huepage_bench::pollute::{PolluterOptions, art, cg, join};
use huepage_bench::{ended, sys};

/// Join tables, multiply a sparse matrix, or train a network
#[derive(Parser)]
#[command(version, after_help = "Example:\n  huepage-polluter join --cache-kib 1024 --seconds 5")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// A hash join beside a scan
    Join(PolluterOptions),
    /// Products of a sparse matrix with a vector
    Cg(PolluterOptions),
    /// A neural network beside its weights
    Art(PolluterOptions),
}

fn run(command: &Command) -> io::Result<()> {
    let (Command::Join(options) | Command::Cg(options) | Command::Art(options)) = command;
    options.cpu.map_or(Ok(()), sys::pin)?;
    match command {
        Command::Join(options) => join::run(options),
        Command::Cg(options) => cg::run(options),
        Command::Art(options) => art::run(options),
    }
}

fn main() -> ExitCode {
    ended(
        "huepage-polluter",
        run(&Cli::parse().command),
        "try a smaller --cache-kib or another --cpu",
    )
}
