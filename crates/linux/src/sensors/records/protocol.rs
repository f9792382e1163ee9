//! What the recorder and its plugin share: the layout of the memory between them and the
//! coding of accesses in it. Both compile this file; it makes no system call.
//!
//! The memory is one control block, then chunks of words. A virtual processor takes a free
//! chunk, fills it and publishes it; the recorder takes published chunks in the order of
//! their publication and frees them. A chunk's state names its owner, so that what a killed
//! process left behind can be found.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// First word of the memory; changes with every change of this file's structures.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hp-rec01");
/// Words of a chunk.
pub const CHUNK_WORDS: usize = 8192;
/// Chunks there are; untouched ones cost no memory.
pub const CHUNKS: usize = 1024;
/// Chunks in use besides one for each virtual processor: few enough to stay in a cache.
pub const CHUNKS_AT_ONCE: u32 = 48;
/// Words after which a chunk is published while several threads run: what is recorded of
/// different threads is in order to within that many accesses.
pub const THREADED_WORDS: u32 = 1024;

/// State of a chunk that nobody uses.
pub const FREE: u32 = 0;
/// State of a chunk that waits for the recorder; any other is the pid of its owner.
pub const FULL: u32 = u32::MAX;

/// One chunk's description.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ChunkSlot {
    /// [`FREE`], [`FULL`], or the process that fills it.
    pub state: AtomicU32,
    /// Address space of its accesses.
    pub space: AtomicU32,
    /// Thread of that space.
    pub thread: AtomicU32,
    /// Words filled.
    pub fill: AtomicU32,
    /// Place in the order of publication.
    pub order: AtomicU64,
}

/// The control block.
#[repr(C)]
#[derive(Debug)]
pub struct Control {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// The recorder's process: when it is gone nobody frees chunks.
    pub recorder: AtomicU32,
    /// Not 0: record no more, and follow no further program.
    pub stop: AtomicU32,
    /// 0 while the beginning is skipped.
    pub go: AtomicU32,
    /// Not 0: record instruction fetches.
    pub fetches: AtomicU32,
    /// Instructions still to skip; `u64::MAX` when the recorder itself sets `go`.
    pub skip: AtomicU64,
    /// Address spaces so far: the number of the next.
    pub spaces: AtomicU32,
    /// Processes so far.
    pub processes: AtomicU32,
    /// Threads so far, first threads of processes included.
    pub threads: AtomicU32,
    /// Virtual processors alive, at most: the bound of chunks in use grows with it.
    pub processors: AtomicU32,
    /// Programs that were started and cannot be recorded (other architectures, set-uid).
    pub native: AtomicU32,
    /// Chunks published so far.
    pub published: AtomicU64,
    /// Accesses that found no chunk.
    pub lost: AtomicU64,
    /// Futex: changes when a chunk is published.
    pub work: AtomicU32,
    /// Not 0 while the recorder waits on `work`.
    pub idle: AtomicU32,
    /// Futex: changes when a chunk is freed.
    pub freed: AtomicU32,
    /// Processors that wait on `freed`.
    pub waiting: AtomicU32,
    /// The chunks.
    pub slots: [ChunkSlot; CHUNKS],
}

/// Where the words of the first chunk begin.
pub const WORDS_AT: usize = size_of::<Control>().next_multiple_of(4096);
/// Bytes of the whole memory.
pub const BYTES: usize = WORDS_AT + CHUNKS * CHUNK_WORDS * 8;

/// Bits of an address: user space of x86-64 with four levels of page tables.
pub const ADDRESS_BITS: u32 = 47;
const ADDRESS: u64 = (1 << ADDRESS_BITS) - 1;
const KIND_AT: u32 = ADDRESS_BITS;
const SIZE_AT: u32 = KIND_AT + 2;
const DATA_DELTA_AT: u32 = SIZE_AT + 3;
const FETCH_DELTA_AT: u32 = SIZE_AT + 6;
/// Instructions that a word of data can hold; what exceeds it needs a word before.
pub const DATA_DELTA: u64 = (1 << (64 - DATA_DELTA_AT)) - 1;
/// The same for a word of a fetch.
pub const FETCH_DELTA: u64 = (1 << (64 - FETCH_DELTA_AT)) - 1;

const LOAD: u64 = 0;
const STORE: u64 = 1;
const FETCH: u64 = 2;
const COUNT: u64 = 3;

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordWord {
    /// A load or store of `1 << shift` bytes.
    Data {
        /// First byte.
        address: u64,
        /// Whether it is a store.
        store: bool,
        /// Logarithm of the size, 0 to 7.
        shift: u32,
        /// Instructions since the thread's access before.
        delta: u64,
    },
    /// A fetch of instructions.
    Fetch {
        /// First byte.
        address: u64,
        /// 1 to 64.
        bytes: u32,
        /// Instructions since the thread's access before.
        delta: u64,
    },
    /// Instructions to add to the next word's.
    Count(u64),
}

/// Codes a load or store; `delta` is at most [`DATA_DELTA`].
#[inline(always)]
pub const fn data(address: u64, store: bool, shift: u32, delta: u64) -> u64 {
    let kind = if store { STORE } else { LOAD };
    (address & ADDRESS) | kind << KIND_AT | (shift as u64 & 7) << SIZE_AT | delta << DATA_DELTA_AT
}

/// Codes a fetch of 1 to 64 bytes; `delta` is at most [`FETCH_DELTA`].
#[inline(always)]
pub const fn fetch(address: u64, bytes: u32, delta: u64) -> u64 {
    let size = (bytes as u64 - 1) & 63;
    (address & ADDRESS) | FETCH << KIND_AT | size << SIZE_AT | delta << FETCH_DELTA_AT
}

/// Codes instructions to add to the next word's, below 2^47.
pub const fn count(instructions: u64) -> u64 {
    (instructions & ADDRESS) | COUNT << KIND_AT
}

/// Reads a word.
#[inline(always)]
pub const fn decode(word: u64) -> RecordWord {
    let address = word & ADDRESS;
    match (word >> KIND_AT) & 3 {
        FETCH => RecordWord::Fetch {
            address,
            bytes: ((word >> SIZE_AT) & 63) as u32 + 1,
            delta: word >> FETCH_DELTA_AT,
        },
        COUNT => RecordWord::Count(address),
        kind => RecordWord::Data {
            address,
            store: kind == STORE,
            shift: ((word >> SIZE_AT) & 7) as u32,
            delta: word >> DATA_DELTA_AT,
        },
    }
}
