//! The table of policies: name, paper, what it does, what it needs to hear of, and its keys.
//! Usual values are the papers'; the module's tests hold them against the policies' own.

use super::keys::{Key, Unit};
use crate::coloris::{self, By};
use crate::combined;
use crate::conflict::{
    Active, ActiveSettings, CmlPolicy, Periodic, SnapshotFit, SnapshotMiss, SnapshotSettings,
    TargetChoice,
};
use crate::input::InputKind;
use crate::rocs::Rocs;
use crate::srm::SrmBuffer;
use crate::static_partition::StaticPartition;
use crate::superpage::{ApproxOnline, Asap, Fixed, Hybrid, Offline, Online, Throttle};

/// Policies that engines serve alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// None at all, to hold the others against.
    Nothing,
    /// A program keeps to its colours.
    Partition,
    /// Pages that pollute the cache are confined.
    Pollute,
    /// The page cache's frames by colour, for all programs together.
    Files,
    /// The cache is divided among programs.
    Division,
    /// Pages that conflict are moved, by TLB misses alone.
    ActiveConflicts,
    /// The same, by the clock.
    PeriodicConflicts,
    /// The same, by snapshots of the working set.
    Snapshots,
    /// The same, by a cache miss look-aside buffer.
    Cml,
    /// Superpages.
    Superpages,
    /// Superpages and conflicts.
    Combined,
}

impl Family {
    /// Whether one policy serves all programs of a machine.
    pub const fn is_shared(self) -> bool {
        matches!(self, Family::Files)
    }
}

/// A policy.
#[derive(Debug, PartialEq)]
pub struct PolicyEntry {
    /// Its name on the command line.
    pub name: &'static str,
    /// Policies served alike.
    pub family: Family,
    /// Where it is described.
    pub paper: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    /// What it needs to hear of.
    pub needs: &'static [InputKind],
    /// Its parameters.
    pub keys: &'static [Key],
}

const ROMER_3: &str = "Romer 1998, chapter 3";
const ROMER_4: &str = "Romer 1998, chapter 4";

/// Every policy, in the order in which it is listed.
pub static POLICIES: &[PolicyEntry] = &[
    PolicyEntry {
        name: "none",
        family: Family::Nothing,
        paper: "",
        what: "leaves everything as it is",
        needs: &[],
        keys: &[],
    },
    PolicyEntry {
        name: "static",
        family: Family::Partition,
        paper: "",
        what: "moves pages into the program's colours (--colors) and keeps them there",
        needs: StaticPartition::NEEDS,
        keys: &[
            Key::count("every", Unit::Cycles, 10_000_000, "from one audit to the next")
                .within(1000, 1 << 52),
            Key::count("longest", Unit::Audits, 64, "longest rest of a page that refused to move"),
            Key::count("attempts", Unit::Attempts, 16, "refusals after which a page is given up"),
        ],
    },
    PolicyEntry {
        name: "rocs",
        family: Family::Pollute,
        paper: "ROCS 2008",
        what: "confines pages that pollute the cache, found by a search",
        needs: Rocs::NEEDS,
        keys: &rocs_keys("search", 0),
    },
    PolicyEntry {
        name: "rocs-model",
        family: Family::Pollute,
        paper: "ROCS 2008; the model is not of the paper",
        what: "the same by a model of the profile and one trial; pages that are reused leave the buffer",
        needs: Rocs::NEEDS,
        keys: &rocs_keys("model", 4),
    },
    PolicyEntry {
        name: "srm",
        family: Family::Files,
        paper: "SRM-buffer 2011",
        what: "gives blocks of files that are read in sequence frames of one colour at a time",
        needs: SrmBuffer::NEEDS,
        keys: &[SRM_THRESHOLD],
    },
    PolicyEntry {
        name: "srm-rescan",
        family: Family::Files,
        paper: "SRM-buffer 2011; the rescans are not of the paper",
        what: "the same, and spreads files that fit the cache and are read again and again",
        needs: SrmBuffer::NEEDS_OF_RESCAN,
        keys: &[
            SRM_THRESHOLD,
            Key::count(
                "scans",
                Unit::Scans,
                2,
                "whole scans in a row that make a file one to spread",
            )
            .within(1, 1000),
        ],
    },
    PolicyEntry {
        name: "coloris",
        family: Family::Division,
        paper: "COLORIS 2014",
        what: "divides the cache: who misses too often takes colours of who misses little",
        needs: coloris::NEEDS,
        keys: &COLORIS,
    },
    PolicyEntry {
        name: "utility",
        family: Family::Division,
        paper: "COLORIS 2014; the curves are not of the paper",
        what: "coloris by utility: for the fewest misses that miss-rate curves foretell",
        needs: coloris::NEEDS_OF_UTILITY,
        keys: &UTILITY,
    },
    active(
        "active-naive",
        "moves a page as soon as it conflicts with another in the TLB",
        &ACTIVE_NAIVE,
    ),
    active("active-delay", "the same after a number of misses", &ACTIVE_DELAY),
    active("active-throttle", "the same, and rests after a move", &ACTIVE_THROTTLE),
    PolicyEntry {
        name: "periodic-random",
        family: Family::PeriodicConflicts,
        paper: ROMER_4,
        what: "moves any page of the TLB by the clock",
        needs: Periodic::NEEDS,
        keys: &[PERIODIC, Key::count("seed", Unit::Seed, 1, "of the random choice")],
    },
    PolicyEntry {
        name: "periodic-color",
        family: Family::PeriodicConflicts,
        paper: ROMER_4,
        what: "moves a page of a crowded colour by the clock",
        needs: Periodic::NEEDS,
        keys: &[PERIODIC],
    },
    snapshot(
        "snapshot",
        "moves a page of a crowded colour after a snapshot of the TLB",
        &SNAPSHOT,
        SnapshotMiss::NEEDS,
    ),
    snapshot(
        "snapshot-delay",
        "the same if two snapshots agree",
        &SNAPSHOT_DELAY,
        SnapshotMiss::NEEDS,
    ),
    snapshot(
        "snapshot-miss",
        "the same, by cache misses instead of the clock",
        &SNAPSHOT_MISS,
        SnapshotMiss::NEEDS_OF_MISSES,
    ),
    snapshot(
        "snapshot-in-use",
        "the same of all pages in use at once, with evidence that they are missed (not of the thesis)",
        &SNAPSHOT_IN_USE,
        SnapshotMiss::NEEDS_IN_USE,
    ),
    PolicyEntry {
        name: "snapshot-fit",
        family: Family::Snapshots,
        paper: "Romer 1998, section 5.7; not of the thesis",
        what: "snapshot-miss where the pages in use fit the cache, as many moves as a budget allows",
        needs: SnapshotFit::NEEDS,
        keys: &[
            Key::count("period", Unit::Misses, 10_000, "from one first snapshot to the next")
                .within(1, 1 << 52),
            Key::count("delay", Unit::Misses, 1_000, "from the first snapshot to the second"),
            Key::count("length", Unit::Misses, 1_000, "shortest length of the second"),
        ],
    },
    PolicyEntry {
        name: "cml",
        family: Family::Cml,
        paper: "Romer 1998, chapter 5",
        what: "moves pages that a buffer of the hardware says conflict",
        needs: CmlPolicy::NEEDS,
        keys: &cml_keys("sequential", "off"),
    },
    PolicyEntry {
        name: "cml-fit",
        family: Family::Cml,
        paper: "Romer 1998, section 5.7; not of the thesis",
        what: "the same to the emptiest colours, with a budget of moves",
        needs: CmlPolicy::NEEDS,
        keys: &cml_keys("emptiest", "on"),
    },
    PolicyEntry {
        name: "fixed",
        family: Family::Superpages,
        paper: ROMER_3,
        what: "gives every page one size from its first touch on",
        needs: Fixed::NEEDS,
        keys: &[
            Key::count("order", Unit::Order, 4, "the size: 4 is 64 KiB, 9 is 2 MiB").within(0, 18)
        ],
    },
    PolicyEntry {
        name: "offline",
        family: Family::Superpages,
        paper: ROMER_3,
        what: "builds the superpages that are worth most with the whole stream known",
        needs: Offline::NEEDS,
        keys: &[SIZES, MISS, PER_KIB, SETUP],
    },
    PolicyEntry {
        name: "asap",
        family: Family::Superpages,
        paper: ROMER_3,
        what: "builds a superpage as soon as all of its pages were touched",
        needs: Asap::NEEDS,
        keys: &[
            SIZES,
            Key::ratio("share", Unit::Share, 1.0, "of its pages that have to be touched"),
        ],
    },
    PolicyEntry {
        name: "asap-4-64",
        family: Family::Superpages,
        paper: ROMER_3,
        what: "builds pages of 64 KiB as soon as half of one was touched",
        needs: Asap::NEEDS,
        keys: &[],
    },
    PolicyEntry {
        name: "online",
        family: Family::Superpages,
        paper: ROMER_3,
        what: "as approx-online, and by what would have stayed in the TLB",
        needs: Online::NEEDS,
        keys: &[
            SIZES,
            MISS,
            PER_KIB,
            SETUP,
            PREFETCH,
            Key::ratio(
                "capacity",
                Unit::Share,
                0.625,
                "of the cost that misses for want of room have to make",
            ),
        ],
    },
    PolicyEntry {
        name: "approx-online",
        family: Family::Superpages,
        paper: ROMER_3,
        what: "builds a superpage once the misses that it would have prevented make a share of its cost",
        needs: ApproxOnline::NEEDS,
        keys: &[SIZES, MISS, PER_KIB, SETUP, PREFETCH, QUOTES],
    },
    PolicyEntry {
        name: "throttle",
        family: Family::Superpages,
        paper: "Romer 1998, section 6.5",
        what: "the same, and rests where that does not help",
        needs: Throttle::NEEDS,
        keys: &[
            SIZES,
            MISS,
            PER_KIB,
            SETUP,
            PREFETCH,
            QUOTES,
            THROTTLE_WINDOW,
            Key::ratio("frequency", Unit::TlbMpi, 0.001, "misses above which it rests")
                .by_host("0.001 over the misses that one told stands for"),
            THROTTLE_TARGET,
            BOOKKEEPING,
        ],
    },
    PolicyEntry {
        name: "throttle-strict",
        family: Family::Superpages,
        paper: "Romer 1998, section 6.5; the bound is not of the thesis",
        what: "the same with a frequency that keeps its cost below the target for every program",
        needs: Throttle::NEEDS,
        keys: &[
            SIZES,
            MISS,
            PER_KIB,
            SETUP,
            PREFETCH,
            QUOTES,
            THROTTLE_WINDOW,
            THROTTLE_TARGET,
            BOOKKEEPING,
        ],
    },
    PolicyEntry {
        name: "hybrid",
        family: Family::Superpages,
        paper: "Romer 1998, section 3.8.3",
        what: "builds reserved blocks in place when a share was touched; the rest is approx-online's",
        needs: Hybrid::NEEDS,
        keys: &[
            Key::count("order", Unit::Order, 4, "the size of reserved blocks").within(1, 10),
            Key::ratio("share", Unit::Share, 0.5, "of a block that has to be touched"),
            SIZES,
            MISS,
            PER_KIB,
            SETUP,
            PREFETCH,
        ],
    },
    PolicyEntry {
        name: "combined",
        family: Family::Combined,
        paper: "Romer 1998, section 6.6",
        what: "throttle and cml together",
        needs: combined::NEEDS,
        keys: &combined_keys(0, 0, "off"),
    },
    PolicyEntry {
        name: "combined-fit",
        family: Family::Combined,
        paper: "Romer 1998, section 6.6; not of the thesis",
        what: "the same, kept from undoing each other's work",
        needs: combined::NEEDS,
        keys: &combined_keys(combined::HOLD, 60, "on"),
    },
];

const SRM_THRESHOLD: Key =
    Key::count("threshold", Unit::Pages, 256, "blocks of a sequence in one colour")
        .within(1, 1 << 40);
/// What is asked of miss rates, sizes and sections; who decides; what holds by priority and by utility; and
/// times of the simulator.
const COLORIS: [Key; 21] = [
    Key::word("by", By::WORDS, "signals", "who of several programs gives and takes")
        .by_host("signals; live priority"),
    Key::word("shared", &["on", "off"], "on", "colours may be of several sections at once")
        .by_host("on; live off"),
    Key::count("sections", Unit::Sections, 0, "parts that programs begin with; live if shared")
        .by_host("one for each core; live one for each group"),
    Key::ratio("low", Unit::Share, 0.30, "miss rate below which a program gives colours"),
    Key::ratio("high", Unit::Share, 0.75, "miss rate above which a program asks for some"),
    Key::count("floor", Unit::Colors, 4, "colours that every program keeps")
        .by_host("4; live 1")
        .within(1, 65_535),
    Key::count("unit", Unit::Colors, 4, "colours that change hands at a time")
        .by_host("4; live an eighth of all")
        .within(1, 65_535),
    Key::count(
        "least-requests",
        Unit::Requests,
        1000,
        "requests of a period below which a program does not use the cache",
    ),
    Key::count("patience", Unit::Readings, 1, "in a row that have to say the same")
        .by_host("1; live 2")
        .within(1, 1 << 20),
    Key::ratio("rest", Unit::Seconds, 0.0, "in which a program that was changed is left alone")
        .by_host("0; live 6"),
    Key::ratio("per-second", Unit::ColorsPerSecond, 0.0, "that change hands; 0: any number")
        .by_host("0; live 1"),
    Key::ratio("gain", Unit::Share, 0.03, "of a reading that makes colours useful, by priority"),
    Key::ratio("again", Unit::Seconds, 120.0, "until a mistake is tried again, by priority"),
    Key::word("gradual", &["on", "off"], "off", "a division is reached in steps, by utility")
        .by_host("off; live on"),
    Key::ratio("margin", Unit::Share, 0.05, "misses that another division saves, by utility"),
    Key::ratio("caution", Unit::Share, 0.03, "how far below its bound a program should be")
        .by_host("0.03; live 0"),
    Key::count("enough", Unit::Samples, 2048, "counted requests that make a curve")
        .within(128, 1 << 32),
    Key::ratio("surprise", Unit::Share, 0.15, "error that has a curve measured again"),
    Key::count("period", Unit::Cycles, 8_000_000, "from one decision to the next; the paper: 5 s")
        .within(1000, 1 << 52),
    Key::word(
        "growth",
        &["redistribution", "selective"],
        "redistribution",
        "how new colours are filled",
    ),
    Key::count("window", Unit::Cycles, 600_000, "WIN of redistribution; the paper: 3 ms")
        .within(1, 1 << 52),
];
/// The same where what other sizes are worth decides.
const UTILITY: [Key; 21] = {
    let mut keys = COLORIS;
    keys[0] = Key::word("by", By::WORDS, "utility", keys[0].what);
    keys[1] = keys[1].by_host("off");
    keys[4] = Key::ratio("bound", Unit::Share, 1.0, "miss rate that no program is to exceed")
        .by_host("none; live 0.75");
    keys[5] = keys[5].by_host("unit; live 1");
    keys
};
const PERIODIC: Key =
    Key::count("period", Unit::Cycles, 2_000_000, "from one move to the next").within(1, 1 << 52);
const SIZES: Key = Key::word(
    "sizes",
    &["machine", "powers", "x86"],
    "machine",
    "page sizes: the machine's, every power of two to 8 MiB, or 2 MiB and 1 GiB",
);
const MISS: Key = Key::count("miss", Unit::Cycles, 30, "cost of a TLB miss")
    .by_host("the machine's; the thesis: 30")
    .within(1, 1 << 32);
const PER_KIB: Key = Key::count("per-kib", Unit::CyclesPerKib, 3000, "cost of copying")
    .by_host("the machine's; the thesis: 3000")
    .within(0, 1 << 32);
const SETUP: Key =
    Key::count("setup", Unit::Cycles, 0, "cost of any superpage").by_host("the machine's");
const PREFETCH: Key =
    Key::ratio("prefetch", Unit::Share, 0.125, "of the cost that prevented misses have to make");
const QUOTES: Key = Key::word(
    "by-construction",
    &["on", "off"],
    "off",
    "whether the engine says what each superpage would take",
)
.by_host("on where the engine can say it");
const THROTTLE_WINDOW: Key =
    Key::count("window", Unit::Instructions, 10_000_000, "between looks at the misses")
        .within(1, 1 << 52);
const THROTTLE_TARGET: Key =
    Key::ratio("target", Unit::Cpi, 0.02, "what it may cost in the long run");
const BOOKKEEPING: Key = Key::count("bookkeeping", Unit::Cycles, 100, "what a miss costs it")
    .by_host("100; live 0, as it is done on another CPU");

const ACTIVE_NAIVE: [Key; 2] = active_keys(ActiveSettings::NAIVE);
const ACTIVE_DELAY: [Key; 2] = active_keys(ActiveSettings::DELAY);
const ACTIVE_THROTTLE: [Key; 2] = active_keys(ActiveSettings::THROTTLE);
const SNAPSHOT: [Key; 9] = snapshot_keys(SnapshotSettings::SNAPSHOT, Unit::Cycles);
const SNAPSHOT_DELAY: [Key; 9] = snapshot_keys(SnapshotSettings::DELAY, Unit::Cycles);
const SNAPSHOT_MISS: [Key; 9] = snapshot_keys(SnapshotSettings::MISS, Unit::Misses);
const SNAPSHOT_IN_USE: [Key; 9] = snapshot_keys(SnapshotSettings::IN_USE, Unit::Misses);

const fn active(name: &'static str, what: &'static str, keys: &'static [Key]) -> PolicyEntry {
    let (family, needs) = (Family::ActiveConflicts, Active::NEEDS);
    PolicyEntry { name, family, paper: ROMER_4, what, needs, keys }
}

const fn snapshot(
    name: &'static str,
    what: &'static str,
    keys: &'static [Key],
    needs: &'static [InputKind],
) -> PolicyEntry {
    PolicyEntry { name, family: Family::Snapshots, paper: ROMER_4, what, needs, keys }
}

const fn rocs_keys(method: &'static str, review: u64) -> [Key; 13] {
    const I: Unit = Unit::Instructions;
    const ANY: u64 = 1 << 52;
    [
        Key::ratio("buffer", Unit::Share, 0.0625, "of the colours that the pollute buffer takes"),
        Key::word("method", &["search", "model"], method, "how the number of pages is found"),
        Key::count("start", I, 1_200_000_000, "before the first profile"),
        Key::count("interval", I, 300_000_000, "between looks at the phase").within(1, ANY),
        Key::count("samples", Unit::Samples, 200_000, "in a profile").within(1, ANY),
        Key::count("trial", I, 50_000_000, "in which a mapping is judged").within(1, ANY),
        Key::count("settle", I, 6_000_000, "before a trial, while the caches fill"),
        Key::count("steps", Unit::Steps, 16, "of a search").within(1, 10_000),
        Key::ratio("margin", Unit::Share, 0.01, "gain in speed that keeps a mapping"),
        Key::ratio("change", Unit::Share, 0.2, "change of speed that begins a phase"),
        Key::ratio("least-mpki", Unit::Mpki, 2.0, "below which a program is left alone"),
        Key::word("prefetch", &["off", "on"], "off", "prefetchers during a profile"),
        Key::count("review", Unit::Intervals, review, "between looks at the buffer; 0: none")
            .within(0, 1_000_000),
    ]
}

const fn active_keys(usual: ActiveSettings) -> [Key; 2] {
    let ActiveSettings { delay, rest } = usual;
    let delay = delay as u64;
    [
        Key::count("delay", Unit::TlbMisses, delay, "of a colour before a page is moved")
            .within(0, u32::MAX as u64),
        Key::count("rest", Unit::Cycles, rest, "after a move"),
    ]
}

const fn snapshot_keys(usual: SnapshotSettings, clock: Unit) -> [Key; 9] {
    const ANY: u64 = 1 << 52;
    let delay = match usual.delay {
        Some(delay) => delay,
        None => 0,
    };
    let pages = if usual.pages == usize::MAX { 0 } else { usual.pages as u64 };
    let target = usual.target.text();
    let fit = if usual.fit { "on" } else { "off" };
    let budget = if usual.budget.is_some() { "on" } else { "off" };
    let absent = usual.absent as u64;
    [
        Key::count("period", clock, usual.period, "from one first snapshot to the next")
            .within(1, ANY),
        Key::count(
            "delay",
            clock,
            delay,
            "from the first snapshot to the second; 0: one is enough",
        ),
        Key::count("length", clock, usual.length, "after which a snapshot ends").within(1, ANY),
        Key::count("pages", Unit::Pages, pages, "in a snapshot; 0: all"),
        Key::count("moves", Unit::Moves, usual.moves as u64, "after a snapshot").within(1, 1 << 32),
        Key::word("target", TargetChoice::WORDS, target, "where pages are moved"),
        Key::word("fit", &["on", "off"], fit, "nothing moves while the pages in use do not fit"),
        Key::count(
            "absent",
            Unit::Percent,
            absent,
            "of a colour that have to be missed; 0: not asked",
        )
        .within(0, 100),
        Key::word("budget", &["on", "off"], budget, "pages that conflict again and again rest"),
    ]
}

const fn cml_keys(target: &'static str, budget: &'static str) -> [Key; 4] {
    [
        Key::count("recolor", Unit::Misses, 0, "from which on a page conflicts")
            .by_host("the lines of a page and 4"),
        Key::count("clear", Unit::Cycles, 5_000_000, "between clearings of the buffer")
            .within(1, 1 << 52),
        Key::word("target", TargetChoice::WORDS, target, "where pages are moved"),
        Key::word("budget", &["on", "off"], budget, "pages that conflict again and again rest"),
    ]
}

const fn combined_keys(hold: u64, misses: u64, fit: &'static str) -> [Key; 3] {
    [
        Key::count(
            "hold",
            Unit::Cycles,
            hold,
            "a page is out of superpages after its first move; 0: not",
        ),
        Key::count(
            "misses-per-page",
            Unit::Misses,
            misses,
            "that allow breaking a superpage; 0: at once",
        ),
        Key::word("fit", &["on", "off"], fit, "the part that recolours is cml-fit"),
    ]
}
