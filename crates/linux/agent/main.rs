//! The agent: two threads of ours inside a target process.
//!
//! It is a freestanding, position-independent blob without libc, built by the build script of
//! `huepage-linux` and started by `inject`. The first thread answers page faults and recolours;
//! the second (`worker`) backs, times and stocks frames. Being threads of the target they see
//! its memory as it does, die when it dies or executes another program, and cannot be killed
//! without it. When the supervisor goes away, for whatever reason, the agent leaves too.
#![no_std]
#![no_main]

mod ahead;
mod bounds;
mod discarding;
mod faults;
#[allow(dead_code)]
mod protocol;
mod recolor;
mod sandbox;
mod smaps;
mod sys;
#[path = "../src/color/probe/timing.rs"]
#[allow(dead_code)]
mod timing;
mod uffd;
mod wiped;
mod worker;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use ahead::BackingAhead;
use faults::Faults;
use protocol::{
    MAX_FDS, MOVE_CONTEXTS, RECYCLE_PAGES, SERVE_FEATURES, STACK_BYTES, STOCK_FEATURES, Shared,
    WITHOUT_LOCKS, ZERO_PAGES, op, say, step,
};
use recolor::Recolor;
use sys::PAGE;
use wiped::Areas;
use worker::Worker;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    sys::exit()
}

/// Where the loader jumps to, with the control socket in `rdi`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.entry")]
extern "C" fn agent_entry() -> ! {
    core::arch::naked_asm!("xor ebp, ebp", "and rsp, -16", "call {main}", "ud2", main = sym main_thread)
}

const READ: u64 = 1;
const READ_WRITE: u64 = 3;
const SHARED_MAP: u64 = 1;
/// Private, anonymous, no reservation.
const OWN_MAP: u64 = 2 | 0x20 | 0x4000;
/// No access.
const NONE: u64 = 0;
const DONTNEED: u64 = 4;
const DONTFORK: u64 = 10;
const NOHUGEPAGE: u64 = 15;
const DONTDUMP: u64 = 16;

/// Everything the threads use; lies on the first thread's stack.
struct Agent {
    socket: i64,
    areas: i64,
    device: i64,
    shared: *mut Shared,
    ring: u64,
    candidates: u64,
    recycle: u64,
    zero: u64,
    reference: u64,
    /// Descriptor of the reference object until it is mapped.
    reference_fd: i64,
    serve: i64,
    stock: i64,
    moves: Moves,
    /// The program has all its new memory locked.
    new_is_locked: bool,
    /// Huge pages are forbidden in the program because of us.
    forbade_huge: bool,
}

/// Contexts for recolouring: the last one is in use. -1 where there is none.
#[derive(Clone, Copy)]
pub struct Moves {
    fds: [i32; MOVE_CONTEXTS],
    count: usize,
}

impl Moves {
    const NONE: Moves = Moves { fds: [-1; MOVE_CONTEXTS], count: 0 };

    /// Takes a context out; -1 when there is none.
    pub fn take(&mut self) -> i64 {
        if self.count == 0 {
            return -1;
        }
        self.count -= 1;
        // SAFETY: `count` was at most the length.
        i64::from(unsafe { *self.fds.as_ptr().add(self.count) })
    }

    pub fn left(&self) -> u64 {
        self.count as u64
    }

    /// Makes contexts until there are as many as fit, and has the supervisor set them up. A negated
    /// errno when that failed; those from before are left then.
    fn make(&mut self, device: i64, socket: i64) -> i64 {
        let before = self.count;
        let mut fresh = [-1; MAX_FDS];
        while self.count < MOVE_CONTEXTS {
            let fd = uffd::create(device);
            if fd < 0 {
                self.close_to(before);
                return fd;
            }
            // SAFETY: both places are below MOVE_CONTEXTS, which is at most MAX_FDS.
            unsafe {
                *self.fds.as_mut_ptr().add(self.count) = fd as i32;
                *fresh.as_mut_ptr().add(self.count - before) = fd as i32;
            }
            self.count += 1;
        }
        let mut r = sys::send_fds(socket, say::CONTEXTS, &fresh, self.count - before);
        if r >= 0 {
            r = wait_for_grant(socket);
        }
        if r < 0 {
            self.close_to(before);
        }
        r
    }

    /// Closes the newest ones until `left` are left.
    fn close_to(&mut self, left: usize) {
        while self.count > left {
            sys::close(self.take());
        }
    }

    fn close(&mut self) {
        self.close_to(0);
    }
}

/// Waits until the supervisor has set the contexts up; commands cannot come before.
fn wait_for_grant(socket: i64) -> i64 {
    let mut byte = 0u8;
    loop {
        let n = sys::read(socket, &raw mut byte, 1);
        if n == 1 && byte == say::GRANTED {
            return 0;
        }
        if n == 1 || (n < 0 && n != sys::EINTR) {
            return sys::EPERM;
        }
        if n == 0 {
            return sys::EPIPE;
        }
    }
}

extern "C" fn main_thread(socket: i64) -> ! {
    sys::prctl(15, c"huepage-agent".as_ptr() as u64);
    // Our own working directory must not keep a file system busy.
    sys::call3(80, c"/".as_ptr() as u64, 0, 0);
    // Descriptors of the program that came along are not ours to hold open.
    if socket > 0 {
        sys::call3(436, 0, socket as u64 - 1, 0);
    }
    sys::call3(436, socket as u64 + 1, u64::from(u32::MAX), 0);
    let Some((shared, fds, count)) = receive_shared(socket) else { sys::exit() };
    let mut agent = Agent::new(socket, shared, fds, count);
    let outcome = agent.start();
    // SAFETY: mapped above.
    let report = unsafe { &(*shared).report };
    if outcome < 0 {
        report.state.store(outcome, Release);
        sys::send_byte(socket, say::FAILED);
        agent.leave()
    }
    agent.serve_until_told();
    report.state.store(2, Release);
    agent.leave()
}

/// Receives the first message and maps the shared memory that came with it.
fn receive_shared(socket: i64) -> Option<(*mut Shared, sys::Fds, usize)> {
    let mut buffer = [0u8; 16];
    let mut fds = [-1i32; MAX_FDS];
    let (n, count) = sys::receive_fds(socket, &mut buffer, &mut fds);
    if n < 8 || count < 1 {
        return None;
    }
    let bytes = u64::from_ne_bytes([
        buffer[0], buffer[1], buffer[2], buffer[3], buffer[4], buffer[5], buffer[6], buffer[7],
    ]);
    let at = sys::mmap(bytes, READ_WRITE, SHARED_MAP, i64::from(fds[0]));
    sys::close(i64::from(fds[0]));
    (at >= 0).then_some((at as *mut Shared, fds, count))
}

impl Agent {
    /// What came with the first message, in the order of `SENT_…`.
    fn new(socket: i64, shared: *mut Shared, fds: sys::Fds, count: usize) -> Agent {
        // SAFETY: mapped by the caller; the supervisor wrote it before it sent the message.
        let sent = unsafe { (*shared).setup.sent };
        let mut rest = fds.iter().take(count).skip(1);
        let mut next = |which: u64| match sent & which {
            0 => -1,
            _ => rest.next().map_or(-1, |&fd| i64::from(fd)),
        };
        Agent {
            socket,
            areas: next(protocol::SENT_AREAS),
            device: next(protocol::SENT_DEVICE),
            reference_fd: next(protocol::SENT_REFERENCE),
            shared,
            ring: 0,
            candidates: 0,
            recycle: 0,
            zero: 0,
            reference: 0,
            serve: -1,
            stock: -1,
            moves: Moves::NONE,
            new_is_locked: false,
            forbade_huge: false,
        }
    }

    fn shared(&self) -> &'static Shared {
        // SAFETY: mapped until `leave` is done with it; the fields used are atomics, or
        // written by the supervisor before the agent started.
        unsafe { &*self.shared }
    }

    /// Carries out the steps of the start until one fails; its negated errno then. What the others
    /// did is undone by [`Self::leave`].
    fn start(&mut self) -> i64 {
        let mut n = 1;
        while n <= step::LAST {
            self.shared().report.step.store(n, Relaxed);
            let r = if self.shared().setup.fail_at == n { sys::ENOMEM } else { self.step(n) };
            if r < 0 {
                return r;
            }
            n += 1;
        }
        self.tell_addresses();
        0
    }

    fn step(&mut self, n: u64) -> i64 {
        match n {
            step::CONTEXTS => self.make_contexts(),
            step::AREAS => self.map_areas(),
            step::REFERENCE => self.map_reference(),
            step::OWN => self.register_own(),
            step::SPARE_CHILDREN => self.spare_children(),
            step::RIGHTS => sandbox::give_up_rights(self.shared().setup.without),
            step::WORKER => self.start_worker(),
            step::CALLS => sandbox::give_up_calls(),
            _ => self.forbid_huge_pages(),
        }
    }

    /// All that the device is needed for: it does not stay.
    fn make_contexts(&mut self) -> i64 {
        (self.serve, self.stock) = (uffd::create(self.device), uffd::create(self.device));
        let mut r = self.serve.min(self.stock);
        if r >= 0 {
            r = uffd::set_up(self.serve, SERVE_FEATURES);
        }
        if r >= 0 {
            r = uffd::set_up(self.stock, STOCK_FEATURES);
        }
        if r >= 0 {
            r = self.moves.make(self.device, self.socket);
        }
        sys::close(self.device);
        self.device = -1;
        r
    }

    fn map_areas(&mut self) -> i64 {
        let setup = &self.shared().setup;
        let zero = sys::mmap(ZERO_PAGES * PAGE, READ, OWN_MAP, -1);
        if zero < 0 {
            return zero;
        }
        self.zero = zero as u64;
        // Only locked memory refuses this.
        self.new_is_locked = sys::madvise(self.zero, PAGE, DONTNEED) == sys::EINVAL;
        let mut failed = 0;
        let locked = self.new_is_locked;
        let mut map = |bytes: u64, prot: u64| {
            let r = self.map(bytes, prot, OWN_MAP, -1);
            if r < 0 {
                failed = r;
                return 0;
            }
            sys::madvise(r as u64, bytes, NOHUGEPAGE);
            r as u64
        };
        let ring = map(setup.ring_pages * PAGE, READ_WRITE);
        let candidates = map(setup.candidate_bytes, NONE);
        let recycle = map(RECYCLE_PAGES * PAGE, READ_WRITE);
        (self.ring, self.candidates, self.recycle) = (ring, candidates, recycle);
        if failed == 0 && locked { sys::unlock(self.zero, ZERO_PAGES * PAGE) } else { failed }
    }

    /// Maps memory of ours. Where the program has all its new memory locked (mlockall), the kernel would back
    /// all of it at once, and refuse more than the program may lock: so one page is mapped, its lock ended, and
    /// the mapping made as long as it is to be.
    fn map(&self, bytes: u64, prot: u64, flags: u64, fd: i64) -> i64 {
        if !self.new_is_locked {
            return sys::mmap(bytes, prot, flags, fd);
        }
        if self.shared().setup.without & WITHOUT_LOCKS != 0 {
            return sys::EPERM;
        }
        let first = sys::mmap(PAGE, NONE, flags, fd);
        if first < 0 {
            return first;
        }
        let mut r = sys::unlock(first as u64, PAGE);
        if r >= 0 {
            r = sys::grow(first as u64, PAGE, bytes);
        }
        if r < 0 {
            sys::munmap(first as u64, PAGE);
            return r;
        }
        let failed = sys::protect(r as u64, bytes, prot);
        if failed < 0 {
            sys::munmap(r as u64, bytes);
            return failed;
        }
        r
    }

    fn map_reference(&mut self) -> i64 {
        let bytes = self.shared().setup.reference_bytes;
        if bytes == 0 || self.reference_fd < 0 {
            return 0;
        }
        // Not populated: that would fill the holes where released pages were.
        let r = self.map(bytes, READ, SHARED_MAP, self.reference_fd);
        sys::close(self.reference_fd);
        self.reference_fd = -1;
        if r > 0 {
            self.reference = r as u64;
        }
        r
    }

    /// The recycling area is registered with each context for recolouring that comes into use.
    fn register_own(&self) -> i64 {
        let pages = self.shared().setup.ring_pages;
        uffd::register(self.stock, self.ring, pages * PAGE)
    }

    /// Our areas are no business of the program's children or of its core dumps.
    fn spare_children(&self) -> i64 {
        let setup = &self.shared().setup;
        let own = self.own_areas();
        for (start, bytes) in own {
            if start != 0 {
                sys::madvise(start, bytes, DONTFORK);
                sys::madvise(start, bytes, DONTDUMP);
            }
        }
        sys::madvise(setup.code_base, setup.code_bytes, DONTFORK);
        sys::madvise(setup.stack_base, 2 * STACK_BYTES, DONTFORK)
    }

    fn own_areas(&self) -> [(u64, u64); 6] {
        let setup = &self.shared().setup;
        [
            (self.ring, setup.ring_pages * PAGE),
            (self.candidates, setup.candidate_bytes),
            (self.recycle, RECYCLE_PAGES * PAGE),
            (self.zero, ZERO_PAGES * PAGE),
            (self.reference, setup.reference_bytes),
            (self.shared as u64, setup.shared_bytes),
        ]
    }

    /// A huge page has every colour; the setting is put back when we leave.
    fn forbid_huge_pages(&mut self) -> i64 {
        const GET_THP_DISABLE: u64 = 42;
        if self.shared().setup.keep_huge != 0 {
            self.shared().report.thp_before.store(1, Relaxed);
            return 0;
        }
        let inherited = self.shared().setup.heir != 0;
        let before = if inherited { 0 } else { sys::prctl(GET_THP_DISABLE, 0) };
        self.shared().report.thp_before.store(u64::from(before > 0), Relaxed);
        if before != 0 {
            return 0;
        }
        let r = sys::allow_huge_pages(false);
        self.forbade_huge = r >= 0;
        r
    }

    fn start_worker(&self) -> i64 {
        let setup = &self.shared().setup;
        let worker = Worker {
            shared: self.shared,
            serve_fd: self.serve,
            stock_fd: self.stock,
            ring: self.ring,
            candidates: self.candidates,
            recycle: self.recycle,
            zero: self.zero,
        };
        let top = setup.stack_base + 2 * STACK_BYTES;
        let place = (top - 256) as *mut Worker;
        // SAFETY: the second stack is ours and unused until the thread starts.
        unsafe { place.write(worker) };
        // SAFETY: the new thread runs `worker_thread` on its own stack and never returns.
        let r = unsafe { clone_thread(top - 512, place as u64) };
        if r > 0 {
            self.shared().report.worker.store(r as u32, Relaxed);
        }
        r
    }

    fn tell_addresses(&self) {
        let report = &self.shared().report;
        report.ring.store(self.ring, Relaxed);
        report.candidates.store(self.candidates, Relaxed);
        report.recycle.store(self.recycle, Relaxed);
        report.reference.store(self.reference, Relaxed);
        report.shared.store(self.shared as u64, Relaxed);
        report.zero.store(self.zero, Relaxed);
        report.state.store(1, Release);
        sys::send_byte(self.socket, say::READY);
    }

    /// Faults first, then what the program did to pages that were out, then commands.
    fn serve_until_told(&mut self) {
        let mut faults = Faults::new(self.serve, self.shared, self.ring, self.zero);
        let places = (self.ring, self.recycle, self.zero);
        let mut recolor = Recolor::new(self.moves, self.shared, places);
        self.moves = Moves::NONE;
        recolor.areas = Areas { fd: self.areas };
        let mut ahead = BackingAhead::NONE;
        loop {
            let mut fds = [
                sys::PollFd { fd: self.serve as i32, events: sys::POLLIN, revents: 0 },
                sys::PollFd { fd: recolor.fd as i32, events: sys::POLLIN, revents: 0 },
                sys::PollFd { fd: self.socket as i32, events: sys::POLLIN, revents: 0 },
            ];
            let pending = faults.has_waiting() || recolor.has_deferred();
            let idle = if pending { 1 } else { -1 };
            let ready = sys::poll(fds.as_mut_ptr(), 3, if ahead.is_pending() { 0 } else { idle });
            if ready == 0 {
                ahead.step(self.shared());
            }
            if faults.serve() && self.shared().ring_at_faults.swap(0, SeqCst) != 0 {
                sys::send_byte(self.socket, say::FAULTS);
            }
            recolor.hear();
            if fds[2].revents != 0 && !self.command(&mut faults, &mut recolor, &mut ahead) {
                self.end_worker(|| recolor.hear());
                recolor.close();
                return;
            }
        }
    }

    /// Carries out one command; false when it is time to leave.
    fn command(
        &self,
        faults: &mut Faults,
        recolor: &mut Recolor,
        ahead: &mut BackingAhead,
    ) -> bool {
        let (mut buffer, mut fds) = ([0u8; 16], [-1i32; MAX_FDS]);
        let (n, count) = sys::receive_fds(self.socket, &mut buffer, &mut fds);
        if n <= 0 {
            return n == sys::EAGAIN || n == sys::EINTR;
        }
        let slot = &self.shared().main;
        let done = slot.done.load(Relaxed);
        if slot.posted.load(Acquire) == done {
            return true;
        }
        let op = slot.op.load(Relaxed);
        let result = self.carry_out(op, faults, recolor, ahead);
        for &fd in fds.iter().take(count) {
            sys::close(i64::from(fd));
        }
        recolor.tell_spares();
        slot.result.store(result, Relaxed);
        slot.done.store(done.wrapping_add(1), Release);
        sys::futex_wake(slot.done.as_ptr());
        op != op::QUIT
    }

    /// The result of a command with the arguments that are posted.
    fn carry_out(
        &self,
        op: u32,
        faults: &mut Faults,
        recolor: &mut Recolor,
        ahead: &mut BackingAhead,
    ) -> i64 {
        let argument = |i: usize| self.shared().main.args[i & 3].load(Relaxed);
        let a = [argument(0), argument(1), argument(2), argument(3)];
        match op {
            op::AREAS => {
                faults.take_table(a[0], a[1]);
                faults.watch(a[2])
            }
            op::RECOLOR => {
                let count = (a[0] as usize).min(protocol::MAX_PAGES);
                let served = if a[3] == 0 { -1 } else { self.serve };
                recolor.run(count, (a[1], a[2]), served, || _ = faults.serve())
            }
            op::LOOK => {
                let served = if a[3] == 0 { -1 } else { self.serve };
                recolor.look(a[0] as usize, (a[1], a[2]), served)
            }
            op::EMPTY => self.trim_stock(a[0]),
            op::WATCH => faults.watch_unless_taken(a[0]),
            op::UNWATCH => faults.unwatch(a[0]),
            op::UNLOCK => recolor.unlock(),
            op::BACK_AHEAD => ahead.begin(self.shared(), a[0], a[1]),
            op::QUIT => 0,
            _ => -22,
        }
    }

    /// Gives frames of the stock back but for so many: they have colours that nobody wants any more, or are too many.
    fn trim_stock(&self, pages: u64) -> i64 {
        let shared = self.shared();
        let ring = shared.setup.ring_pages;
        let (mut head, tail) = (shared.head.load(Relaxed), shared.tail.load(Acquire));
        let end = tail.saturating_sub(pages);
        while head < end {
            let slot = head & (ring - 1);
            let n = (end - head).min(ring - slot);
            sys::discard(self.ring + slot * PAGE, n * PAGE);
            head += n;
        }
        shared.head.store(head, Release);
        0
    }

    /// Waits for the worker to end. It may be giving old frames back, which waits for us to
    /// `hear` of it.
    fn end_worker(&self, mut hear: impl FnMut()) {
        let shared = self.shared();
        shared.worker_quit.store(1, Release);
        while shared.worker_gone.load(Acquire) == 0 {
            hear();
            // It may have looked just before it was told, and begun to wait just after it was woken.
            sys::futex_wake(shared.worker.posted.as_ptr());
            sys::futex_wait(shared.worker_gone.as_ptr(), 0, 5);
        }
    }

    /// Undoes what can be undone from inside; the code and stacks are left to the supervisor. Also
    /// after a start that failed at any step.
    fn leave(&mut self) -> ! {
        let shared = self.shared();
        if shared.report.worker.load(Relaxed) != 0 && shared.worker_gone.load(Acquire) == 0 {
            self.end_worker(|| {});
        }
        // Closing ends all watching and wakes whoever waits.
        sys::close(self.serve);
        self.moves.close();
        sys::close(self.stock);
        if self.forbade_huge {
            sys::allow_huge_pages(true);
        }
        for (start, bytes) in self.own_areas() {
            if start != 0 {
                sys::munmap(start, bytes);
            }
        }
        sys::exit()
    }
}

extern "C" fn worker_thread(worker: *const Worker) -> ! {
    sys::prctl(15, c"huepage-worker".as_ptr() as u64);
    // SAFETY: written by `start_worker` above this thread's stack pointer.
    let worker = unsafe { &*worker };
    // SAFETY: the shared memory stays mapped until `worker_gone` is set.
    let shared = unsafe { &*worker.shared };
    // Without its filter it does nothing; the first thread fails at the same call and says so.
    if sandbox::give_up_calls() >= 0 {
        worker.run();
    }
    shared.worker_gone.store(1, Release);
    sys::exit()
}

/// Starts a thread of this process that shares our descriptors and runs `worker_thread`.
///
/// # Safety
/// `stack` must be the top of unused memory of ours; `argument` a live `Worker`.
unsafe fn clone_thread(stack: u64, argument: u64) -> i64 {
    // memory, file system, descriptors, signal handlers, thread, semaphores
    const FLAGS: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000;
    let r: i64;
    // SAFETY: the child continues at the same place on its own, aligned stack and calls a
    // function that never returns; the parent sees an ordinary system call.
    unsafe {
        core::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call {thread}",
            "ud2",
            "2:",
            // Not a register that the system call overwrites.
            in("r12") argument,
            thread = sym worker_thread,
            inlateout("rax") 56u64 => r,
            in("rdi") FLAGS,
            in("rsi") stack & !15,
            in("rdx") 0u64,
            in("r10") 0u64,
            in("r8") 0u64,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    r
}

/// The compiler may ask for these; the usual ones live in libc.
#[unsafe(no_mangle)]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller follows memcpy's contract.
    unsafe {
        core::arch::asm!("rep movsb", inout("rdi") to => _, inout("rsi") from => _,
            inout("rcx") n => _, options(nostack));
    }
    to
}

/// See `memcpy`.
#[unsafe(no_mangle)]
unsafe extern "C" fn memset(to: *mut u8, byte: i32, n: usize) -> *mut u8 {
    // SAFETY: the caller follows memset's contract.
    unsafe {
        core::arch::asm!("rep stosb", inout("rdi") to => _, in("al") byte as u8,
            inout("rcx") n => _, options(nostack));
    }
    to
}

/// Named by the compiled core library; nothing unwinds in here.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
