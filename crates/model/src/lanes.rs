//! Plain LRU over the ways of a set, all compared and moved at once where the processor that
//! simulates has AVX2 or AVX-512. There is no branch that depends on what is found, so that hits
//! and misses in no order cost no more than others. What comes out is that of `lru`,
//! which a test compares.

use std::fmt::Debug;

use crate::entry::CacheEntry;

/// An entry as it is kept.
pub trait EntryWord: Copy + Debug + Eq + Lanes {
    /// No line.
    const EMPTY: Self;
    /// What is kept of an entry whose line is small enough.
    fn pack(entry: CacheEntry) -> Self;
    /// The entry that is kept.
    fn entry(self) -> CacheEntry;
    /// Sets of `W` ways, if they are kept in such words.
    fn of<T: EntryWord, const W: usize>(sets: &mut [[T; W]]) -> Option<&mut [[Self; W]]>;
    /// Sets kept in 64 bits, if these words are.
    fn wide<const W: usize>(sets: &mut [[Self; W]]) -> Option<&mut [[u64; W]]>;
    /// Sets kept in 32 bits, if these words are.
    fn narrow<const W: usize>(sets: &mut [[Self; W]]) -> Option<&mut [[u32; W]]>;

    /// Whether both are the same line, or both are none.
    #[inline(always)]
    fn holds(self, other: Self) -> bool {
        self.entry().holds(other.entry())
    }

    /// Itself, as dirty as `other` is, at least.
    #[inline(always)]
    fn soiled(self, other: Self) -> Self {
        let mut entry = self.entry();
        entry.soil(other.entry());
        Self::pack(entry)
    }
}

impl EntryWord for u64 {
    const EMPTY: u64 = 0;

    #[inline(always)]
    fn pack(entry: CacheEntry) -> u64 {
        entry.bits()
    }

    #[inline(always)]
    fn entry(self) -> CacheEntry {
        CacheEntry::from_bits(self)
    }

    fn of<T: EntryWord, const W: usize>(sets: &mut [[T; W]]) -> Option<&mut [[u64; W]]> {
        T::wide(sets)
    }

    fn wide<const W: usize>(sets: &mut [[u64; W]]) -> Option<&mut [[u64; W]]> {
        Some(sets)
    }

    fn narrow<const W: usize>(_: &mut [[u64; W]]) -> Option<&mut [[u32; W]]> {
        None
    }
}

impl EntryWord for u32 {
    const EMPTY: u32 = 0;

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "only where lines are small")]
    fn pack(entry: CacheEntry) -> u32 {
        debug_assert!(entry.bits() >> u32::BITS == 0, "a line that is too large");
        entry.bits() as u32
    }

    #[inline(always)]
    fn entry(self) -> CacheEntry {
        CacheEntry::from_bits(u64::from(self))
    }

    fn of<T: EntryWord, const W: usize>(sets: &mut [[T; W]]) -> Option<&mut [[u32; W]]> {
        T::narrow(sets)
    }

    fn wide<const W: usize>(_: &mut [[u32; W]]) -> Option<&mut [[u64; W]]> {
        None
    }

    fn narrow<const W: usize>(sets: &mut [[u32; W]]) -> Option<&mut [[u32; W]]> {
        Some(sets)
    }
}

/// What is done with the ways of a set.
pub trait Lru {
    /// Looks for a line and brings it in if it is not there: whether it was, and else what
    /// left for it (empty on a hit).
    fn access<T: EntryWord, const W: usize>(ways: &mut [T; W], entry: T) -> (bool, T);
}

/// A loop over accesses to sets that are plain LRU. [`run`] makes it once for each kind of
/// processor, so that all of it, not only the search, is made for that kind.
pub trait LaneJob {
    /// What comes of it.
    type Output;

    /// The loop. Must be `#[inline(always)]`.
    fn run<L: Lru>(self) -> Self::Output;
}

/// Runs a job over sets of so many ways in the best way that this processor has.
#[allow(unsafe_code, reason = "measured hot loops: made for wide registers, chosen at run time")]
pub fn run<J: LaneJob>(ways: usize, job: J) -> J::Output {
    #[cfg(target_arch = "x86_64")]
    if (4..=32).contains(&ways) && ways.is_multiple_of(4) {
        let bits = is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2");
        let narrow = bits && is_x86_feature_detected!("avx2");
        let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
        if narrow && wide {
            // SAFETY: the processor has what `avx512` was made for.
            return unsafe { x86::avx512(job) };
        }
        if narrow {
            // SAFETY: the processor has what `avx2` was made for.
            return unsafe { x86::avx2(job) };
        }
    }
    _ = ways;
    job.run::<Scalar>()
}

/// Looks for a line among ways in the order of their last use, the latest first, and brings it
/// in if it is not there: whether it was, and else what left for it.
#[inline(always)]
pub(crate) fn lru<T: EntryWord, const W: usize>(ways: &mut [T; W], entry: T) -> (bool, T) {
    let first = ways[0];
    if first.holds(entry) {
        ways[0] = first.soiled(entry);
        return (true, T::EMPTY);
    }
    let mut carried = first;
    for way in &mut ways[1..] {
        let here = std::mem::replace(way, carried);
        if here.holds(entry) {
            ways[0] = here.soiled(entry);
            return (true, T::EMPTY);
        }
        carried = here;
    }
    ways[0] = entry;
    (false, carried)
}

/// One way after the other.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl Lru for Scalar {
    #[inline(always)]
    fn access<T: EntryWord, const W: usize>(ways: &mut [T; W], entry: T) -> (bool, T) {
        lru(ways, entry)
    }
}

/// Words that wide registers know.
#[allow(unsafe_code, reason = "implemented by measured hot loops")]
pub trait Lanes: Sized {
    /// [`Lru::access`].
    ///
    /// # Safety
    /// The processor has AVX2, BMI1 and BMI2; the ways fill registers of 32 bytes.
    #[cfg(target_arch = "x86_64")]
    unsafe fn avx2<const W: usize>(ways: &mut [Self; W], entry: Self) -> (bool, Self);

    /// The same.
    ///
    /// # Safety
    /// The processor has AVX-512 F and VL besides.
    #[cfg(target_arch = "x86_64")]
    unsafe fn avx512<const W: usize>(ways: &mut [Self; W], entry: Self) -> (bool, Self);
}

#[cfg(not(target_arch = "x86_64"))]
impl Lanes for u64 {}
#[cfg(not(target_arch = "x86_64"))]
impl Lanes for u32 {}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "measured hot loops: most of the time goes by here")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{EntryWord, LaneJob, Lanes, Lru};

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn avx2<J: LaneJob>(job: J) -> J::Output {
        job.run::<Avx2>()
    }

    #[target_feature(enable = "avx512f,avx512vl,avx2,bmi1,bmi2")]
    pub(super) fn avx512<J: LaneJob>(job: J) -> J::Output {
        job.run::<Avx512>()
    }

    /// For jobs that [`avx2`] runs.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Avx2;

    impl Lru for Avx2 {
        #[inline(always)]
        fn access<T: EntryWord, const W: usize>(ways: &mut [T; W], entry: T) -> (bool, T) {
            // SAFETY: `run` has asked the processor, and gives no other widths.
            unsafe { T::avx2(ways, entry) }
        }
    }

    /// For jobs that [`avx512`] runs.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Avx512;

    impl Lru for Avx512 {
        #[inline(always)]
        fn access<T: EntryWord, const W: usize>(ways: &mut [T; W], entry: T) -> (bool, T) {
            // SAFETY: as above.
            unsafe { T::avx512(ways, entry) }
        }
    }

    impl Lanes for u64 {
        #[inline(always)]
        unsafe fn avx2<const W: usize>(ways: &mut [u64; W], entry: u64) -> (bool, u64) {
            // SAFETY: as the caller promises.
            unsafe { access_4(ways, entry) }
        }

        #[inline(always)]
        unsafe fn avx512<const W: usize>(ways: &mut [u64; W], entry: u64) -> (bool, u64) {
            if W.is_multiple_of(8) {
                // SAFETY: as the caller promises.
                return unsafe { access_64_by_8(ways, entry) };
            }
            // SAFETY: as the caller promises.
            unsafe { access_64_by_4(ways, entry) }
        }
    }

    impl Lanes for u32 {
        #[inline(always)]
        unsafe fn avx2<const W: usize>(ways: &mut [u32; W], entry: u32) -> (bool, u32) {
            // SAFETY: as the caller promises.
            unsafe { access_8(ways, entry) }
        }

        #[inline(always)]
        unsafe fn avx512<const W: usize>(ways: &mut [u32; W], entry: u32) -> (bool, u32) {
            if W.is_multiple_of(16) {
                // SAFETY: as the caller promises.
                return unsafe { access_32_by_16(ways, entry) };
            }
            // SAFETY: as the caller promises.
            unsafe { access_32_by_8(ways, entry) }
        }
    }

    /// Where the entry was (the last way if nowhere), what stands first now, and what left: by a
    /// bit for each way that holds the entry.
    #[inline(always)]
    fn outcome<T: EntryWord, const W: usize>(ways: &[T; W], entry: T, found: u32) -> (u32, T, T) {
        let place = (found | 1 << (W - 1)).trailing_zeros();
        let gone = ways[place as usize & (W.next_power_of_two() - 1)];
        match found != 0 {
            true => (place, gone.soiled(entry), T::EMPTY),
            false => (place, entry, gone),
        }
    }

    /// An access over registers of AVX-512 with masks.
    macro_rules! by_masks {
        ($name:ident, $word:ty, $signed:ty, $lanes:literal, $register:ty, $load:ident, $store:ident,
         $all:ident, $or:ident, $equal:ident, $shift:ident, $choose:ident) => {
            #[inline]
            #[target_feature(enable = "avx512f,avx512vl,avx2,bmi1,bmi2")]
            fn $name<const W: usize>(ways: &mut [$word; W], entry: $word) -> (bool, $word) {
                debug_assert!(W.is_multiple_of($lanes) && W <= 32, "ways fill registers");
                let base: *mut $register = ways.as_mut_ptr().cast();
                let (dirty, key) = ($all(1), $all((entry | 1).cast_signed()));
                let mut found = 0_u32;
                for at in 0..W / $lanes {
                    // SAFETY: registers 0 to W / lanes lie within the entries, words of any value.
                    let here = unsafe { $load(base.add(at)) };
                    found |= u32::from($equal($or(here, dirty), key)) << (at * $lanes);
                }
                let (place, first, left) = outcome(ways, entry, found);
                // A bit for each way that moves: those up to the place.
                let moves = u32::MAX >> (31 - place);
                let mut carried = $all(first.cast_signed());
                for at in 0..W / $lanes {
                    // SAFETY: as above.
                    let here = unsafe { $load(base.add(at)) };
                    let moved = $shift::<{ $lanes - 1 }>(here, carried);
                    carried = here;
                    #[allow(
                        clippy::cast_possible_truncation,
                        reason = "a register's bits are meant"
                    )]
                    let these = (moves >> (at * $lanes)) as _;
                    // SAFETY: as above.
                    unsafe { $store(base.add(at), $choose(here, these, moved)) };
                }
                (found != 0, left)
            }
        };
    }

    by_masks!(
        access_64_by_8,
        u64,
        i64,
        8,
        __m512i,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_set1_epi64,
        _mm512_or_si512,
        _mm512_cmpeq_epi64_mask,
        _mm512_alignr_epi64,
        _mm512_mask_mov_epi64
    );
    by_masks!(
        access_64_by_4,
        u64,
        i64,
        4,
        __m256i,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_set1_epi64x,
        _mm256_or_si256,
        _mm256_cmpeq_epi64_mask,
        _mm256_alignr_epi64,
        _mm256_mask_mov_epi64
    );
    by_masks!(
        access_32_by_16,
        u32,
        i32,
        16,
        __m512i,
        _mm512_loadu_si512,
        _mm512_storeu_si512,
        _mm512_set1_epi32,
        _mm512_or_si512,
        _mm512_cmpeq_epi32_mask,
        _mm512_alignr_epi32,
        _mm512_mask_mov_epi32
    );
    by_masks!(
        access_32_by_8,
        u32,
        i32,
        8,
        __m256i,
        _mm256_loadu_si256,
        _mm256_storeu_si256,
        _mm256_set1_epi32,
        _mm256_or_si256,
        _mm256_cmpeq_epi32_mask,
        _mm256_alignr_epi32,
        _mm256_mask_mov_epi32
    );

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn access_4<const W: usize>(ways: &mut [u64; W], entry: u64) -> (bool, u64) {
        const LANES: usize = 4;
        let base: *mut __m256i = ways.as_mut_ptr().cast();
        let dirty = _mm256_set1_epi64x(1);
        let key = _mm256_set1_epi64x((entry | 1).cast_signed());
        let mut found = 0_u32;
        for at in 0..W / LANES {
            // SAFETY: registers 0 to W / 4 lie within the W entries, words of any value.
            let here = unsafe { _mm256_loadu_si256(base.add(at)) };
            let same = _mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_or_si256(here, dirty), key));
            found |= _mm256_movemask_pd(same).cast_unsigned() << (at * LANES);
        }
        let (place, first, left) = outcome(ways, entry, found);
        let limit = _mm256_set1_epi64x(i64::from(place));
        let mut carried = _mm256_set1_epi64x(first.cast_signed());
        for at in 0..W / LANES {
            // SAFETY: as above.
            let here = unsafe { _mm256_loadu_si256(base.add(at)) };
            // Each way moves up by one; the last of a register becomes the next one's first.
            let turned = _mm256_permute4x64_epi64::<0b10_01_00_11>(here);
            let moved = _mm256_blend_epi32::<0b11>(turned, carried);
            carried = turned;
            #[allow(clippy::cast_possible_wrap, reason = "at most 32")]
            let n = (at * LANES) as i64;
            let stays = _mm256_cmpgt_epi64(_mm256_setr_epi64x(n, n + 1, n + 2, n + 3), limit);
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(base.add(at), _mm256_blendv_epi8(moved, here, stays)) };
        }
        (found != 0, left)
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn access_8<const W: usize>(ways: &mut [u32; W], entry: u32) -> (bool, u32) {
        const LANES: usize = 8;
        let base: *mut __m256i = ways.as_mut_ptr().cast();
        let dirty = _mm256_set1_epi32(1);
        let key = _mm256_set1_epi32((entry | 1).cast_signed());
        let mut found = 0_u32;
        for at in 0..W / LANES {
            // SAFETY: registers 0 to W / 8 lie within the W entries, words of any value.
            let here = unsafe { _mm256_loadu_si256(base.add(at)) };
            let same = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_or_si256(here, dirty), key));
            found |= _mm256_movemask_ps(same).cast_unsigned() << (at * LANES);
        }
        let (place, first, left) = outcome(ways, entry, found);
        let limit = _mm256_set1_epi32(place.cast_signed());
        let places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let turn = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
        let mut carried = _mm256_set1_epi32(first.cast_signed());
        for at in 0..W / LANES {
            // SAFETY: as above.
            let here = unsafe { _mm256_loadu_si256(base.add(at)) };
            let turned = _mm256_permutevar8x32_epi32(here, turn);
            let moved = _mm256_blend_epi32::<1>(turned, carried);
            carried = turned;
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                reason = "at most 32"
            )]
            let first_place = _mm256_set1_epi32((at * LANES) as i32);
            let stays = _mm256_cmpgt_epi32(_mm256_add_epi32(places, first_place), limit);
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(base.add(at), _mm256_blendv_epi8(moved, here, stays)) };
        }
        (found != 0, left)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What came of each access, and what the set holds after all.
    struct Stream<'a, T, const W: usize>(&'a [T]);

    impl<T: EntryWord, const W: usize> LaneJob for Stream<'_, T, W> {
        type Output = (Vec<(bool, T)>, [T; W]);

        #[inline(always)]
        fn run<L: Lru>(self) -> Self::Output {
            let mut ways = [T::EMPTY; W];
            (self.0.iter().map(|&entry| L::access(&mut ways, entry)).collect(), ways)
        }
    }

    fn same<T: EntryWord, const W: usize>(stream: &[(u64, bool)]) -> Result<(), TestCaseError> {
        let stream: Vec<T> =
            stream.iter().map(|&(line, dirty)| T::pack(CacheEntry::new(line, dirty))).collect();
        let naive = Stream::<T, W>(&stream).run::<Scalar>();
        prop_assert_eq!(&naive, &run(W, Stream::<T, W>(&stream)));
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            #[allow(unsafe_code, reason = "what `run` prefers something else to")]
            // SAFETY: the processor has what it was made for.
            let narrow = unsafe { x86::avx2(Stream::<T, W>(&stream)) };
            prop_assert_eq!(&naive, &narrow);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn all_at_once_is_one_after_the_other(
            stream in proptest::collection::vec((0_u64..40, any::<bool>()), 1..400)
        ) {
            same::<u64, 4>(&stream)?;
            same::<u64, 8>(&stream)?;
            same::<u64, 12>(&stream)?;
            same::<u64, 16>(&stream)?;
            same::<u64, 20>(&stream)?;
            same::<u64, 24>(&stream)?;
            same::<u32, 8>(&stream)?;
            same::<u32, 16>(&stream)?;
            same::<u32, 24>(&stream)?;
            same::<u32, 32>(&stream)?;
        }
    }
}
