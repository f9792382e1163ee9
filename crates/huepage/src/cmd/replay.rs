//! `huepage replay`: what `huepage record` saved, counted again by the code that counted it live, and
//! what a policy would make of it: which areas ROCS would confine in a pollute buffer. Touches no
//! process, and needs neither root nor the machine on which it was recorded.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use huepage_color::{CacheLevel, LevelChoice};
use huepage_linux::machine::Machine;
use huepage_policy::residency::offline::{self, Cache};
use huepage_policy::residency::recording::{Reader, Recorded, RecordingError, Totals};
use huepage_policy::residency::{AreaSeen, Estimate};
use serde::Serialize;

use super::record::{self, HEADER, LISTED};
use crate::args::parse_size;
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::style::print;
use crate::top::text;

const EXAMPLES: &str = "\
Examples:
  huepage record --output looks.jsonl 4711      save what the sensor sees
  huepage replay looks.jsonl                    by area, and what ROCS would confine
  huepage replay --cache 1M --ways 16 --buffer 1/8 looks.jsonl
  huepage replay --policy none --json looks.jsonl

The buffer is a part of the cache for pages that pollute it. Caches default to the L2 of this machine.";

/// The longest line that is read, in bytes: a head names every page that is looked at.
const LONGEST: u64 = 64 << 20;

/// Count a recording of residency again, and drive a policy with it
///
/// Prints the table and the estimate that the sensor had when the recording ended, and which areas
/// ROCS would confine in a pollute buffer.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct ReplayArgs {
    /// What `huepage record --output` has written
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// The policy that is driven with it
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = Driven::Rocs)]
    pub policy: Driven,

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

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A policy that a recording can be replayed into.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// Confines pages that pollute the cache to a part of it
    Rocs,
    /// None: the counts alone
    None,
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

/// What is printed as JSON.
#[derive(Serialize)]
struct Replayed<'a> {
    pid: i32,
    sensor: &'a str,
    /// Bytes of the cache that was watched.
    cache_bytes: u64,
    /// Looks that saw something, and the time of the last.
    looks: u64,
    last: f64,
    samples: u64,
    found: u64,
    /// What the sensor said at the end; none if the recording was cut short.
    totals: Option<Totals>,
    estimate: Option<Estimate>,
    areas: Vec<Area<'a>>,
    rocs: Option<RocsSays>,
}

#[derive(Serialize)]
struct Area<'a> {
    #[serde(flatten)]
    seen: &'a AreaSeen,
    /// Pages of it that ROCS would confine.
    confined: Option<u64>,
}

/// What ROCS would do.
#[derive(Clone, Debug, Serialize)]
struct RocsSays {
    colors: u16,
    ways: u16,
    buffer_colors: u16,
    /// Pages that it would confine, of those that it had samples of.
    confined: u64,
    sampled: u64,
    #[serde(skip)]
    by_area: Vec<u64>,
}

/// Reads a recording, drives the policy, prints.
pub fn run(args: &ReplayArgs) -> Result<u8, CmdError> {
    let recorded = read(&args.file)?;
    let rocs = match args.policy {
        Driven::Rocs => Some(drive(&recorded, cache(args)?)?),
        Driven::None => None,
    };
    let text = match args.json {
        true => serde_json::to_string_pretty(&replayed(&recorded, rocs)).map_err(internal)? + "\n",
        false => words(&recorded, rocs.as_ref()),
    };
    print(&text).map_err(internal)?;
    Ok(0)
}

fn read(path: &Path) -> Result<Recorded, CmdError> {
    let bad = |what: &dyn std::fmt::Display| {
        CmdError::new(ExitCode::BadFile, format!("{}: {what}", path.display()))
    };
    let file = File::open(path).map_err(|e| bad(&format!("{e}; name a recording")))?;
    let (mut file, mut reader, mut line) = (BufReader::new(file), Reader::default(), Vec::new());
    loop {
        line.clear();
        let took = file.by_ref().take(LONGEST).read_until(b'\n', &mut line);
        match took.map_err(|e| bad(&format!("{e}; record again")))? {
            0 => return reader.finish().map_err(|e| bad(&e)),
            // A recorder that was killed leaves half a line.
            _ if !line.ends_with(b"\n") && reader.has_head() => {
                return reader.finish().map_err(|e| bad(&e));
            }
            _ => reader.line(&line).map_err(|e: RecordingError| bad(&e))?,
        }
    }
}

/// The cache that was asked for, the rest as this machine's L2.
fn cache(args: &ReplayArgs) -> Result<Cache, CmdError> {
    let (bytes, ways) = match (args.cache, args.ways) {
        (Some(bytes), Some(ways)) => (bytes, ways),
        (bytes, ways) => {
            let machine = Machine::read().map_err(internal)?;
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
    Ok(Cache { colors, ways, buffer })
}

fn drive(recorded: &Recorded, cache: Cache) -> Result<RocsSays, CmdError> {
    let Some(found) = offline::confined(&recorded.tally, cache) else {
        let what = format!(
            "the process had more than {} pages resident, too many to lay out; use --policy none",
            offline::MOST_PAGES
        );
        return Err(CmdError::new(ExitCode::BadFile, what));
    };
    Ok(RocsSays {
        colors: cache.colors,
        ways: cache.ways,
        buffer_colors: cache.buffer,
        confined: found.by_area.iter().sum(),
        sampled: found.sampled,
        by_area: found.by_area,
    })
}

fn replayed(recorded: &Recorded, rocs: Option<RocsSays>) -> Replayed<'_> {
    let Recorded { head, tally, looks, last, totals } = recorded;
    let confined = |at: usize| rocs.as_ref().and_then(|rocs| rocs.by_area.get(at).copied());
    let area = |(at, seen)| Area { seen, confined: confined(at) };
    Replayed {
        pid: head.pid,
        sensor: &head.sensor,
        cache_bytes: head.cache_bytes,
        looks: *looks,
        last: *last,
        samples: tally.samples(),
        found: tally.found(),
        totals: totals.clone(),
        estimate: tally.estimate(),
        areas: tally.areas.iter().enumerate().map(area).collect(),
        rocs,
    }
}

/// For a person.
fn words(recorded: &Recorded, rocs: Option<&RocsSays>) -> String {
    let tally = &recorded.tally;
    let seen = tally.areas.iter().enumerate().filter(|(_, area)| area.samples > 0);
    let mut areas: Vec<(usize, &AreaSeen)> = seen.collect();
    areas.sort_by(|(_, a), (_, b)| b.cached_bytes().total_cmp(&a.cached_bytes()));
    let mut table = Table::new();
    let confined = rocs.map(|_| "confined");
    table.load_preset(presets::NOTHING).set_header(HEADER.into_iter().chain(confined));
    for &(at, area) in areas.iter().take(LISTED) {
        let confined = rocs.and_then(|rocs| rocs.by_area.get(at)).map(|n| format!("{} KiB", n * 4));
        table.add_row(record::cells(area).into_iter().chain(confined));
    }
    let mut text = format!("{table}\n");
    if areas.len() > LISTED {
        text += &format!("and {} areas with less in the cache\n", areas.len() - LISTED);
    }
    text += &format!(
        "process {}: {} lines timed in {} looks over {:.1} s, {} found; misses {}\n",
        recorded.head.pid,
        tally.samples(),
        recorded.looks,
        recorded.last,
        tally.found(),
        text::misses(tally.estimate()),
    );
    if let Some(rocs) = rocs {
        text += &format!(
            "ROCS would confine {} KiB of {} KiB in {} of {} colours ({} ways)\n",
            rocs.confined * 4,
            rocs.sampled * 4,
            rocs.buffer_colors,
            rocs.colors,
            rocs.ways,
        );
    }
    if recorded.totals.is_none() {
        text += "the recording was cut short: it has no totals to hold this against\n";
    }
    text
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
}
