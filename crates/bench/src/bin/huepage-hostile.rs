//! `huepage-hostile`: programs that attack the supervisor that confines them.
//!
//! Only `huepage-bench hostile` starts it: a nest of adversaries, or one of them.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use huepage_bench::hostile::{self, nest};

/// Attack whoever confines this program
#[derive(Parser)]
#[command(version, after_help = "Started by:\n  huepage-bench hostile --rounds 100")]
struct Cli {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Many adversaries, some at a time, beside an honest program
    Nest(nest::NestOrders),
    /// One adversary
    Adversary(hostile::AdversaryOrders),
}

fn main() -> ExitCode {
    match Cli::parse().mode {
        Mode::Nest(orders) => nest::run(&orders).map_or_else(
            |error| {
                eprintln!("huepage-hostile: {error}; is huepage-torture beside it?");
                ExitCode::from(2)
            },
            ExitCode::from,
        ),
        Mode::Adversary(orders) => {
            hostile::adversary(&orders);
            ExitCode::SUCCESS
        }
    }
}
