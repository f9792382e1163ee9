//! One access to memory, as traces hold it and machines take it.

use huepage_color::VirtAddr;
use serde::{Deserialize, Serialize};

/// What an access does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessKind {
    /// Reads instructions.
    Fetch = 0,
    /// Reads data.
    Load = 1,
    /// Writes data.
    Store = 2,
}

/// One access. 16 bytes, since traces are kept in memory by the hundred million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// First byte touched.
    pub address: VirtAddr,
    /// The address space it belongs to.
    pub space: u16,
    /// The thread of that space.
    pub thread: u16,
    /// Instructions retired since the record before this one of the same thread, this
    /// access's own included; 0 where the source does not say.
    pub instructions: u16,
    /// Bytes touched, 1 to 255; what is larger is several records.
    pub bytes: u8,
    /// What it does.
    pub kind: AccessKind,
}

impl Record {
    /// An access of 8 bytes by the first thread of the first space, one instruction each.
    pub const fn plain(address: u64, kind: AccessKind) -> Record {
        let address = VirtAddr(address);
        Record { address, space: 0, thread: 0, instructions: 1, bytes: 8, kind }
    }

    /// Last byte touched; the last there is of an access that would reach beyond.
    #[inline]
    pub fn last(&self) -> u64 {
        self.address.0.saturating_add(u64::from(self.bytes.max(1) - 1))
    }

    /// Lines of `1 << bits` bytes touched behind that of the first byte.
    #[inline]
    pub fn more_lines(&self, bits: u32) -> u64 {
        (self.last() >> bits) - (self.address.0 >> bits)
    }
}
