//! `huepage-repro` from the command line, on runs short enough for a test.

mod coloris;
mod rocs;
mod romer;
mod scolari;
mod srm;
