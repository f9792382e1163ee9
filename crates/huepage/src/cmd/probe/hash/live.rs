//! This machine as a source: lines of one set of the last level, classified by timed evictions.
//! Where frame numbers do not select cache sets (a guest on scattered host pages), a hash of
//! frame numbers would be no hash of the cache: that is measured first, and nothing else then.

use std::collections::HashSet;

use fastrand::Rng;
use huepage_color::{CacheGeometry, CacheLevel, LevelChoice, PhysAddr};
use huepage_linux::color::collide::LiveCollider;
use huepage_linux::color::probe::{
    Classifier, FrameVerdict, ProbeError, ProbeParams, VerdictReport, measure_verdict,
    open_reference,
};
use huepage_linux::kernel::machine::{HostCache, HostMachine};
use huepage_recover::collide::{GatherSettings, classify, groups};
use huepage_recover::{CollideError, Gathered, Observations};

use super::source::{LineChoice, ObservationSource, progress};
use crate::cmd::probe::args::HashArgs;
use crate::exit::{CmdError, ExitCode};
use crate::partition;

/// Pages measured to judge frame numbers.
const PAGES: usize = 4096;
/// Lines per group and line of an eviction set that groups are looked for in.
const POOL: usize = 3;
/// Times each question is put.
const VOTES: u32 = 3;
/// Fewest lines that classifying is begun for.
const LEAST: usize = 64;

/// The last level of this machine.
pub struct LiveCache {
    level: CacheLevel,
    line_bits: u32,
    set_bits: u32,
    slices: u32,
    collider: LiveCollider,
    /// Lines of one set, shuffled.
    lines: Vec<PhysAddr>,
    how: GatherSettings,
    found: Option<Gathered>,
    probes: usize,
    dice: Rng,
}

impl LiveCache {
    /// Judges frame numbers, and gets a buffer whose lines can be timed.
    pub fn open(args: &HashArgs) -> Result<LiveCache, CmdError> {
        partition::check_privileges()?;
        let machine = HostMachine::read().map_err(partition::internal)?;
        let cpu = rustix::thread::sched_getcpu();
        believe(&judge(&machine, cpu)?)?;
        let cache = machine.cache(LevelChoice::Llc).map_err(partition::internal)?;
        let (slices, set_bits) = sliced(cache, args.slices)?;
        let geometry = &cache.geometry;
        let line_bits = geometry.line_bytes.trailing_zeros();
        let ways = geometry.ways as usize;
        // Half as many again as ways: replacement is seldom by age alone.
        let how = GatherSettings { ways: ways + ways / 2, votes: VOTES };
        let lines = slices as usize * how.ways * POOL + args.probes as usize;
        let collider = buffer(cpu, lines << (set_bits + line_bits).saturating_sub(12))?;
        let mut dice = Rng::with_seed(args.seed);
        let offset = dice.u64(..) & ((1 << (set_bits + line_bits)) - 1) >> line_bits << line_bits;
        let mut lines = collider.lines(offset, line_bits, set_bits);
        dice.shuffle(&mut lines);
        let level = geometry.level;
        let (probes, found) = (args.probes as usize, None);
        Ok(LiveCache {
            level,
            line_bits,
            set_bits,
            slices,
            collider,
            lines,
            how,
            found,
            probes,
            dice,
        })
    }

    fn groups(&mut self) -> Result<(), CmdError> {
        if self.found.is_some() {
            return Ok(());
        }
        let size = self.slices as usize * self.how.ways * POOL;
        if self.lines.len() < size + LEAST {
            let what = format!(
                "{} lines of one set fit in memory, and {} are needed; free memory",
                self.lines.len(),
                size + LEAST
            );
            return Err(CmdError::new(ExitCode::Internal, what));
        }
        let pool = self.lines.split_off(self.lines.len() - size);
        self.collider.calibrate(&pool, self.how.ways / 2).map_err(noisy)?;
        let bar = progress("finding groups", 1);
        let found = groups(&mut self.collider, &pool, self.how).map_err(failed);
        bar.finish_and_clear();
        self.found = Some(found?);
        Ok(())
    }

    /// The lines of a plan, out of those there are.
    fn chosen(&mut self, plan: LineChoice) -> Vec<PhysAddr> {
        match plan {
            LineChoice::Neighbours => self.neighbours(),
            _ => self.lines.iter().copied().take(self.probes).collect(),
        }
    }

    /// Lines with those of their neighbours that the buffer has.
    fn neighbours(&mut self) -> Vec<PhysAddr> {
        let there: HashSet<u64> = self.lines.iter().map(|line| line.0).collect();
        let mut chosen = Vec::new();
        let mut taken = HashSet::new();
        let bits: Vec<u32> = (self.line_bits + self.set_bits..52).collect();
        while chosen.len() < self.probes.min(self.lines.len() / 2) && taken.len() < there.len() {
            let centre = self.lines[self.dice.usize(..self.lines.len())].0;
            let flips = bits.iter().flat_map(|&a| bits.iter().map(move |&b| 1 << a | 1 << b));
            let near = flips.map(|flip: u64| centre ^ flip).chain([centre]);
            let new = near.filter(|line| there.contains(line)).filter(|&line| taken.insert(line));
            chosen.extend(new.map(PhysAddr));
        }
        chosen
    }
}

impl ObservationSource for LiveCache {
    fn describe(&self) -> String {
        format!(
            "evictions in the {} of this machine, timed, of lines of one set; frame numbers\n\
             select the sets of its L2",
            self.level
        )
    }

    fn observe(&mut self, plan: LineChoice) -> Result<Option<Observations>, CmdError> {
        if plan == LineChoice::Sweep {
            return Ok(None);
        }
        self.groups()?;
        let lines = self.chosen(plan);
        let bar = progress("classifying lines", lines.len());
        let found = self.found.as_mut().expect("found above");
        let step = || {
            bar.inc(1);
            true
        };
        let seen = classify(&mut self.collider, found, lines.into_iter(), self.how, step);
        bar.finish_and_clear();
        seen.map(Some).map_err(failed)
    }

    fn numbered(&mut self) -> Option<Observations> {
        None
    }

    fn set_bits(&self) -> Option<u32> {
        Some(self.set_bits)
    }
}

/// How well frame numbers predict the sets of the L2, whose index is plain bits.
fn judge(machine: &HostMachine, cpu: usize) -> Result<VerdictReport, CmdError> {
    let l2 = machine.cache(LevelChoice::Level(CacheLevel::L2)).map_err(partition::internal)?;
    let measured = || -> Result<VerdictReport, ProbeError> {
        let opened = open_reference(&ProbeParams::for_cache(&l2.geometry)?, cpu)?;
        let mut bench = opened.set.bench(cpu)?;
        let mut classifier = Classifier::new(opened.set.classes.clone());
        measure_verdict(&mut classifier, &mut bench, PAGES)
    };
    measured().map_err(noisy)
}

/// Whether masks over frame numbers can mean anything here.
fn believe(report: &VerdictReport) -> Result<(), CmdError> {
    let (share, chance) = (report.share * 100.0, report.chance * 100.0);
    let found = format!("they give {share:.0} % of measured L2 colours, chance {chance:.0} %");
    match report.verdict {
        FrameVerdict::FrameNumberSelects => Ok(()),
        FrameVerdict::MustProbe => Err(CmdError::new(
            ExitCode::Contradicted,
            format!(
                "frame numbers do not select cache sets here ({found}), as in a virtual machine, so masks over them would be of no use; run this on the host, or use --colors-from probe"
            ),
        )),
        FrameVerdict::Unclear => Err(CmdError::new(
            ExitCode::Noisy,
            format!(
                "whether frame numbers select cache sets is unclear ({found}); try again when the machine is quieter"
            ),
        )),
    }
}

/// Slices and log2 of the sets of each, by the option or by what is known of the processor.
fn sliced(cache: &HostCache, given: Option<u32>) -> Result<(u32, u32), CmdError> {
    let CacheGeometry { sets, level, .. } = cache.geometry;
    let slices = given.or(cache.slices.as_ref().map(|claim| claim.slices));
    let each = slices.map(|slices| sets / slices.max(1)).filter(|n| n.is_power_of_two());
    match (slices, each) {
        (Some(slices), Some(each)) => Ok((slices, each.ilog2())),
        _ => {
            let what = format!(
                "the {sets} sets of the {level} are not 2^n in each of the slices, as far as their number is known; give it by --slices"
            );
            Err(CmdError::new(ExitCode::Usage, what))
        }
    }
}

/// A buffer of so many pages, or of half the free memory.
fn buffer(cpu: usize, pages: usize) -> Result<LiveCollider, CmdError> {
    let free = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = free.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<usize>().ok());
    let pages = kib.map_or(pages, |kib| pages.min(kib / 8));
    LiveCollider::new(cpu, pages).map_err(|e| CmdError::new(ExitCode::Internal, e))
}

fn noisy(error: impl std::fmt::Display) -> CmdError {
    CmdError::new(ExitCode::Noisy, error)
}

fn failed(error: CollideError<huepage_linux::color::collide::EvictionError>) -> CmdError {
    noisy(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_only_looked_for_where_frame_numbers_mean_something() {
        let report = |verdict| VerdictReport {
            verdict,
            samples: 4096,
            colors: 16,
            share: 0.08,
            chance: 0.08,
        };
        assert!(believe(&report(FrameVerdict::FrameNumberSelects)).is_ok());
        let code = |verdict| believe(&report(verdict)).unwrap_err().code;
        assert_eq!(code(FrameVerdict::MustProbe), ExitCode::Contradicted);
        assert_eq!(code(FrameVerdict::Unclear), ExitCode::Noisy);
    }
}
