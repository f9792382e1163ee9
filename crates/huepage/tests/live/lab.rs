//! `huepage lab`: a stock kernel with exact caches. Needs neither root nor this machine's kernel, but QEMU, a
//! static busybox and a kernel for the guest: scripts/setup-programs.sh brings all three. Where one is missing the
//! tests are skipped like other live tests, which fails where these are required.

use crate::common::{self, Turn};

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn machine(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines").join(name)
}

pub fn lab(machine_file: &str, args: &[&str]) -> Output {
    let mut command = Command::new(common::HUEPAGE);
    command.args(["lab", "--machine"]).arg(machine(machine_file)).args(args);
    command.output().expect("it runs")
}

/// The turn of a test in guests, or `None` where it has to be skipped.
pub fn booted(test: &str) -> Option<Turn> {
    static OBSTACLE: OnceLock<Option<String>> = OnceLock::new();
    let turn = Turn::take(1);
    match OBSTACLE.get_or_init(obstacle) {
        Some(why) => {
            common::skip(test, why);
            None
        }
        None => Some(turn),
    }
}

/// Why no guest can be booted here with a kernel that huepage can work on: one is, to see.
fn obstacle() -> Option<String> {
    let output = lab("lab-4-core.toml", &["boot", "--", "echo release $(uname -r)"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.code() == Some(1) && said.contains("needs packages") {
        return Some(said.trim().to_owned());
    }
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let release = text.split_once("release ").map(|(_, release)| release).expect("a release");
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().expect("a version"), numbers.next().expect("a version"));
    (version < (6, 8)).then(|| format!("the newest kernel for guests is {}", release.trim()))
}

/// The victim and its neighbour, built once.
pub fn walks() -> String {
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

/// What a run of a victim with so many KiB beside a stream says, as JSON.
fn compared(machine_file: &str, kib: u32, shares: &str, more: &[&str]) -> String {
    let chase = format!("{} chase {kib}", walks());
    let stream = format!("{} stream 16384", walks());
    let mut args = vec!["--on", "0", &chase, "--on", "1", &stream, "--shares", shares, "--json"];
    args.extend(more);
    let output = lab(machine_file, &args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// What there is to be found in the end.
fn soon<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    while start.elapsed() < common::HANGS {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("it does not come");
}

fn figure(report: &Value, path: &str) -> f64 {
    report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path}: {report:#}"))
}

/// Alone nothing misses, beside nearly everything, and in shares next to nothing and nothing for a neighbour,
/// which was as busy as before.
fn holds(report: &Value) {
    let share = |column: usize| figure(report, &format!("/columns/{column}/programs/0/miss_share"));
    let last = |name: &str| figure(report, &format!("/columns/1/programs/0/levels/2/{name}"));
    let evicted = |column: usize| figure(report, &format!("/columns/{column}/evictions/0/1"));
    assert!(share(0) < 0.001, "alone: {report:#}");
    assert!(last("misses") > 0.9 * last("requests"), "beside: {report:#}");
    assert!(share(2) < 0.01, "in shares: {report:#}");
    assert!(evicted(1) > 1e5 && evicted(2) == 0.0, "by the neighbour: {report:#}");
    assert_eq!(report["columns"][2].get("unsettled"), None, "{report:#}");
    assert_eq!(report["verdict"]["comparable"], true, "{report:#}");
    // A quarter of its 1,280 pages lies outside at first where none was served at its fault: 320 by chance.
    assert!(figure(report, "/columns/2/programs/0/pages_moved") > 200.0, "{report:#}");
}

#[test]
fn a_guest_has_the_caches_of_the_machine_file_and_gives_its_status() {
    let Some(_turn) = booted("a_guest_has_the_caches_of_the_machine_file_and_gives_its_status")
    else {
        return;
    };
    let script = "cat /sys/devices/system/cpu/cpu1/cache/index3/size /sys/devices/system/node/node1/cpulist; \
                  grep MemTotal /sys/devices/system/node/node*/meminfo; huepage info; exit 7";
    let output = lab("lab-4-core.toml", &["--cpus", "4", "--numa", "2", "boot", "--", script]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.contains("8192K") && text.contains("no hypervisor shows itself"), "{text}");
    assert!(text.contains("2-3") && text.matches("MemTotal").count() == 2, "two nodes: {text}");
    let colors = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let second = colors.filter(|words| words.first() == Some(&"L2")).nth(1);
    assert_eq!(second.as_ref().and_then(|words| words.get(1)), Some(&"16"), "{text}");
}

#[test]
fn a_cache_in_shares_keeps_a_stream_out_and_the_simulator_counts_the_same() {
    let name = "a_cache_in_shares_keeps_a_stream_out_and_the_simulator_counts_the_same";
    let Some(_turn) = booted(name) else { return };
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().to_str().unwrap();
    let text =
        compared("lab-4-core.toml", 5120, "75%,25%", &["--record", record, "--count", "0.05s"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    holds(&report);
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
    let text = compared("lab-hashed.toml", 5120, "85%,15%", &[]);
    holds(&serde_json::from_str(&text).unwrap());
}

#[test]
#[ignore = "takes minutes: cargo test -p huepage --test live three_streams -- --ignored"]
fn shares_keep_three_streams_out() {
    let Some(_turn) = booted("shares_keep_three_streams_out") else { return };
    let [chase, stream] = ["chase 2560", "stream 16384"].map(|of| format!("{} {of}", walks()));
    for (file, shares) in
        [("lab-4-core.toml", "40%,20%,20%,20%"), ("lab-hashed.toml", "55%,15%,15%,15%")]
    {
        let mut args = vec!["--on", "0", &chase, "--shares", shares, "--json"];
        ["1", "2", "3"].iter().for_each(|cpu| args.extend(["--on", cpu, &stream]));
        let output = lab(file, &args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report = serde_json::from_slice(&output.stdout).unwrap();
        holds(&report);
        let evicted = |by: u32| figure(&report, &format!("/columns/2/evictions/0/{by}"));
        assert_eq!([evicted(2), evicted(3)], [0.0, 0.0], "{report:#}");
    }
}

#[test]
fn a_program_is_recorded_with_the_kernel_below_it() {
    let Some(_turn) = booted("a_program_is_recorded_with_the_kernel_below_it") else { return };
    let directory = tempfile::tempdir().unwrap();
    let (trace, data) = (directory.path().join("t.trace"), directory.path().join("data"));
    std::fs::write(&data, vec![b'x'; 1 << 20]).unwrap();
    let mut command = Command::new(common::HUEPAGE);
    command.arg("trace").arg("--system").arg(machine("lab-4-core.toml")).arg("-o").arg(&trace);
    command.arg("--pack").arg(&data).args(["--", "grep", "-q", "y"]).arg(&data);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "grep finds nothing: {output:?}");
    let said = common::huepage(&["trace", "stats", "--json", trace.to_str().unwrap()]);
    let stats: Value = serde_json::from_slice(&said.stdout).unwrap();
    // All bytes of the file are looked at, and copied by the kernel before.
    let mut sim = Command::new(common::HUEPAGE);
    sim.args(["sim", "--mapping", "identity", "--json", "-m"]).arg(machine("lab-4-core.toml"));
    let simulated = sim.arg(&trace).output().unwrap();
    let simulated: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let loads: f64 =
        (0..2).map(|at| figure(&simulated, &format!("/report/caches/{at}/accesses/loads"))).sum();
    assert!(loads > 100_000.0, "{simulated:#}\n{stats:#}");
}

/// Whether no kernel has the name that was asked for; another file that is bad is a failure.
fn has_no_kernel(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    output.status.code() == Some(112) && said.contains("no file and no kernel in")
}

/// Starts a program in half of the last level, does something to the guest, and says how much lies inside then. It
/// rests, so that seconds of the guest pass at once.
fn confined_while(disturbance: &str) -> String {
    let walks = walks();
    format!(
        "inside() {{ for n in $(seq 100); do \
             share=$(huepage inspect --json $(pidof walks) | grep -A 3 compliance | grep share | tr -d ' '); \
             [ \"$share\" = '\"share\":1.0' ] && break; sleep 1; \
         done; echo inside $1: $share; }}; \
         huepage run -q --level llc --share 50% --colors-from pfn -- {walks} hold 4096 & \
         sleep 2; inside before; {disturbance}; inside after; kill $(pidof walks); \
         huepage run -q --share 50% --colors-from pfn -- sh -c 'exit 42'; echo ends with $?"
    )
}

/// A partition stays whole in a guest with some options while something happens, which shows in what is said.
fn stays_whole(test: &str, options: &[&str], disturbance: &str, shown: &str) {
    let script = confined_while(disturbance);
    let output = lab("lab-4-core.toml", &[options, &["boot", "--", &script]].concat());
    if has_no_kernel(&output) {
        return common::skip(test, format!("{options:?} is not here"));
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let whole = ["before", "after"].map(|when| format!("inside {when}: \"share\":1.0"));
    for line in [shown, &whole[0], &whole[1], "ends with 42"] {
        assert!(text.contains(line), "{options:?}, {disturbance}: no `{line}` in {text}");
    }
}

#[test]
fn kernels_and_what_befalls_them_leave_a_partition_whole() {
    let test = "kernels_and_what_befalls_them";
    let Some(_turn) = booted(test) else { return };
    // The lab turns page tables of the kernel's own off, with all else of their kind.
    let isolated = ["--append", "vdso=0 mitigations=auto pti=on"];
    let vdso = "echo vdso $(grep -c vdso /proc/self/maps) $(grep -o -m1 -w pti /proc/cpuinfo)";
    stays_whole(test, &isolated, vdso, "vdso 0 pti");
    let nodes = "echo nodes $(ls -d /sys/devices/system/node/node* | wc -l) $(grep -o -m1 la57 /proc/cpuinfo)";
    stays_whole(test, &["--numa", "2", "--features", "+la57"], nodes, "nodes 2 la57");
    // The kernel moves what lies in the memory that goes elsewhere, into any colour.
    let less = "for m in /sys/devices/system/memory/memory[2-5]; do echo offline >$m/state; done; \
                echo 0 >/sys/devices/system/cpu/cpu1/online; \
                echo offline $(cat /sys/devices/system/memory/memory*/state | grep -c offline), processors $(nproc)";
    stays_whole(test, &[], less, "offline 4, processors 1");
}

/// A program whose memory came in pages of 64 KiB, as `inspect` tells it, and how much lies inside once it is confined.
const BETWEEN: &str = "thp=/sys/kernel/mm/transparent_hugepage; \
    echo always > $thp/hugepages-64kB/enabled; echo never > $thp/hugepages-2048kB/enabled; \
    $WALKS hold 4096 huge & sleep 1; program=$(pidof walks); \
    huepage superpages -q $program; huepage inspect $program; huepage detach $program; \
    huepage attach -q --level llc --share 50% --colors-from pfn $program; \
    for n in $(seq 100); do \
        share=$(huepage inspect --json $program | grep -A 3 compliance | grep share | tr -d ' '); \
        [ \"$share\" = '\"share\":1.0' ] && break; sleep 1; \
    done; echo inside: $share; kill $program";

#[test]
fn pages_of_sizes_between_are_told_and_moved() {
    let Some(_turn) = booted("pages_of_sizes_between_are_told_and_moved") else { return };
    let output = lab("lab-4-core.toml", &["boot", "--", &BETWEEN.replace("$WALKS", &walks())]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let told = text.split_once(" MiB in pages of 64 KiB").map(|(before, _)| before);
    let told = told.and_then(|before| before.split_whitespace().last()?.parse::<f64>().ok());
    assert!(told.is_some_and(|mib| mib > 3.5), "{told:?}: {text}");
    assert!(text.contains("the kernel gives pages of 64 KiB (always)"), "{text}");
    assert!(text.contains("inside: \"share\":1.0"), "{text}");
}

/// What is asked for to have a kernel with PREEMPT_RT.
const REAL_TIME: [&str; 2] = ["--kernel", "rt-amd64"];

/// Locks its memory, and is confined and left alone. Before and after, a task with a deadline runs beside it on
/// the only processor: with two a guest's turns would show, in which one stands still.
const DEADLINES: &str = "uname -v; processor() { echo $1 > /sys/devices/system/cpu/cpu1/online; sleep 1; }; \
    late() { processor 0; for n in 1 2; do \
        echo $1 $(cyclictest -q -m -p 90 -i 1000 -D 1 -a 0 -t 1 2>/dev/null | sed -n 's/.*Max: *//p') us; \
    done; processor 1; }; \
    mkdir -p /dev/shm; mkfifo /tmp/input; $LOCKS 32 future < /tmp/input & exec 3> /tmp/input; sleep 2; \
    program=$(pidof locks); late plain; \
    huepage attach --level llc --share 25% --colors-from pfn --freeze $program; \
    echo threads $(ls /proc/$program/task | wc -l); late frozen; exec 3>&-; wait";

#[test]
fn deadlines_beside_a_frozen_program_are_met_as_without_huepage() {
    let test = "deadlines_beside_a_frozen_program";
    let Some(_turn) = booted(test) else { return };
    let Some((_directory, locks)) = crate::live_locked::built(test) else { return };
    let cyclictest = "/usr/bin/cyclictest";
    if !Path::new(cyclictest).exists() {
        return common::skip(test, "no cyclictest; scripts/setup-programs.sh installs it");
    }
    let script = DEADLINES.replace("$LOCKS", locks.to_str().unwrap());
    let packed = ["--pack", cyclictest, "--pack", locks.to_str().unwrap()];
    let output =
        lab("lab-4-core.toml", &[&REAL_TIME[..], &packed, &["boot", "--", &script]].concat());
    if has_no_kernel(&output) {
        return common::skip(
            test,
            "no kernel with PREEMPT_RT; scripts/setup-programs.sh fetches one",
        );
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let latest = |when: &str| -> u64 {
        let told =
            text.lines().filter_map(|line| line.trim().strip_prefix(when)?.strip_suffix(" us"));
        let all: Vec<u64> = told.map(|us| us.trim().parse().unwrap()).collect();
        assert_eq!(all.len(), 2, "{when}: {text}");
        all.into_iter().max().unwrap()
    };
    for line in
        ["PREEMPT_RT", "movable pages are inside; nothing of huepage is left", "threads 1", "sound"]
    {
        assert!(text.contains(line), "no `{line}` in {text}");
    }
    let (plain, frozen) = (latest("plain"), latest("frozen"));
    assert!(plain > 0 && frozen <= plain + 5, "{frozen} us, {plain} us without: {text}");
}

#[test]
fn a_real_time_kernel_leaves_a_partition_whole() {
    let test = "a_real_time_kernel";
    let Some(_turn) = booted(test) else { return };
    stays_whole(test, &REAL_TIME, "uname -v", "PREEMPT_RT");
}

/// A cycle of as many lines as the last level has, in pages that lie as they come: where too many meet, all miss. What
/// the guest's PMU counted and sampled has the share of them that the caches below it have.
#[test]
fn the_pmu_of_a_guest_tells_what_the_caches_count() {
    let Some(_turn) = booted("the_pmu_of_a_guest_tells_what_the_caches_count") else { return };
    let chase = format!("{} chase 8192", walks());
    // It begins early, as every second of the guest takes many.
    let with = "--level llc --colors-from pfn --pollute-sensor pmu \
                --pollute-buffer rocs-model:buffer=1/16,start=50M";
    let common = ["--cpus", "1", "--pmu=1000", "--settle", "3s", "--json"];
    let output =
        lab("lab-4-core.toml", &[&common[..], &["--on", "0", &chase, "--with", with]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = |name: &str| figure(&report, &format!("/columns/1/programs/0/{name}"));
    let seen = |name: &str| own(&format!("report/pollute/processes/0/{name}"));
    assert_eq!(
        report["columns"][1]["programs"][0]["report"]["pollute"]["processes"][0]["sensor"],
        "pmu"
    );
    let missed = own("levels/2/misses") / own("levels/2/requests");
    assert!((0.1..0.9).contains(&missed), "neither all nor none: {report:#}");
    // Counts and samples are of the same time, that of the table is a later one: without the interrupts of the
    // samples, whose lines take room, and so there are few of them.
    let (counted, sampled) = (seen("miss_rate"), seen("sampled_miss_rate"));
    assert!((sampled - counted).abs() < 0.03, "{sampled} is not {counted}: {report:#}");
    assert!((counted - missed).abs() < 0.05, "{counted} is not {missed}: {report:#}");
    eprintln!("misses: {missed:.3} in the table, {counted:.3} counted, {sampled:.3} sampled");
    let speed = own("instructions") / own("cycles");
    assert!((seen("instructions_per_cycle") / speed - 1.0).abs() < 0.1, "{speed}: {report:#}");
}

#[test]
fn a_daemon_governs_a_guest_by_counted_misses_and_one_that_ends_is_an_error() {
    let name = "a_daemon_governs_a_guest_by_counted_misses_and_one_that_ends_is_an_error";
    let Some(_turn) = booted(name) else { return };
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("groups.toml");
    let governed = |sensor: &str| {
        let groups = format!(
            "[daemon]\nlevel = \"llc\"\ncolors_from = \"pfn\"\nsensor = \"{sensor}\"\ninterval = 0.25\n\
             engine = \"coloris:by=priority,patience=1,rest=0,per-second=0,unit=16\"\nlook = 0.1\n\
             [[group]]\nname = \"walks\"\ncommand = \"walks\"\nmiss_rate = {{ low = 0.02, high = 0.1 }}\n"
        );
        std::fs::write(&file, groups).unwrap();
        let chase = format!("{} chase 5120", walks());
        let run = ["--on", "0", &chase, "--settle", "4s", "--count", "0.1s", "--json"];
        let config = ["--pmu", "--config", file.to_str().unwrap()];
        lab("lab-4-core.toml", &[&run[..], &config].concat())
    };
    let refused = governed("a clock");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("the daemon in the guest has ended"),
        "{said}"
    );
    let output = governed("pmu");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let report: Value = serde_json::from_slice(&output.stdout).expect(&said);
    let shown = report["columns"].as_array().unwrap().last().unwrap();
    assert!(figure(shown, "/programs/0/miss_share") < 0.01, "{shown:#}");
    let daemon = shown["programs"].as_array().unwrap().iter().find(|p| p["name"] == "huepage");
    assert!(figure(daemon.expect("the daemon"), "/accesses") > 0.0, "{shown:#}");
}

/// Walks of a program through 16 MiB, and cycles of TLBs, for each of its accesses.
fn translated(huge: &str) -> [f64; 2] {
    let chase = format!("{} chase 16384 {huge}", walks());
    let run =
        ["--cpus", "1", "--settle", "0.2s", "--count", "0.02s", "--on", "0", &chase, "--json"];
    let output = lab("lab-4-core.toml", &run);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = |name: &str| figure(&report, &format!("/columns/0/programs/0/{name}"));
    assert!(own("accesses") > 1e5 && own("tlb/unknown") == 0.0, "{report:#}");
    ["walks", "cycles"].map(|what| own(&format!("tlb/{what}")) / own("accesses"))
}

/// A cycle by chance through 4,096 pages, of which TLBs hold 1,536, misses them as often as the simulator says; in
/// eight pages of 2 MiB it never does, and each access waits seven cycles for the second TLB, as the first has no such pages.
#[test]
fn pages_are_as_large_as_the_page_tables_of_the_guest_say() {
    let Some(_turn) = booted("pages_are_as_large_as_the_page_tables_of_the_guest_say") else {
        return;
    };
    let [small, huge] = ["", "huge"].map(translated);
    let mut sim = Command::new(common::HUEPAGE);
    sim.args(["sim", "--json", "-w", "chase:size=16M,rounds=100", "--limit", "2000000", "-m"]);
    let simulated = sim.arg(machine("lab-4-core.toml")).args(["--warm-up", "1000000"]).output();
    let simulated: Value = serde_json::from_slice(&simulated.unwrap().stdout).unwrap();
    let simulated =
        figure(&simulated, "/report/walks") / figure(&simulated, "/report/spaces/0/accesses");
    eprintln!(
        "walks and cycles per access: {small:?}, in huge pages {huge:?}, simulated {simulated}"
    );
    assert!((small[0] - simulated).abs() < 0.02, "{small:?}, simulated {simulated}");
    assert!(huge[0] < 0.001 && (huge[1] - 7.0).abs() < 0.1, "{huge:?}");
}

/// Memory of the second node is where the guest has it: what fits the cache misses nothing, each page is known, and
/// the PMU counts.
#[test]
fn a_guest_of_two_nodes_has_a_pmu_and_tlbs() {
    let Some(_turn) = booted("a_guest_of_two_nodes_has_a_pmu_and_tlbs") else { return };
    // The processor of the second node.
    let chase = format!("{} chase 5120", walks());
    let two = ["--cpus", "2", "--numa", "2", "--pmu", "--settle", "1s", "--count", "0.05s"];
    let run = ["--on", "1", &chase, "--speed", "--json"];
    let output = lab("lab-4-core.toml", &[&two[..], &run].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let column = |name: &str| figure(&report, &format!("/columns/0/{name}"));
    let own = |name: &str| column(&format!("programs/0/{name}"));
    assert!(own("accesses") > 1e5 && own("tlb/unknown") == 0.0, "{report:#}");
    assert!(own("miss_share") < 0.001 && own("instructions") > own("accesses"), "{report:#}");
    assert_eq!(column("speed/accesses"), column("accesses"));
    assert!(column("speed/accesses_per_second") > 1e5, "{report:#}");
}

#[test]
fn scattered_memory_is_free_in_single_frames() {
    let Some(_turn) = booted("scattered_memory_is_free_in_single_frames") else { return };
    let single = |options: &[&str]| {
        let script = ["boot", "--", "sed 's/.*zone/zone/' /proc/buddyinfo"];
        let output = lab("lab-4-core.toml", &[options, &script].concat());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        let zones = text.lines().filter(|line| line.starts_with("zone"));
        let first = zones.filter_map(|zone| zone.split_whitespace().nth(2)?.parse::<u32>().ok());
        first.sum::<u32>()
    };
    let [fresh, scattered] = [&[][..], &["--scatter"]].map(single);
    eprintln!("single frames: {fresh} at first, {scattered} scattered");
    assert!(fresh < 1000 && scattered > 10_000, "{fresh}, {scattered}");
}

/// Frames in order suffice for a program nearly as large as the cache; by chance too many lie in the same sets. So it
/// is on each processor, as the kernel keeps some free frames ready for each.
#[test]
fn scattered_frames_conflict_on_each_processor() {
    let Some(_turn) = booted("scattered_frames_conflict_on_each_processor") else { return };
    let chase = format!("{} chase 7168", walks());
    let misses = |options: &[&str]| {
        let run = ["--cpus", "2", "--settle", "2s", "--count", "0.1s", "--json"];
        let output = lab("lab-4-core.toml", &[&run[..], options].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        figure(&report, "/columns/0/programs/0/miss_share")
    };
    let fresh = misses(&["--on", "0", &chase]);
    let scattered = ["0", "1"].map(|cpu| misses(&["--scatter", "--on", cpu, &chase]));
    eprintln!("{fresh} of its accesses miss, scattered {scattered:?}");
    assert!(scattered.iter().all(|&share| share > 0.03 && share > 3.0 * fresh));
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

#[test]
fn a_kernel_that_cannot_move_pages_is_refused_in_one_line() {
    let name = "a_kernel_that_cannot_move_pages_is_refused_in_one_line";
    let Some(_turn) = booted(name) else { return };
    let old = ["--kernel=-6.1."];
    let script = "huepage run --share 50% true";
    let output = lab("lab-4-core.toml", &[&old[..], &["boot", "--", script]].concat());
    if has_no_kernel(&output) {
        return common::skip(name, "Debian 12's own kernel is not here");
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let refusal = |text: &str| {
        let lines = text.lines().filter(|line| line.contains("huepage"));
        lines.count() == 1 && text.contains("use Linux 6.8 or newer")
    };
    assert!(output.status.code() == Some(101) && refusal(&text), "in the guest: {text}");
    let shares = ["--on", "0", "true", "--shares", "50%"];
    let output = lab("lab-4-core.toml", &[&old[..], &shares].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(101) && refusal(&said), "before it boots: {said}");
}

#[test]
fn a_shell_does_what_is_typed() {
    let Some(_turn) = booted("a_shell_does_what_is_typed") else { return };
    let text = shown_by_a_shell("echo $((6 * 7)) processors: $(nproc); exit", Duration::ZERO);
    assert!(text.contains("42 processors: 2"), "{text}");
}

/// The end of what a shell shows waits in the guest while nobody reads a full pipe, and comes nevertheless.
#[test]
fn a_shell_whose_reader_is_slow_shows_all() {
    let Some(_turn) = booted("a_shell_whose_reader_is_slow_shows_all") else { return };
    let typed = "head -c 67500 /dev/zero | tr '\\0' x; echo en''d; exit";
    let text = shown_by_a_shell(typed, Duration::from_secs(5));
    let (marks, end) = (text.matches('x').count(), text.trim_end().len().saturating_sub(60));
    assert!(marks >= 67_500 && text.contains("end"), "{marks}: {}", &text[end..]);
}

/// Types a line at the prompt of a lab's shell, looks away for a time, and gives what came until its end.
fn shown_by_a_shell(line: &str, pause: Duration) -> String {
    let mut command = Command::new(common::HUEPAGE);
    command.args(["lab", "--machine"]).arg(machine("lab-4-core.toml")).arg("shell");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut typed, mut shown) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let (mut text, mut byte) = (String::new(), [0]);
    while !text.ends_with("# ") && shown.read(&mut byte).unwrap() == 1 {
        text.push(char::from(byte[0]));
    }
    typed.write_all(format!("{line}\n").as_bytes()).unwrap();
    std::thread::sleep(pause);
    shown.read_to_string(&mut text).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}: {text}");
    text
}

#[test]
fn an_emulator_ends_with_the_command_that_started_it() {
    let Some(_turn) = booted("an_emulator_ends_with_the_command_that_started_it") else { return };
    for signal in [Signal::KILL, Signal::TERM] {
        let directory = tempfile::tempdir().unwrap();
        let status = ended_while_it_emulates(directory.path(), signal);
        let (code, left) = (status.code(), directory.path().read_dir().unwrap().count());
        let cleans_up = signal == Signal::TERM;
        assert_eq!((code, left), if cleans_up { (Some(143), 0) } else { (None, 1) });
    }
}

/// Ends a lab with a guest by a signal, whose emulator must end as well; how it ended.
fn ended_while_it_emulates(directory: &Path, signal: Signal) -> ExitStatus {
    let mut command = Command::new(common::HUEPAGE);
    command.env("TMPDIR", directory).args(["lab", "--machine"]).arg(machine("lab-4-core.toml"));
    command.args(["boot", "--", "sleep 10000"]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let pid = child.id();
    let children = PathBuf::from(format!("/proc/{pid}/task/{pid}/children"));
    let emulator = soon(|| {
        let pids = std::fs::read_to_string(&children).unwrap();
        let mut pids = pids.split_whitespace().map(|pid| PathBuf::from(format!("/proc/{pid}")));
        pids.find(|of| {
            std::fs::read_to_string(of.join("comm")).is_ok_and(|c| c.starts_with("qemu"))
        })
    });
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = child.wait().unwrap();
    soon(|| {
        let state = std::fs::read_to_string(emulator.join("stat")).unwrap_or_default();
        (!state.contains("qemu") || state.contains(") Z ")).then_some(())
    });
    status
}
