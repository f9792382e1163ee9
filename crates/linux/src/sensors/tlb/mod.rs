//! Misses of the data TLB, and which pages a process touches.
//!
//! The better sources first: samples of misses with their addresses from a PMU (`events`), accessed bits of page
//! tables (`accessed`), accessed bits summed up per area by the kernel, and pages sent to swap to see who comes
//! back (`pageout`; both are `fallbacks`). Touches become misses by a model of the TLB (`replay`, `turnover`).
//! Each only reports; none decides what becomes of the pages, and none moves a page to another frame.

pub(crate) mod accessed;
mod events;
pub(crate) mod fallbacks;
mod pageout;
pub mod recorder;
pub(crate) mod replay;
pub(crate) mod sensor;
pub(crate) mod sensor_set;
pub(crate) mod shape;
pub(crate) mod turnover;

pub use sensor::{MissSensorKind, SensorError};
pub use sensor_set::lacking;
pub use shape::TlbShape;
