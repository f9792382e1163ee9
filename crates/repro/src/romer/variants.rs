//! What a workload runs under: the machine of its chapter, a way to choose frames, and a policy
//! with its sensors. Nothing is run here.

use huepage_color::CacheKind;
use huepage_policy::conflict::{
    Active, ActiveSettings, CacheShape, CmlPolicy, CmlSettings, FitSettings, Periodic, SnapshotFit,
    SnapshotMiss, SnapshotSettings, TargetChoice,
};
use huepage_policy::superpage::{
    ApproxOnline, Asap, Fixed, Hybrid, Online, PageSizes, RestBounds, Settings, Throttle,
};
use huepage_policy::{Combined, Policy, Prices};
use serde::Serialize;

use crate::engine::Named;
use crate::run::{experiment, machine, system};
use huepage_sim::experiment::{FrameMapping, WishError};
use huepage_sim::feedback::{Cml, Every, Sense};
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::machine::{ColumnSpec, Machine, VictimSpec};
use huepage_sim::romer;
use huepage_sim::system::{CopyCost, System};

/// Which experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RomerPart {
    /// Chapter 3: pages of 4 KB to 8 MB and a TLB, no caches.
    Superpages,
    /// Chapters 4 and 5: conflict misses of a direct-mapped L2.
    Conflicts,
    /// Section 5.6.1: sizes of the CML buffer.
    Buffer,
    /// Chapter 6: both.
    Combined,
    /// Section 5.6.4: pages of other sizes.
    PageSizes,
    /// Sections 5.6.2 and 5.6.3: when CML takes pages for ones that conflict, and where it moves them.
    Settings,
    /// Section 6.6.3: both, with slower memory.
    Latency,
    /// Section 6.5.2: when THROTTLE rests.
    Rests,
    /// Section 4.5: Snapshot-Miss as it was built on an Alpha.
    Alpha,
}

impl RomerPart {
    /// The part that has its workloads and their baselines; itself unless it only tries settings.
    pub const fn origin(self) -> RomerPart {
        match self {
            RomerPart::Superpages | RomerPart::Conflicts | RomerPart::Combined => self,
            RomerPart::Latency | RomerPart::Rests => RomerPart::Combined,
            _ => RomerPart::Conflicts,
        }
    }

    /// Whether it tries settings on workloads of another part.
    pub fn tries_settings(self) -> bool {
        self.origin() != self
    }
}

impl Named for RomerPart {
    const ALL: &'static [(RomerPart, &'static str)] = &[
        (RomerPart::Superpages, "superpages"),
        (RomerPart::Conflicts, "conflicts"),
        (RomerPart::Buffer, "buffer"),
        (RomerPart::Combined, "combined"),
        (RomerPart::PageSizes, "page-sizes"),
        (RomerPart::Settings, "settings"),
        (RomerPart::Latency, "latency"),
        (RomerPart::Rests, "rests"),
        (RomerPart::Alpha, "alpha"),
    ];
}

/// How pages get their first frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initial {
    /// Page coloring: in virtual order.
    Coloring,
    /// Bin hopping: in the order of first touches.
    BinHopping,
    /// At random, as systems without a policy of their own do; not in the thesis.
    Random,
}

impl Named for Initial {
    const ALL: &'static [(Initial, &'static str)] = &[
        (Initial::Coloring, "page coloring"),
        (Initial::BinHopping, "bin hopping"),
        (Initial::Random, "random"),
    ];
}

impl Initial {
    const fn mapping(self) -> FrameMapping {
        match self {
            Initial::Coloring => FrameMapping::Coloring,
            Initial::BinHopping => FrameMapping::BinHopping,
            Initial::Random => FrameMapping::Random(7),
        }
    }
}

/// The one thing that is not as in the thesis's experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RomerChange {
    /// None.
    #[default]
    Nothing,
    /// Programs run longer.
    Longer,
    /// The same, of memory in whole pages of 64 KB.
    Whole,
    /// Pairs of pages conflict for longer before others do.
    Held,
    /// CML takes a page for one that conflicts at four times the misses.
    Thresholds,
    /// Snapshot-Miss moves by its first snapshot. Statements are judged with moves at the price of the Alpha.
    OneSnapshot,
    /// A program runs twice as long. Statements are judged by the second half of each run.
    Twice,
    /// A program runs twenty times as long, which is longer than in the thesis.
    MuchLonger,
    /// THROTTLE looks a hundred times as often, in a tenth of a run.
    Soon,
    /// The memory of a program is in pieces.
    Pieces,
    /// Pairs and the working set use other lines of their pages.
    Apart,
    /// What [`RomerChange::Thresholds`] is, where other workloads are as in [`RomerChange::Apart`].
    ApartThresholds,
    /// The TLBs hold all pages of a program.
    AllMapped,
    /// The same, and programs run longer.
    AllMappedLonger,
}

/// See [`RomerChange::Thresholds`].
const THRESHOLDS: u64 = 4;
/// See [`RomerChange::Soon`].
const SOONER: u64 = 100;
/// See [`RomerChange::AllMapped`]: more than any workload of figure 5-6 has pages of 4 KB.
const ALL_PAGES: usize = 4096;

impl Named for RomerChange {
    const ALL: &'static [(RomerChange, &'static str)] = &[
        (RomerChange::Nothing, "nothing"),
        (RomerChange::Longer, "atom and fft, eight times as long"),
        (RomerChange::Whole, "atom in whole pages of 64 KB, as long"),
        (RomerChange::Held, "conflicts that last ten times as long"),
        (RomerChange::Thresholds, "four times the misses of a page before CML acts"),
        (RomerChange::OneSnapshot, "Snapshot-Miss by one snapshot, at the price of the Alpha"),
        (RomerChange::Twice, "the second half of every run, gs twice as long"),
        (RomerChange::MuchLonger, "vortex twenty times as long"),
        (RomerChange::Soon, "winword, a window of a hundredth in a tenth of the run"),
        (RomerChange::Pieces, "coral and fpga in pieces of 2 MB"),
        (RomerChange::Apart, "pairs that share no lines with the working set"),
        (RomerChange::ApartThresholds, "the same, and four times the misses on nasa7-2"),
        (RomerChange::AllMapped, "a TLB that holds all pages"),
        (RomerChange::AllMappedLonger, "the same, four times as long"),
    ];
}

/// A policy, or what stands in its place, on a machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct RomerVariant {
    /// The experiment.
    pub part: RomerPart,
    /// Initial mapping.
    pub initial: Initial,
    /// The policy's name, as the thesis writes it.
    pub policy: String,
    /// What is not as in the thesis's experiment.
    pub change: RomerChange,
}

/// Superpage policies in the order of table 3-4, and the rest of figure 3-1's page sizes.
pub const SUPERPAGES: [&str; 15] = [
    "FIXED 4 KB",
    "FIXED 8 KB",
    "FIXED 16 KB",
    "FIXED 32 KB",
    "FIXED 64 KB",
    "FIXED 128 KB",
    "FIXED 256 KB",
    OFFLINE,
    "ASAP",
    "ASAP-4-64",
    "ONLINE",
    "APPROX-ONLINE",
    "THROTTLE",
    "THROTTLE-Strict",
    "Hybrid",
];
/// The one that needs the whole stream beforehand.
pub const OFFLINE: &str = "OFFLINE";

/// Figure 4-1, and what was added to it.
pub const SOFTWARE: [&str; 9] = [
    "Active-Naive",
    "Active-Delay",
    "Active-Throttle",
    "Periodic-Random",
    "Periodic-Color",
    "Snapshot",
    "Snapshot-Delay",
    "Snapshot-Miss",
    "Snapshot-Fit",
];
/// Chapter 6.
pub const BOTH: [&str; 7] =
    ["DM", "CML", "CML-Fit", "APPROX-ONLINE", "THROTTLE", "COMBINED", "COMBINED-Fit"];
/// With the latency of an L2 miss that the thesis has, and with four times that (section 6.6.3).
const LATENCIES: [&str; 4] = ["DM x1", "COMBINED x1", "DM x4", "COMBINED x4"];
/// THROTTLE with another target, frequency or window (section 6.5.2), and what it lies between.
const RESTS: [&str; 12] = [
    "DM",
    "APPROX-ONLINE",
    "THROTTLE",
    "THROTTLE t=0.005",
    "THROTTLE t=0.015",
    "THROTTLE t=0.025",
    "THROTTLE t=0.04",
    "THROTTLE f=0.00025",
    "THROTTLE f=0.0015",
    "THROTTLE f=0.003",
    "THROTTLE w=1000000",
    "THROTTLE w=20000000",
];
/// CML with pages of these sizes (figure 5-6).
pub const PAGES: [&str; 3] = ["CML 4 KB", "CML 8 KB", "CML 16 KB"];
/// CML with other thresholds, recolor and interrupt, and with other targets; the thesis's own is the first.
const CML_SETTINGS: [&str; 10] = [
    "CML 260/320",
    "CML 128/188",
    "CML 256/316",
    "CML 260/500",
    "CML 440/500",
    "CML 260/1024",
    "CML 260/2048",
    "CML coldest-ref",
    "CML coldest-miss",
    "CML random",
];
/// Pages in a segment of the CML buffer (figure 5-4).
pub const SEGMENTS: [usize; 5] = [2, 4, 8, 16, 32];

/// All variants of a part.
pub fn variants(part: RomerPart) -> Vec<RomerVariant> {
    let named = |initial, policy: &str| RomerVariant::new(part, initial, policy);
    let (coloring, bins, chance) = (Initial::Coloring, Initial::BinHopping, Initial::Random);
    match part {
        RomerPart::Superpages => SUPERPAGES.iter().map(|name| named(coloring, name)).collect(),
        RomerPart::Conflicts => {
            let hardware = ["DM", "CML", "CML-Fit", "A2", "Victim", "Column"];
            let full = || SOFTWARE.iter().chain(&hardware);
            let few = ["DM", "Snapshot-Miss", "Snapshot-Fit", "CML", "CML-Fit", "A2"];
            full()
                .map(|name| named(coloring, name))
                .chain(few.iter().map(|name| named(bins, name)))
                .chain(full().map(|name| named(chance, name)))
                .collect()
        }
        RomerPart::Buffer => {
            let pairs = SEGMENTS.iter().flat_map(|lru| SEGMENTS.map(|hot| (*lru, hot)));
            pairs.map(|(lru, hot)| named(coloring, &format!("CML {lru}+{hot}"))).collect()
        }
        RomerPart::Combined => [coloring, bins]
            .iter()
            .flat_map(|&initial| BOTH.map(|name| named(initial, name)))
            .collect(),
        RomerPart::PageSizes => PAGES.map(|name| named(coloring, name)).into(),
        RomerPart::Settings => CML_SETTINGS.map(|name| named(coloring, name)).into(),
        RomerPart::Latency => LATENCIES.map(|name| named(coloring, name)).into(),
        RomerPart::Rests => RESTS.map(|name| named(coloring, name)).into(),
        RomerPart::Alpha => [coloring, bins]
            .iter()
            .flat_map(|&initial| ["DM", "Snapshot-Miss"].map(|name| named(initial, name)))
            .collect(),
    }
}

/// A machine with a policy that waits to be told of an address space.
pub(super) struct Ready {
    pub(super) system: System,
    pub(super) watch: Watch,
}

type Watch = Option<(Box<dyn Policy + Send>, Sense)>;

const TLB: &str = include_str!("../../../../machines/romer-tlb.toml");
const ALPHA: &str = include_str!("../../../../machines/alpha-3000-500.toml");

/// The machine of table 6-2 with an infinite cache: chapter 3 counts cycles of the TLB alone.
fn without_caches() -> Result<Machine, WishError> {
    let mut machine = machine(TLB)?;
    machine.cache.retain(|cache| cache.level == 2 && cache.kind == CacheKind::Unified);
    machine.cache.iter_mut().for_each(|cache| cache.latency = 1);
    machine.memory_latency = 1;
    Ok(machine)
}

/// Chapters 4 and 5 have pages of 8 KB (table 4-2), the simulator of 4 KB: all caches, their lines and
/// all addresses are halved, which leaves every cycle as it is; of pages of 16 KB twice.
fn shrunk(mut machine: Machine, by: u32) -> Machine {
    for cache in &mut machine.cache {
        (cache.size.0, cache.line.0) = (cache.size.0 >> by, cache.line.0 >> by);
    }
    machine
}

/// A system with page coloring whose lines are shorter than those of any real cache. Colours do not depend on how
/// long lines are, so they are those of the shortest real ones.
fn of_small_lines(machine: Machine) -> Result<System, WishError> {
    let mut real = machine.clone();
    real.cache.iter_mut().for_each(|cache| cache.line.0 = cache.line.0.max(SHORTEST_LINE));
    let colors = experiment(real, FrameMapping::Coloring).colors()?.map(|(map, _)| map);
    let frames = Frames::new(machine.memory.0 >> 12, Choice::Coloring, colors);
    Ok(System::new(machine, frames))
}

/// Bytes of the shortest line that a cache can have.
const SHORTEST_LINE: u64 = 16;

/// What a recolouring costs besides the cache's time: 4,800 cycles for copying 8 KB and 200 for the
/// page table (table 5-1), less the 512 loads and stores that copying charges anyway; of pages twice as
/// large twice the copying.
const fn recolor_cost(by: u32) -> u64 {
    (2_400 << by) + 200 - (256 << by)
}

fn of_large_pages(sense: Sense, by: u32) -> Sense {
    let recolor_cost = if sense.recolor_cost > 0 { recolor_cost(by) } else { 0 };
    Sense { recolor_cost, ..sense }
}

impl RomerVariant {
    /// A policy with nothing changed.
    pub fn new(part: RomerPart, initial: Initial, policy: &str) -> RomerVariant {
        RomerVariant { part, initial, policy: policy.to_owned(), change: RomerChange::Nothing }
    }

    /// How often caches, lines and addresses are halved so that the simulator's pages of 4 KB stand for
    /// the thesis's.
    pub(super) fn halvings(&self) -> u32 {
        match self.part {
            RomerPart::PageSizes => page_kib(&self.policy).map_or(1, |kib| (kib / 4).ilog2()),
            part => u32::from(part.origin() == RomerPart::Conflicts),
        }
    }

    /// The machine, its frames and the policy. OFFLINE's plan is the caller's.
    ///
    /// # Errors
    /// When the policy has no such name.
    pub(super) fn ready(&self) -> Result<Ready, WishError> {
        match self.part {
            RomerPart::Superpages => self.superpages(),
            part if part.origin() == RomerPart::Combined => self.combined(),
            _ => self.conflicts(),
        }
    }

    fn unknown(&self) -> WishError {
        WishError::new(format!("`{}` is no policy of {:?}; report it", self.policy, self.part))
    }

    fn superpages(&self) -> Result<Ready, WishError> {
        let order = fixed_order(&self.policy);
        let mapping = match (order, self.policy.as_str()) {
            (Some(order), _) if order > 0 => FrameMapping::Reservation(order),
            (None, "Hybrid") => FrameMapping::Reservation(4),
            _ => self.initial.mapping(),
        };
        let mut system = system(without_caches()?, mapping)?;
        // Pages that the machine has from the first touch on are not copied.
        let in_place = order.is_some() || self.policy == "Hybrid";
        let copies = if in_place { CopyCost::PerKib(3000) } else { CopyCost::AlwaysPerKib(3000) };
        system.charge_copies(copies);
        let watch = match order {
            Some(0) => None,
            Some(order) => Some((Box::new(Fixed::new(order)) as _, Sense::default())),
            None if self.policy == OFFLINE => None,
            None => Some(self.promoting()?),
        };
        Ok(Ready { system, watch })
    }

    fn promoting(&self) -> Result<(Box<dyn Policy + Send>, Sense), WishError> {
        let asked = |cost| Sense { tlb_miss_cost: Some(cost), ..Sense::default() };
        let progress = Some(Every { every: 1_000_000, cost: 0 });
        let told = Sense { progress, ..asked(romer::BOOKKEEPING_COST) };
        let approx = || ApproxOnline::new(Settings::default());
        let strict = RestBounds::strict(Prices::default(), Settings::default().prefetch);
        Ok(match self.policy.as_str() {
            "ASAP" => (Box::new(Asap::with_share(PageSizes::romer(), 1.0)), Sense::default()),
            "ASAP-4-64" => (Box::new(Asap::four_64()), Sense::default()),
            // 2,600 cycles in all (table 3-3).
            "ONLINE" => (Box::new(Online::new(&Settings::default())), asked(2570)),
            "APPROX-ONLINE" => (Box::new(approx()), asked(romer::BOOKKEEPING_COST)),
            "THROTTLE" => (Box::new(Throttle::new(approx(), RestBounds::default())), told),
            "THROTTLE-Strict" => (Box::new(Throttle::new(approx(), strict)), told),
            "Hybrid" => {
                let hybrid = Hybrid::new(Settings::default(), 4, 0.5);
                (Box::new(hybrid.ok_or_else(|| self.unknown())?), asked(romer::BOOKKEEPING_COST))
            }
            _ => return Err(self.unknown()),
        })
    }

    /// The machine of chapters 4 and 5.
    pub(super) fn alpha(&self) -> Result<Machine, WishError> {
        let mut machine = shrunk(machine(ALPHA)?, self.halvings());
        if self.change.maps_all() {
            machine.tlb.iter_mut().for_each(|tlb| tlb.entries = ALL_PAGES);
        }
        Ok(machine)
    }

    fn conflicts(&self) -> Result<Ready, WishError> {
        let mut machine = self.alpha()?;
        let shape = self.shape(&machine)?;
        let last = machine.cache.last_mut().ok_or_else(|| self.unknown())?;
        match self.policy.as_str() {
            "A2" => last.ways = 2,
            // Five cycles for a hit in the victim cache (section 5.5.3).
            "Victim" => last.victim = Some(VictimSpec { entries: 8, latency: 5 }),
            // A second look costs as much as it must to be told apart from none.
            "Column" => last.column_associative = Some(ColumnSpec { latency: 1 }),
            _ => {}
        }
        let system = match self.halvings() {
            2.. => of_small_lines(machine)?,
            _ => system(machine, self.initial.mapping())?,
        };
        let watch = self
            .recoloring(shape)?
            .map(|(policy, sense)| (policy, of_large_pages(sense, self.halvings())));
        Ok(Ready { system, watch })
    }

    fn shape(&self, machine: &Machine) -> Result<CacheShape, WishError> {
        romer::shape(machine).ok_or_else(|| self.unknown())
    }

    fn recoloring(&self, shape: CacheShape) -> Result<Watch, WishError> {
        let watch: (Box<dyn Policy + Send>, Sense) = match self.policy.as_str() {
            "DM" | "A2" | "Victim" | "Column" => return Ok(None),
            "Active-Naive" => {
                (Box::new(Active::new(shape, ActiveSettings::NAIVE)), romer::active())
            }
            "Active-Delay" => {
                (Box::new(Active::new(shape, ActiveSettings::DELAY)), romer::active())
            }
            "Active-Throttle" => {
                (Box::new(Active::new(shape, ActiveSettings::THROTTLE)), romer::active())
            }
            "Periodic-Random" => (Box::new(Periodic::random(shape, 1)), romer::periodic()),
            "Periodic-Color" => (Box::new(Periodic::color(shape)), romer::periodic()),
            "Snapshot" => snapshots(shape, SnapshotSettings::SNAPSHOT, romer::snapshot(false)),
            "Snapshot-Delay" => snapshots(shape, SnapshotSettings::DELAY, romer::snapshot(true)),
            "Snapshot-Miss" if self.change == RomerChange::OneSnapshot => {
                let settings = SnapshotSettings { delay: None, ..SnapshotSettings::MISS };
                let flush_cost = romer::snapshot(false).flush_cost;
                snapshots(shape, settings, Sense { flush_cost, ..romer::snapshot_miss() })
            }
            "Snapshot-Miss" if self.part == RomerPart::Alpha => of_the_alpha(shape),
            "Snapshot-Miss" => snapshots(shape, SnapshotSettings::MISS, romer::snapshot_miss()),
            "Snapshot-Fit" => {
                (Box::new(SnapshotFit::new(shape, FitSettings::default())), romer::snapshot_fit())
            }
            "CML" | "CML 4 KB" | "CML 8 KB" | "CML 16 KB" => {
                self.looking_aside(shape, CmlSettings::thesis(shape))
            }
            "CML-Fit" => self.looking_aside(shape, CmlSettings::budgeted(shape)),
            other => tried(other, shape, self.threshold_times()).ok_or_else(|| self.unknown())?,
        };
        Ok(Some(watch))
    }

    /// How many times the misses of the thesis CML asks of a page.
    fn threshold_times(&self) -> u64 {
        let higher = [RomerChange::Thresholds, RomerChange::ApartThresholds];
        if higher.contains(&self.change) { THRESHOLDS } else { 1 }
    }

    /// CML with these settings, or with higher thresholds.
    fn looking_aside(
        &self,
        shape: CacheShape,
        settings: CmlSettings,
    ) -> (Box<dyn Policy + Send>, Sense) {
        let sense = romer::cml(shape);
        let times = self.threshold_times();
        let cml = sense.cml.map(|cml| Cml { threshold: times * cml.threshold, ..cml });
        let settings = CmlSettings { recolor: times * settings.recolor, ..settings };
        (Box::new(CmlPolicy::new(shape, settings)), Sense { cml, ..sense })
    }

    fn combined(&self) -> Result<Ready, WishError> {
        let (policy, times) = latency(&self.policy);
        let machine = with_latency(machine(TLB)?, times);
        let shape = self.shape(&machine)?;
        let approx = || ApproxOnline::new(Settings::default());
        let throttle = || Throttle::new(approx(), RestBounds::default());
        let watch: Watch = match policy {
            "DM" => None,
            "APPROX-ONLINE" => Some((Box::new(approx()), romer::promotion())),
            // No hold: each part does as it likes (section 6.6.1).
            "COMBINED" => {
                let cml = CmlPolicy::thesis(shape);
                let both = Combined::thesis(throttle(), cml);
                Some((Box::new(both), romer::combined(shape)))
            }
            "COMBINED-Fit" => {
                let both = Combined::new(throttle(), CmlPolicy::budgeted(shape));
                Some((Box::new(both), romer::combined(shape)))
            }
            other => match rest_bounds(other) {
                Some(bounds) => {
                    let sooner = if self.change == RomerChange::Soon { SOONER } else { 1 };
                    let bounds = RestBounds { window: bounds.window / sooner, ..bounds };
                    Some((Box::new(Throttle::new(approx(), bounds)), romer::promotion()))
                }
                None => self.recoloring(shape)?,
            },
        };
        let mut system = system(machine, self.initial.mapping())?;
        // The TLB of chapter 3 beside the caches of chapters 4 and 5 (section 6.2).
        system.charge_copies(CopyCost::SuperpagesPerKib(3000));
        Ok(Ready { system, watch })
    }
}

/// Snapshot-Miss as section 4.5.1 has it: two snapshots of the first sixteen pages, every eighth overflow of a
/// counter of 4,096 misses.
fn of_the_alpha(shape: CacheShape) -> (Box<dyn Policy + Send>, Sense) {
    let sense = romer::snapshot_miss();
    let overflow = sense.overflow.map(|overflow| Every { every: OVERFLOW, ..overflow });
    let settings = SnapshotSettings {
        period: 8 * OVERFLOW,
        delay: Some(OVERFLOW),
        length: OVERFLOW,
        ..SnapshotSettings::MISS
    };
    (Box::new(SnapshotMiss::new(shape, settings)), Sense { overflow, ..sense })
}

/// Misses after which the counter of the Alpha interrupts.
const OVERFLOW: u64 = 4_096;

/// The bounds in `THROTTLE t=0.005`; the thesis's without a setting.
fn rest_bounds(policy: &str) -> Option<RestBounds> {
    let setting = policy.strip_prefix("THROTTLE")?.trim_start();
    let usual = RestBounds::default();
    match setting.split_once('=') {
        None => setting.is_empty().then_some(usual),
        Some(("t", value)) => Some(RestBounds { target: value.parse().ok()?, ..usual }),
        Some(("f", value)) => Some(RestBounds { frequency: value.parse().ok()?, ..usual }),
        Some(("w", value)) => Some(RestBounds { window: value.parse().ok()?, ..usual }),
        Some(_) => None,
    }
}

/// The policy in `COMBINED x4`, and how many times the latency of an L2 miss is the thesis's.
fn latency(policy: &str) -> (&str, u64) {
    let found =
        policy.split_once(" x").and_then(|(policy, times)| Some((policy, times.parse().ok()?)));
    found.unwrap_or((policy, 1))
}

/// With an L2 miss that takes so many times as long beyond a hit.
fn with_latency(mut machine: Machine, times: u64) -> Machine {
    let hit = machine.cache.last().map_or(0, |cache| cache.latency);
    machine.memory_latency = hit + times * (machine.memory_latency - hit);
    machine
}

/// A policy of chapter 4 that takes snapshots: of all pages that miss in an interval (section 4.2.3). Only the
/// first sixteen are what the implementation on an Alpha takes, whose periods are others (section 4.5.1). Records
/// are charged for as many pages as the cache has.
fn snapshots(
    shape: CacheShape,
    settings: SnapshotSettings,
    sense: Sense,
) -> (Box<dyn Policy + Send>, Sense) {
    let more = shape.pages().saturating_sub(settings.pages as u64) * romer::RECORD_COST;
    let settings = SnapshotSettings { pages: usize::MAX, ..settings };
    let flush_cost = sense.flush_cost + more;
    (Box::new(SnapshotMiss::new(shape, settings)), Sense { flush_cost, ..sense })
}

/// log2 of the base pages of FIXED.
fn fixed_order(policy: &str) -> Option<u32> {
    let kib: u32 = policy.strip_prefix("FIXED ")?.strip_suffix(" KB")?.parse().ok()?;
    Some((kib / 4).ilog2())
}

/// KB of a page in `CML 16 KB`.
fn page_kib(policy: &str) -> Option<u32> {
    policy.strip_prefix("CML ")?.strip_suffix(" KB")?.parse().ok()
}

/// The sizes in `CML 16+16`: LRU and HOT.
pub fn segments(policy: &str) -> Option<(usize, usize)> {
    let (lru, hot) = policy.strip_prefix("CML ")?.split_once('+')?;
    Some((lru.parse().ok()?, hot.parse().ok()?))
}

/// Misses in `CML 260/320`: of a page that can conflict, and at which the buffer interrupts.
fn thresholds(policy: &str) -> Option<(u64, u64)> {
    let (recolor, interrupt) = policy.strip_prefix("CML ")?.split_once('/')?;
    Some((recolor.parse().ok()?, interrupt.parse().ok()?))
}

/// CML with a setting that section 5.6 tries, its thresholds so many times as high.
fn tried(policy: &str, shape: CacheShape, times: u64) -> Option<(Box<dyn Policy + Send>, Sense)> {
    let (usual, sense) = (CmlSettings::thesis(shape), romer::cml(shape));
    if let Some((lru, hot)) = segments(policy) {
        return Some((Box::new(CmlPolicy::thesis(shape)), with_segments(shape, lru, hot)));
    }
    let (settings, cml) = if let Some((recolor, threshold)) = thresholds(policy) {
        (CmlSettings { recolor, ..usual }, Cml { threshold, ..sense.cml? })
    } else {
        let target = TargetChoice::named(policy.strip_prefix("CML ")?)?;
        let references = target == TargetChoice::ColdestRef;
        (CmlSettings { target, ..usual }, Cml { references, ..sense.cml? })
    };
    let settings = CmlSettings { recolor: times * settings.recolor, ..settings };
    let cml = Cml { threshold: times * cml.threshold, ..cml };
    let policy = Box::new(CmlPolicy::new(shape, settings));
    Some((policy, Sense { cml: Some(cml), ..sense }))
}

/// Scanning costs in proportion to the pages (table 5-1: 600 cycles for 32).
fn with_segments(shape: CacheShape, lru: usize, hot: usize) -> Sense {
    let sense = romer::cml(shape);
    let cost = 300 + 600 * (lru + hot) as u64 / 32;
    Sense { cml: sense.cml.map(|cml| Cml { entries: lru, hot, cost, ..cml }), ..sense }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_can_be_built_and_has_a_name_of_its_own() {
        for part in RomerPart::all() {
            let all = variants(part);
            let names: std::collections::BTreeSet<_> = all.iter().collect();
            assert_eq!(names.len(), all.len());
            for variant in &all {
                let ready = variant.ready().map(|ready| ready.watch.is_some());
                let bare = ["DM", "A2", "Victim", "Column", "FIXED 4 KB", OFFLINE];
                let policy = latency(&variant.policy).0;
                assert_eq!(ready, Ok(!bare.contains(&policy)), "{variant:?}");
            }
        }
        let wrong = RomerVariant::new(RomerPart::Conflicts, Initial::Random, "?");
        assert!(wrong.ready().is_err());
    }

    #[test]
    fn larger_pages_have_more_lines_fewer_colours_and_dearer_moves() {
        let of = |policy: &str| {
            let variant = RomerVariant::new(RomerPart::PageSizes, Initial::Coloring, policy);
            let shape = variant.shape(&shrunk(machine(ALPHA).unwrap(), variant.halvings()));
            let CacheShape { colors, lines_per_page, .. } = shape.unwrap();
            let (_, sense) = variant.ready().unwrap().watch.unwrap();
            (colors, lines_per_page, sense.cml.map(|cml| cml.threshold), sense.recolor_cost)
        };
        assert_eq!(of("CML 4 KB"), (128, 128, Some(192), romer::RECOLOR_COST));
        assert_eq!(of("CML 8 KB"), (64, 256, Some(320), 4_800 + 200 - 512));
        assert_eq!(of("CML 16 KB"), (32, 512, Some(576), 9_600 + 200 - 1_024));
    }

    #[test]
    fn bounds_of_rests_are_read_from_names() {
        let usual = RestBounds::default();
        assert_eq!(rest_bounds("THROTTLE"), Some(usual));
        assert_eq!(rest_bounds("THROTTLE t=0.04"), Some(RestBounds { target: 0.04, ..usual }));
        assert_eq!(rest_bounds("THROTTLE f=0.003"), Some(RestBounds { frequency: 0.003, ..usual }));
        let window = RestBounds { window: 1_000_000, ..usual };
        assert_eq!(rest_bounds("THROTTLE w=1000000"), Some(window));
        assert_eq!(rest_bounds("THROTTLE-Strict"), None);
        assert_eq!(rest_bounds("THROTTLE x=1"), None);
    }

    #[test]
    fn memory_is_slower_beyond_a_hit() {
        assert_eq!(latency("COMBINED x4"), ("COMBINED", 4));
        assert_eq!(latency("COMBINED-Fit"), ("COMBINED-Fit", 1));
        let of = |times| with_latency(machine(TLB).unwrap(), times).memory_latency;
        assert_eq!((of(1), of(4)), (6 + 25, 6 + 100));
    }

    #[test]
    fn page_sizes_and_segments_are_read_from_names() {
        assert_eq!(fixed_order("FIXED 4 KB"), Some(0));
        assert_eq!(fixed_order("FIXED 256 KB"), Some(6));
        assert_eq!(fixed_order("ASAP"), None);
        assert_eq!(segments("CML 8+32"), Some((8, 32)));
        assert_eq!(segments("CML"), None);
        assert_eq!(thresholds("CML 260/1024"), Some((260, 1024)));
        let shape = CacheShape::direct(64, 256);
        let cml = |policy| tried(policy, shape, 1).and_then(|(_, sense)| sense.cml);
        assert_eq!(cml("CML 260/320"), romer::cml(shape).cml);
        assert_eq!(cml("CML 260/1024").map(|cml| cml.threshold), Some(1024));
        assert_eq!(cml("CML coldest-ref").map(|cml| cml.references), Some(true));
        assert_eq!(cml("CML random").map(|cml| cml.references), Some(false));
        assert_eq!(cml("CML warmest"), None);
    }
}
