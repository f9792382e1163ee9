//! What DynamoRIO's drmemtrace prints of a trace (`drrun -t drmemtrace -tool view -indir FOLDER`): for each access
//! a line with the thread, `ifetch`, `read` or `write`, the size, `byte(s) @` and the address.

use std::collections::HashMap;
use std::io::BufRead;

use huepage_color::VirtAddr;

use super::TraceError;
use super::lines::{TextLines, hex, iterate};
use super::pieces::{LONGEST, Pieces};
use crate::record::{AccessKind, Record};

/// What stands between the size and the address of an access.
const MARK: &str = " byte(s) @ ";

/// A reader of that text. Lines that tell of no access (marks, prefetches, the tool's own) are skipped; threads are
/// numbered as they come; a fetch is one instruction; what is larger than 255 bytes is several records.
#[derive(Debug)]
pub struct Drmemtrace<R> {
    lines: TextLines<R>,
    pieces: Pieces,
    threads: HashMap<u64, u16>,
    ended: bool,
}

impl<R: BufRead> Drmemtrace<R> {
    /// A reader of `input`.
    pub fn new(input: R) -> Drmemtrace<R> {
        let (lines, pieces, threads) = (TextLines::new(input), Pieces::default(), HashMap::new());
        Drmemtrace { lines, pieces, threads, ended: false }
    }

    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(record) = self.pieces.take() {
                return Ok(Some(record));
            }
            if !self.lines.advance()? {
                return Ok(None);
            }
            let Some((before, after)) = self.lines.text().split_once(MARK) else { continue };
            let access = access(before, after).map_err(|what| self.lines.wrong(what))?;
            let Some((thread, kind, bytes, address)) = access else { continue };
            let next = u16::try_from(self.threads.len()).unwrap_or(u16::MAX);
            let thread = *self.threads.entry(thread).or_insert(next);
            let instructions = u16::from(kind == AccessKind::Fetch);
            let record = Record {
                address: VirtAddr(address),
                thread,
                instructions,
                ..Record::plain(0, kind)
            };
            self.pieces = Pieces::new((record, bytes), None);
        }
    }
}

/// Thread, kind, size and address of an access, from what stands before and after the mark; `None` for what is none.
fn access(before: &str, after: &str) -> Result<Option<(u64, AccessKind, u32, u64)>, &'static str> {
    let mut words = before.split_ascii_whitespace().rev();
    let (size, kind, thread) = (words.next(), words.next(), words.next());
    let kind = match kind {
        Some("ifetch") => AccessKind::Fetch,
        Some("read") => AccessKind::Load,
        Some("write") => AccessKind::Store,
        _ => return Ok(None),
    };
    // Early versions write a T before it.
    let thread = thread.and_then(|word| word.trim_start_matches('T').parse().ok());
    let size = size.and_then(|word| word.parse().ok());
    let address = after.split_ascii_whitespace().next().and_then(hex);
    match (thread, size, address) {
        (Some(thread), Some(size @ 1..=LONGEST), Some(address)) => {
            Ok(Some((thread, kind, size, address)))
        }
        _ => Err("names no thread, size and address; expected for instance \
                  `9 5: 4711 read 8 byte(s) @ 0x00007ffe80 by PC 0x00401000`"),
    }
}

iterate!(BufRead: Drmemtrace);
