//! Load beside a measurement: a hog that faults pages in as fast as it can, readers of other
//! files, and a holder of memory. All go on until SIGTERM or SIGKILL.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;

use super::files;
use crate::sys::{self, MappedMemory};

/// Pages that the hog maps at once.
const BITE: usize = 4096;

/// The page-faulting hog.
#[derive(Args, Clone, Copy, Debug)]
pub struct Hog {
    /// CPU to run on [default: any]
    #[arg(long)]
    pub cpu: Option<usize>,
}

/// Faults pages in one by one and gives them back, for ever.
///
/// # Errors
/// Those of memory.
pub fn hog(options: Hog) -> io::Result<()> {
    options.cpu.map_or(Ok(()), sys::pin)?;
    sys::install_handlers()?;
    while !sys::stop_asked() {
        let area = MappedMemory::private(BITE)?;
        area.advise(0..BITE, libc::MADV_NOHUGEPAGE)?;
        (0..BITE).for_each(|page| area.page(page)[0].store(1, Relaxed));
    }
    Ok(())
}

/// The readers of other files.
#[derive(Args, Clone, Debug)]
pub struct Readers {
    /// What they read, again and again, from the disk
    #[arg(long)]
    pub dir: PathBuf,
}

/// Reads every file below a directory, dropping it from the cache first, for ever.
///
/// # Errors
/// Those of the files.
pub fn readers(options: &Readers) -> io::Result<()> {
    sys::install_handlers()?;
    let all = files::below(&options.dir)?;
    while !sys::stop_asked() {
        for path in &all {
            sys::advise_file(File::open(path)?.as_fd(), libc::POSIX_FADV_DONTNEED)?;
            files::read_in(std::slice::from_ref(path))?;
        }
    }
    Ok(())
}

/// The holder of memory.
#[derive(Args, Clone, Copy, Debug)]
pub struct HoldMemory {
    /// MiB of memory
    #[arg(long, default_value_t = 64)]
    pub mib: usize,
}

/// Holds memory and touches all of it a hundred times a second. Says `ready` when it has it.
///
/// # Errors
/// Those of memory.
pub fn hold(options: HoldMemory) -> io::Result<()> {
    sys::install_handlers()?;
    let area = MappedMemory::private((options.mib << 8).max(1))?;
    area.advise(0..area.pages(), libc::MADV_NOHUGEPAGE)?;
    let mut ready = false;
    while !sys::stop_asked() {
        (0..area.pages()).for_each(|page| _ = area.page(page)[0].fetch_add(1, Relaxed));
        if !std::mem::replace(&mut ready, true) {
            writeln!(io::stdout(), "ready")?;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
