//! `grep` over a tree in the page cache, and a hot set of another program on the same CPU: the
//! hot set's CPU time per access, with the tree anywhere and in two colours.
//!
//! The hot set either waits a little after each lap, as one who waits for work and is woken in
//! the middle of grep's; or it never waits, and the kernel takes turns of milliseconds, most
//! of which the hot set runs undisturbed. The promise is for the first; the other is reported.
//! A last case also gives grep's own memory the tree's colours.

use std::io::{self, BufRead, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use super::cases::{self, CASES, PlacementCase, PlacingEffects, WarmEffect};
use super::{Bench, Guard, NamedSamples, interleaved};
use crate::figures::{median, round};
use crate::launch::bounded;
use crate::pagecache::beside::HotFound;
use crate::pagecache::files;
use crate::sys;
use crate::verdict::SuiteVerdict;

/// Microseconds that the hot set waits after a lap; the promise is for the first.
const PAUSES: [u64; 2] = [100, 0];
/// Average size of a file of a tree, in bytes.
const AVERAGE: u64 = 33_280;
/// Colours of the tree.
const COLORS: &str = "0-1";

/// The cases, and whether grep itself is confined to the tree's colours.
const WAYS: [(PlacementCase, bool); 4] = [
    (CASES[0], false),
    (CASES[1], false),
    (CASES[2], false),
    (
        PlacementCase {
            name: "file and grep in 0-1, hot laid",
            file: Some(COLORS),
            single: false,
            laid: true,
        },
        true,
    ),
];

/// Adds what was found to a verdict, and what is promised to the effects.
pub fn run(
    verdict: &mut SuiteVerdict,
    bench: Bench<'_>,
    setting: &WarmEffect,
    effects: &mut PlacingEffects,
) {
    let mut samples = NamedSamples::default();
    verdict.attempt("grep", measure(bench, setting, &mut samples));
    samples.rows(verdict, "ns (grep: s)");
    for (kib, pause) in setting.hot_kib.iter().flat_map(|kib| PAUSES.map(|pause| (*kib, pause))) {
        compare(verdict, setting, &samples, (kib, pause), effects);
    }
}

fn measure(bench: Bench<'_>, setting: &WarmEffect, samples: &mut NamedSamples) -> io::Result<()> {
    let scratch = bench.scratch()?;
    let tree = scratch.path().join("tree");
    let count = (setting.file_mib << 20).div_ceil(AVERAGE);
    files::tree(&tree, usize::try_from(count).map_err(io::Error::other)?)?;
    interleaved(setting.rounds, WAYS, |(case, confined)| {
        cases::patiently(|| cases::bring(bench, setting, &tree, &case))?;
        for (kib, pause) in setting.hot_kib.iter().flat_map(|kib| PAUSES.map(|pause| (*kib, pause)))
        {
            let (hot, grep) =
                cases::patiently(|| beside(bench, setting, &case, confined, (&tree, kib, pause)))?;
            samples.push(&name(&case, kib, pause, "hot"), hot.cpu_ns);
            samples.push(&name(&case, kib, pause, "grep"), grep);
        }
        Ok(())
    })?;
    Ok(())
}

fn name(case: &PlacementCase, kib: usize, pause: u64, what: &str) -> String {
    format!("{what} with {kib} KiB, pauses of {pause} us: {}", case.name)
}

/// The hot set while grep runs, and grep's CPU time.
fn beside(
    bench: Bench<'_>,
    setting: &WarmEffect,
    case: &PlacementCase,
    confined: bool,
    (tree, kib, pause): (&Path, usize, u64),
) -> io::Result<(HotFound, f64)> {
    let cpu = setting.cpu.to_string();
    let mut hot = cases::hot(bench, setting, case.laid)?;
    hot.args(["hot", "--cpu", &cpu, "--kib", &kib.to_string()]);
    hot.args(["--of", &setting.of.to_string(), "--colors-from", &setting.colors_from]);
    hot.args(["--pause-us", &pause.to_string()]).stdin(Stdio::piped());
    let (mut hot, mut out) = Guard::ready(&mut hot)?;
    let grep = grep(bench, setting, confined, tree)?;
    // The end of its input ends the walk.
    drop(hot.0.stdin.take());
    let mut line = String::new();
    out.read_line(&mut line)?;
    out.read_to_end(&mut Vec::new())?;
    let found: HotFound = serde_json::from_str(&line)?;
    cases::laid(setting, case, &found.hot)?;
    Ok((found, grep))
}

/// CPU seconds of grep, as many times through the tree as asked for.
fn grep(bench: Bench<'_>, setting: &WarmEffect, confined: bool, tree: &Path) -> io::Result<f64> {
    let mut command = Command::new("taskset");
    command.args(["-c", &setting.cpu.to_string()]);
    if confined {
        command.arg(&bench.huepage.path).args(["run", "--quiet", "--colors", COLORS]);
        command.args(["--colors-from", &setting.colors_from, "--"]);
    }
    // No line has it, so grep reads everything and says nothing.
    command.args(["grep", "-r", "-F", "no such line"]);
    (0..setting.passes).for_each(|_| _ = command.arg(tree));
    let before = sys::children_cpu();
    let end = bounded(&mut command, super::PATIENCE)?;
    match end.status {
        1 => Ok(sys::children_cpu() - before),
        other => Err(io::Error::other(format!("grep ended with {other}: {}", end.last()))),
    }
}

fn compare(
    verdict: &mut SuiteVerdict,
    setting: &WarmEffect,
    samples: &NamedSamples,
    (kib, pause): (usize, u64),
    effects: &mut PlacingEffects,
) {
    for (case, confined) in &WAYS[2..] {
        let faster = |what| {
            let of = |case: &PlacementCase| name(case, kib, pause, what);
            median(cases::against_unplaced(samples, of, &of(case)))
        };
        let (gain, loss) = (faster("hot"), 1.0 / faster("grep"));
        if gain.is_nan() {
            continue;
        }
        verdict.total(&format!("{}: faster by", name(case, kib, pause, "hot")), round(gain));
        // A confined grep's time has huepage's in it.
        if !confined {
            verdict.total(&format!("{}: time", name(case, kib, pause, "grep")), round(loss));
        }
        if pause == PAUSES[0] && setting.fits(kib) && !confined {
            effects.push("grep", Some(gain), loss);
        }
    }
}
