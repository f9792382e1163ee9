//! Conjugate gradients on a random sparse matrix, in the manner of NPB's CG: 25 steps from a
//! zero guess, then the normalised solution is the next right-hand side. By default the matrix
//! is as large as that of class A. It prints no zeta: its matrix is not NPB's.

use std::io;

use clap::Args;

use super::pace::Pace;
use crate::mix::Rng;

/// Steps from one guess.
const STEPS: usize = 25;

/// What to do.
#[derive(Args, Clone, Copy, Debug)]
pub struct Cg {
    /// Rows of the matrix
    #[arg(long, default_value_t = 14_000)]
    pub rows: usize,
    /// Elements of a row, about
    #[arg(long, default_value_t = 132)]
    pub per_row: usize,
    /// How long, and whether to wait for others.
    #[command(flatten)]
    pub pace: Pace,
}

/// A sparse matrix, row after row.
#[derive(Debug)]
struct Matrix {
    starts: Vec<usize>,
    elements: Vec<(u32, f64)>,
}

impl Matrix {
    /// Symmetric, and positive definite because its diagonal outweighs the rest of each row.
    fn random(rows: usize, per_row: usize, rng: &mut Rng) -> Matrix {
        let mut all: Vec<Vec<(u32, f64)>> = vec![Vec::new(); rows];
        for row in 0..rows {
            for _ in 0..per_row / 2 {
                let (column, value) = (rng.usize(..rows), rng.usize(..2000) as f64 / 1000.0 - 1.0);
                if column != row {
                    all[row].push((index(column), value));
                    all[column].push((index(row), value));
                }
            }
        }
        let mut matrix = Matrix { starts: vec![0], elements: Vec::new() };
        for (row, mut elements) in all.into_iter().enumerate() {
            let rest: f64 = elements.iter().map(|(_, value)| value.abs()).sum();
            elements.push((index(row), rest + 1.0));
            elements.sort_by_key(|(column, _)| *column);
            matrix.elements.append(&mut elements);
            matrix.starts.push(matrix.elements.len());
        }
        matrix
    }

    /// Itself times `x`, into `y`.
    fn multiply(&self, x: &[f64], y: &mut [f64]) {
        for (row, y) in y.iter_mut().enumerate() {
            let elements = &self.elements[self.starts[row]..self.starts[row + 1]];
            *y = elements.iter().map(|(column, value)| value * x[*column as usize]).sum();
        }
    }
}

fn index(row: usize) -> u32 {
    u32::try_from(row).unwrap_or(u32::MAX)
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Where the iteration is.
#[derive(Debug)]
struct State {
    solution: Vec<f64>,
    residual: Vec<f64>,
    direction: Vec<f64>,
    product: Vec<f64>,
    steps: usize,
}

impl State {
    fn new(right: Vec<f64>) -> State {
        let zeros = vec![0.0; right.len()];
        let (solution, product) = (zeros.clone(), zeros);
        State { solution, residual: right.clone(), direction: right, product, steps: 0 }
    }

    /// One step; begins anew after so many.
    fn step(&mut self, matrix: &Matrix) {
        if self.steps == STEPS {
            let norm = dot(&self.solution, &self.solution).sqrt();
            *self = State::new(self.solution.iter().map(|x| x / norm).collect());
        }
        matrix.multiply(&self.direction, &mut self.product);
        let before = dot(&self.residual, &self.residual);
        let length = before / dot(&self.direction, &self.product);
        for at in 0..self.solution.len() {
            self.solution[at] += length * self.direction[at];
            self.residual[at] -= length * self.product[at];
        }
        let turn = dot(&self.residual, &self.residual) / before;
        let both = self.direction.iter_mut().zip(&self.residual);
        both.for_each(|(direction, residual)| *direction = residual + turn * *direction);
        self.steps += 1;
    }
}

/// Runs it.
///
/// # Errors
/// When the iteration leaves the numbers; those of standard input and output.
pub fn run(options: &Cg) -> io::Result<()> {
    let matrix = Matrix::random(options.rows, options.per_row, &mut Rng::with_seed(3));
    let mut state = State::new(vec![1.0; options.rows]);
    options.pace.present(|setup| {
        options.pace.measure(setup, || {
            state.step(&matrix);
            1
        })
    })?;
    let sane = state.solution.iter().all(|x| x.is_finite());
    if sane { Ok(()) } else { Err(io::Error::other("the iteration diverged")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_solves_its_system() {
        let matrix = Matrix::random(200, 10, &mut Rng::with_seed(1));
        let right: Vec<f64> = (0..200).map(|n| f64::from(n % 7)).collect();
        let mut state = State::new(right.clone());
        (0..STEPS).for_each(|_| state.step(&matrix));
        let mut product = vec![0.0; 200];
        matrix.multiply(&state.solution, &mut product);
        let off = product.iter().zip(&right).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-3, "{off}");
        (0..3 * STEPS).for_each(|_| state.step(&matrix));
        assert!(state.solution.iter().all(|x| x.is_finite()));
    }

    #[test]
    fn the_matrix_is_symmetric() {
        let matrix = Matrix::random(50, 8, &mut Rng::with_seed(2));
        let (mut x, mut y) = (vec![0.0; 50], vec![0.0; 50]);
        (x[3], y[41]) = (1.0, 1.0);
        let (mut ax, mut ay) = (vec![0.0; 50], vec![0.0; 50]);
        matrix.multiply(&x, &mut ax);
        matrix.multiply(&y, &mut ay);
        assert!((dot(&ax, &y) - dot(&ay, &x)).abs() < 1e-12);
    }
}
