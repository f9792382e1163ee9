//! `huepage superpages`: huge pages where they pay, and nothing else. The same as `attach --superpages`, by its own
//! name: nothing goes into the processes, no colour is looked at, and nothing has to be undone.

use clap::Args;

use super::attach::{self, AttachArgs, Members};
use crate::exit::CmdError;
use crate::plan::Plan;
use crate::services::superpages::{POLICY_NAMED, SuperpageArgs};

const EXAMPLES: &str = "\
Examples:
  huepage superpages 4711                        huge pages where they pay
  huepage superpages --policy throttle 4711      by another policy
  huepage superpages --cgroup system.slice/postgresql.service
  huepage superpages --foreground 4711           stay, report, end with Ctrl-C
  huepage superpages --stall 500us 4711          none that takes longer

`huepage suits PID` says whether they pay; `huepage inspect PID` shows which were built; `huepage detach PID` \
ends it, and the process keeps the pages that it has. `huepage run --superpages POLICY` starts a program.";

/// Who is named has the usual policy.
const MEMBERS: [&str; 3] = ["pids", "cgroup", "container"];

/// Build huge pages in running processes where they pay, and do nothing else
///
/// Reads from outside which pages are in use, and has the kernel build pages of 2 MiB where a policy says that the
/// TLB misses they save are worth more than they cost. Nothing is injected, colours play no part. Also where
/// transparent huge pages are off or only on request (madvise).
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES, mut_arg("superpages", |policy| policy
    .long("policy").default_value("approx-online").help_heading(None)
    .help("The policy, with its keys: approx-online, throttle, asap and others")
    .long_help(None)))]
#[command(mut_arg("superpages_in_partition", |how| how.hide(true)))]
#[command(mut_args(|arg| if MEMBERS.contains(&arg.get_id().as_str()) { arg.group(POLICY_NAMED) } else { arg }))]
pub struct SuperpagesArgs {
    #[command(flatten)]
    pub superpages: SuperpageArgs,

    /// Stay in the foreground; Ctrl-C ends it, with a report
    #[arg(long)]
    pub foreground: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten)]
    pub members: Members,
}

/// Attaches with a plan of superpages alone.
pub fn run(args: SuperpagesArgs) -> Result<u8, CmdError> {
    let SuperpagesArgs { superpages, foreground, quiet, members } = args;
    let plan = Plan { superpages, ..Plan::default() };
    attach::run(AttachArgs { plan, foreground, freeze: false, quiet, members })
}
