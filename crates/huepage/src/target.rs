//! Processes that commands are about: whether one can be taken, and what its supervisor says of it.

use std::time::Duration;

use huepage_linux::color::partition_registry::Registry;
use huepage_linux::control::socket;
use huepage_linux::control::socket::SupervisorRequest;
use huepage_linux::engine::EngineError;
use huepage_linux::kernel::procfs::ProcRoot;

use crate::exit::{CmdError, ExitCode, engine_error};
use crate::partition::internal;

/// What can be known before anything is touched.
pub fn check_target(pid: i32) -> Result<(), CmdError> {
    check_number(pid)?;
    huepage_linux::engine::group::check_suitable(&ProcRoot::default(), pid)
        .map_err(engine_error)?;
    check_free(pid)
}

/// Refuses processes that are never taken.
fn check_number(pid: i32) -> Result<(), CmdError> {
    let what = match pid {
        1 => "process 1 is init; refused, as the whole system depends on it; give another pid",
        _ if pid == std::process::id().cast_signed() => {
            "huepage cannot attach to itself; give another pid"
        }
        _ => return Ok(()),
    };
    Err(CmdError::new(ExitCode::Permission, what))
}

/// Whether nobody has the process.
pub fn check_free(pid: i32) -> Result<(), CmdError> {
    check_number(pid)?;
    check_exists(pid)?;
    if ProcRoot::default().stat(pid).is_ok_and(|stat| stat.kernel_thread) {
        return Err(engine_error(EngineError::Kernel(pid)));
    }
    let registry = Registry::open().map_err(internal)?;
    if let Some(entry) = registry.find_member(pid).map_err(internal)? {
        let partition = match entry.colors.len() {
            0 => String::new(),
            _ => format!(" in colours {}", entry.colors),
        };
        let what = format!(
            "supervisor {} has process {pid}{partition} already; `huepage detach {pid}` first",
            entry.pid
        );
        return Err(CmdError::new(ExitCode::AlreadyAttached, what));
    }
    Ok(())
}

/// Whether there is such a process.
pub fn check_exists(pid: i32) -> Result<(), CmdError> {
    if ProcRoot::default().process_exists(pid) { Ok(()) } else { Err(no_such(pid)) }
}

/// Asks the supervisor of a process.
pub fn ask(
    pid: i32,
    request: &SupervisorRequest,
    limit: Duration,
) -> Result<serde_json::Value, CmdError> {
    let registry = Registry::open().map_err(internal)?;
    let Some(entry) = registry.find_member(pid).map_err(internal)? else {
        return Err(in_no_partition(pid));
    };
    socket::call(&registry.socket_path(entry.pid), request, limit).map_err(|error| {
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
