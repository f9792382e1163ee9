//! The `huepage` program: read the arguments, run one command, report how it ended.
//!
//! Nothing is decided here. Arguments are in `args`, exit statuses and errors in `exit`,
//! what a terminal is shown in `style`, and each command in its module of `cmd`.

mod args;
mod behind;
mod cmd;
mod conflicts;
mod daemon;
mod demo;
mod drawing;
mod exit;
#[doc(hidden)]
pub mod foreign;
mod partition;
mod pollute;
mod progress;
mod report;
mod signals;
mod steps;
mod style;
mod superpages;
mod supervise;
mod text;
mod top;
mod usage;

use args::Command;
use exit::CmdError;

/// Reads the arguments, runs the command, and reports how it ended.
pub fn main() -> std::process::ExitCode {
    match usage::parse().and_then(|cli| dispatch(cli.command)) {
        Ok(status) => status.into(),
        Err(error) => {
            error.report();
            error.code.status().into()
        }
    }
}

/// Runs the chosen command; the number is the exit status of this process.
fn dispatch(command: Command) -> Result<u8, CmdError> {
    match command {
        Command::Run(args) => cmd::run::run(args),
        Command::Attach(args) => cmd::attach::run(args),
        Command::Detach(args) => cmd::detach::run(args),
        Command::Inspect(args) => cmd::inspect::run(args),
        Command::Info(args) => cmd::info::run(args),
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::Demo(args) => cmd::demo::run(args),
        Command::Trace(args) => cmd::trace::run(&args),
        Command::Sim(args) => cmd::sim::run(&args),
        Command::Experiment(args) => cmd::experiment::run(&args),
        Command::Group(args) => cmd::group::run(args),
        Command::Daemon(args) => cmd::daemon::run(&args),
        Command::Ctl(args) => cmd::ctl::run(&args),
        Command::Profile(args) => cmd::profile::run(&args),
        Command::Probe(args) => cmd::probe::run(&args),
        Command::PageCacheService => cmd::page_cache::service::run(),
        Command::Record(args) => cmd::record::run(&args),
        Command::Replay(args) => cmd::replay::run(&args),
        Command::Top(args) => cmd::top::run(&args),
        Command::Warm(args) => cmd::warm::run(&args),
    }
}
