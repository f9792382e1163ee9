//! The programs of SPEC CPU2006 that Scolari ran (tables I and II), what stands for each here, and
//! which run together (tables III to V). Which workload, and how large, follows from what the
//! papers' text says and was frozen before any was run, but for bzip2: it had 1.8 MB at first, and has
//! the memory of the real one since. A colour is 640 KB, the private L2 256 KB,
//! the last level sixteen colours. Those that [`coloris`](super::super::coloris::programs) has are
//! as they are there, but for omnetpp.

use serde::Serialize;

use super::super::coloris::ColorisProgram;
use super::parsec::PARSEC;

/// A stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct StandIn {
    /// The paper's program.
    pub name: &'static str,
    /// A workload as [`huepage_sim::workloads::WorkloadSpec`] reads it.
    pub spec: &'static str,
    /// Whether table II calls it sensitive.
    pub sensitive: bool,
    /// Colours with which its plot begins in the paper, which classifies it by what it does there.
    pub least: u16,
    /// Why this one.
    pub why: &'static str,
}

/// The programs of table I, in the order of table II.
pub const PROGRAMS: [StandIn; 8] = [
    StandIn {
        name: "bzip2",
        spec: "mergesort:size=7600K,rounds=100000",
        sensitive: true,
        least: 3,
        why: "it sorts in 400 KB and eight times its block of 900 KB",
    },
    StandIn {
        name: "omnetpp",
        spec: "random:size=6M,rounds=100000",
        sensitive: true,
        least: 1,
        why: "the more cache the better (5.3)",
    },
    StandIn {
        name: "xalancbmk",
        spec: "btree:size=4M,rounds=100000",
        sensitive: true,
        least: 1,
        why: "walks a tree of two fifths of the cache from its root",
    },
    StandIn {
        name: "sphinx",
        spec: "spmv:size=8M,rounds=100000",
        sensitive: true,
        least: 1,
        why: "as for COLORIS: streams through a model, with a vector reused",
    },
    StandIn {
        name: "libquantum",
        spec: "sequential:size=32M,rounds=100000",
        sensitive: false,
        least: 1,
        why: "as for COLORIS: passes over one large vector",
    },
    StandIn {
        name: "leslie3d",
        spec: "swim:size=16M,rounds=100000",
        sensitive: false,
        least: 1,
        why: "as for COLORIS: meshes larger than the cache",
    },
    StandIn {
        name: "astar",
        spec: "vpr:size=400K,rounds=100000",
        sensitive: false,
        least: 1,
        why: "a map around the search, within the smallest partition",
    },
    StandIn {
        name: "gcc",
        spec: "btree:size=480K,rounds=100000",
        sensitive: false,
        least: 3,
        why: "symbols of one function, within the smallest partition",
    },
];

/// Workloads of table III, the target first.
pub const TABLE_3: [(&str, [&str; 4]); 4] = [
    ("W1", ["bzip2", "xalancbmk", "leslie3d", "gcc"]),
    ("W2", ["omnetpp", "sphinx", "libquantum", "astar"]),
    ("W3", ["xalancbmk", "omnetpp", "libquantum", "gcc"]),
    ("W4", ["sphinx", "bzip2", "leslie3d", "astar"]),
];

/// Workloads of table IV: one polluter of each is another.
pub const TABLE_4: [(&str, [&str; 4]); 4] = [
    ("X1", ["bzip2", "xalancbmk", "leslie3d", "astar"]),
    ("X2", ["omnetpp", "sphinx", "libquantum", "xalancbmk"]),
    ("X3", ["xalancbmk", "omnetpp", "libquantum", "leslie3d"]),
    ("X4", ["sphinx", "bzip2", "leslie3d", "sphinx"]),
];

/// Pairs of table V, the target first.
pub const TABLE_5: [(&str, [&str; 2]); 4] = [
    ("P1", ["bodytrack", "swaptions"]),
    ("P2", ["ferret", "facesim"]),
    ("P3", ["freqmine", "raytrace"]),
    ("P4", ["vips", "blackscholes"]),
];

/// Names and workloads of all stand-ins.
fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    let threaded = PARSEC.iter().map(|own| (own.name, own.spec));
    PROGRAMS.iter().map(|own| (own.name, own.spec)).chain(threaded)
}

/// Names that no trace may have.
pub fn names() -> impl Iterator<Item = &'static str> {
    all().map(|(name, _)| name)
}

/// The workload that stands for a program, with a seed; a trace where none does. `other` is what an experiment
/// has in its place.
pub fn program(name: &str, other: Option<&str>, seed: u64) -> ColorisProgram {
    let found = other.or_else(|| all().find(|(own, _)| *own == name).map(|(_, spec)| spec));
    let spec = found.map(|spec| format!("{spec},seed={seed}"));
    ColorisProgram { name: name.to_owned(), spec, work: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use huepage_sim::workloads::WorkloadSpec;

    #[test]
    fn every_program_of_every_workload_can_be_started() {
        for (name, programs) in TABLE_3.iter().chain(&TABLE_4) {
            let target = PROGRAMS.iter().find(|own| own.name == programs[0]).expect("a target");
            assert!(target.sensitive, "{name}: targets are sensitive");
            for (own, seed) in programs.iter().zip(1..) {
                let spec = program(own, None, seed).spec.expect("a workload");
                let parsed: WorkloadSpec = spec.parse().unwrap_or_else(|e| panic!("{own}: {e}"));
                assert_eq!(parsed.parameters().seed, seed);
            }
        }
    }

    #[test]
    fn every_thread_can_be_started() {
        for name in names() {
            let spec = program(name, None, 2).spec.expect("a workload");
            assert!(spec.parse::<WorkloadSpec>().is_ok(), "{name}: {spec}");
        }
        assert_eq!(names().count(), PROGRAMS.len() + PARSEC.len());
    }

    #[test]
    fn table_4_differs_from_table_3_in_one_polluter() {
        for (w, x) in TABLE_3.iter().zip(&TABLE_4) {
            let same = w.1.iter().zip(&x.1).filter(|(a, b)| a == b).count();
            assert_eq!((w.1[0], same), (x.1[0], 3));
        }
    }
}
