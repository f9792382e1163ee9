//! Where huepage keeps what lives until the next boot: a directory that this user alone can look into. Root's
//! is `/run/huepage`, that of others below `$XDG_RUNTIME_DIR`. A directory that somebody else made first,
//! that others can write to, or that is a symbolic link is refused: what lies there would be theirs to choose.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Root's directory.
pub const DEFAULT_DIR: &str = "/run/huepage";
/// Root's directory where `/run` is no memory, as in some containers, for what has to lie in memory.
const IN_MEMORY: &str = "/dev/shm/huepage";
/// The directory of users but root, below which theirs lies.
const USER_VARIABLE: &str = "XDG_RUNTIME_DIR";
/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;

/// How often a lock is tried.
const LOCK_STEP: Duration = Duration::from_millis(5);

/// Why there is no such directory.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// Not root, and nowhere to go.
    #[error("only root can use {DEFAULT_DIR}; run huepage as root, or set {USER_VARIABLE}")]
    NotRoot,
    /// The directory is of another user, open to others, or no directory.
    #[error("{} must be a directory of this user with mode 0700; remove it, or name another", .0.display())]
    Unsafe(PathBuf),
    /// It cannot be made or opened.
    #[error("cannot use {}: {source}; name a directory that can be written", .path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The directory that the environment names in `variable`, or else this user's. It is not made, nor looked at.
///
/// # Errors
/// `NotRoot` where none is named and this user has none.
pub fn directory(variable: &str) -> Result<PathBuf, RuntimeError> {
    if let Some(own) = named(variable) {
        return Ok(own);
    }
    if rustix::process::geteuid().is_root() {
        return Ok(DEFAULT_DIR.into());
    }
    let user = named(USER_VARIABLE).filter(|dir| dir.is_absolute());
    user.map(|dir| dir.join("huepage")).ok_or(RuntimeError::NotRoot)
}

/// As [`directory`], for what has to lie in memory: a directory of its own.
///
/// # Errors
/// As [`directory`].
pub fn memory_directory(variable: &str) -> Result<PathBuf, RuntimeError> {
    let usual = directory(variable)?;
    let elsewhere =
        named(variable).is_none() && usual == Path::new(DEFAULT_DIR) && !in_memory("/run");
    if elsewhere {
        return Ok(IN_MEMORY.into());
    }
    Ok(if named(variable).is_some() { usual } else { usual.join("memory") })
}

fn named(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).filter(|dir| !dir.is_empty()).map(PathBuf::from)
}

/// Whether a directory is on a file system that keeps its files in memory.
fn in_memory(path: &str) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    const RAMFS: i64 = 0x8584_58f6;
    rustix::fs::statfs(path).is_ok_and(|found| [TMPFS, RAMFS].contains(&found.f_type))
}

/// Makes the directory with mode 0700 if there is none, and sees that it is this user's alone. Directories
/// above it are made as well, but not looked at: name none that others can rename.
///
/// # Errors
/// When it is not, or cannot be made.
pub fn private(path: &Path) -> Result<(), RuntimeError> {
    let failed = |source| RuntimeError::Io { path: path.to_owned(), source };
    let refused = || RuntimeError::Unsafe(path.to_owned());
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| match e.kind() {
        // A file or a link to nowhere is in the way.
        io::ErrorKind::AlreadyExists => refused(),
        _ => failed(e),
    })?;
    let found = open(path).map_err(|e| match e.raw_os_error() {
        Some(libc::ELOOP | libc::ENOTDIR) => refused(),
        _ => failed(e),
    })?;
    let found = found.metadata().map_err(failed)?;
    let own = found.uid() == rustix::process::geteuid().as_raw();
    if own && found.mode() & OTHERS == 0 { Ok(()) } else { Err(refused()) }
}

/// A file in such a directory, for reading and writing by this user alone; made if there is none.
pub(crate) fn private_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC).open(path)
}

/// Waits for the lock of a file, which is held until the file is dropped; false when somebody else has it for so
/// long.
pub(crate) fn lock_within(file: &File, limit: Duration) -> io::Result<bool> {
    let until = Instant::now() + limit;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(e)) => return Err(e),
            Err(TryLockError::WouldBlock) if Instant::now() > until => return Ok(false),
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_STEP),
        }
    }
}

/// The directory itself: a symbolic link is none.
fn open(path: &Path) -> io::Result<File> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
    }
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    use super::*;

    fn refuses(path: &Path) -> bool {
        matches!(private(path), Err(RuntimeError::Unsafe(refused)) if refused == path)
    }

    #[test]
    fn a_fresh_one_is_of_this_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/huepage");
        private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        private(&path).unwrap();
    }

    #[test]
    fn what_others_made_or_can_use_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        private(&at("own")).unwrap();
        symlink(at("own"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        fs::write(at("file"), "").unwrap();
        for mode in [0o701, 0o710, 0o755, 0o777] {
            let path = at(&format!("mode-{mode:o}"));
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(refuses(&path), "{mode:o}");
        }
        for name in ["link", "dangling", "file"] {
            assert!(refuses(&at(name)), "{name}");
        }
        if rustix::process::geteuid().is_root() {
            private(&at("others")).unwrap();
            chown(at("others"), Some(65534), None).unwrap();
            assert!(refuses(&at("others")));
        } else {
            let why = "not root, so no directory of others";
            huepage_testing::skip("what_others_made_or_can_use_is_refused", why);
        }
    }

    #[test]
    fn file_systems_in_memory_are_told() {
        assert!(!in_memory("/proc") && !in_memory("/no/such/place"));
    }
}
