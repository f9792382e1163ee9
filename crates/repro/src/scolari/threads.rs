//! Figure 12 and table V: pairs of programs of PARSEC 3.0 with four threads each on four cores, the target in
//! a partition and the polluter in the rest, in turns on every core; what is computed from the
//! outcomes. Two of a core take turns as long as a Linux kernel of that time gives them.

use super::super::coloris::outcome::Sums;
use super::cases::{COLORS, ScolariPart, megabytes};
use super::outcome::{ScolariOutcome, ScolariProgramResult, ScolariResults};
use super::programs::TABLE_5;
use crate::engine::MeasuredFigures;
use crate::report::{Drawing, Shape, TableCell, TableRow, figure};

/// Banks of memory: eight of each of three channels, which is what the socket of the Xeon E5-1410 has.
pub const BANKS: u64 = 24;
/// Cycles for which a line takes up its bank, which opens a row for it and closes it again: at least 49.5 ns, of
/// DDR3 at 1333 MHz (section 5.1), at 2.8 GHz.
pub const ROW: u64 = 139;

/// The outcomes of figure 12.
#[derive(Clone, Copy)]
struct Pair<'a> {
    results: ScolariResults<'a>,
    workload: &'a str,
}

impl<'a> Pair<'a> {
    /// With so many programs: 1 is the target alone, 2 are both.
    fn outcome(self, programs: usize, share: u16) -> Option<&'a ScolariOutcome> {
        let all = self.results.0.iter().filter(|own| own.part == ScolariPart::Threads);
        let mut own = all.filter(|own| own.workload == self.workload && own.share == share);
        own.find(|own| own.programs.len() == programs)
    }

    fn target(self, programs: usize, share: u16) -> Option<&'a ScolariProgramResult> {
        self.outcome(programs, share)?.target()
    }

    /// Instructions of the target in a cycle of the clock, turns of others included.
    fn speed(self, programs: usize, share: u16) -> Option<f64> {
        let outcome = self.outcome(programs, share).filter(|own| own.elapsed > 0)?;
        Some(outcome.target()?.counted.instructions as f64 / outcome.elapsed as f64)
    }

    /// Percent that it is slower by the clock than alone with the whole cache.
    fn slowdown(self, programs: usize, share: u16) -> TableCell {
        let speed = self.speed(programs, share).filter(|speed| *speed > 0.0)?;
        Some(100.0 * (self.speed(1, COLORS)? / speed - 1.0))
    }

    fn miss_rate(self, programs: usize, share: u16) -> TableCell {
        Some(100.0 * self.target(programs, share)?.counted.miss_rate())
    }

    /// Percent that it is slower in cycles of its own than alone with the whole cache.
    fn own_slowdown(self, programs: usize, share: u16) -> TableCell {
        let cpi = |programs, share| Some(self.target(programs, share)?.counted.cpi());
        Some(100.0 * (cpi(programs, share)? / cpi(1, COLORS)? - 1.0))
    }
}

/// The rows of a table of figure 12: each target beside its polluter, and alone.
pub fn rows(results: ScolariResults<'_>, id: &str, shares: &[u16]) -> Vec<TableRow> {
    let row = |(workload, [target, polluter]): &(&'static str, [&str; 2]), programs: usize| {
        let pair = Pair { results, workload };
        let cell = |share: &u16| match id {
            "f12m" => pair.miss_rate(programs, *share),
            "f12c" => pair.own_slowdown(programs, *share),
            "f12l" => pair.target(programs, *share)?.counted.line(),
            _ => pair.slowdown(programs, *share),
        };
        let how = if programs == 1 { "alone".to_owned() } else { format!("beside {polluter}") };
        let cells = shares.iter().map(cell).collect();
        TableRow::named(format!("{workload}, {target} {how}"), cells)
    };
    TABLE_5.iter().flat_map(|own| [row(own, 2), row(own, 1)]).collect()
}

/// A figure of each pair and share where the target was run beside its polluter and alone.
fn compared<'a>(
    results: ScolariResults<'a>,
    of: impl Fn(Pair<'a>, usize, u16) -> TableCell,
    apart: impl Fn(f64, f64) -> f64,
) -> MeasuredFigures {
    each_pair(results, |pair, share| Some(apart(of(pair, 2, share)?, of(pair, 1, share)?)))
}

/// A figure of each pair and share where there is one.
fn each_pair<'a>(
    results: ScolariResults<'a>,
    of: impl Fn(Pair<'a>, u16) -> TableCell,
) -> MeasuredFigures {
    let mut all = Vec::new();
    for (workload, _) in &TABLE_5 {
        let pair = Pair { results, workload };
        let name = |share: u16| format!("{workload} {:.2} MB", megabytes(share));
        all.extend((1..COLORS).filter_map(|share| Some((name(share), of(pair, share)?))));
    }
    MeasuredFigures::each(all)
}

/// Percent more time of the first of two slowdowns than of the second.
fn slower(beside: f64, alone: f64) -> f64 {
    100.0 * ((100.0 + beside) / (100.0 + alone) - 1.0)
}

/// Section 5.4: points between the target's miss rates beside its polluter and alone in as much of the cache.
pub fn miss_rates_apart(results: ScolariResults<'_>) -> MeasuredFigures {
    compared(results, Pair::miss_rate, |beside, alone| (beside - alone).abs())
}

/// Section 5.4: percent that the target is slower by the clock than alone in as much of the cache.
pub fn clock_slower(results: ScolariResults<'_>) -> MeasuredFigures {
    compared(results, Pair::slowdown, slower)
}

/// Section 5.4: percent that the target is slower since memory takes longer for each of its lines than alone in
/// as much of the cache. The text says that its miss rates are close to those alone, and that contention on
/// memory is, beside that on cores, what its time suffers from: neither for which pair or share, nor how much.
/// So misses that it has more of are none of this, and what is judged is the mean of all pairs and shares. That
/// 1 % is the least is ours.
pub fn memory_slower(results: ScolariResults<'_>) -> MeasuredFigures {
    each_pair(results, |pair, share| {
        let [beside, alone] = [pair.target(2, share)?.counted, pair.target(1, share)?.counted];
        Some(memory_longer(&beside, &alone))
    })
}

/// Percent of more time that a program takes since memory takes longer for each of its lines than in another run.
/// A program that asks it for none waits for none.
fn memory_longer(own: &Sums, other: &Sums) -> f64 {
    let (Some(line), Some(of_other)) = (own.line(), other.line()) else { return 0.0 };
    let more = own.misses as f64 * (line - of_other);
    100.0 * more / (own.cycles as f64 - more)
}

/// The drawing of a pair: slowdown and miss rate, beside the polluter and alone.
pub fn draw<'a>(results: ScolariResults<'a>, workload: &'a str) -> Drawing {
    let pair = Pair { results, workload };
    let line = |name: &str, programs: usize, of: fn(Pair<'a>, usize, u16) -> TableCell| {
        let point = |share: u16| Some((megabytes(share), of(pair, programs, share)?));
        (name.to_owned(), (1..=COLORS).filter_map(point).collect())
    };
    let series = vec![
        line("slowdown, together", 2, Pair::slowdown),
        line("slowdown, alone", 1, Pair::slowdown),
        line("miss rate, together", 2, Pair::miss_rate),
        line("miss rate, alone", 1, Pair::miss_rate),
    ];
    let shape =
        Shape::Points { across: "MB of the last cache", up: "percent", joined: true, series };
    let name = format!("12-{}", workload.to_lowercase());
    figure(&name, format!("Figure 12: {workload}"), shape)
}

#[cfg(test)]
mod tests {
    use super::super::ScolariStudy;
    use super::super::cases::Scheme;
    use super::super::changes::ScolariChange;
    use super::super::parsec::PARSEC;
    use super::*;
    use crate::engine;

    /// P1 in 4 colours or all: so many instructions in 1000 cycles of four cores, which are its own or half so, and
    /// ten cycles for a line alone, twenty beside the polluter.
    fn outcome(programs: usize, share: u16, instructions: u64, misses: u64) -> ScolariOutcome {
        let (cycles, memory) = (4000 / programs as u64, misses * 10 * programs as u64);
        let counted =
            Sums { instructions, cycles, requests: 100, misses, memory, ..Sums::default() };
        let told = |name: &str| ScolariProgramResult {
            name: name.to_owned(),
            counted,
            l2_hits: 0,
            outside: 0,
        };
        ScolariOutcome {
            part: ScolariPart::Threads,
            workload: "P1".to_owned(),
            scheme: Scheme::Aware,
            share,
            elapsed: 1000,
            programs: ["bodytrack", "swaptions"][..programs].iter().copied().map(told).collect(),
            change: ScolariChange::Nothing,
        }
    }

    #[test]
    fn turns_of_others_are_time_by_the_clock_alone() {
        let mut all =
            vec![outcome(1, COLORS, 2000, 0), outcome(1, 4, 1000, 50), outcome(2, 4, 400, 48)];
        let holds = |all: &[ScolariOutcome]| {
            let found = engine::claims::<ScolariStudy>(all, &[]);
            let of = |text| found.iter().find(|c| c.text.contains(text)).expect("one").holds;
            ["miss rate beside", "by the clock", "(contention on memory)"].map(of)
        };
        assert_eq!(holds(&all), [true, true, true]);
        let results = ScolariResults(&all);
        let own = rows(results, "f12c", &[4]);
        assert_eq!(own[0].program, "P1, bodytrack beside swaptions");
        assert!((own[0].cells[0].expect("a cell") - 150.0).abs() < 1e-9, "{own:?}");
        let clock = rows(results, "f12", &[4]);
        assert!((clock[0].cells[0].expect("a cell") - 400.0).abs() < 1e-9, "{clock:?}");
        assert!((clock[1].cells[0].expect("a cell") - 100.0).abs() < 1e-9, "{clock:?}");
        // Half of the time, and as fast in it.
        all[2] = outcome(2, 4, 500, 60);
        assert_eq!(holds(&all), [false, true, true]);
        all[2] = outcome(2, 4, 1000, 40);
        assert_eq!(holds(&all), [false, false, true]);
        all[2].programs[0].counted.memory = 40 * 10;
        assert_eq!(holds(&all), [false, false, false]);
    }

    #[test]
    fn only_what_each_line_takes_longer_is_contention_on_memory() {
        let of = |cycles, misses, memory| Sums { cycles, misses, memory, ..Sums::default() };
        let alone = of(4000, 20, 2000);
        assert!((memory_longer(&of(2100, 10, 1100), &alone) - 5.0).abs() < 1e-9);
        assert!(memory_longer(&of(6000, 40, 4000), &alone).abs() < 1e-9, "more lines");
        assert!(memory_longer(&of(2000, 0, 0), &alone).abs() < 1e-9);
        assert!(memory_longer(&alone, &of(2000, 0, 0)).abs() < 1e-9);
    }

    #[test]
    fn every_program_of_table_v_has_a_stand_in() {
        for name in TABLE_5.iter().flat_map(|(_, programs)| programs) {
            assert!(PARSEC.iter().any(|own| own.name == *name && own.why.len() > 20), "{name}");
        }
    }
}
