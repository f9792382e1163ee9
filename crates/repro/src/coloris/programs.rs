//! The programs of SPEC CPU2006 that COLORIS ran, and what stands for each here. Which, and how
//! large, follows from what the paper says of them; instructions between accesses are fitted to what
//! the four of section 4.3 retire in C3 (table 3), before any partition changed. Sizes are
//! in the paper's terms: a colour of the Xeon E5506 is 64 KB, its private L2 four of them, a
//! quarter of the cache sixteen.

use serde::Serialize;

use huepage_sim::workloads::WorkloadSpec;

/// A program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ColorisProgram {
    /// Its name, the paper's where it stands for one.
    pub name: String,
    /// A workload as [`huepage_sim::workloads::WorkloadSpec`] reads it; none: a trace of that name.
    pub spec: Option<String>,
    /// Instructions at each access, besides those of the workload.
    pub work: u16,
}

/// Name, workload, and why that one.
pub const PROGRAMS: [(&str, &str, &str); 11] = [
    (
        "omnetpp",
        "events:size=16M,rounds=100000",
        "memory-intensive, the more cache the fewer misses; size, wheel and busy part from table 5 and figure 9",
    ),
    ("povray", "btree:size=160K,rounds=100000", "fits into the private L2 (section 4.3)"),
    (
        "tonto",
        "twolf:size=1M,rounds=100000",
        "content with its quarter, harmed by less (section 4.3)",
    ),
    ("gamess", "btree:size=768K,rounds=100000", "the same, with less need (section 4.3, table 5)"),
    (
        "gobmk",
        "vpr:size=1200K,rounds=100000",
        "small, less memory-intensive, sensitive to the cache",
    ),
    ("hmmer", "matmul:size=120K,rounds=100000", "small working set, not sensitive"),
    ("libquantum", "sequential:size=32M,rounds=100000", "passes over one large vector"),
    ("sphinx3", "spmv:size=8M,rounds=100000", "streams through a model, with a vector reused"),
    ("leslie3d", "swim:size=16M,rounds=100000", "meshes larger than the cache: thrashes it"),
    ("h264ref", "mergesort:size=512K,rounds=100000", "frames gone through in blocks, medium"),
    ("gromacs", "spmv:size=200K,rounds=100000", "neighbour lists that fit into the private L2"),
];

/// The same of the program of table 1 with most memory, which runs in an experiment only.
pub const MCF: (&str, &str, &str) =
    ("mcf", "chase:size=860M,rounds=1000", "a network of nodes, each with pointers to others");

/// Instructions more at each access, of those of which table 3 says how many they retire.
pub const WORK: [(&str, u16); 2] = [("omnetpp", 58), ("gamess", 100)];

impl ColorisProgram {
    /// The stand-in for a program of the paper, with a seed.
    ///
    /// # Panics
    /// If there is none of that name: names come from the cases of this experiment.
    pub fn named(name: &str, seed: u64) -> ColorisProgram {
        let found = PROGRAMS.iter().find(|(own, ..)| *own == name);
        let spec = found.unwrap_or_else(|| panic!("no program {name}")).1;
        let work = WORK.iter().find(|(own, _)| *own == name).map_or(0, |(_, work)| *work);
        ColorisProgram { name: name.to_owned(), spec: Some(format!("{spec},seed={seed}")), work }
    }

    /// [`MCF`].
    pub fn mcf() -> ColorisProgram {
        let (name, spec, _) = MCF;
        ColorisProgram { name: name.to_owned(), spec: Some(format!("{spec},seed=1")), work: 0 }
    }

    /// Accesses at its start that are run before the clock is: twice as many as a workload has
    /// words to fill, and what comes before `main` in a trace. The paper's programs run for
    /// minutes, of which that would be next to nothing.
    pub fn start(&self) -> u64 {
        const MOST: u64 = 2_000_000;
        // One for each of its lines: what is scanned is what it has used.
        const OF_MCF: u64 = (860 << 20) / 64;
        if self.name == MCF.0 && self.spec.is_some() {
            return OF_MCF;
        }
        let spec = self.spec.as_ref().and_then(|spec| spec.parse::<WorkloadSpec>().ok());
        spec.map_or(MOST, |spec| (spec.parameters().size as u64 / 4).min(MOST))
    }

    /// A trace of a real program.
    pub fn traced(name: &str) -> ColorisProgram {
        ColorisProgram { name: name.to_owned(), spec: None, work: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_can_be_started() {
        for (name, ..) in PROGRAMS {
            let spec = ColorisProgram::named(name, 3).spec.expect("a workload");
            let parsed: WorkloadSpec = spec.parse().unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(parsed.parameters().seed, 3);
            let start = ColorisProgram::named(name, 3).start();
            assert!((30_000..=2_000_000).contains(&start), "{name}: {start}");
        }
        let mcf = ColorisProgram::mcf();
        let spec = mcf.spec.as_deref().expect("a workload").parse::<WorkloadSpec>();
        let lines = spec.expect("one that can be").parameters().size / 64;
        assert_eq!(mcf.start(), lines as u64, "each line once");
    }
}
