//! A fresh 2 MiB at hand for the next superpage. The kernel copies into it while the program may have
//! to wait, and in a guest whose host has taken free memory back the first touch of each of its
//! pages costs the host a fault: milliseconds in all. So it is touched before, as memory of this
//! thread, and freed just before a superpage is asked for: the kernel hands out next what a CPU has
//! freed last. Where that does not come true nothing is lost but the time.

use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use huepage_color::PAGE_BYTES;
use huepage_policy::pace::{Alternate, AlternateSettings};
use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use crate::kernel::process_memory::{MADV_COLLAPSE, SUPERPAGE_BYTES, thread_time};

/// Superpages that are built to see how long that takes.
const REPEATS: usize = 3;
const SPARE_BYTES: usize = SUPERPAGE_BYTES as usize;

/// Memory of which one aligned block is made a superpage and given up again.
#[derive(Debug)]
pub(super) struct Spare {
    mapping: NonNull<u8>,
}

impl Spare {
    /// None where there is no address space left.
    pub fn new() -> Option<Spare> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice harms nobody.
        let base = unsafe {
            mm::mmap_anonymous(ptr::null_mut(), 2 * SPARE_BYTES, prot, MapFlags::PRIVATE)
        };
        NonNull::new(base.ok()?.cast()).map(|mapping| Spare { mapping })
    }

    fn block(&self) -> *mut u8 {
        let offset = self.mapping.as_ptr().align_offset(SPARE_BYTES);
        // SAFETY: the mapping is twice as long as a block, which its first aligned address lies
        // before.
        unsafe { self.mapping.as_ptr().add(offset) }
    }

    /// Makes the block single pages, each written to, as a program has them.
    fn fill(&self) {
        let block = self.block();
        // SAFETY: the block lies in the mapping, which is owned and holds nothing of value.
        unsafe {
            let _ = mm::madvise(block.cast(), SPARE_BYTES, Advice::LinuxDontNeed);
            let _ = mm::madvise(block.cast(), SPARE_BYTES, Advice::LinuxNoHugepage);
            for at in (0..SPARE_BYTES).step_by(PAGE_BYTES as usize) {
                block.add(at).write_volatile(1);
            }
            let _ = mm::madvise(block.cast(), SPARE_BYTES, Advice::LinuxHugepage);
        }
    }

    /// Has the kernel make the block one page; how long that took by the clock, none where it did not.
    fn collapse(&self) -> Option<Duration> {
        let began = Instant::now();
        // SAFETY: the block lies in the mapping, which is owned; its content stays.
        let done = unsafe { libc::madvise(self.block().cast(), SPARE_BYTES, MADV_COLLAPSE) };
        (done == 0).then(|| began.elapsed())
    }

    /// Has the kernel take 2 MiB in one piece, write zeroes to them, and have them back.
    pub fn refresh(&self) {
        let block = self.block();
        // SAFETY: the block lies in the mapping, which is owned and holds nothing of value; one
        // byte of it is written.
        unsafe {
            block.write_volatile(1);
            // Where it is not made one page, single ones go back.
            let _ = libc::madvise(block.cast(), SPARE_BYTES, MADV_COLLAPSE);
            let _ = mm::madvise(block.cast(), SPARE_BYTES, Advice::LinuxDontNeed);
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned, and nobody borrows from it any more.
        let _ = unsafe { mm::munmap(self.mapping.as_ptr().cast(), 2 * SPARE_BYTES) };
    }
}

/// Builds with a spare or without, whichever lets programs wait for less: the second way is with one.
#[derive(Debug)]
pub(super) struct Spares {
    spare: Option<Spare>,
    ways: Alternate,
    always: bool,
}

/// What building took of this thread's CPU time: all of it, and that of the call in whose last part
/// programs wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Took {
    pub all: Duration,
    pub stall: Duration,
    /// The same call by the clock.
    pub wait: Duration,
}

impl Default for Spares {
    fn default() -> Spares {
        Spares { spare: None, ways: Alternate::new(AlternateSettings::SPARES), always: false }
    }
}

impl Spares {
    /// How long building one with a spare takes now, by the clock, in memory of this thread for which nobody waits:
    /// the median of a few. None where none can be built.
    pub fn time_one(&mut self) -> Option<Duration> {
        let (own, spare) = (Spare::new()?, self.ready()?);
        let mut took: Vec<Duration> = (0..REPEATS)
            .map(|_| {
                own.fill();
                spare.refresh();
                own.collapse()
            })
            .collect::<Option<_>>()?;
        took.sort_unstable();
        took.get(REPEATS / 2).copied()
    }

    /// The spare, mapped before it is needed.
    fn ready(&mut self) -> Option<&Spare> {
        self.spare = self.spare.take().or_else(Spare::new);
        self.spare.as_ref()
    }

    /// From now on all are built with a spare: programs wait for the copy alone.
    pub const fn use_always(&mut self) {
        self.always = true;
    }

    /// Builds one superpage by `build`; how long failures take says nothing about the next.
    pub fn build<E>(&mut self, build: impl FnOnce() -> Result<(), E>) -> (Result<(), E>, Took) {
        let (began, with) = (thread_time(), self.ways.choose_second() || self.always);
        if with {
            self.ready().into_iter().for_each(Spare::refresh);
        }
        let (before, clock) = (thread_time(), Instant::now());
        let built = build();
        let (now, wait) = (thread_time(), clock.elapsed());
        let (all, stall) = (now.saturating_sub(began), now.saturating_sub(before));
        let took = Took { all, stall, wait };
        if built.is_ok() {
            #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a superpage")]
            self.ways.cost(with, took.stall.as_nanos() as f64);
        }
        (built, took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_leaves_nothing_behind() {
        let spare = Spare::new().unwrap();
        assert_eq!(spare.block() as usize % SPARE_BYTES, 0);
        (0..3).for_each(|_| spare.refresh());
        // SAFETY: the block is mapped as long as the spare lives, and reads as zeroes.
        assert_eq!(unsafe { spare.block().read_volatile() }, 0);
    }

    #[test]
    fn one_is_timed_and_leaves_nothing() {
        let mut spares = Spares::default();
        let took = spares.time_one();
        assert!(took.is_none_or(|took| took > Duration::from_micros(5)), "{took:?}");
        spares.use_always();
        assert!((0..9).all(|_| spares.build(|| Ok::<(), ()>(())).0.is_ok()));
        assert!(spares.ways.known()[0].is_none(), "none without a spare");
    }

    #[test]
    fn what_building_takes_is_told_apart() {
        let mut spares = Spares::default();
        let spin = || {
            let began = thread_time();
            while thread_time() - began < Duration::from_millis(2) {}
            Ok::<(), ()>(())
        };
        assert!(spares.build(|| Err(())).0.is_err());
        assert_eq!(spares.ways.known(), [None, None], "what was not built");
        for _ in 0..4 {
            let (_, took) = spares.build(spin);
            assert!(took.stall >= Duration::from_millis(2) && took.all >= took.stall, "{took:?}");
        }
        assert!(spares.spare.is_some() && spares.ways.known().iter().all(Option::is_some));
    }
}
