//! `huepage attach`: confine processes that run already. A supervisor stays behind, in the
//! background unless told otherwise.

mod freeze;

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use clap::Args;
use huepage_color::PAGE_BYTES;
use huepage_linux::color::partition_registry::Registry;
use huepage_linux::control::socket::SupervisorRequest;
use huepage_linux::inject::launch::relay::{SignalRelay, outlive_parent};
use huepage_linux::kernel::cgroup;
use huepage_linux::kernel::containers::{Container, ContainerError, ContainerId};
use huepage_linux::kernel::process_memory::thread_time;
use huepage_linux::kernel::process_tree::ProcessRoots;
use huepage_linux::kernel::procfs::{ProcRoot, ProcessHandle};

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
    #[arg(long, conflicts_with_all = ["foreground", "container"])]
    pub freeze: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// All processes of a container, those to come included: 12 or more digits of its identifier, or its
    /// name for containerd or runc
    #[arg(long, value_name = "ID")]
    pub container: Option<ContainerId>,

    /// The processes
    #[arg(required_unless_present = "container", value_name = "PID", value_parser = clap::value_parser!(u32).range(1..=0x40_0000))]
    pub pids: Vec<u32>,
}

/// Attaches; returns when all processes are confined, or with `--foreground` when they ended.
pub fn run(args: AttachArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let container = found(&args)?;
    let pids = all_pids(&args, container.as_ref())?;
    args.plan.check()?;
    let check = if args.plan.confines() { check_target } else { check_free };
    pids.iter().try_for_each(|&pid| check(pid))?;
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
    look_after(&mut supervisor, &relay, container.map(Joining::new))?;
    let report = supervisor.finish_services();
    if args.foreground && !args.quiet {
        report.text().iter().for_each(|line| eprintln!("{line}"));
    }
    Ok(0)
}

/// The container that is asked for.
fn found(args: &AttachArgs) -> Result<Option<Container>, CmdError> {
    let find = |id| Container::find(id, &ProcRoot::default(), cgroup::MOUNT.as_ref());
    args.container.as_ref().map(find).transpose().map_err(container_error)
}

fn container_error(error: ContainerError) -> CmdError {
    let code = match &error {
        ContainerError::Cgroup(_) | ContainerError::Proc(_) => return internal(error),
        ContainerError::Absent(_) => ExitCode::NoSuchProcess,
        _ => ExitCode::Usage,
    };
    CmdError::new(code, error.to_string())
}

/// Each process once: those that were named, and those of the container.
fn all_pids(args: &AttachArgs, container: Option<&Container>) -> Result<Vec<i32>, CmdError> {
    let mut pids: BTreeSet<i32> = args.pids.iter().map(|&pid| pid.cast_signed()).collect();
    if let Some(container) = container {
        let root = ProcRoot::default();
        let inside = container.processes().map_err(container_error)?;
        // What has ended is in its control group until its parent has heard of it.
        let alive = |pid: &i32| root.status(*pid).is_ok_and(|status| !status.is_dead());
        pids.extend(inside.into_iter().filter(alive));
    }
    Ok(pids.into_iter().collect())
}

/// How often a container is looked into at most.
const LOOK: Duration = Duration::from_millis(100);

/// Takes the processes that begin in a container.
struct Joining {
    container: Container,
    next_look: Instant,
}

impl Joining {
    fn new(container: Container) -> Joining {
        Joining { container, next_look: Instant::now() + LOOK }
    }

    /// Looks for processes, if it is time.
    fn look_when_due(&mut self, supervisor: &mut Supervisor) {
        if Instant::now() >= self.next_look {
            let start = thread_time();
            self.look(supervisor);
            let pause = supervisor.group.pause_after(thread_time().saturating_sub(start));
            self.next_look = Instant::now() + pause.max(LOOK);
        }
    }

    /// Invites those that no other partition has. Children of members are taken without that.
    fn look(&self, supervisor: &mut Supervisor) {
        let own = std::process::id().cast_signed();
        // What cannot be read for a moment is read again.
        let Ok(others) = Registry::open().and_then(|registry| registry.list()) else { return };
        let taken = |pid: &i32| others.iter().any(|e| e.pid != own && e.members.contains(pid));
        let root = ProcRoot::default();
        let listed = || self.container.processes().unwrap_or_default();
        let mut pids = listed();
        pids.retain(|pid| *pid != own && !taken(pid) && !is_below(*pid, supervisor.members()));
        let held = pids.into_iter().filter_map(|pid| ProcessHandle::open(&root, pid).ok());
        let mut held: Vec<_> = held.collect();
        // Who is listed still is the process that is held now.
        let still = listed();
        held.retain(|one| still.contains(&one.pid()));
        supervisor.invite(held);
    }
}

/// Whether a process is one of these or comes from one.
fn is_below(pid: i32, members: &[i32]) -> bool {
    const DEEPEST: usize = 64;
    let root = ProcRoot::default();
    let parent = |&pid: &i32| root.status(pid).ok().map(|status| status.ppid);
    std::iter::successors(Some(pid), parent).take(DEEPEST).any(|pid| members.contains(&pid))
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

/// Takes all processes, or none. Those of a container may end meanwhile, or share memory with one that is
/// taken already.
fn confine(supervisor: &mut Supervisor, pids: &[i32], args: &AttachArgs) -> Result<(), CmdError> {
    let mut gathering = GatheringBar::new(args.quiet);
    for &pid in pids {
        let named = args.pids.contains(&pid.cast_unsigned());
        if !named && supervisor.group.shares_memory(pid) {
            continue;
        }
        let taken = supervisor.group.take_running(pid, |done, all| gathering.show(done, all));
        if let Err(error) = taken.or_else(|e| if e.is_gone() && !named { Ok(()) } else { Err(e) }) {
            supervisor.group.release_all();
            return Err(engine_error(error));
        }
    }
    gathering.finish();
    Ok(())
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
        if args.container.is_some() { pids.iter().any(held) } else { pids.iter().all(held) }
    })?;
    if let Some(why) = no_superpages(pids) {
        say(args, &format!("no superpages are built: {why}"));
    }
    let stock: u64 = pids.iter().filter_map(|&pid| stock_of(pid)).sum();
    let stock = Some(stock).filter(|&bytes| bytes > 0);
    let stock = stock.map(|bytes| format!("; {}", stock_text(bytes))).unwrap_or_default();
    let what = format!("{} (supervisor {supervisor}){stock}", done(args, pids.len()));
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
