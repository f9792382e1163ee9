//! What of a process must be as before when somebody who wanted to confine it could not.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Lines of a thread's `status` that belong to whoever runs it.
const KEPT: [&str; 14] = [
    "Name",
    "Uid",
    "Gid",
    "Groups",
    "SigBlk",
    "SigIgn",
    "SigCgt",
    "Shd",
    "Cap",
    "NoNew",
    "Seccomp",
    "THP",
    "Threads",
    "Cpus_allowed",
];

/// Maps, limits, descriptors and threads of a process, by name, with `root` for `/proc`.
///
/// # Errors
/// When the process is gone or may not be read.
pub fn of(root: &Path, pid: u32) -> io::Result<BTreeMap<String, String>> {
    let dir = root.join(pid.to_string());
    let mut all = BTreeMap::new();
    for file in ["maps", "limits", "timerslack_ns", "coredump_filter"] {
        all.insert(file.to_owned(), fs::read_to_string(dir.join(file))?);
    }
    for fd in fs::read_dir(dir.join("fd"))? {
        let fd = fd?;
        if let Some(link) = unless_gone(fs::read_link(fd.path()))? {
            all.insert(format!("fd {}", fd.file_name().display()), link.display().to_string());
        }
    }
    for task in fs::read_dir(dir.join("task"))? {
        let task = task?;
        let Some(status) = unless_gone(fs::read_to_string(task.path().join("status")))? else {
            continue;
        };
        let kept = status.lines().filter(|line| KEPT.iter().any(|name| line.starts_with(name)));
        let kept: Vec<&str> = kept.collect();
        all.insert(format!("thread {}", task.file_name().display()), kept.join("\n"));
    }
    Ok(all)
}

/// What was read of a descriptor or a thread; nothing of one that has gone since it was listed.
fn unless_gone<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What differs between two states, by name.
pub fn difference(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
) -> Vec<String> {
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    names.filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_a_new_and_a_lost_thing_differ() {
        let state = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let before = state(&[("maps", "a"), ("fd 3", "x"), ("limits", "l")]);
        let after = state(&[("maps", "b"), ("thread 9", "y"), ("limits", "l")]);
        assert_eq!(difference(&before, &after), ["fd 3", "maps", "thread 9"]);
        assert!(difference(&before, &before).is_empty());
    }

    #[test]
    fn our_own_state_has_threads_maps_and_descriptors() {
        let state = of(Path::new("/proc"), std::process::id()).unwrap();
        assert!(state.contains_key("maps") && state.contains_key("fd 0"));
        assert!(state.keys().any(|name| name.starts_with("thread ")));
    }
}
