//! Filling an agent's stock: candidate pages are backed, their colours learnt, and the wanted
//! ones handed over evenly over the partition: in the order in which they lie in memory, so
//! that many move together. What would make one colour run ahead waits for frames of the others. That, and candidates of
//! other colours, are held beyond the round as far as there is memory for it: given back, the kernel would hand out just
//! those again. For the same reason a round that was used up is followed by one of twice as many:
//! one that is no longer finds what it has found before.

use std::collections::VecDeque;
use std::ops::Range;

use huepage_color::{Color, ColorSet, PAGE_BYTES, Vpn};
use huepage_frames::{ColorPool, Evenness, RoundRobin, WhenExhausted};

use super::EngineError;
use crate::color::sources::{Candidate, ColorSource};
use crate::inject::agent::Agent;
use crate::kernel::memory_room::{MemoryRoom, available_bytes, spare_bytes};
use crate::kernel::pressure::Pressure;
use crate::kernel::procfs::{PageEntry, Pagemap, ProcRoot};

/// Candidates examined in one step: what one batch of the probe takes.
const STEP_PAGES: u64 = 704;
/// Pages by which a colour may be ahead of another in the stock. Each page that is moved alone
/// costs an interrupt on every CPU that runs the target: with 8 a third of those is left when
/// all colours are wanted, and a fault's pages are still spread as the program expects.
const UNEVEN_PAGES: u32 = 8;

/// Candidates examined for pages of given colours, in times of what it would take if all colours had
/// as many.
const CANDIDATE_FACTOR: u64 = 4;

/// Candidates of a round at most, at first: 4 GiB.
const FIRST_ROUND_PAGES: u64 = 1 << 20;

/// Candidates that the agent's two threads back from both ends: 44 MiB.
const AHEAD_PAGES: u64 = 16 * STEP_PAGES;

/// Steps between two looks at the memory of the machine: 176 MiB.
const STEPS_PER_LOOK: u64 = 64;

/// The state of gathering for one process.
pub struct PoolFiller {
    colors: ColorSet,
    order: RoundRobin,
    even: Evenness,
    pool: ColorPool<u64>,
    candidate_pages: u64,
    /// Candidates of this round, at most.
    round_pages: u64,
    /// Bytes that this round leaves to others.
    spare_bytes: u64,
    room: MemoryRoom,
    /// Pages of stock at most.
    most: u64,
    /// The first candidate of this round, and the next one to be examined.
    first: u64,
    next: u64,
    /// Up to where the agent's first thread backs candidates, too.
    ahead: u64,
    /// Candidates are backed by two threads, if CPU time is not short.
    is_search: bool,
    cpus: Option<Pressure>,
    /// Frames that come into the stock when a search is over: each move interrupts the CPU of whoever else backs
    /// candidates.
    found: Vec<u64>,
    /// Candidates that were examined and neither stocked nor given back.
    held: u64,
    /// What was examined and not given back, with how many are of colours that nobody wants; oldest first.
    steps: VecDeque<Examination>,
    /// Pages examined and of wanted colour, over the life of the stock.
    pub examined: u64,
    /// See `examined`.
    pub wanted: u64,
}

/// Candidates that were examined together.
struct Examination {
    first: u64,
    pages: u64,
    /// Those of colours that nobody wants.
    unwanted: u64,
}

/// Candidates and the colour of each.
type Examined = (Vec<Candidate>, Vec<Option<Color>>);

/// What a step of gathering did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherStep {
    /// Pages were added.
    Gathered,
    /// The candidates or the memory that the process may take are used up; what was not wanted was given
    /// back: no more for now.
    Exhausted,
}

impl PoolFiller {
    /// For a partition, with `candidate_pages` pages of the agent to examine in a round at most, and a quarter of
    /// them or 4 GiB at first, as far as `room` allows.
    pub fn new(colors: ColorSet, candidate_pages: u64, room: MemoryRoom) -> PoolFiller {
        let pool = ColorPool::new(colors.universe());
        let order = RoundRobin::new();
        let even = Evenness::new(colors.clone(), UNEVEN_PAGES);
        PoolFiller {
            colors,
            order,
            even,
            pool,
            candidate_pages,
            round_pages: (candidate_pages / 4).min(FIRST_ROUND_PAGES),
            spare_bytes: 0,
            room,
            most: u64::MAX,
            first: 0,
            next: 0,
            ahead: 0,
            is_search: false,
            cpus: None,
            found: Vec::new(),
            held: 0,
            steps: VecDeque::new(),
            examined: 0,
            wanted: 0,
        }
    }

    /// Examines one batch of fresh pages and stocks what fits.
    ///
    /// # Errors
    /// When the target is gone or colours cannot be measured.
    pub fn step(
        &mut self,
        agent: &mut Agent,
        pagemap: &Pagemap,
        source: &mut dyn ColorSource,
    ) -> Result<GatherStep, EngineError> {
        let mut found = self.examine(agent, pagemap, source)?;
        if found.is_none() && self.goes_on() {
            found = self.examine(agent, pagemap, source)?;
        }
        let Some((candidates, colors)) = found else {
            self.end_round(agent)?;
            return Ok(GatherStep::Exhausted);
        };
        let room = self.room_in_stock(agent);
        let (mut ready, wanted) = self.sort(&candidates, &colors, room);
        self.wanted += wanted;
        if let Some(step) = self.steps.back_mut() {
            step.unwanted = step.pages - wanted;
        }
        self.catch_up(&mut ready, room);
        if self.is_search {
            self.found.append(&mut ready);
        } else {
            self.fill(agent, &ready)?;
        }
        Ok(GatherStep::Gathered)
    }

    /// Whether a round whose candidates are used up is longer from now on: what is given back is what the next round
    /// would get.
    fn goes_on(&mut self) -> bool {
        if self.examined_now() < self.round_pages {
            return false;
        }
        let most = self.candidate_pages - self.first;
        let longer = longer(self.round_pages, most, available_bytes(), self.spare_bytes);
        let before = std::mem::replace(&mut self.round_pages, longer);
        self.round_pages > before
    }

    /// The stock is to have so many pages at most from now on.
    pub fn bound(&mut self, pages: u64) {
        self.most = pages;
    }

    /// Pages in the stock, and those that come into it when a search is over.
    pub fn stock(&self, agent: &Agent) -> u64 {
        agent.stock() + self.found.len() as u64
    }

    /// Pages that may still come into the stock.
    fn room_in_stock(&self, agent: &Agent) -> usize {
        usize::try_from(self.most.saturating_sub(self.stock(agent))).unwrap_or(usize::MAX)
    }

    /// What does not fit any more, or is too much, stays where it is and is given back with the round.
    fn fill(&mut self, agent: &mut Agent, pages: &[u64]) -> Result<(), EngineError> {
        let pages = &pages[..pages.len().min(self.room_in_stock(agent))];
        agent.fill(pages)?;
        self.held = self.held.saturating_sub(pages.len() as u64);
        Ok(())
    }

    /// Candidates that count as memory of the process and are not in its stock.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// A batch of fresh pages, with the colours of the wanted ones; `None` when the candidates of the round are used up.
    fn examine(
        &mut self,
        agent: &mut Agent,
        pagemap: &Pagemap,
        source: &mut dyn ColorSource,
    ) -> Result<Option<Examined>, EngineError> {
        let n = STEP_PAGES.min(self.round_pages - self.examined_now()).min(self.room_pages());
        self.back_ahead(agent)?;
        if n == 0 || !self.leaves_enough() || self.populate(agent, n)? < 0 {
            return Ok(None);
        }
        let first = agent.candidate(self.next);
        self.next += n;
        self.held += n;
        self.steps.push_back(Examination { first: self.next - n, pages: n, unwanted: n });
        let candidates = candidates(pagemap, first, n)?;
        let colors = source.measure(agent, &candidates, Some(&self.colors))?;
        self.examined += candidates.len() as u64;
        Ok(Some((candidates, colors)))
    }

    /// So many pages are wanted soon: if that takes many candidates, the agent backs them by two threads from here on.
    pub fn search(&mut self, pages: u64, root: &ProcRoot) {
        let candidates = pages as f64 * self.yield_inverse();
        self.is_search = candidates > AHEAD_PAGES as f64 / 2.0;
        self.cpus.get_or_insert_with(|| Pressure::on_cpus(root));
    }

    /// Ends that: what was found is stocked. What was backed ahead waits for the next search, or for
    /// [`Self::drop_ahead`].
    ///
    /// # Errors
    /// When the target is gone.
    pub fn end_search(&mut self, agent: &mut Agent) -> Result<(), EngineError> {
        self.is_search = false;
        if self.ahead > self.next {
            agent.back_ahead(0..0)?;
        }
        let found = std::mem::take(&mut self.found);
        self.fill(agent, &found)
    }

    /// Gives back what was backed ahead and not looked at.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn drop_ahead(&mut self, agent: &mut Agent) -> Result<(), EngineError> {
        self.end_search(agent)?;
        if self.ahead > self.next {
            agent.discard(self.next, self.ahead - self.next)?;
        }
        self.ahead = 0;
        Ok(())
    }

    /// Has the agent's first thread back candidates, too, where there is CPU time that nobody waits for.
    fn back_ahead(&mut self, agent: &mut Agent) -> Result<(), EngineError> {
        let start = self.ahead.max(self.next);
        let end = (start + AHEAD_PAGES).min(self.first + self.round_pages);
        if self.is_search
            && start < end
            && start - self.next < AHEAD_PAGES / 2
            && !self.room.is_limited()
            && self.cpus.as_mut().is_some_and(|cpus| !cpus.is_short())
        {
            agent.back_ahead(start..end)?;
            self.ahead = end;
        }
        Ok(())
    }

    /// Backs the next candidates; those that are backed ahead can be accessed already.
    fn populate(&self, agent: &mut Agent, pages: u64) -> Result<i64, EngineError> {
        Ok(agent.populate(self.next, pages, self.next + pages <= self.ahead)?)
    }

    /// Whether others have as much yet as is to be left to them of what was available when the round began. Looked at
    /// now and then.
    fn leaves_enough(&mut self) -> bool {
        if !(self.examined_now() / STEP_PAGES).is_multiple_of(STEPS_PER_LOOK) {
            return true;
        }
        let Some(available) = available_bytes() else { return true };
        if self.examined_now() == 0 {
            self.spare_bytes = spare_bytes(available);
        }
        available >= self.spare_bytes
    }

    /// Pages that the process may still take, by its control groups.
    pub fn room_pages(&mut self) -> u64 {
        self.room.left().map_or(u64::MAX, |bytes| bytes / PAGE_BYTES)
    }

    /// The room that the process has, if that was limited at the last look.
    pub fn limited_room(&self) -> Option<MemoryRoom> {
        self.room.is_limited().then(|| self.room.clone())
    }

    /// Examines fresh pages until there are as many of each colour as wanted, or the candidates of the
    /// round are used up. None are stocked: they stay where they are until [`Self::end_round`], which
    /// gives back what was not taken.
    ///
    /// # Errors
    /// When the target is gone or colours cannot be measured.
    pub fn collect(
        &mut self,
        agent: &mut Agent,
        pagemap: &Pagemap,
        source: &mut dyn ColorSource,
        wanted: &[(Color, usize)],
    ) -> Result<ColorPool<u64>, EngineError> {
        let mut pool = ColorPool::new(self.colors.universe());
        let most = wanted.iter().map(|of| of.1).max().unwrap_or(0) as u64;
        let most = (most * u64::from(self.colors.universe())).max(STEP_PAGES) * CANDIDATE_FACTOR;
        while self.examined_now() < most && wanted.iter().any(|&(color, n)| pool.count(color) < n) {
            let Some((pages, colors)) = self.examine(agent, pagemap, source)? else { break };
            for (page, color) in pages.iter().zip(colors) {
                let color = color.filter(|&color| self.colors.contains(color));
                color.into_iter().for_each(|color| pool.add(color, page.address));
            }
        }
        Ok(pool)
    }

    /// Candidates of this round that were examined.
    const fn examined_now(&self) -> u64 {
        self.next - self.first
    }

    /// Ends a round that has found enough: the stock is filled up with what waits. What goes on waiting stays where
    /// it is, and so do candidates that nobody wants, the `most` of them that came last; if that is none, nothing does.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn pause_round(&mut self, agent: &mut Agent, most: u64) -> Result<(), EngineError> {
        if most == 0 || self.next + self.round_pages > self.candidate_pages {
            return self.end_round(agent);
        }
        self.drop_ahead(agent)?;
        let pages = self.take_waiting(self.room_in_stock(agent).min(self.pool.len()));
        self.fill(agent, &pages)?;
        self.first = self.next;
        self.drop_unwanted(agent, most)
    }

    /// Gives back what nobody wants but for the `most` that came last.
    fn drop_unwanted(&mut self, agent: &mut Agent, most: u64) -> Result<(), EngineError> {
        let (Range { start: from, end: to }, unwanted) = take_oldest(&mut self.steps, most);
        self.held = self.held.saturating_sub(unwanted);
        if to > from {
            let (start, end) = (agent.candidate(from), agent.candidate(to));
            let mut kept: Vec<u64> = self.pool.iter().copied().collect();
            kept.retain(|page| (start..end).contains(page));
            kept.sort_unstable();
            agent.discard_but(from, to - from, &kept)?;
        }
        Ok(())
    }

    /// Ends a round: stocks the rest in whatever order it comes and gives back the others.
    ///
    /// # Errors
    /// When the target is gone.
    pub fn end_round(&mut self, agent: &mut Agent) -> Result<(), EngineError> {
        self.drop_ahead(agent)?;
        let rest = self.take_waiting(self.pool.len());
        self.fill(agent, &rest)?;
        if self.next > 0 {
            agent.discard(0, self.next)?;
        }
        (self.first, self.next, self.held) = (0, 0, 0);
        self.steps.clear();
        Ok(())
    }

    /// The pages of wanted colours that can be handed over in this order, no more than there is `room` for; the
    /// others wait in the pool. Also says how many are wanted in all.
    fn sort(
        &mut self,
        pages: &[Candidate],
        colors: &[Option<Color>],
        room: usize,
    ) -> (Vec<u64>, u64) {
        let (mut ready, mut wanted) = (Vec::with_capacity(pages.len()), 0);
        for (page, color) in pages.iter().zip(colors) {
            let Some(color) = color.filter(|&c| self.colors.contains(c)) else { continue };
            wanted += 1;
            if ready.len() < room && self.even.admits(color) {
                self.even.note(color);
                ready.push(page.address);
            } else {
                self.pool.add(color, page.address);
            }
        }
        (ready, wanted)
    }

    /// Adds those of the waiting pages that are due by now, in rotation, as far as there is room.
    fn catch_up(&mut self, ready: &mut Vec<u64>, room: usize) {
        loop {
            let before = ready.len();
            for color in self.colors.iter().filter(|&c| self.even.admits(c)).collect::<Vec<_>>() {
                if ready.len() < room
                    && self.even.admits(color)
                    && let Some(page) = self.pool.take(color)
                {
                    self.even.note(color);
                    ready.push(page);
                }
            }
            if ready.len() == before {
                return;
            }
        }
    }

    /// So many of those that wait, in rotation as far as that goes.
    fn take_waiting(&mut self, n: usize) -> Vec<u64> {
        let skip = WhenExhausted::SkipColor;
        let pages = self.pool.interleave(&mut self.order, &self.colors, n, skip);
        pages.iter().for_each(|page| self.even.note(page.color));
        pages.iter().map(|page| page.frame).collect()
    }

    /// Pages of wanted colours that wait for their turn in the rotation.
    pub fn waiting(&self) -> usize {
        self.pool.len()
    }

    /// How many examined pages one page of stock takes on average; 1 before any experience.
    pub fn yield_inverse(&self) -> f64 {
        if self.wanted == 0 { 1.0 } else { self.examined as f64 / self.wanted as f64 }
    }

    /// Frames of other colours are wanted from now on; ends no round.
    pub fn set_colors(&mut self, colors: ColorSet) {
        self.even = Evenness::new(colors.clone(), UNEVEN_PAGES);
        self.pool = ColorPool::new(colors.universe());
        self.colors = colors;
    }

    /// The partition.
    pub fn colors(&self) -> &ColorSet {
        &self.colors
    }
}

/// The pages that are present among `n` from `first` on, with their frames.
fn candidates(pagemap: &Pagemap, first: u64, n: u64) -> Result<Vec<Candidate>, EngineError> {
    let mut entries: Vec<PageEntry> = Vec::new();
    pagemap.entries(Vpn(first / 4096), usize::try_from(n).unwrap_or(0), &mut entries)?;
    let present = (0u64..).zip(&entries).filter_map(|(i, entry)| {
        entry.pfn().map(|frame| Candidate { address: first + i * 4096, frame })
    });
    Ok(present.collect())
}

/// Takes the oldest steps out until those that are left have no more than `most` unwanted candidates; where the
/// candidates of those taken lie, and how many of them nobody wants.
fn take_oldest(steps: &mut VecDeque<Examination>, most: u64) -> (Range<u64>, u64) {
    let from = steps.front().map_or(0, |step| step.first);
    let all: u64 = steps.iter().map(|step| step.unwanted).sum();
    let (mut taken, mut to) = (0, from);
    while all - taken > most
        && let Some(step) = steps.pop_front()
    {
        taken += step.unwanted;
        to = step.first + step.pages;
    }
    (from..to, taken)
}

/// Candidates of a round that goes on after so many, `most` at most: twice as many where the machine has more than the
/// `spare` bytes that are left to others.
fn longer(pages: u64, most: u64, available: Option<u64>, spare: u64) -> u64 {
    let has_room = available.is_some_and(|available| available > spare);
    if has_room { (2 * pages).min(most).max(pages) } else { pages }
}

/// Colours as a short list of counts, for reports.
pub fn count_by_color(universe: u16, colors: impl Iterator<Item = Color>) -> Vec<u64> {
    let mut counts = vec![0; usize::from(universe)];
    for color in colors {
        counts[usize::from(color.0)] += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_candidates_are_given_back_first() {
        let step = |(first, unwanted)| Examination { first, pages: 700, unwanted };
        let mut steps: VecDeque<Examination> =
            [(0, 300), (700, 0), (1400, 700), (2100, 200)].into_iter().map(step).collect();
        assert_eq!(take_oldest(&mut steps, 1200), (0..0, 0), "as many as may be held");
        assert_eq!(take_oldest(&mut steps, 1000), (0..700, 300));
        assert_eq!(take_oldest(&mut steps, 899), (700..2100, 700));
        assert_eq!(take_oldest(&mut steps, 0), (2100..2800, 200));
        assert_eq!(take_oldest(&mut steps, 0), (0..0, 0));
    }

    #[test]
    fn a_round_goes_on_to_twice_as_many_while_others_have_enough() {
        assert_eq!(longer(1000, 1 << 20, Some(501), 500), 2000);
        assert_eq!(longer(1000, 1500, Some(501), 500), 1500, "no more than there are");
        assert_eq!(longer(1000, 900, Some(501), 500), 1000, "no shorter");
        assert_eq!(longer(1000, 1 << 20, Some(500), 500), 1000);
        assert_eq!(longer(1000, 1 << 20, None, 500), 1000, "nobody tells");
    }
}
