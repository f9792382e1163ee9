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

use super::{Bench, NamedSamples, Suite, cache_kib, interleaved, measured, tool};
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
    let shares = [(2, 2), (3, 4)].map(|(index, of)| Some(cache_kib(cpu, index)? / of));
    shares.into_iter().flatten().collect()
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

/// How a file comes into the page cache.
const WAYS: [&str; 3] = ["unplaced", "unplaced, single pages", "placed"];

fn random(bench: Bench<'_>, setting: &WarmAdverse, samples: &mut NamedSamples) -> io::Result<()> {
    let scratch = bench.scratch()?;
    let file = scratch.path().join("file");
    let all = [file.clone()];
    files::fill(&file, setting.mib << 20, 6)?;
    for turn in 0..setting.rounds {
        let mut read = scanner(setting, "random", &file)?;
        read.args(["--reads", &setting.reads.to_string(), "--seed", &turn.to_string()]);
        interleaved(1, WAYS, |way| {
            files::drop_cached(&all)?;
            match way {
                "unplaced" => files::read_in(&all).map(drop)?,
                "placed" => bench
                    .place(&file, &["--policy", "srm", "--colors-from", &setting.colors_from])?,
                _ => files::read_in_small(&all)?,
            }
            samples.push(&format!("random reads, {way}"), measured::<Took>(&mut read)?.page_ns);
            Ok(())
        })?;
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
    interleaved(setting.rounds, WAYS, |way| {
        files::drop_cached(&all)?;
        let took: Took = match way {
            "placed" => {
                let own = ["--page-cache", "srm-rescan", "--colors-from", &setting.colors_from];
                measured(&mut bench.huepage.run(own.iter().chain(bench.options), &plain))?
            }
            "unplaced" => measured(&mut plain)?,
            _ => {
                files::read_in_small(&all)?;
                measured(&mut plain)?
            }
        };
        samples.push(&format!("scans of {kib} KiB, {way}"), took.page_ns);
        Ok(())
    })?;
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
