//! Raw addresses: eight bytes each, little-endian; the top bit is set for stores.

use std::io::Read;

use super::TraceError;
use super::lines::iterate;
use crate::record::{AccessKind, Record};

/// Bytes read at once.
const CHUNK: usize = 1 << 16;
const STORE: u64 = 1 << 63;

/// A reader of raw addresses. Each is 8 bytes wide and one instruction.
#[derive(Debug)]
pub struct Raw<R> {
    input: R,
    /// The bit that marks a store, or none.
    store: u64,
    buffer: Vec<u8>,
    at: usize,
    offset: u64,
    ended: bool,
}

impl<R: Read> Raw<R> {
    /// A reader of `input`, which need not be buffered.
    pub fn new(input: R) -> Raw<R> {
        Raw { input, store: STORE, buffer: Vec::new(), at: 0, offset: 0, ended: false }
    }

    /// A reader of addresses that use the top bit themselves: all are loads.
    pub fn loads(input: R) -> Raw<R> {
        Raw { store: 0, ..Raw::new(input) }
    }

    /// Fills the buffer; false at the end.
    fn fill(&mut self) -> Result<bool, TraceError> {
        self.offset += self.at as u64;
        self.buffer.clear();
        self.at = 0;
        let offset = self.offset;
        let mut chunk = (&mut self.input).take(CHUNK as u64);
        chunk
            .read_to_end(&mut self.buffer)
            .map_err(|source| TraceError::Read { offset, source })?;
        Ok(!self.buffer.is_empty())
    }

    fn next_record(&mut self) -> Result<Option<Record>, TraceError> {
        if self.at == self.buffer.len() && !self.fill()? {
            return Ok(None);
        }
        let Some((word, _)) = self.buffer[self.at..].split_first_chunk::<8>() else {
            let offset = self.offset + self.at as u64;
            let left = self.buffer.len() - self.at;
            let what = format!(
                "{left} bytes are left at the end where an address has 8; the trace was cut: use \
                 the records before, or fetch it again"
            );
            return Err(TraceError::Bytes { offset, what });
        };
        self.at += 8;
        let word = u64::from_le_bytes(*word);
        let kind = if word & self.store == 0 { AccessKind::Load } else { AccessKind::Store };
        Ok(Some(Record::plain(word & !self.store, kind)))
    }
}

iterate!(Read: Raw);
