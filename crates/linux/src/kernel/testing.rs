//! What the live tests share: how one is left out, memory whose pages they touch one by one, and a process of
//! their own, since the faults of all other tests of this one would be sampled with theirs.

use std::fmt::Display;
use std::ops::Range;
use std::process::Command;

use huepage_testing::skip;

use crate::kernel::pmu::PmuError;

const PAGE: usize = 4096;

/// What a test takes of the machine; none, with [`skip`], where it is not to be had.
pub(crate) fn live<T>(test: &str, needed: Result<T, impl Display>) -> Option<T> {
    needed.map_err(|why| skip(test, why)).ok()
}

/// The same of perf events, which only take root.
pub(crate) fn events<T>(test: &str, opened: Result<T, PmuError>) -> Option<T> {
    match opened {
        Err(PmuError::Denied(_)) => live(test, Err("perf events take root")),
        Err(error) => panic!("{test}: {error}"),
        Ok(opened) => Some(opened),
    }
}

/// Whether this is the process in which only this test runs; else runs it in one, and fails with it.
pub(crate) fn alone(module: &str, test: &str) -> bool {
    const ALONE: &str = "HUEPAGE_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let (_, module) = module.split_once("::").unwrap();
    let name = format!("{module}::{test}");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&name, "--exact", "--nocapture"]).env(ALONE, "1");
    let output = command.output().unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy);
    assert!(said[0].contains("1 passed"), "{name}:\n{}{}", said[0], said[1]);
    eprint!("{}", said[1]);
    false
}

/// Anonymous private memory, between two pages that nobody may touch.
pub(crate) struct Anonymous {
    start: *mut libc::c_void,
    bytes: usize,
}

// SAFETY: the mapping belongs to the value, and no reference into it is handed out.
unsafe impl Send for Anonymous {}

impl Anonymous {
    /// Memory for so many pages, none of them there yet, without huge pages.
    pub fn new(pages: usize) -> Anonymous {
        let bytes = pages * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let none = std::ptr::null_mut();
        // SAFETY: a new mapping where the kernel likes; no memory in use is replaced.
        let whole = unsafe { libc::mmap(none, bytes + 2 * PAGE, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(whole, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        // SAFETY: one page into a mapping of more.
        let area = Anonymous { start: unsafe { whole.byte_add(PAGE) }, bytes };
        area.protect(0..pages, libc::PROT_READ | libc::PROT_WRITE);
        area.advise(libc::MADV_NOHUGEPAGE);
        area
    }

    /// `mprotect` on some pages.
    pub fn protect(&self, pages: Range<usize>, prot: libc::c_int) {
        assert!(pages.end * PAGE <= self.bytes);
        let at = self.page(pages.start) as *mut libc::c_void;
        // SAFETY: the range is the value's own, and no reference into it exists.
        let result = unsafe { libc::mprotect(at, pages.len() * PAGE, prot) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// `madvise` on all of it.
    pub fn advise(&self, advice: libc::c_int) {
        // SAFETY: the range is the value's own, and no reference into it exists.
        let result = unsafe { libc::madvise(self.start, self.bytes, advice) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Makes one huge page of the 2 MiB at an address of the area.
    pub fn collapse(&self, address: u64) -> std::io::Result<()> {
        let huge = 2 << 20;
        assert!(self.range().contains(&address) && address + huge as u64 <= self.range().end);
        // SAFETY: the range is the value's own, and collapsing changes no contents.
        let result = unsafe { libc::madvise(address as *mut _, huge, libc::MADV_COLLAPSE) };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }

    /// Locks one page into memory.
    pub fn lock(&self, n: usize) {
        // SAFETY: locking changes no contents.
        let result = unsafe { libc::mlock(self.page(n) as *const libc::c_void, PAGE) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Lets a locked page go.
    pub fn unlock(&self, n: usize) {
        // SAFETY: unlocking changes no contents.
        let result = unsafe { libc::munlock(self.page(n) as *const libc::c_void, PAGE) };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    /// Has every CPU forget the translations: the next touches walk the page tables.
    pub fn leave_tlb(&self) {
        let all = 0..self.bytes / PAGE;
        self.protect(all.clone(), libc::PROT_READ);
        self.protect(all, libc::PROT_READ | libc::PROT_WRITE);
    }

    /// Reads a byte of a page.
    pub fn read(&self, n: usize) -> u8 {
        assert!(n * PAGE < self.bytes);
        // SAFETY: the byte is inside the mapping, which is readable and lives as long as `self`.
        unsafe { self.start.cast::<u8>().add(n * PAGE).read_volatile() }
    }

    /// The first byte.
    pub fn start(&self) -> u64 {
        self.start as u64
    }

    /// All bytes.
    pub fn range(&self) -> Range<u64> {
        self.start()..self.start() + self.bytes as u64
    }

    /// Address of a page.
    pub fn page(&self, n: usize) -> u64 {
        self.start() + (n * PAGE) as u64
    }

    /// Writes to a page.
    pub fn touch(&self, n: usize) {
        assert!(n * PAGE < self.bytes);
        // SAFETY: the byte is inside the mapping, which is writable and lives as long as `self`.
        unsafe { self.start.cast::<u8>().add(n * PAGE).write_volatile(n as u8 | 1) };
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: the mapping and the pages around it are the value's own, and nothing refers to them
        // any more.
        unsafe { libc::munmap(self.start.byte_sub(PAGE), self.bytes + 2 * PAGE) };
    }
}
