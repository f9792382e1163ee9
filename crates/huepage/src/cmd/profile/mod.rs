//! `huepage profile`: the time of a program in growing shares of the cache. Runs are made by
//! `huepage run`, one process each, so that nothing of one is left for the next.

pub mod args;
pub mod child;
mod co_run;
pub mod runs;
mod show;
mod simulated;

use huepage_linux::kernel::counters::Misses;
use indicatif::ProgressBar;

use self::args::ProfileArgs;
use self::runs::{RunEnd, Runner};
use self::show::{ProfiledShare, ProgramCurve};
use crate::demo::stats::{Repeated, median};
use crate::exit::{CmdError, ExitCode};
use crate::partition;
use crate::progress;
use crate::signals::Interrupt;
use crate::whole_file;

/// Runs the command.
pub fn run(args: &ProfileArgs) -> Result<u8, CmdError> {
    let read = args.sim.iter().chain(&args.machine);
    whole_file::can_be_written_apart(args.svg.iter().chain(&args.html), read)?;
    let interrupt = Interrupt::listen()?;
    let profile = if args.sim.is_some() {
        simulated::curve(args, &interrupt)?
    } else {
        live(args, &interrupt)?
    };
    match profile {
        Some(profile) => {
            show::show(args, &profile)?;
            Ok(ExitCode::Ok.status())
        }
        None => Ok(interrupt.end_status()),
    }
}

/// The shares to try, growing, the whole cache last.
pub(super) fn sizes(asked: &[u16], colors: u16) -> Result<Vec<u16>, CmdError> {
    if let Some(much) = asked.iter().find(|&&size| size > colors) {
        let what = format!("{much} colours are more than the {colors} there are; give fewer");
        return Err(CmdError::new(ExitCode::Colors, what));
    }
    let powers = (0..16).map(|bit| 1 << bit).filter(|&size| size < colors);
    let mut sizes: Vec<u16> = if asked.is_empty() { powers.collect() } else { asked.to_vec() };
    sizes.push(colors);
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

/// The runs in a share.
struct Runs {
    colors: u16,
    seconds: Vec<f64>,
    counts: Vec<Misses>,
    /// Whether one of them was not in its colours.
    outside: bool,
}

impl Runs {
    fn new(&colors: &u16) -> Runs {
        Runs { colors, seconds: Vec::new(), counts: Vec::new(), outside: false }
    }
}

/// Times of runs: outside of any partition, and in each share.
struct Times {
    native: Vec<f64>,
    shares: Vec<Runs>,
    colors_from: Option<String>,
}

/// Runs the program; none if a signal asked for the end.
fn live(args: &ProfileArgs, interrupt: &Interrupt) -> Result<Option<ProgramCurve>, CmdError> {
    let timed = args.timed();
    timed.plan("all".to_owned()).check()?;
    let colors = partition::colors_of(timed.level, timed.colors_from.as_ref())?;
    let sizes = sizes(&args.sizes, colors)?;
    let runner = Runner::new(&timed, colors, interrupt)?;
    let runs = u64::from(args.repeat) * (sizes.len() as u64 + 1) + 1;
    let bar = progress::bar(true, Some(runs), "run {pos} of {len} {bar:30} ({eta} left)");
    bar.enable_steady_tick(std::time::Duration::from_millis(500));
    // It reads its files for the first time.
    let Some(first) = runner.native()? else { return Ok(None) };
    first.check()?;
    bar.inc(1);
    let shares = sizes.iter().map(Runs::new).collect();
    let mut times = Times { native: Vec::new(), shares, colors_from: None };
    for round in 0..args.repeat {
        if !turn(&runner, &mut times, &first, round, &bar)? {
            return Ok(None);
        }
    }
    bar.finish_and_clear();
    Ok(Some(profile(args, colors, &times)))
}

/// Each share once, and no partition once; the other way round every second time, so that what
/// grows or wanes with time falls on all alike. False if a signal asked for the end.
fn turn(
    runner: &Runner<'_>,
    times: &mut Times,
    first: &RunEnd,
    round: u32,
    bar: &ProgressBar,
) -> Result<bool, CmdError> {
    let mut order: Vec<Option<usize>> =
        std::iter::once(None).chain((0..times.shares.len()).map(Some)).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    for at in order {
        let ended = match at {
            None => runner.native()?,
            Some(at) => runner.confined(0, times.shares[at].colors)?,
        };
        let Some(ended) = ended else { return Ok(false) };
        ended.check_against(first, at.map(|at| times.shares[at].colors))?;
        match at {
            None => times.native.push(ended.seconds),
            Some(at) => {
                let runs = &mut times.shares[at];
                runs.seconds.push(ended.seconds);
                runs.counts.extend(ended.counters);
                runs.outside |= ended.outside;
                times.colors_from = ended.colors_from;
            }
        }
        bar.inc(1);
    }
    Ok(true)
}

fn profile(args: &ProfileArgs, colors: u16, times: &Times) -> ProgramCurve {
    let native = Repeated::of(&times.native);
    let full = times.shares.last().map_or(f64::NAN, |runs| median(&runs.seconds));
    let share = |runs: &Runs| ProfiledShare {
        miss_rate: miss_rate(&runs.counts),
        outside: runs.outside,
        ..ProfiledShare::of(runs.colors, &runs.seconds, full)
    };
    let shares = times.shares.iter().map(share).collect();
    let mut profile = ProgramCurve::new(runs::words(&args.command), "s", colors, shares);
    (profile.native, profile.co_run) = (Some(native), args.co_run.clone());
    profile.colors_from.clone_from(&times.colors_from);
    profile.beside_native = Some(full / native.median);
    profile
}

/// Misses in percent of references; none where nothing was counted.
fn miss_rate(counts: &[Misses]) -> Option<f64> {
    let references: u64 = counts.iter().map(|count| count.references).sum();
    let misses: u64 = counts.iter().map(|count| count.misses).sum();
    (references > 0).then(|| 100.0 * misses as f64 / references as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_grow_to_the_whole_cache() {
        assert_eq!(sizes(&[], 16).unwrap(), [1, 2, 4, 8, 16]);
        assert_eq!(sizes(&[], 20).unwrap(), [1, 2, 4, 8, 16, 20]);
        assert_eq!(sizes(&[8, 2, 8], 16).unwrap(), [2, 8, 16]);
        assert_eq!(sizes(&[], 1).unwrap(), [1]);
        assert!(sizes(&[17], 16).unwrap_err().message.contains("16"));
    }

    #[test]
    fn rates_are_of_all_runs() {
        let count = |references, misses| Misses { references, misses };
        assert_eq!(miss_rate(&[count(100, 10), count(300, 30)]), Some(10.0));
        assert_eq!(miss_rate(&[]), None);
    }
}
