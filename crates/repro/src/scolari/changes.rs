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
    /// Both programs run at a time, on two hardware threads of each core.
    HardwareThreads,
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
        (ScolariChange::HardwareThreads, "all eight threads at a time"),
    ];
}

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
            ScolariChange::HardwareThreads => {
                "Where programs share cores in turns, four threads ask memory for lines at any time, as of a target \
                 alone: its lines wait longer only if the polluter asks for more than the target itself. The Xeon \
                 E5-1410 has two hardware threads a core; the text does not say whether they were on. Here all \
                 eight threads run at a time, one of each program with the caches of a core. Their instructions do \
                 not slow each other, and each has a TLB of its own."
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

    /// Whether both programs of a core run at a time.
    pub(super) const fn at_a_time(self) -> bool {
        matches!(self, ScolariChange::HardwareThreads)
    }

    /// How many times the cycles are counted.
    pub(super) const fn longer(self) -> u64 {
        if matches!(self, ScolariChange::EvenShares) { 4 } else { 1 }
    }
}
