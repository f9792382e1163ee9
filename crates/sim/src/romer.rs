//! What the policies of Romer 1998, chapters 4 to 6 see of a machine and what that costs, for
//! pages of 4 KB (the thesis's have 8 KB there): which sensors, at which prices. The policies
//! are those of [`huepage_policy::conflict`]. No machine and no run is described here.

use huepage_policy::conflict::{CacheShape, thresholds};

use crate::feedback::{Cml, Every, Sense};
use crate::machine::Machine;

/// Cycles of a recolouring besides the cache's: half of 4,800 for copying 8 KB, and 200 for
/// the page table (table 5-1), less the 256 loads and stores that copying charges anyway.
pub const RECOLOR_COST: u64 = 2_400 + 200 - 256;
/// Cycles for finding out whether a TLB miss has to be recorded: 6.5 (table 4-7).
pub const CHECK_COST: u64 = 7;
/// Cycles for recording one (table 4-7).
pub const RECORD_COST: u64 = 10;
/// Cycles for thinking about what was recorded (table 4-7).
pub const ANALYSIS_COST: u64 = 11_000;
/// Cycles for an interrupt of the miss counter (table 4-7).
pub const INTERRUPT_COST: u64 = 70;
/// Cycles for the books of superpages at each TLB miss (table 3-3).
pub const BOOKKEEPING_COST: u64 = 100;
/// Cycles between ticks of the clock: half of the shortest delay of table 4-5.
const TICK: u64 = 100_000;

/// The cache of a machine that its conflict policies look after: the last of the data path.
/// `None` if it has no colours or more than 65,535.
pub fn shape(machine: &Machine) -> Option<CacheShape> {
    let spec = &machine.cache[*machine.data_path().last()?];
    let (ways, line) = (u64::try_from(spec.ways).ok()?, spec.line.0);
    let colors = u16::try_from(spec.size.0 / (4096 * ways.max(1))).ok()?;
    let ways = u16::try_from(ways).ok()?;
    (colors > 0).then_some(CacheShape { colors, ways, lines_per_page: 4096 / line })
}

/// For Active-Naive, -Delay and -Throttle: every TLB miss is looked at and filed.
pub fn active() -> Sense {
    let tick = Some(Every { every: TICK, cost: 0 });
    let tlb_miss_cost = Some(CHECK_COST + RECORD_COST);
    Sense { tlb_miss_cost, progress: tick, recolor_cost: RECOLOR_COST, ..Sense::default() }
}

/// For Periodic-Random and -Color: a check at every TLB miss, which is how a policy knows what is in a
/// TLB that it cannot read (section 3.7.1); what acting costs is taken to be the analysis of a snapshot.
pub fn periodic() -> Sense {
    let progress = Some(Every { every: 2_000_000, cost: ANALYSIS_COST });
    let tlb_miss_cost = Some(CHECK_COST);
    Sense { tlb_miss_cost, progress, recolor_cost: RECOLOR_COST, ..Sense::default() }
}

/// For Snapshot, and for Snapshot-Delay with `two` snapshots: a check at every TLB miss, and
/// for each snapshot 16 records and its share of the analysis.
pub fn snapshot(two: bool) -> Sense {
    Sense {
        tlb_miss_cost: Some(CHECK_COST),
        progress: Some(Every { every: TICK, cost: 0 }),
        recolor_cost: RECOLOR_COST,
        flush_cost: 16 * RECORD_COST + ANALYSIS_COST / if two { 2 } else { 1 },
        ..Sense::default()
    }
}

/// For Snapshot-Miss: as [`snapshot`], by a counter that runs over every 1,000 misses.
pub fn snapshot_miss() -> Sense {
    let overflow = Some(Every { every: 1_000, cost: INTERRUPT_COST });
    Sense { overflow, progress: None, ..snapshot(true) }
}

/// For Snapshot-Fit: a counter that runs over every 1,000 misses; while the policy listens every
/// TLB miss is looked at and filed, and each snapshot is charged a whole analysis, since it has
/// more pages than the thesis's.
pub fn snapshot_fit() -> Sense {
    Sense {
        tlb_miss_cost: Some(CHECK_COST + RECORD_COST),
        flush_cost: ANALYSIS_COST,
        ..snapshot_miss()
    }
}

/// For CML: the thesis's buffer, interrupting at the threshold that goes with the lines of a
/// page.
pub fn cml(shape: CacheShape) -> Sense {
    let (_, threshold) = thresholds(shape.lines_per_page);
    let cml = Some(Cml { threshold, ..Cml::thesis(shape.lines_per_page) });
    let progress = Some(Every { every: TICK, cost: 0 });
    Sense { cml, progress, recolor_cost: RECOLOR_COST, ..Sense::default() }
}

/// For THROTTLE and APPROX-ONLINE: 100 cycles for the books of each TLB miss (table 3-3).
pub fn promotion() -> Sense {
    let progress = Some(Every { every: TICK, cost: 0 });
    Sense { tlb_miss_cost: Some(BOOKKEEPING_COST), progress, ..Sense::default() }
}

/// For COMBINED of one of these and CML (section 6.6).
pub fn combined(shape: CacheShape) -> Sense {
    Sense { tlb_miss_cost: promotion().tlb_miss_cost, ..cml(shape) }
}
