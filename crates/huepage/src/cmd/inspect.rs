//! `huepage inspect`: where the pages of a process are. Page tables are read here and now, by
//! this process, and colours looked up independently of the engine; only the counters come
//! from the supervisor.

use std::time::Duration;

use comfy_table::{Table, presets};
use huepage_color::{ColorSet, IndexFunction};
use huepage_linux::control::Request;
use huepage_linux::engine::{Eyes, MemberStatus};
use huepage_linux::procfs::ProcRoot;
use huepage_policy::Census;
use serde::{Deserialize, Serialize};

use super::attach::ask;
use crate::args::InspectArgs;
use crate::exit::CmdError;
use crate::partition::{self, internal};
use crate::report::{Compliance, ratio};

#[derive(Deserialize, Serialize, Clone)]
struct Partition {
    colors: String,
    of: u16,
    level: String,
    colors_from: String,
    /// The index function, if it came from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    index: Option<IndexFunction>,
    supervisor: u32,
}

#[derive(Deserialize)]
struct Answer {
    partition: Partition,
    status: MemberStatus,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Inspection {
    pid: i32,
    partition: Partition,
    compliance: Compliance,
    census: Census,
    engine: MemberStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<serde_json::Value>,
}

/// Inspects one process.
pub fn run(args: InspectArgs) -> Result<u8, CmdError> {
    partition::check_privileges()?;
    let pid = args.pid.cast_signed();
    let verified = match args.verify {
        Some(sample) => Some(ask(pid, &Request::Verify { pid, sample }, Duration::from_secs(60))?),
        None => None,
    };
    let answer = status(pid)?;
    let census = look(pid, &answer)?;
    let compliance = Compliance::from(&census);
    let found = Inspection {
        pid,
        partition: answer.partition,
        compliance,
        census,
        engine: answer.status,
        verified,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&found).map_err(internal)?);
    } else {
        print(&found);
    }
    Ok(0)
}

/// Where the pages of a process are, measured now.
pub fn compliance(pid: i32) -> Result<Compliance, CmdError> {
    Ok(Compliance::from(&look(pid, &status(pid)?)?))
}

/// What its supervisor says of a process.
fn status(pid: i32) -> Result<Answer, CmdError> {
    let answer = ask(pid, &Request::Status { pid }, Duration::from_secs(10))?;
    serde_json::from_value(answer).map_err(internal)
}

/// Our own look at the process.
fn look(pid: i32, answer: &Answer) -> Result<Census, CmdError> {
    let root = ProcRoot::default();
    let colors =
        ColorSet::parse(&answer.partition.colors, answer.partition.of).map_err(internal)?;
    let Partition { level, colors_from, index, .. } = &answer.partition;
    let colors_of = partition::reader(level, colors_from, index.as_ref())?;
    let pagemap = root.pagemap(pid).map_err(internal)?;
    let eyes = Eyes {
        pagemap: &pagemap,
        color_of: &|frame| colors_of.known(frame),
        colors: &colors,
        own: &answer.status.own,
    };
    let mut census =
        eyes.look(&root.maps(pid).map_err(internal)?, |_, _| None).map_err(internal)?;
    excuse(&mut census, answer.status.census.as_ref());
    Ok(census)
}

/// Pages that the engine tried to move and could not are held, as in its own census.
fn excuse(census: &mut Census, engine: Option<&Census>) {
    let known: Vec<_> = census.obstacles().map(|(why, _)| why).collect();
    let tried = engine.into_iter().flat_map(Census::obstacles);
    for (why, pages) in tried.filter(|(why, _)| why.holds_page() && !known.contains(why)) {
        census.excuse(why, pages);
    }
}

fn print(found: &Inspection) {
    let p = &found.partition;
    let engine = &found.engine;
    println!(
        "process {} ({}): colours {} of {} ({}, {}), supervisor {}",
        found.pid, engine.name, p.colors, p.of, p.level, p.colors_from, p.supervisor
    );
    println!(
        "compliance {:.2} %: {} of {} movable resident pages are in the partition",
        found.compliance.share * 100.0,
        found.compliance.in_colors,
        found.compliance.movable
    );
    println!("{}", kinds(&found.census));
    println!("pages per colour:");
    let most = found.census.colors().map(|(_, n)| n).max().unwrap_or(0).max(1);
    for (color, n) in found.census.colors().filter(|(_, n)| *n > 0) {
        let width = usize::try_from(n * 40 / most).unwrap_or(0);
        println!("  {:>3} {n:>8} {}", color.0, "#".repeat(width));
    }
    println!(
        "faults served {} ({} pages placed, {} of any colour), recoloured {}, in stock {}",
        engine.faults_served, engine.placed, engine.fallback_pages, engine.recolored, engine.stock
    );
    for (why, n) in found.census.obstacles() {
        println!("left alone: {n} {why}");
    }
    if let Some(verified) = &found.verified {
        println!(
            "measured again: {} pages, {} as believed",
            verified["measured"], verified["as_believed"]
        );
    }
}

/// A row for each kind of area.
fn kinds(census: &Census) -> Table {
    let mut table = Table::new();
    let header = ["area", "movable", "inside", "outside", "unknown", "held", "share"];
    table.load_preset(presets::NOTHING).set_header(header);
    for (kind, row) in census.kinds() {
        let share = match row.movable() {
            0 => String::from("-"),
            movable => format!("{:.1} %", ratio(row.inside, movable) * 100.0),
        };
        let counts = [row.movable(), row.inside, row.outside, row.unknown, row.unmovable];
        let counts = counts.map(|n| n.to_string());
        table.add_row([kind.text().to_owned()].into_iter().chain(counts).chain([share]));
    }
    table
}
