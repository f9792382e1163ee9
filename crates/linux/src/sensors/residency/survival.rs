//! How long a line that nobody uses stays in the cache while the process runs: lines of ours that were
//! loaded are looked at once more, later. From that follows how many lines the process brings in.
//! Loads and times nothing itself.

use std::collections::VecDeque;
use std::time::Duration;

use crate::color::line_timer::TimedLine;

/// Lines that wait to be looked at.
const WAITING_LINES: usize = 256;
/// Ages are told apart by factors of two, from this one on.
const YOUNGEST_AGE: Duration = Duration::from_micros(250);
/// Ages that are told apart.
const AGE_CLASSES: usize = 14;
/// Looks at lines of an age before it counts.
const FEWEST_LOOKS: f64 = 8.0;
/// What was seen counts half after so many looks at lines of the same age.
const LOOKS_TO_HALF: f64 = 64.0;

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub(super) struct Survival {
    waiting: VecDeque<(TimedLine, Duration)>,
    /// Looks at lines of each age, and those that found the line.
    ages: [[f64; 2]; AGE_CLASSES],
}

impl Survival {
    /// A line was loaded when the process had run for so long.
    pub fn loaded(&mut self, line: TimedLine, ran: Duration) {
        if self.waiting.len() == WAITING_LINES {
            self.waiting.pop_front();
        }
        self.waiting.push_back((line, ran));
    }

    /// How many lines wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// The line at a place in the queue and its age in CPU time of the process; it waits no more.
    pub fn take(&mut self, at: usize, ran: Duration) -> Option<(TimedLine, Duration)> {
        let (line, loaded) = self.waiting.remove(at)?;
        Some((line, ran.saturating_sub(loaded)))
    }

    /// A line of this age was looked at.
    pub fn note(&mut self, age: Duration, found: bool) {
        let seen = &mut self.ages[class(age)];
        if seen[0] >= LOOKS_TO_HALF {
            seen.iter_mut().for_each(|count| *count /= 2.0);
        }
        seen[0] += 1.0;
        seen[1] += f64::from(u8::from(found));
    }

    /// CPU time of the process after which half of the lines are gone, and whether it is longer than
    /// that; `None` before enough was seen.
    pub fn half_life(&self) -> Option<(Duration, bool)> {
        let known = self.ages.iter().enumerate().filter(|(_, seen)| seen[0] >= FEWEST_LOOKS);
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
    YOUNGEST_AGE * (1 << class)
}

/// The age at which half are found, if more are in one class and fewer in a later one, by the middle ages of
/// both.
fn between((young, more): (usize, f64), (old, fewer): (usize, f64)) -> Duration {
    let part = (more - 0.5) / (more - fewer);
    first(young).mul_f64((part * (old - young) as f64 + 0.5).exp2())
}

fn class(age: Duration) -> usize {
    let times = age.as_nanos() / YOUNGEST_AGE.as_nanos();
    usize::try_from(times.max(1).ilog2()).unwrap_or(AGE_CLASSES).min(AGE_CLASSES - 1)
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
        let line = |n: u64| TimedLine { frame: Pfn(n), index: 0 };
        (0..300).for_each(|n| survival.loaded(line(n), Duration::from_millis(n)));
        assert_eq!(survival.waiting(), WAITING_LINES);
        let taken = survival.take(0, Duration::from_millis(300));
        assert_eq!(taken, Some((line(44), Duration::from_millis(256))));
        assert_eq!(survival.take(999, Duration::ZERO), None);
    }
}
