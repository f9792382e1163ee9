//! Files of a PMU that are good, damaged, and others'.

use std::os::unix::fs::{FileExt, PermissionsExt};

use huepage_model::pmu_file::{CHANGES_AT, LEVELS, MAGIC, WRITTEN_AT, process_at, sample_at};
use tempfile::NamedTempFile;

use super::*;

fn put(file: &NamedTempFile, at: usize, words: &[u64]) {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    file.as_file().write_all_at(&bytes, at as u64).expect("written");
}

fn empty() -> NamedTempFile {
    let file = NamedTempFile::new().expect("a file");
    file.as_file().set_len(BYTES as u64).expect("long enough");
    put(&file, 0, &[MAGIC]);
    file
}

fn opened(file: &NamedTempFile) -> Result<PmuFile, String> {
    PmuFile::open(file.path(), Wanted::Counts)
}

fn row(pid: u64, times: u64) -> ProcessRow {
    let mut levels = [[0; 2]; LEVELS];
    levels[1] = [50 * times, 20 * times];
    ProcessRow { pid, instructions: 1000 * times, cycles: 3000 * times, accesses: 400, levels }
}

#[test]
fn counts_are_of_what_came_since_and_never_go_back() {
    let file = empty();
    let pid = 4711;
    put(&file, process_at(3), &row(pid, 2).words());
    let (memory, level, last) =
        (opened(&file).expect("it is one"), CacheLevel::L2, PmuCounts::default());
    let mut counts = FileCounts { file: memory, pid, level, last };
    let of = |times: f64| PmuCounts {
        instructions: 1000.0 * times,
        cycles: 3000.0 * times,
        references: 50.0 * times,
        misses: 20.0 * times,
    };
    assert_eq!(counts.more().expect("read"), of(2.0));
    put(&file, process_at(3), &row(pid, 5).words());
    assert_eq!(counts.more().expect("read"), of(3.0));
    put(&file, process_at(3), &row(pid, 1).words());
    assert_eq!(counts.more().expect("read"), PmuCounts::default());
    put(&file, process_at(3), &row(pid + 1, 9).words());
    assert_eq!(counts.more().expect("read"), PmuCounts::default());
    put(&file, CHANGES_AT, &[1]);
    assert!(counts.more().expect_err("always written").to_string().contains("never at rest"));
}

#[test]
fn samples_are_of_one_process_and_losses_are_told() {
    let file = empty();
    let sample = |pid, address| SampleRow { pid, address, cycles: 9, source: 2 };
    for (number, sample) in (0..).zip([sample(5, 64), sample(6, 64), sample(5, 1 << 63)]) {
        put(&file, sample_at(number), &sample.words());
    }
    put(&file, WRITTEN_AT, &[3]);
    let memory = opened(&file).expect("it is one");
    let mut samples = FileSamples { file: memory, pid: 5, next: 0, rows: Vec::new() };
    let mut told = Vec::new();
    samples.drain(|found| told.push(found)).expect("read");
    let source = DataSource(2);
    let one = PmuSample { pid: 5, tid: 5, address: 64, time: 0, weight: 9, source };
    assert_eq!(told, [Found::Sample(one), Found::Unusable]);
    put(&file, WRITTEN_AT, &[u64::MAX]);
    told.clear();
    samples.drain(|found| told.push(found)).expect("read");
    assert!(matches!(told[0], Found::Lost(lost) if lost > 1 << 60), "{:?}", told[0]);
}

#[test]
fn what_is_short_damaged_or_of_others_is_refused() {
    let error = |file: &NamedTempFile| opened(file).expect_err("refused");
    let file = empty();
    put(&file, 0, &[MAGIC ^ 1]);
    assert!(error(&file).contains("does not begin"));
    file.as_file().set_len(BYTES as u64 - 1).expect("cut");
    assert!(error(&file).contains("not a file of 2097152 bytes"));
    let file = empty();
    let mode = std::fs::Permissions::from_mode(0o622);
    std::fs::set_permissions(file.path(), mode).expect("its mode");
    assert!(error(&file).contains("others may write"));
    for path in ["/dev/zero", "/proc", "/no/such/file"] {
        assert!(PmuFile::open(Path::new(path), Wanted::Loads).is_err(), "{path}");
    }
}
