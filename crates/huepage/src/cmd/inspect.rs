//! `huepage inspect`: where the pages of a process are. Page tables are read here and now, by
//! this process, and colours looked up independently of the engine; only the counters come
//! from the supervisor.

use std::time::Duration;

use comfy_table::{Table, presets};
use huepage_color::ColorSet;
use huepage_linux::control::Request;
use huepage_linux::engine::{Census, Eyes, MemberStatus};
use huepage_linux::procfs::ProcRoot;
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
    let answer = ask(pid, &Request::Status { pid }, Duration::from_secs(10))?;
    let answer: Answer = serde_json::from_value(answer).map_err(internal)?;
    let census = look(pid, &answer)?;
    let compliance = Compliance {
        movable: census.movable(),
        in_colors: census.in_colors(),
        share: census.compliance(),
    };
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

/// Our own look at the process.
fn look(pid: i32, answer: &Answer) -> Result<Census, CmdError> {
    let root = ProcRoot::default();
    let colors =
        ColorSet::parse(&answer.partition.colors, answer.partition.of).map_err(internal)?;
    let colors_of = partition::reader(&answer.partition.level, &answer.partition.colors_from)?;
    let pagemap = root.pagemap(pid).map_err(internal)?;
    let eyes = Eyes {
        pagemap: &pagemap,
        color_of: &|frame| colors_of.known(frame),
        colors: &colors,
        own: &answer.status.own,
    };
    let mut census = eyes.look(&root.maps(pid).map_err(internal)?, |_, _| {}).map_err(internal)?;
    excuse(&mut census, &answer.status.census);
    Ok(census)
}

/// Pages that the engine found immovable one by one are listed by reason, as it does.
fn excuse(census: &mut Census, engine: &Census) {
    let known = census.left_alone.clone();
    for (reason, &n) in engine.left_alone.iter().filter(|(reason, _)| !known.contains_key(*reason))
    {
        let outside = census.movable() - census.in_colors();
        let mut n = n.min(outside);
        census.left_alone.insert(reason.clone(), n);
        for kind in census.kinds.values_mut() {
            let here = n.min(kind.movable - kind.in_colors);
            kind.movable -= here;
            n -= here;
        }
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
    let mut kinds = Table::new();
    kinds.load_preset(presets::NOTHING).set_header(["area", "pages", "inside", "unknown", "share"]);
    for (name, k) in &found.census.kinds {
        let share = format!("{:.1} %", ratio(k.in_colors, k.movable) * 100.0);
        kinds.add_row([
            name.clone(),
            k.movable.to_string(),
            k.in_colors.to_string(),
            k.unknown.to_string(),
            share,
        ]);
    }
    println!("{kinds}");
    println!("pages per colour:");
    let most = found.census.per_color.iter().copied().max().unwrap_or(0).max(1);
    for (color, &n) in found.census.per_color.iter().enumerate().filter(|(_, n)| **n > 0) {
        let width = usize::try_from(n * 40 / most).unwrap_or(0);
        println!("  {color:>3} {n:>8} {}", "#".repeat(width));
    }
    println!(
        "faults served {} ({} pages placed, {} of any colour), recoloured {}, in stock {}",
        engine.faults_served, engine.placed, engine.fallback_pages, engine.recolored, engine.stock
    );
    for (reason, n) in &found.census.left_alone {
        println!("left alone: {n} {reason}");
    }
    if let Some(verified) = &found.verified {
        println!(
            "measured again: {} pages, {} as believed",
            verified["measured"], verified["as_believed"]
        );
    }
}
