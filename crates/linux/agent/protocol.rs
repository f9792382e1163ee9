//! What the supervisor and the agent say to each other: the layout of their shared memory.
//!
//! Compiled twice: into `huepage-linux`, and into the freestanding agent that runs inside a
//! target. It holds plain data and constants only, no code that could panic or allocate.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64};

/// First word of the agent's code region; the loader runs the agent only if it is there, so
/// a supervisor that dies half-way through writing the region leaves a harmless mapping.
pub const BOOT_MAGIC: u64 = 0x6875_6570_6167_6531;
/// Offset of the agent's entry point in its code region.
pub const ENTRY_OFFSET: u64 = 64;
/// Bytes of stack for each of the agent's two threads.
pub const STACK_BYTES: u64 = 64 << 10;

/// Most areas that can be served at once; further ones are left to the audit.
pub const MAX_AREAS: usize = 8192;
/// Most pages in one list (recolour, fill, classify).
pub const MAX_PAGES: usize = 4096;
/// Most pages whose old frames wait to be examined.
pub const RECYCLE_PAGES: u64 = 2048;
/// Most pages moved out at once while recolouring: the time a page is out is bounded by it.
pub const BATCH_PAGES: u64 = 128;
/// Pages of zeroes to copy from, and one more for the barrier of recolouring.
pub const ZERO_PAGES: u64 = 17;
/// Limits of one timing job.
pub const MAX_STREAM: usize = 4096;
/// Most timed lines of one timing job.
pub const MAX_RELOAD: usize = 1024;
/// Most rounds of one timing job.
pub const MAX_ROUNDS: usize = 64;
/// Most line offsets of one timing job.
pub const MAX_OFFSETS: usize = 64;

/// Commands to the main thread.
pub mod op {
    /// Take over area table `args[0]` of `args[1]` entries; then register `args[2]` ranges,
    /// given in the list of pages as start, end, start, end…
    pub const AREAS: u32 = 1;
    /// Recolour `args[0]` pages of the list, which lie in the range `[args[1], args[2])`; faults
    /// there are served afterwards if `args[3]` = 1.
    pub const RECOLOR: u32 = 2;
    /// Undo everything that can be undone from inside and exit.
    pub const QUIT: u32 = 3;
    /// Break copy-on-write of `args[1]` bytes at `args[0]` without changing them.
    pub const UNSHARE: u32 = 4;
    /// Give stock back to the system but for `args[0]` pages; the worker has nothing to do meanwhile.
    pub const EMPTY: u32 = 5;
    /// Watch the `args[0]` listed ranges (start, end, start, end…); the result is how many another
    /// userfaultfd has registered a part of.
    pub const WATCH: u32 = 7;
    /// Watch these ranges no longer.
    pub const UNWATCH: u32 = 8;
    /// Take the first `args[0]` listed pages, which lie in the range `[args[1], args[2])`, out to the
    /// recycling area, which must be empty, run the timing job there, and bring them back as they are;
    /// faults there are served afterwards if `args[3]` = 1.
    pub const LOOK: u32 = 9;
    /// End the lock on stock and recycling area, under which pages of locked memory were moved.
    pub const UNLOCK: u32 = 10;
    /// Back candidates from `args[1]` downwards to `args[0]`, while there are no faults, until the worker has come
    /// there from below. Ends what the last such command has left.
    pub const BACK_AHEAD: u32 = 11;
    /// Commands to the worker: back `args[1]` bytes at `args[0]` of the candidate area; `args[2]` = 1: they can be
    /// accessed already.
    pub const POPULATE: u32 = 16;
    /// Give `args[1]` bytes at `args[0]` of the candidate area back to the system.
    pub const DISCARD: u32 = 17;
    /// The same but for the `args[2]` listed pages, which ascend.
    pub const SIFT: u32 = 20;
    /// Move the `args[0]` listed pages to the stock, in order.
    pub const FILL: u32 = 18;
    /// Run the timing job.
    pub const TIMING: u32 = 19;
    /// Give the old frames in the recycling area back to the system and make it empty.
    pub const RECYCLED: u32 = 21;
    /// Make the 2 MiB at `args[0]` one page, after filling its holes with zeroes if `args[1]` = 1;
    /// the result is the nanoseconds that took on a CPU.
    pub const COLLAPSE: u32 = 22;
}

/// One command slot; the supervisor writes it, rings, and waits until `done` equals `posted`.
#[repr(C)]
pub struct Slot {
    /// Number of the newest command.
    pub posted: AtomicU32,
    /// Number of the newest command carried out.
    pub done: AtomicU32,
    /// What to do, one of [`op`].
    pub op: AtomicU32,
    /// Keeps the arguments aligned.
    pub pad: AtomicU32,
    /// Arguments.
    pub args: [AtomicU64; 6],
    /// A count, or a negated errno.
    pub result: AtomicI64,
}

/// Contexts for recolouring that the agent makes at a time, beside the one in use: each time that the
/// program moves memory which is being recoloured takes one.
pub const SPARES: usize = 8;
/// All contexts for recolouring.
pub const MOVE_CONTEXTS: usize = SPARES + 1;
/// Most descriptors of one message.
pub const MAX_FDS: usize = 12;

/// What a message of the agent says: it has started; contexts come along, of which the supervisor
/// has to ask the kernel for [`MOVE_FEATURES`]; it could not start.
pub mod say {
    /// See [`super::say`].
    pub const READY: u8 = b'r';
    /// See [`super::say`].
    pub const CONTEXTS: u8 = b'x';
    /// See [`super::say`].
    pub const FAILED: u8 = b'!';
    /// Faults were served while the supervisor slept.
    pub const FAULTS: u8 = b'f';
    /// Of the supervisor: the contexts can be used.
    pub const GRANTED: u8 = b'g';
    /// Of the supervisor: there is a command, or the descriptors that were promised.
    pub const COMMAND: u8 = b'c';
}

/// What a userfaultfd of a context must be able to do: moving pages.
pub const SERVE_FEATURES: u64 = 1 << 16;
/// The same for the stock, where whoever touches a place without a page fails and does not wait for ever: an
/// mlockall of the program reaches for every page that it could have.
pub const STOCK_FEATURES: u64 = SERVE_FEATURES | 1 << 7;
/// The same, poisoning pages, and telling of fork, remap, remove and unmap: the kernel allows that to
/// those only who may trace, so that the supervisor asks for it.
pub const MOVE_FEATURES: u64 = SERVE_FEATURES | 1 << 14 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 6;

/// The uid and gid of the agent in programs that have privileges: one that no process has. A process
/// with the same uid could write to the program's memory through our threads, since they have no
/// capability that it lacks; so it must not be `nobody`, whom services run as.
pub const UNPRIVILEGED_ID: u32 = 0xffff_ff00;

/// A range of the target's memory whose missing pages the agent serves.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AreaEntry {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Bit 1: grows down.
    pub flags: u64,
    /// Where the last fault-around ended, for the agent's read-ahead.
    pub next: u64,
    /// Pages placed around the last fault.
    pub window: u64,
}

/// [`Setup::sent`]: the list of areas with their flags, `/proc/PID/smaps`.
pub const SENT_AREAS: u64 = 1;
/// [`Setup::sent`]: a device to make userfaultfds from.
pub const SENT_DEVICE: u64 = 2;
/// [`Setup::sent`]: the object with the reference pages.
pub const SENT_REFERENCE: u64 = 4;

/// [`AreaEntry::flags`]: a stack.
pub const AREA_DOWN: u64 = 2;

/// A timing job in shared memory; see `probe::timing`.
#[repr(C)]
pub struct TimingJobArea {
    /// Counts: stream, rounds, offsets, passes, reload, prime, depth.
    pub counts: [u32; 7],
    /// So that what follows is aligned.
    pub unused: u32,
    /// Page addresses to stream.
    pub stream: [u64; MAX_STREAM],
    /// (first, length) of each round's part of `stream`.
    pub rounds: [[u32; 2]; MAX_ROUNDS],
    /// Line offsets in a page, bytes.
    pub offsets: [u16; MAX_OFFSETS],
    /// Line addresses to time.
    pub reload: [u64; MAX_RELOAD],
    /// Measured ticks per round and line.
    pub latencies: [u16; MAX_ROUNDS * MAX_RELOAD],
}

/// Settings that the agent reads once.
#[repr(C)]
pub struct Setup {
    /// Pages of the stock ring: a power of two.
    pub ring_pages: u64,
    /// Bytes of the candidate area.
    pub candidate_bytes: u64,
    /// Bytes of the reference object; 0 when colours need no probing.
    pub reference_bytes: u64,
    /// Bytes of this shared memory.
    pub shared_bytes: u64,
    /// Where the loader put the code, for the way out.
    pub code_base: u64,
    /// Bytes of code.
    pub code_bytes: u64,
    /// Where the stacks are.
    pub stack_base: u64,
    /// 1: the process comes from one that another agent of ours is or was in, so that its "no huge
    /// pages" flag, which children and executed programs inherit, is ours.
    pub heir: u64,
    /// Which descriptors follow that of the shared memory: a sum of `SENT_…`, in this order.
    pub sent: u64,
    /// 1: the target may go on getting huge pages, 0: it gets none any more.
    pub keep_huge: u64,
    /// Calls that the agent must do without, since a filter of the program forbids them: a sum of `WITHOUT_…`.
    pub without: u64,
    /// The step of the start that is to fail, for tests; 0: none.
    pub fail_at: u64,
}

/// [`Setup::without`]: Landlock.
pub const WITHOUT_LANDLOCK: u64 = 1;
/// [`Setup::without`]: changing uid, gid, groups and capabilities, where the program has nothing to lose.
pub const WITHOUT_IDS: u64 = 2;
/// [`Setup::without`]: ending locks on its own memory. Pages of locked memory stay where they are then.
pub const WITHOUT_LOCKS: u64 = 4;

/// Steps of the agent's start, in order; [`Report::step`].
pub mod step {
    /// Make the userfaultfds.
    pub const CONTEXTS: u64 = 1;
    /// Map stock, candidates, recycling area and pages of zeroes.
    pub const AREAS: u64 = 2;
    /// Map the reference pages.
    pub const REFERENCE: u64 = 3;
    /// Watch our own areas.
    pub const OWN: u64 = 4;
    /// Keep them out of children and core dumps.
    pub const SPARE_CHILDREN: u64 = 5;
    /// Give up every right.
    pub const RIGHTS: u64 = 6;
    /// Start the worker.
    pub const WORKER: u64 = 7;
    /// Give up all system calls that are not needed.
    pub const CALLS: u64 = 8;
    /// Forbid huge pages.
    pub const HUGE_PAGES: u64 = 9;
    /// The last one.
    pub const LAST: u64 = HUGE_PAGES;
    /// What a step does, for messages.
    pub const fn name(step: u64) -> &'static str {
        match step {
            CONTEXTS => "make userfaultfds",
            AREAS => "map its areas",
            REFERENCE => "map the reference pages",
            OWN => "watch its own areas",
            SPARE_CHILDREN => "keep its areas out of children",
            RIGHTS => "give up its rights",
            WORKER => "start its second thread",
            CALLS => "install its seccomp filter",
            HUGE_PAGES => "forbid huge pages",
            _ => "start",
        }
    }
}

/// Addresses and outcomes that the agent reports once it runs.
#[repr(C)]
pub struct Report {
    /// 0 while starting, 1 when ready, 2 when gone; a negated errno when it could not start.
    pub state: AtomicI64,
    /// Which step of the start failed.
    pub step: AtomicU64,
    /// Thread id of the worker, as the target knows it; 0 before it was started.
    pub worker: AtomicU32,
    /// Base addresses in the target: stock ring, candidates, recycling, reference, this memory.
    pub ring: AtomicU64,
    /// See `ring`.
    pub candidates: AtomicU64,
    /// See `ring`.
    pub recycle: AtomicU64,
    /// See `ring`.
    pub reference: AtomicU64,
    /// See `ring`.
    pub shared: AtomicU64,
    /// Where [`ZERO_PAGES`] pages of zeroes are: reading them must never wait for ourselves.
    pub zero: AtomicU64,
    /// What the "no huge pages" flag of the process was before us (0 or 1), or would have been.
    pub thp_before: AtomicU64,
}

/// Running counts, read by the supervisor at any time.
#[repr(C)]
pub struct Counters {
    /// Faults that the agent answered.
    pub faults: AtomicU64,
    /// Pages that it placed for them, from the stock.
    pub placed: AtomicU64,
    /// Pages of any colour placed because the stock was empty.
    pub fallback: AtomicU64,
    /// Faults that had to wait because the stock was empty (strict).
    pub waited: AtomicU64,
    /// Pages recoloured.
    pub recolored: AtomicU64,
    /// Nanoseconds that recolouring took, from the first page of a command to its last.
    pub recolor_ns: AtomicU64,
    /// Of these, nanoseconds on a CPU.
    pub recolor_cpu_ns: AtomicU64,
    /// Most nanoseconds that a page was out: whoever touched it waited that long at most.
    pub longest_out_ns: AtomicU64,
    /// Nanoseconds on a CPU that looks at pages in place took.
    pub look_cpu_ns: AtomicU64,
    /// Pages put back by a copy into a frame of any colour since their area changed meanwhile.
    pub copied_back: AtomicU64,
    /// Pages dropped since the program discarded them meanwhile.
    pub dropped: AtomicU64,
    /// Pages given to a child that was forked meanwhile.
    pub child_copies: AtomicU64,
    /// Forks, remaps, removals seen while pages were out.
    pub events: AtomicU64,
    /// Errors that should not occur; the last errno and where.
    pub unexpected_errors: AtomicU64,
    /// Errno of the last unexpected error.
    pub unexpected_errno: AtomicI64,
    /// Place of the last unexpected error.
    pub unexpected_place: AtomicU64,
    /// Contexts for recolouring that are left.
    pub spares: AtomicU64,
    /// Pages that could not be given to a child and were poisoned there: reading them ends it.
    pub poisoned: AtomicU64,
}

impl Counters {
    /// Counts an error that should not occur.
    pub fn note_unexpected(&self, place: u64, errno: i64) {
        self.unexpected_errors.fetch_add(1, Relaxed);
        self.unexpected_errno.store(errno, Relaxed);
        self.unexpected_place.store(place, Relaxed);
    }
}

/// The shared memory as a whole.
#[repr(C)]
pub struct Shared {
    /// Read once by the agent.
    pub setup: Setup,
    /// Written once by the agent.
    pub report: Report,
    /// Next stock slot to hand out; slot `i` lies at `ring + (i % ring_pages) * 4096`.
    pub head: AtomicU64,
    /// Next stock slot to fill.
    pub tail: AtomicU64,
    /// Frames waiting in the recycling area, from its start.
    pub recycled: AtomicU64,
    /// Most pages to place around a fault.
    pub fault_around: AtomicU64,
    /// 1: a fault waits when the stock is empty, 0: it gets a frame of any colour.
    pub strict: AtomicU64,
    /// Up to where the worker has backed candidates.
    pub backed: AtomicU64,
    /// 1: the supervisor sleeps, and is to hear of the next fault that is served.
    pub ring_at_faults: AtomicU32,
    /// 1: the worker should leave.
    pub worker_quit: AtomicU32,
    /// 1: the worker has left.
    pub worker_gone: AtomicU32,
    /// So that what follows is aligned.
    pub unused: AtomicU32,
    /// Counts.
    pub counters: Counters,
    /// Commands to the main thread.
    pub main: Slot,
    /// Commands to the worker.
    pub worker: Slot,
    /// Pages of the main thread's list.
    pub main_pages: [AtomicU64; MAX_PAGES],
    /// One errno (0: done) for each of them.
    pub main_results: [AtomicU32; MAX_PAGES],
    /// Pages of the worker's list.
    pub worker_pages: [AtomicU64; MAX_PAGES],
    /// Two area tables; one is in use while the other is written.
    pub areas: [[AreaEntry; MAX_AREAS]; 2],
    /// The timing job.
    pub timing: TimingJobArea,
}
