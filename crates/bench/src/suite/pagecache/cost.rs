//! What placing costs: whole processes, in turns. A plain cold read (`cat`) against `huepage
//! warm` of the same file, with colours by frame number and probed; a plain copy to tmpfs
//! against `huepage warm --into`, both from the page cache.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;

use clap::Args;

use super::{Bench, NamedSamples, Suite, Warmed, progress, timed};
use crate::harness::SuiteFigures;
use crate::pagecache::files;
use crate::verdict::SuiteVerdict;

/// What to measure, and where.
#[derive(Args, Clone, Debug)]
pub struct WarmCost {
    /// Size of the file, in MiB
    #[arg(long, default_value_t = 1024)]
    pub mib: u64,
    /// Repetitions
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Repetitions of those with probed colours, which depend on the machine's quiet
    #[arg(long, default_value_t = 2)]
    pub probed: usize,
    /// Where copies go
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    pub tmpfs: std::path::PathBuf,
}

const COLD: &str = "cold read";
const COPIED: &str = "copy to tmpfs";
/// How colours are known where a file is placed, and where its copy is.
const BY_NUMBER: &str = "warm by frame number";
const PROBED: &str = "warm, probed";
const INTO: &str = "warm --into by frame number";

/// Which frames a file is placed in, and the options for it.
const WAYS: [(&str, [&str; 2]); 2] =
    [("sequences", ["--policy", "srm"]), ("eight colours", ["--colors", "0-7"])];

/// A way of placing: its name in the table and its options.
type Placing<'a> = (&'a str, &'a [&'a str]);

/// What the figures are of.
const OF: &[&str] = &[WAYS[0].0, WAYS[1].0];

impl Suite for WarmCost {
    const FIGURES: SuiteFigures = &[("F3", OF), ("F4", OF), ("F5", OF)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let mut samples = NamedSamples::default();
        let outcome = measure(verdict, bench, self, &mut samples);
        samples.rows(verdict, "s");
        compare(verdict, &samples, self.mib << 8);
        outcome
    }
}

/// The name of a way in the table.
fn name(how: &str, way: &str) -> String {
    format!("{how}, {way}")
}

/// The figures: warms against cold reads and copies of the same rounds, and microseconds a page.
fn compare(verdict: &mut SuiteVerdict, samples: &NamedSamples, pages: u64) {
    for (way, _) in WAYS {
        for (id, how, with) in [("F3", BY_NUMBER, COLD), ("F4", INTO, COPIED)] {
            verdict.figure(id, way, &samples.ratios(&name(how, way), with));
        }
        let probed = samples.values(&name(PROBED, way));
        let us: Vec<f64> = probed.iter().map(|seconds| seconds * 1e6 / pages as f64).collect();
        verdict.figure("F5", way, &us);
    }
}

fn measure(
    verdict: &mut SuiteVerdict,
    bench: Bench<'_>,
    setting: &WarmCost,
    samples: &mut NamedSamples,
) -> io::Result<()> {
    let scratch = bench.scratch()?;
    let file = scratch.path().join("file");
    progress("making the file");
    files::fill(&file, setting.mib << 20, 4)?;
    for turn in 0..setting.rounds {
        progress(&format!("round {} of {}", turn + 1, setting.rounds));
        cold(samples, COLD, &file, Command::new("cat").arg(&file))?;
        for (way, frames) in WAYS {
            let options = [&frames[..], &["--colors-from", "pfn"]].concat();
            warm(verdict, bench, samples, (&name(BY_NUMBER, way), &options), &file)?;
        }
        for (way, frames) in WAYS.iter().filter(|_| turn < setting.probed) {
            let (name, options) = (name(PROBED, way), [&frames[..], &["--colors-from", "probe"]]);
            let probed = (name.as_str(), &options.concat()[..]);
            if let Err(error) = warm(verdict, bench, samples, probed, &file) {
                verdict.skip(format!("{name}: {error}"));
            }
        }
        copies(verdict, bench, setting, samples, &file)?;
    }
    Ok(())
}

/// Times a command on a file that is not in the page cache.
fn cold(
    samples: &mut NamedSamples,
    name: &str,
    file: &Path,
    command: &mut Command,
) -> io::Result<()> {
    let stayed = files::drop_cached(&[file.to_owned()])?;
    if stayed > 0.02 {
        return Err(io::Error::other(format!("{stayed:.2} of the file cannot be dropped")));
    }
    samples.push(name, timed(command)?);
    Ok(())
}

/// Times a warm of a file that is not in the page cache, and requires that it placed pages.
fn warm(
    verdict: &mut SuiteVerdict,
    bench: Bench<'_>,
    samples: &mut NamedSamples,
    (name, options): Placing<'_>,
    file: &Path,
) -> io::Result<()> {
    files::drop_cached(&[file.to_owned()])?;
    let args = options.iter().map(Into::into).chain([file.as_os_str().to_owned()]);
    let warmed = bench.warm(args)?;
    add(verdict, samples, name, &warmed);
    Ok(())
}

/// Adds a sample; a cheap warm that places nothing is worth nothing.
fn add(verdict: &mut SuiteVerdict, samples: &mut NamedSamples, name: &str, warmed: &Warmed) {
    samples.push(name, warmed.wall);
    let share = warmed.share();
    verdict.require(share >= 0.97, || format!("{name}: only {share:.3} of the pages placed"));
}

fn copies(
    verdict: &mut SuiteVerdict,
    bench: Bench<'_>,
    setting: &WarmCost,
    samples: &mut NamedSamples,
    file: &Path,
) -> io::Result<()> {
    let target = tempfile::tempdir_in(&setting.tmpfs)?;
    if files::filesystem(target.path())? != "tmpfs" {
        return Err(io::Error::other("--tmpfs is no tmpfs"));
    }
    files::read_in(&[file.to_owned()])?;
    let copy = target.path().join("copy");
    samples.push(COPIED, timed(Command::new("cp").arg(file).arg(&copy))?);
    std::fs::remove_file(&copy)?;
    for (way, frames) in WAYS {
        files::read_in(&[file.to_owned()])?;
        let into = target.path().join("into");
        std::fs::create_dir(&into)?;
        let own = [frames[0], frames[1], "--colors-from", "pfn", "--into"].map(OsStr::new);
        let warmed = bench.warm(own.into_iter().chain([into.as_os_str(), file.as_os_str()]))?;
        add(verdict, samples, &name(INTO, way), &warmed);
        std::fs::remove_dir_all(&into)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dear_warm_is_missed_and_one_not_measured_is_not() {
        let mut samples = NamedSamples::default();
        let [sequences, colors] = WAYS.map(|(way, _)| name(BY_NUMBER, way));
        for (cold, cheap, dear) in [(1.0, 1.4, 1.6), (2.0, 2.6, 3.4), (1.0, 1.5, 1.9)] {
            samples.push(COLD, cold);
            samples.push(&sequences, cheap);
            samples.push(&colors, dear);
        }
        samples.push(&name(PROBED, "sequences"), 0.2);
        let mut verdict = SuiteVerdict::new("warm-cost");
        compare(&mut verdict, &samples, 1000);
        assert_eq!(
            verdict.missed,
            ["F5 sequences: 200 us is not <= 100 us", "F3 eight colours: 1.7 x is not <= 1.5 x",]
        );
        let given = verdict.figures.iter().map(|own| (own.id, own.figure, own.spread));
        let expected =
            [("F3", 1.4, Some([1.3, 1.5])), ("F5", 200.0, None), ("F3", 1.7, Some([1.6, 1.9]))];
        assert_eq!(given.collect::<Vec<_>>(), expected);
    }
}
