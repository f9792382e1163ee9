//! `huepage trace -- CMD`: records every access to memory of a real program in a file.
//!
//! The program runs under an emulator and is stood in for, as by `huepage run`: descriptors,
//! signals and exit status are its own. A second thread turns the stream into the file
//! (`encode`); what is said at the end is in `report`.

mod dynamorio;
mod encode;
mod options;
mod report;
mod sink;
mod source;

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_linux::inject::launch;
use huepage_linux::inject::launch::relay::{SignalRelay, exit_like, stop_like};
use huepage_linux::inject::launch::{ChildEvent, Ending, Launched, Original};
use huepage_linux::kernel::wait::wait;
use huepage_linux::sensors::records::{AccessRecorder, Facts};
use huepage_sim::trace::Header;
use rustix::process::{Pid, Signal, kill_process};

use crate::cmd::lab::{self, LabMachineArgs};
use crate::exit::{CmdError, ExitCode, bad_file, launch_error};
use encode::AccessStream;
use options::SkipOption;
pub use options::TraceRecordArgs;
use sink::{Encoded, EncoderSignals, TraceSink};
use source::{Recorder, Source};

/// How long the program may take to end after Ctrl-C before its recording ends without it.
const GRACE: Duration = Duration::from_millis(500);
/// How long a program may take to end when `--stop-at-limit` asks it to.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time between looks at the clock and at what was recorded.
const TURN: Duration = Duration::from_millis(100);

/// What is said where the emulator ended before the program's first instruction; itself it has said why.
const NEVER_BEGAN: &str = "the program did not begin under QEMU, which says why above; \
                           --recorder dynamorio or lackey record without it";

/// Records the program; the status is its own.
pub fn run(args: &TraceRecordArgs) -> Result<u8, CmdError> {
    if let Some(machine) = &args.system {
        return system(args, machine);
    }
    let original = Original::capture();
    let program = launch::resolve(&args.command[0]).map_err(launch_error)?;
    let output = args.output_file()?;
    let mut source = Source::choose(args, &program, &room_for(&output))?;
    let why = source.why.take();
    let relay = SignalRelay::new().map_err(launch_error)?;
    let sink = TraceSink::create(&output, &header(args, source.name()), args)?;
    let launched = launch::spawn(&source.command, &original).map_err(launch_error)?;
    let mut session = Session::begin(args, launched, source, sink)?;
    let ending = session.stand_in(&relay)?;
    let (encoded, facts) = session.finish()?;
    drop(relay);
    if facts.spaces == 0 {
        return Err(record_error(NEVER_BEGAN.to_owned()));
    }
    report::tell(args, &output, &encoded, &facts, why)?;
    match encoded.stopped_program {
        true => Ok(0),
        false => exit_like(ending),
    }
}

/// Records the program with the kernel below it, on an emulated machine.
fn system(args: &TraceRecordArgs, machine: &Path) -> Result<u8, CmdError> {
    let output = args.output_file()?;
    if output.is_file() {
        std::fs::remove_file(&output).map_err(|e| bad_file(&output, e))?;
    }
    let (kernel, pack) = (args.kernel.clone(), args.pack.clone());
    let guest = LabMachineArgs::plain(machine.to_owned(), kernel, pack);
    let words = args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    lab::record(&guest, words, &output)
}

fn header(args: &TraceRecordArgs, source: &str) -> Header {
    let text = |word: &OsString| word.to_string_lossy().into_owned();
    Header {
        program: text(&args.command[0]),
        arguments: args.command[1..].iter().map(text).collect(),
        source: source.to_owned(),
    }
}

/// A program being recorded.
struct Session {
    launched: Launched,
    recorder: Option<Arc<AccessRecorder>>,
    shared: Arc<EncoderSignals>,
    encoder: JoinHandle<Result<Encoded, CmdError>>,
    began: Instant,
    go_at: Option<Instant>,
    /// When recording ends because of Ctrl-C.
    stop_at: Option<Instant>,
    stop_at_limit: bool,
    /// When the program was asked to end.
    asked: Option<Instant>,
    progress: report::RecordingProgress,
}

impl Session {
    /// Lets the program go and starts turning its accesses into a file.
    fn begin(
        args: &TraceRecordArgs,
        launched: Launched,
        source: Source,
        sink: TraceSink,
    ) -> Result<Session, CmdError> {
        let shared = Arc::new(EncoderSignals::default());
        let (stream, recorder) = match source.kind {
            Recorder::Plugin(recorder) => (AccessStream::Plugin(recorder.clone()), Some(recorder)),
            Recorder::DynamoRio(folder) => (AccessStream::DynamoRio(folder), None),
            // The writing end is the program's alone from here on.
            Recorder::Lackey(read, _write) => (AccessStream::Lackey(File::from(read)), None),
        };
        let theirs = shared.clone();
        let encoder = std::thread::Builder::new().name("encoder".into());
        let encoder = encoder.spawn(move || encode::run(stream, &theirs, sink));
        let encoder = encoder.map_err(|e| record_error(format!("cannot start a thread: {e}")))?;
        launched.detach().map_err(launch_error)?;
        let began = Instant::now();
        let go_at = match args.skip {
            Some(SkipOption::Time(time)) => Some(began + time),
            _ => None,
        };
        Ok(Session {
            launched,
            recorder,
            shared,
            encoder,
            began,
            go_at,
            stop_at: None,
            stop_at_limit: args.stop_at_limit,
            asked: None,
            progress: report::RecordingProgress::new(args.quiet),
        })
    }

    /// Relays signals until the program ends.
    fn stand_in(&mut self, relay: &SignalRelay) -> Result<Ending, CmdError> {
        let ready = [self.launched.pidfd().as_raw_fd(), relay.as_fd().as_raw_fd()];
        loop {
            wait(&ready.map(|fd| (fd, libc::POLLIN)), TURN);
            let signals = relay.relay_to(&self.launched).map_err(launch_error)?;
            if signals.iter().any(|incoming| incoming.signal == libc::SIGINT) {
                self.stop_at.get_or_insert(Instant::now() + GRACE);
            }
            match self.launched.try_event().map_err(launch_error)? {
                Some(ChildEvent::Ended(ending)) => return Ok(ending),
                Some(ChildEvent::Stopped(signal)) => stop_like(signal),
                _ => {}
            }
            self.turn();
        }
    }

    /// What the clock and the encoder call for.
    fn turn(&mut self) {
        let now = Instant::now();
        if self.go_at.take_if(|at| *at <= now).is_some() {
            self.shared.go.store(true, Release);
            self.recorder.iter().for_each(|recorder| recorder.go());
        }
        if self.stop_at.take_if(|at| *at <= now).is_some() {
            self.shared.stop.store(true, Release);
        }
        if self.stop_at_limit && self.shared.full.load(Acquire) {
            self.ask_to_end(now);
        }
        self.progress.show(&self.shared, self.began.elapsed());
    }

    fn ask_to_end(&mut self, now: Instant) {
        let signal = match self.asked {
            None => Signal::TERM,
            Some(asked) if now > asked + PATIENCE => Signal::KILL,
            Some(_) => return,
        };
        self.asked = Some(now);
        let pid = Pid::from_raw(self.launched.pid());
        // It may have ended by itself meanwhile.
        let _ = pid.map(|pid| kill_process(pid, signal));
    }

    /// Waits for the file to be complete.
    fn finish(self) -> Result<(Encoded, Facts), CmdError> {
        self.shared.ended.store(true, Release);
        let encoded = self.encoder.join();
        self.progress.finish();
        let mut encoded = encoded.map_err(|_| CmdError::internal("the encoder failed"))??;
        encoded.seconds = self.began.elapsed().as_secs_f64();
        encoded.stopped_program = self.asked.is_some();
        let threads = encoded.threads;
        let one = Facts { processes: 1, spaces: 1, threads, native: 0, lost: 0 };
        Ok((encoded, self.recorder.map_or(one, |recorder| recorder.facts())))
    }
}

fn record_error(what: String) -> CmdError {
    CmdError::new(ExitCode::Internal, what)
}

/// Where there is room for what a trace is made from: beside it, or with all that is temporary where the trace goes into
/// a pipe or a device.
fn room_for(output: &Path) -> PathBuf {
    let is_file = !output.exists() || output.is_file();
    match output.parent() {
        Some(parent) if is_file && !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ if is_file => PathBuf::from("."),
        _ => std::env::temp_dir(),
    }
}

/// The name of a trace that was given none.
fn default_name(command: &OsString) -> PathBuf {
    let name = Path::new(command).file_name().unwrap_or(command);
    let mut name = name.to_owned();
    name.push(".trace");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_beside_a_file_and_never_beside_a_device() {
        assert_eq!(room_for(Path::new("/nowhere/p.trace")), Path::new("/nowhere"));
        assert_eq!(room_for(Path::new("p.trace")), Path::new("."));
        assert_eq!(room_for(Path::new("/dev/null")), std::env::temp_dir());
    }
}
