//! The experiments of SRM-buffer 2011, sections 2 and 4: [`mod@programs`] are the workloads, frozen
//! before they were run, [`mod@cases`] which of them run beside which on which machine,
//! [`mod@variants`] how frames are chosen, [`mod@run`] runs a case, [`mod@hits`] the page cache alone
//! (figure 15). [`mod@tables`] and [`mod@figures`] order the outcomes as the paper does, beside the
//! figures of its text ([`mod@paper`]), and [`mod@claims`] says which statements hold. Left out are
//! TPC-H (figure 9) and more cores (section 4.7). No file is opened here.

pub mod cases;
pub mod claims;
pub mod figures;
pub mod hits;
pub mod paper;
pub mod pool;
pub mod programs;
pub mod results;
pub mod run;
pub mod tables;
pub mod variants;

pub use cases::{Case, Part, cases};
pub use claims::claims;
pub use run::{Outcome, run};
pub use tables::tables;
pub use variants::Variant;
