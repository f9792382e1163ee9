//! The curve of a trace on a simulated machine: a sweep over colours, as `huepage sim` does it.

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;

use super::args::ProfileArgs;
use super::show::{ProfiledShare, ProgramCurve};
use super::sizes;
use crate::cmd::sim;
use crate::cmd::sim::args::{self, SimRunArgs};
use crate::exit::{CmdError, ExitCode};
use crate::partition::Level;
use crate::signals::Interrupt;

/// The curve; none if a signal asked for the end.
pub fn curve(args: &ProfileArgs, interrupt: &Interrupt) -> Result<Option<ProgramCurve>, CmdError> {
    let (Some(trace), Some(machine)) = (&args.sim, &args.machine) else { return Ok(None) };
    let mut run = sweep(args, trace, machine, "1")?;
    let colors = sim::colors_of(&run)?;
    let sizes = sizes(&args.sizes, colors)?;
    let list = sizes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
    run = sweep(args, trace, machine, &list)?;
    let rows = sim::rows(&run, interrupt)?;
    if rows.len() < sizes.len() {
        return Ok(None);
    }
    let points: Vec<(f64, Option<f64>)> = rows.iter().map(point).collect::<Result<_, _>>()?;
    let full = points.last().map_or(f64::NAN, |(cycles, _)| *cycles);
    let share = |(&colors, (cycles, miss_rate)): (&u16, &(f64, Option<f64>))| ProfiledShare {
        miss_rate: *miss_rate,
        ..ProfiledShare::of(colors, &[*cycles], full)
    };
    let shares = sizes.iter().zip(&points).map(share).collect();
    Ok(Some(ProgramCurve::new(trace.display().to_string(), "cycles", colors, shares)))
}

/// What `huepage sim` is told for a sweep over these numbers of colours.
fn sweep(
    args: &ProfileArgs,
    trace: &Path,
    machine: &Path,
    colors: &str,
) -> Result<SimRunArgs, CmdError> {
    let mut words: Vec<OsString> =
        ["--sweep", &format!("colors={colors}"), "--machine"].map(Into::into).into();
    words.push(machine.into());
    if args.level == Some(Level::L2) {
        words.extend(["--level".into(), "2".into()]);
    }
    words.extend(["--".into(), trace.into()]);
    args::parse(words).map_err(CmdError::internal)
}

/// Cycles of all programs of a run, and misses in percent of the requests of the last cache.
fn point(row: &Value) -> Result<(f64, Option<f64>), CmdError> {
    let report = &row["report"];
    let spaces = report["spaces"].as_array();
    let cycles = spaces.map(|all| all.iter().filter_map(|space| space["cycles"].as_f64()).sum());
    let cycles = cycles.filter(|&cycles: &f64| cycles > 0.0).ok_or_else(|| {
        CmdError::new(ExitCode::BadFile, "the trace has no accesses; give another")
    })?;
    let last = report["caches"].as_array().and_then(|all| all.last());
    let sum = |name: &str| -> Option<f64> {
        Some(last?[name].as_object()?.values().filter_map(Value::as_f64).sum())
    };
    let rate = sum("misses").zip(sum("accesses")).filter(|(_, all)| *all > 0.0);
    Ok((cycles, rate.map(|(misses, all)| 100.0 * misses / all)))
}
