//! `huepage replay`: what `huepage record` saved, counted again by the code that counted it live, and
//! what policies would make of it, side by side. Touches no process, and needs neither root nor the machine
//! on which it was recorded.
//!
//! Recordings are opened and read here; `drive` tells their steps to policies, `text` prints one recording,
//! `rows` puts policies into the rows of the simulator.

mod drive;
mod rows;
mod text;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use huepage_color::{CacheLevel, LevelChoice};
use huepage_linux::kernel::machine::HostMachine;
use huepage_policy::coloris::Bounds;
use huepage_policy::coloris::offline::{OfflineDivision, divide};
use huepage_policy::conflict::CacheShape;
use huepage_policy::recording::{Recording, RecordingError, RecordingReader};
use huepage_policy::registry::Host;
use huepage_policy::rocs::offline::RocsCache;
use huepage_sim::heat::Heat;
use serde::Serialize;

use super::sim::args::HeatOf;
use super::sim::{flat, heat, output};
use crate::exit::{CmdError, ExitCode};
use crate::json::pretty;
use crate::partition::internal;
use crate::style::{Style, print};
use crate::values::{parse_percent, parse_size};
use drive::{Driven, Drives, Read};
use rows::ReplayRow;

const EXAMPLES: &str = "\
Examples:
  huepage record --output looks.jsonl 4711      save what the sensor sees
  huepage replay looks.jsonl                    what ROCS would confine
  huepage replay --cache 1M --ways 16 --buffer 1/8 looks.jsonl
  huepage record --sensor accessed-bits --output touches.jsonl 4711
  huepage replay --policy approx-online --policy asap touches.jsonl
  huepage replay --policy utility web.jsonl db.jsonl
  huepage replay --rows --point 100 touches.jsonl > replayed.jsonl
  huepage sim merge simulated.jsonl replayed.jsonl --csv

Without --policy it is the one for what was recorded. In the table, none is the process as it was. The \
buffer is a part of the cache for pages that pollute it. Caches default to the L2 of this machine. What \
a policy wants done counts as done, and the process goes on as it was recorded.";

/// The longest line that is read, in bytes: a head names every page that is looked at.
const LONGEST: u64 = 64 << 20;

/// Count recordings again, and drive policies with them
///
/// Prints what the sensor had counted when the recording ended, and what each policy would do: which areas
/// ROCS would confine, which superpages would be built, which pages recoloured, or how a cache would be
/// divided among several recordings.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct ReplayArgs {
    /// What `huepage record --output` has written
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// A policy that is driven with it; may be repeated [default: the usual one of what was recorded]
    ///
    /// `huepage sim --policy list` lists all, and `NAME:help` the keys of one.
    #[arg(long, value_name = "NAME[:KEY=VALUE,…]")]
    pub policy: Vec<Driven>,

    /// Share of the cache that the pollute buffer takes
    #[arg(long, value_name = "SHARE", default_value = "1/16", value_parser = parse_share)]
    pub buffer: f64,

    /// Size of the cache [default: this machine's L2]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub cache: Option<u64>,

    /// Lines in a set of it [default: this machine's L2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub ways: Option<u16>,

    /// Colours it has [default: as many as a linear index makes of size and ways]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=4096))]
    pub colors: Option<u16>,

    /// Memory that superpages may add to what was resident
    #[arg(long, value_name = "PERCENT", default_value = "4%", value_parser = parse_percent)]
    pub memory_overhead: f64,

    /// Between which miss rates coloris and utility leave a group alone [default: the policy's, 30%-75%]
    #[arg(long, value_name = "LOW-HIGH", value_parser = parse_bounds)]
    pub miss_rate: Option<Bounds>,

    /// Also draw looks (accesses) or misses (pages) per page of a residency recording, as `huepage sim` does
    #[arg(long, value_enum, value_name = "WHAT")]
    pub heat: Option<ReplayHeat>,

    /// Print a line of JSON for each policy, in the form of `huepage sim --json`
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    pub rows: bool,

    /// The number of the first row, so that none is that of another file
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub point: u32,

    /// Print comma-separated values, a line for each policy, in the form of `huepage sim --csv`
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What a heat map shows.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayHeat {
    /// Lines that were not in the cache, per page
    Pages,
    /// Lines looked at, per page
    Accesses,
}

fn parse_bounds(text: &str) -> Result<Bounds, String> {
    let parts = text
        .split_once('-')
        .and_then(|(low, high)| Some((parse_percent(low).ok()?, parse_percent(high).ok()?)));
    match parts {
        Some((low, high)) if low < high && high <= 1.0 => Ok(Bounds { low, high }),
        _ => Err(format!("`{text}` are no two miss rates; give for instance 10%-40%")),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = match text.split_once('/') {
        Some((part, whole)) => ratio(part, whole),
        None => text.strip_suffix('%').map_or_else(|| text.parse().ok(), |n| ratio(n, "100")),
    };
    let share = share.filter(|share| (0.0..1.0).contains(share) && *share > 0.0);
    share.ok_or_else(|| format!("`{text}` is no share; give for instance 1/16 or 6.25%"))
}

fn ratio(part: &str, whole: &str) -> Option<f64> {
    Some(part.trim().parse::<f64>().ok()? / whole.trim().parse::<f64>().ok()?)
}

/// What is printed as JSON: of one recording, its counts and the rows; of several, all of them.
#[derive(Serialize)]
#[serde(untagged)]
enum Shown<'a> {
    One {
        #[serde(flatten)]
        recording: text::ReplayedRecording<'a>,
        policies: &'a [ReplayRow],
    },
    Several {
        recordings: Vec<text::ReplayedRecording<'a>>,
        policies: &'a [ReplayRow],
    },
}

/// Reads recordings, drives policies, prints.
pub fn run(args: &ReplayArgs) -> Result<u8, CmdError> {
    let reads = args.files.iter().map(|path| read(path, args));
    let reads = reads.collect::<Result<Vec<Read>, CmdError>>()?;
    let drawn = |read: &Read| matches!(read.recorded, Recording::Residency(_));
    if args.heat.is_some() && !reads.iter().any(drawn) {
        let what = "--heat draws looks at the cache; record with --sensor residency";
        return Err(CmdError::new(ExitCode::BadFile, what));
    }
    let divisions = divisions(args, &reads)?;
    let first = usize::try_from(args.point).map_err(internal)?;
    let rows = rows::rows(&reads, &divisions, first);
    let text = match args {
        ReplayArgs { json: true, .. } => {
            let mut all: Vec<text::ReplayedRecording<'_>> =
                reads.iter().map(text::replayed).collect();
            let shown = match all.pop() {
                Some(recording) if all.is_empty() => Shown::One { recording, policies: &rows },
                last => {
                    all.extend(last);
                    Shown::Several { recordings: all, policies: &rows }
                }
            };
            pretty(&shown)?
        }
        ReplayArgs { rows: true, .. } => output::lines(&rows::values(&rows)?),
        ReplayArgs { csv: true, .. } => flat::csv(&rows::values(&rows)?),
        _ => for_a_person(args, &reads, &divisions, &rows),
    };
    print(&text).map_err(internal)?;
    Ok(0)
}

fn for_a_person(
    args: &ReplayArgs,
    reads: &[Read],
    divisions: &[(Driven, OfflineDivision)],
    rows: &[ReplayRow],
) -> String {
    let mut text = String::new();
    for read in reads {
        if reads.len() > 1 {
            text += &format!("{}\n", Style::stdout().bold(&read.name));
        }
        text += &text::words(read);
    }
    for (policy, division) in divisions {
        text += &text::decided(policy, division, reads);
    }
    text += &format!("\n{}", rows::table(rows));
    text + &args.heat.map_or_else(String::new, |what| picture(reads, what))
}

/// Looks at pages as the simulator draws accesses, each recording as an address space.
fn picture(reads: &[Read], what: ReplayHeat) -> String {
    let mut pages = Heat::default();
    for (space, read) in (0..).zip(reads) {
        let Recording::Residency(found) = &read.recorded else { continue };
        for seat in &found.tally.sampled_pages {
            (0..seat.samples).for_each(|look| pages.note(space, seat.page, look >= seat.found));
        }
    }
    let of = if what == ReplayHeat::Pages { HeatOf::Pages } else { HeatOf::Accesses };
    heat::text(&heat::pages(&pages, of, "cache", heat::room(14)), Style::stdout())
}

/// What is decided about the cache by those who divide it among all recordings.
fn divisions(
    args: &ReplayArgs,
    reads: &[Read],
) -> Result<Vec<(Driven, OfflineDivision)>, CmdError> {
    let dividing: Vec<&Driven> = args.policy.iter().filter(|policy| policy.divides()).collect();
    if dividing.is_empty() {
        return Ok(Vec::new());
    }
    let RocsCache { colors, ways, .. } = cache(args)?;
    let cache = Some(CacheShape { colors, ways, lines_per_page: 64 });
    let host = Host { cache, live: true, ..Host::default() };
    let groups: Vec<_> =
        reads.iter().map(|read| (read.name.clone(), read.readings.clone())).collect();
    let divided = dividing.into_iter().map(|policy| {
        let mut settings = policy.coloris(&host)?;
        settings.bounds = args.miss_rate.unwrap_or(settings.bounds);
        let found = divide(settings, colors, &groups).ok_or_else(|| {
            let what = format!(
                "{} recordings do not fit {colors} colours; name fewer, or give --colors",
                groups.len()
            );
            CmdError::new(ExitCode::Colors, what)
        })?;
        Ok((policy.clone(), found))
    });
    divided.collect()
}

fn read(path: &Path, args: &ReplayArgs) -> Result<Read, CmdError> {
    let bad = |what: &dyn std::fmt::Display| {
        CmdError::new(ExitCode::BadFile, format!("{}: {what}", path.display()))
    };
    let file = File::open(path).map_err(|e| bad(&format!("{e}; name a recording")))?;
    let (mut file, mut reader, mut line) =
        (BufReader::new(file), RecordingReader::default(), Vec::new());
    let mut drives = None;
    loop {
        line.clear();
        let took = file.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        let read = took.map_err(|e| bad(&format!("{e}; record again")))?;
        // A recorder that was killed leaves half a line.
        if read == 0 || !line.ends_with(b"\n") && reader.has_head() {
            break;
        }
        let heard = reader.line(&line).map_err(|e: RecordingError| bad(&e))?;
        let drives = match &mut drives {
            Some(drives) => drives,
            None => {
                let begun = Drives::begin(args, &reader);
                drives.insert(begun.map_err(|e| if is_of_file(&e) { bad(&e.message) } else { e })?)
            }
        };
        drives.hear(&heard);
    }
    let recorded = reader.finish().map_err(|e| bad(&e))?;
    let drives = drives.ok_or_else(|| bad(&RecordingError::Empty))?;
    drives.finish(path.display().to_string(), recorded)
}

fn is_of_file(error: &CmdError) -> bool {
    error.code == ExitCode::BadFile
}

/// The cache that was asked for, the rest as this machine's L2.
fn cache(args: &ReplayArgs) -> Result<RocsCache, CmdError> {
    let (bytes, ways) = match (args.cache, args.ways) {
        (Some(bytes), Some(ways)) => (bytes, ways),
        (bytes, ways) => {
            let machine = HostMachine::read().map_err(internal)?;
            let l2 = machine.cache(LevelChoice::Level(CacheLevel::L2)).map_err(|e| {
                let what = format!("{e}; give --cache and --ways");
                CmdError::new(ExitCode::Kernel, what)
            })?;
            let own = u16::try_from(l2.geometry.ways).map_err(internal)?;
            (bytes.unwrap_or(l2.geometry.size_bytes), ways.unwrap_or(own))
        }
    };
    let made = bytes / (u64::from(ways) * huepage_color::PAGE_BYTES);
    let made = u16::try_from(made).ok().filter(|colors| (2..=4096).contains(colors));
    let Some(colors) = args.colors.or(made) else {
        let what = format!(
            "a cache of {bytes} bytes with {ways} ways has no two colours, or more than 4096; choose another --cache or --ways"
        );
        return Err(CmdError::new(ExitCode::Colors, what));
    };
    // Colours are a sixteenth of sixteen: fewer cannot be split further.
    let wanted = (args.buffer * f64::from(colors)).round().clamp(1.0, f64::from(colors - 1));
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
    let buffer = wanted as u16;
    Ok(RocsCache { colors, ways, buffer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_fractions_or_percentages() {
        let near = |text, share: f64| (parse_share(text).unwrap() - share).abs() < 1e-12;
        assert!(near("1/16", 0.0625) && near("6.25%", 0.0625) && near("0.5", 0.5));
        for bad in ["", "0", "1", "2/1", "1/0", "-1/16", "x", "1/", "nan", "100%"] {
            assert!(parse_share(bad).unwrap_err().contains("1/16"), "{bad}");
        }
    }

    #[test]
    fn bounds_are_two_percentages() {
        assert_eq!(parse_bounds("10%-40%"), Ok(Bounds { low: 0.1, high: 0.4 }));
        for bad in ["", "10%", "40%-10%", "10%-200%", "a-b", "-"] {
            assert!(parse_bounds(bad).unwrap_err().contains("10%-40%"), "{bad}");
        }
    }
}
