//! Words on their way to standard output: gathered, so that one system call carries thousands. With
//! several threads of QEMU (`--fast`) the order is that in which they come here.

use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::{Mutex, PoisonError};

use crate::word::LabWord;

/// Bytes that are written at once.
const CHUNK: usize = 64 << 10;

static WAITING: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Adds a word.
pub fn push(word: LabWord) {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.extend_from_slice(&word.0.to_le_bytes());
    if waiting.len() >= CHUNK {
        write(&mut waiting);
    }
}

/// Writes all that waits.
pub fn flush() {
    write(&mut WAITING.lock().unwrap_or_else(PoisonError::into_inner));
}

fn write(waiting: &mut Vec<u8>) {
    // SAFETY: standard output is open as long as the emulator runs, and is not closed here.
    let mut out = ManuallyDrop::new(unsafe { File::from_raw_fd(1) });
    // Without a reader there is nothing to run for.
    if out.write_all(waiting).is_err() {
        std::process::abort();
    }
    waiting.clear();
}
