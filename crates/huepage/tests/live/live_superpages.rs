//! Superpages that are built in running programs, against a live system: that they are built where
//! many misses are and not where they would cost memory, that attached programs get them and keep
//! them, and that no program notices when huepage is killed. How fast all that is, is measured by
//! `huepage-bench superpage-speed` and its like, not here.

use crate::common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Target;
use serde_json::Value;

/// Whatever takes longer never comes.
const GENEROUS: Duration = common::HANGS;

/// Whether this machine can do what is tested: where page tables cannot be read, other sensors are
/// used, which are too coarse for what is asserted here.
fn turn(test: &str) -> Option<common::Turn> {
    let turn = common::live(test)?;
    let report = report_of(test, &["asap"], &["true"]);
    assert_eq!(report["superpages"]["policy"], "asap", "{report}");
    let always = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").ok()?;
    if always.contains("[always]") {
        common::skip(
            test,
            "the kernel builds superpages itself (THP is always); set it to madvise",
        );
        return None;
    }
    Some(turn)
}

/// The report of a run with superpages by a policy.
fn report_of(test: &str, options: &[&str], command: &[&str]) -> Value {
    let path = std::env::temp_dir().join(format!("huepage-{test}-{}.json", std::process::id()));
    let path = path.to_str().unwrap();
    let run = ["run", "-q", "--report", path, "--superpages"];
    let output = common::huepage(&[&run[..], options, &["--"], command].concat());
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(path).unwrap();
    std::fs::remove_file(path).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn workload() -> String {
    common::tools().join("huepage-superpages").to_str().unwrap().to_owned()
}

/// The report of a workload that ran long enough for what must come: a busy machine may leave it too little time.
fn tried(test: &str, options: &[&str], program: &[&str], come: impl Fn(&Value) -> bool) -> Value {
    let mut seconds = 6;
    loop {
        let (workload, time) = (workload(), seconds.to_string());
        let command = [&[&*workload], program, &["--seconds", &time]].concat();
        let report = report_of(test, options, &command);
        if come(&report) || seconds > 32 {
            return report;
        }
        seconds *= 2;
    }
}

/// Likewise, of a walk by chance through so many MiB.
fn walked(test: &str, options: &[&str], mib: &str, come: impl Fn(&Value) -> bool) -> Value {
    tried(test, options, &["gups", "--mib", mib], come)
}

fn number(report: &Value, name: &str) -> f64 {
    report["superpages"][name].as_f64().unwrap_or_else(|| panic!("no {name}: {report}"))
}

#[test]
fn a_walk_by_chance_gets_superpages_and_a_sparse_one_keeps_its_memory() {
    let Some(_turn) = turn("a_walk_by_chance_gets_superpages") else { return };
    // 128 blocks, of which the first and the last may not be whole.
    let built = |report: &Value| number(report, "promoted") >= 100.0;
    let report = walked("walk", &["approx-online"], "256", built);
    assert_eq!(report["superpages"]["source"], "accessed-bits", "{report}");
    assert!(built(&report), "{report}");
    assert!(number(&report, "saved_misses") > 1e6, "{report}");
    assert!(number(&report, "filled_pages") < 0.04 * 65536.0, "{report}");

    let refused = |report: &Value| report["superpages"]["refused"]["sparse"].as_u64() > Some(0);
    let report = tried("sparse", &["approx-online"], &["sparse", "--mib", "2048"], refused);
    // A superpage would fill 504 pages, and 4 % of 16,384 are allowed.
    assert!(number(&report, "filled_pages") <= 0.04 * 17_000.0, "{report}");
    assert!(refused(&report), "{report}");
}

#[test]
fn what_is_full_gets_superpages_without_any_sensor() {
    let Some(_turn) = turn("what_is_full_gets_superpages") else { return };
    let built = |report: &Value| number(report, "promoted") >= 50.0;
    let report = walked("full", &["asap"], "128", built);
    assert_eq!(report["superpages"]["source"], "none", "{report}");
    assert!(built(&report), "{report}");
    assert!(number(&report, "looks") < 1.0, "{report}");
}

/// A program with a right answer and much memory that it walks until it is told to end.
fn start(mib: &str) -> Target {
    let target = Target::of(mib, "600");
    std::thread::sleep(Duration::from_millis(200));
    target
}

/// Ends a supervisor in the midst of its work; whether its program goes on and comes to its right answer.
fn outlives(target: Target, attach: &mut Command, after: u64) {
    let mut attach = attach.stdin(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(after));
    attach.kill().unwrap();
    attach.wait().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(target.end(), Some(42), "killed after {after} ms");
}

/// What `inspect` says once a condition holds.
fn inspected(pid: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let output = common::huepage(&["inspect", "--json", pid]);
        assert!(output.status.success(), "{output:?}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        if holds(&found) {
            return found;
        }
        assert!(began.elapsed() < GENEROUS, "{found}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_attached_program_gets_superpages_and_keeps_them_when_it_is_detached() {
    let Some(_turn) = turn("an_attached_program_gets_superpages") else { return };
    let target = start("128");
    let pid = target.pid();
    // Whatever is full is built: nothing here hangs on how fast the program walks.
    let attached = common::huepage(&["attach", "-q", "--superpages", "asap", &pid]);
    assert!(attached.status.success(), "{attached:?}");
    let found = inspected(&pid, |found| found["superpages"]["promoted"].as_u64() >= Some(32));
    assert!(found["huge_bytes"].as_u64() >= Some(30 << 21), "{found}");
    let areas = found["areas"].as_array().unwrap();
    assert!(areas.iter().any(|area| area["huge"].as_u64() > Some(0)), "{found}");
    assert_eq!(common::huepage(&["detach", &pid]).status.code(), Some(0));
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let huge = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    let kib: u64 = huge.split_whitespace().next().unwrap().parse().unwrap();
    assert!(kib >= 30 << 11, "{text}");
    assert_eq!(target.end(), Some(42));
}

#[test]
fn a_program_does_not_notice_that_huepage_is_killed() {
    let Some(_turn) = turn("a_program_does_not_notice") else { return };
    for after in [30, 150, 400, 900] {
        let target = start("256");
        let mut attach = Command::new(common::HUEPAGE);
        attach.args(["attach", "--foreground", "-q", "--superpages", "asap", &target.pid()]);
        outlives(target, &mut attach, after);
    }
}

#[test]
fn a_partition_has_no_superpages_and_says_why() {
    let Some(_turn) = turn("a_partition_has_no_superpages") else { return };
    let options = ["approx-online", "--share", "50%", "--colors-from", "declared"];
    let program = [&*workload(), "gups", "--mib", "16", "--seconds", "2"];
    let report = report_of("partition", &options, &program);
    let why = report["no_superpages"].as_str().unwrap_or_else(|| panic!("no reason: {report}"));
    assert!(why.contains("the colours"), "{why}");
    assert!(report["compliance"]["share"].as_f64() >= Some(0.99), "{report}");
}

/// A partition of declared colours: nothing is measured, and whether they are real is not the point.
const HALF: [&str; 4] = ["--share", "50%", "--colors-from", "declared"];

#[test]
fn a_program_in_a_partition_gets_superpages_where_they_pay_and_is_said_to_leave_it() {
    let Some(_turn) = turn("a_program_in_a_partition_gets_superpages") else { return };
    let options = [&["approx-online", "--superpages-in-partition", "benefit"][..], &HALF].concat();
    let report = walked("benefit", &options, "128", |report| number(report, "promoted") >= 20.0);
    assert_eq!(report["superpages"]["source"], "accessed-bits", "{report}");
    let built = number(&report, "promoted");
    assert!(built >= 20.0, "{report}");
    // Half of each lies outside, and is counted as outside, by choice.
    let outside = report["left_alone"]["superpage, outside by choice"].as_f64().unwrap_or(0.0);
    assert!(outside >= 200.0 && outside <= 256.0 * built, "{report}");
    let share = report["compliance"]["share"].as_f64().unwrap();
    let movable = report["compliance"]["movable"].as_f64().unwrap();
    assert!(share <= 1.0 - outside / movable + 1e-9, "{report}");
    assert!(share > 0.4, "all else is inside: {report}");

    let gups = [&workload(), "gups", "--mib", "128", "--seconds", "4"];
    let report = report_of("respect", &[&["approx-online"], &HALF[..]].concat(), &gups);
    assert!(report["superpages"].is_null(), "{report}");
    let why = report["no_superpages"].as_str().unwrap_or_else(|| panic!("no reason: {report}"));
    assert!(why.contains("the colours"), "{why}");
    assert!(report["left_alone"]["superpage, outside by choice"].is_null(), "{report}");
}

#[test]
fn an_attached_program_whose_partition_is_respected_is_told_why_it_gets_none() {
    let Some(_turn) = turn("an_attached_program_whose_partition_is_respected") else { return };
    let target = Target::start("600");
    let pid = target.pid();
    let attach = ["attach", "--superpages", "approx-online", &pid];
    let attached = common::huepage(&[&attach[..], &HALF].concat());
    assert!(attached.status.success(), "{attached:?}");
    let said = String::from_utf8_lossy(&attached.stderr);
    assert!(said.contains("no superpages are built: "), "{said}");
    let found = inspected(&pid, |_| true);
    let why = found["partition"]["no_superpages"].as_str().unwrap_or_default();
    assert!(why.contains("the colours"), "{found}");
    assert_eq!(target.end(), Some(42));
}

#[test]
fn a_program_in_a_partition_keeps_its_superpages_when_it_is_detached() {
    let Some(_turn) = turn("a_program_in_a_partition_keeps_its_superpages") else { return };
    // It stays for as long as it is looked at, however slow the machine is.
    let gups = [&workload(), "gups", "--mib", "128", "--seconds", "600"];
    let mut child = Command::new(gups[0]);
    child.args(&gups[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = common::Killed(child.spawn().unwrap());
    std::thread::sleep(Duration::from_millis(500));
    let pid = child.0.id().to_string();
    let options = ["--superpages", "approx-online", "--superpages-in-partition", "benefit", &pid];
    let attached = common::huepage(&[&["attach", "-q"], &HALF[..], &options].concat());
    assert!(attached.status.success(), "{attached:?}");
    let left_alone = |found: &Value| {
        let known = found["census"]["left_alone"].as_object()?;
        known.iter().find(|(why, _)| why.eq_ignore_ascii_case("superpage"))?.1.as_u64()
    };
    let found = inspected(&pid, |found| {
        // The two are told by threads that do not wait for each other.
        let [engine, worker] = ["engine", "superpages"].map(|whose| &found[whose]);
        let built = [&engine["superpages"], &worker["promoted"]].map(Value::as_u64);
        built.iter().min() >= Some(&Some(8)) && left_alone(found) >= Some(8 * 200)
    });
    assert!(found["huge_bytes"].as_u64() >= Some(8 << 21), "{found}");
    assert!(found["compliance"]["share"].as_f64() < Some(1.0), "{found}");
    assert_eq!(common::huepage(&["detach", &pid]).status.code(), Some(0));
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let huge = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    let kib: u64 = huge.split_whitespace().next().unwrap().parse().unwrap();
    assert!(kib >= 8 << 11, "{text}");
    assert!(child.0.try_wait().unwrap().is_none(), "it runs on");
}

/// Walks 32 MiB by chance until it is told to stop, and then does without.
const PHASES: &str = "
import mmap, random, select, sys
memory = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, len(memory), 4096):
    memory[at] = 1
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(1000):
        memory[random.randrange(len(memory))] = 1
while True:
    sum(range(1000))
";

#[test]
fn superpages_in_a_partition_that_are_used_no_more_go_back_into_their_colours() {
    let test = "superpages_in_a_partition_that_are_used_no_more";
    let Some(_turn) = turn(test) else { return };
    let mut python = Command::new("python3");
    python.args(["-c", PHASES]).stdin(Stdio::piped()).stdout(Stdio::null());
    let Ok(child) = python.spawn() else { return common::skip(test, "python3 is not installed") };
    let mut child = common::Killed(child);
    std::thread::sleep(Duration::from_millis(500));
    let pid = child.0.id().to_string();
    let options = ["--superpages", "approx-online", "--superpages-in-partition", "benefit", &pid];
    let attached = common::huepage(&[&["attach", "-q"], &HALF[..], &options].concat());
    assert!(attached.status.success(), "{attached:?}");
    inspected(&pid, |found| found["engine"]["superpages"].as_u64() >= Some(8));
    // The end of its input is readable, too.
    drop(child.0.stdin.take());
    let back = |found: &Value| {
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        let size = |area: &Value| number(&area["huge"]) + number(&area["small"]);
        let mut walked = found["areas"].as_array().unwrap().iter().filter(|a| size(a) >= 32 << 20);
        let given_back = walked.next().is_some_and(|area| number(&area["huge"]) == 0);
        // One may stay: of its interpreter's own data the program goes on to use what it used before.
        let one = number(&found["engine"]["superpages"]) <= 1;
        let kept = number(&found["census"]["left_alone"]["superpage"]);
        let [movable, inside] = ["movable", "in_colors"].map(|n| number(&found["compliance"][n]));
        let others = 100 * inside >= 99 * (movable - kept.min(256));
        one && given_back && others && number(&found["superpages"]["idle"]) >= 8
    };
    inspected(&pid, back);
    assert_eq!(common::huepage(&["detach", &pid]).status.code(), Some(0));
}

#[test]
fn a_program_in_a_partition_does_not_notice_that_huepage_is_killed() {
    let Some(_turn) = turn("a_program_in_a_partition_does_not_notice") else { return };
    for after in [200, 700, 1500] {
        let target = start("128");
        let mut attach = Command::new(common::HUEPAGE);
        attach.args(["attach", "--foreground", "-q", "--superpages", "approx-online"]);
        attach.args(HALF).args(["--superpages-in-partition", "benefit", &target.pid()]);
        outlives(target, &mut attach, after);
    }
}

#[test]
fn errors_are_one_line() {
    let lacks_pmu = !Path::new("/sys/bus/event_source/devices/cpu").exists()
        && !Path::new("/sys/bus/event_source/devices/ibs_op").exists();
    let pmu = ["run", "--superpages", "throttle", "--misses-from", "pmu", "--", "true"];
    let wrong = ["run", "--superpages", "throttle", "--memory-overhead", "x", "--", "true"];
    assert_eq!(common::huepage(&wrong).status.code(), Some(2));
    let Some(_turn) = common::live("errors_are_one_line") else { return };
    let gone = ["attach", "--superpages", "approx-online", "4194303"];
    let blind =
        ["run", "--share=50%", "--superpages=asap", "--superpages-in-partition=benefit", "ls"];
    let cases = [(&gone[..], 102, true), (&pmu[..], 101, lacks_pmu), (&blind[..], 2, true)];
    for (args, status, _) in cases.into_iter().filter(|case| case.2) {
        let output = common::huepage(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}
