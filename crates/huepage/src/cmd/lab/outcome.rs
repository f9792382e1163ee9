//! What the columns of the lab counted, and the verdict on them.

use huepage_sim::lab::tlbs::{TlbRow, TlbWork};
use huepage_sim::lab::{CLASSES, EmulatedCaches, KERNEL, LevelCounts, WorkCounts};
use huepage_sim::machine::Machine;
use serde::Serialize;
use serde_json::Value;

use super::guest::SUPERVISORS;
use super::plan::{GuestPlan, GuestReport, ProgramEnd};
use super::speed::LabSpeed;

/// Misses per access of the victim below which it is undisturbed.
const UNDISTURBED: f64 = 0.01;
/// Accesses of the neighbour per access of the victim may differ by this factor between columns.
const EQUAL: f64 = 1.2;

/// One column: one boot.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// `alone`, `beside` or `with huepage`.
    pub name: String,
    /// Seconds of the guest until its programs had settled, or until that was waited for no longer.
    pub settle_seconds: f64,
    /// Why they had not settled, or did not stay so while they were counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsettled: Option<String>,
    /// The programs by their order, then what else ran: huepage's supervisors, the rest of the guest,
    /// the kernel.
    pub programs: Vec<ProgramCounts>,
    /// Lines of the last level of each of `programs` that each of them evicted.
    pub evictions: Vec<Vec<u64>>,
    /// Each cache since the emulator began to tell, summed over its copies.
    pub caches: Vec<CacheTotals>,
    /// The same of each TLB, where they are counted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tlbs: Vec<TlbRow>,
    /// Accesses since then.
    pub accesses: u64,
    /// How fast it was emulated, if that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<LabSpeed>,
}

/// What a program did while it was counted.
#[derive(Clone, Debug, Serialize)]
pub struct ProgramCounts {
    /// Its command, or what it is.
    pub name: String,
    /// Accesses.
    pub accesses: u64,
    /// Accesses for each of the victim's.
    pub intensity: f64,
    /// At each level, the nearest first.
    pub levels: Vec<LevelRow>,
    /// Misses of the last level per access.
    pub miss_share: f64,
    /// What TLBs were asked, where they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<TlbWork>,
    /// Instructions and cycles, where the guest had a PMU.
    #[serde(flatten)]
    pub work: Option<WorkCounts>,
    /// The report of `huepage run`, if that governed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Value>,
    /// Pages that huepage moved, if it governed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages_moved: Option<u64>,
    /// Its status and the last that it said, if it ended before counting did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_early: Option<String>,
}

/// A level.
#[derive(Clone, Debug, Serialize)]
pub struct LevelRow {
    /// Its number.
    pub level: u8,
    /// Requests and misses.
    #[serde(flatten)]
    pub counts: LevelCounts,
}

/// All requests to a cache.
#[derive(Clone, Debug, Serialize)]
pub struct CacheTotals {
    /// Which one.
    pub cache: String,
    /// Lines asked for.
    pub requests: u64,
    /// Of these, misses.
    pub misses: u64,
}

impl Column {
    /// What was counted under a plan.
    pub fn new(
        name: &str,
        machine: &Machine,
        plan: &GuestPlan,
        guest: &GuestReport,
        caches: &EmulatedCaches,
    ) -> Column {
        let classes = classes(plan);
        let victim = caches.class(1).accesses;
        let ends = guest.programs.iter().map(Some).chain(std::iter::repeat(None));
        let programs = classes
            .iter()
            .zip(ends)
            .map(|((class, name), end)| counts(caches, machine, (*class, name), victim, end));
        let row = |owner: usize| classes.iter().map(|(by, _)| caches.evicted(owner, *by)).collect();
        let totals = caches.totals(machine).into_iter().map(|(cache, counts)| CacheTotals {
            cache,
            requests: counts.total(),
            misses: counts.missed(),
        });
        Column {
            name: name.to_owned(),
            settle_seconds: guest.settle_seconds,
            unsettled: guest.unsettled.clone(),
            programs: programs.collect(),
            evictions: classes.iter().map(|(owner, _)| row(*owner)).collect(),
            caches: totals.collect(),
            tlbs: caches.tlb_totals(),
            accesses: caches.seen,
            speed: None,
        }
    }

    /// The first of the programs.
    fn victim(&self) -> &ProgramCounts {
        &self.programs[0]
    }

    /// Lines of the victim that programs of the plan evicted, itself not counted.
    fn lost(&self, programs: usize) -> u64 {
        self.evictions[0][1..programs].iter().sum()
    }
}

/// Classes that are shown, with their names.
fn classes(plan: &GuestPlan) -> Vec<(usize, String)> {
    let programs = plan.programs.iter().map(|program| program.words.join(" "));
    let mut all: Vec<(usize, String)> = (1..).zip(programs).collect();
    if plan.daemon || plan.programs.iter().any(|program| program.with.is_some()) {
        all.push((SUPERVISORS as usize, "huepage".to_owned()));
    }
    all.extend([(0, "other programs".to_owned()), (KERNEL, "kernel".to_owned())]);
    debug_assert!(all.iter().all(|(class, _)| *class < CLASSES));
    all
}

fn counts(
    caches: &EmulatedCaches,
    machine: &Machine,
    (class, name): (usize, &String),
    victim: u64,
    end: Option<&ProgramEnd>,
) -> ProgramCounts {
    let found = caches.class(class);
    let levels = machine.data_path().into_iter().map(|at| machine.cache[at].level);
    let levels = levels.zip(&found.levels).map(|(level, &counts)| LevelRow { level, counts });
    let misses = found.levels.last().map_or(0, |last| last.misses);
    let report = end.and_then(|end| end.report.as_ref());
    ProgramCounts {
        name: name.clone(),
        accesses: found.accesses,
        intensity: ratio(found.accesses, victim),
        levels: levels.collect(),
        miss_share: ratio(misses, found.accesses),
        tlb: found.tlb,
        work: found.work,
        pages_moved: report.map(moved),
        report: report.cloned(),
        ended_early: end.and_then(|end| {
            let last = end.said.lines().last().unwrap_or("said nothing");
            end.ended_early.as_ref().map(|status| format!("{status}, {last}"))
        }),
    }
}

/// Pages that the report of a run has as placed or recoloured.
fn moved(report: &Value) -> u64 {
    ["placed", "recolored"].iter().filter_map(|name| report[*name].as_u64()).sum()
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// What the columns say of the victim.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LabVerdict {
    /// Whether huepage kept the neighbours out: hardly a miss, and no line lost to them.
    pub isolated: bool,
    /// Whether neighbours were as busy with huepage as without, so that columns can be compared.
    pub comparable: bool,
    /// In words.
    pub text: String,
}

impl LabVerdict {
    /// Of all columns; none of a victim that was only alone.
    pub fn of(columns: &[Column], programs: usize) -> Option<LabVerdict> {
        let (beside, with) = (columns.get(1)?, columns.get(2)?);
        let intensity = |column: &Column| -> f64 {
            column.programs[1..programs].iter().map(|program| program.intensity).sum()
        };
        let (before, after) = (intensity(beside), intensity(with));
        let comparable = before > 0.0 && (1.0 / EQUAL..=EQUAL).contains(&(after / before));
        let (victim, lost) = (with.victim(), with.lost(programs));
        let ended =
            columns.iter().flat_map(|column| &column.programs).any(|p| p.ended_early.is_some());
        let quiet = victim.accesses > 0 && victim.miss_share < UNDISTURBED;
        let isolated = quiet && lost == 0 && !ended;
        let mut text = format!(
            "{}: last-level misses per access {:.3} % alone, {:.3} % beside, {:.3} % with huepage; neighbours evicted {} of its lines without huepage and {lost} with it",
            if isolated { "isolated" } else { "not isolated" },
            columns[0].victim().miss_share * 100.0,
            beside.victim().miss_share * 100.0,
            victim.miss_share * 100.0,
            beside.lost(programs),
        );
        if !comparable {
            text += &format!(
                "; not comparable: neighbours made {before:.2} accesses for each of the victim's without huepage and {after:.2} with it"
            );
        }
        if let Some(what) = &with.unsettled {
            text += &format!("; huepage had not settled: {what}");
        }
        if ended {
            text += "; not all programs ran to the end: give ones that run longer";
        }
        Some(LabVerdict { isolated, comparable, text })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(misses: f64, intensity: f64, lost: u64) -> Column {
        let program = |miss_share, intensity| ProgramCounts {
            name: String::new(),
            accesses: 1000,
            intensity,
            levels: Vec::new(),
            miss_share,
            tlb: None,
            work: None,
            report: None,
            pages_moved: None,
            ended_early: None,
        };
        Column {
            name: String::new(),
            settle_seconds: 0.0,
            unsettled: None,
            programs: vec![program(misses, 1.0), program(1.0, intensity), program(0.5, 9.0)],
            evictions: vec![vec![5, lost, 7], vec![0; 3], vec![0; 3]],
            caches: Vec::new(),
            tlbs: Vec::new(),
            accesses: 0,
            speed: None,
        }
    }

    fn verdict(with: Column) -> LabVerdict {
        LabVerdict::of(&[column(0.0, 0.0, 0), column(0.98, 1.0, 900), with], 2).unwrap()
    }

    #[test]
    fn isolated_is_who_loses_nothing_to_neighbours() {
        let good = verdict(column(0.001, 1.1, 0));
        assert!(good.isolated && good.comparable, "{}", good.text);
        assert!(good.text.contains("900 of its lines without huepage and 0 with it"));
        assert!(!verdict(column(0.001, 1.0, 1)).isolated);
        assert!(!verdict(column(0.02, 1.0, 0)).isolated);
        let lazy = verdict(column(0.001, 0.5, 0));
        assert!(!lazy.comparable && lazy.text.contains("not comparable"));
        let mut busy = column(0.001, 1.0, 0);
        busy.unsettled = Some("pages were moved".to_owned());
        assert!(verdict(busy).text.ends_with("huepage had not settled: pages were moved"));
        let mut ended = column(0.001, 1.0, 0);
        ended.programs[1].ended_early = Some("exit status: 1".to_owned());
        assert!(!verdict(ended).isolated);
        assert_eq!(LabVerdict::of(&[column(0.0, 0.0, 0)], 1), None);
    }
}
