//! Programs that go through files: grep, tar, diff and PostMark. What they do with the bytes is
//! little; what they leave behind in the caches is their point.

use super::Parameters;
use super::file::{File, tree};
use super::file_access::{FileNumber, MAX_FILES};
use super::memory::{Array, Checksum, ProgramMemory, SplitMix, scramble};

/// Bytes per read of grep and tar.
const BUFFER: usize = 32 << 10;

/// What is searched for: a word that no text has and one that each has.
const ABSENT: &[u8] = b"quagmire";
const COMMON: &[u8] = b"cache kernel";

/// Searches a tree of files for a word, `rounds` times. The size is that of the tree.
///
/// Stands for grep (SRM-buffer section 4.3: a randomly generated word, about 100 MiB of files,
/// most below 100 KiB, read in the order of their layout): the bytes are copied from the
/// page cache, looked at once from left to right in skips of up to the word's length (Horspool
/// 1980), and never used again.
pub fn grep<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let files = tree(0, p.size, p.seed);
    let mut buffer = m.array(BUFFER);
    let absent = Needle::new(m, ABSENT);
    let common = Needle::new(m, COMMON);
    let mut sum = Checksum::default();
    for round in 0..p.rounds {
        // Every other search finds something, as searches by people do.
        let needle = if round % 2 == 0 { &absent } else { &common };
        for file in &files {
            sum.add(search(m, file, &mut buffer, needle));
        }
    }
    sum.value()
}

/// Searches one file for a word, `rounds` times. The size is that of the file.
///
/// Stands for grep in section 2 of SRM-buffer: the sources of the Linux kernel in one archive,
/// read from start to end.
pub fn grep_file<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let file = File { id: FileNumber(0), bytes: p.size, seed: p.seed };
    let mut buffer = m.array(BUFFER);
    let needle = Needle::new(m, ABSENT);
    let mut sum = Checksum::default();
    (0..p.rounds).for_each(|_| sum.add(search(m, &file, &mut buffer, &needle)));
    sum.value()
}

/// Bytes per read of the two adverse programs.
const READ: usize = 4096;

/// Reads blocks of a file at random places, as many as it has in each of the `rounds`. The size is
/// that of the file.
///
/// Stands for the first adverse program of SRM-buffer section 4.5: 4,096 bytes at a time from
/// a file of 512 MiB, without a pause; wherever its blocks lie, it takes all of the cache.
pub fn random_reader<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let file = File { id: FileNumber(0), bytes: p.size, seed: p.seed };
    let (mut buffer, mut random) = (m.array(READ), SplitMix::new(p.seed));
    let (blocks, mut sum) = (p.size / READ, Checksum::default());
    for _ in 0..p.rounds * blocks {
        let n = file.read(m, random.below(blocks) * READ, &mut buffer, 0, READ);
        sum.add(u64::from(m.load(&buffer, n - 1)));
    }
    sum.value()
}

/// Reads one file from start to end, `rounds` times, and adds up its bytes. The size is that of
/// the file.
///
/// Stands for the second adverse program of SRM-buffer section 4.5: the file fits the last cache,
/// 3.4 MiB of 4 MiB on the Xeon 5355 and 7.4 MiB of 8 MiB on the Core i7 860, so that from the
/// second scan on it hits, unless its blocks lie in a few colours.
pub fn rescan<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let file = File { id: FileNumber(0), bytes: p.size, seed: p.seed };
    let (mut buffer, mut sum) = (m.array(READ), Checksum::default());
    for _ in 0..p.rounds {
        for offset in (0..p.size).step_by(READ) {
            let n = file.read(m, offset, &mut buffer, 0, READ);
            m.work(u32::try_from(n / 8).unwrap_or(0));
            let bytes = m.load_bytes(&buffer, 0..n);
            sum.add(bytes.iter().map(|&byte| u64::from(byte)).sum());
        }
    }
    sum.value()
}

/// A word, and how far to skip for each byte that its end may meet.
struct Needle {
    word: &'static [u8],
    skips: Array<u8>,
}

impl Needle {
    fn new<M: ProgramMemory>(m: &mut M, word: &'static [u8]) -> Needle {
        let n = u8::try_from(word.len()).unwrap_or(u8::MAX);
        let mut skips = m.filled(256, |_| n);
        for (left, &byte) in (0..n).rev().zip(word) {
            if left > 0 {
                m.store(&mut skips, usize::from(byte), left);
            }
        }
        Needle { word, skips }
    }

    /// How often the word is in the buffer.
    fn count<M: ProgramMemory>(&self, m: &mut M, buffer: &Array<u8>, end: usize) -> u64 {
        let (n, mut at, mut found) = (self.word.len(), 0, 0);
        while at + n <= end {
            m.work(4);
            let last = m.load(buffer, at + n - 1);
            if last == self.word[n - 1] {
                found += u64::from(m.load_bytes(buffer, at..at + n) == self.word);
            }
            at += usize::from(m.load(&self.skips, usize::from(last)));
        }
        found
    }
}

/// How often a word is in a file, words across two reads included.
fn search<M: ProgramMemory>(
    m: &mut M,
    file: &File,
    buffer: &mut Array<u8>,
    needle: &Needle,
) -> u64 {
    let keep = needle.word.len() - 1;
    let (mut found, mut offset) = (0, 0);
    while offset < file.bytes {
        let n = file.read(m, offset, buffer, 0, BUFFER);
        found += needle.count(m, buffer, n);
        // The next read starts early enough for a word that this one cut.
        offset += if offset + n < file.bytes { n - keep } else { n };
    }
    found
}

/// Bytes of a header and of what files are filled up to in an archive.
const TAR_BLOCK: usize = 512;

/// Puts a tree of files into one archive, `rounds` times. The size is that of the tree.
///
/// Stands for tar (SRM-buffer section 4.3: the files of the same directory as grep's): each byte
/// is copied in and out of a buffer of the program, so that old and new files pass through the
/// page cache and neither is used again.
pub fn tar<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let files = tree(0, p.size, p.seed);
    let mut buffer = m.array(BUFFER);
    let mut sum = Checksum::default();
    for round in 0..p.rounds {
        let id = FileNumber(MAX_FILES - 1);
        let mut archive = File::create(m, id, round as u64);
        for file in &files {
            sum.add(append(m, &mut archive, file, &mut buffer));
        }
        sum.add(archive.bytes as u64);
        if round + 1 < p.rounds {
            archive.delete(m);
        }
    }
    sum.value()
}

/// A header, the file's bytes, and zeros up to a whole block.
fn append<M: ProgramMemory>(
    m: &mut M,
    archive: &mut File,
    file: &File,
    buffer: &mut Array<u8>,
) -> u64 {
    let size = file.bytes as u64;
    m.work(300);
    m.store_bytes(buffer, 0..TAR_BLOCK, |header| {
        header.fill(0);
        header[..8].copy_from_slice(&size.to_le_bytes());
    });
    let mut sum = archive.write(m, archive.bytes, buffer, 0..TAR_BLOCK);
    for offset in (0..file.bytes).step_by(BUFFER) {
        let n = file.read(m, offset, buffer, 0, BUFFER);
        let end = n.next_multiple_of(TAR_BLOCK);
        m.store_bytes(buffer, n..end, |rest| rest.fill(0));
        sum = scramble(sum ^ archive.write(m, archive.bytes, buffer, 0..end));
    }
    sum
}

/// For each of some files, in the order of their layout, the number of its directory. Directories have
/// 1, 2, 4 or so on to 64 files, 18 on average: those of PostgreSQL 15's sources and objects have 15, and half
/// of all files are in one of 35 or more.
fn directories(files: usize, seed: u64) -> Vec<u64> {
    let mut random = SplitMix::new(seed);
    let mut of_files = Vec::new();
    for directory in 0.. {
        if of_files.len() >= files {
            break;
        }
        of_files.extend(std::iter::repeat_n(directory, 1 << random.below(7)));
    }
    of_files
}

/// Compares two equal trees in the order of their names, directory by directory, `rounds` times. The size is that of
/// both together.
///
/// Stands for diff (SRM-buffer section 4.4: two identical directories compared byte by byte, in
/// alphabetic order and not in that of the layout): each file is read in the order of
/// its blocks, but the files in another order than grep reads them.
pub fn diff<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let one = tree(0, p.size / 2, p.seed);
    let other = tree(MAX_FILES / 2, p.size / 2, p.seed);
    let mut order: Vec<usize> = (0..one.len()).collect();
    // Names know nothing of the layout, but both keep the files of a directory together.
    let directories = directories(one.len(), p.seed);
    order.sort_by_key(|&file| (scramble(directories[file]), scramble(one[file].seed)));
    let mut buffers = [m.array(4096), m.array(4096)];
    let mut equal = 0;
    for _ in 0..p.rounds {
        for &file in &order {
            equal += compare(m, [&one[file], &other[file]], &mut buffers);
        }
    }
    scramble(equal as u64)
}

/// How many bytes two files have in common before they differ.
fn compare<M: ProgramMemory>(m: &mut M, files: [&File; 2], buffers: &mut [Array<u8>; 2]) -> usize {
    let [one, other] = buffers;
    let mut offset = 0;
    loop {
        let n = files[0].read(m, offset, one, 0, 4096);
        let n = n.min(files[1].read(m, offset, other, 0, 4096));
        let same = common_start(m, one, other, n);
        offset += same;
        if same < n || n == 0 {
            return offset;
        }
    }
}

/// Compares 16 bytes at a time.
fn common_start<M: ProgramMemory>(
    m: &mut M,
    one: &Array<u8>,
    other: &Array<u8>,
    n: usize,
) -> usize {
    for at in (0..n).step_by(16) {
        let end = (at + 16).min(n);
        m.work(3);
        let (a, b) = (m.load_bytes(one, at..end), m.load_bytes(other, at..end));
        if let Some(i) = (0..a.len()).find(|&i| a[i] != b[i]) {
            return at + i;
        }
    }
    n
}

/// Smallest and largest file of PostMark at its start.
const MAIL: (usize, usize) = (128 << 10, 384 << 10);
/// Bytes that PostMark reads or writes at a time.
const MAIL_BLOCK: usize = 4096;

/// Creates a pool of files, then reads, appends, creates and deletes at random: `rounds` times as
/// many transactions as there are files. The size is that of the pool at its start.
///
/// Stands for PostMark (SRM-buffer section 4.3: 1,000 files of 128 to 384 KiB; one file access
/// in five reads a whole file, the others append; half of the file operations create, half
/// delete). Every transaction is one access and one operation. In section 4.5 the pool of
/// 32,000 files is larger than memory, and the page cache's hit ratio is what counts.
pub fn postmark<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let mut mail = Mail::new(m, p);
    let wanted = (p.size / usize::midpoint(MAIL.0, MAIL.1)).max(2);
    (0..wanted).for_each(|_| mail.create(m));
    for _ in 0..p.rounds * wanted {
        mail.access(m);
        // A pool that has run low, or over, is brought back.
        let create = match mail.pool.len() {
            n if n <= wanted / 2 => true,
            n if n >= 2 * wanted || mail.free.is_empty() => false,
            _ => mail.random.below(2) == 0,
        };
        if create { mail.create(m) } else { mail.delete(m) }
    }
    mail.pool.iter().for_each(|file| mail.sum.add(file.bytes as u64));
    mail.sum.value()
}

struct Mail {
    pool: Vec<File>,
    free: Vec<FileNumber>,
    buffer: Array<u8>,
    random: SplitMix,
    sum: Checksum,
}

impl Mail {
    fn new<M: ProgramMemory>(m: &mut M, p: &Parameters) -> Mail {
        let free = (0..MAX_FILES).rev().map(FileNumber).collect();
        let (buffer, random) = (m.array(MAIL_BLOCK), SplitMix::new(p.seed));
        Mail { pool: Vec::new(), free, buffer, random, sum: Checksum::default() }
    }

    fn create<M: ProgramMemory>(&mut self, m: &mut M) {
        let Some(id) = self.free.pop() else { return };
        let bytes = MAIL.0 + self.random.below(MAIL.1 - MAIL.0);
        let file = File::create(m, id, self.random.word());
        self.pool.push(file);
        self.append(m, self.pool.len() - 1, bytes);
    }

    fn delete<M: ProgramMemory>(&mut self, m: &mut M) {
        let at = self.random.below(self.pool.len());
        let file = self.pool.swap_remove(at);
        self.free.push(file.id);
        file.delete(m);
    }

    /// One in five reads a file, the others append to one.
    fn access<M: ProgramMemory>(&mut self, m: &mut M) {
        let at = self.random.below(self.pool.len());
        if self.random.below(5) == 0 {
            self.read(m, at);
        } else {
            let bytes = 1 + self.random.below(MAIL_BLOCK);
            self.append(m, at, bytes);
        }
    }

    fn read<M: ProgramMemory>(&mut self, m: &mut M, at: usize) {
        let file = self.pool[at];
        for offset in (0..file.bytes).step_by(MAIL_BLOCK) {
            let n = file.read(m, offset, &mut self.buffer, 0, MAIL_BLOCK);
            let last = m.load_bytes(&self.buffer, n - 1..n)[0];
            self.sum.add(u64::from(last));
        }
    }

    /// Writes the text that belongs there, block by block.
    fn append<M: ProgramMemory>(&mut self, m: &mut M, at: usize, bytes: usize) {
        let file = &mut self.pool[at];
        let end = file.bytes + bytes;
        while file.bytes < end {
            let n = (end - file.bytes).min(MAIL_BLOCK);
            let text = |out: &mut [u8]| file.text(file.bytes, out);
            m.store_bytes(&mut self.buffer, 0..n, text);
            self.sum.add(file.write(m, file.bytes, &self.buffer, 0..n));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file_access::{FileAccess, FileOp};
    use super::super::memory::{AccessSink, Native, Traced};
    use super::*;
    use crate::record::Record;

    #[test]
    fn a_search_finds_what_is_there() {
        let file = File { id: FileNumber(0), bytes: 300_000, seed: 3 };
        let mut text = vec![0; file.bytes];
        file.text(0, &mut text);
        let mut buffer = Native.array(BUFFER);
        for word in [ABSENT, COMMON] {
            let needle = Needle::new(&mut Native, word);
            let want = text.windows(word.len()).filter(|w| *w == word).count() as u64;
            assert_eq!(search(&mut Native, &file, &mut buffer, &needle), want);
            assert_eq!(want > 0, word == COMMON, "{want}");
        }
    }

    #[test]
    fn files_are_compared_up_to_the_first_difference() {
        let mut buffers = [Native.array(4096), Native.array(4096)];
        let one = File { id: FileNumber(0), bytes: 10_000, seed: 3 };
        let same = File { id: FileNumber(1), ..one };
        assert_eq!(compare(&mut Native, [&one, &same], &mut buffers), 10_000);
        let short = File { bytes: 9000, ..same };
        assert_eq!(compare(&mut Native, [&one, &short], &mut buffers), 9000);
        let other = File { seed: 4, ..same };
        assert!(compare(&mut Native, [&one, &other], &mut buffers) < 64);
    }

    #[test]
    fn an_archive_has_all_bytes_in_whole_blocks() {
        let mut buffer = Native.array(BUFFER);
        let mut archive = File::create(&mut Native, FileNumber(9), 0);
        let file = File { id: FileNumber(0), bytes: 40_000, seed: 1 };
        append(&mut Native, &mut archive, &file, &mut buffer);
        assert_eq!(archive.bytes, 512 + 40_448);
    }

    #[derive(Default)]
    struct Calls(Vec<FileAccess>);

    impl AccessSink for &mut Calls {
        fn access(&mut self, _: Record) {}

        fn file(&mut self, access: FileAccess) {
            self.0.push(access);
        }
    }

    #[test]
    fn mail_keeps_its_proportions_and_its_books() {
        let mut calls = Calls::default();
        let p = Parameters { size: 20 << 20, seed: 1, rounds: 20 };
        postmark(&mut Traced::new(&mut calls), &p);
        let count = |op| calls.0.iter().filter(|call| call.op == op).count();
        let (created, deleted) = (count(FileOp::Create), count(FileOp::Delete));
        // 80 at the start, then 1600 operations.
        assert_eq!(created + deleted, 80 + 1600);
        assert!((700..900).contains(&deleted), "{deleted}");
        let whole = calls.0.iter().filter(|c| c.op == FileOp::Read && c.offset == 0).count();
        assert!((240..400).contains(&whole), "{whole} of 1600 accesses read");
        let mut alive = std::collections::HashSet::new();
        for call in &calls.0 {
            match call.op {
                FileOp::Create => assert!(alive.insert(call.file)),
                FileOp::Delete => assert!(alive.remove(&call.file)),
                _ => assert!(alive.contains(&call.file)),
            }
        }
    }
}
