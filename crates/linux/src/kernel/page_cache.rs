//! The system calls that the page cache takes and that no library wraps: which pages of a file are
//! cached, reading ahead, dropping, and giving up pages of one's own or of another process in
//! one call. Nothing is decided here.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::kernel::process_memory::advise;
use crate::kernel::procfs::pidfd;

/// Bytes of a page, as file offsets are counted.
const PAGE_BYTES: u64 = 4096;
/// Number of the system call `cachestat`, the same on all architectures (Linux 6.5).
const SYS_CACHESTAT: libc::c_long = 451;

/// What cachestat(2) says of a range of a file, in pages.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cached {
    /// In the cache, whether they have been read already or not.
    pub pages: u64,
    /// Not written back yet.
    pub dirty: u64,
    /// Being written back.
    pub writeback: u64,
    /// Reclaimed by the kernel and not read again since.
    pub evicted: u64,
    recently_evicted: u64,
}

/// `struct cachestat_range`.
#[repr(C)]
struct CacheRange {
    offset: u64,
    len: u64,
}

/// What is cached of some pages of a file.
pub(crate) fn cached(file: &File, pages: &Range<u64>) -> io::Result<Cached> {
    let range = CacheRange {
        offset: pages.start * PAGE_BYTES,
        len: (pages.end - pages.start) * PAGE_BYTES,
    };
    let mut found = Cached::default();
    if range.len == 0 {
        return Ok(found);
    }
    // SAFETY: both structures have the kernel's layout and live across the call.
    let result = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut found, 0)
    };
    check(result).map(|_| found)
}

/// The first of some pages of a file that are no hole, as many as come in a row; `None` if there are
/// none. All of them where the filesystem cannot tell. It moves the offset of the descriptor.
pub(crate) fn data(file: &File, pages: &Range<u64>) -> Option<Range<u64>> {
    let start = match seek(file, SeekFrom::Data(pages.start * PAGE_BYTES)) {
        Ok(at) => at / PAGE_BYTES,
        Err(Errno::NXIO) => return None,
        Err(_) => return (!pages.is_empty()).then(|| pages.clone()),
    };
    let end = seek(file, SeekFrom::Hole(start.max(pages.start) * PAGE_BYTES));
    let end = end.map_or(pages.end, |at| at.div_ceil(PAGE_BYTES)).min(pages.end);
    (start < end).then_some(start..end)
}

/// Begins to read pages that are not cached, into folios of one page each; returns before they have
/// been read, though their frames are taken. The kernel cuts long ranges short.
pub(crate) fn read_ahead(file: &File, pages: &Range<u64>) -> io::Result<()> {
    let (offset, len) = (pages.start * PAGE_BYTES, (pages.end - pages.start) * PAGE_BYTES);
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    // SAFETY: a system call without pointers.
    let result = unsafe { libc::readahead(file.as_raw_fd(), offset.cast_signed(), len) };
    check(i64::try_from(result).unwrap_or(0)).map(|_| ())
}

/// Drops clean pages that nobody maps.
pub(crate) fn drop_clean(file: &File, pages: &Range<u64>) -> io::Result<()> {
    advise_file(file, pages, libc::POSIX_FADV_DONTNEED)
}

/// Has reads through this descriptor take one page after the other, without any ahead.
pub(crate) fn read_singly(file: &File) -> io::Result<()> {
    advise_file(file, &(0..0), libc::POSIX_FADV_RANDOM)
}

fn advise_file(file: &File, pages: &Range<u64>, advice: libc::c_int) -> io::Result<()> {
    let (offset, len) = (pages.start * PAGE_BYTES, (pages.end - pages.start) * PAGE_BYTES);
    // SAFETY: a system call without pointers.
    let errno = unsafe {
        libc::posix_fadvise(file.as_raw_fd(), offset.cast_signed(), len.cast_signed(), advice)
    };
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(errno)) }
}

/// Writes dirty pages back and waits for them.
pub(crate) fn write_back(file: &File, pages: &Range<u64>) -> io::Result<()> {
    let (offset, len) = (pages.start * PAGE_BYTES, (pages.end - pages.start) * PAGE_BYTES);
    let how = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: a system call without pointers.
    let result = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset.cast_signed(), len.cast_signed(), how)
    };
    check(i64::from(result)).map(|_| ())
}

/// Which pages of a mapping of a file have been read into the cache.
pub(crate) fn in_core(base: u64, pages: usize) -> io::Result<Vec<bool>> {
    let mut found = vec![0u8; pages];
    // SAFETY: the kernel writes one byte per page of the range, and refuses unmapped ones.
    let result =
        unsafe { libc::mincore(base as *mut c_void, pages * 4096, found.as_mut_ptr().cast()) };
    check(i64::from(result))?;
    Ok(found.into_iter().map(|byte| byte & 1 == 1).collect())
}

/// Pages of this process as ranges, neighbours in one; `addresses` ascend where they can be joined.
pub(crate) fn ranges(addresses: &[u64]) -> Vec<libc::iovec> {
    let mut found: Vec<libc::iovec> = Vec::with_capacity(addresses.len());
    for &address in addresses {
        match found.last_mut() {
            Some(last) if last.iov_base as u64 + last.iov_len as u64 == address => {
                last.iov_len += 4096;
            }
            _ => found.push(libc::iovec { iov_base: address as *mut c_void, iov_len: 4096 }),
        }
    }
    found
}

/// Asks the kernel to reclaim pages of the process behind `pidfd`; it leaves those that other
/// processes map as well.
pub(crate) fn page_out(pidfd: BorrowedFd<'_>, ranges: &[libc::iovec]) -> io::Result<()> {
    advise_all(pidfd, ranges, libc::MADV_PAGEOUT)
}

fn advise_all(
    pidfd: BorrowedFd<'_>,
    ranges: &[libc::iovec],
    advice: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the kernel allows `DONTNEED` for this process only, whose callers own the ranges; `PAGEOUT`
    // changes no contents.
    ranges.chunks(512).try_for_each(|some| unsafe { advise(pidfd, some, advice) }.map(|_| ()))
}

/// Frees pages of this process, many in one call where the kernel can do that (Linux 6.13).
#[derive(Debug)]
pub(crate) struct FrameRelease {
    own: OwnedFd,
    singly: bool,
}

impl FrameRelease {
    /// For the calling process.
    pub fn new() -> io::Result<FrameRelease> {
        Ok(FrameRelease { own: pidfd(std::process::id().cast_signed())?, singly: false })
    }

    /// Frees the frames behind ranges that the caller owns and whose contents nobody needs.
    pub fn release(&mut self, ranges: &[libc::iovec]) -> io::Result<()> {
        if !self.singly {
            match advise_all(self.own.as_fd(), ranges, libc::MADV_DONTNEED) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.singly = true,
                result => return result,
            }
        }
        ranges.iter().try_for_each(|range| {
            // SAFETY: the caller owns the ranges, and nothing refers to their contents.
            let result =
                unsafe { libc::madvise(range.iov_base, range.iov_len, libc::MADV_DONTNEED) };
            check(i64::from(result)).map(|_| ())
        })
    }
}

fn check(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
