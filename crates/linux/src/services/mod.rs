//! What is offered on top of the engine and of sensors: superpages, the pollute buffer, conflict recolouring,
//! files of the page cache in colours, and program text.

pub mod conflicts;
pub mod files;
pub mod pollute;
pub mod superpages;
pub mod text;
