//! This machine as the simulator describes one: its caches as the kernel tells them, what each costs by the clock,
//! and its TLB by what small pages cost more than large ones: CPUID of a guest says what a hypervisor was told to say,
//! 128 entries of a processor that has thousands. Costs are in quarters of the time that a line of the first level takes, which has four
//! cycles on most processors, so that nothing depends on the frequency at the moment.

use std::fmt::Write as _;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

use huepage_color::{CacheGeometry, CacheLevel, LevelChoice};
use huepage_linux::kernel::machine::HostMachine;
use huepage_linux::sensors::tlb::TlbShape;

use crate::mix::Rng;
use crate::sys::{self, MappedMemory, PAGE};
use crate::walk::{LINE, lap, link};

/// Cycles of the first level.
const FIRST: f64 = 4.0;
/// A cache is timed by a walk through this part of it: what is shared may be full of what others use.
const PART: u64 = 2;
const PART_OF_SHARED: u64 = 8;
/// Memory is timed by a walk through so many times the farthest cache that is known, and so many bytes at least.
const BEYOND: u64 = 4;
const LEAST: u64 = 128 << 20;
/// Accesses of a walk that is timed, and how often; the least counts, as others only make it slower.
const ACCESSES: usize = 1 << 20;
const ROUNDS: usize = 15;
/// Pages of the walks that find the far TLB: twice as many each time.
const TLB_PAGES: std::ops::RangeInclusive<u32> = 6..=14;
/// Nanoseconds that a walk through most of them has to cost more in small pages, or nothing is said.
const SEEN: f64 = 0.5;
/// Entries of a TLB that is near: those of processors of the last ten years.
const NEAR_ENTRIES: usize = 64;
/// Cycles of the far TLB.
const FAR: f64 = 7.0;

/// The cache of data of a level that processor 0 uses.
///
/// # Errors
/// When the kernel says nothing of it.
pub fn cache(level: CacheLevel) -> io::Result<CacheGeometry> {
    let machine = HostMachine::read().map_err(io::Error::other)?;
    let cache = machine.cache(LevelChoice::Level(level)).map_err(io::Error::other)?;
    Ok(cache.geometry.clone())
}

/// Caches of this machine, from the nearest: those of data that its processor 0 uses and that the simulator can describe
/// without knowing how lines are spread over slices.
///
/// # Errors
/// When the kernel says nothing of them.
pub fn caches() -> io::Result<Vec<(u32, CacheGeometry)>> {
    let levels = [(1, CacheLevel::L1), (2, CacheLevel::L2), (3, CacheLevel::L3)];
    let all = levels.into_iter().filter_map(|(number, level)| Some((number, cache(level).ok()?)));
    Ok(all.filter(|(_, own)| own.sets.is_power_of_two()).collect())
}

/// What was measured of this machine.
#[derive(Clone, Debug)]
pub struct HostCosts {
    /// Caches, from the nearest, with their levels.
    caches: Vec<(u32, CacheGeometry)>,
    /// Nanoseconds of an access that each of them has, and of one that memory has.
    times: Vec<f64>,
    tlb: TlbShape,
}

impl HostCosts {
    /// Measures them, which takes some seconds.
    ///
    /// # Errors
    /// When caches are not known, or memory cannot be had.
    pub fn measure() -> io::Result<HostCosts> {
        let caches = caches()?;
        let sizes: Vec<u64> = caches.iter().map(|(_, own)| own.size_bytes).collect();
        let far = (sizes.last().copied().unwrap_or(0) * BEYOND).max(LEAST);
        let part = |(level, own): &(u32, CacheGeometry)| {
            own.size_bytes / if *level > 2 { PART_OF_SHARED } else { PART }
        };
        let parts = caches.iter().map(part).chain([far]);
        let times = parts.map(nanoseconds).collect::<io::Result<_>>()?;
        Ok(HostCosts { caches, times, tlb: tlb()? })
    }

    /// The machine's description, as `huepage sim -m` reads it, with caches up to this level: what lies behind them
    /// is memory that costs as much as the next cache.
    pub fn description(&self, farthest: u32) -> String {
        let unit = self.times.first().copied().unwrap_or(1.0) / FIRST;
        let cycles = |nanoseconds: f64| (nanoseconds / unit).round().max(1.0);
        let caches =
            || self.caches.iter().zip(&self.times).filter(|((level, _), _)| *level <= farthest);
        let memory = cycles(self.times.get(caches().count()).copied().unwrap_or(1.0));
        let walk = cycles(self.tlb.walk_ns as f64);
        let mut text = format!(
            "name = \"this machine\"\nmemory = \"4G\"\nmemory_latency = {memory}\nwalk_latency = {walk}\n"
        );
        for ((level, own), time) in caches() {
            let kind = if *level == 1 { "kind = \"data\"\n" } else { "" };
            let (size, ways, latency) = (own.size_bytes, own.ways, cycles(*time));
            let _ = write!(
                text,
                "\n[[cache]]\nlevel = {level}\n{kind}size = {size}\nways = {ways}\nlatency = {latency}\n"
            );
        }
        let pages = "ways = 0\npages = [\"4K\", \"2M\"]\n";
        let _ = write!(
            text,
            "\n[[tlb]]\nlevel = 1\nkind = \"data\"\nentries = {NEAR_ENTRIES}\n{pages}\
             \n[[tlb]]\nlevel = 2\nentries = {}\nlatency = {FAR}\n{pages}",
            self.tlb.entries
        );
        text
    }
}

/// Nanoseconds of an access of a walk by chance through so many bytes, in large pages where the kernel gives them.
fn nanoseconds(bytes: u64) -> io::Result<f64> {
    let pages = usize::try_from(bytes).unwrap_or(0) / PAGE;
    let area = MappedMemory::private(pages.max(1))?;
    area.advise(0..area.pages(), libc::MADV_HUGEPAGE)?;
    link(&area, &mut Rng::with_seed(7));
    let lines = area.words().len() / LINE;
    let mut at = 0;
    Ok(least(lines, || at = lap(&area, at)))
}

/// Nanoseconds of each of some accesses that are made again and again: the least of some rounds.
fn least(accesses: usize, mut make: impl FnMut()) -> f64 {
    let laps = (ACCESSES / accesses).max(1);
    make();
    let mut once = || {
        let own = sys::thread_cpu();
        (0..laps).for_each(|_| make());
        (sys::thread_cpu() - own).as_secs_f64() * 1e9 / (laps * accesses) as f64
    };
    (0..ROUNDS).map(|_| once()).fold(f64::INFINITY, f64::min)
}

/// The far TLB by what pages of 4 KiB cost more than those of 2 MiB; what CPUID says where nothing is seen.
fn tlb() -> io::Result<TlbShape> {
    let more = |log: u32| {
        let pages = 1 << log;
        let [small, large] =
            [libc::MADV_NOHUGEPAGE, libc::MADV_HUGEPAGE].map(|how| by_page(pages, how));
        Ok((pages, small? - large?))
    };
    let curve: Vec<(usize, f64)> = TLB_PAGES.map(more).collect::<io::Result<_>>()?;
    Ok(shape(&curve).unwrap_or_else(TlbShape::read))
}

/// From what walks through so many pages cost more in small ones, fewest first: it holds as many as cost less than half
/// of what most do. None where they hardly cost more.
fn shape(curve: &[(usize, f64)]) -> Option<TlbShape> {
    let walk = curve.last().map(|(_, cost)| *cost).filter(|cost| *cost > SEEN)?;
    let held = curve.iter().take_while(|(_, cost)| *cost < walk / 2.0).last();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds")]
    let walk_ns = walk.round() as u64;
    held.map(|(entries, _)| TlbShape { entries: *entries, known: true, walk_ns: walk_ns.max(1) })
}

/// Nanoseconds of an access of a walk by chance through pages, a line of each.
fn by_page(pages: usize, how: libc::c_int) -> io::Result<f64> {
    let area = MappedMemory::private(pages)?;
    area.advise(0..pages, how)?;
    let mut order: Vec<usize> = (0..pages).collect();
    Rng::with_seed(11).shuffle(&mut order);
    // Lines that lie in all sets of a cache alike.
    let word = |page: usize| page * (PAGE / 8) + page * 37 % 64 * LINE;
    for (at, page) in order.iter().enumerate() {
        let next = order[(at + 1) % pages];
        area.words()[word(*page)].store(word(next) as u64, Relaxed);
    }
    let mut at = word(0);
    Ok(least(pages, || {
        for _ in 0..pages {
            at = usize::try_from(area.words()[at].load(Relaxed)).unwrap_or(0);
        }
    }))
}

#[cfg(test)]
mod tests {
    use huepage_sim::machine::Machine;

    use super::*;

    #[test]
    fn what_is_written_is_a_machine_and_costs_are_in_cycles_of_the_first_level() {
        let geometry = |size_bytes: u64, ways| CacheGeometry {
            size_bytes,
            ways,
            ..caches().unwrap()[0].1.clone()
        };
        let caches = vec![(1, geometry(32 << 10, 8)), (2, geometry(1 << 20, 16))];
        let tlb = TlbShape { entries: 2048, known: true, walk_ns: 30 };
        let costs = HostCosts { caches, times: vec![1.0, 3.6, 100.0], tlb };
        let parsed = |farthest| Machine::parse(&costs.description(farthest)).unwrap();
        let latencies = |machine: &Machine| -> Vec<u64> {
            machine.cache.iter().map(|cache| cache.latency).collect()
        };
        let machine = parsed(3);
        assert_eq!((latencies(&machine), machine.memory_latency), (vec![4, 14], 400));
        assert_eq!((machine.tlb[1].entries, machine.walk_latency), (2048, 120));
        let near = parsed(1);
        assert_eq!(
            (latencies(&near), near.memory_latency),
            (vec![4], 14),
            "memory is the next cache"
        );
    }

    #[test]
    fn a_tlb_holds_the_pages_that_cost_nothing_more() {
        let curve = [(512, 0.1), (1024, 0.2), (2048, 1.0), (4096, 9.0), (8192, 11.0)];
        let found = shape(&curve).unwrap();
        assert_eq!((found.entries, found.walk_ns), (2048, 11));
        assert!(shape(&[(512, 0.1), (1024, 0.2)]).is_none() && shape(&[]).is_none());
    }

    #[test]
    fn this_machine_has_caches_and_small_walks_take_time() {
        assert!(!caches().unwrap().is_empty());
        let [near, by_page] =
            [nanoseconds(16 << 10).unwrap(), by_page(64, libc::MADV_NOHUGEPAGE).unwrap()];
        assert!(near > 0.1 && by_page > 0.1, "{near} {by_page}");
    }
}
