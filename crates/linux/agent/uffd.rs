//! userfaultfd as the agent uses it: three contexts with different duties.
//!
//! *serve* watches the areas whose missing pages we place; it asks for no events, so forks,
//! unmaps and remaps of the program never wait for us. *move* is switched on only around a
//! recolouring and hears of everything that could invalidate a page that is out. *stock*
//! covers our own areas.

use crate::sys;

const MOVE: u64 = 0xc028_aa05;
const COPY: u64 = 0xc028_aa03;
const REGISTER: u64 = 0xc020_aa00;
const UNREGISTER: u64 = 0x8010_aa01;
const ZEROPAGE: u64 = 0xc020_aa04;
const WAKE: u64 = 0x8010_aa02;
const API: u64 = 0xc018_aa3f;
const NEW: u64 = 0xaa00;

const POISON: u64 = 0xc020_aa08;

pub const EVENT_PAGEFAULT: u8 = 0x12;
pub const EVENT_FORK: u8 = 0x13;
pub const EVENT_REMAP: u8 = 0x14;
pub const EVENT_REMOVE: u8 = 0x15;
pub const EVENT_UNMAP: u8 = 0x16;

pub const DONTWAKE: u64 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Message {
    pub event: u8,
    pub pad: [u8; 7],
    pub args: [u64; 3],
}

impl Message {
    pub const EMPTY: Message = Message { event: 0, pad: [0; 7], args: [0; 3] };
}

/// A userfaultfd of this process: through the device when one was sent, else by system call. It can
/// do nothing before [`set_up`], or before the supervisor has done the same.
pub fn create(device: i64) -> i64 {
    const FLAGS: u64 = 0o2000000 | 0o4000; // close-on-exec, non-blocking
    if device >= 0 {
        return sys::call3(16, device as u64, NEW, FLAGS);
    }
    sys::call3(323, FLAGS, 0, 0)
}

/// Asks for features that need no right.
pub fn set_up(fd: i64, features: u64) -> i64 {
    let mut api = [0xaau64, features, 0];
    sys::ioctl(fd, API, api.as_mut_ptr())
}

/// Makes a missing page one whose use ends the process.
pub fn poison(fd: i64, page: u64) -> i64 {
    let mut argument = [page, sys::PAGE, 0, 0];
    sys::ioctl(fd, POISON, argument.as_mut_ptr())
}

pub fn register(fd: i64, start: u64, len: u64) -> i64 {
    let mut argument = [start, len, 1, 0];
    sys::ioctl(fd, REGISTER, argument.as_mut_ptr())
}

pub fn unregister(fd: i64, start: u64, len: u64) -> i64 {
    let mut argument = [start, len];
    sys::ioctl(fd, UNREGISTER, argument.as_mut_ptr())
}

pub fn wake(fd: i64, start: u64, len: u64) -> i64 {
    let mut argument = [start, len];
    sys::ioctl(fd, WAKE, argument.as_mut_ptr())
}

/// Whether the memory at `page` is watched by us, so that a page taken out there can be
/// brought back. Asks for the page of zeroes to be put there: refused because a page is there
/// means yes, refused because nobody watches means no. A missing page is not asked for: zeroes would be put
/// there, which is wrong where the program is about to serve it by a userfaultfd of its own. One that
/// goes meanwhile is no trouble: whoever discards or unmaps watched memory makes this fail.
pub fn is_watched(fd: i64, page: u64) -> bool {
    if sys::leading(page, sys::PAGE, true) == 0 {
        return false;
    }
    let mut argument = [page, sys::PAGE, 0, 0];
    let r = sys::ioctl(fd, ZEROPAGE, argument.as_mut_ptr());
    r == 0 || r == sys::EEXIST
}

/// Which end of a move lies in our own areas, so that nobody else fills or empties it: the
/// end that tells what was really moved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Ours {
    /// The target, which is empty before.
    Target,
    /// The source, which is present before.
    Source,
}

/// Moves up to `len` bytes; returns (bytes moved, errno or 0).
///
/// Linux 6.18 miscounts: when it has to try a run of pages twice, it moves them, does not
/// count them, wakes nobody who waits for them, and then stumbles over them. A page that is
/// out and not counted would be lost to the program, so an error is not believed before our
/// end was looked at.
pub fn transfer(fd: i64, to: u64, from: u64, len: u64, mode: u64, ours: Ours) -> (u64, i64) {
    let (counted, errno) = place(fd, MOVE, to, from, len, mode);
    if errno == 0 {
        return (counted, 0);
    }
    let (end, moved_is_there) = match ours {
        Ours::Target => (to, true),
        Ours::Source => (from, false),
    };
    let more = sys::leading(end + counted, len - counted, moved_is_there);
    if more == 0 {
        return (counted, errno);
    }
    if mode & DONTWAKE == 0 {
        wake(fd, to + counted, more);
    }
    (counted + more, if counted + more == len { 0 } else { sys::EAGAIN })
}

/// Copies up to `len` bytes into missing pages; returns (bytes copied, errno or 0).
pub fn copy(fd: i64, to: u64, from: u64, len: u64) -> (u64, i64) {
    place(fd, COPY, to, from, len, 0)
}

fn place(fd: i64, request: u64, to: u64, from: u64, len: u64, mode: u64) -> (u64, i64) {
    let mut argument = [to, from, len, mode, 0];
    let r = sys::ioctl(fd, request, argument.as_mut_ptr());
    let done = argument[4] as i64;
    (if done > 0 { done as u64 } else { 0 }, if r < 0 { r } else { 0 })
}
