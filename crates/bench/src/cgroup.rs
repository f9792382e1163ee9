//! Control groups of the benchmarks' own, of whichever version has the controller: a limit of memory, a
//! share of the processors, or a freezer. Each is gone when dropped, once its processes are.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where control groups are.
const MOUNT: &str = "/sys/fs/cgroup";
/// Of which a share of the processors is given, in microseconds: the kernel's default.
const PERIOD: u64 = 100_000;

/// What a group is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// A limit of memory.
    Memory,
    /// A limit of processor time.
    Cpu,
    /// Processes that can be frozen.
    Freezer,
}

impl Controller {
    /// Its hierarchy of version 1.
    fn hierarchy(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Cpu => "cpu",
            Controller::Freezer => "freezer",
        }
    }

    /// The files that it is commanded by, in version 1 and in version 2.
    fn files(self) -> [&'static str; 2] {
        match self {
            Controller::Memory => ["memory.limit_in_bytes", "memory.max"],
            Controller::Cpu => ["cpu.cfs_quota_us", "cpu.max"],
            Controller::Freezer => ["freezer.state", "cgroup.freeze"],
        }
    }
}

/// A control group of one's own.
#[derive(Debug)]
pub struct ControlGroup {
    dir: PathBuf,
    /// 1 or 2.
    version: usize,
    controller: Controller,
}

impl ControlGroup {
    /// Makes one, told from others of this process by `name`.
    ///
    /// # Errors
    /// When the machine has no such controller, or this is not root.
    pub fn make(controller: Controller, name: &str) -> io::Result<ControlGroup> {
        let name = format!("huepage-bench-{}-{name}", std::process::id());
        let root = Path::new(MOUNT);
        let places = [(controller.hierarchy(), 1), ("", 2), ("unified", 2)];
        for (below, version) in places {
            let above = root.join(below);
            if !above.join("cgroup.procs").is_file() {
                continue;
            }
            if version == 2 && controller != Controller::Freezer {
                // Refused where it is on already, or is another hierarchy's.
                let _ = fs::write(
                    above.join("cgroup.subtree_control"),
                    format!("+{}", controller.hierarchy()),
                );
            }
            let dir = above.join(&name);
            fs::create_dir(&dir)?;
            let group = ControlGroup { dir, version, controller };
            if group.file().is_file() {
                return Ok(group);
            }
        }
        Err(io::Error::other(format!("no {} controller; mount one", controller.hierarchy())))
    }

    fn file(&self) -> PathBuf {
        self.dir.join(self.controller.files()[self.version - 1])
    }

    /// Limits its memory.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn limit_memory(&self, mib: usize) -> io::Result<()> {
        fs::write(self.file(), (mib << 20).to_string())
    }

    /// Limits its time to so many hundredths of one processor.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn limit_time(&self, percent: u64) -> io::Result<()> {
        let quota = PERIOD / 100 * percent;
        let text = if self.version == 1 { quota.to_string() } else { format!("{quota} {PERIOD}") };
        fs::write(self.file(), text)
    }

    /// Freezes its processes, or lets them go on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn freeze(&self, frozen: bool) -> io::Result<()> {
        let words = [["THAWED", "FROZEN"], ["0", "1"]];
        fs::write(self.file(), words[self.version - 1][usize::from(frozen)])
    }

    /// Its processes that were killed for want of memory.
    ///
    /// # Errors
    /// When they are not counted.
    pub fn kills(&self) -> io::Result<u64> {
        let file = ["memory.oom_control", "memory.events"][self.version - 1];
        let text = fs::read_to_string(self.dir.join(file))?;
        let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse().ok();
        text.lines().find_map(count).ok_or_else(|| io::Error::other("kills are not counted here"))
    }

    /// Takes a process in.
    ///
    /// # Errors
    /// When the kernel refuses, or there is no such process.
    pub fn take(&self, pid: u32) -> io::Result<()> {
        fs::write(self.dir.join("cgroup.procs"), pid.to_string())
    }

    /// A command that runs in it from its first instruction.
    pub fn inside(&self, command: &Command) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        shell.arg(self.dir.join("cgroup.procs")).arg(command.get_program());
        shell.args(command.get_args());
        shell
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        if self.controller == Controller::Freezer {
            let _ = self.freeze(false);
        }
        // Its processes may take a moment to go.
        for _ in 0..100 {
            if fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_and_limits_of_both_versions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        fs::create_dir(&path).unwrap();
        // Kept from tidying up, which thaws and waits for the directory to be empty.
        let group = |version, controller| {
            std::mem::ManuallyDrop::new(ControlGroup { dir: path.clone(), version, controller })
        };
        fs::write(path.join("memory.events"), "low 0\noom_kill 3\n").unwrap();
        fs::write(path.join("memory.oom_control"), "under_oom 0\noom_kill 1\n").unwrap();
        assert_eq!(group(2, Controller::Memory).kills().unwrap(), 3);
        assert_eq!(group(1, Controller::Memory).kills().unwrap(), 1);
        group(2, Controller::Cpu).limit_time(20).unwrap();
        assert_eq!(fs::read_to_string(path.join("cpu.max")).unwrap(), "20000 100000");
        group(1, Controller::Freezer).freeze(true).unwrap();
        assert_eq!(fs::read_to_string(path.join("freezer.state")).unwrap(), "FROZEN");
        for file in fs::read_dir(&path).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}
