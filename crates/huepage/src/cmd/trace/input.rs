//! Opening traces: files and standard input, packed or not, in any format; and the progress
//! line while they are read.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, IsTerminal as _, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flate2::bufread::MultiGzDecoder;
use huepage_sim::record::Record;
use huepage_sim::trace::{self, Ahead, Batches, Format, Header, TraceError, TraceReader};
use indicatif::{ProgressBar, ProgressDrawTarget};
use liblzma::bufread::XzDecoder;

use super::args::From;
use super::{bad_file, bad_wish};
use crate::exit::{CmdError, ExitCode};
use crate::progress;

/// Bytes read at once.
const BUFFER: usize = 1 << 18;

/// Where to begin.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// At the record of this number, from 0.
    Record(u64),
    /// After so many instructions.
    Instructions(u64),
}

/// A trace that is being read.
pub struct TraceInput {
    path: PathBuf,
    /// Its format.
    pub format: Format,
    /// What the trace says of itself; only the project's own do.
    pub header: Option<Header>,
    batches: Box<dyn Batches + Send>,
    /// What skipping took too much.
    ready: Vec<Record>,
    meter: Meter,
}

impl TraceInput {
    /// Opens a trace at its beginning.
    pub fn open(from: &From) -> Result<TraceInput, CmdError> {
        TraceInput::open_at(from, Start::Record(0))
    }

    /// Opens a trace and goes to a place in it: by its index, if it has one.
    pub fn open_at(from: &From, start: Start) -> Result<TraceInput, CmdError> {
        let path = from.path.as_path();
        if let Some((reader, meter)) = own(from)? {
            return TraceInput::from_own(path, reader, meter, start);
        }
        let (source, meter) = raw(path)?;
        let (format, source) = unpacked(source)
            .and_then(|source| identified(source, from.format))
            .map_err(|e| bad_file(path, format!("{e}; check the file and the disk it is on")))?;
        let format = format.ok_or_else(|| bad_file(path, UNKNOWN))?;
        let (header, batches): (_, Box<dyn Batches + Send>) = if format == Format::Huepage {
            let reader = TraceReader::new(source).map_err(|e| bad_file(path, e))?;
            (Some(reader.header().clone()), Box::new(reader))
        } else {
            (None, trace::open(source, format).map_err(|e| bad_file(path, e))?)
        };
        let path = path.to_owned();
        let mut input = TraceInput { path, format, header, batches, ready: Vec::new(), meter };
        input.skip(start)?;
        Ok(input)
    }

    fn from_own(
        path: &Path,
        mut reader: TraceReader<Metered<File>>,
        meter: Meter,
        start: Start,
    ) -> Result<TraceInput, CmdError> {
        match start {
            Start::Record(0) | Start::Instructions(0) => Ok(()),
            Start::Record(number) => reader.seek_to(number),
            Start::Instructions(number) => reader.skip_instructions(number).map(drop),
        }
        .map_err(|e| match e {
            TraceError::Short { .. } => bad_wish(path, e),
            damage => bad_file(path, damage),
        })?;
        let header = Some(reader.header().clone());
        let (path, format, ready) = (path.to_owned(), Format::Huepage, Vec::new());
        Ok(TraceInput { path, format, header, batches: Box::new(reader), ready, meter })
    }

    /// Replaces `batch` by the next records; false at the end.
    pub fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, CmdError> {
        self.meter.show();
        if !self.ready.is_empty() {
            std::mem::swap(batch, &mut self.ready);
            self.ready.clear();
            return Ok(true);
        }
        let more = self.batches.next_batch(batch).map_err(|e| bad_file(&self.path, e))?;
        if !more {
            self.meter.bar.finish_and_clear();
        }
        Ok(more)
    }

    /// Takes every record up to the end, or to the damage, which it gives.
    pub fn for_each(&mut self, mut each: impl FnMut(&Record)) -> Option<CmdError> {
        let mut batch = Vec::new();
        loop {
            match self.next(&mut batch) {
                Ok(true) => batch.iter().for_each(&mut each),
                Ok(false) => return None,
                Err(error) => return Some(error),
            }
        }
    }

    /// Decodes the next records on a thread of its own while the present ones are used.
    pub fn read_ahead(self) -> Result<TraceInput, CmdError> {
        let batches = Ahead::new(self.batches).map_err(|e| {
            let what = format!("no thread to read a trace: {e}; lower the load and try again");
            CmdError::new(ExitCode::Internal, what)
        })?;
        Ok(TraceInput { batches: Box::new(batches), ..self })
    }

    /// Shows no progress: others read at the same time.
    pub fn be_quiet(&self) {
        self.meter.bar.set_draw_target(ProgressDrawTarget::hidden());
    }

    /// Bytes of the file read so far: before unpacking.
    pub fn bytes(&self) -> u64 {
        self.meter.bytes.load(Ordering::Relaxed)
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads up to a place.
    fn skip(&mut self, start: Start) -> Result<(), CmdError> {
        if matches!(start, Start::Record(0) | Start::Instructions(0)) {
            return Ok(());
        }
        let (mut records, mut instructions) = (0, 0);
        let mut batch = Vec::new();
        while self.next(&mut batch)? {
            for (i, record) in batch.iter().enumerate() {
                records += 1;
                instructions += u64::from(record.instructions);
                let there = match start {
                    Start::Record(number) => records >= number,
                    Start::Instructions(number) => instructions >= number,
                };
                if there {
                    self.ready.extend_from_slice(&batch[i + 1..]);
                    return Ok(());
                }
            }
        }
        let what =
            format!("has only {records} accesses and {instructions} instructions; skip fewer");
        Err(bad_wish(&self.path, what))
    }
}

const UNKNOWN: &str = "the format cannot be told from its beginning; name it: `--format` with \
                       huepage, lackey, din, champsim, drmemtrace, raw or raw-loads";
/// How [`UNKNOWN`] says what to do, for commands that have no such option.
pub const NAME_FORMAT: &str = "name it: `--format`";

/// A trace that can be sought in, and its progress.
type Seekable = (TraceReader<Metered<File>>, Meter);

/// A reader that seeks, if the file is a trace of the project's own, unpacked and on a disk.
pub fn own(from: &From) -> Result<Option<Seekable>, CmdError> {
    let path = from.path.as_path();
    if path == "-" || from.format.is_some_and(|format| format != Format::Huepage) {
        return Ok(None);
    }
    let open = |e| bad_file(path, format!("{e}; name a trace that can be read"));
    let mut file = File::open(path).map_err(open)?;
    let metadata = file.metadata().map_err(open)?;
    if metadata.is_dir() {
        return Err(bad_file(path, "is a directory; name a trace"));
    }
    if !metadata.is_file() {
        return Ok(None);
    }
    let mut mark = Vec::new();
    (&mut file).take(8).read_to_end(&mut mark).map_err(open)?;
    if mark != trace::format::MAGIC {
        return Ok(None);
    }
    file.seek(SeekFrom::Start(0)).map_err(open)?;
    let meter = Meter::new(Some(metadata.len()));
    let input = Metered { input: file, bytes: Arc::clone(&meter.bytes) };
    let reader = TraceReader::new(input).map_err(|e: TraceError| bad_file(path, e))?;
    Ok(Some((reader, meter)))
}

/// The bytes of a file or of standard input.
fn raw(path: &Path) -> Result<(Box<dyn BufRead + Send>, Meter), CmdError> {
    let (input, length): (Box<dyn Read + Send>, _) = if path == "-" {
        (Box::new(io::stdin()), None)
    } else {
        let open = |e| bad_file(path, format!("{e}; name a trace that can be read"));
        let file = File::open(path).map_err(open)?;
        let metadata = file.metadata().map_err(open)?;
        (Box::new(file), metadata.is_file().then_some(metadata.len()))
    };
    let meter = Meter::new(length);
    let input = Metered { input, bytes: Arc::clone(&meter.bytes) };
    Ok((Box::new(BufReader::with_capacity(BUFFER, input)), meter))
}

/// The same bytes, unpacked if they are packed by gzip or xz.
fn unpacked(source: Box<dyn BufRead + Send>) -> io::Result<Box<dyn BufRead + Send>> {
    let (sample, source) = peek(source, 6)?;
    Ok(if sample.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(source)))
    } else if sample == *b"\xfd7zXZ\0" {
        Box::new(BufReader::with_capacity(BUFFER, XzDecoder::new_multi_decoder(source)))
    } else {
        source
    })
}

/// The format, as named or as found, and the source from its beginning.
fn identified(
    source: Box<dyn BufRead + Send>,
    named: Option<Format>,
) -> io::Result<(Option<Format>, Box<dyn BufRead + Send>)> {
    let (sample, source) = peek(source, trace::SAMPLE)?;
    Ok((named.or_else(|| trace::detect(&sample)), source))
}

/// The first bytes, and the source with them in place.
fn peek(
    mut source: Box<dyn BufRead + Send>,
    length: usize,
) -> io::Result<(Vec<u8>, Box<dyn BufRead + Send>)> {
    let mut sample = Vec::new();
    (&mut source).take(length as u64).read_to_end(&mut sample)?;
    let source = Box::new(Cursor::new(sample.clone()).chain(source));
    Ok((sample, source))
}

/// A source that counts.
pub struct Metered<R> {
    input: R,
    bytes: Arc<AtomicU64>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.input.read(buffer)?;
        self.bytes.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

impl<R: Seek> Seek for Metered<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = self.input.seek(to)?;
        self.bytes.store(place, Ordering::Relaxed);
        Ok(place)
    }
}

/// The progress line: on a terminal, and only when reading takes more than two seconds.
pub struct Meter {
    bytes: Arc<AtomicU64>,
    bar: ProgressBar,
    started: Instant,
    shown: bool,
}

/// What may pass without a word.
const PATIENCE: Duration = Duration::from_secs(2);

impl Meter {
    fn new(length: Option<u64>) -> Meter {
        let template = match length {
            Some(_) => "reading {bar:30} {percent:>3} % ({eta} left)",
            None => "reading {spinner} {bytes} ({bytes_per_sec})",
        };
        let bar = progress::bar(false, length, template);
        Meter { bytes: Arc::default(), bar, started: Instant::now(), shown: false }
    }

    fn show(&mut self) {
        if !self.shown && self.started.elapsed() > PATIENCE && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.shown = true;
        }
        self.bar.set_position(self.bytes.load(Ordering::Relaxed));
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
