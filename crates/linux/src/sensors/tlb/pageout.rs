//! Which pages a process touches, by taking them away: single pages go to swap, and those that are
//! back later were touched.
//!
//! The last resort where neither a PMU nor accessed bits can be had: every touch of a sampled page
//! costs the process a fault and a read from swap. Only private anonymous base pages that no other
//! process maps are taken; locked, shared, file and huge pages, and those of any larger folio, are
//! refused, since paging one page out would break what holds it up. A page counts as away only once
//! its page table entry says so. What brings a page back is not known: a debugger or khugepaged
//! counts as a touch, and so does a neighbour where the kernel reads larger folios from swap.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use huepage_color::{PAGE_BYTES, Vpn};

use crate::kernel::process_memory;
use crate::kernel::procfs::{
    FrameFlags, FrameFlagsReader, PageEntry, Pagemap, ProcError, ProcRoot, pidfd,
};

/// Most pages that are taken away in one call.
pub const MOST_PER_CALL: usize = 512;
/// `KPF_MLOCKED`: locked, though perhaps not yet on the list of those.
const MLOCKED: u64 = 1 << 33;

/// Why pages cannot be sampled by taking them away.
#[derive(Debug, thiserror::Error)]
pub enum PageOutError {
    /// There is nowhere to put them.
    #[error("no page-out sampling: {0}; add swap (zram will do) with `swapon`")]
    Unsupported(&'static str),
    /// The kernel refuses this user.
    #[error("not allowed to page out memory of process {0}: run huepage as root")]
    Denied(i32),
    /// The process has ended, or `/proc` does not tell enough.
    #[error(transparent)]
    Process(#[from] ProcError),
    /// Any other failure.
    #[error("cannot {what}: {source}; report it as a bug of huepage")]
    Kernel {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Pages that were not taken, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// Without a frame: never touched, or in swap already.
    pub absent: usize,
    /// Of a file or of shared memory, or mapped by another process too.
    pub shared: usize,
    /// Part of a huge page or of another large folio.
    pub huge: usize,
    /// Locked or otherwise not to be reclaimed, or not ordinary anonymous memory.
    pub locked: usize,
    /// Asked for, but kept by the kernel: pinned, in use, or swap is full.
    pub kept: usize,
    /// Beyond [`MOST_PER_CALL`]: ask again.
    pub left: usize,
}

/// What [`PageOutSampler::page_out`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageOut {
    /// Pages that are away now.
    pub out: usize,
    /// Those that are not.
    pub refused: Refusals,
}

/// What became of a page that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Returned {
    /// It is back: the process touched it.
    Touched,
    /// It is still away.
    Away,
    /// It was unmapped or freed meanwhile.
    Freed,
}

/// Pages with what became of them, by ascending address.
pub type Returns = Vec<(u64, Returned)>;

/// Takes pages of one process away and sees which come back.
#[derive(Debug)]
pub struct PageOutSampler {
    root: ProcRoot,
    pid: i32,
    process: OwnedFd,
    pages: Pagemap,
    frames: FrameFlagsReader,
    away: BTreeSet<u64>,
}

impl PageOutSampler {
    /// Whether there is swap with room in it.
    ///
    /// # Errors
    /// [`PageOutError::Unsupported`] with the reason.
    pub fn is_supported(root: &ProcRoot) -> Result<(), PageOutError> {
        let text = fs::read_to_string(root.0.join("swaps")).unwrap_or_default();
        let lines = || text.lines().skip(1).filter(|line| !line.trim().is_empty());
        match (lines().any(|_| true), lines().any(has_room)) {
            (false, _) => Err(PageOutError::Unsupported("this machine has no swap")),
            (_, false) => Err(PageOutError::Unsupported("the swap of this machine is full")),
            _ => Ok(()),
        }
    }

    /// For a process. It stays bound to the program that it runs: after another `execve` all pages
    /// read as freed.
    ///
    /// # Errors
    /// When there is no swap, the process has ended, or the user may not: it takes root.
    pub fn open(root: ProcRoot, pid: i32) -> Result<PageOutSampler, PageOutError> {
        PageOutSampler::is_supported(&root)?;
        let process = pidfd(pid).map_err(|e| refused(pid, "open the process", e))?;
        let pages = root.pagemap(pid)?;
        let frames = FrameFlagsReader::open(&root)?;
        Ok(PageOutSampler { root, pid, process, pages, frames, away: BTreeSet::new() })
    }

    /// Takes away those of some pages, given by any address inside, that may be taken: at most
    /// [`MOST_PER_CALL`] of them.
    ///
    /// Costs some microseconds per page on zram, and a write on a disk, which the kernel ends in the
    /// background. A page that changes between the check and the call is safe, only not sampled as
    /// it should be.
    ///
    /// # Errors
    /// When the process has ended, swap is gone or full, or the user may not.
    pub fn page_out(&mut self, addresses: &[u64]) -> Result<PageOut, PageOutError> {
        PageOutSampler::is_supported(&self.root)?;
        let mut done = PageOut::default();
        let mut chosen = BTreeSet::new();
        for address in addresses.iter().map(|a| a / PAGE_BYTES * PAGE_BYTES) {
            let entry = self.pages.entry(Vpn(address / PAGE_BYTES))?;
            match self.fault_of(entry, &mut done.refused)? {
                Some(count) => *count += 1,
                None if chosen.len() == MOST_PER_CALL => done.refused.left += 1,
                None => {
                    chosen.insert(address);
                }
            }
        }
        let chosen: Vec<u64> = chosen.into_iter().collect();
        advise(&self.process, &chosen).map_err(|e| refused(self.pid, "page out", e))?;
        for (address, state) in self.states(&chosen)? {
            match state {
                Returned::Away => {
                    self.away.insert(address);
                    done.out += 1;
                }
                Returned::Touched => done.refused.kept += 1,
                Returned::Freed => done.refused.absent += 1,
            }
        }
        Ok(done)
    }

    /// Which count of refusals a page belongs to, if it may not be taken.
    fn fault_of<'r>(
        &self,
        entry: PageEntry,
        refusals: &'r mut Refusals,
    ) -> Result<Option<&'r mut usize>, PageOutError> {
        if !entry.present() {
            return Ok(Some(&mut refusals.absent));
        }
        if entry.file_or_shared() || !entry.exclusive() {
            return Ok(Some(&mut refusals.shared));
        }
        let frame = entry.pfn().ok_or(PageOutError::Denied(self.pid))?;
        let flags = self.frames.flags(frame)?;
        Ok(match () {
            () if is_large(flags) => Some(&mut refusals.huge),
            () if !is_ordinary(flags) => Some(&mut refusals.locked),
            () => None,
        })
    }

    /// How many pages are away, as far as known.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.away.len()
    }

    /// Replaces `out` by what became of all pages that are away. Those that are back or freed are
    /// told once, and may be taken again. Costs a read of pagemap per page.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn returned(&mut self, out: &mut Returns) -> Result<(), PageOutError> {
        let away: Vec<u64> = self.away.iter().copied().collect();
        *out = self.states(&away)?;
        self.away = out.iter().filter(|(_, s)| *s == Returned::Away).map(|(a, _)| *a).collect();
        Ok(())
    }

    fn states(&self, addresses: &[u64]) -> Result<Returns, PageOutError> {
        let state =
            |&address: &u64| Ok((address, state_of(self.pages.entry(Vpn(address / PAGE_BYTES))?)));
        let found = addresses.iter().map(state).collect::<Result<Returns, PageOutError>>()?;
        let alive = self.root.process_exists(self.pid);
        if alive { Ok(found) } else { Err(ProcError::NoProcess(self.pid).into()) }
    }
}

fn state_of(entry: PageEntry) -> Returned {
    match (entry.present(), entry.swapped()) {
        (true, _) => Returned::Touched,
        (_, true) => Returned::Away,
        _ => Returned::Freed,
    }
}

/// Part of a compound page of any size.
fn is_large(flags: FrameFlags) -> bool {
    flags.thp() || flags.hugetlb() || flags.compound_head() || flags.compound_tail()
}

/// Anonymous, not locked, and not one of the kernel's special pages.
fn is_ordinary(flags: FrameFlags) -> bool {
    let special = flags.unevictable() || flags.0 & MLOCKED != 0 || flags.ksm() || flags.zero_page();
    flags.anon() && !special && !flags.absent()
}

/// Whether a line of `/proc/swaps` (name, type, size, used, priority) has room left.
fn has_room(line: &str) -> bool {
    let mut numbers = line.split_ascii_whitespace().rev().skip(1).map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(used)), Some(Ok(size))) => used < size,
        _ => false,
    }
}

fn refused(pid: i32, what: &'static str, source: io::Error) -> PageOutError {
    match source.raw_os_error() {
        Some(libc::ESRCH) => ProcError::NoProcess(pid).into(),
        Some(libc::EPERM | libc::EACCES) => PageOutError::Denied(pid),
        _ => PageOutError::Kernel { what, source },
    }
}

/// Asks the kernel to reclaim single pages; a page that has been unmapped meanwhile, or that it does
/// not take, is passed over.
fn advise(process: &OwnedFd, addresses: &[u64]) -> io::Result<()> {
    let page = |&a: &u64| libc::iovec { iov_base: a as *mut _, iov_len: PAGE_BYTES as usize };
    let ranges: Vec<libc::iovec> = addresses.iter().map(page).collect();
    let mut rest = ranges.as_slice();
    while !rest.is_empty() {
        // SAFETY: `PAGEOUT` changes no contents.
        let done =
            match unsafe { process_memory::advise(process.as_fd(), rest, libc::MADV_PAGEOUT) } {
                Ok(bytes) => (bytes / PAGE_BYTES as usize).max(1),
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL)) => 1,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                Err(e) => return Err(e),
            };
        rest = &rest[done.min(rest.len())..];
    }
    Ok(())
}

#[cfg(test)]
mod tests;
