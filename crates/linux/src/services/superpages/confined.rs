//! Superpages of a process in a partition: the policy's [`SuperpageGate`] is told what is sensed, and the process's own agent is asked to build, as
//! nobody else may there. Which ranges are candidates is the policy's decision as everywhere.

use std::collections::HashMap;
use std::time::Duration;

use huepage_color::Vpn;
use huepage_policy::combined::{Costs, GateSettings, SuperpageGate, TouchedGroup};

use super::spare::Took;
use crate::engine::PromotionHandle;
use crate::kernel::process_memory::{NotBuilt, SUPERPAGE_BYTES, SUPERPAGE_ORDER, SUPERPAGE_PAGES};
use crate::sensors::superpage_map::{BlockResidency, SuperpageMap, holes};
use crate::sensors::tlb::replay::MISSES_PER_SAMPLE;
use crate::sensors::tlb::sensor::{Miss, SampledBlock, SensorLook};

/// The partition whose members superpages are built in.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Where they are asked for.
    pub handle: PromotionHandle,
    /// What misses and fills cost there.
    pub costs: Costs,
}

/// One process of it.
#[derive(Debug)]
pub(super) struct Confined {
    pid: i32,
    handle: PromotionHandle,
    gate: SuperpageGate,
    /// CPU seconds of the process at the last look.
    looked_at: f64,
}

impl Confined {
    pub fn new(partition: &Partition, pid: i32) -> Confined {
        let gate = SuperpageGate::new(partition.costs, GateSettings::USUAL);
        Confined { pid, handle: partition.handle.clone(), gate, looked_at: 0.0 }
    }

    /// The partition has other colours, in which superpages cost so much.
    pub fn reprice(&mut self, costs: Costs) {
        self.gate.reprice(costs);
    }

    /// What a look saw, and the misses a second that were made of it.
    pub fn note_look(&mut self, look: &SensorLook, rates: &[(u64, f64)], cpu_seconds: f64) {
        let groups: Vec<TouchedGroup> = look.sampled.iter().map(touched_group).collect();
        let sampled = sampled(&look.misses, cpu_seconds - self.looked_at);
        let rates = rates.iter().copied().chain(sampled);
        let rates: Vec<(Vpn, f64)> = rates.map(|(at, rate)| (first_page(at), rate)).collect();
        self.gate.looked(&groups, &rates, look.half);
        self.looked_at = cpu_seconds;
    }

    /// Whether a block may be built in a process of so many pages.
    pub fn ask(&self, at: u64, resident: u64, cpu_seconds: f64) -> Result<(), NotBuilt> {
        let ran = Duration::from_secs_f64(cpu_seconds);
        self.gate.ask(first_page(at), SUPERPAGE_ORDER, resident, ran)?;
        Ok(())
    }

    /// Has it built.
    pub fn build(&self, at: u64, block: BlockResidency) -> (Result<(), NotBuilt>, Took) {
        match self.handle.build(self.pid, at, holes(block) > 0) {
            Ok(time) => (Ok(()), Took { all: time, stall: time, wait: time }),
            Err(why) => (Err(why), Took::default()),
        }
    }

    /// A superpage is none any more: its pages go back into the partition, and stay there for a while.
    pub fn broken(&mut self, at: u64, cpu_seconds: f64) {
        let ran = Duration::from_secs_f64(cpu_seconds);
        self.gate.broken(first_page(at), SUPERPAGE_ORDER, ran);
        self.handle.give_up(self.pid, at);
    }

    /// Leaves out what is ours in the process.
    pub fn trim(&self, map: &mut SuperpageMap) {
        let own = self.handle.own(self.pid);
        let ours = |at: u64| {
            own.iter().any(|&(start, end)| {
                at * SUPERPAGE_BYTES < end && start < (at + 1) * SUPERPAGE_BYTES
            })
        };
        map.blocks.retain(|&at, _| !ours(at));
        map.resident_pages = map.blocks.values().map(|block| u64::from(block.resident)).sum();
    }
}

const fn first_page(at: u64) -> Vpn {
    Vpn(at * SUPERPAGE_PAGES)
}

fn touched_group(one: &SampledBlock) -> TouchedGroup {
    let [all, late] = [one.touched.len() as u64, one.late.len() as u64];
    TouchedGroup {
        at: first_page(one.block),
        resident: one.resident.into(),
        pages: one.pages.into(),
        early: all - late,
        late,
    }
}

/// Misses a second by block, of misses that were sampled as such in so many seconds.
fn sampled(misses: &[Miss], seconds: f64) -> HashMap<u64, f64> {
    let mut found = HashMap::new();
    for miss in misses {
        *found.entry(miss.page.0 / SUPERPAGE_PAGES).or_default() +=
            MISSES_PER_SAMPLE as f64 / seconds.max(1e-3);
    }
    found
}

#[cfg(test)]
mod tests {
    use huepage_color::CacheLevel;

    use super::*;

    fn confined(level: CacheLevel) -> Confined {
        let costs = Costs::new(30.0, level, 2 << 20, [8, 16]);
        Confined::new(&Partition { handle: PromotionHandle::default(), costs }, 1)
    }

    #[test]
    fn what_a_look_saw_is_told_by_its_halves() {
        let touched = (0..128).collect();
        let one = SampledBlock {
            block: 7,
            pages: 128,
            touched,
            late: vec![1, 2],
            resident: 256,
            ..SampledBlock::default()
        };
        let at = Vpn(7 * 512);
        let expected = TouchedGroup { at, resident: 256, pages: 128, early: 126, late: 2 };
        assert_eq!(touched_group(&one), expected);
        let (mut confined, look) =
            (confined(CacheLevel::L2), SensorLook { sampled: vec![one], ..SensorLook::default() });
        assert_eq!(confined.ask(7, 100, 1.0), Err(NotBuilt::Unknown));
        confined.note_look(&look, &[(7, 1e5)], 1.0);
        assert_eq!(confined.ask(7, 100, 1.0), Ok(()));
        confined.broken(7, 1.0);
        assert_eq!(confined.ask(7, 100, 1.1), Err(NotBuilt::Recoloured));
    }

    #[test]
    fn sampled_misses_are_rates() {
        let miss = |page| Miss { page: Vpn(page), victim: None };
        let found = sampled(
            &[miss(7 * SUPERPAGE_PAGES), miss(7 * SUPERPAGE_PAGES + 5), miss(9 * SUPERPAGE_PAGES)],
            0.5,
        );
        assert_eq!((found[&7], found[&9], found.len()), (512.0, 256.0, 2));
    }

    #[test]
    fn who_has_no_agent_gets_none() {
        let block = BlockResidency { resident: 512, zero: 0, huge: false };
        let (built, took) = confined(CacheLevel::L2).build(7, block);
        assert_eq!((built, took), (Err(NotBuilt::Unconfined), Took::default()));
    }
}
