//! Pools by what their modules promise, against naive models. One binary, as linking takes longer than most of the tests.

mod coloris;
mod even;
mod mcolor;
mod pool;
