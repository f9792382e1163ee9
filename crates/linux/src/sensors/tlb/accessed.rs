//! The sensor that every machine has: accessed bits. Pages of some blocks are marked as not
//! touched, and a moment later it is read which were, after half of it and at its end. The moment is
//! as long as it takes to touch as many pages as the TLB holds, and somewhat longer. All blocks have
//! their turn, in an order by chance; a look costs the same however large the process is.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::{Duration, Instant};

use huepage_color::PAGE_BYTES;

use super::replay::part;
use super::sensor::{MissSensor, SampledBlock, SensorLook};
use super::turnover::Fill;
use crate::kernel::page_tables::{AddressSpace, BlockMapping, PageTables};
use crate::kernel::process_memory::{ProcessMemory, SUPERPAGE_BYTES, SUPERPAGE_PAGES};
use crate::kernel::procfs::ProcRoot;
use crate::sensors::superpage_map::SuperpageMap;
use crate::sensors::tlb::{SensorError, TlbShape};
use fastrand::Rng;

/// Blocks of a look.
const BLOCKS_PER_LOOK: usize = 64;
/// Pages of a block that are looked at: as many neighbours as keep the chance that some of them
/// are in the TLB together.
const GROUP_PAGES: u64 = 128;
/// Bounds of the moment.
const WINDOW_BOUNDS: Range<Duration> = Duration::from_millis(1)..Duration::from_millis(128);
/// Seconds that a look stands for, at most.
pub(super) const LONGEST_WEIGHT_SECONDS: f64 = 5.0;

/// See the module's head.
pub struct AccessedBits {
    tables: Rc<RefCell<PageTables>>,
    space: AddressSpace,
    turns: Turns,
}

/// Whose turn it is, for how long is looked, and what a look stands for: all of it but the page
/// tables, so that a trace can take their place.
#[derive(Debug)]
pub(crate) struct Turns {
    shape: TlbShape,
    window: Duration,
    fill: Fill,
    queue: Vec<u64>,
    /// When a block was looked at, in CPU seconds of the process.
    seen: HashMap<u64, f64>,
}

/// Neighbouring pages of a block.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The address of the block, divided by 2 MiB.
    pub block: u64,
    /// Its pages, counted from its first.
    pub pages: Range<u64>,
}

impl Group {
    fn bytes(&self) -> Range<u64> {
        let at = self.block * SUPERPAGE_BYTES;
        at + self.pages.start * PAGE_BYTES..at + self.pages.end * PAGE_BYTES
    }
}

impl AccessedBits {
    /// Of a process.
    ///
    /// # Errors
    /// When it has ended.
    pub fn open(tables: &Rc<RefCell<PageTables>>, pid: i32) -> Result<AccessedBits, SensorError> {
        let space = tables.borrow().space(pid)?;
        let turns = Turns::new(TlbShape::read());
        Ok(AccessedBits { tables: Rc::clone(tables), space, turns })
    }

    /// Those of some blocks that consist of single pages now: to mark a part of a superpage as not
    /// touched would break it.
    fn small(&self, blocks: Vec<u64>) -> Result<Vec<u64>, SensorError> {
        let mut found = Vec::with_capacity(blocks.len());
        self.tables.borrow_mut().read(&self.space, &blocks, &mut found)?;
        let small = blocks.into_iter().zip(found);
        Ok(small
            .filter(|(_, b)| matches!(b, BlockMapping::Pages { .. }))
            .map(|(at, _)| at)
            .collect())
    }
}

impl Turns {
    /// Nothing was looked at.
    pub fn new(shape: TlbShape) -> Turns {
        let (queue, seen) = (Vec::new(), HashMap::new());
        Turns { shape, window: Duration::from_millis(4), fill: Fill::default(), queue, seen }
    }

    /// How long the next look gathers touches; what was touched in its first half is to be read
    /// too.
    pub fn window(&self) -> Duration {
        self.window
    }

    /// The next blocks whose turn it is; all of them once before any comes again.
    pub fn next(&mut self, map: &SuperpageMap, random: &mut Rng) -> Vec<u64> {
        if self.queue.is_empty() {
            self.queue = map.small_blocks();
            random.shuffle(&mut self.queue);
            self.seen.retain(|at, _| map.blocks.contains_key(at));
        }
        self.queue.split_off(self.queue.len().saturating_sub(BLOCKS_PER_LOOK))
    }

    /// These have another turn.
    fn put_back(&mut self, groups: &[Group]) {
        self.queue.extend(groups.iter().map(|group| group.block));
    }

    /// What was seen in groups after half of the window and after all of it, and what that stands
    /// for; the next window follows from it.
    pub fn note(
        &mut self,
        map: &SuperpageMap,
        cpu_seconds: f64,
        groups: &[Group],
        [half, whole]: [&[BlockMapping]; 2],
    ) -> SensorLook {
        let mut sampled = Vec::with_capacity(groups.len());
        for (group, found) in groups.iter().zip(half.iter().zip(whole)) {
            let since = self.seen.insert(group.block, cpu_seconds).unwrap_or(0.0);
            let stands_for = (cpu_seconds - since).clamp(0.0, LONGEST_WEIGHT_SECONDS);
            sampled.extend(taken(group, found, resident(map, group.block), stands_for));
        }
        let room = self.shape.entries as f64 * part(&self.shape, map, &sampled);
        self.fill.note(&sampled, room.max(1.0));
        let (window, slow) = (self.window, self.fill.is_late());
        self.adapt();
        SensorLook { window, half: Some(window / 2), sampled, slow, misses: Vec::new() }
    }

    /// A window as long as the TLB takes to be turned over, and somewhat longer.
    fn adapt(&mut self) {
        if self.fill.is_short() && self.window < WINDOW_BOUNDS.end {
            self.window *= 2;
            self.fill.double();
        } else if self.fill.is_long() && self.window > WINDOW_BOUNDS.start {
            self.window /= 2;
            self.fill.halve();
        }
    }
}

fn resident(map: &SuperpageMap, block: u64) -> u16 {
    map.blocks.get(&block).map_or(0, |block| block.resident)
}

/// Which pages of some blocks are looked at.
pub(crate) fn groups(map: &SuperpageMap, blocks: &[u64], random: &mut Rng) -> Vec<Group> {
    let group = |&block| Group { block, pages: group(resident(map, block), random) };
    blocks.iter().map(group).collect()
}

/// Pages to look at within a block, counted from its first.
fn group(resident: u16, random: &mut Rng) -> Range<u64> {
    if u64::from(resident) <= GROUP_PAGES {
        return 0..SUPERPAGE_PAGES;
    }
    let groups = usize::try_from(SUPERPAGE_PAGES / GROUP_PAGES).unwrap_or(1);
    let first = random.usize(..groups) as u64 * GROUP_PAGES;
    first..first + GROUP_PAGES
}

impl MissSensor for AccessedBits {
    fn survey(&mut self, root: &ProcRoot, _pid: i32) -> Result<SuperpageMap, SensorError> {
        SuperpageMap::from_tables(root, &mut self.tables.borrow_mut(), &self.space)
    }

    fn touched(&mut self, blocks: &[u64]) -> Result<Option<Vec<(u64, bool)>>, SensorError> {
        let mut found = Vec::with_capacity(blocks.len());
        self.tables.borrow_mut().read(&self.space, blocks, &mut found)?;
        let huge = |(&at, block): (&u64, &BlockMapping)| match block {
            BlockMapping::Huge { accessed } => Some((at, *accessed)),
            _ => None,
        };
        Ok(Some(blocks.iter().zip(&found).filter_map(huge).collect()))
    }

    fn look(
        &mut self,
        map: &SuperpageMap,
        process: &ProcessMemory,
        cpu_seconds: f64,
        random: &mut Rng,
    ) -> Result<SensorLook, SensorError> {
        let blocks = self.turns.next(map, random);
        let groups = groups(map, &self.small(blocks)?, random);
        let ranges: Vec<Range<u64>> = groups.iter().map(Group::bytes).collect();
        let done = process.forget(&ranges);
        let blocks: Vec<u64> = groups[..done].iter().map(|group| group.block).collect();
        let mut found = [Vec::with_capacity(done), Vec::with_capacity(done)];
        let (began, mut took) = (Instant::now(), None);
        for found in &mut found {
            std::thread::sleep(self.turns.window() / 2);
            self.tables.borrow_mut().read(&self.space, &blocks, found)?;
            took = took.or_else(|| Some(began.elapsed()));
        }
        let [half, whole] = &found;
        let look = self.turns.note(map, cpu_seconds, &groups[..done], [half, whole]);
        let look = SensorLook { half: took, ..look };
        // Those after one that cannot be looked at have another turn.
        self.turns.put_back(groups.get(done + 1..).unwrap_or_default());
        Ok(look)
    }
}

/// What is there of a group, after half of the window and after all of it.
fn taken(
    group: &Group,
    (half, whole): (&BlockMapping, &BlockMapping),
    resident: u16,
    stands_for: f64,
) -> Option<SampledBlock> {
    let BlockMapping::Pages { present, accessed } = whole else { return None };
    let BlockMapping::Pages { accessed: early, .. } = half else { return None };
    let inside = |page: &u16| group.pages.contains(&u64::from(*page));
    let there: Vec<u16> = present.iter().map(index).filter(inside).collect();
    let touched: Vec<u16> =
        there.iter().copied().filter(|&page| accessed.get(page.into())).collect();
    let late = touched.iter().copied().filter(|&page| !early.get(page.into())).collect();
    let (block, pages) = (group.block, u32::try_from(there.len()).unwrap_or(0));
    let resident = u32::from(resident).max(pages);
    (pages > 0).then_some(SampledBlock { block, pages, touched, late, resident, stands_for })
}

fn index(page: usize) -> u16 {
    u16::try_from(page).unwrap_or(u16::MAX)
}
