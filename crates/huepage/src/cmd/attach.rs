//! `huepage attach`: confine processes that run already. A supervisor stays behind, in the
//! background unless told otherwise.

mod freeze;
mod members;

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use clap::Args;
use huepage_color::PAGE_BYTES;
use huepage_linux::color::partition_registry::Registry;
use huepage_linux::control::socket::SupervisorRequest;
use huepage_linux::inject::launch::relay::{SignalRelay, outlive_parent};
use huepage_linux::kernel::process_tree::ProcessRoots;

use self::members::Joining;
pub use self::members::Members;
use crate::background_supervisor;
use crate::exit::{CmdError, ExitCode, engine_error};
use crate::partition::{self, internal};
use crate::plan::Plan;
use crate::progress::GatheringBar;
use crate::report::stock_text;
use crate::style::count;
use crate::supervise::Supervisor;
use crate::target::{ask, check_free, check_target};

const ATTACH_EXAMPLES: &str = "\
Examples:
  huepage attach --share 25% 4711              confine a running process
  huepage attach --colors 8-15 4711 4712       two processes in one partition
  huepage attach --share 50% --foreground 4711 stay, and undo with Ctrl-C
  huepage attach --share 25% --freeze 4711     move its pages, then leave
  huepage attach --page-cache srm-rescan 4711  only place files that it opens
  huepage attach --superpages throttle 4711    only build superpages
  huepage attach --pollute-buffer=1/8 4711     only confine pages that pollute
  huepage attach --recolor-conflicts 4711      only spread crowded pages

`huepage verify 4711` measures whether it worked; `huepage detach 4711` undoes it.";

/// Confine running processes to a share of the cache
///
/// Moves resident pages into the chosen colours, and serves later faults from them. A supervisor stays
/// in the background until `huepage detach` or the end of the processes.
#[derive(Args, Debug)]
#[command(after_long_help = ATTACH_EXAMPLES, mut_arg("pollute_buffer", |buffer| buffer.require_equals(true)))]
pub struct AttachArgs {
    #[command(flatten)]
    pub plan: Plan,

    /// Stay in the foreground; Ctrl-C detaches
    #[arg(long)]
    pub foreground: bool,

    /// Move all pages, then leave: nothing of huepage stays in the processes
    ///
    /// For programs that must not wait and allocate nothing any more. What they allocate later may have any colour. Says
    /// for how long a thread was stopped and a page away at most.
    #[arg(long, conflicts_with_all = ["foreground", "container", "cgroup"])]
    pub freeze: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    #[command(flatten)]
    pub members: Members,
}

/// Attaches; returns when all processes are confined, or with `--foreground` when they ended.
pub fn run(args: AttachArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let place = args.members.place()?;
    let pids = args.members.pids_with(place.as_ref())?;
    args.plan.check()?;
    let pids = suitable(&args, pids)?;
    if args.freeze && !args.plan.confines() {
        let what = "--freeze moves pages into a share; say which: --share 25% or --colors 0-3";
        return Err(CmdError::new(ExitCode::Usage, what));
    }
    let stays = args.foreground || args.freeze;
    if !stays && !background_supervisor::is_supervisor() {
        return stay_behind(&args, &pids);
    }
    let relay = SignalRelay::new().map_err(internal)?;
    let prepared = args.plan.prepare(partition::prepare)?;
    let roots = ProcessRoots::With(pids.clone());
    let mut supervisor = Supervisor::open(&args.plan, prepared, roots, args.quiet)?;
    if args.plan.confines() {
        confine(&mut supervisor, &pids, &args)?;
    }
    if args.freeze {
        return freeze::run(&mut supervisor, &pids, &relay, args.quiet);
    }
    say(&args, &format!("{}; `huepage detach PID` undoes it", done(&args, pids.len())));
    if background_supervisor::is_supervisor() {
        // Whoever waits for the members to be announced ends when they are.
        outlive_parent();
    }
    if !args.plan.confines() {
        supervisor.watch(&pids)?;
    }
    look_after(&mut supervisor, &relay, place.map(Joining::new))?;
    let report = supervisor.finish_services();
    if args.foreground && !args.quiet {
        report.text().iter().for_each(|line| eprintln!("{line}"));
    }
    Ok(0)
}

/// Those that can be taken as far as is seen from outside: all that were named, and some of a place.
fn suitable(args: &AttachArgs, mut pids: Vec<i32>) -> Result<Vec<i32>, CmdError> {
    let check = if args.plan.confines() { check_target } else { check_free };
    let mut refused = None;
    for pid in pids.clone() {
        let Err(error) = check(pid) else { continue };
        if args.members.names(pid) {
            return Err(error);
        }
        if !background_supervisor::is_supervisor() {
            say(args, &format!("process {pid} is left out: {error}"));
        }
        pids.retain(|&other| other != pid);
        refused.get_or_insert(error);
    }
    refused.filter(|_| pids.is_empty()).map_or(Ok(pids), Err)
}

/// Until nobody is left, nothing is left to do, or a signal comes.
fn look_after(
    supervisor: &mut Supervisor,
    relay: &SignalRelay,
    mut joining: Option<Joining>,
) -> Result<(), CmdError> {
    while !supervisor.is_empty() {
        if let Some(joining) = &mut joining {
            joining.look_when_due(supervisor);
        }
        supervisor.turn(&[relay.as_fd().as_raw_fd()])?;
        while let Some(signal) = relay.next().map_err(internal)? {
            if [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].contains(&signal.signal) {
                supervisor.release_all();
            }
        }
        if supervisor.is_over() {
            supervisor.release_all();
        }
    }
    Ok(())
}

/// Takes all processes that were named, or none. Those of a place may end meanwhile, or share memory with one that
/// is taken already; one that cannot be taken does not keep the others out.
fn confine(supervisor: &mut Supervisor, pids: &[i32], args: &AttachArgs) -> Result<(), CmdError> {
    let mut gathering = GatheringBar::new(args.quiet);
    let (mut refused, mut taken) = (None, false);
    for &pid in pids {
        let named = args.members.names(pid);
        if !named && supervisor.group.shares_memory(pid) {
            continue;
        }
        match supervisor.group.take_running(pid, |done, all| gathering.show(done, all)) {
            Ok(()) => taken = true,
            Err(error) if !named && error.is_gone() => {}
            Err(error) if !named => {
                say(args, &format!("process {pid} is not confined: {error}"));
                refused.get_or_insert(error);
            }
            Err(error) => {
                supervisor.group.release_all();
                return Err(engine_error(error));
            }
        }
    }
    gathering.finish();
    refused.filter(|_| !taken).map_or(Ok(()), |error| Err(engine_error(error)))
}

/// What was done, for a person.
fn done(args: &AttachArgs, n: usize) -> String {
    let (plan, processes) = (&args.plan, count(n as u64, "process", "processes"));
    match plan.confines() {
        true => format!("{processes} confined"),
        _ if plan.pollute.is_on() => format!("watching {processes} for pages that pollute"),
        _ if plan.conflicts.is_on() => format!("watching {processes} for conflicts"),
        _ if plan.page_cache.is_on() => format!("placing files of {processes}"),
        _ => format!("building superpages in {processes}"),
    }
}

fn say(args: &AttachArgs, text: &str) {
    if !args.quiet {
        eprintln!("huepage: {text}");
    }
}

/// Starts the supervisor in the background and waits until it holds every process.
fn stay_behind(args: &AttachArgs, pids: &[i32]) -> Result<u8, CmdError> {
    let supervisor = background_supervisor::start(std::env::args_os().skip(1), |registry| {
        let held = |pid: &i32| registry.find_member(*pid).is_ok_and(|entry| entry.is_some());
        // They are announced together; not every process of a container has to be taken.
        if args.members.has_place() { pids.iter().any(held) } else { pids.iter().all(held) }
    })?;
    if let Some(why) = no_superpages(pids) {
        say(args, &format!("no superpages are built: {why}"));
    }
    let held = Registry::open().and_then(|registry| registry.list()).map_err(internal)?;
    let held = held.iter().filter(|entry| entry.pid.cast_unsigned() == supervisor);
    let held: Vec<i32> = held.flat_map(|entry| entry.members.clone()).collect();
    let n = pids.iter().filter(|pid| held.contains(pid)).count();
    let stock: u64 = pids.iter().filter_map(|&pid| stock_of(pid)).sum();
    let stock = Some(stock).filter(|&bytes| bytes > 0);
    let stock = stock.map(|bytes| format!("; {}", stock_text(bytes))).unwrap_or_default();
    // Who ended since was there.
    let n = if args.members.has_place() { n } else { pids.len() };
    let what = format!("{} (supervisor {supervisor}){stock}", done(args, n));
    say(args, &format!("{what}; `huepage detach PID` undoes it"));
    Ok(0)
}

/// Bytes of stock that a process has.
fn stock_of(pid: i32) -> Option<u64> {
    let told = ask(pid, &SupervisorRequest::Status { pid }, Duration::from_secs(10)).ok()?;
    Some(told["status"]["stock"].as_u64()? * PAGE_BYTES)
}

/// Why the supervisor of some processes builds no superpages, if it was to.
fn no_superpages(pids: &[i32]) -> Option<String> {
    let pid = *pids.first()?;
    // Who has ended needs no reason any more.
    let told = ask(pid, &SupervisorRequest::Status { pid }, Duration::from_secs(10)).ok()?;
    Some(told["partition"]["no_superpages"].as_str()?.to_owned())
}
