//! Addresses, cache geometry, index functions and page colours. Pure: no I/O, no clock.
//!
//! A *color* is an equivalence class of frames under "compete for the same sets of this
//! cache level". This crate says which colours exist for an index function and which
//! frames have them; how a colour is measured, and what is done with it, lives elsewhere.

pub mod addr;

pub use addr::{PAGE_BYTES, PageSize, Pfn, PhysAddr, VirtAddr, Vpn};
