//! Watches a program by the accessed bits of its pages, and who runs beside it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use huepage_color::{CacheLevel, LevelChoice, PAGE_BYTES};
use huepage_linux::color::doctor::neighbors::{self, Neighbors};
use huepage_linux::color::doctor::siblings::{self, CpuRelation, Pair};
use huepage_linux::color::probe::ProbeParams;
use huepage_linux::kernel::cpus::allowed_cpus;
use huepage_linux::kernel::machine::{CpuList, FeatureId, Features, HostMachine, Roots};
use huepage_linux::kernel::process_memory::SUPERPAGE_BYTES;
use huepage_linux::kernel::procfs::{ProcError, ProcRoot};
use huepage_linux::sensors::company::{Company, Sharer};
use huepage_linux::sensors::in_use::{PageUse, page_use};
use huepage_linux::sensors::tlb::SensorError;
use huepage_linux::sensors::tlb::recorder::{TouchRecorder, What};
use huepage_linux::services::superpages::replayed::Replay;
use huepage_linux::services::superpages::usual_policy;
use huepage_policy::recording::touches::{ResidentBlock, TouchStep};
use huepage_policy::suitability::{CacheSeen, ProgramSeen};
use serde::Serialize;

use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::signals::Interrupt;
use crate::steps::Steps;

/// What the sensor may take of a CPU while it watches.
const SENSOR_CPU: f64 = 0.03;
/// How often it is looked how pages are used, and how often who runs beside.
const PAGE_USES: u32 = 5;
const COMPANY_INTERVAL: Duration = Duration::from_millis(100);
/// How long somebody outside of this system is listened for, and pairs of CPUs that are measured at most.
const LISTENED: Duration = Duration::from_millis(250);
const MOST_PAIRS: usize = 10;
/// How long a process may be between two programs.
const BECOMES_ANOTHER: Duration = Duration::from_millis(2);
/// Memory that superpages may add, as by default.
const MEMORY_OVERHEAD: f64 = 0.04;

/// All that was seen.
#[derive(Debug, Serialize)]
pub struct Observed {
    pub pid: i32,
    pub name: String,
    /// Seconds that it was watched.
    pub seconds: f64,
    /// Whether it ended meanwhile.
    pub ended: bool,
    pub program: ProgramSeen,
    pub cache: CacheSeen,
    /// CPUs on which it was seen.
    pub cpus: Vec<u32>,
    /// Who shares its L2, those that use most first.
    pub sharers: Vec<Sharer>,
    /// Which CPUs share a core, as measured.
    pub siblings: Vec<Pair>,
    /// What was felt on its CPU of others, those outside of this system included.
    pub neighbors: Option<Neighbors>,
    pub last_level: Option<LastLevel>,
    /// Why its pages could not be looked at.
    pub unseen: Option<String>,
}

/// The last-level cache.
#[derive(Clone, Debug, Serialize)]
pub struct LastLevel {
    pub level: CacheLevel,
    pub size_bytes: u64,
    /// CPUs of this system that share it with the program.
    pub shared_by: CpuList,
    /// Whether the hardware can divide it, through resctrl.
    pub divided_by_hardware: bool,
    /// Whether guests of the same host may use it.
    pub guest: bool,
}

/// What is known of the machine before the program starts.
pub struct Measured {
    machine: HostMachine,
    siblings: Vec<Pair>,
    steps: Steps,
    time: Duration,
}

impl Measured {
    /// Measures which CPUs share a core, some tenths of a second for each pair; the program is to be watched for so
    /// long afterwards.
    pub fn now(seconds: f64) -> Result<Measured, CmdError> {
        let machine = HostMachine::read().map_err(internal)?;
        let time = Duration::try_from_secs_f64(seconds).map_err(internal)?;
        let pairs = siblings::pairs(&allowed_cpus(), MOST_PAIRS);
        let steps = Steps::new(time + LISTENED * (2 + u32::try_from(pairs.len()).unwrap_or(8)));
        steps.say("which CPUs share a core");
        let siblings = pairs.into_iter().filter_map(siblings::measure).collect();
        Ok(Measured { machine, siblings, steps, time })
    }
}

/// Watches a process, until it ends or a signal comes.
pub fn watch(pid: i32, measured: Measured, interrupt: &Interrupt) -> Result<Observed, CmdError> {
    let Measured { machine, siblings, steps, time: planned } = measured;
    let root = ProcRoot::default();
    let (name, cache) = (root.comm(pid).map_err(gone)?, cache(&machine)?);
    steps.say("the program");
    let company = Company::new(root.clone(), pid, sharing(&machine, &siblings));
    let mut beside = Beside { company, pid, root, ran: [0; 2], ended: false };
    let wanted = || interrupt.signal().is_none();
    let began = Instant::now();
    let mut sensed = Sensed::of(pid, planned, || beside.watch(planned, wanted, &steps));
    let took = began.elapsed().as_secs_f64();
    steps.say("who else is there");
    let (cpus, sharers) = (beside.company.cpus().clone(), beside.company.sharers());
    let first = cpus.first().copied();
    let others = sharers.iter().map(|one| one.cpu_ns).sum::<u64>() as f64 / 1e9 / took;
    Ok(Observed {
        program: ProgramSeen { cpu: beside.cpu_seconds() / took, ..sensed.program() },
        cache: CacheSeen { others, ..cache },
        last_level: first.and_then(|cpu| last_level(&machine, cpu)),
        neighbors: first.and_then(|cpu| neighbors::watch(usize::try_from(cpu).ok()?, LISTENED)),
        cpus: cpus.into_iter().collect(),
        unseen: sensed.touches.as_ref().err().map(ToString::to_string),
        ended: beside.ended,
        seconds: took,
        pid,
        name,
        sharers,
        siblings,
    })
}

fn gone(error: ProcError) -> CmdError {
    let code = if error.is_gone() { ExitCode::NoSuchProcess } else { ExitCode::Internal };
    CmdError::new(code, error)
}

/// The program's own time, and that of those who run beside it.
struct Beside {
    company: Company,
    root: ProcRoot,
    pid: i32,
    /// CPU time that it had used first and last, in nanoseconds.
    ran: [u64; 2],
    ended: bool,
}

impl Beside {
    /// Looks again and again, until the time is over, the program has ended, or nobody wants it any more.
    fn watch(&mut self, time: Duration, wanted: impl Fn() -> bool, steps: &Steps) {
        let began = Instant::now();
        self.ran = [self.root.run_time(self.pid).unwrap_or(0); 2];
        while began.elapsed() < time && wanted() && !self.ended {
            let dead = self.root.stat(self.pid).map_or(true, |stat| stat.is_dead());
            self.ended = self.company.look().is_err() || dead;
            self.ran[1] = self.root.run_time(self.pid).unwrap_or(self.ran[1]);
            thread::sleep(COMPANY_INTERVAL.min(time));
            steps.show();
        }
    }

    fn cpu_seconds(&self) -> f64 {
        self.ran[1].saturating_sub(self.ran[0]) as f64 / 1e9
    }
}

/// What page tables told, or why they did not.
struct Sensed {
    touches: Result<TouchesSeen, SensorError>,
    resident_bytes: u64,
}

impl Sensed {
    /// Reads page tables until `beside` returns.
    fn of(pid: i32, time: Duration, beside: impl FnOnce()) -> Sensed {
        let (over, before) = (AtomicBool::new(false), resident_bytes(pid));
        let (touches, within) = thread::scope(|scope| {
            let touches = scope.spawn(|| touches(pid, time, &over));
            beside();
            let within = resident_bytes(pid);
            over.store(true, Ordering::Relaxed);
            let touches = touches.join();
            (touches.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), within)
        });
        Sensed { touches, resident_bytes: within.max(before) }
    }

    fn program(&mut self) -> ProgramSeen {
        let resident_bytes = self.resident_bytes;
        let Ok(seen) = &mut self.touches else {
            return ProgramSeen { resident_bytes, ..ProgramSeen::default() };
        };
        let used = seen.use_of_pages();
        let huge = seen.blocks.values().filter(|block| block.huge).count() as u64;
        ProgramSeen {
            cpu: 0.0,
            resident_bytes,
            huge_bytes: huge * SUPERPAGE_BYTES,
            reused_bytes: used.map(|(reused, _)| reused),
            streamed_bytes_per_second: used.map(|(_, streamed)| streamed),
            tlb_share: seen.tlb_share,
            blocks: Some(seen.blocks.len() as u64),
            superpages: seen.superpages,
        }
    }
}

/// Resident memory; none of a process that has ended.
fn resident_bytes(pid: i32) -> u64 {
    ProcRoot::default().statm(pid).map_or(0, |statm| statm.resident * PAGE_BYTES)
}

/// What page tables told.
#[derive(Debug, Default)]
struct TouchesSeen {
    tlb_share: Option<f64>,
    superpages: u64,
    /// What is resident, by address divided by 2 MiB.
    blocks: BTreeMap<u64, ResidentBlock>,
    uses: Vec<PageUse>,
    /// CPU seconds of the program at each look.
    ran: Vec<f64>,
}

impl TouchesSeen {
    fn note(&mut self, step: &TouchStep) {
        match step {
            TouchStep::Survey(survey) => {
                self.blocks.extend(survey.blocks.iter().map(|block| (block.at, *block)));
                survey.gone.iter().for_each(|at| _ = self.blocks.remove(at));
            }
            TouchStep::Look(look) => self.ran.push(look.cpu),
            TouchStep::Samples(_) => {}
        }
    }

    /// Bytes in pages that it uses again, and bytes in others that it passes through in a second of its CPU time:
    /// of the look with the median of the first.
    fn use_of_pages(&mut self) -> Option<(u64, u64)> {
        self.uses.sort_by_key(|one| one.reused_pages);
        let one = self.uses.get(self.uses.len() / 2).filter(|one| !one.cpu.is_zero())?;
        let passed = one.touched_pages.saturating_sub(one.reused_pages) * PAGE_BYTES;
        let a_second = u128::from(passed) * 1_000_000_000 / one.cpu.as_nanos();
        Some((one.reused_pages * PAGE_BYTES, u64::try_from(a_second).unwrap_or(u64::MAX)))
    }

    /// CPU seconds of the program between the first look and the last.
    fn used(&self) -> Option<f64> {
        let used = self.ran.last()? - self.ran.first()?;
        (used > 0.0).then_some(used)
    }
}

/// Reads page tables until it is over or the process has ended. A wrapper becomes the program that is meant, whose
/// page tables are others: what was seen before does not count.
fn touches(pid: i32, time: Duration, over: &AtomicBool) -> Result<TouchesSeen, SensorError> {
    let (began, root) = (Instant::now(), ProcRoot::default());
    let mut seen = touches_of_program(pid, (began, time), over)?;
    while !over.load(Ordering::Relaxed) && root.stat(pid).is_ok_and(|stat| !stat.is_dead()) {
        match touches_of_program(pid, (began, time), over) {
            Ok(later) => seen = later,
            Err(error) if error.is_gone() => thread::sleep(BECOMES_ANOTHER),
            Err(error) => return Err(error),
        }
    }
    Ok(seen)
}

/// Reads which pages are touched, and in between how they are used, until it is over, or the process has ended or
/// executes another program.
fn touches_of_program(
    pid: i32,
    (began, time): (Instant, Duration),
    over: &AtomicBool,
) -> Result<TouchesSeen, SensorError> {
    let mut recorder = TouchRecorder::open(pid, What::AccessedBits, SENSOR_CPU)?;
    let policy = usual_policy();
    let mut replays =
        [None, Some(&policy)].map(|policy| Replay::new(recorder.head(), policy, MEMORY_OVERHEAD));
    let (mut seen, mut asked) = (TouchesSeen::default(), 0);
    while !over.load(Ordering::Relaxed) {
        let steps = match recorder.steps() {
            Ok(steps) => steps,
            Err(error) if error.is_gone() => break,
            Err(error) => return Err(error),
        };
        for step in &steps {
            replays.iter_mut().for_each(|replay| replay.step(step));
            seen.note(step);
        }
        if began.elapsed() >= time * asked / PAGE_USES {
            // Both mark pages as not used, so they take turns.
            seen.uses.extend(page_use(pid).ok().flatten());
            asked += 1;
        }
    }
    let [without, with] = replays.map(|replay| replay.outcome());
    seen.tlb_share = seen.used().map(|used| (without.tlb_seconds / used).min(1.0));
    seen.superpages = with.promotions;
    Ok(seen)
}

/// The L2, with nobody else in it yet.
fn cache(machine: &HostMachine) -> Result<CacheSeen, CmdError> {
    let l2 = machine.cache(LevelChoice::Level(CacheLevel::L2));
    let l2 = l2.map_err(|e| CmdError::new(ExitCode::Kernel, format!("{e}; see `huepage info`")))?;
    let params = ProbeParams::for_cache(&l2.geometry).map_err(internal)?;
    Ok(CacheSeen { bytes: l2.geometry.size_bytes, colors: params.colors, others: 0.0 })
}

/// CPUs that share an L2: by what the kernel says, but for those that were measured.
fn sharing(machine: &HostMachine, siblings: &[Pair]) -> Vec<CpuList> {
    let measured = siblings
        .iter()
        .filter(|pair| matches!(pair.relation, CpuRelation::Siblings | CpuRelation::AtTimes));
    let pair = |pair: &Pair| {
        CpuList(pair.cpus.iter().filter_map(|&cpu| u32::try_from(cpu).ok()).collect())
    };
    let claimed = machine.cache(LevelChoice::Level(CacheLevel::L2)).map(|l2| l2.instances.clone());
    measured.map(pair).chain(claimed.unwrap_or_default()).collect()
}

/// The last level behind a CPU, if there is one.
fn last_level(machine: &HostMachine, cpu: u32) -> Option<LastLevel> {
    let cache = machine.cache(LevelChoice::Llc).ok()?;
    let shared = cache.instances.iter().find(|list| list.0.contains(&cpu)).cloned();
    Some(LastLevel {
        level: cache.geometry.level,
        size_bytes: cache.geometry.size_bytes,
        shared_by: shared.unwrap_or_default(),
        divided_by_hardware: Features::probe(&Roots::default()).has(FeatureId::Resctrl),
        guest: machine.hypervisor.is_some(),
    })
}
