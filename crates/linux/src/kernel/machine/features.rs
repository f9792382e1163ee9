//! Which features of the kernel are there, each really tried where that costs nothing, and
//! what each is good for.
//!
//! Nothing is changed: descriptors that are opened are closed again, no memory is registered,
//! no setting is written. Whether *huepage* may use a feature is told apart from whether the
//! kernel has it, as far as the kernel lets one know.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use serde::Serialize;

use super::release::KernelRelease;
use super::uffd::{self, Via};
use super::{Roots, chosen, read_text};
use crate::kernel::fanotify::{FanotifyError, FileNotifier};
use crate::kernel::procfs::{Pagemap, ProcError, ScanQuery};

/// A feature by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is described by `title` and `why`")]
pub enum FeatureId {
    Release,
    Userfaultfd,
    UffdMove,
    UffdEvents,
    FrameNumbers,
    PidfdGetfd,
    PagemapScan,
    ProcmapQuery,
    SeccompTrace,
    TidAddress,
    ThpDisable,
    Thp,
    Mthp,
    HardwareEvents,
    SoftwareEvents,
    Bpf,
    OpenEvents,
    Resctrl,
}

impl FeatureId {
    /// Every feature, in the order in which they are listed.
    pub const ALL: [FeatureId; 18] = [
        FeatureId::Release,
        FeatureId::Userfaultfd,
        FeatureId::UffdMove,
        FeatureId::UffdEvents,
        FeatureId::FrameNumbers,
        FeatureId::PidfdGetfd,
        FeatureId::PagemapScan,
        FeatureId::ProcmapQuery,
        FeatureId::SeccompTrace,
        FeatureId::TidAddress,
        FeatureId::ThpDisable,
        FeatureId::Thp,
        FeatureId::Mthp,
        FeatureId::HardwareEvents,
        FeatureId::SoftwareEvents,
        FeatureId::Bpf,
        FeatureId::OpenEvents,
        FeatureId::Resctrl,
    ];

    /// Its name for a reader.
    pub const fn title(self) -> &'static str {
        match self {
            FeatureId::Release => "Linux 6.8 or newer",
            FeatureId::Userfaultfd => "userfaultfd",
            FeatureId::UffdMove => "UFFDIO_MOVE",
            FeatureId::UffdEvents => "userfaultfd events",
            FeatureId::FrameNumbers => "frame numbers in pagemap",
            FeatureId::PidfdGetfd => "pidfd_getfd",
            FeatureId::PagemapScan => "PAGEMAP_SCAN",
            FeatureId::ProcmapQuery => "PROCMAP_QUERY",
            FeatureId::SeccompTrace => "seccomp RET_TRACE",
            FeatureId::TidAddress => "PR_GET_TID_ADDRESS",
            FeatureId::ThpDisable => "PR_SET_THP_DISABLE",
            FeatureId::Thp => "transparent huge pages",
            FeatureId::Mthp => "mTHP sizes",
            FeatureId::HardwareEvents => "hardware events",
            FeatureId::SoftwareEvents => "software events",
            FeatureId::Bpf => "BPF",
            FeatureId::OpenEvents => "fanotify permission events",
            FeatureId::Resctrl => "resctrl (Intel CAT)",
        }
    }

    /// What it is good for.
    pub const fn why(self) -> &'static str {
        match self {
            FeatureId::Release => "the first kernel that can move pages",
            FeatureId::Userfaultfd => "serves the page faults of the target",
            FeatureId::UffdMove => "gives a page another frame",
            FeatureId::UffdEvents => "follows fork, mremap and munmap",
            FeatureId::FrameNumbers => "colours and audits",
            FeatureId::PidfdGetfd => "takes the target's userfaultfd over",
            FeatureId::PagemapScan => "fast audits; else pagemap is read",
            FeatureId::ProcmapQuery => "fast look-ups; else maps is read",
            FeatureId::SeccompTrace => "sees new areas as they are mapped",
            FeatureId::TidAddress => "restores a stopped thread exactly",
            FeatureId::ThpDisable => "keeps huge pages out of a partition",
            FeatureId::Thp => "superpages on request",
            FeatureId::Mthp => "superpages below 2 MiB",
            FeatureId::HardwareEvents => "samples misses; else pages are timed",
            FeatureId::SoftwareEvents => "reports page faults and new mappings",
            FeatureId::Bpf => "reads accessed bits of page tables",
            FeatureId::OpenEvents => "files placed before they are read",
            FeatureId::Resctrl => "not used; partitions L3 in hardware",
        }
    }

    /// Whether `run` and `attach` work without it.
    pub const fn need(self) -> FeatureNeed {
        match self {
            FeatureId::Release
            | FeatureId::Userfaultfd
            | FeatureId::UffdMove
            | FeatureId::UffdEvents
            | FeatureId::FrameNumbers
            | FeatureId::PidfdGetfd => FeatureNeed::Required,
            _ => FeatureNeed::Useful,
        }
    }
}

/// How much depends on a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureNeed {
    /// `run` and `attach` need it.
    Required,
    /// Something gets slower or blind without it.
    Useful,
}

/// Whether a feature can be used by this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FeatureState {
    /// Tried, and it works.
    Present,
    /// The kernel, or the machine, has none.
    Missing,
    /// Refused to this process; root may find it present or missing.
    NeedsPrivilege,
}

impl fmt::Display for FeatureState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FeatureState::Present => "present",
            FeatureState::Missing => "missing",
            FeatureState::NeedsPrivilege => "needs root",
        })
    }
}

/// What was found about one feature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelFeature {
    /// Which.
    pub id: FeatureId,
    /// Its name for a reader.
    pub title: &'static str,
    /// Whether it can be used.
    pub state: FeatureState,
    /// What the kernel answered, or its setting; may be empty.
    pub detail: String,
    /// How much depends on it.
    pub need: FeatureNeed,
    /// What it is good for.
    pub why: &'static str,
}

/// All features.
#[derive(Clone, Debug, Serialize)]
pub struct Features {
    /// The running kernel.
    pub release: KernelRelease,
    /// One entry for each of [`FeatureId::ALL`], in that order.
    pub list: Vec<KernelFeature>,
}

impl Features {
    /// Tries every feature. Takes a few milliseconds.
    pub fn probe(roots: &Roots) -> Features {
        let text = roots.proc_text("sys/kernel/osrelease").unwrap_or_default();
        let release = KernelRelease::parse(&text);
        let list = FeatureId::ALL.map(|id| {
            let (state, detail) = try_feature(id, roots, &release);
            KernelFeature { id, title: id.title(), state, detail, need: id.need(), why: id.why() }
        });
        Features { release, list: list.into() }
    }

    /// What was found about one feature.
    pub fn get(&self, id: FeatureId) -> Option<&KernelFeature> {
        self.list.iter().find(|feature| feature.id == id)
    }

    /// Whether a feature can be used.
    pub fn has(&self, id: FeatureId) -> bool {
        self.get(id).is_some_and(|feature| feature.state == FeatureState::Present)
    }

    /// The required features that cannot be used.
    pub fn lacking(&self) -> impl Iterator<Item = &KernelFeature> {
        let unmet = |f: &&KernelFeature| {
            f.need == FeatureNeed::Required && f.state != FeatureState::Present
        };
        self.list.iter().filter(unmet)
    }
}

type Tried = (FeatureState, String);

fn try_feature(id: FeatureId, roots: &Roots, release: &KernelRelease) -> Tried {
    match id {
        FeatureId::Release if release.suffices() => present(&release.text),
        FeatureId::Release => (FeatureState::Missing, release.text.clone()),
        FeatureId::Userfaultfd => try_userfaultfd(roots),
        FeatureId::UffdMove => try_move(roots),
        FeatureId::UffdEvents => outcome(uffd::grants(&roots.dev, uffd::WANTED).and_then(granted)),
        FeatureId::FrameNumbers => try_frame_numbers(roots),
        FeatureId::PidfdGetfd => outcome(try_pidfd_getfd()),
        FeatureId::PagemapScan => try_pagemap_scan(roots),
        FeatureId::ProcmapQuery => outcome(try_procmap_query(roots)),
        FeatureId::SeccompTrace => outcome(try_seccomp_trace()),
        FeatureId::TidAddress => outcome(try_tid_address()),
        FeatureId::ThpDisable => outcome(try_thp_disable()),
        FeatureId::Thp => thp(roots),
        FeatureId::Mthp => mthp(roots),
        FeatureId::HardwareEvents => try_cycles(),
        FeatureId::SoftwareEvents => outcome(try_perf(PERF_TYPE_SOFTWARE, PERF_PAGE_FAULTS)),
        FeatureId::Bpf => outcome(try_bpf()),
        FeatureId::OpenEvents => try_open_events(),
        FeatureId::Resctrl => resctrl(roots),
    }
}

fn present(detail: impl Into<String>) -> Tried {
    (FeatureState::Present, detail.into())
}

/// EPERM and EACCES mean "not you"; every other error means "not here".
fn outcome(tried: io::Result<String>) -> Tried {
    match tried {
        Ok(detail) => present(detail),
        Err(e) => (state_of(&e), short(&e)),
    }
}

fn state_of(error: &io::Error) -> FeatureState {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => FeatureState::NeedsPrivilege,
        _ => FeatureState::Missing,
    }
}

/// An error without Rust's "(os error 1)".
fn short(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_lowercase()
}

fn granted(yes: bool) -> io::Result<String> {
    if yes { Ok(String::new()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
}

fn try_userfaultfd(roots: &Roots) -> Tried {
    let open = roots.proc_text("sys/vm/unprivileged_userfaultfd").unwrap_or_else(|| "?".into());
    let device = if roots.dev.join("userfaultfd").exists() { "present" } else { "absent" };
    let setting =
        format!("vm.unprivileged_userfaultfd={open}, {}/userfaultfd {device}", roots.dev.display());
    match uffd::open(&roots.dev) {
        Ok((_, Via::Syscall | Via::Device)) => present(setting),
        Ok((_, Via::UserModeOnly)) => {
            (FeatureState::NeedsPrivilege, format!("faults in user mode only; {setting}"))
        }
        Err(e) => (state_of(&e), format!("{}; {setting}", short(&e))),
    }
}

/// Reads what is on offer, then asks for it on a second descriptor.
fn try_move(roots: &Roots) -> Tried {
    let offer = uffd::open(&roots.dev).and_then(|(fd, _)| uffd::offered(&fd));
    let bits = match offer {
        Ok(bits) => bits,
        Err(e) => return outcome(Err(e)),
    };
    let detail = format!("UFFDIO_API offers {bits:#x}");
    if bits & uffd::FEATURE_MOVE == 0 {
        return (FeatureState::Missing, detail);
    }
    match uffd::grants(&roots.dev, uffd::FEATURE_MOVE) {
        Ok(true) => present(detail),
        Ok(false) => (FeatureState::Missing, format!("{detail}, but does not grant it")),
        Err(e) => (state_of(&e), format!("{detail}; {}", short(&e))),
    }
}

/// Looks up the frame of a page that is surely resident: the one that holds this variable.
fn try_frame_numbers(roots: &Roots) -> Tried {
    let here = 0_u8;
    let page = huepage_color::VirtAddr((&raw const here).addr() as u64).vpn();
    match roots.proc.pagemap(own_pid()).and_then(|map| map.entry(page)) {
        Ok(entry) if entry.pfn().is_some_and(|pfn| pfn.0 != 0) => present(""),
        Ok(_) => (FeatureState::NeedsPrivilege, "pagemap shows zeros".into()),
        Err(e) => from_proc(&e),
    }
}

fn try_pagemap_scan(roots: &Roots) -> Tried {
    let here = 0_u8;
    let at = (&raw const here).addr() as u64;
    let mut found = Vec::new();
    let scan = |map: Pagemap| map.scan(at..at + 1, &ScanQuery::present(), &mut found);
    let scanned = roots.proc.pagemap(own_pid()).and_then(scan);
    match scanned {
        Ok(_) => present(""),
        Err(e) => from_proc(&e),
    }
}

fn from_proc(error: &ProcError) -> Tried {
    match error {
        ProcError::Denied(_) => (FeatureState::NeedsPrivilege, "permission denied".into()),
        ProcError::Unsupported(_) => (FeatureState::Missing, String::new()),
        ProcError::Io { source, .. } => (state_of(source), short(source)),
        other => (FeatureState::Missing, other.to_string()),
    }
}

fn own_pid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

fn try_open_events() -> Tried {
    match FileNotifier::new() {
        Ok(_) => present(""),
        Err(FanotifyError::Privilege) => (FeatureState::NeedsPrivilege, String::new()),
        Err(FanotifyError::Unsupported) => (FeatureState::Missing, String::new()),
        Err(e) => (FeatureState::Missing, e.to_string()),
    }
}

/// The first fields of the kernel's `procmap_query`; the rest are outputs.
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    flags: u64,
    addr: u64,
    answers: [u64; 6],
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name_addr: u64,
    build_id_addr: u64,
}

const PROCMAP_QUERY: libc::c_ulong = 0xc068_6611;

fn try_procmap_query(roots: &Roots) -> io::Result<String> {
    let file = std::fs::File::open(roots.proc.pid_path(own_pid(), "maps"))?;
    let here = 0_u8;
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        addr: (&raw const here).addr() as u64,
        ..Default::default()
    };
    // SAFETY: the kernel reads and writes `query.size` bytes, which is the size of `query`;
    // both addresses inside it are null with size 0, so it writes nowhere else.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    if rc == 0 { Ok(String::new()) } else { Err(io::Error::last_os_error()) }
}

/// Takes a descriptor from this very process.
fn try_pidfd_getfd() -> io::Result<String> {
    // SAFETY: takes two integers and returns a descriptor or an error.
    let me = uffd::owned(unsafe { libc::syscall(libc::SYS_pidfd_open, own_pid(), 0) })?;
    // SAFETY: takes three integers and returns a descriptor or an error.
    let rc = unsafe { libc::syscall(libc::SYS_pidfd_getfd, me.as_raw_fd(), me.as_raw_fd(), 0) };
    uffd::owned(rc).map(|_: OwnedFd| String::new())
}

fn try_seccomp_trace() -> io::Result<String> {
    let action: u32 = libc::SECCOMP_RET_TRACE;
    // SAFETY: reads one u32 behind the pointer and changes nothing.
    let rc = unsafe {
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action)
    };
    if rc == 0 { Ok(String::new()) } else { Err(io::Error::last_os_error()) }
}

/// Part of checkpoint/restore support.
fn try_tid_address() -> io::Result<String> {
    const PR_GET_TID_ADDRESS: libc::c_int = 40;
    let mut address: usize = 0;
    // SAFETY: the kernel writes one pointer-sized word to `address`.
    let rc = unsafe { libc::prctl(PR_GET_TID_ADDRESS, &raw mut address) };
    if rc == 0 { Ok(String::new()) } else { Err(io::Error::last_os_error()) }
}

fn try_thp_disable() -> io::Result<String> {
    const PR_GET_THP_DISABLE: libc::c_int = 42;
    // SAFETY: reads a flag of this process; the four zeros are demanded.
    match unsafe { libc::prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) } {
        0 => Ok(String::new()),
        1.. => Ok("already set for this process".into()),
        _ => Err(io::Error::last_os_error()),
    }
}

const THP_DIR: &str = "kernel/mm/transparent_hugepage";

fn thp(roots: &Roots) -> Tried {
    match roots.sys.text(format!("{THP_DIR}/enabled")) {
        Some(text) => present(chosen(&text)),
        None => (FeatureState::Missing, "the kernel was built without".into()),
    }
}

/// Lists the sizes, marking those that are enabled.
fn mthp(roots: &Roots) -> Tried {
    let mut sizes = Vec::new();
    for entry in std::fs::read_dir(roots.sys.path(THP_DIR)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let size = name.to_str().and_then(|n| n.strip_prefix("hugepages-")?.strip_suffix("kB"));
        let Some(kib) = size.and_then(|size| size.parse::<u64>().ok()) else { continue };
        // Sizes that only shared memory can have lack this file.
        let Some(text) = read_text(&entry.path().join("enabled")) else { continue };
        sizes.push((kib, chosen(&text).to_owned()));
    }
    sizes.sort();
    if sizes.is_empty() {
        return (FeatureState::Missing, String::new());
    }
    let offered: Vec<String> = sizes.iter().map(|(kib, _)| kib.to_string()).collect();
    let on = sizes.iter().filter(|(_, setting)| setting != "never");
    let on: Vec<String> = on.map(|(kib, setting)| format!("{kib} {setting}")).collect();
    let on = if on.is_empty() { "none".to_owned() } else { on.join(", ") };
    present(format!("KiB: {}; enabled: {on}", offered.join(" ")))
}

const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_CYCLES: u64 = 0;
const PERF_PAGE_FAULTS: u64 = 2;

/// The first 64 bytes of `perf_event_attr`: the oldest size that every kernel takes.
#[repr(C)]
#[derive(Default)]
struct PerfAttr {
    kind: u32,
    size: u32,
    config: u64,
    sample: [u64; 3],
    flags: u64,
    wakeup: u32,
    bp_type: u32,
    config1: u64,
}

/// Without a PMU the kernel knows no event of this kind, and says ENOENT.
fn try_cycles() -> Tried {
    match try_perf(PERF_TYPE_HARDWARE, PERF_CYCLES) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
            (FeatureState::Missing, "no performance counters here".into())
        }
        other => outcome(other),
    }
}

/// Opens a counter of this thread in user mode, then closes it.
fn try_perf(kind: u32, config: u64) -> io::Result<String> {
    const DISABLED: u64 = 1;
    const EXCLUDE_KERNEL: u64 = 1 << 5;
    const EXCLUDE_HV: u64 = 1 << 6;
    const PERF_FLAG_FD_CLOEXEC: u64 = 8;
    let attr = PerfAttr {
        kind,
        size: 64,
        config,
        flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HV,
        ..Default::default()
    };
    // SAFETY: the kernel reads the 64 bytes that `attr.size` announces and `attr` has.
    let rc = unsafe {
        let attr = &raw const attr;
        libc::syscall(libc::SYS_perf_event_open, attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC)
    };
    uffd::owned(rc).map(|_| String::new())
}

/// The part of `bpf_attr` that loading a program needs.
#[repr(C)]
#[derive(Default)]
struct BpfLoad {
    kind: u32,
    instructions: u32,
    program: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel: u32,
    flags: u32,
}

/// Loads `r0 = 0; exit` as a raw tracepoint program, the type the sensor uses, and drops it.
fn try_bpf() -> io::Result<String> {
    const BPF_PROG_LOAD: libc::c_int = 5;
    const RAW_TRACEPOINT: u32 = 17;
    let program: [u64; 2] = [0x0000_0000_0000_00b7, 0x0000_0000_0000_0095];
    let load = BpfLoad {
        kind: RAW_TRACEPOINT,
        instructions: 2,
        program: program.as_ptr().addr() as u64,
        license: c"GPL".as_ptr().addr() as u64,
        ..Default::default()
    };
    // SAFETY: the kernel reads `load`, the two instructions and the licence, all alive here.
    let rc = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_LOAD, &raw const load, size_of::<BpfLoad>())
    };
    uffd::owned(rc).map(|_| String::new())
}

fn resctrl(roots: &Roots) -> Tried {
    let known = roots.proc_text("filesystems").is_some_and(|text| text.contains("resctrl"));
    let mounted = roots.sys.path("fs/resctrl/schemata").exists();
    match (known, mounted) {
        (_, true) => present("mounted"),
        (true, false) => present("not mounted"),
        (false, false) => (FeatureState::Missing, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_by_numbers() {
        let ok = |text: &str| KernelRelease::parse(text).suffices();
        assert!(ok("6.8.0-31-generic") && ok("6.18.44-fc-v595") && ok("7.0"));
        assert!(!ok("6.1.0-18-amd64") && !ok("5.15.0") && !ok("") && !ok("strange"));
    }

    #[test]
    fn brackets_mark_the_choice() {
        assert_eq!(chosen("always [madvise] never"), "madvise");
        assert_eq!(chosen(""), "");
    }

    #[test]
    fn structures_have_the_kernel_s_sizes() {
        assert_eq!(size_of::<ProcmapQuery>(), 104);
        assert_eq!(size_of::<PerfAttr>(), 64);
        assert_eq!(size_of::<BpfLoad>(), 48);
    }

    #[test]
    fn refusal_is_told_from_absence() {
        let tried = |errno| outcome(Err(io::Error::from_raw_os_error(errno))).0;
        assert_eq!(tried(libc::EPERM), FeatureState::NeedsPrivilege);
        assert_eq!(tried(libc::EACCES), FeatureState::NeedsPrivilege);
        assert_eq!(tried(libc::ENOSYS), FeatureState::Missing);
        assert_eq!(tried(libc::ENOTTY), FeatureState::Missing);
    }
}
