//! The experiments of Scolari (2016), section 5: [`mod@programs`] are the stand-ins and which of
//! them run together, frozen before any was run, [`mod@cases`] under which partitions,
//! [`mod@run`] runs them on the cores of the simulated Xeon E5-1410, [`mod@tables`] and
//! [`mod@figures`] order the outcomes as the paper does, and [`mod@claims`] says which of its
//! statements hold. No file is opened here.

pub mod cases;
pub mod claims;
pub mod figures;
pub mod outcome;
pub mod programs;
pub mod run;
pub mod tables;

pub use super::coloris::Program;
pub use cases::{Case, Part, Scheme, cases};
pub use claims::claims;
pub use figures::figures;
pub use outcome::{Outcome, Told};
pub use run::run;
pub use tables::tables;
