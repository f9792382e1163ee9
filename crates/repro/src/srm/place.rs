//! The machines of the paper.

use serde::Serialize;

/// A machine of the paper (section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PaperMachine {
    /// Xeon 5355: two cores share an L2 of 4 MiB.
    Xeon,
    /// Core i7 860: four cores share an L3 of 8 MiB.
    CoreI7,
    /// Xeon 7560: eight cores share an L3 of 24 MiB (section 4.7).
    Xeon7560,
}

impl PaperMachine {
    /// The words for a person.
    pub const fn text(self) -> &'static str {
        match self {
            PaperMachine::Xeon => "Xeon 5355",
            PaperMachine::CoreI7 => "Core i7 860",
            PaperMachine::Xeon7560 => "Xeon 7560",
        }
    }
}
