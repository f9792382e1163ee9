//! The stock of a process: frames in the partition's colours that faults are answered with. How much there is to
//! be, when it is filled, and when it is given back.

use std::path::Path;
use std::time::{Duration, Instant};

use huepage_color::PAGE_BYTES;
use huepage_policy::stock::{StockGoal, StockSettings};

use super::{EngineConfig, Member};
use crate::engine::EngineError;
use crate::engine::pool_filler::{GatherStep, PoolFiller};
use crate::kernel::cgroup::MOUNT;
use crate::kernel::memory_room::{MemoryRoom, available_bytes};
use crate::kernel::procfs::ProcRoot;

/// Most pages of stock: 256 MiB.
pub(super) const RING_PAGES: u64 = 1 << 16;
/// Time between looks at how much memory the program may still take, while nothing is gathered.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);

/// How far the stock is.
pub(super) struct StockState {
    /// Pages to have.
    goal: StockGoal,
    pub(super) filling: bool,
    /// Rounds in a row that found no frame.
    pub(super) empty_rounds: u32,
    /// It was full once, or could not be.
    was_filled: bool,
    /// More pages are to be recoloured than the last audit has.
    is_awaited: bool,
    /// When it was last looked whether the process is short of memory.
    room_looked: Instant,
    short_of_memory: bool,
}

impl StockState {
    pub(super) fn new(config: &EngineConfig) -> StockState {
        let pages = if config.scope.is_some() { 0 } else { config.stock_pages.min(RING_PAGES) };
        let fixed = config.stock_is_fixed || pages == 0;
        StockState {
            goal: StockGoal::new(StockSettings::default(), pages, fixed),
            filling: true,
            empty_rounds: 0,
            was_filled: false,
            is_awaited: false,
            room_looked: Instant::now(),
            short_of_memory: false,
        }
    }
}

impl StockState {
    /// Whether the process was short of memory at the last look.
    pub(super) fn is_short(&self) -> bool {
        self.short_of_memory
    }
}

/// What fills the stock of a process, of so many candidates a round.
pub(super) fn filler(
    root: &ProcRoot,
    pid: i32,
    config: &EngineConfig,
    candidates: u64,
) -> PoolFiller {
    let room = MemoryRoom::new(root.clone(), Path::new(MOUNT), pid);
    PoolFiller::new(config.colors.clone(), candidates, room)
}

impl EngineConfig {
    /// The same for a process that runs already and has so many pages resident, for which it is in proportion to
    /// them.
    pub(in crate::engine) fn for_resident(&self, pages: u64) -> EngineConfig {
        let pages = StockSettings::default().of(pages).min(self.stock_pages);
        let stock_pages = if self.stock_is_fixed { self.stock_pages } else { pages };
        EngineConfig { stock_pages, ..self.clone() }
    }
}

impl Member {
    /// Fills the stock to its goal; `progress` hears pages done and wanted.
    ///
    /// # Errors
    /// When the process is gone or colours cannot be measured.
    pub fn gather(&mut self, mut progress: impl FnMut(u64, u64)) -> Result<(), EngineError> {
        let start = Instant::now();
        let mut dry = 0;
        self.pool_filler.bound(self.stock_goal());
        while self.agent.stock() < self.goal_in_room() && dry < 2 {
            if self.pool_filler.step(&mut self.agent, &self.pagemap, &mut *self.source)?
                == GatherStep::Exhausted
            {
                dry += 1;
            }
            let goal = self.stock.goal.now();
            progress(self.agent.stock().min(goal), goal);
        }
        self.pause_gathering()?;
        self.stock.filling = false;
        self.with_status(|s| s.gather_seconds = start.elapsed().as_secs_f64());
        let goal = self.stock.goal.now();
        if goal > 0 && self.agent.stock() >= goal {
            self.note_filled();
        }
        Ok(())
    }

    /// Ends a round that has found enough. Candidates are held as far as the process and the machine have room.
    fn pause_gathering(&mut self) -> Result<(), EngineError> {
        let ours = self.agent.stock() + self.pool_filler.held();
        let resident = self.root.statm(self.pid)?.resident;
        let room = self.pool_filler.room_pages().min(available_bytes().unwrap_or(0) / PAGE_BYTES);
        let most = self.stock.goal.candidates(resident.saturating_sub(ours), room);
        self.pool_filler.pause_round(&mut self.agent, most)
    }

    /// The stock has reached its goal.
    fn note_filled(&mut self) {
        if !self.stock.was_filled {
            self.stock.was_filled = true;
            let after = self.config.since.elapsed().as_secs_f64();
            self.with_status(|s| s.stock_after_seconds = Some(after));
        }
    }

    /// Has the stock filled again.
    pub(super) fn refill(&mut self) {
        (self.stock.filling, self.stock.empty_rounds) = (self.stock.goal.now() > 0, 0);
    }

    /// Whether the next audit will want frames as well: then candidates are held, since those that are given back
    /// would be looked at again.
    pub(super) const fn await_frames(&mut self, more: bool) {
        self.stock.is_awaited = more;
    }

    /// Pages of stock to have, whatever room there is for them.
    pub(super) fn stock_goal(&self) -> u64 {
        self.stock.goal.now()
    }

    /// Pages of stock to have: no more than half of what the process may still take, whose other half
    /// is for candidates of other colours.
    fn goal_in_room(&mut self) -> u64 {
        let room = self.pool_filler.room_pages() / 2;
        self.stock.goal.now().min(self.agent.stock().saturating_add(room))
    }

    /// Gives the stock back where the process needs the memory itself; whether it is short of it.
    fn yield_memory(&mut self) -> Result<bool, EngineError> {
        if !self.stock.filling && self.stock.room_looked.elapsed() < ROOM_INTERVAL {
            return Ok(self.stock.short_of_memory);
        }
        self.stock.room_looked = Instant::now();
        self.stock.short_of_memory = self.pool_filler.room_pages() == 0;
        if self.stock.short_of_memory && (self.agent.stock() > 0 || self.stock.filling) {
            self.pool_filler.end_round(&mut self.agent)?;
            self.agent.empty_stock()?;
            self.stock.filling = false;
            self.with_status(|s| s.short_of_memory += 1);
        }
        Ok(self.stock.short_of_memory)
    }

    /// One step of gathering while the stock is low. True when something was done.
    pub(super) fn keep_stock(&mut self) -> Result<bool, EngineError> {
        if self.stock.goal.now() == 0 || self.yield_memory()? {
            return Ok(false);
        }
        let fallback = self.agent.counts().fallback;
        if !self.stock.was_filled {
            // It may have begun before there was any stock.
            self.stock.goal.began(fallback);
        } else {
            let ours = self.agent.stock() + self.pool_filler.held();
            let resident = || self.root.statm(self.pid).map_or(0, |statm| statm.resident);
            let own = || resident().saturating_sub(ours);
            self.stock.filling |= self.stock.goal.is_outrun(fallback, own);
        }
        self.stock.filling |= self.stock.goal.is_low(self.agent.stock());
        if !self.stock.filling {
            return Ok(false);
        }
        self.pool_filler.bound(self.stock_goal());
        let step = self.pool_filler.step(&mut self.agent, &self.pagemap, &mut *self.source)?;
        let goal = self.goal_in_room();
        let waiting = self.pool_filler.waiting() as u64;
        if self.stock.goal.is_reached(goal, self.agent.stock(), waiting) {
            if !self.stock.is_awaited {
                self.pause_gathering()?;
            }
            self.stock.filling = false;
            self.stock.empty_rounds = 0;
            self.note_filled();
        }
        if step == GatherStep::Exhausted {
            self.stock.empty_rounds += 1;
            self.stock.was_filled = true;
            self.stock.filling = self.config.strict && self.agent.stock() == 0;
        }
        Ok(true)
    }

    /// Whether the stock is to be filled, and can be as far as is known.
    pub(super) fn is_stock_low(&self) -> bool {
        let low = self.stock.goal.is_low(self.agent.stock());
        low && self.stock.empty_rounds == 0 && !self.stock.short_of_memory
    }

    /// The process does not grow: what is gathered beyond its stock is given back. Audits may have gathered more,
    /// and candidates of other colours with it.
    pub(super) fn settle_stock(&mut self) -> Result<(), EngineError> {
        self.pool_filler.bound(self.stock_goal());
        self.pool_filler.end_round(&mut self.agent)?;
        self.agent.drop_lost()?;
        let status = self.status.lock().ok();
        let resident = status.and_then(|s| Some(s.census.as_ref()?.total().resident()));
        self.stock.goal.settle(resident.unwrap_or(0));
        if self.agent.stock() > self.stock.goal.now() {
            self.agent.trim_stock(self.stock.goal.now())?;
        }
        Ok(())
    }
}
