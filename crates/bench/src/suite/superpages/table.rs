//! One table of programs and ways of getting large pages: how fast, in how much memory. The runs
//! of a round follow each other, in another order each round, and ratios are those of the runs of
//! one round: drift of the machine then hits all alike. Medians, with both ends beside them.
//!
//! Two promises are judged: speed of programs, and memory of sparse heaps. The kernel's own ways
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
use crate::harness::{Bench, Suite, progress, word};
use crate::sys;
use crate::verdict::SuiteVerdict;

/// Dense programs are promised so much of the speed that they have with the kernel's large pages.
pub const OF_ALWAYS: f64 = 0.95;
/// Every program is promised so much of the speed that it has without large pages.
pub const OF_NEVER: f64 = 0.99;
/// Sparse heaps are promised to take at most so many times the memory without large pages.
pub const MEMORY: f64 = 1.04;

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

    /// A figure against that of another variant in the same round.
    fn ratio(
        &self,
        (program, variant): (SuperpageProgram, LargePages),
        other: LargePages,
        figure: fn(&ProgramSample) -> Option<f64>,
    ) -> Spread {
        let pairs = self.of(program, variant).iter().zip(self.of(program, other));
        let ratio = |(own, other): (&Option<_>, &Option<_>)| {
            Some(figure(own.as_ref()?)? / figure(other.as_ref()?)?)
        };
        Spread::of(pairs.filter_map(ratio))
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
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        self.table.judged(bench, verdict, |program| !program.is_sparse())
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
    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        self.table.judged(bench, verdict, |program| program.is_sparse())
    }
}

impl SuperpageTable {
    /// Measures and judges those of the usual programs that are meant, or those that are named.
    fn judged(
        &self,
        bench: Bench<'_>,
        verdict: &mut SuiteVerdict,
        is_meant: impl Fn(&SuperpageProgram) -> bool,
    ) -> io::Result<()> {
        let usual = SuperpageProgram::value_variants().iter().copied().filter(is_meant).collect();
        with_large_pages(bench, &self.wish, verdict, |bench, verdict| {
            let runs = measure(verdict, bench, self, usual);
            judge(verdict, &runs);
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
        verdict.row([
            ("program", word(program).into()),
            ("large pages", word(*variant).into()),
            ("rounds", runs.of(program, *variant).iter().flatten().count().into()),
            ("per second", number(speed_of)),
            ("of never", runs.ratio(key, LargePages::Never, speed_of).text()),
            ("of always", runs.ratio(key, LargePages::Always, speed_of).text()),
            ("MiB", number(memory_of)),
            ("MiB of never", runs.ratio(key, LargePages::Never, memory_of).text()),
            ("MiB in large", number(huge_of)),
            ("built", number(promoted_of)),
            ("policy CPU s", number(policy_of)),
        ]);
    }
}

fn judge(verdict: &mut SuiteVerdict, runs: &RoundResults) {
    if sys::stop_asked() {
        verdict.miss("interrupted");
    }
    for (program, variant) in runs.0.keys().filter(|key| key.1 == LargePages::Huepage) {
        judge_one(verdict, runs, (*program, *variant));
    }
}

fn judge_one(verdict: &mut SuiteVerdict, runs: &RoundResults, key: (SuperpageProgram, LargePages)) {
    let name = word(key.0);
    let mut require = |ratio: Spread, holds: fn(f64) -> bool, what: &str| {
        verdict.require(ratio.median.is_nan() || holds(ratio.median), || {
            format!("{name}: {:.3} times {what}", ratio.median)
        });
    };
    let never = runs.ratio(key, LargePages::Never, speed_of);
    require(never, |ratio| ratio >= OF_NEVER, "the speed without large pages");
    if key.0.is_dense() {
        let always = runs.ratio(key, LargePages::Always, speed_of);
        require(always, |ratio| ratio >= OF_ALWAYS, "the speed with the kernel's large pages");
    }
    if key.0.is_sparse() {
        let memory = runs.ratio(key, LargePages::Never, memory_of);
        require(memory, |ratio| ratio <= MEMORY, "the memory without large pages");
    }
    let told = runs.of(key.0, key.1).iter().flatten().all(|sample| sample.superpages.is_some());
    verdict.require(told, || format!("{name}: huepage reported nothing of superpages"));
}

#[cfg(test)]
mod tests {
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
        judge(&mut verdict, &runs);
        verdict
    }

    #[test]
    fn what_holds_holds() {
        let verdict = verdict(SuperpageProgram::Gups, (19.5, 100));
        assert!(verdict.missed.is_empty(), "{:?}", verdict.missed);
        assert_eq!(verdict.rows[1]["of never"], "1.950 [1.950, 1.950]");
        assert_eq!(verdict.rows[1]["per second"], 39.0);
        assert!(verdict_of_sparse(104).missed.is_empty());
    }

    fn verdict_of_sparse(mib: u64) -> SuiteVerdict {
        verdict(SuperpageProgram::Sparse, (10.0, mib))
    }

    #[test]
    fn what_does_not_is_said() {
        let missed = verdict(SuperpageProgram::Gups, (18.0, 100)).missed;
        assert!(missed[0].contains("0.900 times the speed with the kernel's"), "{missed:?}");
        // Not dense: the kernel's large pages are no measure for it.
        assert!(verdict(SuperpageProgram::Gcc, (18.0, 100)).missed.is_empty());
        let missed = verdict(SuperpageProgram::Gcc, (9.8, 100)).missed;
        assert!(missed[0].contains("0.980 times the speed without"), "{missed:?}");
        let missed = verdict_of_sparse(106).missed;
        assert!(missed[0].contains("1.060 times the memory"), "{missed:?}");
    }

    #[test]
    fn a_failed_run_is_no_pair() {
        let mut runs = RoundResults::default();
        for (never, own) in [(sample(1.0, 1), None), (sample(2.0, 1), sample(4.0, 1))] {
            runs.push(SuperpageProgram::Cg, LargePages::Never, never);
            runs.push(SuperpageProgram::Cg, LargePages::Huepage, own);
        }
        let ratio =
            runs.ratio((SuperpageProgram::Cg, LargePages::Huepage), LargePages::Never, speed_of);
        assert_eq!((ratio.median, ratio.min), (2.0, 2.0));
        assert!(Spread::of([0.0; 0]).text().is_null());
    }
}
