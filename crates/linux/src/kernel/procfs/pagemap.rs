//! Which frame stands behind each page: `/proc/<pid>/pagemap`.
//!
//! Two ways in: [`Pagemap::entries`] reads one word per page, mapped or not;
//! [`Pagemap::scan`] has the kernel list the ranges of interest and skips holes, which is
//! what makes areas of terabytes with few resident pages affordable. Frame numbers are
//! hidden from a reader without CAP_SYS_ADMIN.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::{BitOr, Range};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use huepage_color::{PAGE_BYTES, Pfn, Vpn};

use super::{ProcError, ProcRoot};

/// One word of pagemap: the state of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct PageEntry(pub u64);

impl PageEntry {
    const fn bit(self, n: u32) -> bool {
        self.0 >> n & 1 == 1
    }

    /// Backed by a frame.
    pub const fn present(self) -> bool {
        self.bit(63)
    }

    /// In swap, or on its way between frames (a migration entry).
    pub const fn swapped(self) -> bool {
        self.bit(62)
    }

    /// The frame; `None` if not present, or hidden from an unprivileged reader.
    pub const fn pfn(self) -> Option<Pfn> {
        let number = self.0 & ((1 << 55) - 1);
        if self.present() && number != 0 { Some(Pfn(number)) } else { None }
    }

    /// Mapped by this page table entry alone: no other process shares the frame.
    pub const fn exclusive(self) -> bool {
        self.bit(56)
    }

    /// A page of a file or of shared memory, as opposed to anonymous memory.
    pub const fn file_or_shared(self) -> bool {
        self.bit(61)
    }
}

/// A set of the kinds PAGEMAP_SCAN tells pages apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Categories(u64);

impl Categories {
    /// No category.
    pub const NONE: Categories = Categories(0);
    /// Of a file or of shared memory.
    pub const FILE: Categories = Categories(1 << 2);
    /// Backed by a frame.
    pub const PRESENT: Categories = Categories(1 << 3);
    /// In swap or migrating.
    pub const SWAPPED: Categories = Categories(1 << 4);
    /// The shared frame of zeroes.
    pub const PFNZERO: Categories = Categories(1 << 5);
    /// Mapped by a huge page table entry.
    pub const HUGE: Categories = Categories(1 << 6);

    /// Whether all categories of `other` are in the set.
    pub const fn contains(self, other: Categories) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Categories {
    type Output = Categories;
    fn bitor(self, other: Categories) -> Categories {
        Categories(self.0 | other.0)
    }
}

/// Which pages [`Pagemap::scan`] lists, and what it says of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanQuery {
    /// A page must be in all of these.
    pub all_of: Categories,
    /// A page must be in one of these, if any are given.
    pub any_of: Categories,
    /// A page must be in none of these.
    pub none_of: Categories,
    /// What to report; neighbouring pages with equal reports form one region.
    pub report: Categories,
}

impl ScanQuery {
    /// Pages with a frame, by file, zero and huge.
    pub fn present() -> ScanQuery {
        let report =
            Categories::PRESENT | Categories::FILE | Categories::PFNZERO | Categories::HUGE;
        ScanQuery {
            all_of: Categories::PRESENT,
            any_of: Categories::NONE,
            none_of: Categories::NONE,
            report,
        }
    }

    /// Pages with a frame or in swap: all that would be lost by unmapping.
    pub fn populated() -> ScanQuery {
        let any_of = Categories::PRESENT | Categories::SWAPPED;
        let report = ScanQuery::present().report | Categories::SWAPPED;
        ScanQuery { all_of: Categories::NONE, any_of, report, ..ScanQuery::present() }
    }
}

/// A range of pages of the same categories; layout as the kernel writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct PagemapRegion {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// What the query asked to report.
    pub categories: Categories,
}

impl PagemapRegion {
    /// Length in base pages.
    pub fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE_BYTES
    }
}

/// `struct pm_scan_arg` of the kernel's `linux/fs.h`.
#[derive(Default)]
#[repr(C)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::Ioctl = 0xc060_6610_u32 as libc::Ioctl;
/// Regions asked for at once; a longer list takes more calls.
const SCAN_BATCH: usize = 512;

/// The page tables of one process, opened once.
///
/// It stays bound to the address space of the moment it was opened: after the process
/// executes another program or ends, nothing is read any more and it must be reopened.
#[derive(Debug)]
pub struct Pagemap {
    file: File,
    path: PathBuf,
    pid: i32,
}

impl ProcRoot {
    /// Opens the pagemap of a process.
    pub fn pagemap(&self, pid: i32) -> Result<Pagemap, ProcError> {
        let path = self.pid_path(pid, "pagemap");
        let file = File::open(&path).map_err(|e| ProcError::of_pid(pid, &path, e))?;
        Ok(Pagemap { file, path, pid })
    }
}

impl AsFd for Pagemap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Pagemap {
    /// Replaces `out` by the entries of `n` pages from `start` on.
    ///
    /// `out` is shorter than `n` where the address space ends, and empty once the process
    /// has ended or executed another program.
    pub fn entries(&self, start: Vpn, n: usize, out: &mut Vec<PageEntry>) -> Result<(), ProcError> {
        out.clear();
        out.resize(n, PageEntry::default());
        // SAFETY: PageEntry is a transparent u64, so its bytes are all initialised and any
        // bytes written make valid entries; `out` is not touched while the slice lives.
        let bytes = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), n * 8) };
        let read = self.fill(start.0.saturating_mul(8), bytes).map_err(|e| self.error(e))?;
        out.truncate(read / 8);
        Ok(())
    }

    /// The entry of one page; an unmapped page reads as all zeroes.
    pub fn entry(&self, page: Vpn) -> Result<PageEntry, ProcError> {
        let mut word = [0u8; 8];
        self.fill(page.0.saturating_mul(8), &mut word).map_err(|e| self.error(e))?;
        Ok(PageEntry(u64::from_ne_bytes(word)))
    }

    /// Reads as much as there is; an offset that pread(2) cannot express holds nothing.
    fn fill(&self, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let mut done = 0;
        while done < bytes.len() && offset <= i64::MAX as u64 - done as u64 {
            match self.file.read_at(&mut bytes[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    /// Appends the regions of `range` (bytes; rounded outwards to pages) that match.
    ///
    /// Costs by populated page tables, not by the size of the range. Fails with
    /// `Unsupported` before Linux 6.7, and with `NoProcess` once the process has ended.
    pub fn scan(
        &self,
        range: Range<u64>,
        query: &ScanQuery,
        out: &mut Vec<PagemapRegion>,
    ) -> Result<(), ProcError> {
        let end = range.end.next_multiple_of(PAGE_BYTES);
        let mut at = range.start / PAGE_BYTES * PAGE_BYTES;
        let mut batch = [PagemapRegion::default(); SCAN_BATCH];
        while at < end {
            let (found, walked) = self.scan_once(at..end, query, &mut batch)?;
            found.iter().for_each(|region| join(out, *region));
            // The kernel stops short only when the batch is full; guard against no progress.
            at = walked.max(at + PAGE_BYTES);
        }
        Ok(())
    }

    fn scan_once<'b>(
        &self,
        range: Range<u64>,
        query: &ScanQuery,
        batch: &'b mut [PagemapRegion; SCAN_BATCH],
    ) -> Result<(&'b [PagemapRegion], u64), ProcError> {
        let mut arg = ScanArg {
            size: size_of::<ScanArg>() as u64,
            start: range.start,
            end: range.end,
            vec: batch.as_mut_ptr() as u64,
            vec_len: SCAN_BATCH as u64,
            category_inverted: query.none_of.0,
            category_mask: query.all_of.0 | query.none_of.0,
            category_anyof_mask: query.any_of.0,
            return_mask: query.report.0,
            ..ScanArg::default()
        };
        // SAFETY: `arg` has the layout and size the kernel expects; it writes `walk_end`
        // and at most `vec_len` regions to `batch`, which outlives the call.
        let n = unsafe { libc::ioctl(self.file.as_raw_fd(), PAGEMAP_SCAN, &raw mut arg) };
        match usize::try_from(n) {
            Ok(n) => Ok((&batch[..n.min(SCAN_BATCH)], arg.walk_end)),
            Err(_) => Err(self.error(io::Error::last_os_error())),
        }
    }

    fn error(&self, error: io::Error) -> ProcError {
        match error.raw_os_error() {
            Some(libc::ENOTTY) => ProcError::Unsupported("PAGEMAP_SCAN"),
            _ => ProcError::of_pid(self.pid, &self.path, error),
        }
    }
}

/// Appends a region, joining it to its predecessor when a batch ended inside a run.
fn join(out: &mut Vec<PagemapRegion>, region: PagemapRegion) {
    match out.last_mut() {
        Some(last) if last.end == region.start && last.categories == region.categories => {
            last.end = region.end;
        }
        _ => out.push(region),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fake::{Fake, own_pid};
    use super::*;
    use crate::kernel::testing::Anonymous;
    use huepage_testing::skip;

    const PRESENT: u64 = 1 << 63;

    #[test]
    fn entries_are_decoded() {
        let entry = PageEntry(PRESENT | 1 << 56 | 0x1234);
        assert!(
            entry.present() && entry.exclusive() && !entry.swapped() && !entry.file_or_shared()
        );
        assert_eq!(entry.pfn(), Some(Pfn(0x1234)));
        assert_eq!(PageEntry(PRESENT).pfn(), None);
        let swapped = PageEntry(1 << 62 | 1 << 61 | 1 << 57 | 1 << 55 | 99);
        assert!(swapped.swapped() && swapped.file_or_shared());
        assert!(swapped.pfn().is_none());
    }

    #[test]
    fn entries_come_from_their_offset() {
        let fake = Fake::new();
        let words = [0, PRESENT | 7, PRESENT | 8];
        fake.put("5/pagemap", words.iter().flat_map(|w: &u64| w.to_ne_bytes()).collect::<Vec<_>>());
        let map = fake.root.pagemap(5).expect("canned");
        let mut out = vec![PageEntry(1); 9];
        map.entries(Vpn(1), 4, &mut out).expect("readable");
        assert_eq!(out, [PageEntry(PRESENT | 7), PageEntry(PRESENT | 8)]);
        assert_eq!(map.entry(Vpn(2)).expect("readable").pfn(), Some(Pfn(8)));
        assert_eq!(map.entry(Vpn(u64::MAX)).expect("past the end"), PageEntry(0));
    }

    #[test]
    fn a_plain_file_cannot_be_scanned() {
        let fake = Fake::new();
        fake.put("5/pagemap", "");
        let map = fake.root.pagemap(5).expect("canned");
        let result = map.scan(0..4096, &ScanQuery::present(), &mut Vec::new());
        assert!(matches!(result, Err(ProcError::Unsupported(_))));
    }

    #[test]
    fn own_pages_show_once_touched() {
        let area = Anonymous::new(8);
        [1, 2, 5].into_iter().for_each(|page| area.touch(page));
        let map = ProcRoot::default().pagemap(own_pid()).expect("own pagemap");
        let mut out = Vec::new();
        map.entries(Vpn(area.start() / PAGE_BYTES), 8, &mut out).expect("readable");
        let present: Vec<bool> = out.iter().map(|e| e.present()).collect();
        assert_eq!(present, [false, true, true, false, false, true, false, false]);
        assert!(out[1].exclusive() && !out[1].file_or_shared());
    }

    #[test]
    fn a_scan_of_four_tebibytes_finds_the_few_pages() {
        let area = Anonymous::new(1 << 30);
        let pages = [3, 4, 1 << 20, (1 << 30) - 1];
        pages.into_iter().for_each(|page| area.touch(page));
        let map = ProcRoot::default().pagemap(own_pid()).expect("own pagemap");
        let (start, mut out) = (area.start(), Vec::new());
        match map.scan(area.range(), &ScanQuery::present(), &mut out) {
            Err(ProcError::Unsupported(what)) => return skip("a_scan_of_four_tebibytes", what),
            result => result.expect("scanned"),
        }
        let found: Vec<_> =
            out.iter().map(|r| ((r.start - start) / PAGE_BYTES, r.pages())).collect();
        assert_eq!(found, [(3, 2), (1 << 20, 1), ((1 << 30) - 1, 1)]);
        assert!(out.iter().all(|r| r.categories == Categories::PRESENT));
    }

    #[test]
    fn a_scan_of_more_regions_than_a_batch_is_complete() {
        let pages = 4 * SCAN_BATCH;
        let area = Anonymous::new(pages);
        (0..pages).step_by(2).for_each(|page| area.touch(page));
        let map = ProcRoot::default().pagemap(own_pid()).expect("own pagemap");
        let mut out = Vec::new();
        match map.scan(area.range(), &ScanQuery::populated(), &mut out) {
            Err(ProcError::Unsupported(what)) => return skip("a_scan_of_more_regions", what),
            result => result.expect("scanned"),
        }
        assert_eq!(out.len(), pages / 2);
        assert!(out.iter().all(|r| r.pages() == 1));
    }
}
