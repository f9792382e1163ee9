//! `huepage record`: what a sensor sees of a running process, printed by area, and saved where asked for.
//! Here: which pages are in the processor's cache, looked at for a while without counters. Accessed bits
//! and samples are in [`touches`].

mod time_heat;
mod touches;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use huepage_color::{CacheLevel, LevelChoice, Vpn};
use huepage_linux::color::line_timer::ResidencyError;
use huepage_linux::kernel::machine::HostMachine;
use huepage_linux::sensors::residency::{AreaSeen, ResidencyReport, Watch};
use huepage_linux::services::conflicts::offline::pages_in_use;
use huepage_policy::recording::residency::{
    InUseColors, ResidencyHead, ResidencyLook, ResidencyTail, ResidencyTotals,
};
use huepage_policy::recording::touches::SampledEvent;
use indicatif::ProgressBar;
use serde::Serialize;

use crate::cmd::sim::{heat::Picture, svg};
use crate::exit::{CmdError, ExitCode, residency_error};
use crate::html;
use crate::partition::{self, ColorsFrom, PartitionArgs, internal, parse_colors_from};
use crate::progress;
use crate::report;
use crate::signals::Interrupt;
use crate::style::{self, Style};
use crate::top::snapshot::looked_at;
use crate::top::text;
use crate::values::parse_cpu;
use crate::whole_file;

use time_heat::TimeHeat;
pub use touches::words as touched_words;

const EXAMPLES: &str = "\
Examples:
  huepage record 4711                           five seconds, by area
  huepage record --seconds 30 --cpu 2% 4711     more samples
  huepage record --output looks.jsonl 4711      save it for huepage replay
  huepage record --html seen.html 4711          where and when, as a page
  huepage record --sensor accessed-bits --output touches.jsonl 4711
  huepage record --sensor pmu --event loads 4711
  huepage record --in-use --seconds 30 --output crowd.jsonl 4711

residency: the kernel loads lines of its memory, on the CPU where it runs, and times them; what is in the \
private cache was used lately. The process is not touched.

accessed-bits: some of its pages are marked as not touched, again and again, and its page tables say \
which were touched since. Nothing that it reads or writes changes.

pmu: the processor interrupts it at some events. page-faults exist on every machine.

Time in which it sleeps does not count. Ctrl-C ends the recording as --seconds would.";

/// Areas listed for a person.
pub const LISTED: usize = 20;

/// Watch which memory of a process is in the cache, is touched, or misses
///
/// By default without counters: some thousand times a second a line of its memory is timed. The share of lines
/// that are in the L2 says how much of an area is in the cache, and which pages are used again.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct RecordArgs {
    /// The process
    #[arg(value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub pid: u32,

    /// What watches it
    #[arg(long, value_enum, value_name = "SENSOR", default_value_t = RecordSensor::Residency)]
    pub sensor: RecordSensor,

    /// What is sampled by --sensor pmu [default: tlb-misses]
    #[arg(long, value_enum, value_name = "EVENT")]
    pub event: Option<RecordedEvent>,

    /// Watch only pages that it uses again and again now, and save their colours
    ///
    /// What `huepage replay --policy snapshot-in-use` goes by. For --sensor residency.
    #[arg(long)]
    pub in_use: bool,

    /// How the colours of frames are known, as for `huepage run` [default: what `huepage info` finds]
    #[arg(long, value_name = "SOURCE", requires = "in_use", value_parser = parse_colors_from)]
    pub colors_from: Option<ColorsFrom>,

    /// How long to watch, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = parse_seconds)]
    pub seconds: f64,

    /// What watching may cost, as a share of one CPU, preparation included
    ///
    /// Preparation takes some 30 ms of CPU time, which is saved on looks at first: watch for some seconds.
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_cpu)]
    pub cpu: f64,

    /// Save all that is seen to FILE, one line of JSON each
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Also write what was seen, by area and by address and time, into a page of HTML that needs nothing else
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Print JSON, with every page that was looked at
    #[arg(long)]
    pub json: bool,
}

/// A sensor whose stream is recorded.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordSensor {
    /// Lines of its memory, timed: which are in the cache
    Residency,
    /// Accessed bits of page tables, read through BPF: which pages are touched
    AccessedBits,
    /// Samples with their addresses, from performance counters
    Pmu,
}

/// What is sampled.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedEvent {
    /// Accesses that missed the TLB
    TlbMisses,
    /// Loads that asked the L2, and whether it had the line
    Loads,
    /// First touches of pages, counted by the kernel: on machines without a PMU, too
    PageFaults,
}

impl RecordedEvent {
    const fn sampled(self) -> SampledEvent {
        match self {
            RecordedEvent::TlbMisses => SampledEvent::TlbMisses,
            RecordedEvent::Loads => SampledEvent::Loads,
            RecordedEvent::PageFaults => SampledEvent::PageFaults,
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
    pages: &'a [huepage_linux::sensors::residency::SampledPage],
}

/// Watches one process.
pub fn run(args: &RecordArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    whole_file::can_be_written_apart(&args.html, &args.output)?;
    match args.sensor {
        RecordSensor::Residency | RecordSensor::AccessedBits if args.event.is_some() => {
            Err(CmdError::new(ExitCode::Usage, NO_EVENT))
        }
        RecordSensor::AccessedBits | RecordSensor::Pmu if args.in_use => {
            Err(CmdError::new(ExitCode::Usage, NO_PAGES))
        }
        RecordSensor::Residency => residency(args),
        RecordSensor::AccessedBits | RecordSensor::Pmu => touches::run(args),
    }
}

const NO_EVENT: &str = "--event says what a PMU samples; give --sensor pmu with it";

const NO_PAGES: &str = "--in-use is about looks at the cache; leave out --sensor with it";

fn residency(args: &RecordArgs) -> Result<u8, CmdError> {
    let interrupt = Interrupt::listen()?;
    let mut output = args.output.as_deref().map(Saved::create).transpose()?;
    let cache_bytes = private_bytes()?;
    let mut watch =
        Watch::open(args.pid.cast_signed(), cache_bytes, args.cpu).map_err(residency_error)?;
    watch.count_start();
    let in_use = if args.in_use { Some(watch_in_use(args, &mut watch)?) } else { None };
    if let Some(file) = &mut output {
        let head = ResidencyHead::of(args.pid.cast_signed(), cache_bytes, watch.tally());
        file.write(&ResidencyHead { in_use, ..head })?;
    }
    let mut heat = TimeHeat::default();
    let ended = watch_for(args, &mut watch, (output.as_mut(), &mut heat), &interrupt)?;
    let report = watch.report();
    if let Some(file) = output {
        file.finish(&report, ended)?;
    }
    if args.json {
        let recorded = Recorded { report: &report, ended, pages: watch.sampled_pages() };
        style::print(&report::json(&recorded)?).map_err(internal)?;
    } else if report.samples > 0 {
        style::print(&text(&report, Style::stdout())).map_err(internal)?;
    }
    let printed = text(&report, Style::plain());
    let picture = heat.picture("share in the cache", report.seconds, false);
    save_page(args, &printed, picture)?;
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
fn watch_in_use(args: &RecordArgs, watch: &mut Watch) -> Result<InUseColors, CmdError> {
    let (colors, colors_from) = (Some("all".to_owned()), args.colors_from.clone());
    let plan = PartitionArgs { colors, colors_from, ..PartitionArgs::default() };
    let mut plan = partition::prepare(&plan)?;
    // Nobody else has to wait for this.
    drop(plan.lock.take());
    let ways = u16::try_from(plan.cache.ways).unwrap_or(u16::MAX);
    let (colors, method) = (plan.source.universe(), plan.source.method());
    let found = pages_in_use(args.pid.cast_signed(), method).map_err(residency_error)?;
    let found = found.filter(|found| !found.is_empty());
    let found = found.ok_or_else(|| CmdError::new(ExitCode::Noisy, NONE_IN_USE))?;
    let pages: Vec<Vpn> = found.iter().map(|(page, _)| *page).collect();
    watch.look_only_at(&pages).map_err(residency_error)?;
    let of = found.into_iter().map(|(_, color)| color.map(|color| color.0)).collect();
    Ok(InUseColors { colors, ways, of })
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
    (mut output, heat): (Option<&mut Saved>, &mut TimeHeat),
    interrupt: &Interrupt,
) -> Result<bool, CmdError> {
    let (start, bar) = (Instant::now(), bar(args.seconds));
    while start.elapsed().as_secs_f64() < args.seconds && interrupt.signal().is_none() {
        let seen = match watch.look() {
            Ok(seen) => seen,
            Err(ResidencyError::Gone(_)) => return Ok(true),
            Err(ResidencyError::Proc(error)) if error.is_gone() => return Ok(true),
            Err(error) => return Err(residency_error(error)),
        };
        bar.set_position(u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX));
        let at = start.elapsed().as_secs_f64();
        let page = |seat: usize| watch.sampled_pages()[seat].page.0;
        if args.html.is_some() {
            seen.iter().for_each(|&(seat, found)| heat.note(at, page(seat), found));
        }
        let Some(file) = output.as_deref_mut().filter(|_| !seen.is_empty()) else { continue };
        let pages = |wanted| -> Vec<u64> {
            let some = seen.iter().filter(|(_, found)| *found == wanted);
            some.map(|&(seat, _)| page(seat)).collect()
        };
        file.write(&ResidencyLook { at, found: pages(true), missed: pages(false) })?;
    }
    bar.finish_and_clear();
    Ok(false)
}

/// On a terminal, and only for what takes a while.
fn bar(seconds: f64) -> ProgressBar {
    let all = Duration::try_from_secs_f64(seconds).unwrap_or_default().as_millis();
    let all = u64::try_from(all).unwrap_or(u64::MAX);
    progress::bar(seconds >= 2.0, Some(all), "watching {bar:30} {percent:>3} % ({eta} left)")
}

/// The file that looks are saved to, in the form of `huepage_policy::recording::residency`.
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
        serde_json::to_value(line)
            .and_then(|line| serde_json::to_writer(&mut self.file, &line))
            .map_err(io::Error::from)
            .and_then(|()| self.file.write_all(b"\n"))
            .map_err(|e| unwritten(self.path, &e))
    }

    fn finish(mut self, report: &ResidencyReport, ended: bool) -> Result<(), CmdError> {
        let &ResidencyReport { samples, found, looks, seconds, cpu_seconds, latencies, .. } =
            report;
        let errors = Some(report.errors);
        let end = ResidencyTotals {
            samples,
            found,
            looks,
            seconds,
            cpu_seconds,
            latencies,
            errors,
            ended,
        };
        self.write(&ResidencyTail { end })?;
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
    let machine = HostMachine::read().map_err(internal)?;
    let l2 = machine.cache(LevelChoice::Level(CacheLevel::L2));
    let l2 = l2.map_err(|e| CmdError::new(ExitCode::Kernel, format!("{e}; see `huepage info`")))?;
    Ok(l2.geometry.size_bytes)
}

/// Writes the page of HTML, if one was asked for.
fn save_page(args: &RecordArgs, printed: &str, picture: Option<Picture>) -> Result<(), CmdError> {
    let Some(path) = &args.html else { return Ok(()) };
    let title = format!("process {}", args.pid);
    let drawn = picture.map(|picture| svg::draw(&picture, &title)).transpose().map_err(internal)?;
    let page = html::report(&title, printed, drawn.as_slice());
    whole_file::save(path, &page)
}

fn text(report: &ResidencyReport, style: Style) -> String {
    let mut areas: Vec<&AreaSeen> = report.areas.iter().filter(|area| area.samples > 0).collect();
    areas.sort_by(|a, b| b.cached_bytes().total_cmp(&a.cached_bytes()));
    let mut text = table(&areas, style);
    if areas.len() > LISTED {
        let more = style::count((areas.len() - LISTED) as u64, "area", "areas");
        text += &format!("and {more} with less in the cache\n");
    }
    let latencies = report.latencies.map_or_else(String::new, |[there, gone]| {
        format!("; a line takes {there} ns in the cache and {gone} ns out of it")
    });
    text += &format!(
        "residency of the {}: {} lines timed in {} looks, {} found; {:.2} % of a CPU over {:.1} s{latencies}\n",
        looked_at(report.private_only),
        report.samples,
        report.looks,
        report.found,
        100.0 * report.cpu_seconds / report.seconds.max(1e-9),
        report.seconds,
    );
    text
}

fn table(areas: &[&AreaSeen], style: Style) -> String {
    let mut table = style.table(&HEADER);
    for area in areas.iter().take(LISTED) {
        table.add_row(cells(area));
    }
    style::lay_out(table)
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
