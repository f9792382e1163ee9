//! How much memory the stock of frames may take: a small share of all, of what is available, and of what the own control group may still take. Reads `/proc` and the control
//! group's files; takes and frees nothing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::kernel::procfs::ProcRoot;

/// The share of all memory that the stock may be: 0.8 %, as one part of this many.
const PARTS_OF_ALL_MEMORY: u64 = 125;
/// The share of what is available: free, or cached files that the kernel would give up. A machine
/// that has run for a while has next to nothing that is free.
const PARTS_OF_AVAILABLE_MEMORY: u64 = 8;

/// The bound of the stock in bytes: `asked`, or 0.8 % of all memory; never more than [`spare`].
pub fn bound(root: &ProcRoot, cgroups: &Path, asked: Option<u64>) -> u64 {
    let text = fs::read_to_string(root.0.join("meminfo")).unwrap_or_default();
    let all = kib(&text, "MemTotal:").unwrap_or(0) * 1024;
    asked.unwrap_or(all / PARTS_OF_ALL_MEMORY).min(spare(root, cgroups))
}

/// What may be taken for a while, in bytes: an eighth of what is available to the machine and to
/// the control group of this process.
pub fn spare(root: &ProcRoot, cgroups: &Path) -> u64 {
    let text = fs::read_to_string(root.0.join("meminfo")).unwrap_or_default();
    let available = kib(&text, "MemAvailable:").unwrap_or(0) * 1024;
    available.min(headroom(root, cgroups).unwrap_or(u64::MAX)) / PARTS_OF_AVAILABLE_MEMORY
}

fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// What the control groups of this process allow on top of what they use, in bytes; `None` where
/// nothing is limited.
fn headroom(root: &ProcRoot, mount: &Path) -> Option<u64> {
    let own = fs::read_to_string(root.0.join("self/cgroup")).ok()?;
    own.lines().filter_map(|line| hierarchy(line, mount)).flat_map(|dir| above(&dir, mount)).min()
}

/// The directory that a line of `/proc/self/cgroup` names, if it limits memory.
fn hierarchy(line: &str, mount: &Path) -> Option<PathBuf> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let path = path.trim_start_matches('/');
    match controllers {
        "" if mount.join("unified").is_dir() => Some(mount.join("unified").join(path)),
        "" => Some(mount.join(path)),
        _ if controllers.split(',').any(|c| c == "memory") => Some(mount.join("memory").join(path)),
        _ => None,
    }
}

/// What is left in a group and in those above it.
fn above(directory: &Path, mount: &Path) -> Vec<u64> {
    let groups = directory.ancestors().take_while(|dir| dir.starts_with(mount));
    groups.filter_map(left).collect()
}

/// What is left in one group, of version 2 or 1.
fn left(directory: &Path) -> Option<u64> {
    let number = |name: &str| -> Option<u64> {
        fs::read_to_string(directory.join(name)).ok()?.trim().parse().ok()
    };
    let limits = ["memory.max", "memory.high", "memory.limit_in_bytes"];
    let limit = limits.iter().filter_map(|name| number(name)).min()?;
    let used = number("memory.current").or_else(|| number("memory.usage_in_bytes"))?;
    // Cached files that nobody has used again make room for what comes.
    let text = fs::read_to_string(directory.join("memory.stat")).unwrap_or_default();
    let mut idle = text.lines().filter_map(|line| line.split_once(' '));
    let idle = idle.find(|(name, _)| name.trim_start_matches("total_") == "inactive_file");
    let idle = idle.and_then(|(_, bytes)| bytes.trim().parse::<u64>().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(idle)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in all {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    const MEMORY: &str = "MemTotal:  1000000 kB\nMemAvailable:  400000 kB\n";

    #[test]
    fn the_bound_is_a_small_share_of_all_and_of_what_is_free() {
        let dir = files(&[("meminfo", MEMORY)]);
        let root = ProcRoot(dir.path().into());
        assert_eq!(bound(&root, dir.path(), None), 1_000_000 * 1024 / 125);
        assert_eq!(bound(&root, dir.path(), Some(4096)), 4096);
        assert_eq!(bound(&root, dir.path(), Some(u64::MAX)), 50_000 * 1024);
    }

    #[test]
    fn cached_files_make_room_where_next_to_nothing_is_free() {
        let full = "MemTotal:  1000000 kB\nMemFree:  8000 kB\nMemAvailable: 968000 kB\n";
        let dir = files(&[("meminfo", full)]);
        let root = ProcRoot(dir.path().into());
        assert_eq!(spare(&root, dir.path()), 968_000 / 8 * 1024);
        assert_eq!(bound(&root, dir.path(), None), 1_000_000 * 1024 / 125);
    }

    #[test]
    fn a_control_group_bounds_it_in_either_version() {
        let two = files(&[
            ("proc/meminfo", MEMORY),
            ("proc/self/cgroup", "0::/web/one\n"),
            ("cg/web/memory.max", "9000000"),
            ("cg/web/memory.current", "1000000"),
            ("cg/web/memory.stat", "anon 5\ninactive_file 80000\nactive_file 7\n"),
            ("cg/web/one/memory.max", "max"),
            ("cg/web/one/memory.current", "500000"),
        ]);
        let root = ProcRoot(two.path().join("proc"));
        assert_eq!(bound(&root, &two.path().join("cg"), None), 1_010_000);
        let one = files(&[
            ("proc/meminfo", MEMORY),
            ("proc/self/cgroup", "4:memory:/web\n1:name=systemd:/x\n"),
            ("cg/memory/web/memory.limit_in_bytes", "800"),
            ("cg/memory/web/memory.usage_in_bytes", "900"),
        ]);
        let root = ProcRoot(one.path().join("proc"));
        assert_eq!(bound(&root, &one.path().join("cg"), None), 0);
    }
}
