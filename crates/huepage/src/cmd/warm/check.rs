//! `huepage warm --check`: where the cached pages of files are, by colour; nothing is read from a disk,
//! moved or dropped.

use std::ops::AddAssign;
use std::path::Path;

use huepage_color::ColorSet;
use huepage_linux::kernel::cpus::allowed_cpus;
use huepage_linux::kernel::procfs::{FrameFlagsReader, ProcRoot};
use huepage_linux::services::files::{CachedColors, View, hold, reclaimed_pages};
use serde::Serialize;

use super::args::WarmArgs;
use super::files::{Files, Opener};
use crate::exit::{CmdError, ExitCode, cache_error};
use crate::measured_colors::{bars, listed};
use crate::partition::{self, Prepared, internal};
use crate::report;
use crate::signals::Interrupt;
use crate::style::{self, Style, count};

/// Pages looked at together.
const STEP: u64 = 4096;
/// Parts of a file that the heat map tells apart.
const COLUMNS: usize = 64;
/// Rows that it has at most; more colours share one.
const ROWS: usize = 32;
/// From few to many.
const SHADES: [char; 10] = ['.', ':', '-', '=', '+', '*', 'o', '#', '%', '@'];

/// The pages of a file, or of several.
#[derive(Clone, Default, Serialize)]
struct Counts {
    /// By the size of the file.
    pages: u64,
    /// In the cache.
    resident: u64,
    /// Of these, of known colour.
    known: u64,
    by_color: Vec<u64>,
    /// In the colours asked about, if any were.
    inside: Option<u64>,
    /// In folios of several pages.
    large_folios: u64,
    /// Not in the cache any more, since the kernel has reclaimed them.
    reclaimed: u64,
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        self.pages += other.pages;
        self.resident += other.resident;
        self.known += other.known;
        self.by_color.resize(other.by_color.len().max(self.by_color.len()), 0);
        self.by_color.iter_mut().zip(&other.by_color).for_each(|(sum, n)| *sum += n);
        self.inside = self.inside.zip(other.inside).map(|(a, b)| a + b).or(other.inside);
        self.large_folios += other.large_folios;
        self.reclaimed += other.reclaimed;
    }
}

#[derive(Serialize)]
struct Checked {
    path: String,
    #[serde(flatten)]
    counts: Counts,
    /// For each part of the file, pages by colour.
    #[serde(skip)]
    parts: Vec<Vec<u64>>,
}

#[derive(Serialize)]
struct Report {
    colors: Option<String>,
    of: u16,
    level: String,
    colors_from: String,
    files: Vec<Checked>,
    total: Counts,
}

/// Looks at all files and prints what is found. Their pages are kept from before colours are measured, which
/// takes memory.
pub fn run(args: &WarmArgs, interrupt: &Interrupt) -> Result<u8, CmdError> {
    let files = Files::find(args)?;
    let mut opener = Opener::default();
    let held = hold(files.entries.iter().filter_map(|entry| opener.open(&entry.path).ok()));
    let plan = partition::prepare(&args.partition())?;
    let code = look(args, plan, &files, interrupt);
    drop(held);
    code
}

fn look(
    args: &WarmArgs,
    plan: Prepared,
    files: &Files,
    interrupt: &Interrupt,
) -> Result<u8, CmdError> {
    let named = (args.colors.is_some() || args.share.is_some()).then_some(plan.config.colors);
    let mut report = Report {
        colors: named.as_ref().map(ToString::to_string),
        of: plan.source.universe(),
        level: plan.cache.level.to_string(),
        colors_from: plan.provenance.to_string(),
        files: Vec::new(),
        total: Counts::default(),
    };
    let cpu = args.cpu.or_else(|| allowed_cpus().last().copied()).unwrap_or(0);
    let mut checker = Checker {
        colors: CachedColors::new(plan.source, cpu).map_err(cache_error)?,
        flags: FrameFlagsReader::open(&ProcRoot::default()).map_err(internal)?,
        named,
    };
    let mut opener = Opener::default();
    for entry in &files.entries {
        if interrupt.signal().is_some() {
            break;
        }
        // What cannot be opened has no pages to report.
        let Ok(file) = opener.open(&entry.path) else { continue };
        let found = checker.look(&entry.path, &file)?;
        report.total += &found.counts;
        report.files.push(found);
    }
    print(args, &report)?;
    Ok(ExitCode::Ok.status())
}

struct Checker {
    colors: CachedColors,
    flags: FrameFlagsReader,
    named: Option<ColorSet>,
}

impl Checker {
    fn look(&mut self, path: &Path, file: &std::fs::File) -> Result<Checked, CmdError> {
        let pages = file.metadata().map_err(internal)?.len().div_ceil(4096);
        let by_color = vec![0; usize::from(self.colors.universe())];
        let inside = self.named.as_ref().map(|_| 0);
        let reclaimed = reclaimed_pages(file, &(0..pages));
        let parts = vec![by_color.clone(); COLUMNS];
        let counts = Counts { pages, by_color, inside, reclaimed, ..Counts::default() };
        let mut found = Checked { path: path.display().to_string(), counts, parts };
        for first in (0..pages).step_by(usize::try_from(STEP).unwrap_or(1)) {
            let view = View::new(file, first..pages.min(first + STEP)).map_err(internal)?;
            self.count(&view, &mut found)?;
        }
        Ok(found)
    }

    fn count(&mut self, view: &View, found: &mut Checked) -> Result<(), CmdError> {
        for (page, color) in self.colors.look(view).map_err(cache_error)? {
            let counts = &mut found.counts;
            counts.resident += 1;
            let flags = self.flags.flags(page.frame).unwrap_or_default();
            counts.large_folios += u64::from(flags.compound_head() || flags.compound_tail());
            let Some(color) = color else { continue };
            counts.known += 1;
            counts.by_color[usize::from(color.0)] += 1;
            let part = usize::try_from(page.page * COLUMNS as u64 / counts.pages).unwrap_or(0);
            found.parts[part][usize::from(color.0)] += 1;
            if let (Some(inside), Some(named)) = (&mut counts.inside, &self.named) {
                *inside += u64::from(named.contains(color));
            }
        }
        Ok(())
    }
}

fn print(args: &WarmArgs, report: &Report) -> Result<(), CmdError> {
    if args.json {
        return style::print(&report::json(report)?).map_err(internal);
    }
    let mut text = summary(report);
    if report.total.known > 0 {
        text += &format!("pages per colour:\n{}", bars(&listed(&report.total.by_color)));
    }
    if let [file] = report.files.as_slice()
        && file.counts.known > 0
    {
        text += &heat_map(file, Style::stdout());
    }
    style::print(&text).map_err(internal)
}

fn summary(report: &Report) -> String {
    let Counts { pages, resident, known, inside, large_folios, reclaimed, .. } = &report.total;
    let mut text = format!(
        "{}, {}, {resident} cached, {known} of known colour ({} of {} colours, {})\n",
        count(report.files.len() as u64, "file", "files"),
        count(*pages, "page", "pages"),
        report.level,
        report.of,
        report::known(&report.colors_from)
    );
    if let (Some(inside), Some(colors), 1..) = (inside, &report.colors, *resident) {
        let share = report::ratio(*inside, *resident) * 100.0;
        text += &format!("{inside} in colours {colors}: {share:.2} % of what is cached\n");
    }
    if *reclaimed > 0 {
        text += &format!("{reclaimed} were cached and have been reclaimed by the kernel\n");
    }
    if *large_folios > 0 {
        text += &format!("{large_folios} in folios of several pages\n");
    }
    text
}

/// Colours from top to bottom, the file from left to right.
fn heat_map(file: &Checked, style: Style) -> String {
    let colors = file.counts.by_color.len();
    let together = colors.div_ceil(ROWS);
    let mut text = String::from("where in the file (from its beginning to its end), by colour:\n");
    for first in (0..colors).step_by(together) {
        let cells = file.parts.iter().map(|part| {
            let own: u64 = part[first..colors.min(first + together)].iter().sum();
            shade(own, part.iter().sum())
        });
        let row = cells.collect::<String>();
        text += &format!("  {first:>4} |{}|\n", style.green(row));
    }
    text + &style.dim("       (of the pages of a part: . few, @ all)\n")
}

fn shade(pages: u64, of: u64) -> char {
    if pages == 0 {
        return ' ';
    }
    let last = SHADES.len() as u64 - 1;
    SHADES[usize::try_from((pages * last).div_ceil(of)).unwrap_or(0).min(SHADES.len() - 1)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_go_from_nothing_to_all() {
        assert_eq!((shade(0, 9), shade(1, 100), shade(9, 9)), (' ', ':', '@'));
        assert_eq!(shade(1, 1000), ':');
    }

    #[test]
    fn counts_add_up_and_rows_are_shared_by_colours() {
        let counts =
            Counts { pages: 4, resident: 3, known: 2, by_color: vec![0, 2], ..Counts::default() };
        let mut total = Counts::default();
        total += &counts;
        total += &Counts { inside: Some(1), ..counts.clone() };
        assert_eq!((total.pages, total.inside, total.by_color.clone()), (8, Some(1), vec![0, 4]));
        let parts = vec![vec![1; 64]; COLUMNS];
        let file = Checked {
            path: String::new(),
            counts: Counts { by_color: vec![64; 64], ..counts },
            parts,
        };
        assert_eq!(heat_map(&file, Style::plain()).lines().count(), 2 + ROWS);
    }
}
