//! A group of processes that share a partition: the first ones, and every child that lives
//! long enough. One thread cares for each process.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_color::{Color, ColorSet, Vpn};
use serde::{Deserialize, Serialize};

use super::EngineError;
use super::chosen::Desk;
use super::growth::Growth;
use super::lazy::Shrink;
use super::member::{Config, Member, MemberStatus, Order, Outcome};
use super::place::Placed;
use super::scope::Scope;
use super::source::ColorSource;
use crate::inject::Session;
use crate::procfs::ProcRoot;

/// A member's thread as the group sees it.
struct Handle {
    thread: Option<JoinHandle<Result<Outcome, EngineError>>>,
    orders: Sender<Order>,
    status: Arc<Mutex<MemberStatus>>,
}

/// Sums over all processes of a group, the ended ones included.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GroupReport {
    /// Each process, in the order in which they were taken.
    pub members: Vec<MemberStatus>,
    /// Processes that could not be confined, with the reason.
    pub missed: Vec<(i32, String)>,
}

/// The processes in one partition.
pub struct Group {
    config: Config,
    source: Box<dyn ColorSource>,
    root: ProcRoot,
    running: HashMap<i32, Handle>,
    desk: Desk,
    report: GroupReport,
    /// When a child was first seen.
    newcomers: HashMap<i32, Instant>,
    /// Processes let go or given up on: not taken again.
    left: HashMap<i32, ()>,
    exhausted: bool,
    /// Whether the last of the first processes had forbidden huge pages itself.
    forbids_huge_pages: bool,
    /// Processes that are no member's children and to be taken as these are.
    invited: Vec<i32>,
}

impl Group {
    /// A group without processes.
    pub fn new(config: Config, source: Box<dyn ColorSource>) -> Group {
        Group {
            config,
            source,
            root: ProcRoot::default(),
            running: HashMap::new(),
            desk: Desk::default(),
            report: GroupReport::default(),
            newcomers: HashMap::new(),
            left: HashMap::new(),
            exhausted: false,
            forbids_huge_pages: false,
            invited: Vec::new(),
        }
    }

    /// Where superpages in members are asked for.
    pub fn desk(&self) -> Desk {
        self.desk.clone()
    }

    /// Prepares a process held by `session`, with its stock gathered, and lets it go on under
    /// the care of a thread. `progress` hears of pages gathered and wanted.
    ///
    /// # Errors
    /// When it cannot be confined; it goes on unharmed.
    pub fn take_stopped(
        &mut self,
        pid: i32,
        mut session: Session,
        progress: impl FnMut(u64, u64),
    ) -> Result<(), EngineError> {
        let mut member = self.found(pid, &mut session)?;
        member.gather(progress)?;
        member.serve_areas()?;
        session.finish();
        self.care_for(pid, member);
        Ok(())
    }

    /// Stops a running process for a moment and takes it into the group.
    ///
    /// # Errors
    /// When it cannot be confined; it goes on unharmed.
    pub fn take_running(
        &mut self,
        pid: i32,
        progress: impl FnMut(u64, u64),
    ) -> Result<(), EngineError> {
        check_suitable(&self.root, pid)?;
        let mut session = Session::stop(pid)?;
        let mut member = self.found(pid, &mut session)?;
        session.finish();
        member.gather(progress)?;
        self.care_for(pid, member);
        Ok(())
    }

    /// Takes one of the first processes, which are what they were before us.
    fn found(&mut self, pid: i32, session: &mut Session) -> Result<Member, EngineError> {
        let member = Member::start(pid, session, self.source.another(), &self.config, false)?;
        self.forbids_huge_pages = member.agent.forbids_huge_pages();
        Ok(member)
    }

    fn care_for(&mut self, pid: i32, member: Member) {
        let (orders, inbox) = channel();
        let status = member.status();
        let thread = std::thread::spawn(move || member.run(&inbox));
        self.desk.admit(pid, &orders, &status);
        self.running.insert(pid, Handle { thread: Some(thread), orders, status });
    }

    /// Takes a child without holding up the others: the work happens on its own thread.
    fn adopt(&mut self, pid: i32) {
        let (orders, inbox) = channel();
        let status = Arc::new(Mutex::new(MemberStatus { pid, ..Default::default() }));
        let shown = Arc::clone(&status);
        let (config, source) = (self.config.clone(), self.source.another());
        let heir = !self.forbids_huge_pages && !self.invited.contains(&pid);
        let thread = std::thread::spawn(move || {
            check_suitable(&ProcRoot::default(), pid)?;
            let mut session = Session::stop(pid)?;
            let mut member = Member::start(pid, &mut session, source, &config, heir)?;
            session.finish();
            member.show_in(shown);
            member.run(&inbox)
        });
        self.desk.admit(pid, &orders, &status);
        self.running.insert(pid, Handle { thread: Some(thread), orders, status });
    }

    /// Has these processes taken as children of members are, in place of those invited before.
    /// Those that were released or could not be taken are not tried again.
    pub fn invite(&mut self, pids: Vec<i32>) {
        // A number that no process has any more may come to be another's.
        self.left.retain(|&pid, ()| self.root.process_exists(pid));
        self.invited = pids;
    }

    /// Looks after the group: new children, ended members. Call it every few milliseconds.
    pub fn tend(&mut self) {
        self.reap();
        let mut found = self.invited.clone();
        for &pid in self.running.keys() {
            found.extend(self.root.children(pid).unwrap_or_default());
        }
        self.newcomers.retain(|pid, _| found.contains(pid));
        for pid in found {
            if self.running.contains_key(&pid) || self.left.contains_key(&pid) {
                continue;
            }
            let since = *self.newcomers.entry(pid).or_insert_with(Instant::now);
            if since.elapsed() >= self.config.child_delay && !self.shares_memory(pid) {
                self.newcomers.remove(&pid);
                self.adopt(pid);
            }
        }
    }

    /// Whether a child uses the memory of a process that has an agent or is about to get one, as
    /// between vfork and exec: that agent cares for it. Two injections into one memory would spoil
    /// each other.
    pub fn shares_memory(&self, pid: i32) -> bool {
        if self.running.keys().any(|&member| same_memory(member, pid)) {
            return true;
        }
        let areas = self.root.maps(pid).unwrap_or_default();
        areas.is_empty() || areas.iter().any(|a| a.name.starts_with("/memfd:huepage-agent"))
    }

    fn reap(&mut self) {
        let done: Vec<i32> = self
            .running
            .iter()
            .filter(|(_, h)| h.thread.as_ref().is_some_and(JoinHandle::is_finished))
            .map(|(&pid, _)| pid)
            .collect();
        for pid in done {
            let Some(mut handle) = self.running.remove(&pid) else { continue };
            self.desk.dismiss(pid);
            let result = handle.thread.take().map(JoinHandle::join);
            self.keep_status(&handle);
            self.conclude(pid, result);
        }
    }

    fn conclude(
        &mut self,
        pid: i32,
        result: Option<std::thread::Result<Result<Outcome, EngineError>>>,
    ) {
        match result {
            Some(Ok(Ok(Outcome::Replaced | Outcome::Changed))) => self.adopt(pid),
            Some(Ok(Ok(Outcome::Exhausted))) => self.exhausted = true,
            Some(Ok(Ok(Outcome::Released))) => {
                self.left.insert(pid, ());
            }
            Some(Ok(Err(e))) if !e.is_gone() => {
                self.report.missed.push((pid, e.to_string()));
                self.left.insert(pid, ());
            }
            Some(Err(_)) => {
                self.report.missed.push((pid, "internal error; report it".into()));
                self.left.insert(pid, ());
            }
            _ => {}
        }
    }

    fn keep_status(&mut self, handle: &Handle) {
        if let Ok(status) = handle.status.lock()
            && status.audits + status.faults_served > 0
        {
            self.report.members.push(status.clone());
        }
    }

    /// Pids under care now.
    pub fn pids(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = self.running.keys().copied().collect();
        pids.sort_unstable();
        pids
    }

    /// Whether any process is still under care.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a member could not go on for lack of memory (strict).
    pub fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// The status of one member.
    pub fn status(&self, pid: i32) -> Option<MemberStatus> {
        self.running.get(&pid).and_then(|h| h.status.lock().ok().map(|s| s.clone()))
    }

    /// Releases one process; false when it is not a member.
    pub fn release(&mut self, pid: i32) -> bool {
        let Some(handle) = self.running.get_mut(&pid) else { return false };
        self.desk.dismiss(pid);
        let _ = handle.orders.send(Order::Release);
        let result = handle.thread.take().map(JoinHandle::join);
        if let Some(handle) = self.running.remove(&pid) {
            self.keep_status(&handle);
        }
        self.conclude(pid, result);
        true
    }

    /// The partition is `colors` from now on: members move there as they run, newcomers come to it.
    /// Returns at once.
    pub fn retune(&mut self, colors: ColorSet) {
        self.running.values().for_each(|h| _ = h.orders.send(Order::Retune(colors.clone())));
        self.config.colors = colors;
    }

    /// Colours that are gained are filled so from now on. Returns at once.
    pub fn grow_by(&mut self, growth: Growth) {
        self.running.values().for_each(|h| _ = h.orders.send(Order::Grow(growth)));
        self.config.growth = growth;
    }

    /// Colours that are lost are left so from now on. Pages that wait to be touched move at once if none are
    /// to wait any more. Returns at once.
    pub fn shrink_by(&mut self, shrink: Shrink) {
        self.running.values().for_each(|h| _ = h.orders.send(Order::Shrink(shrink)));
        self.config.shrink = shrink;
    }

    /// Members keep a buffer of these colours from now on, disjoint from those of the partition, or none.
    /// What it is for stays, unless it comes or goes. Returns at once.
    pub fn rebuffer(&mut self, colors: Option<ColorSet>) {
        self.running.values().for_each(|h| _ = h.orders.send(Order::Rebuffer(colors.clone())));
        self.config.buffer = colors;
    }

    /// Whether members keep a buffer beside the partition.
    pub fn has_buffer(&self) -> bool {
        self.config.buffer.is_some()
    }

    /// Whether a process is a member.
    pub fn holds(&self, pid: i32) -> bool {
        self.running.contains_key(&pid)
    }

    /// As [`Self::status`], with the census of those pages that [`Self::rescope`] is about.
    pub fn status_of_scope(&self, pid: i32) -> Option<MemberStatus> {
        let mut status = self.status(pid)?;
        if self.has_buffer() {
            status.census = status.buffer.take();
        }
        Some(status)
    }

    /// The partition of a member, or its buffer if it keeps one, is for these pages from now on; those that it is no longer for leave
    /// its colours. Only for groups whose partition is for a part of their memory, or that keep a buffer. False when it is no
    /// member. Returns at once.
    pub fn rescope(&self, pid: i32, scope: Scope) -> bool {
        self.running.get(&pid).is_some_and(|h| h.orders.send(Order::Rescope(scope)).is_ok())
    }

    /// Has each of these pages of a member moved to its colour, once; what becomes of them is told as soon
    /// as it is done. Only in groups whose partition is for a part of their memory: in others no page moves.
    /// `None` when it is no member. Returns at once.
    pub fn place(&self, pid: i32, wishes: Vec<(Vpn, Color)>) -> Option<Receiver<Vec<Placed>>> {
        let (answer, result) = channel();
        self.running.get(&pid)?.orders.send(Order::Place(wishes, answer)).ok()?;
        Some(result)
    }

    /// Releases everybody.
    pub fn release_all(&mut self) {
        for pid in self.pids() {
            if let Some(handle) = self.running.get(&pid) {
                let _ = handle.orders.send(Order::Release);
            }
        }
        for pid in self.pids() {
            self.release(pid);
        }
    }

    /// Measures the colours of `n` pages of a member again: (measured, still as believed).
    /// `None` when it is no member or ended meanwhile.
    pub fn verify(&self, pid: i32, n: usize) -> Option<(usize, usize)> {
        let (answer, result) = channel();
        self.running.get(&pid)?.orders.send(Order::Verify(n, answer)).ok()?;
        result.recv_timeout(Duration::from_secs(30)).ok()
    }

    /// What is known of members that ended, and of processes that could not be taken, since it was asked
    /// for last: a group that lives for long does not keep it.
    pub fn take_ended(&mut self) -> GroupReport {
        std::mem::take(&mut self.report)
    }

    /// Processes that were released, or could not be taken, may be invited again.
    pub fn forgive(&mut self) {
        self.left.clear();
    }

    /// Everything known, members that still run included.
    pub fn report(&self) -> GroupReport {
        let mut report = self.report.clone();
        for pid in self.pids() {
            report.members.extend(self.status(pid));
        }
        report
    }
}

/// Whether two processes use the same memory, as clone(2) with CLONE_VM makes them. False where the
/// kernel is built without kcmp(2).
fn same_memory(one: i32, other: i32) -> bool {
    const MEMORY: libc::c_int = 1;
    // SAFETY: the call takes numbers only.
    unsafe { libc::syscall(libc::SYS_kcmp, one, other, MEMORY, 0, 0) == 0 }
}

/// Whether a process may be taken at all.
///
/// # Errors
/// With the reason why not; the process is untouched.
pub fn check_suitable(root: &ProcRoot, pid: i32) -> Result<(), EngineError> {
    let status = root.status(pid)?;
    if status.is_dead() {
        return Err(crate::procfs::ProcError::NoProcess(pid).into());
    }
    let elf = root.exe_elf(pid).map_err(|_| without_program(pid, status.ppid))?;
    if !elf.is_x86_64() {
        return Err(EngineError::NotNative(pid));
    }
    Ok(())
}

/// Why a process that exists has no executable: it is a thread of the kernel (all are children of
/// `kthreadd`, which is process 2), or it is just ending and has given up its memory.
fn without_program(pid: i32, ppid: i32) -> EngineError {
    const KTHREADD: i32 = 2;
    if pid == KTHREADD || ppid == KTHREADD {
        return EngineError::Kernel(pid);
    }
    crate::procfs::ProcError::NoProcess(pid).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_that_share_memory_are_told_from_others() {
        let own = std::process::id().cast_signed();
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a child");
        let other = child.id().cast_signed();
        let found = (same_memory(own, own), same_memory(own, other));
        child.kill().and_then(|()| child.wait()).expect("ended");
        assert_eq!(found, (true, false), "this kernel has no kcmp(2)");
        assert!(!same_memory(own, i32::MAX));
    }
}
