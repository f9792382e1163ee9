//! COLORIS (2014): partitions of a shared cache that follow what programs need.
//!
//! Two state machines. A manager looks at all programs at once and says which colours each has:
//! [`Manager`] is the paper's (section 3.2, algorithm 1), [`UtilityManager`] ours. A
//! [`Recolorer`] for each address space moves its pages into the colours it is told (the paper's
//! recolouring engine). Managers need the misses and requests of the last cache per program, as
//! counters of any processor give them; ours needs the lines requested as well, of a sample.
//! Recolorers need to see resident pages on demand, to be told of the next touch of a page, and
//! one of their ways to grow reads accessed bits.

pub mod curve;
pub mod monitor;
pub mod recolor;
pub mod sizes;
pub mod utility;

pub use curve::{Curve, CurveSettings};
pub use monitor::{AppId, Assignment, Manager, ManagerSettings, Thresholds};
pub use recolor::{Growth, Recolorer};
pub use sizes::{Demand, Sized, best};
pub use utility::{UtilityManager, UtilitySettings};
