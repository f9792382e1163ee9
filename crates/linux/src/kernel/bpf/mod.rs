//! Tiny programs that run in the kernel when they are called (BPF): the bpf(2) system call as far as
//! it is needed, with a block of memory shared with programs, an assembler, and the kernel's view of
//! the memory of the machine. Libraries for it (`aya`, `libbpf-rs`) want compiled objects, and thus a
//! compiler for BPF where huepage is built. What programs do is their owners' business.

pub(crate) mod btf;
pub(crate) mod code;
pub(crate) mod memory;

use std::cell::Cell;
use std::ffi::CStr;
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use super::mapping::Mapping;
use code::Insn;

/// Why a program cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BpfError {
    /// The kernel refuses BPF, or frame numbers, to this process.
    #[error("the kernel does not let this process run BPF programs: run huepage as root")]
    NotPermitted,
    /// This kernel cannot do it for anybody.
    #[error("{0}")]
    NotSupported(&'static str),
    /// The kernel can do it, but did not.
    #[error("cannot {what}: {source}")]
    Failed {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

const MAP_CREATE: libc::c_int = 0;
const PROG_LOAD: libc::c_int = 5;
const PROG_TEST_RUN: libc::c_int = 10;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const MAP_TYPE_ARRAY: u32 = 2;
const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const MMAPABLE: u32 = 1 << 10;

/// The first fields of the kernel's `bpf_attr` for MAP_CREATE.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    flags: u32,
}

/// Those for PROG_LOAD.
#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
}

/// Those for PROG_TEST_RUN; without a context, the program may not look at it.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    result: u32,
    sizes: [u32; 2],
    data: [u64; 2],
    repeat: u32,
    duration: u32,
    context_sizes: [u32; 2],
    contexts: [u64; 2],
    flags: u32,
    cpu: u32,
    batch: u32,
    reserved: u32,
}

/// Those for RAW_TRACEPOINT_OPEN.
#[repr(C)]
struct RawTracepoint {
    name: u64,
    program: u32,
}

/// A program that runs at a tracepoint as long as this lives.
#[derive(Debug)]
pub(crate) struct Attached {
    _link: OwnedFd,
}

/// A field of what is shared, whose address is in R6, or bytes behind the start of a field.
macro_rules! field {
    ($whole:ident . $($name:tt).+) => { $crate::kernel::bpf::field!($whole.$($name).+, 0) };
    ($whole:ident . $($name:tt).+, $behind:expr) => {
        ($crate::kernel::bpf::code::Reg::R6, i16::try_from(::std::mem::offset_of!($whole, $($name).+) + $behind).expect("the first page"))
    };
}
pub(crate) use field;

/// Calls bpf(2).
///
/// # Safety
/// The kernel must be allowed to follow the addresses in `attributes`, as `command` does.
unsafe fn bpf<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    let at: *mut T = attributes;
    // SAFETY: the kernel reads and writes no more than the given size; for the rest see above.
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, at, size_of::<T>()) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

fn owned(rc: libc::c_long) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(rc).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// A `T` that programs and this process share: the programs touch it only while they run, and
/// they run only inside [`Program::run`].
#[derive(Debug)]
pub(crate) struct Shared<T> {
    map: OwnedFd,
    at: Mapping,
    /// One thread at a time may have it.
    content: PhantomData<Cell<T>>,
}

impl<T> Shared<T> {
    /// Makes one of zeroes. `T` must be valid for any content, and as large as whole pages.
    pub(crate) fn new() -> Result<Shared<T>, BpfError> {
        let value_size = u32::try_from(size_of::<T>()).unwrap_or(u32::MAX);
        let kind = MAP_TYPE_ARRAY;
        let mut create = MapCreate { kind, key_size: 4, value_size, entries: 1, flags: MMAPABLE };
        // SAFETY: there are no addresses in it.
        let map = unsafe { bpf(MAP_CREATE, &mut create) }.and_then(owned).map_err(refused)?;
        let at = Mapping::shared(&map, size_of::<T>());
        let at = at.map_err(|e| failed("map a BPF array", e.into()))?;
        Ok(Shared { map, at, content: PhantomData })
    }

    /// The descriptor, for programs.
    pub(crate) fn map(&self) -> RawFd {
        self.map.as_raw_fd()
    }

    /// Its content.
    pub(crate) fn at(&self) -> NonNull<T> {
        self.at.base().cast()
    }
}

/// A loaded program.
#[derive(Debug)]
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Has the kernel check and translate a program.
    pub(crate) fn check(code: &[Insn]) -> io::Result<Program> {
        let mut load = ProgLoad {
            kind: PROG_TYPE_RAW_TRACEPOINT,
            count: u32::try_from(code.len()).unwrap_or(u32::MAX),
            instructions: code.as_ptr().addr() as u64,
            license: c"GPL".as_ptr().addr() as u64,
            log_level: 0,
            log_size: 0,
            log: 0,
        };
        // SAFETY: the kernel reads the instructions and the licence, all alive here.
        unsafe { bpf(PROG_LOAD, &mut load) }.and_then(owned).map(Program)
    }

    /// The same, with the reason when it does not.
    pub(crate) fn load(code: &[Insn]) -> Result<Program, BpfError> {
        Program::check(code).map_err(|e| match e.raw_os_error() {
            _ if confidential() => BpfError::NotSupported("the kernel is locked down"),
            Some(libc::EPERM) => BpfError::NotPermitted,
            _ => failed("load a BPF program", e),
        })
    }

    /// Has the kernel run it at a tracepoint, whose arguments it gets as an array of 64 bits each.
    pub(crate) fn attach(&self, tracepoint: &CStr) -> Result<Attached, BpfError> {
        let program = u32::try_from(self.0.as_raw_fd()).unwrap_or(u32::MAX);
        let mut open = RawTracepoint { name: tracepoint.as_ptr().addr() as u64, program };
        // SAFETY: the kernel reads the name, which ends in NUL and is alive here.
        let link = unsafe { bpf(RAW_TRACEPOINT_OPEN, &mut open) }.and_then(owned);
        Ok(Attached { _link: link.map_err(|e| failed("attach a BPF program", e))? })
    }

    /// Runs it once, on this processor and at once, and returns what it returns.
    pub(crate) fn run(&self) -> Result<u32, BpfError> {
        let program = u32::try_from(self.0.as_raw_fd()).unwrap_or(u32::MAX);
        let mut run = TestRun { program, ..Default::default() };
        // SAFETY: all addresses in it are null, with sizes of 0.
        let done = unsafe { bpf(PROG_TEST_RUN, &mut run) };
        done.map(|_| run.result).map_err(|e| failed("run a BPF program", e))
    }
}

/// Lockdown of this degree takes kernel memory away from BPF.
fn confidential() -> bool {
    let text = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    text.contains("[confidentiality]")
}

fn refused(source: io::Error) -> BpfError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => BpfError::NotPermitted,
        Some(libc::ENOSYS) => BpfError::NotSupported("the kernel is built without BPF"),
        _ => failed("make a BPF array", source),
    }
}

fn failed(what: &'static str, source: io::Error) -> BpfError {
    BpfError::Failed { what, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernel_s_sizes() {
        assert_eq!((size_of::<MapCreate>(), size_of::<ProgLoad>()), (20, 40));
        assert_eq!(size_of::<Insn>(), 8);
        assert_eq!((std::mem::offset_of!(TestRun, batch), size_of::<TestRun>()), (72, 80));
    }
}
