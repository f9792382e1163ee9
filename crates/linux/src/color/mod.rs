//! Which colour a frame has: measured by timing ([`probe`]), or computed, and offered to the engine by
//! [`sources`]; for frames of others by [`frame_colors`]. [`partition_registry`] says who holds which colours, [`doctor`]
//! how well a machine suits all that.

pub mod collide;
pub mod doctor;
pub mod frame_colors;
pub mod line_timer;
pub mod partition_registry;
pub mod probe;
pub mod sources;
pub mod walk;
