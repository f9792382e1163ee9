//! Which CPU to measure on: one that others use least. A neighbour on the core's other thread may
//! be outside of this virtual machine, where nothing shows it but that additions take twice as long.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::kernel::cpus::{OnCpu, allowed_cpus};

/// How long each CPU is watched.
const WATCHED: Duration = Duration::from_millis(1);
/// CPUs that are watched at most, the highest: interrupts tend to go to the first.
const CPUS: usize = 4;

/// The CPU, of those that this thread may run on, that gets most done. Takes some milliseconds where
/// there is a choice; 0 if the kernel does not say which there are.
pub fn quietest_cpu() -> usize {
    match allowed_cpus()[..] {
        [only] => only,
        ref all => {
            all.iter().copied().rev().take(CPUS).max_by_key(|&cpu| done_on(cpu)).unwrap_or(0)
        }
    }
}

/// How many blocks of additions get done on a CPU while it is watched.
fn done_on(cpu: usize) -> u32 {
    let Ok(_on) = OnCpu::new(cpu) else { return 0 };
    let started = Instant::now();
    let mut done = 0;
    while started.elapsed() < WATCHED {
        additions();
        done += 1;
    }
    done
}

/// Four independent chains of additions: enough to fill a core that nobody shares.
fn additions() {
    let mut sums = [1u64, 2, 3, 4];
    for i in 0..100 {
        sums = black_box(sums.map(|sum| sum.wrapping_add(i)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_one_of_those_allowed_and_the_thread_is_as_free_as_before() {
        let before = allowed_cpus();
        assert!(before.contains(&quietest_cpu()));
        assert_eq!(allowed_cpus(), before);
    }
}
