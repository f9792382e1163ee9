//! What experiments change: a thing each, or two. Here is what that is and why; the statements that do not hold
//! are judged again with the outcomes of these runs in the place of the others.

use serde::Serialize;

use crate::engine::Named;

/// What an experiment does otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScolariChange {
    /// Nothing.
    Nothing,
    /// Only shares that have each value of bits 15 and 16 as often, and more sweeps of leslie3d.
    EvenShares,
    /// astar walks a tree.
    Tree,
    /// omnetpp and xalancbmk go back to some of their data.
    Favourites,
    /// Turns of all cores are in step.
    InStep,
    /// The same, and turns so short that both programs use the caches of a core.
    AtOnce,
}

impl Named for ScolariChange {
    const ALL: &'static [(ScolariChange, &'static str)] = &[
        (ScolariChange::Nothing, "nothing"),
        (
            ScolariChange::EvenShares,
            "only shares that have each value of bits 15 and 16 as often, and more sweeps of leslie3d",
        ),
        (ScolariChange::Tree, "astar walks a tree"),
        (ScolariChange::Favourites, "omnetpp and xalancbmk go back to some of their data"),
        (ScolariChange::InStep, "turns of all cores in step"),
        (ScolariChange::AtOnce, "both programs of a core on it at once"),
    ];
}

/// Cycles of a turn where both programs are on a core at once.
const AT_ONCE: u64 = 50_000;

impl ScolariChange {
    /// All that change something.
    pub fn experiments() -> impl Iterator<Item = ScolariChange> {
        ScolariChange::all().filter(|change| *change != ScolariChange::Nothing)
    }

    /// Why that, for a page.
    pub const fn reason(self) -> &'static str {
        match self {
            ScolariChange::Nothing => "",
            ScolariChange::EvenShares => {
                "Hash-unaware, only bits 15 and 16 decide where in a slice a line lies (section 5.2). Six and ten \
                 colours give two of their values to more colours than the other two, so that some quarters of the \
                 cache get more pages than others. Four, eight, twelve and sixteen colours do not. Runs of leslie3d \
                 alone, which are a few sweeps through more than the cache, are four times as long here."
            }
            ScolariChange::Tree => {
                "astar's stand-in is the placement of another paper's vpr, whose instructions between two looks at \
                 its map are fitted there. So it loses 9 % where its L2 misses six times as often. Here a tree of the same \
                 400 KB is walked instead, without such instructions. With all of its L2 it is as insensitive as before."
            }
            ScolariChange::Favourites => {
                "The L2 answers few requests of these two stand-ins, whether all of it is theirs or a quarter: \
                 their data are many times as large, and next to none of them are used more often than others. Here \
                 they are placements as large, which pick some cells far more often than others."
            }
            ScolariChange::InStep => {
                "The kernel chooses for each core for itself who runs. Ours runs the target on every other core \
                 first, so that two of its threads run at any time, and alone all four do. Here its turns are the \
                 same on all cores: all four run at a time, or none."
            }
            ScolariChange::AtOnce => {
                "After 9 ms a program has long filled the caches of its core again, so that what others left there \
                 costs it nothing. The Xeon E5-1410 has two hardware threads a core; the text does not say whether \
                 they were on. Here turns are 50,000 cycles and the same on all cores: both programs use the caches \
                 and TLBs of each. vips, which streams, has nothing there to lose, and its polluter asks memory for \
                 no more lines than four threads of its own."
            }
        }
    }

    /// What stands for a program otherwise, where that is another workload.
    pub(super) fn stand_in(self, program: &str) -> Option<&'static str> {
        match (self, program) {
            (ScolariChange::Tree, "astar") => Some("btree:size=400K,rounds=100000"),
            (ScolariChange::Favourites, "omnetpp") => Some("vpr:size=6M,rounds=100000"),
            (ScolariChange::Favourites, "xalancbmk") => Some("vpr:size=4M,rounds=100000"),
            _ => None,
        }
    }

    /// Cycles of a turn where it is so long otherwise.
    pub(super) const fn turn(self, cycles: u64) -> u64 {
        if matches!(self, ScolariChange::AtOnce) { AT_ONCE } else { cycles }
    }

    /// How many times the cycles are counted.
    pub(super) const fn longer(self) -> u64 {
        if matches!(self, ScolariChange::EvenShares) { 4 } else { 1 }
    }
}
