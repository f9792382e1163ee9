//! What the benchmarks of superpages run: programs whose speed hangs on the TLB, each with a
//! figure of its own for how fast it was. Nothing here knows huepage, and nothing looks at which
//! pages are large: that is for the suite, from outside.

pub mod btree;
pub mod cg;
pub mod gups;
pub mod heartbeat;
pub mod pace;
pub mod sparse;

/// A program for python3 that builds dicts; its arguments are entries and seconds, and it says
/// and waits as [`pace::Pace`] does with `--hold`.
pub const DICTS: &str = include_str!("dicts.py");
