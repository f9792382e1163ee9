//! A long computation with a known answer, for targets that must survive their supervisor.
//!
//! Every word of a large memory goes through the same linear recurrence once per round, in
//! an order that jumps about. After any number of rounds the word's value follows from a
//! closed form, so the right checksum can be computed without touching the memory.

use std::time::{Duration, Instant};

use crate::mix::scramble;
use crate::sys::{MappedMemory, WORDS, stop_asked};
use std::sync::atomic::Ordering::Relaxed;

const MUL: u64 = 0xd134_2543_de82_ef95;
const ADD: u64 = 0x2545_f491_4f6c_dd1d;

/// The recurrence applied `rounds` times, as one multiplication and one addition.
const fn closed_form(mut rounds: u64) -> (u64, u64) {
    let (mut mul, mut add) = (MUL, ADD);
    let (mut total_mul, mut total_add) = (1u64, 0u64);
    while rounds > 0 {
        if rounds & 1 == 1 {
            total_mul = total_mul.wrapping_mul(mul);
            total_add = total_add.wrapping_mul(mul).wrapping_add(add);
        }
        add = add.wrapping_mul(mul).wrapping_add(add);
        mul = mul.wrapping_mul(mul);
        rounds >>= 1;
    }
    (total_mul, total_add)
}

const fn fold(sum: u64, value: u64) -> u64 {
    sum.rotate_left(5).wrapping_mul(3) ^ value
}

/// The checksum that `mib` MiB must have after `rounds` rounds.
pub fn expected(mib: usize, rounds: u64) -> u64 {
    let (mul, add) = closed_form(rounds);
    let words = (mib * 256 * WORDS) as u64;
    (0..words).fold(0, |sum, i| fold(sum, scramble(i).wrapping_mul(mul).wrapping_add(add)))
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After so many rounds.
    Rounds(u64),
    /// After the first round that ends so many seconds from now, or at SIGTERM.
    Seconds(f64),
    /// After so many rounds, spread over so many seconds: the same answer on any machine, and a
    /// program that is there long enough on a fast one.
    Paced(u64, f64),
}

impl Until {
    /// Whether there is another round after `rounds` of them; waits until it is time for it.
    fn more(self, started: Instant, rounds: u64) -> bool {
        match self {
            Until::Rounds(n) => rounds < n,
            Until::Seconds(s) => started.elapsed().as_secs_f64() < s && !stop_asked(),
            Until::Paced(n, s) => {
                let due = Duration::from_secs_f64(s * rounds as f64 / n.max(1) as f64);
                std::thread::sleep(due.saturating_sub(started.elapsed()));
                rounds < n
            }
        }
    }
}

fn round(area: &MappedMemory, number: u64) {
    let pages = area.pages();
    // An odd stride visits all pages when their number is a power of two, as it is here.
    let stride = usize::try_from(scramble(number) >> 40).unwrap_or(0) | 1;
    for step in 0..pages {
        let page = step.wrapping_mul(stride) & (pages - 1);
        for word in area.page(page) {
            word.store(word.load(Relaxed).wrapping_mul(MUL).wrapping_add(ADD), Relaxed);
        }
    }
}

/// Memory to compute in.
///
/// # Errors
/// When there is not enough of it.
///
/// # Panics
/// When `mib` is not a power of two.
pub fn area(mib: usize) -> std::io::Result<MappedMemory> {
    assert!(mib.is_power_of_two(), "the size must be a power of two");
    MappedMemory::private(mib * 256)
}

/// Computes; gives the answer and the number of rounds it took.
pub fn compute(area: &MappedMemory, until: Until, sabotage: bool) -> (u64, u64) {
    let started = Instant::now();
    for (i, word) in (0..).zip(area.words()) {
        word.store(scramble(i), Relaxed);
    }
    let mut rounds = 0;
    while until.more(started, rounds) {
        rounds += 1;
        round(area, rounds);
        if sabotage && rounds == 1 {
            area.words()[1000].fetch_xor(1 << 30, Relaxed);
        }
    }
    (area.words().iter().fold(0, |sum, word| fold(sum, word.load(Relaxed))), rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_computation_gives_the_closed_form() {
        for rounds in [0, 1, 2, 7, 30] {
            let (answer, done) = compute(&area(1).unwrap(), Until::Rounds(rounds), false);
            assert_eq!((answer, done), (expected(1, rounds), rounds));
        }
    }

    #[test]
    fn a_paced_computation_takes_its_time_and_has_the_same_answer() {
        let started = Instant::now();
        let (answer, done) = compute(&area(1).unwrap(), Until::Paced(3, 0.1), false);
        assert_eq!((answer, done), (expected(1, 3), 3));
        assert!(started.elapsed() >= Duration::from_millis(100));
    }

    #[test]
    fn one_flipped_bit_changes_the_answer() {
        let (answer, _) = compute(&area(1).unwrap(), Until::Rounds(5), true);
        assert_ne!(answer, expected(1, 5));
    }
}
