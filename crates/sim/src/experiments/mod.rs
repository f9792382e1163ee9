//! Experiments of papers: which programs run on which machines under which policies, and the
//! tables that come of it, with the papers' own figures. Opening traces, threads, and printing
//! are the caller's business.

pub mod coloris;
pub mod report;
pub mod rocs;
pub mod romer;
pub mod run;
pub mod scolari;
pub mod srm;
