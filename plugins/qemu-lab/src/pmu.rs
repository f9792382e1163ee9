//! What a PMU is made of, where one is wanted: instructions of programs, counted by the code that QEMU makes and told
//! when another program's turn comes, and the addresses, as programs have them, of loads: of one in so many on
//! average, at distances by chance, so that no loop keeps step with them. Chance begins the same each time.
//! Only where processors take turns: one thread at a time is in here.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::api;
use crate::lab::{LabMark, LabWord};
use crate::{stream, turn_page, turns};

/// Addresses that a word cannot hold are not sampled.
const ADDRESS_BITS: u32 = 49;

/// Loads for each that is sampled; 0: there is no PMU.
static PERIOD: AtomicU64 = AtomicU64::new(0);
/// Loads up to the next one.
static LEFT: AtomicU64 = AtomicU64::new(0);
static CHANCE: AtomicU64 = AtomicU64::new(1);
/// Instructions of programs since they were told; added to by code of QEMU's.
static INSTRUCTIONS: AtomicU64 = AtomicU64::new(0);
/// The processor that makes them.
static CPU: AtomicU32 = AtomicU32::new(0);

/// There is a PMU, which samples one load in `period`.
pub fn begin(period: u64) {
    PERIOD.store(period, Relaxed);
    LEFT.store(period, Relaxed);
}

fn is_there() -> bool {
    PERIOD.load(Relaxed) != 0 && turns::are_given()
}

/// Has the instructions of a block counted if it is a program's.
///
/// # Safety
/// QEMU is translating the block, which is not empty.
pub unsafe fn translated(block: *mut api::Block) {
    if !is_there() {
        return;
    }
    // SAFETY: as promised by the caller; the number lives as long as QEMU.
    #[cfg(not(since_9_0))]
    unsafe {
        if api::qemu_plugin_insn_vaddr(api::qemu_plugin_tb_get_insn(block, 0)) >> 63 == 0 {
            let (count, of) = (INSTRUCTIONS.as_ptr().cast(), api::qemu_plugin_tb_n_insns(block));
            api::qemu_plugin_register_vcpu_tb_exec_inline(block, api::ADD, count, of as u64);
        }
    }
    // Later emulators have no turns, and so no PMU.
    #[cfg(since_9_0)]
    let _ = block;
}

/// Tells the instructions made since the last time; a processor goes on.
pub fn tell_instructions(cpu: u32) {
    if !is_there() {
        return;
    }
    let made = INSTRUCTIONS.swap(0, Relaxed);
    let by = CPU.swap(cpu, Relaxed);
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
    if word.is_kernel() {
        if turn_page::stored(word).is_some() || cpu != CPU.load(Relaxed) {
            tell_instructions(cpu);
        }
        return;
    }
    if cpu != CPU.load(Relaxed) {
        tell_instructions(cpu);
    }
    if !word.is_store() && is_due() && address >> ADDRESS_BITS == 0 {
        stream::push(LabWord::told(cpu, LabMark::Sampled, address));
    }
}

/// Counts a load; whether it is sampled.
fn is_due() -> bool {
    let left = LEFT.load(Relaxed);
    if left > 1 {
        LEFT.store(left - 1, Relaxed);
        return false;
    }
    let period = PERIOD.load(Relaxed);
    // Knuth's MMIX; the high bits are the good ones.
    let chance = CHANCE.load(Relaxed).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    CHANCE.store(chance, Relaxed);
    LEFT.store(period / 2 + (chance >> 33) % period.max(1) + 1, Relaxed);
    true
}
