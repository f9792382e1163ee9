//! What the benchmarks of the page cache are made of: files and trees, an independent reader of
//! where their pages are, programs that read them beside a hot set, load, and writers that
//! remember what they wrote. Nothing here knows huepage.

pub mod beside;
pub mod files;
pub mod keeper;
pub mod load;
pub mod model;
pub mod reader;
pub mod scan;
