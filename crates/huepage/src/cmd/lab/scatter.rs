//! Memory whose free frames come in no order, as on a machine that has run for days: in a guest that has just booted
//! they lie in large blocks, and a program gets one frame after the other. A file in memory takes most of what is
//! available, and every second page of it is freed, by chance and in an order by chance, which is the same in each guest.
//! What is left of the file keeps free frames apart. Each processor takes and frees a part, as the kernel keeps some
//! frames ready for each, which would come in order else.

use std::fs::File;
use std::path::Path;

use huepage_linux::kernel::cpus::{OnCpu, allowed_cpus};
use huepage_linux::kernel::memory_room::available_bytes;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::exit::{CmdError, bad_file};

/// What a guest runs before its job.
pub const JOB: &str =
    "mkdir -p /lab/scattered; mount -t tmpfs -o size=100% scattered /lab/scattered
huepage lab scatter /lab/scattered/file || { stty -F /dev/ttyS0 sane; poweroff -f; }
";

const PAGE: u64 = 4096;
/// What the file leaves of the memory that is available: an eighth.
const LEFT: u64 = 8;

/// Fills memory with a file, and frees half of its pages.
pub fn fill(path: &Path) -> Result<(), CmdError> {
    let available = available_bytes().ok_or_else(|| CmdError::internal("no MemAvailable"))?;
    let pages = available / PAGE * (LEFT - 1) / LEFT;
    let failed = |error: Errno| bad_file(path, error);
    let file = File::create_new(path).map_err(|e| bad_file(path, e))?;
    let cpus = allowed_cpus();
    let part = pages / cpus.len() as u64;
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    on_each(&cpus, |number| {
        fallocate(&file, FallocateFlags::empty(), number as u64 * part * PAGE, part * PAGE)
    })
    .map_err(failed)?;
    let freed = every_second(part * cpus.len() as u64);
    let freed: Vec<&[u64]> = freed.chunks(freed.len().div_ceil(cpus.len()).max(1)).collect();
    on_each(&cpus[..freed.len()], |number| {
        let mut freed = freed[number].iter();
        freed.try_for_each(|page| fallocate(&file, hole, page * PAGE, PAGE))
    })
    .map_err(failed)
}

/// Does something on each processor in turn; it is told the number of that in the row.
fn on_each(cpus: &[usize], mut work: impl FnMut(usize) -> Result<(), Errno>) -> Result<(), Errno> {
    cpus.iter().enumerate().try_for_each(|(number, &cpu)| {
        let _on = OnCpu::new(cpu)?;
        work(number)
    })
}

/// Half of so many pages, by chance and in an order by chance.
fn every_second(pages: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..pages).collect();
    let mut chance = 1_u64;
    for left in (1..all.len()).rev() {
        // Knuth's MMIX; the high bits are the good ones.
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let other = (chance >> 33) % (left as u64 + 1);
        all.swap(left, usize::try_from(other).unwrap_or(0));
    }
    all.truncate(all.len() / 2);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_pages_are_freed_once_in_no_order() {
        let freed = every_second(10_000);
        let mut sorted = freed.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((freed.len(), sorted.len()), (5000, 5000));
        assert!(freed.iter().all(|page| *page < 10_000));
        let next = freed.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
        assert!(next < 10, "{next} neighbours follow each other");
        let free = |part: u64| freed.iter().filter(|page| *page / 1000 == part).count();
        assert!((0..10).all(|part| (430..570).contains(&free(part))), "all over the file");
    }
}
