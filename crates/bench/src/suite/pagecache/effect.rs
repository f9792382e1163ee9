//! What placing a file gains: one thread with a hot set that also scans a cached file, by `read`
//! or through a mapping. The hot set and, apart from it, the scan are timed with the file
//! anywhere, in two colours and in one; see `grep` for two programs on one CPU.
//!
//! The file anywhere is measured twice: with nothing of huepage (hot set anywhere), and with the
//! hot set in the same colours as when the file is placed. A placed file is compared with the
//! better of the two, so that neither the laying of the hot set nor its lack is the gain.
//! The promise is for hot sets that fit the colours that they have, and for the worst of the cases; larger ones are
//! reported.

use std::io;
use std::path::Path;

use super::cases::{
    CASES, PlacementCase, PlacingEffects, SCANS, WarmEffect, against_unplaced, bring, hot,
    is_where, laid, patiently,
};
use super::{Bench, NamedSamples, Suite, grep, interleaved, measured};
use crate::figures::{median, round};
use crate::harness::SuiteFigures;
use crate::pagecache::beside::{Measure, ScannedWalkResult};
use crate::pagecache::files;
use crate::pagecache::scan::How;
use crate::verdict::SuiteVerdict;

/// Those of them that are compared.
const COMPARED: std::ops::Range<usize> = 2..4;
/// The one that is reported only.
const SINGLE: usize = 4;

impl Suite for WarmEffect {
    const FIGURES: SuiteFigures = &[("F6", SCANS), ("F7", SCANS)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        let (mut samples, mut effects) = (NamedSamples::default(), PlacingEffects::default());
        let outcome = measure(bench, self, &mut samples);
        samples.rows(verdict, "ns");
        compare(verdict, self, &samples, &mut effects);
        verdict.is_part = outcome.is_err();
        if outcome.is_ok() && self.passes > 0 {
            grep::run(verdict, bench, self, &mut effects);
        }
        effects.figures(verdict);
        outcome
    }
}

fn measure(bench: Bench<'_>, setting: &WarmEffect, samples: &mut NamedSamples) -> io::Result<()> {
    let scratch = bench.scratch()?;
    let file = scratch.path().join("file");
    files::fill(&file, setting.file_mib << 20, 5)?;
    interleaved(setting.rounds, CASES, |case| {
        let found = patiently(|| {
            bring(bench, setting, &file, &case)?;
            let found = beside(bench, setting, &file, &case)?;
            laid(setting, &case, &found.hot)?;
            placed(&case, &found.file)?;
            Ok(found)
        })?;
        for one in found.measures {
            samples.push(&name(&case, &one, "hot"), one.hot_ns);
            if one.how != How::None {
                samples.push(&name(&case, &one, "scan"), one.page_ns);
            }
        }
        Ok(())
    })?;
    Ok(())
}

fn beside(
    bench: Bench<'_>,
    setting: &WarmEffect,
    file: &Path,
    case: &PlacementCase,
) -> io::Result<ScannedWalkResult> {
    let kib: Vec<String> = setting.hot_kib.iter().map(usize::to_string).collect();
    let mut command = hot(bench, setting, case.laid)?;
    command.args(["beside", "--cpu", &setting.cpu.to_string(), "--kib", &kib.join(",")]);
    command.args(["--seconds", &setting.seconds.to_string(), "--of", &setting.of.to_string()]);
    command.args(["--chunk-kib", &setting.chunk_kib.to_string()]);
    command.args(["--buffer-kib", &setting.buffer_kib.to_string()]);
    command.args(["--colors-from", &setting.colors_from]).arg("--file").arg(file);
    measured(&mut command)
}

fn name(case: &PlacementCase, one: &Measure, what: &str) -> String {
    format!("{what} {}: {}", name_of(one), case.name)
}

fn name_of(one: &Measure) -> String {
    format!("{} KiB, {}", one.kib, word_of(one.how))
}

const fn word_of(how: How) -> &'static str {
    match how {
        How::Read => "read",
        How::Mmap => "mmap",
        How::None => "no scan",
    }
}

/// That the file is in its colours, if it is to be.
fn placed(case: &PlacementCase, file: &[u64]) -> io::Result<()> {
    case.file.map_or(Ok(()), |colors| is_where(case, "file", file, colors))
}

/// Adds what each case gains and loses to the totals, and what is promised to the effects.
fn compare(
    verdict: &mut SuiteVerdict,
    setting: &WarmEffect,
    samples: &NamedSamples,
    effects: &mut PlacingEffects,
) {
    for (kib, how) in setting.hot_kib.iter().flat_map(|kib| [(kib, How::Read), (kib, How::Mmap)]) {
        let one = Measure { kib: *kib, how, laps: 0, hot_ns: 0.0, page_ns: 0.0 };
        let faster = |what, other: &str| {
            median(against_unplaced(samples, |case| name(case, &one, what), other))
        };
        let alone = name(&CASES[1], &Measure { how: How::None, ..one }, "hot");
        let most = faster("hot", &alone);
        verdict.total(&format!("{}, nothing read: faster by", name_of(&one)), round(most));
        for case in &CASES[COMPARED] {
            let (hot, scan) = (name(case, &one, "hot"), name(case, &one, "scan"));
            let (gain, loss) = (faster("hot", &hot), 1.0 / faster("scan", &scan));
            if gain.is_nan() {
                continue;
            }
            verdict.total(&format!("{hot}: faster by"), round(gain));
            verdict.total(&format!("{scan}: time"), round(loss));
            let single = samples.ratios(&scan, &name(&CASES[SINGLE], &one, "scan"));
            verdict.total(&format!("{scan}: time, against single pages"), round(median(single)));
            effects.push(word_of(how), setting.fits(*kib).then_some(gain), loss);
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
        setting: WarmEffect,
    }

    fn setting(args: &[&str]) -> WarmEffect {
        Cli::parse_from([&["effect"], args].concat()).setting
    }

    #[test]
    fn a_placed_file_is_compared_with_the_better_of_the_others() {
        let setting = setting(&["--hot-kib", "16"]);
        let one = Measure { kib: 16, how: How::Read, laps: 0, hot_ns: 0.0, page_ns: 0.0 };
        let mut samples = NamedSamples::default();
        for (case, hot, scan) in
            [(0, 30.0, 100.0), (1, 20.0, 100.0), (2, 10.0, 105.0), (3, 12.0, 120.0)]
        {
            // The machine is half as fast in the second round.
            for drift in [1.0, 2.0] {
                samples.push(&name(&CASES[case], &one, "hot"), hot * drift);
                samples.push(&name(&CASES[case], &one, "scan"), scan * drift);
            }
        }
        let (mut verdict, mut effects) =
            (SuiteVerdict::new("warm-effect"), PlacingEffects::default());
        compare(&mut verdict, &setting, &samples, &mut effects);
        effects.figures(&mut verdict);
        assert_eq!(
            verdict.missed,
            ["F6 read: 1.667 x is not >= 2 x", "F7 read: 1.2 x is not <= 1.1 x",]
        );
        let given = verdict.figures.iter().map(|own| (own.id, own.spread));
        let expected = [("F6", Some([1.667, 2.0])), ("F7", Some([1.05, 1.2]))];
        assert_eq!(given.collect::<Vec<_>>(), expected);
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
