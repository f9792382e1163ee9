//! The library of workloads from outside: traced runs compute what native ones do, they are
//! the same every time, they touch what they were told to, and their accesses have the
//! character that each was made for.

use std::collections::{BTreeMap, HashMap, HashSet};

use huepage_sim::cache::{Cache, Hierarchy, Inclusion, Replacement, Sets, WritePolicy};
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::{Report, System};
use huepage_sim::workloads::file_access::FILES;
use huepage_sim::workloads::{
    self, AccessSink, FileAccess, FileNumber, FileOp, WorkloadSpec, WorkloadSpecError,
    WorkloadStream,
};
use proptest::prelude::*;

/// Small enough for a test; more rounds where one is next to nothing.
fn small(name: &str, seed: u64) -> WorkloadSpec {
    let rounds = if name == "strawman" { 20 } else { 2 };
    WorkloadSpec::new(workloads::find(name).unwrap(), 128 << 10, seed, rounds).unwrap()
}

/// A trace in three numbers: its checksum, how many records, and a hash over all of them.
fn summary(spec: WorkloadSpec) -> (u64, u64, u64) {
    let (mut records, mut hash) = (0, 0_u64);
    let checksum = spec.run(&mut |r: Record| {
        records += 1;
        let word = r.address.0 ^ u64::from(r.instructions) << 48 ^ (r.kind as u64) << 62;
        hash = (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(23);
    });
    (checksum, records, hash)
}

#[test]
fn a_traced_run_computes_what_a_native_one_does() {
    for workload in workloads::all() {
        let spec = small(workload.name, 3);
        let (checksum, records, _) = summary(spec);
        assert_eq!(checksum, spec.run_native(), "{spec}");
        assert!(records > 5_000, "{spec}: {records} accesses");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_one_another() {
    // Their accesses and results follow from the size alone.
    let fixed = ["stream", "sequential", "strawman"];
    for workload in workloads::all() {
        let one = summary(small(workload.name, 3));
        assert_eq!(one, summary(small(workload.name, 3)), "{}", workload.name);
        if !fixed.contains(&workload.name) {
            assert_ne!(one, summary(small(workload.name, 4)), "{}", workload.name);
        }
    }
}

/// Traces are named by their spec, so a spec must mean the same accesses in every version and on
/// every machine. Kernels without floating point are pinned here; a change of these numbers is a
/// change of what published results stand for.
#[test]
fn traces_are_what_they_were() {
    for (spec, records, hash) in [
        ("gups:size=64K", 73_730, 0x26d3_0833_88ec_ccd1),
        ("mergesort:size=64K", 344_954, 0xb8ed_65f8_57da_5797),
        ("btree:size=64K", 63_577, 0x0e69_f438_d509_84c1),
        ("hash-join:size=64K", 62_876, 0x5da4_43d8_9902_4f22),
        ("postmark:size=1M", 903_208, 0x4b9d_c798_6d9f_2c60),
        ("compress:size=64K", 1_926_700, 0x2f5f_fc6a_8370_e1d3),
    ] {
        let (_, found, order) = summary(spec.parse().unwrap());
        assert_eq!((found, order), (records, hash), "{spec}");
    }
}

/// Pages of memory and of files that a run touches.
fn pages(spec: WorkloadSpec) -> (usize, usize) {
    let mut seen = HashSet::new();
    spec.run(&mut |r: Record| {
        seen.insert(r.address.vpn());
    });
    let files = seen.iter().filter(|page| page.0 << 12 >= FILES).count();
    (seen.len() - files, files)
}

#[test]
fn data_has_the_size_that_was_asked_for() {
    let wanted = 128_u32;
    for workload in workloads::all() {
        let spec = WorkloadSpec::new(workload, u64::from(wanted) * 4096, 1, 2).unwrap();
        let (memory, files) = pages(spec);
        let share = |pages: usize| pages as f64 / f64::from(wanted);
        let near = |pages, low, high| {
            let share = share(pages);
            assert!((low..high).contains(&share), "{}: {share} of the size", workload.name);
        };
        match workload.name {
            "strawman" => assert_eq!(memory, 2),
            // Both tables: facts of 128 bytes, two per record of the dimension.
            "hash-join" => near(files, 1.95, 2.05),
            // Three tables: the third is as long as the first, the second a quarter of it.
            "multi-join" => near(files, 2.2, 2.3),
            // Two blocks.
            "sort-file" => near(files, 1.95, 2.05),
            "table-scan" | "grep-file" | "rescan" => near(files, 0.99, 1.01),
            // At random as many blocks as there are, twice: one in seven is left out.
            "random-reader" => near(files, 0.8, 0.93),
            // Every file ends in a page of its own.
            "grep" | "diff" => near(files, 1.0, 1.15),
            "tar" => near(files, 2.0, 2.2),
            // What comes and goes is more than there is at once.
            "postmark" => near(files, 1.0, 3.0),
            // The output is smaller than the input.
            "compress" => near(files, 1.1, 1.6),
            // Coarser grids do not fill all that was left for them.
            "mgrid" => near(memory, 0.7, 1.05),
            // The wheel is beside the array.
            "events" => near(memory, 1.2, 1.3),
            // All levels and the values.
            _ => near(memory, 0.95, 1.05),
        }
    }
}

#[test]
fn instructions_are_plausible() {
    for workload in workloads::all() {
        let (mut instructions, mut records) = (0, 0);
        small(workload.name, 1).run(&mut |r: Record| {
            instructions += u64::from(r.instructions);
            records += 1;
        });
        let each = instructions as f64 / f64::from(records);
        assert!((1.0..8.0).contains(&each), "{}: {each} instructions per access", workload.name);
    }
}

#[test]
fn each_says_what_it_stands_for() {
    let mut names = HashSet::new();
    for workload in workloads::all() {
        assert!(names.insert(workload.name), "{} is there twice", workload.name);
        let papers = ["ROCS", "Romer", "SRM-buffer", "COLORIS", "Scolari", "textbook"];
        assert!(papers.iter().any(|paper| workload.stands_for.contains(paper)));
        let spec = WorkloadSpec::new(workload, workload.size, 1, workload.rounds);
        assert!(spec.is_ok(), "{}: {spec:?}", workload.name);
    }
    assert_eq!(workloads::find("nothing"), None);
}

/// A core with 8 KiB, a cache of 64 KiB behind it and a TLB of 16 pages.
const SMALL_MACHINE: &str = r#"
name = "small"
memory = "64M"
memory_latency = 100
cache = [
    { level = 1, kind = "data", size = "8K", ways = 2, latency = 1 },
    { level = 2, size = "64K", ways = 8, latency = 10 },
]
tlb = [{ level = 1, entries = 16, ways = 0 }]
"#;

fn simulate(spec: WorkloadSpec) -> Report {
    let machine = Machine::parse(SMALL_MACHINE).unwrap();
    let frames = Frames::new(machine.memory.0 >> 12, Choice::InOrder, None);
    let mut system = System::new(machine, frames);
    spec.run(&mut |record: Record| {
        system.access(0, &record).unwrap();
    });
    system.check().unwrap();
    system.report()
}

/// Misses of the last level and of the TLB, each per access.
fn rates(text: &str) -> (f64, f64) {
    let report = simulate(text.parse().unwrap());
    let accesses = report.caches[0].1.total() as f64;
    (report.caches[1].1.missed() as f64 / accesses, report.walks as f64 / accesses)
}

#[test]
fn misses_have_the_character_of_the_program() {
    // A line serves eight words of a walk, none of a chase beyond the cache.
    let (walk, _) = rates("sequential:size=1M,rounds=4");
    assert!((0.11..0.14).contains(&walk), "sequential: {walk}");
    let (chase, pages) = rates("chase:size=1M,rounds=8");
    assert!(chase > 0.85 && pages > 0.8, "chase: {chase} {pages}");
    // Half of what is touched fits: random loads hit in proportion.
    let (random, _) = rates("random:size=128K,rounds=20");
    assert!((0.4..0.6).contains(&random), "random: {random}");
    // Updates load and store: one page of its own for two accesses.
    let (_, gups) = rates("gups:size=1M,rounds=2");
    assert!((0.35..0.5).contains(&gups), "gups: {gups}");
    // Rows wider than a page: elimination down a column is bound by the TLB, LU by rows not.
    let (_, gauss) = rates("gauss:size=256K");
    let (_, lu) = rates("lu:size=256K");
    assert!(gauss > 5.0 * lu, "gauss {gauss}, lu {lu}");
}

#[test]
fn mergesort_misses_once_its_two_arrays_do_not_fit() {
    let (inside, _) = rates("mergesort:size=48K,rounds=8");
    let (outside, _) = rates("mergesort:size=256K,rounds=8");
    assert!(outside > 10.0 * inside, "{inside} inside, {outside} outside");
}

/// ROCS section 3.2.2: the weights miss far more often than the layer does.
#[test]
fn the_weights_of_art_are_its_polluters() {
    let mut caches = Hierarchy::new();
    let cache = |sets, ways| {
        let sets = Sets::new(sets, ways, Replacement::Lru, 1);
        Cache::new(sets, 6, WritePolicy::BackAllocate)
    };
    let numbers = [caches.add(cache(64, 2)), caches.add(cache(128, 8))];
    let path = caches.path(&numbers.map(|number| (number, Inclusion::None)));
    // The layer alone would nearly fill the second cache; the weights are three times as much.
    let spec: WorkloadSpec = "art:size=252K,rounds=5".parse().unwrap();
    let mut pages: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
    spec.run(&mut |record: Record| {
        let depth = caches.access(&path, record.address.0, record.kind);
        let page = pages.entry(record.address.vpn().0).or_default();
        *page = (page.0 + u32::from(depth > 0), page.1 + u32::from(depth > 1));
    });
    let all: Vec<(u32, u32)> = pages.into_values().collect();
    let rate = |part: &[(u32, u32)]| {
        let (asked, missed) = part.iter().fold((0, 0), |sum, n| (sum.0 + n.0, sum.1 + n.1));
        f64::from(missed) / f64::from(asked)
    };
    let (streamed, reused) = (rate(&all[..36]), rate(&all[36..48]));
    assert!(streamed > 0.8, "weights miss {streamed}");
    // Four of ten passes over the layer go side by side with weights, and miss.
    assert!((0.4..0.75).contains(&reused), "the layer misses {reused}");
}

#[derive(Default)]
struct Files {
    calls: Vec<FileAccess>,
    touched: HashMap<FileNumber, u64>,
}

impl AccessSink for Files {
    fn access(&mut self, record: Record) {
        if let Some((file, _)) = FileNumber::of(record.address) {
            *self.touched.entry(file).or_default() += u64::from(record.bytes);
        }
    }

    fn file(&mut self, access: FileAccess) {
        self.calls.push(access);
    }
}

#[test]
fn files_are_touched_as_far_as_they_are_read_and_written() {
    let joins = ["hash-join", "multi-join", "table-scan"];
    let others = ["grep", "tar", "diff", "postmark", "compress", "sort-file"];
    for name in joins.into_iter().chain(others) {
        let mut files = Files::default();
        small(name, 2).run(&mut files);
        let mut called: HashMap<FileNumber, u64> = HashMap::new();
        for call in &files.calls {
            *called.entry(call.file).or_default() += call.bytes;
            let moves = matches!(call.op, FileOp::Read | FileOp::Write);
            assert!(moves || call.bytes == 0);
        }
        called.retain(|_, bytes| *bytes > 0);
        assert_eq!(called, files.touched, "{name}");
        assert!(called.values().sum::<u64>() >= 128 << 10, "{name}");
    }
}

#[test]
fn grep_follows_the_layout_and_diff_the_names() {
    let order = |name| {
        let mut files = Files::default();
        format!("{name}:size=1M").parse::<WorkloadSpec>().unwrap().run(&mut files);
        let mut ids: Vec<u32> = files.calls.iter().map(|call| call.file.0).collect();
        ids.retain(|&id| id < 1 << 14);
        ids.dedup();
        ids
    };
    assert!(order("grep").is_sorted());
    let diff = order("diff");
    assert!(!diff.is_sorted() && diff.iter().collect::<HashSet<_>>().len() == diff.len());
}

#[test]
fn a_stream_gives_the_records_of_a_run() {
    let spec = small("mergesort", 5);
    let mut records = Vec::new();
    spec.run(&mut |record: Record| records.push(record));
    assert!(WorkloadStream::start(spec).unwrap().eq(records));
}

/// Blocks have the accesses of the iterator, and each deletion between the same two of them.
#[test]
fn blocks_of_a_stream_say_when_files_are_deleted() {
    struct Log(usize, Vec<(usize, FileNumber)>);
    impl AccessSink for Log {
        fn access(&mut self, _: Record) {
            self.0 += 1;
        }
        fn file(&mut self, access: FileAccess) {
            if access.op == FileOp::Delete {
                self.1.push((self.0, access.file));
            }
        }
    }
    let spec: WorkloadSpec = "postmark:size=4M".parse().unwrap();
    let mut log = Log(0, Vec::new());
    spec.run(&mut log);
    assert!(log.1.len() > 10, "{} deletions", log.1.len());
    let mut stream = WorkloadStream::start(spec).unwrap();
    let skipped = log.1[log.1.len() / 2].0;
    assert_eq!(stream.by_ref().take(skipped).count(), skipped);
    let (mut records, mut deleted) = (skipped, Vec::new());
    while let Some(block) = stream.next_block() {
        deleted.extend(block.deleted.iter().map(|&(before, file)| (records + before, file)));
        records += block.records.len();
    }
    let wanted: Vec<_> = log.1.into_iter().filter(|&(before, _)| before >= skipped).collect();
    assert_eq!((records, deleted), (log.0, wanted));
}

#[test]
fn a_stream_may_be_left_in_the_middle() {
    let spec: WorkloadSpec = "gups".parse().unwrap();
    let start: Vec<Record> = WorkloadStream::start(spec).unwrap().take(10_000).collect();
    assert_eq!(start.len(), 10_000);
    assert!(
        start.iter().all(|record| record.kind == AccessKind::Store),
        "it fills its table first"
    );
}

#[test]
fn what_cannot_be_run_says_why() {
    let error = |text: &str| text.parse::<WorkloadSpec>().unwrap_err().to_string();
    assert!(error("arts").starts_with("`arts` is not a workload; choose one of sequential, "));
    assert_eq!(
        error("art:size=3X"),
        "`size=3X` is not a parameter; write `size=3M`, `rounds=2` or `seed=7`, with commas between"
    );
    assert_eq!(error("art:size=1K"), "art cannot have 1024 bytes; give 16384 to 17179869184");
    assert_eq!(
        error("lu:rounds=0"),
        "0 rounds of 2097152 bytes; give at least 1, and at most 2^44 bytes in all"
    );
    let unknown = workloads::run("x", 1 << 20, 1, &mut |_: Record| {});
    assert_eq!(unknown, Err(WorkloadSpecError::Unknown { name: "x".into() }));
}

#[test]
fn run_is_the_spec_with_default_rounds() {
    let mut records = 0;
    let checksum = workloads::run("cholesky", 64 << 10, 9, &mut |_: Record| records += 1).unwrap();
    let spec: WorkloadSpec = "cholesky:size=64K,seed=9".parse().unwrap();
    assert_eq!((checksum, records), (spec.run_native(), summary(spec).1));
}

proptest! {
    #[test]
    fn a_spec_is_read_as_it_is_written(
        at in 0..workloads::all().len(),
        size in 1_u64 << 14..1 << 29,
        seed: u64,
        rounds in 1_usize..30_000,
    ) {
        let spec = WorkloadSpec::new(&workloads::all()[at], size, seed, rounds).unwrap();
        prop_assert_eq!(spec.to_string().parse::<WorkloadSpec>(), Ok(spec));
    }

    #[test]
    fn any_text_is_a_spec_or_an_error(
        text in "(art|lu|x)?:?(size|seed|rounds|,|=|[0-9KMGT]|.){0,6}",
    ) {
        match text.parse::<WorkloadSpec>() {
            Ok(spec) => prop_assert_eq!(spec.to_string().parse::<WorkloadSpec>(), Ok(spec)),
            Err(error) => prop_assert!(error.to_string().contains("; "), "{}", error),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Odd and tiny sizes run, and alike in both ways.
    #[test]
    fn any_small_size_runs(at in 0..workloads::all().len(), size in 1_u64 << 14..100_000) {
        let spec = WorkloadSpec::new(&workloads::all()[at], size, size, 1).unwrap();
        prop_assert_eq!(spec.run(&mut |_: Record| {}), spec.run_native());
    }
}
