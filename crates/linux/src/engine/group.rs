//! A group of processes that share a partition: the first ones, and every child that lives
//! long enough. One thread cares for each process. Nothing here waits for a process without a
//! deadline: a stopped one is released in the background, whenever it goes on. Each process is held by
//! a descriptor from the first look at it, so that none is taken that only has the same number.

use std::collections::{HashMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_color::{Color, ColorSet, Provenance, Vpn};
use serde::{Deserialize, Serialize};

use super::EngineError;
use super::member::orders::{Inbox, Orders, order_channel};
use super::member::rest::Rest;
use super::member::{
    EngineConfig, GrowthMode, Member, MemberEnd, MemberOrder, MemberStatus, Placed,
    PromotionHandle, Shrink,
};
use super::scope::Scope;
use super::watch::GroupWatch;
use crate::color::sources::ColorSource;
use crate::inject::agent::{Agent, AgentError};
use crate::inject::sharers::{lasting_sharer, same_memory};
use crate::inject::{InjectError, Session, release_late};
use crate::kernel::bell::Bell;
use crate::kernel::procfs::{KnownProcess, ProcError, ProcRoot, ProcessHandle};

/// How long [`Group::release`] and [`Group::release_all`] wait for processes to be let go.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);
/// How often they look.
const RELEASE_STEP: Duration = Duration::from_millis(1);
/// A process that could not be stopped, as a frozen one, is tried again after this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);
/// How often it is looked which of the processes that were left alone have ended.
const FORGET_INTERVAL: Duration = Duration::from_secs(1);
/// Looks for children take at most one part in so many of the time: those of a process with thousands of
/// threads take long.
const CHILD_SCAN_TIME_PARTS: u32 = 20;
/// How often a process that waits for colours is looked at, or one that cannot be stopped for now.
const AWAIT_STEP: Duration = Duration::from_millis(5);
/// Most processes of a group, unless [`Group::set_limit`] says otherwise.
const MOST_MEMBERS: usize = 4096;

/// A member's thread as the group sees it.
struct Handle {
    /// The process itself, whoever gets its number later.
    process: Arc<ProcessHandle>,
    thread: Option<JoinHandle<Result<MemberEnd, EngineError>>>,
    orders: Orders,
    status: Arc<Mutex<MemberStatus>>,
    /// Whether it needs no care before something changes.
    rest: Arc<Rest>,
}

impl Handle {
    /// Whether the process may have children that it had not when they were looked for last, by the newest
    /// process of the machine; `begun`: there are such as members that do not rest may have.
    fn may_have_children(&self, newest: Option<u64>, begun: bool) -> bool {
        let mut rest = self.rest.lock();
        let Some(resting) = rest.as_mut() else { return begun };
        let may = resting.ran && (newest.is_none() || newest != resting.newest);
        if may {
            (resting.ran, resting.newest) = (false, newest);
        }
        may
    }
}

/// Rings when the thread of a member ends, however.
struct RingAtEnd(Arc<Bell>);

impl Drop for RingAtEnd {
    fn drop(&mut self) {
        self.0.ring();
    }
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
    config: EngineConfig,
    source: Box<dyn ColorSource>,
    root: ProcRoot,
    running: HashMap<i32, Handle>,
    promotion_handle: PromotionHandle,
    report: GroupReport,
    /// Members that were told to go, until their agents have left them.
    releasing: HashMap<i32, Handle>,
    /// Processes that were seen and are not taken yet.
    newcomers: HashMap<i32, Newcomer>,
    /// Processes let go or given up on: not taken again.
    left: HashMap<i32, Left>,
    /// When it was looked last which of them have ended.
    forgot: Instant,
    /// When to look for children again, and the newest process of the machine when that was done last.
    look: Instant,
    newest: Option<u64>,
    /// Whether processes that were left alone may be taken now.
    look_again: bool,
    /// Most members at a time.
    limit: usize,
    /// Whether a process was turned away for it at the last look.
    full: bool,
    exhausted: bool,
    /// Whether the last of the first processes had forbidden huge pages itself.
    forbids_huge_pages: Arc<AtomicBool>,
    /// When colours came to be known, as far as was noticed.
    known: Option<Instant>,
    watch: GroupWatch,
    /// Rings when a member has ended.
    bell: Arc<Bell>,
    /// Processes that are no member's children and to be taken as these are.
    /// Processes that are taken later, whose children are taken even if they themselves cannot be.
    roots: Vec<Arc<ProcessHandle>>,
    invited: Vec<Arc<ProcessHandle>>,
}

/// A process that is not taken yet.
struct Newcomer {
    process: Arc<ProcessHandle>,
    /// When it was first seen.
    since: Instant,
}

/// A process that was let go or given up on.
struct Left {
    /// Another process may get its number.
    known: KnownProcess,
    /// When it may be tried again, if ever.
    again: Option<Instant>,
}

impl Group {
    /// A group without processes.
    pub fn new(config: EngineConfig, source: Box<dyn ColorSource>) -> Group {
        Group {
            config,
            source,
            root: ProcRoot::default(),
            running: HashMap::new(),
            promotion_handle: PromotionHandle::default(),
            report: GroupReport::default(),
            releasing: HashMap::new(),
            newcomers: HashMap::new(),
            left: HashMap::new(),
            forgot: Instant::now(),
            look: Instant::now(),
            newest: None,
            look_again: false,
            limit: MOST_MEMBERS,
            full: false,
            exhausted: false,
            forbids_huge_pages: Arc::default(),
            known: None,
            watch: GroupWatch::new(ProcRoot::default()),
            bell: Arc::default(),
            roots: Vec::new(),
            invited: Vec::new(),
        }
    }

    /// Where superpages in members are asked for.
    pub fn promotion_handle(&self) -> PromotionHandle {
        self.promotion_handle.clone()
    }

    /// Begins to find out colours, and waits for that until then; whether they are known.
    pub fn colors_known_by(&mut self, until: Instant) -> bool {
        loop {
            // What cannot be found is told by whoever is to be confined.
            if self.source.ready().is_ok_and(|ready| ready) {
                self.known.get_or_insert_with(Instant::now);
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// When colours came to be known; `None` before.
    pub fn colors_known(&self) -> Option<Instant> {
        self.known
    }

    /// Why colours are not known, where finding them failed so far.
    pub fn colors_unknown_because(&self) -> Option<String> {
        self.source.unknown_because()
    }

    /// Why the colours mean nothing to other processes, once they are known.
    pub fn colors_private_because(&self) -> Option<String> {
        self.known?;
        self.source.method().private_because().map(str::to_owned)
    }

    /// How colours are known, as far as that is known.
    pub fn provenance(&self) -> Provenance {
        self.source.provenance()
    }

    /// Prepares a process held by `session`, with its stock gathered if it is to `wait` for that, and
    /// lets it go on under the care of a thread. `progress` hears of pages gathered and wanted.
    ///
    /// # Errors
    /// When it cannot be confined; it goes on unharmed.
    pub fn take_stopped(
        &mut self,
        pid: i32,
        mut session: Session,
        wait: bool,
        progress: impl FnMut(u64, u64),
    ) -> Result<(), EngineError> {
        let process = Arc::new(ProcessHandle::open(&self.root, pid)?);
        let mut member = self.found(pid, &mut session, &self.config.clone())?;
        if wait {
            member.gather(progress)?;
        }
        member.serve_areas()?;
        session.finish();
        self.care_for(process, member);
        Ok(())
    }

    /// Lets a process held by `session` go on at once. It is taken when colours are known, not before `delay`
    /// has passed, and is a member from now on.
    ///
    /// # Errors
    /// When it is seen already that it cannot be confined; it goes on unharmed.
    pub fn take_later(
        &mut self,
        pid: i32,
        session: Session,
        delay: Duration,
    ) -> Result<(), EngineError> {
        let process = Arc::new(ProcessHandle::open(&self.root, pid)?);
        check_suitable(&self.root, pid)?;
        Agent::check(pid, &session)?;
        session.finish();
        self.roots.push(Arc::clone(&process));
        self.adopt(process, Kind::First { not_before: Instant::now() + delay });
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
        let process = Arc::new(ProcessHandle::open(&self.root, pid)?);
        check_suitable(&self.root, pid)?;
        check_unshared(pid)?;
        let mut session = Session::stop(pid)?;
        // What is stopped may have got the number of what was looked at.
        process.check()?;
        let config = resident_config(&self.config, &self.root, pid);
        let mut member = self.found(pid, &mut session, &config)?;
        session.finish();
        member.gather(progress)?;
        self.care_for(process, member);
        Ok(())
    }

    /// Takes one of the first processes, which are what they were before us.
    fn found(
        &mut self,
        pid: i32,
        session: &mut Session,
        config: &EngineConfig,
    ) -> Result<Member, EngineError> {
        let mut source = self.source.for_process()?;
        source.wait()?;
        let member = Member::start(pid, session, source, config, false)?;
        self.forbids_huge_pages.store(member.agent.forbids_huge_pages(), Relaxed);
        Ok(member)
    }

    fn care_for(&mut self, process: Arc<ProcessHandle>, mut member: Member) {
        let ((orders, inbox), rest) = (order_channel(), self.watch.rest());
        let (status, at_end) = (member.status(), RingAtEnd(Arc::clone(&self.bell)));
        member.rest_in(Arc::clone(&rest));
        let thread = std::thread::spawn(move || {
            let _at_end = at_end;
            member.run(&inbox, VecDeque::new())
        });
        self.admit(Handle { process, thread: Some(thread), orders, status, rest });
    }

    fn admit(&mut self, handle: Handle) {
        let pid = handle.process.pid();
        self.promotion_handle.admit(pid, &handle.orders, &handle.status);
        self.running.insert(pid, handle);
    }

    /// As [`Self::adopt`], of a process that comes from one of ours, or was invited.
    fn adopt_child(&mut self, process: Arc<ProcessHandle>) {
        let invited = self.invited.iter().any(|one| one.pid() == process.pid());
        self.adopt(process, Kind::Child { heir: !invited });
    }

    /// Takes a process without holding up the others: the work happens on its own thread.
    fn adopt(&mut self, process: Arc<ProcessHandle>, kind: Kind) {
        let pid = process.pid();
        let ((orders, inbox), rest) = (order_channel(), self.watch.rest());
        let at_end = RingAtEnd(Arc::clone(&self.bell));
        let name = self.root.status(pid).map(|status| status.name).unwrap_or_default();
        let status = Arc::new(Mutex::new(MemberStatus { pid, name, ..Default::default() }));
        let adopted = Adopted {
            process: Arc::clone(&process),
            config: self.config.clone(),
            shown: Arc::clone(&status),
            rest: Arc::clone(&rest),
            forbids: Arc::clone(&self.forbids_huge_pages),
            kind,
        };
        let source = self.source.for_process();
        let thread = std::thread::spawn(move || {
            let _at_end = at_end;
            adopted.live(source?, &inbox)
        });
        self.admit(Handle { process, thread: Some(thread), orders, status, rest });
    }

    /// Has these processes taken as children of members are, in place of those invited before.
    /// Those that were released or could not be taken are not tried again.
    pub fn invite(&mut self, processes: Vec<Arc<ProcessHandle>>) {
        self.invited = processes;
    }

    /// Holds at most so many members from now on, those included that are being released; those that
    /// are there stay.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Whether somebody was turned away at the last look, as the group has all that its limit allows.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// How long until [`Self::poll_members`] is to be called again, unless [`Self::descriptor`] is readable before:
    /// `tick` while any member needs care.
    pub fn pause(&self, tick: Duration) -> Duration {
        let waiting =
            !self.newcomers.is_empty() || !self.releasing.is_empty() || self.known.is_none();
        let rests = || self.running.values().all(|handle| handle.rest.is_on());
        if waiting || !rests() { tick } else { tick.max(self.watch.wait()) }
    }

    /// How long to wait after something that took so much CPU time and is done for members that need no care.
    pub fn pause_after(&self, spent: Duration) -> Duration {
        self.watch.pause(spent)
    }

    /// What becomes readable when a member has ended.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.bell.descriptor()
    }

    /// Looks after the group: new children, ended members, members that rest. See [`Self::pause`].
    pub fn poll_members(&mut self) {
        release_late();
        self.bell.hush();
        self.reap();
        self.forget_left();
        if self.known.is_none() && !self.running.is_empty() {
            self.colors_known_by(Instant::now());
        }
        self.watch.look(self.running.values().map(|handle| (&*handle.rest, &handle.orders)));
        self.look_for_newcomers();
    }

    /// Looks for children and those invited, where there may be any that were not there before.
    fn look_for_newcomers(&mut self) {
        let held = self.running.len() + self.releasing.len();
        if held >= self.limit && self.full {
            // Whoever forks without end costs nothing but this.
            self.newcomers.clear();
            return;
        }
        let began = Instant::now();
        if began < self.look {
            return;
        }
        let Some(seen) = self.seen() else { return };
        self.look = began + self.pause_after_scan(began.elapsed());
        self.newcomers.retain(|pid, _| seen.contains_key(pid));
        let mut room = self.limit.saturating_sub(held);
        self.full = false;
        for (pid, invited) in seen {
            if !self.is_new(pid) {
                continue;
            }
            if room == 0 {
                self.full = true;
                break;
            }
            room -= usize::from(self.meet(pid, invited));
        }
    }

    /// Whether a process is neither a member nor was one.
    fn is_new(&self, pid: i32) -> bool {
        !self.holds(pid) && !self.releasing.contains_key(&pid) && !self.left.contains_key(&pid)
    }

    /// How long no children are looked for after a look that took so long.
    fn pause_after_scan(&self, took: Duration) -> Duration {
        let rests = self.running.values().all(|handle| handle.rest.is_on());
        if rests { self.watch.pause(took) } else { CHILD_SCAN_TIME_PARTS * took }
    }

    /// Who may be taken: those invited, with what holds them, and the members' descendants. Without newcomers only
    /// those of members that may have new ones; `None` if nobody can have come.
    fn seen(&mut self) -> Option<HashMap<i32, Option<Arc<ProcessHandle>>>> {
        let newest = self.watch.newest();
        let begun = newest.is_none() || newest != self.newest;
        let invited = self.invited.iter().any(|one| self.is_new(one.pid()));
        let again = std::mem::take(&mut self.look_again);
        let all = !self.newcomers.is_empty() || invited || self.full || again;
        let members = self.running.iter();
        let parents = members.filter(|(_, of)| of.may_have_children(newest, begun) || all);
        let mut parents: Vec<i32> = parents.map(|(&pid, _)| pid).collect();
        if begun || all {
            let roots = self.roots.iter().filter(|root| root.is_alive());
            parents.extend(roots.map(|root| root.pid()));
        }
        self.newest = newest;
        if parents.is_empty() && !all {
            return None;
        }
        let children = |pid| self.root.children(pid).unwrap_or_default();
        let children = parents.into_iter().flat_map(children);
        let mut seen: HashMap<i32, _> = children.map(|pid| (pid, None)).collect();
        seen.extend(self.invited.iter().map(|one| (one.pid(), Some(Arc::clone(one)))));
        Some(seen)
    }

    /// Looks at a process that is no member; whether it takes a place. A child is taken at a later look
    /// than the first, when its parent still calls it its own: what holds it is that child then.
    fn meet(&mut self, pid: i32, invited: Option<Arc<ProcessHandle>>) -> bool {
        let Some(newcomer) = self.newcomers.get(&pid) else {
            let process =
                invited.or_else(|| ProcessHandle::open(&self.root, pid).ok().map(Arc::new));
            let Some(process) = process else { return false };
            self.newcomers.insert(pid, Newcomer { process, since: Instant::now() });
            return true;
        };
        if !newcomer.process.is_alive() {
            self.newcomers.remove(&pid);
            return false;
        }
        let ripe = newcomer.since.elapsed() >= self.config.child_delay;
        if ripe && !self.shares_memory(pid) && !self.is_stopped(pid) {
            let process = Arc::clone(&newcomer.process);
            self.newcomers.remove(&pid);
            self.adopt_child(process);
        }
        true
    }

    /// Whether a process was stopped by a signal or a debugger: it is taken when it goes on.
    fn is_stopped(&self, pid: i32) -> bool {
        self.root.stat(pid).is_ok_and(|stat| matches!(stat.state, 'T' | 't'))
    }

    /// Forgets processes that may be taken now: their numbers are others' or nobody's, or it is time.
    fn forget_left(&mut self) {
        if self.forgot.elapsed() < FORGET_INTERVAL {
            return;
        }
        self.forgot = Instant::now();
        let (root, now) = (&self.root, Instant::now());
        let before = self.left.len();
        self.left
            .retain(|_, left| left.again.is_none_or(|at| now < at) && left.known.is_alive(root));
        self.look_again |= self.left.len() < before;
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
        let done = |handle: &Handle| handle.thread.as_ref().is_none_or(JoinHandle::is_finished);
        let ended: Vec<_> = self.running.extract_if(|_, handle| done(handle)).collect();
        let released: Vec<_> = self.releasing.extract_if(|_, handle| done(handle)).collect();
        for (pid, mut handle) in ended {
            self.promotion_handle.dismiss(pid);
            let result = handle.thread.take().map(JoinHandle::join);
            self.keep_status(&handle);
            self.conclude(handle.process, result);
        }
        for (pid, handle) in released {
            self.keep_status(&handle);
            // However that came out: it was to go, and is not taken again.
            self.left.insert(pid, Left { known: handle.process.known(), again: None });
        }
    }

    fn conclude(
        &mut self,
        process: Arc<ProcessHandle>,
        result: Option<std::thread::Result<Result<MemberEnd, EngineError>>>,
    ) {
        let (pid, known) = (process.pid(), process.known());
        let mut leave = |again| _ = self.left.insert(pid, Left { known, again });
        match result {
            Some(Ok(Ok(MemberEnd::Replaced | MemberEnd::Changed))) => self.adopt_child(process),
            Some(Ok(Ok(MemberEnd::Exhausted))) => self.exhausted = true,
            Some(Ok(Ok(MemberEnd::Released))) => leave(None),
            Some(Ok(Err(e))) if !e.is_gone() => {
                leave(is_stuck(&e).then(|| Instant::now() + RETRY_INTERVAL));
                self.report.missed.push((pid, e.to_string()));
            }
            Some(Err(_)) => {
                leave(None);
                self.report.missed.push((pid, "internal error; report it".into()));
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

    /// Processes that were told to go and whose agents have not left them yet, as they are stopped or
    /// busy. Nobody else may take them.
    pub fn releasing(&self) -> Vec<i32> {
        let mut pids: Vec<i32> = self.releasing.keys().copied().collect();
        pids.sort_unstable();
        pids
    }

    /// Whether no process is under care, nor on its way out.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.releasing.is_empty()
    }

    /// Whether a member could not go on for lack of memory (strict).
    pub fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// The status of one member.
    pub fn status(&self, pid: i32) -> Option<MemberStatus> {
        let handle = self.running.get(&pid)?;
        let status = handle.status.lock().ok()?.clone();
        Some(MemberStatus { resting: handle.rest.is_on(), ..status })
    }

    /// Releases one process, and waits some seconds for that; false when it is not a member. One that is
    /// stopped is let go when it goes on, and listed by [`Self::releasing`] until then.
    pub fn release(&mut self, pid: i32) -> bool {
        let released = self.begin_release(pid);
        self.await_releases(Instant::now() + RELEASE_LIMIT, |group| {
            group.releasing.contains_key(&pid)
        });
        released
    }

    /// As [`Self::release`], but returns at once.
    pub fn begin_release(&mut self, pid: i32) -> bool {
        let Some(handle) = self.running.remove(&pid) else { return false };
        self.promotion_handle.dismiss(pid);
        let _ = handle.orders.send(MemberOrder::Release);
        self.releasing.insert(pid, handle);
        true
    }

    /// Calls [`Self::reap`] until nobody waits any more, or until then.
    fn await_releases(&mut self, until: Instant, waits: impl Fn(&Group) -> bool) {
        while waits(self) && Instant::now() < until {
            std::thread::sleep(RELEASE_STEP);
            self.reap();
        }
    }

    /// The partition is `colors` from now on: members move there as they run, newcomers come to it.
    /// Returns at once.
    pub fn retune(&mut self, colors: ColorSet) {
        self.running.values().for_each(|h| _ = h.orders.send(MemberOrder::Retune(colors.clone())));
        self.config.colors = colors;
    }

    /// Colours that are gained are filled so from now on. Returns at once.
    pub fn grow_by(&mut self, growth: GrowthMode) {
        self.running.values().for_each(|h| _ = h.orders.send(MemberOrder::Grow(growth)));
        self.config.growth = growth;
    }

    /// Colours that are lost are left so from now on. Pages that wait to be touched move at once if none are
    /// to wait any more. Returns at once.
    pub fn shrink_by(&mut self, shrink: Shrink) {
        self.running.values().for_each(|h| _ = h.orders.send(MemberOrder::Shrink(shrink)));
        self.config.shrink = shrink;
    }

    /// Members keep a buffer of these colours from now on, disjoint from those of the partition, or none.
    /// What it is for stays, unless it comes or goes. Returns at once.
    pub fn rebuffer(&mut self, colors: Option<ColorSet>) {
        self.running
            .values()
            .for_each(|h| _ = h.orders.send(MemberOrder::Rebuffer(colors.clone())));
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
        self.running.get(&pid).is_some_and(|h| h.orders.send(MemberOrder::Rescope(scope)))
    }

    /// Has each of these pages of a member moved to its colour, once; what becomes of them is told as soon
    /// as it is done. Only in groups whose partition is for a part of their memory: in others no page moves.
    /// `None` when it is no member. Returns at once.
    pub fn place(&self, pid: i32, moves: Vec<(Vpn, Color)>) -> Option<Receiver<Vec<Placed>>> {
        let (answer, result) = channel();
        let sent = self.running.get(&pid)?.orders.send(MemberOrder::Place(moves, answer));
        sent.then_some(result)
    }

    /// Releases everybody, and waits some seconds for that. Those that are stopped are given up: their
    /// agents leave by themselves, when this process has ended and they go on.
    pub fn release_all(&mut self) {
        self.begin_release_all();
        self.await_releases(Instant::now() + RELEASE_LIMIT, |group| !group.releasing.is_empty());
        self.releasing.clear();
    }

    /// Tells everybody to go, and returns at once.
    pub fn begin_release_all(&mut self) {
        self.pids().into_iter().for_each(|pid| _ = self.begin_release(pid));
    }

    /// What is known of members that ended, and of processes that could not be taken, since it was asked
    /// for last: a group that lives for long does not keep it.
    pub fn take_ended(&mut self) -> GroupReport {
        std::mem::take(&mut self.report)
    }

    /// Processes that were released, or could not be taken, may be invited again.
    pub fn forgive(&mut self) {
        self.left.clear();
        self.look_again = true;
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

/// Whose process is taken.
enum Kind {
    /// Nobody's: it is what it was before us.
    First {
        /// It is left alone until then.
        not_before: Instant,
    },
    /// It comes from one of ours, which an agent of ours may be in.
    Child {
        /// Whether what it has inherited was ours.
        heir: bool,
    },
}

impl Kind {
    fn is_due(&self) -> bool {
        !matches!(self, Kind::First { not_before } if Instant::now() < *not_before)
    }
}

/// A process that is taken on a thread of its own.
struct Adopted {
    process: Arc<ProcessHandle>,
    config: EngineConfig,
    /// Where its status is to be seen.
    shown: Arc<Mutex<MemberStatus>>,
    /// Where it is said that it needs no care.
    rest: Arc<Rest>,
    /// Whether the first process had forbidden huge pages itself.
    forbids: Arc<AtomicBool>,
    kind: Kind,
}

impl Adopted {
    /// Waits for colours, takes the process and cares for it until it ends or is released.
    fn live(
        self,
        mut source: Box<dyn ColorSource>,
        inbox: &Inbox,
    ) -> Result<MemberEnd, EngineError> {
        let (pid, mut early) = (self.process.pid(), VecDeque::new());
        while !(source.ready()? && self.kind.is_due()) {
            if let Some(outcome) = self.await_order(inbox, &mut early) {
                return Ok(outcome);
            }
        }
        check_suitable(&ProcRoot::default(), pid)?;
        check_unshared(pid)?;
        let mut session = loop {
            match Session::stop(pid) {
                Err(error) if self.waits_for(&error) => {
                    if let Some(outcome) = self.await_order(inbox, &mut early) {
                        return Ok(outcome);
                    }
                }
                stopped => break stopped?,
            }
        };
        // What is stopped may have got the number of what was looked at.
        self.process.check()?;
        let heir = matches!(self.kind, Kind::Child { heir: true }) && !self.forbids.load(Relaxed);
        let config = resident_config(&self.config, &ProcRoot::default(), pid);
        let mut member = Member::start(pid, &mut session, source, &config, heir)?;
        session.finish();
        if matches!(self.kind, Kind::First { .. }) {
            self.forbids.store(member.agent.forbids_huge_pages(), Relaxed);
        }
        member.show_in(self.shown);
        member.rest_in(self.rest);
        member.run(inbox, early)
    }

    /// Whether a process that cannot be stopped now is tried until it can: others are found again
    /// as children.
    fn waits_for(&self, error: &InjectError) -> bool {
        let passes = matches!(error, InjectError::Stuck(_) | InjectError::Stopped(_));
        passes && matches!(self.kind, Kind::First { .. })
    }

    /// Waits a moment for an order, which is kept for later if it can be; how it ended, if it did.
    fn await_order(&self, inbox: &Inbox, early: &mut VecDeque<MemberOrder>) -> Option<MemberEnd> {
        if !self.process.is_alive() {
            return Some(MemberEnd::Ended);
        }
        match inbox.next_within(AWAIT_STEP) {
            Ok(MemberOrder::Release) => return Some(MemberEnd::Released),
            Ok(order) => early.extend(order.unless_answered()),
            Err(RecvTimeoutError::Timeout) => {}
            // Nobody is left to be cared for by.
            Err(RecvTimeoutError::Disconnected) => return Some(MemberEnd::Released),
        }
        None
    }
}

/// Whether a process could not be taken for something that passes: it was frozen, say.
fn is_stuck(error: &EngineError) -> bool {
    let passes = |e: &AgentError| {
        matches!(e, AgentError::Silent(_) | AgentError::Inject(InjectError::Stuck(_)))
    };
    matches!(error, EngineError::Agent(e) if passes(e))
}

/// How a process is treated that runs already, by how much memory it has.
fn resident_config(config: &EngineConfig, root: &ProcRoot, pid: i32) -> EngineConfig {
    config.for_resident(root.statm(pid).map_or(0, |statm| statm.resident))
}

/// Whether a process may be taken at all.
///
/// # Errors
/// With the reason why not; the process is untouched.
pub fn check_suitable(root: &ProcRoot, pid: i32) -> Result<(), EngineError> {
    let status = root.status(pid)?;
    if status.is_dead() {
        return Err(ProcError::NoProcess(pid).into());
    }
    let elf = root.exe_elf(pid).map_err(|_| without_program(root, pid))?;
    if !elf.is_x86_64() {
        return Err(EngineError::NotNative(pid));
    }
    Ok(())
}

/// Whether a process that runs shares its memory or descriptors. An agent that starts looks again while all
/// threads are held. That interrupts system calls, which a process that is refused anyway is spared.
fn check_unshared(pid: i32) -> Result<(), EngineError> {
    match lasting_sharer(pid) {
        Ok(Some(other)) => Err(AgentError::from(InjectError::Shared { pid, other }).into()),
        // Processes that come faster than they can be looked at hide nobody from the second look.
        Ok(None) | Err(_) => Ok(()),
    }
}

/// Why a process that exists has no executable: it is a thread of the kernel, or it is just ending and has given up
/// its memory.
fn without_program(root: &ProcRoot, pid: i32) -> EngineError {
    match root.stat(pid) {
        Ok(stat) if stat.kernel_thread => EngineError::Kernel(pid),
        _ => ProcError::NoProcess(pid).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_is_in_proportion_to_a_process_that_runs_already() {
        let config = |stock_is_fixed| EngineConfig {
            stock_is_fixed,
            colors: huepage_color::ColorSet::all(4),
            stock_pages: 8192,
            fault_around: 1,
            strict: false,
            child_delay: Duration::ZERO,
            storm: false,
            scope: None,
            buffer: None,
            growth: GrowthMode::default(),
            shrink: Shrink::default(),
            since: Instant::now(),
        };
        let pages = |resident| config(false).for_resident(resident).stock_pages;
        assert_eq!((pages(0), pages(40_960), pages(1 << 20)), (256, 2048, 8192));
        assert_eq!(config(true).for_resident(0).stock_pages, 8192, "as asked for");
    }
}
