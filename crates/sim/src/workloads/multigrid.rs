//! A three-dimensional multigrid solver on a torus with 27-point stencils, as in mgrid. Planes are
//! as large as there, so that three of them are what the L2 has to hold; there are fewer of them.

use super::Parameters;
use super::memory::{Array, Checksum, ProgramMemory, SplitMix};

/// Solves Poisson's equation by V-cycles, `rounds` of them.
///
/// Stands for mgrid (ROCS tables 2 and 3: 14,433 pages, 25 % of L2 requests miss): stencils
/// over a fine grid that reuse three planes at a time, and the same over grids of an eighth the
/// size each, of which the smaller ones fit in a cache. Planes of 130 x 130 numbers as there, with
/// 128 x 128 points; as many planes as the size has room for. Coefficients as in the MG kernel of
/// the NAS Parallel Benchmarks (Bailey et al. 1991).
pub fn mgrid<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    // Three arrays on the finest grid, two of them also on the coarser ones.
    let mut solver = Solver::new(m, sizes(p.size / 8 * 7 / 23), p.seed);
    for _ in 0..p.rounds {
        solver.cycle(m);
    }
    Checksum::of(m, &solver.levels[0].u)
}

/// Points along a side of a plane, and numbers that its rows have more.
const SIDE: usize = 128;
const EDGE: usize = 2;

/// Instructions of a stencil without its accesses, fitted to mgrid's misses per instruction (table 2).
const WORK: u32 = 30;

/// Planes of a grid, and points along their sides.
type Size = [usize; 2];

/// The grid of so many numbers; with less than four planes, a half or less of the points along a side.
fn sizes(numbers_of_all: usize) -> Size {
    let of = |n: usize| [numbers_of_all / numbers([1, n]) / 4 * 4, n];
    let sides = std::iter::successors(Some(SIDE), |n| (*n > 4).then_some(n / 2));
    sides.map(of).find(|[planes, _]| *planes >= 4).unwrap_or([4, 4])
}

/// Numbers of a grid, the edges of its planes included.
const fn numbers([planes, n]: Size) -> usize {
    planes * (n + EDGE) * (n + EDGE)
}

/// Where a point of a grid is.
const fn place([_, n]: Size, [z, y, x]: [usize; 3]) -> usize {
    (z * (n + EDGE) + y) * (n + EDGE) + x
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
    n: Size,
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
    fn new<M: ProgramMemory>(m: &mut M, n: Size, seed: u64) -> Solver {
        let mut random = SplitMix::new(seed);
        let mut v = m.filled(numbers(n), |_| 0.0);
        for charge in 0..20 {
            let value = if charge % 2 == 0 { 1.0 } else { -1.0 };
            let at = [n[0], n[1], n[1]].map(|n| random.below(n));
            m.update(&mut v, place(n, at), |old| old + value);
        }
        let half = |n: &Size| n.iter().all(|n| n % 2 == 0 && *n > 2).then(|| n.map(|n| n / 2));
        let sizes = std::iter::successors(Some(n), half);
        let levels =
            sizes.map(|n| Level { n, u: m.array(numbers(n)), r: m.array(numbers(n)) }).collect();
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
    n: Size,
    at: [usize; 3],
    w: &Weights,
) -> f64 {
    let near = |x: usize, n: usize| {
        [if x == 0 { n - 1 } else { x - 1 }, x, if x + 1 == n { 0 } else { x + 1 }]
    };
    let (zs, ys, xs) = (near(at[0], n[0]), near(at[1], n[1]), near(at[2], n[1]));
    let mut sums = [0.0; 4];
    for (dz, z) in zs.into_iter().enumerate() {
        for (dy, y) in ys.into_iter().enumerate() {
            for (dx, x) in xs.into_iter().enumerate() {
                let away = dz.abs_diff(1) + dy.abs_diff(1) + dx.abs_diff(1);
                sums[away] += m.load(a, place(n, [z, y, x]));
            }
        }
    }
    m.work(WORK);
    sums.iter().zip(w).map(|(sum, weight)| sum * weight).sum()
}

/// Every point of a grid, in the order of memory.
fn points([planes, n]: Size) -> impl Iterator<Item = [usize; 3]> {
    (0..planes * n * n).map(move |at| [at / n / n, at / n % n, at % n])
}

/// What u leaves of the right side: `v`, or else of what the residual was.
fn residual<M: ProgramMemory>(
    m: &mut M,
    u: &Array<f64>,
    v: Option<&Array<f64>>,
    r: &mut Array<f64>,
    n: Size,
) {
    for point in points(n) {
        let at = place(n, point);
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
    for point in points(level.n) {
        let at = place(level.n, point);
        let change = stencil(m, &level.r, level.n, point, &SMOOTHER);
        m.update(&mut level.u, at, |u| u + change);
    }
}

/// The coarse residual from the fine one, and a coarse solution of zero.
fn restrict<M: ProgramMemory>(m: &mut M, fine: &Level, coarse: &mut Level) {
    for point in points(coarse.n) {
        let at = place(coarse.n, point);
        let value = stencil(m, &fine.r, fine.n, point.map(|x| 2 * x), &RESTRICT);
        m.store(&mut coarse.r, at, value);
        m.store(&mut coarse.u, at, 0.0);
    }
}

/// Adds the coarse solution to the fine one, linear in between.
fn interpolate<M: ProgramMemory>(m: &mut M, coarse: &Level, fine: &mut Level) {
    let n = coarse.n;
    let both = |x: usize, n: usize| [x / 2, x.div_ceil(2) % n];
    for point in points(fine.n) {
        let at = place(fine.n, point);
        let (zs, ys, xs) = (both(point[0], n[0]), both(point[1], n[1]), both(point[2], n[1]));
        let mut sum = 0.0;
        for corner in 0..8 {
            let (z, y, x) = (zs[corner >> 2], ys[corner >> 1 & 1], xs[corner & 1]);
            sum += m.load(&coarse.u, place(n, [z, y, x]));
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
        let mut solver = Solver::new(&mut Native, [16, 16], 1);
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
