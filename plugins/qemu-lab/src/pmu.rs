//! What a PMU is made of, where one is wanted: instructions of programs, counted as they are executed and told
//! when another program's turn comes, and the addresses, as programs have them, of loads: of one in so many on
//! average, at distances by chance, so that no loop keeps step with them. Chance begins the same each time.
//!
//! Where processors take turns, all share one count, to which code that QEMU makes adds. With a thread for each, each
//! has its own, which a call for each block adds to.

use std::ffi::{c_uint, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::api;
use crate::lab::{LabMark, LabWord};
use crate::{stream, turn_page, turns};

/// Addresses that a word cannot hold are not sampled.
const ADDRESS_BITS: u32 = 49;
/// Processors that words tell apart.
const CPUS: usize = 256;

/// Loads for each that is sampled; 0: there is no PMU.
static PERIOD: AtomicU64 = AtomicU64::new(0);
static COUNTERS: [Counters; CPUS] = [const { Counters::new() }; CPUS];
/// The processor that makes instructions, where they take turns.
static CPU: AtomicU32 = AtomicU32::new(0);

/// What is counted; changed by one thread at a time.
struct Counters {
    /// Loads up to the next one that is sampled.
    left: AtomicU64,
    chance: AtomicU64,
    /// Instructions of programs since they were told.
    instructions: AtomicU64,
}

impl Counters {
    const fn new() -> Counters {
        Counters {
            left: AtomicU64::new(1),
            chance: AtomicU64::new(1),
            instructions: AtomicU64::new(0),
        }
    }

    /// Counts a load; whether it is sampled.
    fn is_due(&self) -> bool {
        let left = self.left.load(Relaxed);
        if left > 1 {
            self.left.store(left - 1, Relaxed);
            return false;
        }
        let period = PERIOD.load(Relaxed);
        // Knuth's MMIX; the high bits are the good ones.
        let chance =
            self.chance.load(Relaxed).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.chance.store(chance, Relaxed);
        self.left.store(period / 2 + (chance >> 33) % period.max(1) + 1, Relaxed);
        true
    }
}

/// Those of a processor.
#[inline(always)]
fn counters(cpu: u32) -> &'static Counters {
    let own = if turns::are_given() { 0 } else { cpu as usize % CPUS };
    &COUNTERS[own]
}

/// There is a PMU, which samples one load in `period`.
pub fn begin(period: u64) {
    PERIOD.store(period, Relaxed);
    COUNTERS.iter().for_each(|counters| counters.left.store(period, Relaxed));
}

fn is_there() -> bool {
    PERIOD.load(Relaxed) != 0
}

/// Has the instructions of a block counted if it is a program's.
///
/// # Safety
/// QEMU is translating the block, which is not empty.
pub unsafe fn translated(block: *mut api::Block) {
    if !is_there() {
        return;
    }
    // SAFETY: as promised by the caller.
    let (first, count) = unsafe {
        let first = api::qemu_plugin_insn_vaddr(api::qemu_plugin_tb_get_insn(block, 0));
        (first, api::qemu_plugin_tb_n_insns(block))
    };
    if first >> 63 != 0 {
        return;
    }
    // Later emulators have no turns.
    #[cfg(not(since_9_0))]
    if turns::are_given() {
        let all = COUNTERS[0].instructions.as_ptr().cast();
        // SAFETY: as promised by the caller; the number lives as long as QEMU.
        unsafe {
            api::qemu_plugin_register_vcpu_tb_exec_inline(block, api::ADD, all, count as u64);
        }
        return;
    }
    let data = std::ptr::without_provenance_mut(count);
    // SAFETY: as promised by the caller; what is registered is a function of ours, with a number for a pointer.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_exec_cb(block, executed, api::NO_REGISTERS, data);
    }
}

/// A processor executes a block of so many instructions of a program.
extern "C" fn executed(cpu: c_uint, count: *mut c_void) {
    counters(cpu).instructions.fetch_add(count.addr() as u64, Relaxed);
}

/// Tells the instructions made since the last time; a processor goes on.
pub fn tell_instructions(cpu: u32) {
    if !is_there() {
        return;
    }
    let made = counters(cpu).instructions.swap(0, Relaxed);
    let by = if turns::are_given() { CPU.swap(cpu, Relaxed) } else { cpu };
    if made != 0 {
        stream::push(LabWord::told(by, LabMark::Instructions, made));
    }
}

/// An access is told next, to an address as the processor has it.
#[inline]
pub fn note(word: LabWord, address: u64) {
    if !is_there() {
        return;
    }
    let cpu = word.cpu() as u32;
    let is_another = turns::are_given() && cpu != CPU.load(Relaxed);
    if is_another || word.is_kernel() && turn_page::stored(word).is_some() {
        tell_instructions(cpu);
    }
    let is_load = !word.is_kernel() && !word.is_store();
    if is_load && counters(cpu).is_due() && address >> ADDRESS_BITS == 0 {
        stream::push(LabWord::told(cpu, LabMark::Sampled, address));
    }
}
