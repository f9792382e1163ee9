//! Exit statuses, each with its meaning, and the one error type that commands return.
//!
//! The list here is the only one: `--help` and the documentation are made from it. Numbers
//! of huepage itself stay between 100 and 125, because `huepage run` otherwise exits as the
//! program did, and programs seldom use those; 1 is `doctor`'s alone, which runs no program.

use std::fmt;
use std::fmt::Write as _;
use std::path::Path;

use huepage_linux::color::line_timer::ResidencyError;
use huepage_linux::color::probe::ProbeError;
use huepage_linux::engine::EngineError;
use huepage_linux::inject::InjectError;
use huepage_linux::inject::agent::AgentError;
use huepage_linux::inject::launch::LaunchError;
use huepage_linux::kernel::procfs::{ProcError, printable};
use huepage_linux::services::files::FileCacheError;

use crate::style::Style;

/// How a command ended, as the exit status of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(dead_code, reason = "documented in full; some are raised on failures few machines show")]
pub enum ExitCode {
    /// The command did what it was asked to.
    Ok = 0,
    /// `doctor`: something that huepage needs is missing here.
    Lacking = 1,
    /// The arguments make no sense (clap uses the same number).
    Usage = 2,
    /// Not root, or a capability is missing.
    Privilege = 100,
    /// The kernel is older than 6.8 or was built without a feature that is needed.
    Kernel = 101,
    /// No process has that number.
    NoSuchProcess = 102,
    /// The process belongs to another user, or a security module protects it.
    Permission = 103,
    /// The colour set is empty, too large, or the share rounds to nothing.
    Colors = 104,
    /// The target is not a 64-bit x86 program.
    NotX8664 = 105,
    /// The target ended while huepage was attaching to it.
    TargetExited = 106,
    /// The target's seccomp filter forbids the system calls that the agent needs.
    Sandboxed = 107,
    /// The process already has a partition.
    AlreadyAttached = 108,
    /// `--strict`: the partition has no memory left.
    Exhausted = 109,
    /// The machine was too noisy for a verdict.
    Noisy = 110,
    /// The process has no partition.
    NotAttached = 111,
    /// A trace, machine or result file is missing, damaged, or of another form.
    BadFile = 112,
    /// `plan`: no partition keeps the limits.
    NoPlan = 113,
    /// Measurements contradict frame numbers, a partition, or a hash that was to be verified.
    Contradicted = 114,
    /// A bug or an unexpected failure of the system.
    Internal = 125,
    /// The program exists but cannot be executed.
    NotExecutable = 126,
    /// There is no such program.
    NotFound = 127,
}

impl ExitCode {
    /// Every status, in the order in which help lists them.
    pub const ALL: [ExitCode; 21] = [
        ExitCode::Ok,
        ExitCode::Lacking,
        ExitCode::Usage,
        ExitCode::Privilege,
        ExitCode::Kernel,
        ExitCode::NoSuchProcess,
        ExitCode::Permission,
        ExitCode::Colors,
        ExitCode::NotX8664,
        ExitCode::TargetExited,
        ExitCode::Sandboxed,
        ExitCode::AlreadyAttached,
        ExitCode::Exhausted,
        ExitCode::Noisy,
        ExitCode::NotAttached,
        ExitCode::BadFile,
        ExitCode::NoPlan,
        ExitCode::Contradicted,
        ExitCode::Internal,
        ExitCode::NotExecutable,
        ExitCode::NotFound,
    ];

    /// The number that the shell sees in `$?`.
    pub const fn status(self) -> u8 {
        self as u8
    }

    /// One line for the table of exit statuses.
    pub const fn meaning(self) -> &'static str {
        match self {
            ExitCode::Ok => "done (`run`: the program's own status)",
            ExitCode::Lacking => "`doctor`: something that huepage needs is missing here",
            ExitCode::Usage => "the arguments make no sense",
            ExitCode::Privilege => "not root, or a capability is missing",
            ExitCode::Kernel => "the kernel is older than 6.8 or lacks a feature",
            ExitCode::NoSuchProcess => "no such process",
            ExitCode::Permission => "the process belongs to another user or is protected",
            ExitCode::Colors => "colour set empty or too large, or a share of no colour",
            ExitCode::NotX8664 => "the target is not a 64-bit x86 program",
            ExitCode::TargetExited => "the target ended while huepage was attaching",
            ExitCode::Sandboxed => "the target's seccomp filter forbids the agent",
            ExitCode::AlreadyAttached => "the process already has a partition",
            ExitCode::Exhausted => "--strict: the partition has no memory left",
            ExitCode::Noisy => "the machine was too noisy for a verdict",
            ExitCode::NotAttached => "the process has no partition",
            ExitCode::BadFile => "a trace, machine or result file is missing or malformed",
            ExitCode::NoPlan => "`plan`: no partition keeps the limits",
            ExitCode::Contradicted => {
                "measurements contradict frame numbers, the partition or the hash"
            }
            ExitCode::Internal => "unexpected failure of huepage or of the system",
            ExitCode::NotExecutable => "the program cannot be executed",
            ExitCode::NotFound => "the program was not found",
        }
    }
}

impl From<ExitCode> for u8 {
    fn from(code: ExitCode) -> u8 {
        code.status()
    }
}

/// The table of exit statuses that closes `huepage --help`.
pub fn help_table() -> String {
    let mut text = String::from("Exit status:\n");
    for code in ExitCode::ALL {
        let _ = writeln!(text, "  {:>3}  {}", code.status(), code.meaning());
    }
    text.push_str(
        "\n`huepage run` otherwise exits as the program did; 128+N if signal N ended it.",
    );
    text
}

/// Why a command failed: an exit status and one line of text.
#[derive(Debug)]
pub struct CmdError {
    /// The exit status of the process.
    pub code: ExitCode,
    /// `<what>; <what to do next>`, without a full stop and without a newline.
    pub message: String,
}

impl CmdError {
    /// An error whose message already says what to do next.
    pub fn new(code: ExitCode, message: impl fmt::Display) -> CmdError {
        let message = printable(&message.to_string().replace('\n', " "));
        CmdError { code, message }
    }

    /// A failure that nobody foresaw.
    pub fn internal(what: impl fmt::Display) -> CmdError {
        CmdError::new(ExitCode::Internal, format!("{what}; please report this as a bug"))
    }

    /// Prints the error on standard error, in one line.
    pub fn report(&self) {
        eprintln!("{} {}", Style::stderr().red("huepage:"), self.message);
    }
}

impl fmt::Display for CmdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CmdError {}

/// An input that is missing or damaged.
pub fn bad_file(path: &Path, what: impl fmt::Display) -> CmdError {
    CmdError::new(ExitCode::BadFile, format!("{}: {what}", path.display()))
}

/// A failure to start the program, with the status that shells use for it.
pub fn launch_error(error: LaunchError) -> CmdError {
    let code = match (&error, error.exit_code()) {
        (_, Some(126)) => ExitCode::NotExecutable,
        (_, Some(127)) => ExitCode::NotFound,
        (LaunchError::NotX8664(_), _) => ExitCode::NotX8664,
        _ => ExitCode::Internal,
    };
    CmdError::new(code, error)
}

/// A failure of the engine with its status.
pub fn engine_error(error: EngineError) -> CmdError {
    let code = match &error {
        EngineError::Agent(AgentError::Inject(InjectError::Filtered { .. })) => ExitCode::Sandboxed,
        EngineError::NotNative(_)
        | EngineError::Agent(AgentError::Inject(InjectError::NotNative(_))) => ExitCode::NotX8664,
        EngineError::Exhausted => ExitCode::Exhausted,
        EngineError::Kernel(_) => ExitCode::Permission,
        EngineError::Agent(AgentError::Inject(InjectError::Denied(_))) => ExitCode::Permission,
        EngineError::Proc(e) if e.is_gone() => ExitCode::NoSuchProcess,
        e if e.is_gone() => ExitCode::TargetExited,
        _ => ExitCode::Internal,
    };
    CmdError::new(code, error)
}

/// A failure to read what the kernel says of a process, with its status.
pub fn proc_error(error: ProcError) -> CmdError {
    let code = match &error {
        ProcError::NoProcess(_) => ExitCode::NoSuchProcess,
        ProcError::Denied(_) | ProcError::TooLong(_) => ExitCode::Permission,
        ProcError::Unsupported(_) => ExitCode::Kernel,
        _ => ExitCode::Internal,
    };
    CmdError::new(code, error)
}

/// A failure to look at a process, with its status.
pub fn residency_error(error: ResidencyError) -> CmdError {
    let code = match &error {
        ResidencyError::NotPermitted => ExitCode::Privilege,
        ResidencyError::NotSupported(_) => ExitCode::Kernel,
        ResidencyError::Gone(_) => ExitCode::NoSuchProcess,
        ResidencyError::Proc(error) if error.is_gone() => ExitCode::NoSuchProcess,
        ResidencyError::Probe(ProbeError::Stale { .. } | ProbeError::Classes { .. }) => {
            ExitCode::Noisy
        }
        _ => ExitCode::Internal,
    };
    CmdError::new(code, error)
}

/// A failure of the page cache's machinery with its status.
pub fn cache_error(error: FileCacheError) -> CmdError {
    let code = match &error {
        FileCacheError::Unsupported(_) => ExitCode::Kernel,
        FileCacheError::NoFrames { .. } => ExitCode::Exhausted,
        FileCacheError::Probe(ProbeError::Stale { .. } | ProbeError::Classes { .. }) => {
            ExitCode::Noisy
        }
        _ => ExitCode::Internal,
    };
    CmdError::new(code, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn statuses_are_distinct_and_clear_of_programs() {
        let numbers: HashSet<u8> = ExitCode::ALL.iter().map(|c| c.status()).collect();
        assert_eq!(numbers.len(), ExitCode::ALL.len());
        for code in ExitCode::ALL {
            let n = code.status();
            assert!(matches!(n, 0..=2 | 100..=125 | 126 | 127), "{code:?} is {n}");
        }
    }

    #[test]
    fn help_lists_every_status_once() {
        let table = help_table();
        for code in ExitCode::ALL {
            assert_eq!(table.matches(code.meaning()).count(), 1, "{code:?}");
        }
    }

    #[test]
    fn an_error_is_one_line() {
        let error = CmdError::new(ExitCode::Kernel, "too old\nby far; upgrade");
        assert_eq!(error.to_string(), "too old by far; upgrade");
    }
}
