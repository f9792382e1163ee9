//! Which supervisors run on this machine, which colours they hold and whom they confine.
//!
//! A directory (by default `/run/huepage`, of root alone; see `runtime`) holds two files per supervisor:
//! `<pid>.json` says what it holds, `<pid>.sock` is where it listens (see `control`). One that
//! has several partitions has a file `<pid>@<group>.json` for each. A supervisor that was killed
//! leaves its files; whoever lists the directory next removes them. Nothing here talks to one.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use huepage_color::{CacheLevel, Color, ColorSet, Provenance};
use serde::{Deserialize, Serialize};

use crate::kernel::procfs::{KnownProcess, ProcError, ProcRoot};
use crate::kernel::runtime_dir::{self, RuntimeError};

/// Environment variable that names another directory.
pub const DIR_VARIABLE: &str = "HUEPAGE_RUNTIME_DIR";

/// How long another huepage may hold the lock: it measures colours meanwhile.
const LOCK_LIMIT: Duration = Duration::from_secs(120);

/// Why the registry cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The directory is of another user, open to others, or no directory.
    #[error("{} must be a directory of this user with mode 0700: remove it, or set {DIR_VARIABLE} to another", .0.display())]
    Unsafe(PathBuf),
    /// The directory belongs to root and the caller is not root.
    #[error("not allowed to use {}: run huepage as root", .0.display())]
    Denied(PathBuf),
    /// The directory or a file in it cannot be used.
    #[error("cannot use {}: {source}; set {DIR_VARIABLE} to a directory that can be written", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another process holds the lock for too long.
    #[error("another huepage holds {} for long; is it stopped? see `fuser` and try again", .0.display())]
    Busy(PathBuf),
    /// There is no directory that only this user can use.
    #[error(transparent)]
    Runtime(RuntimeError),
    /// `/proc` does not answer.
    #[error(transparent)]
    Proc(#[from] ProcError),
}

impl RegistryError {
    fn io(path: &Path, source: io::Error) -> RegistryError {
        match source.kind() {
            ErrorKind::PermissionDenied => RegistryError::Denied(path.to_owned()),
            _ => RegistryError::Io { path: path.to_owned(), source },
        }
    }
}

/// What a supervisor holds, as written to its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegistryEntry {
    /// Pid of the supervisor.
    pub pid: i32,
    /// Start of the supervisor in clock ticks since boot; with the pid it is unique.
    pub start_time: u64,
    /// The cache level that is partitioned.
    pub level: CacheLevel,
    /// How the colours are known.
    pub provenance: Provenance,
    /// The partition.
    pub colors: ColorSet,
    /// Pids of the confined processes.
    pub members: Vec<i32>,
    /// The name of the group, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// The directory of the registry, checked to be private to this user.
#[derive(Clone, Debug)]
pub struct Registry {
    dir: PathBuf,
    proc: ProcRoot,
}

/// Excludes other processes between reading the claims and registering one's own.
#[derive(Debug)]
pub struct RegistryLock {
    _file: File,
}

impl Registry {
    /// Opens the directory that the environment names, or this user's, making it if it is absent.
    pub fn open() -> Result<Registry, RegistryError> {
        let dir = runtime_dir::directory(DIR_VARIABLE).map_err(RegistryError::Runtime)?;
        Registry::open_at(dir, ProcRoot::default())
    }

    /// Opens a given directory, making it if it is absent; `proc` tells who is alive.
    pub fn open_at(dir: PathBuf, proc: ProcRoot) -> Result<Registry, RegistryError> {
        match runtime_dir::private(&dir) {
            Ok(()) => Ok(Registry { dir, proc }),
            Err(RuntimeError::Unsafe(dir)) if !rustix::process::geteuid().is_root() => {
                let roots = fs::symlink_metadata(&dir).is_ok_and(|m| m.is_dir() && m.uid() == 0);
                Err(if roots { RegistryError::Denied(dir) } else { RegistryError::Unsafe(dir) })
            }
            Err(RuntimeError::Unsafe(dir)) => Err(RegistryError::Unsafe(dir)),
            Err(RuntimeError::Io { path, source }) => Err(RegistryError::io(&path, source)),
            Err(error) => Err(RegistryError::Runtime(error)),
        }
    }

    /// Takes the place of the machine's daemon, for as long as the value lives: nobody else gets it, be
    /// the holder stopped or hung. `None` when somebody has it.
    ///
    /// # Errors
    /// When the file of the lock cannot be used.
    pub fn take_daemon_place(&self) -> Result<Option<RegistryLock>, RegistryError> {
        let path = self.dir.join("daemon.lock");
        let file = runtime_dir::private_file(&path).map_err(|e| RegistryError::io(&path, e))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(RegistryLock { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(RegistryError::io(&path, e)),
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.dir
    }

    /// Where the supervisor of this pid listens.
    pub fn socket_path(&self, supervisor: i32) -> PathBuf {
        self.dir.join(format!("{supervisor}.sock"))
    }

    fn entry_path(&self, supervisor: i32) -> PathBuf {
        self.dir.join(format!("{supervisor}.json"))
    }

    /// Waits for the lock. Hold it over [`Registry::claimed`] and [`Registry::register`], so
    /// that two runs started at once do not pick the same colours.
    pub fn lock(&self) -> Result<RegistryLock, RegistryError> {
        self.lock_within(LOCK_LIMIT)
    }

    /// The same within a time of the caller's: a holder may be stopped.
    ///
    /// # Errors
    /// `Busy` when another holds it for longer.
    pub fn lock_within(&self, limit: Duration) -> Result<RegistryLock, RegistryError> {
        let path = self.dir.join("lock");
        let file = runtime_dir::private_file(&path).map_err(|e| RegistryError::io(&path, e))?;
        match runtime_dir::lock_within(&file, limit) {
            Ok(true) => Ok(RegistryLock { _file: file }),
            Ok(false) => Err(RegistryError::Busy(path)),
            Err(e) => Err(RegistryError::io(&path, e)),
        }
    }

    /// Announces this process as a supervisor, until the returned value is dropped.
    ///
    /// Call it in the process that stays (after going to the background).
    pub fn register(
        &self,
        level: CacheLevel,
        provenance: Provenance,
        colors: ColorSet,
        members: Vec<i32>,
    ) -> Result<Registration, RegistryError> {
        self.announce((level, provenance, colors), members, None)
    }

    /// As [`Registry::register`], for one of several partitions of this process, which all are asked at
    /// its one socket. The name is one of a file: letters, digits, dots, dashes, underscores.
    pub fn register_part(
        &self,
        level: CacheLevel,
        provenance: Provenance,
        colors: ColorSet,
        group: &str,
    ) -> Result<Registration, RegistryError> {
        self.announce((level, provenance, colors), Vec::new(), Some(group.to_owned()))
    }

    fn announce(
        &self,
        (level, provenance, colors): (CacheLevel, Provenance, ColorSet),
        members: Vec<i32>,
        group: Option<String>,
    ) -> Result<Registration, RegistryError> {
        let pid = std::process::id().cast_signed();
        let start_time = self.proc.stat(pid)?.start_time;
        let part = |group: &String| self.dir.join(format!("{pid}@{group}.json"));
        let path = group.as_ref().map_or_else(|| self.entry_path(pid), part);
        let entry = RegistryEntry { pid, start_time, level, provenance, colors, members, group };
        let mut registration = Registration { registry: self.clone(), entry, path };
        registration.write()?;
        Ok(registration)
    }

    /// The entries of live supervisors by ascending pid; files of dead ones are removed.
    pub fn list(&self) -> Result<Vec<RegistryEntry>, RegistryError> {
        let mut found = Vec::new();
        for (pid, path) in self.listed()? {
            match self.read(pid, &path) {
                Some(entry) if self.is_alive(&entry) => found.push(entry),
                None if self.proc.process_exists(pid) => {}
                _ => self.remove(pid, &path),
            }
        }
        found.sort_by(|a, b| (a.pid, &a.group).cmp(&(b.pid, &b.group)));
        Ok(found)
    }

    /// The live supervisor that confines a process.
    pub fn find_member(&self, pid: i32) -> Result<Option<RegistryEntry>, RegistryError> {
        Ok(self.list()?.into_iter().find(|entry| entry.members.contains(&pid)))
    }

    /// The live supervisor of a group.
    pub fn find_group(&self, name: &str) -> Result<Option<RegistryEntry>, RegistryError> {
        Ok(self.list()?.into_iter().find(|entry| entry.group.as_deref() == Some(name)))
    }

    /// The partitions that live groups hold on a level whose colours are known the same way.
    ///
    /// Colours of different provenance have nothing in common: color 3 by frame number and
    /// color 3 of a probe are different frames.
    pub fn claimed(
        &self,
        level: CacheLevel,
        provenance: Provenance,
    ) -> Result<Vec<ColorSet>, RegistryError> {
        let same = |e: &RegistryEntry| e.level == level && e.provenance == provenance;
        Ok(self.list()?.into_iter().filter(same).map(|entry| entry.colors).collect())
    }

    /// The files of entries, with the pids of their supervisors.
    fn listed(&self) -> Result<Vec<(i32, PathBuf)>, RegistryError> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(|e| RegistryError::io(&self.dir, e))? {
            let entry = entry.map_err(|e| RegistryError::io(&self.dir, e))?;
            let name = entry.file_name();
            let stem = name.to_str().and_then(|n| n.strip_suffix(".json"));
            let pid = stem.and_then(|stem| stem.split('@').next()?.parse::<i32>().ok());
            files.extend(pid.map(|pid| (pid, entry.path())));
        }
        Ok(files)
    }

    /// `None` also for a file that another version wrote.
    fn read(&self, pid: i32, path: &Path) -> Option<RegistryEntry> {
        let text = fs::read(path).ok()?;
        serde_json::from_slice(&text).ok().filter(|entry: &RegistryEntry| entry.pid == pid)
    }

    fn is_alive(&self, entry: &RegistryEntry) -> bool {
        KnownProcess { pid: entry.pid, start_time: entry.start_time }.is_alive(&self.proc)
    }

    /// Removes the files of a supervisor; what is already gone is no error.
    fn remove(&self, pid: i32, entry: &Path) {
        for path in [entry, &self.socket_path(pid)] {
            let _ = fs::remove_file(path);
        }
    }
}

/// This process's entry; dropping it removes its files.
#[derive(Debug)]
pub struct Registration {
    registry: Registry,
    entry: RegistryEntry,
    path: PathBuf,
}

impl Registration {
    /// What is announced.
    pub fn entry(&self) -> &RegistryEntry {
        &self.entry
    }

    /// Where to listen.
    pub fn socket_path(&self) -> PathBuf {
        self.registry.socket_path(self.entry.pid)
    }

    /// Announces what was changed of the entry; nothing is written if that was nothing.
    pub fn update(&mut self, change: impl FnOnce(&mut RegistryEntry)) -> Result<(), RegistryError> {
        let before = self.entry.clone();
        change(&mut self.entry);
        if self.entry == before { Ok(()) } else { self.write() }
    }

    /// Replaces the file at once, so that readers never see half of it.
    fn write(&mut self) -> Result<(), RegistryError> {
        let path = &self.path;
        let fresh = path.with_extension("new");
        let text = serde_json::to_vec(&self.entry).map_err(io::Error::from);
        let written = text.and_then(|text| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            options.open(&fresh)?.write_all(&text)?;
            fs::rename(&fresh, path)
        });
        written.map_err(|e| RegistryError::io(path, e))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // A forked child drops its copy as well; the entry is the parent's.
        if std::process::id().cast_signed() != self.entry.pid {
            return;
        }
        if self.path == self.registry.entry_path(self.entry.pid) {
            self.registry.remove(self.entry.pid, &self.path);
        } else {
            // Other partitions may still be asked at the socket, which its server removes.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Picks `n` colours (clamped to 1..=universe) that the fewest other groups hold.
///
/// Least use comes first; among equally good choices a contiguous run with the lowest start
/// wins, else the lowest colours. Claims on a level with another number of colours are ignored.
///
/// # Panics
/// If `universe` is no valid number of colours (see [`ColorSet::empty`]).
pub fn choose_share(n: u16, universe: u16, claims: &[ColorSet]) -> ColorSet {
    let n = usize::from(n.clamp(1, universe));
    let holds =
        |color: u16, set: &&ColorSet| set.universe() == universe && set.contains(Color(color));
    let uses = |color| claims.iter().filter(|set| holds(color, set)).count();
    let use_of: Vec<usize> = (0..universe).map(uses).collect();
    let mut order: Vec<usize> = (0..use_of.len()).collect();
    order.sort_by_key(|&color| (use_of[color], color));
    order.truncate(n);
    let least: usize = order.iter().map(|&color| use_of[color]).sum();
    let run = use_of.windows(n).position(|window| window.iter().sum::<usize>() == least);
    let chosen: Vec<usize> = run.map_or(order, |start| (start..start + n).collect());
    let mut set = ColorSet::empty(universe);
    for color in (0..universe).filter(|&c| chosen.contains(&usize::from(c))) {
        set.insert(Color(color));
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    fn colors(text: &str) -> ColorSet {
        ColorSet::parse(text, 16).expect("valid colours")
    }

    fn registry() -> (tempfile::TempDir, Registry) {
        let dir = tempfile::tempdir().expect("temporary directory");
        let registry = Registry::open_at(dir.path().join("huepage"), ProcRoot::default());
        (dir, registry.expect("a fresh directory"))
    }

    fn register(registry: &Registry, set: &str) -> Registration {
        let members = vec![70_001, 70_002];
        let made = registry.register(CacheLevel::L2, Provenance::Probed, colors(set), members);
        made.expect("registered")
    }

    fn plant(registry: &Registry, entry: &RegistryEntry) {
        let text = serde_json::to_vec(entry).expect("serialised");
        fs::write(registry.entry_path(entry.pid), text).expect("written");
        fs::write(registry.socket_path(entry.pid), "").expect("written");
    }

    #[test]
    fn an_entry_lives_as_long_as_its_registration() {
        let (_dir, registry) = registry();
        let registration = register(&registry, "0-3");
        fs::write(registration.socket_path(), "").expect("a stand-in for the socket");
        assert_eq!(registry.list().expect("listed"), [registration.entry().clone()]);
        let (socket, entry) =
            (registration.socket_path(), registry.entry_path(registration.entry.pid));
        drop(registration);
        assert!(!socket.exists() && !entry.exists());
        assert!(registry.list().expect("listed").is_empty());
    }

    #[test]
    fn members_are_found_and_updated() {
        let (_dir, registry) = registry();
        let mut registration = register(&registry, "0-3");
        let found = registry.find_member(70_002).expect("searched").expect("a member");
        assert_eq!(found.colors, colors("0-3"));
        registration.update(|entry| entry.members = vec![70_003]).expect("updated");
        assert!(registry.find_member(70_002).expect("searched").is_none());
        assert!(registry.find_member(70_003).expect("searched").is_some());
    }

    #[test]
    fn a_supervisor_may_have_several_partitions() {
        let (_dir, registry) = registry();
        let part = |name: &str, set| {
            let how = Provenance::Probed;
            registry.register_part(CacheLevel::L2, how, colors(set), name).expect("registered")
        };
        let (mut web, db) = (part("web", "0-3"), part("db.main", "4-7"));
        fs::write(web.socket_path(), "").expect("a stand-in for the socket");
        web.update(|entry| entry.members = vec![70_001]).expect("updated");
        web.update(|entry| entry.colors = colors("0-1")).expect("updated");
        let names: Vec<_> = registry.list().expect("listed").into_iter().map(|e| e.group).collect();
        assert_eq!(names, [Some("db.main".to_owned()), Some("web".to_owned())]);
        let found = registry.find_member(70_001).expect("searched").expect("a member");
        assert_eq!((found.colors, found.group.as_deref()), (colors("0-1"), Some("web")));
        let socket = web.socket_path();
        drop(web);
        assert!(socket.exists(), "the other partition is still asked there");
        assert_eq!(registry.list().expect("listed"), [db.entry().clone()]);
    }

    #[test]
    fn dead_supervisors_are_swept() {
        let (_dir, registry) = registry();
        let registration = register(&registry, "0-3");
        let gone = RegistryEntry { pid: i32::MAX, ..registration.entry().clone() };
        let reused = RegistryEntry { pid: 1, start_time: u64::MAX, ..registration.entry().clone() };
        plant(&registry, &gone);
        plant(&registry, &reused);
        fs::write(registry.entry_path(i32::MAX - 1), "no json").expect("written");
        assert_eq!(registry.list().expect("listed").len(), 1);
        for pid in [i32::MAX, i32::MAX - 1, 1] {
            assert!(!registry.entry_path(pid).exists() && !registry.socket_path(pid).exists());
        }
    }

    #[test]
    fn an_unreadable_entry_of_a_live_process_is_left_alone() {
        let (_dir, registry) = registry();
        fs::write(registry.entry_path(1), "{\"version\":9}").expect("written");
        assert!(registry.list().expect("listed").is_empty());
        assert!(registry.entry_path(1).exists());
    }

    #[test]
    fn claims_are_of_one_level_and_provenance() {
        let (_dir, registry) = registry();
        let _registration = register(&registry, "4-7");
        let claimed = |level, provenance| registry.claimed(level, provenance).expect("listed");
        assert_eq!(claimed(CacheLevel::L2, Provenance::Probed), [colors("4-7")]);
        assert!(claimed(CacheLevel::L3, Provenance::Probed).is_empty());
        assert!(claimed(CacheLevel::L2, Provenance::Pfn).is_empty());
    }

    #[test]
    fn the_lock_excludes() {
        let (_dir, registry) = registry();
        let held = registry.lock().expect("free");
        let other = File::open(registry.dir.join("lock")).expect("exists");
        assert!(other.try_lock().is_err());
        let busy = registry.lock_within(Duration::from_millis(20)).expect_err("held");
        assert!(matches!(busy, RegistryError::Busy(_)), "{busy}");
        drop(held);
        assert!(other.try_lock().is_ok());
    }

    #[test]
    fn there_is_one_place_for_a_daemon() {
        let (_dir, registry) = registry();
        let held = registry.take_daemon_place().expect("usable");
        assert!(held.is_some() && registry.take_daemon_place().expect("usable").is_none());
        drop(held);
        assert!(registry.take_daemon_place().expect("usable").is_some());
    }

    #[test]
    fn a_directory_open_to_others_is_refused() {
        let dir = tempfile::tempdir().expect("temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("own directory");
        let error = Registry::open_at(dir.path().into(), ProcRoot::default()).expect_err("open");
        assert!(matches!(error, RegistryError::Unsafe(_)), "{error}");
    }

    #[test]
    fn free_runs_come_first() {
        assert_eq!(choose_share(4, 16, &[]), colors("0-3"));
        assert_eq!(choose_share(4, 16, &[colors("0-3")]), colors("4-7"));
        assert_eq!(choose_share(4, 16, &[colors("1"), colors("6-9")]), colors("2-5"));
    }

    #[test]
    fn scattered_free_colours_beat_a_shared_run() {
        let claims = [colors("0,2,4,6,8,10,12,14")];
        assert_eq!(choose_share(3, 16, &claims), colors("1,3,5"));
        assert_eq!(choose_share(8, 16, &claims), colors("1,3,5,7,9,11,13,15"));
        assert_eq!(choose_share(16, 16, &claims), ColorSet::all(16));
    }

    #[test]
    fn crowded_levels_share_the_least_used() {
        let claims = [colors("0-15"), colors("0-11"), colors("0-7")];
        assert_eq!(choose_share(4, 16, &claims), colors("12-15"));
        assert_eq!(choose_share(6, 16, &claims), colors("10-15"));
    }

    #[test]
    fn odd_requests_are_clamped() {
        assert_eq!(choose_share(0, 16, &[]).len(), 1);
        assert_eq!(choose_share(99, 16, &[]).len(), 16);
        assert_eq!(choose_share(2, 16, &[ColorSet::first(2, 8)]), colors("0-1"));
    }

    proptest! {
        #[test]
        fn no_unchosen_colour_is_less_used(
            n in 1u16..=24,
            masks in proptest::collection::vec(1u32..(1 << 24), 0..5),
        ) {
            let parse = |m: &u32| ColorSet::parse(&format!("{m:#x}"), 24).expect("within 24");
            let claims: Vec<ColorSet> = masks.iter().map(parse).collect();
            let chosen = choose_share(n, 24, &claims);
            let uses = |c: Color| claims.iter().filter(|s| s.contains(c)).count();
            let most = chosen.iter().map(uses).max().expect("not empty");
            let least = chosen.complement().iter().map(uses).min().unwrap_or(usize::MAX);
            prop_assert_eq!(chosen.len(), n);
            prop_assert!(most <= least);
        }
    }
}
