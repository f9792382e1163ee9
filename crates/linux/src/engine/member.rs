//! One process of a group: its agent, its stock, and the audit that finds pages outside the
//! partition and brings them back.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use huepage_color::{ColorSet, Pfn};
use serde::{Deserialize, Serialize};

use super::EngineError;
use super::census::{Census, Eyes, Outside, immovable, ranges};
use super::source::ColorSource;
use super::stock::{Step, Stocker};
use super::words::ThreadWords;
use crate::agent::protocol::{AREA_DOWN, AreaEntry, MAX_AREAS};
use crate::agent::{Agent, Options};
use crate::inject::Session;
use crate::procfs::{Area, AreaKind, Pagemap, ProcRoot, VmFlags};

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
}

/// Most pages of stock: 256 MiB.
const RING_PAGES: u64 = 1 << 16;
/// Pages recoloured with one command.
const RECOLOR_PAGES: usize = 1024;
/// Most pages repaired in one audit.
const REPAIR_PAGES: usize = 1 << 17;
const AUDIT_SHORTEST: Duration = Duration::from_millis(20);
const AUDIT_LONGEST: Duration = Duration::from_secs(1);
const PAUSE_SHORTEST: Duration = Duration::from_micros(500);
const PAUSE_LONGEST: Duration = Duration::from_millis(20);

/// What is known of a process, for reports.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MemberStatus {
    /// Its pid.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Where its pages were after the last audit and its repairs.
    pub census: Census,
    /// Seconds from the beginning of gathering to the stock being full.
    pub gather_seconds: f64,
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
    /// Pages put back into frames of any colour as their area changed meanwhile.
    pub copied_back: u64,
    /// Pages given to a child forked meanwhile.
    pub child_copies: u64,
    /// Refusals by reason.
    pub refused: BTreeMap<String, u64>,
    /// Audits made.
    pub audits: u64,
    /// Pages in stock.
    pub stock: u64,
    /// Areas served.
    pub areas: usize,
    /// Candidate pages examined for the stock.
    pub examined: u64,
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
    /// The partition's memory is used up (strict).
    Exhausted,
}

/// What can be asked of a running member.
pub enum Order {
    /// Release the process.
    Release,
    /// Measure the colours of so many resident pages again; (looked at, still right).
    Verify(usize, std::sync::mpsc::Sender<(usize, usize)>),
}

/// Pages outside the partition, by area.
type Outsiders = Vec<(Area, Vec<Outside>)>;

/// A page that refused to be recoloured.
struct Refusal {
    reason: &'static str,
    again: u64,
    tries: u32,
}

/// A process under the engine's care.
pub struct Member {
    pid: i32,
    root: ProcRoot,
    agent: Agent,
    pagemap: Pagemap,
    source: Box<dyn ColorSource>,
    stocker: Stocker,
    config: Config,
    /// Areas in the agent's table.
    served: usize,
    ranges: Vec<(u64, u64)>,
    vm_pages: u64,
    words: ThreadWords,
    refusals: HashMap<u64, Refusal>,
    goal: u64,
    filling: bool,
    dry_rounds: u32,
    fallback_seen: u64,
    audits: u64,
    audit_gap: Duration,
    status: Arc<Mutex<MemberStatus>>,
}

impl Member {
    /// Starts an agent in a process whose thread is held by `session`. The thread stays held.
    ///
    /// # Errors
    /// When the process cannot be taken; it goes on unharmed.
    pub fn start(
        pid: i32,
        session: &mut Session,
        source: Box<dyn ColorSource>,
        config: &Config,
    ) -> Result<Member, EngineError> {
        let root = ProcRoot::default();
        let mut words = ThreadWords::default();
        words.ask(pid, session)?;
        let options = Options {
            ring_pages: RING_PAGES,
            candidate_pages: candidate_pages(),
            fault_around: config.fault_around,
            strict: config.strict,
        };
        let agent = Agent::start(pid, session, source.reference(), &options)?;
        let name = root.status(pid).map(|s| s.name).unwrap_or_default();
        let status = MemberStatus { pid, name, own: agent.own_ranges(), ..Default::default() };
        Ok(Member {
            pid,
            pagemap: root.pagemap(pid)?,
            stocker: Stocker::new(config.colors.clone(), options.candidate_pages),
            goal: config.stock_pages.min(RING_PAGES),
            config: config.clone(),
            root,
            agent,
            source,
            served: 0,
            ranges: Vec::new(),
            vm_pages: 0,
            words,
            refusals: HashMap::new(),
            filling: true,
            dry_rounds: 0,
            fallback_seen: 0,
            audits: 0,
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
        while self.agent.stock() < self.goal && dry < 2 {
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

    /// Cares for the process until it ends, is replaced or released.
    ///
    /// # Errors
    /// When something fails that is neither of these.
    pub fn run(mut self, orders: &Receiver<Order>) -> Result<Outcome, EngineError> {
        let outcome = self.care(orders);
        self.note_counters();
        match outcome {
            Ok(Outcome::Released) => {
                self.agent.detach()?;
                Ok(Outcome::Released)
            }
            Err(e) if e.is_gone() => Ok(self.after_loss()),
            other => other,
        }
    }

    /// The agent is gone: with the process, or because it executed another program.
    fn after_loss(&self) -> Outcome {
        let gone = self.root.status(self.pid).map_or(true, |s| s.is_dead());
        if gone { Outcome::Ended } else { Outcome::Replaced }
    }

    fn care(&mut self, orders: &Receiver<Order>) -> Result<Outcome, EngineError> {
        let mut next_audit = Instant::now();
        let mut pause = PAUSE_SHORTEST;
        loop {
            match orders.try_recv() {
                Ok(Order::Release) => return Ok(Outcome::Released),
                Ok(Order::Verify(n, answer)) => {
                    let found = self.verify(n)?;
                    let _ = answer.send(found);
                }
                Err(_) => {}
            }
            if !self.agent.is_alive() {
                return Ok(self.after_loss());
            }
            let mut busy = self.follow_growth()?;
            busy |= self.keep_stock()?;
            if self.dry_rounds > 20 && self.config.strict {
                return Ok(Outcome::Exhausted);
            }
            if Instant::now() >= next_audit {
                let start = Instant::now();
                let outside = self.audit()?;
                self.pace_audit(outside);
                // An audit may cost a twentieth of one CPU.
                next_audit = Instant::now() + self.audit_gap.max(start.elapsed() * 20);
                if self.config.storm {
                    next_audit = Instant::now();
                }
            }
            pause = if busy { PAUSE_SHORTEST } else { (pause * 2).min(PAUSE_LONGEST) };
            if !self.filling && !self.config.storm {
                std::thread::sleep(pause);
            }
        }
    }

    fn pace_audit(&mut self, outside: usize) {
        self.audit_gap =
            if outside > 0 { AUDIT_SHORTEST } else { (self.audit_gap * 2).min(AUDIT_LONGEST) };
    }

    /// Notices new memory by the size of the address space.
    fn follow_growth(&mut self) -> Result<bool, EngineError> {
        let size = self.root.statm(self.pid)?.size;
        if size == self.vm_pages {
            return Ok(false);
        }
        self.vm_pages = size;
        self.serve_areas()?;
        Ok(true)
    }

    /// One step of gathering while the stock is low. True when something was done.
    fn keep_stock(&mut self) -> Result<bool, EngineError> {
        let fallback = self.agent.shared().counters.fallback.load(Relaxed);
        if fallback > self.fallback_seen {
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
        if self.agent.stock() >= self.goal {
            self.stocker.end_round(&mut self.agent)?;
            self.filling = false;
            self.dry_rounds = 0;
        }
        if step == Step::Exhausted {
            self.dry_rounds += 1;
            self.filling = self.config.strict && self.agent.stock() == 0;
        }
        Ok(true)
    }

    /// Hands the agent the areas to serve and the ranges to watch.
    fn serve(&mut self, areas: &[Area]) -> Result<(), EngineError> {
        let own = self.agent.own_ranges();
        let before: HashMap<u64, AreaEntry> =
            self.agent.areas(self.served).into_iter().map(|a| (a.start, a)).collect();
        let ours = |a: &Area| own.iter().any(|&(start, end)| a.start < end && start < a.end);
        let served = areas.iter().filter(|a| !ours(a) && immovable(a).is_none()).take(MAX_AREAS);
        let table: Vec<AreaEntry> = served.map(|a| entry_for(a, before.get(&a.start))).collect();
        self.ranges = ranges(areas, &own);
        self.agent.set_areas(&table, &self.ranges)?;
        self.served = table.len();
        self.with_status(|s| s.areas = table.len());
        Ok(())
    }

    /// Finds pages outside the partition and brings them back; returns how many there were.
    fn audit(&mut self) -> Result<usize, EngineError> {
        self.audits += 1;
        let areas = self.root.maps(self.pid)?;
        let (mut census, outside) = self.look(&areas)?;
        if outside.iter().any(|(_, pages)| pages.len() >= 8) {
            // Memory appeared that was not watched.
            self.serve(&areas)?;
        }
        let mut count = 0;
        if !outside.is_empty() && self.know_words()? {
            let flags = self.flags_of(&outside)?;
            for (area, pages) in &outside {
                count += self.repair(area, pages, flags.get(&area.start).copied())?;
            }
        }
        self.excuse(&mut census, &outside);
        if count > 0 && !self.config.storm {
            // What the repairs left is what the process lives with until the next audit.
            let (mut after, rest) = self.look(&self.root.maps(self.pid)?)?;
            self.excuse(&mut after, &rest);
            census = after;
        }
        self.with_status(|s| s.census = census);
        self.note_counters();
        Ok(if self.config.storm { 1 } else { count })
    }

    /// The census, and the pages outside by area.
    fn look(&self, areas: &[Area]) -> Result<(Census, Outsiders), EngineError> {
        let storm = self.config.storm;
        let color_of = |frame: Pfn| self.source.known(frame);
        let own = self.agent.own_ranges();
        let nothing = ColorSet::empty(self.config.colors.universe());
        let mut found: Vec<(Area, Vec<Outside>)> = Vec::new();
        let mut n = 0;
        let mut note = |area: &Area, page: Outside| {
            if n >= REPAIR_PAGES {
                return;
            }
            n += 1;
            match found.last_mut() {
                Some((last, pages)) if last.start == area.start => pages.push(page),
                _ => found.push((area.clone(), vec![page])),
            }
        };
        let mut eyes = Eyes {
            pagemap: &self.pagemap,
            color_of: &color_of,
            colors: &self.config.colors,
            own: &own,
        };
        let census = eyes.look(areas, |a, p| {
            if !storm {
                note(a, p);
            }
        })?;
        if storm {
            eyes.colors = &nothing;
            eyes.look(areas, &mut note)?;
        }
        Ok((census, found))
    }

    /// Flags of the areas that will be worked on; the kernel walks page tables for them, so
    /// this is asked only when there is something to repair.
    fn flags_of(
        &self,
        outside: &[(Area, Vec<Outside>)],
    ) -> Result<HashMap<u64, VmFlags>, EngineError> {
        let wanted: HashSet<u64> = outside.iter().map(|(area, _)| area.start).collect();
        let all = self.root.smaps_flags(self.pid)?;
        Ok(all.into_iter().filter(|a| wanted.contains(&a.0)).map(|a| (a.0, a.2)).collect())
    }

    /// Recolours pages of one area; returns how many were tried.
    fn repair(
        &mut self,
        area: &Area,
        pages: &[Outside],
        flags: Option<VmFlags>,
    ) -> Result<usize, EngineError> {
        let Some(flags) = flags else { return Ok(0) };
        if let Some(reason) = unsuitable(flags) {
            for page in pages {
                self.refuse(page.address, reason);
            }
            return Ok(0);
        }
        let ready: Vec<u64> =
            pages.iter().map(|p| p.address).filter(|&p| self.may_try(p)).collect();
        let exclusive: HashMap<u64, bool> =
            pages.iter().map(|p| (p.address, p.exclusive)).collect();
        let Some(range) = self.range_of(area) else { return Ok(0) };
        let mut tried = 0;
        for chunk in ready.chunks(RECOLOR_PAGES) {
            self.stock_for(chunk.len() as u64)?;
            // As late as possible: threads may have begun since the page tables were read.
            self.words.search(self.pid, chunk)?;
            let chunk: Vec<u64> = chunk.iter().copied().filter(|&p| self.may_try(p)).collect();
            let chunk = &chunk[..];
            let results = self.agent.recolor(chunk, range)?;
            tried += chunk.len();
            for (&page, errno) in chunk.iter().zip(results) {
                self.note_result(page, errno.cast_signed(), exclusive[&page])?;
            }
            self.stocker.recycle(&mut self.agent, &self.pagemap, &mut *self.source)?;
        }
        Ok(tried)
    }

    /// Whether the end-of-life words of all threads are known; a thread that is deep in the
    /// kernel (waiting for a child it shares memory with, say) can be asked later.
    fn know_words(&mut self) -> Result<bool, EngineError> {
        match self.words.refresh(&self.root, self.pid, self.agent.threads()) {
            Ok(()) => Ok(true),
            Err(e) if e.is_gone() => Err(e),
            Err(_) => Ok(false),
        }
    }

    /// The watched range that holds an area.
    fn range_of(&self, area: &Area) -> Option<(u64, u64)> {
        self.ranges.iter().copied().find(|&(start, end)| start <= area.start && area.end <= end)
    }

    /// Tries to have `n` pages in stock.
    fn stock_for(&mut self, n: u64) -> Result<(), EngineError> {
        let mut dry = 0;
        while self.agent.stock() < n && dry < 2 {
            let step = self.stocker.step(&mut self.agent, &self.pagemap, &mut *self.source)?;
            if step == Step::Exhausted {
                dry += 1;
            }
        }
        Ok(())
    }

    /// Whether a page may be tried now: not a thread's word, and no refusal that is recent.
    fn may_try(&mut self, page: u64) -> bool {
        if self.words.holds(page) {
            self.refuse(page, "word that ends a thread");
            return false;
        }
        self.refusals.get(&page).is_none_or(|r| r.again <= self.audits)
    }

    fn note_result(&mut self, page: u64, errno: i32, exclusive: bool) -> Result<(), EngineError> {
        match errno {
            0 => {
                self.refusals.remove(&page);
            }
            libc::EBUSY if exclusive => {
                // Left over from a fork whose child is gone, or pinned: the first is cured by
                // a write that changes nothing.
                let known = self.refusals.get(&page).is_some_and(|r| r.tries > 0);
                self.refuse(page, "pinned pages");
                if !known {
                    self.agent.unshare(page, 4096)?;
                    if let Some(refusal) = self.refusals.get_mut(&page) {
                        refusal.again = self.audits + 1;
                    }
                }
            }
            libc::EBUSY => self.refuse(page, "shared after fork"),
            libc::EINVAL => self.refuse(page, "refused by the kernel"),
            // Stock ran out, the page went away, or somebody was faster: simply look again.
            _ => {}
        }
        Ok(())
    }

    /// Notes a refusal; the page is tried again after ever more audits.
    fn refuse(&mut self, page: u64, reason: &'static str) {
        let now = self.audits;
        let refusal = self.refusals.entry(page).or_insert(Refusal { reason, again: 0, tries: 0 });
        if refusal.again <= now {
            refusal.tries += 1;
            refusal.again = now + (1 << refusal.tries.min(6));
        }
        refusal.reason = reason;
    }

    /// Pages that cannot be moved now are no offence; they are listed by reason instead.
    fn excuse(&mut self, census: &mut Census, outside: &[(Area, Vec<Outside>)]) {
        if self.config.storm {
            return;
        }
        let mut seen = HashSet::new();
        for page in outside.iter().flat_map(|(_, pages)| pages) {
            seen.insert(page.address);
            let Some(refusal) = self.refusals.get(&page.address) else { continue };
            *census.left_alone.entry(refusal.reason.into()).or_default() += 1;
            if let Some(kind) = census.kinds.get_mut(&super::census::kind_name(page.kind)) {
                kind.movable -= 1;
                kind.unknown -= u64::from(page.color.is_none());
            }
        }
        self.refusals.retain(|page, _| seen.contains(page));
    }

    /// Replaces `n` resident pages and measures the frames they had: (measured, as believed).
    fn verify(&mut self, n: usize) -> Result<(usize, usize), EngineError> {
        let areas = self.root.maps(self.pid)?;
        let all = ColorSet::empty(self.config.colors.universe());
        let color_of = |frame: Pfn| self.source.known(frame);
        let own = self.agent.own_ranges();
        let eyes = Eyes { pagemap: &self.pagemap, color_of: &color_of, colors: &all, own: &own };
        let mut pages: Vec<(Area, u64)> = Vec::new();
        eyes.look(&areas, |area, page| pages.push((area.clone(), page.address)))?;
        if !self.know_words()? {
            return Ok((0, 0));
        }
        let step = (pages.len() / n.max(1)).max(1);
        let sample: Vec<_> = pages.into_iter().step_by(step).take(n).collect();
        let (mut measured, mut right) = (0, 0);
        for (area, page) in sample {
            if self.words.holds(page) {
                continue;
            }
            self.stock_for(1)?;
            let Some(range) = self.range_of(&area) else { continue };
            if self.agent.recolor(&[page], range)? == [0] {
                let at = self.agent.shared().recycled.load(Relaxed);
                if at >= 512 {
                    let (m, r) = self.measure_recycled()?;
                    measured += m;
                    right += r;
                }
            }
        }
        let (m, r) = self.measure_recycled()?;
        Ok((measured + m, right + r))
    }

    fn measure_recycled(&mut self) -> Result<(usize, usize), EngineError> {
        let found =
            self.stocker.compare_recycled(&mut self.agent, &self.pagemap, &mut *self.source)?;
        self.stocker.recycle(&mut self.agent, &self.pagemap, &mut *self.source)?;
        Ok(found)
    }

    fn with_status(&self, change: impl FnOnce(&mut MemberStatus)) {
        if let Ok(mut status) = self.status.lock() {
            change(&mut status);
        }
    }

    fn note_counters(&self) {
        let c = &self.agent.shared().counters;
        let mut refused: BTreeMap<String, u64> = BTreeMap::new();
        for refusal in self.refusals.values() {
            *refused.entry(refusal.reason.into()).or_default() += 1;
        }
        self.with_status(|s| {
            s.faults_served = c.faults.load(Relaxed);
            s.placed = c.placed.load(Relaxed);
            s.fallback_pages = c.fallback.load(Relaxed);
            s.waited = c.waited.load(Relaxed);
            s.recolored = c.recolored.load(Relaxed);
            s.copied_back = c.copied_back.load(Relaxed);
            s.child_copies = c.child_copies.load(Relaxed);
            s.odd = (c.odd.load(Relaxed), c.odd_errno.load(Relaxed), c.odd_place.load(Relaxed));
            s.refused = refused;
            s.audits = self.audits;
            s.stock = self.agent.stock();
            s.examined = self.stocker.examined;
        });
    }
}

fn entry_for(area: &Area, before: Option<&AreaEntry>) -> AreaEntry {
    let flags = if area.kind() == AreaKind::MainStack { AREA_DOWN } else { 0 };
    let (next, window) = before.map_or((0, 0), |old| (old.next, old.window));
    AreaEntry { start: area.start, end: area.end, flags, next, window }
}

/// Why pages of an area with these flags must not be moved.
fn unsuitable(flags: VmFlags) -> Option<&'static str> {
    if flags.intersects(VmFlags::WIPE_ON_FORK) {
        // A copy for a forked child would undo the wipe.
        return Some("wiped on fork");
    }
    if flags.intersects(VmFlags::LOCKED) {
        return Some("locked in memory");
    }
    None
}

/// Candidates to examine at most in a round: a quarter of what is available, up to 4 GiB.
fn candidate_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = text
        .lines()
        .find_map(|l| {
            l.strip_prefix("MemAvailable:")?.split_whitespace().next()?.parse::<u64>().ok()
        })
        .unwrap_or(1 << 20);
    (available / 4 / 4).clamp(4096, 1 << 20)
}
