//! Meshes in two dimensions: generation of a curved mesh as in tomcatv, and shallow water as in
//! swim. Many arrays of the same shape lie one after the other and are read side by side.

use super::Parameters;
use super::memory::{Array, Checksum, ProgramMemory, SplitMix};

/// Relaxes a curved mesh, `rounds` sweeps.
///
/// Stands for tomcatv (Romer table 4-3, L2 miss CPI 0.77, the highest of the real programs): seven
/// arrays that the sweep reads at the same place at once. They are as long as each other and
/// contiguous, so that a mapping that puts some of them on the same colours makes whole
/// arrays conflict (section 5.5.3: a victim cache is swamped). The thesis gives no size; SPEC's arrays of
/// 257 x 257 are 528,392 bytes apart, just over the L2 of its machine.
pub fn tomcatv<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = (p.size / 56).isqrt().max(4);
    let mut mesh = Mesh::new(m, n, p.seed);
    let mut sum = Checksum::default();
    for _ in 0..p.rounds {
        sum.add(mesh.sweep(m).to_bits());
    }
    sum.add(Checksum::of(m, &mesh.x));
    sum.add(Checksum::of(m, &mesh.y));
    sum.value()
}

/// Coordinates of n x n points, and what one sweep needs.
struct Mesh {
    n: usize,
    x: Array<f64>,
    y: Array<f64>,
    rx: Array<f64>,
    ry: Array<f64>,
    side: Array<f64>,
    middle: Array<f64>,
    pivot: Array<f64>,
}

impl Mesh {
    /// A regular mesh whose inner points were shaken.
    fn new<M: ProgramMemory>(m: &mut M, n: usize, seed: u64) -> Mesh {
        let mut random = SplitMix::new(seed);
        let inner = |at: usize| (1..n - 1).contains(&(at % n)) && (1..n - 1).contains(&(at / n));
        let mut shaken = |at: usize, whole: usize| {
            let shift = if inner(at) { 0.6 * (random.unit() - 0.5) } else { 0.0 };
            (whole as f64 + shift) / n as f64
        };
        let [mut x, mut y, rx, ry, side, middle, pivot] = m.common(n * n);
        // Both coordinates of a point are read at once, as SPEC's program does.
        for at in 0..n * n {
            m.work(4);
            m.store(&mut x, at, shaken(at, at % n));
            m.store(&mut y, at, shaken(at, at / n));
        }
        Mesh { n, x, y, rx, ry, side, middle, pivot }
    }

    /// One relaxation along lines; gives the largest residual it found.
    fn sweep<M: ProgramMemory>(&mut self, m: &mut M) -> f64 {
        let mut largest = 0.0_f64;
        for j in 1..self.n - 1 {
            for i in 1..self.n - 1 {
                largest = largest.max(self.residual(m, j * self.n + i));
            }
        }
        self.solve(m);
        largest
    }

    /// Residuals and coefficients at one point from its eight neighbours.
    fn residual<M: ProgramMemory>(&mut self, m: &mut M, at: usize) -> f64 {
        let (x, y) = (around(m, &self.x, self.n, at), around(m, &self.y, self.n, at));
        let (xi, yi) = (x.east - x.west, y.east - y.west);
        let (xj, yj) = (x.north - x.south, y.north - y.south);
        let a = 0.25 * (xj * xj + yj * yj);
        let b = 0.25 * (xi * xi + yi * yi);
        let c = 0.125 * (xi * xj + yi * yj);
        m.work(58);
        let (rx, ry) = (x.residual(a, b, c), y.residual(a, b, c));
        m.store(&mut self.side, at, -b);
        m.store(&mut self.middle, at, 2.0 * b + 2.04 * a);
        m.store(&mut self.rx, at, rx);
        m.store(&mut self.ry, at, ry);
        rx.abs().max(ry.abs())
    }

    /// One tridiagonal system per column of points, all in step, and the correction.
    fn solve<M: ProgramMemory>(&mut self, m: &mut M) {
        let n = self.n;
        for j in 1..n - 1 {
            for at in j * n + 1..j * n + n - 1 {
                self.eliminate(m, at, j > 1);
            }
        }
        for j in (1..n - 1).rev() {
            for at in j * n + 1..j * n + n - 1 {
                self.substitute(m, at, j + 2 < n);
            }
        }
    }

    fn eliminate<M: ProgramMemory>(&mut self, m: &mut M, at: usize, follows: bool) {
        m.work(16);
        let side = m.load(&self.side, at);
        let mut middle = m.load(&self.middle, at);
        if follows {
            let before = at - self.n;
            let factor = side * m.load(&self.pivot, before);
            middle -= factor * m.load(&self.side, before);
            let (rx, ry) = (m.load(&self.rx, before), m.load(&self.ry, before));
            m.update(&mut self.rx, at, |r| r - factor * rx);
            m.update(&mut self.ry, at, |r| r - factor * ry);
        }
        // Points that fell together have no coefficients; they stay.
        m.store(&mut self.pivot, at, if middle > 0.0 { 1.0 / middle } else { 0.0 });
    }

    fn substitute<M: ProgramMemory>(&mut self, m: &mut M, at: usize, follows: bool) {
        m.work(12);
        let (mut rx, mut ry) = (m.load(&self.rx, at), m.load(&self.ry, at));
        if follows {
            let side = m.load(&self.side, at);
            rx -= side * m.load(&self.rx, at + self.n);
            ry -= side * m.load(&self.ry, at + self.n);
        }
        let pivot = m.load(&self.pivot, at);
        m.store(&mut self.rx, at, rx * pivot);
        m.store(&mut self.ry, at, ry * pivot);
        m.update(&mut self.x, at, |x| x + rx * pivot);
        m.update(&mut self.y, at, |y| y + ry * pivot);
    }
}

/// A value, its four neighbours, and the difference across the diagonals.
struct Around {
    here: f64,
    east: f64,
    west: f64,
    north: f64,
    south: f64,
    diagonal: f64,
}

fn around<M: ProgramMemory>(m: &mut M, a: &Array<f64>, n: usize, at: usize) -> Around {
    let diagonal = m.load(a, at + n + 1) - m.load(a, at - n + 1) - m.load(a, at + n - 1)
        + m.load(a, at - n - 1);
    Around {
        here: m.load(a, at),
        east: m.load(a, at + 1),
        west: m.load(a, at - 1),
        north: m.load(a, at + n),
        south: m.load(a, at - n),
        diagonal,
    }
}

impl Around {
    /// What is left of Winslow's equation for a smooth mesh.
    fn residual(&self, a: f64, b: f64, c: f64) -> f64 {
        a * (self.east - 2.0 * self.here + self.west)
            + b * (self.north - 2.0 * self.here + self.south)
            - c * self.diagonal
    }
}

/// Steps shallow water on a torus, `rounds` steps.
///
/// Stands for swim (ROCS tables 2 and 3: 45,490 pages, 75 % of L2 requests miss, and section
/// 6.4: the gain comes from page-table entries that stay in the cache): thirteen large arrays of
/// one shape, each swept from end to end in three loops per step, with nothing reused from one
/// loop to the next and up to eight pages in use at any moment.
pub fn swim<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = (p.size / (8 * 13)).isqrt().max(4);
    let water = Water::new(m, [n, n], p.seed);
    water.run(m, p.rounds, n)
}

/// Points in a row of [`swim_across`], as in SPEC's input: 2.6 pages.
const ROW: usize = 1335;
/// Columns that the filter of [`swim_across`] does at a time.
const COLUMNS: usize = 8;

/// The same on a channel of rows as long as SPEC's, the filter going across them: row after row at
/// a few places, then the next places. As many rows as the size has room for.
///
/// Stands for swim too (ROCS table 2 and section 6.4: 55 % of its stalls are for TLB misses at 443
/// cycles each, which makes about one for every two misses of the L2): walks that often mean that
/// a pass goes across rows, on more pages than the TLB has entries, each with its own line of the
/// hashed page table. The columns that are done at a time are fitted to table 2. With 445 rows as
/// many pages are in a pass over nine arrays as SPEC's 1,335 rows have in three.
pub fn swim_across<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let water = Water::new(m, rows(p.size, ROW), p.seed);
    water.run(m, p.rounds, COLUMNS)
}

/// Rows of [`swim_sums`], as in SPEC's input.
const ROWS: usize = 1335;
/// Columns that the sums of [`swim_sums`] take at a time.
const SUMMED: usize = 2;

/// The same with what else SPEC's program does: loops read a point's neighbours in more fields, and after
/// each step it sums the magnitudes of the three new fields, column by column, so that neighbours in time
/// are a row apart in memory. As many rows as there, and as many points in a row as the size has room for.
///
/// Stands for swim (ROCS table 2 and section 6.4: 55 % of its stalls are for TLB misses at 443 cycles
/// each, which makes about one for every two misses of the L2). A column of three fields is on 4,005
/// pages: more than the TLB has entries, each with a line of its own in the hashed page table. How many
/// columns are summed at a time, as a compiler does that unrolls the outer loop, is fitted to the walks
/// for each miss.
pub fn swim_sums<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let points = p.size / (8 * 13);
    let rows = ROWS.min(points / 8).max(4);
    let mut water = Water::new(m, [(points / rows).max(4), rows], p.seed);
    water.summed = SUMMED;
    let whole = water.n;
    water.run(m, p.rounds, whole)
}

/// Points of a layer of [`layers`].
const LAYER: usize = 56 * 56;
/// Instructions that [`layers`] does more at each point of a loop.
const PHYSICS: u32 = 36;

/// The same on layers of an atmosphere, of which the loops need one and the one below, with more
/// arithmetic at each point. As many layers as the size has room for.
///
/// Stands for apsi (ROCS table 2: 61 % of L2 requests miss): many fields of a mesh of 112 x 112 x
/// 112 points, swept from end to end; layers have half as many points along each side. Instructions
/// are fitted to its misses per instruction.
pub fn layers<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let mut water = Water::new(m, rows(p.size, LAYER), p.seed);
    water.physics = PHYSICS;
    let whole = water.n;
    water.run(m, p.rounds, whole)
}

/// Points of a row, `n` where at least eight rows of so many fit, and rows.
fn rows(size: usize, n: usize) -> [usize; 2] {
    let points = size / (8 * 13);
    let n = n.min(points / 8).max(4);
    [n, (points / n).max(4)]
}

/// Velocities and pressure at one time.
struct State {
    u: Array<f64>,
    v: Array<f64>,
    p: Array<f64>,
}

struct Water {
    /// Points in a row of memory.
    n: usize,
    rows: usize,
    now: State,
    old: State,
    new: State,
    cu: Array<f64>,
    cv: Array<f64>,
    z: Array<f64>,
    h: Array<f64>,
    /// Instructions more at each point of a loop.
    physics: u32,
    /// Columns that are summed at a time after each step; 0 if none are, and fewer neighbours are read.
    summed: usize,
    /// Of the magnitudes of the new fields, after the latest step.
    sums: [f64; 3],
}

/// Time step over grid distance.
const RATE: f64 = 0.001;

impl Water {
    /// All fields lie one after the other, as in a COMMON block.
    fn new<M: ProgramMemory>(m: &mut M, [n, rows]: [usize; 2], seed: u64) -> Water {
        let mut random = SplitMix::new(seed);
        let [u, v, p, old_u, old_v, old_p, new_u, new_v, new_p, cu, cv, z, h] = m.common(n * rows);
        let mut now = State { u, v, p };
        let mut old = State { u: old_u, v: old_v, p: old_p };
        for (array, mean) in [(&mut now.u, 1.0), (&mut now.v, 0.5), (&mut now.p, 50.0)] {
            m.fill(array, |_| mean + random.unit() - 0.5);
        }
        for (to, from) in [(&mut old.u, &now.u), (&mut old.v, &now.v), (&mut old.p, &now.p)] {
            copy(m, to, from);
        }
        let new = State { u: new_u, v: new_v, p: new_p };
        Water { n, rows, now, old, new, cu, cv, z, h, physics: 0, summed: 0, sums: [0.0; 3] }
    }

    /// So many steps; gives the checksum of the pressure.
    fn run<M: ProgramMemory>(mut self, m: &mut M, rounds: usize, columns: usize) -> u64 {
        (0..rounds).for_each(|_| self.step(m, columns));
        Checksum::of(m, &self.now.p)
    }

    /// One step; the filter does so many columns at a time: all rows of these, and then the next.
    fn step<M: ProgramMemory>(&mut self, m: &mut M, columns: usize) {
        for j in 0..self.rows {
            (0..self.n).for_each(|i| self.fluxes(m, i, j));
        }
        for j in 0..self.rows {
            (0..self.n).for_each(|i| self.advance(m, i, j));
        }
        if self.summed > 0 {
            self.sum(m);
        }
        for first in (0..self.n).step_by(columns) {
            let last = self.n.min(first + columns);
            for j in 0..self.rows {
                (first..last).for_each(|i| self.filter(m, j * self.n + i));
            }
        }
    }

    /// Sums of the new fields, so many columns at a time: all rows of these, and then the next.
    fn sum<M: ProgramMemory>(&mut self, m: &mut M) {
        self.sums = [0.0; 3];
        for first in (0..self.n).step_by(self.summed) {
            let last = self.n.min(first + self.summed);
            for at in (0..self.rows).flat_map(|j| j * self.n + first..j * self.n + last) {
                m.work(9);
                let State { u, v, p } = &self.new;
                for (sum, field) in self.sums.iter_mut().zip([u, v, p]) {
                    *sum += m.load(field, at).abs();
                }
            }
        }
    }

    fn filter<M: ProgramMemory>(&mut self, m: &mut M, at: usize) {
        let work = 7 + self.physics / 2;
        smooth(m, &mut self.now.u, &mut self.old.u, &self.new.u, at, work);
        smooth(m, &mut self.now.v, &mut self.old.v, &self.new.v, at, work);
        smooth(m, &mut self.now.p, &mut self.old.p, &self.new.p, at, work);
    }

    /// The point and its neighbours to the west, to the south and both, around the torus.
    fn back(&self, i: usize, j: usize) -> [usize; 4] {
        let (n, rows) = (self.n, self.rows);
        let (west, south) = ((i + n - 1) % n, (j + rows - 1) % rows);
        [j * n + i, j * n + west, south * n + i, south * n + west]
    }

    /// Mass fluxes, vorticity and height.
    fn fluxes<M: ProgramMemory>(&mut self, m: &mut M, i: usize, j: usize) {
        let [at, west, south, corner] = self.back(i, j);
        let State { u, v, p } = &self.now;
        let (p0, p1, p2) = (m.load(p, at), m.load(p, west), m.load(p, south));
        let (u0, v0) = (m.load(u, at), m.load(v, at));
        let spin = v0 - m.load(v, west) - u0 + m.load(u, south);
        let depth = p0 + p1 + p2 + m.load(p, corner);
        m.work(24 + self.physics);
        m.store(&mut self.cu, at, 0.5 * (p0 + p1) * u0);
        m.store(&mut self.cv, at, 0.5 * (p0 + p2) * v0);
        m.store(&mut self.z, at, 4.0 * spin / depth);
        let mut squares = u0 * u0 + v0 * v0;
        if self.summed > 0 {
            let (u1, v1) = (m.load(u, west), m.load(v, south));
            squares = 0.5 * (squares + u1 * u1 + v1 * v1);
        }
        m.store(&mut self.h, at, p0 + 0.25 * squares);
    }

    /// Leap-frog from the old state to the new one.
    fn advance<M: ProgramMemory>(&mut self, m: &mut M, i: usize, j: usize) {
        let n = self.n;
        let (east, north) = (j * n + (i + 1) % n, (j + 1) % self.rows * n + i);
        let [at, west, south, _] = self.back(i, j);
        let (z, h0) = (m.load(&self.z, at), m.load(&self.h, at));
        let (cu, cv) = (m.load(&self.cu, at), m.load(&self.cv, at));
        let flow = m.load(&self.cu, east) - cu + m.load(&self.cv, north) - cv;
        let (dx, dy) = (h0 - m.load(&self.h, west), h0 - m.load(&self.h, south));
        m.work(22 + self.physics);
        let (z, cu, cv) = if self.summed > 0 {
            let across = [(&self.z, south), (&self.cu, south), (&self.cv, west)];
            let [z1, cu1, cv1] = across.map(|(field, at)| m.load(field, at));
            (0.5 * (z + z1), 0.5 * (cu + cu1), 0.5 * (cv + cv1))
        } else {
            (z, cu, cv)
        };
        let u = m.load(&self.old.u, at) + RATE * (z * cv - dx);
        let v = m.load(&self.old.v, at) - RATE * (z * cu + dy);
        let p = m.load(&self.old.p, at) - RATE * flow;
        m.store(&mut self.new.u, at, u);
        m.store(&mut self.new.v, at, v);
        m.store(&mut self.new.p, at, p);
    }
}

fn copy<M: ProgramMemory>(m: &mut M, to: &mut Array<f64>, from: &Array<f64>) {
    for i in 0..from.len() {
        let value = m.load(from, i);
        m.store(to, i, value);
    }
}

/// Robert's filter: the old state is a mean over three times, the new one becomes the present.
fn smooth<M: ProgramMemory>(
    m: &mut M,
    now: &mut Array<f64>,
    old: &mut Array<f64>,
    new: &Array<f64>,
    at: usize,
    work: u32,
) {
    m.work(work);
    let (present, next) = (m.load(now, at), m.load(new, at));
    m.update(old, at, |past| present + 0.001 * (next - 2.0 * present + past));
    m.store(now, at, next);
}

#[cfg(test)]
mod tests {
    use super::super::memory::Native;
    use super::*;

    #[test]
    fn the_mesh_becomes_smooth() {
        let mut mesh = Mesh::new(&mut Native, 20, 1);
        let first = mesh.sweep(&mut Native);
        let last = (0..200).map(|_| mesh.sweep(&mut Native)).last().unwrap();
        assert!(last < first * 1e-3, "residual {first:e} came to {last:e}");
        for at in 0..400 {
            let (x, y) = (mesh.x.peek()[at] * 20.0, mesh.y.peek()[at] * 20.0);
            let off = (x - (at % 20) as f64).abs().max((y - (at / 20) as f64).abs());
            assert!(off < 0.05, "point {at} is {off} from the regular mesh");
        }
    }

    #[test]
    fn water_is_neither_made_nor_lost() {
        let mut water = Water::new(&mut Native, [16, 16], 2);
        let mass = |w: &Water| w.now.p.peek().iter().sum::<f64>();
        let (before, start) = (mass(&water), water.now.p.clone());
        (0..50).for_each(|_| water.step(&mut Native, 16));
        assert!((mass(&water) / before - 1.0).abs() < 1e-12);
        assert!(water.now.p.peek().iter().zip(start.peek()).any(|(a, b)| (a - b).abs() > 0.01));
        assert!(water.now.p.peek().iter().all(|p| (40.0..60.0).contains(p)), "it stays calm");
    }

    #[test]
    fn water_flows_the_same_whichever_way_the_filter_goes() {
        let [mut along, mut across] = [(); 2].map(|()| Water::new(&mut Native, [16, 12], 2));
        (0..20).for_each(|_| along.step(&mut Native, 16));
        (0..20).for_each(|_| across.step(&mut Native, 3));
        assert_eq!(along.now.p.peek(), across.now.p.peek());
        assert_eq!(along.old.u.peek(), across.old.u.peek());
    }

    #[test]
    fn sums_are_of_the_whole_fields_however_many_columns_at_a_time() {
        let [mut other, mut summed] = [(); 2].map(|()| Water::new(&mut Native, [15, 12], 2));
        (other.summed, summed.summed) = (15, 2);
        let mass = |w: &Water| w.now.p.peek().iter().sum::<f64>();
        let before = mass(&summed);
        (0..20).for_each(|_| other.step(&mut Native, 15));
        (0..20).for_each(|_| summed.step(&mut Native, 15));
        assert_eq!(other.now.p.peek(), summed.now.p.peek());
        assert!((mass(&summed) / before - 1.0).abs() < 1e-12, "neither made nor lost");
        let pressure: f64 = summed.new.p.peek().iter().map(|p| p.abs()).sum();
        assert!((summed.sums[2] / pressure - 1.0).abs() < 1e-12, "{:?}", summed.sums);
    }
}
