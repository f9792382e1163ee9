//! Where placing could harm: random reads of a placed file, and a file small enough for the
//! cache that is scanned again and again, which one colour would be too small for; SRM-buffer's
//! detector spreads it. Both against the same without huepage, in turns.
//!
//! Placed pages are single ones, where the kernel would use large folios on some file systems:
//! "unplaced, single pages" tells what that alone takes, and is reported only.

use std::io;
use std::path::Path;
use std::process::Command;

use clap::Args;

use super::{Bench, NamedSamples, Suite, measured, progress, tool};
use crate::figures::round;
use crate::pagecache::files;
use crate::pagecache::scan::Took;
use crate::verdict::SuiteVerdict;

/// What huepage may cost at most.
pub const WORST: f64 = 1.02;

/// What to measure, and where.
#[derive(Args, Clone, Debug)]
pub struct WarmAdverse {
    /// Repetitions
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Size of the file that is read at random, in MiB
    #[arg(long, default_value_t = 256)]
    pub mib: u64,
    /// Random reads
    #[arg(long, default_value_t = 400_000)]
    pub reads: usize,
    /// Sizes of the files that are scanned again and again, in KiB [default: half the L2, a
    /// quarter of the L3]
    #[arg(long, value_delimiter = ',')]
    pub fit_kib: Vec<u64>,
    /// Passes over a file that is scanned; a quarter more come first and are not counted
    #[arg(long, default_value_t = 400)]
    pub passes: usize,
    /// CPU of the programs
    #[arg(long, default_value_t = 1)]
    pub cpu: usize,
    /// How colours are known
    #[arg(long, default_value = "probe")]
    pub colors_from: String,
}

impl Suite for WarmAdverse {
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let mut samples = NamedSamples::default();
        if let Err(error) = random(bench, self, &mut samples) {
            verdict.miss(format!("random reads cannot be measured: {error}"));
        }
        let sizes = if self.fit_kib.is_empty() { sizes(self.cpu) } else { self.fit_kib.clone() };
        for kib in &sizes {
            if let Err(error) = repeated(bench, self, &mut samples, *kib) {
                verdict.miss(format!("scans of {kib} KiB cannot be measured: {error}"));
            }
        }
        samples.rows(verdict, "ns a page");
        compare(verdict, &samples, "random reads");
        sizes.iter().for_each(|kib| compare(verdict, &samples, &format!("scans of {kib} KiB")));
        Ok(())
    }
}

/// Half the L2 and a quarter of the L3, in KiB, as the kernel tells their sizes.
fn sizes(cpu: usize) -> Vec<u64> {
    let size = |index: u32| -> Option<u64> {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/size");
        std::fs::read_to_string(path).ok()?.trim().trim_end_matches('K').parse().ok()
    };
    [size(2).map(|kib| kib / 2), size(3).map(|kib| kib / 4)].into_iter().flatten().collect()
}

fn compare(verdict: &mut SuiteVerdict, samples: &NamedSamples, what: &str) {
    let ratio =
        samples.median(&format!("{what}, placed")) / samples.median(&format!("{what}, unplaced"));
    if ratio.is_nan() {
        return;
    }
    verdict.total(&format!("{what}, placed / unplaced"), round(ratio));
    verdict.require(ratio <= WORST, || format!("{what}: {ratio:.3} times as long when placed"));
}

fn random(bench: Bench<'_>, setting: &WarmAdverse, samples: &mut NamedSamples) -> io::Result<()> {
    let scratch = bench.scratch()?;
    let file = scratch.path().join("file");
    let all = [file.clone()];
    files::fill(&file, setting.mib << 20, 6)?;
    for turn in 0..setting.rounds {
        progress(&format!("random reads, round {} of {}", turn + 1, setting.rounds));
        files::drop_cached(&all)?;
        files::read_in(&all)?;
        let mut read = scanner(setting, "random", &file)?;
        read.args(["--reads", &setting.reads.to_string(), "--seed", &turn.to_string()]);
        samples.push("random reads, unplaced", measured::<Took>(&mut read)?.page_ns);
        files::drop_cached(&all)?;
        files::read_in_small(&all)?;
        samples.push("random reads, unplaced, single pages", measured::<Took>(&mut read)?.page_ns);
        files::drop_cached(&all)?;
        let args = ["--policy", "srm", "--colors-from", &setting.colors_from];
        let args = args.iter().map(Into::into).chain([file.as_os_str().to_owned()]);
        let share = bench.warm(args)?.share();
        if share < 0.9 {
            return Err(io::Error::other(format!("only {share:.2} of the file was placed")));
        }
        samples.push("random reads, placed", measured::<Took>(&mut read)?.page_ns);
    }
    Ok(())
}

fn scanner(setting: &WarmAdverse, what: &str, file: &Path) -> io::Result<Command> {
    let mut command = Command::new(tool()?);
    command.args([what, "--cpu", &setting.cpu.to_string()]).arg("--file").arg(file);
    Ok(command)
}

fn repeated(
    bench: Bench<'_>,
    setting: &WarmAdverse,
    samples: &mut NamedSamples,
    kib: u64,
) -> io::Result<()> {
    let scratch = bench.scratch()?;
    let file = scratch.path().join("file");
    let all = [file.clone()];
    files::fill(&file, kib << 10, 7)?;
    let mut plain = scanner(setting, "repeat", &file)?;
    plain.args(["--passes", &setting.passes.to_string()]);
    plain.args(["--warm-up", &(setting.passes / 4).to_string()]);
    for turn in 0..setting.rounds {
        progress(&format!("scans of {kib} KiB, round {} of {}", turn + 1, setting.rounds));
        files::drop_cached(&all)?;
        let took: Took = measured(&mut plain)?;
        samples.push(&format!("scans of {kib} KiB, unplaced"), took.page_ns);
        files::drop_cached(&all)?;
        files::read_in_small(&all)?;
        let took: Took = measured(&mut plain)?;
        samples.push(&format!("scans of {kib} KiB, unplaced, single pages"), took.page_ns);
        files::drop_cached(&all)?;
        let mut run = bench.huepage.command(["run", "--quiet", "--page-cache", "srm-rescan"]);
        run.args(["--colors-from", &setting.colors_from]).args(bench.options).arg("--");
        run.arg(plain.get_program()).args(plain.get_args());
        let took: Took = measured(&mut run)?;
        samples.push(&format!("scans of {kib} KiB, placed"), took.page_ns);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slower_when_placed_is_missed() {
        let mut samples = NamedSamples::default();
        let all = [("a, unplaced", 100.0), ("a, placed", 101.0), ("b, unplaced", 100.0)];
        all.into_iter().for_each(|(n, v)| samples.push(n, v));
        samples.push("b, placed", 110.0);
        let mut verdict = SuiteVerdict::new("warm-adverse");
        ["a", "b", "c"].iter().for_each(|what| compare(&mut verdict, &samples, what));
        assert_eq!(verdict.missed, ["b: 1.100 times as long when placed"]);
        assert_eq!(verdict.totals.len(), 2);
    }
}
