//! The independent reader of the page cache: in which frames the pages of a file are, and of
//! which colours these are.
//!
//! It maps a file, touches its pages and reads its own page map; the colour is computed from
//! the frame number, or looked up in the machine's file of probed colours. It shares no code
//! with huepage, and it brings no page into the cache: pages that are not there have no frame.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::observe::ColorRule;
use crate::sys::{MappedMemory, PAGE, PageProt};

const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// Where the pages of a file are, in order; `None` for one that is not in memory.
pub type FileFrames = Vec<Option<u64>>;

/// Pages looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePageCount {
    /// Pages of the files.
    pub pages: u64,
    /// Of these, in memory.
    pub resident: u64,
    /// Of these, in the colour that they should have.
    pub right: u64,
    /// Changes of colour within files that could be the ends of sequences.
    pub changes: u64,
}

impl FilePageCount {
    fn of(colors: &[Option<usize>], frames: &[Option<u64>], right: usize) -> FilePageCount {
        let resident = frames.iter().flatten().count() as u64;
        FilePageCount { pages: colors.len() as u64, resident, right: right as u64, changes: 0 }
    }

    /// The share of pages that are right, 0 to 1; those not in memory are wrong.
    pub fn share(&self) -> f64 {
        if self.pages == 0 { 0.0 } else { self.right as f64 / self.pages as f64 }
    }

    /// Adds another.
    pub fn add(&mut self, other: FilePageCount) {
        self.pages += other.pages;
        self.resident += other.resident;
        self.right += other.right;
        self.changes += other.changes;
    }
}

fn by_frame(frames: &[Option<u64>], colors: &ColorRule) -> Vec<Option<usize>> {
    frames.iter().map(|frame| colors.color((*frame)?)).collect()
}

/// How many pages are in wanted colours (`wanted` says of each colour whether it is).
pub fn inside(frames: &[Option<u64>], colors: &ColorRule, wanted: &[bool]) -> FilePageCount {
    let colors = by_frame(frames, colors);
    let right = colors.iter().flatten().filter(|color| wanted.get(**color) == Some(&true)).count();
    FilePageCount::of(&colors, frames, right)
}

/// How many pages have the colour that most pages of their run have; runs are of `run` pages.
pub fn in_runs(frames: &[Option<u64>], colors: &ColorRule, run: usize) -> FilePageCount {
    let colors = by_frame(frames, colors);
    let right = colors.chunks(run.max(1)).map(majority).sum();
    FilePageCount::of(&colors, frames, right)
}

/// How many pages of a small file have the colour that most of them have, if a sequence may
/// end in the file: then those before and those behind that end are counted by themselves.
pub fn in_sequence(frames: &[Option<u64>], colors: &ColorRule) -> FilePageCount {
    let colors = by_frame(frames, colors);
    let whole = majority(&colors);
    let split = |at| majority(&colors[..at]) + majority(&colors[at..]);
    let best = (1..colors.len()).map(split).max().unwrap_or(0);
    let changes = u64::from(best > whole);
    FilePageCount { changes, ..FilePageCount::of(&colors, frames, best.max(whole)) }
}

/// How many pages have the commonest colour.
fn majority(colors: &[Option<usize>]) -> usize {
    let count = |color| colors.iter().filter(|other| **other == Some(color)).count();
    colors.iter().flatten().map(|color| count(*color)).max().unwrap_or(0)
}

/// How many pages are in each of `of` colours.
pub fn histogram(frames: &[Option<u64>], colors: &ColorRule, of: usize) -> Vec<u64> {
    let mut by_color = vec![0; of];
    for color in frames.iter().flatten().filter_map(|frame| colors.color(*frame)) {
        if let Some(count) = by_color.get_mut(color) {
            *count += 1;
        }
    }
    by_color
}

/// Reads the page map of this process.
#[derive(Debug)]
pub struct PagemapReader {
    pagemap: File,
}

impl PagemapReader {
    /// Opens the page map.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn new() -> io::Result<PagemapReader> {
        Ok(PagemapReader { pagemap: File::open("/proc/self/pagemap")? })
    }

    /// The frames of a piece of memory.
    ///
    /// # Errors
    /// When the page map cannot be read, or hides frame numbers from this user.
    pub fn area(&self, area: &MappedMemory) -> io::Result<FileFrames> {
        let mut bytes = vec![0; area.pages() * 8];
        self.pagemap.read_exact_at(&mut bytes, (area.address() / PAGE * 8) as u64)?;
        let entries = bytes.chunks_exact(8).map(|e| e.try_into().map_or(0, u64::from_ne_bytes));
        let frames: FileFrames =
            entries.map(|entry| (entry & PRESENT != 0).then_some(entry & FRAME)).collect();
        if frames.contains(&Some(0)) {
            let why = "frame numbers are hidden; run as root";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        Ok(frames)
    }

    /// The frames of the pages of a file that are in the page cache.
    ///
    /// # Errors
    /// When it cannot be mapped, and as for [`Self::area`].
    pub fn file(&self, path: &Path) -> io::Result<FileFrames> {
        let file = File::open(path)?;
        let pages = usize::try_from(file.metadata()?.len()).map_err(io::Error::other)?;
        let pages = pages.div_ceil(PAGE);
        if pages == 0 {
            return Ok(FileFrames::new());
        }
        let area = MappedMemory::shared_file(file.as_fd(), pages, PageProt::Read)?;
        // Mapping the pages must not read more of them in, so the holes are found first.
        area.advise(0..pages, libc::MADV_RANDOM)?;
        let resident = area.resident()?;
        touch(&area, &resident)?;
        let mut frames = self.area(&area)?;
        frames.iter_mut().zip(resident).for_each(|(frame, there)| *frame = frame.filter(|_| there));
        Ok(frames)
    }
}

/// Maps the resident pages, run by run.
fn touch(area: &MappedMemory, resident: &[bool]) -> io::Result<()> {
    let mut at = 0;
    for run in resident.chunk_by(|a, b| a == b) {
        if run[0] {
            area.advise(at..at + run.len(), libc::MADV_POPULATE_READ)?;
        }
        at += run.len();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LINEAR: ColorRule = ColorRule::Linear(4);

    #[test]
    fn pages_are_counted_by_colour() {
        let frames = [Some(4), Some(5), None, Some(7), Some(8)];
        let count = inside(&frames, &LINEAR, &[true, true, false, false]);
        assert_eq!((count.pages, count.resident, count.right), (5, 4, 3));
        assert!((count.share() - 0.6).abs() < 1e-9);
        assert_eq!(histogram(&frames, &LINEAR, 4), [2, 1, 0, 1]);
        assert_eq!(histogram(&frames, &ColorRule::Linear(8), 4), [1, 0, 0, 0]);
    }

    #[test]
    fn runs_are_judged_one_by_one() {
        let frames = [4, 8, 12, 5, 1, 9, 13, 17].map(Some);
        assert_eq!(in_runs(&frames, &LINEAR, 4).right, 7);
        assert_eq!(in_runs(&frames, &LINEAR, 8).right, 5);
    }

    #[test]
    fn a_sequence_may_end_once_in_a_file() {
        let count = |frames: &[u64]| {
            let frames: FileFrames = frames.iter().copied().map(Some).collect();
            let count = in_sequence(&frames, &LINEAR);
            (count.right, count.changes)
        };
        assert_eq!(count(&[4, 8, 12]), (3, 0));
        assert_eq!(count(&[4, 8, 5, 9]), (4, 1));
        assert_eq!(count(&[4, 5, 4, 5, 4]), (3, 0));
        assert_eq!(count(&[4]), (1, 0));
        assert_eq!(in_sequence(&[], &LINEAR), FilePageCount::default());
    }

    #[test]
    fn a_cached_file_has_frames_and_its_holes_have_none() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&[7; 10 * PAGE + 1]).unwrap();
        file.as_file().set_len(64 * PAGE as u64).unwrap();
        let frames = match PagemapReader::new().and_then(|reader| reader.file(file.path())) {
            Ok(frames) => frames,
            Err(error) => return huepage_testing::skip("a_cached_file_has_frames", error),
        };
        assert_eq!(frames.len(), 64);
        assert!(frames[..11].iter().all(Option::is_some), "{frames:?}");
        assert!(frames[12..].iter().all(Option::is_none), "{frames:?}");
        let mut distinct: Vec<u64> = frames.into_iter().flatten().collect();
        distinct.sort_unstable();
        distinct.dedup();
        assert!(distinct.len() >= 11);
    }
}
