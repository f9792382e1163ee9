//! The TLBs under an emulated machine: those of its description, asked for the page of each access by the rules of
//! the simulator. Which page an access is to, and how large that is, the emulator tells by the guest's page tables (see
//! [`huepage_model::translations`]), and also when a page is no longer where it was, which then leaves all TLBs.
//!
//! Entries are told apart by page table, so that nothing leaves at a switch; all tables have the pages of the kernel. A
//! page that is larger than all that TLBs take is entered as one that they do.

use std::collections::HashMap;

use huepage_color::{Pfn, Vpn};
use huepage_model::lab::{LabMark, LabPage};
use serde::Serialize;

use super::CLASSES;
use crate::cache::{Hierarchy, Path};
use crate::core_tlbs::{Further, ask_further, read_entries};
use crate::machine::{Machine, TlbSpec};
use crate::system::{MAX_SPACES, walk_stalls};
use crate::tlb::{Tlb, TlbCounts, TlbPage};
use crate::walk::{HashedTable, TableKind, TableWalk, Tables, WalkCache};

/// Base pages of the pages that tables have, log2, by level.
const ORDERS: [u32; 3] = [0, 9, 18];
/// TLBs on the way of data, at most.
const DEPTHS: usize = 8;
/// The space of the kernel's pages.
const KERNEL: u16 = 0;
const PAGE_BITS: u32 = 12;

/// A TLB and what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TlbRow {
    /// Which one.
    pub tlb: String,
    /// Look-ups and misses.
    #[serde(flatten)]
    pub counts: TlbCounts,
}

/// Look-ups of a class of accesses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TlbWork {
    /// The TLBs for data, the nearest first.
    pub tlbs: Vec<TlbRow>,
    /// Look-ups that found a page in none: walks, or calls of the handler that fills TLBs.
    pub walks: u64,
    /// Cycles that look-ups took beyond the nearest TLB's.
    pub cycles: u64,
    /// Accesses to pages of which no table was known, which are not looked up.
    pub unknown: u64,
}

/// The same, as it is counted.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    lookups: [u64; DEPTHS],
    missed: [u64; DEPTHS],
    walks: u64,
    cycles: u64,
    unknown: u64,
}

/// What a core has of its own.
#[derive(Clone, Debug)]
struct CoreTlbs {
    tlbs: Vec<Tlb>,
    walker: Option<WalkCache>,
    /// The space that its processor uses.
    space: u16,
    /// The page of the next access, if that was told.
    next: Option<LabPage>,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct LabTlbs {
    machine: Machine,
    /// The way of data.
    path: Vec<usize>,
    cores: Vec<CoreTlbs>,
    /// By the frame of the root of its table.
    spaces: HashMap<u64, u16>,
    /// The page of each frame: what was told and one more, or 0.
    pages: Vec<u64>,
    /// The first frame of pages that were told.
    frames: HashMap<TlbPage, u64>,
    /// Sizes that TLBs are asked for, by what the table has.
    orders: [u32; 3],
    walker: LabWalker,
    counts: Box<[Counts; CLASSES]>,
}

impl LabTlbs {
    /// Of a machine; none if it has no TLBs for data.
    pub fn new(machine: &Machine) -> Option<LabTlbs> {
        let path = machine.tlb_path(false);
        if path.is_empty() || path.len() > DEPTHS {
            return None;
        }
        let core = CoreTlbs {
            tlbs: machine.tlb.iter().map(TlbSpec::build).collect(),
            walker: machine.walk.as_ref().map(|spec| WalkCache::new(&spec.caches)),
            space: KERNEL,
            next: None,
        };
        let taken = |order: u32| path.iter().any(|&at| core.tlbs[at].takes(order));
        let cut = |order: u32| (0..=order).rev().find(|order| taken(*order)).unwrap_or(0);
        Some(LabTlbs {
            orders: ORDERS.map(cut),
            path,
            cores: vec![core; machine.cores],
            spaces: HashMap::new(),
            pages: Vec::new(),
            frames: HashMap::new(),
            walker: LabWalker::new(machine),
            counts: Box::new([Counts::default(); CLASSES]),
            machine: machine.clone(),
        })
    }

    /// The emulator says something of pages.
    pub fn told(&mut self, cpu: usize, what: LabMark, number: u64) {
        match what {
            LabMark::Root => self.switch(cpu, number),
            LabMark::Page => self.tell_page(cpu, LabPage(number)),
            LabMark::Gone => self.lose(cpu, LabPage(number)),
            _ => {}
        }
    }

    /// A processor translates by another table from now on.
    fn switch(&mut self, cpu: usize, root: u64) {
        if self.spaces.len() + 1 >= usize::from(MAX_SPACES) {
            let tlbs = self.cores.iter_mut().flat_map(|core| &mut core.tlbs);
            tlbs.for_each(|tlb| _ = tlb.flush());
            self.spaces.clear();
            self.frames.clear();
        }
        let next = u16::try_from(self.spaces.len() + 1).unwrap_or(KERNEL);
        let space = *self.spaces.entry(root).or_insert(next);
        self.cores.get_mut(cpu).into_iter().for_each(|core| core.space = space);
    }

    /// The next access of a processor is to this page.
    fn tell_page(&mut self, cpu: usize, page: LabPage) {
        self.cores.get_mut(cpu).into_iter().for_each(|core| core.next = Some(page));
    }

    /// A page of a processor's table has lost its frame.
    fn lose(&mut self, cpu: usize, page: LabPage) {
        let (Some(level), Some(core)) = (page.level(), self.cores.get(cpu)) else { return };
        let space = if page.is_kernel() { KERNEL } else { core.space };
        self.frames.remove(&TlbPage::of(space, number(page), ORDERS[level as usize]));
        let order = self.orders[level as usize];
        let parts = 1_u64 << (ORDERS[level as usize] - order);
        for part in 0..parts {
            let base = Vpn(number(page).0 + (part << order));
            self.forget(TlbPage::of(space, base, order));
        }
    }

    fn forget(&mut self, page: TlbPage) {
        let tlbs = self.cores.iter_mut().flat_map(|core| &mut core.tlbs);
        tlbs.for_each(|tlb| _ = tlb.forget(page));
    }

    /// Looks up the page of an access of a core to a physical address; the cycles that takes.
    #[inline]
    pub fn look_up(
        &mut self,
        (cpu, class, counted): (usize, usize, bool),
        address: u64,
        hierarchy: &mut Hierarchy,
        walk_path: &Path,
    ) -> u64 {
        let Some(told) = self.page(cpu, address) else {
            self.counts[class].unknown += u64::from(counted);
            return 0;
        };
        let (level, core) = (told.level().unwrap_or(0) as usize, &mut self.cores[cpu]);
        let space = if told.is_kernel() { KERNEL } else { core.space };
        let page = TlbPage::of(space, number(told), self.orders[level]);
        let nearest = &mut core.tlbs[self.path[0]];
        let counts = &mut self.counts[class];
        counts.lookups[0] += u64::from(counted && nearest.takes(page.order));
        match nearest.access(page) {
            Ok(()) => 0,
            Err(victim) => {
                let further = ask_further(&self.machine, &mut core.tlbs, &self.path, page, victim);
                let mut cycles = further.cycles;
                if further.found.is_none() {
                    cycles += self.walk(cpu, page, &further, hierarchy, walk_path);
                }
                if counted {
                    self.counts[class].note(&further, cycles);
                }
                cycles
            }
        }
    }

    /// The page of an access; none if no table is known to have it.
    #[inline(always)]
    fn page(&mut self, cpu: usize, address: u64) -> Option<LabPage> {
        let frame = usize::try_from(address >> PAGE_BITS).ok()?;
        if let Some(page) = self.cores[cpu].next.take() {
            self.enter(cpu, frame, page);
        }
        let told = LabPage(self.pages.get(frame)?.checked_sub(1)?);
        told.level().map(|_| told)
    }

    /// A frame is a part of this page. Where that was in another frame so far, of which nothing was told, no TLB
    /// has it any more.
    #[cold]
    fn enter(&mut self, cpu: usize, frame: usize, page: LabPage) {
        if frame >= self.pages.len() {
            self.pages.resize((frame + 1).next_power_of_two(), 0);
        }
        self.pages[frame] = page.0 + 1;
        let Some(level) = page.level() else { return };
        let order = ORDERS[level as usize];
        let space = if page.is_kernel() { KERNEL } else { self.cores[cpu].space };
        let known = TlbPage::of(space, number(page), order);
        let first = frame as u64 >> order;
        if self.frames.insert(known, first).is_some_and(|before| before != first) {
            let order = self.orders[level as usize];
            self.forget(TlbPage::of(space, number(page), order));
        }
    }

    fn walk(
        &mut self,
        cpu: usize,
        page: TlbPage,
        further: &Further,
        hierarchy: &mut Hierarchy,
        path: &Path,
    ) -> u64 {
        if further.is_by_software(&self.machine) {
            return self.machine.handler_latency;
        }
        let cache = self.cores[cpu].walker.as_mut();
        self.machine.walk_latency + self.walker.read(&self.machine, cache, page, hierarchy, path)
    }

    /// What a class was counted.
    pub fn work(&self, class: usize) -> TlbWork {
        let counts = &self.counts[class];
        let row = |(depth, &at): (usize, &usize)| TlbRow {
            tlb: self.machine.tlb[at].part(),
            counts: TlbCounts { accesses: counts.lookups[depth], misses: counts.missed[depth] },
        };
        TlbWork {
            tlbs: self.path.iter().enumerate().map(row).collect(),
            walks: counts.walks,
            cycles: counts.cycles,
            unknown: counts.unknown,
        }
    }

    /// Each TLB of the description with what it was asked in all, summed over its copies.
    pub fn totals(&self) -> Vec<TlbRow> {
        let sum = |at: usize| {
            let counts = self.cores.iter().map(|core| core.tlbs[at].counts);
            counts.fold(TlbCounts::default(), |sum, one| TlbCounts {
                accesses: sum.accesses + one.accesses,
                misses: sum.misses + one.misses,
            })
        };
        let all = self.machine.tlb.iter().enumerate();
        all.map(|(at, spec)| TlbRow { tlb: spec.part(), counts: sum(at) }).collect()
    }
}

impl Counts {
    /// Notes a look-up that the nearest TLB did not answer.
    fn note(&mut self, further: &Further, cycles: u64) {
        for depth in 0..DEPTHS {
            let missed = further.missed >> depth & 1;
            let asked = if depth == 0 { 0 } else { missed };
            self.missed[depth] += missed;
            self.lookups[depth] += asked | u64::from(further.found == Some(depth));
        }
        self.walks += u64::from(further.found.is_none());
        self.cycles += cycles;
    }
}

/// What walkers read where they read through the caches: tables of the kind that the description has, of which only
/// where they are is modelled, at the end of the machine's memory.
#[derive(Debug)]
struct LabWalker {
    hashed: Option<HashedTable>,
    tables: Vec<Tables>,
    /// The frames from here on hold tables.
    end: u64,
    aside: bool,
    reads: Vec<u64>,
}

impl LabWalker {
    fn new(machine: &Machine) -> LabWalker {
        let (frames, data) = (machine.memory.0 >> PAGE_BITS, machine.data_path());
        let is_hashed = machine.walk.as_ref().is_some_and(|spec| spec.table == TableKind::Hashed);
        let reads = walk_stalls(machine, &data);
        LabWalker {
            hashed: is_hashed.then(|| HashedTable::new(frames)),
            tables: Vec::new(),
            end: frames,
            aside: reads.len() <= data.len(),
            reads,
        }
    }

    /// Reads the entries for a page; the cycles that takes.
    fn read(
        &mut self,
        machine: &Machine,
        cache: Option<&mut WalkCache>,
        page: TlbPage,
        hierarchy: &mut Hierarchy,
        path: &Path,
    ) -> u64 {
        let (Some(spec), Some(cache)) = (&machine.walk, cache) else { return 0 };
        let base = Vpn(page.number << page.order);
        let skip = cache.skip(page.space, base, page.order, spec.levels);
        let Some(walk) = self.find(spec.levels, page, base) else { return 0 };
        let entries = walk.entries(skip).iter().map(|entry| entry.0);
        read_entries(hierarchy, (path, self.aside), &self.reads, entries)
    }

    /// Where the entries are; none where memory is used up by tables.
    fn find(&mut self, levels: usize, page: TlbPage, base: Vpn) -> Option<TableWalk> {
        let end = &mut self.end;
        let mut allocate = |order: u32| {
            *end = end.checked_sub(1 << order)? >> order << order;
            Some(Pfn(*end))
        };
        if let Some(table) = &mut self.hashed {
            let group = table.group(page.space, base, |order| allocate(order).ok_or(()));
            return group.ok().map(TableWalk::one);
        }
        let space = usize::from(page.space);
        if space >= self.tables.len() {
            self.tables.resize_with(space + 1, || Tables::new(levels));
        }
        self.tables[space].walk(base, page.order, || allocate(0).ok_or(())).ok()
    }
}

/// The number of the page that was told, which repeats the highest bit as addresses do.
#[inline(always)]
const fn number(page: LabPage) -> Vpn {
    let high = if page.is_kernel() { u64::MAX << LabPage::NUMBER_BITS } else { 0 };
    Vpn((page.number() | high) & ((1 << (64 - PAGE_BITS)) - 1))
}
