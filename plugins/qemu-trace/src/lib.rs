//! A plugin for QEMU's user mode that streams every access to memory of a program, of its
//! threads and of its children into memory shared with `huepage trace`.
//!
//! It only records: what is done with the records, and when recording ends, is decided by
//! the recorder at the other end. Loaded as `-plugin libhuepage_qemu_trace.so,ring=PATH`.

#![allow(missing_docs, reason = "declarations of C functions need none")]

#[allow(dead_code, reason = "the other plugin uses the rest")]
mod api;
mod exec;
mod process;
mod processor;
#[path = "../../../crates/linux/src/sensors/records/program.rs"]
mod program;
#[path = "../../../crates/linux/src/sensors/records/protocol.rs"]
#[allow(dead_code, reason = "the recorder uses the rest")]
mod protocol;
mod ring;
mod sys;

use std::ffi::{CStr, CString, c_char, c_int};

/// Called by QEMU when it has loaded the plugin; 0 if all is well.
///
/// # Safety
/// QEMU passes a valid description of itself and `count` strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: api::Id,
    info: *const api::Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: as promised by the caller.
    let (info, arguments) = unsafe {
        let at = |i| CStr::from_ptr(*arguments.add(i)).to_string_lossy().into_owned();
        (&*info, (0..usize::try_from(count).unwrap_or(0)).map(at).collect::<Vec<_>>())
    };
    match install(id, info, &arguments) {
        Ok(()) => 0,
        Err(what) => {
            eprintln!("huepage: the recording plugin cannot start: {what}");
            1
        }
    }
}

fn install(id: api::Id, info: &api::Info, arguments: &[String]) -> Result<(), String> {
    api::meet(info);
    // SAFETY: QEMU names its target by a string that lives as long as it does.
    let target = unsafe { CStr::from_ptr(info.target) };
    if info.system || target != c"x86_64" {
        return Err(format!("it records 64-bit x86 programs, not {}", target.to_string_lossy()));
    }
    let ring = arguments.iter().find_map(|a| a.strip_prefix("ring="));
    let ring = ring.ok_or("it is given no ring=PATH; it is loaded by `huepage trace`")?;
    ring::open(&CString::new(ring).map_err(|_| "its path holds a NUL byte")?)?;
    // SAFETY: takes any number.
    let size = |info| unsafe { api::qemu_plugin_mem_size_shift(info) };
    // SAFETY: takes any number.
    let store = |info| unsafe { api::qemu_plugin_mem_is_store(info) };
    processor::learn(size, store)?;
    exec::remember(arguments)?;
    process::begin(id);
    Ok(())
}
