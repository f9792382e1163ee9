//! What a process has in memory, and how much of it in large pages, as `smaps_rollup` tells; and
//! the CPU time that a process has used. Read from outside, by nobody's account but the kernel's.

use std::fs;
use std::io;
use std::path::Path;

/// The memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Resident and anonymous, in KiB. What is resident of files hangs on what others have read: a quarter of
    /// a small program, and no superpage changes it.
    pub anonymous_kib: u64,
    /// Of these, anonymous and in pages of 2 MiB.
    pub huge_kib: u64,
}

impl MemoryUse {
    /// That of a process.
    ///
    /// # Errors
    /// When it is gone or not ours to look at.
    pub fn of(pid: u32) -> io::Result<MemoryUse> {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        MemoryUse::parse(&text).ok_or_else(|| io::Error::other(format!("smaps_rollup of {pid}")))
    }

    /// MiB in pages of 2 MiB.
    pub fn huge_mib(&self) -> f64 {
        self.huge_kib as f64 / 1024.0
    }

    fn parse(text: &str) -> Option<MemoryUse> {
        let anonymous_kib = field(text, "Anonymous:")?;
        Some(MemoryUse { anonymous_kib, huge_kib: field(text, "AnonHugePages:")? })
    }
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Seconds of CPU, user and system, of a process.
pub fn cpu_seconds(pid: u32) -> Option<f64> {
    cpu_of(&fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?)
}

fn cpu_of(stat: &str) -> Option<f64> {
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<u32>().ok();
    // A tick is 10 ms for whoever looks from user space.
    Some(f64::from(ticks(11)? + ticks(12)?) / 100.0)
}

/// MiB that are free or can be made so.
pub fn available_mib() -> Option<u64> {
    Some(field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")? >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollup_is_read() {
        let text = "55d0-7ffd ---p 00000000 00:00 0    [rollup]\nRss:    2050000 kB\n\
                    Pss:  1 kB\nAnonymous:   2048444 kB\nAnonHugePages:    1048576 kB\n";
        let memory = MemoryUse { anonymous_kib: 2_048_444, huge_kib: 1_048_576 };
        assert_eq!(MemoryUse::parse(text), Some(memory));
        assert_eq!(MemoryUse::parse("Anonymous: 4 kB\n"), None);
        assert!(MemoryUse::of(std::process::id()).unwrap().anonymous_kib > 100);
    }

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "12 (a) b) S 1 12 12 0 -1 4194560 100 0 0 0 250 50 7 7 20 0 1 0 5 6 7";
        assert_eq!(cpu_of(stat), Some(3.0));
        assert_eq!(cpu_of("nonsense"), None);
        assert!(cpu_seconds(std::process::id()).is_some() && available_mib() > Some(0));
    }
}
