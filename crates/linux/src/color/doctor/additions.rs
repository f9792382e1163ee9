//! Blocks of additions, some 0.2 us long, by which a neighbour on the core's other hardware thread is
//! felt though it may be outside of this virtual machine: four chains of additions at once fill the
//! adders of a core and take up to twice as long beside somebody, while a single chain, each addition
//! of which waits for the one before, takes the same. The ratio of the two is 1 on a core of one's own.

use core::arch::asm;

use crate::color::probe::timing::ticks;

/// Turns of a block; four additions per chain in each.
const TURNS: u32 = 120;
/// Blocks longer than this many times the usual are interruptions: the CPU did something else.
const INTERRUPTED: u32 = 20;
/// The ratio from which on a block was slowed down.
const SLOWED: f64 = 1.3;
/// One single chain is timed for so many blocks of four.
const ONE_IN: usize = 16;

/// Blocks of one stretch of time.
#[derive(Clone, Debug, Default)]
pub(super) struct Blocks {
    /// Ticks of each block of four chains.
    pub(super) four: Vec<u32>,
    /// Ticks of each block of a single chain.
    pub(super) one: Vec<u32>,
}

/// What a block was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// On a core of its own.
    Alone,
    /// Beside somebody.
    Slowed,
    /// Interrupted.
    Away,
}

impl Blocks {
    /// Runs blocks while `goes_on`, which is asked after each few.
    pub(super) fn run(mut goes_on: impl FnMut() -> bool) -> Blocks {
        let mut blocks = Blocks::default();
        while goes_on() {
            blocks.four.extend((0..ONE_IN).map(|_| four_chains()));
            blocks.one.push(one_chain());
        }
        blocks
    }

    /// Ticks of a block of four chains on a core of one's own: as long as a single chain, or longer
    /// where a core adds fewer than four at once.
    pub(super) fn alone(&self) -> Option<f64> {
        let fastest = f64::from(super::quantile(&mut self.four.clone(), 0.05));
        let single = f64::from(super::quantile(&mut self.one.clone(), 0.25));
        // The fastest blocks may have been beside somebody as well.
        let alone = if fastest > single * SLOWED { single } else { fastest };
        (alone > 0.0).then_some(alone)
    }
}

/// What a block of so many ticks was, if one alone takes `alone`.
pub(super) fn kind(ticks: u32, alone: f64) -> Kind {
    match f64::from(ticks) / alone {
        ratio if ratio > f64::from(INTERRUPTED) => Kind::Away,
        ratio if ratio > SLOWED => Kind::Slowed,
        _ => Kind::Alone,
    }
}

/// Ticks of four chains at once.
fn four_chains() -> u32 {
    let start = ticks();
    // SAFETY: adds registers to registers; all that are written are declared, no memory is touched.
    unsafe {
        asm!("2:",
             "add {a},{k}", "add {b},{k}", "add {c},{k}", "add {d},{k}",
             "add {a},{k}", "add {b},{k}", "add {c},{k}", "add {d},{k}",
             "add {a},{k}", "add {b},{k}", "add {c},{k}", "add {d},{k}",
             "add {a},{k}", "add {b},{k}", "add {c},{k}", "add {d},{k}",
             "dec {n:e}", "jnz 2b",
             a = inout(reg) 1u64 => _, b = inout(reg) 2u64 => _, c = inout(reg) 3u64 => _,
             d = inout(reg) 4u64 => _, k = in(reg) 5u64, n = inout(reg) TURNS => _,
             options(nostack, nomem));
    }
    since(start)
}

/// Ticks of as many additions in one chain as each of the four has.
fn one_chain() -> u32 {
    let start = ticks();
    // SAFETY: as above.
    unsafe {
        asm!("2:", "add {a},{k}", "add {a},{k}", "add {a},{k}", "add {a},{k}", "dec {n:e}", "jnz 2b",
             a = inout(reg) 1u64 => _, k = in(reg) 5u64, n = inout(reg) TURNS => _,
             options(nostack, nomem));
    }
    since(start)
}

fn since(start: u64) -> u32 {
    u32::try_from(ticks().wrapping_sub(start)).unwrap_or(u32::MAX)
}

/// Additions in chains of their own, for whoever is to be felt.
pub(super) fn be_felt() {
    four_chains();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_apart_by_their_length() {
        let kinds = [100, 129, 131, 200, 1999, 2001, u32::MAX].map(|ticks| kind(ticks, 100.0));
        let (alone, slowed, away) = (Kind::Alone, Kind::Slowed, Kind::Away);
        assert_eq!(kinds, [alone, alone, slowed, slowed, slowed, away, away]);
    }

    #[test]
    fn a_neighbour_that_is_always_there_is_not_taken_for_a_slow_core() {
        let blocks = |four, one| Blocks { four: vec![four; 90], one: vec![one; 10] };
        assert_eq!(blocks(240, 130).alone(), Some(130.0));
        assert_eq!(blocks(135, 130).alone(), Some(135.0));
        assert_eq!(Blocks::default().alone(), None);
    }

    #[test]
    fn blocks_take_time() {
        let mut turns = 0;
        let blocks = Blocks::run(|| {
            turns += 1;
            turns <= 200
        });
        assert_eq!((blocks.four.len(), blocks.one.len()), (200 * ONE_IN, 200));
        // 480 additions after one another take as many cycles: 0.05 to 1 us.
        let single = super::super::quantile(&mut blocks.one.clone(), 0.5);
        assert!((60..20_000).contains(&single), "{single}");
    }
}
