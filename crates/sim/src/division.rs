//! COLORIS at work on a simulated machine: counters of the last cache are read once a period for each program,
//! and a program whose colours change gets a recolouring engine (`huepage_policy::coloris::Recolorer`)
//! that moves its pages at its own expense. Who gets which colours is decided by the manager.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use huepage_color::ColorSet;
use huepage_policy::coloris::{AppId, Decision, Growth, Manager, Recolorer, Spec};
use huepage_policy::{Action, Event, Policy};

use crate::feedback::{Every, Sense};
use crate::frames::Choice;
use crate::system::System;

/// Cycles per entry of a walk of the page table.
const TABLE: u64 = 10;
/// Cycles of a page fault, and of finding a frame and dropping a translation on all cores.
const TRAP: u64 = 1500;
/// Cycles for the record of a precise event: it is written to a buffer and read from there.
const RECORD: u64 = 100;
/// Seconds that a period stands for: PERIOD of the paper (section 4).
pub const PERIOD_SECONDS: f64 = 5.0;
/// Periods before a program is looked at first.
const FIRST_PERIODS: u64 = 2;

/// An engine that its space and the division both know.
#[derive(Clone)]
struct Engine(Arc<Mutex<Recolorer>>);

impl Engine {
    fn lock(&self) -> MutexGuard<'_, Recolorer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Policy for Engine {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.lock().handle(event, actions);
    }
}

/// A program that has a part of the cache.
struct Tenant {
    app: AppId,
    core: usize,
    space: u16,
    engine: Engine,
    /// Whether its engine has to hear of what happens.
    governed: bool,
    sampled: bool,
    /// When it is looked at next, in cycles.
    due: u64,
    /// Requests and misses until it was looked at last.
    before: (u64, u64),
}

/// Times of a division, in cycles.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// From one look at a program to the next.
    pub period: u64,
    /// Between looks at one program and at the next; 0: at all at once.
    pub apart: u64,
    /// Between words of the time to an engine that waits for no window.
    pub tick: u64,
}

/// A program whose colours changed, by the order of admission, and the cycles of the walk for it.
pub type Changed = (usize, u64);

/// A division at work.
pub struct RunningDivision {
    manager: Manager,
    growth: Growth,
    times: Times,
    now: u64,
    tenants: Vec<Tenant>,
    lines: Vec<u64>,
}

impl RunningDivision {
    /// No programs yet; `growth` says how new colours are filled.
    pub fn new(manager: Manager, growth: Growth, times: Times) -> RunningDivision {
        let times = Times { period: times.period.max(1), ..times };
        RunningDivision { manager, growth, times, now: 0, tenants: Vec::new(), lines: Vec::new() }
    }

    /// What decides.
    pub const fn manager(&self) -> &Manager {
        &self.manager
    }

    /// The colours of a program, by the order of admission.
    pub fn colors(&self, at: usize) -> Option<&ColorSet> {
        self.manager.colors(self.tenants.get(at)?.app)
    }

    /// A program's address space begins on a core, with the colours that it is given.
    pub fn admit(&mut self, system: &mut System, core: usize, space: u16, spec: Spec) {
        let app = self.manager.admit_to(u16::try_from(core).unwrap_or(0), spec);
        let Some(colors) = self.manager.colors(app).cloned() else { return };
        system.frames_mut().choose_for(space, Choice::Partition(colors.clone()));
        let engine = Engine(Arc::new(Mutex::new(Recolorer::new(colors, self.growth))));
        let Times { period, apart, .. } = self.times;
        let due = (FIRST_PERIODS * period).max(self.now + period);
        let due = due + apart * self.tenants.len() as u64;
        let (governed, sampled, before) = (false, false, (0, 0));
        self.tenants.push(Tenant { app, core, space, engine, governed, sampled, due, before });
    }

    /// All cores have reached a time, in cycles: what changed.
    pub fn tick(&mut self, system: &mut System, clock: u64) -> Vec<Changed> {
        (0..self.tenants.len()).for_each(|at| self.step(system, at));
        self.decide(system, clock)
    }

    /// A program has run for a while.
    pub fn step(&mut self, system: &mut System, at: usize) {
        self.release(system, at);
        self.collect(system, at);
    }

    /// The manager sees the programs whose time has come: what changed.
    pub fn decide(&mut self, system: &mut System, clock: u64) -> Vec<Changed> {
        self.now = clock;
        let seconds = PERIOD_SECONDS * clock as f64 / self.times.period as f64;
        let mut any = false;
        for tenant in self.tenants.iter_mut().filter(|tenant| clock >= tenant.due) {
            tenant.observe(&mut self.manager, system, seconds);
            tenant.due += self.times.period;
            any = true;
        }
        let decisions = if any { self.manager.decide(seconds) } else { Vec::new() };
        let changes = decisions.iter().filter(|decision| decision.is_change());
        changes.filter_map(|change| self.assign(system, change)).collect()
    }

    /// An engine with nothing to wait for need not watch every access.
    fn release(&mut self, system: &mut System, at: usize) {
        let tenant = &mut self.tenants[at];
        if tenant.governed && tenant.engine.lock().is_idle() {
            system.release(tenant.space);
            tenant.governed = false;
        }
    }

    /// Hands over the lines that were requested, where they are wanted.
    fn collect(&mut self, system: &mut System, at: usize) {
        let Tenant { app, space, sampled, .. } = &mut self.tenants[at];
        let wanted = self.manager.wants_requests(*app);
        if wanted != *sampled {
            *sampled = wanted;
            system.sample_requests(*space, wanted.then_some(RECORD));
        }
        if wanted {
            self.lines.clear();
            system.take_requests(*space, &mut self.lines);
            self.lines.iter().for_each(|&line| self.manager.request(*app, line));
        }
    }

    fn assign(&mut self, system: &mut System, change: &Decision) -> Option<Changed> {
        let at = self.tenants.iter().position(|tenant| tenant.app == change.app)?;
        let Tenant { core, space, .. } = self.tenants[at];
        system.frames_mut().choose_for(space, Choice::Partition(change.to.clone()));
        self.tenants[at].engine.lock().assign(change.to.clone());
        if !self.tenants[at].governed {
            self.govern(system, at);
        }
        let before = system.cycles(space);
        system.audit_now(core, space);
        Some((at, system.cycles(space) - before))
    }

    fn govern(&mut self, system: &mut System, at: usize) {
        let window = match self.growth {
            Growth::Redistribution { window } => window,
            Growth::SelectiveMoving { .. } => self.times.tick,
        };
        let progress = Some(Every { every: (window / 4).max(1), cost: 0 });
        let (table_cost, trap_cost, recolor_cost) = (TABLE, TRAP, TRAP);
        let sense = Sense { progress, table_cost, trap_cost, recolor_cost, ..Sense::default() };
        let tenant = &mut self.tenants[at];
        // The space has run, so it can be.
        let governed = system.govern(tenant.space, Box::new(tenant.engine.clone()), sense);
        tenant.governed = governed.is_ok();
    }
}

impl Tenant {
    /// What the last cache counted for it since it was looked at last.
    fn observe(&mut self, manager: &mut Manager, system: &System, seconds: f64) {
        let counts = system.last_level(self.space);
        let before = std::mem::replace(&mut self.before, counts);
        let [requests, misses] = [(counts.0, before.0), (counts.1, before.1)]
            .map(|(now, then)| now.saturating_sub(then));
        manager.observe_counts(self.app, misses, requests, seconds);
    }
}
