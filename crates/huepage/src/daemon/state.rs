//! What a daemon keeps on the disk, so that one that starts after a kill takes its groups up again: the
//! colours of each, and its members, told from later processes of the same number by when they began.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use huepage_color::ColorSet;
use huepage_linux::kernel::procfs::{KnownProcess, ProcRoot, ProcessHandle};
use serde::{Deserialize, Serialize};

use crate::json::parsed;

use super::config::DaemonConfig;

/// Where it is, unless the file says otherwise.
const DEFAULT: &str = "/var/lib/huepage/daemon.json";
/// What this version writes and reads.
const VERSION: u32 = 1;

/// Why there is no state to begin with, or none could be kept.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The file cannot be used.
    #[error("cannot use {}: {source}; name another `state_file`", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// It is of another version, or damaged.
    #[error("{} makes no sense ({why}); groups begin anew", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// The state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonState {
    /// Of the format.
    pub version: u32,
    /// The boot in which members ran.
    pub boot: String,
    /// Whether deciding was stopped.
    pub frozen: bool,
    /// The groups.
    pub groups: Vec<KeptGroup>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptGroup {
    /// Its name.
    pub name: String,
    /// Its colours.
    pub colors: ColorSet,
    /// Its members.
    pub members: Vec<KnownProcess>,
}

/// Where the state of a daemon with this file is.
pub fn path(config: &DaemonConfig) -> PathBuf {
    config.daemon.state_file.clone().unwrap_or_else(|| DEFAULT.into())
}

/// The name of this boot; empty where the kernel does not say.
pub fn boot(root: &ProcRoot) -> String {
    let text = fs::read_to_string(root.0.join("sys/kernel/random/boot_id")).unwrap_or_default();
    text.trim().to_owned()
}

impl DaemonState {
    /// Reads what was kept; nothing is kept where there is no file.
    ///
    /// # Errors
    /// When the file cannot be read or makes no sense.
    pub fn read(path: &Path) -> Result<DaemonState, StateError> {
        let text = match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(DaemonState::default()),
            Err(source) => return Err(StateError::Io { path: path.to_owned(), source }),
            Ok(text) => text,
        };
        let damaged = |why: String| StateError::Damaged { path: path.to_owned(), why };
        let state: DaemonState = parsed(&text).map_err(|e| damaged(e.to_string()))?;
        if state.version != VERSION {
            return Err(damaged(format!("version {}, not {VERSION}", state.version)));
        }
        Ok(state)
    }

    /// Writes it; who reads meanwhile sees the old one or the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&mut self, path: &Path) -> Result<(), StateError> {
        self.version = VERSION;
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from);
        replace(path, text, true).map_err(|source| StateError::Io { path: path.to_owned(), source })
    }

    /// The colours of a group in a cache of so many.
    pub fn colors(&self, name: &str, universe: u16) -> Option<ColorSet> {
        let kept = self.groups.iter().find(|kept| kept.name == name)?;
        (kept.colors.universe() == universe).then(|| kept.colors.clone())
    }

    /// Members of a group that still run, held.
    pub fn survivors(&self, name: &str, root: &ProcRoot) -> Vec<ProcessHandle> {
        let kept = self.groups.iter().filter(|kept| kept.name == name && self.boot == boot(root));
        kept.flat_map(|kept| kept.members.iter().filter_map(|of| of.hold(root))).collect()
    }
}

/// Writes a file so that readers see the old one or the new one. `lasting` ones are ours alone and survive a power
/// cut; others are for everybody to read, as a collector of metrics has a user of its own.
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, text: io::Result<Vec<u8>>, lasting: bool) -> io::Result<()> {
    let text = text?;
    if let Some(directory) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    let fresh = path.with_extension("new");
    // Where others may write to the directory, as to that of a collector of metrics, the name may be a
    // link of theirs: what is there goes, and the file must be a new one.
    match fs::remove_file(&fresh) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(if lasting { 0o600 } else { 0o644 })
        .open(&fresh)?;
    file.write_all(&text)?;
    if lasting {
        file.sync_all()?;
    }
    fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> DaemonState {
        let own = std::process::id().cast_signed();
        let start_time = ProcRoot::default().stat(own).unwrap().start_time;
        let members =
            vec![KnownProcess { pid: own, start_time }, KnownProcess { pid: own, start_time: 1 }];
        let colors = ColorSet::parse("0-3", 16).unwrap();
        let boot = boot(&ProcRoot::default());
        let groups = vec![KeptGroup { name: "web".to_owned(), colors, members }];
        DaemonState { version: VERSION, boot, frozen: true, groups }
    }

    #[test]
    fn what_is_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below/daemon.json");
        assert_eq!(DaemonState::read(&path).unwrap(), DaemonState::default());
        state().write(&path).unwrap();
        let found = DaemonState::read(&path).unwrap();
        assert_eq!(found, state());
        assert_eq!(found.colors("web", 16), ColorSet::parse("0-3", 16).ok());
        assert_eq!((found.colors("web", 32), found.colors("db", 16)), (None, None));
        assert_eq!(fs::read_dir(dir.path().join("below")).unwrap().count(), 1);
    }

    #[test]
    fn a_link_in_the_place_of_the_new_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("x.prom"), dir.path().join("passwd"));
        fs::write(&other, "root").unwrap();
        std::os::unix::fs::symlink(&other, dir.path().join("x.new")).unwrap();
        replace(&path, Ok(b"figures".to_vec()), false).unwrap();
        assert_eq!(fs::read(&other).unwrap(), b"root");
        assert_eq!(fs::read(&path).unwrap(), b"figures");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn members_are_those_of_this_boot_that_began_then() {
        let (root, own) = (ProcRoot::default(), std::process::id().cast_signed());
        let found = state().survivors("web", &root);
        assert_eq!(found.iter().map(ProcessHandle::pid).collect::<Vec<_>>(), [own]);
        assert!(state().survivors("db", &root).is_empty());
        let other = DaemonState { boot: "another".to_owned(), ..state() };
        assert!(other.survivors("web", &root).is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.json");
        for text in ["", "{}", "{\"version\":9,\"boot\":\"\",\"frozen\":false,\"groups\":[]}"] {
            fs::write(&path, text).unwrap();
            let error = DaemonState::read(&path).unwrap_err().to_string();
            assert!(error.contains("makes no sense"), "{error}");
        }
    }
}
