//! The fast Fourier transform of one long vector, in place and without regard for caches.

use std::f64::consts::TAU;

use super::Parameters;
use super::memory::{Array, Checksum, ProgramMemory, SplitMix};

/// Transforms a vector of complex numbers and back, `rounds` times.
///
/// Stands for fft (Romer table 3-1: fast Fourier transform of a 32 MB array), nasa7-2 (table
/// 4-3) and FFT of SciMark2 (SRM-buffer section 4.3). Bit reversal first swaps elements all
/// over the array; the passes then pair elements ever further apart, so that each pass reads
/// and writes everything once and power-of-two strides fall on the same sets. The length is
/// the largest power of two that fits.
pub fn transform<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let n = 1 << (p.size / 16).max(2).ilog2();
    let mut random = SplitMix::new(p.seed);
    let mut data = m.filled(2 * n, |_| random.unit() - 0.5);
    for _ in 0..p.rounds {
        fourier(m, &mut data, -1.0);
        fourier(m, &mut data, 1.0);
        for i in 0..2 * n {
            m.work(3);
            m.update(&mut data, i, |value| value / n as f64);
        }
    }
    Checksum::of(m, &data)
}

/// The sum over k of x(k) exp(`sign` 2 pi i jk / n) for every j, in place.
fn fourier<M: ProgramMemory>(m: &mut M, data: &mut Array<f64>, sign: f64) {
    let n = data.len() / 2;
    reverse_bits(m, data);
    let mut half = 1;
    while half < n {
        let angle = sign * TAU / (2 * half) as f64;
        let step = (angle.cos(), angle.sin());
        let mut turn = (1.0, 0.0);
        for offset in 0..half {
            for first in (offset..n).step_by(2 * half) {
                butterfly(m, data, first, first + half, turn);
            }
            m.work(6);
            turn = times(turn, step);
        }
        half *= 2;
    }
}

fn times(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

#[inline]
fn butterfly<M: ProgramMemory>(
    m: &mut M,
    data: &mut Array<f64>,
    i: usize,
    k: usize,
    turn: (f64, f64),
) {
    m.work(14);
    let other = (m.load(data, 2 * k), m.load(data, 2 * k + 1));
    let own = (m.load(data, 2 * i), m.load(data, 2 * i + 1));
    let turned = times(other, turn);
    m.store(data, 2 * k, own.0 - turned.0);
    m.store(data, 2 * k + 1, own.1 - turned.1);
    m.store(data, 2 * i, own.0 + turned.0);
    m.store(data, 2 * i + 1, own.1 + turned.1);
}

fn reverse_bits<M: ProgramMemory>(m: &mut M, data: &mut Array<f64>) {
    let n = data.len() / 2;
    let bits = n.ilog2();
    for i in 0..n {
        m.work(6);
        let k = i.reverse_bits() >> (usize::BITS - bits).min(usize::BITS - 1);
        if i < k {
            for part in 0..2 {
                let (one, other) = (m.load(data, 2 * i + part), m.load(data, 2 * k + part));
                m.store(data, 2 * i + part, other);
                m.store(data, 2 * k + part, one);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::Native;
    use super::*;

    #[test]
    fn it_is_the_transform() {
        let n = 64;
        let mut random = SplitMix::new(1);
        let start: Array<f64> = Native.filled(2 * n, |_| random.unit());
        let mut data = start.clone();
        fourier(&mut Native, &mut data, -1.0);
        for j in 0..n {
            let mut sum = (0.0, 0.0);
            for k in 0..n {
                let angle = -TAU * (j * k) as f64 / n as f64;
                let value = (start.peek()[2 * k], start.peek()[2 * k + 1]);
                let term = times(value, (angle.cos(), angle.sin()));
                sum = (sum.0 + term.0, sum.1 + term.1);
            }
            assert!((data.peek()[2 * j] - sum.0).abs() < 1e-10);
            assert!((data.peek()[2 * j + 1] - sum.1).abs() < 1e-10);
        }
    }
}
