//! How much memory a process may still take: what the tightest of its memory control groups, of version 2 or 1,
//! leaves. Frames that are gathered for a process count as its memory, and the kernel kills in a group that is
//! full, so that nothing is gathered beyond this. Swap is no room: what goes there are pages of the program's,
//! and a group that swaps is close to being killed in. Nothing is created or changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use huepage_color::PAGE_BYTES;

use crate::kernel::procfs::ProcRoot;

/// The part of a limit that is left to the programs of a group: they may take it while frames are gathered.
const RESERVED_PART: u64 = 16;
/// A process may be put into other groups, and limits may be set.
const LIMITS_VALID_FOR: Duration = Duration::from_secs(2);
/// Limits of version 1 above this are none.
const NO_LIMIT_BYTES: u64 = 1 << 60;

/// A limited group: its directory, and whether it is of version 1.
type Limited = (PathBuf, bool);

/// Bytes that the machine can give before it swaps, as the kernel estimates; `None` if it does not tell.
pub fn available_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Bytes that are left to others of so many that are available: a quarter, and 4 GiB at most.
pub(crate) const fn spare_bytes(available: u64) -> u64 {
    const MOST: u64 = 4 << 30;
    if available / 4 < MOST { available / 4 } else { MOST }
}

/// Bytes of addresses that a process may still map; `None` where that is not limited, or not told.
pub(crate) fn addresses_left(root: &ProcRoot, pid: i32) -> Option<u64> {
    let dir = root.0.join(pid.to_string());
    let limit = field(&dir.join("limits"), "Max address space")?;
    let mapped: u64 =
        fs::read_to_string(dir.join("statm")).ok()?.split(' ').next()?.parse().ok()?;
    Some(limit.saturating_sub(mapped * PAGE_BYTES))
}

/// Bytes that a process may still lock in memory; `None` where that is not limited, or not told.
pub(crate) fn locks_left(root: &ProcRoot, pid: i32) -> Option<u64> {
    const IPC_LOCK: u64 = 1 << 14;
    if root.status(pid).ok()?.capabilities & IPC_LOCK != 0 {
        return None;
    }
    let dir = root.0.join(pid.to_string());
    let limit = field(&dir.join("limits"), "Max locked memory")?;
    let locked = field(&dir.join("status"), "VmLck:")?;
    Some(limit.saturating_sub(locked << 10))
}

/// The room of one process.
#[derive(Clone, Debug)]
pub struct MemoryRoom {
    root: ProcRoot,
    mount: PathBuf,
    pid: i32,
    limited: Vec<Limited>,
    looked: Option<Instant>,
}

impl MemoryRoom {
    /// That of a process whose groups are mounted below `mount`.
    pub fn new(root: ProcRoot, mount: &Path, pid: i32) -> MemoryRoom {
        MemoryRoom { root, mount: mount.to_owned(), pid, limited: Vec::new(), looked: None }
    }

    /// Bytes that may be taken now; `None` where nothing is limited. A few reads of small files where
    /// there is a limit, else one look every two seconds.
    pub fn left(&mut self) -> Option<u64> {
        if self.looked.is_none_or(|at| at.elapsed() >= LIMITS_VALID_FOR) {
            self.limited = self.find();
            self.looked = Some(Instant::now());
        }
        self.limited.iter().filter_map(left_in).min()
    }

    /// Whether there was a limit at the last look.
    pub fn is_limited(&self) -> bool {
        !self.limited.is_empty()
    }

    /// The groups of the process, with those above them, that have a limit.
    fn find(&self) -> Vec<Limited> {
        let paths = self.root.cgroups(self.pid).unwrap_or_default();
        let mut found = Vec::new();
        for path in paths {
            let own = self.mount.join(path.trim_start_matches('/'));
            let above = own.ancestors().take_while(|dir| dir.starts_with(&self.mount));
            let limited = above.filter_map(|dir| {
                let version_1 = dir.join("memory.limit_in_bytes").exists();
                let group = (dir.to_owned(), version_1);
                limit(&group).map(|_| group)
            });
            found.extend(limited);
        }
        found.sort();
        found.dedup();
        found
    }
}

fn number(dir: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(dir.join(file)).ok()?.trim().parse().ok()
}

/// The number behind a word at the beginning of a line.
fn field(path: &Path, word: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let value = |line: &str| line.strip_prefix(word)?.split_whitespace().next()?.parse().ok();
    text.lines().find_map(value)
}

fn limit((dir, version_1): &Limited) -> Option<u64> {
    let file = if *version_1 { "memory.limit_in_bytes" } else { "memory.max" };
    number(dir, file).filter(|&bytes| bytes < NO_LIMIT_BYTES)
}

/// What a group leaves, if it has a limit still. Pages of files that nobody used lately count as free.
fn left_in(group: &Limited) -> Option<u64> {
    let (dir, version_1) = group;
    let limit = limit(group)?;
    let [usage, inactive] = if *version_1 {
        ["memory.usage_in_bytes", "total_inactive_file "]
    } else {
        ["memory.current", "inactive_file "]
    };
    let inactive = field(&dir.join("memory.stat"), inactive).unwrap_or(0);
    let used = number(dir, usage)?.saturating_sub(inactive);
    Some(limit.saturating_sub(used).saturating_sub(limit / RESERVED_PART))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::Fake;

    const MIB: u64 = 1 << 20;

    /// A made-up `/proc` of process 7 and a made-up mount of control groups.
    fn world(cgroup: &str, files: &[(&str, u64)]) -> (Fake, MemoryRoom) {
        let fake = Fake::new();
        fake.put("7/cgroup", cgroup);
        for (path, value) in files {
            fake.put(&format!("mount/{path}"), format!("{value}\n"));
        }
        let mount = fake.root.0.join("mount");
        let room = MemoryRoom::new(fake.root.clone(), &mount, 7);
        (fake, room)
    }

    #[test]
    fn what_a_limit_of_addresses_leaves() {
        let fake = Fake::new();
        let limits = |soft: &str| {
            let heads = "Limit                     Soft Limit           Hard Limit           Units";
            fake.put("7/limits", format!("{heads}\nMax address space  {soft}  unlimited  bytes\n"));
        };
        fake.put("7/statm", "256 9 9 1 0 9 0\n");
        limits("unlimited");
        assert_eq!(addresses_left(&fake.root, 7), None);
        limits("3145728");
        assert_eq!(addresses_left(&fake.root, 7), Some(2 * MIB));
        assert_eq!(addresses_left(&fake.root, 8), None, "it is gone");
    }

    #[test]
    fn what_a_limit_of_locked_memory_leaves() {
        let fake = Fake::new();
        let status = |caps: u64| {
            let base = "Name:\tx\nState:\tR (running)\nTgid:\t7\nPPid:\t1\n";
            fake.put("7/status", format!("{base}VmLck:\t1024 kB\nCapEff:\t{caps:016x}\n"));
        };
        fake.put("7/limits", "Max locked memory  3145728  8388608  bytes\n");
        status(0);
        assert_eq!(locks_left(&fake.root, 7), Some(2 * MIB));
        status(1 << 14);
        assert_eq!(locks_left(&fake.root, 7), None);
        assert_eq!(locks_left(&fake.root, 8), None, "it is gone");
    }

    #[test]
    fn the_tightest_group_of_version_2_counts() {
        let files = [
            ("web/memory.max", 64 * MIB),
            ("web/memory.current", 32 * MIB),
            ("web/db/memory.max", 1024 * MIB),
            ("web/db/memory.current", 16 * MIB),
        ];
        let (fake, mut room) = world("0::/web/db\n", &files);
        assert_eq!(room.left(), Some(28 * MIB));
        fake.put("mount/web/memory.stat", format!("anon 5\ninactive_file {}\n", 8 * MIB));
        assert_eq!(room.left(), Some(36 * MIB), "files that nobody used lately");
        fake.put("mount/web/memory.current", (70 * MIB).to_string());
        assert_eq!(room.left(), Some(0));
    }

    #[test]
    fn version_1_has_its_own_files_and_no_limit_is_a_large_one() {
        let files = [
            ("memory/web/memory.limit_in_bytes", 160 * MIB),
            ("memory/web/memory.usage_in_bytes", 100 * MIB),
            ("memory/memory.limit_in_bytes", u64::MAX / 2),
        ];
        let (_fake, mut room) = world("4:memory:/web\n0::/\n", &files);
        assert_eq!(room.left(), Some(50 * MIB));
        let (_fake, mut room) = world("4:memory:/\n0::/\n", &files);
        assert_eq!(room.left(), None);
    }
}
