//! `huepage top`: what it prints once, and its screen on a terminal of the test's own, which has to be
//! as before however the screen ends.

use crate::common;

use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

/// How long anything may take on a busy machine.
const PATIENCE: Duration = common::HANGS;

/// `huepage` with a registry of the test's own.
fn huepage(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(common::HUEPAGE);
    command.args(args).env("HUEPAGE_RUNTIME_DIR", dir).stdin(Stdio::null());
    command
}

fn top(dir: &Path, args: &[&str]) -> Value {
    let args = [&["top", "--once", "--json"], args].concat();
    let output = huepage(dir, &args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asks until an answer is right.
fn until(dir: &Path, args: &[&str], is_right: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let told = top(dir, args);
        if is_right(&told) {
            return told;
        }
        assert!(begin.elapsed() < PATIENCE, "{told:#}");
    }
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The supervisor hands it on to the program, and ends with it.
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// A program that computes with 16 MiB in four colours.
fn confined(dir: &Path) -> Running {
    let tool = common::tools().join("huepage-torture");
    let mut run =
        huepage(dir, &["run", "-q", "--colors", "0-3", "--colors-from", "declared", "--"]);
    run.arg(tool).args(["answer", "--mib", "16", "--right", "42", "--seconds", "600"]);
    Running(run.stdout(Stdio::null()).spawn().unwrap())
}

fn program(told: &Value) -> Option<&Value> {
    told["processes"].as_array()?.iter().find(|p| p["colors"]["colors"] == "0-3")
}

#[test]
fn a_confined_program_is_listed_with_its_colours_and_by_address() {
    let Some(_turn) = common::live("top: list") else { return };
    let dir = tempfile::tempdir().unwrap();
    let registry = dir.path().join("registry");
    assert_eq!(top(&registry, &["--seconds", "0.1"])["processes"], Value::Array(Vec::new()));

    let _run = confined(&registry);
    let told = until(&registry, &["--seconds", "0.5"], |told| {
        let share = program(told).and_then(|p| p["compliance"]["share"].as_f64());
        let moved = program(told).and_then(|p| p["compliance"]["in_colors"].as_u64());
        let rated = program(told).is_some_and(|p| p["recolored_per_second"].is_number());
        share >= Some(0.9) && moved >= Some(2048) && rated
    });
    let program = program(&told).unwrap();
    let group = &told["groups"][0];
    assert_eq!((&group["colors"], &group["level"]), (&"0-3".into(), &"L2".into()));
    assert_eq!(group["supervisor"], program["supervisor"]);
    assert_eq!(group["members"][0], program["pid"]);
    let pages: Vec<u64> =
        program["pages_by_color"].as_array().unwrap().iter().filter_map(Value::as_u64).collect();
    assert_eq!(pages.len() as u64, group["of"].as_u64().unwrap());
    assert!(pages[..4].iter().sum::<u64>() >= 2048, "{pages:?}");
    assert!(program["heat"].is_null(), "it was not named");

    // Its memory by address; a neighbour may keep anything from being told for a while.
    let pid = program["pid"].as_i64().unwrap().to_string();
    let looked_at = |told: &Value| told["processes"][0]["heat"][0].is_object();
    let told = until(&registry, &["--seconds", "3", "--cpu", "2%", &pid], looked_at);
    check_map(&told["processes"][0]);
}

/// Rows by address, whose cells are what was looked at.
fn check_map(process: &Value) {
    let rows = process["heat"].as_array().unwrap();
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    let address = |row: &Value, name: &str| {
        let text = row[name].as_str().and_then(|text| text.strip_prefix("0x")).unwrap();
        u64::from_str_radix(text, 16).unwrap()
    };
    let mut last = 0;
    for row in rows {
        let (start, end) = (address(row, "start"), address(row, "end"));
        assert!(last <= start && start < end, "{row:#}");
        last = end;
        let cells = row["cells"].as_array().unwrap();
        for of in ["samples", "found"] {
            assert_eq!(cells.iter().map(|cell| number(cell, of)).sum::<u64>(), number(row, of));
        }
        assert!(number(row, "cell_bytes") * cells.len() as u64 >= end - start);
    }
    let residency = &process["residency"];
    let all: u64 = rows.iter().map(|row| number(row, "samples")).sum();
    assert_eq!(all, number(residency, "samples"));
    let (cache, estimate) = (&residency["cache"], &residency["estimate"]);
    if *cache == "L2+L3" {
        return assert!(estimate.is_null(), "there is no rate of two caches: {estimate}");
    }
    let rate = estimate["miss_rate"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&rate) && estimate["margin"].is_number(), "{estimate}");
}

#[test]
fn a_program_in_no_partition_can_be_named() {
    let Some(_turn) = common::live("top: named") else { return };
    let dir = tempfile::tempdir().unwrap();
    let registry = dir.path().join("registry");
    let target = common::Target::start("60");
    let told = top(&registry, &["--seconds", "0.5", &target.pid()]);
    let process = &told["processes"][0];
    assert_eq!(process["pid"].as_i64(), target.pid().parse().ok());
    assert!(process["colors"].is_null() && process["resident_bytes"].as_u64() > Some(16 << 20));
    let text = huepage(&registry, &["top", "--once", "--seconds", "0.1", &target.pid()]).output();
    let text = String::from_utf8(text.unwrap().stdout).unwrap();
    assert!(text.contains(&target.pid()) && text.contains("compliance"), "{text}");
}

/// Colours of groups over time, pages by colour, and what was decided.
#[test]
fn what_was_seen_is_a_page_too() {
    let Some(_turn) = common::live("top: page") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (registry, page) = (dir.path().join("registry"), dir.path().join("top.html"));
    let wish = ["run", "-q", "--share", "25%", "--colors-from", "declared"];
    let mut run = huepage(&registry, &[&wish[..], &["--", "sleep", "60"]].concat());
    let run = Running(run.stdout(Stdio::null()).spawn().unwrap());
    until(&registry, &["--seconds", "0.1"], |told| {
        told["processes"][0]["pages_by_color"].as_array().is_some_and(|of| !of.is_empty())
    });
    let args = ["top", "--once", "--seconds", "2.5", "--html", page.to_str().unwrap()];
    let output = huepage(&registry, &args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    common::browser::draws(&page, 2);
    let text = std::fs::read_to_string(&page).unwrap();
    assert!(text.contains("colours of each group") && text.contains("resident pages by colour"));
    drop(run);
    let nowhere = ["top", "--once", "--seconds", "0.1", "--html", "/nowhere/top.html"];
    let refused = huepage(&registry, &nowhere).output().unwrap();
    is_one_line(
        &refused,
        2,
        "/nowhere/top.html: No such file or directory (os error 2); name a file",
    );
}

fn is_one_line(output: &Output, status: i32, word: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.lines().count() == 1 && said.contains(word), "{said}");
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let dir = tempfile::tempdir().unwrap();
    is_one_line(&huepage(dir.path(), &["top"]).output().unwrap(), 2, "--once");
    let Some(_turn) = common::live("top: errors") else { return };
    let registry = dir.path().join("registry");
    let gone = huepage(&registry, &["top", "--once", "2147483646"]).output().unwrap();
    is_one_line(&gone, 102, "ps -e");
}

/// A terminal of 80 by 24 with the program on it, and what is to be seen there.
struct Shown {
    keys: File,
    line: OwnedFd,
    child: Child,
    seen: Arc<Mutex<vt100::Parser>>,
}

impl Shown {
    fn start(registry: &Path, args: &[&str]) -> Shown {
        let keys = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let path = ptsname(&keys, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let line = rustix::fs::open(path, flags, Mode::empty()).unwrap();
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&line, size).unwrap();
        let mut command = huepage(registry, &[&["top"], args].concat());
        command.env("TERM", "xterm-256color");
        let end = || Stdio::from(line.try_clone().unwrap());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        let keys = File::from(keys);
        let [rows, columns] = [24, 80].map(|n| NonZero::new(n).unwrap());
        let seen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (mut from, to) = (keys.try_clone().unwrap(), seen.clone());
        // Ends when the last of the other ends is closed.
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut chunk) {
                to.lock().unwrap().process(&chunk[..n]);
            }
        });
        Shown { keys, line, child, seen }
    }

    fn text(&self) -> String {
        self.seen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is as it should be.
    fn wait_until(&mut self, what: &str, is_it: impl Fn(&vt100::Screen) -> bool) {
        let begin = Instant::now();
        while !is_it(self.seen.lock().unwrap().screen()) {
            let ended = self.child.try_wait().unwrap();
            let text = self.text();
            assert!(begin.elapsed() < PATIENCE, "no {what}, ended: {ended:?}\n{text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_for(&mut self, what: &str) {
        self.wait_until(what, |screen| {
            screen.alternate_screen() && screen.contents().contains(what)
        });
    }

    fn press(&mut self, key: &[u8]) {
        self.keys.write_all(key).unwrap();
    }

    /// The status and what is on the terminal then, which has to be as before.
    fn end(&mut self) -> (Option<i32>, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        };
        let normal = |screen: &vt100::Screen| !screen.alternate_screen() && !screen.hide_cursor();
        self.wait_until("normal screen", normal);
        let modes = tcgetattr(&self.line).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
        (status.code(), self.text())
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_screen_shows_a_process_and_gives_the_terminal_back() {
    let Some(_turn) = common::live("top: screen") else { return };
    let dir = tempfile::tempdir().unwrap();
    let registry = dir.path().join("registry");
    let target = common::Target::start("600");
    let mut shown = Shown::start(&registry, &[&target.pid()]);
    shown.wait_for(&target.pid());
    shown.wait_until("hidden cursor", vt100::Screen::hide_cursor);
    assert!(shown.text().contains("huepage-tor"), "{}", shown.text());
    // Into the process, back, the keys, and out.
    shown.press(b"\r");
    shown.wait_for("esc back");
    assert!(shown.text().contains("compliance -"), "{}", shown.text());
    shown.press(b"\x1b");
    shown.wait_for("q quit  enter");
    shown.press(b"?");
    shown.wait_for("any key goes back");
    shown.press(b"q");
    assert_eq!(shown.end().0, Some(0));
}

#[test]
fn a_signal_and_an_error_leave_the_terminal_as_it_was() {
    let Some(_turn) = common::live("top: signal and error") else { return };
    let dir = tempfile::tempdir().unwrap();
    let registry = dir.path().join("registry");
    let mut shown = Shown::start(&registry, &[]);
    shown.wait_for("nobody is in a partition");
    let pid = rustix::process::Pid::from_child(&shown.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(shown.end().0, Some(128 + 15));

    let mut shown = Shown::start(&registry, &[]);
    shown.wait_for("nobody is in a partition");
    std::fs::remove_dir_all(&registry).unwrap();
    std::fs::write(&registry, "no directory").unwrap();
    let status = shown.end().0;
    shown.wait_until("error", |screen| screen.contents().contains("HUEPAGE_RUNTIME_DIR"));
    assert_eq!(status, Some(125), "{}", shown.text());
}
