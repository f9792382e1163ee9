//! Files are placed before a program reads them: its output and status are what they are without
//! huepage, the pages are where they belong, and nobody is held up, whatever becomes of the
//! service.

use crate::common;

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use serde_json::Value;
use tempfile::TempDir;

/// Long enough that whatever is placed is placed before it is read.
const PATIENT: &str = "20000";
/// Far beyond what an open may take, also on a machine that is busy with other tests.
const GENEROUS: Duration = common::HANGS;

/// A file of so many pages that is on the disk and not in the cache; contents differ by page.
fn put(path: &Path, pages: u64, seed: u64) {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    let mut page = [0x5a; 4096];
    for i in 0..pages {
        page[..8].copy_from_slice(&(i.wrapping_mul(0x9e37_79b9) ^ seed).to_le_bytes());
        file.write_all(&page).unwrap();
    }
    let file = file.into_inner().unwrap();
    file.sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).unwrap();
}

/// 300 files of 1 to 30 pages.
fn tree(dir: &Path) -> PathBuf {
    let tree = dir.join("tree");
    fs::create_dir(&tree).unwrap();
    (0..300).for_each(|i| put(&tree.join(format!("{i:03}")), i * 7 % 30 + 1, i));
    tree
}

fn utf8(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// `huepage run --page-cache srm-rescan` for the files of `dir`, with more options and a program.
fn command(dir: &Path, options: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(common::HUEPAGE);
    command.args(["run", "--page-cache", "srm-rescan", "--colors-from", "declared", "--report"]);
    command.arg(report_path(dir)).args(["--page-cache-include", utf8(dir)]);
    command.args(options).arg("--").args(program).stdin(Stdio::null());
    command
}

fn report_path(dir: &Path) -> PathBuf {
    dir.join("report.json")
}

fn report(dir: &Path) -> Value {
    let report: Value = serde_json::from_slice(&fs::read(report_path(dir)).unwrap()).unwrap();
    report["page_cache"].clone()
}

fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// Pages that lie where they belong, in a hundred of those looked at.
fn percent(report: &Value) -> u64 {
    100 * (number(report, "placed") + number(report, "already")) / number(report, "pages")
}

/// What `huepage warm --check` says of a file or a tree.
fn check(path: &Path, colors: &str) -> Value {
    let args = ["warm", "--check", "--json", "--colors-from", "declared", "--colors", colors];
    let output = common::huepage(&[&args[..], &[utf8(path)]].concat());
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Pages of files that were read again after the kernel had reclaimed them, and pages that it gave other frames
/// to have large ones free, on the whole machine.
fn moved_by_the_kernel() -> [u64; 2] {
    let text = fs::read_to_string("/proc/vmstat").unwrap();
    ["workingset_refault_file ", "pgmigrate_success "].map(|name| {
        let count = text.lines().find_map(|line| line.strip_prefix(name));
        count.map_or(0, |count| count.parse().unwrap())
    })
}

/// How often a round begins anew when somebody has the kernel reclaim the pages it looks at.
const ROUNDS: usize = 12;

/// What a round found that is right, or in which the kernel reclaimed or moved no page of the files in `dir`,
/// nor in the round before, for the first one since `before` was read. What was reclaimed or moved between being
/// placed and being looked at says nothing about placing, and some machines take every page away that is idle
/// for seconds. Only the kernel's own counts make a round void; those of [`moved_by_the_kernel`] are of the whole
/// machine, so what is right counts whatever they say.
fn undisturbed_since<T>(
    mut before: [u64; 2],
    dir: &Path,
    right: impl Fn(&T) -> bool,
    mut round: impl FnMut() -> T,
) -> T {
    let found = (0..ROUNDS).find_map(|_| {
        let now = moved_by_the_kernel();
        let found = round();
        let calm = || {
            number(&check(dir, "all")["total"], "reclaimed") == 0 && moved_by_the_kernel() == before
        };
        let counts = right(&found) || calm();
        before = now;
        counts.then_some(found)
    });
    found.expect("the kernel reclaimed or moved pages in every round")
}

/// The same where no round stands on what was placed before it.
fn undisturbed<T>(dir: &Path, right: impl Fn(&T) -> bool, round: impl FnMut() -> T) -> T {
    undisturbed_since(moved_by_the_kernel(), dir, right, round)
}

/// Whether whoever waited was let before the time, as nothing came of the placer for a second: beside
/// a build, a disk may give nothing for as long.
fn was_held_up(report: &Value) -> bool {
    let allowed_us = 1000 * number(report, "wait_ms");
    number(report, "timeouts") > 0 && number(report, "longest_wait_us") < allowed_us
}

#[test]
fn a_large_file_is_placed_before_it_is_read() {
    let test = "a_large_file_is_placed_before_it_is_read";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    cat_a_large_file(&dir);
}

fn kib(name: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Reads files without contents until cached pages leave little memory free, one page at a time, as small files
/// do; the files.
fn fill_page_cache(dir: &Path) -> Vec<File> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let fill = |thread: usize| fill_by_one(&dir.join(thread.to_string()), threads as u64);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|i| scope.spawn(move || fill(i))).collect();
        all.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

/// What one of so many threads reads.
fn fill_by_one(dir: &Path, threads: u64) -> Vec<File> {
    let (mut files, few) = (Vec::new(), kib("MemTotal:") / 32);
    fs::create_dir(dir).unwrap();
    while kib("MemFree:") > few && files.len() < 256 {
        let path = dir.join(files.len().to_string());
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        let bytes = 1024 * (kib("MemFree:").saturating_sub(few)) / threads;
        file.set_len(bytes.clamp(64 << 20, 1 << 30)).unwrap();
        rustix::fs::fadvise(&file, 0, None, Advice::Random).unwrap();
        std::io::copy(&mut &file, &mut std::io::sink()).unwrap();
        files.push(file);
    }
    files
}

#[test]
fn a_large_file_is_placed_where_cached_files_fill_the_memory() {
    let test = "a_large_file_is_placed_where_cached_files_fill";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let others = TempDir::new_in(dir.path()).unwrap();
    let _files = fill_page_cache(others.path());
    assert!(kib("MemFree:") < kib("MemTotal:") / 8, "the memory did not fill");
    cat_a_large_file(&dir);
}

#[test]
fn the_service_ends_in_the_middle_of_a_sequence() {
    let test = "the_service_ends_in_the_middle";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let file = dir.path().join("large");
    // Of one colour a sequence is as long as half of the stock, or the file.
    let sequence = (kib("MemTotal:") / 4 / 125 / 2).min(65_536);
    let options =
        ["--colors", "1", "-q", "--page-cache-wait", "0", "--page-cache-threshold", "1048576"];
    let round = || {
        put(&file, 65_536, 9);
        let output = command(dir.path(), &options, &["head", "-c1", utf8(&file)]).output().unwrap();
        assert!(output.status.success() && output.stdout == [9], "{output:?}");
        let report = report(dir.path());
        assert!(report["service_died"].is_null(), "{report}");
        report
    };
    // Others may keep the supervisor from a processor while the placer has one.
    let in_the_middle = |report: &Value| {
        2 * number(report, "pages") < sequence && number(report, "unfinished") == 1
    };
    let found = (0..ROUNDS).map(|_| round()).find(in_the_middle);
    assert!(found.is_some(), "a sequence of {sequence} pages was looked at to its end every time");
}

/// Runs a shell that does something to `$0` and lives on for seconds, in which files could be placed.
fn while_it_lives(dir: &Path, script: &str, file: &Path) -> Value {
    let script = format!("{script}; sleep 3");
    let options = ["-q", "--page-cache-wait", "0"];
    let output = command(dir, &options, &["sh", "-c", &script, utf8(file)]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    report(dir)
}

#[test]
fn what_nobody_will_read_is_not_placed() {
    // More than anybody can place while it is waited for the next who opens it.
    const MANY: u64 = 131_072;
    let test = "what_nobody_will_read_is_not_placed";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let file = dir.path().join("large");
    // No disk can hold it, and nobody could place it.
    File::create(&file).unwrap().set_len(1 << 40).unwrap();
    for script in ["exec 3< \"$0\"", "head -c1 \"$0\"; rm \"$0\""] {
        let report = while_it_lives(dir.path(), script, &file);
        let left = (number(&report, "pages"), number(&report, "unfinished"));
        assert!(left.0 <= 4096 && left.1 <= 1, "{script}: {report}");
    }
    for script in ["exec 3< \"$0\"; rm \"$0\"", "head -c1 \"$0\""] {
        put(&file, MANY, 4);
        let report = while_it_lives(dir.path(), script, &file);
        assert_eq!(number(&report, "unfinished"), 1, "{script}: {report}");
        assert!(number(&report, "pages") < MANY, "{script}: {report}");
    }
}

/// `cat` of a file of 64 MiB: it is placed before it is read.
fn cat_a_large_file(dir: &TempDir) {
    let file = dir.path().join("large");
    let inside = |found: &Value| {
        number(found, "resident") == 16_384 && 100 * number(found, "inside") >= 97 * 16_384
    };
    let read = || {
        put(&file, 16_384, 1);
        let options = ["--colors", "2-3", "-q", "--page-cache-wait", PATIENT];
        let output = command(dir.path(), &options, &["cat", utf8(&file)]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(output.stdout == fs::read(&file).unwrap(), "the output differs");
        report(dir.path())
    };
    let found = undisturbed(dir.path(), inside, || {
        let report = (0..ROUNDS).map(|_| read()).find(|r| !was_held_up(r));
        let report = report.expect("the disk gave nothing for a second in every round");
        assert!(number(&report, "pages") >= 16_384 && percent(&report) >= 97, "{report}");
        let waits = (number(&report, "delayed"), number(&report, "timeouts"));
        assert_eq!(waits, (1, 0), "{report}");
        check(&file, "2-3")["total"].clone()
    });
    assert!(inside(&found), "{found}");
}

#[test]
fn a_tree_is_placed_file_by_file_and_the_status_is_the_program_s() {
    let test = "a_tree_is_placed_file_by_file";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let (tree, copy) = (tree(dir.path()), dir.path().join("copy"));
    let script = format!("cp -r {} {} && exit 37", utf8(&tree), utf8(&copy));
    let before = moved_by_the_kernel();
    let options = ["--page-cache-exclude", utf8(&copy), "--page-cache-wait", PATIENT, "-q"];
    let program = ["sh", "-c", &script];
    let output = command(dir.path(), &options, &program).output().unwrap();
    assert_eq!(output.status.code(), Some(37), "{output:?}");
    for i in 0..300 {
        let name = format!("{i:03}");
        let [before, after] = [&tree, &copy].map(|dir| fs::read(dir.join(&name)).unwrap());
        assert!(before == after, "{name} differs");
    }
    let report = report(dir.path());
    assert!(number(&report, "files") >= 300 && percent(&report) >= 97, "{report}");
    assert!(number(&report, "timeouts") == 0 || was_held_up(&report), "{report}");
    assert!(report["service_died"].is_null(), "{report}");
    // A second time there is nothing left to be done.
    let read = format!("cat {}/* | cksum; cat {0}/* | cksum", utf8(&tree));
    let nothing_left = |report: &Value| {
        number(report, "known") >= 300 && 20 * number(report, "placed") < number(report, "already")
    };
    let report = undisturbed_since(before, &tree, nothing_left, || {
        let again = command(dir.path(), &options, &["sh", "-c", &read]).output().unwrap();
        assert!(again.status.success(), "{again:?}");
        self::report(dir.path())
    });
    assert!(nothing_left(&report), "{report}");
}

#[test]
fn sizes_and_directories_choose_the_files() {
    let test = "sizes_and_directories_choose_the_files";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let (inner, outer) = (dir.path().join("inner"), dir.path().join("outer"));
    [&inner, &outer].iter().for_each(|dir| fs::create_dir(dir).unwrap());
    for (dir, pages) in [(&inner, 4), (&inner, 40), (&inner, 400), (&outer, 40)] {
        put(&dir.join(format!("{pages}")), pages, pages);
    }
    let options = ["--page-cache-exclude", utf8(&outer), "--page-cache-sizes", "64K-1M"];
    let options = [&options[..], &["--page-cache-wait", PATIENT, "-q"]].concat();
    let script = format!("cat {}/* {}/* | cksum", utf8(&inner), utf8(&outer));
    let output = command(dir.path(), &options, &["sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report = report(dir.path());
    assert_eq!((number(&report, "files"), number(&report, "pages")), (1, 40), "{report}");
    assert!(number(&report, "unwanted") >= 3, "{report}");
}

/// A program that reads the files of a tree over and over for some seconds.
fn reader(dir: &Path, tree: &Path) -> Child {
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do cat \"$0\"/* | cksum; sleep 0.1; done; exit 5";
    let mut command = command(dir, &["-q"], &["sh", "-c", script, utf8(tree)]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The service of a supervisor, once files wait for it.
fn service(supervisor: &Child) -> String {
    let start = Instant::now();
    while start.elapsed() < GENEROUS {
        let parent = supervisor.id().to_string();
        let found =
            Command::new("pgrep").args(["-f", "-P", &parent, "page-cache-service"]).output();
        let found = String::from_utf8(found.unwrap().stdout).unwrap().trim().to_owned();
        let children = Command::new("pgrep").args(["-P", &parent]).output().unwrap().stdout;
        // The program is only started when the service watches.
        if !found.is_empty() && children.iter().filter(|byte| **byte == b'\n').count() == 2 {
            std::thread::sleep(Duration::from_millis(300));
            return found;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("there is no service");
}

fn signal(how: &str, pid: &str) {
    assert!(Command::new("kill").args([how, pid]).status().unwrap().success(), "{how} {pid}");
}

/// Ten times the same checksum, and the status.
fn is_unharmed(output: &Output, tree: &Path) {
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    let script = format!("cat {}/* | cksum", utf8(tree));
    let right = Command::new("sh").args(["-c", &script]).output().unwrap().stdout;
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&right).repeat(10));
}

#[test]
fn the_program_goes_on_when_the_service_is_killed() {
    let test = "the_program_goes_on_when_the_service_is_killed";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let tree = tree(dir.path());
    let run = reader(dir.path(), &tree);
    signal("-KILL", &service(&run));
    is_unharmed(&run.wait_with_output().unwrap(), &tree);
    let report = report(dir.path());
    assert_eq!(report["service_died"], "it was killed", "{report}");
    assert!(number(&report, "opens") > 0, "the figures of before are kept: {report}");
}

#[test]
fn nobody_waits_for_long_when_the_service_hangs() {
    let test = "nobody_waits_for_long_when_the_service_hangs";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let tree = tree(dir.path());
    let run = reader(dir.path(), &tree);
    signal("-STOP", &service(&run));
    // Somebody else: the whole machine waits until the service is killed, 1.2 s later.
    let start = Instant::now();
    fs::read(tree.join("000")).unwrap();
    assert!(start.elapsed() < GENEROUS, "{:?}", start.elapsed());
    is_unharmed(&run.wait_with_output().unwrap(), &tree);
    let report = report(dir.path());
    assert!(report["service_died"].as_str().unwrap().contains("did not answer"), "{report}");
}

#[test]
fn an_open_waits_no_longer_than_allowed_and_others_not_at_all() {
    let test = "an_open_waits_no_longer_than_allowed";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let (file, tree) = (dir.path().join("large"), tree(dir.path()));
    put(&file, 65_536, 3);
    let options = ["--page-cache-wait", "5", "-q"];
    let program = ["sh", "-c", "cksum \"$0\"; cksum \"$0\"", utf8(&file)];
    let mut run = command(dir.path(), &options, &program).stdout(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    let mut opened = 0;
    while run.try_wait().unwrap().is_none() {
        let before = Instant::now();
        fs::read(tree.join(format!("{:03}", opened % 300))).unwrap();
        assert!(before.elapsed() < GENEROUS, "{:?}", before.elapsed());
        opened += 1;
        assert!(start.elapsed() < GENEROUS, "the program does not end");
    }
    assert!(run.wait().unwrap().success() && opened > 10, "{opened}");
    let report = report(dir.path());
    assert!(number(&report, "foreign") > 10, "{report}");
    assert_eq!(number(&report, "timeouts"), 1, "{report}");
    assert!(number(&report, "longest_wait_us") < 5_000_000, "{report}");
    assert!(number(&report, "placed") > 0, "it is placed while it is read: {report}");
}

#[test]
fn a_file_that_is_read_again_and_again_is_spread() {
    let test = "a_file_that_is_read_again_and_again_is_spread";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let [often, once] = ["often", "once"].map(|name| dir.path().join(name));
    let script = "cksum \"$1\"; for i in 1 2 3 4 5 6; do cksum \"$0\"; sleep 0.3; done";
    let program = ["sh", "-c", script, utf8(&often), utf8(&once)];
    let options = ["-q", "--page-cache-wait", PATIENT];
    let most = |file: &Path| {
        let by_color = check(file, "all")["total"]["by_color"].clone();
        let pages: Vec<u64> = by_color.as_array().unwrap().iter().flat_map(Value::as_u64).collect();
        (pages.len() as u64, pages.into_iter().max().unwrap())
    };
    let spread = |(report, [once, (colors, most)]): &(Value, [(u64, u64); 2])| {
        let each = 48_u64.div_ceil(*colors) + 2;
        once.1 == 48 && *most <= each && number(report, "spread") >= 48 - each
    };
    let found = undisturbed(dir.path(), spread, || {
        [&often, &once].iter().for_each(|file| put(file, 48, 7));
        let mut run = command(dir.path(), &options, &program);
        let output = run.stdout(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (report(dir.path()), [&once, &often].map(|file| most(file)))
    });
    assert!(spread(&found), "colours, and most pages in one, of once and often: {found:?}");
}

/// What `check` says once all pages of a file have been in the cache.
fn once_read(path: &Path, pages: u64) -> Value {
    let start = Instant::now();
    loop {
        let found = check(path, "all")["total"].clone();
        if number(&found, "resident") + number(&found, "reclaimed") >= pages {
            return found;
        }
        assert!(start.elapsed() < GENEROUS, "{} is not read", path.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A shell that reads the files whose names it is given, and says so.
fn shell() -> Child {
    let script = "while read file; do cksum < \"$file\"; done";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn files_of_attached_processes_are_placed_until_they_are_detached() {
    let test = "files_of_attached_processes_are_placed";
    let Some(_turn) = common::live_alone(test) else { return };
    let Some(dir) = common::place_of_files(test) else { return };
    let [file, later] = ["file", "later"].map(|name| dir.path().join(name));
    let mut shell = shell();
    let pid = shell.id().to_string();
    let attach = ["attach", "-q", "--page-cache", "srm-rescan", "--colors-from", "declared"];
    let wait = ["--page-cache-wait", PATIENT, &pid];
    let attached = common::huepage(&[&attach[..], &wait].concat());
    assert!(attached.status.success(), "{attached:?}");
    let mut names = shell.stdin.take().unwrap();
    let mut reads = 0;
    // Whether each colour has whole sequences only; others may take frames of a round that were meant for a page.
    let mut read = |names: &mut std::process::ChildStdin, path: &Path, expected: bool| {
        let mut round = || {
            put(path, 4096, 5);
            writeln!(names, "{}", utf8(path)).unwrap();
            reads += 1;
            let found = once_read(path, 4096);
            let by_color = found["by_color"].as_array().unwrap();
            by_color.iter().all(|n| n.as_u64().unwrap() % 256 == 0)
        };
        if (0..ROUNDS).any(|_| round() == expected) { expected } else { !expected }
    };
    assert!(read(&mut names, &file, true), "{}", check(&file, "all"));
    let detached = common::huepage(&["detach", &pid]);
    assert!(detached.status.success(), "{detached:?}");
    assert_eq!(common::huepage(&["detach", &pid]).status.code(), Some(111));
    assert!(!read(&mut names, &later, false), "{}", check(&later, "all"));
    drop(names);
    let output = shell.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), reads);
}

#[test]
fn errors_are_one_line() {
    let output = common::huepage(&["run", "--page-cache", "off", "--", "true"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let Some(_turn) = common::live_alone("errors_are_one_line") else { return };
    for (options, status, text) in [
        (["--page-cache-include", "/proc"], 101, "proc"),
        (["--page-cache-include", "/no/such"], 2, "/no/such"),
        (["--text", "place"], 2, "--share"),
    ] {
        let args = [&["run", "--page-cache", "srm-rescan"], &options[..], &["--", "true"]].concat();
        let output = common::huepage(&args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{options:?}: {said}");
        assert!(said.lines().count() == 1 && said.contains(text), "{options:?}: {said}");
    }
}
