//! The stress target's frame: what all modes share.
//!
//! A mode is a set of workers (threads) that change memory and check every bit of it against
//! what it must hold. What they find goes into tallies, one per *site* (a kind of check), and
//! the whole is right only if no tally holds a wrong word and no worker stood still. Nothing
//! here knows that huepage exists: the target is an ordinary program.
//!
//! A check that cannot fail is worth nothing. So each site can be sabotaged by name: one byte
//! of the memory it is about to check is flipped, and the run must then end as wrong.

pub mod answer;
mod calls;
pub mod churn;
pub mod churn_acts;
pub mod forkers;
pub mod kernel;
pub mod odirect;
mod runtime_calls;
pub mod runtimes;
pub mod threads;
pub mod writers;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::sys;

/// What a run of the target is asked to do.
#[derive(clap::Args, Clone, Debug)]
pub struct TorturePlan {
    /// How long to go on [default: until SIGTERM]
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Memory for each mode, in MiB
    #[arg(long, default_value_t = 16, value_parser = Ranged::new().range(4..=65535))]
    pub mib: usize,
    /// Threads for each mode
    #[arg(long, default_value_t = 2, value_parser = Ranged::new().range(1..=64))]
    pub threads: usize,
    /// Directory for files [default: the system's temporary directory]
    #[arg(long, default_value_os_t = std::env::temp_dir(), hide_default_value = true)]
    pub dir: PathBuf,
    /// Flip one byte before this check, which must then fail
    #[arg(long, value_name = "SITE")]
    pub sabotage: Option<String>,
    /// Seed of all random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Seconds without a step after which a thread counts as hanging
    #[arg(long, default_value_t = 60.0)]
    pub hang_after: f64,
}

/// Numbers between bounds.
type Ranged = clap::builder::RangedU64ValueParser<usize>;

/// Checks made and words found wrong at one site.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct CheckTally {
    /// Words (or outcomes) checked.
    pub checks: u64,
    /// Of these, wrong.
    pub wrong: u64,
}

/// The result of a run, as printed in one line of JSON.
#[derive(Debug, Serialize)]
pub struct TortureSummary {
    /// The mode.
    pub mode: String,
    /// How long it ran.
    pub seconds: f64,
    /// Words checked in all.
    pub checks: u64,
    /// Words (or outcomes) that were wrong.
    pub wrong: u64,
    /// The worker that stood still, if one did.
    pub hung: Option<String>,
    /// Each site.
    pub sites: BTreeMap<&'static str, CheckTally>,
    /// Times the kernel would not register memory with a userfaultfd of the program's own (`EBUSY`).
    pub busy: u64,
    /// Times the kernel would not move memory to another address (`EFAULT`).
    pub remaps_refused: u64,
    /// Checks that this machine cannot make, and why.
    pub skipped: Vec<String>,
}

impl TortureSummary {
    /// 0 when everything was right, 1 for wrong memory, 3 for a hang.
    pub fn status(&self) -> u8 {
        match (&self.hung, self.wrong) {
            (Some(_), _) => 3,
            (None, 0) => 0,
            (None, _) => 1,
        }
    }
}

/// What the workers of a run share.
#[derive(Debug)]
pub struct Ctx {
    /// The plan.
    pub plan: TorturePlan,
    started: Instant,
    stop: AtomicBool,
    struck: AtomicBool,
    complaints: AtomicU64,
    busy: AtomicU64,
    tallies: Mutex<BTreeMap<&'static str, CheckTally>>,
    skipped: Mutex<Vec<String>>,
    hearts: Mutex<Vec<(String, &'static AtomicU64)>>,
}

/// A worker's sign of life; a worker that has ended must drop it.
#[derive(Debug)]
pub struct Heart(&'static AtomicU64);

impl Heart {
    /// Says that a step was made.
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How long a run goes on undisturbed before its sabotage.
const CALM: Duration = Duration::from_millis(200);
/// Wrong words described on standard error before the rest is only counted.
const COMPLAINTS: u64 = 20;

impl Ctx {
    /// The state of a fresh run.
    pub fn new(plan: TorturePlan) -> Ctx {
        Ctx {
            plan,
            started: Instant::now(),
            stop: AtomicBool::new(false),
            struck: AtomicBool::new(false),
            complaints: AtomicU64::new(0),
            busy: AtomicU64::new(0),
            tallies: Mutex::default(),
            skipped: Mutex::default(),
            hearts: Mutex::default(),
        }
    }

    /// Whether the workers should end.
    pub fn done(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Registers a worker with the watchdog.
    pub fn heart(&self, name: impl Into<String>) -> Heart {
        let beats: &'static AtomicU64 = Box::leak(Box::new(AtomicU64::new(0)));
        lock(&self.hearts).push((name.into(), beats));
        Heart(beats)
    }

    /// Whether the memory of `site` is to be damaged now: true once, if at all.
    pub fn strikes(&self, site: &str) -> bool {
        self.plan.sabotage.as_deref() == Some(site)
            && self.started.elapsed() > CALM
            && !self.struck.swap(true, Ordering::Relaxed)
    }

    /// Damages one byte of `words` if `site` is to be sabotaged now.
    pub fn sabotage(&self, site: &str, words: &[AtomicU64]) {
        if self.strikes(site) {
            words[words.len() / 2].fetch_xor(0x10, Ordering::Relaxed);
        }
    }

    /// Adds to a tally.
    pub fn record(&self, site: &'static str, checks: u64, wrong: u64) {
        let mut tallies = lock(&self.tallies);
        let tally = tallies.entry(site).or_default();
        tally.checks += checks;
        tally.wrong += wrong;
    }

    /// Checks one value.
    pub fn expect(&self, site: &'static str, expected: u64, got: u64) {
        if expected != got {
            self.complain(site, &format!("expected {expected:#x}, found {got:#x}"));
        }
        self.record(site, 1, u64::from(expected != got));
    }

    /// Checks all words of a slice against a function of their place in it.
    pub fn expect_words(
        &self,
        site: &'static str,
        words: &[AtomicU64],
        expected: impl Fn(u64) -> u64,
    ) {
        let mut wrong = 0;
        for (place, word) in (0..).zip(words) {
            let (want, got) = (expected(place), word.load(Ordering::Relaxed));
            if want != got {
                wrong += 1;
                let at = std::ptr::from_ref(word);
                self.complain(site, &format!("{at:p}: expected {want:#x}, found {got:#x}"));
            }
        }
        self.record(site, words.len() as u64, wrong);
    }

    /// Checks that a system call gave what it must.
    pub fn expect_ok<T>(&self, site: &'static str, result: std::io::Result<T>) -> Option<T> {
        match result {
            Ok(value) => {
                self.record(site, 1, 0);
                Some(value)
            }
            Err(error) => {
                self.complain(site, &format!("failed: {error}"));
                self.record(site, 1, 1);
                None
            }
        }
    }

    /// Describes something wrong on standard error, unless there was plenty already.
    pub fn complain(&self, site: &str, what: &str) {
        if self.complaints.fetch_add(1, Ordering::Relaxed) < COMPLAINTS {
            eprintln!("huepage-torture: WRONG {site}: {what}");
        }
    }

    /// Counts that memory could not be registered.
    pub fn busy(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    /// Says loudly, once per reason, that something cannot be checked here.
    pub fn skip(&self, what: &str) {
        let mut skipped = lock(&self.skipped);
        if !skipped.iter().any(|s| s == what) {
            eprintln!("huepage-torture: SKIPPED {what}");
            skipped.push(what.to_owned());
        }
    }

    fn sabotage_found(&self) -> bool {
        self.struck.load(Ordering::Relaxed) && lock(&self.tallies).values().any(|t| t.wrong > 0)
    }

    fn time_is_up(&self) -> bool {
        sys::stop_asked()
            || self.sabotage_found()
            || self.plan.seconds.is_some_and(|s| self.started.elapsed().as_secs_f64() >= s)
    }

    /// Waits until the time is up or a worker hangs, whose name it gives back.
    fn watch(&self, workers_alive: impl Fn() -> bool) -> Option<String> {
        let mut seen: BTreeMap<usize, (u64, Instant)> = BTreeMap::new();
        while workers_alive() {
            std::thread::sleep(Duration::from_millis(50));
            if self.time_is_up() {
                self.stop.store(true, Ordering::Relaxed);
            }
            for (index, (name, beats)) in lock(&self.hearts).iter().enumerate() {
                let now = beats.load(Ordering::Relaxed);
                let entry = seen.entry(index).or_insert((now, Instant::now()));
                if entry.0 != now {
                    *entry = (now, Instant::now());
                }
                let still = entry.1.elapsed().as_secs_f64();
                if now != u64::MAX && still > self.plan.hang_after {
                    return Some(name.clone());
                }
            }
        }
        None
    }

    fn summary(&self, mode: &str, hung: Option<String>) -> TortureSummary {
        let sites = lock(&self.tallies).clone();
        TortureSummary {
            mode: mode.to_owned(),
            seconds: self.started.elapsed().as_secs_f64(),
            checks: sites.values().map(|t| t.checks).sum(),
            wrong: sites.values().map(|t| t.wrong).sum(),
            hung,
            sites,
            busy: self.busy.load(Ordering::Relaxed),
            remaps_refused: crate::sys::remaps_refused(),
            skipped: lock(&self.skipped).clone(),
        }
    }
}

/// A worker: runs until [`Ctx::done`].
pub type TortureWorker<'a> = Box<dyn FnOnce(&Ctx) + Send + 'a>;

/// The modes with workers, and every site each of them checks.
pub const MODES: [(&str, &[&str]); 7] = [
    ("writers", &writers::SITES),
    ("forkers", &forkers::SITES),
    ("odirect", &odirect::SITES),
    ("churn", &churn::SITES),
    ("threads", &threads::SITES),
    ("kernel", &kernel::SITES),
    ("runtimes", &runtimes::SITES),
];

fn workers(mode: &str, plan: &TorturePlan) -> Vec<TortureWorker<'static>> {
    match mode {
        "writers" => writers::workers(plan),
        "forkers" => forkers::workers(plan),
        "odirect" => odirect::workers(plan),
        "churn" => churn::workers(plan),
        "threads" => threads::workers(plan),
        "kernel" => kernel::workers(plan),
        "runtimes" => runtimes::workers(plan),
        _ => MODES.iter().flat_map(|(mode, _)| workers(mode, plan)).collect(),
    }
}

/// Runs one mode, or all of them together for any other name, and sums up.
///
/// A hang leaves its threads behind: the caller should exit at once.
pub fn run(mode: &str, plan: TorturePlan) -> TortureSummary {
    let ctx: &'static Ctx = Box::leak(Box::new(Ctx::new(plan)));
    let threads: Vec<_> = workers(mode, &ctx.plan)
        .into_iter()
        .map(|worker| std::thread::spawn(move || worker(ctx)))
        .collect();
    let hung = ctx.watch(|| threads.iter().any(|t| !t.is_finished()));
    if hung.is_none() {
        for thread in threads {
            ctx.record("worker", 1, u64::from(thread.join().is_err()));
        }
    }
    ctx.summary(mode, hung)
}
