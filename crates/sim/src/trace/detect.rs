//! The formats, and which one a trace is in by its first bytes. Nothing is unpacked here.

use std::fmt;
use std::io::BufRead;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::champsim::RECORD;
use super::format::MAGIC;
use super::{Batched, Batches, ChampSim, Din, Drmemtrace, Lackey, Raw, TraceError, TraceReader};

/// Bytes that [`detect`] wants to see, if the trace has as many.
pub const SAMPLE: usize = 4096;
/// No user address is higher on any machine with 48-bit addresses, nor with 57 bits.
const USER: u64 = 1 << 57;
/// A trace of addresses has a zero in so many words at most.
const MOST_ZEROES: usize = 8;

/// A format of traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// The project's own.
    Huepage,
    /// `valgrind --tool=lackey --trace-mem=yes`.
    Lackey,
    /// Dinero's text.
    Din,
    /// ChampSim's instructions.
    Champsim,
    /// What DynamoRIO's drmemtrace prints: `-tool view`.
    Drmemtrace,
    /// Little-endian 64-bit addresses, the top bit set for stores.
    Raw,
    /// Little-endian 64-bit addresses, all loads.
    RawLoads,
}

impl Format {
    /// Every format.
    pub const ALL: [Format; 7] = [
        Format::Huepage,
        Format::Lackey,
        Format::Din,
        Format::Champsim,
        Format::Drmemtrace,
        Format::Raw,
        Format::RawLoads,
    ];

    /// The name that arguments and files use.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Huepage => "huepage",
            Format::Lackey => "lackey",
            Format::Din => "din",
            Format::Champsim => "champsim",
            Format::Drmemtrace => "drmemtrace",
            Format::Raw => "raw",
            Format::RawLoads => "raw-loads",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Format, String> {
        Format::ALL.into_iter().find(|format| format.name() == text).ok_or_else(|| {
            let names = Format::ALL.map(Format::name).join(", ");
            format!("`{}` is no format of traces; write one of {names}", text.escape_debug())
        })
    }
}

/// A reader of `input` in a format. The project's own needs no buffering, the others do.
///
/// # Errors
/// A damaged header; only the project's own format has one.
pub fn open<'a, R: BufRead + Send + 'a>(
    input: R,
    format: Format,
) -> Result<Box<dyn Batches + Send + 'a>, TraceError> {
    Ok(match format {
        Format::Huepage => Box::new(TraceReader::new(input)?),
        Format::Lackey => Box::new(Batched::new(Lackey::new(input))),
        Format::Din => Box::new(Batched::new(Din::new(input))),
        Format::Champsim => Box::new(Batched::new(ChampSim::new(input))),
        Format::Drmemtrace => Box::new(Batched::new(Drmemtrace::new(input))),
        Format::Raw => Box::new(Batched::new(Raw::new(input))),
        Format::RawLoads => Box::new(Batched::new(Raw::loads(input))),
    })
}

/// The format of a trace that begins so; `None` if it could be several or none. Of binary
/// formats only the first has a mark; the others are told by what their fields can hold.
pub fn detect(sample: &[u8]) -> Option<Format> {
    if sample.starts_with(&MAGIC) {
        Some(Format::Huepage)
    } else if sample.iter().all(|b| b.is_ascii_graphic() || b.is_ascii_whitespace()) {
        text(sample)
    } else {
        binary(sample)
    }
}

fn text(sample: &[u8]) -> Option<Format> {
    let mut lines = sample.split(|b| *b == b'\n').map(<[u8]>::trim_ascii);
    let content = |l: &&[u8]| !(l.is_empty() || l.starts_with(b"==") || l.starts_with(b"--"));
    let line = lines.find(content)?;
    // The sample may end inside the one line it has.
    let whole: Vec<u8> = [line, b"\n"].concat();
    if matches!(Lackey::new(whole.as_slice()).next(), Some(Ok(_))) || line.starts_with(b"SB ") {
        Some(Format::Lackey)
    } else if matches!(Din::new(whole.as_slice()).next(), Some(Ok(_))) {
        Some(Format::Din)
    } else if matches!(Drmemtrace::new(sample).next(), Some(Ok(_))) {
        Some(Format::Drmemtrace)
    } else {
        None
    }
}

fn binary(sample: &[u8]) -> Option<Format> {
    let words = |bytes: &'_ [u8]| -> Vec<u64> {
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()
    };
    let instructions = sample.chunks_exact(RECORD);
    let plausible = |record: &[u8]| {
        let rest = [words(&record[..8]), words(&record[16..])].concat();
        record[8] <= 1 && record[9] <= 1 && rest[0] != 0 && rest.iter().all(|word| *word < USER)
    };
    let champsim = instructions.len() > 0 && instructions.clone().all(plausible);
    let addresses = words(sample);
    // Of six places for addresses an instruction uses one or two.
    let zeroes = addresses.iter().filter(|&&word| word == 0).count();
    let full = zeroes * MOST_ZEROES <= addresses.len();
    let raw = !addresses.is_empty() && addresses.iter().all(|word| word << 1 >> 1 < USER);
    match (champsim, raw) {
        (true, true) if full => None,
        (true, _) => Some(Format::Champsim),
        (false, true) => Some(Format::Raw),
        (false, false) => None,
    }
}
