//! `huepage daemon`: groups of a file get their parts of the cache, for as long as it runs; see
//! `crate::daemon`.

use std::path::PathBuf;

use clap::Args;

use crate::daemon::{division, serve};
use crate::exit::{CmdError, ExitCode};
use crate::partition::{check_privileges, internal};
use crate::{report, style};

const EXAMPLES: &str = "\
Examples:
  huepage daemon --config groups.toml --dry-run   what it would do, nothing else
  huepage daemon --config groups.toml             until SIGTERM or `ctl stop`
  huepage ctl groups                              how its groups are

The file has a table for each group:
  [[group]]
  name = \"db\"
  command = \"postgres*\"                 # or cgroup, container, exe, pid = 4711
  user = \"postgres\"                     # anybody can take a name
  share = \"25%\"                         # always

  [[group]]
  name = \"web\"
  cgroup = \"system.slice/nginx.service\"
  miss_rate = { low = 0.1, high = 0.4 } # less below, more above
  floor = 2                             # colours; also: ceiling, priority

The options of `huepage attach` are keys of a group, with underscores: superpages = \"throttle\". \
Without share, miss_rate or metric a group has no colours of its own, and only what these keys say \
is done.

docs/huepage-daemon.toml has every key, docs/huepage.service is a unit for systemd. A mistake in the \
file is reported with line and column. SIGHUP or `huepage ctl reload` reads it again. A daemon that \
was killed leaves its programs unharmed; the next one takes them up again.";

/// Keep groups of processes in shares of the cache that follow what they need
///
/// Stays in the foreground and writes every decision, with its reason, to standard error.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct DaemonArgs {
    /// The file that defines the groups
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,

    /// Print what would be done, and end
    #[arg(long)]
    pub dry_run: bool,

    /// Print JSON
    #[arg(long, requires = "dry_run")]
    pub json: bool,
}

/// Runs the command.
pub fn run(args: &DaemonArgs) -> Result<u8, CmdError> {
    check_privileges()?;
    if !args.dry_run {
        serve::run(&args.config)?;
        return Ok(ExitCode::Ok.status());
    }
    let intent = division::intent(&args.config)?;
    let text = if args.json { report::json(&intent)? } else { intent.text() };
    style::print(&text).map_err(internal)?;
    Ok(ExitCode::Ok.status())
}
