//! Which processes are in a control group, of version 2 or 1. Groups are found by path or by
//! name below the mount point; nothing is created or changed.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::kernel::procfs::{ProcRoot, ProcessHandle};

/// Where control groups are mounted.
pub const MOUNT: &str = "/sys/fs/cgroup";
/// The file that lists the processes of a group, in both versions.
const PROCESSES: &str = "cgroup.procs";
/// Hierarchies of version 1 that are asked first: those that service managers use for all.
const FIRST: [&str; 4] = ["unified", "systemd", "memory", "cpu"];

/// Why a control group cannot be watched.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// There is none of that name.
    #[error("no control group {name} below {}; see `systemd-cgls`, or give its directory", .mount.display())]
    Absent {
        /// As given.
        name: String,
        /// Where it was looked for.
        mount: PathBuf,
    },
    /// The root of a hierarchy.
    #[error("`{0}` is the control group of every process; name one below it")]
    Whole(String),
    /// It is there and cannot be read.
    #[error("cannot read {}: {source}; run huepage as root", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
}

/// A control group and those below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    directory: PathBuf,
}

impl Cgroup {
    /// Finds a group: a directory (absolute path), or a name below `mount` (version 2) or below
    /// one of its hierarchies (version 1; the first that has it).
    ///
    /// # Errors
    /// When there is none, or it is the root of a hierarchy.
    pub fn find(name: &str, mount: &Path) -> Result<Cgroup, CgroupError> {
        let relative = name.trim_start_matches('/');
        if relative.is_empty() {
            return Err(CgroupError::Whole(name.to_owned()));
        }
        let own = name.starts_with('/').then(|| PathBuf::from(name));
        let below = [mount.join(relative)].into_iter();
        let hierarchies = hierarchies(mount).into_iter().map(|dir| dir.join(relative));
        let mut all = own.into_iter().chain(below).chain(hierarchies);
        let found = all.find(|directory| directory.join(PROCESSES).is_file());
        let absent = || CgroupError::Absent { name: name.to_owned(), mount: mount.to_owned() };
        let directory = found.ok_or_else(absent)?;
        if is_root(&directory, mount) {
            return Err(CgroupError::Whole(name.to_owned()));
        }
        Ok(Cgroup { directory })
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Pids of its processes and of those in groups below it, ascending. A group that is gone
    /// has none; one read per group.
    ///
    /// # Errors
    /// When a list cannot be read.
    pub fn processes(&self) -> Result<Vec<i32>, CgroupError> {
        let (mut pids, mut left) = (Vec::new(), vec![self.directory.clone()]);
        while let Some(directory) = left.pop() {
            pids.extend(listed(&directory)?);
            let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
            let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            left.extend(folders.map(|entry| entry.path()));
        }
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    /// The same processes, each held, of those that are wanted: they were in the group after they were
    /// held, so that none only has the number of one that was.
    ///
    /// # Errors
    /// When a list cannot be read.
    pub fn hold(
        &self,
        root: &ProcRoot,
        wanted: impl Fn(i32) -> bool,
    ) -> Result<Vec<ProcessHandle>, CgroupError> {
        let listed = self.processes()?.into_iter().filter(|&pid| wanted(pid));
        let mut held: Vec<_> =
            listed.filter_map(|pid| ProcessHandle::open(root, pid).ok()).collect();
        let listed = self.processes()?;
        held.retain(|one| listed.binary_search(&one.pid()).is_ok() && one.is_alive());
        Ok(held)
    }
}

/// Whether a directory is that of every process: the mount point of version 2, or of a hierarchy of
/// version 1, where the mount point itself has no list.
fn is_root(directory: &Path, mount: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (directory, mount) = (real(directory), real(mount));
    let version_1 = !mount.join(PROCESSES).is_file();
    directory == mount || version_1 && directory.parent() == Some(&*mount)
}

/// Directories below the mount point, the likely ones first.
fn hierarchies(mount: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(mount).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|p| p.is_dir()).collect();
    let rank = |path: &PathBuf| FIRST.iter().position(|name| path.ends_with(name));
    all.sort_by_key(|path| (rank(path).unwrap_or(FIRST.len()), path.clone()));
    all
}

/// A threaded group of version 2 lists its processes at the root of its domain (EOPNOTSUPP here).
fn listed(directory: &Path) -> Result<Vec<i32>, CgroupError> {
    let path = directory.join(PROCESSES);
    match fs::read_to_string(&path) {
        // Zero stands for a process of another pid namespace.
        Ok(text) => Ok(text.lines().filter_map(|l| l.parse().ok()).filter(|&p| p > 0).collect()),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) if [Some(libc::ENODEV), Some(libc::EOPNOTSUPP)].contains(&e.raw_os_error()) => {
            Ok(Vec::new())
        }
        Err(source) => Err(CgroupError::Io { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(groups: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, pids) in groups {
            let group = dir.path().join(path);
            fs::create_dir_all(&group).unwrap();
            fs::write(group.join(PROCESSES), pids).unwrap();
        }
        dir
    }

    #[test]
    fn version_2_lists_a_group_and_those_below() {
        let dir = mount(&[("", "1\n"), ("web", "30\n7\n0\n"), ("web/worker", "8\n30\n")]);
        let web = Cgroup::find("web", dir.path()).unwrap();
        assert_eq!(web.processes().unwrap(), [7, 8, 30]);
        assert_eq!(Cgroup::find("/web/worker", dir.path()).unwrap().processes().unwrap(), [8, 30]);
        let own = dir.path().join("web");
        assert_eq!(Cgroup::find(own.to_str().unwrap(), Path::new("/nowhere")).unwrap(), web);
    }

    #[test]
    fn those_that_are_held_are_wanted_in_the_group_and_alive() {
        let own = std::process::id().cast_signed();
        let dir = mount(&[("", "1\n"), ("web", &format!("{own}\n{}\n", i32::MAX))]);
        let web = Cgroup::find("web", dir.path()).unwrap();
        let root = ProcRoot::default();
        let held = web.hold(&root, |_| true).unwrap();
        assert_eq!(held.iter().map(ProcessHandle::pid).collect::<Vec<_>>(), [own]);
        assert!(web.hold(&root, |pid| pid != own).unwrap().is_empty());
    }

    #[test]
    fn version_1_is_found_in_a_hierarchy() {
        let dir = mount(&[("blkio/web", "1\n"), ("memory/web", "5\n"), ("memory", "1\n")]);
        let web = Cgroup::find("web", dir.path()).unwrap();
        assert!(web.directory().ends_with("memory/web"));
        assert_eq!(web.processes().unwrap(), [5]);
    }

    #[test]
    fn the_group_of_every_process_is_refused() {
        let two = mount(&[("", "1\n"), ("web", "7\n")]);
        let one = mount(&[("memory", "1\n"), ("memory/web", "7\n")]);
        let root = two.path().to_str().unwrap();
        for (name, dir) in [
            ("", &two),
            ("/", &two),
            ("//", &one),
            ("web/..", &two),
            (root, &two),
            ("memory", &one),
        ] {
            let error = Cgroup::find(name, dir.path()).unwrap_err();
            assert!(matches!(error, CgroupError::Whole(_)), "{name}: {error}");
        }
        assert!(Cgroup::find("web", two.path()).is_ok() && Cgroup::find("web", one.path()).is_ok());
    }

    #[test]
    fn a_group_that_is_not_there_is_told_and_one_that_went_is_empty() {
        let dir = mount(&[("", "1\n"), ("web", "5\n")]);
        let error = Cgroup::find("wep", dir.path()).unwrap_err().to_string();
        assert!(error.contains("wep") && error.contains("systemd-cgls"), "{error}");
        let web = Cgroup::find("web", dir.path()).unwrap();
        fs::remove_dir_all(web.directory()).unwrap();
        assert_eq!(web.processes().unwrap(), [] as [i32; 0]);
    }
}
