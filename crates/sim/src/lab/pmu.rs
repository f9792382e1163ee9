//! The PMU of an emulated machine: counts of each process, and loads that the emulator sampled with who answered
//! them, as a file that the guest maps (see [`huepage_model::pmu_file`]). It tells what a processor's own would: nothing
//! of whose lines were evicted or which frames pages have.
//!
//! Which process a processor runs the guest's kernel says, digit by digit, as it does whose turn it is. Only accesses
//! to addresses of programs count, also those that the kernel makes for one.

use std::io;

use huepage_model::lab::{DIGIT_BITS, DIGITS};
use huepage_model::pmu_file::{
    CHANGES_AT, LEVELS, MAGIC, PROCESSES, ProcessRow, SAMPLES, SampleRow, WRITTEN_AT, process_at,
    sample_at,
};

use super::DEPTHS;
use crate::machine::Machine;
use crate::system::stalls;

/// `perf_mem_data_src` of a load that was answered: the operation, and that `mem_lvl_num` is said.
const LOAD: u64 = 0x02;
/// Where the number of a level begins in it.
const LEVEL_AT: u32 = 33;
/// Main memory, in place of a level.
const RAM: u64 = 0xd;
/// Processors that words can tell apart.
const CPUS: usize = 256;

/// What was counted of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    pid: u64,
    instructions: u64,
    accesses: u64,
    /// Lines by the depth at which they were found.
    found: [u64; DEPTHS],
    /// Cycles that pages took beyond the nearest TLB.
    translated: u64,
    /// When it was given a processor last.
    turn: u64,
}

/// What a processor runs.
#[derive(Clone, Copy, Debug, Default)]
struct Running {
    /// The process, by its place among those counted.
    place: Option<usize>,
    digits: [u8; DIGITS],
    /// The address of its next access, if that is sampled.
    sampled: Option<u64>,
}

/// See the module's head.
#[derive(Clone, Debug)]
pub struct LabPmu {
    processes: Vec<Counts>,
    running: Vec<Running>,
    turns: u64,
    /// Cycles by the depth that answers: beyond the nearest cache's, and all.
    stalls: Vec<u64>,
    nearest: u64,
    /// The numbers of the levels on the way to memory.
    levels: Vec<u8>,
    /// Samples that were not written yet, and the number of the first.
    fresh: Vec<SampleRow>,
    first: u64,
    /// What the file says of how often it was written, times two.
    changes: u64,
}

impl LabPmu {
    /// Of a machine.
    pub fn new(machine: &Machine) -> LabPmu {
        let path = machine.data_path();
        LabPmu {
            processes: Vec::new(),
            running: vec![Running::default(); CPUS],
            turns: 0,
            stalls: stalls(machine, &path),
            nearest: path.first().map_or(0, |&at| machine.cache[at].latency),
            levels: path.iter().map(|&at| machine.cache[at].level).collect(),
            fresh: Vec::new(),
            first: 0,
            changes: 0,
        }
    }

    /// The guest says a digit of the process that a processor runs next; the highest comes last.
    pub(super) fn digit(&mut self, cpu: usize, place: u64) {
        let value = place & ((1 << DIGIT_BITS) - 1);
        let Ok(digit) = usize::try_from(place >> DIGIT_BITS) else { return };
        let running = &mut self.running[cpu];
        let Some(own) = running.digits.get_mut(digit) else { return };
        *own = value.to_le_bytes()[0];
        if digit + 1 == DIGITS {
            let digits = running.digits.iter().rev();
            let pid = digits.fold(0, |pid, digit| pid << DIGIT_BITS | u64::from(*digit));
            self.running[cpu].place = self.place_of(pid);
        }
    }

    /// The place of a process; where there are too many, one that has not run for long loses its own.
    fn place_of(&mut self, pid: u64) -> Option<usize> {
        if pid == 0 {
            return None;
        }
        self.turns += 1;
        let known = self.processes.iter().position(|counts| counts.pid == pid);
        let place = known.unwrap_or_else(|| self.new_place(pid));
        self.processes[place].turn = self.turns;
        Some(place)
    }

    fn new_place(&mut self, pid: u64) -> usize {
        let fresh = Counts { pid, ..Counts::default() };
        if self.processes.len() < PROCESSES {
            self.processes.push(fresh);
            return self.processes.len() - 1;
        }
        let all = self.processes.iter().enumerate();
        let oldest = all.min_by_key(|(_, counts)| counts.turn).map_or(0, |(at, _)| at);
        for running in self.running.iter_mut().filter(|running| running.place == Some(oldest)) {
            running.place = None;
        }
        self.processes[oldest] = fresh;
        oldest
    }

    fn counts(&mut self, cpu: usize) -> Option<&mut Counts> {
        self.processes.get_mut(self.running[cpu].place?)
    }

    /// A processor's next access by a program is sampled.
    pub(super) fn sample_next(&mut self, cpu: usize, address: u64) {
        self.running[cpu].sampled = Some(address);
    }

    /// A program executed so many instructions.
    pub(super) fn executed(&mut self, cpu: usize, instructions: u64) {
        self.counts(cpu).into_iter().for_each(|counts| counts.instructions += instructions);
    }

    /// A program accessed memory.
    #[inline]
    pub(super) fn accessed(&mut self, cpu: usize) {
        self.counts(cpu).into_iter().for_each(|counts| counts.accesses += 1);
    }

    /// A line of an access was found so deep.
    #[inline]
    pub(super) fn answered(&mut self, cpu: usize, depth: usize) {
        let sampled = self.running[cpu].sampled.take();
        let Some(counts) = self.counts(cpu) else { return };
        counts.found[depth.min(DEPTHS - 1)] += 1;
        let Some(address) = sampled else { return };
        let (pid, level) =
            (counts.pid, self.levels.get(depth).map_or(RAM, |level| (*level).into()));
        let cycles = self.nearest + self.stalls.get(depth).copied().unwrap_or(0);
        self.fresh.push(SampleRow { pid, address, cycles, source: LOAD | level << LEVEL_AT });
        if self.fresh.len() >= 2 * SAMPLES {
            // Nobody asks: what does not fit into the ring any more is not kept.
            self.first += SAMPLES as u64;
            self.fresh.drain(..SAMPLES);
        }
    }

    /// A page took so many cycles beyond the nearest TLB.
    pub(super) fn waited(&mut self, cpu: usize, cycles: u64) {
        self.counts(cpu).into_iter().for_each(|counts| counts.translated += cycles);
    }

    fn row(&self, counts: &Counts) -> ProcessRow {
        let Counts { pid, instructions, accesses, ref found, translated, .. } = *counts;
        let mut row = ProcessRow {
            pid,
            instructions,
            cycles: instructions + translated,
            accesses,
            ..ProcessRow::default()
        };
        for (lines, stall) in found.iter().zip(&self.stalls) {
            row.cycles += lines * stall;
        }
        for (depth, &level) in self.levels.iter().enumerate() {
            let place = usize::from(level).checked_sub(1).filter(|place| *place < LEVELS);
            if let Some(place) = place {
                row.levels[place] = [found[depth..].iter().sum(), found[depth + 1..].iter().sum()];
            }
        }
        row
    }

    /// Brings the file up to date by what was seen since. `write` puts words at a place of it.
    ///
    /// # Errors
    /// What `write` answers.
    pub fn write(
        &mut self,
        mut write: impl FnMut(usize, &[u64]) -> io::Result<()>,
    ) -> io::Result<()> {
        self.changes += 2;
        write(CHANGES_AT, &[self.changes - 1])?;
        for (at, counts) in self.processes.iter().enumerate() {
            write(process_at(at), &self.row(counts).words())?;
        }
        for (number, sample) in (self.first..).zip(&self.fresh) {
            write(sample_at(number), &sample.words())?;
        }
        self.first += self.fresh.len() as u64;
        self.fresh.clear();
        write(WRITTEN_AT, &[self.first])?;
        write(0, &[MAGIC, self.changes])
    }
}
