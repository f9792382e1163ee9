//! SPECIFICATION.md: its table is made of what is promised (`bench/promises.toml`) and of what was
//! measured (`bench/results/*.json`). Nothing is measured here.

pub mod results;
pub mod save;
pub mod table;

use std::path::{Path, PathBuf};
use std::{fs, io};

use clap::Args;

use crate::promises::Promises;
use results::{MachineResults, ResultsError};

/// The lines of the document between which the table stands.
const MARKS: (&str, &str) =
    ("<!-- made by `huepage-bench spec --write` -->\n", "<!-- end of what is made -->\n");

/// Why the specification cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The promises cannot be read.
    #[error("{0}; name a checkout of the project with --root")]
    Promises(#[from] io::Error),
    /// The results cannot be read.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// A file of the checkout cannot be read or written.
    #[error("{}: {}; name a checkout of the project with --root", .0.display(), .1)]
    Io(PathBuf, io::Error),
    /// A program that says which code it is, or which day.
    #[error("{0}: {1}; run in a checkout of the project, with git and date")]
    Origin(&'static str, String),
    /// A suite that measured no figure of a promise.
    #[error("{0} measured no figure of a promise; nothing is saved")]
    NoFigures(String),
    /// A figure that no promise has a bar for.
    #[error("bench/promises.toml has no bar {1:?} of {0}; add it")]
    NoBar(&'static str, String),
    /// The document has no place for the table.
    #[error("SPECIFICATION.md lacks the line {0:?}; put the marks around its table")]
    NoMark(&'static str),
}

/// The options of `huepage-bench spec`.
#[derive(Args, Debug)]
pub struct SpecArgs {
    /// Put the table into SPECIFICATION.md; without it, print it
    #[arg(long)]
    pub write: bool,
    /// The checkout of the project
    #[arg(long, value_name = "DIR", default_value_os_t = root())]
    pub root: PathBuf,
}

/// The checkout that this program was built from.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Prints the table, or writes it into the document.
pub fn run(args: &SpecArgs) -> Result<(), SpecError> {
    let table = made(&args.root)?;
    if !args.write {
        print!("{table}");
        return Ok(());
    }
    let path = args.root.join("SPECIFICATION.md");
    let failed = |error| SpecError::Io(path.clone(), error);
    let document = fs::read_to_string(&path).map_err(failed)?;
    fs::write(&path, replaced(&document, &table)?).map_err(failed)
}

/// The table of a checkout's promises and results.
pub fn made(root: &Path) -> Result<String, SpecError> {
    let promises = Promises::read(root)?;
    Ok(table::table(&promises, &MachineResults::all(root)?))
}

/// The document with another table.
fn replaced(document: &str, table: &str) -> Result<String, SpecError> {
    let (before, rest) = document.split_once(MARKS.0).ok_or(SpecError::NoMark(MARKS.0))?;
    let (_, after) = rest.split_once(MARKS.1).ok_or(SpecError::NoMark(MARKS.1))?;
    Ok(format!("{before}{}{table}{}{after}", MARKS.0, MARKS.1))
}

#[cfg(test)]
mod tests;
