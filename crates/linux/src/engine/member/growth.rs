//! Which pages of a member move to colours that it gained, by the recolouring engine of COLORIS (2014, section
//! 3.2): Selective Moving, or Redistribution of what is accessed. That is decided by
//! `huepage_policy::coloris`; here it is told what lies where and what was accessed. Nothing can be trapped in a
//! running program without stopping it at every page, so a page that would be moved when it is touched next is
//! moved at once: in Redistribution it was touched a moment ago.
//!
//! Where accessed bits cannot be read, or memory is large, pages are chosen evenly, as without a policy.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use huepage_color::{Color, ColorSet, NumberHash, PAGE_BYTES, Vpn};
use huepage_policy::coloris::{Growth as Rule, Recolorer};
use huepage_policy::{Action, Event, Policy as _};

use super::Member;
use super::moves::{MoveList, add_move};
use crate::engine::EngineError;
use crate::engine::census::Outside;
use crate::kernel::page_tables::{BlockMapping, PageTables};
use crate::kernel::process_memory::{ProcessMemory, SUPERPAGE_BYTES};

/// Pages above which they are chosen evenly: asking about each costs some 100 ns.
pub(super) const MOST_ASKED_PAGES: usize = 1 << 18;
/// How long accesses are gathered: the paper's 3 ms are what a program on a CPU of its own takes to touch
/// what it uses; one that shares a CPU has it for some milliseconds in some ten.
const ACCESS_WINDOW: Duration = Duration::from_nanos(ACCESS_WINDOW_NS);
const ACCESS_WINDOW_NS: u64 = 50_000_000;

/// Where pages are wanted.
type Places = HashMap<Vpn, Color, NumberHash>;

/// How colours that were gained are filled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrowthMode {
    /// As many pages move, evenly chosen, as it takes for all colours to be used alike.
    #[default]
    Even,
    /// One page of each colour in so many ways of the cache and one.
    Selective {
        /// Ways of the cache.
        ways: u32,
    },
    /// Of the pages that are accessed within a window as many as there are colours gained, in turns.
    Redistribution,
}

impl Member {
    /// The pages that move to colours that were gained, as the policy has it; none where it cannot be
    /// asked.
    pub(super) fn pages_to_grow(
        &self,
        gained: &ColorSet,
        colors: &ColorSet,
    ) -> Result<Option<MoveList>, EngineError> {
        let rule = match self.config.growth {
            GrowthMode::Even => return Ok(None),
            GrowthMode::Selective { ways } => Rule::SelectiveMoving { ways },
            GrowthMode::Redistribution => Rule::Redistribution { window: ACCESS_WINDOW_NS },
        };
        let Some(mut pages) = self.pages_within(&colors.difference(gained))? else {
            return Ok(None);
        };
        let Some(to) = self.choose(rule, &pages, colors) else { return Ok(None) };
        let moves = |page: &Outside| to.get(&page.seen.page).is_some_and(|&to| gained.contains(to));
        pages.iter_mut().for_each(|(_, pages)| pages.retain(moves));
        pages.retain(|(_, pages)| !pages.is_empty());
        Ok(Some(pages))
    }

    /// Movable pages that lie in some colours; none if they are too many.
    fn pages_within(&self, colors: &ColorSet) -> Result<Option<MoveList>, EngineError> {
        let (mut found, mut count) = (MoveList::new(), 0);
        self.look_at_free(
            |color| colors.contains(color),
            |area, page| {
                count += 1;
                if count <= MOST_ASKED_PAGES {
                    add_move(&mut found, area, page);
                }
            },
        )?;
        Ok((count <= MOST_ASKED_PAGES).then_some(found))
    }

    /// Where the policy wants pages, if it can be asked.
    fn choose(&self, rule: Rule, pages: &MoveList, colors: &ColorSet) -> Option<Places> {
        let mut policy = Recolorer::new(self.config.colors.clone(), rule);
        policy.assign(colors.clone());
        let mut actions = Vec::new();
        policy.handle(Event::Audit, &mut actions);
        for page in pages.iter().flat_map(|(_, pages)| pages) {
            policy.handle(Event::Resident(page.seen), &mut actions);
        }
        policy.handle(Event::AuditOver, &mut actions);
        if actions.contains(&Action::ClearAccessed) {
            let accessed = self.accessed(pages)?;
            for cycles in [0, ACCESS_WINDOW_NS] {
                policy.handle(Event::Progress { cycles, instructions: 0 }, &mut actions);
            }
            for page in accessed {
                policy.handle(Event::Accessed { page, order: 0 }, &mut actions);
            }
            policy.handle(Event::AccessedOver, &mut actions);
        }
        let mut to = Places::default();
        while let Some(action) = actions.pop() {
            match action {
                Action::Trap { page } => policy.handle(Event::Trapped { page }, &mut actions),
                Action::Recolour { page, to: color } => _ = to.insert(page, color),
                _ => {}
            }
        }
        Some(to)
    }

    /// Which of some pages are accessed in a window, ascending; none where that cannot be told.
    fn accessed(&self, pages: &MoveList) -> Option<Vec<Vpn>> {
        let all = || pages.iter().flat_map(|(_, pages)| pages);
        let mut tables = PageTables::open().ok()?;
        let (space, process) = (tables.space(self.pid).ok()?, ProcessMemory::open(self.pid).ok()?);
        process.forget(&ranges(all()));
        std::thread::sleep(ACCESS_WINDOW);
        let mut blocks: Vec<u64> = all().map(|page| page.address() / SUPERPAGE_BYTES).collect();
        blocks.dedup();
        let mut found = Vec::with_capacity(blocks.len());
        tables.read(&space, &blocks, &mut found).ok()?;
        let of: HashMap<u64, BlockMapping> = blocks.into_iter().zip(found).collect();
        let was = |page: &Vpn| match of.get(&(page.0 * PAGE_BYTES / SUPERPAGE_BYTES)) {
            Some(BlockMapping::Pages { accessed, .. }) => {
                accessed.get(usize::try_from(page.0 % 512).unwrap_or(0))
            }
            Some(BlockMapping::Huge { accessed }) => *accessed,
            _ => false,
        };
        Some(all().map(|page| page.seen.page).filter(was).collect())
    }
}

/// Neighbouring pages together, as ranges of addresses.
pub(super) fn ranges<'a>(pages: impl Iterator<Item = &'a Outside>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for page in pages {
        let start = page.address();
        match ranges.last_mut() {
            Some(last) if last.end == start => last.end += PAGE_BYTES,
            _ => ranges.push(start..start + PAGE_BYTES),
        }
    }
    ranges
}
