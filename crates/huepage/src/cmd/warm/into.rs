//! `huepage warm --into`: copies with every page placed. A copy gets its name when it is whole, so that
//! nothing half done is left behind, whenever this process ends. Modes and times are kept; owners,
//! links and special files are not copied.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use huepage_linux::services::files::{FilePlacer, PlacementTally};
use indicatif::ProgressBar;
use rustix::fs::{AtFlags, CWD, linkat};

use super::files::{Files, Opener};
use crate::exit::{CmdError, ExitCode, cache_error};
use crate::signals::Interrupt;

/// Bytes read at a time.
const STEP: usize = 1 << 20;

/// Copies all files to the same names below `dir`.
pub fn copy(
    dir: &Path,
    placer: &mut FilePlacer,
    files: &mut Files,
    interrupt: &Interrupt,
    bar: &ProgressBar,
) -> Result<PlacementTally, CmdError> {
    let mut opener = Opener::default();
    for i in 0..files.entries.len() {
        if interrupt.signal().is_some() {
            break;
        }
        let from = match opener.open(&files.entries[i].path) {
            Ok(from) => from,
            Err(why) => {
                files.skip(&why);
                continue;
            }
        };
        let to = dir.join(&files.entries[i].below);
        copy_one(from, &to, placer, bar)?;
    }
    placer.settle().map_err(cache_error)
}

fn failed(to: &Path, error: &io::Error) -> CmdError {
    let what = match error.kind() {
        io::ErrorKind::AlreadyExists => "it exists; remove it, or copy elsewhere".to_owned(),
        io::ErrorKind::StorageFull => "no space is left; make room, or copy less".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => {
            "the filesystem is read-only; copy elsewhere".to_owned()
        }
        _ => format!("{error}; name a directory that can be written to"),
    };
    CmdError::new(ExitCode::BadFile, format!("cannot copy to {}: {what}", to.display()))
}

/// Writes a nameless file and gives it its name.
fn copy_one(
    mut from: File,
    to: &Path,
    placer: &mut FilePlacer,
    bar: &ProgressBar,
) -> Result<(), CmdError> {
    let parent = to.parent().unwrap_or(Path::new("."));
    let nameless = || -> io::Result<File> {
        fs::create_dir_all(parent)?;
        if to.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).open(parent)
    };
    let copy = Arc::new(nameless().map_err(|e| failed(to, &e))?);
    let size = fill(&mut from, &copy, to, placer, bar)?;
    let finish = || -> io::Result<()> {
        let found = from.metadata()?;
        copy.set_len(size)?;
        copy.set_permissions(found.permissions())?;
        copy.set_times(FileTimes::new().set_modified(found.modified()?))?;
        let own = format!("/proc/self/fd/{}", copy.as_raw_fd());
        Ok(linkat(CWD, own, CWD, to, AtFlags::SYMLINK_FOLLOW)?)
    };
    finish().map_err(|e| failed(to, &e))
}

/// Copies the contents; bytes copied.
fn fill(
    from: &mut File,
    copy: &Arc<File>,
    to: &Path,
    placer: &mut FilePlacer,
    bar: &ProgressBar,
) -> Result<u64, CmdError> {
    let pages = from.metadata().map_or(0, |found| found.len().div_ceil(4096));
    let (mut done, mut bytes) = (0u64, Vec::with_capacity(STEP));
    loop {
        bytes.clear();
        let read = from.take(STEP as u64).read_to_end(&mut bytes);
        if read.map_err(|e| failed(to, &e))? == 0 {
            return Ok(done);
        }
        let written = placer.write(copy, std::process::id(), (done / 4096, pages), &bytes);
        written.map_err(|error| match error {
            huepage_linux::services::files::FileCacheError::Os { source, .. } => {
                failed(to, &source)
            }
            other => cache_error(other),
        })?;
        done += bytes.len() as u64;
        bar.inc(bytes.len() as u64);
    }
}
