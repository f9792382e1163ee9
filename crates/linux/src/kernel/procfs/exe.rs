//! Which program a process executes. Unlike its names, the file cannot be forged: it is told by its path
//! and by its inode. Anybody who may execute the file has a process of it, though.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{ProcError, ProcRoot};

/// A file that is executed: where it lies, and which it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Executable {
    /// Its path, without symbolic links.
    pub path: PathBuf,
    /// The file system that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
}

impl Executable {
    /// The file that lies there now, be it named by symbolic links.
    ///
    /// # Errors
    /// When there is none.
    pub fn at(path: &Path) -> std::io::Result<Executable> {
        let path = path.canonicalize()?;
        let found = fs::metadata(&path)?;
        Ok(Executable { path, device: found.dev(), inode: found.ino() })
    }
}

impl ProcRoot {
    /// The program of a process. One that was replaced on the disk since has another path: the kernel adds
    /// ` (deleted)` to it.
    ///
    /// # Errors
    /// When the process has ended, has no program, or cannot be read.
    pub fn executable(&self, pid: i32) -> Result<Executable, ProcError> {
        let link = self.pid_path(pid, "exe");
        let failed = |e| ProcError::of_pid(pid, &link, e);
        let path = fs::read_link(&link).map_err(failed)?;
        // Follows the link to the file itself, wherever its path leads to by now.
        let found = fs::metadata(&link).map_err(failed)?;
        Ok(Executable { path, device: found.dev(), inode: found.ino() })
    }
}

/// The file that a process executes, by device and inode; `None` once it has ended.
pub fn program_of(pid: i32) -> Option<(u64, u64)> {
    let file = std::fs::metadata(ProcRoot::default().pid_path(pid, "exe")).ok()?;
    Some((file.dev(), file.ino()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::super::fake::own_pid;
    use super::*;

    #[test]
    fn a_program_is_told_by_path_and_inode() {
        let own = ProcRoot::default().executable(own_pid()).unwrap();
        assert_eq!(Executable::at(&std::env::current_exe().unwrap()).unwrap(), own);
        assert!(ProcRoot::default().executable(i32::MAX).unwrap_err().is_gone());
    }

    #[test]
    fn a_program_that_was_replaced_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("program");
        let sleep = ["/usr/bin/sleep", "/bin/sleep"].into_iter().find(|p| Path::new(p).exists());
        huepage_testing::copy_program(sleep.unwrap(), &place);
        let mut child = Command::new(&place).arg("600").spawn().unwrap();
        let of = |pid: u32| ProcRoot::default().executable(pid.cast_signed()).unwrap();
        let before = Executable::at(&place).unwrap();
        // Between fork and exec it has the program of this test.
        while of(child.id()).inode != before.inode {
            std::thread::yield_now();
        }
        assert_eq!(of(child.id()), before);
        fs::copy(sleep.unwrap(), dir.path().join("new")).unwrap();
        fs::rename(dir.path().join("new"), &place).unwrap();
        assert_ne!(of(child.id()), Executable::at(&place).unwrap());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
