//! The nest: starts adversaries, some at a time, beside one honest program, and tells of each.
//!
//! Each line of its output is a JSON object: first the honest program's pid, then one object per
//! adversary, then `"done"`. It then waits for a line of input, so that the honest program can be
//! looked at, and exits with 42 if the honest program's answer was right.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::Plant;
use super::attack::AttackKind;
use crate::mix::{Rng, scramble};
use crate::rights::NOBODY;
use crate::sys;

/// Exit status of a nest whose honest programs were right.
pub const RIGHT: u8 = 42;
/// An adversary that lives longer is killed: attacks are allowed to hang their own program.
const LIFE: Duration = Duration::from_millis(1500);
/// One of so many children is an honest one.
const HONEST: u64 = 25;
/// An ordinary user of the system's.
const SOMEBODY: u32 = 1001;
/// Longest wait for an honest program's end.
const LONGEST: Duration = Duration::from_secs(60);

/// What a nest is to do.
#[derive(clap::Args, Clone, Debug)]
pub struct NestOrders {
    /// Adversaries in all
    #[arg(long, default_value_t = 100)]
    pub rounds: u64,
    /// Seed of all
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Adversaries at a time
    #[arg(long, default_value_t = 4)]
    pub parallel: usize,
    /// Only this attack
    #[arg(long)]
    pub only: Option<AttackKind>,
    /// A directory that only root may enter
    #[arg(long)]
    pub secret: PathBuf,
    /// A directory for files of its own
    #[arg(long)]
    pub dir: PathBuf,
    /// What goes wrong on purpose
    #[arg(long)]
    pub plant: Option<Plant>,
}

/// What became of one child.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NestedEnd {
    /// Its attack; `None` for an honest program.
    pub kind: Option<AttackKind>,
    /// Its number.
    pub round: u64,
    /// Whether the supervisor came.
    pub confined: bool,
    /// Its status, or 128 + the signal.
    pub status: i32,
    /// Whether it had to be killed.
    pub killed: bool,
    /// What it gained.
    pub gained: Vec<String>,
    /// What is wrong with an honest one.
    pub trouble: Option<String>,
}

/// A line of a nest's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NestLine {
    /// The pid of the honest program.
    Honest(u32),
    /// A child has ended.
    Ended(NestedEnd),
    /// All have ended.
    Done,
}

/// A nest's life; its exit status.
///
/// # Errors
/// When its programs cannot be started.
pub fn run(orders: &NestOrders) -> io::Result<u8> {
    let own = std::env::current_exe()?;
    let mut honest = honest(&own, orders, "honest", "36000")?;
    tell(&NestLine::Honest(honest.id()));
    plant(orders, &honest);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for slot in 0..orders.parallel {
            let (own, next) = (&own, &next);
            scope.spawn(move || {
                let more = || Some(next.fetch_add(1, Ordering::Relaxed));
                let rounds = std::iter::from_fn(more).take_while(|round| *round < orders.rounds);
                rounds.for_each(|round| tell(&NestLine::Ended(child(own, orders, slot, round))));
            });
        }
    });
    tell(&NestLine::Done);
    let _ = io::stdin().read(&mut [0u8; 1]);
    sys::kill(honest.id(), libc::SIGTERM)?;
    let status = wait(&mut honest, LONGEST)?;
    Ok(if status.code() == Some(i32::from(RIGHT)) { RIGHT } else { 1 })
}

fn tell(line: &NestLine) {
    if let Ok(text) = serde_json::to_string(line) {
        println!("{text}");
    }
}

/// Goes wrong on purpose, where that is the nest's part.
fn plant(orders: &NestOrders, honest: &Child) {
    let supervisor = std::os::unix::process::parent_id();
    let _ = match orders.plant {
        Some(Plant::Answer) => sys::kill(honest.id(), libc::SIGKILL),
        Some(Plant::Supervisor) => sys::kill(supervisor, libc::SIGABRT),
        Some(Plant::Hang) => sys::kill(supervisor, libc::SIGSTOP),
        _ => Ok(()),
    };
}

/// A program with a known answer, for so many seconds.
fn honest(own: &Path, orders: &NestOrders, name: &str, seconds: &str) -> io::Result<Child> {
    let mut command = Command::new(own.with_file_name("huepage-torture"));
    command.args(["answer", "--mib", "8", "--right", &RIGHT.to_string(), "--seconds", seconds]);
    command.stdin(Stdio::null()).stdout(File::create(orders.dir.join(name))?).spawn()
}

/// One child of the nest, from start to end.
fn child(own: &Path, orders: &NestOrders, slot: usize, round: u64) -> NestedEnd {
    if round % HONEST == HONEST - 1 && orders.only.is_none() {
        return brief(own, orders, slot, round);
    }
    let mut rng = Rng::with_seed(scramble(orders.seed ^ round << 20));
    let kinds = AttackKind::value_variants();
    let kind = orders.only.unwrap_or(kinds[rng.usize(..kinds.len())]);
    let told = NestedEnd { kind: Some(kind), round, ..NestedEnd::default() };
    match attacked(own, orders, slot, &mut rng, kind) {
        Ok(found) => NestedEnd { round, kind: Some(kind), ..found },
        Err(error) => NestedEnd { trouble: Some(format!("cannot be started: {error}")), ..told },
    }
}

/// An honest program that comes and goes between adversaries.
fn brief(own: &Path, orders: &NestOrders, slot: usize, round: u64) -> NestedEnd {
    let status = honest(own, orders, &format!("brief-{slot}"), "0.2")
        .and_then(|mut child| wait(&mut child, LONGEST));
    let right = status.as_ref().is_ok_and(|s| s.code() == Some(i32::from(RIGHT)));
    let trouble = (!right).then(|| format!("an honest program ended as {status:?}"));
    NestedEnd { round, trouble, ..NestedEnd::default() }
}

fn attacked(
    own: &Path,
    orders: &NestOrders,
    slot: usize,
    rng: &mut Rng,
    kind: AttackKind,
) -> io::Result<NestedEnd> {
    let out = orders.dir.join(format!("out-{slot}"));
    let user = [0, NOBODY, SOMEBODY][rng.usize(..3)];
    let name = kind.to_possible_value().map(|v| v.get_name().to_owned()).unwrap_or_default();
    let mut command = Command::new(own);
    command.arg("adversary").args(["--kind", &name, "--seed", &rng.u64(..).to_string()]);
    command.arg("--secret").arg(&orders.secret).arg("--millis");
    command.arg((20 + rng.usize(..120)).to_string());
    match user {
        0 => command.arg("--drop"),
        user => command.uid(user).gid(user),
    };
    let planted = orders.plant.and_then(|plant| plant.to_possible_value());
    if let Some(plant) = planted {
        command.arg("--plant").arg(plant.get_name());
    }
    command.current_dir("/").process_group(0).stdin(Stdio::null()).stderr(Stdio::null());
    let mut child = command.stdout(File::create(&out)?).spawn()?;
    let started = Instant::now();
    let status = wait(&mut child, LIFE)?;
    let said = fs::read_to_string(&out)?;
    let gained = said.lines().filter_map(|line| line.strip_prefix("gained ")).map(str::to_owned);
    Ok(NestedEnd {
        confined: said.contains("confined"),
        status: status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        killed: started.elapsed() >= LIFE,
        gained: gained.collect(),
        ..NestedEnd::default()
    })
}

/// Waits for a child, and kills it with its group when it takes too long.
fn wait(child: &mut Child, most: Duration) -> io::Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > most {
            child.kill()?;
            return child.wait();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
