//! The parts of `huepage demo`: what is measured ([`staircase`], [`hot_set`], [`program`]), how
//! it is judged, and how it is shown ([`plot`], [`svg`]). Order and output are the command's.
//!
//! Measurements are plain data with a `doubts` method: of one with doubts only these are shown. They
//! are made on a [`lab::Lab`], which is a [`pool::DemoPool`] of measured memory or a model.

pub mod hot_set;
pub mod lab;
pub mod plot;
pub mod pool;
pub mod program;
pub mod staircase;
pub mod stats;
pub mod svg;
pub mod walk;

/// The cache that is demonstrated.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct DemoCache {
    /// Its size in bytes.
    pub bytes: usize,
    /// Its line in bytes.
    pub line_bytes: usize,
    /// Its colours.
    pub colors: u16,
}
