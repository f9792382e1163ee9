//! The arguments of `huepage warm` and the help that explains them.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::partition::{ColorsFrom, Level, PartitionArgs, parse_colors_from};
use crate::values::parse_size;

const EXAMPLES: &str = "\
Examples:
  huepage warm /srv/data                      sequences, a colour each, in turns
  huepage warm --colors 0-1 big.log           all of it in two colours
  huepage warm --check big.log                where it is now; changes nothing
  huepage warm --into /dev/shm/db /srv/db     a copy in memory, all pages placed
  find . -name '*.dat' | huepage warm --files-from - --json

Pages stay where they are until the kernel needs their memory or the file is dropped from the cache: \
warm again then. Files are only read.";

/// Bring files into the page cache, in chosen colours (experimental)
///
/// A program that goes through such a file takes only the part of the processor cache that has
/// these colours. Pages that are cached in others are written back if need be, dropped and read
/// again; those that several programs map stay, and are counted.
#[derive(Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub struct WarmArgs {
    /// Any page may come in any of these colours: a list, a bit mask or a share (0-7,12, 0xff, 25%)
    #[arg(long, value_name = "SET", conflicts_with = "share")]
    pub colors: Option<String>,

    /// The share of the cache to use, for instance 25%
    #[arg(long, value_name = "PERCENT")]
    pub share: Option<String>,

    /// Choose colours by a policy: srm gives each sequence of pages one colour, in turns over
    /// those of --colors or --share, or all [default: srm if no colours are given]
    #[arg(long, value_enum)]
    pub policy: Option<WarmPolicy>,

    /// Pages of a sequence; a file with more is a sequence of its own, smaller ones share one
    #[arg(long, value_name = "PAGES", default_value_t = 256,
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub threshold: u64,

    /// Only report where the pages of the files are
    #[arg(long)]
    pub check: bool,

    /// Copy the files into DIR with every page placed; the way onto tmpfs, whose pages cannot be
    /// dropped and read again
    #[arg(long, value_name = "DIR", conflicts_with = "check")]
    pub into: Option<PathBuf>,

    /// Also the files that FILE lists, one in a line; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub files_from: Option<PathBuf>,

    /// The cache whose colours are meant
    #[arg(long, value_enum, default_value_t = Level::L2)]
    pub level: Level,

    /// How the colour of a frame is known [default: what `huepage info` finds]
    #[arg(long, value_name = "SOURCE", value_parser = parse_colors_from)]
    pub colors_from: Option<ColorsFrom>,

    /// Most memory to keep ready in free frames [default: 0.8 % of all]; never more than an
    /// eighth of what is available
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub memory: Option<u64>,

    /// The CPU to read on [default: the last allowed]
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,

    /// Files and directories
    #[arg(value_name = "PATH", required_unless_present = "files_from")]
    pub paths: Vec<PathBuf>,
}

/// How colours are chosen.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarmPolicy {
    /// SRM-buffer's sequences
    Srm,
}

impl WarmArgs {
    /// Whether sequences are placed.
    pub fn is_srm(&self) -> bool {
        self.policy.is_some() || self.colors.is_none() && self.share.is_none()
    }

    /// What is common to all commands that take colours.
    pub fn partition(&self) -> PartitionArgs {
        PartitionArgs {
            level: self.level,
            colors: self.colors.clone(),
            share: self.share.clone(),
            colors_from: self.colors_from.clone(),
            ..PartitionArgs::default()
        }
    }
}
