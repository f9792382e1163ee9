//! `huepage attach`: confine processes that run already. A supervisor stays behind, in the
//! background unless told otherwise.

use std::time::Duration;

use huepage_linux::control::{self, Request};
use huepage_linux::launch::relay::{SignalRelay, outlive_parent};
use huepage_linux::procfs::ProcRoot;
use huepage_linux::registry::Registry;

use super::run::engine_error;
use crate::args::AttachArgs;
use crate::behind;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};
use crate::progress::Gathering;
use crate::supervise::Supervisor;

/// Attaches; returns when all processes are confined, or with `--foreground` when they ended.
pub fn run(args: AttachArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let mut pids: Vec<i32> = args.pids.iter().map(|&p| p.cast_signed()).collect();
    pids.sort_unstable();
    pids.dedup();
    for &pid in &pids {
        check_target(pid)?;
    }
    if !args.foreground && !behind::is_supervisor() {
        return stay_behind(&args, &pids);
    }
    let relay = SignalRelay::new().map_err(internal)?;
    let plan = partition::prepare(&args.partition)?;
    let mut supervisor = Supervisor::open(plan)?;
    let mut gathering = Gathering::new(args.quiet);
    for &pid in &pids {
        let taken = supervisor.group.take_running(pid, |done, all| gathering.show(done, all));
        if let Err(error) = taken {
            supervisor.group.release_all();
            return Err(engine_error(error));
        }
    }
    gathering.finish();
    say(&args, &format!("{} processes confined; `huepage detach PID` undoes it", pids.len()));
    if behind::is_supervisor() {
        // Whoever waits for the members to be announced ends when they are.
        outlive_parent();
    }
    while !supervisor.group.is_empty() {
        supervisor.turn(&[std::os::fd::AsRawFd::as_raw_fd(&std::os::fd::AsFd::as_fd(&relay))])?;
        while let Some(signal) = relay.next().map_err(internal)? {
            if [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].contains(&signal.signal) {
                supervisor.group.release_all();
            }
        }
    }
    Ok(0)
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
        pids.iter().all(|&pid| registry.find_member(pid).is_ok_and(|entry| entry.is_some()))
    })?;
    let n = pids.len();
    let what = format!("{n} processes confined by supervisor {supervisor}");
    say(args, &format!("{what}; `huepage detach PID` undoes it"));
    Ok(0)
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

fn in_no_partition(pid: i32) -> CmdError {
    if !ProcRoot::default().process_exists(pid) {
        let what = format!("no process with pid {pid}; look it up with `ps -e`");
        return CmdError::new(ExitCode::NoSuchProcess, what);
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
