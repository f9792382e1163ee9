//! The version of the running kernel, as far as huepage depends on it.

use std::fmt;

use serde::{Serialize, Serializer};

/// A kernel version, compared by its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelRelease {
    /// Major and minor version.
    pub version: (u32, u32),
    /// The whole text of `uname -r`.
    pub text: String,
}

impl KernelRelease {
    /// The oldest release with `UFFDIO_MOVE`.
    pub const NEEDED: (u32, u32) = (6, 8);

    /// Reads `6.8.0-31-generic` and the like; 0.0 if it starts with no numbers.
    pub fn parse(text: &str) -> KernelRelease {
        let mut numbers = text.split(|c: char| !c.is_ascii_digit());
        let mut next = || numbers.next().and_then(|n| n.parse().ok()).unwrap_or(0);
        KernelRelease { version: (next(), next()), text: text.to_owned() }
    }

    /// Whether it is 6.8 or newer.
    pub fn suffices(&self) -> bool {
        self.version >= KernelRelease::NEEDED
    }
}

impl fmt::Display for KernelRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for KernelRelease {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}
