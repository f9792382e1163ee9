//! Programs that lock their memory: it is moved into their colours all the same, stays locked, and costs no more
//! memory than that of others. Where a program may lock no more, its locked pages stay where they are.

use crate::common;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Array of a program that may lock as much as it likes, MiB, and of one that may lock [`LIMIT_KIB`]: less than
/// what processes usually may.
const MIB: u64 = 48;
const FEW_MIB: u64 = 3;
const LIMIT_KIB: u64 = 8 << 10;
/// Memory that it may have at any time, MiB: many times the array, since frames are gathered in it, more where the
/// free ones lie unevenly; far from what could be gathered.
const MOST_MIB: u64 = 2048;

/// The program, in a directory that goes with the first; none, and said so, where no compiler is.
pub fn built(test: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locked/locks.c");
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("locks");
    let gcc = Command::new("gcc").args(["-O1", "-o"]).arg(&program).arg(source).status();
    if !gcc.is_ok_and(|status| status.success()) {
        common::skip(test, "no gcc here; scripts/setup-programs.sh installs it");
        return None;
    }
    Some((dir, program))
}

/// The program, with all of its memory locked.
struct Locked {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Locked {
    fn start(command: &mut Command) -> Locked {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "locked\n");
        Locked { child, output }
    }

    /// It ends by itself, and finds all as it left it.
    fn finish(mut self) {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success() && rest == "sound\n", "{status}: {rest}");
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Most resident memory so far, MiB.
fn peak_mib(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() >> 10
}

/// What `inspect` says once it says what it is to.
fn inspected(pid: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let output = common::huepage(&["inspect", "--json", pid]);
        let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if is_right(&found) {
            return found;
        }
        assert!(started.elapsed() < common::HANGS, "{output:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Nearly all pages are inside, the locked ones among them.
fn is_inside(found: &Value, mib: u64) -> bool {
    let compliance = &found["compliance"];
    compliance["share"].as_f64() >= Some(0.99) && compliance["movable"].as_u64() >= Some(mib * 256)
}

const IN_A_QUARTER: [&str; 5] = ["-q", "--share", "25%", "--colors-from", "declared"];

#[test]
fn locked_memory_of_a_running_program_is_moved_and_stays_locked() {
    let test = "locked_memory_of_a_running_program_is_moved_and_stays_locked";
    let Some(_turn) = common::live(test) else { return };
    let Some((_dir, program)) = built(test) else { return };
    let limit = LIMIT_KIB.to_string();
    let cases: [(u64, &[&str]); 5] = [
        (MIB, &["future"]),
        (MIB, &["current"]),
        (MIB, &["area"]),
        (FEW_MIB, &["future", &limit]),
        (FEW_MIB, &["area", &limit]),
    ];
    for (mib, words) in cases {
        let target = Locked::start(Command::new(&program).arg(mib.to_string()).args(words));
        let pid = target.child.id().to_string();
        let attached = common::huepage(&[&["attach"][..], &IN_A_QUARTER, &[&pid]].concat());
        assert!(attached.status.success(), "{words:?}: {attached:?}");
        inspected(&pid, |found| is_inside(found, mib));
        assert!(peak_mib(&pid) < MOST_MIB, "{words:?}: {} MiB", peak_mib(&pid));
        let released = common::huepage(&["detach", &pid]);
        assert!(released.status.success(), "{released:?}");
        target.finish();
    }
}

#[test]
fn a_program_that_locks_its_memory_under_huepage_gets_no_more_of_it() {
    let test = "a_program_that_locks_its_memory_under_huepage_gets_no_more_of_it";
    let Some(_turn) = common::live(test) else { return };
    let Some((_dir, program)) = built(test) else { return };
    for how in ["future", "current"] {
        let mut run = Command::new(common::HUEPAGE);
        run.arg("run").args(IN_A_QUARTER).arg("--").arg(&program).args([&MIB.to_string(), how]);
        let target = Locked::start(&mut run);
        let children = format!("/proc/{0}/task/{0}/children", target.child.id());
        let children = std::fs::read_to_string(children).unwrap();
        let pid = children.split_whitespace().next().expect("the program");
        let found = inspected(pid, |found| is_inside(found, MIB));
        let engine = &found["engine"];
        assert!(engine["dropped"] == 0 && engine["unexpected_errors"]["count"] == 0, "{engine:#}");
        assert!(peak_mib(pid) < MOST_MIB, "{how}: {} MiB", peak_mib(pid));
        target.finish();
    }
}

#[test]
fn locked_pages_of_a_program_that_may_lock_no_more_stay() {
    let test = "locked_pages_of_a_program_that_may_lock_no_more_stay";
    let Some(_turn) = common::live(test) else { return };
    let Some((_dir, program)) = built(test) else { return };
    let limit = (FEW_MIB << 10).to_string();
    let mut command = Command::new(&program);
    let target = Locked::start(command.args([&FEW_MIB.to_string(), "area", &limit]));
    let pid = target.child.id().to_string();
    // In one colour: of more it may have all pages by chance, from programs that were confined before.
    let attached =
        common::huepage(&["attach", "-q", "--colors", "7", "--colors-from", "declared", &pid]);
    assert!(attached.status.success(), "{attached:?}");
    let locked = |found: &Value| found["census"]["left_alone"]["locked"].as_u64();
    inspected(&pid, |found| locked(found) >= Some(FEW_MIB * 128));
    target.finish();
}

/// Threads of a process.
fn threads(pid: &str) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

#[test]
fn frozen_programs_have_all_pages_inside_and_nothing_of_huepage() {
    let test = "frozen_programs_have_all_pages_inside_and_nothing_of_huepage";
    let Some(_turn) = common::live(test) else { return };
    let Some((_dir, program)) = built(test) else { return };
    for how in ["future", "none"] {
        let target = Locked::start(Command::new(&program).args([&MIB.to_string(), how]));
        let pid = target.child.id().to_string();
        let options = ["--share", "25%", "--colors-from", "declared", "--freeze"];
        let frozen = common::huepage(&[&["attach"][..], &options, &[&pid]].concat());
        let said = String::from_utf8(frozen.stderr).unwrap();
        assert!(frozen.status.success() && said.contains("nothing of huepage is left"), "{said}");
        assert_eq!(threads(&pid), 1);
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
        assert!(!maps.contains("memfd:huepage"), "{maps}");
        let output = common::huepage(&["inspect", "--json", &pid]);
        assert_eq!(output.status.code(), Some(111), "in no partition: {output:?}");
        target.finish();
    }
}
