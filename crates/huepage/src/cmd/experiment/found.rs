//! What an experiment has found, and the ways to hand it over that all experiments have: text or
//! JSON on standard output, drawings, and a page of `docs/reproductions`. What is found is the
//! experiment's business.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use huepage_sim::experiments::report::{Claim, Figure, Table};
use serde::Serialize;

use super::args::Common;
use super::markdown::{self, Page};
use super::work::{Job, all};
use super::{svg, text};
use crate::exit::{CmdError, ExitCode};
use crate::partition::internal;
use crate::style;

/// Where results go.
#[derive(Args, Debug)]
pub struct Output {
    /// Print JSON: outcomes, tables, figures and claims
    #[arg(long)]
    pub json: bool,

    /// Draw the figures into a directory, which is made
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,

    /// Also write tables and claims into a file, as Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

/// What an experiment makes of its outcomes.
#[derive(Debug)]
pub struct Shown {
    /// Tables.
    pub tables: Vec<Table>,
    /// What holds.
    pub claims: Vec<Claim>,
    /// What can be drawn.
    pub figures: Vec<Figure>,
}

/// Does the work and hands over what was found; `nothing` is the error of having no work.
pub fn experiment<O: Serialize + Send>(
    common: &Common,
    plan: &[Job<'_, O>],
    nothing: impl FnOnce() -> CmdError,
    shown: impl FnOnce(&[O]) -> Shown,
    page: &Page,
) -> Result<u8, CmdError> {
    if plan.is_empty() {
        return Err(nothing());
    }
    let started = Instant::now();
    let outcomes = all(plan)?;
    let (quick, traces, Shown { tables, claims, figures }) =
        (common.quick, common.traces.names(), shown(&outcomes));
    let seconds = started.elapsed().as_secs_f64();
    let found = Found { quick, seconds, traces, tables, claims, figures, outcomes };
    common.output.write(&found, page)?;
    Ok(ExitCode::Ok.status())
}

/// Everything that was found; its JSON form is the output of `--json`.
#[derive(Debug, Serialize)]
pub struct Found<O> {
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
    pub outcomes: Vec<O>,
}

impl Output {
    /// Makes sure that results can be written, before anything is run, so that no run is lost.
    pub fn check(&self) -> Result<(), CmdError> {
        if let Some(path) = &self.svg {
            fs::create_dir_all(path).map_err(|e| cannot(path, &e))?;
        }
        if let Some(path) = &self.markdown {
            // What is in it stays.
            let opened = fs::OpenOptions::new().append(true).create(true).open(path);
            opened.map_err(|e| cannot(path, &e))?;
        }
        Ok(())
    }

    /// Writes everything.
    pub fn write<O: Serialize>(&self, found: &Found<O>, page: &Page) -> Result<(), CmdError> {
        if let Some(directory) = &self.svg {
            for figure in &found.figures {
                let drawing = svg::draw(figure).map_err(CmdError::internal)?;
                save(&directory.join(format!("{}.svg", figure.name)), &drawing)?;
            }
        }
        if let Some(path) = &self.markdown {
            save(path, &markdown::page(found, page))?;
        }
        let text = if self.json { json(found)? } else { text::all(found) };
        style::print(&text).map_err(|e| internal(e.to_string()))
    }
}

fn json<O: Serialize>(found: &Found<O>) -> Result<String, CmdError> {
    let text = serde_json::to_string_pretty(found).map_err(|e| internal(e.to_string()))?;
    Ok(text + "\n")
}

fn save(path: &Path, text: &str) -> Result<(), CmdError> {
    fs::write(path, text).map_err(|e| cannot(path, &e))
}

fn cannot(path: &Path, error: &std::io::Error) -> CmdError {
    let what = format!("{}: {error}; name a place that can be written", path.display());
    CmdError::new(ExitCode::Usage, what)
}
