//! `huepage-torture`: a program that torments its own memory and checks every bit of it.
//!
//! It exits with 0 only if everything was right, with 1 if a word was wrong, with 3 if a
//! thread stood still, and prints what it counted as one line of JSON. It knows nothing of
//! huepage, and must pass without it before it says anything about it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use huepage_bench::sys;
use huepage_bench::torture::{self, MODES, TorturePlan, answer, churn};

/// Torment memory and verify every bit of it
#[derive(Parser)]
#[command(version, after_help = "Example:\n  huepage-torture all --seconds 30 --mib 64")]
struct Cli {
    #[command(subcommand)]
    mode: Mode,
}

#[derive(Subcommand)]
enum Mode {
    /// Random increments in all kinds of memory, by the program and by the kernel
    Writers(TorturePlan),
    /// Children that must see the memory as it was at the fork
    Forkers(TorturePlan),
    /// Disk reads and writes that bypass the page cache
    Odirect(TorturePlan),
    /// mprotect, mremap, munmap, madvise, brk, mlock
    Churn(TorturePlan),
    /// Threads created and joined at a high rate
    Threads(TorturePlan),
    /// Pages that are lent, merged or taken out, small signal stacks, faults served by the program
    Kernel(TorturePlan),
    /// Small stacks of coroutines, counters per CPU by restartable sequences, fixed buffers of io_uring
    Runtimes(TorturePlan),
    /// All of the above in one process
    All(TorturePlan),
    /// A long computation whose answer is known in advance
    Answer(AnswerArgs),
    /// Say when it started and which process it is, and end
    Stamp {
        /// Where to write that to
        file: PathBuf,
    },
    /// List the checks that --sabotage can be given
    Sites,
    /// (internal) grow and shrink the break
    #[command(hide = true)]
    Brk { seconds: f64, sabotage: u8 },
    /// (internal) print a number
    #[command(hide = true)]
    Echo { number: u64 },
}

#[derive(Args)]
struct AnswerArgs {
    /// Memory, in MiB: a power of two
    #[arg(long, default_value_t = 64)]
    mib: usize,
    /// Rounds to compute; with --seconds, spread over them
    #[arg(long, required_unless_present = "seconds")]
    rounds: Option<u64>,
    /// Seconds to compute
    #[arg(long)]
    seconds: Option<f64>,
    /// Exit status for the right answer
    #[arg(long, default_value_t = 0)]
    right: u8,
    /// Flip one bit on the way: the answer must then be wrong
    #[arg(long)]
    sabotage: bool,
    /// File to write to when it started and which process it is, before anything else
    #[arg(long, value_name = "FILE")]
    stamp: Option<PathBuf>,
}

/// Writes the nanoseconds of the monotonic clock at which the program began, and its pid.
fn stamp(began: Duration, file: &Path) -> ExitCode {
    let text = format!("{} {}\n", began.as_nanos(), std::process::id());
    match std::fs::write(file, text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("huepage-torture: cannot write {}: {error}; name another", file.display());
            ExitCode::from(2)
        }
    }
}

fn torment(mode: &str, plan: TorturePlan) -> ExitCode {
    if let Err(error) = sys::install_handlers() {
        eprintln!("huepage-torture: cannot install signal handlers ({error}); report this");
        return ExitCode::from(2);
    }
    let summary = torture::run(mode, plan);
    match serde_json::to_string(&summary) {
        Ok(line) => println!("{line}"),
        Err(error) => eprintln!("huepage-torture: cannot print the summary: {error}"),
    }
    // Threads may hang: no clean-up that would wait for them.
    sys::exit_now(summary.status())
}

fn answer(args: &AnswerArgs, began: Duration) -> ExitCode {
    if args.stamp.as_deref().is_some_and(|file| stamp(began, file) != ExitCode::SUCCESS) {
        return ExitCode::from(2);
    }
    if !args.mib.is_power_of_two() {
        eprintln!("huepage-torture: --mib must be a power of two; try 64");
        return ExitCode::from(2);
    }
    let until = match (args.rounds, args.seconds) {
        (Some(rounds), None) => answer::Until::Rounds(rounds),
        (Some(rounds), Some(seconds)) => answer::Until::Paced(rounds, seconds),
        (None, seconds) => answer::Until::Seconds(seconds.unwrap_or(1.0)),
    };
    if args.rounds.is_none() && sys::install_handlers().is_err() {
        eprintln!("huepage-torture: cannot install signal handlers; SIGTERM will not stop it");
    }
    match answer::area(args.mib) {
        Ok(area) => {
            let (answer, rounds) = answer::compute(&area, until, args.sabotage);
            let expected = answer::expected(args.mib, rounds);
            println!("{{\"answer\":\"{answer:016x}\",\"expected\":\"{expected:016x}\"}}");
            // The end of the process gives it back, so that whoever looks last sees it.
            std::mem::forget(area);
            ExitCode::from(if answer == expected { args.right } else { 1 })
        }
        Err(error) => {
            eprintln!("huepage-torture: {error}; try a smaller --mib");
            ExitCode::from(2)
        }
    }
}

fn brk(seconds: f64, sabotage: bool) -> ExitCode {
    match churn::brk_main(seconds, sabotage) {
        Ok(0) => ExitCode::SUCCESS,
        other => {
            eprintln!("huepage-torture: WRONG churn.brk: {other:?}");
            ExitCode::from(1)
        }
    }
}

fn main() -> ExitCode {
    let began = sys::monotonic();
    match Cli::parse().mode {
        Mode::Writers(plan) => torment("writers", plan),
        Mode::Forkers(plan) => torment("forkers", plan),
        Mode::Odirect(plan) => torment("odirect", plan),
        Mode::Churn(plan) => torment("churn", plan),
        Mode::Threads(plan) => torment("threads", plan),
        Mode::Kernel(plan) => torment("kernel", plan),
        Mode::Runtimes(plan) => torment("runtimes", plan),
        Mode::All(plan) => torment("all", plan),
        Mode::Answer(args) => answer(&args, began),
        Mode::Stamp { file } => stamp(began, &file),
        Mode::Brk { seconds, sabotage } => brk(seconds, sabotage != 0),
        Mode::Echo { number } => {
            println!("{number}");
            ExitCode::SUCCESS
        }
        Mode::Sites => {
            MODES.iter().flat_map(|(_, sites)| *sites).for_each(|site| println!("{site}"));
            ExitCode::SUCCESS
        }
    }
}
