//! Dense matrices, stored row by row: product, LU, Cholesky and Gaussian elimination. Plain
//! loops without blocking for caches, as the programs they stand for have them.

use super::Parameters;
use super::memory::{Array, Checksum, ProgramMemory, SplitMix};

type Matrix = Array<f64>;

/// Multiplies two dense matrices row by row (i, k, j); three matrices make up the size.
///
/// The kernel that any study of caches has; of the papers' programs MM of SRM-buffer section
/// 4.3 is the sparse one, see [`super::sparse::product`]. One row of the second factor after
/// the other streams by for each row of the result.
pub fn product<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = (p.size / 24).isqrt();
    let mut random = SplitMix::new(p.seed);
    let a = m.filled(n * n, |_| random.unit());
    let b = m.filled(n * n, |_| random.unit());
    let mut c = m.array(n * n);
    for _ in 0..p.rounds {
        multiply(m, &a, &b, &mut c, n);
    }
    Checksum::of(m, &c)
}

fn multiply<M: ProgramMemory>(m: &mut M, a: &Matrix, b: &Matrix, c: &mut Matrix, n: usize) {
    for i in 0..n {
        for j in 0..n {
            m.store(c, i * n + j, 0.0);
        }
        for k in 0..n {
            let factor = m.load(a, i * n + k);
            for j in 0..n {
                m.work(4);
                let term = factor * m.load(b, k * n + j);
                m.update(c, i * n + j, |sum| sum + term);
            }
        }
    }
}

/// Elements without structure: a matrix that is far from singular.
fn fill_random<M: ProgramMemory>(m: &mut M, a: &mut Matrix, seed: u64) {
    let mut random = SplitMix::new(seed);
    m.fill(a, |_| random.unit() - 0.5);
}

/// LU factors of a matrix by rows with partial pivoting, `rounds` times from a fresh matrix.
///
/// Stands for LU of SciMark2 (SRM-buffer section 4.3: LU factorisation of a dense matrix): the
/// rest of the matrix is swept once per column, so that it is reused as a whole, less each
/// time.
pub fn lu<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = (p.size / 8).isqrt();
    let (mut a, mut sum) = (m.array(n * n), Checksum::default());
    for round in 0..p.rounds {
        fill_random(m, &mut a, p.seed.wrapping_add(round as u64));
        let pivots = factor_lu(m, &mut a, n);
        pivots.iter().for_each(|&row| sum.add(row as u64));
        sum.add(Checksum::of(m, &a));
    }
    sum.value()
}

/// LU in place; gives the row that was swapped with each.
fn factor_lu<M: ProgramMemory>(m: &mut M, a: &mut Matrix, n: usize) -> Vec<usize> {
    let mut pivots = Vec::with_capacity(n);
    for k in 0..n {
        let pivot = largest_below(m, a, n, k);
        pivots.push(pivot);
        if pivot != k {
            swap_rows(m, a, n, k, pivot);
        }
        let inverse = 1.0 / m.load(a, k * n + k);
        for i in k + 1..n {
            m.work(4);
            let factor = m.load(a, i * n + k) * inverse;
            m.store(a, i * n + k, factor);
            subtract_row(m, a, n, (i, k), factor, k + 1);
        }
    }
    pivots
}

fn largest_below<M: ProgramMemory>(m: &mut M, a: &Matrix, n: usize, k: usize) -> usize {
    let (mut row, mut largest) = (k, 0.0);
    for i in k..n {
        m.work(4);
        let value = m.load(a, i * n + k).abs();
        if value > largest {
            (row, largest) = (i, value);
        }
    }
    row
}

fn swap_rows<M: ProgramMemory>(m: &mut M, a: &mut Matrix, n: usize, i: usize, k: usize) {
    for j in 0..n {
        m.work(2);
        let (upper, lower) = (m.load(a, i * n + j), m.load(a, k * n + j));
        m.store(a, i * n + j, lower);
        m.store(a, k * n + j, upper);
    }
}

/// Row i less `factor` times row k, from column `from` on.
fn subtract_row<M: ProgramMemory>(
    m: &mut M,
    a: &mut Matrix,
    n: usize,
    (i, k): (usize, usize),
    factor: f64,
    from: usize,
) {
    for j in from..n {
        m.work(4);
        let term = factor * m.load(a, k * n + j);
        m.update(a, i * n + j, |value| value - term);
    }
}

/// Cholesky factor of a symmetric matrix, row by row, `rounds` times from a fresh matrix.
///
/// Stands for nasa7-3 (Romer table 4-3: Cholesky factorisation, L2 miss CPI 0.31): each new
/// element is the product of two finished rows, which are read again and again.
pub fn cholesky<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = (p.size / 8).isqrt();
    let (mut a, mut sum) = (m.array(n * n), Checksum::default());
    for round in 0..p.rounds {
        fill_symmetric(m, &mut a, n, p.seed.wrapping_add(round as u64));
        factor_cholesky(m, &mut a, n);
        sum.add(Checksum::of(m, &a));
    }
    sum.value()
}

/// Symmetric, and positive definite since its diagonal outweighs each row.
fn fill_symmetric<M: ProgramMemory>(m: &mut M, a: &mut Matrix, n: usize, seed: u64) {
    m.fill(a, |at| {
        let (i, j) = (at / n, at % n);
        let pair = (i.min(j) * n + i.max(j)) as u64;
        let value = SplitMix::new(seed ^ pair << 20).unit();
        if i == j { value + n as f64 } else { value }
    });
}

fn factor_cholesky<M: ProgramMemory>(m: &mut M, a: &mut Matrix, n: usize) {
    for i in 0..n {
        for j in 0..=i {
            let mut sum = m.load(a, i * n + j);
            for k in 0..j {
                m.work(3);
                sum -= m.load(a, i * n + k) * m.load(a, j * n + k);
            }
            m.work(12);
            let value = if i == j { sum.sqrt() } else { sum / m.load(a, j * n + j) };
            m.store(a, i * n + j, value);
        }
    }
}

/// Solves one system after the other by Gaussian elimination, `rounds` times.
///
/// Stands for nasa7-5 (Romer table 3-1: Gaussian elimination for a 3.8 MB matrix). As there,
/// elimination goes down a column of a matrix stored by rows in its inner loop, a stride of
/// one row: nearly each access is another page, and TLB misses take a third of the time
/// (table 3-2: 34.7 %).
pub fn gauss<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = (p.size / 8).isqrt();
    let (mut a, mut x, mut sum) = (m.array(n * n), m.array(n), Checksum::default());
    for round in 0..p.rounds {
        fill_symmetric(m, &mut a, n, p.seed.wrapping_add(round as u64));
        m.fill(&mut x, |i| 1.0 + i as f64);
        solve_gauss(m, &mut a, &mut x, n);
        sum.add(Checksum::of(m, &x));
    }
    sum.value()
}

/// Solves A x = b in place, without pivoting: the diagonal must outweigh each row.
fn solve_gauss<M: ProgramMemory>(m: &mut M, a: &mut Matrix, x: &mut Matrix, n: usize) {
    for k in 0..n {
        let inverse = 1.0 / m.load(a, k * n + k);
        for i in k + 1..n {
            m.work(4);
            m.update(a, i * n + k, |value| value * inverse);
        }
        for j in k + 1..n {
            let factor = m.load(a, k * n + j);
            subtract_column(m, a, n, (j, k), factor);
        }
        let factor = m.load(x, k);
        for i in k + 1..n {
            m.work(3);
            let term = m.load(a, i * n + k) * factor;
            m.update(x, i, |value| value - term);
        }
    }
    for i in (0..n).rev() {
        let mut sum = m.load(x, i);
        for j in i + 1..n {
            m.work(3);
            sum -= m.load(a, i * n + j) * m.load(x, j);
        }
        m.work(10);
        let value = sum / m.load(a, i * n + i);
        m.store(x, i, value);
    }
}

/// Column j less `factor` times the multipliers in column k, below row k.
fn subtract_column<M: ProgramMemory>(
    m: &mut M,
    a: &mut Matrix,
    n: usize,
    (j, k): (usize, usize),
    factor: f64,
) {
    for i in k + 1..n {
        m.work(4);
        let term = factor * m.load(a, i * n + k);
        m.update(a, i * n + j, |value| value - term);
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Native;
    use super::*;

    const N: usize = 37;

    /// The product of two matrices given as functions.
    fn naive(a: impl Fn(usize, usize) -> f64, b: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        (0..N * N).map(|at| (0..N).map(|k| a(at / N, k) * b(k, at % N)).sum()).collect()
    }

    fn random_matrix(seed: u64) -> Matrix {
        let mut a = Native.array(N * N);
        fill_random(&mut Native, &mut a, seed);
        a
    }

    fn symmetric(seed: u64) -> Matrix {
        let mut a = Native.array(N * N);
        fill_symmetric(&mut Native, &mut a, N, seed);
        a
    }

    fn distance(a: &[f64], b: &[f64]) -> f64 {
        assert_eq!(a.len(), b.len());
        a.iter().zip(b).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
    }

    #[test]
    fn a_product_is_one() {
        let (a, b) = (random_matrix(1), random_matrix(2));
        let mut c = Native.filled(N * N, |_| 9.0);
        multiply(&mut Native, &a, &b, &mut c, N);
        let want = naive(|i, k| a.peek()[i * N + k], |k, j| b.peek()[k * N + j]);
        assert!(distance(c.peek(), &want) < 1e-12);
    }

    #[test]
    fn lu_factors_multiply_to_the_matrix() {
        let start = random_matrix(3);
        let mut a = start.clone();
        let pivots = factor_lu(&mut Native, &mut a, N);
        let at = |i: usize, j: usize| a.peek()[i * N + j];
        let lower = |i, k| {
            if i == k {
                1.0
            } else if k < i {
                at(i, k)
            } else {
                0.0
            }
        };
        let upper = |k, j| if k <= j { at(k, j) } else { 0.0 };
        let mut want = start.clone();
        pivots.iter().enumerate().for_each(|(k, &row)| {
            if row != k {
                swap_rows(&mut Native, &mut want, N, k, row);
            }
        });
        assert!(distance(&naive(lower, upper), want.peek()) < 1e-12);
        assert!(pivots.iter().enumerate().any(|(k, &row)| row != k), "it has to swap rows");
    }

    #[test]
    fn a_cholesky_factor_times_itself_is_the_matrix() {
        let start = symmetric(4);
        let mut a = start.clone();
        factor_cholesky(&mut Native, &mut a, N);
        let lower = |i: usize, k: usize| if k <= i { a.peek()[i * N + k] } else { 0.0 };
        let got = naive(lower, |k, j| lower(j, k));
        assert!(distance(&got, start.peek()) < 1e-12);
    }

    #[test]
    fn gauss_solves() {
        let start = symmetric(5);
        let mut a = start.clone();
        let mut x = Native.filled(N, |i| 1.0 + i as f64);
        solve_gauss(&mut Native, &mut a, &mut x, N);
        for i in 0..N {
            let row: f64 = (0..N).map(|j| start.peek()[i * N + j] * x.peek()[j]).sum();
            assert!((row - (1.0 + i as f64)).abs() < 1e-12, "row {i}: {row}");
        }
    }
}
