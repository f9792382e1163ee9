//! The rights of every thread of a process, and whether one has more than its program.
//!
//! Credentials are the thread's own in Linux: a thread that somebody else put into a process keeps
//! its user and capabilities when the program gives up its own, and the program can make it do
//! anything. So a foreign thread may have no more than the weakest thread of its program.

use std::fs;
use std::io;
use std::path::Path;

/// The user and the group that stand for nobody.
pub const NOBODY: u32 = 65534;
/// The user and the group of foreign threads in programs with privileges: no process has it, so nobody
/// can trace a thread with it and reach the program by that.
pub const FOREIGN_ID: u32 = 0xffff_ff00;
/// How threads that huepage puts into a program are called.
pub const FOREIGN: [&str; 2] = ["huepage-agent", "huepage-worker"];

/// What a thread may do, from its `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// A tracer holds it.
    pub held: bool,
    /// Number of the thread.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Real, effective, saved and file system user.
    pub uids: Vec<u32>,
    /// Real, effective, saved and file system group.
    pub gids: Vec<u32>,
    /// Further groups.
    pub groups: Vec<u32>,
    /// Inheritable, permitted, effective and ambient capabilities.
    pub capabilities: [u64; 4],
    /// Nothing that it executes gains rights.
    pub no_new_privs: bool,
    /// 0: all system calls, 2: by a filter.
    pub seccomp: u32,
}

const SETS: [&str; 4] = ["CapInh", "CapPrm", "CapEff", "CapAmb"];

impl Rights {
    /// Reads the text of a `status` file.
    pub fn parse(text: &str) -> Option<Rights> {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let numbers = |name: &str| -> Option<Vec<u32>> {
            field(name)?.split_ascii_whitespace().map(|n| n.parse().ok()).collect()
        };
        let mut capabilities = [0; 4];
        for (to, name) in capabilities.iter_mut().zip(SETS) {
            *to = u64::from_str_radix(field(name)?, 16).ok()?;
        }
        Some(Rights {
            held: field("State").is_some_and(|state| state.starts_with('t')),
            thread: field("Pid")?.parse().ok()?,
            name: field("Name")?.to_owned(),
            uids: numbers("Uid")?,
            gids: numbers("Gid")?,
            groups: numbers("Groups").unwrap_or_default(),
            capabilities,
            no_new_privs: field("NoNewPrivs") == Some("1"),
            seccomp: field("Seccomp").and_then(|n| n.parse().ok()).unwrap_or(0),
        })
    }

    /// Whether somebody else put it into its program.
    pub fn is_foreign(&self) -> bool {
        FOREIGN.contains(&self.name.as_str())
    }

    /// What it may do that a thread of the program may not.
    fn excess(&self, own: &Rights) -> Option<String> {
        let beyond = |what: &str, ids: &[u32], allowed: &[u32]| {
            let more = ids.iter().find(|id| **id != FOREIGN_ID && !allowed.contains(id))?;
            Some(format!("{what} {more}"))
        };
        let all = [own.gids.as_slice(), &own.groups].concat();
        let ids = beyond("user", &self.uids, &own.uids)
            .or_else(|| beyond("group", &self.gids, &all))
            .or_else(|| beyond("further group", &self.groups, &all));
        let more = |(i, name): (usize, &&str)| {
            let more = self.capabilities[i] & !own.capabilities[i].max(own.capabilities[1]);
            (more != 0).then(|| format!("{name} {more:x}"))
        };
        ids.or_else(|| SETS.iter().enumerate().find_map(more))
    }
}

/// The threads of a process, with `root` for `/proc`.
///
/// # Errors
/// When the process is gone or may not be read.
pub fn of(root: &Path, pid: u32) -> io::Result<Vec<Rights>> {
    let mut all = Vec::new();
    for task in fs::read_dir(root.join(format!("{pid}/task")))? {
        // A thread may end while we look.
        let Ok(text) = fs::read_to_string(task?.path().join("status")) else { continue };
        all.extend(Rights::parse(&text));
    }
    Ok(all)
}

/// What foreign threads may do that their program may not, in one line. Threads are read one after the
/// other, and the program may have given up rights in between: an excess counts if the foreign thread
/// has it still when the program was read.
///
/// # Errors
/// When the process is gone or may not be read.
pub fn lasting_excess(root: &Path, pid: u32) -> io::Result<Option<String>> {
    let first = of(root, pid)?;
    if excess(&first).is_none() {
        return Ok(None);
    }
    let again = of(root, pid)?;
    let still = again.into_iter().filter(Rights::is_foreign);
    let own = first.into_iter().filter(|thread| !thread.is_foreign());
    Ok(excess(&own.chain(still).collect::<Vec<_>>()))
}

/// What foreign threads may do that their program may not, in one line. A foreign thread gives up its
/// rights itself when it comes; nothing is wrong with that while all of its program is held.
pub fn excess(threads: &[Rights]) -> Option<String> {
    let own: Vec<&Rights> = threads.iter().filter(|t| !t.is_foreign()).collect();
    if own.iter().all(|thread| thread.held) {
        return None;
    }
    threads.iter().filter(|t| t.is_foreign()).find_map(|thread| {
        let more = own.iter().find_map(|own| thread.excess(own))?;
        Some(format!("thread {} ({}) has {more}, its program has not", thread.thread, thread.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(name: &str, thread: u32, uid: u32, capabilities: u64) -> String {
        format!(
            "Name:\t{name}\nPid:\t{thread}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n\
             Gid:\t{uid}\t{uid}\t{uid}\t{uid}\nGroups:\t \nCapInh:\t0000000000000000\n\
             CapPrm:\t{capabilities:016x}\nCapEff:\t{capabilities:016x}\n\
             CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
        )
    }

    fn seen(threads: &[(&str, u32, u64)]) -> Option<String> {
        let dir = tempfile::tempdir().unwrap();
        for (i, (name, uid, capabilities)) in (70..).zip(threads) {
            let task = dir.path().join(format!("70/task/{i}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("status"), status(name, i, *uid, *capabilities)).unwrap();
        }
        let all = of(dir.path(), 70).unwrap();
        assert_eq!(all.len(), threads.len());
        excess(&all)
    }

    #[test]
    fn nobody_beside_root_has_nothing_more() {
        assert_eq!(seen(&[("server", 0, 0xff), ("huepage-agent", FOREIGN_ID, 0)]), None);
        assert_eq!(seen(&[("server", 1000, 0), ("huepage-agent", 1000, 0)]), None);
    }

    #[test]
    fn a_user_or_a_capability_that_the_program_lacks_is_found() {
        let found = seen(&[("server", NOBODY, 0), ("huepage-agent", 0, 0)]).unwrap();
        assert!(found.contains("user 0"), "{found}");
        let found = seen(&[("server", 1000, 0), ("huepage-worker", 1000, 0x8_0000)]).unwrap();
        assert!(found.contains("CapPrm 80000"), "{found}");
        // Every process of nobody's could trace it, and write to the program's memory by it.
        assert!(seen(&[("server", 0, 0xff), ("huepage-agent", NOBODY, 0)]).is_some());
    }

    #[test]
    fn a_program_that_is_held_waits_for_the_foreign_thread_to_give_up_its_rights() {
        let parse = |text: &str| Rights::parse(text).unwrap();
        let held = |letter: &str| {
            let text = status("server", 7, NOBODY, 0).replacen(
                "Pid",
                &format!("State:\t{letter}\nPid"),
                1,
            );
            [parse(&text), parse(&status("huepage-agent", 8, 0, 0))]
        };
        assert_eq!(excess(&held("t (tracing stop)")), None);
        assert!(excess(&held("S (sleeping)")).is_some());
    }

    #[test]
    fn the_weakest_thread_counts() {
        let threads = [("server", 0, 0xff), ("server", NOBODY, 0), ("huepage-agent", 0, 0)];
        assert!(seen(&threads).is_some());
    }
}
