//! Runs a case: programs on the cores of one machine, each core with a clock of its own and the
//! one that is least far next, programs of one core in turns. Between slices the manager of the
//! case sees counters and says who has which colours; a recolouring engine for each address
//! space moves the pages, at the expense of its program. Everything ends at one time.

use std::collections::VecDeque;

use huepage_color::ColorSet;
use huepage_frames::Sections;
use huepage_policy::coloris::{CurveSettings, Growth, Manager, Settings};

use super::apps::{App, Open, Together, Turns};
use super::cases::{ColorisCase, ColorisPart, ColorisTimes, Placing, UNIT, WINDOW};
use super::outcome::{ColorisOutcome, ColorisProgramResult, Sums};
use crate::run::RunFailed;
use huepage_sim::division::{self, RunningDivision};
use huepage_sim::experiment::{Experiment, FrameMapping, WishError};
use huepage_sim::frames::Choice;
use huepage_sim::machine::Machine;
use huepage_sim::system::{CopyCost, System};

const XEON: &str = include_str!("../../../../machines/xeon-e5506.toml");
const CORE_I3: &str = include_str!("../../../../machines/core-i3-2100.toml");

/// Cycles per KiB of a copy: 4 GB/s at 2.13 GHz. Read line by line through the simulated caches it
/// would take ten times as long, since no two misses overlap there.
const COPY: u64 = 500;
/// Requests of a period below which a program does not use the cache: one in 2000 cycles.
const IDLE: u64 = 2000;

/// A case at work.
struct CoRun<'a, E> {
    system: System,
    times: ColorisTimes,
    apps: Vec<App<'a, E>>,
    cores: Vec<Turns>,
    /// None: nobody decides.
    division: Option<RunningDivision>,
}

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
    let mut run = CoRun::new(case, times, open)?;
    run.through(times.warm_up, times.end, heard)?;
    run.finish(case)
}

/// The machine of a part, and the ways and lines of a colour.
fn machine(part: ColorisPart) -> Result<(Machine, u64), WishError> {
    let text = if part == ColorisPart::Slices { CORE_I3 } else { XEON };
    let machine = Machine::parse(text).map_err(|error| WishError::new(error.to_string()))?;
    let path = machine.data_path();
    let last = path.last().map(|&at| &machine.cache[at]);
    let lines = last.map_or(1, |cache| cache.ways as u64 * 4096 / cache.line.0);
    Ok((machine, lines))
}

/// The machine with its memory, in frames at random, and what copying a page costs.
fn system(machine: Machine, seed: u64) -> Result<System, WishError> {
    let (level, partitions, audit) = (None, Vec::new(), None);
    let mapping = FrameMapping::Random(seed);
    let wish = Experiment { machine, level, mapping, partitions, audit, fragment: 0.0 };
    let mut system = wish.build()?;
    system.charge_copies(CopyCost::PerKib(COPY));
    Ok(system)
}

/// A section of the colours for each core.
fn sections(cores: usize, colors: u16) -> Result<Sections, WishError> {
    let sections = u16::try_from(cores).ok().and_then(|cores| Sections::new(cores, colors));
    sections.ok_or_else(|| WishError::new(format!("{colors} colors for {cores} cores; report it")))
}

impl<'a, E> Together<'a, E> for CoRun<'a, E> {
    fn parts(&mut self) -> (&mut System, &mut [App<'a, E>]) {
        (&mut self.system, &mut self.apps)
    }

    fn until(&mut self, end: u64, heard: &dyn Fn(u64)) -> Result<(), RunFailed<E>> {
        let mut next = self.now() + self.times.period;
        while let Some(core) = self.next_core().filter(|&core| self.cores[core].clock < end) {
            let at = self.cores[core].queue[0];
            let cycles = self.apps[at].step(&mut self.system)?;
            self.cores[core].pass(cycles, self.times.quantum);
            self.manage(at);
            if self.now() >= next {
                next += self.times.period;
                heard(self.times.period * self.busy() as u64);
                for app in &mut self.apps {
                    app.history.push(app.colors.len());
                }
            }
        }
        Ok(())
    }
}

impl<'a, E> CoRun<'a, E> {
    fn new(
        case: &ColorisCase,
        times: ColorisTimes,
        open: Open<'a, E>,
    ) -> Result<CoRun<'a, E>, RunFailed<E>> {
        let (machine, lines) = machine(case.part).map_err(RunFailed::Wish)?;
        let cores = machine.cores;
        let mut system = system(machine, case.seed).map_err(RunFailed::Wish)?;
        let colors = system.frames_mut().colors();
        let sections = sections(cores, colors).map_err(RunFailed::Wish)?;
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
            if case.placing != Placing::Shared {
                let choice = Choice::Partition(colors.clone());
                system.frames_mut().choose_for(space, choice);
            }
            apps.push(App::new(program, *core, space, colors, open)?);
        }
        let queue = |core: usize| {
            let own = |&at: &usize| usize::from(apps[at].core) == core;
            (0..apps.len()).filter(own).collect::<VecDeque<usize>>()
        };
        let cores = (0..cores).map(|core| Turns::new(queue(core))).collect();
        Ok(CoRun { system, times, apps, cores, division })
    }

    fn busy(&self) -> usize {
        self.cores.iter().filter(|core| !core.queue.is_empty()).count()
    }

    /// The core that is least far, of those with a program.
    fn next_core(&self) -> Option<usize> {
        let busy = (0..self.cores.len()).filter(|&core| !self.cores[core].queue.is_empty());
        busy.min_by_key(|&core| self.cores[core].clock)
    }

    /// The time that all cores have reached.
    fn now(&self) -> u64 {
        self.next_core().map_or(0, |core| self.cores[core].clock)
    }

    /// After a program has run: the manager sees those whose time has come.
    fn manage(&mut self, at: usize) {
        let now = self.now();
        let Some(division) = &mut self.division else { return };
        division.step(&mut self.system, at);
        for (at, cycles) in division.decide(&mut self.system, now) {
            let app = &mut self.apps[at];
            self.cores[usize::from(app.core)].clock += cycles;
            app.colors = division.colors(at).cloned().unwrap_or_else(|| app.colors.clone());
        }
    }

    fn finish(mut self, case: &ColorisCase) -> Result<ColorisOutcome, RunFailed<E>> {
        self.system.finish();
        self.system.check().map_err(RunFailed::Unsound)?;
        let mut outcome = ColorisOutcome::of(case);
        for app in self.apps {
            let whole: Sums = app.sums(&self.system);
            outcome.programs.push(ColorisProgramResult {
                name: app.program.name.clone(),
                core: app.core,
                counted: whole.since(app.warm),
                whole,
                colors: app.colors.len(),
                recolored: self.system.costs(app.space).recolorings,
                history: app.history,
            });
        }
        Ok(outcome)
    }
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
            (Settings { bounds: thresholds, ..Settings::PAPER }, growth, apart)
        }
        Placing::Utility => {
            let curve = CurveSettings::new(sections.colors(), lines);
            (Settings::utility(curve), Growth::Redistribution { window: 3 * WINDOW }, 0)
        }
        _ => return None,
    };
    let least_requests = times.period / IDLE;
    let settings = Settings { unit: UNIT, floor: UNIT, least_requests, ..settings };
    let manager = Manager::on_cores(settings, sections.colors(), sections.cores())?;
    let times = division::Times { period: times.period, apart, tick: WINDOW };
    Some(RunningDivision::new(manager, growth, times))
}
