//! The command line: every command, every option, and the help that explains them.
//!
//! Values that need to know the machine (is colour 40 one of its colours?) are checked by the
//! commands; only what can be judged from the text alone is judged here.

use clap::{Parser, Subcommand};

use crate::exit;

/// Give any Linux program its own share of the processor cache
///
/// huepage moves the pages of a running, unmodified program to physical frames that use only
/// some sets of the cache (its colours). It needs no special hardware and no patched kernel.
#[derive(Parser, Debug)]
#[command(name = "huepage", version, max_term_width = 100, after_long_help = long_footer())]
#[command(after_help = "Start with `huepage info`. Exit statuses: `huepage --help`.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    Run(crate::cmd::run::RunArgs),
    Attach(crate::cmd::attach::AttachArgs),
    Detach(crate::cmd::detach::DetachArgs),
    Inspect(crate::cmd::inspect::InspectArgs),
    Verify(crate::cmd::verify::VerifyArgs),
    Info(crate::cmd::info::InfoArgs),
    Doctor(crate::cmd::doctor::DoctorArgs),
    Demo(crate::cmd::demo::DemoArgs),
    Trace(crate::cmd::trace::args::TraceArgs),
    Sim(crate::cmd::sim::args::SimArgs),
    Lab(crate::cmd::lab::args::LabArgs),
    Group(crate::cmd::group::args::GroupArgs),
    Daemon(crate::cmd::daemon::DaemonArgs),
    Ctl(crate::cmd::ctl::CtlArgs),
    Suits(crate::cmd::suits::SuitsArgs),
    Superpages(crate::cmd::superpages::SuperpagesArgs),
    Profile(crate::cmd::profile::args::ProfileArgs),
    Plan(crate::cmd::plan::args::PlanArgs),
    Probe(crate::cmd::probe::args::ProbeArgs),
    /// Place files for a supervisor
    #[command(name = crate::services::files::SERVICE, hide = true)]
    PageCacheService,
    Warm(crate::cmd::warm::args::WarmArgs),
    Record(crate::cmd::record::RecordArgs),
    Replay(crate::cmd::replay::ReplayArgs),
    Top(crate::cmd::top::TopArgs),
    OciHook(crate::cmd::oci_hook::OciHookArgs),
    Nri(crate::cmd::nri::NriArgs),
    Completions(crate::cmd::pages::CompletionsArgs),
    #[command(hide = true)]
    ManPages(crate::cmd::pages::ManPagesArgs),
}

fn long_footer() -> String {
    format!(
        "Examples:\n  \
         huepage info                         what this machine's caches are like\n  \
         huepage doctor                       what works here, measured in some seconds\n  \
         huepage run --share 50% -- xz -k f   run a program in half the L2 cache\n  \
         huepage demo                         see it work, in half a minute\n\n{}",
        exit::help_table()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Prose is wrapped to the terminal; examples would be broken.
    #[test]
    fn examples_fit_80_columns() {
        fn check(command: &clap::Command) -> usize {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            let texts: String =
                texts.into_iter().flatten().map(|text| format!("{text}\n")).collect();
            let examples: Vec<&str> = texts.lines().filter(|line| line.starts_with(' ')).collect();
            for line in &examples {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            examples.len() + command.get_subcommands().map(check).sum::<usize>()
        }
        assert!(check(&Cli::command()) > 50);
    }
}
