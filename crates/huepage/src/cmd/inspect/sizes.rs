//! `huepage inspect`: the page sizes of a process's areas, and what was done about superpages, where
//! it is in no partition or superpages may leave it. Page tables are read here and now; counters come from the supervisor.

use comfy_table::{Table, presets};
use huepage_linux::procfs::ProcRoot;
use huepage_linux::superpages::{AreaSizes, Report, area_sizes};
use serde::Serialize;

use super::{pretty, say};
use crate::exit::CmdError;
use crate::partition::internal;
use crate::report::ratio;

/// Areas that a table lists; all are in the JSON.
const LISTED: usize = 12;

/// The page sizes of a process, and what was done about them.
#[derive(Serialize)]
pub struct Sizes {
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
    sizes: Sizes,
}

/// Prints what is found.
pub fn show(pid: i32, report: Option<Report>, json: bool) -> Result<u8, CmdError> {
    let found = Found { pid, sizes: Sizes::read(pid, report)? };
    if json {
        return say(&pretty(&found)?);
    }
    let sizes = &found.sizes;
    say(&format!("process {pid}: {}; in no partition\n{}\n", sizes.line(), sizes.text()))
}

impl Sizes {
    /// Of a process, now.
    pub fn read(pid: i32, report: Option<Report>) -> Result<Sizes, CmdError> {
        let areas = area_sizes(&ProcRoot::default(), pid).map_err(internal)?;
        let (huge_bytes, small_bytes) =
            areas.iter().fold((0, 0), |(huge, small), area| (huge + area.huge, small + area.small));
        Ok(Sizes { huge_bytes, small_bytes, areas, superpages: report })
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
        let mut text = table(&areas).to_string();
        if areas.len() > LISTED {
            text += &format!("\nand {} smaller areas; --json has all", areas.len() - LISTED);
        }
        if let Some(report) = &self.superpages {
            text += &format!("\n{}", report.text());
        }
        text
    }
}

fn table(areas: &[&AreaSizes]) -> Table {
    let mut table = Table::new();
    let header = ["area", "kind", "2 MiB pages", "4 KiB pages", "superpages"];
    table.load_preset(presets::NOTHING).set_header(header);
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
    table
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", ratio(bytes, 1 << 20))
}
