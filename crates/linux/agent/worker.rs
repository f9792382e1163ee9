//! The second thread: slow work that must not delay faults. It backs candidate pages, times
//! loads to learn colours, and puts frames into the stock. It touches our own areas only,
//! except to break copy-on-write and to build superpages, which the kernel does on our behalf.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::protocol::{
    MAX_OFFSETS, MAX_PAGES, MAX_RELOAD, MAX_ROUNDS, MAX_STREAM, Shared, WITHOUT_LOCKS, op,
};
use crate::sys::{self, PAGE};
use crate::timing;
use crate::uffd::{self, Ours};

pub const READ_WRITE: u64 = 3;
const POPULATE_WRITE: u64 = 23;
const COLLAPSE: u64 = 25;
const HUGE_PAGE: u64 = 512 * PAGE;
/// Who has a command, or wants the thread to end, wakes it.
const LONG_MS: u64 = 3_600_000;

pub struct Worker {
    pub shared: *mut Shared,
    pub serve_fd: i64,
    pub stock_fd: i64,
    pub ring: u64,
    pub candidates: u64,
    pub recycle: u64,
    /// Pages of zeroes.
    pub zero: u64,
}

impl Worker {
    fn shared(&self) -> &Shared {
        // SAFETY: the shared memory outlives both threads' use of it; fields are atomics.
        unsafe { &*self.shared }
    }

    /// Carries out commands until told to leave.
    pub fn run(&self) {
        let shared = self.shared();
        let slot = &shared.worker;
        while shared.worker_quit.load(Acquire) == 0 {
            let done = slot.done.load(Relaxed);
            if slot.posted.load(Acquire) == done {
                sys::futex_wait(slot.posted.as_ptr(), done, LONG_MS);
                continue;
            }
            let argument = [0, 1, 2].map(|i: usize| slot.args[i].load(Relaxed));
            let result = self.carry_out(slot.op.load(Relaxed), argument);
            slot.result.store(result, Relaxed);
            slot.done.store(done.wrapping_add(1), Release);
            sys::futex_wake(slot.done.as_ptr());
        }
    }

    fn carry_out(&self, op: u32, [a, b, c]: [u64; 3]) -> i64 {
        match op {
            op::POPULATE => self.populate(a, b, c != 0),
            op::UNSHARE => sys::madvise(a, b, POPULATE_WRITE),
            op::DISCARD => {
                sys::discard(a, b);
                sys::protect(a, b, 0)
            }
            op::SIFT => self.sift(a, b, c as usize),
            op::FILL => self.fill(a as usize),
            op::TIMING => time(self.shared),
            op::RECYCLED => self.drop_recycled(),
            op::COLLAPSE => self.collapse(a, b != 0),
            _ => -22,
        }
    }

    /// Backs candidates. Those that are not wanted now cannot be accessed: an mlockall of the program would
    /// back them all.
    fn populate(&self, start: u64, len: u64, accessible: bool) -> i64 {
        self.shared().backed.store(start + len, Relaxed);
        let r = if accessible { 0 } else { sys::protect(start, len, READ_WRITE) };
        if r < 0 { r } else { back(start, len) }
    }

    /// Gives candidates back but for the listed ones. They can still be accessed.
    fn sift(&self, start: u64, len: u64, count: usize) -> i64 {
        let (mut at, mut i, end) = (start, 0, start + len);
        while i < count && i < MAX_PAGES {
            let kept = self.page(i).min(end);
            if kept > at {
                sys::discard(at, kept - at);
            }
            at = at.max(kept + PAGE);
            i += 1;
        }
        if end > at { sys::discard(at, end - at) } else { 0 }
    }

    /// Moves the listed pages to the end of the stock, in order.
    fn fill(&self, count: usize) -> i64 {
        let shared = self.shared();
        let mut tail = shared.tail.load(Relaxed);
        let (mut i, mut unlocked) = (0, false);
        while i < count && i < MAX_PAGES {
            let room = shared.setup.ring_pages - (tail - shared.head.load(Acquire));
            let slot = tail & (shared.setup.ring_pages - 1);
            let n = self.run_length(i, count).min(room).min(shared.setup.ring_pages - slot);
            if n == 0 {
                break;
            }
            let from = self.page(i);
            let to = self.ring + slot * PAGE;
            let (bytes, errno) = uffd::transfer(self.stock_fd, to, from, n * PAGE, 0, Ours::Source);
            let moved = bytes / PAGE;
            tail += moved;
            i += moved as usize;
            shared.tail.store(tail, Release);
            let again = errno == sys::EAGAIN
                || self.unblock(errno, slot)
                || (errno == sys::EINVAL
                    && !core::mem::replace(&mut unlocked, true)
                    && self.unlock());
            if moved == 0 && !again {
                i += 1;
            }
        }
        i as i64
    }

    /// A slot that still holds a page nobody wants is emptied; true when it is worth a retry.
    fn unblock(&self, errno: i64, slot: u64) -> bool {
        errno == sys::EEXIST && sys::discard(self.ring + slot * PAGE, PAGE) == 0
    }

    /// Pages move only between memory that is locked and memory that is, or neither: the program may have
    /// locked all that there was.
    fn unlock(&self) -> bool {
        let setup = &self.shared().setup;
        let may = setup.without & WITHOUT_LOCKS == 0;
        may && sys::unlock(self.ring, setup.ring_pages * PAGE) == 0
            && sys::unlock(self.candidates, setup.candidate_bytes) == 0
    }

    fn page(&self, i: usize) -> u64 {
        // SAFETY: callers stay below MAX_PAGES.
        unsafe { (*self.shared().worker_pages.as_ptr().add(i)).load(Relaxed) }
    }

    fn run_length(&self, i: usize, count: usize) -> u64 {
        let mut n = 1;
        while i + n < count.min(MAX_PAGES) && self.page(i + n) == self.page(i) + n as u64 * PAGE {
            n += 1;
        }
        n as u64
    }

    fn drop_recycled(&self) -> i64 {
        let shared = self.shared();
        let n = shared.recycled.load(Acquire);
        if n > 0 {
            sys::discard(self.recycle, n * PAGE);
        }
        shared.recycled.store(0, Release);
        n as i64
    }

    /// Makes 2 MiB of the program one page. The kernel does that in watched memory as long as
    /// nothing is missing there, so nothing has to be unwatched, which would cut the area in
    /// pieces that a later mremap stumbles over. Huge pages are allowed in the process for as long
    /// as it takes; should it end meanwhile, so does the process.
    fn collapse(&self, start: u64, fill: bool) -> i64 {
        const DENIED: i64 = -1;
        if self.shared().report.thp_before.load(Relaxed) != 0 {
            return DENIED;
        }
        let began = sys::cpu_ns();
        if fill {
            self.fill_holes(start);
        }
        sys::allow_huge_pages(true);
        let r = sys::madvise(start, HUGE_PAGE, COLLAPSE);
        sys::allow_huge_pages(false);
        if r < 0 { r } else { sys::cpu_ns() - began }
    }

    /// Puts zeroes where nothing is, as the program would see there. Pages of any colour do, as
    /// they are copied in a moment; where that fails the kernel refuses the superpage.
    fn fill_holes(&self, start: u64) {
        let mut page = start;
        while page < start + HUGE_PAGE {
            uffd::copy(self.serve_fd, page, self.zero, PAGE);
            page += PAGE;
        }
    }
}

/// Backs candidates that can be accessed.
pub fn back(start: u64, len: u64) -> i64 {
    sys::madvise(start, len, POPULATE_WRITE)
}

/// Runs the timing job.
pub fn time(shared: *mut Shared) -> i64 {
    // SAFETY: the supervisor does not touch the job while it is being run.
    let job = unsafe { &mut (*shared).timing };
    let [stream, rounds, offsets, passes, reload, prime, depth] = job.counts;
    let fits = stream as usize <= MAX_STREAM
        && rounds as usize <= MAX_ROUNDS
        && offsets as usize <= MAX_OFFSETS
        && reload as usize <= MAX_RELOAD
        && (depth <= 1 || depth <= offsets);
    if !fits {
        return -7;
    }
    let work = timing::TimedRounds {
        stream: job.stream.as_ptr(),
        rounds: job.rounds.as_ptr().cast(),
        round_count: rounds,
        offsets: job.offsets.as_ptr(),
        offset_count: offsets,
        passes,
        reload: job.reload.as_ptr(),
        reload_count: reload,
        prime,
        depth,
    };
    // SAFETY: counts were checked; addresses come from the supervisor, which lists only
    // pages of our own areas and of the reference object, all present.
    unsafe { timing::run(&work, job.latencies.as_mut_ptr()) };
    0
}
