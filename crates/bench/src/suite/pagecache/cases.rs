//! Where a file and a hot set lie beside each other, and what is common to the suites that compare these cases: their
//! options, their bars, and how things are brought to where they should be.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;

use clap::Args;

use super::{Bench, NamedSamples, cache_kib, tool};
use crate::observe::members;
use crate::pagecache::{files, scan};
use crate::verdict::SuiteVerdict;

/// Share of pages of known colour that must be where they were asked to be, for a measurement
/// to say anything.
const VALID: f64 = 0.9;
/// Times that a measurement is made anew when noise kept huepage from placing something.
const ATTEMPTS: u32 = 4;

/// What to measure, and where.
#[derive(Args, Clone, Debug)]
pub struct WarmEffect {
    /// Footprints of the hot set, in KiB
    #[arg(long, value_delimiter = ',', default_value = "512,256")]
    pub hot_kib: Vec<usize>,
    /// Size of the file and of the tree, in MiB
    #[arg(long, default_value_t = 64)]
    pub file_mib: u64,
    /// KiB of the file that are read between two laps of the hot set
    #[arg(long, default_value_t = 512)]
    pub chunk_kib: usize,
    /// KiB of the buffer of `read`, which lies in the colours of the hot set
    #[arg(long, default_value_t = scan::BUFFER_KIB)]
    pub buffer_kib: usize,
    /// Colours of the hot set
    #[arg(long, default_value = "2-15")]
    pub hot_colors: String,
    /// Colours of the cache
    #[arg(long, default_value_t = 16)]
    pub of: u16,
    /// How colours are known
    #[arg(long, default_value = "probe")]
    pub colors_from: String,
    /// CPU of the thread
    #[arg(long, default_value_t = 1)]
    pub cpu: usize,
    /// Repetitions
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Seconds for each measurement of the thread
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Times that grep goes through the tree; 0 leaves grep out
    #[arg(long, default_value_t = 20)]
    pub passes: usize,
}

impl WarmEffect {
    /// The share of the cache that the hot set has, 0 to 1.
    pub(super) fn share(&self) -> f64 {
        let inside = members(&self.hot_colors, usize::from(self.of)).unwrap_or_default();
        inside.iter().filter(|color| **color).count() as f64 / f64::from(self.of.max(1))
    }

    /// Whether a hot set fits its colours, as the kernel tells the size of the cache.
    pub fn fits(&self, kib: usize) -> bool {
        kib as f64 <= cache_kib(self.cpu, 2).unwrap_or(1024) as f64 * self.share()
    }
}

/// How a file is gone through: what the figures are of.
pub const SCANS: &[&str] = &["mmap", "read", "grep"];

/// Where things are, in words, with the colours of the file and whether the hot set is laid.
#[derive(Clone, Copy, Debug)]
pub struct PlacementCase {
    /// In words.
    pub name: &'static str,
    /// Colours of the file.
    pub file: Option<&'static str>,
    /// Whether the file comes in single pages, as a placed one does, though it is anywhere.
    pub single: bool,
    /// Whether the hot set is laid in colours of its own.
    pub laid: bool,
}

/// The cases: the first two are what others are compared with, the next two are compared. The
/// last is reported only: what a scan loses there is not for the colours but for large folios.
pub const CASES: [PlacementCase; 5] = [
    PlacementCase { name: "file anywhere, hot anywhere", file: None, single: false, laid: false },
    PlacementCase { name: "file anywhere, hot laid", file: None, single: false, laid: true },
    PlacementCase { name: "file in 0-1, hot laid", file: Some("0-1"), single: false, laid: true },
    PlacementCase { name: "file in 0, hot laid", file: Some("0"), single: false, laid: true },
    PlacementCase {
        name: "file anywhere in single pages, hot laid",
        file: None,
        single: true,
        laid: true,
    },
];

/// How many times as long something takes in the better of the cases that others are compared with as another does,
/// round by round.
pub fn against_unplaced(
    samples: &NamedSamples,
    name: impl Fn(&PlacementCase) -> String,
    other: &str,
) -> Vec<f64> {
    let [anywhere, laid] = [0, 1].map(|at| name(&CASES[at]));
    let is_less = samples.median(&laid) < samples.median(&anywhere);
    samples.ratios(if is_less { &laid } else { &anywhere }, other)
}

/// What files gain and lose by being placed, over cases, in the names of the promises' figures.
#[derive(Debug, Default)]
pub struct PlacingEffects {
    gains: NamedSamples,
    losses: NamedSamples,
}

impl PlacingEffects {
    /// Adds a case: how many times as fast a hot set is, if it fits its colours, and how many times as long a
    /// scan takes.
    pub fn push(&mut self, of: &str, gain: Option<f64>, loss: f64) {
        gain.into_iter().for_each(|gain| self.gains.push(of, gain));
        self.losses.push(of, loss);
    }

    /// The figures: the worst cases.
    pub fn figures(&self, verdict: &mut SuiteVerdict) {
        for of in SCANS {
            verdict.extreme("F6", of, |spread| spread.min, self.gains.values(of));
            verdict.extreme("F7", of, |spread| spread.max, self.losses.values(of));
        }
    }
}

/// Brings a file or tree into the page cache, placed or anywhere.
///
/// # Errors
/// When huepage or the disk fails.
pub fn bring(
    bench: Bench<'_>,
    setting: &WarmEffect,
    path: &Path,
    case: &PlacementCase,
) -> io::Result<()> {
    let paths = files::below(path)?;
    files::drop_cached(&paths)?;
    match case.file {
        None if case.single => files::read_in_small(&paths),
        None => files::read_in(&paths).map(drop),
        Some(colors) => {
            let args = ["--colors", colors, "--colors-from", &setting.colors_from];
            bench.warm(args.map(OsStr::new).into_iter().chain([path.as_os_str()])).map(drop)
        }
    }
}

/// A command, under `huepage run` in the colours of the hot set if it is to be laid there.
///
/// # Errors
/// When the tool cannot be found.
pub fn hot(bench: Bench<'_>, setting: &WarmEffect, laid: bool) -> io::Result<Command> {
    let plain = Command::new(tool()?);
    let options = ["--colors", &setting.hot_colors, "--colors-from", &setting.colors_from];
    Ok(if laid { bench.huepage.run(options, &plain) } else { plain })
}

/// The share of pages of known colour that are in `list`; `None` if none is known.
fn share(pages: &[u64], list: &str) -> Option<f64> {
    let inside = members(list, pages.len())?;
    let all: u64 = pages.iter().sum();
    let right: u64 = pages.iter().zip(inside).filter(|(_, inside)| *inside).map(|(n, _)| n).sum();
    (all > 0).then(|| right as f64 / all as f64)
}

/// That pages are in the colours of a list.
///
/// # Errors
/// When too few are, in words.
pub fn is_where(case: &PlacementCase, what: &str, pages: &[u64], list: &str) -> io::Result<()> {
    let share = share(pages, list).unwrap_or(0.0);
    let why = || format!("{}: only {share:.2} of the {what} is where it should be", case.name);
    if share >= VALID { Ok(()) } else { Err(io::Error::other(why())) }
}

/// That the hot set is in its colours, if it is to be.
///
/// # Errors
/// When it is not, in words.
pub fn laid(setting: &WarmEffect, case: &PlacementCase, hot: &[u64]) -> io::Result<()> {
    if case.laid { is_where(case, "hot set", hot, &setting.hot_colors) } else { Ok(()) }
}

/// Measures until huepage was not kept from its work by noise.
///
/// # Errors
/// The last one.
pub fn patiently<T>(mut measure: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let mut outcome = measure();
    for _ in 1..ATTEMPTS {
        if outcome.is_ok() {
            break;
        }
        outcome = measure();
    }
    outcome
}
