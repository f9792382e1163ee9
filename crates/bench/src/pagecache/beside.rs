//! A hot set beside the reading of files: a random walk, timed, with a chunk of a cached file
//! scanned before each lap (one thread), or a walk that shares its CPU with another program.
//!
//! The walker says in which colours its pages and those of the file are, as the independent
//! reader sees them; it chooses neither.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};

use super::reader::{PagemapReader, histogram};
use super::scan::{self, How, Scan};
use crate::mix::Rng;
use crate::observe::ColorRule;
use crate::sys::{self, MappedMemory, PAGE};
use crate::walk::{LINE, lap, link};

/// A walk with scans between its laps.
#[derive(Args, Clone, Debug)]
pub struct ScannedWalk {
    /// The file that is scanned
    #[arg(long)]
    pub file: PathBuf,
    /// Footprints of the hot set in KiB
    #[arg(long, value_delimiter = ',', default_value = "512")]
    pub kib: Vec<usize>,
    /// How the file is read
    #[arg(long, value_enum, value_delimiter = ',', default_value = "none,read,mmap")]
    pub how: Vec<How>,
    /// KiB of the file that are read before each lap
    #[arg(long, default_value_t = 512)]
    pub chunk_kib: usize,
    /// KiB of the buffer of `read`: it takes its part of the cache as the hot set does
    #[arg(long, default_value_t = scan::BUFFER_KIB)]
    pub buffer_kib: usize,
    /// Seconds for each way and footprint
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// CPU to run on [default: any]
    #[arg(long)]
    pub cpu: Option<usize>,
    /// How colours are known.
    #[command(flatten)]
    pub known: KnownColors,
}

/// How the colours of frames are known.
#[derive(Args, Clone, Debug)]
pub struct KnownColors {
    /// Colours of the cache
    #[arg(long, default_value_t = 16)]
    pub of: u16,
    /// How colours are known: pfn or probe
    #[arg(long, default_value = "probe")]
    pub colors_from: String,
}

impl KnownColors {
    /// Pages of some memory, and of a file if one is given, by colour: where colours cannot be
    /// looked up, no page of any.
    fn pages(
        &self,
        sets: &[MappedMemory],
        file: Option<&Path>,
    ) -> io::Result<(Vec<u64>, Vec<u64>)> {
        let (reader, of) = (PagemapReader::new()?, usize::from(self.of));
        let Ok(colors) = ColorRule::from_source(&self.colors_from, of) else {
            return Ok((vec![0; of], vec![0; of]));
        };
        let mut frames = Vec::new();
        for area in sets {
            frames.extend(reader.area(area)?);
        }
        let file = file.map(|file| reader.file(file)).transpose()?.unwrap_or_default();
        Ok((histogram(&frames, &colors, of), histogram(&file, &colors, of)))
    }
}

/// One way of reading beside one hot set.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Measure {
    /// Footprint of the hot set in KiB.
    pub kib: usize,
    /// How the file was read.
    pub how: How,
    /// Laps timed.
    pub laps: usize,
    /// Nanoseconds per access of the hot set, the median lap.
    pub hot_ns: f64,
    /// Nanoseconds per page of the scan, the median chunk; 0 without a scan.
    pub page_ns: f64,
}

/// What a run of [`beside`] found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScannedWalkResult {
    /// The measurements, in the order asked for.
    pub measures: Vec<Measure>,
    /// Pages of the hot sets by colour, without those of unknown colour.
    pub hot: Vec<u64>,
    /// Pages of the file by colour, without those of unknown colour.
    pub file: Vec<u64>,
}

fn hot_set(kib: usize, seed: u64) -> io::Result<MappedMemory> {
    let area = MappedMemory::private((kib * 1024 / PAGE).max(1))?;
    area.advise(0..area.pages(), libc::MADV_NOHUGEPAGE)?;
    link(&area, &mut Rng::with_seed(seed));
    Ok(area)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Measures every footprint beside every way of reading.
///
/// # Errors
/// Those of the file, of memory, and of the page map.
pub fn beside(options: &ScannedWalk) -> io::Result<ScannedWalkResult> {
    options.cpu.map_or(Ok(()), sys::pin)?;
    let sets = options
        .kib
        .iter()
        .map(|kib| hot_set(*kib, 5))
        .collect::<io::Result<Vec<MappedMemory>>>()?;
    let mut found = ScannedWalkResult::default();
    for &how in &options.how {
        for (kib, area) in options.kib.iter().zip(&sets) {
            found.measures.push(measure(options, how, *kib, area)?);
        }
    }
    (found.hot, found.file) = options.known.pages(&sets, Some(&options.file))?;
    Ok(found)
}

fn measure(
    options: &ScannedWalk,
    how: How,
    kib: usize,
    area: &MappedMemory,
) -> io::Result<Measure> {
    let mut scan = Scan::open(&options.file, how, options.buffer_kib)?;
    let (chunk, accesses) = ((options.chunk_kib * 1024 / PAGE).max(1), area.words().len() / LINE);
    let (mut laps, mut chunks, mut at) = (Vec::new(), Vec::new(), lap(area, 0));
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    while laps.is_empty() || Instant::now() < end {
        let started = Instant::now();
        scan.chunk(chunk)?;
        let between = Instant::now();
        at = lap(area, at);
        laps.push(between.elapsed().as_secs_f64() * 1e9 / accesses as f64);
        chunks.push((between - started).as_secs_f64() * 1e9 / chunk as f64);
    }
    std::hint::black_box(at);
    let page_ns = if how == How::None { 0.0 } else { median(chunks) };
    Ok(Measure { kib, how, laps: laps.len(), hot_ns: median(laps), page_ns })
}

/// A walk that another program shares the CPU with.
#[derive(Args, Clone, Debug)]
pub struct Hot {
    /// Footprint in KiB
    #[arg(long, default_value_t = 512)]
    pub kib: usize,
    /// Microseconds of sleep after each lap, as of one who waits for work; 0 for none
    #[arg(long, default_value_t = 100)]
    pub pause_us: u64,
    /// CPU to run on [default: any]
    #[arg(long)]
    pub cpu: Option<usize>,
    /// How colours are known.
    #[command(flatten)]
    pub known: KnownColors,
}

/// What a run of [`hot`] found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HotFound {
    /// Laps.
    pub laps: u64,
    /// Nanoseconds of CPU time per access, over all laps.
    pub cpu_ns: f64,
    /// Pages of the hot set by colour, without those of unknown colour.
    pub hot: Vec<u64>,
}

/// Walks until standard input ends. Says `ready` on standard output before it begins.
///
/// # Errors
/// Those of memory and of standard output.
pub fn hot(options: &Hot) -> io::Result<HotFound> {
    options.cpu.map_or(Ok(()), sys::pin)?;
    sys::sleep_exactly()?;
    let area = hot_set(options.kib, 5)?;
    let (mut at, pause) = (lap(&area, 0), Duration::from_micros(options.pause_us));
    writeln!(io::stdout(), "ready")?;
    let over = AtomicBool::new(false);
    let (mut laps, mut cpu) = (0, Duration::ZERO);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Whatever ends the input ends the walk.
            let _ = io::stdin().read_to_end(&mut Vec::new());
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            let started = sys::thread_cpu();
            at = lap(&area, at);
            cpu += sys::thread_cpu().saturating_sub(started);
            laps += 1;
            if !pause.is_zero() {
                std::thread::sleep(pause);
            }
        }
    });
    std::hint::black_box(at);
    let accesses = laps as f64 * (area.words().len() / LINE) as f64;
    let cpu_ns = cpu.as_secs_f64() * 1e9 / accesses;
    let (hot, _) = options.known.pages(&[area], None)?;
    Ok(HotFound { laps, cpu_ns, hot })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_footprint_is_measured_beside_every_way() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(20 * PAGE as u64).unwrap();
        let options = ScannedWalk {
            file: file.path().to_owned(),
            kib: vec![16, 64],
            how: vec![How::None, How::Read, How::Mmap],
            chunk_kib: 32,
            buffer_kib: 8,
            seconds: 0.01,
            cpu: None,
            known: KnownColors { of: 16, colors_from: "pfn".to_owned() },
        };
        let found = match beside(&options) {
            Ok(found) => found,
            Err(error) => return huepage_testing::skip("every_footprint_is_measured", error),
        };
        assert_eq!(found.measures.len(), 6);
        assert!(found.measures.iter().all(|m| m.laps > 0 && m.hot_ns > 0.0));
        assert!(found.measures.iter().all(|m| (m.page_ns > 0.0) == (m.how != How::None)));
        assert_eq!(found.hot.iter().sum::<u64>(), 20);
    }
}
