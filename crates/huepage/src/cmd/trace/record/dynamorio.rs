//! From what DynamoRIO left in a folder to records: once the program has ended, drmemtrace prints its trace.

use std::fs;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::sleep;

use huepage_linux::sensors::records::dynamorio_view;
use huepage_sim::record::Record;
use huepage_sim::trace::Drmemtrace;

use super::sink::{EncoderSignals, Halt, IDLE, TraceSink, text};

/// Waits for the program to end, then takes over what was recorded of it. Threads, and why that came to an end early.
pub fn read(folder: &Path, shared: &EncoderSignals, sink: &mut TraceSink) -> (u32, Option<Halt>) {
    while !shared.ended.load(Acquire) {
        sleep(IDLE);
    }
    let mut threads = 0;
    let halt = match started(folder) {
        Ok(child) => view(child, shared, sink, &mut threads).err(),
        Err(error) => Some(wrong(error)),
    };
    shared.full.store(matches!(halt, Some(Halt::Full)), Release);
    (threads, halt)
}

/// drmemtrace, which prints the one trace of the folder on a pipe.
fn started(folder: &Path) -> io::Result<Child> {
    let command = dynamorio_view(&only_trace(folder)?).map_err(io::Error::other)?;
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    program.stderr(Stdio::piped()).spawn()
}

fn only_trace(folder: &Path) -> io::Result<PathBuf> {
    let entries: Vec<_> = fs::read_dir(folder)?.collect::<io::Result<_>>()?;
    match entries.as_slice() {
        [one] => Ok(one.path()),
        others => {
            let what = format!("it left {} traces where one was expected", others.len());
            Err(io::Error::other(what))
        }
    }
}

fn view(
    mut child: Child,
    shared: &EncoderSignals,
    sink: &mut TraceSink,
    threads: &mut u32,
) -> Result<(), Halt> {
    let lines = BufReader::with_capacity(1 << 16, child.stderr.take().expect("a pipe"));
    let count = |record: &Result<_, _>| {
        let number = record.as_ref().map_or(0, |record: &Record| u32::from(record.thread) + 1);
        *threads = number.max(*threads);
    };
    let done = text(Drmemtrace::new(lines).inspect(count), shared, sink);
    let is_whole = done.is_ok() && !shared.stop.load(Acquire);
    if !is_whole {
        // It would wait for a reader. It may have ended by itself meanwhile.
        let _ = child.kill();
    }
    let status = child.wait().map_err(wrong)?;
    done?;
    check(is_whole, status)
}

fn check(is_whole: bool, status: ExitStatus) -> Result<(), Halt> {
    if is_whole && !status.success() {
        return Err(wrong(io::Error::other(format!("drmemtrace failed ({status})"))));
    }
    Ok(())
}

fn wrong(error: io::Error) -> Halt {
    Halt::Text(format!("DynamoRIO: {error}"))
}
