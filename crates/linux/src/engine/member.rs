//! One process of a group: its agent, its areas, its stock, and the loop that cares for them
//! until the process ends. What the loop finds outside the partition is the business of
//! `audit`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use huepage_color::{Color, ColorSet, PAGE_BYTES, Vpn};
use huepage_policy::{Census, StaticPartition};
use rustix::process::{Pid, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use super::EngineError;
use super::buffer::Buffer;
use super::census::{obstacle, overlaps, ranges};
use super::chosen::Chosen;
use super::foreign::Foreign;
use super::growth::Growth;
use super::keep::{Keeping, Kept};
use super::lazy::{Shrink, Waiting};
use super::place::Placed;
use super::scope::Scope;
use super::source::ColorSource;
use super::stock::{Step, Stocker};
use super::words::ThreadWords;
use crate::agent::protocol::{AREA_DOWN, AreaEntry, MAX_AREAS};
use crate::agent::{Agent, Faults, Options};
use crate::cgroup::MOUNT;
use crate::inject::{self, Session};
use crate::memory_room::{MemoryRoom, available_bytes};
use crate::procfs::{Area, AreaKind, Pagemap, ProcRoot, Status};
use crate::superpages::NotBuilt;

/// How a group treats its processes.
#[derive(Clone, Debug)]
pub struct Config {
    /// The partition.
    pub colors: ColorSet,
    /// Pages of stock to keep, at least.
    pub stock_pages: u64,
    /// Most pages placed around a fault.
    pub fault_around: u64,
    /// Faults wait when the stock is empty.
    pub strict: bool,
    /// How long a child lives before it is confined.
    pub child_delay: Duration,
    /// Recolour everything all the time (a test of the engine).
    pub storm: bool,
    /// What the partition is for; none: all of the memory. Of a part no faults are served, there is no
    /// stock, and what comes anew is moved by the next audit.
    pub scope: Option<Scope>,
    /// Colours beside the partition that are kept for pages that are told later, by
    /// [`Group::rescope`](super::Group::rescope); only where the partition is for all of the memory.
    pub buffer: Option<ColorSet>,
    /// How colours that are gained are filled.
    pub growth: Growth,
    /// What becomes of pages in colours that are lost; only where the partition is for all of the memory.
    pub shrink: Shrink,
    /// When the command was given: [`MemberStatus::stock_after_seconds`] counts from here.
    pub since: Instant,
}

/// Most pages of stock: 256 MiB.
const RING_PAGES: u64 = 1 << 16;
/// Time between looks for new memory, in times of what a look takes: while audits find that
/// memory came unseen and stays, and while nothing speaks for looking often.
const GROWTH_SHARES: (u32, u32) = (1, 2);
/// Memory came unseen when an audit found this part of the pages outside.
const UNSEEN_PART: u64 = 200;
/// The same for audits, without their repairs: while they find something, and while not. They
/// take an eighth of one CPU at most, or a twentieth.
const AUDIT_SHARES: (u32, u32) = (8, 20);
/// The program outran us when this part of the stock's goal came in any colour since the last
/// time it did.
const OUTRUN_PART: u64 = 64;
/// Niceness of threads that the program may have to wait for.
const NICENESS: i32 = -10;
const AUDIT_SHORTEST: Duration = Duration::from_millis(20);
const AUDIT_LONGEST: Duration = Duration::from_secs(1);
/// Time between looks at how much memory the program may still take, while nothing is gathered.
const ROOM_GAP: Duration = Duration::from_millis(100);
/// Time between looks at who the program is.
const USER_GAP: Duration = Duration::from_millis(250);
const PAUSE_SHORTEST: Duration = Duration::from_micros(500);
const PAUSE_LONGEST: Duration = Duration::from_millis(20);

/// What is known of a process, for reports.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its pid.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Where its pages were after the last audit and its repairs; `None` before the first.
    pub census: Option<Census>,
    /// The same of pages that are kept apart, in a buffer, if any are; `census` is without them.
    #[serde(default)]
    pub buffer: Option<Census>,
    /// Movable pages, and those of them in the partition, times the seconds that they were so,
    /// from the first audit to the last: what was found before repairs counts too.
    pub page_seconds: [f64; 2],
    /// Seconds from the beginning of gathering to the stock being full.
    pub gather_seconds: f64,
    /// Seconds from the command to the stock being full for the first time; none before.
    #[serde(default)]
    pub stock_after_seconds: Option<f64>,
    /// Faults answered.
    pub faults_served: u64,
    /// Pages placed for them.
    pub placed: u64,
    /// Pages of any colour placed as the stock was empty.
    pub fallback_pages: u64,
    /// Faults that waited for stock.
    pub waited: u64,
    /// Pages recoloured.
    pub recolored: u64,
    /// Seconds that recolouring them took the agent: by the clock, and on a CPU.
    pub recolor_seconds: [f64; 2],
    /// Pages put back into frames of any colour as their area changed meanwhile.
    pub copied_back: u64,
    /// Pages dropped since the program discarded them or their area meanwhile.
    pub dropped: u64,
    /// Pages given to a child forked meanwhile.
    pub child_copies: u64,
    /// Pages that no memory could be found for in such a child, which ends when it uses one.
    #[serde(default)]
    pub poisoned: u64,
    /// Audits made.
    pub audits: u64,
    /// Pages in stock.
    pub stock: u64,
    /// How often all stock was given back, as the limit of a memory control group left the process nothing.
    #[serde(default)]
    pub short_of_memory: u64,
    /// Areas served.
    pub areas: usize,
    /// Areas that the program serves by a userfaultfd of its own, which are left alone.
    #[serde(default)]
    pub foreign: Vec<(u64, u64)>,
    /// Most such areas at a time.
    #[serde(default)]
    pub foreign_most: usize,
    /// The program has a userfaultfd open: its faults are not answered by us, and pages move at
    /// audits only.
    #[serde(default)]
    pub own_userfaultfd: bool,
    /// What measuring its pages again found and took.
    #[serde(default)]
    pub kept: Kept,
    /// Candidate pages examined for the stock.
    pub examined: u64,
    /// Superpages that it has on purpose, at the last look.
    pub superpages: usize,
    /// Pages that stay in colours that were lost until they are touched.
    #[serde(default)]
    pub untouched: u64,
    /// Why pages moved at once when colours were lost last, where they were to wait.
    #[serde(default)]
    pub eager: Option<String>,
    /// Ranges of ours in the process.
    pub own: Vec<(u64, u64)>,
    /// Errors of the agent that should not occur: count, errno, place.
    pub odd: (u64, i64, u64),
}

/// How the life of a member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The process ended.
    Ended,
    /// It executed another program and has no agent any more.
    Replaced,
    /// It was released.
    Released,
    /// It has become another user. Its agent was taken out: the next one has the rights that it has now.
    Changed,
    /// The partition's memory is used up (strict).
    Exhausted,
}

/// What can be asked of a running member.
pub enum Order {
    /// Release the process.
    Release,
    /// Another partition.
    Retune(ColorSet),
    /// The partition is for other pages, or the buffer is.
    Rescope(Scope),
    /// Colours that are gained are filled otherwise.
    Grow(Growth),
    /// Colours that are lost are left otherwise.
    Shrink(Shrink),
    /// The buffer has other colours, or there is none any more.
    Rebuffer(Option<ColorSet>),
    /// Move each of these pages to its colour, once; what became of them.
    Place(Vec<(Vpn, Color)>, std::sync::mpsc::Sender<Vec<Placed>>),
    /// Measure the colours of so many resident pages again; (measured, still right).
    Verify(usize, std::sync::mpsc::Sender<(usize, usize)>),
    /// Make the 2 MiB at `block` times 2 MiB one page, with holes filled if `fill`, and leave it.
    Build {
        /// Its address divided by 2 MiB.
        block: u64,
        /// Whether it has holes.
        fill: bool,
        /// What it took, or why it is none.
        answer: std::sync::mpsc::Sender<Result<Duration, NotBuilt>>,
    },
    /// Leave a superpage alone no longer.
    GiveUp {
        /// Its address divided by 2 MiB.
        block: u64,
    },
    /// The same of all that there are.
    GiveUpAll,
}

impl Order {
    /// The order, unless it can be answered for a process without an agent.
    pub(super) fn unless_answered(self) -> Option<Order> {
        // Who asked may have lost patience.
        match self {
            Order::Verify(_, answer) => _ = answer.send((0, 0)),
            Order::Build { answer, .. } => _ = answer.send(Err(NotBuilt::Unconfined)),
            Order::GiveUp { .. } | Order::GiveUpAll => {}
            order => return Some(order),
        }
        None
    }
}

/// A process under the engine's care.
pub struct Member {
    pub(super) pid: i32,
    pub(super) root: ProcRoot,
    pub(super) agent: Agent,
    pub(super) pagemap: Pagemap,
    pub(super) source: Box<dyn ColorSource>,
    pub(super) stocker: Stocker,
    /// When it was last looked whether the process is short of memory.
    room_looked: Instant,
    short_of_memory: bool,
    pub(super) config: Config,
    pub(super) policy: StaticPartition,
    pub(super) words: ThreadWords,
    pub(super) chosen: Chosen,
    pub(super) buffer: Option<Buffer>,
    pub(super) waiting: Waiting,
    pub(super) foreign: Foreign,
    pub(super) audits: u64,
    /// When the last audit ended.
    pub(super) looked: Instant,
    /// Who the program was when its agent was started, and when that was looked at last.
    user: User,
    user_seen: Instant,
    /// The watched ranges.
    pub(super) ranges: Vec<(u64, u64)>,
    vm_pages: u64,
    next_growth: Instant,
    growth_share: u32,
    goal: u64,
    filling: bool,
    dry_rounds: u32,
    fallback_seen: u64,
    /// The stock was full once, or could not be.
    was_filled: bool,
    audit_gap: Duration,
    status: Arc<Mutex<MemberStatus>>,
    pub(super) keeping: Keeping,
}

impl Member {
    /// Starts an agent in a process whose thread is held by `session`. The thread stays held. An
    /// `heir` comes from a process that huge pages were forbidden in by us.
    ///
    /// # Errors
    /// When the process cannot be taken; it goes on unharmed.
    pub fn start(
        pid: i32,
        session: &mut Session,
        source: Box<dyn ColorSource>,
        config: &Config,
        heir: bool,
    ) -> Result<Member, EngineError> {
        let root = ProcRoot::default();
        let user = user_of(&root.status(pid)?);
        let mut words = ThreadWords::default();
        words.ask(pid, session)?;
        let options = options(config, heir);
        let agent = Agent::start(pid, session, source.reference(), &options)?;
        let status = fresh_status(&root, pid, &agent);
        Ok(Member {
            pid,
            pagemap: root.pagemap(pid)?,
            stocker: Stocker::new(
                config.colors.clone(),
                options.candidate_pages,
                MemoryRoom::new(root.clone(), Path::new(MOUNT), pid),
            ),
            room_looked: Instant::now(),
            short_of_memory: false,
            keeping: Keeping::new(source.keeper(), pid.unsigned_abs().into()),
            goal: if config.scope.is_some() { 0 } else { config.stock_pages.min(RING_PAGES) },
            config: config.clone(),
            root,
            agent,
            source,
            ranges: Vec::new(),
            user,
            user_seen: Instant::now(),
            vm_pages: 0,
            next_growth: Instant::now(),
            growth_share: GROWTH_SHARES.0,
            words,
            chosen: Chosen::default(),
            buffer: config.buffer.clone().map(Buffer::new),
            waiting: Waiting::default(),
            foreign: Foreign::default(),
            policy: StaticPartition::new(config.colors.clone()),
            filling: true,
            dry_rounds: 0,
            fallback_seen: 0,
            was_filled: false,
            audits: 0,
            looked: Instant::now(),
            audit_gap: AUDIT_SHORTEST,
            status: Arc::new(Mutex::new(status)),
        })
    }

    /// Where this member's status can be read at any time.
    pub fn status(&self) -> Arc<Mutex<MemberStatus>> {
        Arc::clone(&self.status)
    }

    /// Shows the status in `place` from now on.
    pub fn show_in(&mut self, place: Arc<Mutex<MemberStatus>>) {
        if let (Ok(mut to), Ok(from)) = (place.lock(), self.status.lock()) {
            to.clone_from(&from);
        }
        self.status = place;
    }

    /// Fills the stock to its goal; `progress` hears pages done and wanted.
    ///
    /// # Errors
    /// When the process is gone or colours cannot be measured.
    pub fn gather(&mut self, mut progress: impl FnMut(u64, u64)) -> Result<(), EngineError> {
        let start = Instant::now();
        let mut dry = 0;
        while self.agent.stock() < self.goal_in_room() && dry < 2 {
            if self.stocker.step(&mut self.agent, &self.pagemap, &mut *self.source)?
                == Step::Exhausted
            {
                dry += 1;
            }
            progress(self.agent.stock().min(self.goal), self.goal);
        }
        self.stocker.end_round(&mut self.agent)?;
        self.filling = false;
        self.with_status(|s| s.gather_seconds = start.elapsed().as_secs_f64());
        if self.goal > 0 && self.agent.stock() >= self.goal {
            self.note_filled();
        }
        Ok(())
    }

    /// Registers the areas that can be served now.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn serve_areas(&mut self) -> Result<(), EngineError> {
        let areas = self.root.maps(self.pid)?;
        self.serve(&areas)
    }

    /// The stock has reached its goal.
    fn note_filled(&mut self) {
        if !self.was_filled {
            self.was_filled = true;
            let after = self.config.since.elapsed().as_secs_f64();
            self.with_status(|s| s.stock_after_seconds = Some(after));
        }
    }

    /// Cares for the process until it ends, is replaced or released. Orders that came `early` are obeyed
    /// first.
    ///
    /// # Errors
    /// When something fails that is neither of these.
    pub fn run(
        mut self,
        orders: &Receiver<Order>,
        early: VecDeque<Order>,
    ) -> Result<Outcome, EngineError> {
        self.hurry();
        let outcome = self.care(orders, early);
        self.note_counters();
        match outcome {
            Ok(outcome @ (Outcome::Released | Outcome::Changed)) => {
                self.agent.detach()?;
                Ok(outcome)
            }
            Err(e) if e.is_gone() => Ok(self.after_loss()),
            other => other,
        }
    }

    /// This thread and the agent's go first when a CPU is short: the program waits for them, or
    /// outruns them, and what they take is bounded. Without the right to it, so be it. Where only some
    /// pages are moved nobody waits for them, and they go where the program does not run.
    fn hurry(&self) {
        let ours = self.agent.threads().iter().map(|&thread| Pid::from_raw(thread));
        if self.config.scope.is_some() {
            let cpus = elsewhere(self.pid);
            ours.for_each(|thread| _ = cpus.map(|cpus| sched_setaffinity(thread, &cpus)));
            return;
        }
        let _ = setpriority_process(None, NICENESS);
        ours.for_each(|thread| _ = setpriority_process(thread, NICENESS));
    }

    /// The agent is gone: with the process, or because it executed another program.
    fn after_loss(&self) -> Outcome {
        let gone = self.root.status(self.pid).map_or(true, |s| s.is_dead());
        if gone { Outcome::Ended } else { Outcome::Replaced }
    }

    fn care(
        &mut self,
        orders: &Receiver<Order>,
        mut next: VecDeque<Order>,
    ) -> Result<Outcome, EngineError> {
        let mut audited = (Instant::now(), Duration::ZERO);
        let mut pause = PAUSE_SHORTEST;
        loop {
            inject::release_late();
            let ordered = next.pop_front().or_else(|| orders.try_recv().ok());
            let mut busy = ordered.is_some();
            if let Some(order) = ordered
                && self.obey(order)?
            {
                return Ok(Outcome::Released);
            }
            if !self.agent.is_alive() {
                return Ok(self.after_loss());
            }
            busy |= self.follow_userfaultfds()?;
            busy |= self.follow_growth()?;
            busy |= self.keep_stock()?;
            busy |= self.look_at_waiting()?;
            busy |= self.keep()?;
            if self.dry_rounds > 20 && self.config.strict {
                return Ok(Outcome::Exhausted);
            }
            if self.has_changed_user()? {
                return Ok(Outcome::Changed);
            }
            if self.config.storm || audited.0.elapsed() >= self.audit_gap.max(audited.1) {
                let (outside, looking) = self.audit()?;
                self.pace_audit(outside);
                let share = if outside > 0 { AUDIT_SHARES.0 } else { AUDIT_SHARES.1 };
                audited = (Instant::now(), looking * share);
            }
            pause = if busy { PAUSE_SHORTEST } else { (pause * 2).min(PAUSE_LONGEST) };
            if !self.filling && !self.config.storm {
                match orders.recv_timeout(pause) {
                    Ok(order) => next.push_back(order),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => std::thread::sleep(pause),
                }
            }
        }
    }

    /// Whether the program has other credentials than when its agent was started, which has kept
    /// those that it could have then. Looked at every [`USER_GAP`].
    fn has_changed_user(&mut self) -> Result<bool, EngineError> {
        if self.user_seen.elapsed() < USER_GAP {
            return Ok(false);
        }
        self.user_seen = Instant::now();
        Ok(user_of(&self.root.status(self.pid)?) != self.user)
    }

    /// Does what is asked; whether that is to release the process.
    fn obey(&mut self, order: Order) -> Result<bool, EngineError> {
        match order {
            Order::Release => return Ok(true),
            Order::Retune(colors) => self.retune(colors)?,
            Order::Rescope(scope) => self.rescope(scope)?,
            Order::Grow(growth) => self.config.growth = growth,
            Order::Shrink(shrink) => self.shrink_by(shrink),
            Order::Rebuffer(colors) => self.recolor_buffer(colors)?,
            // Who asked may have lost patience.
            Order::Place(wishes, answer) => _ = answer.send(self.place(&wishes)?),
            Order::Verify(n, answer) => _ = answer.send(self.verify(n)?),
            Order::Build { block, fill, answer } => _ = answer.send(self.build(block, fill)?),
            Order::GiveUp { block } => self.give_up(block),
            Order::GiveUpAll => self.give_up_all(),
        }
        Ok(false)
    }

    /// A few stragglers can wait; more than that tell of memory that came unseen, of which
    /// there will be more.
    fn pace_audit(&mut self, outside: usize) {
        let resident = self.status.lock().ok().and_then(|s| Some(s.census.as_ref()?.total()));
        let unseen = outside as u64 > resident.map_or(0, |row| row.movable() / UNSEEN_PART);
        let (often, seldom) = GROWTH_SHARES;
        self.growth_share = if unseen { often } else { (self.growth_share * 2).min(seldom) };
        self.audit_gap =
            if unseen { AUDIT_SHORTEST } else { (self.audit_gap * 2).min(AUDIT_LONGEST) };
    }

    /// Notices new memory by the size of the address space. Reading a long list of areas
    /// must not cost more than a part of a CPU.
    fn follow_growth(&mut self) -> Result<bool, EngineError> {
        let start = Instant::now();
        if start < self.next_growth || !self.watches() {
            return Ok(false);
        }
        let size = self.root.statm(self.pid)?.size;
        if size == self.vm_pages {
            return Ok(false);
        }
        self.vm_pages = size;
        let areas = self.root.maps(self.pid)?;
        let fresh = self.fresh(&areas);
        if !fresh.is_empty() {
            // What was touched before it was watched is to be found soon.
            self.audit_gap = AUDIT_SHORTEST;
        }
        self.serve_where(&areas, |range| fresh.iter().any(|&at| range.0 <= at && at < range.1))?;
        self.next_growth = Instant::now() + start.elapsed() * self.growth_share;
        Ok(true)
    }

    /// Where areas begin that the agent does not know as they are.
    fn fresh(&self, areas: &[Area]) -> Vec<u64> {
        let known: HashSet<(u64, u64)> =
            self.agent.areas().into_iter().map(|a| (a.start, a.end)).collect();
        let own = self.foreign.areas();
        let news = areas.iter().filter(|a| obstacle(a).is_none() && !overlaps(a, own));
        news.filter(|a| !known.contains(&(a.start, a.end))).map(|a| a.start).collect()
    }

    /// Whether faults are answered with frames of the partition.
    pub(super) fn serves(&self) -> bool {
        self.config.scope.is_none()
    }

    /// Has the stock filled again.
    pub(super) fn refill(&mut self) {
        (self.filling, self.dry_rounds) = (self.goal > 0, 0);
    }

    /// Has an audit made soon.
    pub(super) fn audit_now(&mut self) {
        self.audit_gap = AUDIT_SHORTEST;
    }

    /// Pages of stock to have: no more than half of what the process may still take, whose other half
    /// is for candidates of other colours.
    fn goal_in_room(&mut self) -> u64 {
        let room = self.stocker.room_pages() / 2;
        self.goal.min(self.agent.stock().saturating_add(room))
    }

    /// Gives the stock back where the process needs the memory itself; whether it is short of it.
    fn yield_memory(&mut self) -> Result<bool, EngineError> {
        if !self.filling && self.room_looked.elapsed() < ROOM_GAP {
            return Ok(self.short_of_memory);
        }
        self.room_looked = Instant::now();
        self.short_of_memory = self.stocker.room_pages() == 0;
        if self.short_of_memory && (self.agent.stock() > 0 || self.filling) {
            self.stocker.end_round(&mut self.agent)?;
            self.agent.empty_stock()?;
            self.filling = false;
            self.with_status(|s| s.short_of_memory += 1);
        }
        Ok(self.short_of_memory)
    }

    /// One step of gathering while the stock is low. True when something was done.
    fn keep_stock(&mut self) -> Result<bool, EngineError> {
        if self.goal == 0 || self.yield_memory()? {
            return Ok(false);
        }
        let fallback = self.agent.counts().fallback;
        if !self.was_filled {
            // It may have begun before there was any stock.
            self.fallback_seen = fallback;
        } else if fallback > self.fallback_seen + self.goal / OUTRUN_PART {
            // The program outran us: keep more in stock from now on.
            self.fallback_seen = fallback;
            self.goal = (self.goal * 2).min(RING_PAGES / 2);
            self.filling = true;
        }
        if self.agent.stock() < self.goal / 2 {
            self.filling = true;
        }
        if !self.filling {
            return Ok(false);
        }
        let step = self.stocker.step(&mut self.agent, &self.pagemap, &mut *self.source)?;
        if self.agent.stock() >= self.goal_in_room() {
            self.stocker.end_round(&mut self.agent)?;
            self.filling = false;
            self.dry_rounds = 0;
            self.note_filled();
        }
        if step == Step::Exhausted {
            self.dry_rounds += 1;
            self.was_filled = true;
            self.filling = self.config.strict && self.agent.stock() == 0;
        }
        Ok(true)
    }

    /// Hands the agent the areas to serve and the ranges to watch.
    pub(super) fn serve(&mut self, areas: &[Area]) -> Result<(), EngineError> {
        self.serve_where(areas, |_| true)
    }

    /// As [`Self::serve`], but only ranges for which `anew` says so are registered again:
    /// that holds up every other change of the address space for a moment.
    fn serve_where(
        &mut self,
        areas: &[Area],
        anew: impl Fn(&(u64, u64)) -> bool,
    ) -> Result<(), EngineError> {
        if !self.watches() {
            self.find_ranges(areas);
            return Ok(());
        }
        let apart = self.apart_ranges();
        let before: HashMap<u64, AreaEntry> =
            self.agent.areas().into_iter().map(|a| (a.start, a)).collect();
        let free = |a: &&Area| !overlaps(a, &apart) && obstacle(a).is_none();
        let served = areas.iter().filter(free).take(MAX_AREAS);
        let table: Vec<AreaEntry> = served.map(|a| entry_for(a, before.get(&a.start))).collect();
        self.ranges = ranges(areas, &apart);
        let anew: Vec<(u64, u64)> = self.ranges.iter().copied().filter(anew).collect();
        if self.agent.set_areas(&table, &anew)? > 0 {
            self.foreign.suspect();
        }
        self.with_status(|s| s.areas = table.len());
        Ok(())
    }

    /// Looks up what has to be watched while pages are recoloured.
    pub(super) fn find_ranges(&mut self, areas: &[Area]) {
        self.ranges = ranges(areas, &self.apart_ranges());
    }

    pub(super) fn with_status(&self, change: impl FnOnce(&mut MemberStatus)) {
        if let Ok(mut status) = self.status.lock() {
            change(&mut status);
        }
    }

    pub(super) fn note_counters(&self) {
        let c = self.agent.counts();
        self.with_status(|s| {
            s.faults_served = c.faults;
            s.placed = c.placed;
            s.fallback_pages = c.fallback;
            s.waited = c.waited;
            s.recolored = c.recolored;
            s.recolor_seconds =
                [c.recolor_ns, c.recolor_cpu_ns].map(|ns| Duration::from_nanos(ns).as_secs_f64());
            s.copied_back = c.copied_back;
            s.dropped = c.dropped;
            s.child_copies = c.child_copies;
            s.poisoned = c.poisoned;
            s.odd = c.odd;
            s.audits = self.audits;
            s.stock = self.agent.stock();
            s.examined = self.stocker.examined;
        });
    }
}

/// Real and effective uid, gid, capabilities.
type User = (u32, u32, u32, u64);

fn user_of(status: &Status) -> User {
    (status.real_uid, status.uid, status.gid, status.capabilities)
}

fn entry_for(area: &Area, before: Option<&AreaEntry>) -> AreaEntry {
    let flags = if area.kind() == AreaKind::MainStack { AREA_DOWN } else { 0 };
    let (next, window) = before.map_or((0, 0), |old| (old.next, old.window));
    AreaEntry { start: area.start, end: area.end, flags, next, window }
}

/// The CPUs that this thread may use and the process's first thread does not, or all of them if there is
/// no other; none where that cannot be found out.
fn elsewhere(pid: i32) -> Option<CpuSet> {
    let own = sched_getaffinity(None).ok()?;
    let its = sched_getaffinity(Pid::from_raw(pid)).ok()?;
    let mut others = CpuSet::new();
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| own.is_set(cpu) && !its.is_set(cpu))
        .for_each(|cpu| others.set(cpu));
    Some(if others.count() > 0 { others } else { own })
}

/// Of a process of which nothing was seen yet.
fn fresh_status(root: &ProcRoot, pid: i32, agent: &Agent) -> MemberStatus {
    let name = root.status(pid).map(|s| s.name).unwrap_or_default();
    MemberStatus { pid, name, own: agent.own_ranges(), ..Default::default() }
}

/// What an agent is started with.
fn options(config: &Config, heir: bool) -> Options {
    Options {
        ring_pages: RING_PAGES,
        candidate_pages: candidate_pages(),
        fault_around: config.fault_around,
        strict: config.strict,
        keep_huge: config.scope.is_some(),
        heir,
        faults: Faults::default(),
    }
}

/// Candidates to examine at most in a round: a quarter of what is available, up to 4 GiB.
fn candidate_pages() -> u64 {
    let available = available_bytes().unwrap_or(1 << 30);
    (available / PAGE_BYTES / 4).clamp(4096, 1 << 20)
}
