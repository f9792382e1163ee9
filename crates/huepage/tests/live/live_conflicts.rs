//! `huepage run` and `attach` with `--recolor-conflicts`: pages in use that crowd a few colours are spread,
//! as page tables have it; nothing else moves; programs without conflicts are left as they are; and a
//! program comes to no harm whenever its supervisor is killed. Colours are those that the machine really
//! has, since nothing is moved that does not miss.

use crate::common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// How long a loaded machine may take for anything.
const PATIENCE: Duration = common::HANGS;

/// How long a program goes on without its supervisor.
const ALONE: Duration = Duration::from_secs(1);

/// KiB of the L2.
fn cache_kib() -> u64 {
    let size = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index2/size").unwrap();
    size.trim().trim_end_matches('K').parse().unwrap()
}

/// Whether what the sensors need is here. Where the clock cannot tell single lines, it is asserted that it
/// is said, and that nothing is begun.
fn lacks(test: &str) -> bool {
    if !common::tells_single_lines() {
        let output = common::huepage(&["run", "--recolor-conflicts", "--", "echo", "begun"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(101), "{said}");
        assert!(said.contains("cannot be seen here") && said.lines().count() == 1, "{said}");
        assert!(output.stdout.is_empty(), "{output:?}");
        eprintln!("{test}: {said}");
        return true;
    }
    let output = common::huepage(&["info", "--json"]);
    let info: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    // Without a verdict on colours nobody knows which of them conflict.
    let known = info["verdict"]["status"] == "measured";
    if !known {
        common::skip(test, format!("colours cannot be told here: {}", info["verdict"]));
    }
    !known
}

/// A walk through pages in two colours that waits to begin.
struct Walk {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<std::process::ChildStdout>,
    pid: String,
    hot: (u64, u64),
}

impl Walk {
    /// In a partition that is dissolved before it begins.
    fn crowded() -> Walk {
        let target = common::tools().join("huepage-conflict");
        let mut command = Command::new(common::HUEPAGE);
        command.args(["run", "--quiet", "--colors", "0-1", "--"]).arg(target).arg("hot");
        command.args(["--cache-kib", &cache_kib().to_string(), "--seconds", "600", "--hold"]);
        let walk = Walk::start(&mut command);
        // What it touched before anybody saw its new area is brought in soon.
        let started = Instant::now();
        while walk.inside() < 0.99 {
            assert!(started.elapsed() < PATIENCE, "{} of it in two colours", walk.inside());
            std::thread::sleep(Duration::from_millis(50));
        }
        let detached = common::huepage(&["detach", &walk.pid]);
        assert!(detached.status.success(), "{detached:?}");
        walk
    }

    fn start(command: &mut Command) -> Walk {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, mut line) = (child.stdin.take(), String::new());
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        lines.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let at = |i: usize| ready["hot"][i].as_u64().unwrap();
        let (pid, hot) = (ready["ready"].to_string(), (at(0), at(1)));
        Walk { child, stdin, lines, pid, hot }
    }

    /// The share of its pages that lies in its partition.
    fn inside(&self) -> f64 {
        let output = common::huepage(&["inspect", "--json", &self.pid]);
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        seen["compliance"]["share"].as_f64().unwrap_or(0.0)
    }

    fn go(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    /// The frames of its pages.
    fn frames(&self) -> Vec<u64> {
        let (start, end) = self.hot;
        let file = File::open(format!("/proc/{}/pagemap", self.pid)).unwrap();
        let mut bytes = vec![0; usize::try_from((end - start) / 512).unwrap()];
        file.read_exact_at(&mut bytes, start / 512).unwrap();
        let entries = bytes.chunks_exact(8).map(|e| u64::from_ne_bytes(e.try_into().unwrap()));
        entries.map(|entry| entry & ((1 << 55) - 1)).collect()
    }

    /// Its report, once it holds; the last one after long waiting.
    fn report(&self, holds: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let output = common::huepage(&["inspect", "--json", &self.pid]);
            let seen: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            let process = seen["conflicts"]["processes"][0].clone();
            if holds(&process) || started.elapsed() > PATIENCE {
                return process;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Has it end its walk now; it fails if any of its stores is lost.
    fn finish(mut self) {
        let pid = Pid::from_raw(self.pid.parse().unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        drop(self.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}");
        let speed: Value = serde_json::from_str(&line).unwrap();
        assert!(speed["operations"].as_u64() > Some(0), "{speed}");
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_crowd_is_spread_over_the_colours() {
    let Some(_turn) = common::live("conflicts: a crowd") else { return };
    if lacks("conflicts: a crowd") {
        return;
    }
    let mut walk = Walk::crowded();
    let before = walk.frames();
    let attached = common::huepage(&["attach", "--quiet", "--recolor-conflicts", &walk.pid]);
    assert!(attached.status.success(), "{attached:?}");
    assert_eq!(walk.frames(), before, "nothing moves that does not miss");
    walk.go();
    let spread = |process: &Value| {
        process["recolored"].as_u64() > Some(before.len() as u64 / 2)
            && process["colors_in_use"].as_u64() > Some(8)
    };
    let process = walk.report(spread);
    assert!(spread(&process), "{process:#}");
    assert!(process["colors_in_use_before"].as_u64() <= Some(4), "{process:#}");
    assert!(process["crowds"].as_array().is_some_and(|crowds| !crowds.is_empty()), "{process:#}");
    assert!(process["residency_before"].as_f64() < Some(0.8), "{process:#}");
    let after = walk.frames();
    let moved = before.iter().zip(&after).filter(|(a, b)| a != b).count() as u64;
    let told = process["recolored"].as_u64().unwrap();
    assert!(moved <= told && 10 * moved >= 9 * told, "{moved} of {told} have other frames");
    walk.finish();
}

#[test]
fn a_program_survives_the_death_of_its_supervisor() {
    let Some(_turn) = common::live("conflicts: kill") else { return };
    if lacks("conflicts: kill") {
        return;
    }
    for round in 0..3 {
        let mut walk = Walk::crowded();
        let mut attach = Command::new(common::HUEPAGE);
        attach.args(["attach", "--quiet", "--foreground", "--recolor-conflicts"]);
        // A few pages at a time, so that it is killed between some and others.
        attach.args(["--conflict-rate", "16", &walk.pid]);
        let mut supervisor = common::Killed(attach.stdin(Stdio::null()).spawn().unwrap());
        walk.go();
        let begun = |process: &Value| process["recolored"].as_u64() > Some(0);
        let process = walk.report(begun);
        std::thread::sleep(Duration::from_millis(700 * round));
        supervisor.0.kill().unwrap();
        supervisor.0.wait().unwrap();
        assert!(begun(&process), "{process:#}");
        std::thread::sleep(ALONE);
        walk.finish();
    }
}

#[test]
fn programs_without_conflicts_are_not_touched() {
    let Some(_turn) = common::live("conflicts: none") else { return };
    if lacks("conflicts: none") {
        return;
    }
    let kib = cache_kib().to_string();
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.json");
    // Too few pages for a crowd however they lie; more than fit; and used once.
    for program in [&["hot", "--times", "0.02"][..], &["large"], &["stream"]] {
        let mut seconds = 4;
        let process = loop {
            let mut command = Command::new(common::HUEPAGE);
            command.args(["run", "--quiet", "--recolor-conflicts", "--report"]).arg(&report);
            command.arg("--").arg(common::tools().join("huepage-conflict")).args(program);
            command.args(["--cache-kib", &kib, "--seconds", &seconds.to_string()]);
            let output = command.stdin(Stdio::null()).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
            let process = report["conflicts"]["processes"][0].clone();
            // A busy neighbour may leave it too little time.
            if process["snapshots"].as_u64() >= Some(1) {
                break process;
            }
            seconds *= 2;
            assert!(seconds <= 64, "it was not looked at: {report:#}");
        };
        assert_eq!(process["recolored"], 0, "{program:?}: {process:#}");
        assert_eq!(process["conflicts"], 0, "{program:?}: {process:#}");
    }
}

#[test]
fn what_cannot_be_had_together_is_refused() {
    let Some(_turn) = common::live("conflicts: refusals") else { return };
    let refused = |args: &[&str], what: &str| {
        let output = common::huepage(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(what), "{args:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    };
    let share = ["run", "--recolor-conflicts", "--share", "25%", "--", "true"];
    refused(&share, "cannot be combined with --share or --colors");
    let buffer = ["run", "--recolor-conflicts", "--pollute-buffer", "--", "true"];
    refused(&buffer, "cannot be combined with --pollute-buffer");
    refused(&["run", "--recolor-conflicts", "--level", "llc", "--", "true"], "--level llc");
    if common::tells_single_lines() {
        refused(&["attach", "--recolor-conflicts", "4000000"], "no process with pid");
    }
}
