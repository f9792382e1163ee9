//! The sensors beside accessed bits: samples of misses where the processor counts them, how much of
//! each area was accessed where page tables cannot be read, and pages that come back from swap where
//! nothing else is to be had. Each turns what its source says into looks; the sources are in
//! `sources`.

use std::collections::BTreeMap;
use std::time::Duration;

use huepage_color::{PAGE_BYTES, Vpn};

use super::accessed::LONGEST_WEIGHT_SECONDS;
use super::replay::MISSES_PER_SAMPLE;
use super::sensor::{Miss, MissSensor, SampledBlock, SensorLook};
use crate::kernel::area_references::{AreaReference, AreaReferences};
use crate::kernel::pmu::{PmuSample, Sampler};
use crate::kernel::process_memory::{ProcessMemory, SUPERPAGE_BYTES, SUPERPAGE_PAGES};
use crate::kernel::procfs::ProcRoot;
use crate::sensors::superpage_map::SuperpageMap;
use crate::sensors::tlb::SensorError;
use crate::sensors::tlb::events::PmuSource;
use crate::sensors::tlb::pageout::{PageOutSampler, Returned};
use fastrand::Rng;

/// Misses between two samples of a PMU: some thousands of samples a second of a program that does
/// little else than miss.
pub(crate) const PERIOD_MISSES: u64 = 4096;
/// How long samples are gathered.
const GATHER_WINDOW: Duration = Duration::from_millis(20);
/// How long accesses of areas are gathered.
const AREA_WINDOW: Duration = Duration::from_millis(10);
/// Blocks that stand for an area.
const BLOCKS_PER_AREA: usize = 64;
/// How long pages may take to come back.
const RETURN_WINDOW: Duration = Duration::from_millis(100);
/// Blocks of which pages are paged out, and pages of each.
const PAGED_OUT_BLOCKS_AND_PAGES: [usize; 2] = [8, 16];

/// Misses as a PMU samples them.
pub(crate) struct Pmu {
    sampler: Sampler,
    period: u64,
    samples: Vec<PmuSample>,
}

impl Pmu {
    pub fn open(pid: i32) -> Result<Pmu, SensorError> {
        let source = PmuSource::here();
        let (sampler, period) = (source.open(pid, PERIOD_MISSES)?, source.period(PERIOD_MISSES));
        Ok(Pmu { sampler, period, samples: Vec::new() })
    }
}

impl MissSensor for Pmu {
    fn look(
        &mut self,
        map: &SuperpageMap,
        _hands: &ProcessMemory,
        _cpu_seconds: f64,
        _random: &mut Rng,
    ) -> Result<SensorLook, SensorError> {
        std::thread::sleep(GATHER_WINDOW);
        self.samples.clear();
        self.sampler.drain(&mut self.samples)?;
        Ok(SensorLook { misses: told(&self.samples, self.period, map), ..SensorLook::default() })
    }
}

/// Samples as misses of [`MISSES_PER_SAMPLE`], of blocks that could become superpages.
fn told(samples: &[PmuSample], period: u64, map: &SuperpageMap) -> Vec<Miss> {
    let times = usize::try_from((period / MISSES_PER_SAMPLE).max(1)).unwrap_or(1);
    let small =
        |address: &u64| map.blocks.get(&(address / SUPERPAGE_BYTES)).is_some_and(|b| !b.huge);
    let addresses = samples.iter().map(|sample| sample.address).filter(small);
    let miss = |address| Miss { page: Vpn(address / PAGE_BYTES), victim: None };
    addresses.flat_map(|address| std::iter::repeat_n(miss(address), times)).collect()
}

/// How much of each area was accessed.
pub(crate) struct Areas {
    references: AreaReferences,
    found: Vec<AreaReference>,
    seen: f64,
}

impl Areas {
    pub fn open(pid: i32) -> Areas {
        let references = AreaReferences::new(ProcRoot::default(), pid);
        Areas { references, found: Vec::new(), seen: 0.0 }
    }
}

impl MissSensor for Areas {
    fn look(
        &mut self,
        map: &SuperpageMap,
        _hands: &ProcessMemory,
        cpu_seconds: f64,
        random: &mut Rng,
    ) -> Result<SensorLook, SensorError> {
        self.references.clear()?;
        std::thread::sleep(AREA_WINDOW);
        self.references.read(&mut self.found)?;
        let stands_for = (cpu_seconds - self.seen).clamp(0.0, LONGEST_WEIGHT_SECONDS);
        self.seen = cpu_seconds;
        let mut small = map.small_blocks();
        random.shuffle(&mut small);
        small.truncate(BLOCKS_PER_AREA);
        let share = |block: u64| {
            let inside = |area: &&AreaReference| area.range.contains(&(block * SUPERPAGE_BYTES));
            self.found.iter().find(inside).and_then(AreaReference::share)
        };
        let even = |&block: &u64| {
            let resident = u32::from(map.blocks[&block].resident);
            Some(SampledBlock { stands_for, ..spread(block, resident, share(block)?) })
        };
        let sampled = small.iter().filter_map(even).collect();
        Ok(SensorLook { window: AREA_WINDOW, sampled, ..SensorLook::default() })
    }
}

/// A block of whose pages a share was touched, evenly as far as anybody knows.
fn spread(block: u64, resident: u32, share: f64) -> SampledBlock {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pages of a block")]
    let count = (share.clamp(0.0, 1.0) * f64::from(resident)).round() as u32;
    let page = |i: u32| {
        u16::try_from(u64::from(i) * SUPERPAGE_PAGES / u64::from(count.max(1))).unwrap_or(0)
    };
    let touched = (0..count).map(page).collect();
    SampledBlock { block, pages: resident, touched, resident, ..SampledBlock::default() }
}

/// Pages that come back after they were paged out. Those that do not come back stay in swap until
/// they are touched.
pub(crate) struct PageOut {
    sampler: PageOutSampler,
    seen: f64,
}

impl PageOut {
    pub fn open(pid: i32) -> Result<PageOut, SensorError> {
        Ok(PageOut { sampler: PageOutSampler::open(ProcRoot::default(), pid)?, seen: 0.0 })
    }
}

impl MissSensor for PageOut {
    fn look(
        &mut self,
        map: &SuperpageMap,
        _hands: &ProcessMemory,
        cpu_seconds: f64,
        random: &mut Rng,
    ) -> Result<SensorLook, SensorError> {
        let mut blocks = map.small_blocks();
        random.shuffle(&mut blocks);
        blocks.truncate(PAGED_OUT_BLOCKS_AND_PAGES[0]);
        let page = |block: u64, random: &mut Rng| {
            block * SUPERPAGE_BYTES
                + random.usize(..usize::try_from(SUPERPAGE_PAGES).unwrap_or(1)) as u64 * PAGE_BYTES
        };
        let mut pages: Vec<u64> = blocks
            .iter()
            .flat_map(|&block| vec![block; PAGED_OUT_BLOCKS_AND_PAGES[1]])
            .map(|b| page(b, random))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        self.sampler.page_out(&pages)?;
        std::thread::sleep(RETURN_WINDOW);
        let mut returned = Vec::new();
        self.sampler.returned(&mut returned)?;
        let stands_for = (cpu_seconds - self.seen).clamp(0.0, LONGEST_WEIGHT_SECONDS);
        self.seen = cpu_seconds;
        let sampled = came_back(&returned, map, stands_for);
        Ok(SensorLook { window: RETURN_WINDOW, sampled, ..SensorLook::default() })
    }
}

fn came_back(
    returned: &[(u64, Returned)],
    map: &SuperpageMap,
    stands_for: f64,
) -> Vec<SampledBlock> {
    let mut found: BTreeMap<u64, SampledBlock> = BTreeMap::new();
    for &(address, what) in returned {
        let block = address / SUPERPAGE_BYTES;
        let resident = map.blocks.get(&block).map_or(1, |b| u32::from(b.resident));
        let one = found.entry(block).or_default();
        (one.block, one.resident, one.stands_for) = (block, resident, stands_for);
        if what != Returned::Freed {
            one.pages += 1;
        }
        if what == Returned::Touched {
            one.touched.push(u16::try_from(address % SUPERPAGE_BYTES / PAGE_BYTES).unwrap_or(0));
        }
    }
    found.into_values().filter(|one| one.pages > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensors::superpage_map::BlockResidency;

    fn map() -> SuperpageMap {
        let small = BlockResidency { resident: 512, zero: 0, huge: false };
        let blocks = [(1, small), (2, BlockResidency { huge: true, ..small })].into();
        SuperpageMap { blocks, ..SuperpageMap::default() }
    }

    #[test]
    fn samples_stand_for_their_period_and_superpages_are_left_out() {
        let sample = |address| PmuSample { pid: 1, tid: 1, address, ..PmuSample::default() };
        let samples = [
            sample(SUPERPAGE_BYTES + 4096),
            sample(2 * SUPERPAGE_BYTES),
            sample(9 * SUPERPAGE_BYTES),
        ];
        let misses = told(&samples, 4 * MISSES_PER_SAMPLE, &map());
        assert_eq!(misses, [Miss { page: Vpn(513), victim: None }; 4]);
    }

    #[test]
    fn a_share_of_an_area_is_spread_over_its_blocks() {
        let one = spread(7, 400, 0.25);
        assert_eq!((one.pages, one.touched.len()), (400, 100));
        assert!(one.touched.iter().all(|&page| page < 512));
        assert!(spread(7, 400, 0.0).touched.is_empty());
    }

    #[test]
    fn pages_that_came_back_count_as_touched_and_freed_ones_not_at_all() {
        let at = |page: u64| SUPERPAGE_BYTES + page * PAGE_BYTES;
        let returned =
            [(at(1), Returned::Touched), (at(2), Returned::Away), (at(3), Returned::Freed)];
        let found = came_back(&returned, &map(), 1.0);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].pages, &found[0].touched[..]), (2, &[1_u16][..]));
    }
}
