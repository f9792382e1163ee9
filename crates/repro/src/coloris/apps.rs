//! Programs beside each other on the cores of one machine, each core with a clock of its own and the one that
//! is least far next, programs of one core in turns. Each program has a source of accesses that begins again
//! at its end, an address space, and a place on a core. What it may use is decided elsewhere: between slices
//! a division, if there is one, sees counters and moves pages, at the expense of their program.

use std::collections::VecDeque;

use huepage_color::ColorSet;

use huepage_policy::{Action, Event, Policy};

use super::outcome::Sums;
use super::programs::ColorisProgram;
use crate::run::{BatchReader, RunFailed};
use huepage_sim::division::RunningDivision;
use huepage_sim::feedback::{Every, Sense};
use huepage_sim::record::Record;
use huepage_sim::system::System;

/// Begins the accesses of a program.
pub type Open<'a, E> = &'a dyn Fn(&ColorisProgram) -> Result<BatchReader<'static, E>, E>;

/// Accesses between looks at the clock.
const STEP: usize = 512;

/// Hears which pages were accessed and does nothing with it: what is left is the price of looking.
struct Unmoved;

impl Policy for Unmoved {
    fn handle(&mut self, _: Event, _: &mut Vec<Action>) {}
}

/// A program at work.
pub(crate) struct App<'a, E> {
    pub(crate) program: ColorisProgram,
    open: Open<'a, E>,
    batches: BatchReader<'static, E>,
    batch: Vec<Record>,
    at: usize,
    /// The first address space of its trace, which is the one that counts.
    own: Option<u16>,
    pub(crate) core: u16,
    pub(crate) space: u16,
    pub(crate) colors: ColorSet,
    pub(crate) history: Vec<u16>,
    /// Counts when the warm-up ended.
    pub(crate) warm: Sums,
}

impl<'a, E> App<'a, E> {
    pub(crate) fn new(
        program: &ColorisProgram,
        core: u16,
        space: u16,
        colors: ColorSet,
        open: Open<'a, E>,
    ) -> Result<App<'a, E>, RunFailed<E>> {
        Ok(App {
            program: program.clone(),
            open,
            batches: open(program).map_err(RunFailed::Source)?,
            batch: Vec::new(),
            at: 0,
            own: None,
            core,
            space,
            colors,
            history: Vec::new(),
            warm: Sums::default(),
        })
    }

    /// Does a few accesses; the cycles they took.
    pub(crate) fn step(&mut self, system: &mut System) -> Result<u64, RunFailed<E>> {
        if self.at == self.batch.len() {
            self.refill()?;
        }
        let end = self.batch.len().min(self.at + STEP);
        let before = system.cycles(self.space);
        let records = &self.batch[self.at..end];
        system.run(usize::from(self.core), records)?;
        self.at = end;
        Ok(system.cycles(self.space) - before)
    }

    /// Does its first accesses, whatever time they take.
    pub(crate) fn start(&mut self, system: &mut System) -> Result<(), RunFailed<E>> {
        let enough = self.program.start();
        while system.costs(self.space).accesses < enough {
            self.step(system)?;
        }
        Ok(())
    }

    /// Gets more accesses, from the start again at the end.
    fn refill(&mut self) -> Result<(), RunFailed<E>> {
        let (mut begun, mut more) = (false, true);
        self.at = 0;
        self.batch.clear();
        while self.batch.is_empty() {
            if !more {
                if begun {
                    return Err(RunFailed::Empty(self.program.name.clone()));
                }
                self.batches = (self.open)(&self.program).map_err(RunFailed::Source)?;
                begun = true;
            }
            more = (self.batches)(&mut self.batch).map_err(RunFailed::Source)?;
            self.keep_own();
        }
        Ok(())
    }

    /// Other address spaces of a trace are left out, and threads run on the program's core.
    fn keep_own(&mut self) {
        let Some(first) = self.batch.first() else { return };
        let own = *self.own.get_or_insert(first.space);
        self.batch.retain(|record| record.space == own);
        let (space, work) = (self.space, self.program.work);
        self.batch.iter_mut().for_each(|r| {
            let instructions = r.instructions.saturating_add(work);
            *r = Record { space, thread: 0, instructions, ..*r };
        });
    }

    /// All that it did so far.
    pub(crate) fn sums(&self, system: &System) -> Sums {
        let costs = system.costs(self.space);
        let (requests, misses) = system.last_level(self.space);
        let (instructions, cycles, second) =
            (costs.instructions, costs.cycles(), costs.miss_cycles[0]);
        let memory = system.memory_cycles(self.space);
        Sums { instructions, cycles, requests, misses, second, memory }
    }
}

/// Programs in turns on one core.
struct Turns {
    clock: u64,
    /// Places of its programs, the one whose turn it is first.
    queue: VecDeque<usize>,
    used: u64,
}

impl Turns {
    /// The program whose turn it is has used so many cycles.
    fn pass(&mut self, cycles: u64, quantum: u64) {
        self.clock += cycles;
        self.used += cycles;
        if self.used >= quantum {
            self.queue.rotate_left(1);
            self.used = 0;
        }
    }
}

/// Programs at work together.
pub(crate) struct CoRun<'a, E> {
    pub(crate) system: System,
    pub(crate) apps: Vec<App<'a, E>>,
    cores: Vec<Turns>,
    /// Cycles of a turn.
    quantum: u64,
    /// None: nobody decides.
    division: Option<RunningDivision>,
    /// Scans of all page tables for hot pages.
    pub(crate) scans: Option<Every>,
}

impl<'a, E> CoRun<'a, E> {
    pub(crate) fn new(
        system: System,
        apps: Vec<App<'a, E>>,
        quantum: u64,
        division: Option<RunningDivision>,
    ) -> CoRun<'a, E> {
        let turns = |core: usize| {
            let own = |&at: &usize| usize::from(apps[at].core) == core;
            Turns { clock: 0, queue: (0..apps.len()).filter(own).collect(), used: 0 }
        };
        let all = (0..system.cores()).map(turns);
        let cores = all.filter(|core| !core.queue.is_empty()).collect();
        CoRun { system, apps, cores, quantum, division, scans: None }
    }

    /// Runs everything to the end: the starts of programs before the clock is, and what comes before
    /// the end of the warm-up not counted. `heard` gets numbers of cycles simulated, once in each period.
    pub(crate) fn run(
        &mut self,
        [period, warm_up, end]: [u64; 3],
        heard: &dyn Fn(u64),
    ) -> Result<(), RunFailed<E>> {
        self.apps.iter_mut().try_for_each(|app| app.start(&mut self.system))?;
        self.system.forget_counts();
        self.watch_pages()?;
        self.until(period, warm_up, heard)?;
        self.apps.iter_mut().for_each(|app| app.warm = app.sums(&self.system));
        self.until(period, end, heard)?;
        self.system.finish();
        self.system.check().map_err(RunFailed::Unsound)
    }

    /// Begins the scans, whose periods are of the cycles that are counted.
    fn watch_pages(&mut self) -> Result<(), RunFailed<E>> {
        let sense = Sense { access_scan: self.scans, ..Sense::default() };
        for app in self.apps.iter().filter(|_| sense.access_scan.is_some()) {
            self.system.govern(app.space, Box::new(Unmoved), sense)?;
        }
        Ok(())
    }

    /// Runs everything until a time.
    fn until(&mut self, period: u64, end: u64, heard: &dyn Fn(u64)) -> Result<(), RunFailed<E>> {
        let mut next = self.now() + period;
        while let Some(core) = self.next_core().filter(|&core| self.cores[core].clock < end) {
            let at = self.cores[core].queue[0];
            let cycles = self.apps[at].step(&mut self.system)?;
            self.cores[core].pass(cycles, self.quantum);
            self.manage(at);
            if self.now() >= next {
                next += period;
                heard(period * self.cores.len() as u64);
                self.apps.iter_mut().for_each(|app| app.history.push(app.colors.len()));
            }
        }
        Ok(())
    }

    /// The core that is least far.
    fn next_core(&self) -> Option<usize> {
        (0..self.cores.len()).min_by_key(|&core| self.cores[core].clock)
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
            let own = self.cores.iter_mut().find(|core| core.queue.contains(&at));
            own.into_iter().for_each(|core| core.clock += cycles);
            let app = &mut self.apps[at];
            app.colors = division.colors(at).cloned().unwrap_or_else(|| app.colors.clone());
        }
    }
}
