//! The `huepage` binary.
fn main() {}
