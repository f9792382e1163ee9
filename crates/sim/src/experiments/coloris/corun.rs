//! Runs a case: programs on the cores of one machine, each core with a clock of its own and the
//! one that is least far next, programs of one core in turns. Between slices the manager of the
//! case sees counters and says who has which colours; a recolouring engine for each address
//! space moves the pages, at the expense of its program. Everything ends at one time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use huepage_color::ColorSet;
use huepage_frames::Sections;
use huepage_policy::coloris::{Assignment, Growth, Recolorer};
use huepage_policy::{Action, Event, Policy};

use super::apps::{App, Open, Together, Turns};
use super::cases::{Case, Part, Placing, Times, WINDOW};
use super::managed::Managed;
use super::outcome::{Outcome, Sums, Told};
use crate::experiment::{Experiment, Mapping, WishError};
use crate::experiments::run::RunFailed;
use crate::feedback::{Every, Sense};
use crate::frames::Choice;
use crate::machine::Machine;
use crate::system::{CopyCost, System};

const XEON: &str = include_str!("../../../../../machines/xeon-e5506.toml");
const CORE_I3: &str = include_str!("../../../../../machines/core-i3-2100.toml");

/// Cycles per entry of a walk of the page table.
const TABLE: u64 = 10;
/// Cycles of a page fault, and of finding a frame and dropping a translation on all cores.
const TRAP: u64 = 1500;
/// Cycles per KiB of a copy: 4 GB/s at 2.13 GHz. Read line by line through the simulated caches it
/// would take ten times as long, since no two misses overlap there.
const COPY: u64 = 500;
/// Cycles for the record of a precise event: it is written to a buffer and read from there.
const RECORD: u64 = 100;

/// An engine that its space and the manager both know.
struct Shared(Arc<Mutex<Recolorer>>);

impl Policy for Shared {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        lock(&self.0).handle(event, actions);
    }
}

fn lock(engine: &Mutex<Recolorer>) -> MutexGuard<'_, Recolorer> {
    engine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A case at work.
struct CoRun<'a, E> {
    system: System,
    times: Times,
    apps: Vec<App<'a, E>>,
    cores: Vec<Turns>,
    managed: Managed,
    engines: Vec<Arc<Mutex<Recolorer>>>,
    /// Whether the engine of a space has to hear of what happens.
    governed: Vec<bool>,
    sampled: Vec<bool>,
    growth: Growth,
    lines: Vec<u64>,
}

/// Runs a case; `heard` gets numbers of cycles simulated, of all cores that have a program.
///
/// # Errors
/// When a source or the machine cannot.
pub fn run<'a, E>(
    case: &Case,
    quick: bool,
    open: Open<'a, E>,
    heard: &dyn Fn(u64),
) -> Result<Outcome, RunFailed<E>> {
    let times = case.times(quick);
    let mut run = CoRun::new(case, times, open)?;
    run.through(times.warm_up, times.end, heard)?;
    run.finish(case)
}

/// The machine of a part, and the ways and lines of a colour.
fn machine(part: Part) -> Result<(Machine, u64), WishError> {
    let text = if part == Part::Slices { CORE_I3 } else { XEON };
    let machine = Machine::parse(text).map_err(|error| WishError::new(error.to_string()))?;
    let path = machine.data_path();
    let last = path.last().map(|&at| &machine.cache[at]);
    let lines = last.map_or(1, |cache| cache.ways as u64 * 4096 / cache.line.0);
    Ok((machine, lines))
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
            self.release(at);
            self.collect(at);
            self.manage();
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
    fn new(case: &Case, times: Times, open: Open<'a, E>) -> Result<CoRun<'a, E>, RunFailed<E>> {
        let (machine, lines) = machine(case.part).map_err(RunFailed::Wish)?;
        let cores = machine.cores;
        let (level, partitions, audit) = (None, Vec::new(), None);
        let mapping = Mapping::Random(case.seed);
        let wish = Experiment { machine, level, mapping, partitions, audit, fragment: 0.0 };
        let mut system = wish.build().map_err(RunFailed::Wish)?;
        let colors = system.frames_mut().colors();
        system.charge_copies(CopyCost::PerKib(COPY));
        let sections = u16::try_from(cores).ok().and_then(|cores| Sections::new(cores, colors));
        let sections = sections.ok_or_else(|| {
            WishError::new(format!("{colors} colors for {cores} cores; report it"))
        })?;
        let managed = Managed::new(case, times, sections, lines);
        let growth = match case.placing {
            Placing::Manager { growth, .. } => growth,
            _ => Growth::Redistribution { window: 3 * WINDOW },
        };
        let (mut apps, mut engines) = (Vec::new(), Vec::new());
        for (space, (program, core, _)) in (0..).zip(&case.programs) {
            let colors = match (&case.placing, managed.first_colors(apps.len())) {
                (_, Some(colors)) => colors,
                (Placing::Sections, _) => sections.section(*core),
                _ => ColorSet::all(colors),
            };
            if case.placing != Placing::Shared {
                let choice = Choice::Partition(colors.clone());
                system.frames_mut().choose_for(space, choice);
            }
            engines.push(Arc::new(Mutex::new(Recolorer::new(colors.clone(), growth))));
            apps.push(App::new(program, *core, space, colors, open)?);
        }
        let queue = |core: usize| {
            let own = |&at: &usize| usize::from(apps[at].core) == core;
            (0..apps.len()).filter(own).collect::<VecDeque<usize>>()
        };
        let cores = (0..cores).map(|core| Turns::new(queue(core))).collect();
        let (governed, sampled) = (vec![false; apps.len()], vec![false; apps.len()]);
        let lines = Vec::new();
        Ok(CoRun { system, times, apps, cores, managed, engines, governed, sampled, growth, lines })
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

    /// An engine with nothing to wait for need not watch every access.
    fn release(&mut self, at: usize) {
        if self.governed[at] && lock(&self.engines[at]).is_idle() {
            self.system.release(self.apps[at].space);
            self.governed[at] = false;
        }
    }

    /// Hands the lines that were requested to the manager, or ends that.
    fn collect(&mut self, at: usize) {
        let (wanted, space) = (self.managed.wants_requests(at), self.apps[at].space);
        if wanted != self.sampled[at] {
            self.sampled[at] = wanted;
            self.system.sample_requests(space, wanted.then_some(RECORD));
        }
        if wanted {
            self.lines.clear();
            self.system.take_requests(space, &mut self.lines);
            self.managed.requested(at, &self.lines);
        }
    }

    /// The manager sees the programs whose time has come.
    fn manage(&mut self) {
        let now = self.now();
        for at in 0..self.apps.len() {
            if self.managed.is_due(at, now) {
                let sums = self.apps[at].sums(&self.system);
                for change in self.managed.observe(at, sums) {
                    self.assign(&change);
                }
            }
        }
    }

    /// Programs are numbered as the manager numbers them.
    fn assign(&mut self, change: &Assignment) {
        let at = change.app.0;
        let (space, core) = (self.apps[at].space, usize::from(self.apps[at].core));
        let choice = Choice::Partition(change.colors.clone());
        self.system.frames_mut().choose_for(space, choice);
        lock(&self.engines[at]).assign(change.colors.clone());
        self.apps[at].colors.clone_from(&change.colors);
        if !self.governed[at] {
            self.govern(at);
        }
        let before = self.system.cycles(space);
        self.system.audit_now(core, space);
        self.cores[core].clock += self.system.cycles(space) - before;
    }

    fn govern(&mut self, at: usize) {
        let window = match self.growth {
            Growth::Redistribution { window } => window,
            Growth::SelectiveMoving { .. } => WINDOW,
        };
        let progress = Some(Every { every: (window / 4).max(1), cost: 0 });
        let (table_cost, trap_cost, recolor_cost) = (TABLE, TRAP, TRAP);
        let sense = Sense { progress, table_cost, trap_cost, recolor_cost, ..Sense::default() };
        let engine = Box::new(Shared(Arc::clone(&self.engines[at])));
        // The space has run, so it can be.
        self.governed[at] = self.system.govern(self.apps[at].space, engine, sense).is_ok();
    }

    fn finish(mut self, case: &Case) -> Result<Outcome, RunFailed<E>> {
        self.system.finish();
        self.system.check().map_err(RunFailed::Unsound)?;
        let mut outcome = Outcome::of(case);
        for app in self.apps {
            let whole: Sums = app.sums(&self.system);
            outcome.programs.push(Told {
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
