//! Runs what is asked for and hands over what was found, in the ways that all experiments have: text or JSON on
//! standard output, drawings, and a page of `docs/reproductions`.

use std::fs;
use std::path::Path;
use std::time::Instant;

use huepage::exit::{CmdError, ExitCode};
use huepage::style;
use serde::Serialize;

use super::found::StudyResults;
use super::html;
use super::markdown::{self, StudyPage};
use super::text;
use crate::asked::{Asked, OutputArgs};
use crate::drawing;
use crate::engine::{self, Study};
use crate::report::StatementCounts;
use crate::work::all;

/// Does the work that is asked for and hands over what was found.
pub fn experiment<S: Study>(asked: &Asked) -> Result<u8, CmdError> {
    let (found, page) = found::<S>(asked)?;
    asked.output.write(&found, &page)?;
    Ok(ExitCode::Ok.status())
}

/// Does the work that is asked for.
pub fn found<S: Study>(
    asked: &Asked,
) -> Result<(StudyResults<'_, S::Outcome>, StudyPage<'_>), CmdError> {
    asked.output.check()?;
    asked.traces.check(S::reserved(asked)?)?;
    let plan = S::plan(asked);
    if plan.is_empty() {
        return Err(nothing::<S>(asked));
    }
    let (started, outcomes, ids) = (Instant::now(), all(&plan)?, asked.ids());
    let mut claims = engine::claims::<S>(&outcomes, &S::asked(asked));
    claims.extend(S::more_claims(asked));
    let mut experiments = S::experiments(&outcomes, &claims);
    experiments.retain(|experiment| !experiment.claims.is_empty());
    let notes = S::notes(&outcomes);
    let found = StudyResults {
        quick: asked.quick,
        traces: asked.traces.names(),
        tables: engine::tables::<S>(&outcomes, &ids),
        counts: StatementCounts::of(&claims, &experiments),
        claims,
        experiments,
        figures: S::figures(&outcomes),
        seconds: started.elapsed().as_secs_f64(),
        outcomes,
    };
    let paper = S::paper();
    let (told, workloads) = (asked.told(&paper.option), S::workloads(asked));
    Ok((found, StudyPage { paper, told, workloads, notes }))
}

fn nothing<S: Study>(asked: &Asked) -> CmdError {
    let option = &S::paper().option;
    let what = if asked.only.is_empty() {
        format!("no trace for this {option}; give --trace NAME=FILE, or another --{option}")
    } else {
        let names = S::names(asked).into_iter().collect::<Vec<_>>().join(", ");
        let only = asked.only.join(", ");
        format!(
            "nothing named `{only}` for these {option}s; give one of {names}, or a trace's name"
        )
    };
    CmdError::new(ExitCode::Usage, what)
}

impl OutputArgs {
    /// Makes sure that results can be written, before anything is run, so that no run is lost.
    pub fn check(&self) -> Result<(), CmdError> {
        if let Some(path) = &self.svg {
            fs::create_dir_all(path).map_err(|e| cannot(path, &e))?;
        }
        for path in self.markdown.iter().chain(&self.html) {
            can_be_written(path)?;
        }
        Ok(())
    }

    /// Writes everything.
    pub fn write<O: Serialize>(
        &self,
        found: &StudyResults<'_, O>,
        page: &StudyPage<'_>,
    ) -> Result<(), CmdError> {
        if let Some(directory) = &self.svg {
            for figure in &found.figures {
                let text = drawing::draw(figure).map_err(CmdError::internal)?;
                save(&directory.join(format!("{}.svg", figure.name)), &text)?;
            }
        }
        if let Some(path) = &self.markdown {
            save(path, &markdown::page(found, page))?;
        }
        if let Some(path) = &self.html {
            save(path, &html::page("Run again", &html::section(found, page)?))?;
        }
        let text = if self.json { json(found)? } else { text::all(found) };
        style::print(&text).map_err(CmdError::internal)
    }
}

fn json<O: Serialize>(found: &StudyResults<'_, O>) -> Result<String, CmdError> {
    let text = serde_json::to_string_pretty(found).map_err(CmdError::internal)?;
    Ok(text + "\n")
}

/// Writes a file, or says where it might be written.
pub fn save(path: &Path, text: &str) -> Result<(), CmdError> {
    fs::write(path, text).map_err(|e| cannot(path, &e))
}

/// Makes sure of that; what is in the file stays.
pub fn can_be_written(path: &Path) -> Result<(), CmdError> {
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|e| cannot(path, &e))
}

fn cannot(path: &Path, error: &std::io::Error) -> CmdError {
    let what = format!("{}: {error}; name a place that can be written", path.display());
    CmdError::new(ExitCode::Usage, what)
}
