//! `huepage daemon`: what becomes of its programs and of its state when it is killed, what a day of
//! decisions leaves, what it does to the latency of a service, and how soon live groups settle.

pub mod day;
pub mod kill;
pub mod latency;
pub mod settle;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::tool;
use crate::launch::{Huepage, bounded};

/// Longest wait for anything.
const LONGEST: Duration = Duration::from_secs(60);

/// A daemon with a registry and a state of its own.
pub struct World<'a> {
    huepage: &'a Huepage,
    dir: tempfile::TempDir,
}

impl<'a> World<'a> {
    /// Without a daemon yet.
    ///
    /// # Errors
    /// When there is no place for it.
    pub fn new(huepage: &'a Huepage) -> io::Result<World<'a>> {
        Ok(World { huepage, dir: tempfile::tempdir()? })
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

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.huepage.command(args.iter().copied());
        command.env("HUEPAGE_RUNTIME_DIR", self.path("run")).stdin(Stdio::null());
        command
    }

    /// Starts the daemon; it may not be ready yet.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self) -> io::Result<Child> {
        let file = self.path("huepage.toml").display().to_string();
        let log = OpenOptions::new().create(true).append(true).open(self.path("log"))?;
        let mut command = self.command(&["daemon", "--config", &file]);
        command.stdout(Stdio::null()).stderr(log).process_group(0).spawn()
    }

    /// What it said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// What a command answers, if it does.
    pub fn json(&self, args: &[&str]) -> Option<Value> {
        let output = bounded(&mut self.command(args), LONGEST).ok()?;
        serde_json::from_slice(&output.stdout).ok()
    }

    /// The colours of a group in the state on the disk.
    pub fn kept(&self, name: &str) -> Option<Value> {
        let text = fs::read(self.path("state.json")).ok()?;
        let state: Value = serde_json::from_slice(&text).ok()?;
        let mut groups = state["groups"].as_array()?.iter();
        groups.find(|group| group["name"] == name).map(|group| group["colors"].clone())
    }

    /// The colours of a process, once 99 % of its pages are there; none when the daemon ended.
    pub fn settled(&self, daemon: &mut Child, pid: u32) -> Option<String> {
        let (pid, started) = (pid.to_string(), Instant::now());
        while started.elapsed() < LONGEST && matches!(daemon.try_wait(), Ok(None)) {
            let found = self.json(&["inspect", &pid, "--json"]).unwrap_or_default();
            if found["compliance"]["share"].as_f64() >= Some(0.99) {
                return found["partition"]["colors"].as_str().map(str::to_owned);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        None
    }
}

/// A program with a known answer, and where it prints it.
pub struct DaemonTarget {
    child: Child,
    out: PathBuf,
}

impl DaemonTarget {
    /// Computes for so many seconds.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(dir: &Path, name: &str, seconds: f64) -> io::Result<DaemonTarget> {
        let torture = tool("huepage-torture")?;
        let out = dir.join(name);
        let mut command = Command::new(torture);
        command.args(["answer", "--mib", "16", "--right", "42", "--seconds"]);
        command.arg(seconds.to_string()).stdin(Stdio::null()).stdout(File::create(&out)?);
        Ok(DaemonTarget { child: command.spawn()?, out })
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What is wrong with how it ended; waits for that.
    pub fn trouble(mut self) -> Option<String> {
        let started = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if started.elapsed() < LONGEST => {}
                _ => return Some("the target did not end".to_owned()),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let said = fs::read_to_string(&self.out).unwrap_or_default();
        let value: Value = serde_json::from_str(&said).unwrap_or_default();
        let right = value["answer"].is_string() && value["answer"] == value["expected"];
        let fine = status.code() == Some(42) && right;
        (!fine).then(|| format!("the target ended as {status} and said {said:?}"))
    }
}

impl Drop for DaemonTarget {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
