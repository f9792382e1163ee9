//! What placing a file gains: one thread with a hot set that also scans a cached file, by `read`
//! or through a mapping. The hot set and, apart from it, the scan are timed with the file
//! anywhere, in two colours and in one; see `grep` for two programs on one CPU.
//!
//! The file anywhere is measured twice: with nothing of huepage (hot set anywhere), and with the
//! hot set in the same colours as when the file is placed. A placed file is compared with the
//! better of the two, so that neither the laying of the hot set nor its lack is the gain.
//! The promise is for hot sets that fit the colours that they have; larger ones are reported.

use std::io;
use std::path::Path;
use std::process::Command;

use clap::Args;

use super::{Bench, Samples, Verdict, grep, measured, progress, tool};
use crate::observe::members;
use crate::pagecache::beside::{Found, Measure};
use crate::pagecache::files;
use crate::pagecache::scan::{self, How};
use crate::suite::round;

/// A hot set is promised to be faster by this factor when the file is placed.
pub const HOT: f64 = 2.0;
/// A scan of a placed file is promised to take at most so many times as long.
pub const SCAN: f64 = 1.1;
/// Share of pages of known colour that must be where they were asked to be, for a measurement
/// to say anything.
const VALID: f64 = 0.9;
/// Times that a measurement is made anew when noise kept huepage from placing something.
const ATTEMPTS: u32 = 4;

/// What to measure, and where.
#[derive(Args, Clone, Debug)]
pub struct Setting {
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

impl Setting {
    /// The share of the cache that the hot set has, 0 to 1.
    fn share(&self) -> f64 {
        let inside = members(&self.hot_colors, usize::from(self.of)).unwrap_or_default();
        inside.iter().filter(|color| **color).count() as f64 / f64::from(self.of.max(1))
    }

    /// Whether a hot set fits its colours, as the kernel tells the size of the cache.
    pub fn fits(&self, kib: usize) -> bool {
        let path = format!("/sys/devices/system/cpu/cpu{}/cache/index2/size", self.cpu);
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let cache: f64 = text.trim().trim_end_matches('K').parse().unwrap_or(1024.0);
        kib as f64 <= cache * self.share()
    }
}

/// Where things are, in words, with the colours of the file and whether the hot set is laid.
#[derive(Clone, Copy, Debug)]
pub struct Case {
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
pub const CASES: [Case; 5] = [
    Case { name: "file anywhere, hot anywhere", file: None, single: false, laid: false },
    Case { name: "file anywhere, hot laid", file: None, single: false, laid: true },
    Case { name: "file in 0-1, hot laid", file: Some("0-1"), single: false, laid: true },
    Case { name: "file in 0, hot laid", file: Some("0"), single: false, laid: true },
    Case { name: "file anywhere in single pages, hot laid", file: None, single: true, laid: true },
];
/// Those of them that are compared.
const COMPARED: std::ops::Range<usize> = 2..4;
/// The one that is reported only.
const SINGLE: usize = 4;

/// The better of the cases that others are compared with.
pub fn unplaced(samples: &Samples, name: impl Fn(&Case) -> String) -> f64 {
    CASES[..2].iter().map(|case| samples.median(&name(case))).fold(f64::NAN, f64::min)
}

/// Runs the suite.
pub fn run(bench: Bench<'_>, setting: &Setting) -> Verdict {
    let mut verdict = Verdict::new("warm-effect");
    let mut samples = Samples::default();
    let outcome = measure(bench, setting, &mut samples);
    progress("");
    samples.rows(&mut verdict, "ns");
    compare(&mut verdict, setting, &samples);
    if let Err(error) = outcome {
        verdict.miss(format!("cannot be measured: {error}"));
    } else if setting.passes > 0 {
        grep::run(&mut verdict, bench, setting);
    }
    verdict
}

/// Brings a file or tree into the page cache, placed or anywhere.
///
/// # Errors
/// When huepage or the disk fails.
pub fn bring(bench: Bench<'_>, setting: &Setting, path: &Path, case: &Case) -> io::Result<f64> {
    let paths = files::below(path)?;
    files::drop_cached(&paths)?;
    let Some(colors) = case.file else {
        if case.single {
            files::read_in_small(&paths)?;
        } else {
            files::read_in(&paths)?;
        }
        return Ok(0.0);
    };
    let args = ["--colors", colors, "--colors-from", &setting.colors_from];
    let args = args.iter().map(Into::into).chain([path.as_os_str().to_owned()]);
    Ok(bench.warm(args)?.share())
}

/// A command, under `huepage run` in the colours of the hot set if it is to be laid there.
///
/// # Errors
/// When the tool cannot be found.
pub fn hot(bench: Bench<'_>, setting: &Setting, laid: bool) -> io::Result<Command> {
    let tool = tool()?;
    if !laid {
        return Ok(Command::new(tool));
    }
    let mut command = bench.huepage.command(["run", "--quiet", "--colors", &setting.hot_colors]);
    command.args(["--colors-from", &setting.colors_from, "--"]).arg(tool);
    Ok(command)
}

fn measure(bench: Bench<'_>, setting: &Setting, samples: &mut Samples) -> io::Result<()> {
    let scratch = bench.scratch()?;
    let file = scratch.path().join("file");
    files::fill(&file, setting.file_mib << 20, 5)?;
    for turn in 0..setting.rounds {
        for case in &CASES {
            progress(&format!("round {} of {}: {}", turn + 1, setting.rounds, case.name));
            let found = patiently(|| {
                bring(bench, setting, &file, case)?;
                let found = beside(bench, setting, &file, case)?;
                laid(setting, case, &found.hot)?;
                placed(case, &found.file)?;
                Ok(found)
            })?;
            for one in found.measures {
                samples.push(&name(case, &one, "hot"), one.hot_ns);
                if one.how != How::None {
                    samples.push(&name(case, &one, "scan"), one.page_ns);
                }
            }
        }
    }
    Ok(())
}

fn beside(bench: Bench<'_>, setting: &Setting, file: &Path, case: &Case) -> io::Result<Found> {
    let kib: Vec<String> = setting.hot_kib.iter().map(usize::to_string).collect();
    let mut command = hot(bench, setting, case.laid)?;
    command.args(["beside", "--cpu", &setting.cpu.to_string(), "--kib", &kib.join(",")]);
    command.args(["--seconds", &setting.seconds.to_string(), "--of", &setting.of.to_string()]);
    command.args(["--chunk-kib", &setting.chunk_kib.to_string()]);
    command.args(["--buffer-kib", &setting.buffer_kib.to_string()]);
    command.args(["--colors-from", &setting.colors_from]).arg("--file").arg(file);
    measured(&mut command)
}

fn name(case: &Case, one: &Measure, what: &str) -> String {
    format!("{what} {}: {}", name_of(one), case.name)
}

fn name_of(one: &Measure) -> String {
    let how = match one.how {
        How::Read => "read",
        How::Mmap => "mmap",
        How::None => "no scan",
    };
    format!("{} KiB, {how}", one.kib)
}

/// The share of pages of known colour that are in `list`; `None` if none is known.
fn share(pages: &[u64], list: &str) -> Option<f64> {
    let inside = members(list, pages.len())?;
    let all: u64 = pages.iter().sum();
    let right: u64 = pages.iter().zip(inside).filter(|(_, inside)| *inside).map(|(n, _)| n).sum();
    (all > 0).then(|| right as f64 / all as f64)
}

fn is_where(case: &Case, what: &str, pages: &[u64], list: &str) -> io::Result<()> {
    let share = share(pages, list).unwrap_or(0.0);
    let why = || format!("{}: only {share:.2} of the {what} is where it should be", case.name);
    if share >= VALID { Ok(()) } else { Err(io::Error::other(why())) }
}

/// That the hot set is in its colours, if it is to be.
///
/// # Errors
/// When it is not, in words.
pub fn laid(setting: &Setting, case: &Case, hot: &[u64]) -> io::Result<()> {
    if case.laid { is_where(case, "hot set", hot, &setting.hot_colors) } else { Ok(()) }
}

/// That the file is in its colours, if it is to be.
fn placed(case: &Case, file: &[u64]) -> io::Result<()> {
    case.file.map_or(Ok(()), |colors| is_where(case, "file", file, colors))
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

fn compare(verdict: &mut Verdict, setting: &Setting, samples: &Samples) {
    for (kib, how) in setting.hot_kib.iter().flat_map(|kib| [(kib, How::Read), (kib, How::Mmap)]) {
        let one = Measure { kib: *kib, how, laps: 0, hot_ns: 0.0, page_ns: 0.0 };
        let alone = samples.median(&name(&CASES[1], &Measure { how: How::None, ..one }, "hot"));
        let most = unplaced(samples, |case| name(case, &one, "hot")) / alone;
        verdict.total(&format!("{}, nothing read: faster by", name_of(&one)), round(most));
        for case in &CASES[COMPARED] {
            let ratio = |what| {
                let before = unplaced(samples, |case| name(case, &one, what));
                before / samples.median(&name(case, &one, what))
            };
            let (gain, loss) = (ratio("hot"), 1.0 / ratio("scan"));
            if gain.is_nan() {
                continue;
            }
            let (hot, scan) = (name(case, &one, "hot"), name(case, &one, "scan"));
            verdict.total(&format!("{hot}: faster by"), round(gain));
            verdict.total(&format!("{scan}: time"), round(loss));
            let single = samples.median(&name(&CASES[SINGLE], &one, "scan"));
            let against = samples.median(&scan) / single;
            verdict.total(&format!("{scan}: time, against single pages"), round(against));
            let fits = setting.fits(*kib);
            verdict.require(gain >= HOT || !fits, || format!("{hot}: faster by only {gain:.2}"));
            verdict.require(loss <= SCAN, || format!("{scan}: takes {loss:.2} times as long"));
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        setting: Setting,
    }

    fn setting(args: &[&str]) -> Setting {
        Cli::parse_from([&["effect"], args].concat()).setting
    }

    #[test]
    fn a_placed_file_is_compared_with_the_better_of_the_others() {
        let setting = setting(&["--hot-kib", "16"]);
        let one = Measure { kib: 16, how: How::Read, laps: 0, hot_ns: 0.0, page_ns: 0.0 };
        let mut samples = Samples::default();
        for (case, hot, scan) in
            [(0, 30.0, 100.0), (1, 20.0, 100.0), (2, 10.0, 105.0), (3, 12.0, 120.0)]
        {
            samples.push(&name(&CASES[case], &one, "hot"), hot);
            samples.push(&name(&CASES[case], &one, "scan"), scan);
        }
        let mut verdict = Verdict::new("warm-effect");
        compare(&mut verdict, &setting, &samples);
        let missed = verdict.missed.join("\n");
        assert_eq!(verdict.missed.len(), 2, "{missed}");
        assert!(missed.contains("file in 0, hot laid: faster by only 1.67"), "{missed}");
        assert!(missed.contains("file in 0, hot laid: takes 1.20 times"), "{missed}");
    }

    #[test]
    fn pages_elsewhere_make_a_measurement_void() {
        let setting = setting(&["--of", "4", "--hot-colors", "2-3"]);
        assert!(laid(&setting, &CASES[3], &[0, 1, 50, 49]).is_ok());
        assert!(laid(&setting, &CASES[3], &[20, 0, 50, 30]).is_err());
        assert!(laid(&setting, &CASES[0], &[20, 0, 0, 0]).is_ok());
        assert!(placed(&CASES[3], &[40, 0, 0, 0]).is_ok());
        let error = placed(&CASES[3], &[40, 0, 40, 0]).unwrap_err().to_string();
        assert!(error.contains("only 0.50 of the file"), "{error}");
        // Nothing is known, so nothing is right.
        assert!(placed(&CASES[3], &[0; 4]).is_err());
        assert!((setting.share() - 0.5).abs() < 1e-9 && !setting.fits(1 << 20));
    }

    #[test]
    fn a_measurement_is_made_anew_some_times() {
        let mut times = 0;
        let outcome = patiently(|| {
            times += 1;
            if times == 3 { Ok(times) } else { Err(io::Error::other("noise")) }
        });
        assert_eq!(outcome.unwrap(), 3);
        assert!(patiently(|| Err::<(), _>(io::Error::other("noise"))).is_err());
    }
}
