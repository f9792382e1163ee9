//! A control group of a test's own, where one can be made.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// It is there until the end, when it must be empty.
pub struct Made(pub PathBuf);

impl Made {
    /// A fresh one below the mount point or below one of its directories.
    pub fn new() -> Option<Made> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("huepage-test-{}-{number}", std::process::id());
        let root = PathBuf::from("/sys/fs/cgroup");
        let below = std::fs::read_dir(&root).ok()?.flatten().map(|entry| entry.path());
        let mut all = std::iter::once(root.clone()).chain(below);
        all.find_map(|dir| {
            let path = dir.join(&name);
            let usable = dir.join("cgroup.procs").is_file() && std::fs::create_dir(&path).is_ok();
            usable.then(|| Made(path))
        })
    }

    /// Moves a process there.
    pub fn take(&self, pid: &str) {
        std::fs::write(self.0.join("cgroup.procs"), pid).unwrap();
    }

    /// What the kernel calls it, as a process in it has it.
    pub fn name_in(&self, pid: &str) -> String {
        let own = self.0.file_name().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let path = text.lines().find(|line| line.ends_with(own)).unwrap();
        path.splitn(3, ':').last().unwrap().to_owned()
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}
