//! The workloads of each chapter, and the program of the thesis that each stands for. Sizes are
//! those of tables 3-1 and 4-3 where these give one; lengths follow the miss counts of table 3-4
//! as far as time allows. Workloads and sizes were frozen before any result was seen; lengths were
//! cut once, before the first result, to meet the time that the whole may take.

use serde::Serialize;

use super::made::{MadePages, MadePairs, MadeProgram, MadeSweep};
use super::variants::RomerPart;

/// A workload in one part of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RomerProgram {
    /// Its name in tables.
    pub name: String,
    /// The thesis's program that it stands for; empty if none.
    pub stands_for: &'static str,
    /// A workload as [`huepage_sim::workloads::WorkloadSpec`] reads it.
    pub spec: Option<String>,
    /// A stream made for the thesis's figures; with neither of the two it is a trace of that name.
    pub made: Option<MadeProgram>,
    /// Accesses after which it is ended.
    pub limit: u64,
    /// The same where there is little time.
    pub quick: u64,
}

const M: u64 = 1_000_000;

/// Name, which is that of the thesis's program, its stream, and accesses.
type MadeRow = (&'static str, MadeProgram, u64);

const NO_PAIRS: MadePairs = MadePairs { count: 0, share: 0 };
const NO_SWEEP: MadeSweep = MadeSweep { pages: 0, share: 0, run: 1, idle: 0 };

/// A stream for chapter 3, which has no caches: every access is a visit of a page of 4 KB.
const fn tlb(gap: u16, set: MadePages) -> MadeProgram {
    MadeProgram {
        page_bits: 12,
        gap,
        set,
        sweep: NO_SWEEP,
        pairs: [NO_PAIRS; 3],
        hold: 1,
        apart: false,
    }
}

/// So many pages at random or in order, some of them in use at a time.
const fn set(pages: usize, live: usize, turn: u32, far: u32) -> MadePages {
    MadePages { pages, live, turn, far, dwell: 1, ordered: false, holes: false, piece: 0 }
}

const fn ordered(set: MadePages) -> MadePages {
    MadePages { ordered: true, ..set }
}

/// With holes: programs of which ASAP leaves half of the misses in table 3-4.
const fn holed(set: MadePages) -> MadePages {
    MadePages { holes: true, ..set }
}

/// Table 3-1: working sets as there; instructions for a miss and misses that larger pages leave from
/// tables 3-4 and 3-5. cecil's 280 MB are left out: a run long enough to promote takes hours.
const SUPERPAGES: &[MadeRow] = &[
    ("coral", tlb(50, holed(set(8448, 192, 5_000, 32_000))), 64 * M),
    ("compress", tlb(46, set(205, 176, 20_000, 0)), 36 * M / 10),
    ("nasa7-5", tlb(32, ordered(set(589, 464, 50_000, 0))), 20 * M),
    ("nasa7-4", tlb(50, ordered(set(794, 464, 20_000, 0))), 3 * M),
    ("fpga", tlb(109, holed(set(10_650, 192, 5_000, 58_000))), 40 * M),
    ("atom", tlb(268, set(8371, 112, 730, 0)), 7 * M),
    ("fft", tlb(248, set(8294, 256, 5_000, 15_000)), 16 * M),
    ("spice", tlb(176, holed(set(819, 136, 100_000, 0))), 20 * M),
    ("gcc", tlb(2020, holed(set(358, 124, 400, 0))), M / 6),
];

/// A stream for a machine with caches.
const fn cached(
    (page_bits, gap): (u32, u16),
    (pages, live, dwell): (usize, usize, u32),
    sweep: u32,
    [coloring, bins, both]: [(usize, u32); 3],
    hold: u32,
) -> MadeProgram {
    let set = MadePages { dwell, ..set(pages, live, if pages > live { 20_000 } else { 0 }, 0) };
    let pages = if sweep > 0 { (1 << 20) >> page_bits } else { 0 };
    let sweep = MadeSweep { pages, share: sweep, run: 1 << (page_bits - 5), idle: 0 };
    let pairs = [pairs(coloring), pairs(bins), pairs(both)];
    MadeProgram { page_bits, gap, set, sweep, pairs, hold, apart: false }
}

const fn pairs((count, share): (usize, u32)) -> MadePairs {
    MadePairs { count, share }
}

/// Few pages in use, and visits to any of many: superpages never pay (section 6.4).
const fn scattered(made: MadeProgram, pages: usize, far: u32) -> MadeProgram {
    MadeProgram { set: MadePages { pages, far, turn: 0, ..made.set }, ..made }
}

/// nasa7-2 is a transform of 512 KB, as large as the L2, in strides: sweeps of a few pages more.
const NASA7_2: MadeProgram = MadeProgram {
    sweep: MadeSweep { pages: 67, share: 20_000, run: 14, idle: 9 },
    ..cached((13, 14), (3, 3, 20), 0, [(0, 0); 3], 1)
};

/// Table 4-3 but for those with a kernel: misses of the first level from table 4-4, conflicts and what
/// misses in all caches from table 4-6. Pages have 8 KB. References that the thesis's machine did not
/// cache, many of gcc-a, splot and gs, are more misses of the first level here. As long as there (table
/// 4-4), but for splot and gs, which have a third and an eighth.
const CONFLICTS: &[MadeRow] = &[
    (
        "gcc-a",
        cached((13, 8), (30, 30, 30), 2720, [(50, 640), (0, 0), (50, 1280)], 3000),
        43 * M / 10,
    ),
    (
        "gcc-b",
        cached((13, 16), (28, 28, 14), 4480, [(50, 640), (0, 0), (50, 1920)], 3000),
        145 * M / 10,
    ),
    ("cecil", cached((13, 17), (36, 36, 8), 4080, [(0, 0), (0, 0), (60, 4760)], 3000), 12 * M),
    ("doduc", cached((13, 19), (24, 24, 20), 1370, [(14, 6080), (0, 0), (2, 760)], 20_000), 15 * M),
    ("nasa7-2", NASA7_2, 148 * M / 10),
    ("nasa7-3", cached((13, 11), (6, 6, 20), 13_200, [(0, 0); 3], 1), 87 * M / 10),
    ("splot", cached((13, 6), (31, 31, 30), 2040, [(0, 0), (40, 960), (40, 1200)], 3000), 12 * M),
    ("gs", cached((13, 6), (24, 24, 20), 3840, [(0, 0), (0, 0), (100, 960)], 3000), 12 * M),
];

/// Table 6-1. The thesis draws its baselines and prints few; these are as the text has them (sections
/// 6.3 to 6.6): who has conflicts, who misses the TLB, and in whom superpages do not pay.
const COMBINED: &[MadeRow] = &[
    (
        "acrord32",
        scattered(
            cached((12, 16), (24, 24, 3), 0, [(10, 1280), (0, 0), (10, 1280)], 3000),
            1500,
            6900,
        ),
        10 * M,
    ),
    (
        "netscape",
        scattered(cached((12, 16), (24, 24, 3), 0, [(0, 0), (0, 0), (6, 640)], 3000), 1200, 9000),
        6 * M,
    ),
    (
        "photoshp",
        cached((12, 16), (900, 48, 6), 6400, [(20, 640), (0, 0), (30, 1920)], 3000),
        10 * M,
    ),
    (
        "powerpnt",
        scattered(
            cached((12, 16), (24, 24, 3), 0, [(20, 1280), (0, 0), (20, 1280)], 3000),
            1200,
            8000,
        ),
        75 * M / 10,
    ),
    (
        "winword",
        cached((12, 16), (64, 64, 4), 6400, [(30, 2500), (10, 640), (40, 6400)], 3000),
        10 * M,
    ),
    ("compress", cached((12, 16), (80, 80, 3), 5120, [(0, 0), (0, 0), (5, 320)], 3000), 10 * M),
    ("gcc", cached((12, 16), (48, 48, 8), 9600, [(60, 1280), (0, 0), (80, 2560)], 3000), 10 * M),
    ("go", cached((12, 16), (64, 64, 3), 1920, [(30, 21_760), (0, 0), (10, 1280)], 3000), 10 * M),
    ("perl", cached((12, 16), (64, 64, 6), 3200, [(40, 2560), (0, 0), (30, 1280)], 3000), 10 * M),
    (
        "vortex",
        cached((12, 16), (600, 96, 3), 6400, [(20, 1280), (0, 0), (20, 3200)], 3000),
        10 * M,
    ),
];

/// Name, program of the thesis, workload, accesses and accesses in short.
type Row = (&'static str, &'static str, &'static str, u64, u64);

/// Programs of table 4-3 that are kernels; tomcatv's arrays are as SPEC's.
const KERNELS: &[Row] = &[
    ("strawman", "strawman", "strawman", 3 * M, M),
    ("tomcatv", "tomcatv", "tomcatv:rounds=100", 12 * M, M),
];

/// The applications of figure 5-4.
const BUFFER: &[&str] = &["gcc-b", "cecil", "doduc", "tomcatv"];
/// Those of sections 5.6.2 to 5.6.4 but strawman, whose one conflict no setting leaves.
const TRIED: &[&str] =
    &["tomcatv", "gcc-a", "gcc-b", "cecil", "doduc", "nasa7-2", "nasa7-3", "splot", "gs"];

/// The two of section 6.6.3, and two with many conflicts and few.
const LATENCY: &[&str] = &["gcc", "winword", "go", "compress"];

/// Those of section 6.5.2.
const RESTS: &[&str] = &["netscape", "powerpnt", "winword", "go", "vortex"];
/// Those of table 4-8 but nasa7-6 and mpeg, of which the thesis has no baseline; gcc-b is a part of gcc1.
const ALPHA: &[&str] = &["gcc-b", "doduc", "tomcatv", "nasa7-2", "nasa7-3", "gs"];

/// The workloads of a part that tries settings, and the accesses of each if fewer than elsewhere.
const fn tried(part: RomerPart) -> (&'static [&'static str], u64) {
    match part {
        RomerPart::Buffer => (BUFFER, 2 * M),
        RomerPart::PageSizes => (TRIED, u64::MAX),
        RomerPart::Settings => (TRIED, 4 * M),
        RomerPart::Latency => (LATENCY, u64::MAX),
        RomerPart::Rests => (RESTS, u64::MAX),
        RomerPart::Alpha => (ALPHA, u64::MAX),
        RomerPart::Superpages | RomerPart::Conflicts | RomerPart::Combined => (&[], u64::MAX),
    }
}

/// Most accesses taken of a trace, and as many where there is little time: chapter 3 leaves most
/// of them out, the other parts run each under dozens of variants.
const fn traced(part: RomerPart) -> (u64, u64) {
    match part {
        RomerPart::Superpages => (40 * M, 2 * M),
        RomerPart::Combined => (15 * M, M),
        _ => (6 * M, M),
    }
}

/// The workloads of a part, traces of the given names last. A trace stands for the program of
/// the thesis that has its name, `gcc-b` and `gcc` being the same, and takes the place of a stream of
/// its name.
pub fn programs(part: RomerPart, traces: &[&str]) -> Vec<RomerProgram> {
    if part.tries_settings() {
        let (names, most) = tried(part);
        let of = programs(part.origin(), &[]).into_iter();
        let of = of.filter(|program| names.contains(&program.name.as_str()));
        let shorter =
            |program: RomerProgram| RomerProgram { limit: program.limit.min(most), ..program };
        return of.map(shorter).collect();
    }
    let (kernels, made) = match part {
        RomerPart::Superpages => (&[][..], SUPERPAGES),
        RomerPart::Combined => (&[][..], COMBINED),
        _ => (KERNELS, CONFLICTS),
    };
    let kernels = kernels.iter().map(|&(name, stands_for, spec, limit, quick)| RomerProgram {
        name: name.into(),
        stands_for,
        spec: Some(spec.into()),
        made: None,
        limit,
        quick,
    });
    let replaced = |(name, ..): &&MadeRow| traces.contains(name);
    let made = made.iter().filter(|row| !replaced(row));
    let made = made.map(|&(name, made, limit)| RomerProgram {
        name: name.into(),
        stands_for: name,
        spec: None,
        made: Some(made),
        limit,
        quick: limit.min(M),
    });
    let traced = traces.iter().map(|name| another(part, name, None));
    kernels.chain(made).chain(traced).collect()
}

/// A workload that is none of ours, or a trace; as long as a trace. Only a trace can be of a program
/// of the thesis: a workload that has the name of one is something else.
pub fn another(part: RomerPart, name: &str, spec: Option<&str>) -> RomerProgram {
    let (limit, quick) = traced(part);
    let stands_for = if spec.is_none() { stands_for(part, name) } else { "" };
    let (name, spec) = (name.to_owned(), spec.map(str::to_owned));
    RomerProgram { name, stands_for, spec, made: None, limit, quick }
}

/// The program of the thesis that a trace of this name is of.
fn stands_for(part: RomerPart, name: &str) -> &'static str {
    match (part, name) {
        (RomerPart::Superpages | RomerPart::Combined, "gcc") => "gcc",
        (RomerPart::Conflicts, "gcc") => "gcc-b",
        (RomerPart::Conflicts, "gs" | "ghostscript") => "gs",
        (RomerPart::Combined, "perl") => "perl",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Named as _;
    use huepage_sim::workloads::WorkloadSpec;

    #[test]
    fn every_workload_can_be_started_and_each_part_has_enough() {
        for part in RomerPart::all() {
            let all = programs(part, &["gcc", "gs", "perl"]);
            assert!(all.len() >= if part.tries_settings() { 4 } else { 11 }, "{part:?}");
            for program in &all {
                let sound =
                    program.spec.as_ref().is_none_or(|spec| spec.parse::<WorkloadSpec>().is_ok());
                assert!(sound && program.quick <= program.limit, "{program:?}");
            }
        }
        assert_eq!(programs(RomerPart::Superpages, &["gcc"]).last().unwrap().stands_for, "gcc");
        assert_eq!(programs(RomerPart::Conflicts, &["gs"]).last().unwrap().stands_for, "gs");
    }

    #[test]
    fn a_trace_takes_the_place_of_a_stream() {
        let all = programs(RomerPart::Conflicts, &["gs"]);
        let own: Vec<_> = all.iter().filter(|program| program.name == "gs").collect();
        assert!(own.len() == 1 && own[0].made.is_none() && own[0].spec.is_none(), "{own:?}");
    }

    #[test]
    fn only_traces_stand_for_programs_by_their_name() {
        for (part, name) in [
            (RomerPart::Superpages, "gcc"),
            (RomerPart::Conflicts, "gs"),
            (RomerPart::Combined, "perl"),
        ] {
            assert_eq!(another(part, name, None).stands_for, name);
            assert_eq!(another(part, name, Some("gups")).stands_for, "");
        }
    }
}
