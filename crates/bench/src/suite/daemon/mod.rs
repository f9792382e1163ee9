//! `huepage daemon`: what becomes of its programs and of its state when it is killed, what a day of
//! decisions leaves, what it does to the latency of a service, and how soon live groups settle.

pub mod day;
pub mod kill;
pub mod latency;
pub mod settle;

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::Guard;
use crate::launch::{Captured, Huepage};

/// Longest wait for anything.
const LONGEST: Duration = Duration::from_secs(60);

/// A daemon with a registry and a state of its own.
pub struct World {
    /// huepage with that registry.
    pub huepage: Huepage,
    dir: tempfile::TempDir,
}

impl World {
    /// Without a daemon yet.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn new(huepage: &Huepage) -> io::Result<World> {
        let dir = tempfile::tempdir()?;
        Ok(World { huepage: huepage.within(dir.path().join("run")), dir })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes its file: `rest` is what else is said of the daemon, then the groups.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, colors_from: &str, rest: &str) -> io::Result<()> {
        let state = self.path("state.json").display().to_string();
        let daemon = format!(
            "[daemon]\ncolors_from = \"{colors_from}\"\nmetric_user = \"root\"\nstate_file = \"{state}\"\n"
        );
        fs::write(self.path("huepage.toml"), daemon + rest)
    }

    /// Starts the daemon; it may not be ready yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self) -> io::Result<Guard> {
        let log = OpenOptions::new().create(true).append(true).open(self.path("log"))?;
        let mut command = self.huepage.command(["daemon", "--config"]);
        command.arg(self.path("huepage.toml")).stdout(Stdio::null()).stderr(log);
        command.process_group(0).spawn().map(Guard)
    }

    /// What it said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The colours of a group in the state on the disk.
    pub fn kept(&self, name: &str) -> Option<Value> {
        let text = fs::read(self.path("state.json")).ok()?;
        let state: Value = serde_json::from_slice(&text).ok()?;
        let mut groups = state["groups"].as_array()?.iter();
        groups.find(|group| group["name"] == name).map(|group| group["colors"].clone())
    }

    /// The colours of a process, once 99 % of its pages are there; none when the daemon ended.
    pub fn settled(&self, daemon: &mut Guard, pid: u32) -> Option<String> {
        let started = Instant::now();
        while started.elapsed() < LONGEST && daemon.alive() {
            let found = self.huepage.inspect(pid).unwrap_or_default();
            if found["compliance"]["share"].as_f64() >= Some(0.99) {
                return found["partition"]["colors"].as_str().map(str::to_owned);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }
}

/// What is wrong with how a program with a known answer ended; waits for that.
fn trouble(target: Captured) -> Option<String> {
    let wrong = target.end(LONGEST).map_or_else(|e| Some(e.to_string()), |end| end.wrong_answer());
    wrong.map(|what| format!("the target {what}"))
}
