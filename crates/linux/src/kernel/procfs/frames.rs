//! What the kernel says of physical frames: `/proc/kpagecount` and `/proc/kpageflags`.
//!
//! Both need root. A frame may change hands between the read and its use.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use huepage_color::Pfn;

use super::{ProcError, ProcRoot};

/// A table of one `u64` per frame, indexed by frame number.
#[derive(Debug)]
struct Table {
    file: File,
    path: PathBuf,
}

impl Table {
    fn open(root: &ProcRoot, name: &str) -> Result<Table, ProcError> {
        let path = root.0.join(name);
        let file = File::open(&path).map_err(|e| ProcError::io(&path, e))?;
        Ok(Table { file, path })
    }

    fn get(&self, frame: Pfn) -> Result<u64, ProcError> {
        let mut word = [0u8; 8];
        let read = self.file.read_exact_at(&mut word, frame.0.saturating_mul(8));
        read.map_err(|e| ProcError::io(&self.path, e))?;
        Ok(u64::from_ne_bytes(word))
    }
}

/// How often frames are mapped (`/proc/kpagecount`); open it once and keep it.
#[derive(Debug)]
pub struct FrameCounts(Table);

impl FrameCounts {
    /// Opens the table; needs root.
    pub fn open(root: &ProcRoot) -> Result<FrameCounts, ProcError> {
        Table::open(root, "kpagecount").map(FrameCounts)
    }

    /// How many page table entries map this frame; 1 for a private page nobody shares.
    /// A frame number beyond the end of memory is an error.
    pub fn map_count(&self, frame: Pfn) -> Result<u64, ProcError> {
        self.0.get(frame)
    }
}

/// The flags of one frame, bits as in the kernel's `kernel-page-flags.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameFlags(pub u64);

impl FrameFlags {
    const fn bit(self, n: u32) -> bool {
        self.0 >> n & 1 == 1
    }

    /// Used by read(2) or the like once since it was on the list that it is on.
    pub const fn referenced(self) -> bool {
        self.bit(2)
    }

    /// On the list of pages in frequent use.
    pub const fn active(self) -> bool {
        self.bit(6)
    }

    /// On an LRU list: reclaim and compaction can see it.
    pub const fn lru(self) -> bool {
        self.bit(5)
    }

    /// Anonymous memory.
    pub const fn anon(self) -> bool {
        self.bit(12)
    }

    /// First frame of a compound page.
    pub const fn compound_head(self) -> bool {
        self.bit(15)
    }

    /// Later frame of a compound page.
    pub const fn compound_tail(self) -> bool {
        self.bit(16)
    }

    /// hugetlbfs.
    pub const fn hugetlb(self) -> bool {
        self.bit(17)
    }

    /// Mlocked or otherwise not reclaimable.
    pub const fn unevictable(self) -> bool {
        self.bit(18)
    }

    /// No such frame.
    pub const fn absent(self) -> bool {
        self.bit(20)
    }

    /// Merged by KSM.
    pub const fn ksm(self) -> bool {
        self.bit(21)
    }

    /// Part of a transparent huge page.
    pub const fn thp(self) -> bool {
        self.bit(22)
    }

    /// The shared frame of zeroes.
    pub const fn zero_page(self) -> bool {
        self.bit(24)
    }
}

/// Reader of `/proc/kpageflags`; open it once and keep it.
#[derive(Debug)]
pub struct FrameFlagsReader(Table);

impl FrameFlagsReader {
    /// Opens the table; needs root.
    pub fn open(root: &ProcRoot) -> Result<FrameFlagsReader, ProcError> {
        Table::open(root, "kpageflags").map(FrameFlagsReader)
    }

    /// The flags of a frame; a number beyond the end of memory is an error.
    pub fn flags(&self, frame: Pfn) -> Result<FrameFlags, ProcError> {
        self.0.get(frame).map(FrameFlags)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::Fake;
    use super::*;

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|v| v.to_ne_bytes()).collect()
    }

    #[test]
    fn counts_are_indexed_by_frame() {
        let fake = Fake::new();
        fake.put("kpagecount", words(&[9, 1, 3]));
        let counts = FrameCounts::open(&fake.root).expect("canned");
        assert_eq!(counts.map_count(Pfn(2)).expect("inside"), 3);
        assert!(counts.map_count(Pfn(3)).is_err());
        assert!(counts.map_count(Pfn(u64::MAX)).is_err());
    }

    #[test]
    fn flags_are_decoded() {
        let fake = Fake::new();
        fake.put("kpageflags", words(&[1 << 5 | 1 << 12 | 1 << 22, 1 << 20, 1 << 24]));
        let flags = FrameFlagsReader::open(&fake.root).expect("canned");
        let first = flags.flags(Pfn(0)).expect("inside");
        assert!(first.lru() && first.anon() && first.thp() && !first.ksm() && !first.absent());
        assert!(flags.flags(Pfn(1)).expect("inside").absent());
        assert!(flags.flags(Pfn(2)).expect("inside").zero_page());
    }
}
