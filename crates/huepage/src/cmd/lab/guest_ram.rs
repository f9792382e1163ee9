//! The memory of a guest: how much each NUMA node has, and the same as files without names, which the emulator and its
//! plugin open: the plugin reads page tables in them.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::args::LabMachineArgs;
use crate::exit::CmdError;

/// Bytes from which on the emulated machine (q35) has less of its memory below other things.
const LARGE: u64 = 0xb000_0000;
/// How much it has there then.
const LOW: u64 = 2 << 30;

/// Bytes of each node: a whole number of MiB where there are several, as the kernel wants it.
pub fn node_bytes(args: &LabMachineArgs) -> Vec<u64> {
    let nodes = u64::from(args.numa);
    if nodes == 1 {
        return vec![args.memory >> 10 << 10];
    }
    let mib = |node: u64| (args.memory / nodes * node) >> 20;
    (0..nodes).map(|node| (mib(node + 1) - mib(node)) << 20).collect()
}

/// Bytes of the memory that the guest has below other things; what is more begins at 4 GiB for it.
pub fn low_bytes(args: &LabMachineArgs) -> u64 {
    let bytes = node_bytes(args).iter().sum();
    if bytes >= LARGE { LOW } else { bytes }
}

/// The memory of one guest, a file for each node; as long as it lives the paths lead to it.
#[derive(Debug)]
pub struct GuestRam(Vec<File>);

impl GuestRam {
    /// Empty memory for a guest.
    pub fn create(args: &LabMachineArgs) -> Result<GuestRam, CmdError> {
        let create = |bytes: u64| {
            let made = memfd_create(c"huepage-lab", MemfdFlags::CLOEXEC);
            let file = File::from(made.map_err(CmdError::internal)?);
            ftruncate(&file, bytes).map_err(CmdError::internal)?;
            Ok(file)
        };
        node_bytes(args).into_iter().map(create).collect::<Result<_, _>>().map(GuestRam)
    }

    /// Where others of this user find the memory of each node.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        let own = std::process::id();
        self.0.iter().map(move |file| PathBuf::from(format!("/proc/{own}/fd/{}", file.as_raw_fd())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(numa: u16, memory: u64) -> LabMachineArgs {
        let plain = LabMachineArgs::plain(PathBuf::new(), None, Vec::new());
        LabMachineArgs { numa, memory, ..plain }
    }

    #[test]
    fn others_find_as_much_as_was_asked_for() {
        let memory = GuestRam::create(&guest(1, (1 << 30) + 5000)).unwrap();
        let found: Vec<u64> =
            memory.paths().map(|path| std::fs::metadata(path).unwrap().len()).collect();
        assert_eq!(found, [(1 << 30) + 4096]);
        assert_eq!(node_bytes(&guest(3, 1 << 30)), [341 << 20, 341 << 20, 341 << 20]);
        assert_eq!(GuestRam::create(&guest(3, 1 << 30)).unwrap().paths().count(), 3);
    }

    #[test]
    fn much_memory_is_not_all_below_other_things() {
        let low = |memory| low_bytes(&guest(1, memory));
        assert_eq!(
            [low(0xafff_f000), low(0xb000_0000), low(8 << 30)],
            [0xafff_f000, 2 << 30, 2 << 30]
        );
    }
}
