//! Starts this program once more, in the background, as the supervisor that stays behind when the
//! command has returned. What it then does is the command's business.

use std::ffi::OsString;
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use huepage_linux::color::partition_registry::Registry;
use huepage_linux::inject::launch::relay::own_child;

use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;

/// Set for the supervisor that stays behind, so that it does not start another.
const STAYING: &str = "HUEPAGE_STAYING";
/// Longest that a supervisor may take to be ready: building colour classes and gathering a stock.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether this process is the one that stays.
pub fn is_supervisor() -> bool {
    std::env::var_os(STAYING).is_some()
}

/// Starts it with these arguments and waits until it is `ready`; its pid.
pub fn start(
    arguments: impl Iterator<Item = OsString>,
    ready: impl Fn(&Registry) -> bool,
) -> Result<u32, CmdError> {
    let own = std::env::current_exe().map_err(internal)?;
    let (reader, writer) = std::io::pipe().map_err(internal)?;
    let mut command = Command::new(own);
    command.args(arguments).env(STAYING, "1").process_group(0);
    // Who interrupts the command that waits for it does not want it any more.
    own_child(&mut command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer);
    let mut child = command.spawn().map_err(internal)?;
    // It holds the writing end of the pipe, whose end is awaited when the supervisor fails.
    drop(command);
    let registry = Registry::open().map_err(internal)?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(internal)? {
            return Err(failed(status.code(), reader));
        }
        if ready(&registry) {
            return Ok(child.id());
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            return Err(internal(
                "the supervisor takes too long; try again when the machine is quieter",
            ));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The supervisor gave up: its message and status are ours.
fn failed(code: Option<i32>, mut reader: std::io::PipeReader) -> CmdError {
    let mut text = String::new();
    let _ = reader.read_to_string(&mut text);
    let line = text.lines().last().unwrap_or("the processes ended").trim_start_matches("huepage: ");
    let code = code.and_then(|c| ExitCode::ALL.into_iter().find(|e| i32::from(e.status()) == c));
    match code {
        Some(ExitCode::Ok) => CmdError::new(
            ExitCode::TargetExited,
            "the processes ended during the attach; start them again",
        ),
        Some(code) => CmdError::new(code, line),
        None => CmdError::internal(line),
    }
}
