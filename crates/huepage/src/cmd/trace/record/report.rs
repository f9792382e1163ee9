//! What is said of a recording: the line while it goes on, on a terminal only, and the report
//! at its end, with everything that is missing from the trace.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use huepage_linux::sensors::records::Facts;
use indicatif::{HumanBytes, HumanCount, ProgressBar};
use serde_json::{Value, json};

use super::options::TraceRecordArgs;
use super::sink::{Encoded, EncoderSignals};
use crate::exit::CmdError;
use crate::progress;
use crate::report;
use crate::style::count;

/// The line while recording goes on.
pub struct RecordingProgress(ProgressBar);

impl RecordingProgress {
    /// Hidden when quiet or when nobody watches.
    pub fn new(quiet: bool) -> RecordingProgress {
        RecordingProgress(progress::bar(!quiet, None, "recording {elapsed}: {msg}"))
    }

    /// Records, their rate and the size of the file.
    pub fn show(&self, shared: &EncoderSignals, elapsed: Duration) {
        if self.0.is_hidden() {
            return;
        }
        let (records, bytes) = (shared.records.load(Relaxed), shared.bytes.load(Relaxed));
        let rate = millions(records) / elapsed.as_secs_f64().max(1e-3);
        let (records, bytes) = (HumanCount(records), HumanBytes(bytes));
        self.0.set_message(format!("{records} records, {rate:.1} M/s, {bytes}"));
        self.0.tick();
    }

    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// Prints the closing report on standard error.
pub fn tell(
    args: &TraceRecordArgs,
    output: &Path,
    encoded: &Encoded,
    facts: &Facts,
    why: Option<String>,
) -> Result<(), CmdError> {
    let mut notes = notes(encoded, facts);
    if args.json {
        // The text said so before the program began.
        notes.extend(why);
        let value = value(output, encoded, facts, &notes);
        eprint!("{}", report::json(&value)?);
    } else if !args.quiet {
        eprint!("{}", text(output, encoded, facts, &notes));
    }
    Ok(())
}

fn text(output: &Path, encoded: &Encoded, facts: &Facts, notes: &[String]) -> String {
    let s = &encoded.summary;
    let mut text = format!(
        "{}: {} records ({} loads, {} stores, {} fetches) of {} instructions\n",
        output.display(),
        HumanCount(s.records),
        HumanCount(s.loads),
        HumanCount(s.stores),
        HumanCount(s.fetches),
        HumanCount(s.instructions),
    );
    let _ = writeln!(
        text,
        "  {}, {:.2} bytes a record; {:.1} s, {:.1} M records/s; {}, {}, {}",
        HumanBytes(s.bytes),
        per_record(encoded),
        encoded.seconds,
        millions(s.records) / encoded.seconds.max(1e-9),
        count(u64::from(facts.processes), "process", "processes"),
        count(u64::from(facts.spaces), "address space", "address spaces"),
        count(u64::from(facts.threads), "thread", "threads"),
    );
    notes.iter().for_each(|note| text.push_str(&format!("  {note}\n")));
    text
}

fn value(output: &Path, encoded: &Encoded, facts: &Facts, notes: &[String]) -> Value {
    json!({
        "file": output.display().to_string(),
        "summary": encoded.summary,
        "seconds": encoded.seconds,
        "bytes_per_record": per_record(encoded),
        "processes": facts.processes,
        "spaces": facts.spaces,
        "threads": facts.threads,
        "unrecorded_programs": facts.native,
        "lost_records": facts.lost,
        "limited": encoded.limited,
        "interrupted": encoded.interrupted,
        "notes": notes,
    })
}

/// What is not in the trace, or not as one would think.
fn notes(encoded: &Encoded, facts: &Facts) -> Vec<String> {
    let left = encoded.left as u64;
    let native = u64::from(facts.native);
    let all = [
        (encoded.limited, "the limit ended the recording; the program went on without".to_owned()),
        (encoded.interrupted, "Ctrl-C ended the recording before the program ended".to_owned()),
        (
            encoded.all_skipped,
            "the program ended before the part to record; --skip less".to_owned(),
        ),
        (
            native > 0,
            format!(
                "{} ran unrecorded: set-uid, or not for 64-bit x86",
                count(native, "program", "programs")
            ),
        ),
        (
            facts.lost > 0,
            format!("{} lost: too many threads", count(facts.lost, "access was", "accesses were")),
        ),
        (
            left > 0,
            format!(
                "{} outlived the program, unrecorded from then on",
                count(left, "process", "processes")
            ),
        ),
        (
            facts.spaces > u32::from(u16::MAX),
            "address spaces beyond 65535 share one number".to_owned(),
        ),
        (encoded.alone.is_some(), encoded.alone.unwrap_or_default().to_owned()),
    ];
    all.into_iter().filter(|(given, _)| *given).map(|(_, note)| note).collect()
}

#[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn millions(n: u64) -> f64 {
    n as f64 / 1e6
}

#[allow(clippy::cast_precision_loss, reason = "shown with two decimals")]
fn per_record(encoded: &Encoded) -> f64 {
    encoded.summary.bytes as f64 / (encoded.summary.records as f64).max(1.0)
}
