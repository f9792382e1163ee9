//! One process of the program: its address space, its threads, and the system calls after
//! which there is another process or another program. Translation decides here which
//! callbacks a block gets.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use crate::api::{self, Block, Id};
use crate::processor::{self, THREADED};
use crate::{exec, ring, sys};

const MMAP: i64 = 9;
const SHMAT: i64 = 30;
const CLONE: i64 = 56;
const FORK: i64 = 57;
const VFORK: i64 = 58;
const EXECVE: i64 = 59;
const EXIT: i64 = 60;
const EXIT_GROUP: i64 = 231;
const CLONE_VM: u64 = 0x100;
const CLONE_VFORK: u64 = 0x4000;
const MAP_SHARED: u64 = 1;
/// Words that are worth a publication before a call that may block.
const WORTH: u32 = 1024;
/// Bytes of a line of instructions: a fetch never crosses one.
const LINE: u64 = 64;

static ID: AtomicU64 = AtomicU64::new(0);
static PID: AtomicU32 = AtomicU32::new(0);
static SPACE: AtomicU32 = AtomicU32::new(0);
static THREADS: AtomicU32 = AtomicU32::new(0);
/// Whether a change of the callbacks is under way.
static CHANGED: AtomicBool = AtomicBool::new(false);

/// This process.
pub fn pid() -> u32 {
    PID.load(Relaxed)
}

/// Its address space.
pub fn space() -> u32 {
    SPACE.load(Relaxed)
}

/// The number of a new thread of this process.
pub fn new_thread() -> u32 {
    let control = ring::control();
    control.threads.fetch_add(1, Relaxed);
    control.processors.fetch_add(1, Relaxed);
    THREADS.fetch_add(1, Relaxed)
}

/// A new image: of a new process, or of one that executed another program.
pub fn begin(id: Id) {
    // SAFETY: takes and changes nothing.
    PID.store(unsafe { sys::getpid() }.cast_unsigned(), Relaxed);
    ID.store(id, Relaxed);
    SPACE.store(ring::control().spaces.fetch_add(1, Relaxed), Relaxed);
    ring::adopt(pid());
    register(id);
}

fn recording() -> bool {
    ring::control().go.load(Acquire) != 0
}

extern "C" fn register(id: Id) {
    // SAFETY: `id` is ours, and the callbacks have the types that QEMU calls them with.
    unsafe {
        api::qemu_plugin_register_vcpu_init_cb(id, on_start);
        api::qemu_plugin_register_vcpu_exit_cb(id, on_end);
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
        api::qemu_plugin_register_vcpu_syscall_cb(id, on_call);
        api::qemu_plugin_register_vcpu_syscall_ret_cb(id, on_return);
    }
}

extern "C" fn on_start(_: Id, index: c_uint) {
    processor::started(index);
}

extern "C" fn on_end(_: Id, index: c_uint) {
    processor::close(index);
    ring::control().processors.fetch_sub(1, Relaxed);
}

/// The beginning was skipped: translate everything again, with callbacks for accesses.
///
/// There is no way back: QEMU before 8.0 keeps a pointer to the callbacks of the last
/// instruction that accessed memory through a helper, and follows it at the next such access
/// of code without callbacks, when it may have been freed. Once accesses are watched, they
/// stay watched; after the end of the recording the callbacks write to the dump.
pub fn skipped_enough() {
    if !CHANGED.swap(true, AcqRel) {
        // SAFETY: `id` is ours; QEMU takes the callbacks away when no block runs.
        unsafe { api::qemu_plugin_reset(ID.load(Relaxed), register_again) };
    }
}

extern "C" fn register_again(id: Id) {
    CHANGED.store(false, Relaxed);
    register(id);
}

extern "C" fn translate(_: Id, block: *mut Block) {
    // SAFETY: `block` is valid during this call, and so are its instructions.
    unsafe {
        let n = api::qemu_plugin_tb_n_insns(block);
        if n == 0 {
            return;
        }
        let first = api::qemu_plugin_tb_get_insn(block, 0);
        exec::learn(
            api::qemu_plugin_insn_haddr(first).addr() as u64,
            api::qemu_plugin_insn_vaddr(first),
        );
        count(block, n);
        if recording() {
            if ring::control().fetches.load(Relaxed) != 0 {
                watch_fetches(block, n);
            }
            watch_accesses(block, n);
        }
    }
}

/// Counts the instructions of a block when it is entered. A call takes much longer than generated code, but that adds
/// to one place for all processors. Since QEMU 9.0 it adds only to numbers that QEMU moves when there are more
/// processors, and calls count there.
unsafe fn count(block: *mut Block, n: usize) {
    #[cfg(not(since_9_0))]
    if recording() && !THREADED.load(Relaxed) {
        let counter = processor::counter(0);
        // SAFETY: `block` is valid, the counter is never freed.
        unsafe {
            api::qemu_plugin_register_vcpu_tb_exec_inline(block, api::ADD, counter, n as u64);
        }
        return;
    }
    let instructions = std::ptr::without_provenance_mut::<c_void>(n);
    let call = if recording() { processor::counted } else { processor::skipped };
    // SAFETY: `block` is valid.
    unsafe {
        let flags = api::NO_REGISTERS;
        api::qemu_plugin_register_vcpu_tb_exec_cb(block, call, flags, instructions);
    }
}

unsafe fn watch_accesses(block: *mut Block, n: usize) {
    for i in 0..n {
        let behind = std::ptr::without_provenance_mut(n - 1 - i);
        let (flags, both) = (api::NO_REGISTERS, api::READ_WRITE);
        // SAFETY: `i` is below the number of instructions of the valid block.
        unsafe {
            let insn = api::qemu_plugin_tb_get_insn(block, i);
            api::qemu_plugin_register_vcpu_mem_cb(insn, processor::access, flags, both, behind);
        }
    }
}

/// One fetch for each line that the block touches, with the instruction that enters it.
unsafe fn watch_fetches(block: *mut Block, n: usize) {
    // SAFETY: `i` is below the number of instructions of the valid block.
    let place = |i| unsafe {
        let insn = api::qemu_plugin_tb_get_insn(block, i);
        let start = api::qemu_plugin_insn_vaddr(insn);
        (insn, start, start + api::qemu_plugin_insn_size(insn) as u64)
    };
    let block_end = place(n - 1).2;
    let mut next = place(0).1;
    for i in 0..n {
        let (insn, _, end) = place(i);
        while next < end {
            let line_end = (next / LINE + 1) * LINE;
            let bytes = line_end.min(block_end) - next;
            let data = processor::pack(next, bytes, (n - 1 - i) as u64);
            let (call, flags) = (processor::fetched, api::NO_REGISTERS);
            // SAFETY: the instruction is valid during translation.
            unsafe { api::qemu_plugin_register_vcpu_insn_exec_cb(insn, call, flags, data) };
            next = line_end;
        }
    }
}

#[rustfmt::skip]
extern "C" fn on_call(
    _: Id, index: c_uint, number: i64, a: u64, b: u64, c: u64, d: u64,
    _: u64, _: u64, _: u64, _: u64,
) {
    match number {
        // QEMU translates everything again when memory may be shared or a thread be born, but
        // only for the first of these.
        MMAP if d & MAP_SHARED != 0 => THREADED.store(true, Relaxed),
        SHMAT => THREADED.store(true, Relaxed),
        CLONE if a & CLONE_VM != 0 && a & CLONE_VFORK == 0 => THREADED.store(true, Relaxed),
        CLONE | FORK | VFORK | EXIT | EXIT_GROUP => return processor::close(index),
        EXECVE => {
            processor::close(index);
            if ring::control().stop.load(Relaxed) == 0 {
                exec::follow(a, b, c);
            }
            return;
        }
        _ => {}
    }
    processor::settle(index, if THREADED.load(Relaxed) { 1 } else { WORTH });
}

extern "C" fn on_return(_: Id, index: c_uint, number: i64, result: i64) {
    // SAFETY: takes and changes nothing.
    let now = unsafe { sys::getpid() }.cast_unsigned();
    if matches!(number, CLONE | FORK | VFORK) && result == 0 && now != pid() {
        forked(index, now);
    }
}

/// This process is a child: a space and a first thread of its own.
fn forked(index: c_uint, now: u32) {
    let control = ring::control();
    PID.store(now, Relaxed);
    SPACE.store(control.spaces.fetch_add(1, Relaxed), Relaxed);
    control.processes.fetch_add(1, Relaxed);
    THREADS.store(0, Relaxed);
    processor::forget_others(index);
}
