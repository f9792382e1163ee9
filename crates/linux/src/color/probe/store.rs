//! The machine-wide reference set: one file on tmpfs that holds the reference pages and says
//! which of them have which colour, so that colour 5 means the same to every huepage process
//! until reboot. Made under a lock. At every open its pages are sorted anew, as hosts move pages. If
//! there is no directory to trust, the set is private and its labels are this process's own.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD};

use super::classes::ColorClasses;
use super::params::ProbeParams;
use super::reference::{ReferenceSet, pool_pages};
use super::reference_memory::ReferenceMemory;
use super::{Classifier, LocalBench, ProbeError};
use crate::kernel::cpus::allowed_cpus;
use crate::kernel::runtime_dir::{self, RuntimeError};

/// Overrides the directory of the store.
pub const DIR_ENV: &str = "HUEPAGE_CLASSES_DIR";
/// The file of the level-2 classes.
const CLASSES: &str = "classes-l2-v2";
/// A new one that is about to get that name.
const FRESH: &str = "classes-l2-v2.new";
/// The lock that guards making and replacing it.
const LOCK: &str = "lock";
/// How long to wait for another process that builds.
const LOCK_WAIT: Duration = Duration::from_secs(120);
/// CPU time that builds may take, one after the other, each on another CPU.
const BUILD_LIMITS: [Duration; 4] = [
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(40),
];
/// Times that stored classes are sorted anew before they are given up.
const HEALS: u32 = 3;
/// What the file starts with.
const MAGIC: &[u8; 8] = b"HUECLAS3";
/// Pages of a stored header, before the reference pages: room for 254 classes.
const HEADER_PAGES: usize = 64;

/// A directory that only this user can write to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreDir(PathBuf);

impl StoreDir {
    /// The directory named by `HUEPAGE_CLASSES_DIR`, or this user's (see `runtime`); made if absent.
    ///
    /// # Errors
    /// `Store` if it cannot be made, or if others could write to it.
    pub fn open_default() -> Result<StoreDir, ProbeError> {
        let path = runtime_dir::memory_directory(DIR_ENV).map_err(|error| {
            let (path, source) = (PathBuf::from(runtime_dir::DEFAULT_DIR), io::Error::other(error));
            ProbeError::Store { path, source }
        })?;
        Self::open(&path)
    }

    /// A given directory; made if absent.
    ///
    /// # Errors
    /// As [`Self::open_default`].
    pub fn open(path: &Path) -> Result<StoreDir, ProbeError> {
        let failed = |source| ProbeError::Store { path: path.to_owned(), source };
        runtime_dir::private(path).map_err(|error| match error {
            RuntimeError::Io { source, .. } => failed(source),
            error => failed(io::Error::new(io::ErrorKind::PermissionDenied, error)),
        })?;
        Ok(StoreDir(path.to_owned()))
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn error(&self, name: &str, source: io::Error) -> ProbeError {
        ProbeError::Store { path: self.file(name), source }
    }

    /// Opens a file for reading and writing, made if absent, for this user only.
    pub(crate) fn open_file(&self, name: &str) -> Result<File, ProbeError> {
        runtime_dir::private_file(&self.file(name)).map_err(|e| self.error(name, e))
    }

    /// A file without a name, for this user only.
    fn open_unnamed(&self) -> Result<File, ProbeError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).mode(0o600);
        options.custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC);
        options.open(&self.0).map_err(|e| self.error("", e))
    }

    /// Gives such a file a name, in place of whatever has it. Only the holder of the lock may.
    fn place(&self, file: &File, name: &str) -> Result<(), ProbeError> {
        let (fresh, own) = (self.file(FRESH), format!("/proc/self/fd/{}", file.as_raw_fd()));
        // Of somebody who ended between the two steps below.
        let _ = fs::remove_file(&fresh);
        rustix::fs::linkat(CWD, own, CWD, &fresh, AtFlags::SYMLINK_FOLLOW)
            .map_err(io::Error::from)
            .and_then(|()| fs::rename(&fresh, self.file(name)))
            .map_err(|e| self.error(name, e))
    }

    /// Takes the lock of the store; it is held until the file is dropped.
    pub(crate) fn lock(&self) -> Result<File, ProbeError> {
        let file = self.open_file(LOCK)?;
        match runtime_dir::lock_within(&file, LOCK_WAIT) {
            Ok(true) => Ok(file),
            Ok(false) => {
                let why = "another huepage process holds it";
                Err(self.error(LOCK, io::Error::new(io::ErrorKind::TimedOut, why)))
            }
            Err(e) => Err(self.error(LOCK, e)),
        }
    }
}

/// Whether there is a stored set, which most likely can be opened in a moment.
pub fn is_stored() -> bool {
    StoreDir::open_default().is_ok_and(|dir| dir.file(CLASSES).exists())
}

/// Where a reference set came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceOrigin {
    /// It was in the store and still holds.
    Found,
    /// It was built now and put into the store.
    Built,
    /// It is this process's own: colours mean nothing to other processes. Says why.
    Private(String),
}

/// A reference set and the store it is in.
#[derive(Clone, Debug)]
pub struct OpenedSet {
    /// The pages and classes.
    pub set: ReferenceSet,
    /// Where they came from; warn if private.
    pub origin: ReferenceOrigin,
    /// The store, unless the set is private.
    pub dir: Option<StoreDir>,
}

/// Opens the machine's reference set, building it if there is none. Measures on `cpu`. Some 20 ms
/// if it exists, a second or two of CPU time if not, more beside neighbours.
///
/// # Errors
/// `Classes` if classes cannot be built now, `Pin`, `Os`.
pub fn open_reference(params: &ProbeParams, cpu: usize) -> Result<OpenedSet, ProbeError> {
    match StoreDir::open_default() {
        Ok(dir) => open_reference_in(&dir, params, cpu),
        Err(error) => private(params, cpu, &error),
    }
}

/// Like [`open_reference`], in a given directory.
///
/// # Errors
/// As [`open_reference`].
pub fn open_reference_in(
    dir: &StoreDir,
    params: &ProbeParams,
    cpu: usize,
) -> Result<OpenedSet, ProbeError> {
    let _lock = match dir.lock() {
        Ok(lock) => lock,
        Err(error) => return private(params, cpu, &error),
    };
    if let Some(set) = load(dir, params, cpu) {
        return Ok(OpenedSet { set, origin: ReferenceOrigin::Found, dir: Some(dir.clone()) });
    }
    match retry(cpu, |limit, cpu| build(dir, params, cpu, limit)) {
        Ok(set) => Ok(OpenedSet { set, origin: ReferenceOrigin::Built, dir: Some(dir.clone()) }),
        Err(error @ (ProbeError::Store { .. } | ProbeError::Os { .. })) => {
            private(params, cpu, &error)
        }
        Err(error) => Err(error),
    }
}

fn private(params: &ProbeParams, cpu: usize, why: &ProbeError) -> Result<OpenedSet, ProbeError> {
    let set = retry(cpu, |limit, cpu| ReferenceSet::build_private(params, cpu, limit))?;
    Ok(OpenedSet { set, origin: ReferenceOrigin::Private(why.to_string()), dir: None })
}

/// Repeats a build that took too long, with more time and on another CPU: each may have another
/// neighbour.
fn retry(
    cpu: usize,
    mut build: impl FnMut(Duration, usize) -> Result<ReferenceSet, ProbeError>,
) -> Result<ReferenceSet, ProbeError> {
    let mut cpus = cpus_from(cpu).into_iter().cycle();
    let mut turn = |limit| build(limit, cpus.next().unwrap_or(cpu));
    let [most, limits @ ..] = BUILD_LIMITS;
    limits.into_iter().fold(turn(most), |built, limit| match built {
        Err(ProbeError::Classes { .. }) => turn(limit),
        done => done,
    })
}

/// The CPUs that this process may use, beginning with `first`.
fn cpus_from(first: usize) -> Vec<usize> {
    let others = allowed_cpus().into_iter().filter(|&cpu| cpu != first);
    std::iter::once(first).chain(others).collect()
}

/// The stored set, if it is of this boot and geometry and still behaves.
fn load(dir: &StoreDir, params: &ProbeParams, cpu: usize) -> Option<ReferenceSet> {
    let mut file = File::options().read(true).write(true).open(dir.file(CLASSES)).ok()?;
    let mut bytes = vec![0; HEADER_PAGES * 4096];
    file.read_exact(&mut bytes).ok()?;
    let header = Header::decode(&bytes, params, &boot_id())?;
    let pages = header.pages as usize;
    let long_enough = file.metadata().ok()?.len() >= pages as u64 * 4096;
    if !long_enough || header.classes.pages().any(|p| p as usize >= pages) {
        return None;
    }
    let memory = Arc::new(ReferenceMemory::map(file.into(), pages).ok()?);
    let mut bench = LocalBench::with_reference(cpu, &memory).ok()?;
    let mut probe = Classifier::new(header.classes);
    // What the store says is kept for as long as it can be mended: all processes go by its labels.
    let changed = (0..HEALS).find_map(|_| probe.heal(&mut bench).ok())?;
    let set =
        ReferenceSet { memory, classes: probe.classes().clone(), generation: header.generation };
    if changed > 0 {
        write_header(&set).ok()?;
    }
    Some(set)
}

/// Has the store say these classes of a set that came from it, unless another process is busy with it:
/// whoever opens it sorts the pages anew anyhow.
///
/// # Errors
/// `Os`, `Store`.
pub fn update(opened: &OpenedSet, classes: &ColorClasses) -> Result<(), ProbeError> {
    let Some(dir) = &opened.dir else { return Ok(()) };
    let lock = dir.open_file(LOCK)?;
    if lock.try_lock().is_err() {
        return Ok(());
    }
    write_header(&ReferenceSet { classes: classes.clone(), ..opened.set.clone() })
}

/// Writes the header of a set into its file.
fn write_header(set: &ReferenceSet) -> Result<(), ProbeError> {
    let write = |mut file: File| {
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&Header::of(set).encode(&boot_id()))
    };
    write(set.memory.file()?).map_err(ProbeError::os("writing the reference file"))
}

/// Builds a set in a new file, which replaces the old one only when it is complete: who has
/// mapped the old one keeps it. The file has no name before, so that a builder that ends early leaves
/// nothing.
fn build(
    dir: &StoreDir,
    params: &ProbeParams,
    cpu: usize,
    limit: Duration,
) -> Result<ReferenceSet, ProbeError> {
    let file = dir.open_unnamed()?;
    let set = build_file(&file, params, cpu, limit)?;
    write_header(&set)?;
    dir.place(&file, CLASSES)?;
    Ok(set)
}

fn build_file(
    file: &File,
    params: &ProbeParams,
    cpu: usize,
    limit: Duration,
) -> Result<ReferenceSet, ProbeError> {
    let pool = pool_pages(params);
    let pages = HEADER_PAGES + pool;
    let fd = file.try_clone().map_err(ProbeError::os("duplicating the reference file"))?;
    let memory = Arc::new(ReferenceMemory::map(fd.into(), pages)?);
    ReferenceSet::build_in(memory, HEADER_PAGES, params, cpu, limit)
}

/// The identity of this boot; empty if the kernel does not tell.
pub(crate) fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// What the first pages of the file say. Numbers are little-endian `u32`, the generation and
/// the pace's bits included, in the order of `encode`.
struct Header {
    pages: u32,
    generation: u64,
    classes: ColorClasses,
}

impl Header {
    fn of(set: &ReferenceSet) -> Header {
        let pages = set.memory.pages() as u32;
        Header { pages, generation: set.generation, classes: set.classes.clone() }
    }

    fn encode(&self, boot: &str) -> Vec<u8> {
        let mut words = geometry(&self.classes.params).to_vec();
        words.extend([
            self.pages,
            self.generation as u32,
            (self.generation >> 32) as u32,
            self.classes.classes.len() as u32,
        ]);
        for class in &self.classes.classes {
            words.push(class.len() as u32);
            words.extend(class);
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend(padded(boot));
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        bytes
    }

    /// `None` if the bytes are of another boot, geometry or version, or make no sense.
    fn decode(bytes: &[u8], params: &ProbeParams, boot: &str) -> Option<Header> {
        let rest = bytes.strip_prefix(MAGIC)?.strip_prefix(&padded(boot))?;
        let mut words = rest.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let found: Vec<u32> = words.by_ref().take(geometry(params).len()).collect();
        if found != geometry(params) {
            return None;
        }
        let pages = words.next()?;
        let generation = u64::from(words.next()?) | u64::from(words.next()?) << 32;
        let count = words.next()?;
        if count != u32::from(params.colors) {
            return None;
        }
        let mut classes = Vec::new();
        for _ in 0..count {
            let len = words.next()? as usize;
            let class: Vec<u32> = words.by_ref().take(len).collect();
            if class.len() < len || len < params.fewest_refs() {
                return None;
            }
            classes.push(class);
        }
        Some(Header { pages, generation, classes: ColorClasses { params: *params, classes } })
    }
}

fn geometry(params: &ProbeParams) -> [u32; 4] {
    [u32::from(params.colors), params.ways, params.line_bytes, params.sets]
}

fn padded(boot: &str) -> [u8; 40] {
    let mut field = [0; 40];
    field.iter_mut().zip(boot.bytes()).for_each(|(to, from)| *to = from);
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let params = ProbeParams::new(2, 4, 64, 128);
        let classes = vec![(100..150).collect(), (200..260).collect()];
        let generation = 0x1234_5678_9abc_def0;
        Header { pages: 900, generation, classes: ColorClasses { params, classes } }
    }

    #[test]
    fn a_header_survives_the_file() {
        let written = header();
        let params = written.classes.params;
        let read = Header::decode(&written.encode("boot-a"), &params, "boot-a").unwrap();
        assert_eq!((read.pages, read.generation), (900, written.generation));
        assert_eq!(read.classes, written.classes);
    }

    #[test]
    fn headers_of_other_boots_geometries_and_lengths_are_refused() {
        let written = header();
        let params = written.classes.params;
        let bytes = written.encode("boot-a");
        assert!(Header::decode(&bytes, &params, "boot-b").is_none());
        assert!(Header::decode(&bytes, &ProbeParams::new(4, 4, 64, 256), "boot-a").is_none());
        for len in 0..bytes.len() {
            assert!(Header::decode(&bytes[..len], &params, "boot-a").is_none(), "{len} bytes");
        }
    }

    #[test]
    fn the_largest_header_fits_its_pages() {
        let params = ProbeParams::new(254, 24, 64, 254 * 64);
        let words = 10 + 254 + params.candidates;
        assert!(48 + words * 4 <= HEADER_PAGES * 4096);
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        assert!(StoreDir::open(&dir.path().join("new")).is_ok());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(StoreDir::open(dir.path()), Err(ProbeError::Store { .. })));
        let link = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/tmp", link.path().join("l")).unwrap();
        assert!(StoreDir::open(&link.path().join("l")).is_err());
    }

    #[test]
    fn an_unfinished_build_leaves_nothing_and_a_finished_one_replaces_the_old() {
        let dir = tempfile::tempdir().unwrap();
        let store = StoreDir::open(&dir.path().join("s")).unwrap();
        drop(store.open_unnamed().unwrap());
        assert_eq!(fs::read_dir(store.path()).unwrap().count(), 0);
        fs::write(store.file(CLASSES), "old").unwrap();
        fs::write(store.file(FRESH), "of somebody who was killed").unwrap();
        let mut file = store.open_unnamed().unwrap();
        file.write_all(b"new").unwrap();
        store.place(&file, CLASSES).unwrap();
        assert_eq!(fs::read_to_string(store.file(CLASSES)).unwrap(), "new");
        assert_eq!(fs::read_dir(store.path()).unwrap().count(), 1);
    }

    #[test]
    fn the_lock_excludes() {
        let dir = tempfile::tempdir().unwrap();
        let store = StoreDir::open(&dir.path().join("s")).unwrap();
        let held = store.lock().unwrap();
        assert!(store.open_file(LOCK).unwrap().try_lock().is_err());
        drop(held);
        assert!(store.open_file(LOCK).unwrap().try_lock().is_ok());
    }
}
