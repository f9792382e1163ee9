//! Accesses of a guest as a trace of physical addresses, which `huepage sim --mapping identity` runs: one
//! thread for each processor, in the order in which they were made.

use std::fs::File;
use std::path::PathBuf;

use huepage_sim::lab::{LabWord, physical_record};
use huepage_sim::trace::{Header, Writer};

use crate::exit::{CmdError, bad_file};

/// A trace that is being written; none where none was asked for.
pub struct GuestRecorder(Option<(PathBuf, Writer<File>)>);

impl GuestRecorder {
    /// A trace of a program or of a column.
    pub fn create(path: Option<PathBuf>, program: &str) -> Result<GuestRecorder, CmdError> {
        let Some(path) = path else { return Ok(GuestRecorder(None)) };
        let source = "huepage lab, physical addresses".to_owned();
        let header = Header { program: program.to_owned(), arguments: Vec::new(), source };
        let made = File::create_new(&path).and_then(|file| Writer::new(file, &header));
        let writer = made.map_err(|e| bad_file(&path, format!("{e}; name another file")))?;
        Ok(GuestRecorder(Some((path, writer))))
    }

    /// Takes words.
    pub fn take(&mut self, words: &[LabWord]) -> Result<(), CmdError> {
        let Some((path, writer)) = &mut self.0 else { return Ok(()) };
        let mut records = words.iter().filter_map(|word| physical_record(*word));
        records.try_for_each(|record| writer.push(&record)).map_err(|e| bad_file(path, e))
    }

    /// Ends the trace.
    pub fn finish(self) -> Result<(), CmdError> {
        let Some((path, writer)) = self.0 else { return Ok(()) };
        writer.finish().map(drop).map_err(|e| bad_file(&path, e))
    }
}
