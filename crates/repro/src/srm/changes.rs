//! What experiments change: one thing each. Here is what that is, in which cases, and why; the statements
//! that do not hold are judged again with the outcomes of these runs in the place of the others.

use serde::Serialize;

use super::variants::Placement;
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
    /// grep runs beside the traces.
    BesideGrep,
}

impl Named for SrmChange {
    const ALL: &'static [(SrmChange, &'static str)] = &[
        (SrmChange::Nothing, "nothing"),
        (SrmChange::FilesAlone, "SRM-buffer without colours for process memory"),
        (SrmChange::Searched, "the file that is scanned again and again is searched by grep"),
        (
            SrmChange::BesideGrep,
            "grep beside the traces of real programs instead of the trace of a scan",
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
            SrmChange::BesideGrep => {
                "The trace of the scan is of one query on a table in its own buffer pool, in which the interpreter of \
                 expressions may do most. If too few lines of files in it were why nothing is saved, grep in its place \
                 would change that."
            }
        }
    }

    /// What is done for each program then.
    pub(super) fn of_placement(self, placement: Placement) -> Placement {
        if self == SrmChange::FilesAlone { placement.files_alone() } else { placement }
    }
}
