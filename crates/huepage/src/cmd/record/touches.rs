//! `huepage record` by accessed bits or samples: which pages of a process are touched or sampled while it
//! is watched, printed by area, and saved step by step where asked for. What a superpage policy would make
//! of it is for `huepage replay`.

use std::fmt::Write as _;
use std::time::Instant;

use huepage_color::{CacheLevel, LevelChoice};
use huepage_linux::kernel::machine::HostMachine;
use huepage_linux::kernel::page_tables::TablesError;
use huepage_linux::kernel::pmu::PmuError;
use huepage_linux::sensors::tlb::SensorError;
use huepage_linux::sensors::tlb::recorder::{TouchRecorder, What};
use huepage_policy::recording::touches::{
    AreaTouched, SampledEvent, TouchHead, TouchTail, TouchTally, TouchTotals,
};
use serde::Serialize;

use super::time_heat::TimeHeat;
use super::{LISTED, RecordArgs, RecordSensor, RecordedEvent, Saved, bar, save_page};
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::report;
use crate::signals::Interrupt;
use crate::style::{self, Style, print};
use crate::top::text;

/// What is printed as JSON.
#[derive(Serialize)]
struct Recorded<'a> {
    pid: i32,
    sensor: &'static str,
    event: Option<SampledEvent>,
    #[serde(flatten)]
    totals: &'a TouchTotals,
    areas: &'a [AreaTouched],
}

/// Watches one process.
pub fn run(args: &RecordArgs) -> Result<u8, CmdError> {
    let interrupt = Interrupt::listen()?;
    let mut output = args.output.as_deref().map(Saved::create).transpose()?;
    let mut recorder =
        TouchRecorder::open(args.pid.cast_signed(), what(args)?, args.cpu).map_err(refused)?;
    if let Some(file) = &mut output {
        file.write(recorder.head())?;
    }
    let mut heat = TimeHeat::default();
    let ended = watch_for(args, &mut recorder, (output.as_mut(), &mut heat), &interrupt)?;
    let totals = recorder.totals(ended);
    if let Some(mut file) = output {
        file.write(&TouchTail { end: totals.clone() })?;
        file.flush()?;
    }
    let (head, tally) = (recorder.head(), recorder.tally());
    if args.json {
        let (pid, sensor, areas) = (head.pid, head.sensor.text(), &tally.areas[..]);
        let event = head.samples.as_ref().map(|samples| samples.event);
        let recorded = Recorded { pid, sensor, event, totals: &totals, areas };
        print(&report::json(&recorded)?).map_err(internal)?;
    } else if totals.looks > 0 {
        print(&words(head, tally, Some(&totals), Style::stdout())).map_err(internal)?;
    }
    let printed = words(head, tally, Some(&totals), Style::plain());
    let sampled = head.samples.is_some();
    let what = if sampled { "samples" } else { "share of pages touched" };
    save_page(args, &printed, heat.picture(what, totals.seconds, sampled))?;
    if let Some(signal) = interrupt.signal() {
        return Ok(128 + signal.to_le_bytes()[0]);
    }
    match totals.looks {
        0 => Err(CmdError::new(ExitCode::Noisy, nothing(head))),
        _ => Ok(0),
    }
}

fn what(args: &RecordArgs) -> Result<What, CmdError> {
    match args.sensor {
        RecordSensor::Pmu => {
            let event = args.event.unwrap_or(RecordedEvent::TlbMisses).sampled();
            let level = if event == SampledEvent::Loads { level()? } else { CacheLevel::L2 };
            Ok(What::Samples(event, level))
        }
        _ => Ok(What::AccessedBits),
    }
}

/// The level whose requests are told from loads: as for the pollute buffer, the L2.
fn level() -> Result<CacheLevel, CmdError> {
    let machine = HostMachine::read().map_err(internal)?;
    let l2 = machine.cache(LevelChoice::Level(CacheLevel::L2));
    let l2 = l2.map_err(|e| CmdError::new(ExitCode::Kernel, format!("{e}; see `huepage info`")))?;
    Ok(l2.geometry.level)
}

fn nothing(head: &TouchHead) -> &'static str {
    if head.samples.is_some() {
        "nothing was sampled: the process hardly ran, or hardly did what is sampled; watch it longer with --seconds"
    } else {
        "the process hardly ran, or has no memory in which superpages are built, so there was nothing to see; watch it longer with --seconds"
    }
}

/// Whether the process ended meanwhile.
fn watch_for(
    args: &RecordArgs,
    recorder: &mut TouchRecorder,
    (mut output, heat): (Option<&mut Saved>, &mut TimeHeat),
    interrupt: &Interrupt,
) -> Result<bool, CmdError> {
    let (start, bar) = (Instant::now(), bar(args.seconds));
    while start.elapsed().as_secs_f64() < args.seconds && interrupt.signal().is_none() {
        let steps = match recorder.steps() {
            Ok(steps) => steps,
            Err(error) if error.is_gone() => return Ok(true),
            Err(error) => return Err(refused(error)),
        };
        bar.set_position(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX));
        if args.html.is_some() {
            steps.iter().for_each(|step| heat.note_step(step));
        }
        if let Some(file) = output.as_deref_mut() {
            steps.iter().try_for_each(|step| file.write(step))?;
        }
    }
    bar.finish_and_clear();
    Ok(false)
}

fn refused(error: SensorError) -> CmdError {
    let code = match &error {
        error if error.is_gone() => ExitCode::NoSuchProcess,
        SensorError::Tables(TablesError::NotPermitted) => ExitCode::Privilege,
        SensorError::Pmu(PmuError::Denied(_)) => ExitCode::Privilege,
        SensorError::Tables(TablesError::NotSupported(_)) => ExitCode::Kernel,
        SensorError::Pmu(PmuError::Unsupported(..)) => ExitCode::Kernel,
        _ => ExitCode::Internal,
    };
    CmdError::new(code, error)
}

/// What was seen, for a person: by area, and in all. Without totals the recording was cut short.
pub fn words(
    head: &TouchHead,
    tally: &TouchTally,
    totals: Option<&TouchTotals>,
    style: Style,
) -> String {
    let weight = |area: &AreaTouched| area.touched + area.samples;
    let mut areas: Vec<&AreaTouched> =
        tally.areas.iter().filter(|area| area.pages + area.samples > 0).collect();
    areas.sort_by_key(|area| std::cmp::Reverse(weight(area)));
    let mut text = table(&areas, head.samples.is_some(), style);
    if areas.len() > LISTED {
        let more = style::count((areas.len() - LISTED) as u64, "area", "areas");
        let _ = writeln!(text, "and {more} with less");
    }
    let what = match &head.samples {
        Some(samples) => {
            format!("{} samples of {} ({})", tally.samples, samples.event.text(), samples.source)
        }
        None => {
            format!("{} of {} pages touched when they were looked at", tally.touched, tally.pages)
        }
    };
    let _ = write!(text, "process {}: {what}, {} looks", head.pid, tally.looks);
    let cost = totals.map(|totals| {
        let share = 100.0 * totals.cpu_seconds / totals.seconds.max(1e-9);
        let lost =
            if totals.lost > 0 { format!(", {} samples lost", totals.lost) } else { String::new() };
        format!("{lost}; {share:.2} % of a CPU over {:.1} s\n", totals.seconds)
    });
    text + &cost.unwrap_or_else(|| "\n".to_owned())
}

fn table(areas: &[&AreaTouched], sampled: bool, style: Style) -> String {
    let seen = if sampled { ["samples", "share"] } else { ["looked at", "touched"] };
    let header = ["area", "kind", "resident", seen[0], seen[1], "name"];
    let mut table = style.table(&header);
    let all: u64 = areas.iter().map(|area| area.samples).sum();
    let percent = |n: u64, of: u64| format!("{:.1} %", 100.0 * n as f64 / of.max(1) as f64);
    for area in areas.iter().take(LISTED) {
        let place = match area.end {
            0 => "-".to_owned(),
            end => format!("{:x}-{end:x}", area.start),
        };
        let seen = match sampled {
            true => [area.samples.to_string(), percent(area.samples, all)],
            false => [area.pages.to_string(), percent(area.touched, area.pages)],
        };
        let [first, second] = seen;
        let resident = format!("{} KiB", area.resident * 4);
        let (kind, name) = (area.kind.text().to_owned(), text::name(&area.name, usize::MAX));
        table.add_row([place, kind, resident, first, second, name]);
    }
    style::lay_out(table)
}
