//! `huepage run` and `attach` with `--pollute-buffer`: what is said to be confined is, as the page
//! tables have it; the rest stays; a released program goes on; and a program that is watched computes what
//! it does alone. Colours are declared: nothing here depends on times.

use crate::common;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A program that says what of its memory passes by and waits.
struct Polluter {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    passes: (u64, u64),
    keeps: (u64, u64),
}

impl Polluter {
    fn start() -> Polluter {
        let mut command = Command::new(common::tools().join("huepage-polluter"));
        command.args(["join", "--cache-kib", "512", "--seconds", "1", "--hold"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap();
        let range = |of: &str| {
            let at = |i: usize| ready[of][0][i].as_u64().unwrap();
            (at(0), at(1))
        };
        let (passes, keeps) = (range("passes"), range("keeps"));
        Polluter { child, lines, passes, keeps }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Colours of the pages of a range, frame numbers modulo `of`.
    fn colors(&self, (start, end): (u64, u64), of: u64) -> Vec<u64> {
        let file = File::open(format!("/proc/{}/pagemap", self.child.id())).unwrap();
        let mut bytes = vec![0; usize::try_from((end - start) / 512).unwrap()];
        file.read_exact_at(&mut bytes, start / 512).unwrap();
        let entries =
            bytes.chunks_exact(8).map(|entry| u64::from_ne_bytes(entry.try_into().unwrap()));
        entries
            .filter(|entry| entry >> 63 == 1)
            .map(|entry| (entry & ((1 << 55) - 1)) % of)
            .collect()
    }

    /// It goes on; how many operations it did.
    fn finish(mut self) -> u64 {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
        let speed: Value = serde_json::from_str(&line).unwrap();
        speed["operations"].as_u64().unwrap()
    }
}

impl Drop for Polluter {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until so many pages are told to be in the buffer; the report of the process.
fn confined(pid: &str, pages: u64) -> Value {
    let started = Instant::now();
    loop {
        let output = common::huepage(&["inspect", "--json", pid]);
        assert!(output.status.success(), "{output:?}");
        let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
        let process = seen["pollute"]["processes"][0].clone();
        if process["pages_in_buffer"].as_u64() >= Some(pages) {
            return seen;
        }
        assert!(started.elapsed() < common::HANGS, "{seen:#}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn what_is_to_be_confined_is_and_the_rest_stays() {
    let Some(_turn) = common::live("pollute buffer: by hand") else { return };
    let polluter = Polluter::start();
    let (start, end) = polluter.passes;
    let (pid, range) = (polluter.pid(), format!("--confine={start:x}-{end:x}"));
    let before = polluter.colors(polluter.keeps, 16);
    let args = ["attach", "--pollute-buffer=1/8", "--colors-from", "declared", &range, &pid];
    let attached = common::huepage(&args);
    assert!(attached.status.success(), "{attached:?}");
    let pages = (end - start) / 4096;
    let seen = confined(&pid, pages);
    let of = seen["pollute"]["of"].as_u64().unwrap();
    let buffer = seen["pollute"]["buffer"].as_str().unwrap();
    let (first, last) = buffer.split_once('-').unwrap_or((buffer, buffer));
    let buffer = first.parse::<u64>().unwrap()..=last.parse().unwrap();
    let colors = polluter.colors(polluter.passes, of);
    assert_eq!(colors.len() as u64, pages);
    assert!(colors.iter().all(|color| buffer.contains(color)), "{buffer:?}");
    assert_eq!(polluter.colors(polluter.keeps, 16), before, "nothing else moves");
    assert!(before.len() > 16);
    assert!(common::huepage(&["detach", &pid]).status.success());
    assert!(polluter.colors(polluter.passes, of).iter().all(|color| buffer.contains(color)));
    assert!(polluter.finish() > 0);
}

/// A partition of the command line keeps a buffer as a group of the daemon does.
#[test]
fn a_partition_has_a_buffer_for_what_pollutes() {
    let Some(_turn) = common::live("pollute buffer: of a partition") else { return };
    let polluter = Polluter::start();
    let (start, end) = polluter.passes;
    let (pid, range) = (polluter.pid(), format!("--confine={start:x}-{end:x}"));
    let partition = ["attach", "--colors", "0-7", "--colors-from", "declared"];
    let args = [&partition[..], &["--pollute-buffer=1/4", &range, &pid]].concat();
    let attached = common::huepage(&args);
    assert!(attached.status.success(), "{attached:?}");
    let seen = confined(&pid, (end - start) / 4096);
    assert_eq!(
        (&seen["partition"]["colors"], &seen["partition"]["buffer"]),
        (&"0-7".into(), &"6-7".into())
    );
    let of = seen["partition"]["of"].as_u64().unwrap();
    let started = Instant::now();
    let apart = || {
        let lie = |range, low: u64, high: u64| {
            let colors = polluter.colors(range, of);
            !colors.is_empty() && colors.iter().all(|color| (low..=high).contains(color))
        };
        lie(polluter.passes, 6, 7) && lie(polluter.keeps, 0, 5)
    };
    while !apart() {
        assert!(started.elapsed() < common::HANGS, "pages do not come apart");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(common::huepage(&["detach", &pid]).status.success());
    assert!(polluter.finish() > 0);
}

#[test]
fn a_watched_program_is_looked_at_and_comes_to_no_harm() {
    let Some(_turn) = common::live("pollute buffer: watched") else { return };
    let polluter = common::tools().join("huepage-polluter");
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.json");
    let mut seconds = 8;
    let process = loop {
        let mut command = Command::new(common::HUEPAGE);
        command.args(["run", "--quiet", "--pollute-buffer", "--colors-from", "declared"]);
        command.arg("--report").arg(&report).arg("--").arg(&polluter);
        command.args(["join", "--cache-kib", "4096", "--seconds", &seconds.to_string()]);
        let output = command.stdin(Stdio::null()).output().unwrap();
        // It fails if its memory has changed.
        assert!(output.status.success(), "{output:?}");
        let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        let process = report["pollute"]["processes"][0].clone();
        // A busy neighbour may leave it too little time, and the caches to so few lines of what passes that without
        // a PMU hardly a miss is made out.
        let profiled =
            process["profiles"].as_u64() >= Some(1) && process["decisions"][0].is_object();
        if profiled && process["miss_rate_before"].as_f64() > Some(0.2) {
            break process;
        }
        seconds *= 2;
        assert!(seconds <= 64, "no profile was made, or none with misses: {report:#}");
    };
    let by_pmu = process["sensor"] == "pmu";
    assert!(by_pmu || process["sensor"] == "residency", "{process:#}");
    // Whoever is not the best says why, and all say by what they go and what that costs.
    assert_eq!(process["sensor_because"] == "", by_pmu, "{process:#}");
    assert_ne!(process["sensor_detail"], "");
    assert!(process["cpu_seconds"].as_f64() > Some(0.0), "{process:#}");
    assert!(process["fills_per_second"].as_f64() > Some(1e6), "{process:#}");
}

#[test]
fn what_cannot_be_is_refused() {
    let Some(_turn) = common::live("pollute buffer: refusals") else { return };
    let refused = |args: &[&str], what: &str| {
        let output = common::huepage(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(what), "{args:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    };
    let files = ["run", "--pollute-buffer", "--page-cache", "srm", "--", "true"];
    refused(&files, "cannot be combined with --page-cache");
    let superpages = ["run", "--pollute-buffer", "--superpages", "asap", "--", "true"];
    refused(&superpages, "cannot be combined with --superpages");
    let all = ["run", "--pollute-buffer=all", "--colors-from", "declared", "--", "true"];
    refused(&all, "give it fewer");
    let one = ["--colors", "3", "--pollute-buffer", "--colors-from", "declared"];
    refused(&[&["run"][..], &one[..], &["--", "true"]].concat(), "of which none can be a buffer");
    let asked = ["--pollute-buffer", "--pollute-sensor", "pmu", "--colors-from", "declared"];
    let forced = [&["run"][..], &asked[..], &["--", "true"][..]].concat();
    // Where there is a PMU, it is no mistake to ask for it.
    if !common::huepage(&forced).status.success() {
        refused(&forced, "; use the residency sensor instead (--pollute-sensor residency)");
        assert_eq!(common::huepage(&forced).status.code(), Some(101));
    }
    let gone = ["attach", "--pollute-buffer", "--colors-from", "declared", "4000000"];
    refused(&gone, "no process with pid");
}
