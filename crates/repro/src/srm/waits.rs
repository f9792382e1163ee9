//! What programs wait for on the machines of the paper. It says nothing of that; what is here was fitted to
//! its figures on Linux without colours, and to nothing else: table `fit` has
//! them beside ours. A share is in percent of what a line takes; the rest a core hides by going on.

use std::fmt::Write as _;

use huepage_sim::system::MemoryWait;

use super::place::PaperMachine;
use super::programs::SrmProgram;

/// What was fitted for a machine.
struct Waits {
    /// Cycles for a line on the bus: how much slower scans are beside joins (figure 8).
    bus: u64,
    /// Share of a hit in a cache beyond the nearest.
    caches: u64,
    /// Share of a line of a file.
    files: u64,
    /// Shares of a line of process memory; all of it for programs that are not here.
    memory: &'static [(&'static str, u64)],
}

/// mergesort: figure 2; hash joins: figure 8; the others one share for the mean of figure 10. For
/// queries of TPC-H the text has no slowdown on Linux but that it is below the 42 % of hash joins
/// and above the 7 to 10 points that SRM-buffer takes away: Q7 beside Q6 was fitted to 25.
const XEON: Waits = Waits {
    bus: 44,
    caches: 100,
    files: 10,
    memory: &[
        ("mergesort", 22),
        ("fft", 16),
        ("spmv", 16),
        ("lu", 16),
        ("join", 88),
        ("query", 40),
    ],
};

/// Hash joins: figure 8; MM: figures 12 and 13; LU: figure 13; FFT between them; sort: blocks of
/// 0.5 MiB in section 4.7.
const CORE_I7: Waits = Waits {
    bus: 27,
    caches: 20,
    files: 5,
    memory: &[("fft", 25), ("spmv", 22), ("lu", 31), ("join", 72), ("sort", 55)],
};

/// Fitted to nothing: cores as those of the Core i7 (section 4.7), and four channels to memory for two.
const XEON_7560: Waits = Waits { bus: 14, ..CORE_I7 };

const fn of(place: PaperMachine) -> &'static Waits {
    match place {
        PaperMachine::Xeon => &XEON,
        PaperMachine::CoreI7 => &CORE_I7,
        PaperMachine::Xeon7560 => &XEON_7560,
    }
}

/// Cycles for a line on the bus to memory.
pub const fn bus(place: PaperMachine) -> u64 {
    of(place).bus
}

/// Share of a line of a file that programs wait for, in percent.
pub const fn files(place: PaperMachine) -> u64 {
    of(place).files
}

/// What a program waits for. Of traces nothing is known, and they wait for all.
pub fn wait(place: PaperMachine, program: &SrmProgram) -> MemoryWait {
    if program.spec.is_none() {
        return MemoryWait::default();
    }
    let Waits { caches, files, memory, .. } = *of(place);
    let kernel = program.name.split(' ').next().unwrap_or_default();
    let share = memory.iter().find(|(name, _)| *name == kernel).map_or(100, |(_, share)| *share);
    MemoryWait { caches, memory: share, files }
}

/// All of it, as Markdown.
pub fn table() -> String {
    let mut text = String::from(
        "| | bus, cycles for a line | wait for a line of a cache | of a file | of memory |\n\
         |---|---:|---:|---:|---|\n",
    );
    for place in [PaperMachine::Xeon, PaperMachine::CoreI7, PaperMachine::Xeon7560] {
        let Waits { bus, caches, files, memory } = of(place);
        let shares = memory.iter().map(|(name, share)| format!("{name} {share} %"));
        let shares = shares.collect::<Vec<_>>().join(", ");
        let name = place.text();
        let _ =
            writeln!(text, "| {name} | {bus} | {caches} % | {files} % | {shares}, others 100 % |");
    }
    text
}
