//! What the kernel counts for a process, read through files that stay open, in some microseconds: whether anything
//! can have changed in its memory (`huepage_policy::settled`).

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use huepage_policy::settled::Signs;

use super::procfs::{ProcError, ProcRoot};

/// The files of one process.
#[derive(Debug)]
pub struct SignReader {
    pid: i32,
    stat: File,
    statm: File,
    /// Its size is how many descriptors there are, since Linux 6.2.
    descriptors: File,
}

thread_local! {
    /// A line of `stat` has some 350 bytes, `vmstat` some 4,000.
    static TEXT: RefCell<[u8; 16 << 10]> = const { RefCell::new([0; 16 << 10]) };
}

impl SignReader {
    /// Opens them.
    ///
    /// # Errors
    /// When the process is gone, or no descriptor is left.
    pub fn open(root: &ProcRoot, pid: i32) -> Result<SignReader, ProcError> {
        let open = |name| {
            let path = root.pid_path(pid, name);
            File::open(&path).map_err(|error| ProcError::of_pid(pid, &path, error))
        };
        let (stat, statm, descriptors) = (open("stat")?, open("statm")?, open("fd")?);
        Ok(SignReader { pid, stat, statm, descriptors })
    }

    /// The process.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Nanoseconds that the process has run; `None` once it has ended. Less than a microsecond.
    pub fn ran(&self) -> Option<u64> {
        ProcRoot::default().run_time(self.pid)
    }

    /// All of them; `None` once the process has ended.
    pub fn read(&self) -> Option<Signs> {
        let ran = self.ran()?;
        let faults = with_text(&self.stat, |line| {
            // The name of the process may hold anything; what follows are fields 3 and up.
            let name = line.iter().rposition(|&byte| byte == b')')?;
            let mut fields = text(&line[name + 1..])?.split_ascii_whitespace().skip(10 - 3);
            let minor: u64 = fields.next()?.parse().ok()?;
            let major: u64 = fields.nth(1)?.parse().ok()?;
            Some(minor + major)
        })?;
        let mapped = with_text(&self.statm, |line| text(line)?.split(' ').next()?.parse().ok())?;
        let descriptors = self.descriptors.metadata().map_or(0, |of| of.size());
        Some(Signs { ran, faults, mapped, descriptors })
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn with_text<T>(file: &File, read: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    TEXT.with_borrow_mut(|line| {
        let n = file.read_at(line, 0).ok()?;
        read(line.get(..n)?)
    })
}

/// What the kernel counts for the whole machine.
#[derive(Debug)]
pub struct MachineSigns {
    vmstat: Option<File>,
    loadavg: Option<File>,
}

impl MachineSigns {
    /// Opens the files; what is not there tells nothing.
    pub fn open(root: &ProcRoot) -> MachineSigns {
        let open = |name: &str| File::open(root.0.join(name)).ok();
        MachineSigns { vmstat: open("vmstat"), loadavg: open("loadavg") }
    }

    /// Pages that were migrated to other frames, or read in again, since the machine was started. Some thirty
    /// microseconds.
    pub fn migrations(&self) -> Option<u64> {
        with_text(self.vmstat.as_ref()?, |all| {
            let all = text(all)?;
            let count = |name: &str| {
                all.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
            };
            Some(count("pgmigrate_success ")? + count("pswpin ").unwrap_or(0))
        })
    }

    /// The number of the newest process or thread.
    pub fn newest(&self) -> Option<u64> {
        with_text(self.loadavg.as_ref()?, |line| {
            text(line)?.split_ascii_whitespace().last()?.parse().ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::procfs::fake::{Fake, own_pid};
    use super::*;

    #[test]
    fn a_process_that_does_nothing_has_the_same_signs() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let reader = SignReader::open(&ProcRoot::default(), child.id().cast_signed()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let (before, after) = (reader.read().unwrap(), reader.read().unwrap());
        assert_eq!(before, after);
        assert!(before.faults > 10 && before.mapped > 100 && before.ran > 0);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(reader.read().is_none() && reader.ran().is_none());
    }

    #[test]
    fn new_memory_and_descriptors_show() {
        let reader = SignReader::open(&ProcRoot::default(), own_pid()).unwrap();
        let before = reader.read().unwrap();
        // More than other tests of this process give back meanwhile.
        let open = || File::open("/proc/self/stat").unwrap();
        let files: Vec<File> = (0..300).map(|_| open()).collect();
        let mut pages = Vec::<u8>::with_capacity(1 << 30);
        pages.resize(8 << 20, 1);
        let after = reader.read().unwrap();
        assert!(after.faults > before.faults && after.mapped > before.mapped);
        assert!(after.ran > before.ran && !before.same_memory(&after));
        // Before Linux 6.2 the number of descriptors is not told.
        assert!(before.descriptors == 0 || after.descriptors != before.descriptors);
        drop((files, pages));
    }

    #[test]
    fn names_do_not_confuse_and_counts_add_up() {
        let fake = Fake::new();
        let rest = "S 1 55 1 0 -1 4194304 100 7 20 9 0 0";
        fake.put("9/stat", format!("9 (a) R 1 (b) {rest}\n")).put("9/statm", "700 40 30\n");
        fake.put("9/fd/0", "").put("vmstat", "pgmigrate_success 5\npgmigrate_fail 9\npswpin 2\n");
        fake.put("loadavg", "0.00 0.01 0.05 1/200 4321\n");
        let reader = SignReader { pid: own_pid(), ..SignReader::open(&fake.root, 9).unwrap() };
        let signs = reader.read().unwrap();
        assert_eq!((signs.faults, signs.mapped), (120, 700));
        let machine = MachineSigns::open(&fake.root);
        assert_eq!([machine.migrations(), machine.migrations()], [Some(7), Some(7)]);
        assert_eq!(machine.newest(), Some(4321));
        assert_eq!(MachineSigns::open(&Fake::new().root).migrations(), None);
    }
}
