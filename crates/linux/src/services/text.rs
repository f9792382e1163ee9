//! Program text and libraries of a group: which pages of which files they are, and into whose
//! colours they belong.
//!
//! A file is text of a process that maps it privately and executable; its pages are those that
//! are mapped so, or privately and read-only, as constants are. Pages of writable mappings become
//! memory of the process when it writes them, which the engine confines, and other files that are
//! mapped are data. A file that only the group maps belongs into the partition's colours. One that
//! other partitions map too belongs into a set of colours for all of them, if one is named; one
//! that anybody else maps, as everybody does the C library, is left where it is: the group must not
//! decide over others. [`TextWorker`] carries that out.

mod worker;

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::ops::Range;

use serde::{Deserialize, Serialize};

pub use worker::{TextOptions, TextReport, TextWorker};

use crate::kernel::mappers::{FileId, FileMapping, file_of};
use crate::kernel::procfs::{Area, ProcRoot, is_code, is_constant};

/// Most pages of one file: 256 MiB. Beyond, most of a file is never executed, and reading it all
/// would push out what is.
const MOST_PAGES: u64 = 1 << 16;

/// Pages of a file that are text of some processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// Pages of the file by index, ascending and disjoint.
    pub pages: Vec<Range<u64>>,
    /// Where the processes asked about map them.
    pub mappings: Vec<FileMapping>,
}

impl Text {
    fn add(&mut self, mapping: FileMapping) {
        self.pages.push(mapping.pages());
        self.mappings.push(mapping);
    }

    /// Number of pages.
    pub fn len(&self) -> u64 {
        self.pages.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// The processes, ascending.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = self.mappings.iter().map(|mapping| mapping.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    /// Opens the file through a process that maps it: right for deleted files and those of other
    /// mount namespaces too. `None` if it is mapped no more, or is no regular file.
    pub fn open(&self, root: &ProcRoot, id: FileId) -> Option<File> {
        let path =
            |m: &FileMapping| root.pid_path(m.pid, &format!("map_files/{:x}-{:x}", m.start, m.end));
        let opened = self.mappings.iter().filter_map(|m| File::open(path(m)).ok());
        let right = |file: &File| {
            file.metadata().is_ok_and(|of| of.is_file())
                && FileId::from_file(file).is_ok_and(|of| of == id)
        };
        opened.into_iter().find(right)
    }
}

/// The text of some processes, by file: one read of `maps` for each. Processes that are gone have
/// none.
pub fn texts(root: &ProcRoot, pids: &[i32]) -> BTreeMap<FileId, Text> {
    let mut found = BTreeMap::<FileId, Text>::new();
    for &pid in pids {
        let areas = root.maps(pid).unwrap_or_default();
        let code: HashSet<_> = areas.iter().filter(|a| is_code(a)).map(key).collect();
        for area in areas.iter().filter(|a| is_constant(a) && code.contains(&key(a))) {
            let Area { start, end, offset, .. } = *area;
            let text = found.entry(file_of(root, pid, area)).or_default();
            text.add(FileMapping { pid, start, end, offset });
        }
    }
    found.values_mut().for_each(|text| join(&mut text.pages));
    found
}

/// The file of an area among those of one process.
fn key(area: &Area) -> ((u32, u32), u64, &str) {
    (area.dev, area.inode, &area.name)
}

/// Sorts ranges and joins those that touch.
fn join(ranges: &mut Vec<Range<u64>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges.drain(..) {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    *ranges = joined;
}

/// What of `wanted` is not in `known`; both sorted and disjoint.
fn missing(wanted: &[Range<u64>], known: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = wanted.to_vec();
    for done in known {
        let cut = |range: Range<u64>| {
            let before = range.start..range.end.min(done.start);
            let after = range.start.max(done.end)..range.end;
            [before, after].into_iter().filter(|part| !part.is_empty())
        };
        left = left.into_iter().flat_map(cut).collect();
    }
    left
}

/// Where a file belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Into the partition's colours.
    Own,
    /// Into the colours of what several partitions share.
    Shared,
    /// Nowhere.
    Left(Left),
}

/// Why a file is left where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Left {
    /// Processes in no partition map it too.
    Outside,
    /// Other partitions map it too, and no colours are named for such files.
    Partitions,
    /// It is too large to be read as a whole.
    Large,
    /// It cannot be opened, or is no regular file.
    Unreadable,
}

impl Left {
    /// For people.
    pub const fn text(self) -> &'static str {
        match self {
            Left::Outside => "mapped by processes outside of any partition",
            Left::Partitions => "mapped by other partitions (see --shared-colors)",
            Left::Large => "larger than 256 MiB",
            Left::Unreadable => "not to be opened",
        }
    }
}

/// Who is in partitions at one moment, the descendants of their processes included: a child maps
/// what its parent does, and is confined soon.
#[derive(Clone, Debug, Default)]
pub struct TextOwners {
    group: HashSet<i32>,
    partitioned: HashSet<i32>,
}

impl TextOwners {
    /// `group` are the members of the partition in question, `partitioned` those of others.
    pub fn read(root: &ProcRoot, group: &[i32], partitioned: &[i32]) -> TextOwners {
        let all = |roots: &[i32]| {
            let below = roots.iter().flat_map(|&pid| root.children(pid).unwrap_or_default());
            roots.iter().copied().chain(below).collect()
        };
        TextOwners { group: all(group), partitioned: all(partitioned) }
    }

    /// Whether a process belongs to the partition in question.
    pub fn is_own(&self, pid: i32) -> bool {
        self.group.contains(&pid)
    }

    /// Where a file that `pids` map belongs; `shared` says whether colours are named for files of
    /// several partitions.
    pub fn fate(&self, pids: &[i32], shared: bool) -> Fate {
        let mut others = pids.iter().filter(|pid| !self.group.contains(pid)).peekable();
        if others.peek().is_none() {
            Fate::Own
        } else if !others.all(|pid| self.partitioned.contains(pid)) {
            Fate::Left(Left::Outside)
        } else if shared {
            Fate::Shared
        } else {
            Fate::Left(Left::Partitions)
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of them short")]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::{Fake, own_pid};

    const fn file(inode: u64) -> FileId {
        FileId { device: (8 << 8) | 1, inode }
    }

    /// A program with constants, code, relocated constants and data, a library, and the C library.
    fn canned() -> Fake {
        let fake = Fake::new();
        let program = "\
1000-3000 r--p 00000000 08:01 10 /bin/a
3000-6000 r-xp 00002000 08:01 10 /bin/a
6000-7000 r--p 00005000 08:01 10 /bin/a
7000-8000 rw-p 00006000 08:01 10 /bin/a
9000-a000 rw-p 00000000 00:00 0 [heap]
20000-22000 r-xp 00010000 08:01 11 /lib/own
30000-31000 r--p 00000000 08:01 12 /var/table
31000-32000 r-xs 00000000 08:01 13 /var/shared
32000-33000 r-xp 00000000 00:01 14 /memfd:huepage-agent (deleted)
40000-41000 r-xp 00000000 08:01 15 /lib/c
";
        fake.put("5/maps", program).put("5/task/5/children", "6 ");
        fake.put("6/maps", "50000-51000 r-xp 00013000 08:01 11 /lib/own\n");
        fake.put("6/task/6/children", "");
        fake.put("7/maps", "1000-2000 r-xp 00000000 08:01 15 /lib/c\n");
        fake
    }

    #[test]
    fn text_is_code_and_the_constants_beside_it() {
        let fake = canned();
        let found = texts(&fake.root, &[5, 6, 99]);
        let files: Vec<u64> = found.keys().map(|id| id.inode).collect();
        assert_eq!(files, [10, 11, 15]);
        let (program, library) = (&found[&file(10)], &found[&file(11)]);
        assert_eq!(program.pages, [0..6]);
        assert_eq!((program.len(), program.pids()), (6, vec![5]));
        assert_eq!(library.pages, [0x10..0x12, 0x13..0x14]);
        assert_eq!((library.len(), library.pids()), (3, vec![5, 6]));
    }

    #[test]
    fn the_file_is_the_one_that_is_mapped() {
        let id = texts(&ProcRoot::default(), &[own_pid()]);
        let own = std::fs::File::open("/proc/self/exe").expect("our program");
        let own = FileId::from_file(&own).expect("seen");
        let text = id.get(&own).expect("our program is text of ours");
        if let Some(file) = text.open(&ProcRoot::default(), own) {
            assert_eq!(FileId::from_file(&file).expect("seen"), own);
        }
        let other = FileId { inode: own.inode + 1, ..own };
        assert!(text.open(&ProcRoot::default(), other).is_none());
    }

    #[test]
    fn a_file_belongs_to_those_who_map_it() {
        let fake = canned();
        let tree = TextOwners::read(&fake.root, &[5], &[8]);
        assert!(tree.is_own(6) && !tree.is_own(7));
        assert_eq!(tree.fate(&[5, 6], false), Fate::Own);
        assert_eq!(tree.fate(&[5, 8], true), Fate::Shared);
        assert_eq!(tree.fate(&[5, 8], false), Fate::Left(Left::Partitions));
        assert_eq!(tree.fate(&[5, 7], true), Fate::Left(Left::Outside));
        assert_eq!(tree.fate(&[5, 7, 8], true), Fate::Left(Left::Outside));
    }

    #[test]
    fn ranges_are_joined_and_cut() {
        let mut ranges = vec![8..9, 0..2, 1..4, 4..5];
        join(&mut ranges);
        assert_eq!(ranges, [0..5, 8..9]);
        assert_eq!(missing(&ranges, &[]), ranges);
        assert_eq!(missing(&ranges, &[1..3, 8..20]), [0..1, 3..5]);
        assert!(missing(&ranges, &[0..9]).is_empty());
    }
}
