//! Superpages of a process in a partition: the gate that weighs TLB misses saved against isolation
//! lost ([`Tradeoff`]) is fed with what is sensed, and the process's own agent is asked to build, as
//! nobody else may there. Which ranges are candidates is the policy's decision as everywhere.

use std::collections::HashMap;
use std::time::Duration;

use huepage_color::{PAGE_BYTES, Vpn};
use huepage_policy::superpage::{Costs, Expected, LINES_PER_PAGE, Tradeoff};

use super::ground::{Block, Ground, holes};
use super::hands::{BYTES, NotBuilt, ORDER, PAGES};
use super::replay::{Miss, Sampled, WEIGHT};
use super::sensor::Look;
use super::spare::Took;
use crate::engine::Desk;

/// CPU time of the process that a range waits after its first superpage was broken: as long as some
/// audits, in which its pages are brought back.
const HOLD: Duration = Duration::from_secs(2);
/// What a look counts among those before it: one alone sees few misses of a block, or by chance none.
const NEWEST: f64 = 0.5;

/// The partition whose members superpages are built in.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Where they are asked for.
    pub desk: Desk,
    /// What misses and fills cost there.
    pub costs: Costs,
}

/// Touched share of a group of neighbouring pages from which it counts as touched by a scan.
const FULL: f64 = 0.9;
/// Pages touched in a look that tell anything of a scan, at least: some groups.
const TELLING: f64 = 64.0;

/// One process of it.
#[derive(Debug)]
pub(super) struct Confined {
    pid: i32,
    desk: Desk,
    gate: Tradeoff,
    /// Cache lines for each TLB miss.
    lines: f64,
    /// Misses a second, by block, over the last looks at it.
    misses: HashMap<u64, f64>,
    /// CPU seconds of the process at the last look.
    looked_at: f64,
}

impl Confined {
    pub fn new(partition: &Partition, pid: i32) -> Confined {
        let hold = u64::try_from(HOLD.as_nanos()).unwrap_or(u64::MAX);
        let gate = Tradeoff::new(partition.costs, hold);
        Confined {
            pid,
            desk: partition.desk.clone(),
            gate,
            lines: 1.0,
            misses: HashMap::new(),
            looked_at: 0.0,
        }
    }

    /// The partition has other colours, in which superpages cost so much.
    pub fn reprice(&mut self, costs: Costs) {
        self.gate.reprice(costs);
    }

    /// What a look saw, and the misses a second that were made of it.
    pub fn note_look(&mut self, look: &Look, rates: &[(u64, f64)], cpu_seconds: f64) {
        if let Some(scanned) = scanned(&look.sampled) {
            let lines = (LINES_PER_PAGE - 1.0).mul_add(scanned, 1.0);
            self.lines = (lines - self.lines).mul_add(NEWEST, self.lines);
        }
        let sampled = sampled(&look.misses, cpu_seconds - self.looked_at);
        let known: HashMap<u64, f64> = rates.iter().copied().chain(sampled).collect();
        let quiet = look.sampled.iter().map(|one| one.block).filter(|at| !known.contains_key(at));
        let quiet: Vec<(u64, f64)> = quiet.map(|at| (at, 0.0)).collect();
        for (at, rate) in known.into_iter().chain(quiet) {
            let smooth = self.misses.entry(at).or_insert(rate);
            *smooth = (rate - *smooth).mul_add(NEWEST, *smooth);
        }
        self.looked_at = cpu_seconds;
    }

    /// Whether a block may be built in a process of so many pages.
    pub fn ask(&self, at: u64, resident: u64, cpu_seconds: f64) -> Result<(), NotBuilt> {
        let misses = self.misses.get(&at).copied();
        let resident_bytes = resident.saturating_mul(PAGE_BYTES);
        let expected = Expected { misses, lines: self.lines, resident_bytes };
        self.gate.ask(Vpn(at * PAGES), ORDER, &expected, nanoseconds(cpu_seconds))?;
        Ok(())
    }

    /// Has it built.
    pub fn build(&self, at: u64, block: Block) -> (Result<(), NotBuilt>, Took) {
        match self.desk.build(self.pid, at, holes(block) > 0) {
            Ok(time) => (Ok(()), Took { all: time, stall: time }),
            Err(why) => (Err(why), Took::default()),
        }
    }

    /// A superpage is none any more: its pages go back into the partition, and stay there for a while.
    pub fn broken(&mut self, at: u64, cpu_seconds: f64) {
        self.gate.broken(Vpn(at * PAGES), ORDER, nanoseconds(cpu_seconds));
        self.desk.give_up(self.pid, at);
    }

    /// Leaves out what is ours in the process.
    pub fn trim(&self, ground: &mut Ground) {
        let own = self.desk.own(self.pid);
        let ours =
            |at: u64| own.iter().any(|&(start, end)| at * BYTES < end && start < (at + 1) * BYTES);
        ground.blocks.retain(|&at, _| !ours(at));
        ground.resident_pages = ground.blocks.values().map(|block| u64::from(block.resident)).sum();
    }
}

/// The share of the pages touched in the first half of a look that was touched by a scan: where
/// nearly all of a group of neighbours was touched, and not nearly all of memory. None where too few
/// were touched to tell, or so many that all groups are full: so many in half a millisecond
/// are none of a scan, which would have to be faster than memory.
fn scanned(sampled: &[Sampled]) -> Option<f64> {
    let early = |one: &Sampled| (one.touched.len() - one.late.len()) as f64;
    let share = |one: &Sampled| early(one) / f64::from(one.pages.max(1));
    let (touched, pages) = sampled.iter().fold((0.0, 0.0), |(touched, pages), one| {
        (touched + early(one), pages + f64::from(one.pages))
    });
    let full = sampled.iter().filter(|one| share(one) >= FULL).map(early).sum::<f64>();
    (touched >= TELLING && touched < FULL * pages).then(|| full / touched)
}

/// Misses a second by block, of misses that were sampled as such in so many seconds.
fn sampled(misses: &[Miss], seconds: f64) -> HashMap<u64, f64> {
    let mut found = HashMap::new();
    for miss in misses {
        *found.entry(miss.page.0 / PAGES).or_default() += WEIGHT as f64 / seconds.max(1e-3);
    }
    found
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds")]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

#[cfg(test)]
mod tests {
    use huepage_color::CacheLevel;

    use super::*;

    fn confined(level: CacheLevel) -> Confined {
        let costs = Costs::new(30.0, level, 2 << 20, [8, 16]);
        Confined::new(&Partition { desk: Desk::default(), costs }, 1)
    }

    /// Groups of 128 pages, of which so many were touched in the first half.
    fn look(touched: &[(u64, u16)]) -> Look {
        let group = |&(block, touched): &(u64, u16)| {
            let touched = (0..touched).collect();
            Sampled { block, pages: 128, touched, resident: 512, ..Sampled::default() }
        };
        Look { sampled: touched.iter().map(group).collect(), ..Look::default() }
    }

    #[test]
    fn what_is_sensed_decides() {
        let mut confined = confined(CacheLevel::L2);
        assert_eq!(confined.ask(7, 100_000, 1.0), Err(NotBuilt::Unknown));
        confined.note_look(&look(&[(7, 40), (8, 40)]), &[(7, 1e5)], 1.0);
        assert_eq!(confined.ask(7, 100_000, 1.0), Ok(()));
        assert_eq!(confined.ask(8, 100_000, 1.0), Err(NotBuilt::Isolation), "saves nothing");
        confined.note_look(&look(&[(7, 40), (8, 40)]), &[], 2.0);
        assert_eq!(confined.ask(7, 100_000, 1.0), Ok(()), "none in one look is chance");
        confined.note_look(&look(&[(7, 0), (8, 128)]), &[(7, 1e5)], 3.0);
        assert_eq!(confined.ask(7, 100_000, 1.0), Err(NotBuilt::Isolation), "a scan");
        // 256 pages fill the partition's part of the cache, and no more.
        assert_eq!(confined.ask(7, 256, 1.0), Ok(()));
        assert_eq!(confined.ask(7, 257, 1.0), Err(NotBuilt::Isolation));
    }

    #[test]
    fn more_colours_make_superpages_cheaper() {
        let mut confined = confined(CacheLevel::L2);
        confined.note_look(&look(&[(7, 128), (8, 10)]), &[(7, 1e5)], 1.0);
        assert_eq!(confined.ask(7, 100_000, 1.0), Err(NotBuilt::Isolation), "a scan");
        confined.reprice(Costs::new(30.0, CacheLevel::L2, 2 << 20, [16, 16]));
        assert_eq!(confined.ask(7, 100_000, 1.0), Ok(()), "nothing lies outside of all colours");
    }

    #[test]
    fn a_scan_is_told_from_a_walk_by_chance() {
        let of = |touched: &[(u64, u16)]| scanned(&look(touched).sampled);
        assert_eq!(of(&[(1, 50), (2, 60), (3, 40)]), Some(0.0));
        assert_eq!(of(&[(1, 128), (2, 0), (3, 0)]), Some(1.0));
        assert_eq!(of(&[(1, 128), (2, 64), (3, 64)]), Some(0.5));
        assert_eq!(of(&[(1, 9), (2, 9)]), None, "too few");
        assert_eq!(of(&[(1, 127), (2, 126)]), None, "all of it");
        // What was touched late alone tells where a scan went on, not what it is.
        let mut late = look(&[(1, 70), (2, 128)]);
        late.sampled[1].late = (0..128).collect();
        assert_eq!(scanned(&late.sampled), Some(0.0));
    }

    #[test]
    fn sampled_misses_are_rates() {
        let miss = |page| Miss { page: Vpn(page), victim: None };
        let found = sampled(&[miss(7 * PAGES), miss(7 * PAGES + 5), miss(9 * PAGES)], 0.5);
        assert_eq!((found[&7], found[&9], found.len()), (512.0, 256.0, 2));
    }

    #[test]
    fn a_broken_one_waits() {
        let mut confined = confined(CacheLevel::L2);
        confined.note_look(&look(&[]), &[(7, 1e5), (8, 1e5)], 1.0);
        confined.broken(7, 10.0);
        assert_eq!(confined.ask(7, 100_000, 11.9), Err(NotBuilt::Recoloured));
        assert_eq!(confined.ask(7, 100_000, 12.1), Ok(()));
        confined.broken(7, 12.1);
        assert_eq!(confined.ask(7, 100_000, 16.0), Err(NotBuilt::Recoloured));
        assert_eq!(confined.ask(7, 100_000, 16.2), Ok(()));
        assert_eq!(confined.ask(8, 100_000, 10.0), Ok(()));
    }

    #[test]
    fn who_has_no_agent_gets_none() {
        let block = Block { resident: 512, zero: 0, huge: false };
        let (built, took) = confined(CacheLevel::L2).build(7, block);
        assert_eq!((built, took), (Err(NotBuilt::Unconfined), Took::default()));
    }
}
