//! The screen of `huepage top`, in parts: `snapshot` says what is known at a moment, `source` and
//! `residency` find it out, `model` remembers what is needed for rates and takes keys, `heat` maps
//! residency by address, `columns` defines the figures of processes, `changes` tells what became different, `view` draws all that, `keys` reads the
//! keyboard, and `terminal` gives the terminal back however it ends. The command is in `cmd::top`.

pub mod changes;
pub mod columns;
pub mod daemon;
pub mod heat;
pub mod keys;
pub mod model;
pub mod residency;
pub mod snapshot;
pub mod source;
pub mod terminal;
#[cfg(test)]
mod tests;
pub mod text;
pub mod view;
