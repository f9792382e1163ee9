//! What a warm did, in figures: as JSON and as a few lines of text.

use std::collections::BTreeMap;
use std::time::Duration;

use huepage_linux::services::files::{PlacementTally, ZoneUse};
use serde::Serialize;

use super::args::WarmArgs;
use super::files::Files;
use crate::exit::{CmdError, ExitCode};
use crate::partition::{Prepared, internal};
use crate::report;
use crate::style::count;

/// Everything that is said at the end.
#[derive(Default, Serialize)]
pub struct WarmSummary {
    files: usize,
    #[serde(flatten)]
    tally: PlacementTally,
    skipped: BTreeMap<String, u64>,
    seconds: f64,
    bytes: u64,
    bytes_per_second: f64,
    colors: String,
    of: u16,
    level: String,
    colors_from: String,
    policy: &'static str,
    /// Pages of a sequence, fewer than asked for where memory is tight.
    pub threshold: u64,
    zone: ZoneUse,
}

impl WarmSummary {
    /// What is known before.
    pub fn new(args: &WarmArgs, plan: &Prepared) -> WarmSummary {
        WarmSummary {
            colors: plan.config.colors.to_string(),
            of: plan.config.colors.universe(),
            level: plan.cache.level.to_string(),
            colors_from: plan.provenance.to_string(),
            policy: if args.is_srm() { "srm" } else { "set" },
            threshold: args.threshold,
            ..WarmSummary::default()
        }
    }

    /// What is known at the end.
    pub fn end(&mut self, files: &Files, tally: PlacementTally, zone: ZoneUse, time: Duration) {
        let skipped: u64 = files.skipped.values().sum();
        self.files = files.entries.len().saturating_sub(usize::try_from(skipped).unwrap_or(0));
        self.skipped = files.skipped.clone();
        self.seconds = time.as_secs_f64();
        self.bytes = tally.pages * 4096;
        #[allow(clippy::cast_precision_loss, reason = "bytes of files are far below 2^53")]
        let bytes = self.bytes as f64;
        self.bytes_per_second = bytes / self.seconds.max(1e-9);
        (self.tally, self.zone) = (tally, zone);
    }

    pub fn print(&self, args: &WarmArgs) -> Result<(), CmdError> {
        if args.json {
            crate::style::print(&report::json(self)?).map_err(internal)?;
        } else if !args.quiet {
            crate::style::print(&self.text()).map_err(internal)?;
        }
        Ok(())
    }

    fn text(&self) -> String {
        let PlacementTally { pages, placed, already, refused } = &self.tally;
        let mut text = format!(
            "{}, {}: {placed} placed, {already} already right ({:.2} % in colours {} of {}, {}, {})\n\
             {:.2} s, {:.0} MiB/s; at most {} frames kept ready, {} examined\n",
            count(self.files as u64, "file", "files"),
            count(*pages, "page", "pages"),
            self.tally.share() * 100.0,
            self.colors,
            self.of,
            self.level,
            report::known(&self.colors_from),
            self.seconds,
            self.bytes_per_second / f64::from(1 << 20),
            self.zone.peak_pages,
            self.zone.examined,
        );
        for (why, n) in refused {
            text += &format!("left alone: {} {}\n", count(*n, "page", "pages"), why.text());
        }
        for (why, n) in &self.skipped {
            text += &format!("skipped: {} {why}\n", count(*n, "file", "files"));
        }
        text
    }

    /// The status of the command: an error only if nothing at all could be done.
    pub fn verdict(&self) -> Result<u8, CmdError> {
        if self.tally.placed + self.tally.already > 0 {
            return Ok(ExitCode::Ok.status());
        }
        if self.tally.pages > 0 {
            return Err(super::nothing_placed(&self.tally));
        }
        match self.skipped.iter().max_by_key(|(_, n)| **n) {
            Some((why, n)) => {
                let what = format!("nothing to place: {n} files {why}; name files on a local disk");
                Err(CmdError::new(ExitCode::BadFile, what))
            }
            None => Ok(ExitCode::Ok.status()),
        }
    }
}
