//! Reading traces: as a stream with flat memory, and from any record on where the input can
//! seek.

use std::io::{self, Read, Seek, SeekFrom};

use super::decoder::{MOST, PayloadDecoder};
use super::index::{self, ENTRY, IndexEntry, TOTALS};
use super::{
    BLOCK_HEAD, BLOCK_RECORDS, BLOCK_TAG, END, HEAD, Header, INDEX_HEAD, INDEX_TAG, LONGEST_HEADER,
    LONGEST_PAYLOAD, MAGIC, TAIL, TraceSummary, VERSION, checksum, size, u32_at, u64_at,
};
use crate::record::Record;
use crate::trace::{Batches, TraceError};

/// A reader of traces. After an error there are no more records; all those before it are
/// good.
pub struct TraceReader<R> {
    input: R,
    header: Header,
    version: u32,
    /// Bytes before the first block.
    head: u64,
    /// Bytes read.
    offset: u64,
    decoder: PayloadDecoder,
    payload: Vec<u8>,
    /// Of the record that the decoder gives next.
    number: u64,
    blocks: u64,
    /// Every block was read from the first on, so that the totals can be checked.
    whole: bool,
    ended: bool,
    index: Option<Vec<IndexEntry>>,
    /// What the iterator has fetched, and how much of it is given.
    batch: Vec<Record>,
    given: usize,
}

/// How a read of a fixed length ended short.
fn cut(offset: u64, what: &str, found: usize, wanted: usize, records: u64) -> TraceError {
    let what = format!(
        "the trace ends inside {what}: {found} of {wanted} bytes are there, so it was cut or is \
         still being written; use the {records} records before, or trace again"
    );
    TraceError::Bytes { offset, what }
}

impl<R: Read> TraceReader<R> {
    /// Reads the header. `input` need not be buffered; it starts where the trace does.
    ///
    /// # Errors
    /// What is no trace of this format and version, or has a damaged header.
    pub fn new(mut input: R) -> Result<TraceReader<R>, TraceError> {
        let (header, version, head) = read_header(&mut input)?;
        let start = |source| TraceError::Read { offset: head, source };
        Ok(TraceReader {
            input,
            header,
            version,
            head,
            offset: head,
            decoder: PayloadDecoder::new().map_err(start)?,
            payload: Vec::new(),
            number: 0,
            blocks: 0,
            whole: true,
            ended: false,
            index: None,
            batch: Vec::new(),
            given: 0,
        })
    }

    /// What the trace is of.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Bytes read so far: for progress.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The number, from 0, of the record that comes next.
    pub const fn record_number(&self) -> u64 {
        self.number - (self.batch.len() - self.given) as u64
    }

    /// Blocks read so far, those skipped by seeking not counted.
    pub const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Replaces `out` by the next few thousand records; false, and none, at the end. The
    /// fast way: a few nanoseconds a record (`examples/trace_speed.rs`).
    ///
    /// # Errors
    /// Damage, or a failure to read; at the offset of the block it is in.
    pub fn next_block(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
        if self.given < self.batch.len() {
            out.clear();
            out.extend_from_slice(&self.batch[self.given..]);
            self.batch.clear();
            self.given = 0;
            return Ok(true);
        }
        while self.decoder.left() == 0 {
            let more = if self.ended { Ok(false) } else { self.load() };
            if !matches!(more, Ok(true)) {
                out.clear();
                return more;
            }
        }
        self.take(out)
    }

    fn take(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
        if let Err(what) = self.decoder.take(MOST, out) {
            self.ended = true;
            return Err(self.damage(self.offset, what));
        }
        self.number += out.len() as u64;
        Ok(true)
    }

    /// Loads the next block; false at the end.
    fn load(&mut self) -> Result<bool, TraceError> {
        // Whatever happens but success is final.
        self.ended = true;
        let at = self.offset;
        let mut head = [0; BLOCK_HEAD];
        self.read_exactly(&mut head[..INDEX_HEAD], at, "the beginning of a block")?;
        match head.first_chunk() {
            Some(&BLOCK_TAG) => {}
            Some(&INDEX_TAG) => return self.end(at, &head[..INDEX_HEAD]).map(|()| false),
            _ => return Err(self.damage(at, "neither a block nor the index begins here")),
        }
        self.read_exactly(&mut head[INDEX_HEAD..], at, "the beginning of a block")?;
        self.load_block(at, &head)?;
        self.ended = false;
        Ok(true)
    }

    fn load_block(&mut self, at: u64, head: &[u8; BLOCK_HEAD]) -> Result<(), TraceError> {
        let (length, records) = block_size(head).map_err(|what| self.damage(at, what))?;
        let mut payload = std::mem::take(&mut self.payload);
        payload.resize(length, 0);
        self.read_exactly(&mut payload, at, "a block")?;
        self.payload = payload;
        if checksum(&[&head[..12], &head[16..], &self.payload]) != u32_at(head, 12) {
            return Err(self.damage(at, "the checksum of this block is wrong"));
        }
        if u64_at(head, 16) != self.number {
            return Err(self.damage(at, "this block does not follow the one before"));
        }
        let loaded = self.decoder.load(&self.payload, records, self.version);
        loaded.map_err(|what| self.damage(at, what))?;
        self.blocks += 1;
        Ok(())
    }

    /// Checks what follows the last block: index, tail, nothing.
    fn end(&mut self, at: u64, head: &[u8]) -> Result<(), TraceError> {
        let count = u32_at(head, 4);
        if self.whole && u64::from(count) != self.blocks {
            return Err(self.damage(at, "the index has another number of blocks than the trace"));
        }
        let totals = self.check_index(at, count, u32_at(head, 8))?;
        if totals.records != self.number {
            return Err(self.damage(at, "the index has another number of records than the trace"));
        }
        let place = self.offset;
        let mut tail = [0; TAIL + 1];
        let found = fill(&mut self.input, &mut tail).map_err(|e| self.failed(e))?;
        self.offset += found as u64;
        match found {
            TAIL if u64_at(&tail, 0) == at && tail[8..TAIL] == END => Ok(()),
            TAIL => Err(self.damage(place, "the tail does not fit the trace")),
            0..TAIL => Err(cut(place, "its tail", found, TAIL, self.number)),
            _ => Err(self.damage(place + TAIL as u64, "more bytes follow the end of the trace")),
        }
    }

    /// Reads entries and totals, an entry at a time: a stream needs no more.
    fn check_index(&mut self, at: u64, count: u32, sum: u32) -> Result<TraceSummary, TraceError> {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&INDEX_TAG);
        hasher.update(&count.to_le_bytes());
        let mut entry = [0; ENTRY];
        for _ in 0..count {
            self.read_exactly(&mut entry, at, "its index")?;
            hasher.update(&entry);
        }
        let mut totals = [0; TOTALS];
        self.read_exactly(&mut totals, at, "its index")?;
        hasher.update(&totals);
        if hasher.finalize() != sum {
            return Err(self.damage(at, "the checksum of the index is wrong"));
        }
        Ok(index::totals(&totals))
    }

    fn read_exactly(&mut self, buffer: &mut [u8], at: u64, what: &str) -> Result<(), TraceError> {
        let found = fill(&mut self.input, buffer).map_err(|e| self.failed(e))?;
        self.offset += found as u64;
        if found == buffer.len() {
            return Ok(());
        }
        let (found, wanted) = (self.offset - at, self.offset - at + (buffer.len() - found) as u64);
        let whole = |n| usize::try_from(n).unwrap_or(usize::MAX);
        Err(cut(at, what, whole(found), whole(wanted), self.number))
    }

    fn failed(&self, source: io::Error) -> TraceError {
        TraceError::Read { offset: self.offset, source }
    }

    fn damage(&self, offset: u64, what: &str) -> TraceError {
        let n = self.number;
        let what = format!("{what}; use the {n} records before it, or trace again");
        TraceError::Bytes { offset, what }
    }
}

impl<R: Read> Iterator for TraceReader<R> {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.given == self.batch.len() {
            let mut batch = std::mem::take(&mut self.batch);
            self.given = 0;
            let more = self.next_block(&mut batch);
            self.batch = batch;
            match more {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        self.given += 1;
        Some(Ok(self.batch[self.given - 1]))
    }
}

impl<R: Read> Batches for TraceReader<R> {
    fn next_batch(&mut self, out: &mut Vec<Record>) -> Result<bool, TraceError> {
        self.next_block(out)
    }
}

impl<R: Read + Seek> TraceReader<R> {
    /// Makes the record of that number, from 0, the next one; the number of all records is
    /// its end. Costs a read of the index the first time, and of half a block on average. A
    /// trace without an index is searched by its blocks' heads, up to where it is cut.
    ///
    /// # Errors
    /// A trace with fewer records, damage on the way, or a failure to read.
    pub fn seek_to(&mut self, record: u64) -> Result<(), TraceError> {
        self.go_to(|entry| entry.first <= record)?;
        while self.number < record {
            if self.decoder.left() == 0 && !self.load()? {
                return Err(self.short(record));
            }
            let left = usize::try_from(record - self.number).unwrap_or(usize::MAX);
            let step = left.min(self.decoder.left()).min(MOST);
            self.batch.clear();
            self.decoder.take(step, &mut self.batch).map_err(|e| self.damage(self.offset, e))?;
            self.number += step as u64;
        }
        self.batch.clear();
        Ok(())
    }

    /// Makes the first record after that many instructions the next one, and gives its
    /// number. Costs as much as [`TraceReader::seek_to`].
    ///
    /// # Errors
    /// As [`TraceReader::seek_to`]; a trace of fewer instructions.
    pub fn skip_instructions(&mut self, instructions: u64) -> Result<u64, TraceError> {
        let mut passed = self.go_to(|entry| entry.instructions <= instructions)?;
        while passed < instructions {
            let Some(record) = self.next() else {
                let what = format!("the trace has only {passed} instructions; skip fewer");
                return Err(TraceError::Short { offset: self.offset, what });
            };
            passed += u64::from(record?.instructions);
        }
        Ok(self.record_number())
    }

    /// What the index says of the whole trace, without reading it; `None` if there is no
    /// sound index. The place in the trace is lost: seek afterwards.
    ///
    /// # Errors
    /// A failure to read.
    pub fn summary(&mut self) -> Result<Option<TraceSummary>, TraceError> {
        let failed = |source| TraceError::Read { offset: 0, source };
        self.whole = false;
        let end = self.input.seek(SeekFrom::End(0)).map_err(failed)?;
        let Some(bytes) = self.index_bytes(end).map_err(failed)? else { return Ok(None) };
        let entries = &bytes[INDEX_HEAD..bytes.len() - TOTALS];
        let blocks = (entries.len() / ENTRY) as u64;
        let totals = index::totals(&bytes[bytes.len() - TOTALS..]);
        self.index = Some(entries.chunks_exact(ENTRY).map(IndexEntry::parse).collect());
        Ok(Some(TraceSummary { blocks, bytes: end, ..totals }))
    }

    /// The index of a trace that ends at `end`, if there is a sound one.
    fn index_bytes(&mut self, end: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(place) = end.checked_sub(TAIL as u64) else { return Ok(None) };
        let mut tail = [0; TAIL];
        self.input.seek(SeekFrom::Start(place))?;
        self.input.read_exact(&mut tail)?;
        let at = u64_at(&tail, 0);
        let shortest = (INDEX_HEAD + TOTALS) as u64;
        if tail[8..] != END || at < self.head || at.checked_add(shortest).is_none_or(|n| n > place)
        {
            return Ok(None);
        }
        self.input.seek(SeekFrom::Start(at))?;
        let mut bytes = Vec::new();
        (&mut self.input).take(place - at).read_to_end(&mut bytes)?;
        let sound = bytes.len() as u64 == place - at
            && bytes[..4] == INDEX_TAG
            && (bytes.len() - INDEX_HEAD - TOTALS).is_multiple_of(ENTRY)
            && checksum(&[&bytes[..8], &bytes[12..]]) == u32_at(&bytes, 8);
        Ok(sound.then_some(bytes))
    }

    /// Goes to the last block that `wanted` accepts, or the first; gives the instructions
    /// before it.
    fn go_to(&mut self, wanted: impl Fn(&IndexEntry) -> bool) -> Result<u64, TraceError> {
        if self.index.is_none() && self.summary()?.is_none() {
            self.index = Some(self.scan()?);
        }
        let entries = self.index.as_deref().unwrap_or_default();
        let after = entries.partition_point(&wanted).max(1);
        let first = IndexEntry { offset: self.head, first: 0, instructions: 0 };
        let entry = entries.get(after - 1).filter(|e| wanted(e)).copied().unwrap_or(first);
        let failed = |source| TraceError::Read { offset: entry.offset, source };
        self.input.seek(SeekFrom::Start(entry.offset)).map_err(failed)?;
        self.restart(entry);
        Ok(entry.instructions)
    }

    fn restart(&mut self, entry: IndexEntry) {
        (self.offset, self.number) = (entry.offset, entry.first);
        (self.blocks, self.whole) = (0, entry.offset == self.head);
        self.ended = false;
        self.batch.clear();
        self.given = 0;
        self.decoder.forget();
    }

    /// Finds the blocks by their heads, up to the first that is none or does not follow.
    fn scan(&mut self) -> Result<Vec<IndexEntry>, TraceError> {
        let mut entries = Vec::new();
        let (mut at, mut number) = (self.head, 0);
        loop {
            let failed = |source| TraceError::Read { offset: at, source };
            self.input.seek(SeekFrom::Start(at)).map_err(failed)?;
            let mut head = [0; BLOCK_HEAD];
            let found = fill(&mut self.input, &mut head).map_err(failed)?;
            let known = found == BLOCK_HEAD && head.starts_with(&BLOCK_TAG);
            let (true, Ok((length, records))) = (known, block_size(&head)) else {
                return Ok(entries);
            };
            let (first, instructions) = (u64_at(&head, 16), u64_at(&head, 24));
            // Checksums need the whole block: reading it will tell what is wrong here.
            if first != number {
                return Ok(entries);
            }
            number += records as u64;
            entries.push(IndexEntry { offset: at, first, instructions });
            at += (BLOCK_HEAD + length) as u64;
        }
    }

    fn short(&self, record: u64) -> TraceError {
        let n = self.number;
        let what = format!("record {record} was asked for, the trace has {n}; ask for an earlier");
        TraceError::Short { offset: self.offset, what }
    }
}

/// Length of the payload and number of records, as a block's head says.
fn block_size(head: &[u8; BLOCK_HEAD]) -> Result<(usize, usize), &'static str> {
    let (length, records) = (size(u32_at(head, 4)), size(u32_at(head, 8)));
    if length > LONGEST_PAYLOAD || records > BLOCK_RECORDS || records == 0 {
        return Err("this block has a size that no block has");
    }
    Ok((length, records))
}

/// Reads until the buffer is full or the input ends.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match input.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(have)
}

/// Reads and checks everything before the first block; gives the version and its length too.
fn read_header(input: &mut impl Read) -> Result<(Header, u32, u64), TraceError> {
    let failed = |source| TraceError::Read { offset: 0, source };
    let wrong = |offset, what: &str| TraceError::Bytes { offset, what: what.to_owned() };
    let mut head = [0; HEAD];
    let found = fill(input, &mut head).map_err(failed)?;
    if found < HEAD || !head.starts_with(&MAGIC) {
        return Err(wrong(0, "this is no huepage trace; import it first, or name its format"));
    }
    let (version, length) = (u32_at(&head, 8), u32_at(&head, 12));
    if !(1..=VERSION).contains(&version) {
        let what = format!(
            "version {version} where 1 to {VERSION} are known; use the huepage that wrote it"
        );
        return Err(wrong(8, &what));
    }
    if length > LONGEST_HEADER {
        return Err(wrong(12, "the header is longer than 16 MiB, which is damage; trace again"));
    }
    let mut json = Vec::new();
    input.take(u64::from(length)).read_to_end(&mut json).map_err(failed)?;
    if json.len() < size(length) {
        return Err(cut(HEAD as u64, "its header", json.len(), size(length), 0));
    }
    if checksum(&[&head[8..16], &json]) != u32_at(&head, 16) {
        return Err(wrong(16, "the checksum of the header is wrong; trace again"));
    }
    let header = serde_json::from_slice(&json).map_err(|e| {
        wrong(HEAD as u64, &format!("the header is not understood: {e}; trace again"))
    })?;
    Ok((header, version, (HEAD + json.len()) as u64))
}
