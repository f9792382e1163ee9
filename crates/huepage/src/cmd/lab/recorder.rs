//! Accesses of a guest as a trace of physical addresses, which `huepage sim --mapping identity` runs: one
//! thread for each processor, in the order in which they were made.

use std::fs::File;
use std::path::{Path, PathBuf};

use huepage_sim::lab::{LabWord, physical_record};
use huepage_sim::trace::{Header, Writer};

use crate::exit::{CmdError, bad_file};

/// A trace that is being written; none where none was asked for.
pub struct GuestRecorder(Option<(PathBuf, Writer<File>)>);

impl GuestRecorder {
    /// A trace of a column in a directory, which is made if it is not there.
    pub fn create(directory: Option<&Path>, column: &str) -> Result<GuestRecorder, CmdError> {
        let Some(directory) = directory else { return Ok(GuestRecorder(None)) };
        let path = directory.join(format!("{}.trace", column.replace(' ', "-")));
        let source = "huepage lab, physical addresses".to_owned();
        let header = Header { program: column.to_owned(), arguments: Vec::new(), source };
        let made = std::fs::create_dir_all(directory).and_then(|()| File::create_new(&path));
        let writer = made.and_then(|file| Writer::new(file, &header));
        let writer = writer.map_err(|e| bad_file(&path, format!("{e}; give another --record")))?;
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
