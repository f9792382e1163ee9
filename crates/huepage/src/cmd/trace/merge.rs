//! `huepage trace merge`: several traces as one, ordered by instructions.

use std::collections::HashMap;
use std::path::PathBuf;

use huepage_sim::record::Record;
use huepage_sim::trace::Header;

use super::args::{From, TraceMergeArgs};
use super::bad_wish;
use super::copy::{TraceOutput, header_of, not_itself};
use super::input::TraceInput;
use crate::exit::CmdError;

/// One of the traces, and how far it is.
struct Strand {
    input: TraceInput,
    batch: Vec<Record>,
    next: usize,
    /// Instructions retired; accesses, if the trace counts no instructions.
    clock: u64,
    uncounted: bool,
    spaces: HashMap<u16, u16>,
}

impl Strand {
    fn open(from: &From) -> Result<Strand, CmdError> {
        let mut input = TraceInput::open(from)?;
        let mut batch = Vec::new();
        input.next(&mut batch)?;
        let uncounted = batch.iter().all(|record| record.instructions == 0);
        Ok(Strand { input, batch, next: 0, clock: 0, uncounted, spaces: HashMap::new() })
    }

    /// The next record, if there is one.
    fn peek(&mut self) -> Result<Option<Record>, CmdError> {
        if self.next == self.batch.len() && !self.batch.is_empty() {
            self.next = 0;
            if !self.input.next(&mut self.batch)? {
                self.batch.clear();
            }
        }
        Ok(self.batch.get(self.next).copied())
    }

    /// When the next record is due.
    fn due(&self, record: &Record) -> u64 {
        let step = if self.uncounted { 1 } else { u64::from(record.instructions) };
        self.clock + step
    }
}

/// Merges traces.
pub fn run(args: &TraceMergeArgs) -> Result<u8, CmdError> {
    let standard_input = |path: &&PathBuf| path.as_os_str() == "-";
    if let Some(path) = args.paths.iter().filter(standard_input).nth(1) {
        return Err(bad_wish(path, "is there once only; name another trace"));
    }
    let mut strands = Vec::new();
    for path in &args.paths {
        not_itself(path, &args.to)?;
        strands.push(Strand::open(&From { path: path.clone(), format: args.format })?);
    }
    let programs = strands.iter().map(|strand| header_of(&strand.input).program);
    let programs: Vec<String> = programs.collect();
    let source = format!("merged from {} traces", strands.len());
    let header = Header { program: programs.join(" + "), arguments: Vec::new(), source };
    let mut output = TraceOutput::create(&args.to, &header)?;
    let ended = interleave(&mut strands, &mut output);
    match ended {
        Err(Ended::Output(error)) => Err(error),
        Err(Ended::Input(error)) => output.finish(Some(error)),
        Ok(()) => {
            drop(strands);
            output.finish(None)
        }
    }
}

/// Whose fault the end was.
enum Ended {
    Input(CmdError),
    Output(CmdError),
}

fn interleave(strands: &mut [Strand], output: &mut TraceOutput<'_>) -> Result<(), Ended> {
    let mut spaces = 0_u32;
    loop {
        let mut first: Option<(u64, usize, Record)> = None;
        for (i, strand) in strands.iter_mut().enumerate() {
            if let Some(record) = strand.peek().map_err(Ended::Input)? {
                let due = strand.due(&record);
                if first.is_none_or(|(earliest, ..)| due < earliest) {
                    first = Some((due, i, record));
                }
            }
        }
        let Some((due, i, record)) = first else { return Ok(()) };
        let strand = &mut strands[i];
        (strand.clock, strand.next) = (due, strand.next + 1);
        let space = number(strand, record.space, &mut spaces).map_err(Ended::Input)?;
        output.push(&Record { space, ..record }).map_err(Ended::Output)?;
    }
}

/// The number of a strand's space in the merged trace.
fn number(strand: &mut Strand, space: u16, spaces: &mut u32) -> Result<u16, CmdError> {
    if let Some(number) = strand.spaces.get(&space) {
        return Ok(*number);
    }
    let Ok(number) = u16::try_from(*spaces) else {
        return Err(bad_wish(strand.input.path(), "needs the 65537th address space; merge fewer"));
    };
    *spaces += 1;
    strand.spaces.insert(space, number);
    Ok(number)
}
