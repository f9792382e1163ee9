//! The `huepage` program: read the arguments, run one command, report how it ended.
//!
//! Nothing is decided here. `args` lists the commands, and `cmd` has a module for each. What is to be done to
//! processes is a `plan`: the options of each feature are with its service in `services`, those of colours in
//! `partition`. `supervise` runs a plan, `daemon` keeps groups by a file, `top` is the screen. Exit statuses are
//! in `exit`, figures in `figures`, reports in `report`, colour and tables on a terminal in `style`.

mod args;
mod background_supervisor;
mod cmd;
mod daemon;
mod deferred_drop;
mod demo;
#[doc(hidden)]
pub mod drawing;
#[doc(hidden)]
pub mod exit;
mod figures;
#[doc(hidden)]
pub mod fuzz_entry;
mod headings;
#[doc(hidden)]
pub mod html;
#[doc(hidden)]
pub mod inputs;
mod json;
mod machine_files;
mod measured_colors;
mod partition;
mod plan;
mod progress;
mod report;
mod running_services;
mod services;
mod signals;
mod steps;
#[doc(hidden)]
pub mod style;
mod supervise;
mod target;
mod top;
mod usage;
mod values;
mod whole_file;

use args::Command;
use clap::CommandFactory as _;
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
        Command::Verify(args) => cmd::verify::run(&args),
        Command::Info(args) => cmd::info::run(args),
        Command::Doctor(args) => cmd::doctor::run(&args),
        Command::Demo(args) => cmd::demo::run(args),
        Command::Trace(args) => cmd::trace::run(&args),
        Command::Sim(args) => cmd::sim::run(&args),
        Command::Lab(args) => cmd::lab::run(&args),
        Command::Group(args) => cmd::group::run(args),
        Command::Daemon(args) => cmd::daemon::run(&args),
        Command::Ctl(args) => cmd::ctl::run(&args),
        Command::Suits(args) => cmd::suits::run(&args),
        Command::Superpages(args) => cmd::superpages::run(args),
        Command::Profile(args) => cmd::profile::run(&args),
        Command::Plan(args) => cmd::plan::run(&args),
        Command::Probe(args) => cmd::probe::run(&args),
        Command::PageCacheService => services::files::server::run(),
        Command::Record(args) => cmd::record::run(&args),
        Command::Replay(args) => cmd::replay::run(&args),
        Command::Top(args) => cmd::top::run(&args),
        Command::Warm(args) => cmd::warm::run(&args),
        Command::OciHook(args) => cmd::oci_hook::run(&args),
        Command::Nri(args) => cmd::nri::run(args),
        Command::Completions(args) => cmd::pages::completions(&args, args::Cli::command()),
        Command::ManPages(args) => cmd::pages::man_pages(&args, args::Cli::command()),
    }
}
