//! Which files are worth a look: by size, by directory, and not those that were looked at a moment
//! ago and have not changed since. Neither opens nor places anything.

use std::collections::HashMap;
use std::fs::Metadata;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::kernel::mappers::FileId;

/// How long a file that was placed is let without another look: pages leave the cache and come
/// back elsewhere, which nobody tells.
pub const FRESH_FOR: Duration = Duration::from_secs(10);
/// Files that are remembered at most.
const REMEMBERED_FILES: usize = 1 << 16;

/// Files to be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFilter {
    /// Their sizes, in bytes; empty ones never are.
    pub sizes: RangeInclusive<u64>,
    /// Only those below these directories, unless there are none.
    pub include: Vec<PathBuf>,
    /// None below these.
    pub exclude: Vec<PathBuf>,
}

impl Default for FileFilter {
    /// All files.
    fn default() -> FileFilter {
        FileFilter { sizes: 1..=u64::MAX, include: Vec::new(), exclude: Vec::new() }
    }
}

impl FileFilter {
    /// Whether a file of this size can be wanted.
    pub fn size(&self, bytes: u64) -> bool {
        bytes > 0 && self.sizes.contains(&bytes)
    }

    /// Whether it depends on where the file is.
    pub fn asks_where(&self) -> bool {
        !self.include.is_empty() || !self.exclude.is_empty()
    }

    /// Whether a file at this place is wanted. Of nested directories the innermost counts.
    pub fn place(&self, path: &Path) -> bool {
        let depth = |list: &[PathBuf]| {
            let around = list.iter().filter(|directory| path.starts_with(directory));
            around.map(|directory| directory.components().count()).max()
        };
        let (inside, outside) = (depth(&self.include), depth(&self.exclude));
        match (inside, outside) {
            (Some(inside), Some(outside)) => inside > outside,
            (None, None) => self.include.is_empty(),
            (inside, None) => inside.is_some(),
            (None, Some(_)) => false,
        }
    }
}

/// A version of a file's contents, as far as its inode tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    size: u64,
    changed: (i64, i64),
}

impl Version {
    /// Of what fstat(2) said.
    pub fn from_metadata(found: &Metadata) -> Version {
        Version { size: found.len(), changed: (found.mtime(), found.mtime_nsec()) }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }
}

/// Files that were looked at, and when.
#[derive(Debug, Default)]
pub struct RecentFiles {
    files: HashMap<FileId, (Version, Instant)>,
}

impl RecentFiles {
    /// All that could be done for this version of the file has been done.
    pub fn settle(&mut self, file: FileId, version: Version, now: Instant) {
        if self.files.len() >= REMEMBERED_FILES {
            self.files.retain(|_, (_, at)| now.saturating_duration_since(*at) < FRESH_FOR);
        }
        if self.files.len() < REMEMBERED_FILES {
            self.files.insert(file, (version, now));
        }
    }

    /// Whether that was a moment ago.
    pub fn is_settled(&self, file: FileId, version: Version, now: Instant) -> bool {
        self.files.get(&file).is_some_and(|(known, at)| {
            *known == version && now.saturating_duration_since(*at) < FRESH_FOR
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(include: &[&str], exclude: &[&str]) -> FileFilter {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        FileFilter { include: paths(include), exclude: paths(exclude), ..FileFilter::default() }
    }

    #[test]
    fn sizes_are_inclusive_and_empty_files_are_out() {
        let wanted = FileFilter { sizes: 4096..=8192, ..FileFilter::default() };
        let found = [0, 4095, 4096, 8192, 8193].map(|bytes| wanted.size(bytes));
        assert_eq!(found, [false, false, true, true, false]);
        assert!(!FileFilter::default().size(0) && FileFilter::default().size(1));
    }

    #[test]
    fn the_innermost_directory_counts() {
        let all = wanted(&[], &[]);
        assert!(!all.asks_where() && all.place(Path::new("/a")));
        let found = |wanted: &FileFilter, path: &str| wanted.place(Path::new(path));
        let some = wanted(&["/srv", "/srv/log/keep"], &["/srv/log"]);
        assert!(some.asks_where());
        let cases = [
            ("/srv/a", true),
            ("/srv/log/a", false),
            ("/srv/log/keep/a", true),
            ("/etc/passwd", false),
            ("/srvx/a", false),
        ];
        for (path, expected) in cases {
            assert_eq!(found(&some, path), expected, "{path}");
        }
        let but = wanted(&[], &["/tmp"]);
        assert!(found(&but, "/home/a") && !found(&but, "/tmp/a"));
        let both = wanted(&["/a"], &["/a"]);
        assert!(!found(&both, "/a/b"), "excluding wins");
    }

    #[test]
    fn a_file_is_settled_until_it_changes_or_time_passes() {
        let (mut judged, now) = (RecentFiles::default(), Instant::now());
        let file = FileId { device: 1, inode: 2 };
        let version = Version { size: 5, changed: (7, 1) };
        assert!(!judged.is_settled(file, version, now));
        judged.settle(file, version, now);
        assert!(judged.is_settled(file, version, now + FRESH_FOR / 2));
        assert!(!judged.is_settled(file, version, now + FRESH_FOR));
        assert!(!judged.is_settled(file, Version { size: 6, ..version }, now));
        assert!(!judged.is_settled(file, Version { changed: (7, 2), ..version }, now));
        assert!(!judged.is_settled(FileId { device: 1, inode: 3 }, version, now));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut judged, now) = (RecentFiles::default(), Instant::now());
        let version = Version { size: 5, changed: (7, 1) };
        for inode in 0..REMEMBERED_FILES as u64 + 10 {
            judged.settle(FileId { device: 1, inode }, version, now);
        }
        assert_eq!(judged.files.len(), REMEMBERED_FILES);
        judged.settle(FileId { device: 2, inode: 1 }, version, now + FRESH_FOR);
        assert_eq!(judged.files.len(), 1);
    }
}
