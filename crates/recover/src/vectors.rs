//! Vectors over GF(2) that belong together, as searches take them.

use crate::obs::LineGroupId;

/// Vectors that are said to give every fitting mask one parity.
#[derive(Clone, Debug)]
pub struct VectorGroup {
    /// The group's number; of no meaning if anchored.
    pub id: LineGroupId,
    /// Its vectors, in coordinates of the sample.
    pub vectors: Vec<u64>,
    /// Whether that parity is 0 (differences of conflicting lines).
    pub anchored: bool,
}
