//! The options `--page-cache …` of `run` and `attach`, and what they mean together.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::args::{PartitionArgs, parse_size};
use crate::exit::{CmdError, ExitCode};
use crate::pollute::PolluteArgs;
use crate::superpages::SuperpageArgs;

/// Where help lists them.
const HEADING: &str = "Page cache";

/// Files that the program opens, placed before it reads them.
#[derive(Args, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCacheArgs {
    /// Place files in the page cache before the program reads them
    ///
    /// srm: in SRM-buffer's sequences, each of one colour, in turns over the colours of the
    /// partition; without --colors and --share over all of them, and nothing else is placed.
    #[arg(long, help_heading = HEADING, value_enum, value_name = "POLICY", default_value_t = PageCache::Off)]
    pub page_cache: PageCache,

    /// Milliseconds that an open waits for the file to be placed, at most
    ///
    /// The rest of a large file is placed while the program runs.
    #[arg(long, help_heading = HEADING, value_name = "MS", default_value_t = 200, requires = "page_cache",
          value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub page_cache_wait: u64,

    /// Place only files below this directory (repeatable)
    #[arg(long, help_heading = HEADING, value_name = "PATH", requires = "page_cache")]
    pub page_cache_include: Vec<PathBuf>,

    /// Place no files below this directory (repeatable); of nested ones the innermost counts
    #[arg(long, help_heading = HEADING, value_name = "PATH", requires = "page_cache")]
    pub page_cache_exclude: Vec<PathBuf>,

    /// Place only files of these sizes, for instance 64K-2G, 1M- or -512M
    #[arg(long, help_heading = HEADING, value_name = "MIN-MAX", requires = "page_cache", value_parser = parse_sizes)]
    pub page_cache_sizes: Option<Sizes>,

    /// Pages of a sequence; a file with more is a sequence of its own, smaller ones of a process
    /// share one
    #[arg(long, help_heading = HEADING, value_name = "PAGES", default_value_t = 256, requires = "page_cache",
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub page_cache_threshold: u64,
}

impl Default for PageCacheArgs {
    /// What the command line says when it says nothing.
    fn default() -> PageCacheArgs {
        PageCacheArgs {
            page_cache: PageCache::Off,
            page_cache_wait: 200,
            page_cache_include: Vec::new(),
            page_cache_exclude: Vec::new(),
            page_cache_sizes: None,
            page_cache_threshold: 256,
        }
    }
}

/// By which policy files are placed.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PageCache {
    /// SRM-buffer's sequences
    Srm,
    /// Files come where they come
    Off,
}

/// Sizes in bytes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

/// A range of sizes; either end may be missing.
pub fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let expected = || format!("`{text}` is no range of sizes; write for instance 64K-2G or 1M-");
    let (min, max) = text.split_once('-').ok_or_else(expected)?;
    let side = |text: &str, missing| if text.is_empty() { Ok(missing) } else { parse_size(text) };
    let sizes = Sizes { min: side(min, 1)?, max: side(max, u64::MAX)? };
    let is_range = sizes.min <= sizes.max && text != "-";
    if is_range { Ok(sizes) } else { Err(expected()) }
}

impl PageCacheArgs {
    /// Whether files are placed.
    pub fn is_on(&self) -> bool {
        self.page_cache == PageCache::Srm
    }

    /// Whether no partition is wanted, only this, superpages or a pollute buffer.
    pub fn is_alone(
        &self,
        partition: &PartitionArgs,
        superpages: &SuperpageArgs,
        pollute: &PolluteArgs,
    ) -> Result<bool, CmdError> {
        let confined = partition.colors.is_some() || partition.share.is_some();
        if !confined && !self.is_on() && !superpages.is_on() && !pollute.is_on() {
            let what = "no colours are given; add --colors, --share, --page-cache srm, --superpages or --pollute-buffer";
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        Ok(!confined)
    }

    /// Sizes of the files that are placed.
    pub fn sizes(&self) -> RangeInclusive<u64> {
        self.page_cache_sizes.map_or(1..=u64::MAX, |sizes| sizes.min..=sizes.max)
    }

    /// The options with directories as the kernel names them.
    pub fn resolved(&self) -> Result<PageCacheArgs, CmdError> {
        let mut args = self.clone();
        let bad = |path: &Path, e: std::io::Error| {
            let what = format!("cannot use {}: {e}; name a directory", path.display());
            CmdError::new(ExitCode::Usage, what)
        };
        for path in &mut args.page_cache_include {
            *path = path.canonicalize().map_err(|e| bad(path, e))?;
        }
        for path in &mut args.page_cache_exclude {
            // The program may make it.
            let found = path.canonicalize().or_else(|_| std::path::absolute(&*path));
            *path = found.map_err(|e| bad(path, e))?;
        }
        Ok(args)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parsed_run as run;

    #[test]
    fn either_side_of_a_range_may_be_missing() {
        assert_eq!(parse_sizes("64K-2G"), Ok(Sizes { min: 64 << 10, max: 2 << 30 }));
        assert_eq!(parse_sizes("1M-"), Ok(Sizes { min: 1 << 20, max: u64::MAX }));
        assert_eq!(parse_sizes("-512M"), Ok(Sizes { min: 1, max: 512 << 20 }));
        assert_eq!(parse_sizes("4096-4096"), Ok(Sizes { min: 4096, max: 4096 }));
        for bad in ["", "-", "1M", "2M-1M", "a-b", "1-2-3", "0-1K"] {
            assert!(parse_sizes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_policy_for_files_stands_in_for_colours() {
        let args = run(&["--page-cache", "srm"]).unwrap();
        assert!(
            args.page_cache.is_on()
                && args
                    .page_cache
                    .is_alone(&args.partition, &args.superpages, &args.pollute)
                    .unwrap()
        );
        let args = run(&["--page-cache=srm", "--share", "50%"]).unwrap();
        assert!(
            !args.page_cache.is_alone(&args.partition, &args.superpages, &args.pollute).unwrap()
        );
        let args = run(&["--share", "50%"]).unwrap();
        assert_eq!(args.page_cache, PageCacheArgs::default());
        assert!(
            !args.page_cache.is_on()
                && !args
                    .page_cache
                    .is_alone(&args.partition, &args.superpages, &args.pollute)
                    .unwrap()
        );
        let error = run(&["--page-cache", "off"]).unwrap();
        let error = error
            .page_cache
            .is_alone(&error.partition, &error.superpages, &error.pollute)
            .unwrap_err();
        assert!(error.message.contains("--page-cache srm"), "{error}");
        assert!(run(&[]).is_err());
    }

    #[test]
    fn the_other_options_need_the_policy() {
        assert!(run(&["--share", "50%", "--page-cache-wait", "5"]).is_err());
        let args = run(&[
            "--page-cache",
            "srm",
            "--page-cache-include",
            "/a",
            "--page-cache-include",
            "/b",
        ]);
        assert_eq!(args.unwrap().page_cache.page_cache_include.len(), 2);
        assert!(run(&["--page-cache", "srm", "--page-cache-threshold", "0"]).is_err());
    }

    #[test]
    fn directories_to_include_must_exist() {
        let args = run(&["--page-cache", "srm", "--page-cache-include", "/no/such"]).unwrap();
        let error = args.page_cache.resolved().unwrap_err();
        assert_eq!(error.code, ExitCode::Usage);
        let args = run(&["--page-cache", "srm", "--page-cache-exclude", "/proc/../"]).unwrap();
        assert_eq!(args.page_cache.resolved().unwrap().page_cache_exclude, [PathBuf::from("/")]);
        let args = run(&["--page-cache", "srm", "--page-cache-exclude", "/no/such"]).unwrap();
        let resolved = args.page_cache.resolved().unwrap();
        assert_eq!(resolved.page_cache_exclude, [PathBuf::from("/no/such")]);
    }
}
