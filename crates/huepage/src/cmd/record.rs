//! `huepage record`: which pages of a running process are in the processor's cache, looked at for a
//! while by a sensor that needs no counters, printed by area, and saved look by look where asked for.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{Table, presets};
use huepage_color::{CacheLevel, LevelChoice};
use huepage_linux::machine::Machine;
use huepage_linux::residency::{AreaSeen, ResidencyError, ResidencyReport, Watch};
use huepage_policy::residency::recording::{Head, Look, Tail, Totals};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};
use crate::signals::Interrupt;
use crate::superpages::parse_cpu;
use crate::top::text;

const EXAMPLES: &str = "\
Examples:
  huepage record 4711                           five seconds, by area
  huepage record --seconds 30 --cpu 2% 4711     more samples
  huepage record --output looks.jsonl 4711      every look, a line of JSON each, for huepage replay

The process is not touched: lines of its memory are loaded by the kernel, on the CPU where it runs,
and timed. What is found in the private cache was used lately. Time in which it sleeps does not count.";

/// Areas listed for a person.
pub const LISTED: usize = 20;

/// Watch which memory of a process is in the cache, without counters
///
/// A line of a page of its is timed some thousand times a second: the share of those that are found in
/// the L2 says how much of an area is in the cache, and which pages are used again.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct RecordArgs {
    /// The process
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: u32,

    /// How long to watch, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = parse_seconds)]
    pub seconds: f64,

    /// What watching may cost, as a share of one CPU
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_cpu)]
    pub cpu: f64,

    /// Save every look to FILE, one line of JSON each
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print JSON, with every page that was looked at
    #[arg(long)]
    pub json: bool,
}

pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.01..=1e6).contains(seconds));
    seconds.ok_or_else(|| format!("`{text}` is no time; give seconds, for instance 2.5"))
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Recorded<'a> {
    #[serde(flatten)]
    report: &'a ResidencyReport,
    /// The process ended meanwhile.
    ended: bool,
    pages: &'a [huepage_linux::residency::Seat],
}

/// Watches one process.
pub fn run(args: &RecordArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let interrupt = Interrupt::listen()?;
    let mut output = args.output.as_deref().map(Saved::create).transpose()?;
    let cache_bytes = private_bytes()?;
    let mut watch = Watch::of(args.pid.cast_signed(), cache_bytes, args.cpu).map_err(refused)?;
    if let Some(file) = &mut output {
        file.write(&Head::of(args.pid.cast_signed(), cache_bytes, watch.tally()))?;
    }
    let ended = watch_for(args, &mut watch, output.as_mut(), &interrupt)?;
    let report = watch.report();
    if let Some(file) = output {
        file.finish(&report, ended)?;
    }
    if args.json {
        let recorded = Recorded { report: &report, ended, pages: watch.seats() };
        println!("{}", serde_json::to_string_pretty(&recorded).map_err(internal)?);
    } else if report.samples > 0 {
        print(&report);
    }
    if let Some(signal) = interrupt.signal() {
        return Ok(128 + signal.to_le_bytes()[0]);
    }
    if report.samples == 0 {
        let why = if report.latencies.is_some() { NOT_TOLD } else { DID_NOT_RUN };
        return Err(CmdError::new(ExitCode::Noisy, why));
    }
    Ok(0)
}

const NOT_TOLD: &str = "what is in the cache and what is not take the same time here; try again when \
    the machine is quieter";
const DID_NOT_RUN: &str =
    "the process hardly ran, so there was nothing to see; watch it longer with --seconds";

/// Whether the process ended meanwhile.
fn watch_for(
    args: &RecordArgs,
    watch: &mut Watch,
    mut output: Option<&mut Saved>,
    interrupt: &Interrupt,
) -> Result<bool, CmdError> {
    let (start, bar) = (Instant::now(), bar(args.seconds));
    while start.elapsed().as_secs_f64() < args.seconds && interrupt.signal().is_none() {
        let seen = match watch.look() {
            Ok(seen) => seen,
            Err(ResidencyError::Gone(_)) => return Ok(true),
            Err(ResidencyError::Proc(error)) if error.is_gone() => return Ok(true),
            Err(error) => return Err(refused(error)),
        };
        bar.set_position(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX));
        let Some(file) = output.as_deref_mut().filter(|_| !seen.is_empty()) else { continue };
        let pages = |wanted| -> Vec<u64> {
            let some = seen.iter().filter(|(_, found)| *found == wanted);
            some.map(|&(seat, _)| watch.seats()[seat].page.0).collect()
        };
        let at = start.elapsed().as_secs_f64();
        file.write(&Look { at, found: pages(true), missed: pages(false) })?;
    }
    bar.finish_and_clear();
    Ok(false)
}

/// On a terminal, and only for what takes a while.
fn bar(seconds: f64) -> ProgressBar {
    if seconds < 2.0 || !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let all = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_millis();
    let bar = ProgressBar::new(u64::try_from(all).unwrap_or(u64::MAX));
    if let Ok(style) = ProgressStyle::with_template("watching {bar:30} {percent:>3} % ({eta} left)")
    {
        bar.set_style(style);
    }
    bar
}

/// The file that looks are saved to, in the form of `huepage_policy::residency::recording`.
struct Saved<'a> {
    path: &'a Path,
    file: BufWriter<File>,
}

impl<'a> Saved<'a> {
    fn create(path: &'a Path) -> Result<Saved<'a>, CmdError> {
        let file = File::create(path).map_err(|e| unwritten(path, &e))?;
        Ok(Saved { path, file: BufWriter::new(file) })
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), CmdError> {
        serde_json::to_writer(&mut self.file, line)
            .map_err(io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .map_err(|e| unwritten(self.path, &e))
    }

    fn finish(mut self, report: &ResidencyReport, ended: bool) -> Result<(), CmdError> {
        let &ResidencyReport { samples, found, looks, seconds, cpu_seconds, latencies, .. } =
            report;
        let end = Totals { samples, found, looks, seconds, cpu_seconds, latencies, ended };
        self.write(&Tail { end })?;
        self.file.flush().map_err(|e| unwritten(self.path, &e))
    }
}

fn unwritten(path: &Path, error: &io::Error) -> CmdError {
    let path = path.display();
    CmdError::new(
        ExitCode::BadFile,
        format!("cannot write {path}: {error}; choose another --output"),
    )
}

/// Bytes of the private cache that is watched.
pub fn private_bytes() -> Result<u64, CmdError> {
    let machine = Machine::read().map_err(internal)?;
    let l2 = machine.cache(LevelChoice::Level(CacheLevel::L2));
    let l2 = l2.map_err(|e| CmdError::new(ExitCode::Kernel, format!("{e}; see `huepage info`")))?;
    Ok(l2.geometry.size_bytes)
}

fn refused(error: ResidencyError) -> CmdError {
    let code = match &error {
        ResidencyError::NotPermitted => ExitCode::Privilege,
        ResidencyError::NotSupported(_) => ExitCode::Kernel,
        ResidencyError::Gone(_) => ExitCode::NoSuchProcess,
        ResidencyError::Proc(error) if error.is_gone() => ExitCode::NoSuchProcess,
        _ => ExitCode::Internal,
    };
    CmdError::new(code, error)
}

fn print(report: &ResidencyReport) {
    let mut areas: Vec<&AreaSeen> = report.areas.iter().filter(|area| area.samples > 0).collect();
    areas.sort_by(|a, b| b.cached_bytes().total_cmp(&a.cached_bytes()));
    println!("{}", table(&areas));
    if areas.len() > LISTED {
        println!("and {} areas with less in the cache", areas.len() - LISTED);
    }
    let latencies = report.latencies.map_or_else(String::new, |[there, gone]| {
        format!("; a line takes {there} ns in the cache and {gone} ns out of it")
    });
    println!(
        "residency of the L2: {} lines timed in {} looks, {} found; {:.2} % of a CPU over {:.1} s{latencies}",
        report.samples,
        report.looks,
        report.found,
        100.0 * report.cpu_seconds / report.seconds.max(1e-9),
        report.seconds,
    );
}

fn table(areas: &[&AreaSeen]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(HEADER);
    for area in areas.iter().take(LISTED) {
        table.add_row(cells(area));
    }
    table
}

/// Columns of an area.
pub const HEADER: [&str; 7] =
    ["area", "kind", "resident", "in the cache", "share", "samples", "name"];

/// What a person is told of an area.
pub fn cells(area: &AreaSeen) -> [String; 7] {
    [
        format!("{:x}-{:x}", area.start, area.end),
        area.kind.text().to_owned(),
        format!("{} KiB", area.resident * 4),
        format!("{:.0} KiB", area.cached_bytes() / 1024.0),
        format!("{:.1} %", 100.0 * area.share().unwrap_or(0.0)),
        area.samples.to_string(),
        text::name(&area.name, usize::MAX),
    ]
}
