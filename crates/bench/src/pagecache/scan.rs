//! Programs that only read a cached file: chunk by chunk in order, again and again, or at random
//! places. They time themselves and do nothing with what they read.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::mix::Rng;
use crate::sys::{self, MappedMemory, PAGE, PageProt};
use crate::walk::LINE;

/// KiB that a program asks for at once, if it is not told otherwise.
pub const BUFFER_KIB: usize = 64;
/// Random reads that are timed together, so that reading the clock does not count.
const BATCH: usize = 256;

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// By `read`, a buffer at a time.
    Read,
    /// By touching every line of a mapping.
    Mmap,
    /// Not at all.
    None,
}

/// A cached file that is read from end to end, over and over, in chunks.
#[derive(Debug)]
pub struct Scan {
    how: How,
    file: File,
    pages: usize,
    area: Option<MappedMemory>,
    buffer: Vec<u8>,
    at: usize,
}

impl Scan {
    /// Opens a file; maps all of it for [`How::Mmap`]. The buffer, of at least 4 KiB, is for
    /// [`How::Read`].
    ///
    /// # Errors
    /// When it cannot be opened or mapped, or is shorter than a page.
    pub fn open(path: &Path, how: How, buffer_kib: usize) -> io::Result<Scan> {
        let file = File::open(path)?;
        let pages = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)? / PAGE;
        if pages == 0 {
            return Err(io::Error::other("the file is shorter than a page"));
        }
        let mapped = (how == How::Mmap).then(|| mapping(&file, pages)).transpose()?;
        Ok(Scan { how, file, pages, area: mapped, buffer: vec![1; buffer_kib.max(4) << 10], at: 0 })
    }

    /// Pages of the file.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Reads the next `pages` pages; after the end of the file it begins again.
    ///
    /// # Errors
    /// Those of reading.
    pub fn chunk(&mut self, pages: usize) -> io::Result<()> {
        let mut left = pages;
        while left > 0 && self.how != How::None {
            let some = left.min(self.pages - self.at);
            match &self.area {
                Some(area) => touch(area, self.at, some),
                None => read(&self.file, &mut self.buffer, self.at, some)?,
            }
            self.at = (self.at + some) % self.pages;
            left -= some;
        }
        Ok(())
    }
}

fn mapping(file: &File, pages: usize) -> io::Result<MappedMemory> {
    let area = MappedMemory::shared_file(file.as_fd(), pages, PageProt::Read)?;
    area.advise(0..pages, libc::MADV_POPULATE_READ)?;
    Ok(area)
}

fn touch(area: &MappedMemory, from: usize, pages: usize) {
    let words = &area.words()[from * PAGE / 8..][..pages * PAGE / 8];
    let sum = words.iter().step_by(LINE).fold(0u64, |sum, word| sum ^ word.load(Relaxed));
    black_box(sum);
}

fn read(file: &File, buffer: &mut [u8], from: usize, pages: usize) -> io::Result<()> {
    let (mut at, mut left) = (from * PAGE, pages * PAGE);
    while left > 0 {
        let some = left.min(buffer.len());
        file.read_exact_at(&mut buffer[..some], at as u64)?;
        (at, left) = (at + some, left - some);
    }
    black_box(&buffer);
    Ok(())
}

/// Scans of a whole file.
#[derive(Args, Clone, Debug)]
pub struct Repeat {
    /// The file
    #[arg(long)]
    pub file: PathBuf,
    /// How it is read
    #[arg(long, value_enum, default_value = "read")]
    pub how: How,
    /// Passes over it that are not counted
    #[arg(long, default_value_t = 50)]
    pub warm_up: usize,
    /// Passes over it
    #[arg(long, default_value_t = 200)]
    pub passes: usize,
    /// CPU to run on [default: any]
    #[arg(long)]
    pub cpu: Option<usize>,
}

/// What reading took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Took {
    /// Things timed: passes, or batches of reads.
    pub count: usize,
    /// Nanoseconds for a page, median of all that were timed.
    pub page_ns: f64,
}

impl Took {
    fn of(mut page_ns: Vec<f64>) -> Took {
        page_ns.sort_by(f64::total_cmp);
        let median = page_ns.get(page_ns.len() / 2).copied().unwrap_or(f64::NAN);
        Took { count: page_ns.len(), page_ns: median }
    }
}

/// Reads a file from end to end again and again.
///
/// # Errors
/// Those of the file, or of the CPU.
pub fn repeat(options: &Repeat) -> io::Result<Took> {
    options.cpu.map_or(Ok(()), sys::pin)?;
    let mut scan = Scan::open(&options.file, options.how, BUFFER_KIB)?;
    let (pages, mut took) = (scan.pages(), Vec::new());
    for pass in 0..options.warm_up + options.passes {
        let started = Instant::now();
        scan.chunk(pages)?;
        if pass >= options.warm_up {
            took.push(started.elapsed().as_secs_f64() * 1e9 / pages as f64);
        }
    }
    Ok(Took::of(took))
}

/// Reads of single pages at random places.
#[derive(Args, Clone, Debug)]
pub struct RandomReads {
    /// The file
    #[arg(long)]
    pub file: PathBuf,
    /// Reads
    #[arg(long, default_value_t = 200_000)]
    pub reads: usize,
    /// Seed of the places
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// CPU to run on [default: any]
    #[arg(long)]
    pub cpu: Option<usize>,
}

/// Reads random pages of a file by `pread`.
///
/// # Errors
/// Those of the file, or of the CPU.
pub fn random(options: &RandomReads) -> io::Result<Took> {
    options.cpu.map_or(Ok(()), sys::pin)?;
    let scan = Scan::open(&options.file, How::Read, BUFFER_KIB)?;
    let (mut rng, mut buffer, mut took) = (Rng::with_seed(options.seed), [0; PAGE], Vec::new());
    for _ in 0..options.reads.div_ceil(BATCH) {
        let started = Instant::now();
        for _ in 0..BATCH {
            read(&scan.file, &mut buffer, rng.usize(..scan.pages), 1)?;
        }
        took.push(started.elapsed().as_secs_f64() * 1e9 / BATCH as f64);
    }
    Ok(Took::of(took))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(pages: usize) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len((pages * PAGE) as u64).unwrap();
        file
    }

    #[test]
    fn a_scan_goes_round() {
        let file = file(10);
        for (how, end) in [(How::Read, 3), (How::Mmap, 3), (How::None, 0)] {
            let mut scan = Scan::open(file.path(), how, 8).unwrap();
            scan.chunk(7).unwrap();
            scan.chunk(6).unwrap();
            assert_eq!(scan.at, end, "{how:?}");
        }
        assert!(Scan::open(tempfile::NamedTempFile::new().unwrap().path(), How::Read, 8).is_err());
    }

    #[test]
    fn passes_and_reads_are_timed() {
        let file = file(10);
        let path = file.path().to_owned();
        let wish = Repeat { file: path.clone(), how: How::Mmap, warm_up: 2, passes: 5, cpu: None };
        let took = repeat(&wish).unwrap();
        assert!(took.count == 5 && took.page_ns > 0.0);
        let took = random(&RandomReads { file: path, reads: 1000, seed: 1, cpu: None }).unwrap();
        assert!(took.count == 4 && took.page_ns > 0.0);
    }
}
