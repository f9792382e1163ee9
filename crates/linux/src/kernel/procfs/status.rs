//! Who a process is and what it is doing: `status`, `stat`, `statm`, threads, descendants.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use super::{ProcError, ProcRoot, printable};

/// What descriptors of userfaultfds are links to.
const USERFAULTFD: &str = "anon_inode:[userfaultfd]";

/// The lines of `/proc/<pid>/status` that huepage needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStatus {
    /// Command name, at most 15 bytes; control characters are escaped.
    pub name: String,
    /// State letter: R, S, D, T, t, Z, X, I.
    pub state: char,
    /// Process (thread group) id.
    pub tgid: i32,
    /// Parent's pid; 0 for the first process.
    pub ppid: i32,
    /// Pid of the tracer; 0 if none.
    pub tracer: i32,
    /// Effective user.
    pub uid: u32,
    /// Real user.
    pub real_uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Number of threads.
    pub threads: u32,
    /// Resident memory in KiB; 0 for a kernel thread or a zombie.
    pub rss_kib: u64,
    /// Capabilities that it has in any set but the bounding one: inheritable, permitted, effective,
    /// ambient.
    pub capabilities: u64,
    /// Privileges can no longer be gained by executing a program.
    pub no_new_privs: bool,
    /// 0 none, 1 strict, 2 filter.
    pub seccomp: u8,
    /// How many seccomp filters the thread has, those that it inherited included.
    pub seccomp_filters: u32,
    /// Signals pending for the whole process, bit n-1 for signal n.
    pub pending: u64,
    /// Signals blocked by the thread.
    pub blocked: u64,
    /// Signals ignored.
    pub ignored: u64,
    /// Signals caught.
    pub caught: u64,
}

impl ProcessStatus {
    /// Whether the process has ended and only waits for its parent.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// The fields of `/proc/<pid>/stat` that huepage needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// State letter, as in [`ProcessStatus`].
    pub state: char,
    /// Parent's pid.
    pub ppid: i32,
    /// A thread of the kernel: it never had a program, unlike a process that is ending and has given up its memory.
    pub kernel_thread: bool,
    /// Time in user mode, in clock ticks.
    pub utime: u64,
    /// Time in the kernel, in clock ticks.
    pub stime: u64,
    /// Start, in clock ticks since boot: with the pid it names a process for good.
    pub start_time: u64,
    /// CPU it last ran on.
    pub processor: u32,
    /// It runs before all that is not real-time itself.
    pub realtime: bool,
}

impl Stat {
    /// Whether the process has ended and only waits for its parent.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// `/proc/<pid>/statm`, in base pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statm {
    /// Mapped.
    pub size: u64,
    /// Resident.
    pub resident: u64,
    /// Resident and of a file or shared memory.
    pub shared: u64,
}

impl ProcRoot {
    /// Reads `status` of a process or thread.
    pub fn status(&self, pid: i32) -> Result<ProcessStatus, ProcError> {
        let text = self.read_pid_text(pid, "status")?;
        parse_status(&text, &self.pid_path(pid, "status"))
    }

    /// Reads `stat` of a process or thread.
    pub fn stat(&self, pid: i32) -> Result<Stat, ProcError> {
        let text = self.read_pid_text(pid, "stat")?;
        let fault =
            || ProcError::malformed(&self.pid_path(pid, "stat"), "expected 39 fields or more");
        parse_stat(&text).ok_or_else(fault)
    }

    /// Reads `statm`; all zeroes for a zombie.
    pub fn statm(&self, pid: i32) -> Result<Statm, ProcError> {
        let text = self.read_pid_text(pid, "statm")?;
        let mut words = text.split_ascii_whitespace().map(str::parse);
        let mut next = || words.next()?.ok();
        let parsed = (|| Some(Statm { size: next()?, resident: next()?, shared: next()? }))();
        parsed.ok_or_else(|| ProcError::malformed(&self.pid_path(pid, "statm"), "expected numbers"))
    }

    /// Nanoseconds that the threads of a process have run: one for which they are the same has done nothing in between.
    /// `None` once it has ended. Less than a microsecond, by a clock of the kernel instead of a file, but under a
    /// root of canned ones.
    pub fn run_time(&self, pid: i32) -> Option<u64> {
        if *self != ProcRoot::default() {
            let stat = self.stat(pid).ok()?;
            return Some((stat.utime + stat.stime) * 10_000_000);
        }
        // What clock_getcpuclockid(3) gives after one more call.
        const PROCESS_RUN_TIME: libc::clockid_t = 2;
        let clock = (!pid << 3) | PROCESS_RUN_TIME;
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes to live memory of ours only.
        let failed = pid <= 0 || unsafe { libc::clock_gettime(clock, &raw mut time) != 0 };
        let seconds = u64::try_from(time.tv_sec).ok()?;
        (!failed).then_some(seconds * 1_000_000_000 + time.tv_nsec.unsigned_abs())
    }

    /// The threads of a process, ascending; the first thread's id is the pid.
    pub fn tasks(&self, pid: i32) -> Result<Vec<i32>, ProcError> {
        let path = self.pid_path(pid, "task");
        let listed = numbers_in(&path).map_err(|e| ProcError::of_pid(pid, &path, e))?;
        if listed.is_empty() { Err(ProcError::NoProcess(pid)) } else { Ok(listed) }
    }

    /// Nanoseconds that a thread of a process has run; `None` once it has ended, or where the kernel does not count.
    pub fn thread_run_time(&self, pid: i32, thread: i32) -> Option<u64> {
        let text = self.read_pid_text(pid, &format!("task/{thread}/schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse().ok()
    }

    /// How many userfaultfds a process has among its descriptors. One readlink(2) per descriptor,
    /// about a microsecond each. Those that it has inherited from another process count.
    pub fn userfaultfds(&self, pid: i32) -> Result<usize, ProcError> {
        let path = self.pid_path(pid, "fd");
        let entries = fs::read_dir(&path).map_err(|e| ProcError::of_pid(pid, &path, e))?;
        // One that is closed meanwhile does not count.
        let targets = entries.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
        Ok(targets.filter(|to| to.as_os_str() == USERFAULTFD).count())
    }

    /// All processes of the system, ascending.
    pub fn pids(&self) -> Result<Vec<i32>, ProcError> {
        numbers_in(&self.0).map_err(|e| ProcError::io(&self.0, e))
    }

    /// All descendants of a process, parents before their children; without itself.
    ///
    /// A snapshot: processes that fork or end meanwhile may be missed, and a process whose
    /// parent ended is no longer a descendant.
    pub fn children(&self, pid: i32) -> Result<Vec<i32>, ProcError> {
        if !self.process_exists(pid) {
            return Err(ProcError::NoProcess(pid));
        }
        let by_list = self.pid_path(pid, &format!("task/{pid}/children")).exists();
        let parents = if by_list { Vec::new() } else { self.parents()? };
        let (mut found, mut known) = (vec![pid], HashSet::from([pid]));
        let mut at = 0;
        while at < found.len() {
            let parent = found[at];
            let next =
                if by_list { self.listed_children(parent) } else { of_parent(&parents, parent) };
            found.extend(next.into_iter().filter(|child| *child > 0 && known.insert(*child)));
            at += 1;
        }
        found.remove(0);
        Ok(found)
    }

    /// Direct children from the lists of all threads; empty once the process is gone.
    fn listed_children(&self, pid: i32) -> Vec<i32> {
        let tasks = self.tasks(pid).unwrap_or_default();
        let list = |tid: &i32| self.read_pid_text(pid, &format!("task/{tid}/children")).ok();
        let texts = tasks.iter().filter_map(list);
        texts.flat_map(|t| numbers(t.split_ascii_whitespace())).collect()
    }

    /// (pid, parent) of every process, for kernels without `children` files.
    fn parents(&self) -> Result<Vec<(i32, i32)>, ProcError> {
        let pids = self.pids()?;
        Ok(pids.into_iter().filter_map(|p| Some((p, self.stat(p).ok()?.ppid))).collect())
    }
}

fn of_parent(parents: &[(i32, i32)], parent: i32) -> Vec<i32> {
    parents.iter().filter(|(_, p)| *p == parent).map(|(child, _)| *child).collect()
}

fn numbers<'a>(words: impl Iterator<Item = &'a str>) -> Vec<i32> {
    words.filter_map(|w| w.parse().ok()).collect()
}

fn numbers_in(directory: &Path) -> std::io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        found.extend(entry?.file_name().to_str().and_then(|n| n.parse::<i32>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

fn parse_status(text: &str, path: &Path) -> Result<ProcessStatus, ProcError> {
    let mut status = ProcessStatus { state: '?', ..ProcessStatus::default() };
    for (key, value) in text.lines().filter_map(|l| l.split_once(':')) {
        let fault = || ProcError::malformed(path, format!("expected a number after `{key}:`"));
        status.take(key, value.trim()).ok_or_else(fault)?;
    }
    if status.tgid == 0 {
        return Err(ProcError::malformed(path, "expected a line `Tgid:`"));
    }
    Ok(status)
}

impl ProcessStatus {
    fn take(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "Name" => self.name = printable(value),
            "State" => self.state = value.chars().next()?,
            "Tgid" => self.tgid = word(value, 0)?,
            "PPid" => self.ppid = word(value, 0)?,
            "TracerPid" => self.tracer = word(value, 0)?,
            "Uid" => (self.real_uid, self.uid) = (word(value, 0)?, word(value, 1)?),
            "Gid" => self.gid = word(value, 1)?,
            "Threads" => self.threads = word(value, 0)?,
            "VmRSS" => self.rss_kib = word(value, 0)?,
            "NoNewPrivs" => self.no_new_privs = value != "0",
            "CapInh" | "CapPrm" | "CapEff" | "CapAmb" => self.capabilities |= mask(value)?,
            "Seccomp" => self.seccomp = word(value, 0)?,
            "Seccomp_filters" => self.seccomp_filters = word(value, 0)?,
            "ShdPnd" => self.pending = mask(value)?,
            "SigBlk" => self.blocked = mask(value)?,
            "SigIgn" => self.ignored = mask(value)?,
            "SigCgt" => self.caught = mask(value)?,
            _ => {}
        }
        Some(())
    }
}

fn word<T: FromStr>(value: &str, n: usize) -> Option<T> {
    value.split_ascii_whitespace().nth(n)?.parse().ok()
}

fn mask(value: &str) -> Option<u64> {
    u64::from_str_radix(value, 16).ok()
}

/// Fields count from the state (field 3 in proc(5)), since the name may hold anything.
fn parse_stat(text: &str) -> Option<Stat> {
    /// In the flags of a task (`PF_KTHREAD`).
    const KERNEL_THREAD: u64 = 0x20_0000;
    /// `SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`.
    const REALTIME: [u64; 3] = [1, 2, 6];
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        ppid: fields.get(1)?.parse().ok()?,
        kernel_thread: number(9)? & KERNEL_THREAD != 0,
        utime: number(14)?,
        stime: number(15)?,
        start_time: number(22)?,
        processor: u32::try_from(number(39)?).ok()?,
        realtime: number(41).is_some_and(|class| REALTIME.contains(&class)),
    })
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, own_pid};
    use super::*;

    const STATUS: &str = "Name:\ta:b c\nState:\tt (tracing stop)\nTgid:\t41\nPid:\t41\nPPid:\t1\n\
        TracerPid:\t9\nUid:\t1000\t1001\t1000\t1000\nGid:\t7\t8\t7\t7\nGroups:\t \nVmRSS:\t    1688 kB\n\
        Threads:\t3\nShdPnd:\t0000000000000002\nSigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n\
        SigCgt:\t8000000000000000\nCapInh:\t0000000000000002\nCapPrm:\t0000000000000004\n\
        CapBnd:\t00000000000000f0\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";

    #[test]
    fn status_is_read() {
        let fake = Fake::new();
        fake.put("41/status", STATUS);
        let expected = ProcessStatus {
            name: "a:b c".into(),
            state: 't',
            tgid: 41,
            ppid: 1,
            tracer: 9,
            uid: 1001,
            real_uid: 1000,
            gid: 8,
            threads: 3,
            rss_kib: 1688,
            capabilities: 6,
            no_new_privs: true,
            seccomp: 2,
            seccomp_filters: 3,
            pending: 2,
            blocked: 1,
            ignored: 0x1000,
            caught: 1 << 63,
        };
        assert_eq!(fake.root.status(41).expect("well formed"), expected);
        assert!(!expected.is_dead());
    }

    #[test]
    fn damaged_status_is_refused() {
        for text in ["", "Name:\tx\n", "Tgid:\tx\n", "Tgid:\t4\nSigBlk:\tzz\n"] {
            let error = parse_status(text, Path::new("status")).expect_err(text);
            assert!(matches!(error, ProcError::Malformed { .. }), "{text}");
        }
    }

    fn stat_line(pid: i32, name: &str, ppid: i32) -> String {
        let tail: Vec<String> = (10..=52).map(|n| (n * 100).to_string()).collect();
        format!("{pid} ({name}) S {ppid} 55 1 0 -1 4194304 {}\n", tail.join(" "))
    }

    #[test]
    fn stat_survives_odd_names() {
        let fake = Fake::new();
        fake.put("9/stat", stat_line(9, "a) R 1 (b", 3));
        let stat = fake.root.stat(9).expect("well formed");
        assert_eq!((stat.state, stat.ppid), ('S', 3));
        assert_eq!((stat.start_time, stat.processor), (2200, 3900));
        assert_eq!((stat.utime, stat.stime), (1400, 1500));
        assert!(!stat.kernel_thread);
        let line = stat_line(11, "kthreadd", 0).replace(" 4194304 ", " 2129984 ");
        fake.put("11/stat", line);
        assert!(fake.root.stat(11).expect("well formed").kernel_thread);
        fake.put("10/stat", "10 (x) S 1");
        assert!(matches!(fake.root.stat(10), Err(ProcError::Malformed { .. })));
    }

    #[test]
    fn statm_counts_pages() {
        let fake = Fake::new();
        fake.put("9/statm", "100 40 30 5 0 20 0\n");
        assert_eq!(
            fake.root.statm(9).expect("well formed"),
            Statm { size: 100, resident: 40, shared: 30 }
        );
        fake.put("10/statm", "100\n");
        assert!(fake.root.statm(10).is_err());
    }

    #[test]
    fn descendants_through_children_files() {
        let fake = Fake::new();
        fake.put("1/task/1/children", "2 ").put("1/task/5/children", "3 ");
        fake.put("2/task/2/children", "4 ").put("3/task/3/children", "");
        assert_eq!(fake.root.children(1).expect("canned"), [2, 3, 4]);
        assert_eq!(fake.root.tasks(1).expect("canned"), [1, 5]);
        assert!(fake.root.children(77).expect_err("absent").is_gone());
    }

    #[test]
    fn descendants_through_parents() {
        let fake = Fake::new();
        for (pid, parent) in [(1, 0), (2, 1), (3, 2), (4, 9)] {
            fake.put(&format!("{pid}/stat"), stat_line(pid, "x", parent));
        }
        assert_eq!(fake.root.children(1).expect("canned"), [2, 3]);
        assert_eq!(fake.root.pids().expect("canned"), [1, 2, 3, 4]);
    }

    #[test]
    fn userfaultfds_are_counted() {
        let fake = Fake::new();
        fake.put("7/fd/0", "");
        let folder = fake.root.pid_path(7, "fd");
        assert_eq!(fake.root.userfaultfds(7).expect("canned"), 0);
        for (name, to) in [("3", "anon_inode:[userfaultfd]"), ("4", "anon_inode:[eventfd]")] {
            std::os::unix::fs::symlink(to, folder.join(name)).expect("a link");
        }
        assert_eq!(fake.root.userfaultfds(7).expect("canned"), 1);
        assert!(fake.root.userfaultfds(8).expect_err("absent").is_gone());
    }

    #[test]
    fn own_process_is_consistent() {
        let (root, own) = (ProcRoot::default(), own_pid());
        let (status, stat) = (root.status(own).expect("status"), root.stat(own).expect("stat"));
        assert_eq!((status.tgid, status.ppid), (own, stat.ppid));
        assert!(stat.start_time > 0 && root.statm(own).expect("statm").resident > 0);
        assert!(root.tasks(own).expect("tasks").contains(&own));
        assert!(root.children(status.ppid).expect("parent").contains(&own));
    }
}
