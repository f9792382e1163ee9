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
use crate::harness::SuiteFigures;
use crate::pagecache::files;
use crate::pagecache::scan::Took;
use crate::verdict::SuiteVerdict;

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

/// Files that are scanned again and again: what the figures are of, the cache that each fits, by the kernel's number,
/// and its part of that.
const FITTING: [(&str, u32, u64); 2] = [("half the L2", 2, 2), ("a quarter of the L3", 3, 4)];

/// What the figures are of.
const OF: &[&str] = &[FITTING[0].0, FITTING[1].0];

impl Suite for WarmAdverse {
    const FIGURES: SuiteFigures = &[("F8", &[""]), ("F9", OF)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let mut samples = NamedSamples::default();
        verdict.attempt("random reads", random(bench, self, &mut samples));
        for (what, index, of) in FITTING {
            let Some(kib) = cache_kib(self.cpu, index) else {
                verdict.skip(format!("{what}: the kernel tells no size of it"));
                continue;
            };
            verdict.attempt(what, repeated(bench, self, &mut samples, (what, kib / of)));
        }
        samples.rows(verdict, "ns a page");
        figures(verdict, &samples);
        Ok(())
    }
}

/// The figures: placed against unplaced in the same rounds.
fn figures(verdict: &mut SuiteVerdict, samples: &NamedSamples) {
    let ratios =
        |what: &str| samples.ratios(&format!("{what}, placed"), &format!("{what}, unplaced"));
    verdict.figure("F8", "", &ratios("random reads"));
    for (of, ..) in FITTING {
        verdict.figure("F9", of, &ratios(&format!("scans of {of}")));
    }
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
    (what, kib): (&str, u64),
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
        samples.push(&format!("scans of {what}, {way}"), took.page_ns);
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
        for (unplaced, reads, scans) in [(100.0, 99.0, 110.0), (200.0, 200.0, 206.0)] {
            for (what, placed) in [("random reads", reads), ("scans of half the L2", scans)] {
                samples.push(&format!("{what}, unplaced"), unplaced);
                samples.push(&format!("{what}, placed"), placed);
            }
        }
        let mut verdict = SuiteVerdict::new("warm-adverse");
        figures(&mut verdict, &samples);
        assert_eq!(verdict.missed, ["F9 half the L2: 1.065 x is not <= 1.02 x"]);
        let spreads: Vec<_> = verdict.figures.iter().map(|own| own.spread).collect();
        assert_eq!(spreads, [Some([0.99, 1.0]), Some([1.03, 1.1])]);
    }
}
