//! `huepage lab`: a stock kernel with exact caches. Needs neither root nor this machine's kernel, but QEMU, a
//! static busybox and a kernel for the guest: scripts/setup-programs.sh brings all three. Where one is missing the
//! tests are skipped like other live tests, which fails where these are required.

use crate::common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;

/// One guest at a time: each takes two processors.
static GUEST: Mutex<()> = Mutex::new(());

fn machine(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines").join(name)
}

fn lab(machine_file: &str, args: &[&str]) -> Output {
    let mut command = Command::new(common::HUEPAGE);
    command.args(["lab", "--machine"]).arg(machine(machine_file)).args(args);
    command.output().expect("it runs")
}

/// Whether guests can be booted here, with a kernel that huepage can work on.
fn booted(test: &str) -> Option<MutexGuard<'static, ()>> {
    let turn = GUEST.lock().unwrap_or_else(PoisonError::into_inner);
    let output = lab("lab-4-core.toml", &["boot", "--", "echo release $(uname -r)"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(1) && said.contains("needs packages") {
        common::skip(test, said.trim());
        return None;
    }
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let release = text.split_once("release ").map(|(_, release)| release).expect("a release");
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().expect("a version"), numbers.next().expect("a version"));
    if version < (6, 8) {
        common::skip(test, &format!("the newest kernel for guests is {}", release.trim()));
        return None;
    }
    Some(turn)
}

/// The victim and its neighbour, built once.
fn walks() -> String {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    let directory = BUILT.get_or_init(|| {
        let directory = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/walks.c");
        let mut gcc = Command::new("gcc");
        gcc.arg("-O2").arg("-o").arg(directory.path().join("walks")).arg(source);
        assert!(gcc.status().unwrap().success(), "walks.c does not compile");
        directory
    });
    directory.path().join("walks").display().to_string()
}

/// What a run of a victim beside streams says, as JSON.
fn compared(machine_file: &str, streams: usize, shares: &str, more: &[&str]) -> String {
    let (chase, stream) = (format!("{} chase 5120", walks()), format!("{} stream 16384", walks()));
    let cpus: Vec<String> = (0..=streams).map(|cpu| cpu.to_string()).collect();
    let mut args = vec!["--on", "0", &chase, "--shares", shares, "--json"];
    cpus[1..].iter().for_each(|cpu| args.extend(["--on", cpu, &stream]));
    args.extend(more);
    let output = lab(machine_file, &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn figure(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}: {report:#}"))
}

/// Alone nothing misses, beside nearly everything, and in shares next to nothing, least of all for a neighbour.
/// A few lines are evicted while huepage and the kernel still work; how intense neighbours are is told, not judged.
fn holds(report: &Value, most: f64) {
    let share = |column: usize| figure(report, &format!("/columns/{column}/programs/0/miss_share"));
    let last = |name: &str| figure(report, &format!("/columns/1/programs/0/levels/2/{name}"));
    let evicted = |column: usize| figure(report, &format!("/columns/{column}/evictions/0/1"));
    assert!(share(0) < 0.001, "alone: {report:#}");
    assert!(last("misses") > 0.9 * last("requests"), "beside: {report:#}");
    assert!(share(2) < most, "in shares: {report:#}");
    assert!(evicted(1) > 1e5 && evicted(2) < 1e-3 * evicted(1), "by the neighbour: {report:#}");
    assert!(figure(report, "/columns/2/programs/0/pages_moved") > 1000.0, "{report:#}");
}

#[test]
fn a_guest_has_the_caches_of_the_machine_file_and_gives_its_status() {
    let Some(_turn) = booted("a_guest_has_the_caches_of_the_machine_file_and_gives_its_status")
    else {
        return;
    };
    let script = "cat /sys/devices/system/cpu/cpu1/cache/index3/size; huepage info; exit 7";
    let output = lab("lab-4-core.toml", &["boot", "--", script]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("8192K") && text.contains("no hypervisor shows itself"), "{text}");
    let colors = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let second = colors.filter(|words| words.first() == Some(&"L2")).nth(1);
    assert_eq!(second.as_ref().and_then(|words| words.get(1)), Some(&"16"), "{text}");
}

#[test]
fn shares_keep_a_stream_out_of_a_plain_cache_and_the_simulator_counts_the_same() {
    let name = "shares_keep_a_stream_out_of_a_plain_cache_and_the_simulator_counts_the_same";
    let Some(_turn) = booted(name) else { return };
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().to_str().unwrap();
    let text = compared("lab-4-core.toml", 1, "75%,25%", &["--record", record, "--count", "0.2s"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    holds(&report, 0.02);
    let trace = directory.path().join("with-huepage.trace");
    let mut sim = Command::new(common::HUEPAGE);
    sim.args(["sim", "--mapping", "identity", "--json", "-m"]).arg(machine("lab-4-core.toml"));
    let simulated = sim.arg(&trace).output().unwrap();
    let simulated: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let mut compared = 0;
    for (at, cache) in report["columns"][2]["caches"].as_array().unwrap().iter().enumerate() {
        let counts = &simulated["report"]["caches"][at];
        let sum = |what: &str| -> f64 {
            ["fetches", "loads", "stores"]
                .iter()
                .map(|kind| figure(counts, &format!("/{what}/{kind}")))
                .sum()
        };
        let own = [figure(cache, "/requests"), figure(cache, "/misses")];
        assert_eq!(own, [sum("accesses"), sum("misses")], "{cache}");
        compared += usize::from(own[0] > 0.0);
    }
    assert_eq!(compared, 3, "{simulated:#}");
}

#[test]
#[ignore = "takes two minutes: cargo test -p huepage --test live hashed_cache -- --ignored"]
fn shares_keep_a_stream_out_of_a_hashed_cache() {
    let name = "shares_keep_a_stream_out_of_a_hashed_cache";
    let Some(_turn) = booted(name) else { return };
    let text = compared("lab-hashed.toml", 1, "85%,15%", &[]);
    // Slices of a hashed cache get uneven numbers of a program's lines.
    holds(&serde_json::from_str(&text).unwrap(), 0.04);
}

#[test]
fn a_run_repeats_to_the_byte() {
    let Some(_turn) = booted("a_run_repeats_to_the_byte") else { return };
    let chase = format!("{} chase 1024", walks());
    let [first, second] = [0, 1].map(|_| {
        let output = lab("lab-4-core.toml", &["--on", "0", &chase, "--json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    });
    assert!(first == second && first.contains("columns"), "{first}\n{second}");
}
