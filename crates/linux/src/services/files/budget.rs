//! How much memory the stock of frames may take: a small share of all, of what is available to the
//! machine and on the memory node that it comes from, and of what the own control group may still
//! take. Reads `/proc`, the node's file and the control group's files; takes and frees nothing.

use std::fs;
use std::path::{Path, PathBuf};

use crate::kernel::cgroup::MOUNT;
use crate::kernel::machine::SysRoot;
use crate::kernel::procfs::ProcRoot;

/// The share of all memory that the stock may be: 0.8 %, as one part of this many.
const PARTS_OF_ALL_MEMORY: u64 = 125;
/// The share of what is available: free, or cached files that the kernel would give up. A machine
/// that has run for a while has next to nothing that is free.
const PARTS_OF_AVAILABLE_MEMORY: u64 = 8;

/// Where it is read how much memory there is.
#[derive(Clone, Debug)]
pub struct Budget {
    root: ProcRoot,
    cgroups: PathBuf,
    /// What the kernel says of the memory node.
    node: PathBuf,
}

impl Budget {
    /// For frames of a memory node of this machine.
    pub fn of_node(node: usize) -> Budget {
        let node = SysRoot::default().path(format!("devices/system/node/node{node}/meminfo"));
        Budget { root: ProcRoot::default(), cgroups: MOUNT.into(), node }
    }

    /// The bound of the stock in bytes: `asked`, or 0.8 % of all memory; never more than
    /// [`Self::spare`].
    pub fn bound(&self, asked: Option<u64>) -> u64 {
        let text = fs::read_to_string(self.root.0.join("meminfo")).unwrap_or_default();
        let all = bytes(&text, "MemTotal:").unwrap_or(0);
        asked.unwrap_or(all / PARTS_OF_ALL_MEMORY).min(self.spare())
    }

    /// What may be taken for a while, in bytes: an eighth of what is available to the machine, on the
    /// node, and to the control group of this process.
    pub fn spare(&self) -> u64 {
        let text = fs::read_to_string(self.root.0.join("meminfo")).unwrap_or_default();
        let available = bytes(&text, "MemAvailable:").unwrap_or(0);
        let node = fs::read_to_string(&self.node).ok().and_then(|text| left_on_node(&text));
        let group = headroom(&self.root, &self.cgroups);
        let least = [node, group].into_iter().flatten().fold(available, u64::min);
        least / PARTS_OF_AVAILABLE_MEMORY
    }
}

/// What is free on a memory node, or cached files that nobody has used again, in bytes.
fn left_on_node(text: &str) -> Option<u64> {
    Some(bytes(text, "MemFree:")? + bytes(text, "Inactive(file):").unwrap_or(0))
}

/// A figure of a list in KiB, whose lines may begin with the number of a node.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let words = |line: &str| -> Option<u64> {
        let mut words = line.split_whitespace().skip_while(|word| *word != name).skip(1);
        Some(words.next()?.parse::<u64>().ok()? * 1024)
    };
    text.lines().find_map(words)
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

    /// With the node and the control groups of a made-up machine.
    fn budget(dir: &Path, root: &str) -> Budget {
        let root = ProcRoot(dir.join(root));
        Budget { root, cgroups: dir.join("cg"), node: dir.join("node0/meminfo") }
    }

    const MEMORY: &str = "MemTotal:  1000000 kB\nMemAvailable:  400000 kB\n";

    #[test]
    fn the_bound_is_a_small_share_of_all_and_of_what_is_free() {
        let dir = files(&[("meminfo", MEMORY)]);
        let budget = budget(dir.path(), "");
        assert_eq!(budget.bound(None), 1_000_000 * 1024 / 125);
        assert_eq!(budget.bound(Some(4096)), 4096);
        assert_eq!(budget.bound(Some(u64::MAX)), 50_000 * 1024);
    }

    #[test]
    fn cached_files_make_room_where_next_to_nothing_is_free() {
        let full = "MemTotal:  1000000 kB\nMemFree:  8000 kB\nMemAvailable: 968000 kB\n";
        let dir = files(&[("meminfo", full)]);
        let budget = budget(dir.path(), "");
        assert_eq!(budget.spare(), 968_000 / 8 * 1024);
        assert_eq!(budget.bound(None), 1_000_000 * 1024 / 125);
    }

    #[test]
    fn a_node_with_little_bounds_it_on_a_machine_with_much() {
        let node = "Node 0 MemTotal:  500000 kB\nNode 0 MemFree:  6000 kB\nNode 0 MemUsed: 9 kB\n\
                    Node 0 Inactive:  7000 kB\nNode 0 Inactive(file):  2000 kB\n";
        let dir = files(&[("meminfo", MEMORY), ("node0/meminfo", node)]);
        assert_eq!(budget(dir.path(), "").spare(), 1000 * 1024);
        let dir = files(&[("meminfo", MEMORY), ("node0/meminfo", "nothing of the kind")]);
        assert_eq!(budget(dir.path(), "").spare(), 50_000 * 1024);
    }

    #[test]
    fn the_node_of_this_machine_is_read() {
        let budget = Budget::of_node(crate::kernel::cpus::node_of(0));
        match fs::read_to_string(&budget.node) {
            Ok(text) => assert!(left_on_node(&text).is_some(), "{text}"),
            Err(_) => assert!(!Path::new("/sys/devices/system/node/node0").exists()),
        }
        assert!(budget.bound(Some(4096)) <= 4096);
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
        assert_eq!(budget(two.path(), "proc").bound(None), 1_010_000);
        let one = files(&[
            ("proc/meminfo", MEMORY),
            ("proc/self/cgroup", "4:memory:/web\n1:name=systemd:/x\n"),
            ("cg/memory/web/memory.limit_in_bytes", "800"),
            ("cg/memory/web/memory.usage_in_bytes", "900"),
        ]);
        assert_eq!(budget(one.path(), "proc").bound(None), 0);
    }
}
