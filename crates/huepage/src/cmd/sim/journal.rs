//! The finished points of a sweep in a file, a line each as soon as it is known, so that a
//! sweep that was ended (Ctrl-C, a batch engine, a loss of power) goes on where it was.
//!
//! The first line names the run; a file of another run is refused. The others are JSON lines
//! as `--json` prints them, which `sim merge` reads. A last line that was cut is dropped.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::usage;
use crate::exit::{CmdError, ExitCode};

/// What the first line calls the run.
const RUN: &str = "run";

/// Whether a line of a file of rows is the name of the run and no row.
pub fn is_head(line: &Value) -> bool {
    line.as_object().is_some_and(|fields| fields.len() == 1 && fields.contains_key(RUN))
}

/// A file of finished points, open for more.
#[derive(Debug)]
pub struct SweepJournal {
    path: PathBuf,
    file: Mutex<File>,
    /// The rows that were there, by point.
    pub done: BTreeMap<usize, Value>,
}

impl SweepJournal {
    /// Opens or begins the file for a run of this name.
    pub fn open(path: &Path, run: &str) -> Result<SweepJournal, CmdError> {
        let bad = |what: &str| usage(&format!("{}: {what}", path.display()));
        let failed =
            |e: std::io::Error| bad(&format!("{e}; name a file that can be written for --resume"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(path).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            // A device may have no end.
            return Err(bad("is no regular file; name one for --resume"));
        }
        file.try_lock()
            .map_err(|_| bad("another huepage writes it; give each run a file of its own"))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let done = rows(&text[..whole], run).and_then(|done| match whole {
            0 if !head(run).starts_with(&text) => Err(wrong(1, FOREIGN)),
            _ => Ok(done),
        });
        let done = done.map_err(|what| {
            CmdError::new(ExitCode::BadFile, format!("{}: {what}", path.display()))
        })?;
        file.set_len(whole as u64).map_err(failed)?;
        file.seek(SeekFrom::Start(whole as u64)).map_err(failed)?;
        let journal = SweepJournal { path: path.to_owned(), file: Mutex::new(file), done };
        if whole == 0 {
            journal.add(&head(run))?;
        }
        Ok(journal)
    }

    /// Adds a row; once this returns, it is in the file.
    pub fn write(&self, row: &Value) -> Result<(), CmdError> {
        self.add(&format!("{row}\n"))
    }

    fn add(&self, line: &str) -> Result<(), CmdError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes()).and_then(|()| file.sync_data()).map_err(|e| {
            let what = format!("{}: {e}; make room and run it again", self.path.display());
            CmdError::new(ExitCode::Internal, what)
        })
    }
}

/// The first line of a run of this name.
fn head(run: &str) -> String {
    format!("{}\n", json!({ RUN: run }))
}

/// What is wrong with a first line that names no run.
const FOREIGN: &str = "expected the name of a run";

fn wrong(line: usize, what: &str) -> String {
    format!("line {line}: {what}; remove the file or name another for --resume")
}

fn rows(text: &str, run: &str) -> Result<BTreeMap<usize, Value>, String> {
    let mut rows = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: &str| wrong(number + 1, what);
        let value: Value = serde_json::from_str(line).map_err(|e| wrong(&e.to_string()))?;
        if number == 0 {
            match value[RUN].as_str() {
                Some(name) if name == run => {}
                Some(_) => return Err(wrong("of another machine, program or sweep")),
                None => return Err(wrong(FOREIGN)),
            }
            continue;
        }
        let point = value["point"].as_u64().and_then(|point| usize::try_from(point).ok());
        let point = point.ok_or_else(|| wrong("no point of a sweep"))?;
        if rows.insert(point, value).is_some() {
            return Err(wrong(&format!("point {point} a second time")));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_there_again_and_a_cut_line_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let row = |point: u64| json!({"point": point, "report": {}});
        let journal = SweepJournal::open(&path, "a").unwrap();
        assert!(journal.done.is_empty());
        journal.write(&row(4)).unwrap();
        journal.write(&row(1)).unwrap();
        let second = SweepJournal::open(&path, "a").unwrap_err();
        assert!(second.to_string().contains("another huepage"), "{second}");
        drop(journal);
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"point\":7,\"re").unwrap();
        drop(file);
        let journal = SweepJournal::open(&path, "a").unwrap();
        let done: Vec<_> = journal.done.iter().map(|(&at, row)| (at, row.clone())).collect();
        assert_eq!(done, [(1, row(1)), (4, row(4))]);
        journal.write(&row(7)).unwrap();
        drop(journal);
        assert_eq!(SweepJournal::open(&path, "a").unwrap().done.len(), 3);
    }

    #[test]
    fn other_files_are_refused_with_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let head = "{\"run\":\"a\"}\n";
        let cases = [
            ("{\"run\":\"b\"}\n".to_owned(), "line 1: of another"),
            ("{\"point\":0}\n".to_owned(), "line 1: expected"),
            ("notes without an end of line".to_owned(), "line 1: expected"),
            ("{\"point\":0}".to_owned(), "line 1: expected"),
            (format!("{head}no\n"), "line 2"),
            (format!("{head}{{}}\n"), "line 2: no point"),
            (format!("{head}{{\"point\":1}}\n{{\"point\":1}}\n"), "line 3: point 1 a second"),
        ];
        for (text, part) in cases {
            std::fs::write(&path, &text).unwrap();
            let error = SweepJournal::open(&path, "a").unwrap_err().to_string();
            assert!(error.contains(part), "{part} in {error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "left as it was");
        }
    }

    #[test]
    fn a_cut_first_line_is_written_again_and_a_device_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        std::fs::write(&path, &head("a")[..5]).unwrap();
        drop(SweepJournal::open(&path, "a").unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), head("a"));
        let error = SweepJournal::open(Path::new("/dev/full"), "a").unwrap_err().to_string();
        assert!(error.contains("is no regular file"), "{error}");
    }
}
