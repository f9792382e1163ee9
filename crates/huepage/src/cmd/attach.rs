//! `huepage attach`: confine processes that run already. A supervisor stays behind, in the
//! background unless told otherwise.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use huepage_linux::cgroup;
use huepage_linux::containers::{Container, ContainerError};
use huepage_linux::control::{self, Request};
use huepage_linux::filecache::kin::Heads;
use huepage_linux::launch::relay::{SignalRelay, outlive_parent};
use huepage_linux::procfs::ProcRoot;
use huepage_linux::registry::Registry;

use super::page_cache::decided;
use super::page_cache::supervisor::Service;
use super::run::engine_error;
use crate::args::{AttachArgs, PartitionArgs};
use crate::behind;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, Plan, internal};
use crate::progress::Gathering;
use crate::superpages::no_partition;
use crate::supervise::Supervisor;

/// Attaches; returns when all processes are confined, or with `--foreground` when they ended.
pub fn run(args: AttachArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let container = found(&args)?;
    let pids = all_pids(&args, container.as_ref())?;
    let alone = checked(&args, &pids)?;
    if !args.foreground && !behind::is_supervisor() {
        return stay_behind(&args, &pids);
    }
    let relay = SignalRelay::new().map_err(internal)?;
    let wanted = wanted(&args, alone)?;
    let plan = partition::prepare(&wanted)?;
    let costs = args.superpages.costs(&plan);
    let refused = if alone { None } else { args.superpages.refuse(&plan, args.quiet) };
    let text = args.text.start(&plan)?;
    let partition = decided(&wanted, &plan);
    let mut supervisor = opened(&args, plan, alone, &pids)?;
    supervisor.place_text(text);
    supervisor.refuse_superpages(refused);
    let heads = Heads::With(pids.clone());
    let files = Service::start_if_wanted(&args.page_cache, &partition, heads, args.quiet)?;
    if !alone {
        confine(&mut supervisor, &pids, &args)?;
        let desk = supervisor.group.desk();
        supervisor.build_superpages(args.superpages.start_in(desk, costs, &pids));
    }
    say(&args, &format!("{}; `huepage detach PID` undoes it", done(&args, pids.len(), alone)));
    if behind::is_supervisor() {
        // Whoever waits for the members to be announced ends when they are.
        outlive_parent();
    }
    if alone {
        supervisor.build_superpages(args.superpages.start(&pids));
        supervisor.watch(&pids)?;
    }
    let joining = container.filter(|_| !alone).map(Joining::new);
    look_after(&mut supervisor, &relay, files.as_ref(), joining, alone, pids)?;
    if let Some(report) = files.map(Service::finish).filter(|_| args.foreground && !args.quiet) {
        eprintln!("{}", report.text());
    }
    Ok(0)
}

/// Whether there is no partition, only something that needs none; refuses what cannot be.
fn checked(args: &AttachArgs, pids: &[i32]) -> Result<bool, CmdError> {
    let placed = args.text.check(true).is_err() || args.page_cache.is_on();
    let other = placed || args.superpages.is_on() || args.pollute.is_on();
    args.conflicts.check(&args.partition, other)?;
    let alone = is_alone(args)?;
    args.text.check(alone)?;
    args.pollute.check(alone, args.superpages.is_on())?;
    args.superpages.check()?;
    for &pid in pids {
        if alone { check_free(pid)? } else { check_target(pid)? }
    }
    Ok(alone)
}

/// Whether there is no partition.
fn is_alone(args: &AttachArgs) -> Result<bool, CmdError> {
    if args.conflicts.is_on() {
        return Ok(true);
    }
    args.page_cache.is_alone(&args.partition, &args.superpages, &args.pollute)
}

/// The partition that is asked for; none where only superpages are.
fn wanted(args: &AttachArgs, alone: bool) -> Result<PartitionArgs, CmdError> {
    if args.conflicts.is_on() {
        return Ok(args.conflicts.partition(&args.partition));
    }
    if args.pollute.is_on() {
        return args.pollute.partition(&args.partition);
    }
    let only_superpages = alone && !args.page_cache.is_on();
    Ok(if only_superpages { no_partition(&args.partition) } else { args.partition.clone() })
}

/// A supervisor for what is asked for.
fn opened(
    args: &AttachArgs,
    plan: Plan,
    alone: bool,
    pids: &[i32],
) -> Result<Supervisor, CmdError> {
    if args.pollute.is_on() {
        let (plan, polluters) = args.pollute.start(plan, Heads::With(pids.to_vec()))?;
        let mut supervisor = Supervisor::open(plan)?;
        supervisor.confine_polluters(polluters);
        return Ok(supervisor);
    }
    if args.conflicts.is_on() {
        let (plan, recolorers) = args.conflicts.start(plan, Heads::With(pids.to_vec()))?;
        let mut supervisor = Supervisor::without_colors(plan)?;
        supervisor.recolor_conflicts(recolorers);
        return Ok(supervisor);
    }
    if alone { Supervisor::without_colors(plan) } else { Supervisor::open(plan) }
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

/// How often a container is looked into.
const LOOK: Duration = Duration::from_millis(100);

/// Takes the processes that begin in a container.
struct Joining {
    container: Container,
    looked: Instant,
}

impl Joining {
    fn new(container: Container) -> Joining {
        Joining { container, looked: Instant::now() }
    }

    /// Invites those that no other partition has. Children of members are taken without that.
    fn look(&mut self, supervisor: &mut Supervisor) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let own = std::process::id().cast_signed();
        // What cannot be read for a moment is read again.
        let Ok(others) = Registry::open().and_then(|registry| registry.list()) else { return };
        let taken = |pid: &i32| others.iter().any(|e| e.pid != own && e.members.contains(pid));
        let mut pids = self.container.processes().unwrap_or_default();
        pids.retain(|pid| *pid != own && !taken(pid) && !is_below(*pid, supervisor.members()));
        supervisor.group.invite(pids);
    }
}

/// Whether a process is one of these or comes from one.
fn is_below(pid: i32, members: &[i32]) -> bool {
    const DEEPEST: usize = 64;
    let root = ProcRoot::default();
    let parent = |&pid: &i32| root.status(pid).ok().map(|status| status.ppid);
    std::iter::successors(Some(pid), parent).take(DEEPEST).any(|pid| members.contains(&pid))
}

/// Until nobody is left, or a signal comes. `alone` are files all there is to look after.
fn look_after(
    supervisor: &mut Supervisor,
    relay: &SignalRelay,
    files: Option<&Service>,
    mut joining: Option<Joining>,
    alone: bool,
    mut pids: Vec<i32>,
) -> Result<(), CmdError> {
    while !supervisor.is_empty() {
        if let Some(joining) = &mut joining {
            joining.look(supervisor);
        }
        supervisor.turn(&[relay.as_fd().as_raw_fd()])?;
        while let Some(signal) = relay.next().map_err(internal)? {
            if [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].contains(&signal.signal) {
                supervisor.release_all();
            }
        }
        if let Some(files) = files {
            let left = pids.extract_if(.., |pid| !supervisor.members().contains(pid));
            left.for_each(|pid| files.release(pid));
            if alone && files.is_dead() {
                supervisor.release_all();
            }
        }
    }
    Ok(())
}

/// Takes all processes, or none. Those of a container may end meanwhile, or share memory with one that is
/// taken already.
fn confine(supervisor: &mut Supervisor, pids: &[i32], args: &AttachArgs) -> Result<(), CmdError> {
    let mut gathering = Gathering::new(args.quiet);
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
fn done(args: &AttachArgs, n: usize, alone: bool) -> String {
    match (alone, args.page_cache.is_on()) {
        _ if args.pollute.is_on() => format!("polluting pages of {n} processes are looked for"),
        _ if args.conflicts.is_on() => format!("conflicts in {n} processes are looked for"),
        (false, _) => format!("{n} processes confined"),
        (true, true) => format!("files of {n} processes are placed"),
        (true, false) => format!("superpages are built in {n} processes"),
    }
}

fn say(args: &AttachArgs, text: &str) {
    if !args.quiet {
        eprintln!("huepage: {text}");
    }
}

/// What can be known before anything is touched.
pub fn check_target(pid: i32) -> Result<(), CmdError> {
    let root = ProcRoot::default();
    huepage_linux::engine::group::check_suitable(&root, pid).map_err(engine_error)?;
    check_free(pid)
}

/// Whether nobody has the process.
fn check_free(pid: i32) -> Result<(), CmdError> {
    if !ProcRoot::default().process_exists(pid) {
        return Err(no_such(pid));
    }
    if pid == std::process::id().cast_signed() {
        return Err(CmdError::new(
            ExitCode::Permission,
            "huepage cannot attach to itself; give another pid",
        ));
    }
    let registry = Registry::open().map_err(internal)?;
    if let Some(entry) = registry.find_member(pid).map_err(internal)? {
        let what = format!(
            "process {pid} is in the partition {} of supervisor {} already; `huepage detach {pid}` first",
            entry.colors, entry.pid
        );
        return Err(CmdError::new(ExitCode::AlreadyAttached, what));
    }
    Ok(())
}

/// Starts the supervisor in the background and waits until it holds every process.
fn stay_behind(args: &AttachArgs, pids: &[i32]) -> Result<u8, CmdError> {
    let supervisor = behind::start(std::env::args_os().skip(1), |registry| {
        let held = |pid: &i32| registry.find_member(*pid).is_ok_and(|entry| entry.is_some());
        // They are announced together; not every process of a container has to be taken.
        if args.container.is_some() { pids.iter().any(held) } else { pids.iter().all(held) }
    })?;
    let alone = is_alone(args)?;
    if let Some(why) = no_superpages(pids).filter(|_| !alone) {
        say(args, &format!("no superpages are built: {why}"));
    }
    let what = format!("{} by supervisor {supervisor}", done(args, pids.len(), alone));
    say(args, &format!("{what}; `huepage detach PID` undoes it"));
    Ok(0)
}

/// Why the supervisor of some processes builds no superpages, if it was to.
fn no_superpages(pids: &[i32]) -> Option<String> {
    let pid = *pids.first()?;
    // Who has ended needs no reason any more.
    let told = ask(pid, &Request::Status { pid }, Duration::from_secs(10)).ok()?;
    Some(told["partition"]["no_superpages"].as_str()?.to_owned())
}

/// Asks the supervisor of a process.
pub fn ask(pid: i32, request: &Request, limit: Duration) -> Result<serde_json::Value, CmdError> {
    let registry = Registry::open().map_err(internal)?;
    let Some(entry) = registry.find_member(pid).map_err(internal)? else {
        return Err(in_no_partition(pid));
    };
    control::call(&registry.socket_path(entry.pid), request, limit).map_err(|error| {
        if is_ending(&registry, pid) { in_no_partition(pid) } else { internal(error) }
    })
}

fn no_such(pid: i32) -> CmdError {
    let what = format!("no process with pid {pid}; look it up with `ps -e`");
    CmdError::new(ExitCode::NoSuchProcess, what)
}

fn in_no_partition(pid: i32) -> CmdError {
    if !ProcRoot::default().process_exists(pid) {
        return no_such(pid);
    }
    let what = format!("process {pid} is in no partition; see `huepage attach --help`");
    CmdError::new(ExitCode::NotAttached, what)
}

/// Whether a supervisor that does not answer is on its way out: it hears nothing any more
/// some moments before its entry is gone.
fn is_ending(registry: &Registry, pid: i32) -> bool {
    (0..20).any(|_| {
        std::thread::sleep(Duration::from_millis(25));
        registry.find_member(pid).is_ok_and(|entry| entry.is_none())
    })
}
