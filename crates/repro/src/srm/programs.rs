//! The programs, and the paper's that each stands for. The paper gives the sizes of mergesort, of
//! the trees of files, of PostMark and of the tables; it gives none for FFT, MM and LU, which here
//! fit the smaller last cache of the two with room to spare, and the larger one all together
//! (7.5 of 8 MiB), as they must to lose by being polluted. LU's was fitted as [`super::waits`] were.
//! Fitted to nothing that SRM-buffer does.

use serde::Serialize;

/// A program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct SrmProgram {
    /// Its name in tables.
    pub name: String,
    /// The workload as [`huepage_sim::workloads::WorkloadSpec`] reads it; none of a trace of that name.
    pub spec: Option<String>,
    /// The volume that its files are on; equal for programs that share them.
    pub volume: u32,
}

impl SrmProgram {
    /// A workload.
    pub fn spec(name: &str, spec: impl Into<String>, volume: u32) -> SrmProgram {
        SrmProgram { name: name.into(), spec: Some(spec.into()), volume }
    }

    /// A trace.
    pub fn trace(name: &str, volume: u32) -> SrmProgram {
        SrmProgram { name: name.into(), spec: None, volume }
    }
}

/// The memory-bound programs of section 4.3: name, paper's name, workload. Rounds are enough
/// for any limit.
pub const MEMORY_BOUND: [(&str, &str, &str); 4] = [
    ("fft", "FFT", "fft:size=2M,rounds=20"),
    ("spmv", "MM", "spmv:size=3M,rounds=200"),
    ("lu", "LU", "lu:size=2560K,rounds=4"),
    // An array of 1.5 MiB and the room to merge it into.
    ("mergesort", "mergesort", "mergesort:size=3M,rounds=40"),
];

/// FFT, MM and LU: those of figures 12 and 14 to 16.
pub const SCIMARK: [&str; 3] = ["fft", "spmv", "lu"];

/// A memory-bound program of this name.
pub fn memory_bound(name: &str) -> SrmProgram {
    let found = MEMORY_BOUND.iter().find(|(own, ..)| *own == name);
    SrmProgram::spec(name, found.map_or(name, |(.., spec)| spec), MEMORY_VOLUME)
}

/// The paper's name of a memory-bound program.
pub fn stands_for(name: &str) -> Option<&'static str> {
    MEMORY_BOUND.iter().find(|(own, ..)| *own == name).map(|(_, paper, _)| *paper)
}

/// Programs without files still need a number.
const MEMORY_VOLUME: u32 = 0;
/// The volume of the first program that uses files.
pub const FILES_VOLUME: u32 = 1;

/// Sizes of mergesort's array in figure 2, in KiB.
pub const ARRAYS: [u64; 6] = [256, 512, 768, 1024, 1280, 1536];

/// Mergesort of an array of so many KiB.
pub fn mergesort(kib: u64) -> SrmProgram {
    let spec = format!("mergesort:size={}K,rounds=400", 2 * kib);
    SrmProgram::spec(&format!("mergesort {kib}K"), spec, MEMORY_VOLUME)
}

/// The file-bound programs of section 4.3: about 100 MiB of files; 1,000 files of 128 to 384 KiB.
pub fn file_bound(name: &str) -> SrmProgram {
    let spec = match name {
        "grep" => "grep:size=100M,rounds=20",
        "tar" => "tar:size=100M,rounds=20",
        "postmark" => "postmark:size=250M,rounds=5",
        // Two directories (section 4.4).
        "diff" => "diff:size=200M,rounds=20",
        // The sources of the kernel in one archive (section 2): a third of them.
        "grep-file" => "grep-file:size=128M,rounds=20",
        // Section 4.5.
        "random-reader" => "random-reader:size=512M,rounds=20",
        other => other,
    };
    SrmProgram::spec(name, spec, FILES_VOLUME)
}

/// The three of section 4.3.
pub const FILE_BOUND: [&str; 3] = ["grep", "tar", "postmark"];

/// Greps of figure 13, each in a tree of its own: the same one would be read by all at once.
pub fn greps(count: u32) -> Vec<SrmProgram> {
    let one = |n| SrmProgram::spec("grep", format!("grep:size=100M,rounds=20,seed={n}"), n);
    (1..=count).map(one).collect()
}

/// Dimension tables of figure 8 in records of 256 bytes and MiB: 100,000 to 600,000 records.
pub const DIMENSIONS: [(u64, u64); 4] =
    [(100_000, 24), (300_000, 73), (400_000, 98), (600_000, 146)];

/// A hash join with a dimension table of so many records and a fact table of 2.4 million.
pub fn hash_join(records: u64, mib: u64) -> SrmProgram {
    let (size, rounds) = (records * 256, 2_400_000 / records);
    let spec = format!("hash-join:size={size},rounds={rounds}");
    SrmProgram::spec(&format!("join {mib}M"), spec, FILES_VOLUME + 1)
}

/// How the names of scans begin, and the name of the trace that runs beside the others.
pub const SCAN: &str = "scan";

/// A scan of the fact table; a part of the paper's 4 GiB, as a pass takes longer than any run.
pub fn table_scan() -> SrmProgram {
    SrmProgram::spec(SCAN, "table-scan:size=300M,rounds=20", FILES_VOLUME)
}

/// The file that is scanned again and again: 3.4 MiB on the Xeon, 7.4 MiB on the Core i7
/// (section 4.5).
pub fn rescan(kib: u64) -> SrmProgram {
    SrmProgram::spec("rescan", format!("rescan:size={kib}K,rounds=4000"), FILES_VOLUME)
}

/// Queries of TPC-H's first group: they scan the fact table (figure 9).
pub const SCANNING: [u32; 2] = [6, 15];
/// Those of the second group and the rows of their largest hash table, at scale 2: 60,000 customers of
/// a region (Q5, Q8) and 24,000 of two nations (Q7), 107,000 orders of a quarter (Q10), 64,000 parts
/// of a nation's suppliers (Q11). Q18 has 3 million groups, which here are more than the cache has
/// room for, and no more.
pub const JOINING: [(u32, u64); 6] =
    [(5, 60_000), (7, 24_000), (8, 60_000), (10, 107_000), (11, 64_000), (18, 120_000)];

/// A query of TPC-H, on a copy of the tables of its own. One in five records of its dimension table
/// is in the hash table.
pub fn query(number: u32) -> SrmProgram {
    let volume = FILES_VOLUME + number;
    let name = query_name(number);
    let Some(records) = query_records(number) else {
        let spec = format!("table-scan:size=300M,rounds=20,seed={number}");
        return SrmProgram::spec(&name, spec, volume);
    };
    let rounds = (2_400_000 / records).max(1);
    let spec = format!("multi-join:size={},rounds={rounds},seed={number}", records * 256);
    SrmProgram::spec(&name, spec, volume)
}

/// Records of a query's dimension table; none of a scan.
pub fn query_records(number: u32) -> Option<u64> {
    let rows = JOINING.iter().find(|(own, _)| *own == number);
    rows.map(|(_, rows)| 5 * rows)
}

/// The name of a query: that of a scan, or of a join, begins with the word.
pub fn query_name(number: u32) -> String {
    let kind = if SCANNING.contains(&number) { SCAN } else { "query" };
    format!("{kind} Q{number}")
}

/// Blocks of the programs that sort files, in KiB (section 4.7: 0.5 and 0.75 MiB).
pub const SORT_BLOCKS: [u64; 2] = [512, 768];

/// Programs that sort a file each by blocks of so many KiB, on volumes of their own. Files have a
/// quarter of the paper's sizes, 8 to 16 MiB in even steps.
pub fn sorters(count: u32, kib: u64) -> Vec<SrmProgram> {
    let one = |n: u32| {
        let bytes = 8192 + 8192 * u64::from(n) / u64::from(count.max(2) - 1);
        let spec = format!("sort-file:size={kib}K,rounds={},seed={n}", bytes.div_ceil(kib));
        SrmProgram::spec(&sorter_name(kib, n), spec, FILES_VOLUME + n)
    };
    (0..count).map(one).collect()
}

/// The name of one of them.
pub fn sorter_name(kib: u64, number: u32) -> String {
    format!("sort {kib}K, {number}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use huepage_sim::workloads::WorkloadSpec;

    #[test]
    fn every_workload_can_be_started() {
        let named = MEMORY_BOUND.iter().map(|(name, ..)| memory_bound(name));
        let files = ["grep", "tar", "postmark", "diff", "grep-file", "random-reader"];
        let sized =
            ARRAYS.map(mergesort).into_iter().chain(DIMENSIONS.map(|(r, m)| hash_join(r, m)));
        let all = named.chain(files.map(file_bound)).chain(sized).chain(greps(3));
        let all = all.chain(SORT_BLOCKS.into_iter().flat_map(|kib| sorters(8, kib)));
        let queries = SCANNING.into_iter().chain(JOINING.map(|(number, _)| number));
        let all = all.chain(queries.map(query));
        for program in all.chain([table_scan(), rescan(3482), rescan(7578)]) {
            let Some(spec) = &program.spec else { panic!("{program:?}") };
            assert!(spec.parse::<WorkloadSpec>().is_ok(), "{spec}");
        }
        assert_eq!((stands_for("spmv"), stands_for("grep")), (Some("MM"), None));
    }
}
