//! The memory that supervisor and agent share, as the supervisor may use it.
//!
//! The program can write every word of it at any moment. So nothing is read by reference: words are
//! read one at a time and clamped to what they can be, sizes and addresses are copies of the
//! supervisor's own. The object is sealed: it cannot be made smaller under our hands.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use serde::{Deserialize, Serialize};

use super::protocol::{
    AreaEntry, MAX_AREAS, MAX_PAGES, RECYCLE_PAGES, SPARES, Setup, Shared, Slot, TimingJobArea,
    ZERO_PAGES,
};
use crate::kernel::mapping::Mapping;

/// Bytes of the object.
pub const SHARED_BYTES: usize = size_of::<Shared>().next_multiple_of(4096);
/// More than any count reaches; sums of some thousand of them fit in a word.
const MOST_COUNT: u64 = 1 << 48;
/// The end of what a program can map.
pub const END_OF_PROGRAM: u64 = 1 << 47;

/// The agent's counts at some moment; what they count is said at
/// [`Counters`](super::protocol::Counters). Each is below 2^48, whatever the program wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AgentCounts {
    pub faults: u64,
    pub placed: u64,
    pub fallback: u64,
    pub waited: u64,
    pub recolored: u64,
    pub recolor_ns: u64,
    pub recolor_cpu_ns: u64,
    pub longest_out_ns: u64,
    pub look_cpu_ns: u64,
    pub copied_back: u64,
    pub dropped: u64,
    pub child_copies: u64,
    pub poisoned: u64,
    /// Errors that should not occur.
    pub unexpected_errors: UnexpectedErrors,
}

/// Errors of an agent that should not occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnexpectedErrors {
    /// How many there were.
    pub count: u64,
    /// The number of the last one.
    pub errno: i64,
    /// Where in the agent it was.
    pub place: u64,
}

/// Where the agent's areas lie in the target, as it said once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct AgentPlaces {
    pub ring: u64,
    pub candidates: u64,
    pub recycle: u64,
    pub reference: u64,
    pub shared: u64,
    pub zero: u64,
}

/// A mapping of the shared object in the supervisor.
pub struct SharedMemory(Mapping);

/// A pointer to a field, without a reference to the whole.
macro_rules! field {
    ($self:ident . $($path:tt)+) => {
        // SAFETY: the pointer stays within the mapping, which lives as long as `self`.
        unsafe { &raw mut (*$self.0.base().cast::<Shared>().as_ptr()).$($path)+ }
    };
}

/// A reference to an atomic field, which may change at any moment.
macro_rules! atomic {
    ($self:ident . $($path:tt)+) => {
        // SAFETY: the pointer stays within the mapping, which lives as long as `self`, and the field
        // is an atomic, which others may change.
        unsafe { &(*$self.0.base().cast::<Shared>().as_ptr()).$($path)+ }
    };
}

impl SharedMemory {
    /// A new object, all zeroes, and its descriptor. Nobody can change its size.
    ///
    /// # Errors
    /// When memory or descriptors are short.
    pub fn create() -> io::Result<(SharedMemory, OwnedFd)> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::NOEXEC_SEAL;
        let fd = memfd_create("huepage-agent", flags)?;
        ftruncate(&fd, SHARED_BYTES as u64)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        Ok((SharedMemory(Mapping::shared(&fd, SHARED_BYTES)?), fd))
    }

    /// From here on nobody can map the object for writing or punch holes into it, and the seals stay.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn seal(fd: impl AsFd) -> io::Result<()> {
        Ok(fcntl_add_seals(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?)
    }

    /// Writes the settings; before the agent has the object.
    pub fn write_setup(&self, setup: Setup) {
        let to = field!(self.setup);
        // SAFETY: a live field of the mapping, which nobody else has yet.
        unsafe { to.write(setup) };
    }

    /// How many pages a fault places at most, and whether faults wait for stock.
    pub fn set_faults(&self, around: u64, strict: bool) {
        atomic!(self.fault_around).store(around, Relaxed);
        atomic!(self.strict).store(u64::from(strict), Relaxed);
    }

    /// From now on a fault places its own page only.
    pub fn place_singly(&self) {
        atomic!(self.fault_around).store(1, Relaxed);
    }

    /// Whether the agent is to say that it has served a fault.
    pub fn ring_at_faults(&self, ring: bool) {
        // Counts that are read afterwards are those of after this.
        atomic!(self.ring_at_faults).swap(u32::from(ring), SeqCst);
    }

    /// The state that the agent reports, and the step of its start.
    pub fn state(&self) -> (i64, u64) {
        (atomic!(self.report.state).load(Acquire), atomic!(self.report.step).load(Relaxed))
    }

    /// What the "no huge pages" flag of the process was before us.
    pub fn forbade_huge_pages(&self) -> bool {
        atomic!(self.report.thp_before).load(Relaxed) != 0
    }

    /// Where the agent's areas lie, by its own word; `None` where that is impossible for areas of
    /// these sizes: ring, candidates, reference.
    pub fn places(&self, bytes: [u64; 3]) -> Option<AgentPlaces> {
        let places = AgentPlaces {
            ring: atomic!(self.report.ring).load(Relaxed),
            candidates: atomic!(self.report.candidates).load(Relaxed),
            recycle: atomic!(self.report.recycle).load(Relaxed),
            reference: atomic!(self.report.reference).load(Relaxed),
            shared: atomic!(self.report.shared).load(Relaxed),
            zero: atomic!(self.report.zero).load(Relaxed),
        };
        let ends = [
            (places.ring, bytes[0]),
            (places.candidates, bytes[1]),
            (places.reference, bytes[2]),
            (places.recycle, RECYCLE_PAGES * 4096),
            (places.shared, SHARED_BYTES as u64),
            (places.zero, ZERO_PAGES * 4096),
        ];
        let possible = |&(at, bytes): &(u64, u64)| {
            at % 4096 == 0 && bytes < END_OF_PROGRAM && at < END_OF_PROGRAM - bytes
        };
        ends.iter().all(possible).then_some(places)
    }

    /// Pages in a stock of at most `ring` pages.
    pub fn stock(&self, ring: u64) -> u64 {
        let head = atomic!(self.head).load(Acquire);
        atomic!(self.tail).load(Acquire).saturating_sub(head).min(ring)
    }

    /// The place of the next slot that will be handed out, in a ring of so many.
    pub fn next_slot(&self, ring: u64) -> u64 {
        atomic!(self.head).load(Acquire) % ring.max(1)
    }

    /// Frames that wait in the recycling area.
    pub fn recycled(&self) -> u64 {
        atomic!(self.recycled).load(Acquire).min(RECYCLE_PAGES)
    }

    /// Contexts for recolouring that are left.
    pub fn spares(&self) -> usize {
        let n = atomic!(self.counters.spares).load(Relaxed);
        usize::try_from(n).unwrap_or(SPARES).min(SPARES)
    }

    /// The counts.
    pub fn counts(&self) -> AgentCounts {
        let count = |word: &AtomicU64| word.load(Relaxed).min(MOST_COUNT - 1);
        let errno = atomic!(self.counters.unexpected_errno).load(Relaxed).clamp(-4095, 4095);
        AgentCounts {
            faults: count(atomic!(self.counters.faults)),
            placed: count(atomic!(self.counters.placed)),
            fallback: count(atomic!(self.counters.fallback)),
            waited: count(atomic!(self.counters.waited)),
            recolored: count(atomic!(self.counters.recolored)),
            recolor_ns: count(atomic!(self.counters.recolor_ns)),
            recolor_cpu_ns: count(atomic!(self.counters.recolor_cpu_ns)),
            longest_out_ns: count(atomic!(self.counters.longest_out_ns)),
            look_cpu_ns: count(atomic!(self.counters.look_cpu_ns)),
            copied_back: count(atomic!(self.counters.copied_back)),
            dropped: count(atomic!(self.counters.dropped)),
            child_copies: count(atomic!(self.counters.child_copies)),
            poisoned: count(atomic!(self.counters.poisoned)),
            unexpected_errors: UnexpectedErrors {
                count: count(atomic!(self.counters.unexpected_errors)),
                errno,
                place: count(atomic!(self.counters.unexpected_place)),
            },
        }
    }

    /// The slot for commands to the first thread.
    pub fn main(&self) -> &Slot {
        atomic!(self.main)
    }

    /// The slot for commands to the worker.
    pub fn worker(&self) -> &Slot {
        atomic!(self.worker)
    }

    /// The first thread's list of pages.
    pub fn main_pages(&self) -> &[AtomicU64; MAX_PAGES] {
        atomic!(self.main_pages)
    }

    /// One errno for each of them.
    pub fn main_results(&self) -> &[AtomicU32; MAX_PAGES] {
        atomic!(self.main_results)
    }

    /// The worker's list of pages.
    pub fn worker_pages(&self) -> &[AtomicU64; MAX_PAGES] {
        atomic!(self.worker_pages)
    }

    /// Writes the table of areas that is not in use; what is beyond its end is left out.
    pub fn write_areas(&self, table: usize, areas: &[AreaEntry]) {
        let to = field!(self.areas[table & 1]).cast::<AreaEntry>();
        for (i, area) in areas.iter().take(MAX_AREAS).enumerate() {
            // SAFETY: `i` is within the table.
            unsafe { to.add(i).write_volatile(*area) };
        }
    }

    /// The agent's own hints of an area in a table: where its last fault ended, and its window.
    pub fn area_hints(&self, table: usize, i: usize) -> (u64, u64) {
        let entry = field!(self.areas[table & 1][i.min(MAX_AREAS - 1)]);
        // SAFETY: an entry of the table; its words are copied.
        let entry = unsafe { entry.read_volatile() };
        (entry.next, entry.window)
    }

    /// The timing job, to be filled in and read by [`write_words`] and [`read_words`].
    pub fn timing(&self) -> *mut TimingJobArea {
        field!(self.timing)
    }
}

/// Copies words into shared memory.
///
/// # Safety
/// `to` must point to live memory with room for them.
pub unsafe fn write_words<T: Copy>(to: *mut T, words: &[T]) {
    for (i, word) in words.iter().enumerate() {
        // SAFETY: the caller vouches for the room.
        unsafe { to.add(i).write_volatile(*word) };
    }
}

/// Copies `n` words out of shared memory: what the program writes meanwhile is in the copy or not.
///
/// # Safety
/// `from` must point to `n` live words of a type that all bit patterns are valid for.
pub unsafe fn read_words<T: Copy>(from: *const T, n: usize) -> Vec<T> {
    // SAFETY: the caller vouches for the words.
    (0..n).map(|i| unsafe { from.add(i).read_volatile() }).collect()
}

/// Fills the whole object with `image`, over and over, as a hostile program could, and reads all that the
/// supervisor reads. For the fuzz target `shared`.
///
/// # Panics
/// If anything is beyond what it can be.
#[doc(hidden)]
pub fn check_image(image: &[u8]) {
    let Ok((memory, _fd)) = SharedMemory::create() else { return };
    let bytes = memory.0.base().as_ptr().cast::<u8>();
    for (at, byte) in image.iter().cycle().take(SHARED_BYTES).enumerate() {
        // SAFETY: within the mapping, to which nobody else has a reference here.
        unsafe { bytes.add(at).write(*byte) };
    }
    for ring in [0, 1, 512, 1 << 20] {
        assert!(memory.stock(ring) <= ring);
    }
    assert!(memory.recycled() <= RECYCLE_PAGES && memory.spares() <= SPARES);
    let counts = memory.counts();
    let sums = [
        counts.faults,
        counts.placed,
        counts.recolored,
        counts.recolor_ns,
        counts.unexpected_errors.place,
    ];
    assert!(sums.iter().all(|count| *count < MOST_COUNT), "{counts:?}");
    if let Some(places) = memory.places([4096 * 512, 4096, 1 << 30]) {
        let own = [places.ring, places.candidates, places.recycle, places.reference, places.zero];
        assert!(own.iter().all(|at| at % 4096 == 0 && *at < END_OF_PROGRAM), "{places:?}");
    }
    let _ = (memory.state(), memory.forbade_huge_pages(), memory.area_hints(1, usize::MAX));
}
