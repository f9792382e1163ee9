//! One table of programs and ways of getting large pages: how fast, in how much memory. The runs
//! of a round follow each other, in another order each round, and ratios are those of the runs of
//! one round: drift of the machine then hits all alike. Medians, with both ends beside them.
//!
//! Speed of programs is promised against both, memory of sparse heaps against none. The kernel's own ways
//! stand in the table for comparison and are never judged.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use clap::{Args, ValueEnum};

use super::programs::SuperpageProgram;
use super::run::{ProgramSample, ProgramSizes};
use super::target::LargePages;
use super::{SuperpageBench, SuperpageSetup, damon, with_large_pages};
use crate::figures::{Spread, round};
use crate::harness::{Bench, Suite, SuiteFigures, progress, word};
use crate::sys;
use crate::verdict::SuiteVerdict;

/// What is promised of huepage: of what, against which way, and what is compared.
type Claim = (&'static str, &'static [&'static str], LargePages, fn(&ProgramSample) -> Option<f64>);

const DENSE: &[&str] = &["updates", "B-tree", "CG", "hpcc", "redis", "python"];
const USUAL: &[&str] = &["updates", "B-tree", "CG", "hpcc", "redis", "python", "gcc"];
const SPARSE: &[&str] = &["one page in 64", "redis with 90 % deleted"];
const SPEED: [Claim; 2] =
    [("U1", DENSE, LargePages::Always, speed_of), ("U2", USUAL, LargePages::Never, speed_of)];
const MEMORY: [Claim; 1] = [("U3", SPARSE, LargePages::Never, memory_of)];

/// What to measure.
#[derive(Args, Clone, Debug)]
pub struct SuperpageTable {
    /// Only these programs, separated by commas
    #[arg(long, value_enum, value_delimiter = ',')]
    pub only: Vec<SuperpageProgram>,
    /// The ways of getting large pages, separated by commas
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "never,always,khugepaged,damon,huepage"
    )]
    pub variants: Vec<LargePages>,
    /// Repetitions
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// How large the programs are.
    #[command(flatten)]
    pub sizes: ProgramSizes,
    /// How huepage is asked for superpages.
    #[command(flatten)]
    pub wish: SuperpageSetup,
}

/// What came of all runs: of each round, what came of it, if it did.
#[derive(Debug, Default)]
pub struct RoundResults(BTreeMap<(SuperpageProgram, LargePages), Vec<Option<ProgramSample>>>);

impl RoundResults {
    /// Adds what came of the next round.
    pub fn push(
        &mut self,
        program: SuperpageProgram,
        variant: LargePages,
        sample: Option<ProgramSample>,
    ) {
        self.0.entry((program, variant)).or_default().push(sample);
    }

    fn of(&self, program: SuperpageProgram, variant: LargePages) -> &[Option<ProgramSample>] {
        self.0.get(&(program, variant)).map_or(&[], Vec::as_slice)
    }

    /// A figure over the rounds.
    fn spread(
        &self,
        key: (SuperpageProgram, LargePages),
        figure: fn(&ProgramSample) -> Option<f64>,
    ) -> Spread {
        Spread::of(self.of(key.0, key.1).iter().flatten().filter_map(figure))
    }

    /// A figure against that of another variant in the same round, round by round.
    fn ratios(
        &self,
        (program, variant): (SuperpageProgram, LargePages),
        other: LargePages,
        figure: fn(&ProgramSample) -> Option<f64>,
    ) -> Vec<f64> {
        let pairs = self.of(program, variant).iter().zip(self.of(program, other));
        let ratio = |(own, other): (&Option<_>, &Option<_>)| {
            Some(figure(own.as_ref()?)? / figure(other.as_ref()?)?)
        };
        pairs.filter_map(ratio).collect()
    }
}

fn speed_of(sample: &ProgramSample) -> Option<f64> {
    Some(sample.speed)
}

fn memory_of(sample: &ProgramSample) -> Option<f64> {
    sample.memory.map(|memory| memory.anonymous_kib as f64 / 1024.0)
}

fn huge_of(sample: &ProgramSample) -> Option<f64> {
    sample.memory.map(|memory| memory.huge_mib())
}

fn promoted_of(sample: &ProgramSample) -> Option<f64> {
    sample.superpages.as_ref().map(|own| own.promoted as f64)
}

fn policy_of(sample: &ProgramSample) -> Option<f64> {
    sample.superpages.as_ref().map(|own| own.policy_cpu_seconds)
}

/// The speed of programs.
#[derive(Args, Clone, Debug)]
pub struct SuperpageSpeed {
    /// The table.
    #[command(flatten)]
    table: SuperpageTable,
}

impl Suite for SuperpageSpeed {
    const FIGURES: SuiteFigures = &[("U1", DENSE), ("U2", USUAL)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        self.table.judged(bench, verdict, &SPEED, |program| !program.is_sparse())
    }
}

/// The memory of sparse heaps.
#[derive(Args, Clone, Debug)]
pub struct SuperpageMemory {
    /// The table.
    #[command(flatten)]
    table: SuperpageTable,
}

impl Suite for SuperpageMemory {
    const FIGURES: SuiteFigures = &[("U3", SPARSE)];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        self.table.judged(bench, verdict, &MEMORY, |program| program.is_sparse())
    }
}

impl SuperpageTable {
    /// Measures and judges those of the usual programs that are meant, or those that are named.
    fn judged(
        &self,
        bench: Bench<'_>,
        verdict: &mut SuiteVerdict,
        claims: &[Claim],
        is_meant: impl Fn(&SuperpageProgram) -> bool,
    ) -> io::Result<()> {
        let usual = SuperpageProgram::value_variants().iter().copied().filter(is_meant).collect();
        with_large_pages(bench, &self.wish, verdict, |bench, verdict| {
            let runs = measure(verdict, bench, self, usual);
            judge(verdict, &runs, claims);
            Ok(())
        })
    }
}

fn measure(
    verdict: &mut SuiteVerdict,
    bench: SuperpageBench<'_>,
    setting: &SuperpageTable,
    usual: Vec<SuperpageProgram>,
) -> RoundResults {
    let (mut runs, variants) = (RoundResults::default(), usable(verdict, &setting.variants));
    let wished = if setting.only.is_empty() { usual } else { setting.only.clone() };
    for program in wished {
        if let Some(why) = program.obstacle() {
            verdict.skip(format!("{}: {why}", word(program)));
            continue;
        }
        for turn in 0..setting.rounds {
            one_round(verdict, bench, setting, program, &variants, turn, &mut runs);
        }
        rows(verdict, &runs, program, &variants);
    }
    runs
}

/// The variants that there are here.
pub fn usable(verdict: &mut SuiteVerdict, wished: &[LargePages]) -> Vec<LargePages> {
    let mut variants = wished.to_vec();
    if let Some(why) =
        damon::obstacle(Path::new(damon::ADMIN)).filter(|_| wished.contains(&LargePages::Damon))
    {
        verdict.skip(format!("damon: {why}"));
        variants.retain(|variant| *variant != LargePages::Damon);
    }
    variants
}

fn one_round(
    verdict: &mut SuiteVerdict,
    bench: SuperpageBench<'_>,
    setting: &SuperpageTable,
    program: SuperpageProgram,
    variants: &[LargePages],
    turn: usize,
    runs: &mut RoundResults,
) {
    for at in 0..variants.len() {
        let variant = variants[(at + turn) % variants.len()];
        if sys::stop_asked() || !program.goes_with(variant) {
            continue;
        }
        let name = format!("{} with {}", word(program), word(variant));
        progress(&format!("round {} of {}: {name}", turn + 1, setting.rounds));
        let sample = program.run(bench, variant, &setting.sizes);
        progress("");
        if let Err(error) = &sample {
            verdict.miss(format!("{name}: {error}"));
        }
        runs.push(program, variant, sample.ok());
    }
}

fn rows(
    verdict: &mut SuiteVerdict,
    runs: &RoundResults,
    program: SuperpageProgram,
    variants: &[LargePages],
) {
    for variant in variants.iter().filter(|v| !runs.of(program, **v).is_empty()) {
        let key = (program, *variant);
        let number = |figure| round(runs.spread(key, figure).median);
        let ratio = |other, figure| Spread::of(runs.ratios(key, other, figure)).text();
        verdict.row([
            ("program", word(program).into()),
            ("large pages", word(*variant).into()),
            ("rounds", runs.of(program, *variant).iter().flatten().count().into()),
            ("per second", number(speed_of)),
            ("of never", ratio(LargePages::Never, speed_of)),
            ("of always", ratio(LargePages::Always, speed_of)),
            ("MiB", number(memory_of)),
            ("MiB of never", ratio(LargePages::Never, memory_of)),
            ("MiB in large", number(huge_of)),
            ("built", number(promoted_of)),
            ("policy CPU s", number(policy_of)),
        ]);
    }
}

/// The figures, of programs that something is promised of.
fn judge(verdict: &mut SuiteVerdict, runs: &RoundResults, claims: &[Claim]) {
    if sys::stop_asked() {
        verdict.miss("interrupted");
    }
    for key in runs.0.keys().filter(|key| key.1 == LargePages::Huepage) {
        let of = key.0.figure();
        for (id, _, other, figure) in claims.iter().filter(|claim| claim.1.contains(&of)) {
            verdict.figure(id, of, &runs.ratios(*key, *other, *figure));
        }
        let told = runs.of(key.0, key.1).iter().flatten().all(|sample| sample.superpages.is_some());
        let name = word(key.0);
        verdict.require(told, || format!("{name}: huepage reported nothing of superpages"));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::memory::MemoryUse;
    use super::super::target::SuperpageCounts;
    use super::*;

    fn sample(speed: f64, mib: u64) -> Option<ProgramSample> {
        let memory = Some(MemoryUse { anonymous_kib: mib << 10, huge_kib: 0 });
        Some(ProgramSample { speed, memory, superpages: Some(SuperpageCounts::default()) })
    }

    fn verdict(program: SuperpageProgram, huepage: (f64, u64)) -> SuiteVerdict {
        let (mut runs, mut verdict) =
            (RoundResults::default(), SuiteVerdict::new("superpage-speed"));
        for drift in [1.0, 3.0, 2.0] {
            runs.push(program, LargePages::Never, sample(10.0 * drift, 100));
            runs.push(program, LargePages::Always, sample(20.0 * drift, 6400));
            runs.push(program, LargePages::Huepage, sample(huepage.0 * drift, huepage.1));
        }
        rows(&mut verdict, &runs, program, &[LargePages::Never, LargePages::Huepage]);
        judge(&mut verdict, &runs, &[&SPEED[..], &MEMORY].concat());
        verdict
    }

    #[test]
    fn what_holds_holds() {
        let verdict = verdict(SuperpageProgram::Gups, (19.5, 100));
        assert!(verdict.missed.is_empty(), "{:?}", verdict.missed);
        assert_eq!(verdict.rows[1]["of never"], "1.950 [1.950, 1.950]");
        assert_eq!(verdict.rows[1]["per second"], 39.0);
        let given: Vec<_> = verdict.figures.iter().map(|own| (own.id, own.figure)).collect();
        assert_eq!(given, [("U1", 0.975), ("U2", 1.95)]);
        assert!(verdict_of_sparse(104).missed.is_empty());
    }

    fn verdict_of_sparse(mib: u64) -> SuiteVerdict {
        // Nothing is promised of its speed.
        verdict(SuperpageProgram::Sparse, (5.0, mib))
    }

    #[test]
    fn what_does_not_is_said() {
        let missed = |program, huepage| verdict(program, huepage).missed;
        let slow = missed(SuperpageProgram::Gups, (18.0, 100));
        assert_eq!(slow, ["U1 updates: 0.9 x is not >= 0.95 x"]);
        // Not dense: the kernel's large pages are no measure for it.
        assert!(missed(SuperpageProgram::Gcc, (18.0, 100)).is_empty());
        let slow = missed(SuperpageProgram::Gcc, (9.8, 100));
        assert_eq!(slow, ["U2 gcc: 0.98 x is not >= 0.99 x"]);
        let large = verdict_of_sparse(106).missed;
        assert_eq!(large, ["U3 one page in 64: 1.06 x is not <= 1.04 x"]);
    }

    #[test]
    fn every_program_has_a_figure_of_its_own() {
        let all: BTreeSet<&str> = [USUAL, SPARSE].concat().into_iter().collect();
        let of = SuperpageProgram::value_variants().iter().map(|program| program.figure());
        assert_eq!(of.collect::<BTreeSet<_>>(), all);
    }

    #[test]
    fn a_failed_run_is_no_pair() {
        let mut runs = RoundResults::default();
        for (never, own) in [(sample(1.0, 1), None), (sample(2.0, 1), sample(4.0, 1))] {
            runs.push(SuperpageProgram::Cg, LargePages::Never, never);
            runs.push(SuperpageProgram::Cg, LargePages::Huepage, own);
        }
        let key = (SuperpageProgram::Cg, LargePages::Huepage);
        assert_eq!(runs.ratios(key, LargePages::Never, speed_of), [2.0]);
        assert!(Spread::of([0.0; 0]).text().is_null());
    }
}
