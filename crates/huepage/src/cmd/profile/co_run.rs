//! What runs at the same time as the profiled program: a shell command, started again when it ends, in the colours
//! that the program leaves.

use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::child::GroupedChild;
use crate::exit::{CmdError, ExitCode};

/// So that it is at work when the program starts.
const AHEAD: Duration = Duration::from_millis(300);
/// Restarts in a row without a look at the program.
const MOMENT: Duration = Duration::ZERO;

/// A command at work.
pub struct CoRun<'a> {
    work: &'a str,
    before: Option<Command>,
    run: GroupedChild,
}

impl<'a> CoRun<'a> {
    /// Starts a shell command, after `before` if there is one.
    pub fn start(work: &'a str, mut before: Option<Command>) -> Result<CoRun<'a>, CmdError> {
        let run = begin(work, before.as_mut())?;
        std::thread::sleep(AHEAD);
        Ok(CoRun { work, before, run })
    }

    /// Starts it again if it has ended.
    pub fn keep(&mut self) -> Result<(), CmdError> {
        if let Some(status) = self.run.ended(MOMENT)? {
            self.check(status)?;
            self.run = begin(self.work, self.before.as_mut())?;
        }
        Ok(())
    }
}

impl CoRun<'_> {
    /// A shell that finds no program, or a `huepage run` that could not confine it, would be started
    /// for ever and run nothing.
    fn check(&self, status: ExitStatus) -> Result<(), CmdError> {
        let own = if self.before.is_some() { 100..=127 } else { 126..=127 };
        let Some(code) = status.code().filter(|code| own.contains(code)) else { return Ok(()) };
        let what = format!("`{}` beside the program ended with {code}; try it alone", self.work);
        Err(CmdError::new(ExitCode::Usage, what))
    }
}

fn begin(work: &str, before: Option<&mut Command>) -> Result<GroupedChild, CmdError> {
    let mut command = match before {
        Some(before) => {
            let mut command = Command::new(before.get_program());
            command.args(before.get_args()).arg("sh");
            command
        }
        None => Command::new("sh"),
    };
    command.args(["-c", work]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    GroupedChild::start(command)
}
