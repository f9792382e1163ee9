//! Ways to find outcomes, and the figures that follow from two or three of them. A slowdown is
//! against the same program alone on the same kernel, so that it shows pollution and nothing
//! else; a reduction of time or misses is against Linux beside the same programs, so that it has
//! all that the other kernel does.

use super::cases::ALONE;
use super::place::PaperMachine;
use super::run::SrmOutcome;
use super::variants::SrmVariant;

/// All outcomes.
#[derive(Clone, Copy, Debug)]
pub struct SrmResults<'a>(pub &'a [SrmOutcome]);

/// A program somewhere beside something.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// The machine.
    pub place: PaperMachine,
    /// The program.
    pub program: &'a str,
    /// What runs beside it.
    pub beside: &'a str,
}

impl<'a> SrmResults<'a> {
    fn find(&self, at: At<'_>, variant: SrmVariant, counts: bool) -> Option<&'a SrmOutcome> {
        self.0.iter().find(|outcome| {
            (outcome.place, outcome.variant, outcome.counts) == (at.place, variant, counts)
                && outcome.program == at.program
                && outcome.beside == at.beside
                && outcome.memory == 0
        })
    }

    /// A program that counts.
    pub fn get(&self, at: At<'_>, variant: SrmVariant) -> Option<&'a SrmOutcome> {
        self.find(at, variant, true)
    }

    /// The program of this name that runs beside another.
    pub fn other(&self, at: At<'_>, name: &str, variant: SrmVariant) -> Option<&'a SrmOutcome> {
        self.0.iter().find(|outcome| {
            (outcome.place, outcome.variant, outcome.counts) == (at.place, variant, false)
                && outcome.program == name
                && outcome.beside == at.beside
                && outcome.among.iter().any(|among| among == at.program)
        })
    }

    /// Percent more time than alone.
    pub fn slowdown(&self, at: At<'_>, variant: SrmVariant) -> Option<f64> {
        // Blocks of files in one colour make no difference to a program without files.
        let own = if variant == SrmVariant::OneColor { SrmVariant::Linux } else { variant };
        let alone = self.get(At { beside: ALONE, ..at }, own)?;
        Some(100.0 * (self.get(at, variant)?.cpi() / alone.cpi() - 1.0))
    }

    /// Percent less time than on Linux.
    pub fn saved(&self, at: At<'_>, variant: SrmVariant) -> Option<f64> {
        let linux = self.get(at, SrmVariant::Linux)?;
        Some(100.0 * (1.0 - self.get(at, variant)?.cpi() / linux.cpi()))
    }

    /// Percent fewer misses than on Linux; none if there are none to remove.
    pub fn removed(&self, at: At<'_>, variant: SrmVariant) -> Option<f64> {
        let linux = self.get(at, SrmVariant::Linux).filter(|linux| linux.misses > 0)?;
        let left = self.get(at, variant)?.misses_per_million() / linux.misses_per_million();
        Some(100.0 * (1.0 - left))
    }

    /// Misses per million instructions.
    pub fn misses(&self, at: At<'_>, variant: SrmVariant) -> Option<f64> {
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

/// The mean of those that are there; none if none is.
pub fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let there: Vec<f64> = values.flatten().collect();
    (!there.is_empty()).then(|| there.iter().sum::<f64>() / there.len() as f64)
}
