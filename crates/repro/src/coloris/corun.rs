//! Runs a case: which machine its programs share, and who decides which colours they have.

use huepage_color::ColorSet;
use huepage_frames::Sections;
use huepage_policy::coloris::{CurveSettings, Growth, Manager, Settings};

use super::apps::{App, CoRun, Open};
use super::cases::{ColorisCase, ColorisChange, ColorisPart, ColorisTimes, Placing, UNIT, WINDOW};
use super::outcome::{ColorisOutcome, ColorisProgramResult, Sums};
use crate::run::{self, RunFailed};
use huepage_sim::division::{self, RunningDivision};
use huepage_sim::experiment::{FrameMapping, WishError};
use huepage_sim::feedback::Every;
use huepage_sim::frames::Choice;
use huepage_sim::machine::Machine;
use huepage_sim::system::CopyCost;

const XEON: &str = include_str!("../../../../machines/xeon-e5506.toml");
const CORE_I3: &str = include_str!("../../../../machines/core-i3-2100.toml");

/// Cycles per KiB of a copy: 4 GB/s at 2.13 GHz. Read line by line through the simulated caches it
/// would take ten times as long, since no two misses overlap there.
const COPY: u64 = 500;
/// Requests of a period below which a program does not use the cache: one in 2000 cycles.
const IDLE: u64 = 2000;

/// Frames of a block, as a power of two, where frames are at random in blocks.
const BLOCK: u32 = 6;

/// Cycles per entry of a scan for hot pages: accessed bits are cleared, and read a while later. A walk of a page
/// table costs the paper's policies half of it (`huepage_sim::division`).
const SCAN: u64 = 20;

/// Runs a case; `heard` gets numbers of cycles simulated, of all cores that have a program.
///
/// # Errors
/// When a source or the machine cannot.
pub fn run<'a, E>(
    case: &ColorisCase,
    quick: bool,
    open: Open<'a, E>,
    heard: &dyn Fn(u64),
) -> Result<ColorisOutcome, RunFailed<E>> {
    let times = case.times(quick);
    let mut run = ready(case, times, open)?;
    run.run([times.period, times.warm_up, times.end], heard)?;
    let mut outcome = ColorisOutcome::of(case);
    for app in run.apps {
        let whole: Sums = app.sums(&run.system);
        outcome.programs.push(ColorisProgramResult {
            name: app.program.name.clone(),
            core: app.core,
            counted: whole.since(app.warm),
            whole,
            colors: app.colors.len(),
            recolored: run.system.costs(app.space).recolorings,
            history: app.history,
        });
    }
    Ok(outcome)
}

/// A section of the colours for each core.
fn sections(cores: usize, colors: u16) -> Result<Sections, WishError> {
    let sections = u16::try_from(cores).ok().and_then(|cores| Sections::new(cores, colors));
    sections.ok_or_else(|| WishError::new(format!("{colors} colors for {cores} cores; report it")))
}

/// A machine whose cores wait for an eighth of what comes beyond the L2, and of walks.
fn overlapping(mut machine: Machine) -> Machine {
    const SHARE: u64 = 8;
    let near = machine.cache.iter().filter(|cache| cache.level == 2).map(|cache| cache.latency);
    let near = near.max().unwrap_or(0);
    let waits = |latency: u64| near + latency.saturating_sub(near) / SHARE;
    let beyond = machine.cache.iter_mut().filter(|cache| cache.level > 2);
    beyond.for_each(|cache| cache.latency = waits(cache.latency));
    machine.memory_latency = waits(machine.memory_latency);
    machine.walk_latency /= SHARE;
    machine
}

/// The machine of a case.
fn machine(case: &ColorisCase) -> Result<Machine, WishError> {
    let slices = case.part == ColorisPart::Slices;
    let machine = run::machine(if slices { CORE_I3 } else { XEON })?;
    let overlapped = case.change == ColorisChange::Overlapped;
    Ok(if overlapped { overlapping(machine) } else { machine })
}

/// The programs of a case in their places.
fn ready<'a, E>(
    case: &ColorisCase,
    times: ColorisTimes,
    open: Open<'a, E>,
) -> Result<CoRun<'a, E>, RunFailed<E>> {
    let machine = machine(case)?;
    let last = machine.data_path().last().map(|&at| &machine.cache[at]);
    let lines = last.map_or(1, |cache| cache.ways as u64 * 4096 / cache.line.0);
    let mut system = run::system(machine, FrameMapping::Random(case.seed))?;
    if case.change == ColorisChange::Blocks {
        system.frames_mut().occupy(BLOCK, 0.5, case.seed);
    }
    system.charge_copies(CopyCost::PerKib(COPY));
    let colors = system.frames_mut().colors();
    let sections = sections(system.cores(), colors)?;
    let mut division = division(case, times, sections, lines);
    let mut apps = Vec::new();
    for (space, (program, core, own)) in (0..).zip(&case.programs) {
        if let Some(division) = &mut division {
            let spec = division.manager().settings.spec(&program.name, *own);
            division.admit(&mut system, usize::from(*core), space, spec);
        }
        let first = division.as_ref().and_then(|division| division.colors(apps.len()));
        let colors = match (&case.placing, first) {
            (_, Some(colors)) => colors.clone(),
            (Placing::Sections, _) => sections.section(*core),
            _ => ColorSet::all(colors),
        };
        match case.placing {
            Placing::Shared => {}
            Placing::InOrder => system.frames_mut().choose_for(space, Choice::InOrder),
            _ => system.frames_mut().choose_for(space, Choice::Partition(colors.clone())),
        }
        apps.push(App::new(program, *core, space, colors, open)?);
    }
    let mut run = CoRun::new(system, apps, times.quantum, division);
    run.scans = case.scan().map(|every| Every { every, cost: SCAN });
    Ok(run)
}

/// Who decides in a case. The monitor begins after two periods. The paper's looks at programs one after the
/// other, evenly within a period, ours at all at once.
fn division(
    case: &ColorisCase,
    times: ColorisTimes,
    sections: Sections,
    lines: u64,
) -> Option<RunningDivision> {
    let (settings, growth, apart) = match case.placing {
        Placing::Manager { thresholds, growth } => {
            let apart = times.period / case.programs.len().max(1) as u64;
            let rest = f64::from(case.rest()) * division::PERIOD_SECONDS;
            (Settings { bounds: thresholds, rest, ..Settings::PAPER }, growth, apart)
        }
        Placing::Utility => {
            let curve = CurveSettings::new(sections.colors(), lines);
            (Settings::utility(curve), Growth::Redistribution { window: 3 * WINDOW }, 0)
        }
        _ => return None,
    };
    let least_requests = times.period / IDLE;
    let settings = Settings { unit: UNIT, floor: case.floor(), least_requests, ..settings };
    let manager = Manager::on_cores(settings, sections.colors(), sections.cores())?;
    let times = division::Times { period: times.period, apart, tick: WINDOW };
    Some(RunningDivision::new(manager, growth, times))
}
