//! Program text and libraries of a partition come into its colours: of a program that is started,
//! of one that runs already, and not of what others execute too. The program is made here: text
//! that fills a page per function, in the program and in a library of its own, all of which it
//! executes over and over. It needs gcc; without that a test says so and passes.

use crate::common;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Functions, of a page each, in the program and in the library.
const FUNCTIONS: u32 = 600;
/// How long anything may take on a busy machine.
const PATIENCE: Duration = common::HANGS;
/// How text is placed here.
const PLACE: [&str; 6] = ["--share", "25%", "--colors-from", "pfn", "--text", "place"];

/// Functions that take up a page each, and one that calls them all.
fn functions(name: &str) -> String {
    let one = |i| {
        format!(
            "__attribute__((noinline)) static unsigned {name}{i}(unsigned x) {{ \
             __asm__ volatile(\".fill 4090,1,0x90\"); return x * 2654435761u + {i}; }}\n"
        )
    };
    let all: String = (0..FUNCTIONS).map(one).collect();
    let calls: String = (0..FUNCTIONS).map(|i| format!("x = {name}{i}(x);\n")).collect();
    format!("{all}unsigned all_{name}(unsigned x) {{\n{calls}return x; }}\n")
}

/// It says its pid and, when it is told to end, whether the result was always the same.
fn main_function() -> String {
    format!(
        "#include <signal.h>\n#include <stdio.h>\n#include <unistd.h>\n\
         static volatile sig_atomic_t told;\nstatic void tell(int signal) {{ told = signal; }}\n\
         unsigned all_library(unsigned x);\n{}\
         int main(void) {{\n\
         signal(SIGUSR1, tell);\n\
         printf(\"%d\\n\", getpid()); fflush(stdout);\n\
         unsigned first = all_library(all_program(1)), wrong = 0;\n\
         do wrong += all_library(all_program(1)) != first; while (!told);\n\
         printf(\"%u %u\\n\", first, wrong); return 42; }}\n",
        functions("program")
    )
}

fn compile(source: &str, output: &Path, options: &[&str]) {
    let file = output.with_extension("c");
    std::fs::write(&file, source).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-o"]).arg(output).arg(&file).args(options);
    assert!(gcc.status().unwrap().success(), "{} does not compile", file.display());
}

/// The program in a directory of its own, on a disk.
struct Bench {
    _dir: TempDir,
    program: PathBuf,
}

fn bench(test: &str) -> Option<Bench> {
    if Command::new("gcc").arg("--version").output().is_err() {
        common::skip(test, "`gcc` is missing; run scripts/setup-programs.sh");
        return None;
    }
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (program, library) = (dir.path().join("program"), dir.path().join("library.so"));
    compile(&functions("library"), &library, &["-shared", "-fPIC"]);
    let (library, rpath) =
        (library.to_str().unwrap(), format!("-Wl,-rpath,{}", dir.path().display()));
    compile(&main_function(), &program, &[library, &rpath]);
    Some(Bench { program, _dir: dir })
}

/// A program that runs, killed if a test fails.
struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
    pid: String,
}

impl Running {
    /// Starts a command and reads the pid that the program in it says.
    fn start(command: &mut Command) -> Running {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut said, mut pid) = (BufReader::new(child.stdout.take().unwrap()), String::new());
        said.read_line(&mut pid).unwrap();
        Running { child, said, pid: pid.trim().to_owned() }
    }

    /// Has it end: its status and what else it said.
    fn finish(mut self) -> (Option<i32>, String) {
        let pid = Pid::from_raw(self.pid.parse().unwrap()).unwrap();
        kill_process(pid, Signal::USR1).unwrap();
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The program too, if its supervisor is who was started.
        let pid = self.pid.parse().ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Bench {
    /// The program as it is.
    fn plain(&self) -> Command {
        Command::new(&self.program)
    }

    /// The program under huepage.
    fn placed(&self, options: &[&str]) -> Command {
        let mut command = Command::new(common::HUEPAGE);
        command.args(["run", "-q"]).args(PLACE).args(options).arg("--").arg(&self.program);
        command
    }

    /// What it says when nothing is done to it.
    fn answer(&self) -> (Option<i32>, String) {
        let answer = Running::start(&mut self.plain()).finish();
        assert!(answer.0 == Some(42) && answer.1.ends_with(" 0\n"), "{answer:?}");
        answer
    }
}

/// The files of an inspection as soon as `right` holds of them.
fn files_when(pid: &str, what: &str, right: impl Fn(&Value) -> bool) -> Value {
    let (started, mut last) = (Instant::now(), String::from("nothing"));
    while started.elapsed() < PATIENCE {
        let output = common::huepage(&["inspect", "--json", pid]);
        if let Ok(found) = serde_json::from_slice::<Value>(&output.stdout) {
            if right(&found["files"]) {
                return found["files"].clone();
            }
            last = format!("{:#}\ntext: {:#}", found["files"], found["text"]);
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("never {what}; last seen: {last}");
}

/// Pages of a row that only the group has, and those of them inside.
fn exclusive(row: &Value) -> (f64, f64) {
    let count = |key: &str| row[key].as_f64().unwrap_or(0.0);
    (count("inside") + count("outside") + count("unknown"), count("inside"))
}

/// Whether the text of the program and of its library is inside, but for a few pages.
fn is_inside(files: &Value) -> bool {
    ["text", "library"].iter().all(|used| {
        let (all, inside) = exclusive(&files["uses"][*used]);
        all >= f64::from(FUNCTIONS) && inside / all >= 0.95
    })
}

#[test]
fn text_of_a_started_program_comes_into_its_colours() {
    let Some(_turn) = common::live_alone("text_of_a_started_program") else { return };
    let Some(bench) = bench("text_of_a_started_program") else { return };
    let answer = bench.answer();
    let running = Running::start(&mut bench.placed(&[]));
    let files = files_when(&running.pid, "inside", is_inside);
    // The C library is everybody's.
    assert!(files["uses"]["library"]["shared"].as_u64() > Some(0), "{files:#}");
    assert_eq!(running.finish(), answer);
}

#[test]
fn text_of_a_running_program_comes_into_its_colours() {
    let Some(_turn) = common::live_alone("text_of_a_running_program") else { return };
    let Some(bench) = bench("text_of_a_running_program") else { return };
    let answer = bench.answer();
    let running = Running::start(&mut bench.plain());
    let mut attach = vec!["attach", "-q"];
    attach.extend(PLACE);
    attach.push(&running.pid);
    let attached = common::huepage(&attach);
    assert!(attached.status.success(), "{attached:?}");
    files_when(&running.pid, "inside", is_inside);
    assert_eq!(running.finish(), answer);
}

#[test]
fn text_that_others_execute_is_left_and_counted() {
    let Some(_turn) = common::live_alone("text_that_others_execute") else { return };
    let Some(bench) = bench("text_that_others_execute") else { return };
    let answer = bench.answer();
    let other = Running::start(&mut bench.plain());
    let report = bench.program.with_extension("json");
    let report_to = ["--report", report.to_str().unwrap()];
    let running = Running::start(&mut bench.placed(&report_to));
    let all_shared = |files: &Value| {
        let text = &files["uses"]["text"];
        text["shared"].as_u64() >= Some(u64::from(FUNCTIONS)) && text["shared"] == text["resident"]
    };
    files_when(&running.pid, "shared", all_shared);
    assert_eq!(running.finish(), answer);
    assert_eq!(other.finish(), answer);
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert!(report["text"]["left"]["outside"].as_u64() >= Some(2), "{:#}", report["text"]);
    assert_eq!(report["text"]["placed"], 0, "{:#}", report["text"]);
}

#[test]
fn text_of_two_partitions_goes_where_both_may_be() {
    let Some(_turn) = common::live_alone("text_of_two_partitions") else { return };
    let Some(bench) = bench("text_of_two_partitions") else { return };
    let answer = bench.answer();
    let shared = ["--shared-colors", "8-11"];
    let first = Running::start(&mut bench.placed(&shared));
    files_when(&first.pid, "inside", is_inside);
    let second = Running::start(&mut bench.placed(&shared));
    let in_shared = |files: &Value| {
        let count = |key: &str| files["uses"]["text"][key].as_f64().unwrap_or(0.0);
        count("shared") >= f64::from(FUNCTIONS) && count("shared_inside") / count("shared") >= 0.9
    };
    files_when(&second.pid, "in the colours of both", in_shared);
    assert_eq!((second.finish(), first.finish()), (answer.clone(), answer));
}

#[test]
fn text_is_left_unless_asked_for() {
    let Some(_turn) = common::live_alone("text_is_left_unless_asked_for") else { return };
    let Some(bench) = bench("text_is_left_unless_asked_for") else { return };
    let answer = bench.answer();
    let mut command = Command::new(common::HUEPAGE);
    command.args(["run", "-q"]).args(&PLACE[..4]).arg("--").arg(&bench.program);
    let running = Running::start(&mut command);
    let files = files_when(&running.pid, "there", |files| {
        exclusive(&files["uses"]["text"]).0 >= f64::from(FUNCTIONS)
    });
    // Of sixteen colours, four are the partition's: it has its share of pages by chance.
    let (all, inside) = exclusive(&files["uses"]["text"]);
    assert!(inside / all < 0.9, "{files:#}");
    assert_eq!(running.finish(), answer);
}

#[test]
fn shared_colours_must_exist_and_have_a_use() {
    let Some(_turn) = common::live_alone("shared_colours_must_exist") else { return };
    let wrong = common::huepage(&["run", "--share", "50%", "--shared-colors", "1", "--", "true"]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong:?}");
    let mut beyond = vec!["run"];
    beyond.extend(PLACE);
    beyond.extend(["--shared-colors", "9999", "--", "true"]);
    let beyond = common::huepage(&beyond);
    assert_eq!(beyond.status.code(), Some(104), "{beyond:?}");
    let bare = ["run", "--page-cache", "srm", "--text", "place", "--", "true"];
    let bare = common::huepage(&bare);
    assert_eq!(bare.status.code(), Some(2), "{bare:?}");
}
