//! Which placed files are read again and again, as far as the kernel lets see: each read(2) of a
//! cached page moves it up a step (unreferenced, referenced, active, active and referenced), and
//! an open counts as a reading too. Files larger than the cache are not looked at, nor any longer those
//! that were removed: to hold them open would keep their blocks on the disk taken.
//!
//! Three steps are all there are, the first of which placing a page takes; so two readings are seen
//! after a file was placed, and opens beyond that. Reads of mapped files move nothing. With the
//! multi-generational LRU the later steps do not exist and opens alone count. What follows from
//! repeated reading is the policy's business.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use huepage_color::Pfn;

use super::view::{CachedPage, View};
use crate::kernel::mappers::FileId;
use crate::kernel::procfs::{FrameFlags, FrameFlagsReader, Pagemap, ProcError, ProcRoot};

/// Time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Files that are looked at, at most; the one that was read last longest ago makes room.
const MOST_FILES: usize = 64;
/// Samples are taken from so many places of a file.
const PLACES_PER_FILE: u64 = 4;
/// Pages that the kernel maps around one that is touched, without moving them up a step.
const FAULT_AROUND_PAGES: u64 = 16;

/// A file has been read as a whole, so many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// Which.
    pub id: FileId,
    /// Its size.
    pub pages: u64,
    /// How often since the last look.
    pub times: u32,
}

#[derive(Debug)]
struct Watched {
    file: Arc<File>,
    pages: u64,
    /// Sampled pages and the steps they were on.
    samples: Vec<(CachedPage, u8)>,
    opened: u32,
    told: u32,
    latest: Instant,
}

/// See the module's head.
#[derive(Debug)]
pub struct Scans {
    flags: FrameFlagsReader,
    pagemap: Pagemap,
    most: u64,
    files: HashMap<FileId, Watched>,
    /// Files that were looked at and are not any more, not told yet.
    dropped: Vec<FileId>,
    looked: Instant,
}

impl Scans {
    /// Looks at files of up to `most` pages.
    ///
    /// # Errors
    /// When frames cannot be looked at: that takes root.
    pub fn new(root: &ProcRoot, most: u64) -> Result<Scans, ProcError> {
        let pagemap = root.pagemap(std::process::id().cast_signed())?;
        let flags = FrameFlagsReader::open(root)?;
        let (files, dropped, looked) = (HashMap::new(), Vec::new(), Instant::now());
        Ok(Scans { flags, pagemap, most, files, dropped, looked })
    }

    /// A file was placed: from now on it is looked at, if it is of a size that can matter.
    pub fn watch(&mut self, id: FileId, file: &Arc<File>, pages: u64) {
        if !(FAULT_AROUND_PAGES * 2..=self.most).contains(&pages) {
            return;
        }
        if self.files.len() >= MOST_FILES
            && !self.files.contains_key(&id)
            && let Some(oldest) = self.files.iter().min_by_key(|(_, f)| f.latest).map(|(id, _)| *id)
        {
            self.forget(oldest);
        }
        let samples = self.sample(file, pages);
        let samples = samples.into_iter().filter_map(|page| Some((page, self.step(page.frame)?)));
        let samples = samples.collect();
        let (file, latest) = (Arc::clone(file), Instant::now());
        let fresh = Watched { file, pages, samples, opened: 0, told: 0, latest };
        match self.files.get_mut(&id) {
            // A look after some time has passed says nothing new; readings count on.
            Some(known) if known.pages == pages => known.samples = fresh.samples,
            _ => _ = self.files.insert(id, fresh),
        }
    }

    /// A file was opened once more.
    pub fn opened(&mut self, id: FileId) {
        if let Some(watched) = self.files.get_mut(&id) {
            watched.latest = Instant::now();
            watched.opened += 1;
        }
    }

    /// The file, if it is looked at.
    pub fn file(&self, id: FileId) -> Option<Arc<File>> {
        self.files.get(&id).map(|watched| Arc::clone(&watched.file))
    }

    /// A file is not looked at any more.
    pub fn forget(&mut self, id: FileId) {
        if self.files.remove(&id).is_some() {
            self.dropped.push(id);
        }
    }

    /// Files that are not looked at any more, as others took their place or they were removed, since
    /// the last call.
    pub fn dropped(&mut self) -> Vec<FileId> {
        let mut dropped = std::mem::take(&mut self.dropped);
        dropped.retain(|id| !self.files.contains_key(id));
        dropped
    }

    /// Files that were read as a whole since the last look; none if that was a moment ago. About
    /// 1 us for each sampled page.
    pub fn look(&mut self, now: Instant) -> Vec<Scanned> {
        if now.saturating_duration_since(self.looked) < LOOK_INTERVAL {
            return Vec::new();
        }
        self.looked = now;
        let removed = |watched: &Watched| is_removed(&watched.file);
        let gone: Vec<FileId> =
            self.files.iter().filter(|(_, file)| removed(file)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.forget(id));
        let ids: Vec<FileId> = self.files.keys().copied().collect();
        ids.into_iter().filter_map(|id| self.look_at(id, now)).collect()
    }

    fn look_at(&mut self, id: FileId, now: Instant) -> Option<Scanned> {
        let watched = self.files.get(&id)?;
        let steps = watched
            .samples
            .iter()
            .filter_map(|(page, before)| Some(self.step(page.frame)?.saturating_sub(*before)));
        let seen = whole(steps.collect());
        let times = watched.opened.max(u32::from(seen)).checked_sub(watched.told)?;
        if times == 0 || watched.opened < watched.told + times && !self.still_there(watched) {
            return None;
        }
        let watched = self.files.get_mut(&id)?;
        watched.told += times;
        watched.latest = now;
        Some(Scanned { id, pages: watched.pages, times })
    }

    /// Whether the frames are still the file's: they may have become somebody else's.
    fn still_there(&self, watched: &Watched) -> bool {
        let now = self.sample(&watched.file, watched.pages);
        let same = watched.samples.iter().filter(|(page, _)| now.contains(page)).count();
        4 * same >= 3 * watched.samples.len()
    }

    /// Pages of some places of a file and their frames. The page that is touched at each place moves
    /// up a step and is left out.
    fn sample(&self, file: &File, pages: u64) -> Vec<CachedPage> {
        let blocks = pages / FAULT_AROUND_PAGES;
        let at = |i: u64| {
            (blocks - 1) * i / (PLACES_PER_FILE.min(blocks) - 1).max(1) * FAULT_AROUND_PAGES
        };
        let mut found = Vec::new();
        for first in (0..PLACES_PER_FILE.min(blocks)).map(at) {
            let Ok(view) = View::new(file, first..first + FAULT_AROUND_PAGES) else { continue };
            // What is not cached any more must not be read for this.
            if !view.in_core().is_ok_and(|core| core.first() == Some(&true)) {
                continue;
            }
            let touched = view.populate(&(first..first + 1));
            let mapped = touched.map(|()| view.mapped(&self.pagemap).unwrap_or_default());
            found.extend(mapped.unwrap_or_default().into_iter().filter(|page| page.page != first));
        }
        found
    }

    fn step(&self, frame: Pfn) -> Option<u8> {
        self.flags.flags(frame).ok().map(step)
    }
}

/// Whether a file has no name any more, so that nobody can open it again.
pub(super) fn is_removed(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.nlink() == 0)
}

/// The step that a page is on.
fn step(flags: FrameFlags) -> u8 {
    2 * u8::from(flags.active()) + u8::from(flags.referenced())
}

/// How many steps three in four pages have moved up at least.
fn whole(mut steps: Vec<u8>) -> u8 {
    steps.sort_unstable();
    steps.get(steps.len() / 4).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn the_steps_are_in_order() {
        let [referenced, active] = [1 << 2, 1 << 6];
        let steps = [0, referenced, active, active | referenced].map(|bits| step(FrameFlags(bits)));
        assert_eq!(steps, [0, 1, 2, 3]);
    }

    #[test]
    fn a_scan_is_whole_with_three_pages_in_four() {
        assert_eq!(whole(vec![]), 0);
        assert_eq!(whole(vec![2, 0, 2, 2]), 2);
        assert_eq!(whole(vec![0, 2, 0, 2]), 0);
        assert_eq!(whole(vec![1, 2, 1, 2, 1, 2, 1, 2]), 1);
    }

    #[test]
    fn reading_and_opening_are_noticed_once() {
        let Ok(mut scans) = Scans::new(&ProcRoot::default(), 512) else {
            return huepage_testing::skip("reading_and_opening_are_noticed_once", "not root");
        };
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&vec![7; 128 * 4096]).unwrap();
        file.as_file().sync_all().unwrap();
        let held = Arc::new(File::open(file.path()).unwrap());
        let id = FileId::from_file(&held).unwrap();
        scans.watch(id, &held, 128);
        assert!(scans.file(id).is_some());
        let (start, mut turn) = (Instant::now(), 0);
        let mut times = |scans: &mut Scans| {
            turn += 1;
            let found = scans.look(start + turn * 2 * LOOK_INTERVAL);
            found.iter().filter(|s| s.id == id && s.pages == 128).map(|s| s.times).sum::<u32>()
        };
        assert_eq!(times(&mut scans), 0);
        for _ in 0..2 {
            scans.opened(id);
        }
        assert_eq!(times(&mut scans), 2);
        assert_eq!(times(&mut scans), 0);
        // Written pages may be on the last step already, so reading need not show; it must not
        // count twice what opens have told.
        std::fs::read(file.path()).unwrap();
        assert_eq!(times(&mut scans), 0);
        scans.files.clear();
        scans.watch(id, &held, 513);
        assert!(scans.file(id).is_none(), "larger than the cache");
        assert!(scans.dropped().is_empty());
        scans.watch(id, &held, 128);
        file.close().unwrap();
        assert_eq!(times(&mut scans), 0);
        assert!(scans.file(id).is_none(), "removed");
        assert_eq!((scans.dropped(), scans.dropped()), (vec![id], vec![]));
    }
}
