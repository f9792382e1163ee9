//! A plugin for QEMU's system emulation that streams every access of the guest to memory, by its
//! physical address, to standard output, which `huepage lab` reads. It only streams: what caches do
//! with the accesses, whose they are and which of them count is decided at the other end.
//!
//! Guests talk to it by an instruction that does nothing (`lab::MARK_BYTES`). Nothing is
//! streamed before the first mark, and accesses cost nothing until then: blocks translated before have
//! no call at each access, and one at most themselves (see `turns`). Loaded as `-plugin libhuepage_qemu_lab.so`.
//!
//! With `nodes=BYTES:BYTES` it is told how much memory each NUMA node of the guest has; what goes to other memory, of
//! devices, is left out. With `memory=FILE`, once for each node, it also tells pages by the guest's page tables (see
//! `pages`). `low=N` is how much of the memory is below other things.
//!
//! With `sampled=N` it also streams what a PMU is made of (see `pmu`): the guest may ask what that has seen, and waits
//! until the reader has answered by a byte on standard input.

#![allow(missing_docs, reason = "declarations of C functions need none")]

#[path = "../../qemu-trace/src/api.rs"]
#[allow(dead_code, reason = "the other plugin uses the rest")]
mod api;
#[path = "../../../crates/model/src/guest_places.rs"]
mod guest_places;
#[path = "../../../crates/model/src/lab.rs"]
#[allow(dead_code, reason = "the reader uses the rest")]
mod lab;
#[path = "../../../crates/model/src/page_tables.rs"]
mod page_tables;
mod pages;
mod pmu;
mod stream;
#[path = "../../../crates/model/src/translations.rs"]
mod translations;
mod turn_page;
mod turns;

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};

use guest_places::GuestPlaces;
use lab::{LabMark, LabWord, MARK_BYTES};

/// Whether blocks that are translated get calls at accesses: from the first mark to the end.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// Whether accesses are streamed: until the last mark.
static STREAMED: AtomicBool = AtomicBool::new(false);
/// Where the guest's memory is, if that was said.
static PLACES: OnceLock<GuestPlaces> = OnceLock::new();
/// Our number.
static ID: AtomicU64 = AtomicU64::new(0);

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
    let info = unsafe { &*info };
    api::meet(info);
    // SAFETY: QEMU names its target by a string that lives as long as it does.
    let target = unsafe { CStr::from_ptr(info.target) };
    if !info.system || target != c"x86_64" {
        eprintln!("huepage: the lab's plugin is for 64-bit x86 machines");
        return 1;
    }
    let mut asked = Arguments::default();
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: as promised by the caller.
        let argument = unsafe { CStr::from_ptr(*arguments.add(at)) }.to_string_lossy();
        if let Err(wrong) = asked.obey(&argument) {
            eprintln!("huepage: `{argument}` for the lab's plugin: {wrong}");
            return 1;
        }
    }
    // SAFETY: QEMU installs plugins before the guest runs.
    if let Err(error) = unsafe { asked.begin() } {
        eprintln!("huepage: the guest's memory for the lab's plugin: {error}");
        return 1;
    }
    ID.store(id, Relaxed);
    register(id);
    0
}

/// What arguments say, as far as it is not done at once: of the guest's memory.
#[derive(Default)]
struct Arguments {
    nodes: Vec<u64>,
    low: u64,
    /// The emulator says the addresses that the guest has.
    is_physical: bool,
    /// The file of each node; none: pages are not told.
    files: Vec<String>,
}

impl Arguments {
    /// Does what an argument of the plugin says, or notes it.
    fn obey(&mut self, argument: &str) -> Result<(), String> {
        let (key, value) = argument.split_once('=').ok_or("no value")?;
        let number = |text: &str| text.parse::<u64>().map_err(|_| "no number".to_owned());
        match key {
            "turns" => turns::set_length(number(value)?),
            "sampled" => pmu::begin(number(value)?),
            "low" => self.low = number(value)?,
            "nodes" => self.nodes = value.split(':').map(number).collect::<Result<_, _>>()?,
            "physical" => self.is_physical = number(value)? != 0,
            "memory" => self.files.push(value.to_owned()),
            _ => return Err("what is that?".to_owned()),
        }
        Ok(())
    }

    /// All has been said.
    ///
    /// # Safety
    /// Nothing of the guest runs yet.
    unsafe fn begin(self) -> io::Result<()> {
        let places = GuestPlaces::new(&self.nodes, self.low, self.is_physical);
        if !self.files.is_empty() {
            // SAFETY: as promised by the caller.
            unsafe { pages::begin(&self.files, places.clone())? };
        }
        if !self.nodes.is_empty() {
            // Nobody has set it before.
            let _ = PLACES.set(places);
        }
        Ok(())
    }
}

extern "C" fn register(id: api::Id) {
    // SAFETY: QEMU calls us with the number that it gave us, and the functions live as long as it does.
    unsafe {
        api::qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
        api::qemu_plugin_register_atexit_cb(id, ended, std::ptr::null_mut());
    }
}

extern "C" fn ended(_: api::Id, _: *mut c_void) {
    stream::flush();
}

extern "C" fn translated(_: api::Id, block: *mut api::Block) {
    let watched = WATCHED.load(Relaxed);
    // SAFETY: QEMU passes a block that lives during this call; its instructions are counted, and
    // what is registered are functions of ours, with a number in place of a pointer.
    unsafe {
        if !watched && turns::are_given() {
            let none = std::ptr::null_mut();
            api::qemu_plugin_register_vcpu_tb_exec_cb(block, executed, api::NO_REGISTERS, none);
        }
        if watched {
            pmu::translated(block);
        }
        for index in 0..api::qemu_plugin_tb_n_insns(block) {
            let insn = api::qemu_plugin_tb_get_insn(block, index);
            let bytes = api::instruction::<MARK_BYTES>(insn);
            if let Some(mark) = bytes.and_then(|bytes| lab::marked(&bytes)) {
                let data = std::ptr::without_provenance_mut(mark as usize);
                api::qemu_plugin_register_vcpu_insn_exec_cb(insn, marked, api::NO_REGISTERS, data);
            }
            if watched {
                let (none, both) = (std::ptr::null_mut(), api::READ_WRITE);
                api::qemu_plugin_register_vcpu_mem_cb(
                    insn,
                    accessed,
                    api::NO_REGISTERS,
                    both,
                    none,
                );
            }
        }
    }
}

extern "C" fn marked(cpu: c_uint, data: *mut c_void) {
    let Some(mark) = LabMark::of(data.addr() as u64) else { return };
    if mark == LabMark::Start && !WATCHED.swap(true, Relaxed) {
        STREAMED.store(true, Relaxed);
        // All blocks are translated again, now with calls.
        // SAFETY: the number is ours.
        unsafe { api::qemu_plugin_reset(ID.load(Relaxed), register) };
    }
    if STREAMED.load(Relaxed) {
        pmu::tell_instructions(cpu);
        if mark == LabMark::TurnPage {
            turn_page::await_page(cpu);
        }
        stream::push(LabWord::mark(cpu, mark));
        if mark == LabMark::Ask {
            stream::ask();
        }
    }
    if mark == LabMark::End {
        STREAMED.store(false, Relaxed);
        stream::flush();
    }
}

extern "C" fn executed(cpu: c_uint, _: *mut c_void) {
    turns::executed(ID.load(Relaxed), cpu);
}

extern "C" fn accessed(cpu: c_uint, info: api::MemInfo, address: u64, _: *mut c_void) {
    if !STREAMED.load(Relaxed) {
        return turns::accessed(ID.load(Relaxed), cpu);
    }
    // SAFETY: `info` and `address` are of the access that QEMU tells of; what it answers lives
    // until the next question of this thread.
    let (physical, size, store) = unsafe {
        let hardware = api::qemu_plugin_get_hwaddr(info, address);
        if hardware.is_null() || api::qemu_plugin_hwaddr_is_io(hardware) {
            return;
        }
        let physical = api::qemu_plugin_hwaddr_phys_addr(hardware);
        (physical, api::qemu_plugin_mem_size_shift(info), api::qemu_plugin_mem_is_store(info))
    };
    // Memory of devices is not the guest's.
    let Some(place) = PLACES.get().and_then(|places| places.of_seen(physical)) else { return };
    let word = LabWord::access(cpu, place, size, store, address >> 63 != 0);
    turn_page::note(word);
    pages::note(word, address);
    pmu::note(word, address);
    stream::push(word);
    turns::accessed(ID.load(Relaxed), cpu);
}
