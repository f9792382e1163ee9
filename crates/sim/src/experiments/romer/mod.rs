//! The experiments of Romer 1998, chapters 3 to 6: [`mod@programs`] are the workloads, frozen before
//! they were run, [`mod@variants`] what each runs under, [`mod@run`] runs many variants over one stream,
//! [`mod@tables`] and [`mod@figures`] order the outcomes as the thesis does, with its figures
//! ([`mod@thesis`]), and [`mod@claims`] says which of its statements hold. No file is opened here.

pub mod claims;
pub mod figures;
pub mod programs;
pub mod run;
pub mod tables;
pub mod thesis;
pub mod variants;

pub use claims::claims;
pub use programs::{Program, another, programs};
pub use run::{Outcome, Run};
pub use tables::tables;
pub use variants::{Initial, Part, Variant, variants};
