//! Plain LRU over the ways of a set, all compared and moved at once where the processor that
//! simulates has AVX2. There is no branch that depends on what is found, so that hits and misses in no
//! order cost no more than others. What comes out is that of a list, which a test compares. Loops made
//! for AVX-512 besides were not seen to be faster on a Zen 4, and are left out; no Intel was tried.

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

/// What is done with the ways of a set, the latest used first.
pub trait Lru {
    /// A bit for each way that holds a line.
    fn find<T: EntryWord, const W: usize>(ways: &[T; W], entry: T) -> u32;

    /// Puts an entry first; the ways before `place` move by one, and what was there is gone.
    fn push<T: EntryWord, const W: usize>(ways: &mut [T; W], place: u32, first: T);

    /// Takes what is at `place` out; the ways after it move by one, and nothing comes last.
    #[inline(always)]
    fn take<T: EntryWord, const W: usize>(ways: &mut [T; W], place: u32) -> T {
        let old = *ways;
        for at in 0..W {
            let next = old.get(at + 1).copied().unwrap_or(T::EMPTY);
            ways[at] = if at < place as usize { old[at] } else { next };
        }
        old[place as usize & (W.next_power_of_two() - 1)]
    }

    /// Puts a line first if it is there, as dirty as the entry is at least; whether it is.
    #[inline(always)]
    fn touch<T: EntryWord, const W: usize>(ways: &mut [T; W], entry: T) -> bool {
        let found = Self::find(ways, entry);
        if found != 0 {
            let place = found.trailing_zeros();
            let here = ways[place as usize & (W.next_power_of_two() - 1)];
            Self::push(ways, place, here.soiled(entry));
        }
        found != 0
    }

    /// Looks for a line among the first `count` ways and brings it in if it is not there: whether
    /// it was, and else what left for it (empty on a hit). The others hold nothing, ever.
    #[inline(always)]
    fn access<T: EntryWord, const W: usize>(
        ways: &mut [T; W],
        count: usize,
        entry: T,
    ) -> (bool, T) {
        let found = Self::find(ways, entry);
        let place = (found | 1 << (count - 1)).trailing_zeros();
        let here = ways[place as usize & (W.next_power_of_two() - 1)];
        let (first, left) = match found != 0 {
            true => (here.soiled(entry), T::EMPTY),
            false => (entry, here),
        };
        Self::push(ways, place, first);
        (found != 0, left)
    }
}

/// A loop over accesses to sets that are plain LRU. [`Isa::run`] makes it once for each kind of
/// processor, so that all of it, not only the search, is made for that kind.
pub trait LaneJob {
    /// What comes of it.
    type Output;

    /// The loop. Must be `#[inline(always)]`.
    fn run<L: Lru>(self) -> Self::Output;
}

/// The instructions that this processor has.
#[derive(Clone, Copy, Debug)]
pub struct Isa(Kind);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Isa {
    /// The best that there are.
    pub fn best() -> Isa {
        #[cfg(target_arch = "x86_64")]
        {
            let bits = is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2");
            if bits && is_x86_feature_detected!("avx2") {
                return Isa(Kind::Avx2);
            }
        }
        Isa(Kind::Scalar)
    }

    /// Whether all ways are compared at once: else [`Self::run_wide`] must not be called.
    pub fn is_wide(self) -> bool {
        cfg!(not(target_arch = "x86_64")) || !matches!(self.0, Kind::Scalar)
    }

    /// Runs a job that is large code, and is not made for processors without AVX2 therefore.
    ///
    /// # Panics
    /// Unless it [is wide](Self::is_wide).
    #[inline(always)]
    #[allow(unsafe_code, reason = "measured hot loops: made for wide registers")]
    pub fn run_wide<J: LaneJob>(self, job: J) -> J::Output {
        match self.0 {
            #[cfg(not(target_arch = "x86_64"))]
            Kind::Scalar => job.run::<Scalar>(),
            #[cfg(target_arch = "x86_64")]
            Kind::Scalar => unreachable!("a processor without AVX2"),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` has asked the processor; nothing else makes one.
            Kind::Avx2 => unsafe { x86::avx2(job) },
        }
    }

    /// Runs a job with them.
    #[inline(always)]
    #[allow(unsafe_code, reason = "measured hot loops: made for wide registers")]
    pub fn run<J: LaneJob>(self, job: J) -> J::Output {
        match self.0 {
            Kind::Scalar => job.run::<Scalar>(),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: `best` has asked the processor; nothing else makes one.
            Kind::Avx2 => unsafe { x86::avx2(job) },
        }
    }
}

/// No place in a set.
pub const NOWHERE: u32 = u32::MAX;

/// What is done to one set at a time, made for its number of slots and for this processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetLoops<T> {
    find: unsafe fn(&[T], T) -> u32,
    touch: unsafe fn(&mut [T], T) -> bool,
    push: unsafe fn(&mut [T], u32, T),
}

#[allow(unsafe_code, reason = "measured: chosen once, and called for every level of every miss")]
impl<T: EntryWord> SetLoops<T> {
    /// For sets of so many slots.
    pub(crate) fn of(slots: usize) -> SetLoops<T> {
        match slots {
            1 => SetLoops::fixed::<1>(),
            2 => SetLoops::fixed::<2>(),
            4 => SetLoops::fixed::<4>(),
            8 => SetLoops::fixed::<8>(),
            12 => SetLoops::fixed::<12>(),
            16 => SetLoops::fixed::<16>(),
            20 => SetLoops::fixed::<20>(),
            24 => SetLoops::fixed::<24>(),
            28 => SetLoops::fixed::<28>(),
            32 => SetLoops::fixed::<32>(),
            _ => SetLoops { find: find_many, touch: touch_many, push: push_many },
        }
    }

    fn fixed<const W: usize>() -> SetLoops<T> {
        match Isa::best().0 {
            Kind::Scalar => SetLoops {
                find: find_in::<Scalar, T, W>,
                touch: touch_in::<Scalar, T, W>,
                push: push_in::<Scalar, T, W>,
            },
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => SetLoops {
                find: x86::find_in_avx2::<T, W>,
                touch: x86::touch_in_avx2::<T, W>,
                push: x86::push_in_avx2::<T, W>,
            },
        }
    }

    /// The place of an entry's line; [`NOWHERE`].
    #[inline(always)]
    pub(crate) fn find(&self, slots: &[T], entry: T) -> u32 {
        // SAFETY: `fixed` took what this processor has; nothing else makes one.
        unsafe { (self.find)(slots, entry) }
    }

    /// Puts an entry's line first if it is there; whether it is.
    #[inline(always)]
    pub(crate) fn touch(&self, slots: &mut [T], entry: T) -> bool {
        // SAFETY: as above.
        unsafe { (self.touch)(slots, entry) }
    }

    /// Puts an entry first; those before a place move by one, and what was there is gone.
    #[inline(always)]
    pub(crate) fn push(&self, slots: &mut [T], place: u32, first: T) {
        // SAFETY: as above.
        unsafe { (self.push)(slots, place, first) }
    }
}

#[inline(always)]
fn find_in<L: Lru, T: EntryWord, const W: usize>(slots: &[T], entry: T) -> u32 {
    let Some(slots) = slots.first_chunk::<W>() else { unreachable!("a slice of {W} slots") };
    let found = L::find(slots, entry);
    if found == 0 { NOWHERE } else { found.trailing_zeros() }
}

#[inline(always)]
fn touch_in<L: Lru, T: EntryWord, const W: usize>(slots: &mut [T], entry: T) -> bool {
    let Some(slots) = slots.first_chunk_mut::<W>() else { unreachable!("a slice of {W} slots") };
    L::touch(slots, entry)
}

#[inline(always)]
fn push_in<L: Lru, T: EntryWord, const W: usize>(slots: &mut [T], place: u32, first: T) {
    let Some(slots) = slots.first_chunk_mut::<W>() else { unreachable!("a slice of {W} slots") };
    L::push(slots, place, first);
}

fn find_many<T: EntryWord>(slots: &[T], entry: T) -> u32 {
    let place = slots.iter().position(|here| here.holds(entry));
    place.and_then(|place| u32::try_from(place).ok()).unwrap_or(NOWHERE)
}

fn touch_many<T: EntryWord>(slots: &mut [T], entry: T) -> bool {
    let place = find_many(slots, entry);
    if place != NOWHERE {
        let here = slots[place as usize].soiled(entry);
        push_many(slots, place, here);
    }
    place != NOWHERE
}

fn push_many<T: EntryWord>(slots: &mut [T], place: u32, first: T) {
    slots[..=place as usize].rotate_right(1);
    slots[0] = first;
}

/// One way after the other.
#[derive(Clone, Copy, Debug)]
pub struct Scalar;

impl Lru for Scalar {
    #[inline(always)]
    fn find<T: EntryWord, const W: usize>(ways: &[T; W], entry: T) -> u32 {
        ways.iter().enumerate().fold(0, |bits, (at, way)| bits | u32::from(way.holds(entry)) << at)
    }

    #[inline(always)]
    fn push<T: EntryWord, const W: usize>(ways: &mut [T; W], place: u32, first: T) {
        // No call, as moving a slice would be: sets that come here have one way or two.
        for at in (1..W).rev() {
            ways[at] = if at <= place as usize { ways[at - 1] } else { ways[at] };
        }
        ways[0] = first;
    }
}

/// Words that wide registers know.
#[allow(unsafe_code, reason = "implemented by measured hot loops")]
pub trait Lanes: Sized {
    /// [`Lru::find`].
    ///
    /// # Safety
    /// The processor has AVX2, BMI1 and BMI2.
    #[cfg(target_arch = "x86_64")]
    unsafe fn find_avx2<const W: usize>(ways: &[Self; W], entry: Self) -> u32;

    /// [`Lru::push`].
    ///
    /// # Safety
    /// As above.
    #[cfg(target_arch = "x86_64")]
    unsafe fn push_avx2<const W: usize>(ways: &mut [Self; W], place: u32, first: Self);
}

#[cfg(not(target_arch = "x86_64"))]
impl Lanes for u64 {}
#[cfg(not(target_arch = "x86_64"))]
impl Lanes for u32 {}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "measured hot loops: most of the time goes by here")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{EntryWord, LaneJob, Lanes, Lru, Scalar};

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn avx2<J: LaneJob>(job: J) -> J::Output {
        job.run::<Avx2>()
    }

    /// One use of a set each, for [`super::SetLoops`].
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn find_in_avx2<T: EntryWord, const W: usize>(slots: &[T], entry: T) -> u32 {
        super::find_in::<Avx2, T, W>(slots, entry)
    }

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn touch_in_avx2<T: EntryWord, const W: usize>(slots: &mut [T], entry: T) -> bool {
        super::touch_in::<Avx2, T, W>(slots, entry)
    }

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn push_in_avx2<T: EntryWord, const W: usize>(
        slots: &mut [T],
        place: u32,
        first: T,
    ) {
        super::push_in::<Avx2, T, W>(slots, place, first);
    }

    /// For jobs that [`avx2`] runs.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Avx2;

    impl Lru for Avx2 {
        #[inline(always)]
        fn find<T: EntryWord, const W: usize>(ways: &[T; W], entry: T) -> u32 {
            // SAFETY: `Isa` has asked the processor.
            unsafe { T::find_avx2(ways, entry) }
        }

        #[inline(always)]
        fn push<T: EntryWord, const W: usize>(ways: &mut [T; W], place: u32, first: T) {
            // SAFETY: as above.
            unsafe { T::push_avx2(ways, place, first) }
        }
    }

    /// Words over registers of so many lanes; sets that do not fill these are gone through way by way.
    macro_rules! lanes {
        ($word:ty, $lanes:literal, $find:ident, $push:ident) => {
            impl Lanes for $word {
                #[inline(always)]
                unsafe fn find_avx2<const W: usize>(ways: &[$word; W], entry: $word) -> u32 {
                    if !W.is_multiple_of($lanes) {
                        return Scalar::find(ways, entry);
                    }
                    // SAFETY: as the caller promises.
                    unsafe { $find(ways, entry) }
                }

                #[inline(always)]
                unsafe fn push_avx2<const W: usize>(ways: &mut [$word; W], at: u32, first: $word) {
                    if !W.is_multiple_of($lanes) {
                        return Scalar::push(ways, at, first);
                    }
                    // SAFETY: as the caller promises.
                    unsafe { $push(ways, at, first) }
                }
            }
        };
    }

    lanes!(u64, 4, find_4, push_4);
    lanes!(u32, 8, find_8, push_8);

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn find_4<const W: usize>(ways: &[u64; W], entry: u64) -> u32 {
        const LANES: usize = 4;
        let base: *const __m256i = ways.as_ptr().cast();
        let dirty = _mm256_set1_epi64x(1);
        let key = _mm256_set1_epi64x((entry | 1).cast_signed());
        let mut found = 0_u32;
        for at in 0..W / LANES {
            // SAFETY: registers 0 to W / 4 lie within the W entries, words of any value.
            let here = unsafe { _mm256_loadu_si256(base.add(at)) };
            let same = _mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_or_si256(here, dirty), key));
            found |= _mm256_movemask_pd(same).cast_unsigned() << (at * LANES);
        }
        found
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn push_4<const W: usize>(ways: &mut [u64; W], place: u32, first: u64) {
        const LANES: usize = 4;
        let base: *mut __m256i = ways.as_mut_ptr().cast();
        let limit = _mm256_set1_epi64x(i64::from(place));
        let mut carried = _mm256_set1_epi64x(first.cast_signed());
        for at in 0..W / LANES {
            // SAFETY: as in the search.
            let here = unsafe { _mm256_loadu_si256(base.add(at)) };
            // Each way moves up by one; the last of a register becomes the next one's first.
            let turned = _mm256_permute4x64_epi64::<0b10_01_00_11>(here);
            let moved = _mm256_blend_epi32::<0b11>(turned, carried);
            carried = turned;
            #[allow(clippy::cast_possible_wrap, reason = "at most 32")]
            let n = (at * LANES) as i64;
            let stays = _mm256_cmpgt_epi64(_mm256_setr_epi64x(n, n + 1, n + 2, n + 3), limit);
            // SAFETY: as in the search.
            unsafe { _mm256_storeu_si256(base.add(at), _mm256_blendv_epi8(moved, here, stays)) };
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn find_8<const W: usize>(ways: &[u32; W], entry: u32) -> u32 {
        const LANES: usize = 8;
        let base: *const __m256i = ways.as_ptr().cast();
        let dirty = _mm256_set1_epi32(1);
        let key = _mm256_set1_epi32((entry | 1).cast_signed());
        let mut found = 0_u32;
        for at in 0..W / LANES {
            // SAFETY: registers 0 to W / 8 lie within the W entries, words of any value.
            let here = unsafe { _mm256_loadu_si256(base.add(at)) };
            let same = _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_or_si256(here, dirty), key));
            found |= _mm256_movemask_ps(same).cast_unsigned() << (at * LANES);
        }
        found
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn push_8<const W: usize>(ways: &mut [u32; W], place: u32, first: u32) {
        const LANES: usize = 8;
        let base: *mut __m256i = ways.as_mut_ptr().cast();
        let limit = _mm256_set1_epi32(place.cast_signed());
        let places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let turn = _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6);
        let mut carried = _mm256_set1_epi32(first.cast_signed());
        for at in 0..W / LANES {
            // SAFETY: as in the search.
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
            // SAFETY: as in the search.
            unsafe { _mm256_storeu_si256(base.add(at), _mm256_blendv_epi8(moved, here, stays)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What came of each access to a set of so many ways, and what it holds after all.
    struct Stream<'a, T, const W: usize>(&'a [T], usize);

    impl<T: EntryWord, const W: usize> LaneJob for Stream<'_, T, W> {
        type Output = (Vec<(bool, T)>, [T; W]);

        #[inline(always)]
        fn run<L: Lru>(self) -> Self::Output {
            let mut ways = [T::EMPTY; W];
            (self.0.iter().map(|&entry| L::access(&mut ways, self.1, entry)).collect(), ways)
        }
    }

    /// The same, with a list.
    fn listed<T: EntryWord, const W: usize>(
        stream: &[T],
        count: usize,
    ) -> (Vec<(bool, T)>, [T; W]) {
        let mut list: Vec<T> = vec![T::EMPTY; count];
        let mut access = |entry: T| {
            let place = list.iter().position(|here| here.holds(entry));
            let gone = list.remove(place.unwrap_or(count - 1));
            let hit = place.is_some();
            list.insert(0, if hit { gone.soiled(entry) } else { entry });
            (hit, if hit { T::EMPTY } else { gone })
        };
        let came = stream.iter().map(|&entry| access(entry)).collect();
        list.resize(W, T::EMPTY);
        (came, list.try_into().expect("W ways"))
    }

    fn same<T: EntryWord, const W: usize>(
        stream: &[(u64, bool)],
        fewer: usize,
    ) -> Result<(), TestCaseError> {
        let stream: Vec<T> =
            stream.iter().map(|&(line, dirty)| T::pack(CacheEntry::new(line, dirty))).collect();
        let count = W - fewer.min(W - 1);
        let naive = listed::<T, W>(&stream, count);
        prop_assert_eq!(&naive, &Stream::<T, W>(&stream, count).run::<Scalar>());
        prop_assert_eq!(&naive, &Isa::best().run(Stream::<T, W>(&stream, count)));
        Ok(())
    }

    proptest! {
        #[test]
        fn all_at_once_is_one_after_the_other(
            stream in proptest::collection::vec((0_u64..40, any::<bool>()), 1..400),
            fewer in 0_usize..5,
        ) {
            same::<u64, 1>(&stream, fewer)?;
            same::<u64, 2>(&stream, fewer)?;
            same::<u64, 4>(&stream, fewer)?;
            same::<u64, 8>(&stream, fewer)?;
            same::<u64, 12>(&stream, fewer)?;
            same::<u64, 16>(&stream, fewer)?;
            same::<u64, 20>(&stream, fewer)?;
            same::<u64, 24>(&stream, fewer)?;
            same::<u64, 32>(&stream, fewer)?;
            same::<u32, 2>(&stream, fewer)?;
            same::<u32, 8>(&stream, fewer)?;
            same::<u32, 16>(&stream, fewer)?;
            same::<u32, 24>(&stream, fewer)?;
            same::<u32, 32>(&stream, fewer)?;
        }
    }
}
