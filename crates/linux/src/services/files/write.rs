//! Writing files with every page placed, for filesystems that are memory only: their pages cannot be
//! dropped and read again, so they are placed when they are made. Only for files that nobody else
//! knows yet: a page that missed is made anew.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use huepage_color::{ColorSet, PAGE_BYTES};
use rustix::fs::{FallocateFlags, fallocate};

use super::filesystem::{Placeable, placeable};
use super::place::{TRIES_PER_PAGE, WINDOW_PAGES, ranges};
use super::{FileCacheError, FileRequest, PlacementRefusal, Placer};

impl Placer {
    /// Writes `bytes` at page `first` of a file, which must be unknown to everybody else; on a
    /// filesystem with a disk the pages are placed afterwards, by writing back and reading.
    ///
    /// # Errors
    /// When the file cannot be written, and as [`Placer::place`].
    pub fn write(
        &mut self,
        file: &Arc<File>,
        first: u64,
        bytes: &[u8],
        want: &ColorSet,
    ) -> Result<(), FileCacheError> {
        let pages = first..first + (bytes.len() as u64).div_ceil(PAGE_BYTES);
        if placeable(file) != Placeable::Memory {
            let written = file.write_all_at(bytes, first * PAGE_BYTES);
            written.map_err(FileCacheError::os("writing the copy"))?;
            let pages = pages.end - pages.start;
            let (file, want) = (Arc::clone(file), want.clone());
            return self.place(&FileRequest { file, first, pages, want });
        }
        self.count(pages.end - pages.start);
        for start in pages.clone().step_by(usize::try_from(WINDOW_PAGES).unwrap_or(1)) {
            let part = start..pages.end.min(start + WINDOW_PAGES);
            let at = |page: u64| usize::try_from((page - first) * PAGE_BYTES).unwrap_or(usize::MAX);
            self.write_window(
                file,
                &part,
                &bytes[at(part.start)..at(part.end).min(bytes.len())],
                want,
            )?;
        }
        Ok(())
    }

    fn write_window(
        &mut self,
        file: &Arc<File>,
        pages: &Range<u64>,
        bytes: &[u8],
        want: &ColorSet,
    ) -> Result<(), FileCacheError> {
        let mut window = self.window(file, pages.clone(), want);
        let mut attempt = 0;
        // On a busy CPU others take frames in between: it takes longer there, and comes right.
        let mut in_vain = 0;
        while in_vain < TRIES_PER_PAGE {
            let before = window.open.len();
            for range in ranges(&window.open, self.chunk_for(attempt)) {
                if attempt > 0 {
                    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let (at, len) =
                        (range.start * PAGE_BYTES, (range.end - range.start) * PAGE_BYTES);
                    fallocate(&**file, hole, at, len)
                        .map_err(|e| FileCacheError::os("punching a hole")(e.into()))?;
                }
                window.dry |= self.hand_out_patiently(range.end - range.start, want)? == 0;
                write_pages(file, pages.start, &range, bytes)?;
            }
            self.verify(&mut window, attempt)?;
            if window.open.is_empty() {
                return Ok(());
            }
            in_vain = if window.open.len() < before { 0 } else { in_vain + 1 };
            attempt += 1;
        }
        let why = if window.dry { PlacementRefusal::NoFrames } else { PlacementRefusal::Missed };
        self.refuse_all(why, window.open.len() as u64);
        Ok(())
    }
}

/// Writes pages of a window that begins at page `start` with `bytes`.
fn write_pages(
    file: &File,
    start: u64,
    pages: &Range<u64>,
    bytes: &[u8],
) -> Result<(), FileCacheError> {
    let at = |page: u64| usize::try_from((page - start) * PAGE_BYTES).unwrap_or(usize::MAX);
    let some = &bytes[at(pages.start)..at(pages.end).min(bytes.len())];
    file.write_all_at(some, pages.start * PAGE_BYTES)
        .map_err(FileCacheError::os("writing the copy"))
}
