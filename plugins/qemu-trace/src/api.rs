//! The part of QEMU's plugin interface that the plugins use; that of the lab compiles this file as well. The
//! symbols are resolved from the emulator when it loads a plugin, so none may be missing there.
//!
//! Version 1 is that of QEMU 4.2 to 8. Version 2 (9.0) took away inline operations on one place for all processors, and
//! refuses plugins for version 1: they are built twice, for later emulators with `cfg(since_9_0)`. Version 3 (9.1)
//! copies an instruction's bytes where those before point to them, under the same name: that is told apart when the
//! plugin runs. Versions 4 and 5 only add to it.

use std::ffi::{c_char, c_int, c_uint, c_void};
#[cfg(since_9_0)]
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// Number that QEMU gives a plugin.
pub type Id = u64;
/// Kind and size of an access, packed.
pub type MemInfo = u32;
/// A block in translation; opaque.
pub type Block = c_void;
/// An instruction of a block; opaque.
pub type Instruction = c_void;
/// Where an access goes; opaque.
pub type HardwareAddress = c_void;

/// The least version of the interface that has all that the plugin uses.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks for this name")]
pub static qemu_plugin_version: c_int = if cfg!(since_9_0) { 2 } else { 1 };

/// `QEMU_PLUGIN_CB_NO_REGS`: a callback that does not look at registers.
pub const NO_REGISTERS: c_uint = 0;
/// `QEMU_PLUGIN_INLINE_ADD_U64`: the one inline operation.
#[cfg(not(since_9_0))]
pub const ADD: c_uint = 0;
/// `QEMU_PLUGIN_MEM_RW`: loads and stores.
pub const READ_WRITE: c_uint = 3;

/// What QEMU says of itself: the beginning of `qemu_info_t`.
#[repr(C)]
pub struct Info {
    /// The emulated architecture.
    pub target: *const c_char,
    /// The least and the present version of the interface.
    pub versions: [c_int; 2],
    /// Whether a whole machine is emulated.
    pub system: bool,
}

pub type OnSimple = extern "C" fn(Id);
pub type OnEnd = extern "C" fn(Id, *mut c_void);
pub type OnProcessor = extern "C" fn(Id, c_uint);
pub type OnBlock = extern "C" fn(Id, *mut Block);
pub type OnExecution = extern "C" fn(c_uint, *mut c_void);
pub type OnAccess = extern "C" fn(c_uint, MemInfo, u64, *mut c_void);
pub type OnCall = extern "C" fn(Id, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub type OnReturn = extern "C" fn(Id, c_uint, i64, i64);

#[rustfmt::skip]
unsafe extern "C" {
    pub fn qemu_plugin_reset(id: Id, done: OnSimple);
    pub fn qemu_plugin_register_atexit_cb(id: Id, call: OnEnd, data: *mut c_void);
    pub fn qemu_plugin_register_flush_cb(id: Id, call: Option<OnSimple>);
    pub fn qemu_plugin_register_vcpu_init_cb(id: Id, call: OnProcessor);
    pub fn qemu_plugin_register_vcpu_exit_cb(id: Id, call: OnProcessor);
    pub fn qemu_plugin_register_vcpu_tb_trans_cb(id: Id, call: OnBlock);
    pub fn qemu_plugin_register_vcpu_syscall_cb(id: Id, call: OnCall);
    pub fn qemu_plugin_register_vcpu_syscall_ret_cb(id: Id, call: OnReturn);
    pub fn qemu_plugin_register_vcpu_tb_exec_cb(block: *mut Block, call: OnExecution, flags: c_uint, data: *mut c_void);
    #[cfg(not(since_9_0))]
    pub fn qemu_plugin_register_vcpu_tb_exec_inline(block: *mut Block, op: c_uint, target: *mut c_void, value: u64);
    pub fn qemu_plugin_register_vcpu_insn_exec_cb(insn: *mut Instruction, call: OnExecution, flags: c_uint, data: *mut c_void);
    pub fn qemu_plugin_register_vcpu_mem_cb(insn: *mut Instruction, call: OnAccess, flags: c_uint, rw: c_uint, data: *mut c_void);
    pub fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Instruction;
    pub fn qemu_plugin_insn_vaddr(insn: *const Instruction) -> u64;
    pub fn qemu_plugin_insn_haddr(insn: *const Instruction) -> *mut c_void;
    pub fn qemu_plugin_insn_size(insn: *const Instruction) -> usize;
    pub fn qemu_plugin_mem_size_shift(info: MemInfo) -> c_uint;
    pub fn qemu_plugin_mem_is_store(info: MemInfo) -> bool;
    pub fn qemu_plugin_get_hwaddr(info: MemInfo, address: u64) -> *mut HardwareAddress;
    pub fn qemu_plugin_hwaddr_is_io(address: *const HardwareAddress) -> bool;
    pub fn qemu_plugin_hwaddr_phys_addr(address: *const HardwareAddress) -> u64;
    #[cfg(not(since_9_0))]
    fn qemu_plugin_insn_data(insn: *const Instruction) -> *const c_void;
    /// From version 3 on; before, it takes `insn` alone and points to the bytes.
    #[cfg(since_9_0)]
    fn qemu_plugin_insn_data(insn: *const Instruction, to: *mut c_void, len: usize) -> usize;
}

/// The version of the emulator's interface; told by [`meet`].
#[cfg(since_9_0)]
static VERSION: AtomicI32 = AtomicI32::new(0);
/// The first version that copies an instruction's bytes.
#[cfg(since_9_0)]
const COPIES: c_int = 3;

/// Notes what QEMU says of itself; the first thing that a plugin does.
pub fn meet(info: &Info) {
    #[cfg(since_9_0)]
    VERSION.store(info.versions[1], Relaxed);
    let _ = info;
}

/// The first bytes of an instruction, if it has as many as that.
///
/// # Safety
/// `insn` is one of the block in translation.
pub unsafe fn instruction<const N: usize>(insn: *const Instruction) -> Option<[u8; N]> {
    // SAFETY: as promised by the caller.
    if unsafe { qemu_plugin_insn_size(insn) } != N {
        return None;
    }
    let mut bytes = [0_u8; N];
    // SAFETY: the instruction has as many bytes as there is room.
    unsafe { read(insn, bytes.as_mut_ptr(), N) };
    Some(bytes)
}

/// Reads the bytes of an instruction.
///
/// # Safety
/// `insn` is one of the block in translation and has `length` bytes, for which there is room at `to`.
unsafe fn read(insn: *const Instruction, to: *mut u8, length: usize) {
    #[cfg(since_9_0)]
    if VERSION.load(Relaxed) >= COPIES {
        // SAFETY: as promised by the caller.
        unsafe { qemu_plugin_insn_data(insn, to.cast(), length) };
        return;
    }
    #[cfg(since_9_0)]
    // SAFETY: the type that the function has before version 3.
    let points = unsafe {
        std::mem::transmute::<
            unsafe extern "C" fn(*const Instruction, *mut c_void, usize) -> usize,
            unsafe extern "C" fn(*const Instruction) -> *const c_void,
        >(qemu_plugin_insn_data)
    };
    #[cfg(not(since_9_0))]
    let points = qemu_plugin_insn_data;
    // SAFETY: QEMU points to the bytes that the instruction has; the caller promises the rest.
    unsafe { to.copy_from(points(insn).cast(), length) };
}
