//! The programs of a co-run: each has a source of accesses that begins again at its end, an
//! address space, and a place on a core. What a program may use is decided elsewhere.

use std::collections::VecDeque;

use huepage_color::ColorSet;

use super::outcome::Sums;
use super::programs::ColorisProgram;
use crate::run::{BatchReader, RunFailed};
use huepage_sim::record::Record;
use huepage_sim::system::System;

/// Begins the accesses of a program.
pub type Open<'a, E> = &'a dyn Fn(&ColorisProgram) -> Result<BatchReader<'static, E>, E>;

/// Accesses between looks at the clock.
const STEP: usize = 512;

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
        system.run(usize::from(self.core), records).map_err(RunFailed::Machine)?;
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
        let space = self.space;
        self.batch.iter_mut().for_each(|r| *r = Record { space, thread: 0, ..*r });
    }

    /// All that it did so far.
    pub(crate) fn sums(&self, system: &System) -> Sums {
        let costs = system.costs(self.space);
        let (requests, misses) = system.last_level(self.space);
        Sums { instructions: costs.instructions, cycles: costs.cycles(), requests, misses }
    }
}

/// Programs beside each other on one machine.
pub(crate) trait Together<'a, E: 'a> {
    /// The machine and its programs.
    fn parts(&mut self) -> (&mut System, &mut [App<'a, E>]);

    /// Runs everything until a time; `heard` gets numbers of cycles simulated.
    fn until(&mut self, end: u64, heard: &dyn Fn(u64)) -> Result<(), RunFailed<E>>;

    /// Runs everything to the end: the starts of programs before the clock is, and what comes before
    /// the end of the warm-up not counted.
    fn through(&mut self, warm_up: u64, end: u64, heard: &dyn Fn(u64)) -> Result<(), RunFailed<E>> {
        let (system, apps) = self.parts();
        apps.iter_mut().try_for_each(|app| app.start(system))?;
        system.forget_counts();
        self.until(warm_up, heard)?;
        let (system, apps) = self.parts();
        apps.iter_mut().for_each(|app| app.warm = app.sums(system));
        self.until(end, heard)
    }
}

/// Programs in turns on one core.
pub(crate) struct Turns {
    pub(crate) clock: u64,
    /// Places of its programs, the one whose turn it is first.
    pub(crate) queue: VecDeque<usize>,
    used: u64,
}

impl Turns {
    pub(crate) const fn new(queue: VecDeque<usize>) -> Turns {
        Turns { clock: 0, queue, used: 0 }
    }

    /// The program whose turn it is has used so many cycles.
    pub(crate) fn pass(&mut self, cycles: u64, quantum: u64) {
        self.clock += cycles;
        self.used += cycles;
        if self.used >= quantum {
            self.queue.rotate_left(1);
            self.used = 0;
        }
    }
}
