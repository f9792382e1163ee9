//! How a process is named, and which control groups it is in. Unlike what an executable says of itself, a
//! process may have changed its names; nothing here decides what they are good for.

use super::{ProcError, ProcRoot, patience, printable};

/// Bytes of a command line that are read: a process may lay it over all of its memory
/// (PR_SET_MM_MAP), and every process of the system is asked. The longest path of a program fits.
const COMMAND_BYTES: u64 = 4096;

impl ProcRoot {
    /// The name that the kernel knows a process by: at most 15 bytes.
    ///
    /// # Errors
    /// When the process has ended or cannot be read.
    pub fn comm(&self, pid: i32) -> Result<String, ProcError> {
        Ok(printable(self.read_pid_text(pid, "comm")?.trim_end_matches('\n')))
    }

    /// The first word of the command line, at most its first 4096 bytes; empty for threads of the
    /// kernel and for the dead.
    ///
    /// # Errors
    /// When the process has ended, cannot be read, or keeps who reads waiting: the words lie in its memory.
    pub fn argv0(&self, pid: i32) -> Result<String, ProcError> {
        let path = self.pid_path(pid, "cmdline");
        let words = patience::read_start(&path, COMMAND_BYTES);
        let words = words.map_err(|e| ProcError::of_pid(pid, &path, e))?;
        let first = words.split(|&byte| byte == 0).next().unwrap_or_default();
        Ok(printable(&String::from_utf8_lossy(first)))
    }

    /// The control groups of a process as paths from the root of their hierarchy: the one of version 2,
    /// and those of version 1 also with the hierarchy before them (`/memory/web`).
    ///
    /// # Errors
    /// When the process has ended or cannot be read.
    pub fn cgroups(&self, pid: i32) -> Result<Vec<String>, ProcError> {
        let text = self.read_pid_text(pid, "cgroup")?;
        let mut all = Vec::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let names = controllers.split(',').filter(|name| !name.is_empty());
            all.extend(names.map(|name| format!("/{}{path}", name.trim_start_matches("name="))));
            all.push(path.to_owned());
        }
        Ok(all.iter().map(|path| printable(path)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, own_pid};
    use super::*;

    #[test]
    fn names_are_read() {
        let fake = Fake::new();
        fake.put("7/comm", "postgres\n").put("7/cmdline", "/usr/lib/postgres\0-D\0/data\0");
        fake.put("8/comm", "kworker/0:1\n").put("8/cmdline", "");
        assert_eq!(fake.root.comm(7).unwrap(), "postgres");
        assert_eq!(fake.root.argv0(7).unwrap(), "/usr/lib/postgres");
        assert_eq!(fake.root.argv0(8).unwrap(), "");
        assert!(fake.root.comm(9).unwrap_err().is_gone());
        assert!(!ProcRoot::default().argv0(own_pid()).unwrap().is_empty());
    }

    #[test]
    fn a_command_line_without_end_is_not_read_to_its_end() {
        let fake = Fake::new();
        fake.put("7/cmdline", "x".repeat(1 << 20));
        assert_eq!(fake.root.argv0(7).unwrap().len(), 4096);
        // All of memory, and more: reading it to its end would never return.
        std::fs::create_dir_all(fake.root.pid_path(8, "")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", fake.root.pid_path(8, "cmdline")).unwrap();
        assert_eq!(fake.root.argv0(8).unwrap(), "");
    }

    #[test]
    fn control_groups_of_both_versions_are_read() {
        let fake = Fake::new();
        fake.put("7/cgroup", "0::/system.slice/db.service\n");
        fake.put("8/cgroup", "4:cpu,memory:/web\n1:name=systemd:/x\n0::/\n");
        assert_eq!(fake.root.cgroups(7).unwrap(), ["/system.slice/db.service"]);
        let old = fake.root.cgroups(8).unwrap();
        assert_eq!(old, ["/cpu/web", "/memory/web", "/web", "/systemd/x", "/x", "/"]);
    }
}
