//! What placing costs: whole processes, in turns. A plain cold read (`cat`) against `huepage
//! warm` of the same file, with colours by frame number and probed; a plain copy to tmpfs
//! against `huepage warm --into`, both from the page cache.

use std::io;
use std::path::Path;
use std::process::Command;

use clap::Args;

use super::{Bench, NamedSamples, Suite, progress, timed};
use crate::figures::round;
use crate::pagecache::files;
use crate::verdict::SuiteVerdict;

/// Placing by frame number is promised to take at most so many cold reads.
pub const READ: f64 = 1.5;
/// Placing on tmpfs is promised to take at most so many copies.
pub const COPY: f64 = 4.0;

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

/// Ways of placing, each with the options and the time that it is compared with.
const WAYS: [(&str, &[&str], Option<f64>); 2] = [
    ("warm, srm by frame number", &["--policy", "srm", "--colors-from", "pfn"], Some(READ)),
    ("warm, 0-7 by frame number", &["--colors", "0-7", "--colors-from", "pfn"], Some(READ)),
];
const PROBED: [(&str, &[&str], Option<f64>); 2] = [
    ("warm, srm probed", &["--policy", "srm", "--colors-from", "probe"], None),
    ("warm, 0-7 probed", &["--colors", "0-7", "--colors-from", "probe"], None),
];
const INTO: [(&str, &[&str], Option<f64>); 2] = [
    ("warm --into, srm by frame number", &["--policy", "srm", "--colors-from", "pfn"], Some(COPY)),
    ("warm --into, 0-7 by frame number", &["--colors", "0-7", "--colors-from", "pfn"], Some(COPY)),
];

impl Suite for WarmCost {
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let mut samples = NamedSamples::default();
        let outcome = measure(verdict, bench, self, &mut samples);
        if let Err(error) = outcome {
            verdict.miss(format!("cannot be measured: {error}"));
        }
        samples.rows(verdict, "s");
        compare(verdict, &samples, COLD, &[WAYS, PROBED].concat());
        compare(verdict, &samples, COPIED, &INTO);
        Ok(())
    }
}

fn compare(
    verdict: &mut SuiteVerdict,
    samples: &NamedSamples,
    with: &str,
    ways: &[(&str, &[&str], Option<f64>)],
) {
    for (name, _, bar) in ways {
        let ratio = samples.median(name) / samples.median(with);
        if ratio.is_nan() {
            continue;
        }
        verdict.total(&format!("{name} / {with}"), round(ratio));
        if let Some(bar) = bar {
            verdict.require(ratio <= *bar, || format!("{name} takes {ratio:.2} times a {with}"));
        }
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
        for (name, options, _) in WAYS {
            warm(verdict, bench, samples, (name, options), &file)?;
        }
        for (name, options, _) in PROBED.iter().filter(|_| turn < setting.probed) {
            if let Err(error) = warm(verdict, bench, samples, (name, options), &file) {
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
    (name, options): (&str, &[&str]),
    file: &Path,
) -> io::Result<()> {
    files::drop_cached(&[file.to_owned()])?;
    let args = options.iter().map(Into::into).chain([file.as_os_str().to_owned()]);
    let warmed = bench.warm(args)?;
    samples.push(name, warmed.wall);
    let share = warmed.share();
    // A cheap warm that places nothing is worth nothing.
    verdict.require(share >= 0.97, || format!("{name}: only {share:.3} of the pages placed"));
    Ok(())
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
    for (name, options, _) in INTO {
        files::read_in(&[file.to_owned()])?;
        let into = target.path().join("into");
        std::fs::create_dir(&into)?;
        let mut args: Vec<std::ffi::OsString> = options.iter().map(Into::into).collect();
        args.extend(["--into".into(), into.as_os_str().to_owned(), file.as_os_str().to_owned()]);
        let warmed = bench.warm(args)?;
        samples.push(name, warmed.wall);
        let share = warmed.share();
        verdict.require(share >= 0.97, || format!("{name}: only {share:.3} of the pages placed"));
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
        let all = [(COLD, 1.0), (WAYS[0].0, 1.4), (WAYS[1].0, 1.6)];
        all.into_iter().for_each(|(n, v)| samples.push(n, v));
        let mut verdict = SuiteVerdict::new("warm-cost");
        compare(&mut verdict, &samples, COLD, &[WAYS, PROBED].concat());
        assert_eq!(verdict.missed.len(), 1);
        assert!(verdict.missed[0].contains("0-7 by frame number takes 1.60"));
        assert_eq!(verdict.totals.len(), 2);
    }
}
