//! What is known of the colours of frames, for all huepage processes: one byte per frame in a
//! shared sparse file, 0 for unknown, otherwise the colour plus one. It belongs to one boot
//! and one reference set and is emptied for another. It never measures; whoever finds that
//! entries no longer hold empties it.
//!
//! A host takes memory back, and gives other memory later, in blocks of frames that are free as
//! a whole. Whoever measures in a block without having checked what is remembered of it begins
//! another epoch of the block, so that old entries are not taken to be as good as new ones. After
//! the entries come a byte per frame, the epoch of its entry, and a byte per block, its epoch.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};

use huepage_color::{Color, Pfn};
use rustix::fs::{FallocateFlags, fallocate};

use super::ProbeError;
use super::store::{StoreDir, boot_id};
use crate::kernel::mapping::Mapping;

/// The file of the level-2 colours.
const NAME: &str = "frames-l2-v2";
/// What the file starts with; the boot and the generation of the classes follow.
const MAGIC: &[u8; 8] = b"HUEFRAM2";
/// Bytes before the entries.
const HEADER: usize = 4096;
/// log2 of the frames of a block: that of free page reporting, and of huge pages.
const BLOCK_BITS: u32 = 9;

/// The number of the block of a frame.
pub(crate) const fn block(frame: Pfn) -> u64 {
    frame.0 >> BLOCK_BITS
}

/// The frames of a block.
pub(crate) fn frames_of_block(block: u64) -> impl Iterator<Item = Pfn> {
    let first = block << BLOCK_BITS;
    (first..first + (1 << BLOCK_BITS)).map(Pfn)
}

/// The place of a frame in its block, below [`BLOCK_FRAMES`].
pub(crate) const fn place_in_block(frame: Pfn) -> usize {
    (frame.0 & ((1 << BLOCK_BITS) - 1)) as usize
}

/// Frames of a block.
pub(crate) const BLOCK_FRAMES: usize = 1 << BLOCK_BITS;

/// Bytes of the file for so many frames.
const fn file_bytes(frames: u64) -> u64 {
    HEADER as u64 + 2 * frames + frames.div_ceil(BLOCK_FRAMES as u64)
}

/// Colours of frames, shared between processes by a mapping. Cheap to read and write; all
/// methods may be called from any thread.
#[derive(Debug)]
pub struct FrameCache {
    memory: Mapping,
    frames: u64,
}

// SAFETY: the mapping is owned, lives until drop, and is only accessed by atomics.
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
        Self::map(&file, frames)
    }

    /// A cache of this process alone, for a private reference set.
    ///
    /// # Errors
    /// `Os`.
    pub fn private() -> Result<FrameCache, ProbeError> {
        let frames =
            frame_count(Path::new("/proc")).map_err(ProbeError::os("reading /proc/zoneinfo"))?;
        let fd = rustix::fs::memfd_create(c"huepage-frames", rustix::fs::MemfdFlags::CLOEXEC)
            .map_err(ProbeError::os("memfd_create for frame colours"))?;
        let file = File::from(fd);
        prepare(&file, frames, 0).map_err(ProbeError::os("sizing the frame colours"))?;
        Self::map(&file, frames)
    }

    fn map(file: &File, frames: u64) -> Result<FrameCache, ProbeError> {
        let memory = Mapping::shared(file, file_bytes(frames) as usize)
            .map_err(ProbeError::os("mapping the frame colours"))?;
        Ok(FrameCache { memory, frames })
    }

    /// Frames that have an entry.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    fn entry(&self, frame: Pfn) -> Option<&AtomicU8> {
        (frame.0 < self.frames).then(|| self.byte(frame.0))
    }

    /// The epoch of an entry, and that of its block.
    fn epochs(&self, frame: Pfn) -> Option<(&AtomicU8, &AtomicU8)> {
        let own = || self.byte(self.frames + frame.0);
        let block = || self.byte(2 * self.frames + block(frame));
        (frame.0 < self.frames).then(|| (own(), block()))
    }

    /// The byte at a place behind the header.
    fn byte(&self, place: u64) -> &AtomicU8 {
        let at = HEADER + place as usize;
        debug_assert!((at as u64) < file_bytes(self.frames));
        // SAFETY: both callers ask for frames below `frames` only, so that the place is within
        // the mapping, which lives as long as `self`; all access to these bytes, in every
        // process, is atomic.
        unsafe { AtomicU8::from_ptr(self.memory.base().cast::<u8>().add(at).as_ptr()) }
    }

    /// The colour noted for a frame.
    pub fn get(&self, frame: Pfn) -> Option<Color> {
        let byte = self.entry(frame)?.load(Ordering::Relaxed);
        byte.checked_sub(1).map(|color| Color(color.into()))
    }

    /// Whether a frame's colour was noted in the present epoch of its block.
    pub fn is_current(&self, frame: Pfn) -> bool {
        let epochs = self.epochs(frame);
        epochs.is_some_and(|(own, all)| own.load(Ordering::Relaxed) == all.load(Ordering::Relaxed))
    }

    /// Begins another epoch of a frame's block: colours noted before stay, but are not current.
    /// After 256 of them the block is forgotten, before the first number comes again.
    pub fn begin_epoch(&self, frame: Pfn) {
        let Some((_, epoch)) = self.epochs(frame) else { return };
        if epoch.load(Ordering::Relaxed) == u8::MAX {
            frames_of_block(block(frame)).for_each(|frame| self.clear(frame));
        }
        epoch.fetch_add(1, Ordering::Release);
    }

    /// Notes a colour, as current. Frames beyond the end of memory and colours above 253 are not
    /// noted. Whoever dies in between leaves no colour, never an old one that looks current.
    pub fn set(&self, frame: Pfn, color: Color) {
        let (Some(entry), Some((own, all))) = (self.entry(frame), self.epochs(frame)) else {
            return;
        };
        let Ok(byte) = u8::try_from(color.0 + 1) else { return };
        entry.store(0, Ordering::Relaxed);
        own.store(all.load(Ordering::Acquire), Ordering::Release);
        entry.store(byte, Ordering::Release);
    }

    /// Forgets a frame.
    pub fn clear(&self, frame: Pfn) {
        if let Some(entry) = self.entry(frame) {
            entry.store(0, Ordering::Relaxed);
        }
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
    let bytes = file_bytes(frames);
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
    Ok(fallocate(file, mode, HEADER as u64, file_bytes(frames) - HEADER as u64)?)
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
        empty(store.open_file(NAME).unwrap(), two.frames).unwrap();
        assert_eq!(one.get(Pfn(1235)), None, "emptied for all");
    }

    #[test]
    fn another_class_set_empties_the_cache_and_the_same_one_does_not() {
        let (_dir, store) = store();
        FrameCache::open(&store, 7).unwrap().set(Pfn(9), Color(3));
        assert_eq!(FrameCache::open(&store, 7).unwrap().get(Pfn(9)), Some(Color(3)));
        assert_eq!(FrameCache::open(&store, 8).unwrap().get(Pfn(9)), None);
    }

    #[test]
    fn colours_of_an_earlier_epoch_stay_but_are_not_current() {
        let cache = FrameCache::private().unwrap();
        let (old, new, other) = (Pfn(600), Pfn(700), Pfn(1024));
        [old, other].into_iter().for_each(|frame| cache.set(frame, Color(3)));
        cache.begin_epoch(new);
        cache.set(new, Color(4));
        assert_eq!((cache.get(old), cache.get(new)), (Some(Color(3)), Some(Color(4))));
        assert_eq!([old, new, other].map(|frame| cache.is_current(frame)), [false, true, true]);
        (0..255).for_each(|_| cache.begin_epoch(new));
        let left = [old, new, other].map(|frame| cache.get(frame));
        assert_eq!(
            left,
            [None, None, Some(Color(3))],
            "epochs that begin anew are not taken for old ones"
        );
    }

    #[test]
    fn frames_beyond_memory_are_ignored() {
        let cache = FrameCache::private().unwrap();
        let beyond = Pfn(cache.frames());
        cache.begin_epoch(beyond);
        assert!(!cache.is_current(beyond));
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
