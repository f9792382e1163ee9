//! Who maps a file: the processes, and where in them which part of it lies.
//!
//! One scan of every `/proc/<pid>/maps` serves any number of files. It is a snapshot: whoever
//! acts on it must hold against mappings made since, as the kernel does when it refuses to page
//! out what several processes map. Which pages of a mapping are present is not looked at.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

use huepage_color::PAGE_BYTES;

use crate::kernel::procfs::{Area, ProcError, ProcRoot};

/// A file, whatever its names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId {
    /// Device number as stat(2) gives it.
    pub device: u64,
    /// Number of the inode.
    pub inode: u64,
}

impl FileId {
    /// Of an open file.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn from_file(file: &File) -> io::Result<FileId> {
        let found = file.metadata()?;
        Ok(FileId { device: found.dev(), inode: found.ino() })
    }
}

/// A part of a file in the address space of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMapping {
    /// The process.
    pub pid: i32,
    /// First byte in it.
    pub start: u64,
    /// One past the last byte in it.
    pub end: u64,
    /// What of the file begins there, in bytes: a multiple of the page size.
    pub offset: u64,
}

impl FileMapping {
    /// The pages of the file that are mapped, by index.
    pub fn pages(&self) -> Range<u64> {
        let first = self.offset / PAGE_BYTES;
        first..first + (self.end - self.start) / PAGE_BYTES
    }

    /// Where those of `pages` of the file that are mapped here lie, in bytes; `None` if none is.
    pub fn addresses(&self, pages: &Range<u64>) -> Option<Range<u64>> {
        let own = self.pages();
        let (first, end) = (pages.start.max(own.start), pages.end.min(own.end));
        let at = |page: u64| self.start + (page - own.start) * PAGE_BYTES;
        (first < end).then(|| at(first)..at(end))
    }
}

/// All mappings of files on the system at one moment.
#[derive(Clone, Debug, Default)]
pub struct Mappers {
    files: HashMap<FileId, Vec<FileMapping>>,
}

impl Mappers {
    /// Looks at every process: some 10 µs each, more for those with many areas. Processes that
    /// end meanwhile, or whose maps this reader may not see, are left out.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub fn read(root: &ProcRoot) -> Result<Mappers, ProcError> {
        let mut found = Mappers::default();
        for pid in root.pids()? {
            let areas = root.maps(pid).unwrap_or_default();
            for area in areas.iter().filter(|area| area.inode != 0) {
                found.files.entry(file_of(root, pid, area)).or_default().push(FileMapping {
                    pid,
                    start: area.start,
                    end: area.end,
                    offset: area.offset,
                });
            }
        }
        Ok(found)
    }

    /// The mappings of a file, by ascending pid and address; empty if nobody maps it.
    pub fn mappings_of(&self, file: FileId) -> &[FileMapping] {
        self.files.get(&file).map_or(&[], Vec::as_slice)
    }

    /// The processes that map a file, ascending.
    pub fn pids(&self, file: FileId) -> Vec<i32> {
        let mut pids: Vec<i32> = self.mappings_of(file).iter().map(|mapping| mapping.pid).collect();
        pids.dedup();
        pids
    }
}

/// The file of an area, as fstat(2) names it.
///
/// Filesystems without a block device of their own (btrfs, overlays, tmpfs) may give stat another
/// device than `maps` shows; of theirs the kernel's link to the mapped file is asked.
pub fn file_of(root: &ProcRoot, pid: i32, area: &Area) -> FileId {
    let (major, minor) = area.dev;
    let listed = FileId { device: libc::makedev(major, minor), inode: area.inode };
    if major != 0 {
        return listed;
    }
    let link = root.pid_path(pid, &format!("map_files/{:x}-{:x}", area.start, area.end));
    let seen = |of: fs::Metadata| FileId { device: of.dev(), inode: of.ino() };
    fs::metadata(link).map_or(listed, seen)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::kernel::procfs::fake::{Fake, own_pid};

    const LIBRARY: FileId = FileId { device: (8 << 8) | 1, inode: 77 };

    fn canned() -> Fake {
        let fake = Fake::new();
        fake.put(
            "5/maps",
            "1000-3000 r-xp 00002000 08:01 77 /lib/a\n\
             8000-9000 r--p 00007000 08:01 77 /lib/a\n\
             a000-b000 rw-p 00000000 00:00 0 [heap]\n",
        );
        fake.put("12/maps", "4000-5000 r--s 00000000 08:02 77 /lib/b\n");
        fake.put("7/maps", "2000-3000 r-xp 00000000 08:01 77 /lib/a\n");
        fake.put("8/comm", "no maps\n");
        fake
    }

    #[test]
    fn every_process_that_maps_a_file_is_found() {
        let fake = canned();
        let found = Mappers::read(&fake.root).expect("listed");
        let expected = [
            FileMapping { pid: 5, start: 0x1000, end: 0x3000, offset: 0x2000 },
            FileMapping { pid: 5, start: 0x8000, end: 0x9000, offset: 0x7000 },
            FileMapping { pid: 7, start: 0x2000, end: 0x3000, offset: 0 },
        ];
        assert_eq!(found.mappings_of(LIBRARY), expected);
        assert_eq!(found.pids(LIBRARY), [5, 7]);
        assert_eq!(found.pids(FileId { device: (8 << 8) | 2, inode: 77 }), [12]);
        assert!(found.mappings_of(FileId { inode: 78, ..LIBRARY }).is_empty());
    }

    #[test]
    fn pages_of_a_file_have_addresses_where_they_are_mapped() {
        let mapping = FileMapping { pid: 5, start: 0x10_0000, end: 0x10_3000, offset: 0x2000 };
        assert_eq!(mapping.pages(), 2..5);
        assert_eq!(mapping.addresses(&(0..3)), Some(0x10_0000..0x10_1000));
        assert_eq!(mapping.addresses(&(3..99)), Some(0x10_1000..0x10_3000));
        assert_eq!(mapping.addresses(&(5..9)), None);
        assert_eq!(mapping.addresses(&(0..2)), None);
    }

    #[test]
    fn files_are_named_as_stat_does() {
        // Memory files are on a filesystem without a device.
        for file in [tempfile::tempfile().expect("a file"), memory_file()] {
            file.set_len(3 * PAGE_BYTES).expect("grown");
            let seen = file.metadata().expect("seen");
            let id = FileId { device: seen.dev(), inode: seen.ino() };
            let flags = (libc::PROT_READ, libc::MAP_SHARED);
            let bytes = 2 * PAGE_BYTES as usize;
            // SAFETY: a new mapping at an address of the kernel's choice touches nothing of ours.
            let at = unsafe {
                libc::mmap(std::ptr::null_mut(), bytes, flags.0, flags.1, file.as_raw_fd(), 4096)
            };
            assert_ne!(at, libc::MAP_FAILED);
            let found = Mappers::read(&ProcRoot::default()).expect("listed");
            let start = at as u64;
            let expected = FileMapping { pid: own_pid(), start, end: start + 8192, offset: 4096 };
            assert_eq!(found.mappings_of(id), [expected]);
            // SAFETY: the mapping was made above and nothing refers into it.
            unsafe { libc::munmap(at, bytes) };
        }
    }

    fn memory_file() -> fs::File {
        let name = c"mappers";
        let made = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC);
        made.expect("a memory file").into()
    }
}
