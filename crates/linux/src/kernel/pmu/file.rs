//! A PMU that is emulated or recorded: a file, or the memory of a device, in place of what `perf_event_open` tells. Its
//! format is [`huepage_model::pmu_file`]'s (docs/reference/pmu-file.md). Whoever starts huepage names it by
//! [`PMU_VARIABLE`], and nobody else can; where one is named, no other PMU is asked.
//!
//! Nothing in it is trusted: what is read is bounded, numbers that cannot be are left out, and counts that went
//! back are taken for none. Who may change it may mislead policies by it, as a processor's might; so it must be of
//! root or of the user, and of nobody else to write, who could also cut it off below a reader.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use huepage_color::CacheLevel;
use huepage_model::lab::LabMark;
pub use huepage_model::pmu_file as format;
use huepage_model::pmu_file::{self, BYTES, PmuFileError, ProcessRow, SampleRow};

use super::count_values::PmuCounts;
use super::ring::{Found, PmuSample};
use super::source::DataSource;
use super::{PmuError, Wanted};
use crate::kernel::lab_guest::mark;
use crate::kernel::mapping::Mapping;
use crate::kernel::procfs::ProcRoot;

/// The variable of the environment that names the file.
pub const PMU_VARIABLE: &str = "HUEPAGE_PMU";

/// The file, mapped.
#[derive(Debug)]
pub struct PmuFile {
    memory: Mapping,
    wanted: Wanted,
}

impl PmuFile {
    /// The one that was named, if one was.
    ///
    /// # Errors
    /// [`PmuError::Unsupported`], with the reason.
    pub fn named(wanted: Wanted) -> Result<Option<PmuFile>, PmuError> {
        let Some(path) = std::env::var_os(PMU_VARIABLE).filter(|path| !path.is_empty()) else {
            return Ok(None);
        };
        let path = Path::new(&path);
        let why = |why: String| {
            PmuError::Unsupported(wanted, format!("{PMU_VARIABLE}={}: {why}", path.display()))
        };
        PmuFile::open(path, wanted).map(Some).map_err(why)
    }

    /// Maps one; why not.
    fn open(path: &Path, wanted: Wanted) -> Result<PmuFile, String> {
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
        let file = file.map_err(|error| error.to_string())?;
        check(&file)?;
        let memory = Mapping::read_only(&file, BYTES).map_err(|error| error.to_string())?;
        let opened = PmuFile { memory, wanted };
        // Nothing is there before something was written, as nobody asked.
        mark(LabMark::Ask);
        pmu_file::check(|at| opened.word(at)).map_err(|error| error.to_string())?;
        Ok(opened)
    }

    /// 64 bits at a place.
    ///
    /// # Panics
    /// When that is not inside, or no multiple of eight.
    fn word(&self, at: usize) -> u64 {
        assert!(at < self.memory.bytes() && at.is_multiple_of(8), "no word at {at}");
        let place = self.memory.base().cast::<u64>();
        // SAFETY: the memory is mapped for reading as long as this value lives, and the place is inside it and
        // aligned; whoever else writes there gives some value or another, and any is one.
        let word = unsafe { place.add(at / 8).read_volatile() };
        u64::from_le(word)
    }

    /// Has what was seen written by now, where somebody waits to be asked.
    fn ask(&self) {
        mark(LabMark::Ask);
    }

    fn failed(&self, error: PmuFileError) -> PmuError {
        PmuError::Unsupported(self.wanted, format!("{PMU_VARIABLE}: {error}"))
    }
}

/// What keeps a file from being believed and mapped.
fn check(file: &File) -> Result<(), String> {
    let found = file.metadata().map_err(|error| error.to_string())?;
    if !found.is_file() || found.len() < BYTES as u64 {
        return Err(format!("not a file of {BYTES} bytes"));
    }
    let own = rustix::process::geteuid().as_raw();
    if ![0, own].contains(&found.uid()) || found.mode() & 0o022 != 0 {
        return Err("others may write to it; let it be yours alone".to_owned());
    }
    Ok(())
}

fn exists(pid: i32) -> Result<(), PmuError> {
    if ProcRoot::default().process_exists(pid) { Ok(()) } else { Err(PmuError::gone(pid)) }
}

/// The counts of a process.
#[derive(Debug)]
pub(super) struct FileCounts {
    file: PmuFile,
    pid: u64,
    level: CacheLevel,
    last: PmuCounts,
}

impl FileCounts {
    /// From now on.
    pub(super) fn open(pid: i32, level: CacheLevel) -> Result<FileCounts, PmuError> {
        exists(pid)?;
        let file = named(Wanted::Counts)?;
        let pid = u64::from(pid.unsigned_abs());
        let mut counts = FileCounts { file, pid, level, last: PmuCounts::default() };
        counts.more()?;
        Ok(counts)
    }

    /// What came since the last reading; nothing of a process that is not told of.
    pub(super) fn more(&mut self) -> Result<PmuCounts, PmuError> {
        self.file.ask();
        let row = pmu_file::process(|at| self.file.word(at), self.pid);
        let row = row.map_err(|error| self.file.failed(error))?.unwrap_or_default();
        let now = counts(&row, self.level);
        let before = std::mem::replace(&mut self.last, now);
        Ok(now.since(before))
    }
}

/// A row as counts for a level; one that is not told of is asked for nothing.
fn counts(row: &ProcessRow, level: CacheLevel) -> PmuCounts {
    let place = usize::from(level.0).checked_sub(1);
    let [requests, misses] =
        place.and_then(|place| row.levels.get(place)).copied().unwrap_or_default();
    let (instructions, cycles) = (row.instructions as f64, row.cycles as f64);
    PmuCounts { instructions, cycles, references: requests as f64, misses: misses as f64 }
}

/// The samples of a process.
#[derive(Debug)]
pub(super) struct FileSamples {
    file: PmuFile,
    pid: i32,
    /// The number of the next sample.
    next: u64,
    rows: Vec<SampleRow>,
}

impl FileSamples {
    /// From now on.
    pub(super) fn open(pid: i32) -> Result<FileSamples, PmuError> {
        exists(pid)?;
        let file = named(Wanted::Loads)?;
        let mut samples = FileSamples { file, pid, next: 0, rows: Vec::new() };
        samples.drain(|_| {})?;
        Ok(samples)
    }

    /// Those since the last call. Which of those lost were of the process nobody knows: all are said.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Found)) -> Result<(), PmuError> {
        self.file.ask();
        self.rows.clear();
        let read = pmu_file::samples(|at| self.file.word(at), self.next, &mut self.rows);
        let (next, lost) = read.map_err(|error| self.file.failed(error))?;
        self.next = next;
        if lost > 0 {
            each(Found::Lost(lost));
        }
        let own = u64::from(self.pid.unsigned_abs());
        self.rows.iter().filter(|row| row.pid == own).for_each(|row| each(found(self.pid, row)));
        Ok(())
    }
}

fn found(pid: i32, row: &SampleRow) -> Found {
    let SampleRow { address, cycles: weight, source, .. } = *row;
    if address == 0 || address >= 1 << 63 {
        return Found::Unusable;
    }
    let source = DataSource(source);
    Found::Sample(PmuSample { pid, tid: pid, address, time: 0, weight, source })
}

/// The file, which was there when it was looked for.
fn named(wanted: Wanted) -> Result<PmuFile, PmuError> {
    let none = || PmuError::Unsupported(wanted, format!("{PMU_VARIABLE} is not set any more"));
    PmuFile::named(wanted)?.ok_or_else(none)
}

#[cfg(test)]
mod tests;
