//! `huepage trace -- CMD` on programs whose accesses are known: counts to the record, threads,
//! children, limits, skips and signals. Needs qemu-user (valgrind for lackey) and gcc; without
//! them a test says so and passes, or fails under HUEPAGE_REQUIRE_LIVE=1.

use crate::common;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use huepage_sim::record::{AccessKind, Record};
use huepage_sim::trace::TraceReader;
use serde_json::Value;
use tempfile::TempDir;

/// Words that `known` stores and loads.
const WORDS: u64 = 10_000;

struct Bench {
    dir: TempDir,
    program: PathBuf,
}

/// The compiled program, unless a tool is missing.
fn bench(test: &str, name: &str, tools: &[&str], flags: &[&str]) -> Option<Bench> {
    for tool in tools.iter().chain(&["gcc"]) {
        if Command::new(tool).arg("--version").output().is_err() {
            common::skip(test, format!("`{tool}` is missing; run scripts/setup-programs.sh"));
            return None;
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/record/{name}.c"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-o"]).arg(&program).arg(source).args(flags);
    assert!(gcc.status().unwrap().success(), "{name}.c does not compile");
    Some(Bench { dir, program })
}

const BARE: &[&str] = &["-static", "-nostdlib", "-fno-stack-protector"];

fn known(test: &str, tools: &[&str]) -> Option<Bench> {
    bench(test, "known", tools, BARE)
}

impl Bench {
    fn output(&self) -> PathBuf {
        self.dir.path().join("out.trace")
    }

    fn command(&self, options: &[&str], arguments: &[&str]) -> Command {
        // What starts tests in the background may have them ignore interrupts.
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", common::HUEPAGE, "trace", "--json", "--force"]);
        command.arg("--output").arg(self.output()).args(options);
        command.arg("--").arg(&self.program).args(arguments).stdin(Stdio::null());
        command
    }

    /// Records; gives the report and the records.
    fn record(&self, options: &[&str], arguments: &[&str], status: i32) -> (Value, Vec<Record>) {
        let output = self.command(options, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", said(&output));
        let report: Value = serde_json::from_slice(&output.stderr)
            .unwrap_or_else(|e| panic!("{e}: {}", said(&output)));
        let records = self.read();
        assert_eq!(report["summary"]["records"], records.len(), "{report}");
        (report, records)
    }

    fn read(&self) -> Vec<Record> {
        let reader = TraceReader::new(BufReader::new(File::open(self.output()).unwrap())).unwrap();
        reader.map(Result::unwrap).collect()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn count(records: &[Record], kind: AccessKind) -> u64 {
    records.iter().filter(|record| record.kind == kind).count() as u64
}

fn instructions(records: &[Record]) -> u64 {
    records.iter().map(|record| u64::from(record.instructions)).sum()
}

/// The longest run of stores of 8 bytes, each right behind the one before.
fn longest_fill(records: &[Record]) -> u64 {
    let (mut longest, mut run, mut next) = (0, 0, 0);
    for record in records.iter().filter(|r| r.kind == AccessKind::Store && r.bytes == 8) {
        run = if record.address.0 == next { run + 1 } else { 1 };
        next = record.address.0 + 8;
        longest = longest.max(run);
    }
    longest
}

/// Before anything is recorded, with or without `--output`.
#[test]
fn a_trace_that_exists_is_not_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    for (options, name) in [(&["-o", "kept.trace"][..], "kept.trace"), (&[], "true.trace")] {
        let path = dir.path().join(name);
        std::fs::write(&path, "of hours").unwrap();
        let mut command = Command::new(common::HUEPAGE);
        command.arg("trace").args(options).args(["--", "true"]).current_dir(dir.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", said(&output));
        assert!(said(&output).contains("overwrite it with --force"), "{}", said(&output));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of hours");
    }
}

#[test]
fn a_trace_is_overwritten_by_force() {
    let Some(bench) = known("overwriting by force", &["qemu-x86_64"]) else { return };
    std::fs::write(bench.output(), "of hours").unwrap();
    let (report, _) = bench.record(&["--recorder=qemu"], &["3"], 0);
    assert!(report["summary"]["records"].as_u64() > Some(0) && report["schema"] == 1, "{report}");
}

#[test]
fn every_store_and_load_of_a_known_program_is_recorded_once_and_in_order() {
    let Some(bench) = known("a known program", &["qemu-x86_64"]) else { return };
    let (report, records) = bench.record(&["--recorder=qemu"], &[&WORDS.to_string()], 0);
    assert_eq!(longest_fill(&records), WORDS);
    // Besides the words: a return address, the argument's characters and their pointers.
    let extra = records.len() as u64 - 2 * WORDS;
    assert!(extra <= 16, "{extra} accesses too many: {report}");
    assert_eq!(report["lost_records"], 0);
    assert_eq!((&report["processes"], &report["threads"]), (&1.into(), &1.into()));
}

#[test]
fn lackey_and_the_plugin_agree_to_the_record() {
    let Some(bench) = known("lackey", &["qemu-x86_64", "valgrind"]) else { return };
    let words = WORDS.to_string();
    let (_, plugin) = bench.record(&["--recorder=qemu"], &[&words], 0);
    let (report, lackey) = bench.record(&["--recorder=lackey"], &[&words], 0);
    for kind in [AccessKind::Load, AccessKind::Store] {
        assert_eq!(count(&plugin, kind), count(&lackey, kind), "{kind:?}");
    }
    assert_eq!(longest_fill(&lackey), WORDS);
    assert_eq!(instructions(&plugin), instructions(&lackey));
    assert!(report["notes"].to_string().contains("no children"), "{report}");
}

#[test]
fn fetches_are_recorded_when_asked_for_and_stay_within_lines() {
    let Some(bench) = known("fetches", &["qemu-x86_64"]) else { return };
    let (_, with) = bench.record(&["--recorder=qemu", "--fetches"], &[&WORDS.to_string()], 0);
    let (_, without) = bench.record(&["--recorder=qemu"], &[&WORDS.to_string()], 0);
    let fetches: Vec<_> = with.iter().filter(|r| r.kind == AccessKind::Fetch).collect();
    assert!(fetches.len() as u64 >= 2 * WORDS, "{} fetches", fetches.len());
    assert!(fetches.iter().all(|r| r.address.0 % 64 + u64::from(r.bytes) <= 64));
    assert_eq!(count(&without, AccessKind::Fetch), 0);
    assert_eq!(with.len() - fetches.len(), without.len());
}

#[test]
fn threads_are_told_apart_and_the_exit_status_is_the_program_s() {
    let test = "a program of two threads";
    let Some(bench) = bench(test, "threads", &["qemu-x86_64"], &["-pthread"]) else { return };
    let (report, records) = bench.record(&["--recorder=qemu"], &[], 7);
    assert_eq!((&report["spaces"], &report["threads"]), (&1.into(), &3.into()), "{report}");
    for thread in [1, 2] {
        let own: Vec<Record> = records.iter().filter(|r| r.thread == thread).copied().collect();
        assert_eq!(longest_fill(&own), 4096, "thread {thread}");
        let stores = count(&own, AccessKind::Store);
        assert!((409_600..420_000).contains(&stores), "thread {thread}: {stores} stores");
        let told = instructions(&own);
        assert!((3 * 409_600..8 * 409_600).contains(&told), "thread {thread}: {told}");
    }
}

#[test]
fn children_are_recorded_whether_they_exit_execute_or_are_killed() {
    let Some(bench) = bench("children", "forks", &["qemu-x86_64"], &[]) else { return };
    let (report, records) = bench.record(&["--recorder=qemu"], &[], 0);
    assert_eq!(report["processes"], 4, "{report}");
    // One for each process and one for the program that a child executed.
    assert_eq!(report["spaces"], 5, "{report}");
    let spaces: BTreeSet<u16> = records.iter().map(|r| r.space).collect();
    assert_eq!(spaces, (0..5).collect());
    let filled = |space: &u16| {
        let own = records.iter().filter(|r| r.space == *space).copied().collect::<Vec<_>>();
        count(&own, AccessKind::Store) >= 50 * 4096 && longest_fill(&own) >= 4096
    };
    assert_eq!(spaces.iter().filter(|space| filled(space)).count(), 3, "{report}");
}

#[test]
fn scripts_and_pipelines_are_followed() {
    let Some(bench) = known("a script", &["qemu-x86_64"]) else { return };
    let script = bench.dir.path().join("script");
    std::fs::write(
        &script,
        format!("#!/bin/sh\n{} 500 && true | cat\nexit 9\n", bench.program.display()),
    )
    .unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).unwrap();
    let bench = Bench { program: script, ..bench };
    let (report, records) = bench.record(&["--recorder=qemu"], &[], 9);
    assert_eq!(report["unrecorded_programs"], 0, "{report}");
    let spaces: BTreeSet<u16> = records.iter().map(|r| r.space).collect();
    let filled = |space: &u16| {
        let own: Vec<Record> = records.iter().filter(|r| r.space == *space).copied().collect();
        longest_fill(&own) == 500 && own.len() < 1100
    };
    assert_eq!(spaces.iter().filter(|space| filled(space)).count(), 1, "{report}");
}

#[test]
fn a_limit_of_records_is_kept_exactly_and_the_program_runs_on() {
    let Some(bench) = known("a limit of records", &["qemu-x86_64"]) else { return };
    // The program checks its own sum: status 0 says that it came to its end.
    let (report, records) = bench.record(&["--recorder=qemu", "--limit=5000"], &["65536"], 0);
    assert_eq!(records.len(), 5000);
    assert_eq!(report["limited"], true);
}

#[test]
fn a_limit_of_size_is_not_exceeded() {
    let test = "a limit of size";
    let Some(bench) = bench(test, "threads", &["qemu-x86_64"], &["-pthread"]) else { return };
    let (report, records) = bench.record(&["--recorder=qemu", "--limit=16K"], &[], 7);
    let size = std::fs::metadata(bench.output()).unwrap().len();
    assert!(size <= 16 << 10, "{size} bytes");
    assert!(records.len() > 1000 && report["limited"] == true, "{report}");
}

#[test]
fn a_skip_of_instructions_leaves_the_rest() {
    let Some(bench) = known("a skip", &["qemu-x86_64"]) else { return };
    let words = ["65536"];
    let (_, all) = bench.record(&["--recorder=qemu"], &words, 0);
    let half = instructions(&all) / 2;
    let skip = format!("--skip={half}");
    let (_, rest) = bench.record(&["--recorder=qemu", &skip], &words, 0);
    let missed = instructions(&all) - instructions(&rest);
    assert!(missed.abs_diff(half) <= 1000, "{missed} of {half} were skipped");
    assert!(!rest.is_empty() && rest.len() < all.len());
    let (report, none) = bench.record(&["--recorder=qemu", "--skip=99999999"], &words, 0);
    assert!(none.is_empty() && report["notes"].to_string().contains("skip less"), "{report}");
}

/// A recorded program that would go on for ever.
fn endless(bench: &Bench, options: &[&str]) -> Child {
    let mut command = bench.command(options, &["9000000000000"]);
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// What it says when it ends, which it must.
fn ended(mut child: Child) -> (std::process::ExitStatus, String) {
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > common::HANGS {
            let _ = child.kill();
            panic!("the recorder did not end");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (status, said)
}

#[test]
fn a_limit_can_end_the_program_too() {
    let Some(bench) = known("--stop-at-limit", &["qemu-x86_64"]) else { return };
    let options = ["--recorder=qemu", "--limit=100000", "--stop-at-limit"];
    let (status, said) = ended(endless(&bench, &options));
    assert_eq!(status.code(), Some(0), "{said}");
    assert_eq!(bench.read().len(), 100_000, "{said}");
}

#[test]
fn an_interrupt_ends_the_program_and_leaves_a_good_trace() {
    use std::os::unix::process::ExitStatusExt;
    let Some(bench) = known("an interrupt", &["qemu-x86_64"]) else { return };
    let child = endless(&bench, &["--recorder=qemu"]);
    let began = Instant::now();
    // Until it is known to record.
    while std::fs::metadata(bench.output()).map_or(0, |file| file.len()) < 2000 {
        assert!(began.elapsed() < common::HANGS, "nothing is recorded");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let (status, said) = ended(child);
    assert_eq!(status.signal(), Some(libc::SIGINT), "{said}");
    assert!(bench.read().len() > 10_000, "{said}");
}

#[test]
fn what_cannot_be_recorded_is_refused_in_one_line() {
    let Some(bench) = known("bad input", &["qemu-x86_64"]) else { return };
    let missing = Bench { program: "/no/such/program".into(), ..bench };
    let output = missing.command(&["--recorder=qemu"], &[]).output().unwrap();
    assert_eq!((output.status.code(), said(&output).lines().count()), (Some(127), 1));
    let nowhere = Bench { program: "/bin/true".into(), ..missing };
    let mut command = nowhere.command(&["--recorder=qemu"], &[]);
    let output = command.env("HUEPAGE_PLUGIN_DIR", "/nowhere").output().unwrap();
    assert_eq!((output.status.code(), said(&output).lines().count()), (Some(125), 1));
    assert!(said(&output).contains("HUEPAGE_PLUGIN_DIR"), "{}", said(&output));
}
