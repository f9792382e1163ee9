//! Writing traces, a block at a time.

use std::io::{self, Write};

use super::block::Encoder;
use super::index::{self, IndexEntry};
use super::pool::{EncoderPool, Piece};
use super::{
    BLOCK_HEAD, BLOCK_RECORDS, BLOCK_TAG, END, Header, LONGEST_HEADER, MAGIC, TraceSummary,
    VERSION, checksum, word,
};
use crate::record::Record;

/// A writer of traces. It holds one block and 24 bytes for every block before; what it has
/// written is usable even if it never finishes, up to the last whole block.
pub struct Writer<W: Write> {
    out: W,
    encoder: Encoder,
    most: usize,
    packed: Vec<u8>,
    index: Vec<IndexEntry>,
    /// Of all records taken; `bytes` are those written.
    summary: TraceSummary,
    /// Of the records before the block that is being filled.
    before: (u64, u64),
    /// Who encodes instead of `encoder`.
    pool: Option<EncoderPool>,
}

impl<W: Write> Writer<W> {
    /// Writes the header. `out` need not be buffered.
    ///
    /// # Errors
    /// Those of `out`, and a header of more than 16 MiB.
    pub fn new(out: W, header: &Header) -> io::Result<Writer<W>> {
        Writer::with_block(out, header, BLOCK_RECORDS)
    }

    /// A writer of blocks of at most `records`, up to [`BLOCK_RECORDS`]: smaller blocks lose
    /// less to damage and compress worse.
    ///
    /// # Errors
    /// As for [`Writer::new`].
    pub fn with_block(mut out: W, header: &Header, records: usize) -> io::Result<Writer<W>> {
        let head = head(header)?;
        out.write_all(&head)?;
        Ok(Writer {
            out,
            encoder: Encoder::new()?,
            most: records.clamp(1, BLOCK_RECORDS),
            packed: Vec::new(),
            index: Vec::new(),
            summary: TraceSummary { bytes: head.len() as u64, ..TraceSummary::default() },
            before: (0, 0),
            pool: None,
        })
    }

    /// A writer whose blocks are encoded by that many threads, at least one. It holds two
    /// blocks more for each, and what [`Writer::summary`] says of blocks and bytes lags behind.
    ///
    /// # Errors
    /// As for [`Writer::new`]; when the system has no threads.
    pub fn with_threads(out: W, header: &Header, threads: usize) -> io::Result<Writer<W>> {
        let pool = Some(EncoderPool::new(threads)?);
        Ok(Writer { pool, ..Writer::new(out, header)? })
    }

    /// Takes a record; writes when a block is full.
    ///
    /// # Errors
    /// Those of the output.
    #[inline]
    pub fn push(&mut self, record: &Record) -> io::Result<()> {
        if let Some(pool) = &mut self.pool {
            self.summary.add(record);
            return if pool.push(record) { self.hand_over() } else { Ok(()) };
        }
        if !self.encoder.push(record) {
            self.flush()?;
            self.encoder.push(record);
        }
        self.summary.add(record);
        if self.encoder.len() < self.most { Ok(()) } else { self.flush() }
    }

    #[cold]
    fn hand_over(&mut self) -> io::Result<()> {
        let pieces = self.pool.as_mut().map_or_else(|| Ok(Vec::new()), EncoderPool::hand_over)?;
        pieces.into_iter().try_for_each(|piece| self.write(piece).map(drop))
    }

    /// What was taken so far; its bytes are those written so far.
    pub const fn summary(&self) -> &TraceSummary {
        &self.summary
    }

    /// Writes what was taken as a block, even if it is not full.
    ///
    /// # Errors
    /// Those of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some(pieces) = self.pool.as_mut().map_or(Ok(None), EncoderPool::collect)? {
            pieces.into_iter().try_for_each(|piece| self.write(piece).map(drop))?;
        }
        let records = self.encoder.len();
        if records == 0 {
            return self.out.flush();
        }
        let mut packed = std::mem::take(&mut self.packed);
        packed.clear();
        packed.resize(BLOCK_HEAD, 0);
        self.encoder.finish(&mut packed)?;
        // A record that did not fit the dictionary is counted only after this flush.
        let instructions = self.summary.instructions - self.before.1;
        self.packed = self.write(Piece { packed, records, instructions })?;
        Ok(())
    }

    /// Writes a block; gives its bytes back to be used again.
    fn write(&mut self, piece: Piece) -> io::Result<Vec<u8>> {
        let Piece { mut packed, records, instructions } = piece;
        let (first, before) = self.before;
        seal(&mut packed, records, first, before);
        self.out.write_all(&packed)?;
        self.index.push(IndexEntry { offset: self.summary.bytes, first, instructions: before });
        self.summary.bytes += packed.len() as u64;
        self.summary.blocks += 1;
        self.before = (first + records as u64, before + instructions);
        Ok(packed)
    }

    /// Writes the last block and the index.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<TraceSummary> {
        self.flush()?;
        let index = index::write(&self.index, &self.summary);
        self.out.write_all(&index)?;
        self.out.write_all(&self.summary.bytes.to_le_bytes())?;
        self.out.write_all(&END)?;
        self.out.flush()?;
        let bytes = self.summary.bytes + index.len() as u64 + super::TAIL as u64;
        Ok(TraceSummary { bytes, ..self.summary })
    }
}

/// Fills the head of a block whose payload is complete.
fn seal(block: &mut [u8], records: usize, first: u64, instructions: u64) {
    let length = word(block.len() - BLOCK_HEAD);
    block[0..4].copy_from_slice(&BLOCK_TAG);
    block[4..8].copy_from_slice(&length.to_le_bytes());
    block[8..12].copy_from_slice(&word(records).to_le_bytes());
    block[16..24].copy_from_slice(&first.to_le_bytes());
    block[24..32].copy_from_slice(&instructions.to_le_bytes());
    let sum = checksum(&[&block[..12], &block[16..]]);
    block[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Everything before the first block.
fn head(header: &Header) -> io::Result<Vec<u8>> {
    let json = serde_json::to_vec(header)?;
    let length = word(json.len());
    if length > LONGEST_HEADER {
        let what = format!("the header has {length} bytes; shorten the arguments to 16 MiB");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let (version, length) = (VERSION.to_le_bytes(), length.to_le_bytes());
    let sum = checksum(&[&version, &length, &json]).to_le_bytes();
    Ok([&MAGIC[..], &version, &length, &sum, &json].concat())
}
