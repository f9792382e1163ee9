//! What is run: each program alone in growing shares of the last level, with colours that divide the
//! L2, too (figure 5) and with colours that do not (figure 9), and targets in growing shares beside
//! polluters that have the rest (figures 10 and 11), with colours that know the hash and with colours
//! that do not; and pairs of programs with several threads (figure 12). Nothing is run here.

use serde::Serialize;

use super::changes::ScolariChange;
use super::programs::{PROGRAMS, TABLE_3, TABLE_4, TABLE_5};
use crate::engine::Named;

/// Threads of each program (section 5.4), one for each core.
pub const THREADS: u16 = 4;
/// Cycles of a turn: 9 ms at 2.8 GHz.
pub const TURN: u64 = 25_000_000;

/// Colours of the last level under either scheme: 4.2, and bits 15 to 18 in 5.2.
pub const COLORS: u16 = 16;

/// Megabytes of so many colours.
pub fn megabytes(share: u16) -> f64 {
    10.0 * f64::from(share) / f64::from(COLORS)
}

/// Which figure of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScolariPart {
    /// Figure 5: alone, with colours that divide the L2, too.
    Profiles,
    /// Figure 9: alone.
    Alone,
    /// Figure 10: the workloads of table III.
    Mixed,
    /// Figure 11: the workloads of table IV.
    Limited,
    /// Figure 12: the pairs of table V, several threads each, and their targets alone.
    Threads,
}

impl Named for ScolariPart {
    const ALL: &'static [(ScolariPart, &'static str)] = &[
        (ScolariPart::Profiles, "profiles"),
        (ScolariPart::Alone, "alone"),
        (ScolariPart::Mixed, "mixed"),
        (ScolariPart::Limited, "limited"),
        (ScolariPart::Threads, "threads"),
    ];
}

impl ScolariPart {
    /// The figure's number.
    pub const fn figure(self) -> &'static str {
        match self {
            ScolariPart::Profiles => "5",
            ScolariPart::Alone => "9",
            ScolariPart::Mixed => "10",
            ScolariPart::Limited => "11",
            ScolariPart::Threads => "12",
        }
    }

    /// What its colours are made of.
    pub const fn schemes(self) -> &'static [Scheme] {
        match self {
            ScolariPart::Profiles => &[Scheme::WithL2],
            ScolariPart::Threads => &[Scheme::Aware],
            _ => &[Scheme::Aware, Scheme::Unaware],
        }
    }
}

/// What a colour is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// `h2 h1 a16 a15`.
    Aware,
    /// Bits 15 to 18.
    Unaware,
    /// Bits 12 to 16, of which 12 to 14 choose sets of the L2, too (section 4).
    WithL2,
}

impl Named for Scheme {
    const ALL: &'static [(Scheme, &'static str)] = &[
        (Scheme::Aware, "hash-aware"),
        (Scheme::Unaware, "hash-unaware"),
        (Scheme::WithL2, "bits 12 to 16"),
    ];
}

/// Some programs, the first of them in a partition of so many colours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScolariCase {
    /// The figure.
    pub part: ScolariPart,
    /// The workload: W1 to X4, P1 to P4, or the program's own name.
    pub workload: String,
    /// What a colour is made of.
    pub scheme: Scheme,
    /// Colours of the first program; the others have the rest together.
    pub share: u16,
    /// One for each core, or, in figure 12, on all of them.
    pub programs: Vec<String>,
    /// What is not as in the paper's experiment.
    pub change: ScolariChange,
}

/// Cycles of a run. All programs start with what [`ColorisProgram::start`](super::ColorisProgram::start) says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScolariTimes {
    /// Counting begins.
    pub warm_up: u64,
    /// Everything ends.
    pub end: u64,
    /// Of a turn, where programs share cores.
    pub turn: u64,
}

impl ScolariCase {
    /// `W1, hash-aware, 4 of 16`.
    pub fn name(&self) -> String {
        let alone = self.part == ScolariPart::Threads && self.programs.len() == 1;
        let alone = if alone { " alone" } else { "" };
        let scheme = self.scheme.name();
        format!("{}{alone}, {scheme}, {} of {COLORS}", self.workload, self.share)
    }

    /// Cores that have a program.
    pub const fn cores(&self) -> u64 {
        match self.part {
            ScolariPart::Threads if self.change.at_a_time() => 2 * THREADS as u64,
            ScolariPart::Threads => THREADS as u64,
            _ => self.programs.len() as u64,
        }
    }

    /// A target at 220 cycles an access does 270,000 before and 410,000 after the warm-up, which
    /// comes after it has filled its memory and used it as often again: several times the lines
    /// of the largest array that fits. In figure 12 each program has a turn before and two after it, or as
    /// much time for itself.
    pub fn times(&self, quick: bool) -> ScolariTimes {
        let (program, more) = SWEEPS;
        let long = self.programs.len() == 1 && self.workload == program;
        let counted = 90_000_000 * self.change.longer() * if long { more } else { 1 };
        let scale = if quick { 8 } else { 1 };
        if self.part == ScolariPart::Threads {
            let all = TURN / scale * self.programs.len() as u64;
            return ScolariTimes { warm_up: all, end: 3 * all, turn: TURN / scale };
        }
        let (warm_up, end) = (60_000_000 / scale, (60_000_000 + counted) / scale);
        ScolariTimes { warm_up, end, turn: u64::MAX }
    }
}

/// A program of which as many times the cycles are counted alone: it sweeps over more than the cache, and of
/// less than two sweeps what is counted depends on where it begins.
const SWEEPS: (&str, u64) = ("leslie3d", 4);

/// Shares of figure 9, in colours.
const ALONE: [u16; 9] = [1, 2, 3, 4, 6, 8, 10, 12, 16];
/// Shares of figures 10 and 11: the paper's memory ends at ten colours.
const BESIDE: [u16; 5] = [1, 2, 4, 6, 10];
/// Shares of figure 12; the last is of targets alone.
const THREADED: [u16; 4] = [2, 4, 10, 16];
/// Shares of short runs, alone, beside others, and with threads.
const QUICK: [&[u16]; 3] = [&[2, 4, 16], &[2], &[4, 16]];

/// The shares of a part, ascending.
pub fn shares(part: ScolariPart, quick: bool) -> Vec<u16> {
    let all: [&[u16]; 3] = [&ALONE, &BESIDE, &THREADED];
    let [alone, beside, threaded] = if quick { QUICK } else { all };
    match part {
        ScolariPart::Profiles | ScolariPart::Alone => alone.to_vec(),
        ScolariPart::Mixed | ScolariPart::Limited => beside.to_vec(),
        ScolariPart::Threads => threaded.to_vec(),
    }
}

/// Programs of each workload of a part. Traces run alone.
fn workloads(part: ScolariPart, traces: &[&str]) -> Vec<(String, Vec<String>)> {
    let alone = |name: &str| (name.to_owned(), vec![name.to_owned()]);
    let all = |table: &[(&str, [&str; 4])]| {
        let row = |(name, programs): &(&str, [&str; 4])| {
            ((*name).to_owned(), programs.map(str::to_owned).to_vec())
        };
        table.iter().map(row).collect()
    };
    match part {
        ScolariPart::Profiles | ScolariPart::Alone => {
            let names = PROGRAMS.iter().map(|own| own.name);
            names.chain(traces.iter().copied()).map(alone).collect()
        }
        ScolariPart::Mixed => all(&TABLE_3),
        ScolariPart::Limited => all(&TABLE_4),
        ScolariPart::Threads => {
            let row = |(name, programs): &(&str, [&str; 2])| {
                [2, 1].map(|count| {
                    let own = programs[..count].iter().map(|own| (*own).to_owned());
                    ((*name).to_owned(), own.collect())
                })
            };
            TABLE_5.iter().flat_map(row).collect()
        }
    }
}

/// All cases of a part, with real programs by the names of their traces.
pub fn cases(part: ScolariPart, traces: &[&str], quick: bool) -> Vec<ScolariCase> {
    let mut all = Vec::new();
    for (workload, programs) in workloads(part, traces) {
        for &scheme in part.schemes() {
            // Nothing is left for others of the whole cache.
            let shares = shares(part, quick).into_iter();
            for share in shares.filter(|share| programs.len() == 1 || *share < COLORS) {
                let (workload, programs) = (workload.clone(), programs.clone());
                let change = ScolariChange::Nothing;
                all.push(ScolariCase { part, workload, scheme, share, programs, change });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_share_beside_others_is_one_alone_too() {
        for quick in [false, true] {
            let alone = shares(ScolariPart::Alone, quick);
            assert!(alone.contains(&COLORS), "slowdowns are against the whole cache");
            assert!(shares(ScolariPart::Mixed, quick).iter().all(|share| alone.contains(share)));
            assert!(shares(ScolariPart::Mixed, quick).iter().all(|share| *share < COLORS));
        }
    }

    #[test]
    fn all_parts_have_their_schemes() {
        let count = |part| cases(part, &[], false).len();
        let counts: Vec<usize> = ScolariPart::all().map(count).collect();
        assert_eq!(counts, [8 * 9, 8 * 2 * 9, 4 * 2 * 5, 4 * 2 * 5, 4 * (3 + 4)]);
        let traced = cases(ScolariPart::Alone, &["real"], true);
        assert_eq!(traced.iter().filter(|case| case.programs == ["real"]).count(), 2 * 3);
    }
}
