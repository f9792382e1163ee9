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
    Line {
        /// Which, from 1 on.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
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
pub struct RecordingReader(State);

#[derive(Clone, Debug, Default)]
enum State {
    #[default]
    Begin,
    Residency(Box<residency::ResidencyReader>),
    Touches(Box<touches::TouchReader>),
}

impl RecordingReader {
    /// Takes the next line, with or without its end. Costs are in proportion to its length.
    ///
    /// # Errors
    /// When it is not what it should be; nothing more may be read then.
    pub fn line(&mut self, text: &[u8]) -> Result<Heard, RecordingError> {
        if matches!(self.0, State::Begin) {
            self.0 = begin(text)?;
        }
        match &mut self.0 {
            State::Residency(reader) => Ok(reader.take(text)?.map_or(Heard::Frame, Heard::Look)),
            State::Touches(reader) => Ok(reader.line(text)?.map_or(Heard::Frame, Heard::Step)),
            State::Begin => Err(RecordingError::NoHead),
        }
    }

    /// Whether the first line was read: from then on a recording may end anywhere.
    pub fn has_head(&self) -> bool {
        match &self.0 {
            State::Begin => false,
            State::Residency(reader) => reader.has_head(),
            State::Touches(reader) => reader.recorded().is_some(),
        }
    }

    /// The counts of a residency sensor so far; `None` of another one, and before the head.
    pub fn residency(&self) -> Option<&residency::ResidencyRecording> {
        if let State::Residency(reader) = &self.0 { reader.recorded() } else { None }
    }

    /// The counts of a sensor of touches so far; `None` of another one, and before the head.
    pub fn touches(&self) -> Option<&touches::TouchRecording> {
        if let State::Touches(reader) = &self.0 { reader.recorded() } else { None }
    }

    /// What was read.
    ///
    /// # Errors
    /// When there was no line.
    pub fn finish(self) -> Result<Recording, RecordingError> {
        match self.0 {
            State::Begin => Err(RecordingError::Empty),
            State::Residency(reader) => reader.finish().map(Recording::Residency),
            State::Touches(reader) => reader.finish().map(Recording::Touches),
        }
    }
}

/// The reader for what the first line says.
fn begin(text: &[u8]) -> Result<State, RecordingError> {
    let Intro { huepage_recording, sensor } = parsed(text).map_err(|_| RecordingError::NoHead)?;
    if huepage_recording != VERSION {
        return Err(RecordingError::Version(huepage_recording));
    }
    let sensor = sensor.ok_or(RecordingError::NoHead)?;
    match sensor.as_str() {
        "residency" => Ok(State::Residency(Box::default())),
        "accessed-bits" | "pmu" => Ok(State::Touches(Box::default())),
        other => {
            let short: String = other.chars().take(40).collect();
            Err(RecordingError::Sensor(short.escape_debug().to_string()))
        }
    }
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
