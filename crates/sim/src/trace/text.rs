//! Text traces: Dinero's `din` (`<label> <hex address>`, labels 0 load, 1 store, 2 fetch) and
//! valgrind lackey's `--trace-mem=yes` (`I`, `L`, `S` or `M`, hex address, comma, size).

use std::io::BufRead;

use huepage_color::VirtAddr;

use super::TraceError;
use super::lines::{TextLines, hex, iterate};
use super::pieces::{LONGEST as LONGEST_ACCESS, Pieces};
use crate::record::{AccessKind, Record};

/// A reader of Dinero's text. An access counts as 4 bytes and a fetch as one instruction.
/// Label 3, an access of unknown kind, is a load; 4, a flush of the cache, is skipped. What
/// follows the address is a comment.
#[derive(Debug)]
pub struct Din<R> {
    lines: TextLines<R>,
    ended: bool,
}

impl<R: BufRead> Din<R> {
    /// A reader of `input`.
    pub const fn new(input: R) -> Din<R> {
        Din { lines: TextLines::new(input), ended: false }
    }

    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        while self.lines.advance()? {
            let mut words = self.lines.text().split_ascii_whitespace();
            let Some(label) = words.next() else { continue };
            let kind = match label {
                "0" | "r" | "3" | "m" => AccessKind::Load,
                "1" | "w" => AccessKind::Store,
                "2" | "i" => AccessKind::Fetch,
                "4" => continue,
                _ => {
                    let what =
                        "begins with no label from 0 to 4; expected for instance `0 7fff1000`";
                    return Err(self.lines.wrong(what));
                }
            };
            let Some(address) = words.next().and_then(hex) else {
                let what = "has no hexadecimal address after its label; expected for instance \
                            `0 7fff1000`";
                return Err(self.lines.wrong(what));
            };
            let instructions = u16::from(kind == AccessKind::Fetch);
            return Ok(Some(Record { bytes: 4, instructions, ..Record::plain(address, kind) }));
        }
        Ok(None)
    }
}

/// A reader of lackey's text. Lines of valgrind's own (`==pid==`) and marks of superblocks
/// (`SB`) are skipped; a modify is a load and a store; a fetch is one instruction; what is
/// larger than 255 bytes is several records.
#[derive(Debug)]
pub struct Lackey<R> {
    lines: TextLines<R>,
    pieces: Pieces,
    ended: bool,
}

impl<R: BufRead> Lackey<R> {
    /// A reader of `input`.
    pub fn new(input: R) -> Lackey<R> {
        Lackey { lines: TextLines::new(input), pieces: Pieces::default(), ended: false }
    }

    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        loop {
            if let Some(record) = self.pieces.take() {
                return Ok(Some(record));
            }
            if !self.lines.advance()? {
                return Ok(None);
            }
            let text = self.lines.text().trim_start();
            let noise = ["==", "--", "SB "].iter().any(|mark| text.starts_with(mark));
            if !text.is_empty() && !noise {
                self.pieces = parse(text).map_err(|what| self.lines.wrong(what))?;
            }
        }
    }
}

/// A line of lackey's, its blanks removed.
fn parse(text: &str) -> Result<Pieces, &'static str> {
    let kind = match text.as_bytes().first() {
        Some(b'I') => AccessKind::Fetch,
        Some(b'L' | b'M') => AccessKind::Load,
        Some(b'S') => AccessKind::Store,
        _ => return Err("begins with none of I, L, S and M; expected for instance ` L 1ffe7e0,8`"),
    };
    let (address, bytes) = text[1..].trim_start().split_once(',').unwrap_or(("", ""));
    let (Some(address), Ok(bytes)) = (hex(address), bytes.trim_end().parse::<u32>()) else {
        return Err(
            "has no address and size after its letter; expected for instance ` L 1ffe7e0,8`",
        );
    };
    if bytes == 0 || bytes > LONGEST_ACCESS {
        return Err("has a size that no access has; expected 1 to 65536");
    }
    let instructions = u16::from(kind == AccessKind::Fetch);
    let record = Record { address: VirtAddr(address), instructions, ..Record::plain(0, kind) };
    let store = Record { kind: AccessKind::Store, ..record };
    Ok(Pieces::new((record, bytes), text.starts_with('M').then_some((store, bytes))))
}

iterate!(BufRead: Din Lackey);
