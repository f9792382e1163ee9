//! What the live tests share: whether this machine can run them, and how to reach the
//! benchmarks, which make the measurements that these tests assert on.
//!
//! A live test needs root and Linux 6.8. Where that is not given it says so and passes, or
//! fails under HUEPAGE_REQUIRE_LIVE=1. Two live tests run at once, so that each has the other as its noise;
//! those that measure what another one would spoil run alone. (Guests of the lab need no root, and take a turn
//! like others.)
#![allow(dead_code, reason = "each test binary uses its part of this")]

pub mod browser;
pub mod cgroup;
pub mod daemon;
pub mod pages;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use huepage_color::{CacheLevel, LevelChoice};
use huepage_linux::color::probe::ProbeParams;
use huepage_linux::kernel::machine::HostMachine;
pub use huepage_testing::skip;
use serde_json::Value;

/// The binary under test.
pub const HUEPAGE: &str = env!("CARGO_BIN_EXE_huepage");

/// How long whatever a test waits for may take, also on a machine that builds beside: what takes longer hangs.
pub const HANGS: Duration = Duration::from_secs(600);

/// Live tests that run at once, however many threads there are.
const AT_ONCE: usize = 2;

/// Turns that are taken; all of them by a test that runs alone.
static TAKEN: Mutex<usize> = Mutex::new(0);
static GIVEN_BACK: Condvar = Condvar::new();

/// The turns of a live test, given back at its end.
pub struct Turn(usize);

impl Turn {
    /// Waits for so many turns.
    pub fn take(turns: usize) -> Turn {
        let too_many = |taken: &mut usize| *taken + turns > AT_ONCE;
        let mut taken =
            GIVEN_BACK.wait_while(taken(), too_many).unwrap_or_else(PoisonError::into_inner);
        *taken += turns;
        Turn(turns)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *taken() -= self.0;
        GIVEN_BACK.notify_all();
    }
}

fn taken() -> MutexGuard<'static, usize> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Why live tests cannot run here.
fn obstacle() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let uid = status.lines().find(|l| l.starts_with("Uid:"))?.split_whitespace().nth(2)?;
    if uid != "0" {
        return Some("not root; run the tests as root".to_owned());
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let mut numbers = release.split(['.', '-']).map_while(|n| n.trim().parse::<u32>().ok());
    let version = (numbers.next()?, numbers.next()?);
    (version < (6, 8)).then(|| format!("Linux {} is older than 6.8", release.trim()))
}

/// A directory whose files can be placed.
pub fn place_of_files(test: &str) -> Option<tempfile::TempDir> {
    let dir = tempfile::TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let found = Command::new("stat").args(["-f", "-c", "%T"]).arg(dir.path()).output().unwrap();
    let kind = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    if ["ext2/ext3", "xfs", "btrfs"].contains(&kind.as_str()) {
        return Some(dir);
    }
    skip(test, format!("files of {kind} are not placed; set CARGO_TARGET_DIR to a disk"));
    None
}

/// The turn of a live test, or `None` where it has to be skipped.
pub fn live(test: &str) -> Option<Turn> {
    turn(test, 1)
}

/// The turn of a live test beside which no other one runs: one that places files, since frames that two such give
/// back for each other's files go to whoever asks first.
pub fn live_alone(test: &str) -> Option<Turn> {
    turn(test, AT_ONCE)
}

fn turn(test: &str, turns: usize) -> Option<Turn> {
    if let Some(why) = obstacle() {
        skip(test, &why);
        return None;
    }
    Some(Turn::take(turns))
}

/// Whether the clock tells a single line of the L2 from one of the next cache.
pub fn tells_single_lines() -> bool {
    let machine = HostMachine::read().unwrap();
    let l2 = machine.cache(LevelChoice::Level(CacheLevel::L2));
    let params = l2.ok().and_then(|l2| ProbeParams::for_cache(&l2.geometry).ok());
    params.is_some_and(|params| params.depth == 1)
}

/// The directory of the binaries, after building those of the benchmarks there.
pub fn tools() -> &'static Path {
    static TOOLS: OnceLock<PathBuf> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let dir = Path::new(HUEPAGE).parent().unwrap().to_path_buf();
        let mut cargo = Command::new(env!("CARGO"));
        // Those that go with the tests of the benchmarks, with the features that everything has when
        // all is tested: then they are there, and nothing is built twice.
        cargo.args(["test", "--quiet", "--workspace", "--no-run", "--test", "suite"]);
        cargo.arg("--target-dir").arg(dir.parent().unwrap());
        if dir.ends_with("release") {
            cargo.arg("--release");
        }
        cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().unwrap().success(), "huepage-bench cannot be built");
        dir
    })
}

/// Runs a benchmark and gives its verdict; fails unless it holds.
pub fn holds(args: &[&str]) -> Value {
    holds_with(args, &[])
}

/// [`holds`] with more in the environment.
pub fn holds_with(args: &[&str], env: &[(&str, &Path)]) -> Value {
    let mut bench = Command::new(tools().join("huepage-bench"));
    bench.args(args).args(["--json", "--huepage", HUEPAGE]).envs(env.iter().copied());
    bench.arg("--dir").arg(tools().join("huepage-bench-programs"));
    let output = bench.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let verdict: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{args:?} gives no verdict ({e}): {said}"));
    let status = output.status.code();
    assert_eq!(status, Some(0), "{args:?}: {:#}\n{said}", verdict["missed"]);
    verdict
}

/// Runs huepage and gives what came of it.
pub fn huepage<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Output {
    Command::new(HUEPAGE).args(args).stdin(Stdio::null()).output().unwrap()
}

/// What comes of a command whose reader has gone away before it says anything.
pub fn unread(command: &mut Command) -> Output {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).output().unwrap()
}

/// A process that is killed at the end.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process with a known answer, killed if a test fails.
pub struct Target(Child);

impl Target {
    /// Computes for so many seconds.
    pub fn start(seconds: &str) -> Target {
        Target::of("16", seconds)
    }

    /// Computes for so many seconds, with so many MiB.
    pub fn of(mib: &str, seconds: &str) -> Target {
        let mut command = Command::new(tools().join("huepage-torture"));
        command.args(["answer", "--mib", mib, "--right", "42", "--seconds", seconds]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        // It has its memory by then.
        std::thread::sleep(Duration::from_millis(300));
        Target(child)
    }

    /// Its pid, for a command line.
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Has it end its computation now; 42 is the right answer.
    pub fn end(self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.finish()
    }

    /// Waits for its end; 42 is the right answer.
    pub fn finish(mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
