//! A library of programs that run natively or as traces, from one source each. A kernel is
//! generic over [`ProgramMemory`]: with [`Native`] it is an ordinary program, with [`Traced`] every
//! access goes to a sink as it happens, and both end with the same checksum. The same size,
//! seed and rounds give the same accesses everywhere.
//!
//! [`all`] lists them; [`WorkloadSpec`] reads `art:size=3M,seed=7`. Which of the papers' programs a
//! kernel stands for, and why its accesses are alike, is said where it is defined. Default
//! sizes are those of the papers where they give one; the comments in the registry say when not.

pub mod art;
pub mod compress;
pub mod database;
pub mod dense;
pub mod fft;
pub mod file;
pub mod file_access;
pub mod memory;
pub mod mesh;
pub mod multigrid;
pub mod placement;
pub mod scans;
pub mod sort;
pub mod sparse;
mod stream;
pub mod walks;

use std::fmt;
use std::str::FromStr;

pub use file_access::{FileAccess, FileNumber, FileOp};
pub use memory::{AccessSink, Array, MemoryWord, Native, ProgramMemory, Traced};
pub use stream::{RecordBlock, WorkloadStream};

use crate::bytes::Bytes;

/// The smallest size that any workload takes: 16 KiB.
pub const SMALLEST: u64 = 16 << 10;
/// The largest product of size and rounds: 2^44 bytes, days of running.
const MOST_WORK: u128 = 1 << 44;

/// What a kernel is run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Bytes of its data, or of its files; each kernel says which.
    pub size: usize,
    /// What its data and its choices follow from.
    pub seed: u64,
    /// How often it does what it does; each kernel says what a round is.
    pub rounds: usize,
}

/// A kernel and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a few words.
    pub summary: &'static str,
    /// The program of the papers that it stands for, with the place.
    pub stands_for: &'static str,
    /// Default size in bytes.
    pub size: u64,
    /// Default rounds.
    pub rounds: usize,
    /// Largest size in bytes.
    pub largest: u64,
}

/// Memory that kernels can be told to use at most.
const MEMORY: u64 = 16 << 30;
/// Trees of files that have numbers for all.
const TREE: u64 = 512 << 20;
/// Room that a file has.
const FILE: u64 = 1 << 30;

macro_rules! registry {
    ($($name:literal, $kernel:path, $size:expr, $rounds:expr, $largest:expr,
       $summary:literal, $stands_for:literal;)*) => {
        static ALL: &[Workload] = &[$(Workload {
            name: $name,
            summary: $summary,
            stands_for: $stands_for,
            size: $size,
            rounds: $rounds,
            largest: $largest,
        }),*];

        fn dispatch<M: ProgramMemory>(workload: &Workload, m: &mut M, p: &Parameters) -> u64 {
            match workload.name {
                $($name => $kernel(m, p),)*
                name => unreachable!("{name} is not in the registry"),
            }
        }
    };
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const PAGE: u64 = 4096;

registry! {
    // No paper gives a size: eight times the last level of COLORIS's Xeon E5506.
    "sequential", walks::sequential, 32 * MIB, 4, MEMORY,
        "one array from start to end", "libquantum (COLORIS 4.5, Scolari table III)";
    // As large as the last level of COLORIS's Xeon E5506: every colour taken away shows.
    "random", walks::random, 4 * MIB, 20, MEMORY,
        "independent loads anywhere in an array", "omnetpp (COLORIS 4.3)";
    // The paper gives no size: fitted to its miss rates.
    "events", walks::events, 16 * MIB, 4, MEMORY,
        "a wheel of events, modules anywhere, some busy", "omnetpp (COLORIS 4.2, 4.3)";
    "chase", walks::chase, 4 * MIB, 100, MEMORY,
        "a cycle of pointers through all lines", "mcf (ROCS table 2)";
    // A power of two above the 41.6 MB of fpga.
    "gups", walks::gups, 64 * MIB, 1, MEMORY,
        "updates of random words", "fpga (Romer table 3-1)";
    "stream", walks::stream, 48 * MIB, 2, MEMORY,
        "copy, scale, add, triad over three arrays", "lbm, milc (COLORIS table 1)";
    // The direct-mapped L2 of Romer table 4-2; the 2,657,000 loads and stores of table 4-4.
    "strawman", walks::strawman, 512 * KIB, 1297, MEMORY,
        "two pages that conflict, in turn", "strawman (Romer table 4-3)";
    // Three matrices of 256 x 256.
    "matmul", dense::product, 1536 * KIB, 1, MEMORY,
        "product of dense matrices", "the textbook; of the papers' programs none";
    // The paper gives no size: half the L2 of its Xeon 5355.
    "lu", dense::lu, 2 * MIB, 1, MEMORY,
        "LU factors with pivoting", "LU of SciMark2 (SRM-buffer 4.3)";
    // The thesis gives no size: twice the L2 of its table 4-2.
    "cholesky", dense::cholesky, MIB, 1, MEMORY,
        "Cholesky factor", "nasa7-3 (Romer table 4-3)";
    "gauss", dense::gauss, 3800 * KIB, 1, MEMORY,
        "Gaussian elimination down the columns", "nasa7-5 (Romer table 3-1)";
    // The 75,000 rows of class B.
    "spmv-near", sparse::near_product, 10_500_000, 20, MEMORY,
        "the same with half of the elements beside the diagonal", "CG (ROCS table 2)";
    "spmv", sparse::product, 3 * MIB, 20, MEMORY,
        "compressed-row matrix times vector", "MM of SciMark2 (SRM-buffer 4.3)";
    "block-tridiagonal", sparse::block_tridiagonal, 3100 * KIB, 10, MEMORY,
        "systems of 5 x 5 blocks, in step", "nasa7-4 (Romer table 3-1)";
    "fft", fft::transform, 32 * MIB, 1, MEMORY,
        "Fourier transform there and back", "fft, nasa7-2 (Romer 3-1, 4-3), FFT (SRM-buffer 4.3)";
    // The thesis gives no size: seven arrays of 257 x 257 as in SPEC92.
    "tomcatv", mesh::tomcatv, 7 * 8 * 257 * 257, 20, MEMORY,
        "seven arrays of a curved mesh", "tomcatv (Romer table 4-3)";
    "swim", mesh::swim, 45_490 * PAGE, 2, MEMORY,
        "thirteen arrays of shallow water", "swim (ROCS table 3, 6.4)";
    "layers", mesh::layers, 13 * 33 * 56 * 56 * 8, 20, MEMORY,
        "fields of an atmosphere, layer by layer", "apsi (ROCS table 2)";
    "mgrid", multigrid::mgrid, 14_433 * PAGE, 1, MEMORY,
        "27-point stencils on grids of all sizes", "mgrid (ROCS table 3)";
    // 500 pages of weights, 160 of neurons, and an image.
    "art", art::art, 865 * PAGE, 20, MEMORY,
        "streams of weights around one layer of neurons", "art (ROCS 3.2.2, 6.3)";
    "twolf", placement::anneal, 1530 * PAGE, 1, MEMORY,
        "annealed placement of cells", "twolf (ROCS table 3)";
    "vpr", placement::anneal, 812 * PAGE, 2, MEMORY,
        "annealed placement of fewer cells", "vpr (ROCS table 3)";
    "mergesort", sort::mergesort, 3 * MIB, 4, MEMORY,
        "records of 64 bytes in a two-way merge", "mergesort (SRM-buffer 2)";
    // 100,000 records of 256 bytes; a thirtieth of the paper's fact table.
    "hash-join", database::hash_join, 100_000 * 256, 10, MEMORY,
        "probes of a hash table beside a scan", "hash joins (SRM-buffer 4.2)";
    // Blocks of a file of 32 MiB.
    "sort-file", sort::sort_file, 512 * KIB, 64, FILE,
        "the records of a file, sorted block by block", "sorting files (SRM-buffer 4.7)";
    // A fifth of the table is selected: 24,000 customers of two nations of 25, at TPC-H's scale 2.
    "multi-join", database::multi_join, 120_000 * 256, 10, MEMORY,
        "joins of three tables, an index and a sort", "TPC-H's Q5 to Q18 (SRM-buffer 4.2)";
    // A thirty-second of the paper's table.
    "table-scan", database::table_scan, 128 * MIB, 1, MEMORY,
        "sums over a table of records", "sequential scans (SRM-buffer 4.2)";
    "btree", database::btree, 33 * MIB, 4, MEMORY,
        "look-ups in a B-tree", "coral (Romer table 3-1), index scans (SRM-buffer 4.2)";
    "grep", scans::grep, 100 * MIB, 1, TREE,
        "a word in a tree of files", "grep (SRM-buffer 4.3)";
    "tar", scans::tar, 100 * MIB, 1, TREE,
        "a tree of files into one", "tar (SRM-buffer 4.3)";
    "diff", scans::diff, 200 * MIB, 1, TREE,
        "two equal trees in the order of names", "diff (SRM-buffer 4.4)";
    // 1,000 files of 256 KiB on average.
    "postmark", scans::postmark, 250 * MIB, 5, 8 << 30,
        "small files come, grow and go", "PostMark (SRM-buffer 4.3, 4.5)";
    "compress", compress::compress, 977 * KIB, 5, 512 * MIB,
        "a hash table probed for every byte of a file", "compress (Romer tables 3-1, 6-1)";
    // 445 rows: a third of ROCS's 45,490 pages.
    "swim-across", mesh::swim_across, 13 * 445 * 1335 * 8, 20, MEMORY,
        "shallow water, filtered across its rows", "swim (ROCS table 2, 6.4)";
    // 1,335 rows of about half the points: of 678 the page-table entries of a column are spread over the
    // sets of ROCS's L2 as they are of 1,335, four fifths of them in sets that have room for all of theirs.
    "swim-sums", mesh::swim_sums, 13 * 678 * 1335 * 8, 20, MEMORY,
        "shallow water, summed down its columns", "swim (ROCS table 2, 6.4)";
    // The kernel's sources of that time, unpacked.
    "grep-file", scans::grep_file, 400 * MIB, 1, FILE,
        "a word in one large file", "grep of a tarball (SRM-buffer 2)";
    "random-reader", scans::random_reader, 512 * MIB, 1, FILE,
        "blocks of a file at random", "the random reader (SRM-buffer 4.5)";
    // On the Xeon 5355.
    "rescan", scans::rescan, 3481 * KIB, 100, FILE,
        "one file from start to end again and again", "the repeated scan (SRM-buffer 4.5)";
}

/// Every workload, in the order of the registry.
pub fn all() -> &'static [Workload] {
    ALL
}

/// The workload of a name.
pub fn find(name: &str) -> Option<&'static Workload> {
    ALL.iter().find(|workload| workload.name == name)
}

/// Runs a workload of a name as a trace with its default rounds; gives its checksum. To set
/// the rounds or to run natively, see [`WorkloadSpec`].
///
/// # Errors
/// When there is none of that name, or the size is not for it.
pub fn run(
    name: &str,
    size: u64,
    seed: u64,
    sink: &mut dyn AccessSink,
) -> Result<u64, WorkloadSpecError> {
    let workload = find(name).ok_or_else(|| WorkloadSpecError::Unknown { name: name.into() })?;
    Ok(WorkloadSpec::new(workload, size, seed, workload.rounds)?.run(sink))
}

/// A workload and its parameters, as `art:size=3M,rounds=2,seed=7`; what is left out has its
/// default (seed 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadSpec {
    workload: &'static Workload,
    parameters: Parameters,
}

/// Why a text names no workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WorkloadSpecError {
    /// No such name.
    #[error("`{}` is not a workload; choose one of {}", .name.escape_debug(), names())]
    Unknown {
        /// What was written.
        name: String,
    },
    /// Something after the colon that is not a parameter.
    #[error(
        "`{}` is not a parameter; write `size=3M`, `rounds=2` or `seed=7`, with commas between",
        .text.escape_debug()
    )]
    Parameter {
        /// What was written.
        text: String,
    },
    /// A size it cannot have.
    #[error("{name} cannot have {size} bytes; give {SMALLEST} to {largest}")]
    Size {
        /// The workload.
        name: &'static str,
        /// What was asked for.
        size: u64,
        /// The most it can have.
        largest: u64,
    },
    /// Rounds it cannot have.
    #[error("{rounds} rounds of {size} bytes; give at least 1, and at most 2^44 bytes in all")]
    Rounds {
        /// What was asked for.
        rounds: usize,
        /// Bytes of a round.
        size: u64,
    },
}

fn names() -> String {
    ALL.iter().map(|workload| workload.name).collect::<Vec<_>>().join(", ")
}

impl WorkloadSpec {
    /// A workload with all parameters given: bytes, seed and rounds.
    ///
    /// # Errors
    /// `Size` or `Rounds` out of range.
    pub fn new(
        workload: &'static Workload,
        size: u64,
        seed: u64,
        rounds: usize,
    ) -> Result<WorkloadSpec, WorkloadSpecError> {
        let (name, largest) = (workload.name, workload.largest);
        let fits = usize::try_from(size).ok();
        let fits = fits.filter(|_| (SMALLEST..=largest).contains(&size));
        let Some(bytes) = fits else { return Err(WorkloadSpecError::Size { name, size, largest }) };
        if rounds == 0 || u128::from(size) * rounds as u128 > MOST_WORK {
            return Err(WorkloadSpecError::Rounds { rounds, size });
        }
        Ok(WorkloadSpec { workload, parameters: Parameters { size: bytes, seed, rounds } })
    }

    /// What is run.
    pub const fn workload(&self) -> &'static Workload {
        self.workload
    }

    /// With what.
    pub const fn parameters(&self) -> Parameters {
        self.parameters
    }

    /// Runs it as a trace that goes to `sink` as it happens; gives its checksum. All sinks share what is compiled
    /// for it, since each kind of memory takes seconds; who simulates takes [`Self::run_in`], which is faster.
    pub fn run(&self, sink: &mut dyn AccessSink) -> u64 {
        dispatch(self.workload, &mut Traced::new(sink), &self.parameters)
    }

    /// Runs it for its system calls on files alone, in a small part of the time: no access is
    /// told and no text is made, so that buffers hold zeros and what it computes means nothing.
    /// The calls are the same where a kernel does not choose them by what it reads, as the programs
    /// of [`scans`] and the scans of [`database`] do not.
    pub fn run_files(&self, note: &mut dyn FnMut(FileAccess)) {
        dispatch(self.workload, &mut memory::Calls(note), &self.parameters);
    }

    /// Runs it in memory of the caller's own; gives its checksum, the same as [`Self::run`].
    pub fn run_in(&self, memory: &mut impl ProgramMemory) -> u64 {
        dispatch(self.workload, memory, &self.parameters)
    }

    /// Runs it as a program and nothing else; gives its checksum, the same as [`Self::run`].
    pub fn run_native(&self) -> u64 {
        dispatch(self.workload, &mut Native, &self.parameters)
    }
}

impl fmt::Display for WorkloadSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Parameters { size, seed, rounds } = self.parameters;
        write!(f, "{}:size={size},rounds={rounds},seed={seed}", self.workload.name)
    }
}

impl FromStr for WorkloadSpec {
    type Err = WorkloadSpecError;

    fn from_str(text: &str) -> Result<WorkloadSpec, WorkloadSpecError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let workload =
            find(name).ok_or_else(|| WorkloadSpecError::Unknown { name: name.into() })?;
        let (mut size, mut seed, mut rounds) = (workload.size, 1, workload.rounds);
        for part in rest.split(',').filter(|part| !part.is_empty()) {
            let wrong = || WorkloadSpecError::Parameter { text: part.into() };
            match part.split_once('=').ok_or_else(wrong)? {
                ("size", value) => size = Bytes::parse(value).map_err(|_| wrong())?.0,
                ("seed", value) => seed = value.parse().map_err(|_| wrong())?,
                ("rounds", value) => rounds = value.parse().map_err(|_| wrong())?,
                _ => return Err(wrong()),
            }
        }
        WorkloadSpec::new(workload, size, seed, rounds)
    }
}
