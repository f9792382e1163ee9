//! `huepage record`: what a sensor sees of a running process, printed by area, and saved where asked for.
//! Here: which pages are in the processor's cache, looked at for a while without counters. Accessed bits
//! and samples are in [`touches`].

mod touches;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use huepage_color::{CacheLevel, LevelChoice, Vpn};
use huepage_linux::conflicts::offline::pages_in_use;
use huepage_linux::machine::Machine;
use huepage_linux::residency::{AreaSeen, ResidencyError, ResidencyReport, Watch};
use huepage_policy::recording::touches::Sampled;
use huepage_policy::residency::recording::{Head, InUse, Look, Tail, Totals};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::args::{ColorsFrom, PartitionArgs, parse_colors_from};
use crate::exit::{CmdError, ExitCode};
use crate::partition::{self, internal};
use crate::signals::Interrupt;
use crate::style;
use crate::superpages::parse_cpu;
use crate::top::text;

pub use touches::words as touched_words;

const EXAMPLES: &str = "\
Examples:
  huepage record 4711                           five seconds, by area
  huepage record --seconds 30 --cpu 2% 4711     more samples
  huepage record --output looks.jsonl 4711      every look, a line of JSON each, for huepage replay
  huepage record --sensor accessed-bits --output touches.jsonl 4711
  huepage record --sensor pmu --event loads 4711
  huepage record --in-use --seconds 30 --output crowd.jsonl 4711

residency: the process is not touched. Lines of its memory are loaded by the kernel, on the CPU where it
runs, and timed; what is found in the private cache was used lately. accessed-bits: some of its pages are
marked as not touched, again and again, and its page tables say which were touched since; nothing it reads
or writes changes. pmu: the processor interrupts it at some events; page-faults are on every machine.
Time in which it sleeps does not count. Ctrl-C ends the recording as --seconds would.";

/// Areas listed for a person.
pub const LISTED: usize = 20;

/// Watch which memory of a process is in the cache, is touched, or misses
///
/// Without counters, by default: a line of a page of its is timed some thousand times a second. The share of
/// those that are found in the L2 says how much of an area is in the cache, and which pages are used again.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct RecordArgs {
    /// The process
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: u32,

    /// What watches it
    #[arg(long, value_enum, value_name = "SENSOR", default_value_t = By::Residency)]
    pub sensor: By,

    /// What is sampled by --sensor pmu [default: tlb-misses]
    #[arg(long, value_enum, value_name = "EVENT")]
    pub event: Option<Event>,

    /// Watch only pages that it uses again and again now, and save their colours
    ///
    /// What `huepage replay --policy snapshot-miss` goes by. For --sensor residency.
    #[arg(long)]
    pub in_use: bool,

    /// How the colours of frames are known, as for `huepage run` [default: what `huepage info` finds]
    #[arg(long, value_name = "SOURCE", requires = "in_use", value_parser = parse_colors_from)]
    pub colors_from: Option<ColorsFrom>,

    /// How long to watch, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = parse_seconds)]
    pub seconds: f64,

    /// What watching may cost, as a share of one CPU
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_cpu)]
    pub cpu: f64,

    /// Save all that is seen to FILE, one line of JSON each
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Print JSON, with every page that was looked at
    #[arg(long)]
    pub json: bool,
}

/// A sensor whose stream is recorded.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Lines of its memory, timed: which are in the cache
    Residency,
    /// Accessed bits of page tables, read through BPF: which pages are touched
    AccessedBits,
    /// Samples with their addresses, from performance counters
    Pmu,
}

/// What is sampled.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Accesses that missed the TLB
    TlbMisses,
    /// Loads that asked the L2, and whether it had the line
    Loads,
    /// First touches of pages, counted by the kernel: on machines without a PMU, too
    PageFaults,
}

impl Event {
    const fn sampled(self) -> Sampled {
        match self {
            Event::TlbMisses => Sampled::TlbMisses,
            Event::Loads => Sampled::Loads,
            Event::PageFaults => Sampled::PageFaults,
        }
    }
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
    match args.sensor {
        By::Residency | By::AccessedBits if args.event.is_some() => {
            Err(CmdError::new(ExitCode::Usage, NO_EVENT))
        }
        By::AccessedBits | By::Pmu if args.in_use => Err(CmdError::new(ExitCode::Usage, NO_PAGES)),
        By::Residency => residency(args),
        By::AccessedBits | By::Pmu => touches::run(args),
    }
}

const NO_EVENT: &str = "--event says what a PMU samples; give --sensor pmu with it";

const NO_PAGES: &str = "--in-use is about looks at the cache; leave out --sensor with it";

fn residency(args: &RecordArgs) -> Result<u8, CmdError> {
    let interrupt = Interrupt::listen()?;
    let mut output = args.output.as_deref().map(Saved::create).transpose()?;
    let cache_bytes = private_bytes()?;
    let mut watch = Watch::of(args.pid.cast_signed(), cache_bytes, args.cpu).map_err(refused)?;
    let in_use = if args.in_use { Some(watch_in_use(args, &mut watch)?) } else { None };
    if let Some(file) = &mut output {
        let head = Head::of(args.pid.cast_signed(), cache_bytes, watch.tally());
        file.write(&Head { in_use, ..head })?;
    }
    let ended = watch_for(args, &mut watch, output.as_mut(), &interrupt)?;
    let report = watch.report();
    if let Some(file) = output {
        file.finish(&report, ended)?;
    }
    if args.json {
        let recorded = Recorded { report: &report, ended, pages: watch.seats() };
        let json = serde_json::to_string_pretty(&recorded).map_err(internal)?;
        style::print(&(json + "\n")).map_err(internal)?;
    } else if report.samples > 0 {
        style::print(&text(&report)).map_err(internal)?;
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

/// Finds the pages in use; from now on only these are looked at.
fn watch_in_use(args: &RecordArgs, watch: &mut Watch) -> Result<InUse, CmdError> {
    let (colors, colors_from) = (Some("all".to_owned()), args.colors_from.clone());
    let plan = PartitionArgs { colors, colors_from, ..PartitionArgs::default() };
    let mut plan = partition::prepare(&plan)?;
    // Nobody else has to wait for this.
    drop(plan.lock.take());
    let ways = u16::try_from(plan.cache.ways).unwrap_or(u16::MAX);
    let (colors, sight) = (plan.source.universe(), plan.source.sight());
    let found = pages_in_use(args.pid.cast_signed(), sight).map_err(refused)?;
    let found = found.filter(|found| !found.is_empty());
    let found = found.ok_or_else(|| CmdError::new(ExitCode::Noisy, NONE_IN_USE))?;
    let pages: Vec<Vpn> = found.iter().map(|(page, _)| *page).collect();
    watch.look_only_at(&pages).map_err(refused)?;
    let of = found.into_iter().map(|(_, color)| color.map(|color| color.0)).collect();
    Ok(InUse { colors, ways, of })
}

const NONE_IN_USE: &str = "no page is used again and again now, or the process has more than 2 GiB of \
    memory; record when it is busy, or without --in-use";
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
        let errors = Some(report.errors);
        let end = Totals { samples, found, looks, seconds, cpu_seconds, latencies, errors, ended };
        self.write(&Tail { end })?;
        self.flush()
    }

    fn flush(&mut self) -> Result<(), CmdError> {
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

fn text(report: &ResidencyReport) -> String {
    let mut areas: Vec<&AreaSeen> = report.areas.iter().filter(|area| area.samples > 0).collect();
    areas.sort_by(|a, b| b.cached_bytes().total_cmp(&a.cached_bytes()));
    let mut text = format!("{}\n", table(&areas));
    if areas.len() > LISTED {
        text += &format!("and {} areas with less in the cache\n", areas.len() - LISTED);
    }
    let latencies = report.latencies.map_or_else(String::new, |[there, gone]| {
        format!("; a line takes {there} ns in the cache and {gone} ns out of it")
    });
    let behind = if report.private_only { "" } else { " or the cache behind it" };
    text += &format!(
        "residency of the L2{behind}: {} lines timed in {} looks, {} found; {:.2} % of a CPU over {:.1} s{latencies}\n",
        report.samples,
        report.looks,
        report.found,
        100.0 * report.cpu_seconds / report.seconds.max(1e-9),
        report.seconds,
    );
    text
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
