//! Addresses, cache geometry, index functions and page colours. Pure: no I/O, no clock.
//!
//! A *color* is an equivalence class of frames under "compete for the same sets of this
//! cache level". This crate says which colours exist for an index function and which
//! frames have them; how a colour is measured, and what is done with it, lives elsewhere.

pub mod addr;
pub mod classes;
pub mod geometry;
pub mod gf2;
pub mod hash;
pub mod hashed;
pub mod index;
pub mod inner;
pub mod map;
pub mod set;

pub use addr::{PAGE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr, Vpn, as_hex};
pub use classes::{ClassError, PageClasses};
pub use geometry::{CacheGeometry, CacheKind, CacheLevel, LevelChoice, LevelError, Nonsense};
pub use hash::{NumberHash, NumberHasher};
pub use hashed::{HashedError, LinearColors, SliceSpread, hash_aware, hash_unaware};
pub use index::{IndexError, IndexFunction, Location};
pub use inner::InnerReach;
pub use map::{ColorMap, MapError, Provenance};
pub use set::{Color, ColorSet, ColorSetError, MAX_COLORS};
