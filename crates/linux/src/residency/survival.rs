//! How long a line that nobody uses stays in the cache while the process runs: lines of ours that were
//! loaded are looked at once more, later. From that follows how many lines the process brings in.
//! Loads and times nothing itself.

use std::collections::VecDeque;
use std::time::Duration;

use super::timer::Line;

/// Lines that wait to be looked at.
const WAITING: usize = 256;
/// Ages are told apart by factors of two, from this one on.
const YOUNGEST: Duration = Duration::from_micros(250);
/// Ages that are told apart.
const AGES: usize = 14;
/// Looks at lines of an age before it counts.
const LEAST: f64 = 8.0;
/// What was seen counts half after so many looks at lines of the same age.
const FORGET: f64 = 64.0;

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Survival {
    waiting: VecDeque<(Line, Duration)>,
    /// Looks at lines of each age, and those that found the line.
    ages: [[f64; 2]; AGES],
}

impl Survival {
    /// A line was loaded when the process had run for so long.
    pub fn loaded(&mut self, line: Line, ran: Duration) {
        if self.waiting.len() == WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back((line, ran));
    }

    /// How many lines wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The line at a place in the queue and its age in CPU time of the process; it waits no more.
    pub fn take(&mut self, at: usize, ran: Duration) -> Option<(Line, Duration)> {
        let (line, loaded) = self.waiting.remove(at)?;
        Some((line, ran.saturating_sub(loaded)))
    }

    /// A line of this age was looked at.
    pub fn note(&mut self, age: Duration, found: bool) {
        let seen = &mut self.ages[class(age)];
        if seen[0] >= FORGET {
            seen.iter_mut().for_each(|count| *count /= 2.0);
        }
        seen[0] += 1.0;
        seen[1] += f64::from(u8::from(found));
    }

    /// CPU time of the process after which half of the lines are gone, and whether it is longer than
    /// that; `None` before enough was seen.
    pub fn half_life(&self) -> Option<(Duration, bool)> {
        let known = self.ages.iter().enumerate().filter(|(_, seen)| seen[0] >= LEAST);
        let mut before: Option<(usize, f64)> = None;
        for (class, [looks, found]) in known {
            let share = found / looks;
            if share < 0.5 {
                return Some((before.map_or(first(class), |b| between(b, (class, share))), false));
            }
            before = Some((class, share));
        }
        // Ages of a class go up to twice its own.
        before.map(|(class, _)| (first(class) * 2, true))
    }
}

/// The youngest age of a class.
fn first(class: usize) -> Duration {
    YOUNGEST * (1 << class)
}

/// The age at which half are found, if more are in one class and fewer in a later one, by the middle ages of
/// both.
fn between((young, more): (usize, f64), (old, fewer): (usize, f64)) -> Duration {
    let part = (more - 0.5) / (more - fewer);
    first(young).mul_f64((part * (old - young) as f64 + 0.5).exp2())
}

fn class(age: Duration) -> usize {
    let times = age.as_nanos() / YOUNGEST.as_nanos();
    usize::try_from(times.max(1).ilog2()).unwrap_or(AGES).min(AGES - 1)
}

#[cfg(test)]
mod tests {
    use huepage_color::Pfn;

    use super::*;

    #[test]
    fn half_of_the_lines_are_gone_after_a_while() {
        let mut survival = Survival::default();
        assert_eq!(survival.half_life(), None);
        for i in 0..2000_u32 {
            let age = Duration::from_micros(u64::from(i) * 20);
            survival.note(age, age < Duration::from_millis(10));
        }
        let (half, longer) = survival.half_life().expect("enough was seen");
        assert!(!longer && (5..=10).contains(&half.as_millis()), "{half:?}");
    }

    #[test]
    fn where_nothing_goes_only_a_bound_is_known() {
        let mut survival = Survival::default();
        (0..100).for_each(|_| survival.note(Duration::from_millis(5), true));
        assert_eq!(survival.half_life(), Some((Duration::from_millis(8), true)));
    }

    #[test]
    fn lines_wait_and_the_oldest_make_way() {
        let mut survival = Survival::default();
        let line = |n: u64| Line { frame: Pfn(n), index: 0 };
        (0..300).for_each(|n| survival.loaded(line(n), Duration::from_millis(n)));
        assert_eq!(survival.waiting(), WAITING);
        let taken = survival.take(0, Duration::from_millis(300));
        assert_eq!(taken, Some((line(44), Duration::from_millis(256))));
        assert_eq!(survival.take(999, Duration::ZERO), None);
    }
}
