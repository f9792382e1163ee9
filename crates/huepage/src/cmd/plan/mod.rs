//! `huepage plan`: a partition from tolerances. Runs are those of `huepage profile`; which share is tried next and
//! how the cache is shared out, `huepage_policy::tolerance` decides.

pub mod args;
mod show;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use huepage_policy::tolerance::{ShareSearch, SharingProgram, share_out};
use indicatif::ProgressBar;

use self::args::PlanArgs;
use self::show::{FoundPlan, PlannedProgram};
use crate::cmd::profile::runs::{RunEnd, Runner, TimedProgram};
use crate::demo::stats::{Repeated, median};
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};
use crate::progress;
use crate::signals::Interrupt;

/// Partitions that are tried at most.
const TRIES: usize = 4;
/// Runs in shares between two by itself, since machines get faster and slower.
const BETWEEN: usize = 4;

/// Runs the command.
pub fn run(args: &PlanArgs) -> Result<u8, CmdError> {
    let interrupt = Interrupt::listen()?;
    let work: Vec<TimedProgram> = args.programs.iter().map(|program| program.timed(args)).collect();
    work[0].plan("all".to_owned()).check()?;
    let colors = partition::colors_of(args.level, args.colors_from.as_ref())?;
    let most = most_colors(work.len(), colors)?;
    let bar = progress::bar(true, None, "{msg}, {elapsed}");
    bar.enable_steady_tick(Duration::from_millis(500));
    let began = Instant::now();
    let mut programs = Vec::new();
    for (work, limited) in work.iter().zip(&args.programs) {
        let runner = Runner::new(work, colors, &interrupt)?;
        let search = ShareSearch::new(limited.limit, most);
        match Measured::new(&limited.command, runner, search, &bar)? {
            Some(measured) => programs.push(measured),
            None => return Ok(interrupt.end_status()),
        }
    }
    let trial = Trial { args, work: &work, colors, interrupt: &interrupt, bar: &bar };
    let Some(found) = trial.run(&mut programs)? else { return Ok(interrupt.end_status()) };
    bar.finish_and_clear();
    show::show(args, &FoundPlan { seconds: began.elapsed().as_secs_f64(), ..found })
}

/// How many colours a program can have when each of the others has one.
fn most_colors(programs: usize, colors: u16) -> Result<u16, CmdError> {
    let others = u16::try_from(programs - 1).unwrap_or(u16::MAX);
    colors.checked_sub(others).filter(|&most| most > 0).ok_or_else(|| {
        let what = format!("{programs} programs cannot share {colors} colours; name fewer");
        CmdError::new(ExitCode::Colors, what)
    })
}

/// The error of a program, which one of them it was.
fn named(error: CmdError, program: &str) -> CmdError {
    CmdError::new(error.code, format!("`{program}`: {}", error.message))
}

/// What was measured of a program.
struct Measured<'a> {
    name: &'a str,
    runner: Runner<'a>,
    first: RunEnd,
    /// Seconds by itself, outside of any partition.
    alone: Vec<f64>,
    sharing: SharingProgram,
    /// Whether a run was not in the colours that it was given.
    outside: bool,
    colors_from: Option<String>,
}

impl<'a> Measured<'a> {
    /// Finds the smallest share that is enough; none if a signal asked for the end.
    fn new(
        name: &'a str,
        runner: Runner<'a>,
        search: ShareSearch,
        bar: &ProgressBar,
    ) -> Result<Option<Measured<'a>>, CmdError> {
        bar.set_message(format!("{name}: by itself"));
        // It reads its files for the first time.
        let Some(first) = runner.native()? else { return Ok(None) };
        first.check().map_err(|error| named(error, name))?;
        let sharing = SharingProgram { search, beside: 1.0 };
        let (alone, colors_from) = (Vec::new(), None);
        let outside = false;
        let mut measured = Measured { name, runner, first, alone, sharing, outside, colors_from };
        let mut runs = 0;
        while let Some(colors) = measured.sharing.search.next() {
            if runs % BETWEEN == 0 && !measured.by_itself()? {
                return Ok(None);
            }
            bar.set_message(format!("{name}: in {colors} colours"));
            let Some(run) = measured.runner.confined(0, colors)? else { return Ok(None) };
            measured.note(&run, colors)?;
            let slowdown = run.seconds / median(&measured.alone);
            measured.sharing.search.note(colors, slowdown);
            runs += 1;
        }
        Ok(Some(measured))
    }

    /// A run by itself; false if a signal asked for the end.
    fn by_itself(&mut self) -> Result<bool, CmdError> {
        let Some(run) = self.runner.native()? else { return Ok(false) };
        run.check_against(&self.first, None).map_err(|error| named(error, self.name))?;
        self.alone.push(run.seconds);
        Ok(true)
    }

    fn note(&mut self, run: &RunEnd, colors: u16) -> Result<(), CmdError> {
        let same = run.check_against(&self.first, Some(colors));
        same.map_err(|error| named(error, self.name))?;
        self.outside |= run.outside;
        self.colors_from.clone_from(&run.colors_from);
        Ok(())
    }
}

/// Has all runs end when it goes.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Trying partitions with all programs together.
struct Trial<'a> {
    args: &'a PlanArgs,
    work: &'a [TimedProgram],
    colors: u16,
    interrupt: &'a Interrupt,
    bar: &'a ProgressBar,
}

impl Trial<'_> {
    /// The first partition that keeps all limits, else the one that came nearest; none if a signal asked for
    /// the end.
    fn run(&self, programs: &mut [Measured<'_>]) -> Result<Option<FoundPlan>, CmdError> {
        let (mut tried, mut best): (Vec<Vec<u16>>, Option<FoundPlan>) = (Vec::new(), None);
        loop {
            let sharing: Vec<_> = programs.iter().map(|program| program.sharing.clone()).collect();
            let sizes = share_out(&sharing, self.colors);
            let over = |(of, &size): (&SharingProgram, &u16)| of.strain(size) > 1.0;
            // What is too slow by itself need not be tried with others.
            if tried.is_empty() && sharing.iter().zip(&sizes).any(over) {
                return Ok(Some(self.found(programs, &sizes, 0)));
            }
            if tried.contains(&sizes) {
                return Ok(best);
            }
            self.bar.set_message(format!("all together, partition {}", tried.len() + 1));
            if !self.learn(programs, &sizes)? {
                return Ok(None);
            }
            tried.push(sizes);
            let found = self.found(programs, &tried[tried.len() - 1], tried.len());
            let (holds, tries) = (found.holds, found.partitions_tried);
            let nearer = best.as_ref().is_none_or(|best| found.worst() < best.worst());
            best = if nearer { Some(found) } else { best };
            best.iter_mut().for_each(|best| best.partitions_tried = tries);
            if holds || tries == TRIES {
                return Ok(best);
            }
        }
    }

    /// Tries a partition; false if a signal asked for the end.
    fn learn(&self, programs: &mut [Measured<'_>], sizes: &[u16]) -> Result<bool, CmdError> {
        let Some(runs) = self.together(sizes)? else { return Ok(false) };
        for ((program, runs), &size) in programs.iter_mut().zip(runs).zip(sizes) {
            for run in &runs {
                program.note(run, size)?;
            }
            if !program.by_itself()? {
                return Ok(false);
            }
            let seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
            program.sharing.learn(size, median(&seconds) / median(&program.alone));
        }
        Ok(true)
    }

    /// Runs of each program in its share beside all others in theirs; none if a signal asked for the end.
    fn together(&self, sizes: &[u16]) -> Result<Option<Vec<Vec<RunEnd>>>, CmdError> {
        let (stop, waiting) = (AtomicBool::new(false), AtomicUsize::new(self.work.len()));
        std::thread::scope(|scope| {
            let mut first = 0;
            let mut threads: Vec<ScopedJoinHandle<'_, _>> = Vec::new();
            for (work, &size) in self.work.iter().zip(sizes) {
                let (from, stop, waiting) = (first, &stop, &waiting);
                threads.push(
                    scope.spawn(move || self.again_and_again(work, (from, size), stop, waiting)),
                );
                first += size;
            }
            let ended = threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err(internal("a thread panicked"))));
            ended.collect()
        })
    }

    /// Runs of a program until all programs have had theirs, or one failed.
    fn again_and_again(
        &self,
        work: &TimedProgram,
        (first, size): (u16, u16),
        stop: &AtomicBool,
        waiting: &AtomicUsize,
    ) -> Result<Option<Vec<RunEnd>>, CmdError> {
        // The last one, and one that fails, ends them all.
        let _ends = Ends(stop);
        let runner = Runner::new(work, self.colors, self.interrupt)?.until(stop);
        let (mut runs, repeat) = (Vec::new(), self.args.repeat as usize);
        // The first one may be over before the others have begun.
        if runner.confined(first, size)?.is_some() {
            while let Some(run) = runner.confined(first, size)? {
                runs.push(run);
                if runs.len() == repeat && waiting.fetch_sub(1, Ordering::AcqRel) == 1 {
                    break;
                }
            }
        }
        Ok(Some(runs).filter(|runs| runs.len() >= repeat || self.interrupt.signal().is_none()))
    }

    fn found(&self, programs: &[Measured<'_>], sizes: &[u16], tried: usize) -> FoundPlan {
        let mut first = 0;
        let mut planned = Vec::new();
        for (program, &size) in programs.iter().zip(sizes) {
            let search = &program.sharing.search;
            let together = (tried > 0).then(|| program.sharing.beside * search.expected(size));
            planned.push(PlannedProgram {
                command: program.name.to_owned(),
                options: self.work[0]
                    .plan(format!("{first}-{}", first + size - 1))
                    .partition
                    .options(),
                limit: search.limit(),
                alone: Repeated::of(&program.alone),
                tried: search.tried(),
                need: search.need(),
                first,
                colors: size,
                expected: search.expected(size),
                together,
                holds: together.is_some_and(|slowdown| slowdown <= search.limit()),
                outside: program.outside,
            });
            first += size;
        }
        FoundPlan {
            holds: planned.iter().all(|program| program.holds),
            programs: planned,
            level: self.args.level,
            of: self.colors,
            partitions_tried: tried,
            colors_from: programs.iter().find_map(|program| program.colors_from.clone()),
            seconds: 0.0,
        }
    }
}
