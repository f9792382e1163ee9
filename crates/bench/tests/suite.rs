//! The benchmarks themselves, tested with a stand-in for huepage: a shell script that runs
//! the program as it is and writes a report. A benchmark must hold with a faithful one and
//! must say what is missed with one that lies, corrupts or dies.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use serde_json::Value;

/// Runs a suite with a shell script that stands in for huepage.
fn run(script: &str, args: &[&str]) -> (Output, Value) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("huepage");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_huepage-bench"));
    command.args(args).arg("--json").arg("--huepage").arg(path);
    command.arg("--dir").arg(dir.path().join("programs"));
    let output = command.env_remove("HUEPAGE_REQUIRE_LIVE").output().unwrap();
    let value = serde_json::from_slice(&output.stdout);
    (output, value.unwrap_or_else(|e| panic!("{e}: {args:?}")))
}

/// A stand-in that takes huepage's options apart, then does `body` with the program in "$@".
fn bench(body: &str, args: &[&str]) -> (Output, Value) {
    let script = format!(
        "#!/bin/sh\nreport=/dev/null\ncommand=$1\nshift\n\
         while [ \"$1\" != -- ] && [ $# -gt 0 ]; do\n\
         [ \"$1\" = --report ] && report=$2\nshift\ndone\n[ $# -gt 0 ] && shift\n\
         report() {{ echo '{{\"program_seconds\":'$1',\"gather_seconds\":0.1,\"recolored\":'$2',\
         \"compliance\":{{\"movable\":100,\"in_colors\":99,\"share\":'$3'}}}}' > $report; }}\n\
         {body}\n"
    );
    run(&script, args)
}

const FAITHFUL: &str = "report 0.001 1000 0.995; exec \"$@\"";

#[test]
fn a_faithful_run_holds() {
    let (output, verdict) = bench(FAITHFUL, &["programs", "--only", "static"]);
    assert!(output.status.success(), "{verdict}");
    assert_eq!(verdict["rows"][0]["output"], "same");
}

#[test]
fn another_output_is_missed() {
    let body = "report 1 1 1; \"$@\" | tr 0 1; exit 0";
    let (output, verdict) = bench(body, &["programs", "--only", "static"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(verdict["missed"].to_string().contains("another standard output"), "{verdict}");
}

#[test]
fn another_exit_status_is_missed() {
    let body = "report 1 1 1; \"$@\"; exit 5";
    let (_, verdict) = bench(body, &["programs", "--only", "static"]);
    assert!(verdict["missed"].to_string().contains("status 5 instead of 0"), "{verdict}");
}

#[test]
fn pages_outside_are_missed() {
    let body = "report 1 1 0.97; exec \"$@\"";
    let (_, verdict) = bench(body, &["programs", "--only", "static"]);
    assert!(verdict["missed"].to_string().contains("compliance 0.97"), "{verdict}");
}

#[test]
fn a_slow_run_costs_too_much() {
    let body = "report 99 1 1; exec \"$@\"";
    let args = ["cost", "--only", "static", "--pairs", "1"];
    let (_, verdict) = bench(body, &args);
    assert!(verdict["missed"].to_string().contains("P11: "), "{verdict}");
    assert!(bench(FAITHFUL, &args).0.status.success());
}

#[test]
fn a_storm_counts_moved_pages_and_finds_wrong_ones() {
    let args = ["torture", "--recolours", "2000", "--slice", "0.5", "--mode", "writers"];
    let (output, verdict) = bench(FAITHFUL, &args);
    assert!(output.status.success(), "{verdict}");
    assert_eq!(verdict["totals"]["recolored"], 2000);
    assert_eq!(verdict["rows"].as_array().unwrap().len(), 2);
    let corrupt = "report 1 5000 1; exec \"$@\" --sabotage writers.heap";
    let (output, verdict) = bench(corrupt, &args);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(verdict["totals"]["wrong"], 1);
}

#[test]
fn a_storm_that_moves_nothing_is_missed() {
    let args = ["torture", "--recolours", "10", "--slice", "0.3", "--mode", "threads"];
    let (_, verdict) = bench("report 1 0 1; exec \"$@\"", &args);
    assert!(verdict["missed"].to_string().contains("no page was moved"), "{verdict}");
}

#[test]
fn a_start_that_takes_long_or_fails_is_missed() {
    let args = ["first-command", "--runs", "3", "--load", "idle", "--program", "true"];
    let (output, verdict) = bench("exec \"$@\"", &args);
    assert!(output.status.success(), "{verdict}");
    assert_eq!(verdict["rows"][1]["right"], 3, "{verdict}");
    // Filling the store is no start that is measured.
    let slow = "sleep 0.4; exec \"$@\"";
    let (output, verdict) = bench(slow, &[&args[..], &["--store", "empty"]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(verdict["missed"].to_string().contains("P22 median start: "), "{verdict}");
    let (_, verdict) = bench("\"$@\"; exit 5", &[&args[..], &["--store", "empty"]].concat());
    assert!(verdict["missed"].to_string().contains("status Some(5) for 0"), "{verdict}");
}

#[test]
fn a_target_that_dies_with_its_supervisor_is_missed() {
    let faithful = "case $command in run) \"$@\"; exit $?;; *) sleep 1;; esac";
    let (output, verdict) = bench(faithful, &["kill", "--times", "2", "--seed", "4"]);
    assert!(output.status.success(), "{verdict}");
    assert_eq!(verdict["totals"]["right"], 2);
    let fatal = "\"$@\" & target=$!; (sleep 0.1; kill -9 $target) & wait $target";
    let (_, verdict) = bench(fatal, &["kill", "--times", "1"]);
    assert!(verdict["missed"].to_string().contains("the target ended as"), "{verdict}");
}

#[test]
fn a_daemon_that_harms_or_forgets_is_missed() {
    let forgets = "exit 0";
    let (output, verdict) = bench(forgets, &["daemon-kill", "--times", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(verdict["missed"].to_string().contains("not taken up again"), "{verdict}");
    assert_eq!(verdict["totals"]["programs right"], 2);
    // The stand-in has lost its arguments by then; the file is the one beside its log.
    let fatal =
        "kill -9 $(sed -n 's/^pid = //p' \"$(dirname $(readlink /proc/$$/fd/2))/huepage.toml\")";
    let (_, verdict) = bench(fatal, &["daemon-kill", "--times", "1"]);
    assert!(verdict["missed"].to_string().contains("the target ended as"), "{verdict}");
    let (_, verdict) = bench(forgets, &["daemon-settle", "--seconds", "1"]);
    assert!(verdict["missed"].to_string().contains("does not answer"), "{verdict}");
    let (_, verdict) = bench(forgets, &["daemon-day", "--rounds", "10"]);
    assert!(!verdict["missed"].as_array().unwrap().is_empty(), "{verdict}");
}

#[test]
fn a_pollute_buffer_that_slows_down_or_corrupts_is_missed() {
    let args = ["pollute", "--only", "static", "--rounds", "1"];
    assert!(bench(FAITHFUL, &args).0.status.success());
    let (_, verdict) = bench("report 99 1 1; exec \"$@\"", &args);
    assert!(verdict["missed"].to_string().contains("B2 worst program: "), "{verdict}");
    let (_, verdict) = bench("report 0.001 1 1; \"$@\" | tr 0 1", &args);
    assert!(verdict["missed"].to_string().contains("another standard output"), "{verdict}");
    let kernel = ["pollute", "--only", "join", "--rounds", "1", "--seconds", "0.2"];
    let args = [&kernel[..], &["--cache-kib", "64", "--cpu", "0"]].concat();
    let (_, verdict) = bench("exit 101", &args);
    assert!(verdict["missed"].to_string().contains("cannot be measured"), "{verdict}");
}

#[test]
fn a_missing_huepage_is_said_in_one_line() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_huepage-bench"));
    let output = command.args(["bad-input", "--huepage", "/no/such/huepage"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1);
}

/// A stand-in whose `warm` does `body` with the last argument, a file or directory, in `$path`,
/// and the directory of copies, if one was given, in `$into`.
fn warm(body: &str, args: &[&str]) -> (Output, Value) {
    let script = format!(
        "#!/bin/sh\ninto=\nwhile [ $# -gt 0 ]; do [ \"$1\" = --into ] && into=$2; path=$1; shift; done\n\
         say() {{ echo \"{{\\\"pages\\\":$1,\\\"placed\\\":$2,\\\"of\\\":16}}\"; }}\n{body}\n"
    );
    run(&script, args)
}

#[test]
fn a_warm_that_reads_and_places_nothing_is_missed() {
    let on = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let on = on.path().to_str().unwrap();
    let body = "find \"$path\" -type f -exec cat {} + >/dev/null; say 1024 1024";
    let args = ["warm-place", "--mib", "4", "--files", "100", "--on", on];
    let (output, verdict) = warm(body, &args);
    assert_eq!(output.status.code(), Some(1), "{verdict}");
    let missed = verdict["missed"].to_string();
    // Without root frame numbers are hidden, and nothing can be measured.
    assert!(missed.contains("% is not >= 99 %") || missed.contains("hidden"), "{missed}");
}

#[test]
fn torture_holds_with_a_warm_that_only_reads_and_finds_one_that_writes() {
    let on = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let on = on.path().to_str().unwrap();
    let args = ["warm-torture", "--rounds", "200", "--on", on];
    let reads = "for i in 1 2 3; do cat \"$path\"/* >/dev/null 2>&1; sleep 0.05; done; say 9 9";
    let (output, verdict) = warm(reads, &args);
    assert!(output.status.success(), "{verdict}");
    assert!(verdict["rows"][0]["killed"].as_u64() > Some(0), "{verdict}");
    let writes = "sleep 0.05; for f in \"$path\"/*; do \
        [ -s \"$f\" ] && printf X | dd of=\"$f\" bs=1 conv=notrunc,nocreat 2>/dev/null; done; say 9 9";
    let (output, verdict) = warm(writes, &args);
    assert_eq!(output.status.code(), Some(1), "{verdict}");
    assert!(verdict["missed"].to_string().contains("Damaged"), "{verdict}");
}

#[test]
fn torture_finds_a_warm_that_dies_and_one_that_copies_nothing() {
    let on = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let on = on.path().to_str().unwrap();
    let args = ["warm-torture", "--rounds", "40", "--on", on];
    let (output, verdict) = warm("sleep 0.02; kill -SEGV $$", &args);
    assert_eq!(output.status.code(), Some(1), "{verdict}");
    assert!(verdict["missed"].to_string().contains("ended with 139"), "{verdict}");
    let args = ["warm-torture", "--rounds", "40", "--on", "/dev/shm"];
    let (output, verdict) = warm("say 9 9; sleep 0.1", &args);
    assert_eq!(output.status.code(), Some(1), "{verdict}");
}

#[test]
fn a_warm_that_is_killed_for_memory_is_missed() {
    let args = ["warm-pressure", "--hold-mib", "8", "--room-mib", "8", "--file-mib", "1"];
    let greedy = "exec perl -e '$x = \"x\" x (1 << 28); sleep 1'";
    let (output, verdict) = warm(greedy, &args);
    if !verdict["skipped"].as_array().unwrap().is_empty() {
        return huepage_testing::skip("a_warm_that_is_killed_for_memory", &verdict["skipped"]);
    }
    assert_eq!(output.status.code(), Some(1), "{verdict}");
    assert!(verdict["missed"].to_string().contains("were killed"), "{verdict}");
    let (output, verdict) = warm("say 256 256", &args);
    assert!(output.status.success(), "{verdict}");
}

/// One test, since all of them switch the kernel's large pages.
#[test]
fn superpages_that_take_memory_or_do_nothing_are_missed() {
    let small = ["--variants", "never,huepage", "--rounds", "1", "--seconds", "0.2"];
    let memory = ["superpage-memory", "--only", "sparse", "--sparse-mib", "256"];
    let memory = [memory.as_slice(), &small].concat();
    let told = "echo '{\"superpages\":{\"promoted\":1,\"seconds\":1}}' > $report; ";
    let missed = |body: &str, args: &[&str]| {
        let (_, verdict) = bench(&format!("{told}{body}"), args);
        let skipped = verdict["skipped"].as_array().is_some_and(|all| !all.is_empty());
        (!skipped).then(|| verdict["missed"].to_string())
    };
    let Some(faithful) = missed("exec \"$@\"", &memory) else {
        let why = "large pages cannot be switched";
        return huepage_testing::skip("superpages_that_take_memory", why);
    };
    assert_eq!(faithful, "[]");
    let greedy = "echo always > /sys/kernel/mm/transparent_hugepage/enabled; exec \"$@\"";
    let greedy = missed(greedy, &memory).unwrap();
    assert!(greedy.contains("U3 one page in 64: "), "{greedy}");
    let silent = missed("rm $report; exec \"$@\"", &memory).unwrap();
    assert!(silent.contains("reported nothing of superpages"), "{silent}");
    let speed = ["superpage-speed", "--only", "gups,btree,cg", "--gups-mib", "4"];
    let speed =
        [speed.as_slice(), &["--btree-entries", "1000", "--cg-rows", "100"], &small].concat();
    let dies = missed("exit 101", &speed).unwrap();
    assert!(dies.contains("gups with huepage: 101") && dies.contains("cg with huepage"), "{dies}");
    let cpu = ["superpage-cpu", "--mib", "8", "--rounds", "1", "--seconds", "0.2"];
    assert_eq!(missed("exec \"$@\"", &cpu).unwrap(), "[]");
    let busy = "echo '{\"superpages\":{\"policy_cpu_seconds\":0.02,\"seconds\":1}}' > $report";
    let busy = missed(&format!("{busy}; exec \"$@\""), &cpu).unwrap();
    assert!(busy.contains("U6 dense: 2 % of a CPU"), "{busy}");
    let start = ["superpage-start", "--mib", "8", "--rounds", "1", "--seconds", "0.5"];
    let start = [start.as_slice(), &["--khugepaged", "0"]].concat();
    assert!(missed("exit 101", &start).unwrap().contains("cannot be measured"));
    let latency = ["superpage-latency", "--redis-mib", "0", "--mib", "8", "--rounds", "1"];
    let latency = [latency.as_slice(), &["--seconds", "0.2"]].concat();
    assert_eq!(missed("exec \"$@\"", &latency).unwrap(), "[]");
    let partition = ["superpage-partition", "--mib", "8", "--rounds", "1", "--seconds", "0.2"];
    let told = "echo '{\"colors\":\"0-1\",\"compliance\":{\"share\":0.5}}' > $report";
    let outside = missed(&format!("{told}; exec \"$@\""), &partition).unwrap();
    assert!(outside.contains("0.500 of the pages are in the partition"), "{outside}");
}

#[test]
fn a_lab_that_leaks_or_tells_of_nothing_is_missed() {
    // The victim's misses per access and its lines lost to the stream, in three columns.
    let at_speed = |columns: [(f64, u32); 3], intensity: f64, millions: u32| {
        let column = |(at, (misses, lost)): (usize, (f64, u32))| {
            let intensity = if at == 2 { intensity } else { 1.0 };
            format!(
                "{{\"accesses\":9,\"speed\":{{\"accesses\":{millions}000000,\"emulator_cpu_seconds\":1}},\
                 \"evictions\":[[5,{lost},7],[0,0,0],[0,0,0]],\"programs\":[\
                 {{\"miss_share\":{misses},\"intensity\":1.0,\"levels\":[{{\"requests\":100,\"misses\":{}}}]}},\
                 {{\"intensity\":{intensity}}},{{\"intensity\":3}}]}}",
                misses * 100.0
            )
        };
        let columns: Vec<String> = columns.into_iter().enumerate().map(column).collect();
        let json = format!("{{\"cpus\":2,\"columns\":[{}]}}", columns.join(","));
        run(&format!("#!/bin/sh\necho '{json}'\n"), &["lab", "--only", "plain2"])
    };
    let said = |columns, intensity| at_speed(columns, intensity, 40);
    let good = [(0.0, 0), (0.99, 900), (0.001, 0)];
    let (output, verdict) = said(good, 1.1);
    assert!(output.status.success(), "{verdict}");
    assert_eq!(verdict["figures"][0]["figure"], 0.1, "{verdict}");
    assert_eq!(verdict["figures"][3]["figure"], 40.0, "{verdict}");
    let (_, slow) = at_speed(good, 1.1, 14);
    assert!(slow["missed"].to_string().contains("L5 plain2: 14 M/s is not >= 15 M/s"), "{slow}");
    let missed = |columns, intensity| said(columns, intensity).1["missed"].to_string();
    assert!(missed([good[0], good[1], (0.02, 0)], 1.0).contains("L1 plain2: 2 % is not < 1 %"));
    assert!(
        missed([good[0], good[1], (0.001, 3)], 1.0).contains("L2 plain2: 3 lines is not = 0 lines")
    );
    assert!(missed(good, 0.5).contains("0.50 times as busy"));
    assert!(missed([good[0], (0.2, 9), good[2]], 1.0).contains("only 20.0 % missed beside"));
    assert!(missed([(0.1, 0), good[1], good[2]], 1.0).contains("10.000 % misses alone"));
    let (_, verdict) = run("#!/bin/sh\necho '{}'\n", &["lab", "--only", "hashed4"]);
    assert!(verdict["missed"].to_string().contains("not all columns"), "{verdict}");
}
