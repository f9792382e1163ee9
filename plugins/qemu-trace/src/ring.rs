//! The producing side of the memory shared with the recorder: taking, publishing and
//! adopting chunks. The layout is in [`crate::protocol`].

use std::ffi::CStr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use crate::protocol::{BYTES, CHUNK_WORDS, CHUNKS, CHUNKS_AT_ONCE, Control, FREE, FULL, MAGIC};
use crate::protocol::{ChunkSlot, WORDS_AT};
use crate::sys;

/// Milliseconds between looks whether the recorder still lives.
const PATIENCE: i64 = 200;
/// Milliseconds between looks whether threads still hold all chunks, and how many looks there are.
const HELD_PATIENCE: i64 = 1;
const HELD_LOOKS: u32 = 3;

static BASE: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// Maps the memory at `path`. The descriptor is closed at once: a program may close or
/// replace any descriptor it finds.
pub fn open(path: &CStr) -> Result<(), String> {
    // SAFETY: `path` ends in NUL; the descriptor is ours and closed once; a mapping of an
    // address that the kernel chooses replaces nothing.
    let base = unsafe {
        let fd = sys::open(path.as_ptr(), sys::O_RDWR | sys::O_CLOEXEC);
        if fd < 0 {
            return Err(format!("cannot open {}", path.to_string_lossy()));
        }
        let none = std::ptr::null_mut();
        let base = sys::mmap(none, BYTES, sys::PROT_READ_WRITE, sys::MAP_SHARED, fd, 0);
        sys::close(fd);
        base
    };
    if base.addr() == usize::MAX {
        return Err(format!("cannot map {}", path.to_string_lossy()));
    }
    BASE.store(base.cast(), Release);
    if control().magic.load(Acquire) == MAGIC {
        Ok(())
    } else {
        Err("the recorder is of another version; build huepage and its plugin together".to_owned())
    }
}

/// The control block. Only after [`open`].
pub fn control() -> &'static Control {
    // SAFETY: `open` mapped at least a control block there, page-aligned and never unmapped;
    // it consists of atomics, for which every value is valid.
    unsafe { &*BASE.load(Relaxed).cast::<Control>() }
}

/// The words of a chunk.
pub fn words(chunk: usize) -> *mut u64 {
    let at = WORDS_AT + (chunk % CHUNKS) * CHUNK_WORDS * 8;
    // SAFETY: the modulus keeps it inside the mapping of `BYTES`.
    unsafe { BASE.load(Relaxed).add(at).cast() }
}

/// The description of a chunk.
pub fn slot(chunk: usize) -> &'static ChunkSlot {
    &control().slots[chunk]
}

/// Takes a free chunk for a thread; waits for the recorder while it has chunks to read.
/// `None` when recording has ended, or when threads hold all chunks there are.
pub fn acquire(pid: u32, space: u32, thread: u32) -> Option<usize> {
    let control = control();
    let mut looks = 0;
    loop {
        let seen = control.freed.load(SeqCst);
        if let Some(chunk) = take(pid) {
            let slot = slot(chunk);
            slot.fill.store(0, Relaxed);
            slot.space.store(space, Relaxed);
            slot.thread.store(thread, Relaxed);
            return Some(chunk);
        }
        let full = control.slots.iter().any(|slot| slot.state.load(Acquire) == FULL);
        // A chunk on its way to the recorder or back may be seen as held by a thread: one look
        // proves nothing.
        looks = if full { 0 } else { looks + 1 };
        if control.stop.load(Relaxed) != 0 || looks > HELD_LOOKS {
            return None;
        }
        wait(control, seen, if full { PATIENCE } else { HELD_PATIENCE });
    }
}

/// The lowest free chunk: what was used last is still in a cache.
fn take(pid: u32) -> Option<usize> {
    let control = control();
    let allowed = CHUNKS_AT_ONCE.saturating_add(control.processors.load(Relaxed)) as usize;
    control.slots.iter().take(allowed).position(|slot| {
        slot.state.load(Relaxed) == FREE
            && slot.state.compare_exchange(FREE, pid, AcqRel, Relaxed).is_ok()
    })
}

/// Waits until a chunk was freed; ends the recording if the recorder is gone.
fn wait(control: &Control, seen: u32, patience: i64) {
    control.waiting.fetch_add(1, SeqCst);
    sys::futex_wait(&control.freed, seen, patience);
    control.waiting.fetch_sub(1, SeqCst);
    let recorder = control.recorder.load(Relaxed).cast_signed();
    // SAFETY: signal 0 is never delivered.
    let gone = unsafe { sys::kill(recorder, 0) } != 0
        && std::io::Error::last_os_error().raw_os_error() == Some(sys::ESRCH);
    if gone {
        control.stop.store(1, Relaxed);
    }
}

/// Hands a chunk to the recorder.
pub fn publish(chunk: usize) {
    let control = control();
    let slot = slot(chunk);
    slot.order.store(control.published.fetch_add(1, SeqCst), Relaxed);
    slot.state.store(FULL, SeqCst);
    control.work.fetch_add(1, SeqCst);
    if control.idle.load(SeqCst) != 0 {
        sys::futex_wake(&control.work, 1);
    }
}

/// Publishes what an earlier image of this process left unfinished: its threads ended in
/// exec without a word.
pub fn adopt(pid: u32) {
    for (chunk, slot) in control().slots.iter().enumerate() {
        if slot.state.load(Acquire) == pid {
            publish(chunk);
        }
    }
}
