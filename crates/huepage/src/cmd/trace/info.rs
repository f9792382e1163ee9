//! `huepage trace info` and `head`: what a trace says of itself, and its first accesses.

use std::io::{self, BufWriter};

use huepage_sim::record::Record;
use huepage_sim::trace::{Format, Header, TraceSummary};
use serde::Serialize;

use super::args::{HeadArgs, TraceInfoArgs};
use super::input::{self, Start, TraceInput};
use super::{bad_file, kind};
use crate::exit::CmdError;
use crate::partition::internal;
use crate::report;
use crate::style;

/// What is printed as JSON.
#[derive(Serialize)]
struct Info {
    file: String,
    format: Format,
    #[serde(flatten)]
    header: Option<Header>,
    #[serde(flatten)]
    summary: TraceSummary,
    bytes_per_record: Option<f64>,
    /// It ends as it should.
    complete: bool,
}

/// Describes a trace.
pub fn info(args: &TraceInfoArgs) -> Result<u8, CmdError> {
    let (info, damage) = match indexed(args)? {
        Some(info) => (info, None),
        None => counted(args)?,
    };
    let text = if args.json { report::json(&info)? } else { info.text() };
    style::print(&text).map_err(internal)?;
    damage.map_or(Ok(0), Err)
}

/// By the index alone.
fn indexed(args: &TraceInfoArgs) -> Result<Option<Info>, CmdError> {
    if args.check {
        return Ok(None);
    }
    let Some((mut reader, _)) = input::own(&args.from)? else { return Ok(None) };
    let summary = reader.summary().map_err(|e| bad_file(&args.from.path, e))?;
    let header = Some(reader.header().clone());
    Ok(summary.map(|summary| Info::new(args, Format::Huepage, header, summary, true)))
}

/// By reading it, up to its end or the damage.
fn counted(args: &TraceInfoArgs) -> Result<(Info, Option<CmdError>), CmdError> {
    let mut input = TraceInput::open(&args.from)?;
    let mut summary = TraceSummary::default();
    let damage = input.for_each(|record| summary.add(record));
    summary.bytes = input.bytes();
    let header = input.header.clone();
    Ok((Info::new(args, input.format, header, summary, damage.is_none()), damage))
}

impl Info {
    fn new(
        args: &TraceInfoArgs,
        format: Format,
        header: Option<Header>,
        summary: TraceSummary,
        complete: bool,
    ) -> Info {
        #[allow(clippy::cast_precision_loss, reason = "shown to three digits")]
        let each = summary.bytes as f64 / summary.records as f64;
        let bytes_per_record = (summary.records > 0).then_some(each);
        let file = args.from.path.display().to_string();
        Info { file, format, header, summary, bytes_per_record, complete }
    }

    fn text(&self) -> String {
        let mut lines = vec![("file", self.file.clone()), ("format", self.format.to_string())];
        if let Some(header) = &self.header {
            let words = [std::slice::from_ref(&header.program), &header.arguments].concat();
            lines.push(("program", words.join(" ")));
            lines.push(("source", header.source.clone()));
        }
        let TraceSummary { records, instructions, fetches, loads, stores, blocks, bytes } =
            self.summary;
        let kinds = format!("{records} ({fetches} fetches, {loads} loads, {stores} stores)");
        lines.push(("accesses", kinds));
        lines.push(("instructions", instructions.to_string()));
        let each =
            self.bytes_per_record.map_or_else(String::new, |n| format!(", {n:.3} an access"));
        let blocks = if blocks > 0 { format!(" in {blocks} blocks") } else { String::new() };
        lines.push(("bytes", format!("{bytes}{blocks}{each}")));
        let complete = if self.complete { "yes" } else { "no: this is what can be used" };
        lines.push(("complete", complete.to_owned()));
        // Names come from files; none may steer the terminal.
        let clean =
            |text: &str| text.escape_debug().to_string().replace("\\'", "'").replace("\\\"", "\"");
        lines.iter().map(|(name, value)| format!("{name:<13} {}\n", clean(value))).collect()
    }
}

#[derive(Serialize)]
struct Line {
    number: u64,
    space: u16,
    thread: u16,
    kind: &'static str,
    #[serde(serialize_with = "huepage_color::as_hex")]
    address: u64,
    bytes: u8,
    instructions: u16,
}

impl Line {
    fn new(number: u64, record: &Record) -> Line {
        let Record { address, space, thread, instructions, bytes, .. } = *record;
        Line { number, space, thread, kind: kind(record), address: address.0, bytes, instructions }
    }
}

/// Prints accesses.
pub fn head(args: &HeadArgs) -> Result<u8, CmdError> {
    let mut input = TraceInput::open_at(&args.from_trace, Start::Record(args.from))?;
    let mut out = BufWriter::new(io::stdout().lock());
    match print(args, &mut input, &mut out) {
        Ok(result) => result.map(|()| 0),
        Err(e) => style::written(Err(e)).map(|()| 0).map_err(internal),
    }
}

/// The outer result is standard output's, the inner the trace's.
fn print(
    args: &HeadArgs,
    input: &mut TraceInput,
    out: &mut impl io::Write,
) -> io::Result<Result<(), CmdError>> {
    if !args.json {
        let headings = ("number", "space", "thread", "kind", "address", "bytes", "instructions");
        let (n, s, t, k, a, b, i) = headings;
        writeln!(out, "{n:>12} {s:>5} {t:>6} {k:<5} {a:>18} {b:>5} {i:>12}")?;
    }
    let (mut number, mut batch) = (args.from, Vec::new());
    let end = args.from.saturating_add(args.count);
    while number < end {
        match input.next(&mut batch) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return out.flush().map(|()| Err(error)),
        }
        for record in &batch {
            if number < end {
                line(args.json, &Line::new(number, record), out)?;
                number += 1;
            }
        }
    }
    out.flush().map(Ok)
}

fn line(json: bool, line: &Line, out: &mut impl io::Write) -> io::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, line)?;
        return writeln!(out);
    }
    let Line { number, space, thread, kind, address, bytes, instructions } = line;
    writeln!(
        out,
        "{number:>12} {space:>5} {thread:>6} {kind:<5} {address:>#18x} {bytes:>5} {instructions:>12}"
    )
}
