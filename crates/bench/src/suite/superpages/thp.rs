//! The switch of the kernel's own large pages: set for each run, and put back when the guard is
//! dropped. SIGINT and SIGTERM end a suite in good order ([`crate::sys::stop_asked`]), so they
//! put it back too; nothing does after SIGKILL. Two guards at once would put back each other's
//! settings, so the switch is locked.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The switch.
pub const ENABLED: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The switch, as it was before.
#[derive(Debug)]
pub struct Thp {
    file: PathBuf,
    before: String,
    /// Locked.
    _lock: File,
}

impl Thp {
    /// Remembers what is set.
    ///
    /// # Errors
    /// When it cannot be read, or cannot be set to what it is, or another guard has it.
    pub fn hold(file: &Path) -> io::Result<Thp> {
        let lock = File::open(file)?;
        lock.try_lock().map_err(|why| match why {
            TryLockError::Error(error) => error,
            TryLockError::WouldBlock => io::Error::other("another benchmark does it; wait"),
        })?;
        let text = fs::read_to_string(file)?;
        let before = chosen(&text).ok_or_else(|| io::Error::other("nothing is chosen"))?;
        let thp = Thp { file: file.to_owned(), before: before.to_owned(), _lock: lock };
        thp.set(&thp.before)?;
        Ok(thp)
    }

    /// Sets it: `always`, `madvise` or `never`.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn set(&self, mode: &str) -> io::Result<()> {
        fs::write(&self.file, mode)
    }
}

impl Drop for Thp {
    fn drop(&mut self) {
        if let Err(error) = self.set(&self.before) {
            let file = self.file.display();
            eprintln!("huepage-bench: {error}; write {} into {file}", self.before);
        }
    }
}

/// The word in brackets; of a text without brackets, all of it.
fn chosen(text: &str) -> Option<&str> {
    let word = match text.split_once('[') {
        Some((_, rest)) => rest.split_once(']')?.0,
        None => text.trim(),
    };
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guard_restores() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("enabled");
        fs::write(&file, "always [madvise] never\n").unwrap();
        let thp = Thp::hold(&file).unwrap();
        thp.set("never").unwrap();
        assert!(Thp::hold(&file).unwrap_err().to_string().contains("another benchmark"));
        assert_eq!(fs::read_to_string(&file).unwrap(), "never");
        drop(thp);
        assert_eq!(fs::read_to_string(&file).unwrap(), "madvise");
    }

    #[test]
    fn what_cannot_be_put_back_is_not_held() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Thp::hold(&dir.path().join("none")).is_err());
        fs::write(dir.path().join("empty"), "").unwrap();
        assert!(Thp::hold(&dir.path().join("empty")).is_err());
        assert_eq!(chosen("[always] madvise never"), Some("always"));
    }
}
