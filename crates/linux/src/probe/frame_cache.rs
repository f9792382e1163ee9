//! What is known of the colours of frames, for all huepage processes: one byte per frame in a
//! shared sparse file, 0 for unknown, otherwise the colour plus one. It belongs to one boot
//! and one reference set and is emptied for another. It never measures; whoever finds that
//! entries no longer hold empties it.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

use huepage_color::{Color, Pfn};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::mm::{self, MapFlags, ProtFlags};

use super::ProbeError;
use super::store::{StoreDir, boot_id};

/// The file of the level-2 colours.
const NAME: &str = "frames-l2-v1";
/// What the file starts with; the boot and the generation of the classes follow.
const MAGIC: &[u8; 8] = b"HUEFRAM1";
/// Bytes before the entries.
const HEADER: usize = 4096;

/// Colours of frames, shared between processes by a mapping. Cheap to read and write; all
/// methods may be called from any thread.
#[derive(Debug)]
pub struct FrameCache {
    file: File,
    base: NonNull<u8>,
    frames: u64,
}

// SAFETY: the mapping is owned, lives until drop, and is only accessed by atomics.
unsafe impl Send for FrameCache {}
// SAFETY: as above.
unsafe impl Sync for FrameCache {}

impl FrameCache {
    /// Opens the cache that goes with the reference set `generation`, making or emptying it
    /// if it is of another set or boot.
    ///
    /// # Errors
    /// `Store`, `Os`.
    pub fn open(dir: &StoreDir, generation: u64) -> Result<FrameCache, ProbeError> {
        let _lock = dir.lock()?;
        let frames = frame_count(Path::new("/proc")).map_err(|e| dir.error("zoneinfo", e))?;
        let file = dir.open_file(NAME)?;
        prepare(&file, frames, generation).map_err(|e| dir.error(NAME, e))?;
        Self::map(file, frames)
    }

    /// A cache of this process alone, for a private reference set.
    ///
    /// # Errors
    /// `Os`.
    pub fn private() -> Result<FrameCache, ProbeError> {
        let os = |what: &'static str| move |source| ProbeError::Os { what, source };
        let frames = frame_count(Path::new("/proc")).map_err(os("reading /proc/zoneinfo"))?;
        let fd = rustix::fs::memfd_create(c"huepage-frames", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(|e| ProbeError::rustix("memfd_create for frame colours", e))?;
        let file = File::from(fd);
        prepare(&file, frames, 0).map_err(os("sizing the frame colours"))?;
        Self::map(file, frames)
    }

    fn map(file: File, frames: u64) -> Result<FrameCache, ProbeError> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        let bytes = HEADER + frames as usize;
        // SAFETY: a new mapping at an address of the kernel's choice harms nobody.
        let base = unsafe { mm::mmap(ptr::null_mut(), bytes, prot, flags, &file, 0) }
            .map_err(|e| ProbeError::rustix("mapping the frame colours", e))?;
        let base = NonNull::new(base.cast()).ok_or(ProbeError::os("mapping the frame colours"))?;
        Ok(FrameCache { file, base, frames })
    }

    /// Frames that have an entry.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    fn entry(&self, frame: Pfn) -> Option<&AtomicU8> {
        let place = usize::try_from(frame.0).ok().filter(|_| frame.0 < self.frames)?;
        // SAFETY: the place is within the mapping, which lives as long as `self`; all access
        // to these bytes, in every process, is atomic.
        Some(unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(HEADER + place)) })
    }

    /// The colour noted for a frame.
    pub fn get(&self, frame: Pfn) -> Option<Color> {
        let byte = self.entry(frame)?.load(Ordering::Relaxed);
        byte.checked_sub(1).map(|color| Color(color.into()))
    }

    /// Notes a colour. Frames beyond the end of memory and colours above 253 are not noted.
    pub fn set(&self, frame: Pfn, color: Color) {
        if let (Some(entry), Ok(byte)) = (self.entry(frame), u8::try_from(color.0 + 1)) {
            entry.store(byte, Ordering::Relaxed);
        }
    }

    /// Forgets a frame.
    pub fn clear(&self, frame: Pfn) {
        if let Some(entry) = self.entry(frame) {
            entry.store(0, Ordering::Relaxed);
        }
    }

    /// Forgets all frames, for all processes.
    ///
    /// # Errors
    /// `Os` if the file cannot have holes.
    pub fn clear_all(&self) -> Result<(), ProbeError> {
        empty(&self.file, self.frames)
            .map_err(|source| ProbeError::Os { what: "emptying the frame colours", source })
    }
}

impl Drop for FrameCache {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned by this value and no reference into it outlives it.
        let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), HEADER + self.frames as usize) };
    }
}

/// Makes the file fit the machine, the boot and the class set.
fn prepare(mut file: &File, frames: u64, generation: u64) -> io::Result<()> {
    let mut wanted = MAGIC.to_vec();
    wanted.extend(boot_id().bytes());
    wanted.extend(generation.to_le_bytes());
    wanted.extend(frames.to_le_bytes());
    let mut found = vec![0; wanted.len()];
    file.seek(SeekFrom::Start(0))?;
    let same = file.read_exact(&mut found).is_ok() && found == wanted;
    let bytes = HEADER as u64 + frames;
    if same && file.metadata()?.len() == bytes {
        return Ok(());
    }
    // Never shorter than before: another process may have it mapped.
    file.set_len(bytes.max(file.metadata()?.len()))?;
    empty(file, frames)?;
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&wanted)
}

fn empty(file: impl AsFd, frames: u64) -> io::Result<()> {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, mode, HEADER as u64, frames)?)
}

/// One more than the highest frame number, out of `zoneinfo` in `root`.
fn frame_count(root: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(root.join("zoneinfo"))?;
    highest(&text).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "no zone with spanned pages in zoneinfo")
    })
}

/// The end of the last zone: `spanned` and, at the end of the zone, `start_pfn`.
fn highest(zoneinfo: &str) -> Option<u64> {
    let (mut spanned, mut end) = (0u64, 0u64);
    for line in zoneinfo.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next().and_then(|n| n.parse::<u64>().ok())) {
            (Some("spanned"), Some(pages)) => spanned = pages,
            (Some("start_pfn:"), Some(start)) if spanned > 0 => end = end.max(start + spanned),
            _ => {}
        }
    }
    (end > 0).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, StoreDir) {
        let dir = tempfile::tempdir().unwrap();
        let store = StoreDir::open(&dir.path().join("s")).unwrap();
        (dir, store)
    }

    #[test]
    fn colours_are_shared_and_forgotten() {
        let (_dir, store) = store();
        let (one, two) =
            (FrameCache::open(&store, 7).unwrap(), FrameCache::open(&store, 7).unwrap());
        assert_eq!(two.get(Pfn(1234)), None);
        one.set(Pfn(1234), Color(0));
        one.set(Pfn(1235), Color(253));
        assert_eq!((two.get(Pfn(1234)), two.get(Pfn(1235))), (Some(Color(0)), Some(Color(253))));
        two.clear(Pfn(1234));
        assert_eq!(one.get(Pfn(1234)), None);
        two.clear_all().unwrap();
        assert_eq!(one.get(Pfn(1235)), None);
    }

    #[test]
    fn another_class_set_empties_the_cache_and_the_same_one_does_not() {
        let (_dir, store) = store();
        FrameCache::open(&store, 7).unwrap().set(Pfn(9), Color(3));
        assert_eq!(FrameCache::open(&store, 7).unwrap().get(Pfn(9)), Some(Color(3)));
        assert_eq!(FrameCache::open(&store, 8).unwrap().get(Pfn(9)), None);
    }

    #[test]
    fn frames_beyond_memory_are_ignored() {
        let cache = FrameCache::private().unwrap();
        let beyond = Pfn(cache.frames());
        cache.set(beyond, Color(1));
        cache.set(Pfn(u64::MAX), Color(1));
        assert_eq!((cache.get(beyond), cache.get(Pfn(u64::MAX))), (None, None));
    }

    #[test]
    fn zones_give_the_highest_frame() {
        let text = "Node 0, zone      DMA\n  pages free 1\n        spanned  4095\n  start_pfn:           1\n\
                    Node 0, zone   Normal\n        spanned  1000\n  start_pfn:           1048576\n\
                    Node 0, zone  Movable\n        spanned  0\n  start_pfn:           0\n";
        assert_eq!(highest(text), Some(1_049_576));
        assert_eq!(highest(""), None);
    }
}
