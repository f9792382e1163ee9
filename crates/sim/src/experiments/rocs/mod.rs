//! The experiments of ROCS (2008), section 6: [`mod@programs`] are the workloads, which were frozen
//! before they were run, unlike the windows in which they are compared and the trials of traces;
//! [`mod@variants`] what each runs under, [`mod@run`] runs one under all of them and searches
//! exhaustively, [`mod@tables`] and [`mod@figures`] order the outcomes as the paper does, with its
//! figures ([`mod@paper`]), and [`mod@claims`] says which statements hold. No file is opened here.

pub mod claims;
pub mod figures;
mod offline;
pub mod paper;
pub mod programs;
pub mod run;
mod stream;
pub mod tables;
pub mod variants;

pub use claims::claims;
pub use programs::{Program, programs};
pub use run::{Lengths, Outcome};
pub use tables::tables;
pub use variants::Variant;
