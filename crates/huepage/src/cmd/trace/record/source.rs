//! What records a program, and how it is chosen where nobody says: QEMU's user mode with the plugin, else DynamoRIO,
//! else valgrind's lackey. What keeps the better ones from recording is said in one line.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use huepage_linux::inject::launch;
use huepage_linux::sensors::records::{
    self as recording, AccessRecorder, RecordError, SkippedStart as Told,
};
use rustix::pipe::{PipeFlags, pipe_with};
use tempfile::TempDir;

use super::options::{RecorderKind, SkipOption, TraceRecordArgs};
use super::record_error;
use crate::exit::{CmdError, ExitCode};

/// What records, and the command that does it.
pub struct Source {
    pub kind: Recorder,
    pub command: Vec<OsString>,
    /// Why nothing better records.
    pub why: Option<String>,
}

pub enum Recorder {
    Plugin(Arc<AccessRecorder>),
    /// Where DynamoRIO puts what it records, until the program has ended.
    DynamoRio(TempDir),
    /// Both ends of the pipe that lackey writes to.
    Lackey(OwnedFd, OwnedFd),
}

impl Source {
    /// The recorder that is asked for, or the best that is to be had.
    ///
    /// What DynamoRIO writes goes to a directory of its own in `folder`.
    pub fn choose(
        args: &TraceRecordArgs,
        program: &Path,
        folder: &Path,
    ) -> Result<Source, CmdError> {
        match args.recorder {
            Some(RecorderKind::Qemu) => Source::plugin(args, program).map_err(told),
            Some(RecorderKind::Dynamorio) => Source::dynamorio(args, folder),
            Some(RecorderKind::Lackey) => Source::lackey(args).map_err(told),
            None => match Source::plugin(args, program) {
                Err(error) if error.is_of_tools() => Source::second(args, folder, &error),
                other => other.map_err(told),
            },
        }
    }

    /// What records where QEMU cannot, and why.
    fn second(
        args: &TraceRecordArgs,
        folder: &Path,
        first: &RecordError,
    ) -> Result<Source, CmdError> {
        let (source, why) = match Source::dynamorio(args, folder) {
            Ok(source) => (source, format!("recording with DynamoRIO: {first}")),
            Err(second) => {
                let lackey = Source::lackey(args).map_err(|_| record_error(first.to_string()))?;
                let why = "recording with lackey, which is many times slower";
                (lackey, format!("{why}: {first}; {}{}", second.message, whole_machine()))
            }
        };
        if !args.quiet && !args.json {
            eprintln!("huepage: {why}");
        }
        Ok(Source { why: Some(why), ..source })
    }

    fn plugin(args: &TraceRecordArgs, program: &Path) -> Result<Source, RecordError> {
        let skip = match args.skip {
            None => Told::Nothing,
            Some(SkipOption::Instructions(n)) => Told::Instructions(n),
            Some(SkipOption::Time(_)) => Told::UntilTold,
        };
        let recorder = AccessRecorder::new(args.fetches, skip)?;
        let command = recorder.command(&args.command, program)?;
        Ok(Source::of(Recorder::Plugin(Arc::new(recorder)), command))
    }

    fn dynamorio(args: &TraceRecordArgs, folder: &Path) -> Result<Source, CmdError> {
        if matches!(args.skip, Some(SkipOption::Time(_))) {
            let what = "DynamoRIO does not skip seconds; give --skip a number of instructions";
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        let drmemtrace = recording::drmemtrace().map_err(told)?;
        let made = tempfile::Builder::new().prefix(".huepage-drmemtrace-").tempdir_in(folder);
        let raw = made.map_err(|e| {
            let folder = folder.display();
            record_error(format!(
                "cannot make a directory in {folder}: {e}; choose another --output"
            ))
        })?;
        let command = recording::dynamorio(drmemtrace, &args.command, raw.path());
        Ok(Source::of(Recorder::DynamoRio(raw), command))
    }

    fn lackey(args: &TraceRecordArgs) -> Result<Source, RecordError> {
        // Not closed on exec: valgrind is to find it.
        let (read, write) = pipe_with(PipeFlags::empty()).map_err(std::io::Error::from)?;
        rustix::io::fcntl_setfd(&read, rustix::io::FdFlags::CLOEXEC)
            .map_err(std::io::Error::from)?;
        let command = recording::lackey(&args.command, write.as_raw_fd())?;
        Ok(Source::of(Recorder::Lackey(read, write), command))
    }

    const fn of(kind: Recorder, command: Vec<OsString>) -> Source {
        Source { kind, command, why: None }
    }

    pub const fn name(&self) -> &'static str {
        match self.kind {
            Recorder::Plugin(_) => "qemu-user, huepage's plugin",
            Recorder::DynamoRio(_) => "DynamoRIO's drmemtrace",
            Recorder::Lackey(..) => "valgrind lackey",
        }
    }
}

fn told(error: RecordError) -> CmdError {
    match error {
        RecordError::NotX8664(_) => CmdError::new(ExitCode::NotX8664, error),
        other => record_error(other.to_string()),
    }
}

/// QEMU's machines take plugins where its user mode does not. They are not chosen by themselves: the program would
/// find none of this system's files there.
fn whole_machine() -> String {
    let emulator: PathBuf = "qemu-system-x86_64".into();
    match launch::resolve(emulator.as_os_str()) {
        Ok(path) if recording::takes_plugins(&path) => {
            "; `--system MACHINE` records on a machine of its own".to_owned()
        }
        _ => String::new(),
    }
}
