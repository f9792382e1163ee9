//! The experiments of COLORIS (2014), section 4: [`mod@programs`] are the workloads, frozen before
//! they were run, [`mod@cases`] which of them run together under what, [`mod@corun`] runs them on
//! the cores of one machine with a manager over all, [`mod@tables`] and [`mod@figures`] order the
//! outcomes as the paper does, with its figures ([`mod@paper`]), and [`mod@claims`] says which of
//! its statements hold. No file is opened here.

pub(in crate::experiments) mod apps;
pub mod cases;
pub mod claims;
pub mod corun;
pub mod figures;
mod managed;
pub mod outcome;
pub mod paper;
pub mod programs;
pub mod tables;

pub use cases::{Case, Part, Placing, cases};
pub use claims::claims;
pub use corun::run;
pub use outcome::{Outcome, Told};
pub use programs::{PROGRAMS, Program};
pub use tables::tables;
