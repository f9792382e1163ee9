//! Hashes that are recovered from answers, right and wrong ones. One binary, as linking takes longer than most of the tests.

mod clusters;
mod doubt;
mod hidden;
mod permuted;
mod published;
