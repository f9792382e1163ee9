//! Fair turns of processors that share a thread of QEMU. Versions before 8.1 give the first processor all
//! time up to the next timer, then the first one again: others wait for what the first one leaves, and four
//! that are busy never get far. So a turn ends after a number of accesses, and, before accesses are told, of
//! blocks of instructions.
//!
//! The interface has no call for that. But whoever registers or unregisters an event has each
//! processor told of it, which leaves what it does to hear it, and the next one goes on.

use std::ffi::c_uint;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::api;

/// Blocks that count like an access that is told: an emulator is so much quicker with them, and the end of a
/// turn costs the same.
const BLOCKS: u64 = 8;

/// Blocks in a turn; 0: processors have a thread each, or need no turns.
static LENGTH: AtomicU64 = AtomicU64::new(0);
/// What is left of them to the processor whose turn it is.
static LEFT: AtomicU64 = AtomicU64::new(0);
static WHOSE: AtomicU32 = AtomicU32::new(u32::MAX);
static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Sets the accesses in a turn.
pub fn set_length(accesses: u64) {
    LENGTH.store(accesses * BLOCKS, Relaxed);
}

/// Whether there are turns.
pub fn are_given() -> bool {
    LENGTH.load(Relaxed) != 0
}

/// Counts an access.
#[inline]
pub fn accessed(id: api::Id, cpu: c_uint) {
    count(id, cpu, BLOCKS);
}

/// Counts a block.
#[inline]
pub fn executed(id: api::Id, cpu: c_uint) {
    count(id, cpu, 1);
}

/// Ends the turn where that is due. Only one thread calls this.
#[inline]
fn count(id: api::Id, cpu: c_uint, blocks: u64) {
    let length = LENGTH.load(Relaxed);
    if length == 0 {
        return;
    }
    if WHOSE.load(Relaxed) != cpu {
        WHOSE.store(cpu, Relaxed);
        LEFT.store(length, Relaxed);
    }
    let left = LEFT.load(Relaxed).saturating_sub(blocks);
    LEFT.store(left, Relaxed);
    if left == 0 {
        LEFT.store(length, Relaxed);
        end(id);
    }
}

/// Ends the turn of the processor that runs.
fn end(id: api::Id) {
    let call: Option<api::OnSimple> =
        if REGISTERED.fetch_xor(true, Relaxed) { None } else { Some(nothing) };
    // SAFETY: the number is ours, and the function lives as long as QEMU.
    unsafe { api::qemu_plugin_register_flush_cb(id, call) };
}

extern "C" fn nothing(_: api::Id) {}
