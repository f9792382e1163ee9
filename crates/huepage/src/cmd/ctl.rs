//! `huepage ctl`: asks the daemon that runs, and tells it what to do.

use clap::{Args, Subcommand};
use comfy_table::Table;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::daemon::journal::Entry;
use crate::daemon::protocol::{GroupStatus, Request, Status, ask, line};
use crate::exit::{CmdError, ExitCode};
use crate::partition::{check_privileges, internal};
use crate::style::{self, Style};

const EXAMPLES: &str = "\
Examples:
  huepage ctl status                 how the daemon is
  huepage ctl groups                 colours, readings and processes of each group
  huepage ctl decisions --last 5     what was decided, and why
  huepage ctl freeze                 change nothing until `huepage ctl thaw`
  huepage ctl reload                 read the file again; with a mistake in it all stays as it is
  huepage ctl metrics                for Prometheus
  huepage ctl stop                   release everybody and end";

/// Ask the daemon, and tell it what to do
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct CtlArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: CtlCommand,

    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// What can be asked.
#[derive(Subcommand, Debug)]
pub enum CtlCommand {
    /// Show how the daemon is
    Status,
    /// Show colours, readings and processes of each group
    Groups,
    /// Show what was decided last, and why
    Decisions {
        /// So many decisions
        #[arg(long, value_name = "N", default_value_t = 20)]
        last: usize,
    },
    /// Print figures for Prometheus
    Metrics,
    /// Change nothing until thawed; processes are still taken
    Freeze,
    /// Decide again
    Thaw,
    /// Read the file again
    Reload,
    /// Release everybody and end the daemon
    Stop,
}

/// Runs the command.
pub fn run(args: &CtlArgs) -> Result<u8, CmdError> {
    check_privileges()?;
    let request = match args.command {
        CtlCommand::Status => Request::Status,
        CtlCommand::Groups => Request::Groups,
        CtlCommand::Decisions { last } => Request::Decisions { last },
        CtlCommand::Metrics => Request::Metrics,
        CtlCommand::Freeze => Request::Freeze,
        CtlCommand::Thaw => Request::Thaw,
        CtlCommand::Reload => Request::Reload,
        CtlCommand::Stop => Request::Stop,
    };
    let answer = ask(request)?;
    let text = if args.json && request != Request::Metrics {
        serde_json::to_string_pretty(&answer).map_err(internal)? + "\n"
    } else {
        text(request, answer)?
    };
    style::print(&text).map_err(internal)?;
    Ok(ExitCode::Ok.status())
}

fn text(request: Request, answer: Value) -> Result<String, CmdError> {
    Ok(match request {
        Request::Status => status(&read(answer)?),
        Request::Groups => groups(&read::<Vec<GroupStatus>>(answer)?),
        Request::Decisions { .. } => {
            let entries: Vec<Entry> = read(answer)?;
            entries.iter().map(|entry| format!("{:.0}  {}\n", entry.at, line(entry))).collect()
        }
        Request::Metrics => read(answer)?,
        Request::Freeze => "nothing is changed until `huepage ctl thaw`\n".to_owned(),
        Request::Thaw => "the daemon decides again\n".to_owned(),
        Request::Reload => format!("{} groups\n", answer["groups"]),
        Request::Stop => format!("daemon {} ends\n", answer["pid"]),
    })
}

fn read<T: DeserializeOwned>(answer: Value) -> Result<T, CmdError> {
    serde_json::from_value(answer).map_err(|e| {
        let what =
            format!("the daemon's answer makes no sense ({e}); restart it with this version");
        CmdError::new(ExitCode::Internal, what)
    })
}

fn status(status: &Status) -> String {
    let frozen = if status.frozen { "; frozen" } else { "" };
    let mut text = format!(
        "daemon {} by {}, for {:.0} s{frozen}\n{}, {} colours ({}), free: {}; resctrl: {}\nmiss rates by {}\n{} processes in {} groups, {} decisions\n",
        status.pid,
        status.config.display(),
        status.seconds,
        status.level,
        status.of,
        status.colors_from,
        if status.free.is_empty() { "none" } else { &status.free },
        status.resctrl,
        status.sensor,
        status.processes,
        status.groups,
        status.decisions,
    );
    status.besides.iter().for_each(|line| text += &format!("{line}\n"));
    status.troubles.iter().for_each(|trouble| text += &format!("trouble: {trouble}\n"));
    text
}

fn groups(groups: &[GroupStatus]) -> String {
    let headings = ["group", "colours", "processes", "in them", "reading", "by", "wants", "rule"];
    let mut table: Table = Style::stdout().table(&headings);
    for group in groups {
        let [all, inside] = group.pages;
        let share = if all == 0 {
            "-".to_owned()
        } else {
            format!("{:.1} %", inside as f64 / all as f64 * 100.0)
        };
        let untouched = group.untouched.filter(|&pages| pages > 0);
        let share = share + &untouched.map(|n| format!(", {n} untouched")).unwrap_or_default();
        let reading = group.reading.map(|[value, margin]| format!("{value:.3} +- {margin:.3}"));
        table.add_row([
            group.name.clone(),
            group.colors.clone(),
            group.processes.len().to_string(),
            share,
            reading.unwrap_or_else(|| "-".to_owned()),
            reader(group),
            group.want.clone(),
            group.trouble.clone().unwrap_or_else(|| group.rule.clone()),
        ]);
    }
    let besides = groups
        .iter()
        .flat_map(|group| group.besides.iter().map(|line| format!("{}: {line}\n", group.name)));
    format!("{table}\n") + &besides.collect::<String>()
}

/// Who reads a group, and how fast it is where that is counted.
fn reader(group: &GroupStatus) -> String {
    let name = group.sensor.as_deref().unwrap_or("-");
    match group.instructions_per_second {
        Some(rate) => format!("{name}, {:.0} M instr/s", rate / 1e6),
        None => name.to_owned(),
    }
}
