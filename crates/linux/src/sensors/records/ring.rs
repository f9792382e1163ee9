//! The recorder's side of the memory shared with the plugin: making it, waiting for chunks,
//! handing them out in order and freeing them. What the words mean is in
//! [`super::protocol`]; what becomes of them is the caller's business.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::thread::futex;

use super::protocol::{BYTES, CHUNK_WORDS, Control, FREE, FULL, MAGIC, WORDS_AT};
use crate::kernel::mapping::Mapping;
use crate::kernel::procfs::ProcRoot;

/// The shared memory. Freed when dropped; processes that still record then keep their own
/// mapping and notice that the recorder has gone.
#[derive(Debug)]
pub struct Ring {
    memory: Mapping,
    file: File,
}

// SAFETY: the memory is shared with other processes anyway; it is only read and written by
// atomic operations, and words only while their chunk's state says whose they are.
unsafe impl Sync for Ring {}

/// A published chunk.
#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// Its words, see [`super::protocol::decode`].
    pub words: &'a [u64],
    /// Address space, from 0.
    pub space: u32,
    /// Thread of the space, from 0.
    pub thread: u32,
}

impl Ring {
    /// Makes the memory; chunks that are never used cost nothing.
    pub fn new() -> io::Result<Ring> {
        let file = File::from(memfd_create("huepage-trace", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, BYTES as u64)?;
        let ring = Ring { memory: Mapping::shared(&file, BYTES)?, file };
        ring.control().recorder.store(std::process::id(), Relaxed);
        ring.control().processes.store(1, Relaxed);
        ring.control().magic.store(MAGIC, Release);
        Ok(ring)
    }

    /// Where other processes of the same user can open it while this one lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }

    /// The control block.
    pub fn control(&self) -> &Control {
        // SAFETY: mapped as long as `self` lives; page-aligned; atomics throughout.
        unsafe { self.memory.base().cast::<Control>().as_ref() }
    }

    /// Gives all published chunks to `take` in the order of publication and frees them; true
    /// if there were any. After an error of `take` the rest stays.
    pub fn drain<E>(&self, mut take: impl FnMut(Chunk<'_>) -> Result<(), E>) -> Result<bool, E> {
        let control = self.control();
        // A chunk published before this point is seen as full; of later ones an earlier may be
        // overlooked and a later seen, so all of them wait for the next time.
        let bound = control.published.load(SeqCst);
        let full = |i: &usize| control.slots[*i].state.load(Acquire) == FULL;
        let order = |i: usize| control.slots[i].order.load(Relaxed);
        let mut found: Vec<(u64, usize)> = (0..control.slots.len())
            .filter(full)
            .map(|i| (order(i), i))
            .filter(|(order, _)| *order < bound)
            .collect();
        found.sort_unstable();
        for (_, i) in &found {
            take(self.chunk(*i))?;
            self.free(*i);
        }
        Ok(!found.is_empty())
    }

    fn chunk(&self, i: usize) -> Chunk<'_> {
        let slot = &self.control().slots[i];
        let fill = (slot.fill.load(Relaxed) as usize).min(CHUNK_WORDS);
        // SAFETY: inside the mapping; its owner gave it up (or is dead) and nobody else writes
        // to it until it is freed.
        let words = unsafe { std::slice::from_raw_parts(self.words(i), fill) };
        Chunk { words, space: slot.space.load(Relaxed), thread: slot.thread.load(Relaxed) }
    }

    /// Where the words of a chunk begin.
    fn words(&self, i: usize) -> *mut u64 {
        self.memory.base().as_ptr().wrapping_byte_add(WORDS_AT + i * CHUNK_WORDS * 8).cast()
    }

    fn free(&self, i: usize) {
        let control = self.control();
        control.slots[i].state.store(FREE, Release);
        control.freed.fetch_add(1, SeqCst);
        if control.waiting.load(SeqCst) != 0 {
            let _ = futex::wake(&control.freed, futex::Flags::empty(), i32::MAX.cast_unsigned());
        }
    }

    /// Waits for a chunk to be published after `seen` of `control().work`, at most `limit`.
    pub fn wait(&self, seen: u32, limit: Duration) {
        let control = self.control();
        control.idle.store(1, SeqCst);
        let limit = limit.try_into().ok();
        let _ = futex::wait(&control.work, futex::Flags::empty(), seen, limit.as_ref());
        control.idle.store(0, SeqCst);
    }

    /// Publishes the chunks of processes that ended without publishing them (killed), and
    /// returns how many processes still hold one.
    pub fn reclaim(&self, proc: &ProcRoot) -> usize {
        let mut alive = Vec::new();
        let mut dead = Vec::new();
        for (i, slot) in self.control().slots.iter().enumerate() {
            let pid = slot.state.load(Acquire);
            if pid == FREE || pid == FULL || alive.contains(&pid) {
                continue;
            }
            if !dead.contains(&pid) {
                // Who exists and is no zombie can still write.
                if proc.stat(pid.cast_signed()).is_ok_and(|stat| !stat.is_dead()) {
                    alive.push(pid);
                    continue;
                }
                dead.push(pid);
            }
            self.publish(i);
        }
        alive.len()
    }

    fn publish(&self, i: usize) {
        let control = self.control();
        let order = control.published.fetch_add(1, SeqCst);
        control.slots[i].order.store(order, Relaxed);
        control.slots[i].state.store(FULL, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Stands in for the plugin: fills a chunk in the name of a process.
    fn fill(ring: &Ring, i: usize, pid: u32, words: &[u64]) {
        let slot = &ring.control().slots[i];
        slot.state.store(pid, Relaxed);
        slot.space.store(pid, Relaxed);
        for (at, word) in words.iter().enumerate() {
            // SAFETY: inside the chunk; the test is the only writer.
            unsafe { *ring.words(i).add(at) = *word };
        }
        slot.fill.store(u32::try_from(words.len()).unwrap(), Relaxed);
    }

    fn drained(ring: &Ring) -> Vec<(u32, Vec<u64>)> {
        let mut all = Vec::new();
        let take = |c: Chunk<'_>| {
            all.push((c.space, c.words.to_vec()));
            Ok::<(), Infallible>(())
        };
        let Ok(any) = ring.drain(take);
        assert_eq!(any, !all.is_empty());
        all
    }

    #[test]
    fn chunks_come_in_the_order_of_their_publication_and_once() {
        let ring = Ring::new().unwrap();
        for (i, order) in [(7, 0), (3, 1), (5, 2)] {
            fill(&ring, i, 100 + order, &[u64::from(order)]);
            ring.publish(i);
        }
        assert_eq!(drained(&ring), [(100, vec![0]), (101, vec![1]), (102, vec![2])]);
        assert_eq!(drained(&ring), []);
        assert!(ring.control().slots.iter().all(|s| s.state.load(Relaxed) == FREE));
    }

    #[test]
    fn what_a_killed_process_left_is_taken_and_the_living_keep_theirs() {
        let ring = Ring::new().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        fill(&ring, 0, dead, &[1, 2, 3]);
        fill(&ring, 1, std::process::id(), &[4]);
        assert_eq!(ring.reclaim(&ProcRoot::default()), 1);
        assert_eq!(drained(&ring), [(dead, vec![1, 2, 3])]);
        assert_eq!(ring.control().slots[1].state.load(Relaxed), std::process::id());
    }

    #[test]
    fn an_error_leaves_the_rest() {
        let ring = Ring::new().unwrap();
        for i in 0..2 {
            fill(&ring, i, 9, &[1]);
            ring.publish(i);
        }
        assert_eq!(ring.drain(|_| Err("full disk")), Err("full disk"));
        assert_eq!(drained(&ring).len(), 2);
    }

    #[test]
    fn others_can_open_it() {
        let ring = Ring::new().unwrap();
        let seen = std::fs::read(ring.path()).unwrap();
        assert_eq!(seen.len(), BYTES);
        assert_eq!(seen[..8], MAGIC.to_le_bytes());
    }
}
