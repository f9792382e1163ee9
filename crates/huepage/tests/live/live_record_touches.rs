//! `huepage record` by accessed bits, by page faults and of pages in use, on programs that are there: what is
//! saved is replayed to the same counts, a signal ends a recording whole, and errors are one line.

use crate::common;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Whatever takes longer never comes.
const GENEROUS: Duration = common::HANGS;

/// The turn of a test whose program has small pages.
fn turn(test: &str) -> Option<common::Turn> {
    let turn = common::live(test)?;
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if enabled.is_ok_and(|text| text.contains("[always]")) {
        let why = "the kernel builds superpages itself (THP is always); set it to madvise";
        common::skip(test, why);
        return None;
    }
    Some(turn)
}

/// A walk by chance through so many MiB of small pages, until it is killed.
fn walk(mib: &str) -> common::Killed {
    let mut command = Command::new(common::tools().join("huepage-superpages"));
    command.args(["gups", "--mib", mib, "--seconds", "1000"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let walker = common::Killed(child.unwrap());
    let bytes = mib.parse::<u64>().unwrap() << 20;
    wait(|| resident(walker.0.id()) >= bytes);
    walker
}

fn wait(come: impl Fn() -> bool) {
    let began = Instant::now();
    while !come() {
        assert!(began.elapsed() < GENEROUS, "what is waited for does not come");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn resident(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn record(pid: u32, options: &[&str], output: &Path) -> Output {
    let (pid, output) = (pid.to_string(), output.to_str().unwrap());
    let args = [&["record", "--json", "--output", output], options, &[&pid]].concat();
    common::huepage(&args)
}

fn parsed(output: &Output) -> Value {
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What is recorded once the program ran enough for it: a busy machine may leave it little time.
fn recorded(pid: u32, options: &[&str], output: &Path, enough: impl Fn(&Value) -> bool) -> Value {
    let mut seconds = 2;
    loop {
        let time = seconds.to_string();
        let output = record(pid, &[options, &["--seconds", &time]].concat(), output);
        if output.status.success() {
            let found = parsed(&output);
            if enough(&found) {
                return found;
            }
        }
        assert!(output.status.success() || output.status.code() == Some(110), "{output:?}");
        assert!(seconds < 60, "{output:?}");
        seconds *= 2;
    }
}

fn replayed(options: &[&str], file: &Path) -> Value {
    let args = [&["replay", "--json"], options, &[file.to_str().unwrap()]].concat();
    parsed(&common::huepage(&args))
}

/// What was saved is what was counted: in all and of each area.
fn check_replay(recorded: &Value, replayed: &Value) {
    for of in ["pid", "sensor", "event", "looks", "pages", "touched", "samples"] {
        assert_eq!(replayed[of], recorded[of], "{of}");
    }
    for of in ["looks", "pages", "touched", "samples", "lost", "seconds", "cpu_seconds", "ended"] {
        assert_eq!(replayed["totals"][of], recorded[of], "{of}");
    }
    let areas = |of: &Value| -> Vec<Value> {
        let strip = |area: &Value| {
            let mut area = area.as_object().unwrap().clone();
            area.remove("confined");
            Value::Object(area)
        };
        of["areas"].as_array().unwrap().iter().map(strip).collect()
    };
    assert_eq!(areas(replayed), areas(recorded));
}

/// Whether page tables can be read here; where not, the sensor is refused in one line.
fn has_accessed_bits(test: &str, pid: u32, file: &Path) -> bool {
    let tried = record(pid, &["--sensor", "accessed-bits", "--seconds", "0.05"], file);
    let said = String::from_utf8_lossy(&tried.stderr);
    assert!(said.lines().count() <= 1, "{said}");
    let lacks = tried.status.code() == Some(101);
    if lacks {
        common::skip(test, said.trim());
    }
    !lacks
}

#[test]
fn touched_pages_are_recorded_and_replayed_into_superpages() {
    let test = "record: accessed bits";
    let Some(_turn) = turn(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("touches.jsonl");
    let walker = walk("64");
    let pid = walker.0.id();
    if !has_accessed_bits(test, pid, &file) {
        return;
    }
    let touched = |found: &Value| found["touched"].as_u64() >= Some(2000);
    let found = recorded(pid, &["--sensor", "accessed-bits"], &file, touched);
    let policies = ["--policy", "approx-online", "--policy", "online", "--policy", "asap"];
    let replay = replayed(&policies, &file);
    check_replay(&found, &replay);
    assert!(replay["surveys"].as_u64() >= Some(1), "{replay:#}");
    let rows = replay["policies"].as_array().unwrap();
    let number = |row: &Value, of: &str| row["report"]["spaces"][0][of].as_u64().unwrap();
    // The kernel may build superpages of its own accord; those are none of the policies'.
    let pages = number(&rows[0], "pages");
    assert!(pages >= 64 << 8, "{replay:#}");
    for row in &rows[1..] {
        assert!(number(row, "promotions") <= pages / 512 + 2, "{row:#}");
        let walks = |row: &Value| row["report"]["walks"].as_u64().unwrap();
        assert!(walks(row) <= walks(&rows[0]) + walks(&rows[0]) / 10, "{row:#}");
    }
    assert_eq!(replay, replayed(&policies, &file), "the same each time");
}

#[test]
fn page_faults_stand_in_for_a_pmu() {
    let Some(_turn) = common::live("record: page faults") else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("faults.jsonl");
    // Processes come and go in it; the shell itself touches pages for the first time at each fork.
    let script = "while true; do x=$(true); done";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::null());
    let shell = common::Killed(command.spawn().unwrap());
    let options = ["--sensor", "pmu", "--event", "page-faults"];
    let some = |found: &Value| found["samples"].as_u64() >= Some(100);
    let found = recorded(shell.0.id(), &options, &file, some);
    assert_eq!(found["event"], "page-faults");
    let replay = replayed(&[], &file);
    check_replay(&found, &replay);
    assert_eq!(replay["policies"][1]["parameters"][0]["value"], "asap");
    let args = ["replay", "--policy", "approx-online", file.to_str().unwrap()];
    let refused = common::huepage(&args);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        refused.status.code() == Some(112) && said.contains("--sensor accessed-bits"),
        "{said}"
    );
}

#[test]
fn pages_in_use_are_recorded_with_their_colours() {
    let test = "record: pages in use";
    let Some(_turn) = turn(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("crowd.jsonl");
    let walker = walk("2");
    let options = ["--in-use", "--colors-from", "declared", "--cpu", "2%"];
    let began = Instant::now();
    let found = loop {
        let output = record(walker.0.id(), &[&options[..], &["--seconds", "3"]].concat(), &file);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.code() {
            Some(0) => break parsed(&output),
            Some(101) => return common::skip(test, said.trim()),
            // Too noisy, or it did not run just then.
            code => assert!(code == Some(110) && began.elapsed() < GENEROUS, "{output:?}"),
        }
    };
    let replay = replayed(&[], &file);
    for of in ["pid", "samples", "found"] {
        assert_eq!(replay[of], found[of], "{of}");
    }
    let pages = found["pages"].as_array().unwrap().len();
    assert_eq!(replay["conflicts"]["pages"].as_u64(), Some(pages as u64));
    let by_color = replay["conflicts"]["pages_by_color"].as_array().unwrap();
    let known: u64 = by_color.iter().filter_map(Value::as_u64).sum();
    assert!(known > 0 && known <= pages as u64, "{replay:#}");
    assert_eq!(replay["policies"][1]["parameters"][0]["value"], "snapshot-in-use");
}

/// A recording on its way, until a signal ends it.
fn started(pid: u32, file: &Path) -> Child {
    let mut command = Command::new(common::HUEPAGE);
    command.args(["record", "--json", "--sensor", "accessed-bits", "--seconds", "1000"]);
    command.arg("--output").arg(file).arg(pid.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_signal_ends_a_recording_whole() {
    let test = "record: a signal";
    let Some(_turn) = turn(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("touches.jsonl");
    let walker = walk("16");
    if !has_accessed_bits(test, walker.0.id(), &file) {
        return;
    }
    std::fs::remove_file(&file).unwrap();
    let recorder = started(walker.0.id(), &file);
    wait(|| std::fs::metadata(&file).is_ok_and(|found| found.len() > 1000));
    let pid = rustix::process::Pid::from_child(&recorder);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = recorder.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    check_replay(&found, &replayed(&[], &file));
    assert_eq!(found["ended"], false);
}

#[test]
fn a_program_that_ends_is_told_and_errors_are_one_line() {
    let test = "record: touches: errors";
    let Some(_turn) = turn(test) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("touches.jsonl");
    let mut walker = walk("16");
    if !has_accessed_bits(test, walker.0.id(), &file) {
        return;
    }
    std::fs::remove_file(&file).unwrap();
    let recorder = started(walker.0.id(), &file);
    wait(|| std::fs::read_to_string(&file).is_ok_and(|text| text.contains("window_ns")));
    walker.0.kill().unwrap();
    walker.0.wait().unwrap();
    let output = recorder.wait_with_output().unwrap();
    let found = parsed(&output);
    assert_eq!(found["ended"], true, "{found:#}");
    check_replay(&found, &replayed(&[], &file));

    let gone = common::huepage(&["record", "--sensor", "accessed-bits", "2147483646"]);
    assert_eq!(gone.status.code(), Some(102), "{gone:?}");
    let sleeper = common::Killed(Command::new("sleep").arg("1000").spawn().unwrap());
    let pid = sleeper.0.id().to_string();
    let idle = ["record", "--sensor", "accessed-bits", "--seconds", "0.3", &pid];
    let event = ["record", "--event", "loads", &pid];
    let in_use = ["record", "--sensor", "pmu", "--in-use", &pid];
    for (args, status) in [(&idle[..], 110), (&event[..], 2), (&in_use[..], 2)] {
        let output = common::huepage(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    drop(gone);
}
