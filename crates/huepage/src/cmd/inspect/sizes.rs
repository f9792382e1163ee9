//! `huepage inspect`: the page sizes of a process's areas, and what was done about superpages, where
//! it is in no partition or superpages may leave it. Page tables are read here and now; counters come from the supervisor.

use huepage_linux::kernel::machine::{PageSizeSetting, SysRoot, page_size_settings};
use huepage_linux::kernel::procfs::ProcRoot;
use huepage_linux::sensors::pages_between::BytesBySize;
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
    /// In pages between 4 KiB and 2 MiB, by the size in KiB.
    between_bytes: BytesBySize,
    small_bytes: u64,
    /// Sizes between that the kernel gives memory when it is first touched.
    #[serde(skip)]
    given: Vec<PageSizeSetting>,
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
        let sys = SysRoot::default();
        let areas = area_sizes(&ProcRoot::default(), &sys, pid).map_err(internal)?;
        let (huge_bytes, small_bytes) =
            areas.iter().fold((0, 0), |(huge, small), area| (huge + area.huge, small + area.small));
        let mut between_bytes = BytesBySize::new();
        for (size, bytes) in areas.iter().flat_map(|area| &area.between) {
            *between_bytes.entry(*size).or_default() += bytes;
        }
        let mut given = page_size_settings(&sys);
        given.retain(|size| size.is_between() && size.is_given());
        Ok(ProcessPageSizes {
            huge_bytes,
            between_bytes,
            small_bytes,
            given,
            areas,
            superpages: report,
        })
    }

    /// In a few words.
    pub fn line(&self) -> String {
        let all = self.huge_bytes + self.between_bytes.values().sum::<u64>() + self.small_bytes;
        let share = ratio(self.huge_bytes, all) * 100.0;
        let mut line = format!("{} resident, {share:.1} % of it in pages of 2 MiB", mib(all));
        for (size, bytes) in &self.between_bytes {
            line += &format!(", {} in pages of {size} KiB", mib(*bytes));
        }
        line
    }

    /// Where pages of sizes between come from, if there are any.
    fn given_text(&self) -> String {
        if self.given.is_empty() {
            return String::new();
        }
        let given: Vec<String> =
            self.given.iter().map(|size| format!("{} KiB ({})", size.kib, size.applies)).collect();
        format!(
            "the kernel gives pages of {} when memory is first touched; of memory in use it builds 2 MiB only\n",
            given.join(", ")
        )
    }

    /// The largest areas, and what was done, without a newline at the end.
    pub fn text(&self) -> String {
        let mut areas: Vec<&AreaSizes> = self.areas.iter().collect();
        areas.sort_by_key(|area| std::cmp::Reverse(area.resident()));
        let mut text = table(&areas);
        if areas.len() > LISTED {
            let more = style::count((areas.len() - LISTED) as u64, "smaller area", "smaller areas");
            text += &format!("and {more}; --json has all\n");
        }
        text += &self.given_text();
        if let Some(report) = &self.superpages {
            text += &report.text();
        }
        text.trim_end().to_owned()
    }
}

fn table(areas: &[&AreaSizes]) -> String {
    let has_between = areas.iter().any(|area| !area.between.is_empty());
    let cells = |between: String, mut cells: Vec<String>| {
        if has_between {
            cells.insert(3, between);
        }
        cells
    };
    let header = ["area", "kind", "2 MiB pages", "4 KiB pages", "superpages"];
    let header = cells("16 KiB to 1 MiB".to_owned(), header.map(str::to_owned).to_vec());
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut table = Style::stdout().table(&header);
    for area in areas.iter().take(LISTED) {
        let built = if area.builds { "where they pay" } else { "none in this kind" };
        let row = vec![
            format!("{:x}-{:x}", area.start, area.end),
            area.kind.text().to_owned(),
            mib(area.huge),
            mib(area.small),
            built.to_owned(),
        ];
        table.add_row(cells(mib(area.between.values().sum()), row));
    }
    style::lay_out(table)
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", ratio(bytes, 1 << 20))
}
