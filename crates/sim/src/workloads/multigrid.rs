//! A three-dimensional multigrid solver on a torus with 27-point stencils, as in mgrid.

use super::Parameters;
use super::memory::{Array, Checksum, ProgramMemory, SplitMix};

/// Solves Poisson's equation by V-cycles, `rounds` of them.
///
/// Stands for mgrid (ROCS tables 2 and 3: 14,433 pages, 25 % of L2 requests miss): stencils
/// over a fine grid that reuse three planes at a time, and the same over grids of an eighth the
/// size each, of which the smaller ones fit in a cache. Coefficients as in the MG kernel of the
/// NAS Parallel Benchmarks (Bailey et al. 1991).
pub fn mgrid<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    // Three arrays on the finest grid, two of them also on the coarser ones.
    let points = p.size / 8 * 7 / 23;
    let n = (icbrt(points) / 8 * 8).max(8);
    let mut solver = Solver::new(m, n, p.seed);
    for _ in 0..p.rounds {
        solver.cycle(m);
    }
    Checksum::of(m, &solver.levels[0].u)
}

fn icbrt(n: usize) -> usize {
    (1..).take_while(|&i: &usize| i.pow(3) <= n).last().unwrap_or(1)
}

/// Weights of the point itself, its faces, edges and corners.
type Weights = [f64; 4];
/// The operator.
const POISSON: Weights = [-8.0 / 3.0, 0.0, 1.0 / 6.0, 1.0 / 12.0];
/// An approximate inverse.
const SMOOTHER: Weights = [-3.0 / 8.0, 1.0 / 32.0, -1.0 / 64.0, 0.0];
/// Fine residuals to coarse ones.
const RESTRICT: Weights = [0.5, 0.25, 0.125, 0.0625];

struct Level {
    n: usize,
    u: Array<f64>,
    r: Array<f64>,
}

struct Solver {
    /// Right side on the finest grid.
    v: Array<f64>,
    /// From the finest grid on.
    levels: Vec<Level>,
}

impl Solver {
    /// Charges of +1 and -1 at random places, equally many.
    fn new<M: ProgramMemory>(m: &mut M, n: usize, seed: u64) -> Solver {
        let mut random = SplitMix::new(seed);
        let mut v = m.filled(n * n * n, |_| 0.0);
        for charge in 0..20 {
            let value = if charge % 2 == 0 { 1.0 } else { -1.0 };
            m.update(&mut v, random.below(n * n * n), |old| old + value);
        }
        let sides = std::iter::successors(Some(n), |n| (n % 2 == 0 && *n > 4).then_some(n / 2));
        let levels =
            sides.map(|n| Level { n, u: m.array(n * n * n), r: m.array(n * n * n) }).collect();
        Solver { v, levels }
    }

    /// Down to the coarsest grid with residuals, up again with corrections.
    fn cycle<M: ProgramMemory>(&mut self, m: &mut M) {
        let fine = &mut self.levels[0];
        residual(m, &fine.u, Some(&self.v), &mut fine.r, fine.n);
        for i in 1..self.levels.len() {
            let (upper, lower) = self.levels.split_at_mut(i);
            restrict(m, &upper[i - 1], &mut lower[0]);
        }
        let last = self.levels.len() - 1;
        for i in (0..=last).rev() {
            let (upper, lower) = self.levels.split_at_mut(i + 1);
            let level = &mut upper[i];
            if let Some(coarse) = lower.first() {
                interpolate(m, coarse, level);
                let v = if i == 0 { Some(&self.v) } else { None };
                residual(m, &level.u, v, &mut level.r, level.n);
            }
            smooth(m, level);
        }
    }
}

/// The weighted sum of a point and its 26 neighbours, around the torus.
#[inline]
fn stencil<M: ProgramMemory>(
    m: &mut M,
    a: &Array<f64>,
    n: usize,
    at: [usize; 3],
    w: &Weights,
) -> f64 {
    let near =
        |x: usize| [if x == 0 { n - 1 } else { x - 1 }, x, if x + 1 == n { 0 } else { x + 1 }];
    let [zs, ys, xs] = at.map(near);
    let mut sums = [0.0; 4];
    for (dz, z) in zs.into_iter().enumerate() {
        for (dy, y) in ys.into_iter().enumerate() {
            for (dx, x) in xs.into_iter().enumerate() {
                let away = dz.abs_diff(1) + dy.abs_diff(1) + dx.abs_diff(1);
                m.work(1);
                sums[away] += m.load(a, (z * n + y) * n + x);
            }
        }
    }
    m.work(12);
    sums.iter().zip(w).map(|(sum, weight)| sum * weight).sum()
}

/// Every point of a grid, in the order of memory.
fn points(n: usize) -> impl Iterator<Item = [usize; 3]> {
    (0..n * n * n).map(move |at| [at / n / n, at / n % n, at % n])
}

/// What u leaves of the right side: `v`, or else of what the residual was.
fn residual<M: ProgramMemory>(
    m: &mut M,
    u: &Array<f64>,
    v: Option<&Array<f64>>,
    r: &mut Array<f64>,
    n: usize,
) {
    for (at, point) in points(n).enumerate() {
        let right = match v {
            Some(v) => m.load(v, at),
            None => m.load(r, at),
        };
        let value = right - stencil(m, u, n, point, &POISSON);
        m.store(r, at, value);
    }
}

/// u plus the smoothed residual.
fn smooth<M: ProgramMemory>(m: &mut M, level: &mut Level) {
    for (at, point) in points(level.n).enumerate() {
        let change = stencil(m, &level.r, level.n, point, &SMOOTHER);
        m.update(&mut level.u, at, |u| u + change);
    }
}

/// The coarse residual from the fine one, and a coarse solution of zero.
fn restrict<M: ProgramMemory>(m: &mut M, fine: &Level, coarse: &mut Level) {
    for (at, point) in points(coarse.n).enumerate() {
        let value = stencil(m, &fine.r, fine.n, point.map(|x| 2 * x), &RESTRICT);
        m.store(&mut coarse.r, at, value);
        m.store(&mut coarse.u, at, 0.0);
    }
}

/// Adds the coarse solution to the fine one, linear in between.
fn interpolate<M: ProgramMemory>(m: &mut M, coarse: &Level, fine: &mut Level) {
    let n = coarse.n;
    let both = |x: usize| [x / 2, x.div_ceil(2) % n];
    for (at, point) in points(fine.n).enumerate() {
        let [zs, ys, xs] = point.map(both);
        let mut sum = 0.0;
        for corner in 0..8 {
            let (z, y, x) = (zs[corner >> 2], ys[corner >> 1 & 1], xs[corner & 1]);
            sum += m.load(&coarse.u, (z * n + y) * n + x);
        }
        m.work(14);
        m.update(&mut fine.u, at, |u| u + sum / 8.0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Native;
    use super::*;

    fn norm(solver: &mut Solver) -> f64 {
        let fine = &mut solver.levels[0];
        residual(&mut Native, &fine.u, Some(&solver.v), &mut fine.r, fine.n);
        fine.r.peek().iter().map(|r| r * r).sum::<f64>().sqrt()
    }

    #[test]
    fn each_cycle_takes_most_of_the_residual() {
        let mut solver = Solver::new(&mut Native, 16, 1);
        let mut before = norm(&mut solver);
        let first = before;
        for cycle in 0..6 {
            solver.cycle(&mut Native);
            let after = norm(&mut solver);
            assert!(after < 0.5 * before, "cycle {cycle}: from {before:e} to {after:e}");
            before = after;
        }
        assert!(before < 1e-3 * first);
    }
}
