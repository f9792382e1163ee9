//! One process of a group: its agent, its areas, its stock, and the loop that cares for them until the process ends.
//!
//! `audit` brings back what lies outside the partition (`moves`: which pages those are), `upkeep` measures again
//! what is held, `place` moves given pages to given colours, so that all are used alike too, `pinned` are the superpages that are left alone,
//! `buffer` keeps pages that pollute in colours of their own, `foreign` keeps away from what a userfaultfd of the
//! program's own serves, `retune` and `growth` move pages to colours that come, `lazy` keeps those in colours that
//! go where they are until they are touched. `agent_cpu` says where the agent runs, `stock` keeps frames for faults, `new_memory` notices areas that come, `settle`
//! rests while nothing is to be done.

mod agent_cpu;
mod audit;
mod buffer;
mod growth;
mod lazy;
mod moves;
mod new_memory;
pub(super) mod orders;
mod own_userfaultfd;
mod pinned;
mod place;
pub(super) mod rest;
mod retune;
mod settle;
mod stock;
mod upkeep;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use huepage_color::{Color, ColorSet, PAGE_BYTES, Vpn};
use huepage_policy::{Census, StaticPartition};
use serde::{Deserialize, Serialize};

pub use growth::GrowthMode;
pub use lazy::Shrink;
pub use pinned::PromotionHandle;
pub use place::Placed;
pub use upkeep::UpkeepReport;

use super::EngineError;
use super::census::{overlaps, ranges};
use super::clear_tid::ClearTidPages;
use super::pool_filler::PoolFiller;
use super::scope::Scope;
use crate::color::sources::ColorSource;
use crate::inject::agent::protocol::{AREA_DOWN, AreaEntry, MAX_AREAS};
use crate::inject::agent::{Agent, AgentOptions, StartFaults, UnexpectedErrors};
use crate::inject::{self, Session};
use crate::kernel::memory_room::{addresses_left, available_bytes};
use crate::kernel::process_memory::NotBuilt;
use crate::kernel::procfs::{Area, AreaKind, Pagemap, ProcRoot, ProcessStatus, obstacle};
use crate::kernel::signs::SignReader;
use agent_cpu::AgentCpu;
use buffer::Buffer;
use lazy::Waiting;
use new_memory::NewMemoryWatch;
use orders::Inbox;
use own_userfaultfd::Foreign;
use pinned::PinnedSuperpages;
use rest::Rest;
use settle::Settling;
use stock::{RING_PAGES, StockState};
use upkeep::UpkeepRounds;

/// How a group treats its processes.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The partition.
    pub colors: ColorSet,
    /// Pages of stock to keep, at least.
    pub stock_pages: u64,
    /// Whether that is so for small processes that run already, too; else it is half of what they have resident.
    pub stock_is_fixed: bool,
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
    pub growth: GrowthMode,
    /// What becomes of pages in colours that are lost; only where the partition is for all of the memory.
    pub shrink: Shrink,
    /// When the command was given: [`MemberStatus::stock_after_seconds`] counts from here.
    pub since: Instant,
}

/// Time between looks at who the program is.
const USER_INTERVAL: Duration = Duration::from_millis(250);
/// How long an agent whose contexts are used up stays at least.
const WORN_OUT_INTERVAL: Duration = Duration::from_secs(1);
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
    /// Longest that a page was out for that: whoever touched it waited no longer.
    pub longest_out_seconds: f64,
    /// Pages put back into frames of any colour as their area changed meanwhile.
    pub copied_back: u64,
    /// Pages dropped since the program discarded them or their area meanwhile.
    pub dropped: u64,
    /// Pages given to a child forked meanwhile.
    pub child_copies: u64,
    /// Pages that no memory could be found for in such a child, which ends when it uses one.
    #[serde(default)]
    pub poisoned: u64,
    /// Whether it rests: its pages lie right, its stock is full, and nothing is done until something changes.
    #[serde(default)]
    pub resting: bool,
    /// Audits made.
    pub audits: u64,
    /// Pages in stock, and candidates for it.
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
    pub upkeep: UpkeepReport,
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
    /// Errors of the agent that should not occur.
    pub unexpected_errors: UnexpectedErrors,
}

/// How the life of a member ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberEnd {
    /// The process ended.
    Ended,
    /// It executed another program and has no agent any more.
    Replaced,
    /// It was released.
    Released,
    /// It has become another user, or its agent is worn out. That was taken out: the next one has the rights that
    /// the process has now.
    Changed,
    /// The partition's memory is used up (strict).
    Exhausted,
}

/// What can be asked of a running member.
pub enum MemberOrder {
    /// Release the process.
    Release,
    /// Another partition.
    Retune(ColorSet),
    /// The partition is for other pages, or the buffer is.
    Rescope(Scope),
    /// Colours that are gained are filled otherwise.
    Grow(GrowthMode),
    /// Colours that are lost are left otherwise.
    Shrink(Shrink),
    /// The buffer has other colours, or there is none any more.
    Rebuffer(Option<ColorSet>),
    /// Move each of these pages to its colour, once; what became of them.
    Place(Vec<(Vpn, Color)>, std::sync::mpsc::Sender<Vec<Placed>>),
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

impl MemberOrder {
    /// The order, unless it can be answered for a process without an agent.
    pub(super) fn unless_answered(self) -> Option<MemberOrder> {
        // Who asked may have lost patience.
        match self {
            MemberOrder::Build { answer, .. } => _ = answer.send(Err(NotBuilt::Unconfined)),
            MemberOrder::GiveUp { .. } | MemberOrder::GiveUpAll => {}
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
    pub(super) pool_filler: PoolFiller,
    stock: StockState,
    pub(super) config: EngineConfig,
    pub(super) policy: StaticPartition,
    pub(super) clear_tid: ClearTidPages,
    pinned: PinnedSuperpages,
    buffer: Option<Buffer>,
    waiting: Waiting,
    foreign: Foreign,
    pub(super) audits: u64,
    /// When the last audit ended.
    pub(super) looked: Instant,
    /// Who the program was when its agent was started, and when that was looked at last.
    user: User,
    user_seen: Instant,
    /// The watched ranges.
    pub(super) ranges: Vec<(u64, u64)>,
    new_memory: NewMemoryWatch,
    settling: Settling,
    status: Arc<Mutex<MemberStatus>>,
    upkeep: UpkeepRounds,
    agent_cpu: AgentCpu,
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
        config: &EngineConfig,
        heir: bool,
    ) -> Result<Member, EngineError> {
        let root = ProcRoot::default();
        let user = user_of(&root.status(pid)?);
        let mut clear_tid = ClearTidPages::default();
        clear_tid.ask(pid, session)?;
        let options = options(config, heir, addresses_left(&root, pid));
        let agent = Agent::start(pid, session, source.reference(), &options)?;
        Ok(Member {
            pid,
            status: Arc::new(Mutex::new(fresh_status(&root, pid, &agent))),
            pagemap: root.pagemap(pid)?,
            pool_filler: stock::filler(&root, pid, config, options.candidate_pages),
            stock: StockState::new(config),
            upkeep: UpkeepRounds::new(source.upkeep(), pid.unsigned_abs().into()),
            config: config.clone(),
            agent,
            source,
            ranges: Vec::new(),
            user,
            user_seen: Instant::now(),
            new_memory: NewMemoryWatch::default(),
            clear_tid,
            pinned: PinnedSuperpages::default(),
            buffer: config.buffer.clone().map(Buffer::new),
            waiting: Waiting::default(),
            foreign: Foreign::default(),
            policy: StaticPartition::new(config.colors.clone()),
            audits: 0,
            looked: Instant::now(),
            root: root.clone(),
            settling: Settling::new(SignReader::open(&root, pid)?),
            agent_cpu: AgentCpu::default(),
        })
    }

    /// Where this member's status can be read at any time.
    pub fn status(&self) -> Arc<Mutex<MemberStatus>> {
        Arc::clone(&self.status)
    }

    /// Says in `rest` when it needs no care, from now on.
    pub(super) fn rest_in(&mut self, rest: Arc<Rest>) {
        self.settling.rest = rest;
    }

    /// Shows the status in `place` from now on.
    pub fn show_in(&mut self, place: Arc<Mutex<MemberStatus>>) {
        if let (Ok(mut to), Ok(from)) = (place.lock(), self.status.lock()) {
            to.clone_from(&from);
        }
        self.status = place;
    }

    /// Registers the areas that can be served now.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn serve_areas(&mut self) -> Result<(), EngineError> {
        let areas = self.root.maps(self.pid)?;
        self.serve(&areas)
    }

    /// Cares for the process until it ends, is replaced or released. Orders that came `early` are obeyed
    /// first.
    ///
    /// # Errors
    /// When something fails that is neither of these.
    pub(super) fn run(
        mut self,
        orders: &Inbox,
        early: VecDeque<MemberOrder>,
    ) -> Result<MemberEnd, EngineError> {
        self.hurry();
        let outcome = self.care(orders, early);
        self.note_counters();
        match outcome {
            Ok(outcome @ (MemberEnd::Released | MemberEnd::Changed)) => {
                self.agent.detach()?;
                Ok(outcome)
            }
            Err(e) if e.is_gone() => Ok(self.after_loss()),
            other => other,
        }
    }

    /// The agent is gone: with the process, or because it executed another program.
    fn after_loss(&self) -> MemberEnd {
        let gone = self.root.status(self.pid).map_or(true, |s| s.is_dead());
        if gone { MemberEnd::Ended } else { MemberEnd::Replaced }
    }

    fn care(
        &mut self,
        orders: &Inbox,
        mut next: VecDeque<MemberOrder>,
    ) -> Result<MemberEnd, EngineError> {
        let mut pause = PAUSE_SHORTEST;
        loop {
            let late = inject::release_late();
            let ordered = next.pop_front().or_else(|| orders.next());
            let mut busy = ordered.is_some();
            if let Some(order) = ordered
                && self.obey(order)?
            {
                return Ok(MemberEnd::Released);
            }
            if !self.agent.is_alive() {
                return Ok(self.after_loss());
            }
            busy |= self.step()?;
            self.follow_program(busy);
            if self.stock.empty_rounds > 20 && self.config.strict {
                return Ok(MemberEnd::Exhausted);
            }
            if self.has_changed_user()? || self.is_worn_out() {
                return Ok(MemberEnd::Changed);
            }
            self.audit_when_due()?;
            pause = if busy { PAUSE_SHORTEST } else { (pause * 2).min(PAUSE_LONGEST) };
            let rested = !busy && !late && next.is_empty() && self.rest_if_settled(orders)?;
            if !rested && !self.stock.filling && !self.config.storm {
                next.extend(orders.next_within(pause));
            }
        }
    }

    /// One step of all that goes on by itself, audits apart. True when something was done.
    fn step(&mut self) -> Result<bool, EngineError> {
        let mut busy = self.follow_userfaultfds()?;
        busy |= self.follow_new_memory()?;
        busy |= self.keep_stock()?;
        busy |= self.look_at_waiting()?;
        busy |= self.keep()?;
        Ok(busy)
    }

    /// Audits, unless the last audit is too recent, or nothing has changed since.
    fn audit_when_due(&mut self) -> Result<(), EngineError> {
        let now = || self.settling.began.elapsed();
        let due = || self.settling.pace.is_due(now()) && !self.needs_no_audit();
        if self.config.storm || due() {
            let mut found = self.audit()?;
            self.note_looking(found.looking);
            found.wanted += self.even_out(&found)?;
            let unseen = self.settling.pace.audited(found, self.settling.began.elapsed());
            self.new_memory.pace(unseen);
        }
        Ok(())
    }

    /// Whether the program has other credentials than when its agent was started, which has kept
    /// those that it could have then. Looked at every [`USER_INTERVAL`].
    fn has_changed_user(&mut self) -> Result<bool, EngineError> {
        if self.user_seen.elapsed() < USER_INTERVAL {
            return Ok(false);
        }
        self.has_other_user()
    }

    /// Whether another agent is to recolour what this one cannot. Not at once: who wears agents out, or says so,
    /// costs no more than that.
    fn is_worn_out(&self) -> bool {
        self.agent.is_worn_out() && self.settling.began.elapsed() >= WORN_OUT_INTERVAL
    }

    fn has_other_user(&mut self) -> Result<bool, EngineError> {
        self.user_seen = Instant::now();
        Ok(user_of(&self.root.status(self.pid)?) != self.user)
    }

    /// Does what is asked; whether that is to release the process.
    fn obey(&mut self, order: MemberOrder) -> Result<bool, EngineError> {
        self.look_once_more();
        match order {
            MemberOrder::Release => return Ok(true),
            MemberOrder::Retune(colors) => self.retune(colors)?,
            MemberOrder::Rescope(scope) => self.rescope(scope)?,
            MemberOrder::Grow(growth) => self.config.growth = growth,
            MemberOrder::Shrink(shrink) => self.shrink_by(shrink),
            MemberOrder::Rebuffer(colors) => self.recolor_buffer(colors)?,
            // Who asked may have lost patience.
            MemberOrder::Place(moves, answer) => _ = answer.send(self.place(&moves)?),
            MemberOrder::Build { block, fill, answer } => _ = answer.send(self.build(block, fill)?),
            MemberOrder::GiveUp { block } => self.give_up(block),
            MemberOrder::GiveUpAll => self.give_up_all(),
        }
        Ok(false)
    }

    /// Whether faults are answered with frames of the partition.
    pub(super) fn serves(&self) -> bool {
        self.config.scope.is_none()
    }

    /// Has an audit made soon.
    pub(super) fn audit_now(&mut self) {
        self.settling.pace.soon();
    }

    /// Gives the agent the areas to serve and the ranges to watch.
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
            s.longest_out_seconds = Duration::from_nanos(c.longest_out_ns).as_secs_f64();
            s.copied_back = c.copied_back;
            s.dropped = c.dropped;
            s.child_copies = c.child_copies;
            s.poisoned = c.poisoned;
            s.unexpected_errors = c.unexpected_errors;
            s.audits = self.audits;
            s.stock = self.agent.stock() + self.pool_filler.held();
            s.examined = self.pool_filler.examined;
        });
    }
}

/// Real and effective uid, gid, capabilities.
pub(super) type User = (u32, u32, u32, u64);

pub(super) fn user_of(status: &ProcessStatus) -> User {
    (status.real_uid, status.uid, status.gid, status.capabilities)
}

fn entry_for(area: &Area, before: Option<&AreaEntry>) -> AreaEntry {
    let flags = if area.kind() == AreaKind::MainStack { AREA_DOWN } else { 0 };
    let (next, window) = before.map_or((0, 0), |old| (old.next, old.window));
    AreaEntry { start: area.start, end: area.end, flags, next, window }
}

/// Of a process of which nothing was seen yet.
fn fresh_status(root: &ProcRoot, pid: i32, agent: &Agent) -> MemberStatus {
    let name = root.status(pid).map(|s| s.name).unwrap_or_default();
    MemberStatus { pid, name, own: agent.own_ranges(), ..Default::default() }
}

/// What an agent is started with.
fn options(config: &EngineConfig, heir: bool, addresses: Option<u64>) -> AgentOptions {
    AgentOptions {
        ring_pages: RING_PAGES,
        candidate_pages: candidate_pages(addresses),
        fault_around: config.fault_around,
        strict: config.strict,
        keep_huge: config.scope.is_some(),
        heir,
        faults: StartFaults::default(),
    }
}

/// Candidates to examine at most in a round: what is available, up to 64 GiB, and an
/// eighth of the `addresses` that the process may still map.
fn candidate_pages(addresses: Option<u64>) -> u64 {
    let available = available_bytes().unwrap_or(1 << 30);
    let addresses = addresses.map_or(u64::MAX, |bytes| bytes / 8);
    available.min(addresses).div_euclid(PAGE_BYTES).clamp(16_384, 1 << 24)
}
