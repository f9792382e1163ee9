//! Where the engine's colours come from: [`source`] is the interface, with colours computed from frame numbers;
//! [`probed`] has them measured, [`deferred`] has that done in the background; `validity` says which of those
//! remembered hold now, [`upkeep`] keeps them true.

pub mod deferred;
pub mod probed;
pub mod source;
pub mod upkeep;
mod validity;

pub use deferred::Deferred;
pub use probed::Probed;
pub use source::{Candidate, ColorSource, Computed};
pub use upkeep::ColorUpkeep;
