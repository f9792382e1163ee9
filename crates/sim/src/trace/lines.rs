//! What readers of text have in common: lines, one at a time, and their numbers.

use std::io::{BufRead, Read};

use super::TraceError;

/// A longer line is no line of a trace; it is not read to its end.
const LONGEST: u64 = 1024;

/// Lines of a text, one at a time.
#[derive(Debug)]
pub struct TextLines<R> {
    input: R,
    line: Vec<u8>,
    number: u64,
    offset: u64,
}

impl<R: BufRead> TextLines<R> {
    pub const fn new(input: R) -> TextLines<R> {
        TextLines { input, line: Vec::new(), number: 0, offset: 0 }
    }

    /// Reads the next line; false at the end.
    pub fn advance(&mut self) -> Result<bool, TraceError> {
        self.line.clear();
        let offset = self.offset;
        let mut part = (&mut self.input).take(LONGEST);
        let n = part
            .read_until(b'\n', &mut self.line)
            .map_err(|source| TraceError::Read { offset, source })?;
        self.offset += n as u64;
        self.number += 1;
        if n as u64 == LONGEST && self.line.last() != Some(&b'\n') {
            return Err(self.wrong("is longer than 1024 bytes; is this a text trace?"));
        }
        Ok(n > 0)
    }

    /// The line without what ends it.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.line).unwrap_or("\u{fffd}").trim_end()
    }

    /// The error that names the line.
    pub fn wrong(&self, what: &str) -> TraceError {
        let start: String = self.text().chars().take(40).collect();
        TraceError::Line { line: self.number, what: format!("`{}` {what}", start.escape_debug()) }
    }
}

/// A hexadecimal number, with or without 0x before it.
pub fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

/// Makes readers of such an input iterators that end at their first error. A reader has `next_record` and a flag
/// `ended`.
macro_rules! iterate {
    ($input:path: $($name:ident)*) => {$(
        impl<R: $input> Iterator for $name<R> {
            type Item = Result<Record, TraceError>;

            fn next(&mut self) -> Option<Self::Item> {
                if self.ended {
                    return None;
                }
                let next = self.next_record().transpose();
                self.ended = !matches!(next, Some(Ok(_)));
                next
            }
        }
    )*};
}

pub(super) use iterate;
