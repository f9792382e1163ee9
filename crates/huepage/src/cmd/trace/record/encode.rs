//! The thread that turns the stream of accesses into a trace: from the plugin's chunks or
//! from the text of lackey or DynamoRIO, up to the limit.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::time::{Duration, Instant};

use huepage_linux::kernel::procfs::ProcRoot;
use huepage_linux::kernel::wait::wait;
use huepage_linux::sensors::records::AccessRecorder;
use huepage_linux::sensors::records::decode::WordDecoder;
use huepage_sim::trace::Lackey;
use tempfile::TempDir;

use super::dynamorio;
use super::sink::{Encoded, EncoderSignals, Halt, IDLE, TraceSink, text};
use crate::exit::CmdError;

/// Time between looks for processes that were killed.
const RECLAIM: Duration = Duration::from_secs(1);
/// Where accesses come from.
pub enum AccessStream {
    Plugin(Arc<AccessRecorder>),
    /// What DynamoRIO left there can be read when the program has ended.
    DynamoRio(TempDir),
    Lackey(File),
}

/// Encodes until the program has ended or recording has. In an error the program runs on.
pub fn run(
    stream: AccessStream,
    shared: &EncoderSignals,
    mut sink: TraceSink,
) -> Result<Encoded, CmdError> {
    match stream {
        AccessStream::Plugin(recorder) => {
            let mut left = 0;
            let halt = chunks(&recorder, shared, &mut sink, &mut left).err();
            let all_skipped = !recorder.has_begun();
            recorder.stop();
            shared.full.store(matches!(halt, Some(Halt::Full)), Release);
            sink.show(shared);
            Ok(Encoded { left, all_skipped, ..sink.finish(halt, shared)? })
        }
        AccessStream::DynamoRio(folder) => {
            let (threads, halt) = dynamorio::read(folder.path(), shared, &mut sink);
            let alone = Some("DynamoRIO recorded neither children nor what came by exec");
            Ok(Encoded { alone, threads, ..sink.finish(halt, shared)? })
        }
        AccessStream::Lackey(pipe) => {
            let mut pipe = Pipe { pipe, shared };
            let records = Lackey::new(BufReader::with_capacity(1 << 16, &mut pipe));
            let halt = text(records, shared, &mut sink).err();
            shared.full.store(matches!(halt, Some(Halt::Full)), Release);
            let alone = Some("lackey records no children, and all threads as one");
            let encoded = sink.finish(halt, shared);
            let encoded = encoded.map(|e| Encoded { alone, threads: 1, ..e });
            // Valgrind would end if nobody read.
            let _ = io::copy(&mut pipe, &mut io::sink());
            encoded
        }
    }
}

fn chunks(
    recorder: &AccessRecorder,
    shared: &EncoderSignals,
    sink: &mut TraceSink,
    left: &mut usize,
) -> Result<(), Halt> {
    let (mut decoder, proc) = (WordDecoder::default(), ProcRoot::default());
    let mut reclaimed = Instant::now();
    loop {
        // Before the chunks: what was published until then is drained below.
        let over = shared.ended.load(Acquire);
        if over || reclaimed.elapsed() > RECLAIM {
            *left = recorder.ring.reclaim(&proc);
            reclaimed = Instant::now();
        }
        let seen = recorder.ring.control().work.load(SeqCst);
        let any = recorder.ring.drain(|chunk| decoder.chunk(chunk, |r| sink.push(r)))?;
        sink.show(shared);
        if over || shared.stop.load(Acquire) {
            return Ok(());
        }
        if !any {
            recorder.ring.wait(seen, IDLE);
        }
    }
}

/// A pipe that ends when the program has ended and it is empty, even if a child that outlived
/// the program holds the other end.
struct Pipe<'a> {
    pipe: File,
    shared: &'a EncoderSignals,
}

impl Read for Pipe<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let over = self.shared.ended.load(Acquire);
            wait(&[(self.pipe.as_raw_fd(), libc::POLLIN)], IDLE);
            if rustix::io::ioctl_fionread(&self.pipe)? > 0 {
                return self.pipe.read(buffer);
            }
            if over {
                return Ok(0);
            }
        }
    }
}
