//! `huepage trace stats`: what a trace touches, by kind, space, thread and page.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use huepage_sim::record::Record;
use huepage_sim::trace::TraceSummary;
use serde::Serialize;

use super::args::StatsArgs;
use super::input::TraceInput;
use crate::exit::CmdError;
use crate::partition::internal;
use crate::report;
use crate::style::{self, Style};

/// Lines of 64 bytes, 64 of them to a page of 4 KiB.
const LINE: u64 = 64;
const LINES: u64 = 64;

/// What is counted of a thread, or of all.
#[derive(Clone, Copy, Default, Serialize)]
struct Counts {
    accesses: u64,
    instructions: u64,
    fetches: u64,
    loads: u64,
    stores: u64,
}

impl Counts {
    const fn of(summary: &TraceSummary) -> Counts {
        let TraceSummary { records: accesses, instructions, fetches, loads, stores, .. } = *summary;
        Counts { accesses, instructions, fetches, loads, stores }
    }
}

#[derive(Serialize)]
struct Thread {
    space: u16,
    thread: u16,
    #[serde(flatten)]
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Use {
    accesses: u64,
    /// A bit for each line touched.
    lines: u64,
}

#[derive(Serialize)]
struct Page {
    space: u16,
    #[serde(serialize_with = "huepage_color::as_hex")]
    address: u64,
    accesses: u64,
    lines: u32,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Stats {
    #[serde(flatten)]
    counts: Counts,
    /// Bytes that accesses name, each time they do.
    bytes_accessed: u64,
    /// Pages of 4 KiB and lines of 64 bytes touched, each counted once per space.
    pages: u64,
    lines: u64,
    threads: Vec<Thread>,
    top_pages: Vec<Page>,
}

/// Counts.
#[derive(Default)]
struct Tally {
    all: TraceSummary,
    bytes: u64,
    threads: BTreeMap<(u16, u16), TraceSummary>,
    pages: HashMap<(u16, u64), Use>,
}

impl Tally {
    fn add(&mut self, record: &Record) {
        self.all.add(record);
        self.bytes += u64::from(record.bytes);
        self.threads.entry((record.space, record.thread)).or_default().add(record);
        let first = record.address.0 / LINE;
        let last = record.address.0.saturating_add(u64::from(record.bytes.max(1)) - 1) / LINE;
        let mut counted = None;
        for line in first..=last {
            let page = self.pages.entry((record.space, line / LINES)).or_default();
            page.lines |= 1 << (line % LINES);
            page.accesses += u64::from(counted != Some(line / LINES));
            counted = Some(line / LINES);
        }
    }

    fn stats(self, top: usize) -> Stats {
        let page = |(&(space, number), used): (&(u16, u64), &Use)| Page {
            space,
            address: number * LINE * LINES,
            accesses: used.accesses,
            lines: used.lines.count_ones(),
        };
        let mut pages: Vec<Page> = self.pages.iter().map(page).collect();
        pages.sort_by_key(|page| (u64::MAX - page.accesses, page.space, page.address));
        let lines = pages.iter().map(|page| u64::from(page.lines)).sum();
        let count = pages.len() as u64;
        pages.truncate(top);
        let thread = |((space, thread), summary): (&(u16, u16), &TraceSummary)| Thread {
            space: *space,
            thread: *thread,
            counts: Counts::of(summary),
        };
        Stats {
            counts: Counts::of(&self.all),
            bytes_accessed: self.bytes,
            pages: count,
            lines,
            threads: self.threads.iter().map(thread).collect(),
            top_pages: pages,
        }
    }
}

/// Counts a whole trace; of a damaged one, what comes before the damage.
pub fn run(args: &StatsArgs) -> Result<u8, CmdError> {
    let mut input = TraceInput::open(&args.from)?;
    let mut tally = Tally::default();
    let damage = input.for_each(|record| tally.add(record));
    drop(input);
    let stats = tally.stats(args.top);
    let text = if args.json { report::json(&stats)? } else { text(&stats) };
    style::print(&text).map_err(internal)?;
    damage.map_or(Ok(0), Err)
}

fn text(stats: &Stats) -> String {
    let Counts { accesses, instructions, fetches, loads, stores } = stats.counts;
    let mut text = String::new();
    for (name, value) in [
        ("accesses", accesses),
        ("fetches", fetches),
        ("loads", loads),
        ("stores", stores),
        ("instructions", instructions),
        ("bytes accessed", stats.bytes_accessed),
        ("pages of 4 KiB", stats.pages),
        ("lines of 64 B", stats.lines),
    ] {
        let _ = writeln!(text, "{name:<15} {value:>15}");
    }
    let style = Style::stdout();
    let mut threads = style.table(&["space", "thread", "accesses", "fetches", "loads", "stores"]);
    for Thread { space, thread, counts: c } in &stats.threads {
        let numbers = [c.accesses, c.fetches, c.loads, c.stores].map(|n| n.to_string());
        threads.add_row([vec![space.to_string(), thread.to_string()], numbers.to_vec()].concat());
    }
    let mut pages = style.table(&["space", "page", "accesses", "lines"]);
    for page in &stats.top_pages {
        let (address, accesses) = (format!("{:#x}", page.address), page.accesses.to_string());
        pages.add_row([page.space.to_string(), address, accesses, page.lines.to_string()]);
    }
    let _ = write!(text, "\n{}", style::lay_out(threads));
    let _ = write!(text, "\nmost accessed pages\n{}", style::lay_out(pages));
    text
}
