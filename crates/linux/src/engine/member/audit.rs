//! The audit: finds pages outside the partition and brings back those that the policy wants
//! moved. It asks the policy about every such page and tells it what became of its requests;
//! what a refusal means for later audits is decided there, not here. Superpages that were built on
//! purpose are left where they are, and counted as outside as far as they are; so are pages that wait to be
//! touched.

use std::time::{Duration, Instant};

use huepage_color::{ColorSet, PAGE_BYTES};
use huepage_policy::settled::Audited;
use huepage_policy::{Census, MoveRefusal};

use super::Member;
use super::buffer::Buffer;
use super::moves::{AuditPass, Flags, MoveList, REPAIR_PAGES, held_by};
use crate::engine::EngineError;
use crate::engine::census::{ColorLookup, Outside};
use crate::engine::clear_tid::PAGES_PER_READ;
use crate::engine::pool_filler::GatherStep;
use crate::kernel::memory_room::locks_left;
use crate::kernel::process_memory::thread_time;
use crate::kernel::procfs::{Area, VmFlags};
use crate::kernel::trace_points;

/// Pages recoloured with one command.
const RECOLOR_PAGES: usize = 1024;
/// Pages outside in one area that tell of memory that appeared unseen.
const UNSEEN_PAGES: usize = 8;

impl Member {
    /// Finds pages outside the partition and brings them back.
    pub(super) fn audit(&mut self) -> Result<Audited, EngineError> {
        let start = thread_time();
        self.note_signs();
        let mut repairing = Duration::ZERO;
        self.audits += 1;
        self.policy.begin_audit();
        self.pinned.keep_whole(&self.pagemap)?;
        self.report_pinned();
        self.find_foreign()?;
        let areas = self.root.maps(self.pid)?;
        let (mut census, moves) = self.look(&areas)?;
        self.note_since_last(&census);
        if moves.iter().any(|(_, pages)| pages.len() >= UNSEEN_PAGES) {
            self.serve(&areas)?;
        } else if self.config.scope.is_some() {
            self.find_ranges(&areas);
        }
        let (mut tried, wanted) = (0, moves.iter().map(|(_, pages)| pages.len()).sum());
        self.await_frames(wanted == REPAIR_PAGES);
        if !moves.is_empty() && self.foreign.may_move() && self.know_clear_tid()? {
            let began = thread_time();
            tried = self.repair(&moves)?;
            repairing = thread_time().saturating_sub(began);
            if !self.config.storm {
                // What the repairs left is what the process lives with until the next audit.
                census = self.look(&self.root.maps(self.pid)?)?.0;
            }
        }
        let (movable, inside) = (census.total().movable(), census.total().inside);
        self.with_status(|s| s.census = Some(census));
        self.note_waiting();
        self.update_buffer(false)?;
        self.looked = Instant::now();
        self.note_counters();
        let looking = thread_time().saturating_sub(start).saturating_sub(repairing);
        trace_points::audited(self.pid, movable, inside, looking);
        let tried = if self.config.storm { 1 } else { tried };
        Ok(Audited { wanted, tried, movable, looking })
    }

    /// Until then all was as the last audit left it.
    pub(super) fn note_unchanged(&mut self, until: Instant) {
        let seconds = until.saturating_duration_since(self.looked).as_secs_f64();
        self.looked = self.looked.max(until);
        self.with_status(|status| {
            let Some(left) = status.census.as_ref().map(Census::total) else { return };
            status.page_seconds[0] += left.movable() as f64 * seconds;
            status.page_seconds[1] += left.inside as f64 * seconds;
        });
    }

    /// Adds up compliance over time: between two looks, the mean of what the first one's
    /// repairs left and what the second one found.
    fn note_since_last(&self, found: &Census) {
        let seconds = self.looked.elapsed().as_secs_f64();
        self.with_status(|status| {
            let Some(left) = status.census.as_ref().map(Census::total) else { return };
            let found = found.total();
            let mean = |a: u64, b: u64| (a + b) as f64 / 2.0 * seconds;
            status.page_seconds[0] += mean(left.movable(), found.movable());
            status.page_seconds[1] += mean(left.inside, found.inside);
        });
    }

    /// The census, and what the policy wants recoloured. In a storm everything is.
    fn look(&mut self, areas: &[Area]) -> Result<(Census, MoveList), EngineError> {
        let cut = self.config.scope.as_ref().map(|scope| scope.cut(areas));
        let areas = cut.as_deref().unwrap_or(areas);
        let own = self.agent.own_ranges();
        let except = self.buffer.as_ref().map(Buffer::scope).filter(|scope| !scope.is_empty());
        let mut pass = AuditPass::new(
            &mut self.policy,
            &self.clear_tid,
            &self.pinned,
            Some(self.waiting.traps()),
        );
        let color_of = |frame| self.source.vouched(frame);
        let colors = &self.config.colors;
        let foreign = self.foreign.areas();
        let mut lookup = ColorLookup {
            pagemap: &self.pagemap,
            color_of: &color_of,
            colors,
            own: &own,
            foreign,
            except,
        };
        if !self.config.storm {
            let census = lookup.count(areas, |area, page| pass.consider(area, page))?;
            let (moves, untouched) = (pass.moves, pass.untouched);
            self.waiting.keep(&untouched);
            return Ok((census, moves));
        }
        let census = lookup.count(areas, |_, _| None)?;
        let nothing = ColorSet::empty(colors.universe());
        lookup.colors = &nothing;
        // A page of unknown colour is one to be recoloured.
        lookup.count(areas, |area, mut page| {
            page.seen.color = None;
            pass.consider(area, page)
        })?;
        Ok((census, pass.moves))
    }

    /// Recolours what the policy asks for; returns how many pages were tried.
    pub(super) fn repair(&mut self, moves: &MoveList) -> Result<usize, EngineError> {
        let flags = self.flags()?;
        let (mut free, mut locked) = (Vec::new(), Vec::new());
        for (area, pages) in moves {
            // Areas that went away since have no flags any more.
            let Some(of) = flags.of(area) else { continue };
            if let Some(why) = held_by(of, self.watches(), self.agent.moves_locked()) {
                self.refuse_all(pages, why);
                continue;
            }
            let list = if of.intersects(VmFlags::LOCKED) { &mut locked } else { &mut free };
            list.extend(self.range_of(area).map(|range| (range, area, pages.as_slice())));
        }
        let mut tried = 0;
        for (pages, locked) in [(free, false), (locked, true)] {
            for together in pages.chunk_by(|one, other| one.0 == other.0) {
                tried += self.recolor(together, locked)?;
            }
        }
        self.pool_filler.drop_ahead(&mut self.agent)?;
        Ok(tried)
    }

    /// Flags of all areas; the kernel walks page tables for them, so this is asked only when
    /// there is something to repair.
    pub(super) fn flags(&self) -> Result<Flags, EngineError> {
        Ok(Flags(self.root.smaps_flags(self.pid)?))
    }

    fn refuse_all(&mut self, pages: &[Outside], why: MoveRefusal) {
        pages.iter().for_each(|page| self.policy.refused(page.seen.page, why));
    }

    /// Recolours pages of areas in one watched range; returns how many were tried. The range is watched
    /// anew for each command, so small areas share one. Pages of `locked` areas move between locked areas only,
    /// so that the stock is locked meanwhile.
    fn recolor(&mut self, together: &[InRange<'_>], locked: bool) -> Result<usize, EngineError> {
        let mut tried = 0;
        let at_once = if locked { self.lockable_pages() } else { RECOLOR_PAGES };
        if at_once == 0 {
            together.iter().for_each(|of| self.refuse_all(of.2, MoveRefusal::Locked));
            return Ok(0);
        }
        for chunk in listed(together).chunks(at_once) {
            self.stock_for(chunk.len() as u64)?;
            let chunk = self.without_clear_tid(chunk)?;
            let addresses: Vec<u64> = chunk.iter().map(Outside::address).collect();
            if locked && !self.agent.lock(chunk.len() as u64)? {
                self.refuse_all(&chunk, MoveRefusal::Locked);
                continue;
            }
            let results = self.agent.recolor(&addresses, together[0].0, self.watches());
            if locked {
                self.agent.unlock()?;
            }
            let results = results?;
            tried += chunk.len();
            if self.is_now_foreign(together.iter().map(|of| of.1), &results)? {
                return Ok(tried);
            }
            for (page, errno) in chunk.iter().zip(results) {
                self.note_result(page, errno.cast_signed())?;
            }
            self.agent.drop_recycled()?;
        }
        Ok(tried)
    }

    /// Pages of locked memory that can be moved at once: stock and recycling area need a lock for each.
    fn lockable_pages(&self) -> usize {
        let left =
            locks_left(&self.root, self.pid).map_or(u64::MAX, |bytes| bytes / 2 / PAGE_BYTES);
        usize::try_from(left).unwrap_or(usize::MAX).min(RECOLOR_PAGES)
    }

    /// The pages without those that hold words which end threads, looked for as late as
    /// possible: threads may have begun since the page tables were read.
    pub(super) fn without_clear_tid(
        &mut self,
        pages: &[Outside],
    ) -> Result<Vec<Outside>, EngineError> {
        let mut pages = pages.to_vec();
        let own = self.foreign.was_seen();
        if own {
            self.keep_settled(&mut pages)?;
        }
        let addresses: Vec<u64> = pages.iter().map(Outside::address).collect();
        let at_once = if own { 1 } else { PAGES_PER_READ };
        let absent = self.clear_tid.search((self.pid, &self.pagemap), &addresses, at_once)?;
        pages.retain(|page| !absent.contains(&page.address()));
        let (held, free): (Vec<Outside>, Vec<Outside>) =
            pages.into_iter().partition(|page| self.clear_tid.holds(page.address()));
        self.refuse_all(&held, MoveRefusal::ClearChildTid);
        Ok(free)
    }

    /// Tells the policy what became of a request.
    pub(super) fn note_result(&mut self, tried: &Outside, errno: i32) -> Result<(), EngineError> {
        let page = tried.seen.page;
        let why = match errno {
            0 => {
                self.policy.moved(page);
                return Ok(());
            }
            libc::EBUSY if tried.exclusive => {
                // Left over from a fork whose child is gone, or pinned: the first is cured by
                // a write that changes nothing.
                if self.policy.refusals(page) == 0 {
                    self.agent.unshare(tried.address(), 4096)?;
                }
                MoveRefusal::Pinned
            }
            libc::EBUSY => MoveRefusal::CopyOnWrite,
            libc::EINVAL => MoveRefusal::Other,
            libc::ENOBUFS => MoveRefusal::NoFrame,
            // The page went away, or somebody was faster.
            _ => MoveRefusal::Raced,
        };
        self.policy.refused(page, why);
        Ok(())
    }

    /// Whether the end-of-life words of all threads are known; a thread that is deep in the
    /// kernel (waiting for a child it shares memory with, say) can be asked later.
    pub(super) fn know_clear_tid(&mut self) -> Result<bool, EngineError> {
        match self.clear_tid.refresh(&self.root, self.pid, self.agent.threads()) {
            Ok(()) => Ok(true),
            Err(e) if e.is_gone() => Err(e),
            Err(_) => Ok(false),
        }
    }

    /// The watched range that holds an area.
    pub(super) fn range_of(&self, area: &Area) -> Option<(u64, u64)> {
        let next = self.ranges.partition_point(|&(start, _)| start <= area.start);
        let range = self.ranges[..next].last().copied();
        range.filter(|&(_, end)| area.end <= end)
    }

    /// Tries to have `n` pages in stock.
    fn stock_for(&mut self, n: u64) -> Result<(), EngineError> {
        let mut dry = 0;
        self.pool_filler.bound(n.max(self.stock_goal()));
        self.pool_filler.search(n.saturating_sub(self.agent.stock()), &self.root);
        while self.pool_filler.stock(&self.agent) < n && dry < 2 {
            let step = self.pool_filler.step(&mut self.agent, &self.pagemap, &mut *self.source)?;
            if step == GatherStep::Exhausted {
                dry += 1;
            }
        }
        self.pool_filler.end_search(&mut self.agent)
    }
}

/// Pages of an area, with the watched range that holds it.
type InRange<'a> = ((u64, u64), &'a Area, &'a [Outside]);

/// Pages of areas by descending addresses of these: the agent moves what follows each other in its list
/// at once, which must not reach from one area into the next.
fn listed(together: &[InRange<'_>]) -> Vec<Outside> {
    together.iter().rev().flat_map(|of| of.2.iter().copied()).collect()
}
