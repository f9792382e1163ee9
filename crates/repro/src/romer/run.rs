//! Runs a workload under many variants at once: its accesses are made or read once and handed to
//! every machine, a block at a time. Chapter 3 counts the TLB alone, so there the accesses in a
//! row to one page are handed over as one: they hit at the front of the TLB whatever its pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use huepage_color::Vpn;
use huepage_policy::Prices;
use huepage_policy::superpage::{Offline, OfflinePlan, PageSizes};
use serde::Serialize;

use super::programs::RomerProgram;
use super::variants::{OFFLINE, Ready, RomerPart, RomerVariant};
use super::watched::{Seen, Watched};
use crate::run::{BatchReader, OwnAccesses, RunFailed, lock};
use huepage_sim::cost::{ProgramCosts, Rates};
use huepage_sim::experiment::WishError;
use huepage_sim::feedback::Sense;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::{RunError, System};
use huepage_sim::workloads::file_access::FILES;

/// Records handed to one machine before the next gets them: a megabyte.
const BLOCK: usize = 1 << 16;
/// Entries of each TLB (section 3.2).
const ENTRIES: usize = 32;
/// Misses more than those of a page that can conflict at which the CML buffer interrupts (section 5.3.1).
const MORE_TO_INTERRUPT: u64 = 60;

/// What came of a workload under a variant.
#[derive(Clone, Debug, Serialize)]
pub struct RomerOutcome {
    /// The workload.
    pub program: String,
    /// The program of the thesis that it stands for; empty if none.
    pub stands_for: &'static str,
    /// Under what.
    #[serde(flatten)]
    pub variant: RomerVariant,
    /// Accesses of the workload, before any were left out.
    pub records: u64,
    /// Cycles by cause. OFFLINE's superpages are charged as a whole, as in section 3.5.
    #[serde(flatten)]
    pub costs: ProgramCosts,
    /// Figures per instruction.
    pub rates: Rates,
    /// Misses of all TLBs.
    pub tlb_misses: u64,
    /// Base pages in memory at the end.
    pub pages: u64,
    /// Requests that reached the last cache.
    pub last_requests: u64,
    /// Of these, answered by its second place.
    pub second_hits: u64,
    /// Of costs and TLB misses, those of the second half of its accesses at most.
    #[serde(skip)]
    pub second: Option<(ProgramCosts, u64)>,
    /// The same until a throttle last began anew, what it spent before being paid; none: it never did.
    #[serde(skip)]
    pub cycles: Option<(ProgramCosts, u64)>,
    /// Times that each page was recoloured.
    #[serde(skip)]
    pub moved: BTreeMap<u64, u32>,
    /// Base pages that became part of a superpage.
    #[serde(skip)]
    pub promoted: BTreeSet<u64>,
    /// Superpages at the end by log2 of their base pages.
    #[serde(skip)]
    pub superpages: BTreeMap<u32, u64>,
    /// Times that each page was in a conflict that the CML buffer showed (section 5.6.3).
    #[serde(skip)]
    pub conflicts: BTreeMap<u64, u32>,
}

impl RomerOutcome {
    /// Cycles per instruction for misses of the L2, of the TLB, and for policies (section 4.3.3).
    pub fn l2_mcpi(&self) -> f64 {
        let Rates { l2_miss_cpi, tlb_mcpi, recolor_cpi, policy_cpi, .. } = self.rates;
        l2_miss_cpi + tlb_mcpi + recolor_cpi + policy_cpi
    }

    /// Cycles per instruction for the TLB: misses, books and superpages (section 3.1).
    pub fn tlb_mcpi(&self) -> f64 {
        let policy =
            if self.variant.part == RomerPart::Superpages { self.rates.policy_cpi } else { 0.0 };
        self.rates.tlb_mcpi + policy
    }

    /// The same of the second half alone, what comes once being paid.
    pub fn second_half(&self) -> Option<RomerOutcome> {
        self.second.map(|part| self.part(part))
    }

    /// The same of whole cycles of work and rest, if a throttle has rested.
    pub fn whole_cycles(&self) -> RomerOutcome {
        self.cycles.map_or_else(|| self.clone(), |part| self.part(part))
    }

    fn part(&self, (costs, tlb_misses): (ProgramCosts, u64)) -> RomerOutcome {
        RomerOutcome { costs, rates: costs.rates(), tlb_misses, ..self.clone() }
    }

    /// The parts of [`Self::tlb_mcpi`]: the miss handler, books, copies (figure 3-3).
    pub fn tlb_parts(&self) -> [f64; 3] {
        let instructions = self.costs.instructions.max(1) as f64;
        let handler = (30 * self.tlb_misses) as f64 / instructions;
        let copies = self.costs.promotion_cycles as f64 / instructions;
        [handler, (self.tlb_mcpi() - handler - copies).max(0.0), copies]
    }
}

/// A variant at work.
pub struct RomerRun {
    variant: RomerVariant,
    system: System,
    seen: Arc<Mutex<Seen>>,
    /// What OFFLINE's superpages cost if all their base pages are copied.
    planned: Option<u64>,
    /// Costs and TLB misses when half of its accesses were done.
    half: Option<(ProgramCosts, u64)>,
    /// The same when a throttle last began anew.
    cycles: Option<(ProgramCosts, u64)>,
}

impl RomerRun {
    fn new(
        variant: &RomerVariant,
        plan: Option<&OfflinePlan>,
        files: bool,
    ) -> Result<RomerRun, WishError> {
        let Ready { mut system, mut watch } = variant.ready()?;
        let plan = plan.filter(|_| variant.policy == OFFLINE);
        if let Some(plan) = plan {
            watch = Some((Box::new(Offline::new(plan.clone())), Sense::default()));
        }
        if files {
            system.use_files(0, 0).map_err(|error| WishError::new(error.to_string()))?;
        }
        let seen = Arc::default();
        if let Some((inner, sense)) = watch {
            let recolor = sense.cml.map(|cml| cml.threshold.saturating_sub(MORE_TO_INTERRUPT));
            let watched = Watched::new(inner, Arc::clone(&seen), recolor);
            let governed = system.govern(0, Box::new(watched), sense);
            governed.map_err(|error| WishError::new(error.to_string()))?;
        }
        let cost =
            |plan: &OfflinePlan| plan.pages().map(|(_, o)| Prices::default().build(1 << o)).sum();
        let planned = plan.map(cost);
        let variant = variant.clone();
        Ok(RomerRun { variant, system, seen, planned, half: None, cycles: None })
    }

    /// The costs and TLB misses so far.
    fn so_far(&self) -> (ProgramCosts, u64) {
        (self.system.costs(0), self.system.report().walks)
    }

    fn run(&mut self, block: &[Record]) -> Result<(), RunError> {
        self.system.run(0, block)?;
        if std::mem::take(&mut lock(&self.seen).anew) {
            self.cycles = Some(self.so_far());
        }
        Ok(())
    }

    fn finish(mut self, program: &RomerProgram, records: u64) -> Result<RomerOutcome, String> {
        self.system.finish();
        self.system.check()?;
        let report = self.system.report();
        let last = report.caches.last().map(|(_, counts)| *counts).unwrap_or_default();
        let mut costs = self.system.costs(0);
        costs.promotion_cycles = self.planned.unwrap_or(costs.promotion_cycles);
        let since = |(before, walks): (ProgramCosts, u64)| {
            (self.system.costs(0).since(&before), report.walks - walks)
        };
        let second = self.half.map(since);
        let seen = std::mem::take(&mut *lock(&self.seen));
        Ok(RomerOutcome {
            program: program.name.clone(),
            stands_for: program.stands_for,
            variant: self.variant,
            records,
            costs,
            rates: costs.rates(),
            tlb_misses: report.walks,
            pages: report.spaces.first().map_or(0, |space| space.pages),
            last_requests: last.total(),
            second_hits: last.second_hits,
            second,
            cycles: self.cycles,
            moved: seen.moved,
            promoted: seen.promoted,
            superpages: by_order(&seen.superpages),
            conflicts: seen.conflicts,
        })
    }
}

fn by_order(superpages: &BTreeMap<u64, u32>) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    superpages.values().for_each(|order| *counts.entry(*order).or_default() += 1);
    counts
}

/// Runs a workload under each of the variants, which are of one part and halve addresses as often. `open` begins its accesses
/// anew; `heard` gets numbers of accesses simulated. OFFLINE takes a run through them beforehand.
///
/// # Errors
/// When the source, a variant or a machine cannot.
pub fn run<'a, E>(
    program: &RomerProgram,
    variants: &[RomerVariant],
    quick: bool,
    open: &dyn Fn() -> Result<BatchReader<'a, E>, E>,
    heard: &dyn Fn(u64),
) -> Result<Vec<RomerOutcome>, RunFailed<E>> {
    let part = variants.first().map(|variant| variant.part);
    let turns = part == Some(RomerPart::Superpages);
    let begin = || -> Result<Blocks<'a, E>, RunFailed<E>> {
        let batches = open().map_err(RunFailed::Source)?;
        let limit = if quick { program.quick } else { program.limit };
        let halvings = variants.first().map_or(0, RomerVariant::halvings);
        Ok(Blocks { halvings, ..Blocks::new(batches, limit, turns, program.spec.is_some()) })
    };
    let plan = if variants.iter().any(|variant| variant.policy == OFFLINE) {
        Some(plan(&mut begin()?, if quick { MOST >> 3 } else { MOST })?)
    } else {
        None
    };
    let files = program.spec.is_some() && !turns;
    let build = |variant| RomerRun::new(variant, plan.as_ref(), files).map_err(RunFailed::Wish);
    let mut runs = variants.iter().map(build).collect::<Result<Vec<RomerRun>, _>>()?;
    let (mut blocks, mut block, mut before) = (begin()?, Vec::new(), 0);
    while blocks.next(&mut block)? {
        for run in &mut runs {
            run.run(&block)?;
        }
        let limit = if quick { program.quick } else { program.limit };
        if before < limit / 2 && blocks.taken >= limit / 2 {
            runs.iter_mut().for_each(|run| run.half = Some(run.so_far()));
        }
        heard((blocks.taken - before) * runs.len() as u64);
        before = blocks.taken;
    }
    let ended = runs.into_iter().map(|run| run.finish(program, blocks.taken));
    ended.collect::<Result<_, _>>().map_err(RunFailed::Unsound)
}

/// The accesses of one program, in blocks, up to a limit.
struct Blocks<'a, E> {
    accesses: OwnAccesses<'a, E>,
    taken: u64,
    turns: Option<Turns>,
    /// How often all addresses are halved, as the machine is.
    halvings: u32,
}

impl<'a, E> Blocks<'a, E> {
    fn new(batches: BatchReader<'a, E>, limit: u64, turns: bool, files: bool) -> Blocks<'a, E> {
        let turns = turns.then(|| Turns { files, ..Turns::default() });
        Blocks { accesses: OwnAccesses::new(batches, limit), taken: 0, turns, halvings: 0 }
    }

    /// Replaces `block`; false at the end.
    fn next(&mut self, block: &mut Vec<Record>) -> Result<bool, RunFailed<E>> {
        block.clear();
        while block.len() < BLOCK && !self.accesses.over {
            let halvings = self.halvings;
            self.accesses.next(|record| {
                let record = if halvings > 0 { smaller(record, halvings) } else { record };
                self.taken += 1;
                match &mut self.turns {
                    Some(turns) => turns.push(record, block),
                    None => block.push(record),
                }
            })?;
            if self.accesses.over {
                self.turns.iter_mut().for_each(|turns| turns.end(block));
            }
        }
        Ok(!block.is_empty())
    }
}

/// An access of a machine half as large in everything, or half of that.
fn smaller(record: Record, halvings: u32) -> Record {
    let address = huepage_color::VirtAddr(record.address.0 >> halvings);
    Record { address, bytes: (record.bytes >> halvings).max(1), ..record }
}

/// Leaves out accesses to the page that the one before was to, for data and for instructions;
/// their instructions are the next one's.
#[derive(Debug, Default)]
struct Turns {
    last: [Option<Vpn>; 2],
    /// Instructions of what was left out.
    owed: u16,
    latest: Option<Record>,
    /// Accesses to files are left out: they need no TLB.
    files: bool,
}

impl Turns {
    fn push(&mut self, record: Record, out: &mut Vec<Record>) {
        let side = usize::from(record.kind == AccessKind::Fetch);
        let last = record.address.0 + u64::from(record.bytes.max(1) - 1);
        let (first, last) = (record.address.vpn(), huepage_color::VirtAddr(last).vpn());
        let file = self.files && record.address.0 >= FILES;
        let Some(instructions) = self.owed.checked_add(record.instructions) else {
            self.end(out);
            return self.push(record, out);
        };
        self.owed = instructions;
        if file || self.last[side] == Some(first) && first == last {
            return;
        }
        self.last[side] = Some(last);
        out.push(Record { instructions, ..record });
        (self.owed, self.latest) = (0, Some(record));
    }

    /// Hands over the instructions that are owed, with the latest page once more.
    fn end(&mut self, out: &mut Vec<Record>) {
        let instructions = std::mem::take(&mut self.owed);
        let latest = self.latest.filter(|_| instructions > 0);
        out.extend(latest.map(|record| Record { instructions, ..record }));
    }
}

/// Turns that OFFLINE looks at; a plan takes about a microsecond for each and round.
const MOST: usize = 1 << 19;
/// Turns in a row that are kept or left out together.
const PIECE: usize = 1 << 14;

/// OFFLINE's plan. Of a long stream pieces are looked at that lie evenly in it, and a superpage
/// may cost the same share of its price.
fn plan<E>(blocks: &mut Blocks<'_, E>, most: usize) -> Result<OfflinePlan, RunFailed<E>> {
    let (mut kept, mut all, mut block) = (Sample::new(most), 0_u64, Vec::new());
    while blocks.next(&mut block)? {
        block.iter().for_each(|record| kept.push(record.address.vpn()));
        all += block.len() as u64;
    }
    let share = kept.pages.len() as f64 / all.max(1) as f64;
    let prices = scaled(Prices::default(), share);
    Ok(OfflinePlan::greedy(&kept.pages, ENTRIES, &PageSizes::romer(), prices))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of 3,000")]
fn scaled(prices: Prices, share: f64) -> Prices {
    let per_kib = ((prices.per_kib as f64 * share).round() as u64).max(1);
    Prices { per_kib, ..prices }
}

/// Pieces of a stream whose length nobody knows: when there are too many, every other one goes.
struct Sample {
    pages: Vec<Vpn>,
    most: usize,
    /// One piece in so many is kept.
    stride: usize,
    seen: usize,
}

impl Sample {
    fn new(most: usize) -> Sample {
        Sample { pages: Vec::new(), most: most.max(2 * PIECE), stride: 1, seen: 0 }
    }

    fn push(&mut self, page: Vpn) {
        let piece = self.seen / PIECE;
        self.seen += 1;
        if !piece.is_multiple_of(self.stride) {
            return;
        }
        self.pages.push(page);
        if self.pages.len() >= self.most && self.seen.is_multiple_of(PIECE) {
            let pieces = self.pages.chunks(PIECE).step_by(2);
            self.pages = pieces.flatten().copied().collect();
            self.stride *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::romer::variants::Initial;

    fn program() -> RomerProgram {
        RomerProgram {
            name: "n".into(),
            stands_for: "",
            spec: None,
            made: None,
            limit: 200_000,
            quick: 100,
        }
    }

    fn accesses() -> Vec<Record> {
        // Columns of 64 pages, each touched three times in a row.
        let at = |i: u64| (1 << 32) + (i / 3 % 64) * 4096 + i * 8 % 4096;
        (0..250_000).map(|i| Record::plain(at(i), AccessKind::Load)).collect()
    }

    fn batches(records: &[Record]) -> BatchReader<'_, ()> {
        let mut rest = records.chunks(1000);
        Box::new(move |batch| {
            let next = rest.next();
            *batch = next.unwrap_or_default().to_vec();
            Ok(next.is_some())
        })
    }

    fn outcomes(policies: &[&str], quick: bool) -> Vec<RomerOutcome> {
        let records = accesses();
        let (part, initial) = (RomerPart::Superpages, Initial::Coloring);
        let named = |policy: &&str| RomerVariant::new(part, initial, policy);
        let variants: Vec<RomerVariant> = policies.iter().map(named).collect();
        run(&program(), &variants, quick, &|| Ok(batches(&records)), &|_| ()).unwrap()
    }

    #[test]
    fn repeats_are_left_out_and_their_instructions_are_not() {
        let base = &outcomes(&["FIXED 4 KB"], false)[0];
        assert_eq!((base.records, base.costs.instructions), (200_000, 200_000));
        assert_eq!(base.tlb_misses, 200_000_u64.div_ceil(3));
        assert_eq!(base.pages, 64);
        let handler = base.tlb_parts()[0];
        assert!((base.tlb_mcpi() - handler).abs() < 1e-9 && handler > 9.9, "{handler}");
        assert_eq!(outcomes(&["FIXED 4 KB"], true)[0].records, 100);
    }

    #[test]
    fn offline_pays_for_whole_superpages() {
        let both = outcomes(&["FIXED 4 KB", OFFLINE], false);
        // 66,667 misses of 30 cycles are worth superpages of 12,000 cycles a page.
        assert!(both[1].tlb_misses * 2 < both[0].tlb_misses, "{}", both[1].tlb_misses);
        assert!(both[1].costs.promotion_cycles.is_multiple_of(2 * 12_000));
        assert!(both[1].costs.promotion_cycles > 0);
        assert!(both[1].tlb_mcpi() < both[0].tlb_mcpi());
    }

    #[test]
    fn a_sample_is_even_and_no_larger_than_it_may_be() {
        let mut sample = Sample::new(4 * PIECE);
        (0..100 * PIECE as u64).for_each(|i| sample.push(Vpn(i)));
        assert!(sample.pages.len() <= 4 * PIECE && sample.pages.len() >= 2 * PIECE);
        let firsts: Vec<u64> = sample.pages.chunks(PIECE).map(|piece| piece[0].0).collect();
        let gap = (sample.stride * PIECE) as u64;
        assert!(firsts.windows(2).all(|pair| pair[1] - pair[0] == gap), "{firsts:?}");
    }
}
