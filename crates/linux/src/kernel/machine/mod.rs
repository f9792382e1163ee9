//! What this machine is: processor, hypervisor, caches and their colours, features of the
//! kernel, privileges of this process.
//!
//! Facts are read here and doubted here, each doubt with its reason; nothing is timed (that
//! is `probe`) and nothing is decided. Files are read below [`Roots`], so that a directory of
//! canned files can stand in for a machine; CPUID and system calls answer for the real one.

mod caches;
mod cpuid;
mod features;
mod page_sizes;
mod privileges;
mod release;
mod slices;
mod sysfs;

use std::io;
use std::path::{Path, PathBuf};

use huepage_color::{CacheGeometry, LevelChoice, LevelError};
use serde::Serialize;

use crate::kernel::procfs::ProcRoot;

pub use caches::{CacheFinding, CacheSource, ColorBasis, ColorCount, FindingKind, HostCache};
pub use cpuid::{CpuModel, CpuidCache, CpuidFacts, Hypervisor, Vendor};
pub use features::{FeatureId, FeatureNeed, FeatureState, Features, KernelFeature};
pub use page_sizes::{PageSizeSetting, page_size_settings};
pub use privileges::{Capability, Privileges, Seccomp};
pub use release::KernelRelease;
pub use slices::{SliceBasis, SliceClaim};
pub use sysfs::CpuList;

/// Why the machine could not be described.
#[derive(Debug, thiserror::Error)]
pub enum HostMachineError {
    /// Neither sysfs nor CPUID tells of a cache.
    #[error("neither {} nor CPUID describes a cache; mount sysfs on /sys and try again", .0.display())]
    NoCaches(PathBuf),
    /// A file exists but cannot be read.
    #[error("cannot read {}: {source}; check its permissions, or run huepage as root", .path.display())]
    Io {
        /// What was read.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Where `/sys` is mounted; tests put a directory of canned files in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysRoot(pub PathBuf);

impl Default for SysRoot {
    fn default() -> Self {
        SysRoot(PathBuf::from("/sys"))
    }
}

impl SysRoot {
    /// `<root>/<path>`.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// The content of `<root>/<path>` without surrounding white space; `None` if there is no
    /// such file or it cannot be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        read_text(&self.path(path))
    }
}

/// The three directories that describe a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/sys`.
    pub sys: SysRoot,
    /// `/proc`.
    pub proc: ProcRoot,
    /// `/dev`.
    pub dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        let (sys, proc) = (SysRoot::default(), ProcRoot::default());
        Roots { sys, proc, dev: PathBuf::from("/dev") }
    }
}

impl Roots {
    /// The content of a file below `/proc`, trimmed; `None` if it cannot be had.
    fn proc_text(&self, path: &str) -> Option<String> {
        read_text(&self.proc.0.join(path))
    }
}

fn read_text(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

/// The chosen word of a kernel setting such as `always [madvise] never`.
fn chosen(text: &str) -> &str {
    text.split_whitespace().find_map(|w| w.strip_prefix('[')?.strip_suffix(']')).unwrap_or(text)
}

/// Processor, hypervisor and caches.
#[derive(Clone, Debug, Serialize)]
pub struct HostMachine {
    /// The processor as CPUID names it.
    pub cpu: CpuModel,
    /// The hypervisor, if this is a guest of one that shows itself.
    pub hypervisor: Option<Hypervisor>,
    /// CPUs that are online.
    pub online: CpuList,
    /// Hardware threads per core, as sysfs groups them; 1 where it does not say.
    pub threads_per_core: u32,
    /// The caches, lowest level first. A hybrid processor has several of one level.
    pub caches: Vec<HostCache>,
    /// What is odd about the caches as a whole.
    pub findings: Vec<CacheFinding>,
}

impl HostMachine {
    /// Describes the machine this runs on.
    ///
    /// # Errors
    /// `NoCaches`, or `Io` for a file that exists and cannot be read.
    pub fn read() -> Result<HostMachine, HostMachineError> {
        HostMachine::assemble(&SysRoot::default(), &CpuidFacts::read())
    }

    /// Describes a machine from its `/sys` and from what CPUID says of it.
    ///
    /// # Errors
    /// As [`HostMachine::read`].
    pub fn assemble(sys: &SysRoot, cpuid: &CpuidFacts) -> Result<HostMachine, HostMachineError> {
        let told = sysfs::read_caches(sys)?;
        let threads_per_core = sysfs::threads_per_core(sys);
        let caches = caches::cross_check(told, cpuid);
        if caches.is_empty() {
            return Err(HostMachineError::NoCaches(sys.path(sysfs::CPU_DIR)));
        }
        Ok(HostMachine {
            cpu: cpuid.model.clone(),
            hypervisor: cpuid.hypervisor.clone(),
            online: sysfs::online(sys),
            threads_per_core,
            findings: caches::hierarchy(&caches),
            caches,
        })
    }

    /// The geometries alone, as [`LevelChoice::resolve`] wants them.
    pub fn geometries(&self) -> Vec<CacheGeometry> {
        self.caches.iter().map(|cache| cache.geometry.clone()).collect()
    }

    /// The data cache meant by a level.
    ///
    /// # Errors
    /// `Absent` if no cache fits.
    pub fn cache(&self, choice: LevelChoice) -> Result<&HostCache, LevelError> {
        let geometries = self.geometries();
        let wanted = choice.resolve(&geometries)?;
        let found = self.caches.iter().find(|cache| cache.geometry == *wanted);
        found.ok_or(LevelError::Absent { choice })
    }
}

#[cfg(test)]
mod tests;
