//! The part of QEMU's plugin interface that the plugins use; that of the lab compiles this file as well. The
//! symbols are resolved from the emulator when it loads a plugin. Versions 1 (QEMU 4.2 to 8) and 3 (9.1 and
//! later) differ in how an instruction's bytes are had; `cfg(copied_instructions)` is the later one.

use std::ffi::{c_char, c_int, c_uint, c_void};

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

/// The version of the interface that the plugin was built for.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks for this name")]
pub static qemu_plugin_version: c_int = if cfg!(copied_instructions) { 3 } else { 1 };

/// `QEMU_PLUGIN_CB_NO_REGS`: a callback that does not look at registers.
pub const NO_REGISTERS: c_uint = 0;
/// `QEMU_PLUGIN_INLINE_ADD_U64`: the one inline operation.
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
    pub fn qemu_plugin_path_to_binary() -> *const c_char;
    #[cfg(not(copied_instructions))]
    fn qemu_plugin_insn_data(insn: *const Instruction) -> *const c_void;
    #[cfg(copied_instructions)]
    fn qemu_plugin_insn_data(insn: *const Instruction, to: *mut c_void, len: usize) -> usize;
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
    // SAFETY: QEMU writes, or points to, the `N` bytes that the instruction has.
    unsafe {
        #[cfg(copied_instructions)]
        qemu_plugin_insn_data(insn, bytes.as_mut_ptr().cast(), N);
        #[cfg(not(copied_instructions))]
        bytes.as_mut_ptr().copy_from(qemu_plugin_insn_data(insn).cast(), N);
    }
    Some(bytes)
}
