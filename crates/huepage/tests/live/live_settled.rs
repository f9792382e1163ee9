//! A process whose pages lie right is left alone, with a stock in proportion to it, until something changes; what
//! changes is found. What that costs is measured by `huepage-bench settled`, not here.

use crate::common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use common::Killed;
use serde_json::Value;

const MIB: u64 = 8;

/// A program that sleeps, and allocates as much again when it is told to.
struct Sleeper {
    child: Killed,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Sleeper {
    fn start() -> Sleeper {
        Sleeper::of(MIB)
    }

    fn of(mib: u64) -> Sleeper {
        let mut command = Command::new(common::tools().join("huepage-bench"));
        command.args(["settled-target", "--mib", &mib.to_string()]);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = Killed(child.unwrap());
        let (input, output) = (child.0.stdin.take().unwrap(), child.0.stdout.take().unwrap());
        let mut sleeper = Sleeper { child, input, output: BufReader::new(output) };
        sleeper.says("ready");
        sleeper
    }

    fn says(&mut self, word: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), word);
    }

    fn allocate(&mut self) {
        self.input.write_all(b"\n").unwrap();
        self.says("more");
    }

    fn pid(&self) -> String {
        self.child.0.id().to_string()
    }

    fn inspect(&self) -> Value {
        let output = common::huepage(&["inspect", "--json", &self.pid()]);
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    fn attach(&self, more: &[&str]) {
        self.attach_to("50%", more);
    }

    fn attach_to(&self, share: &str, more: &[&str]) {
        let mut args = vec!["attach", "-q", "--share", share, "--colors-from", "declared"];
        args.extend_from_slice(more);
        let pid = self.pid();
        args.push(&pid);
        let attached = common::huepage(&args);
        assert!(attached.status.success(), "{attached:?}");
    }

    /// Waits until something is so; what was found then.
    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let found = self.inspect();
            if holds(&found) {
                return found;
            }
            assert!(started.elapsed() < common::HANGS, "{what}: {found:#}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until its pages lie right and nobody looks at them any more.
    fn left_alone(&self) -> Value {
        let audits = |found: &Value| found["engine"]["audits"].as_u64();
        self.until("is left alone", |found| {
            std::thread::sleep(Duration::from_secs(3));
            lies_right(found) && audits(found) == audits(&self.inspect())
        })
    }
}

fn lies_right(found: &Value) -> bool {
    found["compliance"]["share"].as_f64() >= Some(0.99)
}

fn movable(found: &Value) -> u64 {
    found["compliance"]["movable"].as_u64().unwrap()
}

#[test]
fn a_settled_process_is_left_alone_until_it_allocates() {
    let Some(_turn) = common::live("a_settled_process_is_left_alone") else { return };
    let mut sleeper = Sleeper::start();
    sleeper.attach(&[]);
    let before = sleeper.left_alone();
    let stock = before["engine"]["stock"].as_u64();
    assert!(stock.is_some_and(|pages| pages <= 256), "1 MiB: {before:#}");
    for times in 1..=2 {
        sleeper.allocate();
        let grown = |found: &Value| movable(found) >= movable(&before) + times * MIB * 256;
        sleeper.until("new memory lies right", |found| grown(found) && lies_right(found));
        sleeper.left_alone();
    }
}

#[test]
fn no_more_is_in_stock_than_was_asked_for() {
    let Some(_turn) = common::live("no_more_is_in_stock_than_was_asked_for") else { return };
    let sleeper = Sleeper::start();
    let resident = resident(&sleeper);
    sleeper.attach(&["--stock", "4M"]);
    let found = sleeper.left_alone();
    // What pages were recoloured with is not gathered again before half of it is gone.
    let stock = found["engine"]["stock"].as_u64().unwrap();
    assert!((512..=1024).contains(&stock), "{found:#}");
    // The agent itself has a megabyte or so.
    let more = self::resident(&sleeper).saturating_sub(resident);
    assert!(more <= (4 + 4) * 256, "{more} pages more: {found:#}");
}

/// While it grows its agent is where it runs; when it rests its agent may run where it may.
#[test]
fn an_agent_follows_a_program_that_grows() {
    let Some(_turn) = common::live("an_agent_follows_a_program_that_grows") else { return };
    let mut sleeper = Sleeper::start();
    let own = cpus(&sleeper, "settled-target");
    sleeper.attach(&[]);
    let followed = |sleeper: &mut Sleeper| {
        sleeper.allocate();
        cpus(sleeper, "huepage-agent").parse::<u32>().is_ok()
    };
    assert!((0..50).any(|_| followed(&mut sleeper)), "400 MiB, and it went nowhere");
    sleeper.left_alone();
    for thread in ["huepage-agent", "huepage-worker"] {
        assert_eq!(cpus(&sleeper, thread), own, "{thread}");
    }
}

/// The CPUs that the thread of this name may use, or the first one if none has the name.
fn cpus(sleeper: &Sleeper, name: &str) -> String {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", sleeper.pid())).unwrap();
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let mut texts: Vec<String> =
        tasks.map(|task| read(task.unwrap().path().join("status"))).collect();
    texts.sort_by_key(|text| !text.starts_with(&format!("Name:\t{name}")));
    let list = texts[0].lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.unwrap().trim().to_owned()
}

/// Resident pages.
fn resident(sleeper: &Sleeper) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{}/statm", sleeper.pid())).unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Sixteen times what the program has is more than the first round looks at, and the next round would find no other
/// frames if it were not longer.
#[test]
fn a_large_program_finds_its_sixteenth() {
    const MOST_MIB: u64 = 512;
    let test = "a_large_program_finds_its_sixteenth";
    let Some(_turn) = common::live_alone(test) else { return };
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    let available: u64 = line.split_whitespace().next().unwrap().parse().unwrap();
    // The first round looks at 3 of 16 parts of it, and at 4 GiB at most.
    let mib = (available >> 10) * 3 / 16 / 16 * 5 / 4;
    let sleeper = Sleeper::of(mib.min(MOST_MIB));
    sleeper.attach_to("6.25%", &[]);
    sleeper.until("lies in a sixteenth", lies_right);
}
