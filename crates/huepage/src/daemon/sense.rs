//! How groups are doing: a thread per group counts what its processes ask of the cache and miss, where the
//! processor does; or watches its busiest process through the cache (nothing of the process is touched);
//! or runs a command that prints a number, or counts how often a function is called. Readings are taken when there are any; nobody waits for them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::io::{Read as _, Seek as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_color::CacheGeometry;
use huepage_linux::color::line_timer::ResidencyError;
use huepage_linux::inject::launch::limited;
use huepage_linux::inject::launch::limited::CommandEnd;
use huepage_linux::kernel::pmu::PmuError;
use huepage_linux::kernel::pmu::calls::{Calls, Function};
use huepage_linux::kernel::pmu::counts::{CacheEvents, PmuCounts, ProcessCounts};
use huepage_linux::kernel::process_memory::thread_time;
use huepage_linux::kernel::users::Account;
use huepage_linux::sensors::residency::Watch;
use huepage_linux::services::pollute::SensorKind;
use huepage_policy::coloris::Reading;
use huepage_policy::coloris::forecast::Found;

use super::config::{ChosenSensor, DaemonConfig};
use super::group::{Metric, MetricDirection};
use super::mistake::bad;
use crate::exit::CmdError;

/// Lines that make an estimate.
const ENOUGH: u64 = 1000;
/// After so long a process is watched anew: it has other pages by then.
const WINDOW: Duration = Duration::from_secs(30);
/// How often an estimate is made.
const ESTIMATE: Duration = Duration::from_millis(500);
/// Longest sleep of a thread that is to notice its end.
const NAP: Duration = Duration::from_millis(50);
/// What of a command's output is read, in bytes.
const MOST_OUTPUT: u64 = 1 << 16;
/// Readings alike in a row after which looking is worth less.
const ALIKE: u32 = 10;
/// Miss rates that differ by less are alike, if chance does not say more.
const NEAR: f64 = 0.05;
/// The part of the budget that is used then. Every look holds up a service's requests for some 50 us, all that
/// wait; a few of those in a second leave 99 of 100 requests alone.
const CALM: f64 = 0.2;
/// After a failure that may pass.
const AGAIN: Duration = Duration::from_secs(10);

/// What a sensor and the daemon tell each other.
#[derive(Debug, Default)]
struct ReadingSlot {
    /// Who is to be watched.
    target: Option<i32>,
    /// Who is to be counted.
    members: Vec<i32>,
    /// CPU time that the sensor took.
    cost: Duration,
    /// What was read before this changed is of other colours.
    epoch: u64,
    /// The last reading that was not taken yet.
    fresh: Option<SensorReading>,
    trouble: Option<String>,
}

/// A reading, and what it was made of: lines looked at and found of each page; none of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct SensorReading {
    /// The reading.
    pub reading: Reading,
    /// Of each page.
    pub pages: Vec<Found>,
    /// Instructions in a second, where they are counted.
    pub progress: Option<f64>,
}

/// What tells of miss rates here, for all groups.
pub struct GroupSensors {
    sensing: ChosenSensor,
    counters: Option<CacheEvents>,
    cache_bytes: u64,
}

impl GroupSensors {
    /// What a file asks for, of what the machine has for a cache.
    ///
    /// # Errors
    /// When it asks for what there is not, or what there is sees another cache.
    pub fn choose(config: &DaemonConfig, cache: &CacheGeometry) -> Result<GroupSensors, CmdError> {
        let found = CacheEvents::here(cache.level, cache.last_level);
        let missing = found.as_ref().err().map(PmuError::reason);
        let sensing = config.sensing(cache.level, missing.as_deref()).map_err(bad)?;
        let counters = found.ok().filter(|_| sensing.kind == SensorKind::Pmu);
        Ok(GroupSensors { sensing, counters, cache_bytes: cache.size_bytes })
    }

    /// How it is called.
    pub fn name(&self) -> &'static str {
        self.sensing.kind.text()
    }

    /// For one group; watching may take so much of one CPU.
    pub fn sensor(&self, budget: f64) -> GroupSensor {
        match &self.counters {
            Some(events) => GroupSensor::counters(events.clone()),
            None => GroupSensor::residency(self.cache_bytes, budget),
        }
    }
}

impl fmt::Display for GroupSensors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match (&self.counters, self.sensing.because.as_str()) {
            (Some(events), _) => write!(f, " (counted {})", events.text()),
            (None, "") => Ok(()),
            (None, why) => write!(f, " (not pmu: {why})"),
        }
    }
}

/// Watches a group from a thread of its own, until it is dropped.
#[derive(Debug)]
pub struct GroupSensor {
    board: Arc<Mutex<ReadingSlot>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    name: &'static str,
}

impl GroupSensor {
    /// How a sensor is called that runs a command.
    pub const COMMAND: &'static str = "command";
    /// The same of one that counts calls.
    pub const CALLS: &'static str = "calls";

    /// Counts what all processes of a group ask of a cache, miss, and do meanwhile.
    pub fn counters(events: CacheEvents) -> GroupSensor {
        GroupSensor::start(SensorKind::Pmu.text(), move |board, stop| {
            let mut counting = Counting::new(events.clone());
            while !stop.load(Ordering::Relaxed) {
                nap(stop, ESTIMATE);
                let (members, epoch) = crew(board);
                match counting.read(&members, epoch) {
                    Ok(Some(sensed)) => post(board, epoch, Ok(sensed)),
                    Ok(None) => {}
                    Err(error) => post(board, epoch, Err(error.to_string())),
                }
            }
        })
    }

    /// Estimates the miss rate of processes in a cache of so many bytes, for at most so much of one CPU.
    pub fn residency(cache_bytes: u64, budget: f64) -> GroupSensor {
        GroupSensor::start(SensorKind::Residency.text(), move |board, stop| {
            let mut calm = (None, Calm::new(budget));
            while !stop.load(Ordering::Relaxed) {
                let aim @ (target, epoch) = aim(board);
                if calm.0 != Some(aim) {
                    calm = (Some(aim), Calm::new(budget));
                }
                let Some(pid) = target else {
                    std::thread::sleep(NAP);
                    continue;
                };
                let goes_on = || !stop.load(Ordering::Relaxed) && self::aim(board) == aim;
                let result = watch(pid, cache_bytes, &mut calm.1, &goes_on, &|sensed| {
                    post(board, epoch, Ok(sensed));
                });
                match result {
                    Err(ResidencyError::Gone(_)) => nap(stop, NAP),
                    Err(error) => {
                        post(board, epoch, Err(error.to_string()));
                        nap(stop, AGAIN);
                    }
                    Ok(()) => {}
                }
            }
        })
    }

    /// Runs a command again and again.
    pub fn metric(metric: Metric) -> GroupSensor {
        GroupSensor::start(GroupSensor::COMMAND, move |board, stop| {
            let every = Duration::from_secs_f64(metric.every);
            let mut before: Option<(Instant, f64)> = None;
            while !stop.load(Ordering::Relaxed) {
                let epoch = lock(board).epoch;
                let began = Instant::now();
                match run(&metric.command, metric.account.as_ref(), every, stop) {
                    Err(why) => post(board, epoch, Err(why)),
                    Ok(number) if metric.counter => {
                        let grown = before.map(|(at, old)| (number - old, at.elapsed()));
                        before = Some((Instant::now(), number));
                        if let Some((grown, time)) = grown {
                            post(board, epoch, Ok(worse(&metric, grown / time.as_secs_f64())));
                        }
                    }
                    Ok(number) => post(board, epoch, Ok(worse(&metric, number))),
                }
                nap(stop, every.saturating_sub(began.elapsed()));
            }
        })
    }

    /// Counts how often the processes of a group call a function in a second.
    pub fn calls(metric: Metric) -> GroupSensor {
        GroupSensor::start(GroupSensor::CALLS, move |board, stop| {
            let every = Duration::from_secs_f64(metric.every);
            let function = Function::parse(metric.calls.as_deref().unwrap_or_default());
            let mut counting = HashMap::new();
            let mut last = (Instant::now(), u64::MAX);
            while !stop.load(Ordering::Relaxed) {
                nap(stop, every);
                let (members, epoch) = crew(board);
                let grown = match &function {
                    Ok(function) => grown(&mut counting, &members, function),
                    Err(error) => Err(error.to_string()),
                };
                let (since, before) = std::mem::replace(&mut last, (Instant::now(), epoch));
                match grown {
                    Err(why) => post(board, epoch, Err(why)),
                    Ok(Some(calls)) if epoch == before => {
                        let rate = calls as f64 / since.elapsed().as_secs_f64();
                        post(board, epoch, Ok(worse(&metric, rate)));
                    }
                    Ok(_) => {}
                }
            }
        })
    }

    fn start(
        name: &'static str,
        work: impl Fn(&Mutex<ReadingSlot>, &AtomicBool) + Send + 'static,
    ) -> GroupSensor {
        let (board, stop) = (Arc::<Mutex<ReadingSlot>>::default(), Arc::<AtomicBool>::default());
        let (shown, stopped) = (Arc::clone(&board), Arc::clone(&stop));
        let thread = std::thread::spawn(move || work(&shown, &stopped));
        GroupSensor { board, stop, thread: Some(thread), name }
    }

    /// How it is called.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// CPU time that it took, without that of commands.
    pub fn cost(&self) -> Duration {
        lock(&self.board).cost
    }

    /// Watches this process from now on, or counts all of these.
    pub fn aim(&self, target: Option<i32>, members: &[i32]) {
        let mut board = lock(&self.board);
        board.target = target;
        if board.members != members {
            members.clone_into(&mut board.members);
        }
    }

    /// What is being read is of other colours from now on.
    pub fn start_over(&self) {
        let mut board = lock(&self.board);
        board.epoch += 1;
        board.fresh = None;
    }

    /// A reading that was not taken before.
    pub fn take(&self) -> Option<SensorReading> {
        lock(&self.board).fresh.take()
    }

    /// Why there is none.
    pub fn trouble(&self) -> Option<String> {
        lock(&self.board).trouble.clone()
    }
}

impl Drop for GroupSensor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock(board: &Mutex<ReadingSlot>) -> MutexGuard<'_, ReadingSlot> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who is to be watched, and in which epoch.
fn aim(board: &Mutex<ReadingSlot>) -> (Option<i32>, u64) {
    let board = lock(board);
    (board.target, board.epoch)
}

/// Who is to be counted, and in which epoch.
fn crew(board: &Mutex<ReadingSlot>) -> (Vec<i32>, u64) {
    let board = lock(board);
    (board.members.clone(), board.epoch)
}

/// Calls by these processes since this was asked last; none if that is not known of any. New ones count
/// from now on.
fn grown(
    counting: &mut HashMap<i32, (Calls, u64)>,
    members: &[i32],
    function: &Function,
) -> Result<Option<u64>, String> {
    counting.retain(|pid, _| members.contains(pid));
    let known = !counting.is_empty();
    let mut sum = 0;
    for (calls, before) in counting.values_mut() {
        let now = calls.read().map_err(|error| error.to_string())?;
        sum += now.saturating_sub(std::mem::replace(before, now));
    }
    for &pid in members {
        if let Entry::Vacant(entry) = counting.entry(pid) {
            match Calls::open(pid, function) {
                Ok(calls) => _ = entry.insert((calls, 0)),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error.to_string()),
            }
        }
    }
    Ok(known.then_some(sum))
}

/// Leaves a reading for whoever takes it; called by the thread that made it.
fn post(board: &Mutex<ReadingSlot>, epoch: u64, result: Result<SensorReading, String>) {
    let mut board = lock(board);
    board.cost = thread_time();
    if board.epoch != epoch {
        return;
    }
    match result {
        Ok(sensed) => {
            (board.fresh, board.trouble) = (Some(sensed), None);
        }
        Err(why) => board.trouble = Some(why),
    }
}

/// Counters of the processes of a group.
struct Counting {
    events: CacheEvents,
    /// Of each process its counters, and what they said last.
    of: HashMap<i32, (ProcessCounts, PmuCounts)>,
    /// When they were read last, and in which epoch.
    last: (Instant, u64),
}

impl Counting {
    fn new(events: CacheEvents) -> Counting {
        Counting { events, of: HashMap::new(), last: (Instant::now(), 0) }
    }

    /// What these processes did since the last time; nothing the first time, in a new epoch, and of too
    /// few requests, which go on to count.
    fn read(&mut self, members: &[i32], epoch: u64) -> Result<Option<SensorReading>, PmuError> {
        self.of.retain(|pid, _| members.contains(pid));
        let (since, before) = self.last;
        let (mut sum, mut now) = (PmuCounts::default(), HashMap::new());
        for (&pid, (counters, last)) in &mut self.of {
            let counts = counters.read()?;
            sum += counts.since(*last);
            now.insert(pid, counts);
        }
        for &pid in members.iter().filter(|pid| !now.contains_key(pid)) {
            match ProcessCounts::open(pid, &self.events) {
                Ok(counters) => _ = self.of.insert(pid, (counters, PmuCounts::default())),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        let found = sensed(sum, since.elapsed()).filter(|_| epoch == before);
        if found.is_some() || epoch != before || now.is_empty() {
            self.last = (Instant::now(), epoch);
            for (pid, counts) in now {
                self.of.entry(pid).and_modify(|own| own.1 = counts);
            }
        }
        Ok(found)
    }
}

/// What counts say of a group, if they are enough to say anything.
fn sensed(counts: PmuCounts, time: Duration) -> Option<SensorReading> {
    let value = counts.miss_rate().filter(|_| counts.references >= ENOUGH as f64)?;
    let margin = 2.0 * (value * (1.0 - value) / counts.references).sqrt();
    let progress = (!time.is_zero()).then(|| counts.instructions / time.as_secs_f64());
    Some(SensorReading { reading: Reading { value, margin }, pages: Vec::new(), progress })
}

fn nap(stop: &AtomicBool, time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time && !stop.load(Ordering::Relaxed) {
        std::thread::sleep(NAP.min(time.saturating_sub(began.elapsed())));
    }
}

/// How much of a CPU looking may take: less while it tells the same again and again.
#[derive(Clone, Copy, Debug)]
struct Calm {
    most: f64,
    first: Option<f64>,
    alike: u32,
}

impl Calm {
    fn new(most: f64) -> Calm {
        Calm { most, first: None, alike: 0 }
    }

    /// Held against the first of those alike, so that a slow change is none of them in the end.
    fn note(&mut self, reading: Reading) {
        let near = |first: f64| (first - reading.value).abs() <= reading.margin.max(NEAR);
        if self.first.is_some_and(near) {
            self.alike += 1;
        } else {
            (self.first, self.alike) = (Some(reading.value), 0);
        }
    }

    fn budget(&self) -> f64 {
        if self.alike >= ALIKE { self.most * CALM } else { self.most }
    }
}

/// Watches a process while it is to go on, and for a window at most.
fn watch(
    pid: i32,
    cache_bytes: u64,
    calm: &mut Calm,
    goes_on: &dyn Fn() -> bool,
    tell: &dyn Fn(SensorReading),
) -> Result<(), ResidencyError> {
    let mut watch = Watch::open(pid, cache_bytes, calm.budget())?;
    let (began, mut told, mut samples) = (Instant::now(), Instant::now(), 0);
    while goes_on() && began.elapsed() < WINDOW {
        watch.look()?;
        if told.elapsed() < ESTIMATE {
            continue;
        }
        told = Instant::now();
        let estimate = watch.estimate().filter(|e| e.samples >= ENOUGH && e.samples > samples);
        if let Some(estimate) = estimate {
            samples = estimate.samples;
            let reading = Reading { value: estimate.miss_rate, margin: estimate.margin };
            calm.note(reading);
            watch.set_budget(calm.budget());
            let pages =
                watch.sampled_pages().iter().map(|seat| (seat.samples, seat.found)).collect();
            tell(SensorReading { reading, pages, progress: None });
        }
    }
    Ok(())
}

/// As a number of which more is worse.
fn worse(metric: &Metric, number: f64) -> SensorReading {
    let value = if metric.better == MetricDirection::Higher { -number } else { number };
    SensorReading { reading: Reading { value, margin: 0.0 }, pages: Vec::new(), progress: None }
}

/// Runs a command as a user for at most so long; the last number that it prints.
fn run(
    command: &[String],
    account: Option<&Account>,
    limit: Duration,
    stop: &AtomicBool,
) -> Result<f64, String> {
    let name = command.first().map_or("", String::as_str);
    let mut program = Command::new(name);
    program.args(command.get(1..).unwrap_or_default());
    // A file, not a pipe: what the command leaves behind may hold it open as long as it likes.
    let mut output = tempfile::tempfile().map_err(|e| e.to_string())?;
    let shown = output.try_clone().map_err(|e| e.to_string())?;
    program.stdin(Stdio::null()).stdout(shown).stderr(Stdio::null());
    limited::limit(&mut program, account, limit.as_secs() + 1);
    let mut child = program.spawn().map_err(|e| format!("{name} cannot be run: {e}"))?;
    let goes_on = || !stop.load(Ordering::Relaxed);
    let status = match limited::wait(&mut child, limit, goes_on) {
        Ok(CommandEnd::Exited(status)) => status,
        Ok(CommandEnd::Killed) => {
            return Err(format!("{name} did not end within {} s", limit.as_secs_f64()));
        }
        Err(e) => return Err(format!("{name} cannot be waited for: {e}")),
    };
    if !status.success() {
        return Err(format!("{name} failed ({status})"));
    }
    let mut text = String::new();
    output.rewind().map_err(|e| e.to_string())?;
    if output.take(MOST_OUTPUT).read_to_string(&mut text).is_err() {
        return Err(format!("what {name} printed is no text"));
    }
    let last = text.split_whitespace().rev().find_map(|word| word.parse::<f64>().ok());
    last.filter(|n| n.is_finite()).ok_or_else(|| format!("{name} printed no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_is_rarer_while_it_tells_the_same_and_not_when_that_drifts() {
        let mut calm = Calm::new(0.005);
        let budget = |calm: &mut Calm, value: f64| {
            calm.note(Reading { value, margin: 0.01 });
            calm.budget()
        };
        let steady: Vec<f64> = (0..30).map(|_| budget(&mut calm, 0.4)).collect();
        assert_eq!((steady[9], steady[10], steady[29]), (0.005, 0.001, 0.001));
        assert_eq!(budget(&mut calm, 0.47), 0.005, "it changed");
        // Each is near the one before.
        let drifting = (0..40).map(|at| budget(&mut calm, 0.47 + 0.01 * f64::from(at)));
        assert!(drifting.into_iter().all(|budget| budget > 0.001));
    }

    fn metric(script: &str, better: MetricDirection, counter: bool) -> Metric {
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let (calls, account) = (None, None);
        Metric { command, calls, low: 1.0, high: 2.0, better, every: 0.1, counter, account }
    }

    fn first(sensor: &GroupSensor) -> Option<Reading> {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            if let Some(sensed) = sensor.take() {
                return Some(sensed.reading);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    #[test]
    fn the_last_number_counts_and_is_turned_the_right_way() {
        let sensor = GroupSensor::metric(metric(
            "echo p99 3 ms; echo p99 4.5 ms",
            MetricDirection::Lower,
            false,
        ));
        assert_eq!(first(&sensor).map(|r| r.value), Some(4.5));
        let sensor = GroupSensor::metric(metric("echo 7", MetricDirection::Higher, false));
        assert_eq!(first(&sensor).map(|r| r.value), Some(-7.0));
    }

    #[test]
    fn a_counter_is_taken_by_its_growth() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("n").display().to_string();
        let script = format!("echo x >> {file}; wc -l < {file}");
        let sensor = GroupSensor::metric(metric(&script, MetricDirection::Higher, true));
        let rate = -first(&sensor).unwrap().value;
        // Ten times a second, but on a busy machine two may come nearer to each other.
        assert!(rate > 0.0 && rate <= 40.0, "{rate} lines a second");
    }

    #[test]
    fn calls_are_a_rate() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.lines().find_map(|line| {
            line.find('/').map(|at| &line[at..]).filter(|p| p.contains("/libc.so"))
        });
        let Some(libc) = libc else {
            return huepage_testing::skip("calls_are_a_rate", "no libc.so is mapped");
        };
        let calls = Some(format!("{libc}:getpid"));
        let metric = Metric { calls, ..metric("", MetricDirection::Higher, false) };
        let sensor = GroupSensor::calls(metric);
        sensor.aim(None, &[std::process::id().cast_signed()]);
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(20) {
            // Each asks libc.
            let pids: Vec<u32> = (0..100).map(|_| std::process::id()).collect();
            assert!(pids.windows(2).all(|two| two[0] == two[1]));
            if let Some(why) = sensor.trouble() {
                return huepage_testing::skip("calls_are_a_rate", why);
            }
            if let Some(sensed) = sensor.take() {
                assert!(sensed.reading.value < -100.0, "{sensed:?}");
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("nothing was read");
    }

    #[test]
    fn what_goes_wrong_is_said() {
        let never = AtomicBool::new(false);
        let run_for = |limit: Duration, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
            run(&words, None, limit, &never).unwrap_err()
        };
        // Where CPUs are short, what ends at once takes its time.
        let run = |words: &[&str]| run_for(Duration::from_secs(60), words);
        for (words, said) in [
            (&["/no/such/program"][..], "cannot be run"),
            (&["sh", "-c", "exit 3"], "failed"),
            (&["echo", "none"], "printed no number"),
        ] {
            let why = run(words);
            assert!(why.contains(said), "{words:?}: {why}");
        }
        assert!(run_for(Duration::from_millis(300), &["sleep", "50"]).contains("did not end"));
    }

    #[test]
    fn counts_are_a_reading_once_there_are_enough() {
        let counts = |references| PmuCounts {
            instructions: 3e9,
            cycles: 6e9,
            references,
            misses: references / 4.0,
        };
        assert!(sensed(counts(900.0), Duration::from_secs(2)).is_none());
        let found = sensed(counts(10_000.0), Duration::from_secs(2)).unwrap();
        assert_eq!((found.reading.value, found.progress), (0.25, Some(1.5e9)));
        assert!((0.008..0.009).contains(&found.reading.margin), "{found:?}");
        assert!(found.pages.is_empty());
    }

    /// Of what every kernel counts, in this process: page faults for misses, time for instructions.
    #[test]
    fn groups_are_counted_and_a_new_epoch_begins_anew() {
        let mut counting = Counting::new(CacheEvents::of_the_kernel());
        let own = std::process::id().cast_signed();
        match counting.read(&[own, i32::MAX], 0) {
            Err(PmuError::Denied(_)) => {
                return huepage_testing::skip("groups_are_counted", "counters take root");
            }
            first => assert_eq!(first.unwrap(), None, "nothing was counted yet"),
        }
        // A huge page would be one fault; what is held is not touched for the first time again.
        rustix::thread::disable_transparent_huge_pages(true).unwrap();
        let touch = || (0..16).map(|_| vec![1_u8; 1 << 20]).collect::<Vec<_>>();
        let mut held = touch();
        let sensed = counting.read(&[own], 0).unwrap().expect("a thousand faults and more");
        assert_eq!((sensed.reading.value, sensed.reading.margin), (1.0, 0.0));
        assert!(sensed.progress > Some(0.0) && sensed.pages.is_empty(), "{sensed:?}");
        held.extend(touch());
        assert_eq!(counting.read(&[own], 1).unwrap(), None, "of other colours");
        assert_eq!(counting.read(&[], 1).unwrap(), None);
        assert!(counting.of.is_empty() && held.len() == 32);
    }

    #[test]
    fn readings_of_before_do_not_count() {
        let board = Mutex::new(ReadingSlot { epoch: 3, ..ReadingSlot::default() });
        let sensed = || {
            let reading = Reading { value: 1.0, margin: 0.0 };
            SensorReading { reading, pages: Vec::new(), progress: None }
        };
        post(&board, 2, Ok(sensed()));
        assert!(lock(&board).fresh.is_none());
        post(&board, 3, Err("because".to_owned()));
        assert_eq!(lock(&board).trouble.as_deref(), Some("because"));
        post(&board, 3, Ok(sensed()));
        assert!(lock(&board).fresh.is_some() && lock(&board).trouble.is_none());
    }
}
