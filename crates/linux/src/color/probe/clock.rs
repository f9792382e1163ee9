//! The step of the time stamp counter: how far apart two readings are at least, if they differ. Some
//! processors derive the counter from a clock of 100 MHz, so that it moves by 24.45, 26 or 36 ticks
//! at a time. Such a clock cannot tell a single load that hits from one that misses.

use std::hint::black_box;

use super::timing::ticks;

/// Pairs of readings.
const READINGS: u32 = 20_000;
/// The longest difference that counts, in ticks.
const LONGEST: usize = 1024;
/// A difference that is rarer than one in so many is an interruption.
const RARE: u32 = 500;
/// Ticks by which differences of one number of steps vary, since a step need not be a whole number.
const ROUNDING: usize = 2;
/// The least step that matters, in ticks: a miss takes four times longer than a hit by more.
const COARSE: f64 = 5.5;
/// The largest distance from a multiple of the step, in ticks.
const TOLERANCE: f64 = 1.5;
/// Share of the differences that must be multiples of the step.
const MULTIPLES: f64 = 0.98;

/// The step of the time stamp counter in ticks, rounded; 1 if it is below 6. Takes a few ms.
pub fn clock_step() -> u32 {
    let mut counts = vec![0u32; LONGEST];
    for i in 0..READINGS {
        let start = ticks();
        // Of many lengths, so that a fine clock shows all of them.
        for work in 0..i % 64 {
            black_box(work);
        }
        if let Some(count) = counts.get_mut(ticks().wrapping_sub(start) as usize) {
            *count += 1;
        }
    }
    step_of(&counts)
}

/// The step behind a histogram of differences: the distance of neighbouring clusters, if nearly all
/// differences are multiples of it.
fn step_of(counts: &[u32]) -> u32 {
    let centers = clusters(counts);
    let gaps = centers.windows(2).map(|pair| pair[1] - pair[0]);
    let least = gaps.fold(f64::INFINITY, f64::min);
    let (Some(first), Some(last)) = (centers.first(), centers.last()) else { return 1 };
    if !least.is_finite() {
        return 1;
    }
    let step = (last - first) / ((last - first) / least).round();
    if step < COARSE || multiples(counts, step) < MULTIPLES { 1 } else { step.round() as u32 }
}

/// The means of the groups of neighbouring differences, in ascending order.
fn clusters(counts: &[u32]) -> Vec<f64> {
    let rare = counts.iter().sum::<u32>() / RARE;
    let common = |&(_, count): &(usize, u32)| count > rare;
    let seen: Vec<(usize, u32)> = counts.iter().copied().enumerate().filter(common).collect();
    let mean = |group: &[(usize, u32)]| {
        let weight: f64 = group.iter().map(|&(_, count)| f64::from(count)).sum();
        group.iter().map(|&(at, count)| at as f64 * f64::from(count)).sum::<f64>() / weight
    };
    seen.chunk_by(|a, b| b.0 - a.0 <= ROUNDING).map(mean).collect()
}

/// The share of differences that are multiples of the step.
fn multiples(counts: &[u32], step: f64) -> f64 {
    let near = |at: usize| ((at as f64 / step).round() * step - at as f64).abs() <= TOLERANCE;
    let of = |(at, &count): (usize, &u32)| if near(at) { u64::from(count) } else { 0 };
    let all: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    counts.iter().enumerate().map(of).sum::<u64>() as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    /// What a clock that moves by `step` shows of work of `least` to `most` ticks.
    fn shown(step: f64, least: usize, most: usize) -> Vec<u32> {
        let (mut random, mut counts) = (Rng::with_seed(3), vec![0; LONGEST]);
        for _ in 0..READINGS {
            let start = random.usize(..1_000_000) as f64;
            let end = start + (least + random.usize(..most - least)) as f64;
            let shown = |at: f64| ((at / step).floor() * step).floor() as usize;
            counts[shown(end) - shown(start)] += 1;
        }
        counts
    }

    #[test]
    fn steps_are_found_whether_whole_numbers_or_not() {
        for (step, found) in [(1.0, 1), (2.0, 1), (24.45, 24), (26.0, 26), (36.0, 36), (10.0, 10)] {
            for (least, most) in [(40, 60), (40, 110), (30, 300)] {
                assert_eq!(step_of(&shown(step, least, most)), found, "{step} {least}-{most}");
            }
        }
    }

    #[test]
    fn a_fine_clock_that_shows_only_some_lengths_has_no_step() {
        let mut counts = vec![0; LONGEST];
        [40, 44, 53, 61, 70].into_iter().for_each(|length| counts[length] = 4000);
        assert_eq!(step_of(&counts), 1);
        assert_eq!(step_of(&vec![0; LONGEST]), 1);
    }

    #[test]
    fn interruptions_do_not_hide_the_step() {
        let mut counts = shown(24.45, 40, 110);
        (300..1000).step_by(7).for_each(|length| counts[length] += 1);
        assert_eq!(step_of(&counts), 24);
    }

    #[test]
    fn this_clock_has_one_step() {
        let steps = [clock_step(), clock_step()];
        assert!(steps[0].abs_diff(steps[1]) <= 1 && steps[0] >= 1, "{steps:?}");
    }
}
