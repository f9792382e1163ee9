//! Ways to find outcomes, and the figures that follow from two or three of them. A slowdown is
//! against the same program alone on the same kernel, so that it shows pollution and nothing
//! else; a reduction of time or misses is against Linux beside the same programs, so that it has
//! all that the other kernel does.

use super::cases::{
    ALONE, COMBINATIONS, ORDERS, SORTING, SrmPart, THRESHOLDS, TOGETHER, greps_name, order_name,
};
use super::changes::SrmChange;
use super::place::PaperMachine;
use super::programs::{FILE_BOUND, MEMORY_BOUND, SCANNING, SCIMARK, query_name, sorter_name};
use super::run::SrmOutcome;
use super::variants::SrmVariant;
use crate::report::mean;

/// All outcomes.
#[derive(Clone, Copy, Debug)]
pub struct SrmResults<'a>(pub &'a [SrmOutcome]);

/// A program somewhere beside something.
#[derive(Clone, Debug)]
pub struct At {
    /// The machine.
    pub place: PaperMachine,
    /// The program.
    pub program: String,
    /// What runs beside it.
    pub beside: String,
}

impl At {
    /// A program beside something.
    pub fn new(place: PaperMachine, program: impl Into<String>, beside: impl Into<String>) -> At {
        At { place, program: program.into(), beside: beside.into() }
    }

    /// The words for a person.
    pub fn text(&self) -> String {
        format!("{} + {}", self.program, self.beside)
    }

    /// The same program alone.
    pub fn alone(&self) -> At {
        At { beside: ALONE.into(), ..self.clone() }
    }
}

/// Each of these programs beside each of the others.
fn each<S: AsRef<str>>(place: PaperMachine, programs: &[&str], beside: &[S]) -> Vec<At> {
    let with = |program| beside.iter().map(move |other| At::new(place, program, other.as_ref()));
    programs.iter().flat_map(|program| with(*program)).collect()
}

/// Pairs of a memory-bound and a file-bound program (figures 10 and 11).
pub fn pairs() -> Vec<At> {
    each(PaperMachine::Xeon, &MEMORY_BOUND.map(|(name, ..)| name), &FILE_BOUND)
}

/// Three programs together and a fourth (figure 12).
pub fn four() -> Vec<At> {
    let beside = ["grep", "tar"];
    beside.iter().flat_map(|other| each(PaperMachine::CoreI7, &SCIMARK, &[other])).collect()
}

/// Programs beside one to three greps (figure 13).
pub fn many_greps() -> Vec<At> {
    each(PaperMachine::CoreI7, &["spmv", "lu"], &[1, 2, 3].map(greps_name))
}

/// Who reads what, and who has loaded it (figure 14).
pub fn orders() -> Vec<At> {
    each(PaperMachine::Xeon, &SCIMARK, &ORDERS.map(|(reads, loads)| order_name(reads, loads)))
}

/// Programs beside the random reader (section 4.5).
pub fn random() -> Vec<At> {
    each(PaperMachine::Xeon, &SCIMARK, &["random-reader"])
}

/// What thresholds are compared with (figure 16).
pub fn readers() -> Vec<At> {
    each(PaperMachine::Xeon, &SCIMARK, &["grep", "tar"])
}

/// Queries of TPC-H and what runs beside them (figure 9): those beside a scan, or each of two.
pub fn queries(beside_scans: bool) -> Vec<At> {
    let of = |(one, other): (u32, u32)| {
        let both = [(one, other), (other, one)];
        both.into_iter().filter(|(counts, _)| !SCANNING.contains(counts))
    };
    let all = COMBINATIONS.into_iter().flat_map(of);
    let wanted = all.filter(|(_, beside)| SCANNING.contains(beside) == beside_scans);
    let at = |(counts, beside)| At::new(PaperMachine::Xeon, query_name(counts), query_name(beside));
    wanted.map(at).collect()
}

impl<'a> SrmResults<'a> {
    /// All outcomes with those of an experiment in the place of the same programs' without.
    pub fn changed(&self, change: SrmChange) -> Vec<SrmOutcome> {
        let again = self.again(change);
        let mut kept: Vec<SrmOutcome> = self.0.to_vec();
        kept.retain(|own| {
            let replaced = |other: &SrmOutcome| other.is_same_case(own);
            own.change == SrmChange::Nothing && !again.iter().any(replaced)
        });
        let again = again.into_iter();
        kept.extend(again.map(|own| SrmOutcome { change: SrmChange::Nothing, ..own }));
        kept
    }

    /// What an experiment puts in the place of others: its own runs, or those of queries alone on Linux.
    fn again(&self, change: SrmChange) -> Vec<SrmOutcome> {
        if change != SrmChange::AloneOnLinux {
            let of = |outcome: &&SrmOutcome| outcome.change == change;
            return self.0.iter().filter(of).cloned().collect();
        }
        let alone = |own: &&SrmOutcome| {
            (own.part, own.variant) == (SrmPart::Queries, SrmVariant::Linux)
                && (own.beside.as_str(), own.change) == (ALONE, SrmChange::Nothing)
        };
        let on_linux = self.0.iter().filter(alone).cloned();
        on_linux.map(|own| SrmOutcome { variant: SrmVariant::SRM, ..own }).collect()
    }

    /// A program that counts.
    pub fn get(&self, at: &At, variant: SrmVariant) -> Option<&'a SrmOutcome> {
        self.0.iter().find(|outcome| {
            (outcome.place, outcome.variant, outcome.counts) == (at.place, variant, true)
                && outcome.change == SrmChange::Nothing
                && outcome.program == at.program
                && outcome.beside == at.beside
                && outcome.memory == 0
        })
    }

    /// The program of this name that runs beside another.
    pub fn other(&self, at: &At, name: &str, variant: SrmVariant) -> Option<&'a SrmOutcome> {
        self.0.iter().find(|outcome| {
            (outcome.place, outcome.variant, outcome.counts) == (at.place, variant, false)
                && outcome.change == SrmChange::Nothing
                && outcome.program == name
                && outcome.beside == at.beside
                && outcome.among.contains(&at.program)
        })
    }

    /// Percent more time than alone.
    pub fn slowdown(&self, at: &At, variant: SrmVariant) -> Option<f64> {
        // Blocks of files in one colour make no difference to a program without files.
        let own = if variant == SrmVariant::OneColor { SrmVariant::Linux } else { variant };
        let alone = self.get(&at.alone(), own)?;
        Some(100.0 * (self.get(at, variant)?.cpi() / alone.cpi() - 1.0))
    }

    /// Percent less time than on Linux.
    pub fn saved(&self, at: &At, variant: SrmVariant) -> Option<f64> {
        let linux = self.get(at, SrmVariant::Linux)?;
        Some(100.0 * (1.0 - self.get(at, variant)?.cpi() / linux.cpi()))
    }

    /// The mean of figure 16 at a threshold.
    pub fn mean_saved(&self, threshold: u64) -> Option<f64> {
        debug_assert!(THRESHOLDS.contains(&threshold));
        mean(readers().iter().filter_map(|at| self.saved(at, SrmVariant::Srm(threshold))))
    }

    /// Points of a slowdown on Linux that SRM-buffer takes away.
    pub fn slowdown_removed(&self, at: &At) -> Option<f64> {
        Some(self.slowdown(at, SrmVariant::Linux)? - self.slowdown(at, SrmVariant::SRM)?)
    }

    /// Percent more time that the program beside takes than alone on the same kernel.
    pub fn other_slowdown(&self, at: &At, variant: SrmVariant) -> Option<f64> {
        let alone = self.get(&At::new(at.place, &at.beside, ALONE), variant)?;
        Some(100.0 * (self.other(at, &at.beside, variant)?.cpi() / alone.cpi() - 1.0))
    }

    /// Percent more time that programs take to sort files on all cores than one of them alone, on
    /// average, with blocks of so many KiB (section 4.7).
    pub fn sorters_slower(&self, place: PaperMachine, kib: u64) -> Option<f64> {
        let count = SORTING.into_iter().find(|&(own, _)| own == place)?.1;
        let at = |number, beside| At::new(place, sorter_name(kib, number), beside);
        let one = self.get(&at(count / 2, ALONE), SrmVariant::Linux)?.cpi();
        let all = (0..count).filter_map(|n| self.get(&at(n, TOGETHER), SrmVariant::Linux));
        mean(all.map(|outcome| 100.0 * (outcome.cpi() / one - 1.0)))
    }

    /// The traces that were run, and what beside.
    pub fn traced(&self) -> Vec<At> {
        let beside = |o: &&SrmOutcome| {
            o.part == SrmPart::Traces
                && o.change == SrmChange::Nothing
                && o.counts
                && o.beside != ALONE
                && o.variant == SrmVariant::Linux
        };
        let at = |o: &SrmOutcome| At::new(PaperMachine::Xeon, &o.program, &o.beside);
        self.0.iter().filter(beside).map(at).collect()
    }

    /// Percent fewer misses than on Linux; none if there are none to remove.
    pub fn removed(&self, at: &At, variant: SrmVariant) -> Option<f64> {
        let linux = self.get(at, SrmVariant::Linux).filter(|linux| linux.misses > 0)?;
        let left = self.get(at, variant)?.misses_per_million() / linux.misses_per_million();
        Some(100.0 * (1.0 - left))
    }

    /// Misses per million instructions.
    pub fn misses(&self, at: &At, variant: SrmVariant) -> Option<f64> {
        self.get(at, variant).map(SrmOutcome::misses_per_million)
    }

    /// The hit ratio of the page cache with so many MiB of memory, in percent.
    pub fn hit_ratio(&self, memory: u64, variant: SrmVariant) -> Option<f64> {
        let mut found = self.0.iter().filter(|o| (o.memory, o.variant) == (memory, variant));
        found.next()?.hit_ratio()
    }

    /// Percent of Linux's hit ratio that is lost.
    pub fn hits_lost(&self, memory: u64, variant: SrmVariant) -> Option<f64> {
        let linux = self.hit_ratio(memory, SrmVariant::Linux).filter(|ratio| *ratio > 0.0)?;
        Some(100.0 * (1.0 - self.hit_ratio(memory, variant)? / linux))
    }
}

#[cfg(test)]
mod tests {
    use super::super::measures::tests::outcome;
    use super::*;

    #[test]
    fn against_the_run_alone_on_linux_what_a_program_gains_alone_counts() {
        let of = |beside, variant, cycles| {
            let part = SrmPart::Queries;
            outcome(part, PaperMachine::Xeon, "query Q7", beside, variant, cycles, 1)
        };
        let (linux, srm) = (SrmVariant::Linux, SrmVariant::SRM);
        let all = [
            of(ALONE, linux, 1000),
            of(ALONE, srm, 800),
            of("scan Q6", linux, 1250),
            of("scan Q6", srm, 1000),
        ];
        let at = At::new(PaperMachine::Xeon, "query Q7", "scan Q6");
        let removed =
            |all: &[SrmOutcome]| SrmResults(all).slowdown_removed(&at).expect("four runs");
        assert!(removed(&all).abs() < 1e-9);
        let changed = SrmResults(&all).changed(SrmChange::AloneOnLinux);
        assert!(changed.len() == 4 && (removed(&changed) - 25.0).abs() < 1e-9, "{changed:?}");
    }
}
