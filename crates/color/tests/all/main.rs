//! Geometry and colours by what their modules promise. One binary, as linking takes longer than most of the tests.

mod classes;
mod geometry;
mod hashed;
mod set;
