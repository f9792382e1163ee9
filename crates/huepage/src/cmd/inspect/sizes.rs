//! `huepage inspect`: the page sizes of a process's areas, and what was done about superpages, where
//! it is in no partition or superpages may leave it. Page tables are read here and now; counters come from the supervisor.

use huepage_linux::kernel::procfs::ProcRoot;
use huepage_linux::sensors::superpage_map::{AreaSizes, area_sizes};
use huepage_linux::services::superpages::Report;
use serde::Serialize;

use super::say;
use crate::exit::CmdError;
use crate::partition::internal;
use crate::report::{self, ratio};
use crate::style::{self, Style};

/// Areas that a table lists; all are in the JSON.
const LISTED: usize = 12;

/// The page sizes of a process, and what was done about them.
#[derive(Serialize)]
pub struct ProcessPageSizes {
    huge_bytes: u64,
    small_bytes: u64,
    areas: Vec<AreaSizes>,
    superpages: Option<Report>,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Found {
    pid: i32,
    #[serde(flatten)]
    sizes: ProcessPageSizes,
}

/// Prints what is found.
pub fn show(pid: i32, report: Option<Report>, json: bool) -> Result<u8, CmdError> {
    let found = Found { pid, sizes: ProcessPageSizes::read(pid, report)? };
    if json {
        return say(&report::json(&found)?);
    }
    let sizes = &found.sizes;
    say(&format!("process {pid}: {}; in no partition\n{}\n", sizes.line(), sizes.text()))
}

impl ProcessPageSizes {
    /// Of a process, now.
    pub fn read(pid: i32, report: Option<Report>) -> Result<ProcessPageSizes, CmdError> {
        let areas = area_sizes(&ProcRoot::default(), pid).map_err(internal)?;
        let (huge_bytes, small_bytes) =
            areas.iter().fold((0, 0), |(huge, small), area| (huge + area.huge, small + area.small));
        Ok(ProcessPageSizes { huge_bytes, small_bytes, areas, superpages: report })
    }

    /// In a few words.
    pub fn line(&self) -> String {
        let all = self.huge_bytes + self.small_bytes;
        let share = ratio(self.huge_bytes, all) * 100.0;
        format!("{} resident, {share:.1} % of it in pages of 2 MiB", mib(all))
    }

    /// The largest areas, and what was done, without a newline at the end.
    pub fn text(&self) -> String {
        let mut areas: Vec<&AreaSizes> = self.areas.iter().collect();
        areas.sort_by_key(|area| std::cmp::Reverse(area.huge + area.small));
        let mut text = table(&areas);
        if areas.len() > LISTED {
            let more = style::count((areas.len() - LISTED) as u64, "smaller area", "smaller areas");
            text += &format!("and {more}; --json has all\n");
        }
        if let Some(report) = &self.superpages {
            text += &report.text();
        }
        text.trim_end().to_owned()
    }
}

fn table(areas: &[&AreaSizes]) -> String {
    let header = ["area", "kind", "2 MiB pages", "4 KiB pages", "superpages"];
    let mut table = Style::stdout().table(&header);
    for area in areas.iter().take(LISTED) {
        let built = if area.builds { "where they pay" } else { "none in this kind" };
        table.add_row([
            format!("{:x}-{:x}", area.start, area.end),
            area.kind.text().to_owned(),
            mib(area.huge),
            mib(area.small),
            built.to_owned(),
        ]);
    }
    style::lay_out(table)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", ratio(bytes, 1 << 20))
}
