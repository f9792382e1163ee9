//! What holds for the sources of all crates: layers, no circles of modules, short functions and files, names of public
//! types that occur once.

mod layers;
mod modules;
mod names;
mod sizes;
mod sources;
