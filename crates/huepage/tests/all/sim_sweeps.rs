//! Sweeps in parts, interrupted, and continued; and the commands of docs/sweeps.md, run as they
//! stand there.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const DOCUMENT: &str = include_str!("../../../../docs/sweeps.md");
const LIMIT: Duration = crate::common::HANGS;

fn binary() -> PathBuf {
    assert_cmd::cargo::cargo_bin("huepage")
}

fn machine() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/cascade-lake-like.toml")
}

/// A directory with what the document's commands need.
fn place() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    fs::copy(machine(), dir.path().join("machine.toml")).expect("copied");
    let lines: String = (0..20_000_u64)
        .map(|i| format!("{} {:x}\n", i % 2, i.wrapping_mul(0x9e37_79b9) % (1 << 20)))
        .collect();
    fs::write(dir.path().join("p.din"), lines).expect("written");
    shell(dir.path(), "huepage trace import --format din p.din -o p.trace", &[]);
    dir
}

/// Runs commands with `huepage` on the path; their standard output.
fn shell(dir: &Path, script: &str, variables: &[(&str, &str)]) -> String {
    let own = binary().parent().expect("a directory").to_owned();
    let path = format!("{}:{}", own.display(), std::env::var("PATH").unwrap_or_default());
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", script])
        .current_dir(dir)
        .envs(variables.iter().copied())
        .env("PATH", path)
        .env("NO_COLOR", "1")
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}\n{said}");
    String::from_utf8(output.stdout).expect("text")
}

/// The blocks of code of a section, by its heading.
fn blocks(heading: &str) -> Vec<&'static str> {
    let (_, rest) = DOCUMENT.split_once(&format!("# {heading}\n")).expect("the section");
    // Comments of scripts begin with a hash, too, but with one.
    let end = ["\n## ", "\n### "].iter().filter_map(|mark| rest.find(mark)).min();
    let section = &rest[..end.unwrap_or(rest.len())];
    section
        .split("```")
        .skip(1)
        .step_by(2)
        .map(|block| block.split_once('\n').map_or(block, |(_, code)| code))
        .collect()
}

fn text(dir: &TempDir, name: &str) -> String {
    fs::read_to_string(dir.path().join(name)).expect(name)
}

/// The merged result against the whole sweep's: JSON lines and CSV.
fn check_merged(dir: &TempDir) {
    let [whole, drawn] = blocks("One machine")[..] else { panic!("two commands") };
    shell(dir.path(), whole, &[]);
    shell(dir.path(), drawn, &[]);
    assert_eq!(text(dir, "all.jsonl").lines().count(), 8);
    assert_eq!(text(dir, "all.jsonl"), text(dir, "whole.jsonl"));
    shell(dir.path(), "huepage sim merge all.jsonl --csv > all.csv", &[]);
    assert_eq!(text(dir, "all.csv"), text(dir, "whole.csv"));
    let drawn = text(dir, "whole.svg");
    assert!(drawn.contains(">\ncolors\n<"), "the axis says what was swept: {drawn}");
    assert_eq!(drawn.matches("<circle").count(), 8, "a mark for each point of the sweep");
}

#[test]
fn the_example_of_gnu_parallel_gives_the_whole() {
    let dir = place();
    if Command::new("parallel").arg("--version").output().is_err() {
        let why = "no GNU parallel; run scripts/setup-programs.sh";
        return huepage_testing::skip("the_example_of_gnu_parallel_gives_the_whole", why);
    }
    shell(dir.path(), blocks("GNU parallel")[0], &[]);
    check_merged(&dir);
}

#[test]
fn the_example_of_xargs_gives_the_whole() {
    let dir = place();
    shell(dir.path(), blocks("GNU parallel")[1], &[]);
    check_merged(&dir);
}

#[test]
fn the_example_of_slurm_gives_the_whole() {
    let dir = place();
    let [script, merge] = blocks("Slurm job arrays")[..] else { panic!("two blocks") };
    assert!(script.contains("#SBATCH --array=1-4\n"), "{script}");
    for task in ["1", "2", "3", "4"] {
        let variables = [("SLURM_ARRAY_TASK_ID", task), ("SLURM_ARRAY_TASK_COUNT", "4")];
        shell(dir.path(), script, &variables);
    }
    shell(dir.path(), merge, &[]);
    check_merged(&dir);
}

#[test]
fn the_example_of_kubernetes_gives_the_whole() {
    let dir = place();
    let [yaml, merge] = blocks("Kubernetes indexed jobs")[..] else { panic!("two blocks") };
    assert!(!yaml.contains('\t') && yaml.contains("completionMode: Indexed\n"), "{yaml}");
    assert!(yaml.contains("completions: 4\n"), "as many as there are parts");
    let (_, script) = yaml.split_once("- |\n").expect("a script");
    let script: Vec<&str> =
        script.lines().take_while(|l| l.starts_with("              ")).collect();
    let script = script.join("\n");
    assert!(script.contains("))/4\""), "{script}");
    for index in ["0", "1", "2", "3"] {
        shell(dir.path(), &script, &[("JOB_COMPLETION_INDEX", index)]);
    }
    shell(dir.path(), merge, &[]);
    check_merged(&dir);
}

#[test]
fn a_continued_sweep_does_only_what_is_left() {
    let dir = place();
    let command = blocks("Interrupted and continued")[0].trim_end();
    let first = shell(dir.path(), &format!("{command} --json"), &[]);
    let kept = text(&dir, "kept.jsonl");
    assert_eq!(kept.lines().count(), 9);
    // One row is changed and one lost: the changed one is believed, the lost one made anew.
    let mut lines: Vec<String> = kept.lines().map(ToOwned::to_owned).collect();
    let place = lines.iter().position(|l| l.contains("\"point\":3")).expect("point 3");
    lines[place] = lines[place].replace("\"machine\":\"", "\"machine\":\"not ");
    lines.retain(|l| !l.contains("\"point\":5"));
    fs::write(dir.path().join("kept.jsonl"), lines.join("\n") + "\n{\"poi").expect("written");
    let second = shell(dir.path(), &format!("{command} --json"), &[]);
    assert!(second.contains("\"machine\":\"not "));
    assert_eq!(second.replace("\"machine\":\"not ", "\"machine\":\""), first);
    let other = format!("{command} --warm-up 5 2>&1 && exit 1 || echo status $?");
    let said = shell(dir.path(), &other, &[]);
    assert!(
        said.contains("of another machine, program or sweep") && said.contains("status 112"),
        "{said}"
    );
}

#[test]
fn parts_and_files_of_resume_merge_to_the_whole() {
    let dir = place();
    let run = "huepage sim -m machine.toml p.trace -w gups:size=64K --level 2 --sweep colors=1..8";
    shell(dir.path(), &format!("{run} --json > whole.jsonl"), &[]);
    shell(dir.path(), &format!("{run} --csv > whole.csv"), &[]);
    shell(dir.path(), &format!("{run} --shard 1/3 --json > 1"), &[]);
    shell(dir.path(), &format!("{run} --shard 2/3 --json > 2"), &[]);
    shell(dir.path(), &format!("{run} --shard 3/3 --resume 3"), &[]);
    shell(dir.path(), "huepage sim merge 3 1 2 > all.jsonl", &[]);
    shell(dir.path(), "huepage sim merge all.jsonl --csv > all.csv", &[]);
    assert_eq!(text(&dir, "all.jsonl"), text(&dir, "whole.jsonl"));
    assert_eq!(text(&dir, "all.csv"), text(&dir, "whole.csv"));
    let twice = shell(dir.path(), "huepage sim merge 2 all.jsonl 2>&1 || echo status $?", &[]);
    assert!(twice.contains("in two of the files") && twice.contains("status 2"), "{twice}");
}

#[test]
fn a_damaged_part_is_one_line_and_status_112() {
    let dir = place();
    let run = "huepage sim -m machine.toml p.trace --level 2 --sweep colors=1..2";
    shell(dir.path(), &format!("{run} --json > sound"), &[]);
    let sound = text(&dir, "sound");
    for cut in (1..sound.len() - 1).step_by(sound.len() / 20) {
        // At the end of a line the part is whole, only shorter.
        if sound.as_bytes()[cut] == b'\n' || sound.as_bytes()[cut - 1] == b'\n' {
            continue;
        }
        fs::write(dir.path().join("damaged"), &sound[..cut]).expect("written");
        let said =
            shell(dir.path(), "huepage sim merge damaged 2>&1 >/dev/null || echo status $?", &[]);
        assert!(said.starts_with("huepage: damaged: line "), "{cut}: {said}");
        assert!(said.ends_with("status 112\n"), "{cut}: {said}");
        assert_eq!(said.lines().count(), 2, "{cut}: {said}");
    }
}

/// Begins a sweep that takes a while.
fn begin(dir: &TempDir, more: &[&str]) -> std::process::Child {
    Command::new(binary())
        .args(["sim", "-m", "machine.toml", "-w", "gups:size=4M", "--limit", "2000000"])
        .args(["--level", "2", "--sweep", "colors=1..16", "--json"])
        .args(more)
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs")
}

/// Begins a sweep, sends a signal once two points are finished, and has it go on: what was
/// printed before the end, what was said, the status, and the file of finished points then.
fn interrupted(signal: &str) -> (String, String, Option<i32>, String) {
    let dir = place();
    let child = begin(&dir, &["--resume", "kept.jsonl"]);
    let began = Instant::now();
    let kept = || fs::read_to_string(dir.path().join("kept.jsonl")).unwrap_or_default();
    while kept().lines().count() < 3 {
        assert!(began.elapsed() < LIMIT, "no point was finished");
        sleep(Duration::from_millis(2));
    }
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    let ended = child.wait_with_output().expect("it ended");
    let before = kept();
    let all = begin(&dir, &["--resume", "kept.jsonl"]).wait_with_output().expect("it ends");
    assert!(all.status.success());
    let all = String::from_utf8(all.stdout).expect("text");
    let point = |line: &str| serde_json::from_str::<Value>(line).ok()?["point"].as_u64();
    let points: Vec<Option<u64>> = all.lines().map(point).collect();
    assert_eq!(points, (0..16).map(Some).collect::<Vec<_>>());
    let finished = before.lines().skip(1).filter(|line| point(line).is_some());
    assert!(finished.clone().count() >= 2, "{before}");
    finished.for_each(|row| assert!(all.contains(row), "a finished point is lost"));
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (text(ended.stdout), text(ended.stderr), ended.status.code(), before)
}

#[test]
fn an_interrupted_sweep_prints_what_is_finished_and_goes_on_later() {
    for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
        let (rows, said, code, kept) = interrupted(signal);
        assert_eq!(code, Some(status), "{said}");
        let done = rows.lines().count();
        assert!((2..16).contains(&done), "{done}");
        let part = format!("interrupted with {done} of 16 points finished; the same");
        assert!(said.contains(&part) && said.lines().count() == 1, "{said}");
        assert_eq!(kept.lines().count(), done + 1);
    }
}

#[test]
fn a_sweep_that_was_killed_goes_on_with_what_was_finished() {
    let (rows, _, code, _) = interrupted("-KILL");
    assert_eq!((rows.as_str(), code), ("", None));
}

/// What waits for records that do not come ends all the same.
#[test]
fn a_run_that_waits_for_its_input_obeys_a_signal() {
    let dir = place();
    let mut command = Command::new(binary());
    command.args(["sim", "-m", "machine.toml", "/dev/stdin"]).current_dir(dir.path());
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
    // Held open, so that the input has no end. Until its signals are blocked the command has no part in what comes of them.
    let (_input, status) = (child.stdin.take(), format!("/proc/{}/status", child.id()));
    let listens =
        || fs::read_to_string(&status).is_ok_and(|s| !s.contains("SigBlk:\t0000000000000000"));
    let began = Instant::now();
    while !listens() && began.elapsed() < LIMIT {
        sleep(Duration::from_millis(10));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("sent");
    let began = Instant::now();
    let ended = child.wait_with_output().expect("it ends");
    assert!(began.elapsed() < LIMIT / 2 && ended.status.code() == Some(143), "{ended:?}");
    assert_eq!(String::from_utf8_lossy(&ended.stderr).lines().count(), 1);
}

#[test]
fn progress_with_an_estimate_is_shown_on_a_terminal_and_nowhere_else() {
    let dir = place();
    let run = "sim -m machine.toml -w gups:size=1M,rounds=4000 --limit 300000000 --level 2";
    let mut child = Command::new("script")
        .args(["-qec", &format!("{} {run} --sweep colors=1..2", binary().display()), "/dev/null"])
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("util-linux has `script`");
    let mut output = child.stdout.take().expect("a pipe");
    let (mut shown, mut buffer, began) = (String::new(), [0; 4096], Instant::now());
    while !shown.contains("left), 0 of 2 points") && began.elapsed() < LIMIT {
        let n = output.read(&mut buffer).expect("readable");
        assert!(n > 0, "it ended: {shown}");
        shown += &String::from_utf8_lossy(&buffer[..n]);
    }
    // The terminal goes away with `script`, and with it (SIGHUP) the run.
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(shown.contains("left), 0 of 2 points"), "{shown}");
    let quiet = begin(&dir, &[]).wait_with_output().expect("it ends");
    assert!(quiet.status.success() && quiet.stderr.is_empty());
}
