//! `huepage daemon`: groups of a file get their parts of the cache, for as long as it runs; see
//! `crate::daemon`.

use std::path::PathBuf;

use clap::Args;

use crate::daemon::{plan, serve};
use crate::exit::{CmdError, ExitCode};
use crate::partition::{check_privileges, internal};
use crate::style;

const EXAMPLES: &str = "\
Examples:
  huepage daemon --config /etc/huepage.toml --dry-run   what it would do, and nothing else
  huepage daemon --config /etc/huepage.toml             until SIGTERM; SIGHUP reads the file again
  huepage ctl groups                                    how groups are

The file has a table for each group:
  [[group]]
  name = \"db\"
   command = \"postgres*\"                         # or cgroup, container, exe, or pid = 4711
   user = \"postgres\"                             # anybody can take a name
  share = \"25%\"                                 # always
  [[group]]
  name = \"web\"
  cgroup = \"system.slice/nginx.service\"
  miss_rate = { low = 0.1, high = 0.4 }         # less below, more above
  floor = 2                                     # colours; also: ceiling, priority

docs/huepage-daemon.toml has every key, docs/huepage.service is a unit for systemd. Mistakes are told with line
and column. A daemon that was killed leaves its programs unharmed; the next one takes them up again.";

/// Keep groups of processes in shares of the cache that follow what they need
///
/// Stays in the foreground and says every decision, with its reason, on standard error.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct DaemonArgs {
    /// The groups
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,

    /// Say what would be done, and end
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
    let intent = plan::intent(&args.config)?;
    let text = if args.json {
        serde_json::to_string_pretty(&intent).map_err(internal)? + "\n"
    } else {
        intent.text()
    };
    style::print(&text).map_err(internal)?;
    Ok(ExitCode::Ok.status())
}
