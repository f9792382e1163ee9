//! Places files for the gate, slice by slice, as SRM-buffer's policy says; and has files spread over
//! all colours that turn out to be read again and again. In which colour a page is to come and how
//! it gets there is said elsewhere ([`FilePlacer`]).
//!
//! Pages that are not on the disk yet are left: to place a file that was just written would mean
//! to wait for the disk twice. Holes are left, too: there is nothing to be read in them, however long
//! they are.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::time::Instant;

use huepage_color::ColorSet;
use huepage_policy::SrmSettings;

use super::gate::{PlacementWork, Slice, Task};
use super::scans::Scans;
use super::{FileCacheError, FilePlacer, Move, Placer};
use crate::kernel::mappers::FileId;
use crate::kernel::page_cache;
use crate::kernel::procfs::ProcRoot;

/// Pages of a slice: 4 MiB, which takes some milliseconds; a sequence if that is more.
const SLICE_PAGES: u64 = 1024;
/// Pages moved between two slices, for which nobody waits.
const MOVED_PAGES_PER_TURN: usize = 32;

/// See the module's head. It stays on the thread that made its placer.
pub struct FileWorker {
    files: FilePlacer,
    scans: Option<Scans>,
    /// Not carried out yet.
    moves: VecDeque<Move>,
}

impl FileWorker {
    /// Places files in `colors`, in sequences of `settings`.
    ///
    /// # Errors
    /// When frames cannot be looked at.
    ///
    /// # Panics
    /// Without colours, or with a threshold of 0.
    pub fn new(
        placer: Placer,
        colors: ColorSet,
        settings: SrmSettings,
    ) -> Result<FileWorker, FileCacheError> {
        let scans = settings.rescan.map(|r| Scans::new(&ProcRoot::default(), r.cache_pages));
        let files = FilePlacer::sequences(placer, settings, colors);
        Ok(FileWorker { files, scans: scans.transpose()?, moves: VecDeque::new() })
    }

    /// Places the sequences of a slice that are on the disk.
    fn place(
        &mut self,
        task: &Task,
        pages: Range<u64>,
        alive: &dyn Fn(),
    ) -> Result<Slice, FileCacheError> {
        let (mut next, mut unwritten) = (pages.end, 0);
        for part in parts(pages, self.files.step()) {
            let mut rest = part.clone();
            while !self.files.is_stopped()
                && let Some(some) = page_cache::data(&task.file, &rest)
            {
                rest.start = some.end;
                unwritten += self.place_data(task, some)?;
                alive();
            }
            // Some of this one may be left.
            if self.files.is_stopped() {
                next = part.start;
                break;
            }
        }
        Ok(Slice { tally: self.files.settle()?, unwritten, next })
    }

    /// Places pages of a sequence if they are on the disk; how many there are if they are not.
    fn place_data(&mut self, task: &Task, pages: Range<u64>) -> Result<u64, FileCacheError> {
        let found = page_cache::cached(&task.file, &pages).unwrap_or_default();
        if found.dirty + found.writeback > 0 {
            return Ok(pages.end - pages.start);
        }
        self.files.place(&task.file, task.process, pages)?;
        Ok(0)
    }

    /// Tells the policy of files that were read, and takes down what it then wants moved.
    fn tell_scans(&mut self) {
        let scanned = self.scans.as_mut().map(|scans| scans.look(Instant::now()));
        let dropped = self.scans.as_mut().map(Scans::dropped).unwrap_or_default();
        let Some(policy) = self.files.policy() else { return };
        dropped.into_iter().for_each(|file| policy.gone(file));
        for file in scanned.into_iter().flatten() {
            for block in (0..file.times).flat_map(|_| 0..file.pages) {
                policy.used(file.id, block, file.pages);
            }
        }
        self.moves.extend(policy.moves());
    }
}

impl PlacementWork for FileWorker {
    fn slice(&mut self, task: &Task, alive: &dyn Fn()) -> Result<Slice, FileCacheError> {
        let size = task.pages();
        let pages = slice(&task.file, task.next..size, self.files.step());
        let next = pages.end;
        let slice = self.place(task, pages, alive)?;
        if next >= size
            && let Some(scans) = &mut self.scans
        {
            scans.watch(task.id, &task.file, size);
        }
        Ok(slice)
    }

    fn opened(&mut self, file: FileId) {
        self.scans.iter_mut().for_each(|scans| scans.opened(file));
    }

    fn left(&mut self, file: FileId) {
        self.scans.iter_mut().for_each(|scans| scans.forget(file));
        self.files.policy().into_iter().for_each(|policy| policy.gone(file));
    }

    fn ended(&mut self, process: u32) {
        if let Some(policy) = self.files.policy() {
            policy.ended(process);
        }
    }

    fn tick(&mut self) -> Result<u64, FileCacheError> {
        let mut spread = 0;
        self.tell_scans();
        let some = self.moves.len().min(MOVED_PAGES_PER_TURN);
        for moved in self.moves.drain(..some) {
            let file = self.scans.as_ref().and_then(|scans| scans.file(moved.0));
            if let Some(file) = file {
                spread += self.files.carry_out(&file, moved)?.placed;
            }
        }
        Ok(spread)
    }

    fn is_busy(&self) -> bool {
        !self.moves.is_empty()
    }
}

/// The slice of a file that comes next of some pages, in step and behind the hole that they may begin
/// with; nothing at their end if that is all they are.
fn slice(file: &File, pages: Range<u64>, step: u64) -> Range<u64> {
    let data = page_cache::data(file, &pages);
    let first = data.map_or(pages.end, |data| pages.start.max(data.start / step * step));
    first..pages.end.min(first.saturating_add(SLICE_PAGES.next_multiple_of(step)))
}

/// Ranges of `step` pages, which begin in step.
fn parts(pages: Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> {
    let mut first = pages.start;
    std::iter::from_fn(move || {
        let part = first..pages.end.min((first / step + 1) * step);
        first = part.end;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_passed_over() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let end = (1 << 40) / 4096;
        assert_eq!(slice(&file, 0..end, 256), end..end, "nothing is in it");
        for page in [1000, 1001, 1_000_000] {
            file.write_all_at(&[1; 4096], page * 4096).unwrap();
        }
        assert_eq!(slice(&file, 0..end, 256), 768..1792);
        assert_eq!(page_cache::data(&file, &(1000..1024)), Some(1000..1002));
        assert_eq!(page_cache::data(&file, &(1001..1002)), Some(1001..1002));
        assert_eq!(page_cache::data(&file, &(1002..1024)), None);
        assert_eq!(slice(&file, 2048..end, 4096), 999_424..1_003_520);
        assert_eq!(slice(&file, 1000..1002, 256), 1000..1002);
        assert_eq!(slice(&file, 1_000_001..end, 256), end..end);
    }

    #[test]
    fn parts_begin_in_step() {
        assert_eq!(parts(0..600, 256).collect::<Vec<_>>(), [0..256, 256..512, 512..600]);
        assert_eq!(parts(100..300, 256).collect::<Vec<_>>(), [100..256, 256..300]);
        assert_eq!(parts(5..5, 256).count(), 0);
    }
}
