//! What experiments change: one thing each. Here is what that is, in which cases, and why; the statements
//! that do not hold are judged again with the outcomes of these runs in the place of the others.

use huepage_sim::system::MemoryWait;
use serde::Serialize;

use super::place::PaperMachine;
use super::variants::Placement;
use super::waits;
use crate::engine::Named;

/// The one thing that an experiment does otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SrmChange {
    /// None.
    Nothing,
    /// SRM-buffer leaves process memory where Linux puts it.
    FilesAlone,
    /// What scans a file again and again searches it, as grep does.
    Searched,
    /// The bus is busy with a line for four times as long.
    SlowBus,
    /// SRM-buffer looks its sequences up for nothing.
    FreeLookups,
    /// On the Core i7 a line of a file makes a program wait for as large a share of its time as on the Xeon.
    FileWaits,
    /// Runs are eight times as long.
    LongRuns,
}

impl Named for SrmChange {
    const ALL: &'static [(SrmChange, &'static str)] = &[
        (SrmChange::Nothing, "nothing"),
        (SrmChange::FilesAlone, "SRM-buffer without colours for process memory"),
        (SrmChange::Searched, "the file that is scanned again and again is searched by grep"),
        (SrmChange::SlowBus, "a bus that takes four times as long for a line"),
        (SrmChange::FreeLookups, "SRM-buffer looks its sequences up for nothing"),
        (SrmChange::FileWaits, "on the Core i7 lines of files wait as on the Xeon"),
        (SrmChange::LongRuns, "runs that are eight times as long"),
    ];
}

impl SrmChange {
    /// All that change something.
    pub fn experiments() -> impl Iterator<Item = SrmChange> {
        SrmChange::all().filter(|change| *change != SrmChange::Nothing)
    }

    /// Why that, for a page.
    pub const fn reason(self) -> &'static str {
        match self {
            SrmChange::Nothing => "",
            SrmChange::FilesAlone => {
                "Frames that Linux takes at random crowd some sets, so that programs that would fit miss there, \
                 also alone. SRM-buffer gives process memory all colours in turn, which ends that. Here files \
                 get their colours and process memory lies as on Linux: what is saved then is of files alone."
            }
            SrmChange::Searched => {
                "The paper does not say what its application does with the bytes. Ours adds them up, an instruction for \
                 eight, so that waiting for lines is most of what it does as soon as they miss. Here the same file is \
                 searched for a word, as section 2 does."
            }
            SrmChange::SlowBus => {
                "The figures on Linux without colours say how much programs lose, not how much of that to a bus that \
                 others keep busy, which no placement gives back. The bus of the fit leaves nearly all to the cache. With \
                 one that takes four times as long much of it is lost to the bus. Nothing else is fitted anew."
            }
            SrmChange::FreeLookups => {
                "For each block that is not in the page cache SRM-buffer finds its sequence in a table. The paper has no \
                 figure for that but \u{201c}low\u{201d}; ours takes 200 cycles."
            }
            SrmChange::FileWaits => {
                "The paper does not say how much of a file's line a program waits for. Ours wait for 5 % of it on the \
                 Core i7, where scans beside joins are slowed down by less than half of the paper's figure. Here they \
                 wait for 10 %, as on the Xeon."
            }
            SrmChange::LongRuns => {
                "Of each program 2.5 million accesses count after 1.5 million. FFT does not end one transform in that \
                 time. Here 20 million count, after 12 million."
            }
        }
    }

    /// What is done for each program then.
    pub(super) fn of_placement(self, placement: Placement) -> Placement {
        match self {
            SrmChange::FilesAlone => placement.files_alone(),
            SrmChange::FreeLookups => placement.with_lookups_of(0),
            _ => placement,
        }
    }

    /// What a program waits for that waits for this otherwise.
    pub(super) fn of_wait(self, wait: MemoryWait) -> MemoryWait {
        match self {
            SrmChange::FileWaits => MemoryWait { files: waits::files(PaperMachine::Xeon), ..wait },
            _ => wait,
        }
    }

    /// Cycles of the bus for a line where it takes so many otherwise.
    pub(super) const fn of_bus(self, cycles: u64) -> u64 {
        if matches!(self, SrmChange::SlowBus) { 4 * cycles } else { cycles }
    }
}
