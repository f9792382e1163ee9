//! Named groups that outlive the supervisor that looks after them: what each was defined as and
//! whom it holds, one file per group, so that a later supervisor takes the same processes again.
//! What the definition means is the caller's business; nothing here touches a process.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kernel::procfs::{ProcError, ProcRoot};

/// Where groups are kept, unless [`DIR_VARIABLE`] says otherwise.
pub const DEFAULT_DIR: &str = "/var/lib/huepage/groups";
/// Environment variable that names another directory.
pub const DIR_VARIABLE: &str = "HUEPAGE_STATE_DIR";
/// Longest name of a group in bytes.
const LONGEST: usize = 64;

/// Why groups cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// A name that is no file name.
    #[error(
        "`{0}` is no name of a group; use up to 64 letters, digits, dots, dashes and underscores, a letter or digit first"
    )]
    Name(String),
    /// The directory or a file cannot be used.
    #[error("cannot use {}: {source}; set {DIR_VARIABLE} to a directory that can be written", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file makes no sense.
    #[error("{} is damaged ({why}); remove it and create the group again", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// `/proc` does not answer.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

pub use crate::kernel::procfs::KnownProcess;

/// A group as it was when its supervisor last wrote it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Its name.
    pub name: String,
    /// What it was defined as.
    pub definition: Value,
    /// The boot in which its members ran.
    pub boot: String,
    /// Its members.
    pub members: Vec<KnownProcess>,
}

/// What became of the members of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survivors {
    /// Those that still run.
    pub alive: Vec<i32>,
    /// Those that ended, or whose number is another process's now.
    pub gone: Vec<i32>,
}

/// The directory of groups.
#[derive(Clone, Debug)]
pub struct GroupStore {
    directory: PathBuf,
    proc: ProcRoot,
}

impl GroupStore {
    /// Opens the directory that the environment names, making it if it is absent.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open() -> Result<GroupStore, GroupsError> {
        let own = std::env::var_os(DIR_VARIABLE).filter(|dir| !dir.is_empty());
        GroupStore::open_at(
            own.map_or_else(|| DEFAULT_DIR.into(), PathBuf::from),
            ProcRoot::default(),
        )
    }

    /// Opens a given directory; `proc` tells who is alive.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open_at(directory: PathBuf, proc: ProcRoot) -> Result<GroupStore, GroupsError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|source| GroupsError::Io { path: directory.clone(), source })?;
        Ok(GroupStore { directory, proc })
    }

    /// All groups by name. A file that makes no sense is an error, not a group less.
    ///
    /// # Errors
    /// When the directory or a file cannot be read.
    pub fn all(&self) -> Result<Vec<Stored>, GroupsError> {
        let entries = fs::read_dir(&self.directory).map_err(|e| self.io(&self.directory, e))?;
        let names = entries.flatten().filter_map(|entry| {
            entry.file_name().to_str()?.strip_suffix(".json").map(str::to_owned)
        });
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        names.iter().filter_map(|name| self.get(name).transpose()).collect()
    }

    /// The group of this name, if there is one.
    ///
    /// # Errors
    /// When its file cannot be read or makes no sense, or the name is none.
    pub fn get(&self, name: &str) -> Result<Option<Stored>, GroupsError> {
        let path = self.path(name)?;
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(self.io(&path, e)),
        };
        let read = serde_json::from_slice(&text);
        read.map(Some).map_err(|e| GroupsError::Damaged { path, why: e.to_string() })
    }

    /// Writes a group with the members it has now; readers see the old file or the new one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put(&self, name: &str, definition: Value, pids: &[i32]) -> Result<(), GroupsError> {
        let members =
            pids.iter().filter_map(|&pid| KnownProcess::read(&self.proc, pid).ok()).collect();
        let stored = Stored { name: name.to_owned(), definition, boot: self.boot()?, members };
        let path = self.path(name)?;
        let fresh = path.with_extension("new");
        let text = serde_json::to_vec_pretty(&stored).map_err(io::Error::from);
        let written = text.and_then(|text| {
            let mut options = OpenOptions::new();
            let mut file =
                options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
            file.write_all(&text)?;
            // What is to survive a power cut has to be on the disk before it has its name.
            file.sync_all()?;
            fs::rename(&fresh, &path)
        });
        written.map_err(|e| self.io(&path, e))
    }

    /// Forgets a group; one that is not there is forgotten already.
    ///
    /// # Errors
    /// When its file cannot be removed.
    pub fn remove(&self, name: &str) -> Result<(), GroupsError> {
        let path = self.path(name)?;
        match fs::remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(self.io(&path, e)),
            _ => Ok(()),
        }
    }

    /// Which members still run: after another boot none does.
    ///
    /// # Errors
    /// When this boot has no name.
    pub fn survivors(&self, group: &Stored) -> Result<Survivors, GroupsError> {
        let same = self.boot()? == group.boot;
        let alive = |known: &&KnownProcess| same && known.is_alive(&self.proc);
        let (alive, gone): (Vec<_>, Vec<_>) = group.members.iter().partition(alive);
        let pids = |of: Vec<&KnownProcess>| of.into_iter().map(|known| known.pid).collect();
        Ok(Survivors { alive: pids(alive), gone: pids(gone) })
    }

    fn boot(&self) -> Result<String, GroupsError> {
        let path = self.proc.0.join("sys/kernel/random/boot_id");
        let text = fs::read_to_string(&path).map_err(|e| self.io(&path, e))?;
        Ok(text.trim().to_owned())
    }

    fn path(&self, name: &str) -> Result<PathBuf, GroupsError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
        let first = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !first || name.len() > LONGEST || !name.chars().all(fine) {
            return Err(GroupsError::Name(name.to_owned()));
        }
        Ok(self.directory.join(format!("{name}.json")))
    }

    fn io(&self, path: &Path, source: io::Error) -> GroupsError {
        GroupsError::Io { path: path.to_owned(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::{Fake, own_pid};
    use serde_json::json;

    fn store() -> (tempfile::TempDir, GroupStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = GroupStore::open_at(dir.path().join("groups"), ProcRoot::default()).unwrap();
        (dir, store)
    }

    #[test]
    fn a_group_is_found_again_and_forgotten() {
        let (_dir, store) = store();
        let definition = json!({ "colors": "0-3" });
        store.put("web.1", definition.clone(), &[own_pid(), i32::MAX]).unwrap();
        let found = store.get("web.1").unwrap().unwrap();
        assert_eq!((found.definition.clone(), found.members.len()), (definition, 1));
        assert_eq!(store.survivors(&found).unwrap().alive, [own_pid()]);
        store.put("api", json!({}), &[]).unwrap();
        let names: Vec<String> = store.all().unwrap().into_iter().map(|g| g.name).collect();
        assert_eq!(names, ["api", "web.1"]);
        store.remove("web.1").unwrap();
        store.remove("web.1").unwrap();
        assert_eq!(store.get("web.1").unwrap(), None);
    }

    #[test]
    fn another_process_of_the_same_number_and_another_boot_are_told() {
        let (_dir, store) = store();
        store.put("web", json!({}), &[own_pid()]).unwrap();
        let found = store.get("web").unwrap().unwrap();
        let mut other = found.clone();
        other.members[0].start_time += 1;
        assert_eq!(store.survivors(&other).unwrap().gone, [own_pid()]);
        let rebooted = Stored { boot: "another".into(), ..found };
        assert_eq!(store.survivors(&rebooted).unwrap().gone, [own_pid()]);
    }

    #[test]
    fn names_that_are_no_file_names_are_refused() {
        let (_dir, store) = store();
        for name in ["", "../etc", "a/b", ".x", "-x", "a b", &"a".repeat(65)] {
            let error = store.put(name, json!({}), &[]).unwrap_err();
            assert!(matches!(error, GroupsError::Name(_)), "{name}: {error}");
        }
    }

    #[test]
    fn a_damaged_file_is_told() {
        let (dir, store) = store();
        fs::write(dir.path().join("groups/web.json"), "{").unwrap();
        let error = store.all().unwrap_err().to_string();
        assert!(error.contains("web.json is damaged") && error.contains("create"), "{error}");
    }

    #[test]
    fn a_proc_without_a_boot_is_an_error() {
        let (fake, dir) = (Fake::new(), tempfile::tempdir().unwrap());
        let store = GroupStore::open_at(dir.path().into(), fake.root.clone()).unwrap();
        assert!(store.put("web", json!({}), &[]).is_err());
        fake.put("sys/kernel/random/boot_id", "one\n");
        store.put("web", json!({}), &[]).unwrap();
        assert_eq!(store.get("web").unwrap().unwrap().boot, "one");
    }
}
