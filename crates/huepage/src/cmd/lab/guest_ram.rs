//! The memory of a guest as a file without a name, which the emulator and its plugin open: the plugin reads page
//! tables in it.

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

/// The memory of one guest; as long as it lives the path leads to it.
#[derive(Debug)]
pub struct GuestRam {
    file: File,
    /// Bytes below other things; what is more begins at 4 GiB for the guest, and follows in the file.
    pub low: u64,
}

impl GuestRam {
    /// Empty memory for a guest.
    pub fn create(args: &LabMachineArgs) -> Result<GuestRam, CmdError> {
        let made = memfd_create(c"huepage-lab", MemfdFlags::CLOEXEC);
        let file = File::from(made.map_err(CmdError::internal)?);
        let bytes = args.memory >> 10 << 10;
        ftruncate(&file, bytes).map_err(CmdError::internal)?;
        Ok(GuestRam { file, low: low(bytes) })
    }

    /// Where others of this user find it.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }
}

const fn low(bytes: u64) -> u64 {
    if bytes >= LARGE { LOW } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_find_as_much_as_was_asked_for() {
        let mut args = LabMachineArgs::plain(PathBuf::new(), None, Vec::new());
        args.memory = (1 << 30) + 5000;
        let memory = GuestRam::create(&args).unwrap();
        let found = std::fs::metadata(memory.path()).unwrap().len();
        assert_eq!((found, memory.low), ((1 << 30) + 4096, (1 << 30) + 4096));
        assert_eq!(
            (low(0xafff_f000), low(0xb000_0000), low(8 << 30)),
            (0xafff_f000, 2 << 30, 2 << 30)
        );
    }
}
