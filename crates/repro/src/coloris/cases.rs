//! What is run together under what: the configurations of section 4 and ours. Nothing is run
//! here. Times are in cycles and scaled down, since hours cannot be simulated: a period of the
//! monitor is 8 million cycles where the paper's 5 s are 10^10, and a millisecond of WIN is
//! 200,000 where it is two million.

use huepage_policy::coloris::{Bounds, Growth};
use serde::Serialize;

use super::programs::{ColorisProgram, PROGRAMS};
use crate::engine::Named;

/// Which experiment of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColorisPart {
    /// Section 4.1 and figure 6: one program alone on the Xeon E5506, on frames of several allocators and
    /// with scans of its page table.
    Allocator,
    /// Section 4.2: one program beside three on the Xeon E5506.
    Isolation,
    /// Section 4.3: partitions that change.
    Recoloring,
    /// Section 4.4: two programs on each core.
    Overcommitted,
    /// Section 4.5: one program beside another on the two slices of the Core i3-2100.
    Slices,
    /// Programs nobody here wrote, from traces; not in the paper.
    Real,
}

impl Named for ColorisPart {
    const ALL: &'static [(ColorisPart, &'static str)] = &[
        (ColorisPart::Allocator, "allocator"),
        (ColorisPart::Isolation, "isolation"),
        (ColorisPart::Recoloring, "recoloring"),
        (ColorisPart::Overcommitted, "overcommitted"),
        (ColorisPart::Slices, "slices"),
        (ColorisPart::Real, "real"),
    ];
}

/// Who gets which colours.
#[derive(Clone, Debug, PartialEq)]
pub enum Placing {
    /// Frames at random for everybody, as without page colouring.
    Shared,
    /// The lowest free frames for everybody, as of a buddy allocator that nothing has fragmented.
    InOrder,
    /// All colours for everybody, in turns.
    All,
    /// To each core its section.
    Sections,
    /// The paper's manager.
    Manager {
        /// For programs without their own.
        thresholds: Bounds,
        /// How new colours are filled.
        growth: Growth,
    },
    /// Ours.
    Utility,
}

/// The one thing that an experiment does not do as the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColorisChange {
    /// None.
    Nothing,
    /// A core waits for an eighth of what the last cache, memory and walks of page tables take.
    Overlapped,
    /// gobmk has a HighThreshold of its own.
    OwnThreshold,
    /// povray has the place of sphinx3, in turns with gobmk, and sphinx3 that of povray.
    OtherMate,
    /// Both: povray takes turns with gobmk, which has thresholds of its own.
    OtherMateOwnThreshold,
    /// Miss rates do not count while pages of a change are on their way.
    LateReadings,
    /// Utility gives no program fewer than 8 colours, with which it has all of its L2.
    UtilityL2,
    /// Frames at random in blocks.
    Blocks,
    /// The scans are of mcf, too, whose memory is the largest.
    Mcf,
}

impl Named for ColorisChange {
    const ALL: &'static [(ColorisChange, &'static str)] = &[
        (ColorisChange::Nothing, "nothing"),
        (ColorisChange::Overlapped, "processors that wait for an eighth of what is beyond the L2"),
        (ColorisChange::OwnThreshold, "over-committed, a HighThreshold of 10 % for gobmk"),
        (ColorisChange::OtherMate, "over-committed, gobmk in turns with povray, not with sphinx3"),
        (
            ColorisChange::OtherMateOwnThreshold,
            "over-committed, gobmk in turns with povray, with a HighThreshold of 10 %",
        ),
        (ColorisChange::LateReadings, "miss rates that count once a change is over"),
        (ColorisChange::UtilityL2, "Utility, no program below 8 colours"),
        (ColorisChange::Blocks, "frames at random in blocks of 256 KB"),
        (ColorisChange::Mcf, "scans of a program with mcf's memory"),
    ];
}

impl ColorisChange {
    /// All that change something.
    pub fn experiments() -> impl Iterator<Item = ColorisChange> {
        ColorisChange::all().filter(|change| *change != ColorisChange::Nothing)
    }

    /// Why that, for a page.
    pub const fn reason(self) -> &'static str {
        match self {
            ColorisChange::Nothing => "",
            ColorisChange::Overlapped => {
                "The simulated cores stand still for the whole of every miss. The paper's go on: gamess loses 3 % of \
                 its instructions in a quarter of its colours there (C4 in table 3), and 14 % here. So a program that \
                 gives up colours costs more here than omnetpp gains. Instructions between omnetpp's accesses \
                 are fitted anew to its share in C3; nothing else is. The eighth is our choice. One seed."
            }
            ColorisChange::OwnThreshold
            | ColorisChange::OtherMate
            | ColorisChange::OtherMateOwnThreshold => self.reason_in_turns(),
            ColorisChange::Blocks | ColorisChange::Mcf => self.reason_alone(),
            ColorisChange::LateReadings => {
                "PERIOD is scaled and pages are not. What Redistribution moves when omnetpp grows takes about a \
                 period by estimate (pages of table 4, 5,000 cycles each), in the paper less than a hundredth of one. So omnetpp calls for colours by misses of the \
                 move: it takes more than it needs, or leaves some to nobody (the paper's assignments have 64 colours \
                 in all, ours at times 60). Here a program is not looked at for four periods after a change, and runs \
                 are 400 million cycles. One seed."
            }
            ColorisChange::UtilityL2 => {
                "Utility goes by curves of the last cache, which say nothing of the private L2. Its eight colours are \
                 colours of the last cache, too: a program with four has half of its L2. So Utility sells colours \
                 below what they are worth. Here it leaves each program eight; the paper's policies have UNIT as \
                 above. One seed."
            }
        }
    }

    /// The same of those in which a program is alone.
    const fn reason_alone(self) -> &'static str {
        match self {
            ColorisChange::Blocks => {
                "Linux's buddy system does not hand out single frames at random: a program that asks for many pages gets \
                 them in runs, of blocks as they became free. Here half of all blocks of 64 frames, chosen at random, \
                 belong to others, and a program gets those that are left: each has all 64 colours, and those of \
                 the L2 as often. (In blocks of 16, which have the L2's alone, gobmk differs in the place of gromacs.) \
                 The half and the 64 are our choice. Means of three seeds."
            }
            ColorisChange::Mcf => {
                "A scan costs by the page, and stand-ins have 8,000 at most. Of the programs of table 1, mcf has most: \
                 SPEC's description of it says 860 MB for 32 bits, as the paper's system has. Here a program that \
                 follows pointers through that much is scanned, too; every millisecond it would come to nothing. \
                 One seed."
            }
            _ => "",
        }
    }

    /// The same of those in which two programs take turns on a core.
    const fn reason_in_turns(self) -> &'static str {
        match self {
            ColorisChange::OwnThreshold => {
                "gobmk misses in a quarter of its requests, below the HighThreshold of 75 % for all. So it keeps \
                 sixteen colours, and shares them with sphinx3, which runs on the same core in turns and streams \
                 through them. Without partitions both have all. One seed."
            }
            ColorisChange::OtherMate => {
                "A partition keeps out who runs on other cores. gobmk's worst neighbour runs on its own: sphinx3 streams \
                 through the same colours in turns with it, and through more of them without partitions. Here it \
                 changes places with povray, which fits into the L2, with and without partitions. One seed."
            }
            ColorisChange::OtherMateOwnThreshold => {
                "On top of the experiment above. In turns with povray, gobmk misses less than the LowThreshold for all, so \
                 Redistribution takes colours from it, and with them what the partition saved; a partition that stays \
                 (C8) saves it. Here gobmk has thresholds of its own as well, 0 and 10 %. One seed."
            }
            _ => "",
        }
    }
}

/// Some programs on a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ColorisCase {
    /// The experiment.
    pub part: ColorisPart,
    /// The configuration's name in the paper, or ours.
    pub config: &'static str,
    /// What recolours; empty where nothing does.
    pub policy: &'static str,
    /// Programs, their cores, and thresholds of their own. The first is the one that counts where
    /// there is a foreground.
    pub programs: Vec<(ColorisProgram, u16, Option<Bounds>)>,
    /// Who gets what.
    pub placing: Placing,
    /// For programs and frames.
    pub seed: u64,
    /// What is not as in the paper's experiment.
    pub change: ColorisChange,
}

/// Cycles of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ColorisTimes {
    /// Of the monitor.
    pub period: u64,
    /// Before anything is counted.
    pub warm_up: u64,
    /// In all.
    pub end: u64,
    /// A program's turn on its core.
    pub quantum: u64,
}

const M: u64 = 1_000_000;
/// Cycles that stand for a millisecond of WIN.
pub const WINDOW: u64 = 200_000;
/// Cycles of a millisecond at 2.13 GHz, where time is not scaled.
const MILLISECOND: u64 = 2_130_000;
/// UNIT of section 4.3.
pub const UNIT: u16 = 4;
/// Seeds of recolouring, as often as the paper repeated it.
pub const SEEDS: u64 = 3;

impl ColorisCase {
    /// Its times; those of recolouring are counted in their last third, when the paper's have
    /// long settled.
    pub const fn times(&self, quick: bool) -> ColorisTimes {
        let times = match self.part {
            // Three scans of the longest period.
            ColorisPart::Allocator => {
                let (warm_up, end) = (31 * MILLISECOND / 2, 91 * MILLISECOND / 2);
                ColorisTimes { period: 8 * M, warm_up, end, quantum: 2 * M }
            }
            ColorisPart::Isolation | ColorisPart::Slices | ColorisPart::Real => {
                ColorisTimes { period: 8 * M, warm_up: 16 * M, end: 64 * M, quantum: 2 * M }
            }
            ColorisPart::Recoloring => {
                let more = if self.rest() > 0 { 160 * M } else { 0 };
                let (warm_up, end) = (160 * M + more, 240 * M + more);
                ColorisTimes { period: 8 * M, warm_up, end, quantum: 2 * M }
            }
            // Caches are as large as the paper's and fill as slowly: a turn is not scaled. It is 9 ms, what a
            // kernel of the paper's time gives each of two programs on one of four cores.
            ColorisPart::Overcommitted => {
                ColorisTimes { period: 40 * M, warm_up: 480 * M, end: 720 * M, quantum: 19 * M }
            }
        };
        if !quick {
            return times;
        }
        let ColorisTimes { period, warm_up, end, quantum } = times;
        ColorisTimes {
            period: period / 4,
            warm_up: warm_up / 8,
            end: end / 8,
            quantum: quantum / 4,
        }
    }

    /// Periods after a change in which the paper's manager does not look at a program.
    pub const fn rest(&self) -> u32 {
        if matches!(self.change, ColorisChange::LateReadings) { 4 } else { 0 }
    }

    /// The fewest colours of a program.
    pub const fn floor(&self) -> u16 {
        if matches!(self.change, ColorisChange::UtilityL2) { 2 * UNIT } else { UNIT }
    }

    /// Cycles between scans of a page table for hot pages, where there are any. They are as long as on the
    /// paper's processor, since pages are not scaled.
    pub fn scan(&self) -> Option<u64> {
        let own = SCANS.iter().find(|(config, _)| *config == self.config);
        own.map(|(_, milliseconds)| milliseconds * MILLISECOND)
    }

    /// `C1 Redistribution`.
    pub fn name(&self) -> String {
        [self.config, self.policy].join(" ").trim_end().to_owned()
    }

    /// Its first program, where that is the one that counts.
    pub fn foreground(&self) -> Option<&str> {
        let has = !matches!(self.part, ColorisPart::Recoloring | ColorisPart::Overcommitted);
        self.programs.first().filter(|_| has).map(|(program, ..)| program.name.as_str())
    }
}

/// Selective Moving.
pub const MOVING: &str = "Selective Moving";
/// Redistribution.
pub const REDISTRIBUTION: &str = "Redistribution";
/// Ours.
pub const UTILITY: &str = "Utility";

/// Frames at random.
pub const LINUX: &str = "Linux";
/// The lowest free frames.
pub const LINUX_IN_ORDER: &str = "Linux in order";
/// All colours in turns.
pub const COLORIS: &str = "COLORIS";
/// The same with scans for hot pages, and milliseconds between them: the paper names no period.
pub const SCANS: [(&str, u64); 2] = [("every 1 ms", 1), ("every 10 ms", 10)];

/// The three programs in the foreground (section 4.2).
pub const FOREGROUND: [&str; 3] = ["omnetpp", "gobmk", "hmmer"];
/// The four programs of section 4.3.
pub const FOUR: [&str; 4] = ["povray", "tonto", "omnetpp", "gamess"];
/// The groups of section 4.4, one for each core.
pub const GROUPS: [[&str; 2]; 4] =
    [["gobmk", "sphinx3"], ["gromacs", "leslie3d"], ["h264ref", "omnetpp"], ["povray", "gamess"]];
/// Background of section 4.2: heavy, medium, light.
const BACKGROUND: [Background; 3] = [
    ("H", "H+P", &["sphinx3", "leslie3d", "libquantum"]),
    ("M", "M+P", &["leslie3d", "h264ref", "gromacs"]),
    ("L", "L+P", &["povray", "h264ref", "gromacs"]),
];
/// Background of section 4.5.
const BESIDE: [Background; 3] =
    [("H", "H+P", &["libquantum"]), ("M", "M+P", &["h264ref"]), ("L", "L+P", &["povray"])];

/// What it is called without and with partitions, and its programs.
type Background = (&'static str, &'static str, &'static [&'static str]);

/// All cases of a part; `traces` are the names of real programs, the first being the foreground.
/// With `quick`, one seed.
pub fn cases(part: ColorisPart, traces: &[&str], quick: bool) -> Vec<ColorisCase> {
    let seeds = 1..=if quick { 1 } else { SEEDS };
    match part {
        ColorisPart::Allocator => seeds.flat_map(allocators).collect(),
        ColorisPart::Isolation => foregrounds(part, &BACKGROUND),
        ColorisPart::Slices => foregrounds(part, &BESIDE),
        ColorisPart::Recoloring => {
            FOUR.iter().map(|name| full(name)).chain(seeds.flat_map(recoloring)).collect()
        }
        ColorisPart::Overcommitted => seeds.flat_map(overcommitted).collect(),
        ColorisPart::Real => real(traces),
    }
}

const NOTHING: ColorisChange = ColorisChange::Nothing;

/// The cases of an experiment, with the first seed.
pub fn changed(change: ColorisChange) -> Vec<ColorisCase> {
    let all = match change {
        ColorisChange::Nothing => Vec::new(),
        ColorisChange::Overlapped | ColorisChange::LateReadings | ColorisChange::UtilityL2 => {
            recoloring(1)
        }
        ColorisChange::Blocks => (1..=SEEDS).flat_map(allocators).collect(),
        ColorisChange::Mcf => alone_on(1, std::iter::once(ColorisProgram::mcf())),
        ColorisChange::OwnThreshold
        | ColorisChange::OtherMate
        | ColorisChange::OtherMateOwnThreshold => overcommitted(1),
    };
    let managed = |case: &ColorisCase| match change {
        ColorisChange::Overlapped
        | ColorisChange::OtherMate
        | ColorisChange::OtherMateOwnThreshold => true,
        ColorisChange::LateReadings => matches!(case.placing, Placing::Manager { .. }),
        ColorisChange::UtilityL2 => case.placing == Placing::Utility,
        ColorisChange::Blocks => case.config == LINUX,
        ColorisChange::Mcf => [COLORIS, SCANS[1].0].contains(&case.config),
        _ => matches!(case.placing, Placing::Manager { .. } | Placing::Utility),
    };
    all.into_iter().filter(managed).map(|case| with(case, change)).collect()
}

/// Instructions more at each access of omnetpp where cores wait for an eighth: fitted to table 3's C3.
const OVERLAPPED_WORK: u16 = 6;

fn with(mut case: ColorisCase, change: ColorisChange) -> ColorisCase {
    match change {
        ColorisChange::OtherMate => {
            let place = |name| case.programs.iter().position(|(program, ..)| program.name == name);
            if let (Some(one), Some(other)) = (place("sphinx3"), place("povray")) {
                let cores = (case.programs[one].1, case.programs[other].1);
                (case.programs[other].1, case.programs[one].1) = cores;
            }
        }
        ColorisChange::OtherMateOwnThreshold => {
            let case = with(with(case, ColorisChange::OtherMate), ColorisChange::OwnThreshold);
            return ColorisCase { change, ..case };
        }
        ColorisChange::Overlapped => (case.programs.iter_mut())
            .filter(|(program, ..)| program.name == "omnetpp")
            .for_each(|(program, ..)| program.work = OVERLAPPED_WORK),
        ColorisChange::OwnThreshold => (case.programs.iter_mut())
            .filter(|(program, ..)| program.name == "gobmk")
            .for_each(|(.., own)| *own = Some(both(0.0, 10.0))),
        ColorisChange::Nothing
        | ColorisChange::LateReadings
        | ColorisChange::UtilityL2
        | ColorisChange::Mcf => {}
        // Block by block.
        ColorisChange::Blocks => case.placing = Placing::InOrder,
    }
    ColorisCase { change, ..case }
}

/// A program beside others, each on a core of its own.
fn beside(
    part: ColorisPart,
    config: &'static str,
    placing: Placing,
    names: impl Iterator<Item = ColorisProgram>,
) -> ColorisCase {
    let programs = (0..).zip(names).map(|(core, program)| (program, core, None)).collect();
    ColorisCase { part, config, policy: "", programs, placing, seed: 1, change: NOTHING }
}

/// Each program of the foreground alone and beside each background.
fn foregrounds(part: ColorisPart, backgrounds: &[Background]) -> Vec<ColorisCase> {
    let of = |name: &str, config, placing, others: &[&str]| {
        let names = std::iter::once(name).chain(others.iter().copied());
        beside(part, config, placing, names.map(|name| ColorisProgram::named(name, 1)))
    };
    let all = [&[("F", "S", &[][..])][..], backgrounds].concat();
    let with = |name: &'static str| {
        let all = all.iter().flat_map(move |(plain, parted, others)| {
            [
                of(name, *plain, Placing::Shared, others),
                of(name, *parted, Placing::Sections, others),
            ]
        });
        all.collect::<Vec<_>>()
    };
    FOREGROUND.into_iter().flat_map(with).collect()
}

/// Every program alone on the frames of each allocator, and, with the first seed, with scans for hot pages.
fn allocators(seed: u64) -> Vec<ColorisCase> {
    alone_on(seed, PROGRAMS.iter().map(|(name, ..)| ColorisProgram::named(name, seed)))
}

/// The same of some programs.
fn alone_on(seed: u64, programs: impl Iterator<Item = ColorisProgram>) -> Vec<ColorisCase> {
    let own =
        [(LINUX, Placing::Shared), (LINUX_IN_ORDER, Placing::InOrder), (COLORIS, Placing::All)];
    let scans = SCANS.iter().map(|&(config, _)| (config, Placing::All)).filter(|_| seed == 1);
    let configs: Vec<_> = own.into_iter().chain(scans).collect();
    let of = |program: ColorisProgram| {
        let alone = |(config, placing): &(&'static str, Placing)| {
            let program = std::iter::once(program.clone());
            let case = beside(ColorisPart::Allocator, config, placing.clone(), program);
            ColorisCase { seed, ..case }
        };
        configs.iter().map(alone).collect::<Vec<_>>()
    };
    programs.flat_map(of).collect()
}

/// C5: alone with the whole cache.
fn full(name: &str) -> ColorisCase {
    beside(
        ColorisPart::Recoloring,
        "C5",
        Placing::All,
        std::iter::once(ColorisProgram::named(name, 1)),
    )
}

const fn both(low: f64, high: f64) -> Bounds {
    Bounds { low: low / 100.0, high: high / 100.0 }
}

/// Individual thresholds of C4, in the order of [`FOUR`].
const C4: [Bounds; 4] = [both(40.0, 80.0), both(0.0, 60.0), both(30.0, 65.0), both(40.0, 80.0)];

/// WIN in cycles, for milliseconds.
const fn window(milliseconds: u64) -> Growth {
    Growth::Redistribution { window: milliseconds * WINDOW }
}

/// The high thresholds of a configuration, in the order of [`FOUR`].
pub fn bounds(config: &str) -> Option<[f64; 4]> {
    match config {
        "C1" => Some([0.65; 4]),
        "C2" | "C6 WIN=1" | "C6 WIN=5" => Some([0.75; 4]),
        "C4" => Some(C4.map(|own| own.high)),
        _ => None,
    }
}

fn recoloring(seed: u64) -> Vec<ColorisCase> {
    let four = |config, policy, own: Option<[Bounds; 4]>, placing| {
        let own = |at: usize| own.map(|own| own[at]);
        let programs = (0_u16..4).zip(FOUR);
        let programs = programs
            .map(|(core, name)| (ColorisProgram::named(name, seed), core, own(usize::from(core))))
            .collect();
        let part = ColorisPart::Recoloring;
        ColorisCase { part, config, policy, programs, placing, seed, change: NOTHING }
    };
    let (c1, c2) = (both(30.0, 65.0), both(30.0, 75.0));
    let mut all = vec![four("C3", "", None, Placing::Sections)];
    for (policy, growth) in
        [(MOVING, Growth::SelectiveMoving { ways: 16 }), (REDISTRIBUTION, window(3))]
    {
        let managed = |thresholds| Placing::Manager { thresholds, growth };
        all.push(four("C1", policy, None, managed(c1)));
        all.push(four("C2", policy, None, managed(c2)));
        all.push(four("C4", policy, Some(C4), managed(c2)));
    }
    for (config, milliseconds) in [("C6 WIN=1", 1), ("C6 WIN=5", 5)] {
        let placing = Placing::Manager { thresholds: c2, growth: window(milliseconds) };
        all.push(four(config, REDISTRIBUTION, None, placing));
    }
    for (config, own) in [("C1", [c1; 4]), ("C2", [c2; 4]), ("C4", C4)] {
        all.push(four(config, UTILITY, Some(own), Placing::Utility));
    }
    all
}

fn overcommitted(seed: u64) -> Vec<ColorisCase> {
    // The order in which they are started: the first of each group, then the second.
    let order = || (0..2).flat_map(|turn| (0_u16..4).map(move |core| (turn, core)));
    let of = |config, policy, off: bool, placing| {
        let own = |name: &str| (off && name == "leslie3d").then_some(Bounds::OFF);
        let programs = order().map(|(turn, core)| {
            let name = GROUPS[usize::from(core)][turn];
            (ColorisProgram::named(name, seed), core, own(name))
        });
        let programs = programs.collect();
        let part = ColorisPart::Overcommitted;
        ColorisCase { part, config, policy, programs, placing, seed, change: NOTHING }
    };
    let managed = Placing::Manager { thresholds: both(20.0, 75.0), growth: window(3) };
    vec![
        of("C7", REDISTRIBUTION, true, managed),
        of("C8", "", false, Placing::Sections),
        of("C9", "", false, Placing::Shared),
        of("C7", UTILITY, false, Placing::Utility),
    ]
}

/// At most four traces: one beside the others.
fn real(traces: &[&str]) -> Vec<ColorisCase> {
    let Some(&first) = traces.first() else { return Vec::new() };
    let of = |config, policy, placing, names: &[&str]| {
        let programs = names.iter().map(|name| ColorisProgram::traced(name));
        ColorisCase { policy, ..beside(ColorisPart::Real, config, placing, programs) }
    };
    let all = &traces[..traces.len().min(4)];
    let managed = Placing::Manager { thresholds: both(30.0, 75.0), growth: window(3) };
    vec![
        of("F", "", Placing::Shared, &[first]),
        of("S", "", Placing::Sections, &[first]),
        of("H", "", Placing::Shared, all),
        of("H+P", "", Placing::Sections, all),
        of("C2", REDISTRIBUTION, managed, all),
        of("C2", UTILITY, Placing::Utility, all),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_cores_that_are_there() {
        for part in ColorisPart::all() {
            let all = cases(part, &["gnugo", "povray", "hmmer", "bzip2"], false);
            let name = |case: &ColorisCase| {
                let foreground = case.programs[0].0.name.clone();
                (case.name(), foreground, case.programs.len(), case.seed)
            };
            let names: BTreeSet<_> = all.iter().map(name).collect();
            assert_eq!(names.len(), all.len(), "{part:?}");
            let cores = if part == ColorisPart::Slices { 2 } else { 4 };
            for (program, core, _) in all.iter().flat_map(|case| &case.programs) {
                assert!(*core < cores, "{} on {core}", program.name);
            }
        }
        assert_eq!(cases(ColorisPart::Real, &[], false), []);
        assert!(
            cases(ColorisPart::Recoloring, &[], true).len()
                < cases(ColorisPart::Recoloring, &[], false).len()
        );
    }

    #[test]
    fn every_program_has_frames_of_each_allocator_and_scans_with_one_seed() {
        let all = cases(ColorisPart::Allocator, &[], false);
        assert_eq!(all.len(), PROGRAMS.len() * (3 * 3 + 2));
        let scanned: Vec<_> = all.iter().filter(|case| case.scan().is_some()).collect();
        assert_eq!(scanned.len(), 2 * PROGRAMS.len());
        for case in scanned {
            let ColorisTimes { warm_up, end, .. } = case.times(false);
            assert!(case.seed == 1 && case.placing == Placing::All, "{}", case.name());
            let period = case.scan().expect("a period");
            let scans = (1..).map(|n| n * period).take_while(|at| *at < end);
            let counted = scans.filter(|at| *at > warm_up).count() as u64;
            assert_eq!(counted * period, end - warm_up, "as many scans as periods");
        }
    }

    #[test]
    fn every_experiment_says_why_and_runs_something() {
        for change in ColorisChange::experiments() {
            assert!(change.reason().len() > 100, "{change:?}");
            let all = changed(change);
            assert!(!all.is_empty() && all.iter().all(|case| case.change == change), "{change:?}");
        }
    }

    #[test]
    fn counting_begins_before_the_end_and_periods_fit() {
        for case in ColorisPart::all().flat_map(|part| cases(part, &["a"], false)) {
            for quick in [false, true] {
                let ColorisTimes { period, warm_up, end, quantum } = case.times(quick);
                assert!(warm_up < end && quantum < period && period <= warm_up, "{}", case.name());
            }
        }
    }
}
