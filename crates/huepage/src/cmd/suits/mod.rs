//! `huepage suits`: whether a program is worth a partition, superpages, or neither, before either is tried. It is
//! watched for some seconds, together with those that share its caches; `huepage_policy::suitability` judges.

mod show;
mod watch;

use std::ffi::OsString;
use std::process::{Command, Stdio};

use clap::Args;
use huepage_policy::suitability;

use self::show::Suits;
use self::watch::Measured;
use crate::cmd::profile::child::GroupedChild;
use crate::cmd::record::parse_seconds;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};
use crate::report;
use crate::signals::Interrupt;
use crate::style::{self, Style};
use crate::target::check_exists;

const EXAMPLES: &str = "\
Examples:
  huepage suits 4711                       is it worth a share, superpages?
  huepage suits --seconds 30 4711          watch it for longer
  huepage suits -- ./solver input          start it, watch it, end it
  huepage suits --json 4711 | jq .partition.verdict

The program is watched and not changed. `huepage profile` measures what a share costs a program that can be \
run several times; `huepage doctor` measures the machine.";

/// Say whether a program is worth a share of the cache, superpages, or neither
///
/// Watches it for ten seconds: what it uses of the L2, what it brings in, what TLB misses cost it, and who runs on
/// CPUs that share its caches. Which CPUs share a core is measured, since guests are told anything of it.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct SuitsArgs {
    /// The process
    #[arg(value_name = "PID", required_unless_present = "command",
          value_parser = clap::value_parser!(u32).range(1..=0x40_0000))]
    pub pid: Option<u32>,

    /// How long to watch, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = parse_seconds)]
    pub seconds: f64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// A program to start, with its arguments; its output is discarded, and it is ended when it was seen enough of
    #[arg(value_name = "CMD", last = true, conflicts_with = "pid")]
    pub command: Vec<OsString>,
}

/// Seconds that a program has to be seen for.
const SHORTEST: f64 = 1.0;

/// Watches, judges and tells.
pub fn run(args: &SuitsArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let interrupt = Interrupt::listen()?;
    if let Some(pid) = args.pid {
        check_exists(pid.cast_signed())?;
    }
    let measured = Measured::now(args.seconds)?;
    let child = start(&args.command)?;
    let pid = match (&child, args.pid) {
        (Some(child), _) => child.pid(),
        (None, pid) => pid.unwrap_or_default().cast_signed(),
    };
    let observed = watch::watch(pid, measured, &interrupt)?;
    let lives_on = child.is_none() && !observed.ended;
    drop(child);
    if let Some(signal) = interrupt.signal() {
        return Ok(128 + signal.to_le_bytes()[0]);
    }
    if observed.ended && observed.seconds < SHORTEST {
        let what = format!(
            "the program ended after {:.1} s, too soon to be judged; give it more work",
            observed.seconds
        );
        return Err(CmdError::new(ExitCode::TargetExited, what));
    }
    let partition = suitability::partition(&observed.program, &observed.cache);
    let superpages = suitability::superpages(&observed.program);
    let suits = Suits { observed, partition, superpages, lives_on };
    let text = if args.json { report::json(&suits)? } else { suits.text(Style::stdout()) };
    style::print(&text).map_err(internal)?;
    Ok(ExitCode::Ok.status())
}

/// Starts the program, if one was given.
fn start(command: &[OsString]) -> Result<Option<GroupedChild>, CmdError> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null());
    GroupedChild::start(command).map(Some)
}
