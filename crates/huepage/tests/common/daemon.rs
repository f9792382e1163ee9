//! `huepage daemon` of a test: with a registry, a state and a file of its own, in declared colours so that
//! nothing depends on timing; and programs for its groups.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::Target;

/// How long anything may take.
pub const PATIENCE: Duration = super::HANGS;

/// A registry, a state and a file of a test's own, and the daemon that runs by it.
pub struct World {
    dir: TempDir,
    daemon: Option<Child>,
    environment: Vec<(&'static str, String)>,
}

impl World {
    /// No daemon runs yet.
    pub fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        World { dir, daemon: None, environment: Vec::new() }
    }

    /// Has daemons begin with this in their environment.
    pub fn set(&mut self, variable: &'static str, value: String) {
        self.environment.push((variable, value));
    }

    /// The daemon that runs.
    pub fn daemon(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    /// Where a file of its is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the file: groups beside what all tests have.
    pub fn write(&self, groups: &str) {
        self.write_paced("interval = 0.2\nrest = 0.3", groups);
    }

    /// The same with a pace of a test's own.
    pub fn write_paced(&self, pace: &str, groups: &str) {
        let daemon = format!(
            "[daemon]\ncolors_from = \"declared\"\nlook = 0.1\n{pace}\nrecolor_per_second = 20\n\
             metric_user = \"root\"\nstate_file = \"{}\"\nmetrics_file = \"{}\"\n",
            self.path("state/daemon.json").display(),
            self.path("metrics/huepage.prom").display()
        );
        std::fs::write(self.path("huepage.toml"), daemon + groups).unwrap();
    }

    /// A command of huepage that finds this daemon.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(super::HUEPAGE);
        command.args(args).env("HUEPAGE_RUNTIME_DIR", self.path("run")).env("NO_COLOR", "1");
        command.env("HUEPAGE_STATE_DIR", self.path("groups")).stdin(Stdio::null());
        command
    }

    /// What came of such a command.
    pub fn huepage(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts the daemon, and returns when it answers.
    pub fn start(&mut self) {
        let file = self.path("huepage.toml").display().to_string();
        let mut command = self.command(&["daemon", "--config", &file]);
        command.envs(self.environment.iter().map(|(variable, value)| (variable, value)));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.path("log"));
        self.daemon = Some(command.stderr(log.unwrap()).process_group(0).spawn().unwrap());
        let start = Instant::now();
        while !self.huepage(&["ctl", "status"]).status.success() {
            assert!(start.elapsed() < PATIENCE, "no daemon: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the daemon.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Whether the daemon ends, with status 0.
    pub fn ends_well(&mut self) -> bool {
        self.daemon.take().unwrap().wait().unwrap().success()
    }

    /// What the daemons said so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The answer of a command that must succeed.
    pub fn json(&self, args: &[&str]) -> Value {
        let output = self.huepage(args);
        assert!(output.status.success(), "{args:?}: {output:?} {}", self.log());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The group of a process with its colours, once 99 % of its pages are there by `huepage inspect`.
    pub fn settled(&self, target: &Target) -> String {
        self.settled_of(&target.pid())
    }

    /// The same of any process.
    pub fn settled_of(&self, pid: &str) -> String {
        let start = Instant::now();
        loop {
            let output = self.huepage(&["inspect", pid, "--json"]);
            let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            if found["compliance"]["share"].as_f64() >= Some(0.99) {
                return found["partition"]["colors"].as_str().unwrap().to_owned();
            }
            assert!(start.elapsed() < PATIENCE, "{output:?} {found:#} {}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until something holds.
    pub fn until(&self, what: &str, holds: impl FnMut(&World) -> bool) {
        if !self.comes(holds) {
            let groups = self.huepage(&["ctl", "groups"]);
            panic!("{what}: {groups:?} {}", self.log());
        }
    }

    /// Whether something holds sooner or later.
    pub fn comes(&self, mut holds: impl FnMut(&World) -> bool) -> bool {
        let start = Instant::now();
        loop {
            if holds(self) {
                return true;
            }
            if start.elapsed() > PATIENCE {
                return false;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// A group, as `huepage ctl groups` has it.
    pub fn group(&self, name: &str) -> Value {
        let groups = self.json(&["ctl", "groups", "--json"]);
        let all = groups["groups"].as_array().unwrap();
        let found = all.iter().find(|group| group["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {groups}")).clone()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// A target under a name that nothing else on the machine has.
pub struct Named(Child, String);

impl Named {
    /// Computes under a name that begins like this.
    pub fn start(world: &World, name: &str) -> Named {
        let name = format!("{name}-{}", std::process::id());
        let program = world.path(&name);
        huepage_testing::copy_program(super::tools().join("huepage-torture"), &program);
        let mut command = Command::new(program);
        command.args(["answer", "--mib", "16", "--right", "42", "--seconds", "600"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        Named(child, name)
    }

    /// Its pid, for a command line.
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.1
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A group in the file.
pub fn group(name: &str, what: &str) -> String {
    format!("[[group]]\nname = \"{name}\"\n{what}\n")
}
