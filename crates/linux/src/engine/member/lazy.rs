//! The lazy shrink of COLORIS (2014, section 3.2): pages in colours that were taken away stay where they are
//! until they are touched, and move then. Which pages wait, and that one moves when it is touched, is
//! decided by `huepage_policy::coloris`; here is the trap that it asks for. The paper clears present
//! bits in the kernel; a page of another process can be trapped from outside only by stopping the program there,
//! so its accessed bit is cleared once, and looked at in rounds: a page that nobody touches takes no
//! place in the cache wherever it lies, and one that is touched moves a moment later.
//!
//! Rounds take a bounded part of a CPU, and come less often while nothing is found. A touch can be missed while the
//! kernel reclaims memory, which clears accessed bits too; the next one is seen. Where the bits cannot be
//! read, or too many pages would have to be remembered, colours are left at once, and the status says why.
//! Should huepage end, the process keeps the pages it has, where they are.

use std::ops::Range;
use std::time::{Duration, Instant};

use huepage_color::{ColorSet, PAGE_BYTES, Vpn};
use huepage_policy::coloris::{Growth as Rule, Recolorer};
use huepage_policy::pace::{Gap, GapSettings};
use huepage_policy::{Action, Event, Policy as _};

use super::Member;
use super::growth::{MOST_ASKED_PAGES, ranges};
use super::moves::{MoveList, add_move, held_by};
use crate::engine::EngineError;
use crate::engine::census::ColorLookup;
use crate::engine::scope::Scope;
use crate::engine::waiting_pages::WaitingPages;
use crate::kernel::page_tables::{AddressSpace, PageTables, TablesError};
use crate::kernel::process_memory::ProcessMemory;

/// What becomes of pages in colours that a process loses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shrink {
    /// They move with the next audits.
    #[default]
    Eager,
    /// They stay where they are until they are touched.
    Lazy,
}

/// Blocks of 2 MiB that are looked at in a round: a millisecond or two.
const ROUND_BLOCKS: usize = 2048;
/// Ranges whose bits cannot be cleared before no more are tried: their pages count as touched.
const MOST_FAILURES: usize = 64;

/// What page tables are read and bits cleared with.
struct Bits {
    tables: PageTables,
    space: AddressSpace,
    process: ProcessMemory,
}

impl Bits {
    fn open(pid: i32) -> Result<Bits, String> {
        let tables = PageTables::open().map_err(|error| error.to_string())?;
        let space = tables.space(pid).map_err(|error| error.to_string())?;
        let process = ProcessMemory::open(pid);
        let process =
            process.map_err(|error| format!("process {pid} cannot be reached: {error}"))?;
        Ok(Bits { tables, space, process })
    }

    /// Marks pages as not touched. One that cannot be (its area went away, or is locked by now) is found
    /// touched in the first round, and moves as it would without waiting.
    fn clear(&self, ranges: &[Range<u64>]) {
        let (mut at, mut failures) = (0, 0);
        while at < ranges.len() && failures < MOST_FAILURES {
            at += self.process.forget(&ranges[at..]) + 1;
            failures += 1;
        }
    }
}

/// Pages of a member that wait to be touched.
pub(super) struct Waiting {
    traps: WaitingPages,
    /// None before anything waited.
    policy: Option<Recolorer>,
    /// Open while something waits.
    bits: Option<Bits>,
    /// When the next round is due; none: at once.
    next: Option<Instant>,
    gap: Gap,
}

impl Default for Waiting {
    fn default() -> Waiting {
        let (traps, gap) = (WaitingPages::default(), Gap::new(GapSettings::ROUNDS));
        Waiting { traps, policy: None, bits: None, next: None, gap }
    }
}

impl Waiting {
    /// Which pages wait.
    pub fn traps(&self) -> &WaitingPages {
        &self.traps
    }

    /// An audit found only these still outside.
    pub fn keep(&mut self, seen: &WaitingPages) {
        self.traps.keep(seen);
        self.close();
    }

    fn close(&mut self) {
        if self.traps.is_empty() {
            (self.bits, self.policy) = (None, None);
        }
    }

    /// One round: the pages that were touched since, which wait no longer, and whether the policy still
    /// wants them moved.
    fn round(&mut self) -> Result<Vec<Vpn>, TablesError> {
        let (Some(bits), Some(policy)) = (&mut self.bits, &mut self.policy) else {
            return Ok(Vec::new());
        };
        let (blocks, mut found) = (self.traps.turn(ROUND_BLOCKS), Vec::new());
        bits.tables.read(&bits.space, &blocks, &mut found)?;
        let mut actions = Vec::new();
        for page in self.traps.take_touched(&blocks, &found) {
            policy.handle(Event::Trapped { page }, &mut actions);
        }
        let moves = actions.iter().filter_map(|action| match action {
            Action::Recolour { page, .. } => Some(*page),
            _ => None,
        });
        Ok(moves.collect())
    }

    /// When the next round is due, after one that took so long.
    fn wait_after(&mut self, took: Duration, found: bool) {
        self.next = Some(Instant::now() + self.gap.after(took, found));
    }
}

/// Which pages the policy has trapped, of those that lie outside its colours.
fn trapped(policy: &mut Recolorer, pages: &MoveList) -> WaitingPages {
    let (mut traps, mut actions) = (WaitingPages::default(), Vec::new());
    policy.handle(Event::Audit, &mut actions);
    for page in pages.iter().flat_map(|(_, pages)| pages) {
        policy.handle(Event::Resident(page.seen), &mut actions);
        for action in actions.drain(..) {
            if let Action::Trap { page } = action {
                traps.set(page);
            }
        }
    }
    policy.handle(Event::AuditOver, &mut actions);
    traps
}

impl Member {
    /// Before the partition becomes `colors`: pages in colours that it loses, and those that wait since earlier
    /// times and lie outside it still, wait from now on.
    pub(super) fn leave(&mut self, colors: &ColorSet) -> Result<(), EngineError> {
        let before = std::mem::take(&mut self.waiting.traps);
        let lost = self.config.colors.difference(colors);
        let waits = self.config.shrink == Shrink::Lazy && self.serves() && !self.config.storm;
        let mut why = None;
        if waits && !(lost.is_empty() && before.is_empty()) {
            why = self.wait_for(colors, &lost, &before)?.err();
        }
        self.waiting.close();
        self.with_status(|status| status.eager = why);
        self.note_waiting();
        Ok(())
    }

    /// Has pages outside some colours wait that lie in others or waited before; or why not.
    fn wait_for(
        &mut self,
        colors: &ColorSet,
        lost: &ColorSet,
        before: &WaitingPages,
    ) -> Result<Result<(), String>, EngineError> {
        let Some(pages) = self.pages_to_leave(colors, lost, before)? else {
            let most = (MOST_ASKED_PAGES as u64 * PAGE_BYTES) >> 20;
            let why = format!("more than {most} MiB lie in the colours that it lost");
            return Ok(Err(why));
        };
        if pages.is_empty() {
            return Ok(Ok(()));
        }
        let bits = match self.waiting.bits.take() {
            Some(bits) => bits,
            None => match Bits::open(self.pid) {
                Ok(bits) => bits,
                Err(why) => return Ok(Err(why)),
            },
        };
        // No colour is new to it: it fills none, whatever the rule.
        let mut policy = Recolorer::new(colors.clone(), Rule::Redistribution { window: 0 });
        let traps = trapped(&mut policy, &pages);
        // Bits of those that waited already tell of touches that no round has seen yet.
        let new = pages.iter().flat_map(|(_, pages)| pages);
        bits.clear(&ranges(new.filter(|page| !before.holds(page.seen.page))));
        self.waiting =
            Waiting { traps, policy: Some(policy), bits: Some(bits), ..Waiting::default() };
        self.waiting.wait_after(Duration::ZERO, true);
        Ok(Ok(()))
    }

    /// Pages outside `colors` that can be moved and lie in `lost`, or waited before; none if they are too
    /// many to be remembered.
    fn pages_to_leave(
        &self,
        colors: &ColorSet,
        lost: &ColorSet,
        before: &WaitingPages,
    ) -> Result<Option<MoveList>, EngineError> {
        let (mut found, mut count) = (MoveList::new(), 0);
        self.look_at_free(
            |color| !colors.contains(color),
            |area, page| {
                let was_inside = page.seen.color.is_some_and(|color| lost.contains(color));
                if was_inside || before.holds(page.seen.page) {
                    count += 1;
                    if count <= MOST_ASKED_PAGES {
                        add_move(&mut found, area, page);
                    }
                }
            },
        )?;
        if count > MOST_ASKED_PAGES {
            return Ok(None);
        }
        // Those that must not be moved are the audits' business, which say why.
        if !found.is_empty() {
            let flags = self.flags()?;
            let free = |of| held_by(of, self.watches(), false).is_none();
            found.retain(|(area, _)| flags.of(area).is_some_and(free));
        }
        Ok(Some(found))
    }

    /// A round, when one is due: moves pages that were touched. Whether there were any.
    pub(super) fn look_at_waiting(&mut self) -> Result<bool, EngineError> {
        let due = self.waiting.next.is_none_or(|next| Instant::now() >= next);
        if self.waiting.traps.is_empty() || !due {
            return Ok(false);
        }
        let start = Instant::now();
        let touched = match self.waiting.round() {
            Ok(touched) => touched,
            Err(error) => {
                self.wait_no_more(Some(error.to_string()));
                return Ok(false);
            }
        };
        self.waiting.wait_after(start.elapsed(), !touched.is_empty());
        if touched.is_empty() {
            return Ok(false);
        }
        let moves = self.outside_of(&touched)?;
        // What does not move now is as all that lies outside, and found by the next audit.
        if !moves.is_empty() && self.know_clear_tid()? {
            self.repair(&moves)?;
        }
        self.waiting.close();
        self.note_waiting();
        self.note_counters();
        Ok(true)
    }

    /// Those of some pages that lie outside the partition and can be moved as far as is known.
    fn outside_of(&self, pages: &[Vpn]) -> Result<MoveList, EngineError> {
        let range = |page: &Vpn| (page.0 * PAGE_BYTES, (page.0 + 1) * PAGE_BYTES);
        let scope = Scope::new(pages.iter().map(range).collect());
        let (areas, own) = (self.root.maps(self.pid)?, self.agent.own_ranges());
        let color_of = |frame| self.source.vouched(frame);
        let lookup = ColorLookup {
            pagemap: &self.pagemap,
            color_of: &color_of,
            colors: &self.config.colors,
            own: &own,
            foreign: self.foreign.areas(),
            except: self.apart(),
        };
        let mut moves = MoveList::new();
        lookup.count(&scope.cut(&areas), |part, page| {
            let held = self.clear_tid.holds(page.address()) || self.pinned.holds(page.seen.page);
            // Of a whole area many move with one command.
            let area = areas.get(areas.partition_point(|area| area.end <= part.start));
            if let Some(area) = area.filter(|_| !held) {
                add_move(&mut moves, area, page);
            }
            None
        })?;
        Ok(moves)
    }

    /// Pages in colours that are lost are treated so from now on.
    pub(super) fn shrink_by(&mut self, shrink: Shrink) {
        self.config.shrink = shrink;
        if shrink == Shrink::Eager {
            self.wait_no_more(None);
        }
    }

    /// What waits moves with the next audits.
    fn wait_no_more(&mut self, why: Option<String>) {
        self.waiting = Waiting::default();
        self.with_status(|status| status.eager = why);
        self.note_waiting();
        self.audit_now();
    }

    pub(super) fn note_waiting(&self) {
        let pages = self.waiting.traps.count();
        self.with_status(|status| status.untouched = pages);
    }
}
