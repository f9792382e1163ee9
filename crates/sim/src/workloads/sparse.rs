//! Matrices that are mostly zero: the product of a compressed-row matrix and a vector, and a
//! system of small blocks along three diagonals.

use super::Parameters;
use super::memory::{Array, Checksum, ProgramMemory, SplitMix};

/// Elements per row that are not zero.
const PER_ROW: usize = 10;
/// Bytes per row: each element's value and column, the row's start, and both vectors.
const ROW_BYTES: usize = PER_ROW * 12 + 4 + 16;

/// A matrix in compressed rows.
struct Rows {
    values: Array<f64>,
    columns: Array<u32>,
    starts: Array<u32>,
}

/// Multiplies a sparse matrix with a vector, `rounds` times, each time with the last result.
///
/// Stands for MM of SciMark2 (SRM-buffer section 4.3: sparse matrices in compressed-row
/// format), of the paper's programs the one that pollution hurts most: values and columns are
/// read once per product and come back only with the next, beside scattered reads of a vector
/// (section 4.3: weakest temporal locality of the three).
pub fn product<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = p.size / ROW_BYTES;
    let a = rows(m, n, p.seed);
    power(m, &a, n, p.rounds)
}

/// Multiplies a vector so many times.
fn power<M: ProgramMemory>(m: &mut M, a: &Rows, n: usize, rounds: usize) -> u64 {
    let mut x = m.filled(n, |i| 1.0 + i as f64 / n as f64);
    let mut y = m.array(n);
    for _ in 0..rounds {
        multiply(m, a, &x, &mut y);
        std::mem::swap(&mut x, &mut y);
    }
    Checksum::of(m, &x)
}

/// Of ten elements of a row of [`near_product`], those beside the diagonal.
const BESIDE: usize = 5;

/// The same with half of the elements beside the diagonal.
///
/// Stands for CG of the NAS benchmarks (ROCS table 2: 59 % of L2 requests miss): class B has 75,000
/// rows, whose vector is a little larger than the L2, and matrix and vector make about as many
/// misses. Its rows have 183 elements; ten here, so that a pass is a twentieth.
pub fn near_product<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = p.size / ROW_BYTES;
    let (mut a, mut random) = (rows(m, n, p.seed), SplitMix::new(p.seed ^ 1));
    let stride = n / (PER_ROW - BESIDE);
    for at in 0..n * PER_ROW {
        let (row, element) = (at / PER_ROW, at % PER_ROW);
        let far = element.checked_sub(BESIDE).map(|far| far * stride + random.below(stride));
        let column = far.unwrap_or((row + element) % n);
        m.store(&mut a.columns, at, u32::try_from(column).unwrap_or(0));
    }
    power(m, &a, n, p.rounds)
}

/// Random columns in ascending order; values that keep the result's size.
fn rows<M: ProgramMemory>(m: &mut M, n: usize, seed: u64) -> Rows {
    let mut random = SplitMix::new(seed);
    let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let starts = m.filled(n + 1, |row| number(row * PER_ROW));
    let stride = n / PER_ROW;
    let columns =
        m.filled(n * PER_ROW, |at| number(at % PER_ROW * stride + random.below(stride.max(1))));
    let values = m.filled(n * PER_ROW, |_| random.unit() * 2.0 / PER_ROW as f64);
    Rows { values, columns, starts }
}

fn multiply<M: ProgramMemory>(m: &mut M, a: &Rows, x: &Array<f64>, y: &mut Array<f64>) {
    let place = |at: u32| at as usize;
    for row in 0..y.len() {
        let (start, end) = (m.load(&a.starts, row), m.load(&a.starts, row + 1));
        let mut sum = 0.0;
        for at in place(start)..place(end) {
            m.work(4);
            let column = place(m.load(&a.columns, at));
            sum += m.load(&a.values, at) * m.load(x, column);
        }
        m.store(y, row, sum);
    }
}

/// Rows of a block.
const B: usize = 5;
const BLOCK: usize = B * B;

/// Solves block tridiagonal systems of 5 x 5 blocks, one line after the other, `rounds` times.
///
/// Stands for nasa7-4 (Romer table 3-1: block tridiagonal matrix solver, working set 3.1 MB):
/// several lines of blocks are solved in step, so that neighbours in time are a line apart in
/// memory and on different pages; TLB misses take a third of the time (table 3-2: 34.4 %).
pub fn block_tridiagonal<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = (p.size / (8 * (3 * BLOCK + B)) / LINES).max(2);
    let (mut system, mut sum) = (System::new(m, n), Checksum::default());
    for round in 0..p.rounds {
        system.fill(m, p.seed.wrapping_add(round as u64));
        system.solve(m);
        sum.add(Checksum::of(m, &system.x));
    }
    sum.value()
}

/// Lines that are solved in step.
const LINES: usize = 30;

/// Lower, diagonal and upper blocks of every line, and the right side that becomes the solution.
#[derive(Clone)]
struct System {
    n: usize,
    lower: Array<f64>,
    diagonal: Array<f64>,
    upper: Array<f64>,
    x: Array<f64>,
}

type Block = [f64; BLOCK];

impl System {
    fn new<M: ProgramMemory>(m: &mut M, n: usize) -> System {
        let [lower, diagonal, upper] = std::array::from_fn(|_| m.array(LINES * n * BLOCK));
        System { n, lower, diagonal, upper, x: m.array(LINES * n * B) }
    }

    /// Diagonals that outweigh the rest of their rows.
    fn fill<M: ProgramMemory>(&mut self, m: &mut M, seed: u64) {
        let mut random = SplitMix::new(seed);
        m.fill(&mut self.lower, |_| random.unit() / 16.0);
        m.fill(&mut self.upper, |_| random.unit() / 16.0);
        m.fill(&mut self.diagonal, |at| {
            let within = at % BLOCK;
            random.unit() / 16.0 + if within / B == within % B { 1.0 } else { 0.0 }
        });
        m.fill(&mut self.x, |_| random.unit());
    }

    fn solve<M: ProgramMemory>(&mut self, m: &mut M) {
        for step in 0..self.n {
            (0..LINES).for_each(|line| self.eliminate(m, line * self.n + step, step > 0));
        }
        for step in (0..self.n - 1).rev() {
            (0..LINES).for_each(|line| self.substitute(m, line * self.n + step));
        }
    }

    /// Takes the block before out of row `at`, then divides the row by its diagonal.
    fn eliminate<M: ProgramMemory>(&mut self, m: &mut M, at: usize, follows: bool) {
        let mut d = load_block(m, &self.diagonal, at);
        let mut x = load_row(m, &self.x, at);
        if follows {
            let l = load_block(m, &self.lower, at);
            let before = load_block(m, &self.upper, at - 1);
            let known = load_row(m, &self.x, at - 1);
            // Two operations for each element of two products.
            m.work(300);
            for i in 0..B {
                for k in 0..B {
                    (0..B).for_each(|j| d[i * B + j] -= l[i * B + k] * before[k * B + j]);
                    x[i] -= l[i * B + k] * known[k];
                }
            }
        }
        let mut u = load_block(m, &self.upper, at);
        divide(m, &mut d, &mut u, &mut x);
        (0..BLOCK).for_each(|i| m.store(&mut self.upper, at * BLOCK + i, u[i]));
        (0..B).for_each(|i| m.store(&mut self.x, at * B + i, x[i]));
    }

    fn substitute<M: ProgramMemory>(&mut self, m: &mut M, at: usize) {
        let u = load_block(m, &self.upper, at);
        let known = load_row(m, &self.x, at + 1);
        for i in 0..B {
            m.work(10);
            let term: f64 = (0..B).map(|k| u[i * B + k] * known[k]).sum();
            m.update(&mut self.x, at * B + i, |value| value - term);
        }
    }
}

fn load_block<M: ProgramMemory>(m: &mut M, array: &Array<f64>, at: usize) -> Block {
    std::array::from_fn(|i| m.load(array, at * BLOCK + i))
}

fn load_row<M: ProgramMemory>(m: &mut M, array: &Array<f64>, at: usize) -> [f64; B] {
    std::array::from_fn(|i| m.load(array, at * B + i))
}

/// Gauss-Jordan in registers and stack: `u` and `x` become d^-1 u and d^-1 x.
fn divide<M: ProgramMemory>(m: &mut M, d: &mut Block, u: &mut Block, x: &mut [f64; B]) {
    // Two rows of five elements for each of 25 factors, two operations each.
    m.work(500);
    for k in 0..B {
        let inverse = 1.0 / d[k * B + k];
        for j in 0..B {
            d[k * B + j] *= inverse;
            u[k * B + j] *= inverse;
        }
        x[k] *= inverse;
        for i in (0..B).filter(|&i| i != k) {
            let factor = d[i * B + k];
            for j in 0..B {
                d[i * B + j] -= factor * d[k * B + j];
                u[i * B + j] -= factor * u[k * B + j];
            }
            x[i] -= factor * x[k];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Native;
    use super::*;

    #[test]
    fn a_sparse_product_is_the_dense_one() {
        let n = 200;
        let a = rows(&mut Native, n, 1);
        let x = Native.filled(n, |i| i as f64);
        let mut y = Native.array(n);
        multiply(&mut Native, &a, &x, &mut y);
        for row in 0..n {
            let mut dense = vec![0.0; n];
            for at in row * PER_ROW..(row + 1) * PER_ROW {
                dense[a.columns.peek()[at] as usize] = a.values.peek()[at];
            }
            let want: f64 = dense.iter().zip(x.peek()).map(|(a, x)| a * x).sum();
            assert!((y.peek()[row] - want).abs() < 1e-9);
            assert_eq!(dense.iter().filter(|&&v| v != 0.0).count(), PER_ROW);
        }
    }

    #[test]
    fn block_systems_are_solved() {
        let mut start = System::new(&mut Native, 9);
        start.fill(&mut Native, 2);
        let mut solved = start.clone();
        solved.solve(&mut Native);
        let x = solved.x.peek();
        let times = |blocks: &Array<f64>, at: usize, column: usize, i: usize| -> f64 {
            (0..B).map(|k| blocks.peek()[at * BLOCK + i * B + k] * x[column * B + k]).sum()
        };
        for at in 0..LINES * 9 {
            for i in 0..B {
                let mut row = times(&start.diagonal, at, at, i);
                row += if at % 9 > 0 { times(&start.lower, at, at - 1, i) } else { 0.0 };
                row += if at % 9 < 8 { times(&start.upper, at, at + 1, i) } else { 0.0 };
                assert!((row - start.x.peek()[at * B + i]).abs() < 1e-12, "row {at} {i}");
            }
        }
    }
}
