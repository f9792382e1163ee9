//! The system calls that a stress target makes on its own memory, wrapped so that the
//! targets themselves are safe code.
//!
//! Memory is only ever seen as slices of `AtomicU64`, read and written with relaxed order:
//! other threads, the kernel and forked copies may change it at any time. The wrappers do
//! not guard against touching what the caller has unmapped or protected: that ends the
//! process by a signal, which is what a stress target wants. They know nothing of huepage.
#![allow(unsafe_code, reason = "a stress target has to do to its memory what programs do")]

use std::cell::Cell;
use std::ffi::{CString, c_int, c_void};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// 64-bit words of a page.
pub const WORDS: usize = PAGE / 8;

/// What may be done with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageProt {
    /// Nothing.
    None,
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
}

impl PageProt {
    const fn bits(self) -> c_int {
        match self {
            PageProt::None => libc::PROT_NONE,
            PageProt::Read => libc::PROT_READ,
            PageProt::Write => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

/// A page-aligned piece of memory, unmapped when dropped.
#[derive(Debug)]
pub struct MappedMemory {
    base: *mut c_void,
    pages: usize,
}

// SAFETY: the memory is only reached through atomics, and the mapping belongs to no thread.
unsafe impl Send for MappedMemory {}
// SAFETY: as above.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// Private anonymous memory, readable and writable, of `pages` pages.
    pub fn private(pages: usize) -> io::Result<MappedMemory> {
        MappedMemory::map(pages, PageProt::Write, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None)
    }

    /// Shared anonymous memory: forked children see each other's writes.
    pub fn shared(pages: usize) -> io::Result<MappedMemory> {
        MappedMemory::map(pages, PageProt::Write, libc::MAP_SHARED | libc::MAP_ANONYMOUS, None)
    }

    /// Address space of `pages` pages that nothing can be done with yet.
    pub fn reserve(pages: usize) -> io::Result<MappedMemory> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        MappedMemory::map(pages, PageProt::None, flags, None)
    }

    /// A private mapping of the first `pages` pages of a file.
    pub fn private_file(file: BorrowedFd<'_>, pages: usize) -> io::Result<MappedMemory> {
        MappedMemory::map(pages, PageProt::Write, libc::MAP_PRIVATE, Some(file))
    }

    /// A shared mapping of the first `pages` pages of a file: stores reach the file.
    pub fn shared_file(
        file: BorrowedFd<'_>,
        pages: usize,
        prot: PageProt,
    ) -> io::Result<MappedMemory> {
        MappedMemory::map(pages, prot, libc::MAP_SHARED, Some(file))
    }

    fn map(
        pages: usize,
        prot: PageProt,
        flags: c_int,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<MappedMemory> {
        let fd = file.map_or(-1, |f| f.as_raw_fd());
        // SAFETY: without MAP_FIXED the kernel picks unused addresses.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), pages * PAGE, prot.bits(), flags, fd, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(MappedMemory { base, pages })
    }

    /// Its length in pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Where it begins.
    pub fn address(&self) -> usize {
        self.base.addr()
    }

    /// All of it, as words.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: page-aligned, `pages` long, ours until drop; atomics allow any aliasing.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.pages * WORDS) }
    }

    /// One page, as words.
    pub fn page(&self, page: usize) -> &[AtomicU64] {
        &self.words()[page * WORDS..(page + 1) * WORDS]
    }

    fn at(&self, pages: &Range<usize>) -> (*mut c_void, usize) {
        assert!(pages.start <= pages.end && pages.end <= self.pages, "{pages:?} of {}", self.pages);
        (self.base.wrapping_byte_add(pages.start * PAGE), pages.len() * PAGE)
    }

    /// Changes what may be done with some of its pages.
    pub fn protect(&self, pages: Range<usize>, prot: PageProt) -> io::Result<()> {
        let (at, len) = self.at(&pages);
        // SAFETY: inside our own mapping.
        check(unsafe { libc::mprotect(at, len, prot.bits()) })
    }

    /// `madvise` with a raw `MADV_` number on some of its pages.
    pub fn advise(&self, pages: Range<usize>, advice: c_int) -> io::Result<()> {
        let (at, len) = self.at(&pages);
        // SAFETY: inside our own mapping; contents are only seen through atomics.
        check(unsafe { libc::madvise(at, len, advice) })
    }

    /// Writes some of its pages back to the file that it maps, and waits (`msync`).
    pub fn write_back(&self, pages: Range<usize>) -> io::Result<()> {
        let (at, len) = self.at(&pages);
        // SAFETY: inside our own mapping.
        check(unsafe { libc::msync(at, len, libc::MS_SYNC) })
    }

    /// Which of its pages are in memory; those of a file whether or not they are mapped yet.
    pub fn resident(&self) -> io::Result<Vec<bool>> {
        let mut pages = vec![0u8; self.pages];
        // SAFETY: inside our own mapping, and one byte per page to write to.
        check(unsafe { libc::mincore(self.base, self.pages * PAGE, pages.as_mut_ptr()) })?;
        Ok(pages.into_iter().map(|page| page & 1 == 1).collect())
    }

    /// Locks some of its pages in memory, now or (`on_fault`) as they are touched.
    pub fn lock(&self, pages: Range<usize>, on_fault: bool) -> io::Result<()> {
        let (at, len) = self.at(&pages);
        let flags = if on_fault { libc::MLOCK_ONFAULT } else { 0 };
        // SAFETY: inside our own mapping.
        check(unsafe { libc::mlock2(at, len, flags) })
    }

    /// Undoes [`MappedMemory::lock`].
    pub fn unlock(&self, pages: Range<usize>) -> io::Result<()> {
        let (at, len) = self.at(&pages);
        // SAFETY: inside our own mapping.
        check(unsafe { libc::munlock(at, len) })
    }

    /// Unmaps some of its pages and maps fresh ones at the same place.
    ///
    /// Another thread could map into the hole meanwhile, so the hole is never left open:
    /// reserved address space takes its place first, as allocators do.
    pub fn renew(&self, pages: Range<usize>, prot: PageProt) -> io::Result<()> {
        let (at, len) = self.at(&pages);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        for prot in [PageProt::None, prot] {
            // SAFETY: replaces pages of our own mapping.
            let got = unsafe { libc::mmap(at, len, prot.bits(), flags, -1, 0) };
            if got == libc::MAP_FAILED {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    }

    /// Unmaps it and maps as many pages at the same address, if nobody was faster.
    ///
    /// # Errors
    /// `EEXIST` when another thread took the addresses; the area is gone then.
    pub fn unmap_and_map(self) -> io::Result<MappedMemory> {
        let (base, pages) = (self.base, self.pages);
        drop(self);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: NOREPLACE refuses addresses that are in use.
        let got = unsafe { libc::mmap(base, pages * PAGE, PageProt::Write.bits(), flags, -1, 0) };
        if got == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(MappedMemory { base: got, pages })
    }

    /// Grows or shrinks it with `mremap`, moving it where needed.
    pub fn resize(mut self, pages: usize) -> io::Result<MappedMemory> {
        let base = remapped(|| {
            // SAFETY: `self` is consumed, so nobody holds slices into the old place.
            unsafe {
                libc::mremap(self.base, self.pages * PAGE, pages * PAGE, libc::MREMAP_MAYMOVE)
            }
        });
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        (self.base, self.pages) = (base, pages);
        Ok(self)
    }

    /// Moves it on top of `target`, whose former contents vanish.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn move_over(self, mut target: MappedMemory) -> io::Result<MappedMemory> {
        assert_eq!(self.pages, target.pages);
        let (flags, len) = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, self.pages * PAGE);
        // SAFETY: both mappings are ours and consumed or returned.
        let base = remapped(|| unsafe { libc::mremap(self.base, len, len, flags, target.base) });
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(self);
        target.base = base;
        Ok(target)
    }

    /// Moves its contents to a new area and stays behind, empty (`MREMAP_DONTUNMAP`).
    pub fn move_contents(&self) -> io::Result<MappedMemory> {
        let (flags, len) = (libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP, self.pages * PAGE);
        let anywhere = std::ptr::null_mut::<c_void>();
        // SAFETY: the old range stays mapped, so slices into it stay valid (and read zero).
        let base = remapped(|| unsafe { libc::mremap(self.base, len, len, flags, anywhere) });
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(MappedMemory { base, pages: self.pages })
    }
}

/// Times that `mremap` said `EFAULT`.
static REMAPS_REFUSED: AtomicU64 = AtomicU64::new(0);

/// How often `mremap` was refused so far in this process.
pub fn remaps_refused() -> u64 {
    REMAPS_REFUSED.load(Ordering::Relaxed)
}

/// Has `mremap` tried again for a second while it says `EFAULT`: the kernel does nothing with memory that is two
/// areas for a moment.
fn remapped(remap: impl Fn() -> *mut c_void) -> *mut c_void {
    const TRIES: u32 = 1000;
    for _ in 0..TRIES {
        let base = remap();
        let refused = io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT);
        if base != libc::MAP_FAILED || !refused {
            return base;
        }
        REMAPS_REFUSED.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
    }
    remap()
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: ours, and no slice outlives the area.
        unsafe { libc::munmap(self.base, self.pages * PAGE) };
    }
}

fn check(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn count(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// `read(2)` straight into words: the kernel writes them.
pub fn read_into(fd: BorrowedFd<'_>, words: &[AtomicU64]) -> io::Result<usize> {
    let (at, len) = (words.as_ptr().cast_mut().cast(), size_of_val(words));
    // SAFETY: the words live through the call, and atomics may change under a shared borrow.
    count(unsafe { libc::read(fd.as_raw_fd(), at, len) })
}

/// `write(2)` straight from words: the kernel reads them.
pub fn write_from(fd: BorrowedFd<'_>, words: &[AtomicU64]) -> io::Result<usize> {
    // SAFETY: the words live through the call.
    count(unsafe { libc::write(fd.as_raw_fd(), words.as_ptr().cast(), size_of_val(words)) })
}

/// `pread(2)` straight into words.
pub fn pread_into(fd: BorrowedFd<'_>, words: &[AtomicU64], offset: usize) -> io::Result<usize> {
    let (at, len) = (words.as_ptr().cast_mut().cast(), size_of_val(words));
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: as in `read_into`.
    count(unsafe { libc::pread(fd.as_raw_fd(), at, len, offset) })
}

/// `pwrite(2)` straight from words.
pub fn pwrite_from(fd: BorrowedFd<'_>, words: &[AtomicU64], offset: usize) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    let (at, len) = (words.as_ptr().cast(), size_of_val(words));
    // SAFETY: the words live through the call.
    count(unsafe { libc::pwrite(fd.as_raw_fd(), at, len, offset) })
}

/// Advice on a whole file: a raw `POSIX_FADV_` number.
pub fn advise_file(fd: BorrowedFd<'_>, advice: c_int) -> io::Result<()> {
    // SAFETY: plain call.
    match unsafe { libc::posix_fadvise(fd.as_raw_fd(), 0, 0, advice) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// A pipe: the end to read from and the end to write to.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both were just opened and belong to nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Opens a file past the page cache (`O_DIRECT`), creating it.
pub fn open_direct(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_DIRECT | libc::O_CLOEXEC;
    // SAFETY: a terminated path; the mode goes with O_CREAT.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o600) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just opened.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnd {
    /// With an exit status.
    Status(i32),
    /// By a signal.
    Signal(i32),
}

/// Forks; the child runs `body` and exits with its result, without any clean-up.
///
/// `body` may only compute on memory and make system calls: in a threaded program a lock
/// that another thread held is held for ever in the child.
pub fn fork(body: impl FnOnce() -> u8) -> io::Result<i32> {
    // SAFETY: the child runs `body` and `_exit` only; callers keep to the rule above.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let status = body();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(c_int::from(status)) }
        }
        pid => Ok(pid),
    }
}

fn ended(status: c_int) -> ChildEnd {
    if libc::WIFEXITED(status) {
        ChildEnd::Status(libc::WEXITSTATUS(status))
    } else {
        ChildEnd::Signal(libc::WTERMSIG(status))
    }
}

/// How a child ended, or `None` if it is alive.
///
/// # Errors
/// `ECHILD` when it is no child of this process.
pub fn try_wait(pid: u32) -> io::Result<Option<ChildEnd>> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut status = 0;
    // SAFETY: plain call with a valid place for the status.
    match unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => Ok(Some(ended(status))),
    }
}

/// Waits for a child of [`fork`].
pub fn wait(pid: i32) -> io::Result<ChildEnd> {
    let mut status = 0;
    loop {
        // SAFETY: plain call with a valid place for the status.
        if unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(ended(status))
}

extern "C" fn vfork_body(word: *mut c_void) -> c_int {
    // SAFETY: the parent passes a live word and is suspended until we exit.
    let word = unsafe { &*word.cast::<AtomicU64>() };
    word.fetch_add(1, Ordering::Relaxed);
    7
}

/// A child as `vfork` makes it, in the caller's memory: it adds 1 to `word` and exits with 7.
///
/// `stack` is what it runs on; at least four pages.
pub fn vfork_add(word: &AtomicU64, stack: &MappedMemory) -> io::Result<ChildEnd> {
    let top = stack.base.wrapping_byte_add(stack.pages * PAGE);
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let arg = std::ptr::from_ref(word).cast_mut().cast();
    // SAFETY: the stack is ours and unused, the child touches only it and `word`, and
    // CLONE_VFORK suspends us until it has exited.
    let pid = unsafe { libc::clone(vfork_body, top, flags, arg) };
    if pid < 0 { Err(io::Error::last_os_error()) } else { wait(pid) }
}

/// The heap that `brk` grows; one user per process, and nothing else may move the break.
#[derive(Debug)]
pub struct Break {
    base: *mut c_void,
    pages: usize,
}

impl Break {
    /// The current break, rounded up to a page.
    pub fn here() -> io::Result<Break> {
        // SAFETY: reads the break.
        let now = unsafe { libc::sbrk(0) };
        let base = now.wrapping_byte_add(now.addr().wrapping_neg() % PAGE);
        // SAFETY: moves the break by less than a page upwards.
        check(unsafe { libc::brk(base) })?;
        Ok(Break { base, pages: 0 })
    }

    /// Moves the break to `pages` pages above where it was found.
    pub fn set(&mut self, pages: usize) -> io::Result<()> {
        // SAFETY: only memory above the break we found comes or goes, and `words` borrows us.
        check(unsafe { libc::brk(self.base.wrapping_byte_add(pages * PAGE)) })?;
        self.pages = pages;
        Ok(())
    }

    /// The memory gained.
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped by the kernel between the break found and the break set.
        unsafe { std::slice::from_raw_parts(self.base.cast(), self.pages * WORDS) }
    }
}

static STOP: AtomicBool = AtomicBool::new(false);
thread_local! {
    /// Several threads send themselves signals at a time. It has no destructor, so that a handler may use it.
    static SIGNALS: Cell<u64> = const { Cell::new(0) };
}

extern "C" fn on_stop(_: c_int) {
    STOP.store(true, Ordering::Relaxed);
}

extern "C" fn on_signal(_: c_int) {
    SIGNALS.set(SIGNALS.get() + 1);
}

fn handle(signal: c_int, handler: extern "C" fn(c_int), flags: c_int) -> io::Result<()> {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = flags | libc::SA_RESTART;
    // SAFETY: the handlers only touch atomics.
    check(unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) })
}

/// Makes SIGTERM and SIGINT set the flag that [`stop_asked`] reads, and SIGUSR1 count.
pub fn install_handlers() -> io::Result<()> {
    handle(libc::SIGTERM, on_stop, 0)?;
    handle(libc::SIGINT, on_stop, 0)?;
    handle(libc::SIGUSR1, on_signal, libc::SA_ONSTACK)
}

/// Whether SIGTERM or SIGINT has arrived.
pub fn stop_asked() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// SIGUSR1 that this thread has handled so far.
pub fn signals_seen() -> u64 {
    SIGNALS.get()
}

/// Handles one SIGUSR1 of the calling thread with `stack` as its signal stack.
pub fn signal_on(stack: &MappedMemory) -> io::Result<()> {
    let new = libc::stack_t { ss_sp: stack.base, ss_flags: 0, ss_size: stack.pages * PAGE };
    // SAFETY: all-zero is a valid stack_t to be overwritten.
    let mut old: libc::stack_t = unsafe { std::mem::zeroed() };
    // SAFETY: the stack is ours for the time of the signal, which is synchronous.
    check(unsafe { libc::sigaltstack(&raw const new, &raw mut old) })?;
    // SAFETY: raises a signal that has a handler.
    let raised = check(unsafe { libc::raise(libc::SIGUSR1) });
    // SAFETY: puts back what was there.
    check(unsafe { libc::sigaltstack(&raw const old, std::ptr::null_mut()) })?;
    raised
}

/// Binds the calling thread to one CPU.
pub fn pin(cpu: usize) -> io::Result<()> {
    pin_thread(0, cpu)
}

/// Binds a thread to one CPU, by its number; 0 is the caller.
pub fn pin_thread(thread: i32, cpu: usize) -> io::Result<()> {
    // SAFETY: all-zero is an empty set, and CPU_SET checks the number.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        check(libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const set))
    }
}

/// Ends the process now, without clean-up.
pub fn exit_now(status: u8) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(c_int::from(status)) }
}

/// Sends a signal to a process; 0 only asks whether it exists.
pub fn kill(pid: u32, signal: c_int) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    // SAFETY: plain call.
    check(unsafe { libc::kill(pid, signal) })
}

/// Seconds of CPU (user and system) that children of this process have used and been
/// waited for.
pub fn children_cpu() -> f64 {
    // SAFETY: all-zero is a valid rusage to be overwritten.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the result.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let seconds = |t: libc::timeval| {
        f64::from(u32::try_from(t.tv_sec).unwrap_or(u32::MAX))
            + f64::from(u32::try_from(t.tv_usec).unwrap_or(0)) / 1e6
    };
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// CPU time (user and system) that the calling thread has used.
pub fn thread_cpu() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// The monotonic clock, which is the same for all processes.
pub fn monotonic() -> Duration {
    clock(libc::CLOCK_MONOTONIC)
}

fn clock(which: libc::clockid_t) -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the result.
    unsafe { libc::clock_gettime(which, &raw mut now) };
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}

/// Lets the calling thread's sleeps end on time: the kernel may otherwise add 50 us.
pub fn sleep_exactly() -> io::Result<()> {
    // SAFETY: plain call.
    check(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) })
}

/// Makes orphaned grandchildren become children of this process.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: plain call.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
}
