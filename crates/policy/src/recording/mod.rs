//! Recordings of what sensors see, in one family of files: one object of JSON a line, a head first that
//! says which sensor it was, the totals last. Which pages of a process are in the cache is in
//! [`residency`], which pages were touched and which missed in [`touches`]. [`RecordingReader`]
//! takes either. Lines in, counts and steps out: files are opened elsewhere, and what a policy makes of
//! the steps is none of its business.

pub mod residency;
pub mod touches;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version of the form that is written here, and the only one that is read.
pub const VERSION: u64 = 1;
/// End of the addresses that a process can have, with page tables of five levels.
pub const LAST: u64 = 1 << 56;

/// Why a text is no recording.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordingError {
    /// There is nothing in it.
    #[error("the recording is empty; make one with `huepage record --output FILE PID`")]
    Empty,
    /// It does not begin as recordings do.
    #[error("line 1 is no head of a recording; make one with `huepage record --output FILE PID`")]
    NoHead,
    /// It was written by another version.
    #[error(
        "the recording has version {0}, and only {VERSION} is known here; replay it with the huepage that wrote it"
    )]
    Version(u64),
    /// It is of a sensor that is not known.
    #[error(
        "the recording is of the sensor `{0}`, which is not known here; replay it with the huepage that wrote it"
    )]
    Sensor(String),
    /// A line has another form than it should.
    #[error("line {line}: {what}; the file was damaged or changed, record again")]
    #[expect(missing_docs, reason = "the message says it")]
    Line { line: u64, what: String },
}

/// Whose recording it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedSensor {
    /// Lines of memory, timed: which of them are in the cache.
    Residency,
    /// Accessed bits of page tables: which pages were touched.
    AccessedBits,
    /// Samples of accesses with their addresses, from counters or from the kernel.
    Pmu,
}

impl RecordedSensor {
    /// The name as the command line has it.
    pub const fn text(self) -> &'static str {
        match self {
            RecordedSensor::Residency => "residency",
            RecordedSensor::AccessedBits => "accessed-bits",
            RecordedSensor::Pmu => "pmu",
        }
    }
}

/// What every head has, whatever else is in it.
#[derive(Deserialize)]
struct Intro {
    huepage_recording: u64,
    sensor: Option<String>,
}

/// What a recording holds, or held up to the line that was read last.
#[derive(Clone, Debug, PartialEq)]
pub enum Recording {
    /// Which pages are in the cache.
    Residency(residency::ResidencyRecording),
    /// Which pages were touched, or sampled.
    Touches(touches::TouchRecording),
}

/// What a line says.
#[derive(Clone, Debug, PartialEq)]
pub enum Heard {
    /// It is the head or the totals.
    Frame,
    /// A look at lines of memory.
    Look(residency::ResidencyLook),
    /// What was touched, or is there.
    Step(touches::TouchStep),
}

/// Reads a recording of any sensor line by line.
#[derive(Clone, Debug, Default)]
pub struct RecordingReader {
    line: u64,
    read: Option<Recording>,
}

impl RecordingReader {
    /// Takes the next line, with or without its end. Costs are in proportion to its length.
    ///
    /// # Errors
    /// When it is not what it should be; nothing more may be read then.
    pub fn line(&mut self, text: &[u8]) -> Result<Heard, RecordingError> {
        self.line += 1;
        let Some(read) = &mut self.read else {
            self.read = Some(begin(text)?);
            return Ok(Heard::Frame);
        };
        let heard = match read {
            Recording::Residency(read) if read.totals.is_none() => read.line(text),
            Recording::Touches(read) if read.totals.is_none() => read.line(text),
            _ => Err("it comes behind the totals".to_owned()),
        };
        heard.map_err(|what| RecordingError::Line { line: self.line, what })
    }

    /// Whether the first line was read: from then on a recording may end anywhere.
    pub const fn has_head(&self) -> bool {
        self.read.is_some()
    }

    /// The counts of a residency sensor so far; `None` of another one, and before the head.
    pub fn residency(&self) -> Option<&residency::ResidencyRecording> {
        if let Some(Recording::Residency(read)) = &self.read { Some(read) } else { None }
    }

    /// The counts of a sensor of touches so far; `None` of another one, and before the head.
    pub fn touches(&self) -> Option<&touches::TouchRecording> {
        if let Some(Recording::Touches(read)) = &self.read { Some(read) } else { None }
    }

    /// What was read.
    ///
    /// # Errors
    /// When there was no line.
    pub fn finish(self) -> Result<Recording, RecordingError> {
        self.read.ok_or(RecordingError::Empty)
    }
}

/// What the first line says.
fn begin(text: &[u8]) -> Result<Recording, RecordingError> {
    let Intro { huepage_recording, sensor } = parsed(text).map_err(|_| RecordingError::NoHead)?;
    if huepage_recording != VERSION {
        return Err(RecordingError::Version(huepage_recording));
    }
    let sensor = sensor.ok_or(RecordingError::NoHead)?;
    let recording = match sensor.as_str() {
        "residency" => residency::ResidencyRecording::begin(text).map(Recording::Residency),
        "accessed-bits" | "pmu" => touches::TouchRecording::begin(text).map(Recording::Touches),
        other => {
            let short: String = other.chars().take(40).collect();
            return Err(RecordingError::Sensor(short.escape_debug().to_string()));
        }
    };
    recording.map_err(|what| RecordingError::Line { line: 1, what })
}

/// What the parser says, in one line without the place, which it counts in its own way.
pub(crate) fn parsed<'a, T: Deserialize<'a>>(text: &'a [u8]) -> Result<T, String> {
    // The parser would take a list of the values as well.
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Err("it is no object".to_owned());
    }
    serde_json::from_slice(text).map_err(|error| {
        let said = error.to_string();
        let what = said.rsplit_once(" at line ").map_or(&*said, |(what, _)| what);
        what.escape_debug().to_string()
    })
}
