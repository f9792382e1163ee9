//! Bare access patterns: walks over one array, and two pages that conflict. What they compute
//! is next to nothing; they are the ends of the range that programs lie in.

use super::Parameters;
use super::memory::{Checksum, ProgramMemory, SplitMix};

/// Walks through an array of 64-bit words from start to end, `rounds` times.
///
/// Stands for libquantum, the polluter of COLORIS section 4.5 and of the workloads of Scolari
/// table III: passes over one large vector, each word used once per pass, so that no cache
/// smaller than the vector has any hit but those within a line.
pub fn sequential<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let array = m.filled(p.size / 8, |i| i as u64 ^ p.seed);
    let mut sum = 0_u64;
    for _ in 0..p.rounds {
        for i in 0..array.len() {
            m.work(2);
            sum = sum.wrapping_add(m.load(&array, i));
        }
    }
    sum
}

/// Loads words of an array at random places, independent of each other; `rounds` times as many
/// as it has words.
///
/// Stands for omnetpp as COLORIS section 4.3 has it, a program whose misses fall with every
/// part of the cache it gets: without any order, hits are in proportion to what fits.
pub fn random<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let array = m.filled(p.size / 8, |i| i as u64);
    let mut random = SplitMix::new(p.seed);
    let mut sum = 0_u64;
    for _ in 0..p.rounds * array.len() {
        m.work(8);
        sum = sum.wrapping_add(m.load(&array, random.below(array.len())));
    }
    sum
}

/// Bytes of the wheel of [`events`], and loads of a hundred that go to its next line.
const WHEEL: usize = 128 << 10;
const TURNS: usize = 15;
/// Loads of a hundred that go to busy modules, which are one part in so many of the array.
const BUSY: usize = 44;
const BUSY_PART: usize = 5;
/// Where those to any module begin, busy or not.
const ANYWHERE: usize = TURNS + BUSY;

/// Takes the next event of a wheel, or goes to a module, a busy one or any in an array; `rounds` times
/// as many loads as the array has words. The size is that of the array.
///
/// Stands for omnetpp (COLORIS sections 4.2 and 4.3): the wheel is larger than a private L2 keeps
/// between two turns and a small part of the last level, modules are far more than either, and some have
/// more events than others. Size and shares follow from where its miss rate lies in the paper: 77.8 %
/// with 16 colours of 64 KiB, below 75 with 24 to 28, below 65 with 40 to 44.
pub fn events<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let wheel = m.filled(WHEEL / 8, |i| i as u64);
    let array = m.filled(p.size / 8, |i| i as u64);
    let (mut random, mut next) = (SplitMix::new(p.seed), 0);
    let mut sum = 0_u64;
    for _ in 0..p.rounds * array.len() {
        m.work(8);
        let value = match random.below(100) {
            0..TURNS => {
                next = (next + NODE / 8) % wheel.len();
                m.load(&wheel, next)
            }
            TURNS..ANYWHERE => m.load(&array, random.below(array.len() / BUSY_PART)),
            _ => m.load(&array, random.below(array.len())),
        };
        sum = sum.wrapping_add(value);
    }
    sum
}

/// Bytes from one element of the chase to the next place that may hold one: a line.
const NODE: usize = 64;

/// Follows a cycle through all lines of an array, each naming the next, in random order.
///
/// Stands for mcf (ROCS table 2: IPC 0.05 and 54 % of L2 requests miss): a network of nodes
/// reached by pointers, so that a load waits for the load before it.
pub fn chase<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let order = cycle(p.size / NODE, p.seed);
    let mut next = m.array(p.size / 8);
    for (node, &to) in order.iter().enumerate() {
        m.work(2);
        m.store(&mut next, node * NODE / 8, to as u64);
    }
    let (mut at, mut sum) = (0_u64, Checksum::default());
    for _ in 0..p.rounds * order.len() {
        m.work(1);
        at = m.load(&next, usize::try_from(at).unwrap_or(0) * NODE / 8);
        sum.add(at);
    }
    sum.value()
}

/// A permutation that is one cycle (Sattolo 1986).
fn cycle(n: usize, seed: u64) -> Vec<usize> {
    let mut random = SplitMix::new(seed);
    let mut order: Vec<usize> = (0..n).collect();
    (1..n).rev().for_each(|i| order.swap(i, random.below(i)));
    order
}

/// Updates random words of a table, four for each word it has, `rounds` times.
///
/// The RandomAccess kernel of the HPC Challenge benchmarks; of the thesis's programs it is
/// nearest to fpga (Romer table 3-1, 41.6 MB), a partitioner that follows nets all over its
/// memory: each update is a page of its own, the worst a TLB can meet.
pub fn gups<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let mut table = m.filled(p.size / 8, |i| i as u64);
    for _ in 0..p.rounds {
        update_all(m, &mut table, p.seed);
    }
    m.load(&table, 0) ^ m.load(&table, table.len() / 2)
}

fn update_all<M: ProgramMemory>(m: &mut M, table: &mut super::memory::Array<u64>, seed: u64) {
    let mut random = SplitMix::new(seed);
    for _ in 0..4 * table.len() {
        let word = random.word();
        let place = SplitMix::new(word).below(table.len());
        m.work(6);
        m.update(table, place, |old| old ^ word);
    }
}

/// The four loops of STREAM (McCalpin 1995) over three arrays: copy, scale, add, triad.
///
/// Stands for the streaming programs among the polluters, lbm and milc of COLORIS table 1:
/// several arrays side by side, read and written once per pass.
pub fn stream<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = p.size / 24;
    let mut a = m.filled(n, |_| 1.0);
    let mut b = m.filled(n, |_| 2.0);
    let mut c = m.filled(n, |_| 0.0);
    for _ in 0..p.rounds {
        for i in 0..n {
            m.work(2);
            let value = m.load(&a, i);
            m.store(&mut c, i, value);
        }
        for i in 0..n {
            m.work(3);
            let value = 0.375 * m.load(&c, i);
            m.store(&mut b, i, value);
        }
        for i in 0..n {
            m.work(3);
            let value = m.load(&a, i) + m.load(&b, i);
            m.store(&mut c, i, value);
        }
        for i in 0..n {
            m.work(4);
            let value = m.load(&b, i) + 0.375 * m.load(&c, i);
            m.store(&mut a, i, value);
        }
    }
    Checksum::of(m, &a)
}

/// Alternates between two pages, line by line, `rounds` times through both; the second lies
/// `size` bytes above the first.
///
/// Stands for strawman (Romer table 4-3: repeatedly alternates references to two conflicting
/// cache pages). Its 16 million references are 13.4 million instructions and 2.7 million loads
/// and stores (table 4-4): five instructions for each, as here, and as many rounds by default.
/// With the size of a direct-mapped cache as distance, any mapping that keeps virtual order makes
/// each access a miss, and one recolouring cures all.
pub fn strawman<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    const PAGE: usize = 4096;
    let mut array = m.array::<u32>((p.size + PAGE) / 4);
    let (second, words) = (p.size / 4, PAGE / 4);
    for i in 0..words {
        m.work(2);
        m.store(&mut array, i, u32::try_from(i).unwrap_or(0));
        m.store(&mut array, second + i, 1);
    }
    let mut sum = p.seed;
    for _ in 0..p.rounds {
        for i in 0..words {
            m.work(8);
            let one = m.load(&array, i);
            sum = sum.wrapping_add(u64::from(one ^ m.load(&array, second + i)));
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::super::memory::{Array, Native, Traced};
    use super::*;
    use crate::record::Record;

    fn parameters(size: usize, rounds: usize) -> Parameters {
        Parameters { size, seed: 5, rounds }
    }

    #[test]
    fn a_chase_is_one_cycle_through_all() {
        let order = cycle(1000, 3);
        let mut at = 0;
        for step in 1..=1000 {
            at = order[at];
            assert_eq!(at == 0, step == 1000, "back at the start after {step} steps");
        }
    }

    #[test]
    fn updates_done_twice_undo_each_other() {
        let mut table: Array<u64> = Native.filled(1000, |i| i as u64);
        update_all(&mut Native, &mut table, 7);
        let moved = table.peek().iter().enumerate().filter(|&(i, &w)| w != i as u64).count();
        assert!(moved > 900, "{moved} words were changed");
        update_all(&mut Native, &mut table, 7);
        assert!(table.peek().iter().enumerate().all(|(i, &word)| word == i as u64));
    }

    #[test]
    fn a_sequential_sum_is_what_gauss_said() {
        let p = Parameters { size: 8000, seed: 0, rounds: 3 };
        assert_eq!(sequential(&mut Native, &p), 3 * 999 * 1000 / 2);
    }

    #[test]
    fn stream_has_the_closed_form() {
        // One round from a = 1: c = 1, b = s, c = 1 + s, a = s + s (1 + s).
        let (s, p) = (0.375, parameters(2400, 1));
        let want: Array<f64> = Native.filled(100, |_| s + s * (1.0 + s));
        assert_eq!(stream(&mut Native, &p), Checksum::of(&mut Native, &want));
    }

    #[test]
    fn strawman_touches_two_pages_in_turn() {
        let mut pages = Vec::new();
        let mut m = Traced::new(|r: Record| pages.push(r.address.0 >> 12));
        strawman(&mut m, &parameters(64 << 10, 2));
        assert!(pages.windows(2).all(|pair| pair[0].abs_diff(pair[1]) == 16));
    }
}
