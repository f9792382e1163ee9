//! How much of the time somebody else's work is felt on a CPU, and how much of it the CPU is away.
//! Neighbours outside of a virtual machine show nowhere else.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Interval;
use super::additions::{Blocks, Kind, kind};
use crate::kernel::cpus::OnCpu;

/// Stretches that the time is divided into, to see how much it varies.
const STRETCHES: u32 = 10;

/// Who else uses the core of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Neighbors {
    /// The CPU.
    pub cpu: usize,
    /// Share of the time that was had in which additions took at least 1.3 times as long as alone.
    pub felt: Interval,
    /// Share of the time in which the CPU did something else: interrupts, other programs, other
    /// guests of the host.
    pub away: Interval,
    /// Seconds watched.
    pub seconds: f64,
}

/// Watches a CPU for about `time`; `None` if this thread may not run there, or never did.
pub fn watch(cpu: usize, time: Duration) -> Option<Neighbors> {
    let _on = OnCpu::new(cpu).ok()?;
    let began = Instant::now();
    let stretch = |_| {
        let end = Instant::now() + time / STRETCHES;
        Blocks::run(|| Instant::now() < end)
    };
    let stretches: Vec<Blocks> = (0..STRETCHES).map(stretch).collect();
    sum_up(cpu, &stretches, began.elapsed())
}

/// What some stretches say together.
fn sum_up(cpu: usize, stretches: &[Blocks], time: Duration) -> Option<Neighbors> {
    let mut all = Blocks::default();
    for blocks in stretches {
        all.four.extend(&blocks.four);
        all.one.extend(&blocks.one);
    }
    let alone = all.alone()?;
    let shares: Vec<[f64; 2]> = stretches.iter().filter_map(|s| shares(s, alone)).collect();
    let [felt, away] = [0, 1]
        .map(|which| Interval::of_means(&shares.iter().map(|s| s[which]).collect::<Vec<_>>()));
    Some(Neighbors { cpu, felt, away, seconds: time.as_secs_f64() })
}

/// The shares of a stretch: slowed, of the time that was had; away, of all.
fn shares(blocks: &Blocks, alone: f64) -> Option<[f64; 2]> {
    let sum = |wanted: Kind| -> f64 {
        let those = blocks.four.iter().filter(|&&ticks| kind(ticks, alone) == wanted);
        those.map(|&ticks| f64::from(ticks)).sum()
    };
    let [quiet, slowed, away] = [Kind::Alone, Kind::Slowed, Kind::Away].map(sum);
    let had = quiet + slowed;
    (had > 0.0).then(|| [slowed / had, away / (had + away)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stretches of a core where each block is slowed or interrupted by chance, in 1000.
    fn modelled(slowed: u64, away: u64) -> Vec<Blocks> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut block = || match random.usize(..1000) as u64 {
            n if n < slowed => 190,
            n if n < slowed + away => 50_000,
            _ => 100,
        };
        let mut stretch =
            |_| Blocks { four: (0..2000).map(|_| block()).collect(), one: vec![98; 100] };
        (0..10).map(&mut stretch).collect()
    }

    #[test]
    fn modelled_neighbours_are_found_and_quiet_cores_are_quiet() {
        let time = Duration::from_millis(200);
        for percent in [0, 10, 50, 90] {
            let found = sum_up(1, &modelled(percent * 10, 0), time).unwrap();
            // As shares of time: a slowed block takes 1.9 times as long.
            let part = percent as f64 / 100.0;
            let true_share = part * 1.9 / (part * 1.9 + 1.0 - part);
            assert!((found.felt.estimate - true_share).abs() < 0.03, "{percent}: {found:?}");
            assert!(found.felt.low <= true_share + 0.02 && found.felt.high >= true_share - 0.02);
            assert_eq!(found.away.estimate, 0.0);
        }
    }

    #[test]
    fn a_neighbour_without_a_pause_is_felt_all_the_time() {
        let found = sum_up(0, &modelled(1000, 0), Duration::from_millis(200)).unwrap();
        assert_eq!(found.felt.estimate, 1.0);
    }

    #[test]
    fn interruptions_are_no_neighbours() {
        let found = sum_up(0, &modelled(0, 2), Duration::from_millis(200)).unwrap();
        assert_eq!(found.felt.estimate, 0.0);
        assert!((0.3..0.7).contains(&found.away.estimate), "{found:?}");
    }

    #[test]
    fn this_cpu_is_watched_for_as_long_as_was_said() {
        let cpu = crate::kernel::cpus::allowed_cpus()[0];
        let found = watch(cpu, Duration::from_millis(50)).unwrap();
        assert!(found.cpu == cpu && found.seconds >= 0.05, "{found:?}");
        let range = 0.0..=1.0;
        assert!(range.contains(&found.felt.estimate) && range.contains(&found.away.estimate));
    }
}
