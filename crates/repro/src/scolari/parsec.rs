//! What stands for the programs of PARSEC 3.0 in figure 12 and table V, frozen before any was run. The paper
//! prints no figure of any of them, so that kinds and sizes follow from what the programs are.

use serde::Serialize;

/// What stands for a program with several threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ThreadedStandIn {
    /// The paper's program.
    pub name: &'static str,
    /// The workload of a thread, as [`huepage_sim::workloads::WorkloadSpec`] reads it.
    pub spec: &'static str,
    /// Whether threads share its memory; else each has its own.
    pub shared: bool,
    /// Why this one.
    pub why: &'static str,
}

/// The programs of table V.
pub const PARSEC: [ThreadedStandIn; 8] = [
    ThreadedStandIn {
        name: "bodytrack",
        spec: "random:size=2400K,rounds=100000",
        shared: true,
        why: "compares bodies with two maps of each of four camera images of 640 x 480, anywhere",
    },
    ThreadedStandIn {
        name: "swaptions",
        spec: "matmul:size=120K,rounds=100000",
        shared: false,
        why: "simulated prices in small matrices of each thread",
    },
    ThreadedStandIn {
        name: "ferret",
        spec: "hash-join:size=16M,rounds=100000",
        shared: true,
        why: "probes of an index and scans of images, more than the cache",
    },
    ThreadedStandIn {
        name: "facesim",
        spec: "swim:size=16M,rounds=100000",
        shared: false,
        why: "passes over a mesh that is larger than the cache, a part for each thread",
    },
    ThreadedStandIn {
        name: "freqmine",
        spec: "btree:size=16M,rounds=100000",
        shared: true,
        why: "walks in a tree of frequent patterns that is larger than the cache",
    },
    ThreadedStandIn {
        name: "raytrace",
        spec: "btree:size=8M,rounds=100000",
        shared: true,
        why: "rays through a tree of boxes",
    },
    ThreadedStandIn {
        name: "vips",
        spec: "stream:size=1M,rounds=100000",
        shared: false,
        why: "operations on strips of an image, in buffers of each thread",
    },
    ThreadedStandIn {
        name: "blackscholes",
        spec: "sequential:size=16M,rounds=100000",
        shared: false,
        why: "passes over ten million options, a part for each thread",
    },
];

/// Whether the threads of a program share its memory.
pub fn is_shared(name: &str) -> bool {
    PARSEC.iter().any(|own| own.name == name && own.shared)
}
