//! Waiting on several descriptors at once.

use std::os::fd::RawFd;
use std::time::Duration;

/// Waits until one of the descriptors has one of its events (see poll(2)), or for `limit`.
/// Descriptors that are not open count as ready.
pub fn wait(descriptors: &[(RawFd, i16)], limit: Duration) {
    ready(descriptors, limit);
}

/// As [`wait`], and says which of them are ready.
pub fn ready(descriptors: &[(RawFd, i16)], limit: Duration) -> Vec<bool> {
    let mut set: Vec<libc::pollfd> =
        descriptors.iter().map(|&(fd, events)| libc::pollfd { fd, events, revents: 0 }).collect();
    let count = libc::nfds_t::try_from(set.len()).unwrap_or(0);
    let ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `set` is live and `count` is its length.
    unsafe { libc::poll(set.as_mut_ptr(), count, ms) };
    set.iter().map(|polled| polled.revents != 0).collect()
}
