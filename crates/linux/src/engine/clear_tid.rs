//! The words that the kernel writes when a thread ends.
//!
//! At a thread's end the kernel clears a word and wakes whoever joins it; if that page is out
//! at this very moment the kernel does not wait for it, and the joiner would wait for ever.
//! The pages with these words are therefore left where they are. Each thread is asked once
//! for the address of its word; and since threads come and go faster than they can be asked,
//! pages about to be moved are also searched for the head of a thread's control block, which
//! in the C library holds that word.

use std::collections::HashSet;

use huepage_color::Vpn;

use super::EngineError;
use crate::inject::stub::Call;
use crate::inject::{InjectError, Session, calls};
use crate::kernel::procfs::{Pagemap, ProcRoot};

/// The pages that hold a thread's end-of-life word.
#[derive(Debug, Default)]
pub struct ClearTidPages {
    /// Threads that were asked.
    asked: HashSet<i32>,
    /// Pages that a thread named, or that have a control block by their content.
    pages: HashSet<u64>,
}

impl ClearTidPages {
    /// Learns the words of threads not asked yet, except `ours`. A thread that ends while it
    /// is asked has no word any more; one that cannot be asked makes this fail, and nothing
    /// must be recoloured then.
    ///
    /// # Errors
    /// When the process is gone or a thread does not stop.
    pub fn refresh(&mut self, root: &ProcRoot, pid: i32, ours: &[i32]) -> Result<(), EngineError> {
        let known = |tid: &i32| ours.contains(tid) || self.asked.contains(tid);
        let new: Vec<i32> = root.tasks(pid)?.into_iter().filter(|tid| !known(tid)).collect();
        if new.is_empty() {
            return Ok(());
        }
        let root = root.clone();
        // A thread of its own: if one of theirs does not stop in time, the end of this one
        // makes the kernel let it go, which nothing else would.
        let asked = std::thread::spawn(move || ask_all(&root, &new)).join();
        let asked =
            asked.map_err(|_| EngineError::Agent(crate::inject::agent::AgentError::Silent(pid)))?;
        asked?.into_iter().for_each(|(tid, page)| self.note(tid, page));
        Ok(())
    }

    /// Asks a thread that is stopped already.
    ///
    /// # Errors
    /// When the thread is gone.
    pub fn ask(&mut self, tid: i32, session: &mut Session) -> Result<(), EngineError> {
        let page = ask(session)?;
        self.note(tid, page);
        Ok(())
    }

    fn note(&mut self, tid: i32, page: u64) {
        self.asked.insert(tid);
        self.pages.insert(page);
    }

    /// Searches pages for thread control blocks and notes them. Costs about 0.8 us per page.
    ///
    /// To read a page that is missing would put one of zeroes there. So what is missing by now is not
    /// read; the search is as close as it can be to the look at the page tables, `at_once` pages after each.
    /// Gives the pages that were not read, which must not be moved now: nobody knows what will be there.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn search(
        &mut self,
        (pid, pagemap): (i32, &Pagemap),
        pages: &[u64],
        at_once: usize,
    ) -> Result<HashSet<u64>, EngineError> {
        let mut absent = HashSet::new();
        let mut buffer = vec![0u64; 512 * pages.len().min(at_once)];
        for chunk in pages.chunks(at_once) {
            let mut there = Vec::with_capacity(chunk.len());
            for &page in chunk {
                if pagemap.entry(Vpn(page / 4096))?.present() {
                    there.push(page);
                }
            }
            let read = read_pages(pid, &there, &mut buffer);
            there.truncate(read);
            absent.extend(chunk.iter().copied().filter(|page| !there.contains(page)));
            buffer
                .chunks(512)
                .zip(there)
                .for_each(|(content, page)| self.note_blocks(content, page));
        }
        Ok(absent)
    }

    fn note_blocks(&mut self, content: &[u64], page: u64) {
        for at in blocks(content, page) {
            self.pages.insert(at & !4095);
            self.pages.insert((at + CONTROL_BLOCK_BYTES) & !4095);
        }
    }

    /// Whether the page at this address holds such a word. Pages of ended threads count:
    /// the C library reuses their stacks.
    pub fn holds(&self, address: u64) -> bool {
        self.pages.contains(&address)
    }
}

/// Pages read with one system call, as a rule.
pub const PAGES_PER_READ: usize = 64;

/// A thread's control block in the C library is a little smaller.
const CONTROL_BLOCK_BYTES: u64 = 2496;

/// Addresses in a page where a control block begins: on x86-64 its first word and its third
/// are its own address, and it is aligned to a cache line.
fn blocks(content: &[u64], page: u64) -> impl Iterator<Item = u64> + '_ {
    content
        .chunks_exact(8)
        .zip((page..).step_by(64))
        .filter_map(|(line, at)| (line[0] == at && line[2] == at).then_some(at))
}

/// Reads pages that need not follow each other; returns how many came before one that could
/// not be read.
fn read_pages(pid: i32, pages: &[u64], buffer: &mut [u64]) -> usize {
    let remote: Vec<libc::iovec> = pages
        .iter()
        .map(|&page| libc::iovec { iov_base: page as *mut libc::c_void, iov_len: 4096 })
        .collect();
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: pages.len() * 4096 };
    let count = remote.len() as libc::c_ulong;
    // SAFETY: the local range is `buffer`, which holds that many pages; remote addresses are
    // checked by the kernel.
    let n = unsafe { libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), count, 0) };
    usize::try_from(n).unwrap_or(0) / 4096
}

fn ask_all(root: &ProcRoot, tids: &[i32]) -> Result<Vec<(i32, u64)>, EngineError> {
    let (mut found, mut room) = (Vec::new(), None);
    for &tid in tids {
        match Session::stop_knowing(tid, room.as_ref()) {
            Ok(mut session) => {
                found.push((tid, ask(&mut session)?));
                room = Some(session.room());
                session.finish();
            }
            // What filters forbid to ask for is found by content, where it is.
            Err(InjectError::Gone(_) | InjectError::Filtered { .. }) => {}
            // A zombie leader cannot be stopped and has no end ahead of it.
            Err(_) if root.stat(tid).is_ok_and(|s| matches!(s.state, 'Z' | 'X')) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(found)
}

fn ask(session: &mut Session) -> Result<u64, EngineError> {
    const GET_TID_ADDRESS: u64 = 40;
    if session.refuses(calls::THREAD_END)? {
        return Ok(0);
    }
    let at = session.scratch()?;
    let call = Call::new(libc::SYS_prctl, &[GET_TID_ADDRESS, at, 0, 0, 0]);
    session.call("tell where its end is announced", call)?;
    let mut word = [0u8; 8];
    session.read(at, &mut word)?;
    Ok(u64::from_ne_bytes(word) & !4095)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_blocks_are_told_from_lists() {
        let page = 0x7000_0000;
        let mut content = vec![0u64; 512];
        (content[8], content[9]) = (page + 64, page + 64);
        assert_eq!(blocks(&content, page).count(), 0, "an empty list points at itself");
        (content[16], content[18]) = (page + 128, page + 128);
        assert_eq!(blocks(&content, page).collect::<Vec<_>>(), [page + 128]);
    }

    #[test]
    fn own_control_block_is_found() {
        let block: u64;
        // SAFETY: reads the first word of this thread's control block.
        unsafe { std::arch::asm!("mov {}, fs:0", out(reg) block, options(nostack, readonly)) };
        let mut words = ClearTidPages::default();
        let pid = std::process::id().cast_signed();
        let pagemap = ProcRoot::default().pagemap(pid).expect("our own page tables");
        let absent = words.search((pid, &pagemap), &[block & !4095], 1).expect("our own memory");
        assert!(words.holds(block & !4095) && absent.is_empty());
    }

    #[test]
    fn missing_pages_stay_missing_and_are_not_moved() {
        // SAFETY: a new mapping of our own.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        let page = at.addr() as u64;
        let pid = std::process::id().cast_signed();
        let pagemap = ProcRoot::default().pagemap(pid).expect("our own page tables");
        let mut words = ClearTidPages::default();
        let absent =
            words.search((pid, &pagemap), &[page], PAGES_PER_READ).expect("our own memory");
        assert!(absent.contains(&page) && !words.holds(page));
        assert!(!pagemap.entry(Vpn(page / 4096)).expect("an entry").present());
        // SAFETY: the mapping from above.
        unsafe { libc::munmap(at, 4096) };
    }
}
