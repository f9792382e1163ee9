//! What is sensed in a partition, for [`Tradeoff`]: misses a second by block over the last looks, and whether touches
//! are a scan's. A look sees single moments; what it sees counts among those before it. No time but what is
//! told. Memory: an entry for each block that was ever looked at.

use std::collections::HashMap;
use std::time::Duration;

use huepage_color::{NumberHash, PAGE_BYTES, Vpn};

use super::{Benefit, CombinedSettings, Costs, Expected, LINES_PER_PAGE, Tradeoff, Withheld};

/// Parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateSettings {
    /// CPU time of the process that a range waits after its first superpage was broken: as long as some audits, in
    /// which its pages are brought back.
    pub hold: Duration,
    /// What a look counts among those before it: one alone sees few misses of a block, or by chance none.
    pub newest: f64,
    /// Touched share of a group of neighbouring pages from which it is full; with less than the rest of
    /// it, it is empty.
    pub scanned: f64,
    /// Pages touched in each half of a look that tell anything of a scan, at least: some groups.
    pub fewest: u64,
    /// Bytes a second that no scan touches, as it would have to be faster than memory and the last level.
    pub too_fast: f64,
}

impl GateSettings {
    /// The usual ones.
    pub const USUAL: GateSettings = GateSettings {
        hold: Duration::from_secs(2),
        newest: 0.5,
        scanned: 0.9,
        fewest: 64,
        too_fast: 40e9,
    };
}

/// A group of neighbouring pages that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TouchedGroup {
    /// The first base page of the superpage that it would be of.
    pub at: Vpn,
    /// Pages in memory, of that superpage's.
    pub resident: u64,
    /// Pages of these that were looked at.
    pub pages: u64,
    /// Of these, those touched in the first half of the look.
    pub early: u64,
    /// Those touched in its second half only.
    pub late: u64,
}

impl TouchedGroup {
    fn share(&self, touched: u64) -> f64 {
        touched as f64 / self.pages.max(1) as f64
    }
}

/// The gate with what it goes by.
#[derive(Clone, Debug)]
pub struct SuperpageGate {
    tradeoff: Tradeoff,
    settings: GateSettings,
    /// Cache lines for each TLB miss; none while looks have not told.
    lines: Option<f64>,
    /// Misses a second, over the last looks.
    misses: HashMap<Vpn, f64, NumberHash>,
}

impl SuperpageGate {
    /// Nothing was seen yet.
    pub fn new(costs: Costs, settings: GateSettings) -> SuperpageGate {
        let tradeoff =
            Tradeoff::new(CombinedSettings::in_partition(costs, nanoseconds(settings.hold)));
        SuperpageGate { tradeoff, settings, lines: None, misses: HashMap::default() }
    }

    /// The partition has other colours, in which superpages cost so much.
    pub const fn reprice(&mut self, costs: Costs) {
        self.tradeoff.reprice(costs);
    }

    /// What a look saw, and the misses a second that were made of it. Its first half took so long; none
    /// where it has no halves: then nobody can tell a scan, and chance is assumed.
    pub fn looked(
        &mut self,
        groups: &[TouchedGroup],
        rates: &[(Vpn, f64)],
        half: Option<Duration>,
    ) {
        let newest = self.settings.newest;
        if let Some(scanned) = half.map_or(Some(0.0), |half| self.scanned(groups, half)) {
            let lines = (LINES_PER_PAGE - 1.0).mul_add(scanned, 1.0);
            let smooth = |old: f64| (lines - old).mul_add(newest, old);
            self.lines = Some(self.lines.map_or(lines, smooth));
        }
        let mut known: HashMap<Vpn, f64, NumberHash> = rates.iter().copied().collect();
        groups.iter().for_each(|group| _ = known.entry(group.at).or_insert(0.0));
        for (at, rate) in known {
            let smooth = self.misses.entry(at).or_insert(rate);
            *smooth = (rate - *smooth).mul_add(newest, *smooth);
        }
    }

    /// Whether a superpage may be built in a process of so many pages that has run for so long.
    ///
    /// # Errors
    /// Why not.
    pub fn ask(
        &self,
        page: Vpn,
        order: u32,
        resident: u64,
        ran: Duration,
    ) -> Result<Option<Benefit>, Withheld> {
        let resident_bytes = resident.saturating_mul(PAGE_BYTES);
        // What is not known of a scan is not known of the misses.
        let misses = self.lines.and_then(|_| self.misses.get(&page).copied());
        let expected = Expected { misses, lines: self.lines.unwrap_or(1.0), resident_bytes };
        self.tradeoff.ask(page, order, Some(&expected), nanoseconds(ran))
    }

    /// A superpage is none any more: its pages go back into the partition, and stay there for a while.
    pub fn broken(&mut self, page: Vpn, order: u32, ran: Duration) {
        self.tradeoff.broken(page, order, nanoseconds(ran));
    }

    /// The share of the touched pages that was touched by a scan: it fills a group in the first half of a look, and
    /// another, that was empty, in the second. A walk by chance does not do both, however many pages
    /// it touches: what it fills in a half, it has begun in the other, unless it did not run then. Where
    /// the first half left nothing to the second, only what was too fast for a scan tells. None where nothing
    /// does.
    fn scanned(&self, groups: &[TouchedGroup], half: Duration) -> Option<f64> {
        let GateSettings { scanned, fewest, .. } = self.settings;
        let early = |group: &TouchedGroup| (group.early, group.share(group.early) >= scanned);
        let late = |group: &TouchedGroup| {
            let full = group.share(group.early + group.late) >= scanned;
            (group.late, full && group.share(group.early) <= 1.0 - scanned)
        };
        let first = part(groups, fewest, early)?;
        match part(groups, fewest, late) {
            Some(second) => Some(first.min(second)),
            None => self.is_too_fast(groups, half).then_some(0.0),
        }
    }

    /// Whether more was touched in the first half of a look than a scan can touch.
    fn is_too_fast(&self, groups: &[TouchedGroup], half: Duration) -> bool {
        let pages = groups.iter().map(|group| group.share(group.early) * group.resident as f64);
        let bytes = pages.sum::<f64>() * PAGE_BYTES as f64;
        bytes > self.settings.too_fast * half.as_secs_f64()
    }
}

/// The share of touched pages that are in groups of a kind; none of fewer than so many.
fn part(
    groups: &[TouchedGroup],
    fewest: u64,
    of: impl Fn(&TouchedGroup) -> (u64, bool),
) -> Option<f64> {
    let all: u64 = groups.iter().map(|group| of(group).0).sum();
    let such: u64 = groups.iter().map(&of).filter(|one| one.1).map(|one| one.0).sum();
    (all >= fewest.max(1)).then(|| such as f64 / all as f64)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use huepage_color::CacheLevel;

    use super::*;

    const ORDER: u32 = 9;
    const HALF: Duration = Duration::from_millis(2);

    fn gate() -> SuperpageGate {
        SuperpageGate::new(costs(8), GateSettings::USUAL)
    }

    fn costs(colors: u16) -> Costs {
        Costs::new(30.0, CacheLevel::L2, 2 << 20, [colors, 16])
    }

    fn block(at: u64) -> Vpn {
        Vpn(at * 512)
    }

    /// Groups of 128 pages, of which so many were touched in the first half, and so many more.
    fn groups(touched: &[(u64, u64, u64)]) -> Vec<TouchedGroup> {
        let group = |&(at, early, late)| TouchedGroup {
            at: block(at),
            resident: 512,
            pages: 128,
            early,
            late,
        };
        touched.iter().map(group).collect()
    }

    fn ask(gate: &SuperpageGate, at: u64, resident: u64, seconds: f64) -> Result<(), Withheld> {
        gate.ask(block(at), ORDER, resident, Duration::from_secs_f64(seconds)).map(drop)
    }

    #[test]
    fn what_is_sensed_decides() {
        let mut gate = gate();
        assert_eq!(ask(&gate, 7, 100_000, 1.0), Err(Withheld::Unknown));
        gate.looked(&groups(&[(7, 40, 36), (8, 40, 36)]), &[(block(7), 1e5)], Some(HALF));
        assert_eq!(ask(&gate, 7, 100_000, 1.0), Ok(()));
        assert_eq!(ask(&gate, 8, 100_000, 1.0), Err(Withheld::Isolation), "saves nothing");
        gate.looked(&groups(&[(7, 40, 36), (8, 40, 36)]), &[], Some(HALF));
        assert_eq!(ask(&gate, 7, 100_000, 1.0), Ok(()), "none in one look is chance");
        gate.looked(&groups(&[(7, 0, 128), (8, 128, 0)]), &[(block(7), 1e5)], Some(HALF));
        assert_eq!(ask(&gate, 7, 100_000, 1.0), Err(Withheld::Isolation), "a scan");
        // 256 pages fill the partition's part of the cache, and no more.
        assert_eq!(ask(&gate, 7, 256, 1.0), Ok(()));
        assert_eq!(ask(&gate, 7, 257, 1.0), Err(Withheld::Isolation));
    }

    #[test]
    fn more_colours_make_superpages_cheaper() {
        let mut gate = gate();
        gate.looked(&groups(&[(7, 128, 0), (8, 0, 128)]), &[(block(7), 1e5)], Some(HALF));
        assert_eq!(ask(&gate, 7, 100_000, 1.0), Err(Withheld::Isolation), "a scan");
        gate.reprice(costs(16));
        assert_eq!(ask(&gate, 7, 100_000, 1.0), Ok(()), "nothing lies outside of all colours");
    }

    #[test]
    fn a_scan_is_told_from_a_walk_by_chance() {
        let of = |touched: &[(u64, u64, u64)]| gate().scanned(&groups(touched), HALF);
        assert_eq!(of(&[(1, 50, 30), (2, 60, 20), (3, 40, 30)]), Some(0.0));
        assert_eq!(of(&[(1, 128, 0), (2, 0, 128), (3, 0, 0)]), Some(1.0));
        assert_eq!(of(&[(1, 128, 0), (2, 64, 32), (3, 0, 96), (4, 0, 128)]), Some(0.5));
        assert_eq!(of(&[(1, 9, 9), (2, 9, 9)]), None, "too few");
        assert_eq!(of(&[(1, 128, 0), (2, 128, 0)]), None, "nothing is left for the second half");
    }

    #[test]
    fn a_walk_by_chance_that_fills_its_groups_is_none_of_a_scan() {
        let of = |touched: &[(u64, u64, u64)]| gate().scanned(&groups(touched), HALF);
        let rest = (9, 0, 0);
        assert_eq!(of(&[(1, 116, 11), (2, 112, 14), (3, 104, 21), (4, 108, 19), rest]), Some(0.0));
        assert_eq!(of(&[(1, 126, 2), (2, 127, 1), rest]), None, "none are left");
        let fast: Vec<(u64, u64, u64)> = (0..40).map(|at| (at, 127, 1)).collect();
        assert_eq!(of(&fast), Some(0.0), "80 MiB in 2 ms");
        assert_eq!(of(&[(1, 5, 120), (2, 30, 96), (3, 30, 96), rest]), Some(0.0), "it slept first");
    }

    #[test]
    fn a_broken_one_waits() {
        let mut gate = gate();
        gate.looked(&[], &[(block(7), 1e5), (block(8), 1e5)], None);
        let broken = |gate: &mut SuperpageGate, seconds| {
            gate.broken(block(7), ORDER, Duration::from_secs_f64(seconds));
        };
        broken(&mut gate, 10.0);
        assert_eq!(ask(&gate, 7, 100_000, 11.9), Err(Withheld::Recoloured));
        assert_eq!(ask(&gate, 7, 100_000, 12.1), Ok(()));
        broken(&mut gate, 12.1);
        assert_eq!(ask(&gate, 7, 100_000, 16.0), Err(Withheld::Recoloured));
        assert_eq!(ask(&gate, 7, 100_000, 16.2), Ok(()));
        assert_eq!(ask(&gate, 8, 100_000, 10.0), Ok(()));
    }
}
