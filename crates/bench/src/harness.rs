//! The harness of all suites. A suite says its settings, which are the options of its command, the tools
//! that it runs, and how it measures; what it finds is a [`SuiteVerdict`]. The harness checks beforehand what
//! is needed, pairs and repeats what is compared, and names a suite that could not be run.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::figures::{Spread, median, ratios, round};
use crate::launch::Huepage;
pub use crate::launch::{Guard, bounded, tool};
use crate::verdict::{SuiteVerdict, named};

/// Figures of promises: ids, and of what each is a figure, which is empty where there is one.
pub type SuiteFigures = &'static [(&'static str, &'static [&'static str])];

/// A measurement against promises; its fields are the options of its command.
pub trait Suite {
    /// Figures of promises that it can give, by its options, and no others.
    const FIGURES: SuiteFigures = &[];
    /// Programs of this package that it runs only after a while.
    const TOOLS: &'static [&'static str] = &[];

    /// Measures and judges.
    ///
    /// # Errors
    /// When it cannot go on; what was found before stays in the verdict.
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()>;
}

/// What every suite is given.
#[derive(Clone, Copy, Debug)]
pub struct Bench<'a> {
    /// The binary under test.
    pub huepage: &'a Huepage,
    /// Further options for its commands.
    pub options: &'a [&'a str],
    /// Where files go.
    pub dir: &'a Path,
}

impl<'a> Bench<'a> {
    /// The options, with colours declared if they do not say how colours are known: for suites of which
    /// nothing is about timing.
    pub fn declared(&self) -> Vec<&'a str> {
        let known = self.options.iter().any(|option| option.starts_with("--colors-from"));
        let more: &[&str] = if known { &[] } else { &["--colors-from", "declared"] };
        [self.options, more].concat()
    }
}

/// Runs a suite under the name of its command.
pub fn run<S: Suite>(name: &str, suite: &S, bench: Bench<'_>) -> SuiteVerdict {
    let mut verdict = SuiteVerdict::new(name);
    let ready = S::TOOLS.iter().try_for_each(|name| tool(name).map(drop));
    let ready = ready.and_then(|()| std::fs::create_dir_all(bench.dir));
    if let Err(error) = ready.and_then(|()| suite.measure(bench, &mut verdict)) {
        verdict.miss(format!("cannot be measured: {error}"));
    }
    refuse_undeclared(S::FIGURES, &mut verdict);
    if verdict.is_of_nothing() {
        verdict.miss("nothing was measured: does what is asked for exist?");
    }
    progress("");
    verdict
}

/// Takes figures out that a suite has not declared: nobody could say which suite gives them.
fn refuse_undeclared(declared: SuiteFigures, verdict: &mut SuiteVerdict) {
    for own in std::mem::take(&mut verdict.figures) {
        if declared.iter().any(|(id, of)| *id == own.id && of.contains(&own.of.as_str())) {
            verdict.figures.push(own);
        } else {
            let name = named(own.id, &own.of);
            verdict.miss(format!("{name} is no declared figure of this suite"));
        }
    }
}

/// Declared figures that a verdict has not, since a part was not measured.
pub fn lacking(declared: SuiteFigures, verdict: &SuiteVerdict) -> Vec<String> {
    let all = declared.iter().flat_map(|(id, of)| of.iter().map(move |of| (*id, *of)));
    let given = |(id, of)| verdict.figures.iter().any(|own| (own.id, own.of.as_str()) == (id, of));
    all.filter(|figure| !given(*figure)).map(|(id, of)| named(id, of)).collect()
}

/// Whether something is wanted: what is named, or all where nothing is.
pub fn wanted(named: &[String], name: &str) -> bool {
    named.is_empty() || named.iter().any(|only| only == name)
}

/// What was named, or all where nothing was.
pub fn chosen<T: ValueEnum + Copy>(named: &[T]) -> Vec<T> {
    if named.is_empty() { T::value_variants().to_vec() } else { named.to_vec() }
}

/// The word for a value on the command line.
pub fn word<T: ValueEnum>(value: T) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Measures every variant in each round, the last one first in every other round, so that drift of the
/// machine hits all alike; gives what came of each variant, round by round.
///
/// # Errors
/// With the first that fails.
pub fn interleaved<V: Copy, T, const N: usize>(
    rounds: usize,
    variants: [V; N],
    mut one: impl FnMut(V) -> io::Result<T>,
) -> io::Result<[Vec<T>; N]> {
    let mut found = std::array::from_fn(|_| Vec::new());
    for turn in 0..rounds {
        progress(&format!("round {} of {rounds}", turn + 1));
        for at in 0..N {
            let at = if turn % 2 == 1 { N - 1 - at } else { at };
            found[at].push(one(variants[at])?);
        }
    }
    Ok(found)
}

/// Says how far a long measurement is, where somebody watches.
pub fn progress(what: &str) {
    if io::stderr().is_terminal() {
        eprint!("\r\x1b[K{what}");
        if what.is_empty() {
            eprint!("\r");
        }
    }
}

/// Samples by name, in the order in which the names came up.
#[derive(Debug, Default)]
pub struct NamedSamples(Vec<(String, Vec<f64>)>);

impl NamedSamples {
    /// Adds one.
    pub fn push(&mut self, name: &str, value: f64) {
        match self.0.iter_mut().find(|(other, _)| other == name) {
            Some((_, values)) => values.push(value),
            None => self.0.push((name.to_owned(), vec![value])),
        }
    }

    /// Those of a name, in the order in which they came.
    pub fn values(&self, name: &str) -> &[f64] {
        let found = self.0.iter().find(|(other, _)| other == name);
        found.map_or(&[], |(_, values)| values)
    }

    /// The median of a name; NaN if there is none.
    pub fn median(&self, name: &str) -> f64 {
        median(self.values(name))
    }

    /// Samples of a name over those of another, pair by pair: the first of both, and so on.
    pub fn ratios(&self, own: &str, other: &str) -> Vec<f64> {
        ratios(self.values(own), self.values(other))
    }

    /// A row per name: median and both ends, in `unit`.
    pub fn rows(&self, verdict: &mut SuiteVerdict, unit: &str) {
        for (name, values) in &self.0 {
            let Spread { median, min, max } = Spread::of(values);
            verdict.row([
                ("measurement", name.as_str().into()),
                ("median", round(median)),
                ("min", round(min)),
                ("max", round(max)),
                ("unit", unit.into()),
                ("rounds", values.len().into()),
            ]);
        }
    }
}

/// Times a command that must succeed, in seconds.
///
/// # Errors
/// When it cannot be started, or fails.
pub fn timed(command: &mut Command) -> io::Result<f64> {
    let started = Instant::now();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let took = started.elapsed().as_secs_f64();
    if status.success() { Ok(took) } else { Err(io::Error::other(format!("{command:?} failed"))) }
}

/// Runs a command that prints one JSON value, for at most so long.
///
/// # Errors
/// When it fails; with the last line that it said.
pub fn measured<T: serde::de::DeserializeOwned>(
    command: &mut Command,
    patience: Duration,
) -> io::Result<T> {
    bounded(command, patience)?.json()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_keep_their_order_and_give_medians() {
        let mut samples = NamedSamples::default();
        let all = [("b", 3.0), ("a", 1.0), ("b", 5.0), ("b", 4.0)];
        all.into_iter().for_each(|(n, v)| samples.push(n, v));
        let mut verdict = SuiteVerdict::new("warm-cost");
        samples.rows(&mut verdict, "s");
        assert_eq!(verdict.rows[0]["measurement"], "b");
        assert_eq!((verdict.rows[0]["median"].clone(), verdict.rows.len()), (4.0.into(), 2));
        assert!(samples.median("c").is_nan() && samples.median("a") == 1.0);
        assert_eq!((samples.ratios("b", "a"), samples.ratios("a", "c")), (vec![3.0], vec![]));
    }

    #[test]
    fn figures_are_given_as_declared_or_lack() {
        struct Gives(&'static str);
        impl Suite for Gives {
            const FIGURES: SuiteFigures = &[("P4", &["bench", "demo"])];

            fn measure(&self, _: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
                verdict.figure("P4", self.0, &[2.0]);
                verdict.figure("P6", "", &[2.0]);
                Ok(())
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let huepage = Huepage::default();
        let bench = Bench { huepage: &huepage, options: &[], dir: dir.path() };
        let verdict = run("confine", &Gives("demo"), bench);
        assert_eq!(verdict.figures.len(), 1);
        assert_eq!(verdict.missed, ["P6 is no declared figure of this suite"]);
        assert_eq!(lacking(Gives::FIGURES, &verdict), ["P4 bench"]);
    }

    #[test]
    fn a_suite_that_measures_nothing_does_not_hold() {
        struct OnlyWhat(&'static str);
        impl Suite for OnlyWhat {
            fn measure(&self, _: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
                let named = ["bzip2"].into_iter().filter(|name| *name == self.0);
                named.for_each(|name| verdict.row([("program", name.into())]));
                Ok(())
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let huepage = Huepage { path: "/bin/true".into(), places: Vec::new() };
        let bench = Bench { huepage: &huepage, options: &[], dir: dir.path() };
        let missed = |name| run("cost", &OnlyWhat(name), bench).missed.len();
        assert_eq!([missed("bzip2"), missed("bzip3")], [0, 1]);
    }

    #[test]
    fn variants_take_turns_and_change_places() {
        let mut order = Vec::new();
        let one = |variant| {
            order.push(variant);
            Ok(())
        };
        interleaved(3, ["a", "b"], one).unwrap();
        assert_eq!(order, ["a", "b", "b", "a", "a", "b"]);
        let mut count = 0;
        let counted = interleaved(2, [10, 20], |base| {
            count += 1;
            Ok(base + count)
        });
        assert_eq!(counted.unwrap(), [[11, 14], [22, 23]]);
        let failing = |_| Err::<(), _>(io::Error::other("no"));
        assert!(interleaved(1, ["a"], failing).is_err());
    }

    #[test]
    fn suites_that_cannot_be_run_are_missed_and_those_without_tools_not_begun() {
        struct Broken<const WANTS: bool>;
        impl<const WANTS: bool> Suite for Broken<WANTS> {
            const TOOLS: &'static [&'static str] =
                if WANTS { &["huepage-no-such-tool"] } else { &[] };

            fn measure(&self, _: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
                verdict.total("begun", 1);
                Err(io::Error::other("no luck"))
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let huepage = Huepage { path: "/nonexistent".into(), ..Huepage::default() };
        let bench = Bench { huepage: &huepage, options: &[], dir: dir.path() };
        let verdict = run("broken", &Broken::<false>, bench);
        assert_eq!(verdict.missed, ["cannot be measured: no luck"]);
        assert_eq!(verdict.totals["begun"], 1);
        let verdict = run("broken", &Broken::<true>, bench);
        assert!(verdict.missed[0].contains("does not exist") && verdict.totals.is_empty());
    }
}
