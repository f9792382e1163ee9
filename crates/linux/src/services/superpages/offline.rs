//! Superpages chosen for a trace instead of for a program, by the code that chooses them live:
//! either every TLB miss is told to the policy, or accessed bits are read now and then as those of a
//! process would be. What both choose can be compared.
//!
//! Time is simulated: so many nanoseconds an access, and a page walk more for each miss. A walk
//! marks a page as touched, as on x86-64, and marks are cleared together with the TLB. Building takes
//! no time here, and a first touch costs no more than any other. Reads nothing of this machine.

mod front;
mod selection;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::Duration;

use huepage_color::{NumberHash, Vpn};
use huepage_model::sets::Replacement;
use huepage_model::tlb::{Tlb, TlbPage};
use huepage_policy::pace::CpuBudget;
use huepage_policy::superpage::{ApproxOnline, Settings};
use huepage_policy::{Action, Construction, Event, MoveRefusal, Policy, Prices};

pub use selection::SuperpageSelection;

use front::{EMPTY, Front};

use super::live_policy::{LivePolicy, PACING, sizes, usual_policy};
use crate::kernel::page_tables::{self, Bits512};
use crate::kernel::process_memory::{SUPERPAGE_ORDER, SUPERPAGE_PAGES};
use crate::sensors::superpage_map::{self, SuperpageMap, holes};
use crate::sensors::tlb::TlbShape;
use crate::sensors::tlb::accessed::{Group, Turns, groups};
use crate::sensors::tlb::turnover::misses;
use fastrand::Rng;

/// Between the end of a look and the next, at least, as live.
const SHORTEST_SLEEP: Duration = Duration::from_millis(10);
/// Between two looks at what is resident, as live.
const SURVEY_INTERVAL: Duration = Duration::from_millis(100);

/// What a trace is run with.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The TLB, of which a superpage takes one entry.
    pub shape: TlbShape,
    /// Nanoseconds of an access.
    pub access_ns: u64,
    /// CPU time that a look takes.
    pub look: Duration,
    /// What looks may cost, as a share of one CPU.
    pub cpu: f64,
    /// Memory that superpages may add, as a share of what is resident.
    pub memory_overhead: f64,
}

impl Setting {
    /// With what is usual live: looks of 0.7 ms (64 ranges and 8,192 pages are marked and read)
    /// for 1 % of a CPU, and 4 % of memory. Two nanoseconds an access: a few instructions and a
    /// cache that hits.
    pub const fn usual(shape: TlbShape) -> Setting {
        let look = Duration::from_micros(700);
        Setting { shape, access_ns: 2, look, cpu: 0.01, memory_overhead: 0.04 }
    }
}

/// What the policy hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissInput {
    /// Every miss.
    Misses,
    /// What is made of accessed bits.
    AccessedBits,
}

/// The pages of a block.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    present: Bits512,
    accessed: Bits512,
    huge: bool,
}

/// A look at accessed bits.
#[derive(Debug)]
struct Sense {
    turns: Turns,
    random: Rng,
    budget: CpuBudget,
    map: SuperpageMap,
    census: Option<u64>,
    /// Whose touches are gathered now.
    groups: Vec<Group>,
    /// What was touched of them in the first half of the window, once that is over.
    half: Option<Vec<page_tables::BlockMapping>>,
}

/// One trace on its way.
pub struct TraceReplay {
    setting: Setting,
    tlb: Tlb,
    held: HashMap<u64, Held, NumberHash>,
    policy: Box<dyn Policy>,
    sense: Option<Sense>,
    actions: Vec<Action>,
    /// Nanoseconds.
    now: u64,
    /// When something is to be done.
    due: u64,
    front: Front,
    resident: u64,
    filled: u64,
    chosen: SuperpageSelection,
}

impl fmt::Debug for TraceReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offline").field("now", &self.now).finish_non_exhaustive()
    }
}

impl TraceReplay {
    /// At the start of a trace; what is chosen by chance follows from the seed.
    pub fn new(setting: Setting, hears: MissInput, seed: u64) -> TraceReplay {
        let (entries, shape) = (setting.shape.entries, &setting.shape);
        let sensed = hears == MissInput::AccessedBits;
        let policy: Box<dyn Policy> = match hears {
            MissInput::Misses => Box::new(exact(shape)),
            MissInput::AccessedBits => {
                let mut live_policy = LivePolicy::new(&usual_policy(), shape);
                live_policy.reprice(shape, PACING.first_price_ns);
                Box::new(live_policy)
            }
        };
        TraceReplay {
            tlb: Tlb::new(entries, entries, &[0, SUPERPAGE_ORDER], Replacement::Lru),
            held: HashMap::default(),
            policy,
            sense: sensed.then(|| Sense::new(&setting, seed)),
            actions: Vec::new(),
            now: 0,
            due: if sensed { 0 } else { u64::MAX },
            front: EMPTY,
            resident: 0,
            filled: 0,
            chosen: SuperpageSelection::default(),
            setting,
        }
    }

    /// The next access of the trace.
    #[inline]
    pub fn access(&mut self, page: Vpn) {
        self.now += self.setting.access_ns;
        self.chosen.accesses += 1;
        if !self.front.has(page) {
            self.translate(page);
        }
        if self.now >= self.due {
            self.wake();
        }
    }

    fn translate(&mut self, page: Vpn) {
        let held = self.held.entry(page.0 / SUPERPAGE_PAGES).or_default();
        let order = if held.huge { SUPERPAGE_ORDER } else { 0 };
        self.front.enter(page, held.huge);
        let Err(victim) = self.tlb.access(TlbPage::of(0, page, order)) else { return };
        self.chosen.misses += 1;
        self.now += self.setting.shape.walk_ns;
        let at = usize::try_from(page.0 % SUPERPAGE_PAGES).unwrap_or(0);
        if !held.huge {
            self.resident += u64::from(!held.present.get(at));
            held.present.set(at);
            held.accessed.set(at);
        }
        if self.sense.is_none() {
            let victim = victim.map(|page| (Vpn(page.number << page.order), page.order));
            self.policy.handle(Event::TlbMiss { page, order, victim }, &mut self.actions);
            self.carry_out();
        }
    }

    /// Answers what the policy asks, and builds what it wants.
    fn carry_out(&mut self) {
        while let Some(action) = self.actions.pop() {
            let event = match action {
                Action::Quote { page, order } => {
                    let construction = self.quote(page.0 / SUPERPAGE_PAGES);
                    Event::Quoted { page, order, construction }
                }
                Action::Promote { page, order } => {
                    self.build(page.0 / SUPERPAGE_PAGES);
                    Event::Promoted { page, order }
                }
                _ => continue,
            };
            self.policy.handle(event, &mut self.actions);
        }
    }

    fn quote(&self, block: u64) -> Construction {
        let Some(known) = self.held.get(&block).map(Held::block) else {
            return Construction::Impossible(MoveRefusal::Other);
        };
        let allowed = self.resident as f64 * self.setting.memory_overhead;
        if holes(known) == 0 || (self.filled + holes(known)) as f64 <= allowed {
            return Construction::Copy { pages: u64::from(known.resident) };
        }
        Construction::Impossible(MoveRefusal::Other)
    }

    fn build(&mut self, block: u64) {
        let held = self.held.entry(block).or_default();
        self.filled += holes(held.block());
        held.huge = true;
        for page in block * SUPERPAGE_PAGES..(block + 1) * SUPERPAGE_PAGES {
            self.tlb.forget(TlbPage::of(0, Vpn(page), 0));
        }
        self.front = EMPTY;
        self.chosen.blocks.insert(block, self.now as f64 / 1e9);
    }

    /// Begins a look, looks in the middle of it, or ends it.
    #[cold]
    fn wake(&mut self) {
        let Some(mut sense) = self.sense.take() else { return };
        let wait = match (sense.groups.is_empty(), sense.half.take()) {
            (true, _) => self.begin(&mut sense),
            (false, None) => {
                sense.half = Some(self.read(&sense.groups));
                sense.turns.window() / 2
            }
            (false, Some(half)) => self.end(&mut sense, &half),
        };
        self.sense = Some(sense);
        self.due = self.now.saturating_add(nanoseconds(wait));
    }

    /// Marks pages as not touched; how long to wait.
    fn begin(&mut self, sense: &mut Sense) -> Duration {
        if sense.census.is_none_or(|at| self.now - at >= nanoseconds(SURVEY_INTERVAL)) {
            sense.map = self.map();
            sense.census = Some(self.now);
        }
        let mut blocks = sense.turns.next(&sense.map, &mut sense.random);
        blocks.retain(|block| self.held.get(block).is_some_and(|held| !held.huge));
        sense.groups = groups(&sense.map, &blocks, &mut sense.random);
        for group in &sense.groups {
            let Some(held) = self.held.get_mut(&group.block) else { continue };
            held.accessed = outside(&held.accessed, group);
        }
        self.tlb.flush();
        self.front = EMPTY;
        if sense.groups.is_empty() { SURVEY_INTERVAL } else { sense.turns.window() / 2 }
    }

    /// What page tables say of groups.
    fn read(&self, groups: &[Group]) -> Vec<page_tables::BlockMapping> {
        let found = |group: &Group| self.held.get(&group.block).map(Held::table);
        groups
            .iter()
            .map(|group| found(group).unwrap_or(page_tables::BlockMapping::Absent))
            .collect()
    }

    /// Tells the policy what was touched; how long to wait.
    fn end(&mut self, sense: &mut Sense, half: &[page_tables::BlockMapping]) -> Duration {
        let groups = std::mem::take(&mut sense.groups);
        let (found, seconds) = (self.read(&groups), self.now as f64 / 1e9);
        let look = sense.turns.note(&sense.map, seconds, &groups, [half, &found]);
        let told = misses(&self.setting.shape, &sense.map, &look, &mut sense.random);
        self.policy.handle(Event::TlbFlushed, &mut self.actions);
        for miss in &told.misses {
            let victim = miss.victim.map(|page| (page, 0));
            let event = Event::TlbMiss { page: miss.page, order: 0, victim };
            self.policy.handle(event, &mut self.actions);
            self.carry_out();
        }
        self.chosen.looks += 1;
        sense.budget.spend(self.setting.look);
        sense.budget.wait(Duration::from_nanos(self.now)).max(SHORTEST_SLEEP)
    }

    fn map(&self) -> SuperpageMap {
        let blocks = self.held.iter().map(|(&at, held)| (at, held.block()));
        let blocks: BTreeMap<u64, superpage_map::BlockResidency> = blocks.collect();
        let resident_pages = blocks.values().map(|block| u64::from(block.resident)).sum();
        SuperpageMap { blocks, resident_pages }
    }

    /// Seconds so far.
    pub fn seconds(&self) -> f64 {
        self.now as f64 / 1e9
    }

    /// What was chosen so far.
    pub fn chosen(&self) -> SuperpageSelection {
        let (resident, seconds) = (self.held.len(), self.seconds());
        SuperpageSelection { resident, seconds, ..self.chosen.clone() }
    }

    /// The second of the last superpage; 0 if there is none.
    pub fn last(&self) -> f64 {
        self.chosen.last()
    }
}

/// The policy that every miss is told to: of each of them, not of 128.
fn exact(shape: &TlbShape) -> ApproxOnline {
    let prices = Prices { miss: shape.walk_ns, per_kib: 0, setup: PACING.first_price_ns };
    let by_construction = true;
    ApproxOnline::new(Settings { sizes: sizes(), prices, by_construction, ..Settings::default() })
}

impl Sense {
    fn new(setting: &Setting, seed: u64) -> Sense {
        Sense {
            turns: Turns::new(setting.shape),
            random: Rng::with_seed(seed),
            budget: CpuBudget::new(setting.cpu, Duration::ZERO),
            map: SuperpageMap::default(),
            census: None,
            groups: Vec::new(),
            half: None,
        }
    }
}

impl Held {
    /// As `/proc` would say.
    fn block(&self) -> superpage_map::BlockResidency {
        let resident = if self.huge { SUPERPAGE_PAGES } else { u64::from(self.present.count()) };
        let resident = u16::try_from(resident).unwrap_or(0);
        superpage_map::BlockResidency { resident, zero: 0, huge: self.huge }
    }

    /// As page tables would say.
    fn table(&self) -> page_tables::BlockMapping {
        let Held { present, accessed, huge } = *self;
        if huge {
            page_tables::BlockMapping::Huge { accessed: true }
        } else {
            page_tables::BlockMapping::Pages { present, accessed }
        }
    }
}

/// Those of some pages that are not in a group.
fn outside(pages: &Bits512, group: &Group) -> Bits512 {
    let mut left = Bits512::NONE;
    let out = |&page: &usize| !group.pages.contains(&(page as u64));
    pages.iter().filter(out).for_each(|page| left.set(page));
    left
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
