//! Whether a superpage inside a partition pays. One of 2 MiB lies in every colour, so it takes
//! the program out of its partition as far as its frames lie outside: the TLB cycles that it saves
//! stand against the cache isolation that it costs.
//!
//! *Saved*, in nanoseconds of CPU time a second: misses a second in its range, as sensed, times what
//! a page walk takes. *Lost*: lines that accesses of the range bring into the cache, times the share
//! of its frames outside the partition, times what it costs to bring back the line that each of them
//! drives out there. That is a bound: it takes every such line for one that a neighbour still needs.
//! Lines brought in are known by bounds alone: a TLB miss by chance touches one line, which
//! may be in the cache no more; one of a scan touches all of a page; the engine says which it is. A
//! program whose whole memory fits its part of the cache brings in none. What the program itself gains by more cache is not
//! counted.
//!
//! A range whose superpage was broken, so that its pages were recoloured, is held back by
//! [`Holds`], twice as long each time: promotion and recolouring take turns ever more seldom.
//!
//! Not in the papers: Romer's combination (1998, section 6.6) weighs conflicts within one program, and
//! knows no partition. Feeds any policy that asks what a superpage takes: a refusal is the answer.
//! No time but what is told. Memory: an entry for each range that was ever broken.

use huepage_color::{CacheLevel, Vpn};

use crate::holds::Holds;

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

/// The gate in front of a policy's promotions in a partition.
#[derive(Clone, Debug)]
pub struct Tradeoff {
    costs: Costs,
    holds: Holds,
}

impl Tradeoff {
    /// Nothing was built yet. `hold` is how long a range waits after its first superpage was broken,
    /// in the unit in which time is told.
    pub const fn new(costs: Costs, hold: u64) -> Tradeoff {
        Tradeoff { costs, holds: Holds::new(hold) }
    }

    /// Misses and fills cost this from now on: the partition has other colours.
    pub const fn reprice(&mut self, costs: Costs) {
        self.costs = costs;
    }

    /// Whether a superpage of 2^`order` base pages may be built around a page now: what that brings.
    ///
    /// # Errors
    /// Why not.
    pub fn ask(
        &self,
        page: Vpn,
        order: u32,
        expected: &Expected,
        now: u64,
    ) -> Result<Benefit, Withheld> {
        if self.holds.holds(page, order, now) {
            return Err(Withheld::Recoloured);
        }
        let benefit = self.costs.weigh(expected).ok_or(Withheld::Unknown)?;
        if benefit.net() > 0.0 { Ok(benefit) } else { Err(Withheld::Isolation) }
    }

    /// A superpage was broken, by whomever, and its pages go back into the partition.
    pub fn broken(&mut self, page: Vpn, order: u32, now: u64) {
        self.holds.hold(Vpn(crate::holds::range_of(page, order).start), now);
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
        let gate = Tradeoff::new(costs(CacheLevel::L3, 8), 10);
        assert_eq!(gate.ask(Vpn(512), 9, &walk(1e5, 9), 0), Err(Withheld::Isolation));
        let fits = gate.ask(Vpn(512), 9, &walk(1e5, 8), 0);
        assert_eq!(fits, Ok(Benefit { saved: 3e6, lost: 0.0 }));
    }

    #[test]
    fn a_scan_brings_in_all_of_a_page_for_each_miss() {
        let gate = Tradeoff::new(costs(CacheLevel::L2, 31), 10);
        let scan = Expected { lines: LINES_PER_PAGE, ..walk(1e6, 512) };
        assert_eq!(gate.ask(Vpn(0), 9, &scan, 0), Err(Withheld::Isolation));
        assert!(gate.ask(Vpn(0), 9, &walk(1e6, 512), 0).is_ok());
        // All of the cache: nothing lies outside.
        assert_eq!(costs(CacheLevel::L2, 32).weigh(&scan).unwrap().lost, 0.0);
    }

    #[test]
    fn what_is_not_known_to_miss_is_not_built() {
        let gate = Tradeoff::new(costs(CacheLevel::L2, 16), 10);
        let unknown = Expected { misses: None, ..walk(0.0, 512) };
        assert_eq!(gate.ask(Vpn(0), 9, &unknown, 0), Err(Withheld::Unknown));
        assert_eq!(
            gate.ask(Vpn(0), 9, &walk(0.0, 1), 0),
            Err(Withheld::Isolation),
            "saves nothing"
        );
    }

    #[test]
    fn a_range_that_was_recoloured_waits_twice_as_long_each_time() {
        let mut gate = Tradeoff::new(costs(CacheLevel::L2, 16), 10);
        let (mut now, mut built) = (0, 0);
        while now < 1000 {
            if gate.ask(Vpn(512), 9, &walk(1e6, 512), now).is_ok() {
                built += 1;
                gate.broken(Vpn(700), 9, now);
            }
            assert!(gate.ask(Vpn(1024), 9, &walk(1e6, 512), now).is_ok(), "its neighbour");
            now += 1;
        }
        // At 0, 10, 30, 70, 150, 310 and 630.
        assert_eq!(built, 7);
    }
}
