//! `huepage experiment romer`: from arguments to outcomes, and these to whatever was asked for.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Instant;

use huepage_sim::experiments::romer::figures::Figure;
use huepage_sim::experiments::romer::{
    Claim, Outcome, Part, Table, claims, figures, programs, tables, variants,
};
use serde::Serialize;

use super::args::RomerArgs;
use super::work::{self, Work};
use super::{books, markdown, svg, text};
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::style;

/// Everything that was found; its JSON form is the output of `--json`.
#[derive(Serialize)]
pub struct Found {
    /// Whether runs were short.
    pub quick: bool,
    /// Seconds that all of it took.
    pub seconds: f64,
    /// Traces among the workloads.
    pub traces: Vec<String>,
    /// Tables.
    pub tables: Vec<Table>,
    /// What holds.
    pub claims: Vec<Claim>,
    /// What can be drawn.
    pub figures: Vec<Figure>,
    /// Every run.
    pub outcomes: Vec<Outcome>,
}

/// Runs the command.
pub fn run(args: &RomerArgs) -> Result<u8, CmdError> {
    args.svg.as_deref().map_or(Ok(()), directory)?;
    args.markdown.as_deref().map_or(Ok(()), check)?;
    own_names(args)?;
    args.trace.iter().try_for_each(|(_, path)| work::trace(path).map(drop))?;
    let started = Instant::now();
    let ids: Vec<&str> =
        args.table.iter().map(String::as_str).filter(|table| *table != "all").collect();
    let plan = plan(args, &ids);
    if plan.is_empty() {
        return Err(nothing(args));
    }
    let outcomes = work::all(args, plan)?;
    let mut claims = claims(&outcomes);
    if ids.is_empty() {
        claims.push(books::claim());
    }
    let found = Found {
        quick: args.quick,
        traces: args.trace.iter().map(|(name, _)| name.clone()).collect(),
        tables: tables(&outcomes, &ids),
        claims,
        figures: figures::figures(&outcomes),
        seconds: started.elapsed().as_secs_f64(),
        outcomes,
    };
    write(args, &found)?;
    Ok(ExitCode::Ok.status())
}

/// The work for these tables, all of them if none is named: each workload with some of the
/// variants of its part, so that all CPUs have something to do.
fn plan(args: &RomerArgs, ids: &[&str]) -> Vec<Work> {
    let wanted = |part: Part| {
        let mut known = tables::ALL.iter().filter(|(.., of)| *of == part);
        ids.is_empty() || known.any(|(id, ..)| ids.contains(id))
    };
    let traces: Vec<&str> = args.trace.iter().map(|(name, _)| name.as_str()).collect();
    let mut all = Vec::new();
    for part in Part::ALL.into_iter().filter(|part| wanted(*part)) {
        let variants = variants(part);
        let named = |name: &String| args.only.is_empty() || args.only.contains(name);
        for program in programs(part, &traces).into_iter().filter(|p| named(&p.name)) {
            for some in variants.chunks(work::AT_ONCE) {
                all.push(Work { program: program.clone(), variants: some.to_vec() });
            }
        }
    }
    all
}

/// The workloads that are no traces.
fn built_in() -> BTreeSet<String> {
    let all = Part::ALL.into_iter().flat_map(|part| programs(part, &[]));
    all.map(|program| program.name).collect()
}

/// Outcomes are found by name: a trace must not take that of another workload.
fn own_names(args: &RomerArgs) -> Result<(), CmdError> {
    let mut taken = built_in();
    let twice = args.trace.iter().find(|(name, _)| !taken.insert(name.clone()));
    twice.map_or(Ok(()), |(name, path)| {
        let what = format!(
            "a workload is already named `{name}`; give {} a name of its own",
            path.display()
        );
        Err(CmdError::new(ExitCode::Usage, what))
    })
}

fn nothing(args: &RomerArgs) -> CmdError {
    let names = built_in().into_iter().collect::<Vec<_>>().join(", ");
    let what = format!(
        "no workload `{}` for these tables; give {names}, or a trace's name",
        args.only.join(", ")
    );
    CmdError::new(ExitCode::Usage, what)
}

fn write(args: &RomerArgs, found: &Found) -> Result<(), CmdError> {
    if let Some(directory) = &args.svg {
        for figure in &found.figures {
            let drawing = svg::draw(figure).map_err(CmdError::internal)?;
            save(&directory.join(format!("{}.svg", figure.name)), &drawing)?;
        }
    }
    if let Some(path) = &args.markdown {
        save(path, &markdown::page(found))?;
    }
    let text = if args.json { json(found)? } else { text::all(found) };
    style::print(&text).map_err(|e| internal(e.to_string()))
}

fn json(found: &Found) -> Result<String, CmdError> {
    let text = serde_json::to_string_pretty(found).map_err(|e| internal(e.to_string()))?;
    Ok(text + "\n")
}

/// Made before anything is run, so that no run is lost.
fn directory(path: &Path) -> Result<(), CmdError> {
    fs::create_dir_all(path).map_err(|e| cannot(path, &e))
}

/// A file can be written there; what is in it stays.
fn check(path: &Path) -> Result<(), CmdError> {
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|e| cannot(path, &e))
}

fn save(path: &Path, text: &str) -> Result<(), CmdError> {
    fs::write(path, text).map_err(|e| cannot(path, &e))
}

fn cannot(path: &Path, error: &std::io::Error) -> CmdError {
    let what = format!("{}: {error}; name a place that can be written", path.display());
    CmdError::new(ExitCode::Usage, what)
}
