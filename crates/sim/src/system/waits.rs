//! What waiting for caches and memory takes where a core does not stand still for all of it: programs
//! hide a part by going on, more of it where lines come in a row, and on a bus that all cores share
//! requests queue. Both are charged behind some accesses, for what these asked for: no way through the
//! caches depends on it, and a machine on which nobody asks for it does nothing here. Systems that do
//! what this one does (`twins`) are not charged, and [`System::last_level`] counts whole waits.

use serde::{Deserialize, Serialize};

use super::{RunError, System};
use crate::cost::{MAX_DEPTH, ProgramCosts};
use crate::record::Record;

/// What a program waits for of the time that a line takes, in percent; it hides the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemoryWait {
    /// Of a line that a cache beyond the nearest has.
    pub caches: u64,
    /// Of a line of its own memory that no cache has.
    pub memory: u64,
    /// Of a line of a file that no cache has, which the kernel copies in a row, so that prefetchers see it coming.
    pub files: u64,
}

impl Default for MemoryWait {
    /// All of it.
    fn default() -> MemoryWait {
        MemoryWait { caches: 100, memory: 100, files: 100 }
    }
}

/// Cycles after which what a core asked of the bus is half forgotten, about.
const LATELY: f64 = 100_000.0;

/// Lines of a core and the cycles in which it asked for them, lately.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    lines: f64,
    cycles: f64,
}

/// A bus, or banks of memory that are one each, and what each core asks of them.
#[derive(Clone, Debug)]
struct Bus {
    /// Cycles for a line.
    service: u64,
    /// How many there are, of which lines ask for any.
    banks: u64,
    traffic: Vec<Traffic>,
}

/// Whether waiting is charged, and the bus that all cores share.
#[derive(Clone, Debug, Default)]
pub(super) struct Waits {
    pub(super) charged: bool,
    bus: Option<Bus>,
}

impl Bus {
    fn note(&mut self, core: usize, lines: u64, cycles: u64) {
        let (lines, cycles) = (lines as f64, cycles as f64);
        let kept = LATELY / (LATELY + cycles);
        let own = &mut self.traffic[core];
        (own.lines, own.cycles) = (own.lines * kept + lines, own.cycles * kept + cycles);
    }

    /// Cycles that a line of a core waits behind those of the others: what a queue with random arrivals
    /// and one time of service takes (Pollaczek 1930, Khinchine 1932), but a line of each at most, as a
    /// core asks for its next when it has one.
    fn wait(&self, core: usize) -> f64 {
        let others = self.traffic.iter().enumerate().filter(|(other, _)| *other != core);
        let rate = |own: &Traffic| if own.cycles > 0.0 { own.lines / own.cycles } else { 0.0 };
        let service = self.service as f64;
        let all: f64 = others.map(|(_, own)| (rate(own) * service).min(1.0)).sum();
        let busy = all / self.banks as f64;
        let most = service * busy;
        if busy < 1.0 { most.min(most / (2.0 * (1.0 - busy))) } else { most }
    }

    /// Cycles by which lines of a core come later than the bus can bring them, where they are not asked for
    /// in more cycles than it takes.
    const fn late(&self, lines: u64, cycles: u64) -> u64 {
        (lines * self.service / self.banks).saturating_sub(cycles)
    }
}

/// A program's account before some accesses.
#[derive(Clone, Copy)]
struct Before {
    costs: ProgramCosts,
    of_files: u64,
}

impl System {
    /// Has all cores share a bus to memory that takes so many cycles for a line; a line waits for those
    /// of other cores.
    pub fn share_bus(&mut self, service: u64) {
        self.share_banks(1, service);
    }

    /// The same of memory with so many banks, each of which a line takes up for so many cycles; which one is
    /// left to chance.
    pub fn share_banks(&mut self, banks: u64, service: u64) {
        let (banks, traffic) = (banks.max(1), vec![Traffic::default(); self.cores.len()]);
        self.waits.bus = Some(Bus { service, banks, traffic });
        self.waits.charged = true;
    }

    /// Says what a program waits for of each line.
    ///
    /// # Errors
    /// When the space cannot be.
    pub fn wait_for(&mut self, space: u16, wait: MemoryWait) -> Result<(), RunError> {
        if usize::from(space) >= self.spaces.len() {
            self.make_room(space)?;
        }
        self.spaces[usize::from(space)].wait = wait;
        self.waits.charged = true;
        Ok(())
    }

    /// As [`Self::run`], where waiting for memory is charged behind.
    pub(super) fn run_waiting(&mut self, core: usize, records: &[Record]) -> Result<(), RunError> {
        for part in records.chunk_by(|one, next| one.space == next.space) {
            let space = part[0].space;
            let before = self.before(space);
            self.run_all(core, part)?;
            self.charge_waits(core, space, before);
        }
        Ok(())
    }

    fn before(&self, space: u16) -> Before {
        let state = self.spaces.get(usize::from(space));
        state.map_or(Before { costs: ProgramCosts::default(), of_files: 0 }, |state| Before {
            costs: state.costs,
            of_files: state.file_lines,
        })
    }

    /// Takes off what was hidden since then, and adds what the bus took longer for the rest.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "cycles of a batch"
    )]
    fn charge_waits(&mut self, core: usize, space: u16, before: Before) {
        let stall = self.stalls[0].last().copied().unwrap_or(0);
        let memory = (self.stalls[0].len() - 2).min(MAX_DEPTH - 1);
        let queue = self.waits.bus.as_ref().map_or(0.0, |bus| bus.wait(core));
        let Some(state) = self.spaces.get_mut(usize::from(space)) else { return };
        let (costs, wait) = (&mut state.costs, state.wait);
        let spent = costs.since(&before.costs);
        for (place, cycles) in costs.miss_cycles[..memory].iter_mut().zip(spent.miss_cycles) {
            *place -= cycles * (100 - wait.caches.min(100)) / 100;
        }
        let of_files = (state.file_lines - before.of_files).min(spent.memory);
        // Hundredths of lines.
        let waited = (spent.memory - of_files) * wait.memory + of_files * wait.files;
        let hidden = (100 * spent.memory).saturating_sub(waited) * stall / 100;
        let queued = (waited as f64 * queue / 100.0) as u64;
        for place in [&mut costs.miss_cycles[memory], &mut costs.beyond_second] {
            *place = (*place + queued).saturating_sub(hidden);
        }
        let cycles = costs.cycles() - before.costs.cycles();
        let late = self.waits.bus.as_ref().map_or(0, |bus| bus.late(spent.memory, cycles));
        costs.miss_cycles[memory] += late;
        costs.beyond_second += late;
        let cycles = cycles + late;
        self.waits.bus.iter_mut().for_each(|bus| bus.note(core, spent.memory, cycles));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_waits_for_those_of_other_cores_alone() {
        let mut bus = Bus { service: 20, banks: 1, traffic: vec![Traffic::default(); 3] };
        assert!(bus.wait(0) < 1e-9);
        // A line in 40 cycles: half busy, so that others wait for half of a line.
        (0..100).for_each(|_| bus.note(1, 100, 4000));
        assert!((bus.wait(0) - 10.0).abs() < 1e-6, "{}", bus.wait(0));
        assert!(bus.wait(1) < 1e-9);
        // More than it can carry: one line of each.
        bus.note(2, 1_000_000, 1_000_000);
        assert!((bus.wait(0) - 30.0).abs() < 1e-6, "{}", bus.wait(0));
        // And forgotten.
        (0..100).for_each(|_| bus.note(2, 0, 100_000));
        assert!((bus.wait(0) - 10.0).abs() < 1e-3, "{}", bus.wait(0));
        assert_eq!((bus.late(10, 150), bus.late(10, 200)), (50, 0));
    }

    #[test]
    fn a_line_waits_for_those_of_its_bank_alone() {
        let mut bus = Bus { service: 40, banks: 4, traffic: vec![Traffic::default(); 2] };
        // A line in 40 cycles, one in four of them for each bank: each is busy for a quarter of the time.
        (0..100).for_each(|_| bus.note(1, 100, 4000));
        assert!((bus.wait(0) - 40.0 * 0.25 / 1.5).abs() < 1e-6, "{}", bus.wait(0));
        assert_eq!((bus.late(10, 50), bus.late(10, 100)), (50, 0));
    }
}
