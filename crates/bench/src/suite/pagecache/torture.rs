//! Files that are written while `huepage warm` places them, with `kill -9` of huepage at random
//! moments: in the end every file must be as its writer made it, in the page cache and on the
//! disk. On tmpfs, `huepage warm --into` copies them meanwhile, and the last copies, made when
//! nobody writes any more, must be right as well.
//!
//! A round is one act of a writer. The writers go on until there were as many rounds as asked
//! for, and for every twenty of them a start of huepage.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;

use super::{Bench, Suite, progress};
use crate::harness::SuiteFigures;
use crate::launch::{Captured, kill_tree};
use crate::mix::Rng;
use crate::pagecache::files;
use crate::pagecache::keeper::Keeper;
use crate::verdict::SuiteVerdict;

/// Rounds for which huepage is started once.
const PER_START: u64 = 20;
/// So many times as many starts as are wanted without one that was killed are no chance any more.
const UNLUCKY: u64 = 20;
/// A start that takes longer hangs.
const LONGEST: Duration = Duration::from_secs(120);
/// Failures of huepage that are told about.
const TOLD: usize = 5;

/// What to do, and where.
#[derive(Args, Clone, Debug)]
pub struct WarmTorture {
    /// Rounds, in each directory
    #[arg(long, default_value_t = 10_000)]
    pub rounds: u64,
    /// Directory to work in; may be repeated [default: below --dir, and /dev/shm]
    #[arg(long, value_name = "DIR")]
    pub on: Vec<PathBuf>,
    /// Writers at once
    #[arg(long, default_value_t = 3)]
    pub writers: usize,
    /// How colours are known
    #[arg(long, default_value = "pfn")]
    pub colors_from: String,
    /// Seed of everything
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Damage a file in the end: the suite must then fail
    #[arg(long)]
    pub sabotage: bool,
}

/// What huepage's starts came to.
#[derive(Debug, Default)]
struct Starts {
    killed: u64,
    ended: u64,
    placed: u64,
    /// Pages left where they were, by reason.
    refused: BTreeMap<String, u64>,
    trouble: Vec<String>,
}

/// What writers and starter share.
struct Shared {
    rounds: AtomicU64,
    starts: AtomicU64,
    wanted: u64,
    /// Whether a start was killed: which are, and whether they end before, is chance.
    killed: AtomicBool,
    failed: AtomicBool,
}

impl Shared {
    fn over(&self) -> bool {
        let (rounds, starts) =
            (self.rounds.load(Ordering::Relaxed), self.starts.load(Ordering::Relaxed));
        let least = self.wanted / PER_START;
        let enough = self.killed.load(Ordering::Relaxed) || starts >= UNLUCKY * least;
        let done = rounds >= self.wanted && starts >= least && enough;
        done || self.failed.load(Ordering::Relaxed)
    }
}

impl Suite for WarmTorture {
    const FIGURES: SuiteFigures = &[("F10", &["disk", "tmpfs"])];

    fn measure(&self, bench: Bench<'_>, verdict: &mut SuiteVerdict) -> io::Result<()> {
        for dir in bench.places(&self.on) {
            let found = on(verdict, bench, self, &dir);
            verdict.attempt(&dir.to_string_lossy(), found);
        }
        Ok(())
    }
}

fn on(
    verdict: &mut SuiteVerdict,
    bench: Bench<'_>,
    setting: &WarmTorture,
    dir: &Path,
) -> io::Result<()> {
    let kind = files::filesystem(dir)?;
    let work = tempfile::Builder::new().prefix("warm-torture-").tempdir_in(dir)?;
    let copies = kind == "tmpfs";
    let into = copies.then(|| tempfile::tempdir_in(dir)).transpose()?;
    let place = Place { bench, setting, work: work.path(), into: into.as_ref().map(|d| d.path()) };
    let started = Instant::now();
    let (mut keepers, starts, rounds) = place.torment()?;
    if setting.sabotage {
        keepers[0].sabotage()?;
    }
    for keeper in &mut keepers {
        keeper.finish()?;
    }
    if let Some(into) = place.into {
        place.check_copies(into, &mut keepers)?;
    }
    let wrong: Vec<&String> = keepers.iter().flat_map(|keeper| &keeper.wrong).collect();
    verdict.row([
        ("on", kind.as_str().into()),
        ("rounds", rounds.into()),
        ("starts", (starts.ended + starts.killed).into()),
        ("killed", starts.killed.into()),
        ("placed", starts.placed.into()),
        ("refused", serde_json::json!(starts.refused).to_string().into()),
        ("checks", keepers.iter().map(|keeper| keeper.checks).sum::<u64>().into()),
        ("wrong", wrong.len().into()),
        ("seconds", crate::figures::round(started.elapsed().as_secs_f64())),
    ]);
    verdict.figure("F10", if copies { "tmpfs" } else { "disk" }, &[wrong.len() as f64]);
    wrong.into_iter().chain(&starts.trouble).for_each(|what| verdict.miss(what));
    verdict.require(starts.placed > 0, || format!("{kind}: no page was placed"));
    verdict.require(starts.killed > 0, || format!("{kind}: no start was killed"));
    Ok(())
}

/// Where writers and huepage meet, and where each start puts its copies, if it makes any.
#[derive(Clone, Copy)]
struct Place<'a> {
    bench: Bench<'a>,
    setting: &'a WarmTorture,
    work: &'a Path,
    into: Option<&'a Path>,
}

impl Place<'_> {
    /// Writers and starts until there were enough of both.
    fn torment(&self) -> io::Result<(Vec<Keeper>, Starts, u64)> {
        let wanted = self.setting.rounds;
        let shared = Shared {
            rounds: AtomicU64::new(0),
            starts: AtomicU64::new(0),
            wanted,
            killed: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        };
        let trouble = Mutex::new(Vec::new());
        let starts = Mutex::new(Starts::default());
        let keepers = std::thread::scope(|scope| {
            let writer = |number| {
                let (shared, trouble) = (&shared, &trouble);
                scope.spawn(move || self.write(number, shared, trouble))
            };
            let writers: Vec<_> = (0..self.setting.writers.max(1)).map(writer).collect();
            self.start_until_over(&shared, &starts);
            writers.into_iter().filter_map(|writer| writer.join().ok()).collect::<Vec<_>>()
        });
        let mut starts = starts.into_inner().unwrap_or_else(PoisonError::into_inner);
        starts.trouble.extend(trouble.into_inner().unwrap_or_else(PoisonError::into_inner));
        if keepers.len() < self.setting.writers.max(1) {
            starts.trouble.push("a writer panicked".to_owned());
        }
        Ok((keepers, starts, shared.rounds.into_inner()))
    }

    fn write(&self, number: usize, shared: &Shared, trouble: &Mutex<Vec<String>>) -> Keeper {
        let mut keeper = Keeper::new(self.work, number, self.setting.seed);
        while !shared.over() {
            if let Err(error) = keeper.step() {
                trouble.lock().unwrap_or_else(PoisonError::into_inner).push(error.to_string());
                shared.failed.store(true, Ordering::Relaxed);
            }
            let round = shared.rounds.fetch_add(1, Ordering::Relaxed);
            if round.is_multiple_of(100) {
                progress(&format!("round {round} of {}", shared.wanted));
            }
            // Starts are slow: rounds are spread over them.
            if round / PER_START > shared.starts.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        keeper
    }

    fn start_until_over(&self, shared: &Shared, starts: &Mutex<Starts>) {
        let mut rng = Rng::with_seed(self.setting.seed ^ 0x6b69_6c6c);
        let mut usual = Duration::from_millis(300);
        while !shared.over() {
            let mut starts = starts.lock().unwrap_or_else(PoisonError::into_inner);
            match self.start(&mut rng, &mut usual, &mut starts) {
                Err(error) if starts.trouble.len() < TOLD => starts.trouble.push(error.to_string()),
                _ => {}
            }
            if starts.trouble.len() >= TOLD {
                shared.failed.store(true, Ordering::Relaxed);
            }
            shared.killed.store(starts.killed > 0, Ordering::Relaxed);
            shared.starts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Starts huepage; every other time it is killed somewhere on its `usual` way.
    fn start(&self, rng: &mut Rng, usual: &mut Duration, starts: &mut Starts) -> io::Result<()> {
        let into = self.into.map(tempfile::tempdir_in).transpose()?;
        let mut command = self.bench.warm_command(self.args(rng, into.as_ref().map(|d| d.path())));
        let mut run = Captured::start(&mut command)?;
        let micros = usize::try_from(usual.as_micros()).unwrap_or(1).max(1);
        let kill_at =
            (rng.usize(..2) == 0).then(|| Duration::from_micros(rng.usize(..micros) as u64));
        let killed = strike(&mut run, kill_at)?;
        let end = run.wait()?;
        if killed && end.status == 128 + libc::SIGKILL {
            starts.killed += 1;
            return Ok(());
        }
        *usual = (*usual * 3 + Duration::from_secs_f64(end.wall)) / 4;
        starts.ended += 1;
        if end.status != 0 {
            let why = format!("huepage warm ended with {}: {}", end.status, end.last());
            return Err(io::Error::other(why));
        }
        let warmed: super::Warmed = end.json()?;
        starts.placed += warmed.placed;
        for (why, pages) in warmed.left_alone {
            *starts.refused.entry(why).or_default() += pages;
        }
        Ok(())
    }

    fn args(&self, rng: &mut Rng, into: Option<&Path>) -> Vec<OsString> {
        // Other colours each time, so that there is always something to place.
        let color = rng.usize(..8).to_string();
        let ways = [["--colors", color.as_str()], ["--policy", "srm"]];
        let mut args: Vec<OsString> = ways[rng.usize(..2)].map(Into::into).to_vec();
        args.extend(["--colors-from".into(), self.setting.colors_from.as_str().into()]);
        if let Some(into) = into {
            args.extend(["--into".into(), into.into()]);
        }
        args.push(self.work.into());
        args
    }

    /// Copies everything once more, undisturbed, and compares the copies with the models.
    fn check_copies(&self, into: &Path, keepers: &mut [Keeper]) -> io::Result<()> {
        let mut rng = Rng::with_seed(self.setting.seed);
        self.bench.warm(self.args(&mut rng, Some(into)))?;
        let copies = self.work.file_name().map(|name| into.join(name)).filter(|dir| dir.is_dir());
        let dir = copies.unwrap_or_else(|| into.to_owned());
        keepers.iter_mut().try_for_each(|keeper| keeper.check_dir(&dir, "copied"))
    }
}

/// Waits for a start; kills it at a moment, if it is still there. Whether it was killed.
fn strike(run: &mut Captured, kill_at: Option<Duration>) -> io::Result<bool> {
    while run.alive() {
        let late = run.running_for() > LONGEST;
        if late || kill_at.is_some_and(|at| run.running_for() >= at) {
            kill_tree(run.id());
            let hung = || io::Error::other(format!("huepage warm hung for {LONGEST:?}"));
            return if late { Err(hung()) } else { Ok(true) };
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    Ok(false)
}
