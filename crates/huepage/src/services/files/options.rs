//! The options about files that are placed before they are read.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use clap::Args;
use huepage_policy::registry::{LiveOption, Settings as Policy};
use serde::{Deserialize, Serialize};

use crate::exit::{CmdError, ExitCode};
use crate::headings::{FEATURES, TUNING};
use crate::services::policy::{self, PolicyOption};
use crate::values::parse_size;

/// Files that the program opens, placed before it reads them.
#[derive(Args, Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageCacheArgs {
    /// Place files in the page cache before the program reads them (experimental)
    ///
    /// srm: in SRM-buffer's sequences, each of one colour, in turns over the colours of the
    /// partition; without --colors and --share over all of them, and nothing else is placed.
    /// srm-rescan: the same, and files that fit the cache and are read again and again are spread over all colours.
    /// off: files come where they come. `huepage sim --policy NAME:help` lists the keys of a policy.
    #[arg(long, help_heading = FEATURES, value_name = policy::POLICY, default_value_t = PolicyOption::OFF,
          value_parser = policy::reader(LiveOption::PageCache))]
    pub page_cache: PolicyOption,

    /// Milliseconds that an open waits for the file to be placed, at most
    ///
    /// The rest of a large file is placed while the program runs.
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "MS", default_value_t = 200, requires = "page_cache",
          value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub page_cache_wait: u64,

    /// Place only files below this directory (repeatable)
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "PATH", requires = "page_cache")]
    pub page_cache_include: Vec<PathBuf>,

    /// Place no files below this directory (repeatable); of nested ones the innermost counts
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "PATH", requires = "page_cache")]
    pub page_cache_exclude: Vec<PathBuf>,

    /// Place only files of these sizes, for instance 64K-2G, 1M- or -512M
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "MIN-MAX", requires = "page_cache", value_parser = parse_sizes)]
    pub page_cache_sizes: Option<SizeRange>,

    /// Pages of a sequence: short for the policy's key `threshold` [default: 256]
    ///
    /// A file with more is a sequence of its own, smaller ones of a process share one.
    #[arg(long, help_heading = TUNING, hide_short_help = true, value_name = "PAGES", requires = "page_cache",
          value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub page_cache_threshold: Option<u64>,
}

impl Default for PageCacheArgs {
    /// What the command line says when it says nothing.
    fn default() -> PageCacheArgs {
        PageCacheArgs {
            page_cache: PolicyOption::OFF,
            page_cache_wait: 200,
            page_cache_include: Vec::new(),
            page_cache_exclude: Vec::new(),
            page_cache_sizes: None,
            page_cache_threshold: None,
        }
    }
}

/// Sizes in bytes, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeRange {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
}

/// A range of sizes; either end may be missing.
pub fn parse_sizes(text: &str) -> Result<SizeRange, String> {
    let expected = || format!("`{text}` is no range of sizes; write for instance 64K-2G or 1M-");
    let (min, max) = text.split_once('-').ok_or_else(expected)?;
    let side = |text: &str, missing| if text.is_empty() { Ok(missing) } else { parse_size(text) };
    let sizes = SizeRange { min: side(min, 1)?, max: side(max, u64::MAX)? };
    let is_range = sizes.min <= sizes.max && text != "-";
    if is_range { Ok(sizes) } else { Err(expected()) }
}

impl PageCacheArgs {
    /// Whether files are placed.
    pub const fn is_on(&self) -> bool {
        self.page_cache.is_on()
    }

    /// The policy that places them, if one does.
    pub fn policy(&self) -> Option<Policy> {
        let mut policy = self.page_cache.policy()?.clone();
        if let Some(pages) = self.page_cache_threshold {
            // In the key's range, as the option's is.
            let _ = policy.set("threshold", &pages.to_string());
        }
        Some(policy)
    }

    /// Refuses two lengths of a sequence.
    pub fn check(&self) -> Result<(), CmdError> {
        let given = self.page_cache.policy().is_some_and(|policy| policy.is_given("threshold"));
        if given && self.page_cache_threshold.is_some() {
            let what = "--page-cache says the threshold already; leave out --page-cache-threshold";
            return Err(CmdError::new(ExitCode::Usage, what));
        }
        Ok(())
    }

    /// What is asked for, in a line.
    pub fn line(&self) -> Option<String> {
        let policy = self.policy()?;
        let n = policy.count("threshold")?;
        Some(format!("files in sequences of {n} pages ({})", policy.name()))
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
    use crate::cmd::run::parsed_plan as run;

    #[test]
    fn either_side_of_a_range_may_be_missing() {
        assert_eq!(parse_sizes("64K-2G"), Ok(SizeRange { min: 64 << 10, max: 2 << 30 }));
        assert_eq!(parse_sizes("1M-"), Ok(SizeRange { min: 1 << 20, max: u64::MAX }));
        assert_eq!(parse_sizes("-512M"), Ok(SizeRange { min: 1, max: 512 << 20 }));
        assert_eq!(parse_sizes("4096-4096"), Ok(SizeRange { min: 4096, max: 4096 }));
        for bad in ["", "-", "1M", "2M-1M", "a-b", "1-2-3", "0-1K"] {
            assert!(parse_sizes(bad).is_err(), "{bad}");
        }
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
    fn a_sequence_has_one_length() {
        let files = |options: &[&str]| run(options).unwrap().page_cache;
        let short = files(&["--page-cache", "srm", "--page-cache-threshold", "9"]);
        let long = files(&["--page-cache", "srm:threshold=9"]);
        assert_eq!(short.policy(), long.policy());
        assert_eq!(short.line().unwrap(), "files in sequences of 9 pages (srm)");
        assert!(short.check().is_ok() && long.check().is_ok());
        let both = files(&["--page-cache", "srm:threshold=9", "--page-cache-threshold", "9"]);
        assert_eq!(both.check().unwrap_err().code, ExitCode::Usage);
        assert_eq!(files(&["--page-cache", "off"]).policy(), None);
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
