//! Sources of observations as the command sees them, and the one that is a recorded file.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use huepage_color::IndexFunction;
use huepage_recover::{Observations, parse};
use indicatif::ProgressBar;

use crate::exit::{CmdError, bad_file};

/// The largest recording that is read: some 40 million observations.
const LARGEST: u64 = 1 << 30;

/// Which lines a solver wants to be observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineChoice {
    Random,
    /// Lines with all their neighbours in one and two address bits.
    Neighbours,
    /// Rows of lines, for base sequences.
    Sweep,
}

/// Where observations come from.
pub trait ObservationSource {
    /// In words, with how lines are observed.
    fn describe(&self) -> String;

    /// Observes what a plan asks for; `None` if this source cannot.
    fn observe(&mut self, plan: LineChoice) -> Result<Option<Observations>, CmdError>;

    /// Lines with their slices' own numbers, by latency or counter; `None` if those of
    /// [`Self::observe`] have them or nothing can tell.
    fn numbered(&mut self) -> Option<Observations>;

    /// The hash behind it, where that is known.
    fn hidden(&self) -> Option<IndexFunction> {
        None
    }

    /// log2 of the sets per slice, where that is known.
    fn set_bits(&self) -> Option<u32> {
        None
    }
}

/// A recording.
#[derive(Debug)]
pub struct RecordedLines {
    path: PathBuf,
    seen: Observations,
}

impl RecordedLines {
    pub fn open(path: &Path) -> Result<RecordedLines, CmdError> {
        let unread = |e| bad_file(path, format!("{e}; name a recording of --record"));
        let text = read(path, LARGEST).map_err(unread)?;
        let large = || bad_file(path, "more than 1 GiB of observations; cut the file");
        let seen = parse(&text.ok_or_else(large)?).map_err(|e| bad_file(path, e))?;
        Ok(RecordedLines { path: path.to_owned(), seen })
    }
}

impl ObservationSource for RecordedLines {
    fn describe(&self) -> String {
        format!("recorded in {}", self.path.display())
    }

    fn observe(&mut self, plan: LineChoice) -> Result<Option<Observations>, CmdError> {
        Ok((plan != LineChoice::Sweep).then(|| self.seen.clone()))
    }

    fn numbered(&mut self) -> Option<Observations> {
        None
    }
}

/// The text of a file; `None` if it has more than `most` bytes. Devices and pipes have no length
/// that could be asked for, and may have no end.
pub fn read(path: &Path, most: u64) -> io::Result<Option<String>> {
    let file = fs::File::open(path)?;
    if file.metadata()?.len() > most {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Ok(None);
    }
    String::from_utf8(bytes).map(Some).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Progress on standard error, on a terminal only.
pub fn progress(what: &'static str, steps: usize) -> ProgressBar {
    let template = format!("{what} {{bar:30}} {{percent:>3}} % ({{eta}} left)");
    crate::progress::bar(true, Some(steps as u64), &template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_not_read_to_its_end() {
        assert_eq!(read(Path::new("/dev/zero"), 1000).unwrap(), None);
        assert_eq!(read(Path::new("/dev/null"), 1000).unwrap().as_deref(), Some(""));
        assert!(read(Path::new("/nonexistent"), 1000).is_err());
    }

    #[test]
    fn a_file_is_read_up_to_its_largest_size_and_no_further() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "12345").unwrap();
        assert_eq!(read(file.path(), 5).unwrap().as_deref(), Some("12345"));
        assert_eq!(read(file.path(), 4).unwrap(), None);
    }
}
