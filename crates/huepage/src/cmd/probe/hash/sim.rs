//! A simulated cache with a hidden hash as a source: slices told as a counter would, or
//! evictions in the simulator's own sets, and latencies over a ring of slices. Solvers get
//! observations only; the hash is kept to judge the result by.

use std::convert::Infallible;

use fastrand::Rng;
use huepage_color::{IndexFunction, PhysAddr};
use huepage_recover::collide::{GatherSettings, classify, groups};
use huepage_recover::obs::LineGroupId;
use huepage_recover::plan::{self, Reach};
use huepage_recover::{Collider, Gathered, GroupScope, HashFile, Labels, Observations, synth};
use huepage_sim::cache::{CacheEntry, Replacement, Sets};

use super::source::{LineChoice, ObservationSource, progress};
use crate::cmd::probe::args::{HashArgs, Observe};
use crate::exit::{CmdError, ExitCode};

/// Sets per slice where the hash does not say: the 2048 of most server parts.
const SET_BITS: u32 = 11;
/// Address bits that there can be at most: physical addresses of x86 end there.
const ADDRESS_BITS: u32 = 52;
/// Sets, in all slices, of the largest cache that is simulated: up to a gigabyte of memory.
const MOST_SETS: usize = 1 << 22;
/// Ways of the simulated cache.
const WAYS: usize = 16;
/// Lines per way and slice that groups are looked for in.
const POOL: usize = 3;
/// Lines observed by latency, to number slices.
const LATENCIES: usize = 400;
/// Cycles to the nearest slice (Scolari et al. 2016, section 4.1), for each stop of the ring
/// beyond it, and the most that chance adds.
const NEAREST: u64 = 18;
const HOP: u64 = 3;
const JITTER: usize = 3;
/// Times that each latency is measured; the least counts.
const MEASURED: u32 = 5;
/// Lines in a row that a sweep covers, as log2, and its rows.
const ROW_BITS: u32 = 12;
const ROWS: u32 = 5;
/// Lines of a page.
const PAGE_LINES: u64 = 64;

/// The simulated machine.
pub struct Simulated {
    hash: IndexFunction,
    reach: Reach,
    observe: Observe,
    probes: usize,
    wrong: f64,
    dice: Rng,
    /// Only where evictions are watched.
    cache: Option<Model>,
    /// Eviction sets, once they were found, and a line of the set they are for.
    found: Option<Gathered>,
    like: PhysAddr,
}

/// One cache level with the hidden hash.
struct Model {
    hash: IndexFunction,
    sets: Sets,
}

impl Model {
    fn new(hash: &IndexFunction) -> Result<Model, CmdError> {
        let (slices, set_bits) = (hash.slices(), hash.set_bits());
        let sets = (slices as usize) << set_bits;
        if sets > MOST_SETS {
            let what = format!(
                "{slices} slices of 2^{set_bits} sets are too large a cache to simulate; hide a hash with fewer, or use --observe slices"
            );
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        let sets = Sets::new(sets, WAYS, Replacement::Lru, 1);
        Ok(Model { hash: hash.clone(), sets })
    }

    fn place(&self, line: PhysAddr) -> (usize, CacheEntry) {
        let at = self.hash.locate(line);
        let set = usize::from(at.slice) << self.hash.set_bits() | at.set as usize;
        (set, CacheEntry::new(line.0 >> self.hash.line_bits(), false))
    }

    fn load(&mut self, line: PhysAddr) {
        let (set, entry) = self.place(line);
        self.sets.access(set, entry);
    }
}

impl Collider for Model {
    type Error = Infallible;

    fn evicts(&mut self, victim: PhysAddr, lines: &[PhysAddr]) -> Result<bool, Infallible> {
        self.load(victim);
        lines.iter().for_each(|&line| self.load(line));
        let (set, entry) = self.place(victim);
        Ok(!self.sets.contains(set, entry.line()))
    }
}

impl Simulated {
    pub fn new(hash: &HashFile, args: &HashArgs) -> Result<Simulated, CmdError> {
        let wrong_hash = |e| CmdError::new(ExitCode::Usage, e);
        let index = hash.index(SET_BITS).map_err(wrong_hash)?;
        let highest = hash.address_bits[1];
        if highest >= ADDRESS_BITS {
            let what = format!(
                "the hash to hide has bit {highest}, and physical addresses have bits 0-51; give one within these"
            );
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        let bits = args.address_bits.unwrap_or(highest + 1).max(20);
        let (set_bits, cache) = match args.observe {
            Observe::Slices => (0, None),
            Observe::Evictions => (index.set_bits(), Some(Model::new(&index)?)),
        };
        let mut dice = Rng::with_seed(args.seed);
        Ok(Simulated {
            reach: Reach { bits, line_bits: index.line_bits(), set_bits },
            observe: args.observe,
            probes: args.probes as usize,
            wrong: args.wrong.unwrap_or(0.0),
            like: PhysAddr(dice.u64(..)),
            dice,
            cache,
            hash: index,
            found: None,
        })
    }

    fn lines(&mut self, plan: LineChoice) -> Vec<PhysAddr> {
        match plan {
            LineChoice::Random => plan::random(self.reach, self.probes, &mut self.dice),
            LineChoice::Neighbours => plan::neighbours(self.reach, self.probes, &mut self.dice),
            LineChoice::Sweep => plan::sweep(self.reach, ROW_BITS, ROWS, PAGE_LINES),
        }
    }

    /// Lines moved to the one set whose evictions are watched.
    fn in_set(&self, lines: Vec<PhysAddr>) -> Vec<PhysAddr> {
        let set = ((1 << self.reach.set_bits) - 1) << self.reach.line_bits;
        lines.into_iter().map(|line| PhysAddr(line.0 & !set | self.like.0 & set)).collect()
    }

    fn by_evictions(&mut self, lines: Vec<PhysAddr>) -> Result<Observations, CmdError> {
        let how = GatherSettings { ways: WAYS, votes: 1 };
        let failed =
            |e: huepage_recover::CollideError<Infallible>| CmdError::new(ExitCode::Noisy, e);
        if self.found.is_none() {
            let size = self.hash.slices() as usize * WAYS * POOL;
            let pool = plan::random(self.reach, size, &mut self.dice);
            let pool = self.in_set(pool);
            let cache = self.cache.as_mut().expect("there for evictions");
            self.found = Some(groups(cache, &pool, how).map_err(failed)?);
        }
        let lines = self.in_set(lines);
        let bar = progress("classifying lines", lines.len());
        let found = self.found.as_mut().expect("found above");
        let cache = self.cache.as_mut().expect("there for evictions");
        let step = || {
            bar.inc(1);
            true
        };
        let seen = classify(cache, found, lines.into_iter(), how, step).map_err(failed);
        bar.finish_and_clear();
        seen
    }

    /// The core whose latency to a line is least: its slice is the nearest.
    fn nearest(&mut self, line: PhysAddr) -> LineGroupId {
        let (slice, slices) = (self.hash.locate(line).slice, self.hash.slices());
        let slices = u16::try_from(slices).unwrap_or(u16::MAX);
        let mut least = |core: u16| {
            let away = u64::from(core.abs_diff(slice).min(slices - core.abs_diff(slice)));
            let noise = (0..MEASURED).map(|_| self.dice.usize(..JITTER) as u64).min();
            NEAREST + HOP * away + noise.unwrap_or(0)
        };
        let best = (0..slices).map(|core| (least(core), core)).min();
        LineGroupId(best.map_or(0, |(_, core)| core))
    }
}

impl ObservationSource for Simulated {
    fn describe(&self) -> String {
        let how = match self.observe {
            Observe::Slices => "slices told by number, of lines of any set",
            Observe::Evictions => "evictions of lines of one set",
        };
        let (bits, wrong) = (self.reach.bits, self.wrong * 100.0);
        format!("simulated, {how}, {bits} address bits, {wrong} % made wrong")
    }

    fn observe(&mut self, plan: LineChoice) -> Result<Option<Observations>, CmdError> {
        let lines = self.lines(plan);
        let mut seen = match self.observe {
            Observe::Slices => synth::slices(&self.hash, lines.into_iter()),
            Observe::Evictions if plan == LineChoice::Sweep => return Ok(None),
            Observe::Evictions => self.by_evictions(lines)?,
        };
        synth::corrupt(&mut seen, self.wrong, &mut self.dice);
        Ok(Some(seen))
    }

    fn numbered(&mut self) -> Option<Observations> {
        if self.observe == Observe::Slices {
            return None;
        }
        let lines = plan::random(self.reach, LATENCIES, &mut self.dice);
        let lines = self.in_set(lines);
        let mut seen = Observations::new(GroupScope::Slice, Labels::Numbered);
        for line in lines {
            let group = self.nearest(line);
            seen.member(line, group);
        }
        synth::corrupt(&mut seen, self.wrong, &mut self.dice);
        Some(seen)
    }

    fn hidden(&self) -> Option<IndexFunction> {
        Some(self.hash.clone())
    }

    fn set_bits(&self) -> Option<u32> {
        (self.observe == Observe::Evictions).then(|| self.hash.set_bits())
    }
}
