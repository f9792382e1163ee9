//! Which features of the kernel are there, each really tried where that costs nothing, and
//! what each is good for.
//!
//! Nothing is changed: descriptors that are opened are closed again, no memory is registered,
//! no setting is written. Whether *huepage* may use a feature is told apart from whether the
//! kernel has it, as far as the kernel lets one know.

use std::fmt;
use std::io;
use std::os::fd::AsRawFd;

use perf_event::Builder;
use perf_event::events::{Event, Hardware, Software};
use rustix::process::{PidfdGetfdFlags, pidfd_getfd};
use serde::Serialize;

use super::page_sizes::{THP_DIR, page_size_settings};
use super::release::KernelRelease;
use super::{Roots, chosen};
use crate::kernel::bpf::Program;
use crate::kernel::bpf::code::Code;
use crate::kernel::fanotify::{FanotifyError, FileNotifier};
use crate::kernel::procfs::{Pagemap, ProcError, ScanQuery, pidfd};
use crate::kernel::userfaultfd::{self as uffd, Via};

/// A feature by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "each is described in `FEATURES`")]
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

/// What is known of each feature: its name for a reader, how much depends on it, what it is good for. They are
/// listed in this order.
const FEATURES: [(FeatureId, &str, FeatureNeed, &str); 18] = {
    use FeatureId as F;
    use FeatureNeed::{Required, Useful};
    [
        (F::Release, "Linux 6.8 or newer", Required, "the first kernel that can move pages"),
        (F::Userfaultfd, "userfaultfd", Required, "serves the page faults of the target"),
        (F::UffdMove, "UFFDIO_MOVE", Required, "gives a page another frame"),
        (F::UffdEvents, "userfaultfd events", Required, "follows fork, mremap and munmap"),
        (F::FrameNumbers, "frame numbers in pagemap", Required, "colours and audits"),
        (F::PidfdGetfd, "pidfd_getfd", Required, "takes the target's userfaultfd over"),
        (F::PagemapScan, "PAGEMAP_SCAN", Useful, "fast audits; else pagemap is read"),
        (F::ProcmapQuery, "PROCMAP_QUERY", Useful, "fast look-ups; else maps is read"),
        (F::SeccompTrace, "seccomp RET_TRACE", Useful, "sees new areas as they are mapped"),
        (F::TidAddress, "PR_GET_TID_ADDRESS", Useful, "restores a stopped thread exactly"),
        (F::ThpDisable, "PR_SET_THP_DISABLE", Useful, "keeps huge pages out of a partition"),
        (F::Thp, "transparent huge pages", Useful, "superpages on request"),
        (F::Mthp, "mTHP sizes", Useful, "superpages below 2 MiB"),
        (F::HardwareEvents, "hardware events", Useful, "samples misses; else pages are timed"),
        (F::SoftwareEvents, "software events", Useful, "reports page faults and new mappings"),
        (F::Bpf, "BPF", Useful, "reads accessed bits of page tables"),
        (F::OpenEvents, "fanotify permission events", Useful, "files placed before they are read"),
        (F::Resctrl, "resctrl (Intel CAT)", Useful, "not used; partitions L3 in hardware"),
    ]
};

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
    /// One entry for each [`FeatureId`], in that order.
    pub list: Vec<KernelFeature>,
}

impl Features {
    /// Tries every feature. Takes a few milliseconds.
    pub fn probe(roots: &Roots) -> Features {
        let text = roots.proc_text("sys/kernel/osrelease").unwrap_or_default();
        let release = KernelRelease::parse(&text);
        let list = FEATURES.map(|(id, title, need, why)| {
            let (state, detail) = try_feature(id, roots, &release);
            KernelFeature { id, title, state, detail, need, why }
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
        FeatureId::SoftwareEvents => outcome(try_perf(Software::PAGE_FAULTS)),
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
    let offer = uffd::open(&roots.dev).and_then(|(fd, _)| uffd::handshake(&fd, 0));
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
    std::process::id().cast_signed()
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

const PROCMAP_QUERY: libc::Ioctl = 0xc068_6611_u32 as libc::Ioctl;

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
    let me = pidfd(own_pid())?;
    pidfd_getfd(&me, me.as_raw_fd(), PidfdGetfdFlags::empty())?;
    Ok(String::new())
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

fn thp(roots: &Roots) -> Tried {
    match roots.sys.text(format!("{THP_DIR}/enabled")) {
        Some(text) => present(chosen(&text)),
        None => (FeatureState::Missing, "the kernel was built without".into()),
    }
}

/// Lists the sizes, marking those that are enabled.
fn mthp(roots: &Roots) -> Tried {
    let sizes = page_size_settings(&roots.sys);
    if sizes.is_empty() {
        return (FeatureState::Missing, String::new());
    }
    let offered: Vec<String> = sizes.iter().map(|size| size.kib.to_string()).collect();
    let on = sizes.iter().filter(|size| size.setting != "never");
    let on: Vec<String> = on.map(|size| format!("{} {}", size.kib, size.setting)).collect();
    let on = if on.is_empty() { "none".to_owned() } else { on.join(", ") };
    present(format!("KiB: {}; enabled: {on}", offered.join(" ")))
}

/// Without a PMU the kernel knows no event of this kind, and says ENOENT.
fn try_cycles() -> Tried {
    match try_perf(Hardware::CPU_CYCLES) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
            (FeatureState::Missing, "no performance counters here".into())
        }
        other => outcome(other),
    }
}

/// Opens a counter of this thread in user mode, then closes it.
fn try_perf(event: impl Event) -> io::Result<String> {
    Builder::new(event).observe_self().any_cpu().build().map(|_| String::new())
}

/// Loads a program of the type that the sensor uses, and drops it.
fn try_bpf() -> io::Result<String> {
    let mut code = Code::default();
    code.exit(0);
    Program::check(&code.finish()).map(|_| String::new())
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
