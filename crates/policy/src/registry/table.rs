//! The table of policies: name, paper, what it does, what it needs to hear of, and its keys.
//! Usual values are the papers'; the module's tests hold them against the policies' own.

use super::keys::{CYCLES, Key};
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
            Key::count("every", CYCLES, 10_000_000, "from one audit to the next").least(1000),
            Key::count("longest", "audits", 64, "longest rest of a page that refused to move"),
            Key::count("attempts", "attempts", 16, "refusals after which a page is given up"),
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
            Key::count("scans", "scans", 2, "whole scans in a row that make a file one to spread")
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
        keys: &[PERIODIC, Key::count("seed", "seed", 1, "of the random choice")],
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
            Key::count("period", "cache misses", 10_000, "from one first snapshot to the next")
                .least(1),
            Key::count("delay", "cache misses", 1_000, "from the first snapshot to the second"),
            Key::count("length", "cache misses", 1_000, "shortest length of the second"),
        ],
    },
    PolicyEntry {
        name: "cml",
        family: Family::Cml,
        paper: "Romer 1998, chapter 5",
        what: "moves pages that a buffer of the hardware says conflict",
        needs: CmlPolicy::NEEDS,
        keys: &cml_keys("sequential", false),
    },
    PolicyEntry {
        name: "cml-fit",
        family: Family::Cml,
        paper: "Romer 1998, section 5.7; not of the thesis",
        what: "the same to the emptiest colours, with a budget of moves",
        needs: CmlPolicy::NEEDS,
        keys: &cml_keys("emptiest", true),
    },
    PolicyEntry {
        name: "fixed",
        family: Family::Superpages,
        paper: ROMER_3,
        what: "gives every page one size from its first touch on",
        needs: Fixed::NEEDS,
        keys: &[Key::count("order", "log2 of pages", 4, "the size: 4 is 64 KiB, 9 is 2 MiB")
            .within(0, 18)],
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
        keys: &[SIZES, Key::share("share", 1.0, "of its pages that have to be touched")],
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
        keys: &[SIZES, MISS, PER_KIB, SETUP, PREFETCH, CAPACITY],
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
        keys: &[SIZES, MISS, PER_KIB, SETUP, PREFETCH, QUOTES, WINDOW, FREQUENCY, TARGET, BOOKS],
    },
    PolicyEntry {
        name: "throttle-strict",
        family: Family::Superpages,
        paper: "Romer 1998, section 6.5; the bound is not of the thesis",
        what: "the same with a frequency that keeps its cost below the target for every program",
        needs: Throttle::NEEDS,
        keys: &[SIZES, MISS, PER_KIB, SETUP, PREFETCH, QUOTES, WINDOW, TARGET, BOOKS],
    },
    PolicyEntry {
        name: "hybrid",
        family: Family::Superpages,
        paper: "Romer 1998, section 3.8.3",
        what: "builds reserved blocks in place when a share was touched; the rest is approx-online's",
        needs: Hybrid::NEEDS,
        keys: &[BLOCKS, TOUCHED, SIZES, MISS, PER_KIB, SETUP, PREFETCH],
    },
    PolicyEntry {
        name: "combined",
        family: Family::Combined,
        paper: "Romer 1998, section 6.6",
        what: "throttle and cml together",
        needs: combined::NEEDS,
        keys: &combined_keys(0, 0, false),
    },
    PolicyEntry {
        name: "combined-fit",
        family: Family::Combined,
        paper: "Romer 1998, section 6.6; not of the thesis",
        what: "the same, kept from undoing each other's work",
        needs: combined::NEEDS,
        keys: &combined_keys(combined::HOLD, 60, true),
    },
];

const SRM_THRESHOLD: Key =
    Key::count("threshold", "pages", 256, "blocks of a sequence in one colour").within(1, 1 << 40);
/// What is asked of miss rates, sizes and sections; who decides; what holds by priority and by utility; and
/// times of the simulator.
const COLORIS: [Key; 21] = [
    Key::word("by", By::WORDS, "signals", "who of several programs gives and takes")
        .by_host("signals; live priority"),
    Key::switch("shared", true, "colours may be of several sections at once")
        .by_host("on; live off"),
    Key::count("sections", "sections", 0, "parts that programs begin with; live if shared")
        .by_host("one for each core; live one for each group"),
    Key::share("low", 0.30, "miss rate below which a program gives colours"),
    Key::share("high", 0.75, "miss rate above which a program asks for some"),
    Key::count("floor", "colours", 4, "colours that every program keeps")
        .by_host("4; live 1")
        .within(1, 65_535),
    Key::count("unit", "colours", 4, "colours that change hands at a time")
        .by_host("4; live an eighth of all")
        .within(1, 65_535),
    Key::count(
        "least-requests",
        "requests",
        1000,
        "requests of a period below which a program does not use the cache",
    ),
    Key::count("patience", "readings", 1, "in a row that have to say the same")
        .by_host("1; live 2")
        .within(1, 1 << 20),
    Key::ratio("rest", "seconds", 0.0, "in which a program that was changed is left alone")
        .by_host("0; live 6"),
    Key::ratio("per-second", "colours a second", 0.0, "that change hands; 0: any number")
        .by_host("0; live 1"),
    Key::share("gain", 0.03, "of a reading that makes colours useful, by priority"),
    Key::ratio("again", "seconds", 120.0, "until a mistake is tried again, by priority"),
    Key::switch("gradual", false, "a division is reached in steps, by utility")
        .by_host("off; live on"),
    Key::share("margin", 0.05, "misses that another division saves, by utility"),
    Key::share("caution", 0.03, "how far below its bound a program should be")
        .by_host("0.03; live 0"),
    Key::count("enough", "samples", 2048, "counted requests that make a curve")
        .within(128, 1 << 32),
    Key::share("surprise", 0.15, "error that has a curve measured again"),
    Key::count("period", CYCLES, 8_000_000, "from one decision to the next; the paper: 5 s")
        .least(1000),
    Key::word(
        "growth",
        &["redistribution", "selective"],
        "redistribution",
        "how new colours are filled",
    ),
    Key::count("window", CYCLES, 600_000, "WIN of redistribution; the paper: 3 ms").least(1),
];
/// The same where what other sizes are worth decides.
const UTILITY: [Key; 21] = {
    let mut keys = COLORIS;
    keys[0] = Key::word("by", By::WORDS, "utility", keys[0].what);
    keys[1] = keys[1].by_host("off");
    keys[4] = Key::share("bound", 1.0, "miss rate that no program is to exceed")
        .by_host("none; live 0.75");
    keys[5] = keys[5].by_host("unit; live 1");
    keys
};
const PERIODIC: Key = Key::count("period", CYCLES, 2_000_000, "from one move to the next").least(1);
const SIZES: Key = Key::word(
    "sizes",
    &["machine", "powers", "x86"],
    "machine",
    "page sizes: the machine's, every power of two to 8 MiB, or 2 MiB and 1 GiB",
);
const MISS: Key = Key::count("miss", CYCLES, 30, "cost of a TLB miss")
    .by_host("the machine's; the thesis: 30")
    .within(1, 1 << 32);
const PER_KIB: Key = Key::count("per-kib", "cycles per KiB", 3000, "cost of copying")
    .by_host("the machine's; the thesis: 3000")
    .within(0, 1 << 32);
const SETUP: Key = Key::count("setup", CYCLES, 0, "cost of any superpage").by_host("the machine's");
const PREFETCH: Key =
    Key::share("prefetch", 0.125, "of the cost that prevented misses have to make");
const QUOTES: Key =
    Key::switch("by-construction", false, "whether the engine says what each superpage would take")
        .by_host("on where the engine can say it");
const CAPACITY: Key =
    Key::share("capacity", 0.625, "of the cost that misses for want of room have to make");
const BLOCKS: Key =
    Key::count("order", "log2 of pages", 4, "the size of reserved blocks").within(1, 10);
const TOUCHED: Key = Key::share("share", 0.5, "of a block that has to be touched");
const FREQUENCY: Key =
    Key::ratio("frequency", "TLB misses per instruction", 0.001, "misses above which it rests")
        .by_host("0.001 over the misses that one told stands for");
const WINDOW: Key =
    Key::count("window", "instructions", 10_000_000, "between looks at the misses").least(1);
const TARGET: Key =
    Key::ratio("target", "cycles per instruction", 0.02, "what it may cost in the long run");
const BOOKS: Key = Key::count("bookkeeping", CYCLES, 100, "what a miss costs it")
    .by_host("100; live 0, as it is done on another CPU");

const ACTIVE_NAIVE: [Key; 2] = active_keys(ActiveSettings::NAIVE);
const ACTIVE_DELAY: [Key; 2] = active_keys(ActiveSettings::DELAY);
const ACTIVE_THROTTLE: [Key; 2] = active_keys(ActiveSettings::THROTTLE);
const SNAPSHOT: [Key; 9] = snapshot_keys(SnapshotSettings::SNAPSHOT, CYCLES);
const SNAPSHOT_DELAY: [Key; 9] = snapshot_keys(SnapshotSettings::DELAY, CYCLES);
const SNAPSHOT_MISS: [Key; 9] = snapshot_keys(SnapshotSettings::MISS, "cache misses");
const SNAPSHOT_IN_USE: [Key; 9] = snapshot_keys(SnapshotSettings::IN_USE, "cache misses");

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

const fn rocs_keys(method: &'static str, review: u64) -> [Key; 14] {
    const I: &str = "instructions";
    [
        Key::share("buffer", 0.0625, "of the colours that the pollute buffer takes"),
        Key::word("method", &["search", "model"], method, "how the number of pages is found"),
        Key::count("start", I, 1_200_000_000, "before the first profile"),
        Key::count("interval", I, 300_000_000, "between looks at the phase").least(1),
        Key::count("samples", "samples", 200_000, "in a profile").least(1),
        Key::count("trial", I, 50_000_000, "in which a mapping is judged").least(1),
        Key::count("settle", I, 6_000_000, "before a trial, while the caches fill"),
        Key::count("steps", "steps", 16, "of a search").within(1, 10_000),
        Key::share("margin", 0.01, "gain in speed that keeps a mapping"),
        Key::share("change", 0.2, "change of speed that begins a phase"),
        Key::ratio(
            "least-mpki",
            "misses per 1000 instructions",
            0.0,
            "below which a program is left alone",
        ),
        Key::share("least-miss-rate", 0.25, "of requests miss; below, a program is left alone"),
        Key::word("prefetch", &["off", "on"], "off", "prefetchers during a profile"),
        Key::count("review", "intervals", review, "between looks at the buffer; 0: none")
            .within(0, 1_000_000),
    ]
}

const fn active_keys(usual: ActiveSettings) -> [Key; 2] {
    let ActiveSettings { delay, rest } = usual;
    let delay = delay as u64;
    [
        Key::count("delay", "TLB misses", delay, "of a colour before a page is moved")
            .within(0, u32::MAX as u64),
        Key::count("rest", CYCLES, rest, "after a move"),
    ]
}

const fn snapshot_keys(usual: SnapshotSettings, clock: &'static str) -> [Key; 9] {
    let delay = match usual.delay {
        Some(delay) => delay,
        None => 0,
    };
    let pages = if usual.pages == usize::MAX { 0 } else { usual.pages as u64 };
    let target = usual.target.text();
    let (fit, budget, absent) = (usual.fit, usual.budget.is_some(), usual.absent as u64);
    [
        Key::count("period", clock, usual.period, "from one first snapshot to the next").least(1),
        Key::count(
            "delay",
            clock,
            delay,
            "from the first snapshot to the second; 0: one is enough",
        ),
        Key::count("length", clock, usual.length, "after which a snapshot ends").least(1),
        Key::count("pages", "pages", pages, "in a snapshot; 0: all"),
        Key::count("moves", "moves", usual.moves as u64, "after a snapshot").within(1, 1 << 32),
        Key::word("target", TargetChoice::WORDS, target, "where pages are moved"),
        Key::switch("fit", fit, "nothing moves while the pages in use do not fit"),
        Key::count("absent", "percent", absent, "of a colour that have to be missed; 0: not asked")
            .within(0, 100),
        Key::switch("budget", budget, "pages that conflict again and again rest"),
    ]
}

const fn cml_keys(target: &'static str, budget: bool) -> [Key; 4] {
    [
        Key::count("recolor", "cache misses", 0, "from which on a page conflicts")
            .by_host("the lines of a page and 4"),
        Key::count("clear", CYCLES, 5_000_000, "between clearings of the buffer").least(1),
        Key::word("target", TargetChoice::WORDS, target, "where pages are moved"),
        Key::switch("budget", budget, "pages that conflict again and again rest"),
    ]
}

const fn combined_keys(hold: u64, misses: u64, fit: bool) -> [Key; 3] {
    [
        Key::count(
            "hold",
            CYCLES,
            hold,
            "a page is out of superpages after its first move; 0: not",
        ),
        Key::count(
            "misses-per-page",
            "cache misses",
            misses,
            "that allow breaking a superpage; 0: at once",
        ),
        Key::switch("fit", fit, "the part that recolours is cml-fit"),
    ]
}
