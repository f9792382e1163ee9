//! Whether a range of pages is worth more as a superpage or in its colours; one answer for the simulator and
//! for running programs.
//!
//! *A page that was recoloured* may not be made part of a superpage for a while, twice as long each time
//! ([`Holds`]): in a time t it is copied at most about 2 log2(t / hold) times for both. The same holds for a
//! range whose superpage was broken so that its pages were recoloured.
//!
//! *A superpage* is broken for a move only once conflicts in it have cost a share of what building it did, as
//! promotion waits for TLB misses (Romer 1998, section 3.3.2).
//!
//! *In a partition*, where [`Costs`] are known: a superpage of 2 MiB lies in every colour, so it takes the
//! program out of its partition as far as its frames lie outside. Saved, in nanoseconds of CPU time a second:
//! misses a second in its range, as sensed, times what a page walk takes. Lost: lines that accesses of the
//! range bring into the cache, times the share of its frames outside, times what it costs to bring
//! back the line that each of them drives out there. That is a bound: it takes every such line for one that a
//! neighbour still needs. Lines brought in are known by bounds alone: a TLB miss by chance touches one
//! line, which may be in the cache no more; one of a scan touches all of a page; the engine says which it is. A
//! program whose whole memory fits its part of the cache brings in none. What the program itself gains by more cache is not
//! counted. Not in the papers: the thesis weighs conflicts within one program, and knows no partition.
//!
//! No time but what is told. Memory: an entry for each superpage, and for each page and range ever held.

use std::collections::BTreeMap;

use huepage_color::{CacheLevel, Vpn};

use crate::superpage::PageSizes;
use crate::superpage_holds::{Holds, range_of};

/// Cycles that a page is held after its first recolouring: the time between two clearings of
/// the CML buffer, in which a conflict of the new place would show (section 5.3.1).
pub const HOLD: u64 = 5_000_000;

/// Lines of a page of 4 KiB: what a scan touches for each of its TLB misses.
pub const LINES_PER_PAGE: f64 = 64.0;
/// Nanoseconds to bring a line back into the L2 from the last level, beyond those of a hit: some 50
/// cycles on a desktop, 70 on a server.
pub const L2_FILL_NS: f64 = 20.0;
/// The same into the last level from memory.
pub const LLC_FILL_NS: f64 = 80.0;

/// What misses and fills cost in one partition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Nanoseconds of a TLB miss.
    pub walk_ns: f64,
    /// Nanoseconds to bring back a line that was driven out.
    pub fill_ns: f64,
    /// The share of a superpage's frames that lie outside the partition, 0 to 1.
    pub outside: f64,
    /// Bytes of the cache that the partition has.
    pub cache_bytes: u64,
}

/// What is expected of a range of pages while it is no superpage yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// TLB misses a second in it; none if nobody knows.
    pub misses: Option<f64>,
    /// Cache lines touched for each of them, 1 to [`LINES_PER_PAGE`].
    pub lines: f64,
    /// Bytes that the whole program has in memory.
    pub resident_bytes: u64,
}

/// Both sides of the scales, in nanoseconds of CPU time a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Benefit {
    /// TLB misses saved.
    pub saved: f64,
    /// Isolation lost, at most.
    pub lost: f64,
}

impl Benefit {
    /// What is gained on the whole; below 0 if more is lost.
    pub fn net(self) -> f64 {
        self.saved - self.lost
    }
}

/// Why a superpage is not built for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Withheld {
    /// It is not known what it would save.
    Unknown,
    /// It would cost more isolation than it saves, or save nothing.
    Isolation,
    /// It was one, and its pages were recoloured, not long ago.
    Recoloured,
}

impl Costs {
    /// For a partition of so many colours of a cache of so many bytes.
    pub fn new(
        walk_ns: f64,
        level: CacheLevel,
        cache_bytes: u64,
        [colors, universe]: [u16; 2],
    ) -> Costs {
        let inside = f64::from(colors) / f64::from(universe.max(1));
        let fill_ns = if level == CacheLevel::L2 { L2_FILL_NS } else { LLC_FILL_NS };
        let cache_bytes = cache_bytes / u64::from(universe.max(1)) * u64::from(colors);
        Costs { walk_ns, fill_ns, outside: (1.0 - inside).max(0.0), cache_bytes }
    }

    /// Both sides for a range; none if its misses are not known.
    pub fn weigh(&self, expected: &Expected) -> Option<Benefit> {
        let misses = expected.misses?;
        let hits = expected.resident_bytes <= self.cache_bytes;
        let fills = if hits { 0.0 } else { misses * expected.lines };
        let lost = fills * self.outside * self.fill_ns;
        Some(Benefit { saved: misses * self.walk_ns, lost })
    }
}

/// What is weighed, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct CombinedSettings {
    /// How long a page is held after its first recolouring, in the unit in which time is told: cycles, or
    /// nanoseconds; 0: not at all, as the thesis has it.
    pub hold: u64,
    /// Cache misses by conflicts for each base page of a superpage that allow breaking it; 0: it
    /// is broken at once, as the thesis has it.
    pub misses_per_page: u64,
    /// The page sizes, for what is left of a superpage; none: base pages, as the thesis has it.
    pub sizes: Option<PageSizes>,
    /// In a partition: what misses and fills cost; none: superpages cost nobody anything.
    pub costs: Option<Costs>,
}

impl Default for CombinedSettings {
    /// [`HOLD`]; and an eighth, as of promotion (section 3.4.2), of what copying a base page
    /// takes: 12,000 cycles (section 3.5.1), at 25 a miss (section 4.3.2).
    fn default() -> CombinedSettings {
        let sizes = Some(PageSizes::romer());
        CombinedSettings { hold: HOLD, misses_per_page: 60, sizes, costs: None }
    }
}

impl CombinedSettings {
    /// The thesis's: nothing is weighed.
    pub fn thesis() -> CombinedSettings {
        CombinedSettings { hold: 0, misses_per_page: 0, sizes: None, costs: None }
    }

    /// In a partition, where others decide what is moved.
    pub fn in_partition(costs: Costs, hold: u64) -> CombinedSettings {
        CombinedSettings { hold, costs: Some(costs), ..CombinedSettings::thesis() }
    }
}

/// A superpage.
#[derive(Clone, Copy, Debug)]
struct Whole {
    order: u32,
    /// Misses by conflicts of its parts.
    misses: u64,
}

/// See the module's head.
#[derive(Clone, Debug)]
pub struct Tradeoff {
    settings: CombinedSettings,
    holds: Holds,
    /// Superpages by their first base page.
    whole: BTreeMap<u64, Whole>,
}

impl Tradeoff {
    /// Nothing was built yet.
    pub const fn new(settings: CombinedSettings) -> Tradeoff {
        Tradeoff { holds: Holds::new(settings.hold), settings, whole: BTreeMap::new() }
    }

    /// The parameters.
    pub const fn settings(&self) -> &CombinedSettings {
        &self.settings
    }

    /// Misses and fills cost this from now on: the partition has other colours.
    pub const fn reprice(&mut self, costs: Costs) {
        self.settings.costs = Some(costs);
    }

    /// Whether a superpage of 2^`order` base pages may be built around a page now: what that brings, where
    /// something is expected and costs are known.
    ///
    /// # Errors
    /// Why not.
    pub fn ask(
        &self,
        page: Vpn,
        order: u32,
        expected: Option<&Expected>,
        now: u64,
    ) -> Result<Option<Benefit>, Withheld> {
        if self.holds.holds(page, order, now) {
            return Err(Withheld::Recoloured);
        }
        let Some((costs, expected)) = self.settings.costs.zip(expected) else { return Ok(None) };
        let benefit = costs.weigh(expected).ok_or(Withheld::Unknown)?;
        if benefit.net() > 0.0 { Ok(Some(benefit)) } else { Err(Withheld::Isolation) }
    }

    /// Whether a page is part of a superpage that has not cost enough to be broken.
    pub fn protects(&mut self, page: Vpn) -> bool {
        let price = self.settings.misses_per_page;
        self.whole(page).is_some_and(|whole| whole.misses < price << whole.order)
    }

    /// A page is moved to another colour.
    pub fn recolored(&mut self, page: Vpn, now: u64) {
        self.holds.hold(page, now);
    }

    /// A superpage was broken, by whomever, and its pages go back into the partition.
    pub fn broken(&mut self, page: Vpn, order: u32, now: u64) {
        self.recolored(Vpn(range_of(page, order).start), now);
    }

    /// Conflicts of a page have cost so many cache misses.
    pub fn conflict(&mut self, page: Vpn, misses: u64) {
        if let Some(whole) = self.whole(page) {
            whole.misses += misses;
        }
    }

    /// A superpage was built, of smaller ones if there were any.
    pub fn promoted(&mut self, page: Vpn, order: u32) {
        let range = range_of(page, order);
        let parts: Vec<u64> = self.whole.range(range.clone()).map(|part| *part.0).collect();
        parts.iter().for_each(|part| _ = self.whole.remove(part));
        self.whole.insert(range.start, Whole { order: order.min(52), misses: 0 });
    }

    /// A superpage is none any more.
    pub fn demoted(&mut self, page: Vpn, order: u32) {
        self.whole.remove(&range_of(page, order).start);
    }

    /// The superpage around a page.
    fn whole(&mut self, page: Vpn) -> Option<&mut Whole> {
        let (&first, whole) = self.whole.range_mut(..=page.0).next_back()?;
        (page.0 - first < 1 << whole.order).then_some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Of 2 MiB of L2, or 32 MiB of the last level; in a guest, where a walk takes 30 ns.
    fn costs(level: CacheLevel, colors: u16) -> Costs {
        let bytes = if level == CacheLevel::L2 { 2 * MIB } else { 32 * MIB };
        Costs::new(30.0, level, bytes, [colors, 32])
    }

    fn in_partition(costs: Costs) -> Tradeoff {
        Tradeoff::new(CombinedSettings::in_partition(costs, 10))
    }

    fn walk(misses: f64, mib: u64) -> Expected {
        Expected { misses: Some(misses), lines: 1.0, resident_bytes: mib * MIB }
    }

    #[test]
    fn a_walk_by_chance_pays_in_the_l2_and_not_in_the_last_level() {
        let found = costs(CacheLevel::L2, 16).weigh(&walk(1e6, 512)).unwrap();
        assert_eq!(found, Benefit { saved: 30e6, lost: 10e6 });
        let found = costs(CacheLevel::L3, 16).weigh(&walk(1e6, 512)).unwrap();
        assert_eq!(found, Benefit { saved: 30e6, lost: 40e6 });
        assert!(costs(CacheLevel::L3, 24).weigh(&walk(1e6, 512)).unwrap().net() > 0.0);
    }

    #[test]
    fn what_fits_its_part_of_the_cache_costs_nobody_anything() {
        let gate = in_partition(costs(CacheLevel::L3, 8));
        assert_eq!(gate.ask(Vpn(512), 9, Some(&walk(1e5, 9)), 0), Err(Withheld::Isolation));
        let fits = gate.ask(Vpn(512), 9, Some(&walk(1e5, 8)), 0);
        assert_eq!(fits, Ok(Some(Benefit { saved: 3e6, lost: 0.0 })));
    }

    #[test]
    fn a_scan_brings_in_all_of_a_page_for_each_miss() {
        let gate = in_partition(costs(CacheLevel::L2, 31));
        let scan = Expected { lines: LINES_PER_PAGE, ..walk(1e6, 512) };
        assert_eq!(gate.ask(Vpn(0), 9, Some(&scan), 0), Err(Withheld::Isolation));
        assert!(gate.ask(Vpn(0), 9, Some(&walk(1e6, 512)), 0).is_ok());
        // All of the cache: nothing lies outside.
        assert_eq!(costs(CacheLevel::L2, 32).weigh(&scan).unwrap().lost, 0.0);
    }

    #[test]
    fn what_is_not_known_to_miss_is_not_built() {
        let gate = in_partition(costs(CacheLevel::L2, 16));
        let unknown = Expected { misses: None, ..walk(0.0, 512) };
        assert_eq!(gate.ask(Vpn(0), 9, Some(&unknown), 0), Err(Withheld::Unknown));
        assert_eq!(
            gate.ask(Vpn(0), 9, Some(&walk(0.0, 1)), 0),
            Err(Withheld::Isolation),
            "saves nothing"
        );
    }

    #[test]
    fn a_range_that_was_recoloured_waits_twice_as_long_each_time() {
        let mut gate = in_partition(costs(CacheLevel::L2, 16));
        let (mut now, mut built) = (0, 0);
        while now < 1000 {
            if gate.ask(Vpn(512), 9, Some(&walk(1e6, 512)), now).is_ok() {
                built += 1;
                gate.broken(Vpn(700), 9, now);
            }
            assert!(gate.ask(Vpn(1024), 9, Some(&walk(1e6, 512)), now).is_ok(), "its neighbour");
            now += 1;
        }
        // At 0, 10, 30, 70, 150, 310 and 630.
        assert_eq!(built, 7);
    }
}
