//! The options that say which colours of which cache a partition has, and how its memory is handled: their
//! names, help and defaults, as the command line, files and requests have them.

use std::path::PathBuf;

use clap::{Args, ValueEnum as _};
use serde::{Deserialize, Serialize};

use super::share::{CacheShare, Level};
use crate::headings::TUNING;
use crate::values::parse_size;

/// The partition: which colours of which cache, and how its memory is handled.
#[derive(Args, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionArgs {
    /// The share of the cache to use: 25%, 512K, llc:30%, or a schemata such as L2:0=0f
    ///
    /// Rounded down to whole colours; a share below one colour is an error. A schemata's mask, as resctrl has it,
    /// counts ways: each way stands for as many colours, and the mask says which.
    #[arg(long, value_name = "SHARE")]
    pub share: Option<String>,

    /// The colours to use: a list, a bit mask or a share (0-7,12 or 0xff or 25%)
    ///
    /// `huepage info` says how many colours each cache has. Colours count from 0. `all` is all of
    /// them, `rest` what no running partition holds.
    #[arg(long, value_name = "SET", conflicts_with = "share")]
    pub colors: Option<String>,

    /// The cache to partition
    #[arg(long, value_enum, default_value_t = Level::L2)]
    pub level: Level,

    /// How the colour of a frame is known [default: what `huepage info` finds]
    ///
    /// pfn: from the frame number, right on bare metal and in guests backed by huge pages;
    /// probe: measured by timing, right where the frame number says nothing; declared: from the
    /// frame number, on your word, nothing is measured; declared=FILE: by the hash in FILE, as
    /// `huepage probe hash --output` writes it.
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "SOURCE", value_parser = parse_colors_from)]
    pub colors_from: Option<ColorsFrom>,

    /// Take frames of any colour when the partition has no memory left, and warn (the default)
    #[arg(long, help_heading = TUNING, hide_short_help = true, conflicts_with = "strict")]
    pub fallback: bool,

    /// Wait for memory of the partition when it has none left, or end with status 109
    ///
    /// `run` implies --wait: frames are gathered before the program starts.
    #[arg(long)]
    pub strict: bool,

    /// Frames to keep ready for the program, for instance 64M [default: a part of its memory]
    ///
    /// They count as memory of the program. Without a size they are a twentieth of its memory, 1M to 32M,
    /// and more where the program outruns them; with --wait it starts with 32M. While frames are
    /// gathered, those of other colours are held as well; without a size they stay while the
    /// program grows, 128M at most.
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "SIZE", value_parser = parse_size)]
    pub stock: Option<u64>,

    /// Pages placed at each fault, in one batch (1 to 512)
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "PAGES", default_value_t = FAULT_AROUND,
          value_parser = clap::value_parser!(u32).range(1..=512))]
    pub fault_around: u32,

    /// Milliseconds a child lives before it is confined; shorter ones run as they are
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "MS", default_value_t = CHILD_DELAY)]
    pub child_delay: u64,

    /// Recolour every page over and over (a test of the engine, never useful otherwise)
    #[arg(long, hide = true)]
    pub storm: bool,
}

impl PartitionArgs {
    /// The options that say which colours of which cache these are, for a command line.
    pub fn options(&self) -> Vec<String> {
        let level = self.level().to_possible_value().map(|level| level.get_name().to_owned());
        let from = self.colors_from.clone().map(String::from);
        let all = [
            ("--level", level),
            ("--colors", self.colors.clone()),
            ("--share", self.share.clone()),
            ("--colors-from", from),
        ];
        let given = all.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten().collect()
    }

    /// The cache to partition: the one that the share names, if it names one.
    pub fn level(&self) -> Level {
        let share = self.share.as_deref().and_then(|text| CacheShare::parse(text).ok());
        share.and_then(|share| share.level).unwrap_or(self.level)
    }

    /// Whether all memory is to lie in some colours.
    pub const fn confines(&self) -> bool {
        self.colors.is_some() || self.share.is_some()
    }
}

impl Default for PartitionArgs {
    /// What the command line says when it says nothing.
    fn default() -> PartitionArgs {
        PartitionArgs {
            level: Level::L2,
            colors: None,
            share: None,
            colors_from: None,
            fallback: false,
            strict: false,
            stock: None,
            fault_around: FAULT_AROUND,
            child_delay: CHILD_DELAY,
            storm: false,
        }
    }
}

/// Pages placed at each fault, when nothing is said.
const FAULT_AROUND: u32 = 64;
/// Milliseconds a child lives before it is confined, when nothing is said.
const CHILD_DELAY: u64 = 20;

/// Where colours come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ColorsFrom {
    /// From the frame number: right on bare metal and in guests backed by huge pages
    Pfn,
    /// Measured by timing: right where the frame number says nothing
    Probe,
    /// From the frame number, on your word: nothing is measured; by the hash of a file, or by
    /// plain bits
    Declared(Option<PathBuf>),
}

impl TryFrom<String> for ColorsFrom {
    type Error = String;

    fn try_from(text: String) -> Result<ColorsFrom, String> {
        parse_colors_from(&text)
    }
}

impl From<ColorsFrom> for String {
    fn from(from: ColorsFrom) -> String {
        match from {
            ColorsFrom::Pfn => "pfn".to_owned(),
            ColorsFrom::Probe => "probe".to_owned(),
            ColorsFrom::Declared(None) => "declared".to_owned(),
            ColorsFrom::Declared(Some(file)) => format!("declared={}", file.display()),
        }
    }
}

/// As on the command line.
pub fn parse_colors_from(text: &str) -> Result<ColorsFrom, String> {
    match (text, text.strip_prefix("declared=")) {
        ("pfn", _) => Ok(ColorsFrom::Pfn),
        ("probe", _) => Ok(ColorsFrom::Probe),
        ("declared", _) => Ok(ColorsFrom::Declared(None)),
        (_, Some(file)) if !file.is_empty() => Ok(ColorsFrom::Declared(Some(file.into()))),
        _ => Err("expected pfn, probe, declared or declared=FILE".to_owned()),
    }
}
