//! `huepage run` starts the program at once and confines it when its colours are known: nothing depends on
//! how long these take, so the tests hold the lock of a store without classes for as long as they like.

use crate::common;

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{HUEPAGE, huepage, live};
use serde_json::Value;

/// See [`World::script`].
const PYTHON: &str = "
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *a: sys.exit(42))
memory = bytearray(16 << 20)
for at in range(0, len(memory), 4096):
    memory[at] = 1
open(sys.argv[1], \"w\").write(str(os.getpid()) + \"\\n\")
time.sleep(170)
";

/// A store without classes, in memory, and whoever keeps others from building them.
struct World {
    dir: tempfile::TempDir,
    lock: File,
}

impl World {
    /// With the store locked.
    fn locked() -> World {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let lock = File::create(dir.path().join("lock")).unwrap();
        lock.lock().unwrap();
        World { dir, lock }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `huepage` in this world.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(HUEPAGE);
        command.args(args).env("HUEPAGE_CLASSES_DIR", self.dir.path());
        command.env("HUEPAGE_RUNTIME_DIR", self.path("run")).env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs a script in a quarter of the measured colours.
    fn run(&self, script: &str, options: &[&str]) -> Command {
        let mut command = self.command(&["run", "--share", "25%", "--colors-from", "probe"]);
        let report = self.path("report");
        command.args(["--report", report.to_str().unwrap()]).args(options);
        command.args(["--", "sh", "-c", script]);
        command
    }

    fn report(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("report")).unwrap()).unwrap()
    }

    /// A script whose child has 16 MiB, says who it is and ends with 42 when it is told to.
    fn script(&self) -> String {
        let stamp = self.path("stamp");
        // The shell stays: the other is its child.
        format!("/usr/bin/python3 -c '{PYTHON}' {}; exit $?", stamp.display())
    }

    /// The pid of that child, once it runs.
    fn child(&self) -> String {
        awaited("the program runs", || {
            let stamp = std::fs::read_to_string(self.path("stamp")).ok()?;
            Some(stamp.strip_suffix('\n')?.to_owned())
        })
    }

    fn inspect(&self, pid: &str) -> Option<Value> {
        let output = self.output(&["inspect", "--json", pid]);
        // A process in no partition has its pages by colour shown.
        output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
    }
}

/// What `look` finds, in the end.
fn awaited<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < common::HANGS, "{what}: not there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn end(pid: &str) {
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

fn finish(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_program_runs_before_colours_are_known_and_is_confined_after() {
    let test = "a_program_runs_before_colours_are_known_and_is_confined_after";
    let Some(_turn) = live(test) else { return };
    let world = World::locked();
    let run = world.run(&world.script(), &[]).spawn().unwrap();
    let pid = world.child();
    // A child of the first process becomes a member as well, while colours are not known.
    let waiting = awaited("it is a member", || world.inspect(&pid));
    assert_eq!(waiting["colors_known"], false, "{waiting}");
    let text = world.output(&["inspect", &pid]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("being measured"), "{text:?}");
    world.lock.unlock().unwrap();
    let found = awaited("it is confined", || {
        let found = world.inspect(&pid)?;
        (found["compliance"]["share"].as_f64()? >= 0.99).then_some(found)
    });
    assert!(found["compliance"]["movable"].as_u64().unwrap() >= 4096, "{found}");
    end(&pid);
    let output = finish(run);
    assert_eq!(output.status.code(), Some(42), "{}", said(&output));
    let report = world.report();
    assert!(report["start_seconds"].as_f64() < report["colors_seconds"].as_f64(), "{report}");
    assert!(report["recolored"].as_u64().unwrap() >= 4096, "{report}");
    assert_eq!(report["missed"].as_array().unwrap().len(), 0, "{report}");
}

#[test]
fn a_program_shorter_than_the_preparation_ends_as_it_would() {
    let Some(_turn) = live("a_program_shorter_than_the_preparation_ends_as_it_would") else {
        return;
    };
    let world = World::locked();
    let output = world.run("echo out; exit 7", &[]).output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(7), &b"out\n"[..]));
    assert!(said(&output).contains("colours were not known before it ended"), "{}", said(&output));
    assert_eq!(world.report()["colors_seconds"], Value::Null);
    let output = world.run("kill -TERM $$", &[]).output().unwrap();
    assert_eq!(output.status.signal(), Some(15), "{}", said(&output));
    world.lock.unlock().unwrap();
    // Now it may end in the middle of the preparation, of which nothing is left.
    let output = world.run("exit 3", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    let mut left: Vec<_> = std::fs::read_dir(world.dir.path()).unwrap().flatten().collect();
    left.retain(|file| file.file_name().to_string_lossy().contains('.'));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_program_can_be_released_before_colours_are_known() {
    let Some(_turn) = live("a_program_can_be_released_before_colours_are_known") else { return };
    let world = World::locked();
    let run = world.run(&world.script(), &[]).spawn().unwrap();
    let pid = world.child();
    awaited("it is a member", || world.inspect(&pid));
    let output = world.output(&["detach", &pid]);
    assert!(output.status.success(), "{}", said(&output));
    world.lock.unlock().unwrap();
    assert!(world.inspect(&pid).is_none(), "it is a member still");
    end(&pid);
    let output = finish(run);
    assert_eq!(output.status.code(), Some(42), "{}", said(&output));
}

#[test]
fn who_waits_has_colours_and_stock_before_the_program_starts() {
    let Some(_turn) = live("who_waits_has_colours_and_stock_before_the_program_starts") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    for option in ["--wait", "--strict"] {
        let path = dir.path().join("report");
        let args = ["run", "-q", "--share", "25%", option, "--report", path.to_str().unwrap()];
        let output = huepage(&[&args[..], &["--", "sleep", "0.3"]].concat());
        assert!(output.status.success(), "{option}: {}", said(&output));
        let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let seconds = |name: &str| report[name].as_f64().unwrap_or(f64::INFINITY);
        assert!(seconds("colors_seconds") <= seconds("stock_seconds"), "{option}: {report}");
        assert!(seconds("stock_seconds") <= seconds("start_seconds"), "{option}: {report}");
    }
}

/// A process that is confined takes several descriptors, and shells allow few.
#[test]
fn more_processes_are_confined_than_a_shell_allows_files() {
    let test = "more_processes_are_confined_than_a_shell_allows_files";
    let Some(_turn) = live(test) else { return };
    let report = tempfile::NamedTempFile::new().unwrap();
    let (huepage, path) = (HUEPAGE, report.path().display());
    let script = format!(
        "ulimit -Sn 64; exec {huepage} run --share 25% --colors-from declared --report {path} -- \
         sh -c 'ulimit -Sn; for i in $(seq 20); do sleep 5 & done; wait'"
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(output.stdout, b"64\n", "the program has the limit of the shell");
    let report: Value = serde_json::from_reader(report).unwrap();
    assert_eq!(report["missed"].as_array().map(Vec::len), Some(0), "{report}");
    assert!(report["processes"].as_array().map(Vec::len) >= Some(20), "{report}");
}

/// Where there is no store each process finds colours of its own, and numbers them as it likes.
#[test]
fn colours_that_nobody_else_knows_are_told() {
    let test = "colours_that_nobody_else_knows_are_told";
    let Some(_turn) = live(test) else { return };
    let world = World::locked();
    let mut run = world.run("true", &["--wait"]);
    let output = run.env("HUEPAGE_CLASSES_DIR", "/proc").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("could not be shared with others"), "{}", said(&output));
    let report = world.report();
    assert!(report["colors_private_because"].is_string(), "{report}");
}
