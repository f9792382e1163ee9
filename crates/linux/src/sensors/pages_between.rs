//! Which pages of a process are larger than 4 KiB and smaller than 2 MiB (mTHP), by size. The kernel tells no size: a
//! page of several frames is found by its frames, which follow each other, and by their flags, the first of which is a
//! head and the others tails. Needs root. Only looked for where the kernel gives such pages.

use std::collections::BTreeMap;
use std::ops::Range;

use huepage_color::{PAGE_BYTES, Pfn, Vpn};

use crate::kernel::machine::{SysRoot, page_size_settings};
use crate::kernel::process_memory::SUPERPAGE_PAGES;
use crate::kernel::procfs::{
    FrameFlags, FrameFlagsReader, PageEntry, Pagemap, ProcError, ProcRoot,
};

/// Base pages of the smallest such page of private memory; each begins at a multiple, and so does its frame.
const LEAST_PAGES: usize = 4;
/// Base pages looked at in one piece: 128 MiB.
const PIECE: usize = 1 << 15;

/// Bytes in pages of a size, by the size in KiB.
pub type BytesBySize = BTreeMap<u64, u64>;

/// See the module's head.
#[derive(Debug)]
pub struct PagesBetween {
    flags: FrameFlagsReader,
}

/// A page that began and whose end was not seen.
struct Open {
    next_page: u64,
    next_frame: u64,
    pages: u64,
}

impl PagesBetween {
    /// None where the kernel gives nobody such pages, or its flags of frames cannot be read.
    pub fn open(root: &ProcRoot, sys: &SysRoot) -> Option<PagesBetween> {
        let given = page_size_settings(sys).iter().any(|size| size.is_between() && size.is_given());
        let flags = given.then(|| FrameFlagsReader::open(root).ok()).flatten()?;
        Some(PagesBetween { flags })
    }

    /// Adds those of a range of private memory, in bytes. Costs some hundred nanoseconds for each 16 KiB.
    ///
    /// # Errors
    /// When the process has ended or cannot be read.
    pub fn count(
        &self,
        pagemap: &Pagemap,
        range: &Range<u64>,
        found: &mut BytesBySize,
    ) -> Result<(), ProcError> {
        let (mut entries, mut open) = (Vec::new(), None);
        let first = (range.start / PAGE_BYTES).next_multiple_of(LEAST_PAGES as u64);
        let end = range.end / PAGE_BYTES;
        for start in (first..end).step_by(PIECE) {
            let pages = (end - start).min(PIECE as u64) as usize;
            pagemap.entries(Vpn(start), pages, &mut entries)?;
            let groups = entries.chunks_exact(LEAST_PAGES);
            for (page, group) in (start..).step_by(LEAST_PAGES).zip(groups) {
                open = self.next(open, page, self.part(group)?, found);
            }
        }
        self.close(open, found);
        Ok(())
    }

    /// The first frame of a group and its flags, if its frames may be a part of one page.
    fn part(&self, group: &[PageEntry]) -> Result<Option<(u64, FrameFlags)>, ProcError> {
        let Some(Pfn(first)) = group[0].pfn() else { return Ok(None) };
        let frames = (first..).take(LEAST_PAGES).map(|frame| Some(Pfn(frame)));
        if !group.iter().map(|entry| entry.pfn()).eq(frames)
            || !first.is_multiple_of(LEAST_PAGES as u64)
        {
            return Ok(None);
        }
        self.flags.flags(Pfn(first)).map(|flags| Some((first, flags)))
    }

    /// Goes on with the page that is open, or closes it; what is open then.
    fn next(
        &self,
        open: Option<Open>,
        page: u64,
        part: Option<(u64, FrameFlags)>,
        found: &mut BytesBySize,
    ) -> Option<Open> {
        let step = LEAST_PAGES as u64;
        let begins = |frame| Open { next_page: page + step, next_frame: frame + step, pages: step };
        match (part, open) {
            (Some((frame, flags)), Some(open))
                if flags.compound_tail() && (open.next_page, open.next_frame) == (page, frame) =>
            {
                Some(Open { pages: open.pages + step, ..begins(frame) })
            }
            (part, open) => {
                self.close(open, found);
                part.filter(|(_, flags)| flags.compound_head()).map(|(frame, _)| begins(frame))
            }
        }
    }

    /// Counts a page that is there as a whole: no frame of it follows.
    fn close(&self, open: Option<Open>, found: &mut BytesBySize) {
        let Some(Open { next_frame, pages, .. }) = open else { return };
        let goes_on = self.flags.flags(Pfn(next_frame)).is_ok_and(FrameFlags::compound_tail);
        if pages < SUPERPAGE_PAGES && !goes_on {
            let bytes = pages * PAGE_BYTES;
            *found.entry(bytes >> 10).or_default() += bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::procfs::fake::Fake;

    const PRESENT: u64 = 1 << 63;
    const HEAD: u64 = 1 << 15;
    const TAIL: u64 = 1 << 16;

    fn words(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn sys(setting: &str) -> (tempfile::TempDir, SysRoot) {
        let directory = tempfile::tempdir().unwrap();
        let size = directory.path().join("kernel/mm/transparent_hugepage/hugepages-64kB");
        std::fs::create_dir_all(&size).unwrap();
        std::fs::write(size.join("enabled"), setting).unwrap();
        let root = SysRoot(directory.path().to_owned());
        (directory, root)
    }

    /// What is found of pages in these frames (0: none), where the frames have these flags.
    fn found(frames: &[u64], flags: &[u64]) -> BytesBySize {
        let (fake, (_directory, sys)) = (Fake::new(), sys("[always] never"));
        let entries: Vec<u64> =
            frames.iter().map(|&frame| if frame == 0 { 0 } else { PRESENT | frame }).collect();
        fake.put("5/pagemap", words(&entries)).put("kpageflags", words(flags));
        let between = PagesBetween::open(&fake.root, &sys).expect("one is given");
        let mut found = BytesBySize::new();
        let range = 0..frames.len() as u64 * PAGE_BYTES;
        between.count(&fake.root.pagemap(5).unwrap(), &range, &mut found).unwrap();
        found
    }

    /// The flags of a page of so many frames.
    fn page(frames: usize) -> Vec<u64> {
        [vec![HEAD], vec![TAIL; frames - 1]].concat()
    }

    #[test]
    fn pages_are_told_by_size() {
        // Frames 0 to 7 single, then 16 KiB, 16 KiB, 32 KiB, 64 KiB.
        let flags = [vec![0; 8], page(4), page(4), page(8), vec![0; 8], page(16)].concat();
        let frames: Vec<u64> = (8..24).chain(1..5).chain(32..48).collect();
        let expected = BytesBySize::from([(16, 2 << 14), (32, 1 << 15), (64, 1 << 16)]);
        assert_eq!(found(&frames, &flags), expected);
    }

    #[test]
    fn a_part_of_a_page_is_none() {
        let flags = [vec![0; 16], page(16)].concat();
        // Without its end, its beginning, a frame in its midst; in another order; all of it.
        let without_end: Vec<u64> = (16..28).collect();
        let without_beginning: Vec<u64> = (20..32).collect();
        let holed: Vec<u64> = (16..32).map(|frame| if frame == 22 { 0 } else { frame }).collect();
        let turned: Vec<u64> = (24..32).chain(16..24).collect();
        let whole: Vec<u64> = (16..32).collect();
        assert_eq!(found(&without_end, &flags), BytesBySize::new());
        assert_eq!(found(&without_beginning, &flags), BytesBySize::new());
        assert_eq!(found(&whole, &flags), BytesBySize::from([(64, 1 << 16)]));
        assert_eq!(found(&holed, &flags), BytesBySize::new());
        assert_eq!(found(&turned, &flags), BytesBySize::new());
    }

    #[test]
    fn nobody_looks_where_the_kernel_gives_none() {
        let fake = Fake::new();
        fake.put("kpageflags", words(&[0]));
        for (setting, looks) in [("always [never]", false), ("[madvise] never", true)] {
            let (_directory, sys) = sys(setting);
            assert_eq!(PagesBetween::open(&fake.root, &sys).is_some(), looks, "{setting}");
        }
    }
}
