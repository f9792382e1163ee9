//! One virtual processor (a thread of the program): its instruction count, the chunk it
//! fills, and the callbacks that run with every access. This is the hot path.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

use crate::api::MemInfo;
use crate::protocol::{self, CHUNK_WORDS, ChunkSlot, DATA_DELTA, FETCH_DELTA, THREADED_WORDS};
use crate::{process, ring};

/// Processors that can be told apart; the accesses of more are counted as lost.
const MOST: usize = 1 << 16;

static PROCESSORS: [AtomicPtr<Processor>; MOST] = [const { AtomicPtr::new(null_mut()) }; MOST];
/// Where what is not recorded goes; nobody reads it.
static DUMP: [AtomicU64; CHUNK_WORDS] = [const { AtomicU64::new(0) }; CHUNK_WORDS];
/// Whether code may run on several processors at once, so that counting is done by calls.
pub static THREADED: AtomicBool = AtomicBool::new(false);
/// Where QEMU keeps the size and the direction of an access in its description.
static SIZE_AT: AtomicU32 = AtomicU32::new(0);
static DIRECTION_AT: AtomicU32 = AtomicU32::new(0);

/// What a processor writes to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Nothing yet: the next access looks for something.
    Nothing,
    /// A chunk of the shared memory.
    Chunk(usize),
    /// The dump, for no chunk was free.
    Lost,
    /// The dump, for recording has ended.
    Over,
}

/// A virtual processor. Only the thread that it stands for uses it, but for its making.
pub struct Processor {
    /// Instructions of all blocks entered; generated code adds to it.
    pub count: AtomicU64,
    /// The count at the last access.
    last: Cell<u64>,
    /// The count up to which skipped instructions were reported.
    skipped: Cell<u64>,
    /// The count at which to look at the skip again.
    look: Cell<u64>,
    words: Cell<*mut u64>,
    slot: Cell<*const ChunkSlot>,
    limit: Cell<u32>,
    target: Cell<Target>,
    thread: Cell<u32>,
    dump: ChunkSlot,
}

impl Processor {
    fn new() -> Processor {
        let zero = || AtomicU32::new(0);
        let dump = ChunkSlot {
            state: zero(),
            space: zero(),
            thread: zero(),
            fill: zero(),
            order: AtomicU64::new(0),
        };
        Processor {
            count: AtomicU64::new(0),
            last: Cell::new(0),
            skipped: Cell::new(0),
            look: Cell::new(0),
            words: Cell::new(null_mut()),
            slot: Cell::new(null()),
            limit: Cell::new(0),
            target: Cell::new(Target::Nothing),
            thread: Cell::new(0),
            dump,
        }
    }

    /// Adds a word to the chunk.
    #[inline(always)]
    fn push(&self, word: u64) {
        loop {
            // SAFETY: `slot` is this processor's dump or a slot of the shared memory; both
            // outlive the program, see `of` and `turn_to`.
            let fill = unsafe { &(*self.slot.get()).fill };
            let at = fill.load(Relaxed);
            if at < self.limit.get() {
                // SAFETY: `limit` is at most the length of what `words` points to. Others
                // write there only if it is the dump, and also with atomic stores.
                unsafe { AtomicU64::from_ptr(self.words.get().add(at as usize)) }
                    .store(word, Relaxed);
                fill.store(at + 1, Relaxed);
                return;
            }
            self.refill();
        }
    }

    /// Instructions since the last access, for a word that holds up to `most`.
    #[inline(always)]
    fn since(&self, behind: u64, most: u64) -> u64 {
        let now = self.count.load(Relaxed).wrapping_sub(behind);
        let delta = now.wrapping_sub(self.last.replace(now));
        if delta <= most { delta } else { self.since_long(delta) }
    }

    /// Too many for a word, or less than none after a block that a signal cut short.
    #[cold]
    fn since_long(&self, delta: u64) -> u64 {
        if delta.cast_signed() > 0 {
            self.push(protocol::count(delta));
        }
        0
    }

    #[cold]
    fn refill(&self) {
        self.close();
        let control = ring::control();
        if control.stop.load(Relaxed) != 0 {
            self.turn_to(Target::Over);
            return;
        }
        let chunk = ring::acquire(process::pid(), process::space(), self.thread.get());
        self.turn_to(chunk.map_or(Target::Lost, Target::Chunk));
    }

    fn turn_to(&self, target: Target) {
        let most = if THREADED.load(Relaxed) { THREADED_WORDS } else { CHUNK_WORDS as u32 };
        if let Target::Chunk(chunk) = target {
            self.slot.set(ring::slot(chunk));
            self.words.set(ring::words(chunk));
        } else {
            self.dump.fill.store(0, Relaxed);
            self.slot.set(&raw const self.dump);
            self.words.set(DUMP[0].as_ptr());
        }
        self.limit.set(if target == Target::Nothing { 0 } else { most });
        self.target.set(target);
    }

    /// Publishes what was recorded so far.
    pub fn close(&self) {
        match self.target.get() {
            Target::Chunk(chunk) => ring::publish(chunk),
            Target::Lost => {
                let lost = u64::from(self.dump.fill.load(Relaxed));
                ring::control().lost.fetch_add(lost, Relaxed);
            }
            Target::Nothing | Target::Over => {}
        }
        self.turn_to(Target::Nothing);
    }

    /// Publishes when enough has come together: with every call if the order matters.
    pub fn settle(&self, at_least: u32) {
        if let Target::Chunk(chunk) = self.target.get()
            && ring::slot(chunk).fill.load(Relaxed) >= at_least
        {
            self.close();
        }
    }

    /// Begins a thread of this process.
    fn begin(&self, thread: u32) {
        self.turn_to(Target::Nothing);
        self.thread.set(thread);
        self.last.set(self.count.load(Relaxed));
        self.skipped.set(self.count.load(Relaxed));
        self.look.set(0);
    }

    /// Looks whether enough was skipped; true when recording is to begin.
    #[cold]
    fn look(&self, now: u64) -> bool {
        let control = ring::control();
        if control.go.load(Acquire) != 0 {
            return true;
        }
        let mut left = control.skip.load(Relaxed);
        if left != u64::MAX {
            let done = now - self.skipped.replace(now);
            let less = |left: u64| Some(left.saturating_sub(done));
            left = control.skip.fetch_update(SeqCst, SeqCst, less).map_or(0, |l| l - l.min(done));
            if left == 0 {
                control.go.store(1, Release);
                return true;
            }
        }
        self.look.set(now + left.min(10_000));
        false
    }
}

/// The processor of that number; made when it is new. `None` beyond [`MOST`].
#[inline(always)]
fn of(index: c_uint) -> Option<&'static Processor> {
    let place = PROCESSORS.get(index as usize)?;
    let known = place.load(Relaxed);
    if known.is_null() {
        return Some(make(place));
    }
    // SAFETY: what is not null was leaked by `make`.
    Some(unsafe { &*known })
}

#[cold]
fn make(place: &AtomicPtr<Processor>) -> &'static Processor {
    let new = Box::leak(Box::new(Processor::new()));
    new.begin(process::new_thread());
    place.store(new, Release);
    new
}

/// A thread begins; the number may be one that an ended thread had.
pub fn started(index: c_uint) {
    let known = PROCESSORS.get(index as usize).map(|place| place.load(Relaxed));
    match known {
        Some(known) if !known.is_null() => {
            // SAFETY: what is not null was leaked by `make`.
            unsafe { &*known }.begin(process::new_thread());
        }
        _ => _ = of(index),
    }
}

/// Publishes what a processor has recorded.
pub fn close(index: c_uint) {
    if let Some(processor) = of(index) {
        processor.close();
    }
}

/// See [`Processor::settle`].
pub fn settle(index: c_uint, at_least: u32) {
    if let Some(processor) = of(index) {
        processor.settle(at_least);
    }
}

/// In a forked child: only this processor lives, and the chunks of the others are the
/// parent's.
pub fn forget_others(index: c_uint) {
    for place in &PROCESSORS {
        let known = place.load(Relaxed);
        if !known.is_null() {
            // SAFETY: what is not null was leaked by `make`; no other thread is left.
            unsafe { &*known }.turn_to(Target::Nothing);
        }
    }
    if let Some(processor) = of(index) {
        processor.begin(process::new_thread());
    }
}

/// Where generated code may add to the count of the only processor that runs.
#[cfg(not(since_9_0))]
pub fn counter(index: c_uint) -> *mut c_void {
    of(index).map_or(null_mut(), |processor| processor.count.as_ptr().cast())
}

/// Finds out where QEMU keeps size and direction, by asking it of every bit.
pub fn learn(size: impl Fn(MemInfo) -> u32, store: impl Fn(MemInfo) -> bool) -> Result<(), String> {
    let bit = |test: &dyn Fn(u32) -> bool| (0..32).find(|&at| test(1 << at));
    let size_at = bit(&|one| size(one) == 1).filter(|&at| size(7 << at) == 7);
    let store_at = bit(&|one| store(one)).filter(|&at| at > 0);
    let (Some(size_at), Some(store_at)) = (size_at, store_at) else {
        return Err("this QEMU describes accesses in an unknown way; use qemu-user 7.2".to_owned());
    };
    SIZE_AT.store(size_at, Relaxed);
    DIRECTION_AT.store(store_at - 1, Relaxed);
    Ok(())
}

/// With every access: `behind` are the instructions of the block after the one that accesses.
pub extern "C" fn access(index: c_uint, info: MemInfo, address: u64, behind: *mut c_void) {
    let Some(processor) = of(index) else { return lose() };
    let delta = processor.since(behind.addr() as u64, DATA_DELTA);
    let shift = (info >> SIZE_AT.load(Relaxed)) & 7;
    // 1 is a load, 2 a store, 3 both at once (an atomic instruction).
    let direction = (info >> DIRECTION_AT.load(Relaxed)) & 3;
    if direction == 3 {
        processor.push(protocol::data(address, false, shift, delta));
        processor.push(protocol::data(address, true, shift, 0));
    } else {
        processor.push(protocol::data(address, direction == 2, shift, delta));
    }
}

/// With every line of instructions entered; `packed` by [`pack`].
pub extern "C" fn fetched(index: c_uint, packed: *mut c_void) {
    let Some(processor) = of(index) else { return lose() };
    let packed = packed.addr() as u64;
    let delta = processor.since(packed >> 53, FETCH_DELTA);
    let bytes = ((packed >> protocol::ADDRESS_BITS) & 63) as u32 + 1;
    processor.push(protocol::fetch(packed, bytes, delta));
}

/// A fetch of 1 to 64 bytes with up to 2047 instructions of its block behind it.
pub fn pack(address: u64, bytes: u64, behind: u64) -> *mut c_void {
    let packed = (address & ((1 << protocol::ADDRESS_BITS) - 1))
        | (bytes - 1) << protocol::ADDRESS_BITS
        | behind << 53;
    std::ptr::without_provenance_mut(packed as usize)
}

/// With every block, while several processors may run.
pub extern "C" fn counted(index: c_uint, instructions: *mut c_void) {
    if let Some(processor) = of(index) {
        let now = processor.count.load(Relaxed) + instructions.addr() as u64;
        processor.count.store(now, Relaxed);
    }
}

/// With every block, while the beginning is skipped.
pub extern "C" fn skipped(index: c_uint, instructions: *mut c_void) {
    let Some(processor) = of(index) else { return };
    let now = processor.count.load(Relaxed) + instructions.addr() as u64;
    processor.count.store(now, Relaxed);
    if now >= processor.look.get() && processor.look(now) {
        processor.last.set(now);
        process::skipped_enough();
    }
}

#[cold]
fn lose() {
    ring::control().lost.fetch_add(1, Relaxed);
}
