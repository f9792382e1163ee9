//! Which CPUs share a core: additions on one are slowed down while another adds too. A guest may be
//! told anything of this, and its host may move its CPUs from one core to another, so it is measured:
//! in phases of some milliseconds in which the other CPU adds or rests, in random order.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::additions::{Blocks, Kind, be_felt, kind};
use super::{Interval, quantile};
use crate::kernel::cpus::OnCpu;
use crate::kernel::machine::{CpuList, SysRoot};
use fastrand::Rng;

/// Pairs of phases for two CPUs.
const PHASES: usize = 60;
/// How long a phase is watched.
const PHASE: Duration = Duration::from_millis(2);
/// Time for the other CPU to begin or to stop.
const SETTLES: Duration = Duration::from_micros(400);
/// Blocks that a phase needs to count.
const LEAST_BLOCKS: usize = 64;
/// How long the other CPU rests before it looks again whether to add.
const NAP: Duration = Duration::from_micros(50);
/// The shares of the time above and below which two CPUs share a core, or do not.
const TOGETHER: f64 = 0.5;
const APART: f64 = 0.2;
/// The share of the time from which on it happens at all.
const AT_ALL: f64 = 0.02;
/// The share of the phases with the other CPU at rest that nobody may slow down for any to say much.
const LEAST_LEFT: f64 = 0.2;

/// What two CPUs are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuRelation {
    /// They share a core.
    Siblings,
    /// They do not.
    Apart,
    /// They do at times: the host moves them.
    AtTimes,
    /// Too little was seen, or others use the cores too much.
    Unclear,
}

/// What was found of two CPUs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The CPUs.
    pub cpus: [usize; 2],
    /// What they are to each other.
    pub relation: CpuRelation,
    /// Share of the time in which they shared a core.
    pub share: Interval,
    /// Whether the kernel calls them threads of one core; `None` if it does not say.
    pub claimed: Option<bool>,
}

/// A stretch of time, with the other CPU adding or not.
#[derive(Clone, Copy, Debug)]
struct Phase {
    busy: bool,
    /// Whether the middle block was slowed down.
    slowed: bool,
}

/// Measures two CPUs; takes about 0.3 s. `None` if this process may not use both.
pub fn measure(cpus: [usize; 2]) -> Option<Pair> {
    let (busy, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let done = AtomicU64::new(0);
    let phases = thread::scope(|scope| {
        let worker = scope.spawn(|| work(cpus[1], &busy, &over, &done));
        let phases = OnCpu::new(cpus[0]).ok().map(|_on| watch(&busy, &done));
        over.store(true, Ordering::Relaxed);
        if worker.join().unwrap_or(false) { phases } else { None }
    })?;
    let (relation, share) = relation_of(&phases);
    Some(Pair { cpus, relation, share, claimed: claimed(&SysRoot::default(), cpus) })
}

/// Adds on a CPU while told to; whether it could run there.
fn work(cpu: usize, busy: &AtomicBool, over: &AtomicBool, done: &AtomicU64) -> bool {
    let Ok(_on) = OnCpu::new(cpu) else { return false };
    while !over.load(Ordering::Relaxed) {
        if busy.load(Ordering::Relaxed) {
            be_felt();
            done.fetch_add(1, Ordering::Relaxed);
        } else {
            thread::sleep(NAP);
        }
    }
    true
}

/// Runs phases on this CPU.
fn watch(busy: &AtomicBool, done: &AtomicU64) -> Vec<Phase> {
    let mut random = Rng::with_seed(u64::from(std::process::id()));
    let mut seen: Vec<(bool, Blocks)> = Vec::new();
    for _ in 0..PHASES {
        let first = random.usize(..2) == 0;
        for on in [first, !first] {
            busy.store(on, Ordering::Relaxed);
            thread::sleep(SETTLES);
            let (before, end) = (done.load(Ordering::Relaxed), Instant::now() + PHASE);
            let blocks = Blocks::run(|| Instant::now() < end);
            let worked = done.load(Ordering::Relaxed) - before;
            // Where something else ran on the other CPU, or on this one, the phase says nothing.
            let enough = blocks.four.len() >= LEAST_BLOCKS;
            if enough && (!on || worked as usize >= blocks.four.len() / 4) {
                seen.push((on, blocks));
            }
        }
    }
    busy.store(false, Ordering::Relaxed);
    phases(&seen)
}

/// Phases from their blocks.
fn phases(seen: &[(bool, Blocks)]) -> Vec<Phase> {
    let mut all = Blocks::default();
    for (_, blocks) in seen {
        all.four.extend(&blocks.four);
        all.one.extend(&blocks.one);
    }
    let Some(alone) = all.alone() else { return Vec::new() };
    let slowed =
        |blocks: &Blocks| kind(quantile(&mut blocks.four.clone(), 0.5), alone) == Kind::Slowed;
    seen.iter().map(|(busy, blocks)| Phase { busy: *busy, slowed: slowed(blocks) }).collect()
}

/// What phases say: the share of the time in which the other CPU made the difference.
fn relation_of(phases: &[Phase]) -> (CpuRelation, Interval) {
    let of = |busy: bool| {
        let those = || phases.iter().filter(move |phase| phase.busy == busy);
        Interval::of_trials(those().filter(|phase| phase.slowed).count(), those().count())
    };
    let interval = difference(of(true), of(false));
    let relation = match (interval.low, interval.high) {
        (low, _) if low > TOGETHER => CpuRelation::Siblings,
        (_, high) if high < APART => CpuRelation::Apart,
        (low, _) if low > AT_ALL => CpuRelation::AtTimes,
        _ => CpuRelation::Unclear,
    };
    (relation, interval)
}

/// By how much `on` is more than `off`, as a share of what `off` leaves, by Newcombe's score. Anything
/// is possible if that is little.
fn difference(on: Interval, off: Interval) -> Interval {
    let left = 1.0 - off.estimate;
    if left < LEAST_LEFT {
        return Interval { estimate: 0.5, low: 0.0, high: 1.0 };
    }
    let middle = on.estimate - off.estimate;
    let below = (on.estimate - on.low).hypot(off.high - off.estimate);
    let above = (on.high - on.estimate).hypot(off.estimate - off.low);
    let share = |x: f64| (x / left).clamp(0.0, 1.0);
    let [estimate, low, high] = [middle, middle - below, middle + above].map(share);
    Interval { estimate, low, high }
}

/// Whether the kernel calls two CPUs threads of one core.
fn claimed(sys: &SysRoot, [one, other]: [usize; 2]) -> Option<bool> {
    let path = format!("devices/system/cpu/cpu{one}/topology/thread_siblings_list");
    let list = CpuList::parse(&sys.text(path)?)?;
    Some(list.0.iter().any(|&cpu| cpu as usize == other))
}

/// Pairs of `cpus` worth measuring, `most` of them: those that the kernel calls siblings first,
/// then neighbours by number, as hypervisors tend to lay them out.
pub fn pairs(cpus: &[usize], most: usize) -> Vec<[usize; 2]> {
    pairs_by(cpus, most, |pair| claimed(&SysRoot::default(), pair) == Some(true))
}

fn pairs_by(cpus: &[usize], most: usize, claimed: impl Fn([usize; 2]) -> bool) -> Vec<[usize; 2]> {
    // On large machines any two of all CPUs would be too many to ask about.
    const LOOKED_AT: usize = 64;
    let cpus = &cpus[..cpus.len().min(LOOKED_AT)];
    let others = |i: usize| cpus[i + 1..].iter().map(move |&other| [cpus[i], other]);
    let mut all: Vec<[usize; 2]> = (0..cpus.len()).flat_map(others).collect();
    all.sort_by_cached_key(|&[one, other]| (!claimed([one, other]), other - one, one));
    all.truncate(most);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Phases where the other CPU shares the core so much of the time, and strangers another.
    fn modelled(shares: usize, strangers: usize, pairs: usize) -> Vec<Phase> {
        let mut random = Rng::with_seed(5);
        let mut phase = |busy: bool| {
            let stranger = random.usize(..100) < strangers;
            Phase { busy, slowed: stranger || (busy && random.usize(..100) < shares) }
        };
        (0..pairs).flat_map(|_| [phase(true), phase(false)]).collect()
    }

    #[test]
    fn relations_are_found_beside_strangers_or_called_unclear() {
        let relation = |shares, strangers| relation_of(&modelled(shares, strangers, PHASES)).0;
        assert_eq!(relation(100, 0), CpuRelation::Siblings);
        assert_eq!(relation(100, 30), CpuRelation::Siblings);
        assert_eq!(relation(0, 0), CpuRelation::Apart);
        assert_eq!(relation(45, 0), CpuRelation::AtTimes);
        assert_eq!(relation(0, 100), CpuRelation::Unclear);
        assert_eq!(relation(100, 100), CpuRelation::Unclear);
        assert_eq!(relation_of(&[]).0, CpuRelation::Unclear);
    }

    #[test]
    fn the_share_has_its_uncertainty() {
        for share in [0, 45, 100] {
            let (_, found) = relation_of(&modelled(share, 10, 400));
            let truth = share as f64 / 100.0;
            assert!(found.low <= truth && truth <= found.high, "{truth}: {found:?}");
            assert!(found.high - found.low < 0.25, "{found:?}");
        }
    }

    #[test]
    fn claimed_siblings_come_first_and_neighbours_next() {
        let claimed = |[one, other]: [usize; 2]| one + 4 == other;
        let found = pairs_by(&[0, 1, 2, 3, 4, 5], 4, claimed);
        assert_eq!(found, [[0, 4], [1, 5], [0, 1], [1, 2]]);
        assert!(pairs_by(&[3], 4, claimed).is_empty());
    }

    #[test]
    fn what_the_kernel_claims_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let topology = dir.path().join("devices/system/cpu/cpu2/topology");
        std::fs::create_dir_all(&topology).unwrap();
        std::fs::write(topology.join("thread_siblings_list"), "2,6\n").unwrap();
        let sys = SysRoot(dir.path().to_owned());
        assert_eq!(claimed(&sys, [2, 6]), Some(true));
        assert_eq!(claimed(&sys, [2, 3]), Some(false));
        assert_eq!(claimed(&sys, [3, 2]), None);
    }

    #[test]
    fn two_cpus_of_this_machine_have_a_relation() {
        let cpus = crate::kernel::cpus::allowed_cpus();
        let Some(&[one, other]) = cpus.first_chunk::<2>() else {
            return huepage_testing::lacks("two_cpus_of_this_machine_have_a_relation", "one CPU");
        };
        let found = measure([one, other]).unwrap();
        assert!(
            found.share.low <= found.share.estimate && found.share.estimate <= found.share.high
        );
        assert_eq!(crate::kernel::cpus::allowed_cpus(), cpus);
        assert!(measure([one, rustix::thread::CpuSet::MAX_CPU]).is_none());
    }
}
