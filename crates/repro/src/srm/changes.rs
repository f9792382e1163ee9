//! What experiments change: one thing each. Here is what that is, in which cases, and why; the statements
//! that do not hold are judged again with the outcomes of these runs in the place of the others.

use huepage_sim::system::MemoryWait;
use serde::Serialize;

use super::place::PaperMachine;
use super::programs::{SCAN, SrmProgram};
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
    /// Runs of FFT are eight times as long.
    LongRuns,
    /// A query's slowdown is against itself alone on Linux, with SRM-buffer too.
    AloneOnLinux,
    /// Scans wait for no line of their own memory.
    ScanStores,
    /// Files that are sorted have the paper's sizes.
    PaperFiles,
    /// The same, and the bus is busy with a line for four times as long.
    PaperFilesSlowBus,
}

impl Named for SrmChange {
    const ALL: &'static [(SrmChange, &'static str)] = &[
        (SrmChange::Nothing, "nothing"),
        (SrmChange::FilesAlone, "SRM-buffer without colours for process memory"),
        (SrmChange::Searched, "the file that is scanned again and again is searched by grep"),
        (SrmChange::SlowBus, "a bus that takes four times as long for a line"),
        (SrmChange::FreeLookups, "SRM-buffer looks its sequences up for nothing"),
        (SrmChange::FileWaits, "on the Core i7 lines of files wait as on the Xeon"),
        (SrmChange::LongRuns, "runs of FFT that are eight times as long"),
        (SrmChange::AloneOnLinux, "slowdowns against the run alone on Linux"),
        (SrmChange::ScanStores, "scans wait for no line of their own buffers"),
        (SrmChange::PaperFiles, "files of the paper's sizes are sorted"),
        (
            SrmChange::PaperFilesSlowBus,
            "files of the paper's sizes, and a bus that takes four times as long",
        ),
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
                 time. Here 20 million of it count, after 12 million."
            }
            _ => self.reason_of_queries_and_sorts(),
        }
    }

    /// The same of changes to figure 9 and section 4.7.
    const fn reason_of_queries_and_sorts(self) -> &'static str {
        match self {
            SrmChange::AloneOnLinux => {
                "The paper compares a query on either kernel with its run alone, and does not say on which \
                 kernel that is. Above each is against itself alone on the same one. Alone queries gain by SRM-buffer, too, \
                 as it confines what they scan themselves: that is left out then. Here both are against the run alone on \
                 Linux. Nothing is run again."
            }
            SrmChange::ScanStores => {
                "What Q6 and Q15 lose with SRM-buffer are lines of their ring of buffers, which the kernel's copy overwrites \
                 in full. They wait for all of each, as for any line of memory for which nothing was fitted. A core does \
                 not wait for stores as long as their buffer has room. Here scans wait for no line of their own memory."
            }
            SrmChange::PaperFiles => {
                "Files have a quarter of the paper's sizes above, to save time. A part of one fits the last cache then when \
                 it is sorted alone, most of all the 24 MiB of the Xeon 7560, and is lost among others. Here files have 32 to \
                 64 MiB, as in section 4.7. What programs wait for is not fitted anew. Only what does not hold above is run again: \
                 eight programs on the Xeon 7560 lose less than four on the Core i7 860 then, which is not so in the paper."
            }
            SrmChange::PaperFilesSlowBus => {
                "With files of the paper's sizes eight programs on the Xeon 7560 hardly disturb each other in its cache. What \
                 is left is the bus, for which nothing was fitted there. Here it takes four times as long for a line, as in \
                 the experiment with other programs, and files have the paper's sizes."
            }
            _ => "",
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

    /// What a program waits for on a machine.
    pub(super) fn wait(self, place: PaperMachine, program: &SrmProgram) -> MemoryWait {
        let wait = waits::wait(place, program);
        match self {
            SrmChange::FileWaits => MemoryWait { files: waits::files(PaperMachine::Xeon), ..wait },
            SrmChange::ScanStores if program.name.starts_with(SCAN) => {
                MemoryWait { memory: 0, ..wait }
            }
            _ => wait,
        }
    }

    /// Whether files that are sorted have the paper's sizes.
    pub(super) const fn has_paper_files(self) -> bool {
        matches!(self, SrmChange::PaperFiles | SrmChange::PaperFilesSlowBus)
    }

    /// Cycles of the bus for a line where it takes so many otherwise.
    pub(super) const fn of_bus(self, cycles: u64) -> u64 {
        match self {
            SrmChange::SlowBus | SrmChange::PaperFilesSlowBus => 4 * cycles,
            _ => cycles,
        }
    }
}
