//! Thin readers of `/proc`: memory areas, page tables, status, threads, ELF headers.
//!
//! Every reader takes a [`ProcRoot`], so that tests can point it at a directory of canned
//! files. Nothing here writes, stops or signals a process, and nothing is cached: each
//! call reads the kernel's answer of that moment, which may be stale when it returns.

mod command;
mod elf;
mod exe;
mod frames;
mod handle;
mod maps;
mod pagemap;
mod patience;
mod status;

use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

pub use elf::{ElfClass, ElfInfo, elf_info};
pub use exe::{Executable, program_of};
pub use frames::{FrameCounts, FrameFlags, FrameFlagsReader};
pub use handle::{KnownProcess, ProcessHandle, pidfd};
pub use huepage_policy::AreaKind;
pub use maps::{
    Area, AreaProt, VmFlags, is_code, is_constant, obstacle, parse_maps, parse_smaps_flags,
};
pub use pagemap::{Categories, PageEntry, Pagemap, PagemapRegion, ScanQuery};
pub use status::{ProcessStatus, Stat, Statm};

/// Why a fact about a process could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ProcError {
    /// The process (or thread) does not exist, or ended while it was read.
    #[error("no process with pid {0}: look the pid up with `ps -e` and try again")]
    NoProcess(i32),
    /// The kernel refuses this reader.
    #[error("not allowed to read {}: run huepage as root, with the capabilities that the process has", .0.display())]
    Denied(PathBuf),
    /// This process has too many files open.
    #[error("cannot open {}: too many open files; allow huepage more with `ulimit -n`", .0.display())]
    TooManyFiles(PathBuf),
    /// Any other failure of a read.
    #[error("cannot read {}: {source}; check that /proc is mounted and complete", .path.display())]
    Io {
        /// What was read.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process has made the file longer than any program does.
    #[error("{} is longer than 128 MiB; leave that process out", .0.display())]
    TooLong(PathBuf),
    /// The file does not look as this reader expects.
    #[error("cannot make sense of {}: {what}; report it as a bug of huepage", .path.display())]
    Malformed {
        /// What was read.
        path: PathBuf,
        /// What was expected.
        what: String,
    },
    /// The kernel is older than the request.
    #[error("this kernel lacks {0}: use Linux 6.8 or newer")]
    Unsupported(&'static str),
}

impl ProcError {
    /// Whether the process is gone, which callers in a loop treat as "nothing to do".
    pub fn is_gone(&self) -> bool {
        matches!(self, ProcError::NoProcess(_))
    }

    /// Whether nothing is known, as the process keeps who reads waiting, or others do.
    pub fn is_late(&self) -> bool {
        matches!(self, ProcError::Io { source, .. } if source.kind() == ErrorKind::TimedOut)
    }

    fn io(path: &Path, source: io::Error) -> ProcError {
        match (source.kind(), source.raw_os_error()) {
            (ErrorKind::PermissionDenied, _) => ProcError::Denied(path.to_owned()),
            (_, Some(libc::EMFILE)) => ProcError::TooManyFiles(path.to_owned()),
            _ => ProcError::Io { path: path.to_owned(), source },
        }
    }

    /// Like [`ProcError::io`], for a file under `/proc/<pid>`: absence means no process.
    pub(in crate::kernel) fn of_pid(pid: i32, path: &Path, source: io::Error) -> ProcError {
        let gone =
            source.kind() == ErrorKind::NotFound || source.raw_os_error() == Some(libc::ESRCH);
        if gone { ProcError::NoProcess(pid) } else { ProcError::io(path, source) }
    }

    pub(crate) fn malformed(path: &Path, what: impl Into<String>) -> ProcError {
        ProcError::Malformed { path: path.to_owned(), what: what.into() }
    }
}

/// Most bytes that are read of a file: as many areas as the kernel allows a process by default have some 70 MiB of
/// `smaps`.
const MOST_BYTES: u64 = 128 << 20;
/// What most files of a process fit, so that one call reads them: their size is not told.
const USUAL_BYTES: usize = 2048;

/// Where `/proc` is mounted; the start of every reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcRoot(pub PathBuf);

impl Default for ProcRoot {
    fn default() -> Self {
        ProcRoot(PathBuf::from("/proc"))
    }
}

impl ProcRoot {
    /// `<root>/<pid>/<name>`.
    pub fn pid_path(&self, pid: i32, name: &str) -> PathBuf {
        self.0.join(pid.to_string()).join(name)
    }

    /// Whether the process or zombie exists at this moment.
    pub fn process_exists(&self, pid: i32) -> bool {
        pid > 0 && self.0.join(pid.to_string()).is_dir()
    }

    /// A whole file, of [`MOST_BYTES`] at most: a process with long names in many areas has gigabytes of `maps`.
    fn read_pid(&self, pid: i32, name: &str) -> Result<Vec<u8>, ProcError> {
        let path = self.pid_path(pid, name);
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        let file = fs::File::open(&path);
        let read = file.and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|e| ProcError::of_pid(pid, &path, e))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(ProcError::TooLong(path));
        }
        Ok(bytes)
    }

    fn read_pid_text(&self, pid: i32, name: &str) -> Result<String, ProcError> {
        let bytes = self.read_pid(pid, name)?;
        Ok(match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(e) => String::from_utf8_lossy(e.as_bytes()).into_owned(),
        })
    }
}

/// A name that a process or a user chose, fit for one line of a terminal, a log or a table: control
/// characters become three octal digits behind a backslash, as the kernel writes newlines in `maps`. So do those
/// that turn the direction of a line, or end it, in a terminal that knows them.
pub fn printable(name: &str) -> String {
    let mut shown = String::with_capacity(name.len());
    for character in name.chars() {
        let turns = matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if character.is_control() || turns || matches!(character, '\u{2028}' | '\u{2029}') {
            let mut bytes = [0; 4];
            let bytes = character.encode_utf8(&mut bytes).bytes();
            shown.extend(bytes.map(|byte| format!("\\{byte:03o}")));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// A root of canned files for the tests of this module's children.
#[cfg(test)]
pub(crate) mod fake {
    use super::ProcRoot;
    use std::fs;

    /// A temporary root; the directory lives as long as the value.
    pub struct Fake {
        pub root: ProcRoot,
        _dir: tempfile::TempDir,
    }

    impl Fake {
        pub fn new() -> Fake {
            let dir = tempfile::tempdir().expect("temporary directory");
            Fake { root: ProcRoot(dir.path().to_owned()), _dir: dir }
        }

        /// Writes `<root>/<path>`, making its directories.
        pub fn put(&self, path: &str, content: impl AsRef<[u8]>) -> &Fake {
            let full = self.root.0.join(path);
            fs::create_dir_all(full.parent().expect("a parent")).expect("directories");
            fs::write(full, content).expect("canned file");
            self
        }
    }

    /// This process, for live tests.
    pub fn own_pid() -> i32 {
        i32::try_from(std::process::id()).expect("pids fit i32")
    }
}

#[cfg(test)]
mod tests {
    use super::fake::{Fake, own_pid};
    use super::*;

    #[test]
    fn existence_is_a_directory() {
        let fake = Fake::new();
        fake.put("12/comm", "x\n");
        assert!(fake.root.process_exists(12));
        assert!(!fake.root.process_exists(13));
        assert!(!fake.root.process_exists(-1));
        assert!(ProcRoot::default().process_exists(own_pid()));
    }

    #[test]
    fn names_cannot_act_on_a_terminal() {
        assert_eq!(printable("a b\u{1b}[2Jé\n\u{9b}1m"), "a b\\033[2Jé\\012\\302\\2331m");
        let fake = Fake::new();
        fake.put("3/comm", "a\u{1b}]0;x\u{7}\n").put("3/cmdline", "/b\u{1b}[31m\nroot\0-x\0");
        fake.put("3/cgroup", "0::/a\rb\n").put("3/status", "Name:\ta\u{1b}[2J\nTgid:\t3\n");
        fake.put("3/maps", "1000-2000 rw-p 00000000 08:01 7 /x\u{1b}[2J\\012y\n");
        let maps = fake.root.maps(3).expect("one area").remove(0).name;
        let all = [
            fake.root.comm(3).expect("canned"),
            fake.root.argv0(3).expect("canned"),
            fake.root.cgroups(3).expect("canned").remove(0),
            fake.root.status(3).expect("canned").name,
            maps,
        ];
        let expected = [
            "a\\033]0;x\\007",
            "/b\\033[31m\\012root",
            "/a\\015b",
            "a\\033[2J",
            "/x\\033[2J\\012y",
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn absent_process_is_named_so() {
        let error = Fake::new().root.read_pid(7, "maps").expect_err("nothing there");
        assert!(error.is_gone());
        assert!(error.to_string().contains("no process with pid 7"));
    }
}
