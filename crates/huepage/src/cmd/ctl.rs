//! `huepage ctl`: asks the daemon that runs, and tells it what to do.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use comfy_table::Table;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::daemon::figures::{FIGURES, GroupFigures};
use crate::daemon::journal::{JournalEntry, line};
use crate::daemon::protocol::{DaemonRequest, DaemonStatus, GroupStatus, ask};
use crate::exit::{CmdError, ExitCode};
use crate::figures::Figure;
use crate::partition::{check_privileges, internal};
use crate::report;
use crate::style::{self, Style, count};

const EXAMPLES: &str = "\
Examples:
  huepage ctl status                 how the daemon is
  huepage ctl groups                 colours, readings, processes of each group
  huepage ctl decisions --last 5     what was decided, and why
  huepage ctl freeze                 change nothing until `huepage ctl thaw`
  huepage ctl reload                 read its file again
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
        CtlCommand::Status => DaemonRequest::Status,
        CtlCommand::Groups => DaemonRequest::Groups,
        CtlCommand::Decisions { last } => DaemonRequest::Decisions { last },
        CtlCommand::Metrics => DaemonRequest::Metrics,
        CtlCommand::Freeze => DaemonRequest::Freeze,
        CtlCommand::Thaw => DaemonRequest::Thaw,
        CtlCommand::Reload => DaemonRequest::Reload,
        CtlCommand::Stop => DaemonRequest::Stop,
    };
    if args.json && request == DaemonRequest::Metrics {
        let groups: Vec<GroupStatus> = read(ask(DaemonRequest::Groups)?)?;
        let text = report::json(&json!({ "figures": figures(&groups) }))?;
        style::print(&text).map_err(internal)?;
        return Ok(ExitCode::Ok.status());
    }
    let answer = ask(request)?;
    let text =
        if args.json { report::json(&named(request, answer))? } else { text(request, answer)? };
    style::print(&text).map_err(internal)?;
    Ok(ExitCode::Ok.status())
}

/// An answer with a name for what is a list.
fn named(request: DaemonRequest, answer: Value) -> Value {
    match request {
        DaemonRequest::Groups => json!({ "groups": answer }),
        DaemonRequest::Decisions { .. } => json!({ "decisions": answer }),
        _ => answer,
    }
}

/// The figures of groups with their definitions.
fn figures(groups: &[GroupStatus]) -> Vec<Value> {
    let of_figure = |figure: &Figure<GroupFigures>| {
        let value =
            |group: &GroupStatus| Some((group.name.clone(), (figure.value)(&group.figures)?));
        let values: BTreeMap<String, f64> = groups.iter().filter_map(value).collect();
        json!({
            "name": figure.name, "metric": figure.metric, "kind": figure.kind.word(),
            "unit": figure.unit.word(), "help": figure.help, "groups": values,
        })
    };
    FIGURES.iter().map(of_figure).collect()
}

fn text(request: DaemonRequest, answer: Value) -> Result<String, CmdError> {
    Ok(match request {
        DaemonRequest::Status => status(&read(answer)?),
        DaemonRequest::Groups => groups(&read::<Vec<GroupStatus>>(answer)?),
        DaemonRequest::Decisions { .. } => {
            let entries: Vec<JournalEntry> = read(answer)?;
            match entries.is_empty() {
                true => format!("none: {}\n", why_none()?),
                false => entries.iter().map(|e| format!("{:.0}  {}\n", e.at, line(e))).collect(),
            }
        }
        DaemonRequest::Metrics => read(answer)?,
        DaemonRequest::Freeze => "nothing is changed until `huepage ctl thaw`\n".to_owned(),
        DaemonRequest::Thaw => "the daemon decides again\n".to_owned(),
        DaemonRequest::Reload => {
            let groups = answer["groups"].as_u64().unwrap_or(0);
            format!("the file is read: {}\n", count(groups, "group", "groups"))
        }
        DaemonRequest::Stop => format!("daemon {} ends\n", answer["pid"]),
    })
}

/// Why nothing was decided.
fn why_none() -> Result<String, CmdError> {
    let (status, groups) = (ask(DaemonRequest::Status)?, ask(DaemonRequest::Groups)?);
    let (status, groups): (DaemonStatus, Vec<GroupStatus>) = (read(status)?, read(groups)?);
    let follow: Vec<&GroupStatus> = groups.iter().filter(|group| group.follows).collect();
    let named = |of: &dyn Fn(&GroupStatus) -> bool| {
        let names = follow.iter().filter(|group| of(group)).map(|group| group.name.as_str());
        names.collect::<Vec<_>>().join(", ")
    };
    let lonely = named(&|group| group.processes.is_empty());
    let unread = named(&|group| group.figures.reading.is_none());
    Ok(match () {
        () if status.frozen => "the daemon is frozen; `huepage ctl thaw`".to_owned(),
        () if follow.is_empty() => {
            "no group has a miss_rate or metric, so that all keep their colours".to_owned()
        }
        () if !lonely.is_empty() => format!("no process matches: {lonely}"),
        () if !unread.is_empty() => format!("nothing was read yet: {unread}"),
        () => "readings have not called for a change for long enough".to_owned(),
    })
}

fn read<T: DeserializeOwned>(answer: Value) -> Result<T, CmdError> {
    serde_json::from_value(answer).map_err(|e| {
        let what =
            format!("the daemon's answer makes no sense ({e}); restart it with this version");
        CmdError::new(ExitCode::Internal, what)
    })
}

fn status(status: &DaemonStatus) -> String {
    let frozen = if status.frozen { "; frozen" } else { "" };
    let mut text = format!(
        "daemon {} by {}, for {:.0} s{frozen}\n{}, {} colours ({}), free: {}; resctrl: {}\nmiss rates by {}\n{} in {}, {}\n",
        status.pid,
        status.config.display(),
        status.seconds,
        status.level,
        status.of,
        report::known(&status.colors_from),
        if status.free.is_empty() { "none" } else { &status.free },
        status.resctrl,
        status.sensor,
        count(status.processes as u64, "process", "processes"),
        count(status.groups as u64, "group", "groups"),
        count(status.decisions, "decision", "decisions"),
    );
    status.notes.iter().for_each(|line| text += &format!("{line}\n"));
    status.troubles.iter().for_each(|trouble| text += &format!("trouble: {trouble}\n"));
    text
}

fn groups(groups: &[GroupStatus]) -> String {
    let headings = ["group", "colours", "processes", "in them", "reading", "by", "wants", "rule"];
    let mut table: Table = Style::stdout().table(&headings);
    for group in groups {
        let figures = &group.figures;
        let (all, inside) = (figures.movable_pages, figures.pages_in_colors);
        let share = if all == 0 {
            "-".to_owned()
        } else {
            format!("{:.1} %", inside as f64 / all as f64 * 100.0)
        };
        let untouched = figures.untouched.filter(|&pages| pages > 0);
        let share = share + &untouched.map(|n| format!(", {n} untouched")).unwrap_or_default();
        let reading = figures.reading.zip(figures.reading_margin);
        let reading = reading.map(|(value, margin)| format!("{value:.3} +- {margin:.3}"));
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
    let notes = groups
        .iter()
        .flat_map(|group| group.notes.iter().map(|line| format!("{}: {line}\n", group.name)));
    style::lay_out(table) + &notes.collect::<String>()
}

/// Who reads a group, and how fast it is where that is counted.
fn reader(group: &GroupStatus) -> String {
    let name = group.sensor.as_deref().unwrap_or("-");
    match group.figures.instructions_per_second {
        Some(rate) => format!("{name}, {:.0} M instr/s", rate / 1e6),
        None => name.to_owned(),
    }
}
