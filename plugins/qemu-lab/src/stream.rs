//! Words on their way to standard output: gathered, so that one system call carries thousands. Where all
//! processors share a thread of QEMU nothing is locked, which would cost as much as all the rest here. With several
//! threads (`--fast`) the order is that in which words come here.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::{Mutex, PoisonError};

use crate::lab::LabWord;
use crate::turns;

/// Words that are written at once.
const CHUNK: usize = 8 << 10;
const WORD: usize = size_of::<LabWord>();

static SHARED: Mutex<Waiting> = Mutex::new(Waiting::NONE);
static ALONE: Alone = Alone(UnsafeCell::new(Waiting::NONE));

/// What is used by one thread at a time.
struct Alone(UnsafeCell<Waiting>);

// SAFETY: used only where processors take turns, so by the thread that they all share, and by QEMU's
// end, which stops them before.
unsafe impl Sync for Alone {}

/// Words that wait, as the bytes that are written.
struct Waiting {
    bytes: [u8; CHUNK * WORD],
    count: usize,
}

impl Waiting {
    const NONE: Waiting = Waiting { bytes: [0; CHUNK * WORD], count: 0 };

    #[inline(always)]
    fn push(&mut self, word: LabWord) {
        let (words, _) = self.bytes.as_chunks_mut::<WORD>();
        words[self.count % CHUNK] = word.0.to_le_bytes();
        self.count += 1;
        if self.count == CHUNK {
            self.write();
        }
    }

    #[cold]
    fn write(&mut self) {
        // SAFETY: standard output is open as long as the emulator runs, and is not closed here.
        let mut out = ManuallyDrop::new(unsafe { File::from_raw_fd(1) });
        // Without a reader there is nothing to run for.
        if out.write_all(&self.bytes[..self.count * WORD]).is_err() {
            std::process::abort();
        }
        self.count = 0;
    }
}

/// Adds a word.
#[inline]
pub fn push(word: LabWord) {
    with(|waiting| waiting.push(word));
}

/// Writes all that waits.
pub fn flush() {
    with(Waiting::write);
}

/// Writes all that waits, and waits until the reader has taken it and answers. One that has gone does not.
pub fn ask() {
    flush();
    // SAFETY: standard input is open as long as the emulator runs, and is not closed here.
    let mut answers = ManuallyDrop::new(unsafe { File::from_raw_fd(0) });
    while answers.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::Interrupted) {}
}

#[inline(always)]
fn with(work: impl FnOnce(&mut Waiting)) {
    if turns::are_given() {
        // SAFETY: see `Alone`; nobody else has it while `work` runs, which does not come back here.
        work(unsafe { &mut *ALONE.0.get() });
    } else {
        work(&mut SHARED.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
