//! A fresh 2 MiB at hand for the next superpage. The kernel copies into it while the program may have
//! to wait, and in a guest whose host has taken free memory back the first touch of each of its
//! pages costs the host a fault: milliseconds in all. So it is touched before, as memory of this
//! thread, and freed just before a superpage is asked for: the kernel hands out next what a CPU has
//! freed last. Where that does not come true nothing is lost but the time.

use std::ptr::{self, NonNull};
use std::time::Duration;

use rustix::mm::{self, Advice, MapFlags, ProtFlags};

use super::hands::{BYTES, MADV_COLLAPSE, thread_time};

const SIZE: usize = BYTES as usize;
/// Superpages built with and without a spare before it is known which is better.
const TRIALS: u32 = 6;
/// After so many with one kind the other is tried again.
const TRY_AGAIN: u32 = 128;

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
        let base =
            unsafe { mm::mmap_anonymous(ptr::null_mut(), 2 * SIZE, prot, MapFlags::PRIVATE) };
        NonNull::new(base.ok()?.cast()).map(|mapping| Spare { mapping })
    }

    fn block(&self) -> *mut u8 {
        let offset = self.mapping.as_ptr().align_offset(SIZE);
        // SAFETY: the mapping is twice as long as a block, which its first aligned address lies
        // before.
        unsafe { self.mapping.as_ptr().add(offset) }
    }

    /// Has the kernel take 2 MiB in one piece, write zeroes to them, and have them back.
    pub fn refresh(&self) {
        let block = self.block();
        // SAFETY: the block lies in the mapping, which is owned and holds nothing of value; one
        // byte of it is written.
        unsafe {
            block.write_volatile(1);
            // Where it is not made one page, single ones go back.
            let _ = libc::madvise(block.cast(), SIZE, MADV_COLLAPSE);
            let _ = mm::madvise(block.cast(), SIZE, Advice::LinuxDontNeed);
        }
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned, and nobody borrows from it any more.
        let _ = unsafe { mm::munmap(self.mapping.as_ptr().cast(), 2 * SIZE) };
    }
}

/// Builds with a spare or without, whichever lets programs wait for less.
#[derive(Debug, Default)]
pub(super) struct Spares {
    spare: Option<Spare>,
    turns: u32,
    /// Nanoseconds of a superpage without and with one.
    known: [Option<f64>; 2],
}

/// What building took of this thread's CPU time: all of it, and that of the call in whose last part
/// programs wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Took {
    pub all: Duration,
    pub stall: Duration,
}

impl Spares {
    /// Builds one superpage by `build`; how long failures take says nothing about the next.
    pub fn build<E>(&mut self, build: impl FnOnce() -> Result<(), E>) -> (Result<(), E>, Took) {
        let (began, with) = (thread_time(), self.choose());
        if with {
            self.spare = self.spare.take().or_else(Spare::new);
            self.spare.iter().for_each(Spare::refresh);
        }
        let before = thread_time();
        let built = build();
        let now = thread_time();
        let took = Took { all: now.saturating_sub(began), stall: now.saturating_sub(before) };
        if built.is_ok() {
            self.note(with, took.stall);
        }
        (built, took)
    }

    /// Both in turns at first; with one, where programs then wait for less than three quarters.
    fn choose(&mut self) -> bool {
        self.turns += 1;
        let odd = self.turns % 2 == 1;
        match self.known {
            [Some(without), Some(with)] if self.turns > TRIALS => {
                let better = with < without * 0.75;
                better != self.turns.is_multiple_of(TRY_AGAIN)
            }
            _ => odd,
        }
    }

    fn note(&mut self, with: bool, stall: Duration) {
        #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a superpage")]
        let time = stall.as_nanos() as f64;
        let known = &mut self.known[usize::from(with)];
        *known = Some(known.map_or(time, |old| (old + time) / 2.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_leaves_nothing_behind() {
        let spare = Spare::new().unwrap();
        assert_eq!(spare.block() as usize % SIZE, 0);
        (0..3).for_each(|_| spare.refresh());
        // SAFETY: the block is mapped as long as the spare lives, and reads as zeroes.
        assert_eq!(unsafe { spare.block().read_volatile() }, 0);
    }

    #[test]
    fn what_lets_programs_wait_for_less_is_taken() {
        for (with, stall) in [(true, [5, 1]), (false, [5, 4])] {
            let mut spares = Spares::default();
            let mut last = Vec::new();
            for _ in 0..100 {
                let chosen = spares.choose();
                spares.note(chosen, Duration::from_millis(stall[usize::from(chosen)]));
                last.push(chosen);
            }
            assert!(last[10..].iter().all(|&chosen| chosen == with), "{stall:?}");
            let tried = (0..TRY_AGAIN).filter(|_| spares.choose() != with).count();
            assert_eq!(tried, 1, "the other is tried again");
        }
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
        assert_eq!(spares.known, [None, None], "what was not built");
        for _ in 0..4 {
            let (_, took) = spares.build(spin);
            assert!(took.stall >= Duration::from_millis(2) && took.all >= took.stall, "{took:?}");
        }
        assert!(spares.spare.is_some() && spares.known.iter().all(Option::is_some));
    }
}
