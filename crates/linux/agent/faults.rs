//! Serving the missing pages of the target from the stock.
//!
//! The stock is a ring of pages that rotates over the allowed colours, so placing a run of
//! its slots in order hands colours out round-robin with one system call.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::bounds::uncut;
use crate::protocol::{AREA_DOWN, AreaEntry, MAX_AREAS, MAX_PAGES, Shared, WITHOUT_LOCKS};
use crate::sys::{self, PAGE};
use crate::uffd::{self, Message, Ours};

/// Most faults that wait for stock at once; more are answered from any colour.
const WAITING: usize = 256;
/// Pages placed around a fault that continues no run.
const FIRST_WINDOW: u64 = 4;
/// How much further each fault of a run reaches than the one before.
const GROWTH: u64 = 4;
/// Bytes around a fault in an area of unknown bounds that are taken to belong to it.
const UNKNOWN: u64 = 64 << 10;
/// Runs that are followed at a time: threads and allocators fill several places in turn.
const RUNS: usize = 32;

/// Memory that is being filled from one end to the other.
#[derive(Clone, Copy)]
struct Run {
    /// Where it began.
    base: u64,
    /// Up to where pages were placed.
    next: u64,
    /// Pages placed by the last fault.
    window: u64,
}

impl Run {
    /// Whether a fault continues the run, or happens in what it had filled once before: memory
    /// that was full will most likely be full again.
    fn covers(&self, address: u64) -> bool {
        self.base <= address && address < self.next + self.window * PAGE
    }
}

pub struct Faults {
    pub fd: i64,
    shared: *mut Shared,
    ring: u64,
    table: *mut AreaEntry,
    count: usize,
    /// A page of zeroes to copy from when the stock is empty.
    zero: u64,
    waiting: [u64; WAITING],
    waits: usize,
    runs: [Run; RUNS],
    /// Which run makes way for a new one.
    oldest: usize,
}

impl Faults {
    /// `zero` must be the address of 16 pages that are always zero.
    pub fn new(fd: i64, shared: *mut Shared, ring: u64, zero: u64) -> Faults {
        // SAFETY: the table is part of the shared memory, which lives as long as the agent.
        let table = unsafe { (&raw mut (*shared).areas).cast::<AreaEntry>() };
        Faults {
            fd,
            shared,
            ring,
            table,
            count: 0,
            zero,
            waiting: [0; WAITING],
            waits: 0,
            runs: [Run { base: 0, next: 0, window: 0 }; RUNS],
            oldest: 0,
        }
    }

    fn shared(&self) -> &Shared {
        // SAFETY: see `new`; all fields used through this reference are atomics.
        unsafe { &*self.shared }
    }

    /// Takes over table `which` of `count` areas: it bounds what is placed around a fault.
    pub fn take_table(&mut self, which: u64, count: u64) {
        // SAFETY: there are two tables of MAX_AREAS entries; both numbers are bounded here.
        self.table = unsafe {
            (&raw mut (*self.shared).areas)
                .cast::<AreaEntry>()
                .add((which & 1) as usize * MAX_AREAS)
        };
        self.count = (count as usize).min(MAX_AREAS);
    }

    /// Watches the `count` listed ranges from now on; returns how many were refused. A range
    /// reaches from one mapping that is never watched to the next, so that its bounds cannot
    /// fall into the middle of an area that the program changes at this moment: that would
    /// split the area, and a later mremap of it would fail. Areas that have come to lie across one since are
    /// left out.
    pub fn watch(&self, count: u64) -> i64 {
        self.each_listed(count, |start, len| self.watch_range(start, len))
    }

    /// The same; returns how many another userfaultfd has registered a part of. The kernel refuses a range
    /// for other reasons, too: the program may have unmapped it since it was looked up.
    pub fn watch_unless_taken(&self, count: u64) -> i64 {
        self.each_listed(count, |start, len| match self.watch_range(start, len) {
            sys::EBUSY => sys::EBUSY,
            _ => 0,
        })
    }

    fn watch_range(&self, start: u64, len: u64) -> i64 {
        let (start, end) = uncut((start, start.wrapping_add(len)), self.shared().setup.without);
        if start < end { uffd::register(self.fd, start, end - start) } else { sys::EAGAIN }
    }

    /// Watches the `count` listed ranges no longer; returns how many were refused.
    pub fn unwatch(&self, count: u64) -> i64 {
        self.each_listed(count, |start, len| uffd::unregister(self.fd, start, len))
    }

    /// How many of the `count` listed ranges `act` fails for.
    fn each_listed(&self, count: u64, act: impl Fn(u64, u64) -> i64) -> i64 {
        let mut refused = 0;
        let mut i = 0;
        while i < count.min(MAX_PAGES as u64 / 2) {
            let list = self.shared().main_pages.as_ptr();
            // SAFETY: both places are within the list.
            let (start, end) = unsafe {
                let at = list.add(2 * i as usize);
                ((*at).load(Relaxed), (*at.add(1)).load(Relaxed))
            };
            if act(start, end.wrapping_sub(start)) < 0 {
                refused += 1;
            }
            i += 1;
        }
        refused
    }

    /// The area that holds `address`.
    fn find(&self, address: u64) -> *mut AreaEntry {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            // SAFETY: `middle` is below the bounded count.
            let entry = unsafe { self.table.add(middle) };
            // SAFETY: as above; the supervisor writes only the table that is not in use.
            let (start, end) = unsafe { ((*entry).start, (*entry).end) };
            if address < start {
                high = middle;
            } else if address >= end {
                low = middle + 1;
            } else {
                return entry;
            }
        }
        core::ptr::null_mut()
    }

    /// Answers every fault that is queued now; whether there was any.
    pub fn serve(&mut self) -> bool {
        self.retry_waiting();
        let mut any = false;
        loop {
            let mut messages = [Message::EMPTY; 16];
            let n = sys::read(self.fd, messages.as_mut_ptr().cast(), size_of::<Message>() * 16);
            if n <= 0 {
                return any;
            }
            any = true;
            let count = n as usize / size_of::<Message>();
            let mut i = 0;
            while i < count && i < 16 {
                // SAFETY: `i` is below 16.
                let message = unsafe { &*messages.as_ptr().add(i) };
                if message.event == uffd::EVENT_PAGEFAULT {
                    self.shared().counters.faults.fetch_add(1, Relaxed);
                    self.answer(message.args[1] & !(PAGE - 1));
                }
                i += 1;
            }
        }
    }

    /// True while faults wait for stock.
    pub fn has_waiting(&self) -> bool {
        self.waits > 0
    }

    fn retry_waiting(&mut self) {
        let n = self.waits;
        self.waits = 0;
        let mut i = 0;
        while i < n {
            // SAFETY: `i` is below `waits`, at most WAITING.
            let address = unsafe { *self.waiting.as_ptr().add(i) };
            self.answer(address);
            i += 1;
        }
    }

    /// Puts the faulting page in place first: a run may stop early at a page that is there.
    fn answer(&mut self, address: u64) {
        let area = self.find(address);
        let (to, pages) = self.window(area, address);
        if to == address {
            if !self.place(address, pages) && !(pages > 1 && self.place(address, 1)) {
                self.no_stock(address);
            }
        } else if self.place(address, 1) {
            self.place(to, pages - 1);
        } else {
            self.no_stock(address);
        }
    }

    /// The pages to place around a fault: the more the longer its run is.
    fn window(&mut self, area: *mut AreaEntry, address: u64) -> (u64, u64) {
        let most = self.shared().fault_around.load(Relaxed).max(1);
        // An area that is new: what reaches beyond its end is refused and tried page by page.
        let (mut start, mut end) = (address & !(UNKNOWN - 1), (address | (UNKNOWN - 1)) + 1);
        if !area.is_null() {
            // SAFETY: `find` returned an entry of the table in use; only this thread changes
            // `next` and `window` of it.
            let area = unsafe { &mut *area };
            if area.flags & AREA_DOWN != 0 {
                return below(area, address, most);
            }
            (start, end) = (area.start, area.end);
        }
        let run = self.run_at(address, start);
        let wanted = if run.window == 0 { FIRST_WINDOW } else { run.window * GROWTH };
        run.window = wanted.min(most);
        let pages = run.window.min((end - address) / PAGE).max(1);
        run.next = run.next.max(address + pages * PAGE);
        (address, pages)
    }

    /// The run that a fault in the area from `start` on belongs to, or a new one with no window.
    fn run_at(&mut self, address: u64, start: u64) -> &mut Run {
        let mut i = 0;
        while i < RUNS {
            // SAFETY: `i` is below RUNS.
            let run = unsafe { &*self.runs.as_ptr().add(i) };
            if run.base >= start && run.covers(address) {
                break;
            }
            i += 1;
        }
        let fresh = i == RUNS;
        if fresh {
            i = self.oldest;
            self.oldest = (i + 1) & (RUNS - 1);
        }
        // SAFETY: `i` is below RUNS: of the loop, or `oldest`, which is kept so.
        let run = unsafe { &mut *self.runs.as_mut_ptr().add(i) };
        if fresh {
            *run = Run { base: address, next: address, window: 0 };
        }
        run
    }

    /// Moves `pages` pages of stock to `to`; true when at least the first one is in place.
    fn place(&mut self, to: u64, pages: u64) -> bool {
        let shared = self.shared();
        let mut tries = 0;
        let mut done = 0;
        while done < pages {
            let head = shared.head.load(Relaxed);
            let have = shared.tail.load(Acquire) - head;
            let slot = head & (shared.setup.ring_pages - 1);
            let n = (pages - done).min(have).min(shared.setup.ring_pages - slot);
            if n == 0 {
                break;
            }
            let (moved, errno) = self.move_slots(head, n, to + done * PAGE);
            done += moved;
            if errno == 0 || (errno == sys::EAGAIN && moved > 0) {
                continue;
            }
            tries += 1;
            if (errno == sys::EAGAIN && tries < 200) || self.passed_hole(errno, head + moved) {
                continue;
            }
            if errno == sys::EINVAL && tries == 1 && self.unlock_stock() {
                continue;
            }
            if errno == sys::EEXIST || errno == sys::ENOENT || errno == sys::ESRCH {
                // Somebody else placed it, and whoever waits there only has to look again; or the area is gone
                // or no longer ours, and the kernel takes over.
                uffd::wake(self.fd, to + done * PAGE, PAGE);
                return true;
            }
            break;
        }
        done > 0
    }

    /// Moves `n` pages of stock, which lie in a row from `head` on, to `to`; how many were, and the errno.
    fn move_slots(&self, head: u64, n: u64, to: u64) -> (u64, i64) {
        let shared = self.shared();
        let from = self.slot_address(head);
        let (bytes, errno) = uffd::transfer(self.fd, to, from, n * PAGE, 0, Ours::Source);
        let moved = bytes / PAGE;
        shared.head.store(head + moved, Release);
        shared.counters.placed.fetch_add(moved, Relaxed);
        (moved, errno)
    }

    /// Pages move only between memory that is locked and memory that is, or neither: the program may have
    /// locked all that there was, and ours with it.
    fn unlock_stock(&self) -> bool {
        let setup = &self.shared().setup;
        setup.without & WITHOUT_LOCKS == 0 && sys::unlock(self.ring, setup.ring_pages * PAGE) == 0
    }

    /// Whether the move failed at a slot without a page, which no stock should have: the next one will do.
    fn passed_hole(&self, errno: i64, head: u64) -> bool {
        let is_hole =
            errno == sys::ENOENT && sys::leading(self.slot_address(head), PAGE, false) == PAGE;
        if is_hole {
            let shared = self.shared();
            shared.head.store(head + 1, Release);
            shared.counters.note_unexpected(3, errno);
        }
        is_hole
    }

    fn slot_address(&self, head: u64) -> u64 {
        self.ring + (head & (self.shared().setup.ring_pages - 1)) * PAGE
    }

    /// The stock is empty (or unusable for this page): wait, or take any colour.
    fn no_stock(&mut self, address: u64) {
        let shared = self.shared();
        let empty = shared.tail.load(Acquire) == shared.head.load(Relaxed);
        if empty && shared.strict.load(Relaxed) != 0 && self.waits < WAITING {
            shared.counters.waited.fetch_add(1, Relaxed);
            // SAFETY: `waits` is below WAITING.
            unsafe { *self.waiting.as_mut_ptr().add(self.waits) = address };
            self.waits += 1;
            return;
        }
        if self.any_color(address, self.room(address)) || self.any_color(address, 1) {
            return;
        }
        uffd::wake(self.fd, address, PAGE);
    }

    /// Pages from `address` to the end of its area as far as is known, at most 16.
    fn room(&self, address: u64) -> u64 {
        let area = self.find(address);
        if area.is_null() {
            return 1;
        }
        // SAFETY: an entry of the table in use.
        unsafe { ((*area).end - address) / PAGE }.clamp(1, 16)
    }

    /// Fills missing pages with zeroes in frames of the kernel's choice. False when not even
    /// the first was filled: the table may be older than the area's end, and a range that
    /// reaches beyond it is refused as a whole.
    fn any_color(&self, address: u64, pages: u64) -> bool {
        let counters = &self.shared().counters;
        let (bytes, errno) = uffd::copy(self.fd, address, self.zero, pages * PAGE);
        counters.fallback.fetch_add(bytes / PAGE, Relaxed);
        if bytes == 0 && errno != sys::EEXIST && errno != sys::ENOENT && errno != sys::ESRCH {
            counters.note_unexpected(1, errno);
        }
        bytes > 0
    }
}

/// The pages to place below a fault in an area that grows down, such as a stack.
fn below(area: &mut AreaEntry, address: u64, most: u64) -> (u64, u64) {
    let follows = area.next == address && area.window > 0;
    let wanted = if follows { area.window * GROWTH } else { FIRST_WINDOW };
    area.window = wanted.min(most);
    let pages = area.window.min((address - area.start) / PAGE + 1);
    let to = address - (pages - 1) * PAGE;
    area.next = to.wrapping_sub(PAGE);
    (to, pages)
}
