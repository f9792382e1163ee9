//! Files as programs use them: made of text that follows from a seed, read and written through
//! a buffer. Nothing is on a disk and nothing is kept: a file's bytes are worked out when they
//! are read.
//!
//! A read is what `read(2)` does with a cached block: the kernel loads from the page of the
//! page cache and stores into the program's buffer. The page cache's side has addresses of its
//! own, from which file and offset can be told again ([`FileNumber::of`]), so that plain records
//! say all that a model of the page cache needs; who wants to know of creations and
//! deletions takes [`FileAccess`] through the sink.

use std::ops::Range;

use super::file_access::{FileAccess, FileNumber, FileOp, MAX_FILES, ROOM_BITS};
use super::memory::{Array, Checksum, ProgramMemory, SplitMix, scramble};
use crate::record::AccessKind;

/// Instructions from the program's call to the first byte copied and back.
const CALL: u32 = 600;

/// A file of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// Its number.
    pub id: FileNumber,
    /// Its length.
    pub bytes: usize,
    /// What its text follows from: files of equal seeds are equal.
    pub seed: u64,
}

/// Bytes of text that follow from one random state.
const BLOCK: usize = 64;

const WORDS: [&[u8]; 32] = [
    b"the ",
    b"of ",
    b"page ",
    b"to ",
    b"a ",
    b"cache ",
    b"in ",
    b"is ",
    b"and ",
    b"frame ",
    b"for ",
    b"with ",
    b"color ",
    b"on ",
    b"miss ",
    b"that ",
    b"set ",
    b"by ",
    b"line ",
    b"as ",
    b"memory ",
    b"are ",
    b"it ",
    b"kernel ",
    b"this ",
    b"table ",
    b"from ",
    b"buffer ",
    b"be ",
    b"or ",
    b"entry ",
    b"process ",
];

impl File {
    /// Its text from an offset on.
    pub fn text(&self, offset: usize, out: &mut [u8]) {
        let mut block = [0; BLOCK];
        let mut at = 0;
        while at < out.len() {
            let (number, skip) = ((offset + at) / BLOCK, (offset + at) % BLOCK);
            let n = (BLOCK - skip).min(out.len() - at);
            text_block(self.seed, number as u64, &mut block);
            out[at..at + n].copy_from_slice(&block[skip..skip + n]);
            at += n;
        }
    }

    /// The program reads into its buffer from `at` on, up to `bytes` bytes; gives how many.
    pub fn read<M: ProgramMemory>(
        &self,
        m: &mut M,
        offset: usize,
        buffer: &mut Array<u8>,
        at: usize,
        bytes: usize,
    ) -> usize {
        let bytes = bytes.min(self.bytes.saturating_sub(offset)).min(buffer.len() - at);
        self.call(m, FileOp::Read, offset..offset + bytes);
        let (from, to) = (self.id.address(offset as u64).0, buffer.address(at));
        copy(m, from, to, bytes);
        m.overwrite(buffer, at..at + bytes, |out| self.text(offset, out));
        bytes
    }

    /// The program writes from its buffer; the file grows to what was written. Gives a checksum
    /// of the bytes.
    pub fn write<M: ProgramMemory>(
        &mut self,
        m: &mut M,
        offset: usize,
        buffer: &Array<u8>,
        from: Range<usize>,
    ) -> u64 {
        let end = offset + from.len();
        self.call(m, FileOp::Write, offset..end);
        copy(m, buffer.address(from.start), self.id.address(offset as u64).0, from.len());
        self.bytes = self.bytes.max(end);
        let mut sum = Checksum::default();
        buffer.peek()[from].chunks(8).for_each(|chunk| {
            sum.add(chunk.iter().fold(0, |word, &byte| word << 8 | u64::from(byte)));
        });
        sum.value()
    }

    /// It comes into being, empty.
    pub fn create<M: ProgramMemory>(m: &mut M, id: FileNumber, seed: u64) -> File {
        let file = File { id, bytes: 0, seed };
        file.call(m, FileOp::Create, 0..0);
        file
    }

    /// It is gone.
    pub fn delete<M: ProgramMemory>(self, m: &mut M) {
        self.call(m, FileOp::Delete, 0..0);
    }

    fn call<M: ProgramMemory>(&self, m: &mut M, op: FileOp, range: Range<usize>) {
        assert!(range.end <= 1 << ROOM_BITS, "a file of more than 1 GiB; use several");
        let (offset, bytes) = (range.start as u64, range.len() as u64);
        m.work(CALL);
        m.note(FileAccess { file: self.id, op, offset, bytes });
    }
}

/// The kernel's copy: vector by vector, a load and a store each.
fn copy<M: ProgramMemory>(m: &mut M, from: u64, to: u64, bytes: usize) {
    for at in (0..bytes).step_by(16) {
        let n = (bytes - at).min(16);
        m.sweep(from + at as u64, n, AccessKind::Load);
        m.sweep(to + at as u64, n, AccessKind::Store);
    }
}

/// The words at a fixed width, so that a copy is one instruction, and their lengths.
const PADDED: [([u8; 16], usize); 32] = {
    let (mut all, mut i) = ([([0; 16], 0); 32], 0);
    while i < WORDS.len() {
        all[i].1 = WORDS[i].len();
        let mut k = 0;
        while k < WORDS[i].len() {
            all[i].0[k] = WORDS[i][k];
            k += 1;
        }
        i += 1;
    }
    all
};

/// One line of words, some more frequent than others.
fn text_block(seed: u64, number: u64, block: &mut [u8; BLOCK]) {
    let mut random = SplitMix::new(scramble(seed) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut line = [0; BLOCK + 16];
    let (mut at, mut bits) = (0, 0_u64);
    while at < BLOCK {
        if bits < 1 << 10 {
            bits = random.word();
        }
        let pick = (bits & 31).min(bits >> 5 & 31) as usize & 31;
        bits >>= 10;
        let (word, length) = &PADDED[pick];
        line[at..at + 16].copy_from_slice(word);
        at += length;
    }
    block.copy_from_slice(&line[..BLOCK]);
    block[BLOCK - 1] = b'\n';
}

/// The files of a source tree: `bytes` in all, each of 1 to 100 KiB, small ones more frequent,
/// numbered from `first` on in the order of their layout. Equal seeds give equal trees.
pub fn tree(first: u32, bytes: usize, seed: u64) -> Vec<File> {
    let mut random = SplitMix::new(seed);
    let (mut files, mut left, mut id) = (Vec::new(), bytes, first);
    while left > 0 {
        let largest = random.below(100).min(random.below(100)) + 1;
        let size = (largest << 10 | random.below(1024)).min(left);
        files.push(File { id: FileNumber(id), bytes: size, seed: random.word() });
        left -= size;
        id += 1;
    }
    assert!(id <= MAX_FILES, "a tree of more than {MAX_FILES} files");
    files
}

#[cfg(test)]
mod tests {
    use super::super::memory::{AccessSink, Native, Traced};
    use super::*;
    use crate::record::Record;

    #[test]
    fn text_is_the_same_however_it_is_read() {
        let file = File { id: FileNumber(3), bytes: 1000, seed: 9 };
        let mut whole = vec![0; 1000];
        file.text(0, &mut whole);
        for (offset, n) in [(0, 1), (63, 2), (64, 64), (130, 500), (999, 1)] {
            let mut part = vec![0; n];
            file.text(offset, &mut part);
            assert_eq!(part, whole[offset..offset + n]);
        }
        assert_eq!(whole.iter().filter(|&&b| b == b'\n').count(), 15);
    }

    #[derive(Default)]
    struct Log(Vec<FileAccess>, Vec<Record>);

    impl AccessSink for &mut Log {
        fn access(&mut self, record: Record) {
            self.1.push(record);
        }

        fn file(&mut self, access: FileAccess) {
            self.0.push(access);
        }
    }

    #[test]
    fn a_read_names_the_file_and_copies_its_bytes() {
        let file = File { id: FileNumber(2), bytes: 100, seed: 1 };
        let mut log = Log::default();
        let mut m = Traced::new(&mut log);
        let mut buffer = m.array(4096);
        assert_eq!(file.read(&mut m, 64, &mut buffer, 0, 4096), 36);
        let read = FileAccess { file: FileNumber(2), op: FileOp::Read, offset: 64, bytes: 36 };
        assert_eq!(log.0, [read]);
        let from: Vec<_> = log.1.iter().filter_map(|r| FileNumber::of(r.address)).collect();
        assert_eq!(from, [(FileNumber(2), 64), (FileNumber(2), 80), (FileNumber(2), 96)]);
        assert_eq!(log.1.iter().map(|r| u32::from(r.bytes)).sum::<u32>(), 72);
        assert!(log.1[0].instructions > 600, "the system call costs instructions");
    }

    #[test]
    fn a_tree_has_its_size_and_small_files() {
        let files = tree(5, 10 << 20, 1);
        assert_eq!(files.iter().map(|f| f.bytes).sum::<usize>(), 10 << 20);
        assert!(files.iter().all(|f| f.bytes <= 101 << 10));
        assert_eq!(files[0].id, FileNumber(5));
    }

    #[test]
    fn what_is_written_is_summed_and_the_file_grows() {
        let mut m = Native;
        let buffer = m.filled(100, |i| u8::try_from(i).unwrap());
        let mut file = File::create(&mut m, FileNumber(0), 1);
        let one = file.write(&mut m, 0, &buffer, 0..100);
        assert_ne!(one, file.write(&mut m, 100, &buffer, 1..100));
        assert_eq!(file.bytes, 199);
    }
}
