//! `huepage-hostile`: programs that attack the supervisor that confines them.
//!
//! Only `huepage-bench hostile` starts it: a nest of adversaries, or one of them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use huepage_bench::hostile::attack::AttackKind;
use huepage_bench::hostile::{self, Plant, nest};

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
    Nest {
        #[arg(long, default_value_t = 100)]
        rounds: u64,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 4)]
        parallel: usize,
        #[arg(long)]
        only: Option<AttackKind>,
        #[arg(long)]
        secret: PathBuf,
        #[arg(long)]
        dir: PathBuf,
        #[arg(long)]
        plant: Option<Plant>,
    },
    /// One adversary
    Adversary {
        #[arg(long)]
        kind: AttackKind,
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long)]
        secret: PathBuf,
        /// Give up root once confined
        #[arg(long)]
        drop: bool,
        #[arg(long, default_value_t = 100)]
        millis: u64,
        #[arg(long)]
        plant: Option<Plant>,
    },
}

fn main() -> ExitCode {
    match Cli::parse().mode {
        Mode::Nest { rounds, seed, parallel, only, secret, dir, plant } => {
            let orders = nest::NestOrders { rounds, seed, parallel, only, secret, dir, plant };
            nest::run(&orders).map_or_else(
                |error| {
                    eprintln!("huepage-hostile: {error}; is huepage-torture beside it?");
                    ExitCode::from(2)
                },
                ExitCode::from,
            )
        }
        Mode::Adversary { kind, seed, secret, drop, millis, plant } => {
            hostile::adversary(&hostile::AdversaryOrders {
                kind,
                seed,
                secret,
                drop,
                millis,
                plant,
            });
            ExitCode::SUCCESS
        }
    }
}
