//! The caches under an emulated machine: takes every access of a real kernel and of real programs by
//! its physical address, in the order in which the emulator made them, runs it through the simulator's
//! caches, and counts whose it was, where it was found, and whose lines left the last level for it.
//!
//! Whose access it is: the guest stores the number of the program that a processor runs next into a page
//! of its own, and that store passes by here like any other (see [`huepage_model::lab`]). Where the guest has a PMU,
//! [`pmu`] is what that sees. Where the emulator tells pages, [`tlbs`] translate them.

pub mod pmu;
pub mod tlbs;

use huepage_model::hint;
pub use huepage_model::lab::LabWord;
use huepage_model::lab::{DIGITS_AT, LabMark, OWNER_STRIDE, OWNERS};
use serde::Serialize;

use crate::cache::{CacheCounts, Hierarchy, Path};
use crate::machine::Machine;
use crate::record::{AccessKind, Record};
use crate::system::{caches, stalls};
use pmu::LabPmu;
use tlbs::{LabTlbs, TlbRow, TlbWork};

/// Whose accesses there are: those of programs, and last those to addresses of the kernel.
pub const CLASSES: usize = OWNERS + 1;
/// The class of the kernel.
pub const KERNEL: usize = OWNERS;
/// Caches on the way to memory, at most, and memory.
const DEPTHS: usize = 9;
/// Words ahead of an access whose sets are fetched.
const AHEAD: usize = 12;
const PAGE: u64 = 4096;
/// The class of lines that nobody has asked the last level for.
const NOBODY: u8 = u8::MAX;

/// What is wrong with a machine for this purpose.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnfitMachine(String);

/// What a class of accesses did while it was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassCounts {
    /// Accesses; one that touches two lines counts once.
    pub accesses: u64,
    /// At each level on the way to memory: lines asked for, and those not found.
    pub levels: Vec<LevelCounts>,
    /// Where pages are told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<TlbWork>,
    /// Where there is a PMU and the class is a program's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkCounts>,
}

/// What a program did by a PMU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkCounts {
    /// Instructions in user mode.
    pub instructions: u64,
    /// Cycles: one for each, and what the machine's description says that lines take beyond the nearest cache, and
    /// pages beyond the nearest TLB.
    pub cycles: u64,
}

/// Requests of a class at one level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LevelCounts {
    /// Lines asked for.
    pub requests: u64,
    /// Of these, those not found.
    pub misses: u64,
}

/// What words asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabRequests {
    /// The last mark has come.
    pub ended: bool,
    /// How often a guest wants to know what its PMU has seen, and waits.
    pub asked: usize,
}

/// The caches of a machine, fed by an emulator.
#[derive(Debug)]
pub struct EmulatedCaches {
    hierarchy: Hierarchy,
    /// For each cache of the hierarchy, its place in the description.
    specs: Vec<usize>,
    /// The way of data of each core.
    ways: Vec<CoreWay>,
    line_bits: u32,
    last_bits: u32,
    /// Who asked the last level for a line last, by line.
    owners: Vec<u8>,
    turns: Turns,
    pmu: Option<Box<LabPmu>>,
    tlbs: Option<Box<LabTlbs>>,
    /// Cycles beyond the nearest cache's, by the depth that answers.
    stalls: Vec<u64>,
    counted: bool,
    accesses: [u64; CLASSES],
    instructions: [u64; CLASSES],
    /// Lines by class and by the depth at which they were found.
    found: [[u64; DEPTHS]; CLASSES],
    /// Lines of the first class that left the last level as the second one asked for others.
    evictions: Box<[[u64; CLASSES]; CLASSES]>,
    /// Accesses since the first mark, counted or not.
    pub seen: u64,
    /// Accesses by processors that the machine does not have, which were left out.
    pub beyond: u64,
}

/// A core's way to memory and the cache at its end.
#[derive(Clone, Debug)]
struct CoreWay {
    path: Path,
    last: usize,
    /// The way of its page-table walker.
    walk: Path,
}

/// Fails where a nearest cache cannot be asked by physical addresses.
fn check_physical(hierarchy: &Hierarchy, ways: &[CoreWay]) -> Result<(), UnfitMachine> {
    if ways.iter().all(|way| !hierarchy.is_virtual(&way.path)) {
        return Ok(());
    }
    let what = "the nearest cache is indexed by virtual addresses; give `index_by = \"physical\"`";
    Err(UnfitMachine(what.into()))
}

/// Whose turn it is on each processor.
#[derive(Clone, Debug, Default)]
struct Turns {
    /// The page that the guest writes to.
    page: Option<u64>,
    /// A processor whose next access by a program is to that page.
    awaited: Option<usize>,
    owner: Vec<u8>,
}

impl Turns {
    /// Learns from an access.
    #[inline(always)]
    fn note(&mut self, word: LabWord, pmu: Option<&mut LabPmu>) {
        if word.is_kernel() {
            let at = word.address();
            if self.page == Some(at & !(PAGE - 1)) && word.is_store() {
                match (at % PAGE).checked_sub(DIGITS_AT) {
                    None => {
                        let owner = at % PAGE / OWNER_STRIDE;
                        self.owner[word.cpu()] = owner.min(OWNERS as u64 - 1).to_le_bytes()[0];
                    }
                    Some(place) => {
                        pmu.into_iter().for_each(|pmu| pmu.digit(word.cpu(), place / 8));
                    }
                }
            }
        } else if self.awaited == Some(word.cpu()) {
            self.awaited = None;
            self.page = Some(word.address() & !(PAGE - 1));
        }
    }
}

impl EmulatedCaches {
    /// Empty caches of a machine with at least `cpus` cores.
    ///
    /// # Errors
    /// When the machine cannot be asked by physical addresses alone, or has fewer cores.
    pub fn new(machine: &Machine, cpus: usize) -> Result<EmulatedCaches, UnfitMachine> {
        if machine.cores < cpus {
            let cores = machine.cores;
            return Err(UnfitMachine(format!(
                "the machine has {cores} cores; give `--cpus {cores}`"
            )));
        }
        let data = machine.data_path();
        let (mut hierarchy, specs, paths) = caches(machine, machine.memory.0, &data, &data);
        hierarchy.log_departures(true);
        let ways: Vec<CoreWay> = paths
            .into_iter()
            .map(|[path, _, walk]| CoreWay { last: hierarchy.end_of(&path), path, walk })
            .collect();
        check_physical(&hierarchy, &ways)?;
        let bits = |at: usize| hierarchy.caches()[at].line_bits();
        Ok(EmulatedCaches {
            line_bits: bits(ways[0].path.first()),
            last_bits: bits(ways[0].last),
            hierarchy,
            specs,
            ways,
            owners: Vec::new(),
            turns: Turns { owner: vec![0; 256], ..Turns::default() },
            pmu: None,
            tlbs: None,
            stalls: stalls(machine, &data),
            counted: false,
            accesses: [0; CLASSES],
            instructions: [0; CLASSES],
            found: [[0; DEPTHS]; CLASSES],
            evictions: Box::new([[0; CLASSES]; CLASSES]),
            seen: 0,
            beyond: 0,
        })
    }

    /// Takes words in their order; what those ask for that the caches do not do.
    pub fn run(&mut self, words: &[LabWord]) -> LabRequests {
        let mut heard = LabRequests::default();
        for (at, &word) in words.iter().enumerate() {
            if let Some(ahead) = words.get(at + AHEAD) {
                self.expect(*ahead);
            }
            match word.as_mark() {
                None => self.access(word),
                Some(mark) => self.mark(word, mark, &mut heard),
            }
        }
        heard
    }

    fn mark(&mut self, word: LabWord, mark: LabMark, heard: &mut LabRequests) {
        let cpu = word.cpu();
        match mark {
            LabMark::Start => {}
            LabMark::Ask => heard.asked += 1,
            LabMark::TurnPage => self.turns.awaited = Some(cpu),
            LabMark::Begin => self.counted = true,
            LabMark::End => {
                self.counted = false;
                heard.ended = true;
            }
            LabMark::Sampled => {
                self.pmu.iter_mut().for_each(|pmu| pmu.sample_next(cpu, word.number()));
            }
            LabMark::Instructions => {
                let class = usize::from(self.turns.owner[cpu]);
                self.instructions[class] += word.number() * u64::from(self.counted);
                self.pmu.iter_mut().for_each(|pmu| pmu.executed(cpu, word.number()));
            }
            LabMark::Root | LabMark::Page | LabMark::Gone => {
                self.tlbs.iter_mut().for_each(|tlbs| tlbs.told(cpu, mark, word.number()));
            }
        }
    }

    /// The guest has a PMU.
    pub fn with_pmu(&mut self, machine: &Machine) {
        self.pmu = Some(Box::new(LabPmu::new(machine)));
    }

    /// The emulator tells pages, for the TLBs of the machine; whether that has any for data.
    pub fn with_tlbs(&mut self, machine: &Machine) -> bool {
        self.tlbs = LabTlbs::new(machine).map(Box::new);
        self.tlbs.is_some()
    }

    /// What its PMU has seen, if it has one.
    pub fn pmu(&mut self) -> Option<&mut LabPmu> {
        self.pmu.as_deref_mut()
    }

    /// Has what an access will need at hand by then.
    #[inline(always)]
    fn expect(&self, word: LabWord) {
        let Some(way) = self.ways.get(word.cpu()) else { return };
        let last = &self.hierarchy.caches()[way.last];
        last.contents().fetch_ahead(last.set_of(word.address()));
        if let Some(owner) = self.owners.get(place(word.address(), self.last_bits)) {
            hint::fetch(owner);
        }
    }

    fn access(&mut self, word: LabWord) {
        self.turns.note(word, self.pmu.as_deref_mut());
        self.seen += 1;
        if word.cpu() >= self.ways.len() {
            self.beyond += 1;
            return;
        }
        let owner = self.turns.owner[word.cpu()];
        let class = if word.is_kernel() { KERNEL } else { usize::from(owner) };
        self.accesses[class] += u64::from(self.counted);
        if class != KERNEL
            && let Some(pmu) = &mut self.pmu
        {
            pmu.accessed(word.cpu());
        }
        let (first, last) = (word.address(), word.address() + word.bytes() - 1);
        self.touch(word, class, first);
        // What goes on in the next page is somewhere else, and seldom: it is left out.
        if (first ^ last) >> self.line_bits != 0 && first / PAGE == last / PAGE {
            self.touch(word, class, last);
        }
    }

    fn touch(&mut self, word: LabWord, class: usize, address: u64) {
        self.translate(word.cpu(), class, address);
        let way = &self.ways[word.cpu()];
        let kind = if word.is_store() { AccessKind::Store } else { AccessKind::Load };
        let depth = self.hierarchy.access(&way.path, address, kind);
        self.found[class][depth.min(DEPTHS - 1)] += u64::from(self.counted);
        if class != KERNEL
            && let Some(pmu) = &mut self.pmu
        {
            pmu.answered(word.cpu(), depth);
        }
        if depth + 1 >= way.path.levels() {
            self.note_owner(class, address);
        }
        if !self.hierarchy.departures().is_empty() {
            self.note_departures(class, Some(address >> self.last_bits));
        }
    }

    /// Looks the page up where pages are told. What walkers evict leaves for who has them walk.
    #[inline(always)]
    fn translate(&mut self, cpu: usize, class: usize, address: u64) {
        let Some(tlbs) = &mut self.tlbs else { return };
        let walk = &self.ways[cpu].walk;
        let who = (cpu, class, self.counted);
        let cycles = tlbs.look_up(who, address, &mut self.hierarchy, walk);
        if cycles > 0 {
            self.after_walk(cpu, class, cycles);
        }
    }

    #[cold]
    fn after_walk(&mut self, cpu: usize, class: usize, cycles: u64) {
        if class != KERNEL
            && let Some(pmu) = &mut self.pmu
        {
            pmu.waited(cpu, cycles);
        }
        if !self.hierarchy.departures().is_empty() {
            self.note_departures(class, None);
        }
    }

    fn note_owner(&mut self, class: usize, address: u64) {
        let line = place(address, self.last_bits);
        if line >= self.owners.len() {
            self.owners.resize((line + 1).next_power_of_two(), NOBODY);
        }
        self.owners[line] = class.to_le_bytes()[0];
    }

    /// Counts lines that left the last level, by who had asked for them last, for an access by a class to a line. What a
    /// cache above hands down for that is not the accessor's: its place is taken by who had asked for it.
    fn note_departures(&mut self, class: usize, asked: Option<u64>) {
        for departure in self.hierarchy.departures() {
            let newcomer = Some(departure.newcomer >> self.last_bits);
            let handed_down = asked.is_some() && newcomer != asked;
            let by = self.owner(departure.newcomer).filter(|_| handed_down).unwrap_or(class);
            let owner = self.owner(departure.line).unwrap_or(0);
            self.evictions[owner][by] += u64::from(self.counted);
        }
        self.hierarchy.forget_departures();
    }

    /// Who asked the last level for a line last.
    fn owner(&self, address: u64) -> Option<usize> {
        let owner = self.owners.get(place(address, self.last_bits))?;
        (*owner != NOBODY).then_some(usize::from(*owner))
    }

    /// What a class did while it was counted.
    pub fn class(&self, class: usize) -> ClassCounts {
        let found = &self.found[class];
        let level = |depth: usize| LevelCounts {
            requests: found[depth..].iter().sum(),
            misses: found[depth + 1..].iter().sum(),
        };
        let levels = (0..self.ways[0].path.levels()).map(level).collect();
        let work = self.pmu.is_some() && class != KERNEL;
        let work = work.then(|| self.work(class));
        let tlb = self.tlbs.as_ref().map(|tlbs| tlbs.work(class));
        ClassCounts { accesses: self.accesses[class], levels, tlb, work }
    }

    fn work(&self, class: usize) -> WorkCounts {
        let instructions = self.instructions[class];
        let waits = self.found[class].iter().zip(&self.stalls).map(|(lines, stall)| lines * stall);
        let translated = self.tlbs.as_ref().map_or(0, |tlbs| tlbs.work(class).cycles);
        WorkCounts { instructions, cycles: instructions + waits.sum::<u64>() + translated }
    }

    /// Lines that `owner` had asked the last level for, and that left it as `by` asked for others.
    pub fn evicted(&self, owner: usize, by: usize) -> u64 {
        self.evictions[owner][by]
    }

    /// Each cache of the machine's description with its counts since the first mark, summed over its
    /// copies; those for instructions have none.
    pub fn totals(&self, machine: &Machine) -> Vec<(String, CacheCounts)> {
        let parts = machine.cache.iter().map(|spec| (spec.part(), CacheCounts::default()));
        let mut sums: Vec<_> = parts.collect();
        for (cache, &spec) in self.hierarchy.caches().iter().zip(&self.specs) {
            sums[spec].1.add(&cache.counts);
        }
        sums
    }
}

impl EmulatedCaches {
    /// Each TLB of the machine's description with its counts since the first mark, summed over its copies; nothing
    /// where pages are not told.
    pub fn tlb_totals(&self) -> Vec<TlbRow> {
        self.tlbs.as_ref().map_or_else(Vec::new, |tlbs| tlbs.totals())
    }
}

/// An access as a record of a trace of physical addresses: the processor is the thread, and what goes on
/// in the next page is left out, as [`EmulatedCaches`] does. None of a mark.
pub fn physical_record(word: LabWord) -> Option<Record> {
    if word.as_mark().is_some() {
        return None;
    }
    let kind = if word.is_store() { AccessKind::Store } else { AccessKind::Load };
    let bytes = word.bytes().min(PAGE - word.address() % PAGE);
    let thread = u16::try_from(word.cpu()).unwrap_or(u16::MAX);
    let bytes = u8::try_from(bytes).unwrap_or(u8::MAX);
    Some(Record { thread, bytes, ..Record::plain(word.address(), kind) })
}

#[expect(clippy::cast_possible_truncation, reason = "words hold 44 bits of address")]
const fn place(address: u64, bits: u32) -> usize {
    (address >> bits) as usize
}
