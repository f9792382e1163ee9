//! Which processes belong to a group: those that descend from its roots. Asked at every file that
//! any process of the machine opens, so answers are kept, and guarded against pids being given
//! to other processes by the start time of who had them.
//!
//! It follows parents upwards through `/proc`. Who belongs to the group stays in it when its
//! parent ends; a process whose parent ended before it opened its first file is not found to
//! belong, since the kernel gives it another parent. huepage does not make itself that parent
//! (`PR_SET_CHILD_SUBREAPER`): daemons look whether process 1 is, and would have to be reaped.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::kernel::procfs::ProcRoot;

/// How long an answer holds without a look at the start time: pids come round again only after
/// all others were used, which takes longer.
const TRUSTED_FOR: Duration = Duration::from_millis(100);
/// Answers that are kept at most; then those of ended processes are forgotten.
const KEPT_ANSWERS: usize = 4096;
/// Parents that are followed at most.
const MOST_PARENTS: usize = 256;

/// Who is at the head of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProcessRoots {
    /// These processes and what descends from them.
    With(Vec<i32>),
    /// What descends from this process: the supervisor of a program that it starts.
    Below(i32),
}

#[derive(Clone, Copy, Debug)]
struct Known {
    start: u64,
    belongs: bool,
    looked: Instant,
}

/// Tells members of a group from other processes.
#[derive(Debug)]
pub struct ProcessTree {
    root: ProcRoot,
    below: Option<i32>,
    never: Vec<i32>,
    known: HashMap<i32, Known>,
    ended: Vec<i32>,
}

impl ProcessTree {
    /// A group; `never` are processes that do not belong to it, such as huepage's own.
    pub fn new(root: ProcRoot, roots: ProcessRoots, never: Vec<i32>) -> ProcessTree {
        let mut tree =
            ProcessTree { root, below: None, never, known: HashMap::new(), ended: Vec::new() };
        match roots {
            ProcessRoots::Below(head) => tree.below = Some(head),
            ProcessRoots::With(roots) => roots.into_iter().for_each(|head| tree.admit(head)),
        }
        tree
    }

    /// A process is a head from now on, as long as it is this one that has the pid.
    pub fn admit(&mut self, pid: i32) {
        if let Ok(stat) = self.root.stat(pid) {
            let known = Known { start: stat.start_time, belongs: true, looked: Instant::now() };
            self.known.insert(pid, known);
        }
    }

    /// A process does not belong to the group any more; its children that are known stay.
    pub fn release(&mut self, pid: i32) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.belongs = false;
        }
    }

    /// Whether the process belongs to the group. Some 10 us for one that was not asked about in
    /// the last tenth of a second, more for the first time.
    pub fn belongs(&mut self, pid: i32, now: Instant) -> bool {
        if pid <= 0 || self.never.contains(&pid) {
            return false;
        }
        self.trusted(pid, now).unwrap_or_else(|| self.look(pid, now))
    }

    /// An answer of a moment ago.
    fn trusted(&self, pid: i32, now: Instant) -> Option<bool> {
        let known = self.known.get(&pid)?;
        (now.saturating_duration_since(known.looked) < TRUSTED_FOR).then_some(known.belongs)
    }

    fn look(&mut self, pid: i32, now: Instant) -> bool {
        // Who is gone opens no file: the event is of its last moments.
        let Ok(stat) = self.root.stat(pid) else { return false };
        let start = stat.start_time;
        let before = self.known.get(&pid).filter(|known| known.start == start);
        let belongs = before.map(|known| known.belongs);
        let belongs = belongs.unwrap_or_else(|| self.descends(stat.ppid, now));
        if self.known.len() >= KEPT_ANSWERS {
            self.forget_ended();
        }
        let old = self.known.insert(pid, Known { start, belongs, looked: now });
        if old.is_some_and(|old| old.belongs && old.start != start) {
            self.ended.push(pid);
        }
        belongs
    }

    fn descends(&self, parent: i32, now: Instant) -> bool {
        let mut at = parent;
        for _ in 0..MOST_PARENTS {
            if self.below == Some(at) {
                return true;
            }
            if at <= 1 || self.never.contains(&at) {
                return false;
            }
            if let Some(known) = self.trusted(at, now) {
                return known;
            }
            let Ok(stat) = self.root.stat(at) else { return false };
            let known = self.known.get(&at).filter(|known| known.start == stat.start_time);
            if let Some(known) = known {
                return known.belongs;
            }
            at = stat.ppid;
        }
        false
    }

    /// Forgets who has ended, or everybody if few have: it is found out again.
    fn forget_ended(&mut self) {
        let (root, ended) = (&self.root, &mut self.ended);
        self.known.retain(|&pid, known| {
            let lives = root.stat(pid).is_ok_and(|stat| stat.start_time == known.start);
            if !lives && known.belongs {
                ended.push(pid);
            }
            lives
        });
        if self.known.len() > KEPT_ANSWERS / 2 {
            self.known.retain(|_, known| known.belongs);
        }
    }

    /// Members that were found to have ended since this was asked last.
    pub fn ended(&mut self) -> Vec<i32> {
        std::mem::take(&mut self.ended)
    }
}

/// Who belongs to the roots now.
pub(crate) fn members(root: &ProcRoot, roots: &ProcessRoots, never: &[i32]) -> Vec<i32> {
    let below = |pid: i32| root.children(pid).unwrap_or_default();
    let mut all = match roots {
        ProcessRoots::Below(head) => below(*head),
        ProcessRoots::With(roots) => {
            let each = roots.iter().flat_map(|&head| [vec![head], below(head)].concat());
            each.collect()
        }
    };
    let left_out: Vec<i32> =
        never.iter().flat_map(|&pid| [vec![pid], below(pid)].concat()).collect();
    all.retain(|pid| !left_out.contains(pid));
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::Fake;

    fn put(fake: &Fake, pid: i32, parent: i32, start: u64) {
        let mut tail: Vec<u64> = (5..=52).collect();
        tail[22 - 5] = start;
        let tail: Vec<String> = tail.iter().map(u64::to_string).collect();
        fake.put(&format!("{pid}/stat"), format!("{pid} (a) b) S {parent} {}\n", tail.join(" ")));
    }

    /// 1 - 50 (supervisor) - 60 (program) - 61 - 62, and 70 of somebody else.
    fn family() -> Fake {
        let fake = Fake::new();
        for (pid, parent) in [(1, 0), (50, 1), (60, 50), (61, 60), (62, 61), (70, 1), (55, 50)] {
            put(&fake, pid, parent, 100);
        }
        fake
    }

    #[test]
    fn descendants_belong_and_others_do_not() {
        let (fake, now) = (family(), Instant::now());
        let mut tree = ProcessTree::new(fake.root.clone(), ProcessRoots::Below(50), vec![50, 55]);
        for pid in [60, 61, 62] {
            assert!(tree.belongs(pid, now), "{pid}");
        }
        for pid in [0, -1, 1, 50, 55, 70, 99] {
            assert!(!tree.belongs(pid, now), "{pid}");
        }
        let mut tree = ProcessTree::new(fake.root.clone(), ProcessRoots::With(vec![61]), vec![]);
        assert!(tree.belongs(61, now) && tree.belongs(62, now));
        assert!(!tree.belongs(60, now) && !tree.belongs(50, now));
        put(&fake, 61, 1, 900);
        assert!(
            !tree.belongs(61, now + 2 * TRUSTED_FOR),
            "another process has the pid of the head"
        );
    }

    #[test]
    fn a_member_stays_one_when_its_parent_ends() {
        let (fake, now) = (family(), Instant::now());
        let mut tree = ProcessTree::new(fake.root.clone(), ProcessRoots::Below(50), vec![]);
        assert!(tree.belongs(62, now));
        put(&fake, 62, 1, 100);
        put(&fake, 63, 62, 100);
        assert!(tree.belongs(62, now + 2 * TRUSTED_FOR));
        assert!(tree.belongs(63, now + 2 * TRUSTED_FOR), "through the member that is known");
    }

    #[test]
    fn a_pid_given_to_another_process_does_not_belong() {
        let (fake, now) = (family(), Instant::now());
        let mut tree = ProcessTree::new(fake.root.clone(), ProcessRoots::Below(50), vec![]);
        assert!(tree.belongs(62, now));
        put(&fake, 62, 70, 900);
        assert!(tree.belongs(62, now + TRUSTED_FOR / 2), "too soon for another");
        assert!(!tree.belongs(62, now + TRUSTED_FOR));
        assert_eq!(tree.ended(), [62]);
        assert!(tree.ended().is_empty());
    }

    #[test]
    fn answers_are_kept_without_reading() {
        let (fake, now) = (family(), Instant::now());
        let mut tree = ProcessTree::new(fake.root.clone(), ProcessRoots::Below(50), vec![]);
        assert!(tree.belongs(62, now));
        std::fs::remove_dir_all(fake.root.0.join("62")).expect("there");
        assert!(tree.belongs(62, now + TRUSTED_FOR / 2));
        assert!(!tree.belongs(62, now + TRUSTED_FOR));
    }

    #[test]
    fn a_released_process_belongs_no_more() {
        let (fake, now) = (family(), Instant::now());
        let mut tree = ProcessTree::new(fake.root.clone(), ProcessRoots::With(vec![61]), vec![]);
        assert!(tree.belongs(62, now));
        tree.release(61);
        assert!(
            !tree.belongs(61, now + 2 * TRUSTED_FOR) && tree.belongs(62, now + 2 * TRUSTED_FOR)
        );
    }

    #[test]
    fn the_store_is_bounded() {
        let (fake, now) = (family(), Instant::now());
        let mut tree = ProcessTree::new(fake.root.clone(), ProcessRoots::Below(50), vec![]);
        let ghost = Known { start: 1, belongs: true, looked: now };
        tree.known.extend((1000..1000 + 4096).map(|pid| (pid, ghost)));
        assert!(tree.belongs(60, now));
        assert_eq!((tree.known.len(), tree.ended().len()), (1, 4096));
    }
}
