//! What a program finds of its supervisor in itself: threads, areas and descriptors that are not its
//! own, and which of these descriptors carry a right that the program has not.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use super::sys;
use crate::rights::FOREIGN;

/// Descriptors of a foreign thread that are tried, from 0 on.
const NUMBERS: i32 = 64;

/// A part of the address space that the program did not map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmappedRange {
    /// Its first byte.
    pub start: usize,
    /// Its bytes.
    pub bytes: usize,
    /// As in `maps`: `rw-p`.
    pub access: String,
    /// The object that it maps; empty for anonymous memory.
    pub name: String,
}

impl UnmappedRange {
    /// A line of `maps`.
    fn parse(line: &str) -> Option<UnmappedRange> {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let [start, end] = [from, to].map(|hex| usize::from_str_radix(hex, 16).ok());
        let access = rest.split(' ').next()?.to_owned();
        let name = rest.split_ascii_whitespace().skip(4).collect::<Vec<_>>().join(" ");
        Some(UnmappedRange { start: start?, bytes: end? - start?, access, name })
    }

    /// Whether the program may run it.
    pub fn is_code(&self) -> bool {
        self.access.contains('x')
    }

    /// Whether it is of an object that others map, too.
    pub fn is_shared(&self) -> bool {
        self.access.ends_with('s')
    }
}

/// The places of a `smaps` text that no child inherits: ordinary programs have none.
fn foreign_places(smaps: &str) -> Vec<UnmappedRange> {
    let (mut found, mut last) = (Vec::new(), None);
    for line in smaps.lines() {
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            let uncopied = flags.split_ascii_whitespace().any(|flag| flag == "dc");
            found.extend(last.take().filter(|_| uncopied));
        } else if !line.split(' ').next().is_some_and(|word| word.ends_with(':')) {
            last = UnmappedRange::parse(line);
        }
    }
    found
}

/// The supervisor's places in this process.
///
/// # Errors
/// When this process may not look at itself.
pub fn places() -> io::Result<Vec<UnmappedRange>> {
    Ok(foreign_places(&fs::read_to_string("/proc/self/smaps")?))
}

/// What the descriptors of this program are: nobody gains them from a thread that came with copies.
pub fn own_descriptors() -> Vec<String> {
    let all = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    all.filter_map(|fd| Some(fs::read_link(fd.path()).ok()?.display().to_string())).collect()
}

/// The threads of a process.
pub fn tasks(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// The supervisor's threads in this process.
pub fn threads() -> Vec<i32> {
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let foreign = |task: fs::DirEntry| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        let number = task.file_name().to_str()?.parse().ok()?;
        FOREIGN.contains(&name.trim_end()).then_some(number)
    };
    tasks.filter_map(foreign).collect()
}

/// A descriptor that was taken from a thread.
#[derive(Debug)]
pub struct Loot {
    /// The copy.
    pub fd: OwnedFd,
    /// What it is: the target of its link.
    pub what: String,
}

impl Loot {
    /// What a descriptor of ours is.
    pub fn of(fd: OwnedFd) -> Loot {
        let link = fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        let what = link.map(|link| link.display().to_string()).unwrap_or_default();
        Loot { fd, what }
    }

    /// The right that it carries and that no program has, if it carries one.
    pub fn right(&self) -> Option<String> {
        let seals = sys::seals(self.fd.as_fd()).ok();
        right(&self.what, sys::is_writable(self.fd.as_fd()), seals)
    }
}

/// The right that a descriptor carries: what it links to, whether it may be written through, and the
/// seals of its object.
fn right(what: &str, writable: bool, seals: Option<i32>) -> Option<String> {
    const SIZE: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
    let anonymous = what.starts_with("socket:") || what.starts_with("anon_inode:");
    let own_maps =
        what.starts_with("/proc/") && (what.ends_with("/smaps") || what.ends_with("/maps"));
    match what.strip_prefix("/memfd:") {
        Some(name) if writable && seals.is_none_or(|s| s & SIZE != SIZE) => {
            Some(format!("the size of {name}"))
        }
        Some(name) if writable && !name.starts_with("huepage-agent") => {
            Some(format!("writing to {name}"))
        }
        Some(_) => None,
        None if anonymous || own_maps || what.is_empty() || what == "/dev/null" => None,
        None => Some(format!("{what} (writable: {writable})")),
    }
}

/// Copies of all descriptors of a thread.
pub fn loot(thread: i32) -> Vec<Loot> {
    (0..NUMBERS).filter_map(|number| sys::steal(thread, number).ok()).map(Loot::of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0 \nSize: 8 kB\nVmFlags: rd wr mr mw me ac\n\
5000-6000 r-xp 00000000 00:00 0 \nSize: 4 kB\nVmFlags: rd ex mr mw me dc\n\
8000-9000 rw-s 00000000 00:01 7 /memfd:huepage-agent (deleted)\nVmFlags: rd wr sh dc dd\n";

    #[test]
    fn places_that_no_child_inherits_are_foreign() {
        let found = foreign_places(SMAPS);
        assert_eq!(found.len(), 2);
        assert!(found[0].is_code() && !found[0].is_shared() && found[0].start == 0x5000);
        assert!(found[1].is_shared() && found[1].name.contains("huepage-agent"));
    }

    #[test]
    fn rights_are_told_from_the_rest() {
        let sealed = Some(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW);
        assert_eq!(right("anon_inode:[userfaultfd]", true, None), None);
        assert_eq!(right("/proc/7/smaps", false, None), None);
        assert_eq!(right("/memfd:huepage-agent (deleted)", true, sealed), None);
        assert!(right("/memfd:huepage-agent (deleted)", true, Some(0)).is_some());
        assert_eq!(right("/memfd:reference (deleted)", false, Some(0)), None);
        assert!(right("/memfd:reference (deleted)", true, sealed).is_some());
        assert!(right("/dev/userfaultfd", true, None).is_some());
        assert!(right("/proc/7/pagemap", false, None).is_some());
    }

    #[test]
    fn a_stolen_descriptor_is_the_thread_s() {
        let file = tempfile::tempfile().unwrap();
        let copy = sys::steal(sys::own_thread(), file.as_raw_fd()).map(Loot::of).unwrap();
        assert!(copy.right().is_some(), "a writable file of somebody's: {copy:?}");
    }
}
