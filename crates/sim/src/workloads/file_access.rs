//! Calls on files as a sink hears of them, and the addresses at which the page cache has the bytes of files.

use huepage_color::VirtAddr;

/// Where the pages of files appear; programs have nothing there.
pub const FILES: u64 = 1 << 46;
/// log2 of the room that each file has: 1 GiB, in which databases also split their tables.
pub const ROOM_BITS: u32 = 30;
/// How many files there can be.
pub const MAX_FILES: u32 = 1 << 15;

/// A file, as an inode number names it; one that was deleted leaves its number to a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u32);

impl FileNumber {
    /// The address at which the page cache has a byte of this file.
    pub const fn address(self, offset: u64) -> VirtAddr {
        VirtAddr(FILES + ((self.0 as u64) << ROOM_BITS) + offset)
    }

    /// The file and offset that an address of the page cache belongs to; nothing for the
    /// memory of a program.
    #[expect(clippy::cast_possible_truncation, reason = "file numbers have 15 bits")]
    pub const fn of(address: VirtAddr) -> Option<(FileNumber, u64)> {
        let Some(place) = address.0.checked_sub(FILES) else { return None };
        let number = place >> ROOM_BITS;
        if number >= MAX_FILES as u64 {
            return None;
        }
        Some((FileNumber(number as u32), place & ((1 << ROOM_BITS) - 1)))
    }
}

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileOp {
    /// It comes into being, empty.
    Create,
    /// Bytes are copied to the program.
    Read,
    /// Bytes come from the program.
    Write,
    /// It is gone, and so are its pages.
    Delete,
}

/// One system call on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileAccess {
    /// Which.
    pub file: FileNumber,
    /// What.
    pub op: FileOp,
    /// First byte; 0 for creation and deletion.
    pub offset: u64,
    /// How many bytes; 0 for creation and deletion.
    pub bytes: u64,
}

impl FileAccess {
    /// The first byte after those.
    pub const fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_tell_file_and_offset() {
        for (file, offset) in [(0, 0), (7, 4097), (MAX_FILES - 1, (1 << ROOM_BITS) - 1)] {
            let address = FileNumber(file).address(offset);
            assert_eq!(FileNumber::of(address), Some((FileNumber(file), offset)));
        }
        assert_eq!(FileNumber::of(VirtAddr(crate::workloads::memory::HEAP)), None);
        assert_eq!(FileNumber::of(FileNumber(MAX_FILES).address(0)), None);
    }
}
