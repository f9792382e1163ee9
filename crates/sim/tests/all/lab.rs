//! The caches below a guest of the lab: who an access belongs to, who evicts whom, and the simulator's counts.

use huepage_model::lab::{DIGIT_BITS, DIGITS, DIGITS_AT, LabMark, LabWord, OWNER_STRIDE, marked};
use huepage_model::pmu_file::{self, BYTES, PROCESSES, ProcessRow, SAMPLES, SampleRow};
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::lab::{EmulatedCaches, KERNEL, LabRequests, LevelCounts, physical_record};
use huepage_sim::machine::Machine;
use huepage_sim::system::System;

const MACHINE: &str = r#"
    name = "small"
    cores = 2
    memory = "1M"
    memory_latency = 100
    [[cache]]
    level = 1
    size = "1K"
    ways = 2
    latency = 1
    [[cache]]
    level = 2
    size = "4K"
    ways = 4
    shared_by = 2
    latency = 10
"#;

fn caches() -> EmulatedCaches {
    EmulatedCaches::new(&Machine::parse(MACHINE).unwrap(), 2).unwrap()
}

fn load(cpu: u32, address: u64) -> LabWord {
    LabWord::access(cpu, address, 3, false, false)
}

/// The kernel says that a processor runs a program.
fn turn(cpu: u32, owner: u64) -> LabWord {
    LabWord::access(cpu, 0x8000 + owner * OWNER_STRIDE, 3, true, true)
}

fn begin() -> [LabWord; 4] {
    let mark = |mark| LabWord::mark(0, mark);
    let page = load(0, 0x8000);
    [mark(LabMark::Start), mark(LabMark::TurnPage), page, mark(LabMark::Begin)]
}

#[test]
fn words_hold_what_was_put_into_them() {
    let word = LabWord::access(7, 0xabc_def0_1238, 4, true, false);
    assert_eq!((word.cpu(), word.address(), word.bytes()), (7, 0xabc_def0_1238, 16));
    assert!(word.is_store() && !word.is_kernel() && word.as_mark().is_none());
    let mark = LabWord::mark(255, LabMark::End);
    assert_eq!((mark.cpu(), mark.as_mark()), (255, Some(LabMark::End)));
    let nop = [0x0f, 0x1f, 0x80, 3, b'L', b'O', b'C'];
    assert_eq!(marked(&nop), Some(LabMark::Begin));
    assert_eq!(marked(&[0x0f, 0x1f, 0x80, 3, b'L', b'O', 0]), None);
    assert_eq!(marked(&[0x0f, 0x1f, 0x80, 6, b'L', b'O', b'C']), None, "not a guest's");
    let told = LabWord::told(3, LabMark::Sampled, 0x7fff_ffff_f123);
    assert_eq!((told.cpu(), told.as_mark()), (3, Some(LabMark::Sampled)));
    assert_eq!(told.number(), 0x7fff_ffff_f123);
}

#[test]
fn accesses_belong_to_whose_turn_it_is() {
    let mut caches = caches();
    caches.run(&begin());
    caches.run(&[turn(0, 1), load(0, 0), load(0, 0), turn(0, 2), load(0, 64), load(1, 128)]);
    let accesses = |class| caches.class(class).accesses;
    assert_eq!([accesses(0), accesses(1), accesses(2), accesses(KERNEL)], [1, 2, 1, 2]);
    let LevelCounts { requests, misses } = caches.class(1).levels[1];
    assert_eq!((requests, misses), (1, 1));
}

#[test]
fn evictions_have_a_victim_and_a_culprit() {
    let mut caches = caches();
    caches.run(&begin());
    // 16 sets of 4 ways: five lines 1 KiB apart are one too many.
    let own = (0..4).map(|n| load(0, n << 10));
    let words: Vec<LabWord> = [turn(0, 1), turn(1, 2)].into_iter().chain(own).collect();
    caches.run(&words);
    assert_eq!(caches.evicted(1, 2), 0);
    caches.run(&[load(1, 4 << 10), load(1, 5 << 10)]);
    assert_eq!((caches.evicted(1, 2), caches.evicted(2, 1)), (2, 0));
    assert_eq!(caches.class(2).levels[1], LevelCounts { requests: 2, misses: 2 });
}

#[test]
fn a_line_that_is_written_back_evicts_for_who_asked_for_it() {
    let mut caches = caches();
    caches.run(&begin());
    let written = LabWord::access(1, 0, 3, true, false);
    let victims = (1..=4).map(|n| load(0, n << 10));
    let words: Vec<LabWord> =
        [turn(1, 3), written, turn(0, 1)].into_iter().chain(victims).collect();
    caches.run(&words);
    assert_eq!(caches.evicted(3, 1), 1, "the line is in a nearest cache alone now");
    // In the same set of the nearest cache and in another one of the last.
    caches.run(&[turn(1, 2), load(1, 0x200), load(1, 0x600)]);
    assert_eq!((caches.evicted(1, 3), caches.evicted(1, 2)), (1, 0));
}

#[test]
fn nothing_counts_before_the_beginning_and_after_the_end() {
    let mut caches = caches();
    let mark = |mark| [LabWord::mark(0, mark)];
    caches.run(&[load(0, 0)]);
    caches.run(&mark(LabMark::Begin));
    caches.run(&[load(0, 0)]);
    assert!(caches.run(&mark(LabMark::End)).ended);
    caches.run(&[load(0, 64)]);
    let counts = caches.class(0);
    assert_eq!((counts.accesses, counts.levels[0].misses, caches.seen), (1, 0, 3));
    let totals = caches.totals(&Machine::parse(MACHINE).unwrap());
    assert_eq!((totals[0].1.total(), totals[0].1.missed()), (3, 2));
}

#[test]
fn an_access_over_the_end_of_a_line_touches_both() {
    let mut caches = caches();
    caches.run(&begin());
    caches.run(&[LabWord::access(1, 60, 3, false, false)]);
    let counts = caches.class(0);
    assert_eq!((counts.accesses, counts.levels[0].requests), (1, 2));
}

/// Words over two cores, with misses at both levels, and some over the end of lines and pages.
fn many() -> Vec<LabWord> {
    let mut at = 1_u64;
    let mut next = move || {
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        at >> 33
    };
    let word = |(n, m): (u64, u64)| {
        LabWord::access(
            (n & 1) as u32,
            m % (20 << 10),
            (n >> 1 & 3) as u32,
            n & 8 == 0,
            n & 16 == 0,
        )
    };
    (0..50_000).map(|_| word((next(), next()))).collect()
}

#[test]
fn the_simulator_counts_the_same_on_the_same_accesses() {
    let machine = Machine::parse(MACHINE).unwrap();
    let mut caches = caches();
    caches.run(&many());
    let frames = Frames::new(256, Choice::Identity, None);
    let mut system = System::new(machine.clone(), frames);
    for record in many().into_iter().filter_map(physical_record) {
        system.access(usize::from(record.thread), &record).unwrap();
    }
    let totals = caches.totals(&machine);
    assert_eq!(totals, system.report().caches);
    assert!(totals.iter().all(|(_, counts)| counts.missed() > 1000), "{totals:?}");
}

#[test]
fn machines_that_do_not_fit_are_refused() {
    let machine = Machine::parse(MACHINE).unwrap();
    let error = EmulatedCaches::new(&machine, 4).unwrap_err().to_string();
    assert_eq!(error, "the machine has 2 cores; give `--cpus 2`");
    let virtual_index = MACHINE.replace("ways = 2", "ways = 2\nindex_by = \"virtual\"");
    let machine = Machine::parse(&virtual_index).unwrap();
    assert!(EmulatedCaches::new(&machine, 1).is_err());
}

/// The kernel says that a processor runs a process.
fn process(cpu: u32, pid: u64) -> Vec<LabWord> {
    let place = |digit: usize| {
        let down = u32::try_from(digit).unwrap() * DIGIT_BITS;
        let value = (pid >> down) & ((1 << DIGIT_BITS) - 1);
        0x8000 + DIGITS_AT + (((digit as u64) << DIGIT_BITS) + value) * 8
    };
    (0..DIGITS).map(|digit| LabWord::access(cpu, place(digit), 3, true, true)).collect()
}

/// Caches with a PMU.
fn watched() -> EmulatedCaches {
    let mut caches = caches();
    caches.with_pmu(&Machine::parse(MACHINE).unwrap());
    caches.run(&begin());
    caches
}

/// What the file of the PMU is then.
fn written(caches: &mut EmulatedCaches, file: &mut [u64]) {
    let write = |at: usize, words: &[u64]| {
        file[at / 8..][..words.len()].copy_from_slice(words);
        Ok(())
    };
    caches.pmu().unwrap().write(write).unwrap();
}

#[test]
fn a_pmu_counts_processes_and_samples_loads() {
    let (mut caches, mut file) = (watched(), vec![0; BYTES / 8]);
    caches.run(&process(0, 300_000));
    caches.run(&process(1, 7));
    let sampled = |cpu, address| LabWord::told(cpu, LabMark::Sampled, address);
    caches.run(&[LabWord::told(0, LabMark::Instructions, 10), turn(0, 1)]);
    caches.run(&[sampled(0, 0x7f00_0040), load(0, 64), load(0, 64), sampled(1, 0x40), load(1, 64)]);
    caches.run(&[load(0, 128)]);
    let asks = [LabWord::mark(0, LabMark::Ask), load(2, 0), LabWord::mark(1, LabMark::Ask)];
    assert_eq!(caches.run(&asks), LabRequests { ended: false, asked: 2 });
    caches.run(&[LabWord::told(0, LabMark::Instructions, 5), load(0, 64)]);
    written(&mut caches, &mut file);
    let word = |at: usize| file[at / 8];
    let levels = [[4, 2], [2, 2], [0, 0], [0, 0]];
    // Two lines from memory, each 99 cycles beyond the nearest cache's one.
    let own =
        ProcessRow { pid: 300_000, instructions: 15, cycles: 15 + 2 * 99, accesses: 4, levels };
    assert_eq!(pmu_file::process(word, 300_000), Ok(Some(own)));
    let other = pmu_file::process(word, 7).unwrap().unwrap();
    assert_eq!((other.accesses, other.cycles, other.levels[1]), (1, 9, [1, 0]));
    let mut samples = Vec::new();
    assert_eq!(pmu_file::samples(word, 0, &mut samples), Ok((2, 0)));
    let source = |level: u64| 0x02 | level << 33;
    let first = SampleRow { pid: 300_000, address: 0x7f00_0040, cycles: 100, source: source(0xd) };
    let second = SampleRow { pid: 7, address: 0x40, cycles: 10, source: source(2) };
    assert_eq!(samples, [first, second]);
    let work = caches.class(1).work.unwrap();
    assert_eq!((work.instructions, work.cycles), (5, 5 + 2 * 99), "before it was another's turn");
}

#[test]
fn a_pmu_keeps_as_many_processes_and_samples_as_its_file_has() {
    let (mut caches, mut file) = (watched(), vec![0; BYTES / 8]);
    for pid in 1..=PROCESSES as u64 + 1 {
        caches.run(&process(0, pid));
        caches.run(&[load(0, 0)]);
    }
    let count = 2 * SAMPLES as u64 + 5;
    for number in 0..count {
        caches.run(&[LabWord::told(0, LabMark::Sampled, 8 + number), load(0, 0)]);
    }
    written(&mut caches, &mut file);
    let word = |at: usize| file[at / 8];
    assert_eq!(pmu_file::process(word, 1), Ok(None), "it has not run for longest");
    let last = pmu_file::process(word, PROCESSES as u64 + 1).unwrap().unwrap();
    assert_eq!(last.accesses, count + 1);
    let mut samples = Vec::new();
    let lost = count - SAMPLES as u64;
    assert_eq!(pmu_file::samples(word, 0, &mut samples), Ok((count, lost)));
    assert_eq!((samples[0].address, samples.len()), (8 + lost, SAMPLES));
}
