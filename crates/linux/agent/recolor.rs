//! Recolouring: giving resident pages of the target other frames while it runs.
//!
//! A batch of pages is moved out to the recycling area, copied into frames of the stock, and
//! those are moved in where the pages were; the old frames stay where they are until somebody
//! looks at them. While pages are out, only this thread can bring
//! them back, so it never stops between the two moves but to hear what the program did
//! meanwhile: a forked child gets copies of the pages that were out, a remap changes where
//! they go, an unmap or a discard means that they are wanted no more. The agent is a thread
//! of the target, so whatever kills it kills the target with it: no page is ever left out.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::Moves;
use crate::bounds::uncut;
use crate::discarding::Discarding;
use crate::protocol::{BATCH_PAGES, MAX_RELOAD, RECYCLE_PAGES, Shared, WITHOUT_LOCKS, ZERO_PAGES};
use crate::sys::{self, PAGE};
use crate::uffd::{self, Message, Ours};
use crate::wiped::Areas;
use crate::worker;

const BATCH: usize = BATCH_PAGES as usize;
/// Tries of a move that the kernel answers "again" or "busy" without any event to hear.
const PATIENCE: u32 = 2000;

/// Where each page of a batch belongs; 0: nowhere any more.
type Homes = [u64; BATCH];

fn move_homes(homes: &mut Homes, from: u64, to: u64, len: u64) {
    for home in homes.iter_mut() {
        if *home >= from && *home < from.wrapping_add(len) {
            *home = home.wrapping_sub(from).wrapping_add(to);
        }
    }
}

fn drop_homes(homes: &mut Homes, start: u64, end: u64) {
    for home in homes.iter_mut() {
        if *home >= start && *home < end {
            *home = 0;
        }
    }
}

/// The pages that are out at this moment.
struct Out {
    /// Where each belongs; 0: nowhere any more.
    home: [u64; BATCH],
    count: usize,
    /// Where they are now, one after the other.
    place: u64,
}

pub struct Recolor {
    pub fd: i64,
    shared: *mut Shared,
    ring: u64,
    recycle: u64,
    zero: u64,
    out: Out,
    /// Contexts that are not in use.
    pub moves: Moves,
    /// Tells what a child must not get.
    pub areas: Areas,
    /// A page of ours whose protection is changed back and forth.
    barrier: u64,
    barrier_prot: u64,
    /// Stock slots are in use: faults must not take any.
    in_batch: bool,
    discarding: Discarding,
    /// Memory was unmapped or moved since the range was registered: what lies at a listed
    /// address now may be new and not watched, and could not be brought back. Whoever unmaps
    /// waits until we have heard of it, so nothing new can be there before.
    stale: bool,
    /// Something was remapped: its new place is still watched.
    moved: bool,
    /// Faults that could not be answered before an event that is still queued.
    deferred: [u64; 32],
    deferred_count: usize,
}

impl Recolor {
    pub fn new(
        mut moves: Moves,
        shared: *mut Shared,
        (ring, recycle, zero): (u64, u64, u64),
    ) -> Recolor {
        let fd = moves.take();
        let recolor = Recolor {
            fd,
            shared,
            ring,
            recycle,
            zero,
            out: Out { home: [0; BATCH], count: 0, place: recycle },
            moves,
            areas: Areas { fd: -1 },
            // The last of the pages of zeroes: nothing reads or writes it.
            barrier: zero + (ZERO_PAGES - 1) * PAGE,
            barrier_prot: 0,
            in_batch: false,
            discarding: Discarding::NONE,
            stale: false,
            moved: false,
            deferred: [0; 32],
            deferred_count: 0,
        };
        recolor.put_in_use();
        recolor
    }

    /// The recycling area is watched by the context in use, which pages are moved out by.
    fn put_in_use(&self) {
        let r = uffd::register(self.fd, self.recycle, RECYCLE_PAGES * PAGE);
        if r < 0 {
            self.shared().counters.note_unexpected(4, r);
        }
        self.tell_spares();
    }

    /// Says how many contexts are left.
    pub fn tell_spares(&self) {
        self.shared().counters.spares.store(self.moves.left(), Relaxed);
    }

    /// Ends all watching.
    pub fn close(&mut self) {
        sys::close(self.fd);
        self.fd = -1;
        self.moves.close();
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the shared memory lives as long as the agent; fields used are atomics.
        unsafe { &*self.shared }
    }

    fn home(&self, i: usize) -> u64 {
        // SAFETY: callers stay below BATCH.
        unsafe { *self.out.home.as_ptr().add(i) }
    }

    fn set_home(&mut self, i: usize, address: u64) {
        // SAFETY: callers stay below BATCH.
        unsafe { *self.out.home.as_mut_ptr().add(i) = address };
    }

    /// Recolours the first `count` listed pages, all within the range `[start, end)`, whose
    /// bounds are as `Faults::watch` wants them. `served` is the context that watches that range between
    /// recolourings, -1 if none does. `between` runs between batches. Returns the pages done; each page's
    /// errno is in the list of results.
    pub fn run(
        &mut self,
        count: usize,
        range: (u64, u64),
        served: i64,
        mut between: impl FnMut(),
    ) -> i64 {
        let began = (sys::now_ns(), sys::cpu_ns());
        let done = self.watching(range, served, |recolor| recolor.all(count, &mut between));
        let counters = &self.shared().counters;
        counters.recolor_ns.fetch_add((sys::now_ns() - began.0) as u64, Relaxed);
        counters.recolor_cpu_ns.fetch_add((sys::cpu_ns() - began.1) as u64, Relaxed);
        done
    }

    /// Does something while a range is watched by the context in use; or says why it cannot be.
    fn watching(
        &mut self,
        range: (u64, u64),
        served: i64,
        work: impl FnOnce(&mut Self) -> i64,
    ) -> i64 {
        if self.fd < 0 {
            self.renew();
        }
        let (start, end) = self.uncut(range);
        if start >= end {
            return sys::EAGAIN;
        }
        if served >= 0 {
            uffd::unregister(served, start, end - start);
        }
        self.stale = false;
        let mut done = uffd::register(self.fd, start, end - start);
        if done >= 0 {
            done = work(self);
            self.release(start, end);
        }
        if served >= 0 {
            let (start, end) = self.uncut((start, end));
            uffd::register(served, start, end.wrapping_sub(start));
        }
        done
    }

    fn uncut(&self, range: (u64, u64)) -> (u64, u64) {
        uncut(range, self.shared().setup.without)
    }

    /// Times loads of the first `count` listed pages, at most a batch, whose range and context are as in
    /// [`Self::run`]: takes them out, runs the timing job, and brings them back in the same frames. Whoever
    /// touches one waits as long. Each page's errno is in the list of results; the job has zeroes in place
    /// of those that did not come out.
    pub fn look(&mut self, count: usize, range: (u64, u64), served: i64) -> i64 {
        let began = sys::cpu_ns();
        let count = if count < BATCH { count } else { BATCH };
        let done = match self.shared().recycled.load(Relaxed) {
            0 => self.watching(range, served, |recolor| {
                recolor.in_batch = true;
                let taken = recolor.look_at(count);
                recolor.in_batch = false;
                taken
            }),
            _ => -105,
        };
        self.shared().counters.look_cpu_ns.fetch_add((sys::cpu_ns() - began) as u64, Relaxed);
        done
    }

    fn look_at(&mut self, count: usize) -> i64 {
        let lost = self.lost();
        self.out.place = self.recycle;
        if !self.is_clear(count as u64) {
            return sys::EAGAIN;
        }
        let mut i = 0;
        while i < count {
            self.set_home(i, 0);
            i += 1;
        }
        self.out.count = count;
        let (mut i, mut taken) = (0, 0);
        while i < count {
            let errno = self.take(i);
            self.set_results(i, 1, (-errno) as u32);
            taken += (errno == 0) as i64;
            i += 1;
        }
        if taken > 0 {
            self.name_zeroes(count);
            worker::time(self.shared);
        }
        self.move_in(self.out.place, count);
        if self.lost() != lost {
            // What the program wants no more is still here: the worker gives it back.
            self.shared().recycled.store(count as u64, Release);
        }
        taken
    }

    /// Pages that did not go back where they were.
    fn lost(&self) -> u64 {
        let counters = &self.shared().counters;
        counters.dropped.load(Relaxed) + counters.copied_back.load(Relaxed)
    }

    /// Takes listed page `i` out, to its place in the recycling area; an errno, or 0.
    fn take(&mut self, i: usize) -> i64 {
        let page = self.page(i);
        let ready = !self.stale && !self.discarding.touches(page, PAGE);
        if !ready || !uffd::is_watched(self.fd, page) {
            return sys::EAGAIN;
        }
        let to = self.out.place + i as u64 * PAGE;
        let (mut bytes, mut errno) =
            uffd::transfer(self.fd, to, page, PAGE, uffd::DONTWAKE, Ours::Target);
        if bytes == 0 && i == 0 && self.made_ready(errno) {
            (bytes, errno) = uffd::transfer(self.fd, to, page, PAGE, uffd::DONTWAKE, Ours::Target);
        }
        if bytes != PAGE {
            return if errno == 0 { sys::EAGAIN } else { errno };
        }
        self.set_home(i, page);
        0
    }

    /// The timing job names zeroes where it named pages that did not come out: nothing is there, and
    /// who looks would wait for us.
    fn name_zeroes(&mut self, count: usize) {
        // SAFETY: the supervisor does not touch the job while it is being run.
        let job = unsafe { &mut (*self.shared).timing };
        let lines = job.counts[4] as usize;
        let mut i = 0;
        while i < lines && i < MAX_RELOAD {
            // SAFETY: `i` is below MAX_RELOAD.
            let line = unsafe { &mut *job.reload.as_mut_ptr().add(i) };
            let page = (*line & !(PAGE - 1)).wrapping_sub(self.out.place) / PAGE;
            let absent =
                page < RECYCLE_PAGES && (page >= count as u64 || self.home(page as usize) == 0);
            if absent {
                *line = self.zero | (*line & (PAGE - 1));
            }
            i += 1;
        }
    }

    fn all(&mut self, count: usize, between: &mut impl FnMut()) -> i64 {
        let (mut i, mut total) = (0, 0);
        while i < count {
            let n = self.run_length(i, count);
            let (taken, errno) = self.batch(i, n);
            total += taken as i64;
            self.set_results(i, taken, 0);
            i += taken;
            if taken < n && errno != 0 {
                self.set_results(i, 1, (-errno) as u32);
                if errno == -105 {
                    // No stock or no room: the rest has to be asked for again.
                    self.set_results(i, count - i, 105);
                    break;
                }
                i += 1;
            }
            self.hear();
            between();
        }
        total
    }

    fn page(&self, i: usize) -> u64 {
        // SAFETY: callers stay below the list's length.
        unsafe { (*self.shared().main_pages.as_ptr().add(i)).load(Relaxed) }
    }

    fn set_results(&self, first: usize, n: usize, errno: u32) {
        let mut i = first;
        while i < first + n {
            // SAFETY: callers stay below the list's length.
            unsafe { (*self.shared().main_results.as_ptr().add(i)).store(errno, Relaxed) };
            i += 1;
        }
    }

    /// How many listed pages from `i` on follow each other in memory, at most a batch.
    fn run_length(&self, i: usize, count: usize) -> usize {
        let mut n = 1;
        while i + n < count && n < BATCH && self.page(i + n) == self.page(i) + n as u64 * PAGE {
            n += 1;
        }
        n
    }

    /// Recolours `n` pages that follow each other; returns how many came out, and why the
    /// next one did not. ENOBUFS (105) when stock or room for old frames ran out.
    fn batch(&mut self, first: usize, n: usize) -> (usize, i64) {
        if self.stale || self.discarding.touches(self.page(first), n as u64 * PAGE) {
            return (0, sys::EAGAIN);
        }
        let shared = self.shared();
        let head = shared.head.load(Relaxed);
        let slot = head & (shared.setup.ring_pages - 1);
        let have = shared.tail.load(Acquire) - head;
        let room = RECYCLE_PAGES - shared.recycled.load(Relaxed).min(RECYCLE_PAGES);
        let scarce = have.min(room);
        // The ring's end cuts a batch short, which is no scarcity.
        let limit = scarce.min(n as u64).min(shared.setup.ring_pages - slot);
        if limit == 0 {
            return (0, -105);
        }
        let start = self.page(first);
        // One look is enough: a batch never reaches beyond one area, and whoever unmaps a
        // watched one makes moves fail until we have heard of it.
        if !uffd::is_watched(self.fd, start) {
            return (0, sys::EAGAIN);
        }
        self.in_batch = true;
        let (taken, errno) = self.exchange(start, limit, self.ring + slot * PAGE);
        self.in_batch = false;
        if taken == 0 {
            return (0, errno);
        }
        let cut = taken as u64 == limit && limit < n as u64;
        (taken, if cut && limit == scarce { -105 } else { errno })
    }

    /// Moves up to so many pages out, their contents to the frames of the stock at `slots`, and those in where they
    /// were; how many were moved, and why not the next one.
    fn exchange(&mut self, start: u64, pages: u64, slots: u64) -> (usize, i64) {
        let began = sys::now_ns();
        let recycled = self.shared().recycled.load(Relaxed);
        self.out.place = self.recycle + recycled * PAGE;
        if !self.is_clear(pages) {
            return (0, sys::EAGAIN);
        }
        let (taken, errno) = self.move_out_ready(start, pages);
        if taken == 0 {
            return (0, errno);
        }
        self.wait_for_readers();
        // SAFETY: both areas are our own; `taken` pages are present in both.
        unsafe { copy_pages(slots, self.out.place, taken as u64) };
        self.move_in(slots, taken);
        let shared = self.shared();
        shared.counters.longest_out_ns.fetch_max((sys::now_ns() - began) as u64, Relaxed);
        shared.head.fetch_add(taken as u64, Release);
        shared.recycled.store(recycled + taken as u64, Release);
        (taken, errno)
    }

    /// Whether nothing lies where so many pages are to go out to. An mlockall of the program fills the recycling
    /// area; what it put there would pass for pages that were moved, and is given back first.
    fn is_clear(&self, pages: u64) -> bool {
        let bytes = pages * PAGE;
        sys::leading(self.out.place, bytes, false) == bytes || self.empty_recycling()
    }

    /// Whether what was in the way of a move was a lock on our areas, which is ended: an mlockall of the program
    /// locks all memory.
    fn made_ready(&self, errno: i64) -> bool {
        errno == sys::EINVAL && self.unlock() == 0
    }

    /// Ends the lock on stock and recycling area; a negated errno if that is not to be.
    pub fn unlock(&self) -> i64 {
        let setup = &self.shared().setup;
        if setup.without & WITHOUT_LOCKS != 0 {
            return sys::EPERM;
        }
        let r = sys::unlock(self.recycle, RECYCLE_PAGES * PAGE);
        if r < 0 { r } else { sys::unlock(self.ring, setup.ring_pages * PAGE) }
    }

    /// Gives back what lies behind the old frames. While it is watched, who gives pages back waits for us.
    fn empty_recycling(&self) -> bool {
        let (start, whole) = (self.out.place, RECYCLE_PAGES * PAGE);
        uffd::unregister(self.fd, self.recycle, whole);
        let r = sys::discard(start, self.recycle + whole - start);
        r >= 0 && uffd::register(self.fd, self.recycle, whole) >= 0
    }

    /// Waits until nobody works on the frames that are out through a reference taken before:
    /// `/proc/PID/mem` holds the lock of the address space for reading while it copies, so
    /// taking it once for writing (any change of a mapping does) outlasts such a copy. Later
    /// ones find the page missing and wait for us.
    fn wait_for_readers(&mut self) {
        const READ: u64 = 1;
        self.barrier_prot ^= 2;
        sys::call3(10, self.barrier, PAGE, READ | self.barrier_prot);
    }

    /// Takes pages out; what of our own is in the way is cleared once.
    fn move_out_ready(&mut self, start: u64, pages: u64) -> (usize, i64) {
        match self.move_out(start, pages) {
            (0, errno) if self.made_ready(errno) => self.move_out(start, pages),
            moved => moved,
        }
    }

    /// Takes pages out of the target; from here on they are ours to bring back.
    fn move_out(&mut self, start: u64, pages: u64) -> (usize, i64) {
        let mut taken = 0u64;
        let mut tries = 0;
        loop {
            let (bytes, errno) = uffd::transfer(
                self.fd,
                self.out.place + taken * PAGE,
                start + taken * PAGE,
                (pages - taken) * PAGE,
                uffd::DONTWAKE,
                Ours::Target,
            );
            let mut i = 0;
            while i < bytes / PAGE {
                self.set_home((taken + i) as usize, start + (taken + i) * PAGE);
                i += 1;
            }
            taken += bytes / PAGE;
            self.out.count = taken as usize;
            tries += 1;
            // Having something out, do not linger: bring it back, the rest comes next.
            if taken == pages || taken > 0 || errno != sys::EAGAIN || tries > 50 {
                return (taken as usize, errno);
            }
            self.hear();
            if self.stale || self.discarding.touches(start, pages * PAGE) {
                return (0, sys::EAGAIN);
            }
        }
    }

    /// Brings every page that is out and still wanted back, in the frames at `slots`: those of the stock, or
    /// where they are out.
    fn move_in(&mut self, slots: u64, n: usize) {
        let (mut i, mut tries) = (0, 0);
        while i < n {
            let home = self.home(i);
            if home == 0 {
                self.give_back(slots, i);
                i += 1;
                continue;
            }
            let mut run = 1;
            while i + run < n && self.home(i + run) == home + run as u64 * PAGE {
                run += 1;
            }
            let from = slots + i as u64 * PAGE;
            let (bytes, errno) =
                uffd::transfer(self.fd, home, from, run as u64 * PAGE, 0, Ours::Source);
            let moved = (bytes / PAGE) as usize;
            self.landed(i, moved);
            if slots != self.out.place {
                self.shared().counters.recolored.fetch_add(moved as u64, Relaxed);
            }
            i += moved;
            if errno == 0 || moved > 0 {
                tries = 0;
                continue;
            }
            tries += 1;
            self.hear();
            if self.home(i) == home && (tries > PATIENCE || !transient(errno)) {
                self.copy_in(i, errno);
                self.give_back(slots, i);
                i += 1;
                tries = 0;
            }
        }
        self.out.count = 0;
        self.answer_deferred();
    }

    fn landed(&mut self, first: usize, n: usize) {
        let mut i = first;
        while i < first + n {
            self.set_home(i, 0);
            i += 1;
        }
    }

    /// A frame of the stock that is not wanted stays in the stock's past. In the recycling area only the
    /// worker may give pages back: it waits for us to hear of it.
    fn give_back(&self, slots: u64, i: usize) {
        if slots != self.out.place {
            sys::discard(slots + i as u64 * PAGE, PAGE);
        }
    }

    /// The area changed so that our frame no longer fits (protection, lock): the content
    /// goes back in a frame of the kernel's choice. Never gives up while it is wanted.
    fn copy_in(&mut self, i: usize, why: i64) {
        let mut tries = 0u32;
        loop {
            let home = self.home(i);
            if home == 0 {
                return;
            }
            let from = self.out.place + i as u64 * PAGE;
            let (bytes, errno) = uffd::copy(self.fd, home, from, PAGE);
            if bytes == PAGE {
                self.set_home(i, 0);
                self.shared().counters.copied_back.fetch_add(1, Relaxed);
                return;
            }
            tries += 1;
            self.hear();
            let gone = errno == sys::ENOENT || errno == sys::ESRCH || errno == sys::EEXIST;
            if gone && tries > 3 && self.home(i) == home {
                // Nothing of ours is mapped there any more: the program replaced it. Whoever
                // waits for it only has to look again.
                self.set_home(i, 0);
                uffd::wake(self.fd, home, PAGE);
                self.shared().counters.dropped.fetch_add(1, Relaxed);
                if errno == sys::EEXIST {
                    self.shared().counters.note_unexpected(2, why);
                }
                return;
            }
            if tries > 100 {
                sys::sleep_us(50);
            }
        }
    }

    /// Ends our watch over the range and over wherever parts of it were moved.
    /// Where an area has grown across an end meanwhile, closing the context leaves it whole.
    fn release(&mut self, start: u64, end: u64) {
        let whole = self.uncut((start, end)) == (start, end);
        let r = if whole { uffd::unregister(self.fd, start, end - start) } else { sys::EAGAIN };
        self.hear();
        if r < 0 || self.moved {
            self.renew();
        }
    }

    /// Parts of the range were replaced or moved, so that we cannot name what we still watch:
    /// closing the context ends all of it, and a spare one starts clean. Without any nothing is
    /// recoloured until the supervisor has started another agent.
    fn renew(&mut self) {
        sys::close(self.fd);
        self.fd = self.moves.take();
        self.moved = false;
        self.tell_spares();
        if self.fd >= 0 {
            self.put_in_use();
        }
    }

    /// Hears and acts on everything the program did in watched memory since the last time.
    pub fn hear(&mut self) {
        loop {
            let mut message = Message::EMPTY;
            let r = sys::read(self.fd, (&raw mut message).cast(), size_of::<Message>());
            if r != size_of::<Message>() as i64 {
                break;
            }
            self.handle(&message);
        }
        self.answer_deferred();
    }

    fn handle(&mut self, message: &Message) {
        let [a, b, c] = message.args;
        if message.event != uffd::EVENT_PAGEFAULT {
            self.shared().counters.events.fetch_add(1, Relaxed);
        }
        match message.event {
            uffd::EVENT_PAGEFAULT => self.fault(b & !(PAGE - 1)),
            uffd::EVENT_FORK => self.forked((a & 0xffff_ffff) as i64),
            uffd::EVENT_REMAP => {
                self.stale = true;
                self.remapped(a, b, c);
            }
            // The worker gives old frames back.
            uffd::EVENT_REMOVE if a == self.recycle => {}
            uffd::EVENT_REMOVE => {
                self.discarding.add(a, b);
                self.removed(a, b);
            }
            uffd::EVENT_UNMAP => {
                self.stale = true;
                self.removed(a, b);
            }
            _ => {}
        }
    }

    /// The child has holes exactly where pages are out now.
    fn forked(&mut self, child: i64) {
        let mut kept = self.out.home;
        if self.out.count > 0 {
            let known = self.out.count;
            self.areas.wiped(|start, end| {
                for home in kept.iter_mut().take(known) {
                    if start <= *home && *home < end {
                        *home = 0;
                    }
                }
            });
        }
        self.give_all(child, &mut kept, 0);
        // The child's memory is watched by this descriptor; closing it ends that.
        sys::close(child);
    }

    /// A child gets copies of the pages that are out, at the places that are still its own.
    fn give_all(&self, child: i64, homes: &mut Homes, depth: u32) {
        let mut i = 0;
        while i < self.out.count {
            self.give(child, homes, i, depth);
            i += 1;
        }
    }

    /// A child gets a copy of page `i`. It waits where it touches the page before it has it. When there
    /// is no memory for long, it gets a page whose use ends it: never one of zeroes.
    fn give(&self, child: i64, homes: &mut Homes, i: usize, depth: u32) {
        const PATIENCE_NS: i64 = 1_000_000_000;
        let counters = &self.shared().counters;
        let from = self.out.place + i as u64 * PAGE;
        let start = sys::now_ns();
        loop {
            // SAFETY: callers stay below BATCH.
            let home = unsafe { *homes.as_ptr().add(i) };
            if home == 0 {
                return;
            }
            let (bytes, errno) = uffd::copy(child, home, from, PAGE);
            if bytes == PAGE {
                counters.child_copies.fetch_add(1, Relaxed);
                return;
            }
            match errno {
                // It has a page there, or has unmapped the place, or has ended.
                sys::EEXIST | sys::ENOENT | sys::ESRCH => return,
                // It changes its memory, or forks, and waits for us to know.
                sys::EAGAIN => self.hear_child(child, homes, i, depth),
                _ => sys::sleep_us(200),
            }
            if sys::now_ns() - start > PATIENCE_NS {
                match uffd::poison(child, home) {
                    0.. => _ = counters.poisoned.fetch_add(1, Relaxed),
                    sys::ENOMEM | sys::EAGAIN => continue,
                    _ => counters.note_unexpected(5, errno),
                }
                return;
            }
        }
    }

    /// Hears what a child did before it had all of its pages: those from `first` on.
    fn hear_child(&self, child: i64, homes: &mut Homes, first: usize, depth: u32) {
        let mut message = Message::EMPTY;
        let whole = size_of::<Message>() as i64;
        while sys::read(child, (&raw mut message).cast(), size_of::<Message>()) == whole {
            let [a, b, c] = message.args;
            match message.event {
                uffd::EVENT_FORK => {
                    self.child_forked((a & 0xffff_ffff) as i64, homes, first, depth)
                }
                uffd::EVENT_REMAP => move_homes(homes, a, b, c),
                uffd::EVENT_REMOVE | uffd::EVENT_UNMAP => drop_homes(homes, a, b),
                _ => {}
            }
        }
    }

    /// A child of a child has the holes that its parent still had.
    fn child_forked(&self, child: i64, homes: &Homes, first: usize, depth: u32) {
        /// More generations than this that all fork in the middle of a batch get no copies, and that is
        /// counted: each takes some of our stack.
        const DEEPEST: u32 = 8;
        if depth >= DEEPEST {
            self.shared().counters.note_unexpected(6, 0);
        } else {
            let mut rest = *homes;
            for home in rest.iter_mut().take(first) {
                *home = 0;
            }
            self.give_all(child, &mut rest, depth + 1);
        }
        sys::close(child);
    }

    fn remapped(&mut self, from: u64, to: u64, len: u64) {
        let mut i = 0;
        while i < self.out.count {
            let home = self.home(i);
            if home != 0 && home >= from && home < from + len {
                self.set_home(i, home - from + to);
                // Whoever waits at the old place has nothing to wait for any more.
                uffd::wake(self.fd, home, PAGE);
            }
            i += 1;
        }
        self.moved = true;
    }

    fn removed(&mut self, start: u64, end: u64) {
        let mut i = 0;
        while i < self.out.count {
            let home = self.home(i);
            if home != 0 && home >= start && home < end {
                self.set_home(i, 0);
                uffd::wake(self.fd, home, PAGE);
                self.shared().counters.dropped.fetch_add(1, Relaxed);
            }
            i += 1;
        }
    }

    fn is_out(&self, address: u64) -> bool {
        let mut i = 0;
        while i < self.out.count {
            if self.home(i) == address {
                return true;
            }
            i += 1;
        }
        false
    }

    /// A page that is out answers its own fault when it comes back; any other missing page
    /// is a new one.
    fn fault(&mut self, address: u64) {
        if self.is_out(address) {
            return;
        }
        let own = self.recycle <= address && address < self.recycle + RECYCLE_PAGES * PAGE;
        if own && self.in_batch && self.defer(address) {
            // Pages of a batch go where an mlockall of the program reaches for.
            return;
        }
        if !own && !self.in_batch && self.place_stock(address) {
            return;
        }
        let (bytes, errno) = uffd::copy(self.fd, address, self.zero, PAGE);
        if bytes == PAGE {
            self.shared().counters.fallback.fetch_add(1, Relaxed);
        } else if errno != sys::EAGAIN || !self.defer(address) {
            // Unless an event is queued that may say where this page belongs.
            uffd::wake(self.fd, address, PAGE);
        }
    }

    /// Answers a fault later, if there is room to remember it.
    fn defer(&mut self, address: u64) -> bool {
        let room = self.deferred_count < 32;
        if room {
            // SAFETY: `deferred_count` is below 32.
            unsafe { *self.deferred.as_mut_ptr().add(self.deferred_count) = address };
            self.deferred_count += 1;
        }
        room
    }

    /// One page of stock for a new page; only while no batch is using the stock.
    fn place_stock(&mut self, address: u64) -> bool {
        let shared = self.shared();
        let head = shared.head.load(Relaxed);
        if shared.tail.load(Acquire) == head {
            return false;
        }
        let from = self.ring + (head & (shared.setup.ring_pages - 1)) * PAGE;
        let (bytes, _) = uffd::transfer(self.fd, address, from, PAGE, 0, Ours::Source);
        if bytes == PAGE {
            shared.head.store(head + 1, Release);
            shared.counters.placed.fetch_add(1, Relaxed);
        }
        bytes == PAGE
    }

    /// True while a fault waits for the program's own call to end.
    pub fn has_deferred(&self) -> bool {
        self.deferred_count > 0
    }

    fn answer_deferred(&mut self) {
        let n = self.deferred_count;
        self.deferred_count = 0;
        let mut i = 0;
        while i < n {
            // SAFETY: `i` is below 32.
            let address = unsafe { *self.deferred.as_ptr().add(i) };
            self.fault(address);
            i += 1;
        }
    }
}

fn transient(errno: i64) -> bool {
    errno == sys::EAGAIN || errno == sys::EBUSY
}

/// Copies pages that are in no cache of this CPU, as a rule, from and to: fetching both sides
/// ahead takes a fifth less time than the processor's string copy.
///
/// # Safety
/// Both ranges must be mapped, present and ours.
unsafe fn copy_pages(to: u64, from: u64, pages: u64) {
    // SAFETY: the caller vouches for both ranges, which are aligned to pages; prefetches beyond
    // them fetch nothing or what is not used.
    unsafe {
        core::arch::asm!(
            "2:",
            "prefetcht0 [rsi + 1024]",
            "prefetchw [rdi + 1024]",
            "movdqa xmm0, [rsi]",
            "movdqa xmm1, [rsi + 16]",
            "movdqa xmm2, [rsi + 32]",
            "movdqa xmm3, [rsi + 48]",
            "movdqa [rdi], xmm0",
            "movdqa [rdi + 16], xmm1",
            "movdqa [rdi + 32], xmm2",
            "movdqa [rdi + 48], xmm3",
            "add rsi, 64",
            "add rdi, 64",
            "dec rcx",
            "jnz 2b",
            inout("rdi") to => _, inout("rsi") from => _, inout("rcx") pages * (PAGE / 64) => _,
            out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
            options(nostack),
        );
    }
}
