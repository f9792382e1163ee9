//! Which program runs when: cores take turns by their clocks, programs on a core by quanta of
//! cycles, and programs that end begin again until every one has ended once, so that none runs
//! beside an idle machine.
//!
//! A program's threads run on the cores after its own, in the order of the trace. Its address
//! spaces get numbers that no other program's have.

use std::collections::HashMap;
use std::collections::VecDeque;

use crate::record::Record;
use crate::system::{MAX_SPACES, RunError, System, file_number};
use crate::workloads::FileNumber;

/// Accesses between looks at the clock.
const STEP: usize = 512;

/// A program's accesses, as [`Schedule::add`] takes them.
pub type BoxedSource<'a, E> = Box<dyn AccessSource<E> + 'a>;

/// Where a program's accesses come from.
pub trait AccessSource<E> {
    /// Replaces `batch` by the next accesses; false at the end.
    ///
    /// # Errors
    /// When there are no more for another reason than the end.
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, E>;

    /// Goes back to the beginning.
    ///
    /// # Errors
    /// When there is no way back.
    fn restart(&mut self) -> Result<(), E>;

    /// The volume whose files its high addresses stand for, see
    /// [`System::use_files`]; none: they are memory, as in traces of programs.
    fn volume(&self) -> Option<u32> {
        None
    }

    /// Files deleted in the latest batch, each with the number of its accesses before that; in
    /// order.
    fn deletions(&self) -> &[(usize, FileNumber)] {
        &[]
    }
}

/// Who prepares address spaces and acts while programs run.
pub trait Overseer<E> {
    /// An address space begins: whose, and its number.
    ///
    /// # Errors
    /// When it cannot be prepared.
    fn announce(&mut self, system: &mut System, program: usize, space: u16) -> Result<(), E>;

    /// A turn is over; all cores with work have reached `clock`, in cycles, and `accesses` were done in all.
    fn tick(&mut self, system: &mut System, clock: u64, accesses: u64);
}

/// An overseer of two functions.
struct Functions<A, P>(A, P);

impl<E, A, P> Overseer<E> for Functions<A, P>
where
    A: FnMut(&mut System, usize, u16) -> Result<(), E>,
    P: FnMut(u64),
{
    fn announce(&mut self, system: &mut System, program: usize, space: u16) -> Result<(), E> {
        (self.0)(system, program, space)
    }

    fn tick(&mut self, _: &mut System, _: u64, accesses: u64) {
        (self.1)(accesses);
    }
}

/// Why a schedule cannot go on.
#[derive(Debug, PartialEq, Eq)]
pub enum ScheduleError<E> {
    /// The machine cannot.
    Run(RunError),
    /// A source cannot.
    Source(E),
}

/// How programs share cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulePlan {
    /// Cycles that a program runs before the next on its core does.
    pub quantum: u64,
    /// Whether programs that end begin again until all have ended once.
    pub restart: bool,
    /// Accesses of each program before anything is counted.
    pub warm_up: u64,
    /// Accesses of each program at most; `u64::MAX` for all.
    pub limit: u64,
}

impl Default for SchedulePlan {
    /// A quantum of 10 ms at 1 GHz, no restart, all accesses.
    fn default() -> SchedulePlan {
        SchedulePlan { quantum: 10_000_000, restart: false, warm_up: 0, limit: u64::MAX }
    }
}

struct Program<'a, E> {
    source: BoxedSource<'a, E>,
    core: usize,
    batch: Vec<Record>,
    at: usize,
    /// Deletions of the batch that were carried out.
    deleted: usize,
    /// The numbers of its address spaces.
    spaces: HashMap<u16, u16>,
    /// Accesses in this round.
    done: u64,
    ended: bool,
    /// Ended and not begun again.
    over: bool,
    /// Nobody waits for its end; it begins again while others run.
    beside: bool,
}

/// Programs on a machine.
pub struct Schedule<'a, E> {
    programs: Vec<Program<'a, E>>,
    queues: Vec<VecDeque<usize>>,
    clocks: Vec<u64>,
    plan: SchedulePlan,
    next_space: u16,
    warm: bool,
    /// Accesses of each program after which the run stops for a while.
    pause: u64,
}

impl<'a, E> Schedule<'a, E> {
    /// No programs yet on a machine of so many cores.
    pub fn new(cores: usize, plan: SchedulePlan) -> Schedule<'a, E> {
        let queues = vec![VecDeque::new(); cores];
        let (warm, pause) = (plan.warm_up == 0, u64::MAX);
        let (programs, clocks) = (Vec::new(), vec![0; cores]);
        Schedule { programs, queues, clocks, plan, next_space: 0, warm, pause }
    }

    /// Has the next run return as soon as every program has done so many accesses, exactly so many
    /// where there is one program. The run after that goes on from there.
    pub const fn pause_after(&mut self, accesses: u64) {
        self.pause = accesses;
    }

    /// Adds a program, on the core after the last one's.
    pub fn add(&mut self, source: BoxedSource<'a, E>) {
        let core = self.programs.len() % self.queues.len();
        self.queues[core].push_back(self.programs.len());
        let (batch, spaces) = (Vec::new(), HashMap::new());
        let (at, deleted, done) = (0, 0, 0);
        let (ended, over, beside) = (false, false, false);
        self.programs.push(Program {
            source,
            core,
            batch,
            at,
            deleted,
            spaces,
            done,
            ended,
            over,
            beside,
        });
    }

    /// Adds a program for whose end nobody waits: it begins again until the others have ended.
    /// Alone it does nothing.
    pub fn add_beside(&mut self, source: BoxedSource<'a, E>) {
        self.add(source);
        self.programs.iter_mut().last().into_iter().for_each(|program| program.beside = true);
    }

    /// Numbers address spaces from here on, on a machine on which others ran before.
    #[must_use]
    pub const fn with_spaces_from(mut self, first: u16) -> Schedule<'a, E> {
        self.next_space = first;
        self
    }

    /// The address spaces of each program, as the machine knows them.
    pub fn spaces(&self) -> Vec<Vec<u16>> {
        let sorted = |p: &Program<'_, E>| {
            let mut numbers: Vec<u16> = p.spaces.values().copied().collect();
            numbers.sort_unstable();
            numbers
        };
        self.programs.iter().map(sorted).collect()
    }

    /// Runs everything to its end, or to where it was to pause; `progress` hears of the accesses
    /// done, now and then, and `announce` of every address space before its first access: whose,
    /// and its number.
    ///
    /// # Errors
    /// When machine or source cannot go on; what came before has been done.
    pub fn run(
        &mut self,
        system: &mut System,
        announce: impl FnMut(&mut System, usize, u16) -> Result<(), E>,
        progress: impl FnMut(u64),
    ) -> Result<(), ScheduleError<E>> {
        self.oversee(system, &mut Functions(announce, progress))
    }

    /// As [`Self::run`], with somebody who acts while programs run.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn oversee(
        &mut self,
        system: &mut System,
        overseer: &mut impl Overseer<E>,
    ) -> Result<(), ScheduleError<E>> {
        let mut total = 0;
        while !self.have_done(self.pause)
            && let Some(core) = self.next_core()
        {
            let Some(&number) = self.queues[core].front() else { break };
            total += self.turn(system, core, number, overseer)?;
            let clock = self.next_core().map_or(0, |core| self.clocks[core]);
            overseer.tick(system, clock, total);
            if self.programs[number].over {
                self.queues[core].pop_front();
            } else {
                self.queues[core].rotate_left(1);
            }
            self.end_warm_up(system);
        }
        self.pause = u64::MAX;
        Ok(())
    }

    /// The core that is least far, of those with something to do; none when all is over.
    fn next_core(&self) -> Option<usize> {
        if self.is_done() {
            return None;
        }
        let busy = (0..self.queues.len()).filter(|&core| !self.queues[core].is_empty());
        busy.min_by_key(|&core| self.clocks[core])
    }

    fn is_done(&self) -> bool {
        self.programs.iter().all(|p| p.ended || p.beside)
    }

    /// A program runs until its quantum is used up or, where others wait for this core's
    /// clock, until they are far behind. Gives the accesses done.
    fn turn(
        &mut self,
        system: &mut System,
        core: usize,
        number: usize,
        overseer: &mut impl Overseer<E>,
    ) -> Result<u64, ScheduleError<E>> {
        let alone = self.programs.len() == 1;
        let (mut used, mut done) = (0, 0);
        while used < self.plan.quantum || alone {
            let Some((cycles, accesses)) = self.step(system, number, overseer)? else { break };
            used += cycles;
            self.clocks[core] += cycles;
            done += accesses;
            if !alone && self.is_ahead(core) || !self.warm || self.pause < u64::MAX {
                break;
            }
            if alone && done > 1 << 20 {
                break;
            }
        }
        Ok(done)
    }

    /// Whether another core with work is behind this one.
    fn is_ahead(&self, core: usize) -> bool {
        let others = (0..self.queues.len()).filter(|&c| c != core && !self.queues[c].is_empty());
        others.map(|other| self.clocks[other]).any(|clock| clock < self.clocks[core])
    }

    /// Some accesses of a program: the cycles they took, and how many. None when it is over.
    fn step(
        &mut self,
        system: &mut System,
        number: usize,
        overseer: &mut impl Overseer<E>,
    ) -> Result<Option<(u64, u64)>, ScheduleError<E>> {
        let known = self.next_space;
        if !self.refill(system, number)? {
            return Ok(None);
        }
        for space in known..self.next_space {
            if let Some(volume) = self.programs[number].source.volume() {
                system.use_files(space, volume).map_err(ScheduleError::Run)?;
            }
            overseer.announce(system, number, space).map_err(ScheduleError::Source)?;
        }
        let cores = self.queues.len();
        let program = &mut self.programs[number];
        // A warm-up and a pause end at their access and not some way behind it. What was passed
        // before is very far ahead in this arithmetic.
        let stops = [self.plan.limit, self.plan.warm_up, self.pause];
        let next = stops.iter().map(|stop| stop.wrapping_sub(program.done)).filter(|&n| n > 0);
        let left = usize::try_from(next.min().unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let left = left.min(program.delete_files(system) - program.at);
        let rest = &program.batch[program.at..];
        let thread = rest[0].thread;
        let run = rest.iter().take(STEP.min(left)).take_while(|r| r.thread == thread).count();
        let before: u64 = program.spaces.values().map(|&space| system.cycles(space)).sum();
        let core = (program.core + usize::from(thread)) % cores;
        system.run(core, &rest[..run]).map_err(ScheduleError::Run)?;
        program.at += run;
        program.done += run as u64;
        let after: u64 = program.spaces.values().map(|&space| system.cycles(space)).sum();
        Ok(Some((after - before, run as u64)))
    }

    /// Has accesses ready; false when the program is over.
    fn refill(&mut self, system: &mut System, number: usize) -> Result<bool, ScheduleError<E>> {
        let program = &mut self.programs[number];
        let mut empty_rounds = 0;
        while program.at == program.batch.len() || program.done >= self.plan.limit {
            program.delete_files(system);
            (program.at, program.deleted) = (0, 0);
            let more = program.done < self.plan.limit
                && program.source.next(&mut program.batch).map_err(ScheduleError::Source)?;
            if more {
                self.next_space = renumber(program, self.next_space).map_err(ScheduleError::Run)?;
                continue;
            }
            program.batch.clear();
            program.deleted = usize::MAX;
            program.ended = true;
            empty_rounds += u32::from(program.done == 0);
            program.over = !(self.plan.restart || program.beside) || empty_rounds > 0;
            if program.over {
                return Ok(false);
            }
            program.source.restart().map_err(ScheduleError::Source)?;
            program.done = 0;
            if self.is_done() {
                return Ok(false);
            }
            return self.refill(system, number);
        }
        Ok(true)
    }

    fn end_warm_up(&mut self, system: &mut System) {
        if !self.warm && self.have_done(self.plan.warm_up) {
            system.forget_counts();
            self.warm = true;
        }
    }

    /// Whether every program that others wait for has done so many accesses, or has ended.
    fn have_done(&self, accesses: u64) -> bool {
        self.programs.iter().all(|p| p.ended || p.beside || p.done >= accesses)
    }
}

impl<E> Program<'_, E> {
    /// Deletes the files whose turn it is; up to which access of the batch none follows.
    fn delete_files(&mut self, system: &mut System) -> usize {
        let volume = self.source.volume().unwrap_or(0);
        let waiting = self.source.deletions().get(self.deleted..).unwrap_or(&[]);
        for &(before, file) in waiting {
            if before > self.at {
                return before.min(self.batch.len());
            }
            system.delete_file(file_number(volume, file));
            self.deleted += 1;
        }
        self.batch.len()
    }
}

/// Gives the address spaces of a batch the machine's numbers; the next free one.
fn renumber<E>(program: &mut Program<'_, E>, mut next: u16) -> Result<u16, RunError> {
    let mut last = None;
    for record in &mut program.batch {
        let number = match last {
            Some((space, number)) if space == record.space => number,
            _ => *program.spaces.entry(record.space).or_insert_with(|| {
                next += 1;
                next - 1
            }),
        };
        if number >= MAX_SPACES {
            return Err(RunError::Space(number));
        }
        last = Some((record.space, number));
        record.space = number;
    }
    Ok(next)
}
