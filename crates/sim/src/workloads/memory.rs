//! How a kernel touches memory: through [`ProgramMemory`], which is nothing at all for a native run
//! and one record per access for a traced one. The data and the arithmetic are the same code in
//! both, so a traced run computes what the native one does.
//!
//! Only data accesses become records; instructions are counted, not fetched. Registers and
//! the stack are taken to stay in the first-level cache, as a compiler keeps scalars there.

use std::ops::Range;

use huepage_color::{PAGE_BYTES, VirtAddr};

use super::file_access::FileAccess;
use crate::record::{AccessKind, Record};

/// Where the first array lies: above what a loader would take for code and static data.
pub const HEAP: u64 = 0x1_0000_0000;
/// Arrays from this size on start on a page, as a large allocation does.
const LARGE: u64 = PAGE_BYTES;
/// Bytes per access of a copy or scan: one vector register of every 64-bit processor.
const VECTOR: usize = 16;

/// A value that arrays hold and that one instruction loads or stores.
pub trait MemoryWord: Copy + Default {
    /// Its size.
    const BYTES: u8;
}

macro_rules! words {
    ($($word:ty: $bytes:literal),*) => {
        $(impl MemoryWord for $word {
            const BYTES: u8 = $bytes;
        })*
    };
}
words!(u8: 1, u16: 2, u32: 4, u64: 8, i32: 4, f32: 4, f64: 8);

/// An array of a program, with the place it has in that program's memory.
#[derive(Clone, Debug)]
pub struct Array<T> {
    cells: Vec<T>,
    base: u64,
}

impl<T: MemoryWord> Array<T> {
    /// How many words it has.
    pub const fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether it has none.
    pub const fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The words, without touching them: for tests, never for a kernel.
    pub fn peek(&self) -> &[T] {
        &self.cells
    }

    /// Where word `i` is; of no meaning in a native run.
    #[inline]
    pub const fn address(&self, i: usize) -> u64 {
        self.base + i as u64 * T::BYTES as u64
    }
}

/// Memory as a program sees it.
pub trait ProgramMemory {
    /// Room for an array; gives its first address, 0 where nobody asks for addresses.
    fn reserve(&mut self, bytes: u64) -> u64;

    /// One access.
    fn touch(&mut self, address: u64, bytes: u8, kind: AccessKind);

    /// Instructions that touch no memory.
    fn work(&mut self, instructions: u32);

    /// A file is created, read, written or deleted; the accesses of the copy follow.
    fn note(&mut self, access: FileAccess);

    /// A new array of zeros, as fresh pages are: nothing is touched.
    fn array<T: MemoryWord>(&mut self, length: usize) -> Array<T> {
        let base = self.reserve(length as u64 * u64::from(T::BYTES));
        Array { cells: vec![T::default(); length], base }
    }

    /// Arrays of zeros that lie one right after the other, as those of a Fortran COMMON block do.
    fn common<T: MemoryWord, const N: usize>(&mut self, length: usize) -> [Array<T>; N] {
        let bytes = length as u64 * u64::from(T::BYTES);
        let base = self.reserve(N as u64 * bytes);
        let mut next = base;
        std::array::from_fn(|_| {
            let array = Array { cells: vec![T::default(); length], base: next };
            next += bytes;
            array
        })
    }

    /// A new array that the program fills from start to end.
    fn filled<T: MemoryWord>(
        &mut self,
        length: usize,
        mut value: impl FnMut(usize) -> T,
    ) -> Array<T> {
        let mut array = self.array(length);
        self.fill(&mut array, &mut value);
        array
    }

    /// Fills an array from start to end.
    fn fill<T: MemoryWord>(&mut self, array: &mut Array<T>, mut value: impl FnMut(usize) -> T) {
        for i in 0..array.len() {
            self.work(2);
            self.store(array, i, value(i));
        }
    }

    /// Reads word `i`.
    #[inline]
    fn load<T: MemoryWord>(&mut self, array: &Array<T>, i: usize) -> T {
        self.touch(array.address(i), T::BYTES, AccessKind::Load);
        array.cells[i]
    }

    /// Writes word `i`.
    #[inline]
    fn store<T: MemoryWord>(&mut self, array: &mut Array<T>, i: usize, value: T) {
        self.touch(array.address(i), T::BYTES, AccessKind::Store);
        array.cells[i] = value;
    }

    /// Reads a word, and writes what becomes of it.
    #[inline]
    fn update<T: MemoryWord>(
        &mut self,
        array: &mut Array<T>,
        i: usize,
        change: impl FnOnce(T) -> T,
    ) {
        let old = self.load(array, i);
        self.store(array, i, change(old));
    }

    /// Touches a stretch of memory in steps of a vector register, ends at their own width.
    #[inline]
    fn sweep(&mut self, address: u64, bytes: usize, kind: AccessKind) {
        for at in (0..bytes).step_by(VECTOR) {
            let step = u8::try_from((bytes - at).min(VECTOR)).unwrap_or(u8::MAX);
            self.touch(address + at as u64, step, kind);
        }
    }

    /// Reads bytes one vector after the other.
    fn load_bytes<'a>(&mut self, array: &'a Array<u8>, range: Range<usize>) -> &'a [u8] {
        self.sweep(array.address(range.start), range.len(), AccessKind::Load);
        &array.cells[range]
    }

    /// Lets `fill` make bytes whose accesses were told otherwise.
    fn overwrite(
        &mut self,
        array: &mut Array<u8>,
        range: Range<usize>,
        fill: impl FnOnce(&mut [u8]),
    ) {
        fill(&mut array.cells[range]);
    }

    /// Lets `fill` make bytes that are then written one vector after the other.
    fn store_bytes(
        &mut self,
        array: &mut Array<u8>,
        range: Range<usize>,
        fill: impl FnOnce(&mut [u8]),
    ) {
        self.sweep(array.address(range.start), range.len(), AccessKind::Store);
        self.overwrite(array, range, fill);
    }
}

/// A native run: memory is memory, and nothing is added to an access.
#[derive(Clone, Copy, Debug, Default)]
pub struct Native;

impl ProgramMemory for Native {
    #[inline(always)]
    fn reserve(&mut self, _: u64) -> u64 {
        0
    }

    #[inline(always)]
    fn touch(&mut self, _: u64, _: u8, _: AccessKind) {}

    #[inline(always)]
    fn work(&mut self, _: u32) {}

    #[inline(always)]
    fn note(&mut self, _: FileAccess) {}

    #[inline(always)]
    fn sweep(&mut self, _: u64, _: usize, _: AccessKind) {}
}

/// A run for its system calls on files alone.
pub(super) struct Calls<'a>(pub(super) &'a mut dyn FnMut(FileAccess));

impl ProgramMemory for Calls<'_> {
    fn reserve(&mut self, _: u64) -> u64 {
        0
    }

    fn touch(&mut self, _: u64, _: u8, _: AccessKind) {}

    fn work(&mut self, _: u32) {}

    fn note(&mut self, access: FileAccess) {
        (self.0)(access);
    }

    fn sweep(&mut self, _: u64, _: usize, _: AccessKind) {}

    fn overwrite(&mut self, _: &mut Array<u8>, _: Range<usize>, _: impl FnOnce(&mut [u8])) {}
}

/// Who takes the accesses of a traced run. Any `FnMut(Record)` does; files are then told
/// by their addresses alone, see [`super::file_access::FileNumber::of`].
pub trait AccessSink {
    /// One access to memory.
    fn access(&mut self, record: Record);

    /// A file is created, read, written or deleted; the accesses of the copy follow.
    fn file(&mut self, access: FileAccess) {
        let _ = access;
    }
}

impl<F: FnMut(Record)> AccessSink for F {
    #[inline]
    fn access(&mut self, record: Record) {
        self(record);
    }
}

impl AccessSink for &mut dyn AccessSink {
    fn access(&mut self, record: Record) {
        (**self).access(record);
    }

    fn file(&mut self, access: FileAccess) {
        (**self).file(access);
    }
}

/// A traced run: every access goes to a sink as it happens, nothing is kept. Arrays lie one
/// after the other from [`HEAP`] on, large ones page aligned.
#[derive(Clone, Debug)]
pub struct Traced<S> {
    sink: S,
    next: u64,
    pending: u32,
}

impl<S: AccessSink> Traced<S> {
    /// A program about to start.
    pub const fn new(sink: S) -> Traced<S> {
        Traced { sink, next: HEAP, pending: 0 }
    }
}

impl<S: AccessSink> ProgramMemory for Traced<S> {
    fn reserve(&mut self, bytes: u64) -> u64 {
        let align = if bytes >= LARGE { PAGE_BYTES } else { VECTOR as u64 };
        let base = self.next.next_multiple_of(align);
        self.next = base + bytes;
        base
    }

    #[inline]
    fn touch(&mut self, address: u64, bytes: u8, kind: AccessKind) {
        // What does not fit into one record is counted with the next.
        let due = self.pending.saturating_add(1);
        let instructions = u16::try_from(due).unwrap_or(u16::MAX);
        self.pending = due - u32::from(instructions);
        let address = VirtAddr(address);
        self.sink.access(Record { address, space: 0, thread: 0, instructions, bytes, kind });
    }

    #[inline]
    fn work(&mut self, instructions: u32) {
        self.pending = self.pending.saturating_add(instructions);
    }

    fn note(&mut self, access: FileAccess) {
        self.sink.file(access);
    }
}

/// Numbers that look random, the same everywhere (splitmix64: Steele, Lea and Flood, OOPSLA
/// 2014).
#[derive(Clone, Copy, Debug)]
pub struct SplitMix(u64);

impl SplitMix {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }

    /// The next 64 bits.
    #[inline]
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        scramble(self.0)
    }

    /// A number below `n`; 0 if `n` is 0.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the product's high half is below n")]
    pub const fn below(&mut self, n: usize) -> usize {
        ((self.word() as u128 * n as u128) >> 64) as usize
    }

    /// A number from 0 to 1, 1 excluded.
    #[inline]
    pub const fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Spreads every bit of a number over all of them.
#[inline]
pub const fn scramble(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Folds results into one number that depends on each and on their order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Checksum(u64);

impl Checksum {
    /// Takes one more number.
    #[inline]
    pub const fn add(&mut self, word: u64) {
        self.0 = scramble(self.0 ^ word).wrapping_add(1);
    }

    /// Of all so far.
    pub const fn value(self) -> u64 {
        self.0
    }

    /// Of an array of numbers, read by the program at its end as one that prints its result.
    pub fn of<M: ProgramMemory>(m: &mut M, array: &Array<f64>) -> u64 {
        let mut sum = Checksum::default();
        for i in 0..array.len() {
            m.work(3);
            sum.add(m.load(array, i).to_bits());
        }
        sum.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_arrays_start_on_pages_and_do_not_overlap() {
        let mut m = Traced::new(|_: Record| {});
        let small: Array<u8> = m.array(5);
        let large: Array<f64> = m.array(1000);
        let next: Array<u32> = m.array(1024);
        assert_eq!(small.address(0), HEAP);
        assert_eq!(large.address(0), HEAP + 4096);
        assert_eq!(next.address(0), HEAP + 4096 + 8192, "8000 bytes take two pages");
    }

    #[test]
    fn every_access_carries_the_work_before_it() {
        let mut seen = Vec::new();
        let mut m = Traced::new(|record: Record| seen.push(record));
        let mut a: Array<u32> = m.array(8);
        m.work(4);
        m.store(&mut a, 3, 7);
        assert_eq!(m.load(&a, 3), 7);
        m.work(100_000);
        m.load(&a, 0);
        m.load(&a, 1);
        let counts: Vec<u16> = seen.iter().map(|r| r.instructions).collect();
        assert_eq!(counts, [5, 1, 65535, 34_467], "100,002 less 65,535 are left");
        assert_eq!(
            (seen[0].address.0, seen[0].bytes, seen[0].kind),
            (HEAP + 12, 4, AccessKind::Store)
        );
    }

    #[test]
    fn a_sweep_covers_all_bytes_once() {
        let mut seen = Vec::new();
        let mut m = Traced::new(|r: Record| seen.push((r.address.0, r.bytes)));
        m.sweep(100, 37, AccessKind::Load);
        assert_eq!(seen, [(100, 16), (116, 16), (132, 5)]);
    }

    #[test]
    fn random_numbers_stay_below_and_reach_all() {
        let mut random = SplitMix::new(1);
        let mut hits = [0_u32; 10];
        (0..10_000).for_each(|_| hits[random.below(10)] += 1);
        assert!(hits.iter().all(|&n| (800..1200).contains(&n)), "{hits:?}");
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
    }
}
