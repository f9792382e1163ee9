//! What an emulated or recorded PMU tells, as 2 MiB of memory or of a file (docs/reference/pmu-file.md): counts
//! of each process, and samples of loads. One side writes ([`ProcessRow::words`], [`SampleRow::words`]), the other reads
//! words one by one, while they may change below it. Nothing that is read is trusted: whatever the words are,
//! reading ends, and what it gives is of the number and kind that it says.

use std::fmt;

/// Bytes of the whole.
pub const BYTES: usize = 2 << 20;
/// What it begins with.
pub const MAGIC: u64 = u64::from_le_bytes(*b"HUEPMU1\n");
/// Where a number is that is odd while anything is written, and another one after that.
pub const CHANGES_AT: usize = 8;
/// Where the number of samples ever written is.
pub const WRITTEN_AT: usize = 16;
/// Where the rows of processes begin.
pub const PROCESSES_AT: usize = 4096;
/// Rows of processes.
pub const PROCESSES: usize = 480;
/// Where the ring of samples begins: sample N is in place N modulo [`SAMPLES`].
pub const SAMPLES_AT: usize = 1 << 20;
/// Samples that the ring holds.
pub const SAMPLES: usize = (BYTES - SAMPLES_AT) / SampleRow::BYTES;
/// Levels of caches that are told of.
pub const LEVELS: usize = 4;

/// Looks at something that changes meanwhile, after which the reader gives up.
const PATIENCE: usize = 10_000;

/// Why nothing can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PmuFileError {
    /// It does not begin so.
    Other,
    /// It is always being written.
    Restless,
}

impl fmt::Display for PmuFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PmuFileError::Other => "it does not begin as files of a PMU do",
            PmuFileError::Restless => "it is never at rest",
        })
    }
}

impl std::error::Error for PmuFileError {}

/// Counts of a process since it is told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessRow {
    /// Its number; 0: nobody's row.
    pub pid: u64,
    /// Instructions in user mode.
    pub instructions: u64,
    /// Cycles that they took.
    pub cycles: u64,
    /// Loads and stores.
    pub accesses: u64,
    /// At each level, the first first: lines asked for, and those not found.
    pub levels: [[u64; 2]; LEVELS],
}

impl ProcessRow {
    /// Bytes of a row.
    pub const BYTES: usize = 128;

    /// As they are written, from the first word of the row on.
    pub fn words(&self) -> [u64; 12] {
        let mut words = [0; 12];
        words[..4].copy_from_slice(&[self.pid, self.instructions, self.cycles, self.accesses]);
        words[4..].copy_from_slice(self.levels.as_flattened());
        words
    }

    fn read(word: impl Fn(usize) -> u64, row: usize) -> ProcessRow {
        let at = |n: usize| word(PROCESSES_AT + row * Self::BYTES + n * 8);
        let level = |level: usize| [at(4 + level * 2), at(5 + level * 2)];
        ProcessRow {
            pid: at(0),
            instructions: at(1),
            cycles: at(2),
            accesses: at(3),
            levels: std::array::from_fn(level),
        }
    }
}

/// A load that was sampled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleRow {
    /// The process.
    pub pid: u64,
    /// The address, as the process has it.
    pub address: u64,
    /// Cycles until the data came.
    pub cycles: u64,
    /// Who answered, as `perf_mem_data_src` of the kernel has it.
    pub source: u64,
}

impl SampleRow {
    /// Bytes of a sample.
    pub const BYTES: usize = 32;

    /// As they are written.
    pub const fn words(&self) -> [u64; 4] {
        [self.pid, self.address, self.cycles, self.source]
    }

    fn read(word: impl Fn(usize) -> u64, number: u64) -> SampleRow {
        let at = |n: usize| word(sample_at(number) + n * 8);
        SampleRow { pid: at(0), address: at(1), cycles: at(2), source: at(3) }
    }
}

/// Where a sample is written.
#[expect(clippy::cast_possible_truncation, reason = "a remainder")]
pub const fn sample_at(number: u64) -> usize {
    SAMPLES_AT + (number % SAMPLES as u64) as usize * SampleRow::BYTES
}

/// Where the row of a process is written.
pub const fn process_at(row: usize) -> usize {
    PROCESSES_AT + row * ProcessRow::BYTES
}

/// Whether it is such a file at all. `word` gives 64 bits at a place below [`BYTES`].
///
/// # Errors
/// When it is not.
pub fn check(word: impl Fn(usize) -> u64) -> Result<(), PmuFileError> {
    if word(0) == MAGIC { Ok(()) } else { Err(PmuFileError::Other) }
}

/// The counts of a process; `None` if it is not told of.
///
/// # Errors
/// When it is never at rest.
pub fn process(word: impl Fn(usize) -> u64, pid: u64) -> Result<Option<ProcessRow>, PmuFileError> {
    at_rest(&word, || {
        let own = (0..PROCESSES).find(|row| word(process_at(*row)) == pid && pid != 0);
        own.map(|row| ProcessRow::read(&word, row))
    })
}

/// Appends the samples from number `from` on; the number of the next one, and how many were lost: at most
/// [`SAMPLES`] are kept. If fewer were written than that, somebody began anew, and so does the reader.
///
/// # Errors
/// When it is never at rest.
pub fn samples(
    word: impl Fn(usize) -> u64,
    from: u64,
    out: &mut Vec<SampleRow>,
) -> Result<(u64, u64), PmuFileError> {
    let before = out.len();
    at_rest(&word, || {
        out.truncate(before);
        let written = word(WRITTEN_AT);
        let from = if written < from { 0 } else { from };
        let first = from.max(written.saturating_sub(SAMPLES as u64));
        out.extend((first..written).map(|number| SampleRow::read(&word, number)));
        (written, first - from)
    })
}

/// What is read while nothing was written.
fn at_rest<T>(
    word: &impl Fn(usize) -> u64,
    mut read: impl FnMut() -> T,
) -> Result<T, PmuFileError> {
    for _ in 0..PATIENCE {
        let before = word(CHANGES_AT);
        if before.is_multiple_of(2) {
            let found = read();
            if word(CHANGES_AT) == before {
                return Ok(found);
            }
        }
        std::hint::spin_loop();
    }
    Err(PmuFileError::Restless)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A file of zeroes, but for what is put in.
    fn file(parts: &[(usize, &[u64])]) -> Vec<u64> {
        let mut words = vec![0; BYTES / 8];
        words[0] = MAGIC;
        for (at, part) in parts {
            words[at / 8..][..part.len()].copy_from_slice(part);
        }
        words
    }

    fn row() -> ProcessRow {
        let levels = [[90, 40], [40, 10], [10, 2], [0, 0]];
        ProcessRow { pid: 77, instructions: 300, cycles: 900, accesses: 90, levels }
    }

    #[test]
    fn what_was_written_is_read() {
        let one = SampleRow { pid: 77, address: 0x7f00_1234, cycles: 300, source: 9 };
        let last = SAMPLES as u64 + 1;
        let words = file(&[
            (CHANGES_AT, &[4, last]),
            (process_at(PROCESSES - 1), &row().words()),
            (sample_at(last - 1), &one.words()),
        ]);
        let word = |at: usize| words[at / 8];
        assert_eq!(check(word), Ok(()));
        assert_eq!(process(word, 77), Ok(Some(row())));
        assert_eq!((process(word, 78), process(word, 0)), (Ok(None), Ok(None)));
        let mut found = Vec::new();
        assert_eq!(samples(word, last - 1, &mut found), Ok((last, 0)));
        assert_eq!(found, [one]);
        assert_eq!(samples(word, last, &mut found), Ok((last, 0)));
        assert_eq!((samples(word, 0, &mut found), found.len()), (Ok((last, 1)), 1 + SAMPLES));
        assert_eq!(samples(word, last + 1, &mut found), Ok((last, 1)), "somebody began anew");
    }

    #[test]
    fn places_do_not_overlap() {
        let ends = [process_at(PROCESSES), sample_at(SAMPLES as u64 - 1) + SampleRow::BYTES];
        assert!(ends[0] <= SAMPLES_AT && ends[1] == BYTES, "{ends:?}");
        assert!(row().words().len() * 8 <= ProcessRow::BYTES);
    }

    #[test]
    fn what_changes_is_read_again_and_not_for_ever() {
        let words = file(&[(CHANGES_AT, &[7]), (process_at(0), &row().words())]);
        assert_eq!(process(|at| words[at / 8], 77), Err(PmuFileError::Restless));
        let looks = Cell::new(0);
        let busy = |at: usize| match at {
            CHANGES_AT => {
                looks.set(looks.get() + 1);
                looks.get().min(5) * 2
            }
            _ => words[at / 8],
        };
        assert_eq!((process(busy, 77), looks.get()), (Ok(Some(row())), 6));
    }

    #[test]
    fn damaged_files_are_survived() {
        assert_eq!(check(|_| 0), Err(PmuFileError::Other));
        let mut state = 1_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state
        };
        for _ in 0..20 {
            let words: Vec<u64> = (0..BYTES / 8).map(|_| next() | next() << 32).collect();
            let word = |at: usize| if at == CHANGES_AT { 0 } else { words[at / 8] };
            let mut found = Vec::new();
            let (next, lost) = samples(word, 5, &mut found).unwrap();
            assert!(found.len() <= SAMPLES && next - lost >= found.len() as u64);
            let _ = process(word, words[PROCESSES_AT / 8]).unwrap();
        }
        let most = file(&[(WRITTEN_AT, &[u64::MAX])]);
        let (mut found, all) = (Vec::new(), u64::MAX);
        let read = samples(|at| most[at / 8], 0, &mut found);
        assert_eq!((read, found.len()), (Ok((all, all - SAMPLES as u64)), SAMPLES));
    }
}
