//! Recovery of a cache's index function: observations in, hash out. Pure: no I/O, no clock.
//!
//! An [`Observation`] says which group of competing lines an address was found in, or that two
//! lines do or do not evict each other. Where it comes from (timing, counters, a simulated
//! cache, a recorded file) makes no difference here; [`collide`] can ask any source that says
//! whether some lines evict another. [`recover`] solves for a hash of parities by linear algebra
//! over GF(2), bearing wrong observations, and says how sure that is; [`permuted`] finds base
//! sequence and permutation of slices that are no power of two; [`mod@cluster`] is the method of
//! Scolari et al. (2016, section 4.1) by integer programming; [`mod@verify`] holds a given hash
//! against observations. How observations are made on a machine is not known here.

pub mod bound;
pub mod cluster;
pub mod collide;
mod columns;
pub mod configure;
mod decode;
mod distinct;
pub mod file;
mod grouping;
pub mod known;
pub mod linear;
pub mod notation;
pub mod obs;
pub mod permuted;
pub mod plan;
mod rule;
mod sample;
mod search;
pub mod synth;
pub mod text;
mod vectors;
pub mod verify;

pub use cluster::{Cluster, ClusterError, Clusters, cluster};
pub use collide::{CollideError, Collider, Gathered};
pub use configure::{ConfigureError, Configured, configure};
pub use file::{HashEvidence, HashFile, HashFileError};
pub use linear::{HashOutcome, Linear, NotLinear, RecoverOptions, Recovery, Undetermined, recover};
pub use obs::{GroupScope, Labels, LineGroupId, Observation, Observations};
pub use permuted::{Permuted, recover_permuted};
pub use text::{TextError, parse, render};
pub use verify::{HashAgreement, verify, verify_masks};
