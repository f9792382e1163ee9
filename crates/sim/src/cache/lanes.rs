//! Plain LRU over the ways of a set, all compared and moved at once where the processor that
//! simulates has AVX2. There is no branch that depends on what is found, so that hits and misses in no order cost
//! no more than others. What comes out is that of `sets::lru`, which a test compares.

use super::Entry;

/// What is done with the ways of a set.
pub(crate) trait Lru {
    /// Looks for a line and brings it in if it is not there: whether it was, and else what
    /// left for it (empty on a hit).
    fn access<const W: usize>(ways: &mut [Entry; W], entry: Entry) -> (bool, Entry);
}

/// A loop over accesses to sets that are plain LRU. [`run`] makes it once for each kind of
/// processor, so that all of it, not only the search, is made for that kind.
pub(crate) trait Job {
    /// What comes of it.
    type Output;

    /// The loop. Must be `#[inline(always)]`.
    fn run<L: Lru>(self) -> Self::Output;
}

/// Runs a job over sets of so many ways in the best way that this processor has.
#[allow(unsafe_code, reason = "measured hot loops: made for wide registers, chosen at run time")]
pub(crate) fn run<J: Job>(ways: usize, job: J) -> J::Output {
    #[cfg(target_arch = "x86_64")]
    if (4..=32).contains(&ways) && ways.is_multiple_of(4) {
        let bits = is_x86_feature_detected!("bmi1") && is_x86_feature_detected!("bmi2");
        let four = bits && is_x86_feature_detected!("avx2");
        if four && ways.is_multiple_of(8) && is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has what `eight` was made for.
            return unsafe { x86::eight(job) };
        }
        if four {
            // SAFETY: the processor has what `four` was made for.
            return unsafe { x86::four(job) };
        }
    }
    _ = ways;
    job.run::<Scalar>()
}

/// One way after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scalar;

impl Lru for Scalar {
    #[inline(always)]
    fn access<const W: usize>(ways: &mut [Entry; W], entry: Entry) -> (bool, Entry) {
        match super::sets::lru(ways, entry) {
            super::Outcome::Hit => (true, Entry::EMPTY),
            super::Outcome::Miss(victim) => (false, victim),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "measured hot loops: most of the time goes by here")]
mod x86 {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm256_blend_epi32, _mm256_blendv_epi8, _mm256_castsi256_pd,
        _mm256_cmpeq_epi64, _mm256_cmpgt_epi64, _mm256_loadu_si256, _mm256_movemask_pd,
        _mm256_or_si256, _mm256_permute4x64_epi64, _mm256_set1_epi64x, _mm256_setr_epi64x,
        _mm256_storeu_si256, _mm512_alignr_epi64, _mm512_cmpeq_epi64_mask, _mm512_loadu_si512,
        _mm512_mask_mov_epi64, _mm512_or_si512, _mm512_set1_epi64, _mm512_storeu_si512,
    };

    use super::super::Entry;
    use super::{Job, Lru};

    #[target_feature(enable = "avx2,bmi1,bmi2")]
    pub(super) fn four<J: Job>(job: J) -> J::Output {
        job.run::<Four>()
    }

    #[target_feature(enable = "avx512f,avx2,bmi1,bmi2")]
    pub(super) fn eight<J: Job>(job: J) -> J::Output {
        job.run::<Eight>()
    }

    /// Four ways in a register. For jobs that [`four`] runs.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Four;

    impl Lru for Four {
        #[inline(always)]
        fn access<const W: usize>(ways: &mut [Entry; W], entry: Entry) -> (bool, Entry) {
            // SAFETY: `run` has asked the processor, and gives no other widths.
            unsafe { access_four(ways, entry) }
        }
    }

    /// Eight ways in a register. For jobs that [`eight`] runs.
    #[derive(Clone, Copy, Debug)]
    pub(super) struct Eight;

    impl Lru for Eight {
        #[inline(always)]
        fn access<const W: usize>(ways: &mut [Entry; W], entry: Entry) -> (bool, Entry) {
            // SAFETY: `run` has asked the processor, and gives no other widths.
            unsafe { access_eight(ways, entry) }
        }
    }

    /// What stands first now, and what left: by a bit for each way that holds the entry.
    #[inline(always)]
    fn outcome<const W: usize>(ways: &[Entry; W], entry: Entry, found: u32) -> (u32, u64, Entry) {
        let place = (found | 1 << (W - 1)).trailing_zeros();
        let gone = ways[place as usize & (W.next_power_of_two() - 1)];
        match found != 0 {
            true => (place, gone.bits() | entry.bits() & 1, Entry::EMPTY),
            false => (place, entry.bits(), gone),
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn access_four<const W: usize>(ways: &mut [Entry; W], entry: Entry) -> (bool, Entry) {
        const LANES: usize = 4;
        let base: *mut __m256i = ways.as_mut_ptr().cast();
        let dirty = _mm256_set1_epi64x(1);
        let key = _mm256_set1_epi64x((entry.bits() | 1).cast_signed());
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
    #[target_feature(enable = "avx512f,avx2,bmi1,bmi2")]
    fn access_eight<const W: usize>(ways: &mut [Entry; W], entry: Entry) -> (bool, Entry) {
        const LANES: usize = 8;
        let base: *mut __m512i = ways.as_mut_ptr().cast();
        let dirty = _mm512_set1_epi64(1);
        let key = _mm512_set1_epi64((entry.bits() | 1).cast_signed());
        let mut found = 0_u32;
        for at in 0..W / LANES {
            // SAFETY: registers 0 to W / 8 lie within the W entries, words of any value.
            let here = unsafe { _mm512_loadu_si512(base.add(at)) };
            let same = _mm512_cmpeq_epi64_mask(_mm512_or_si512(here, dirty), key);
            found |= u32::from(same) << (at * LANES);
        }
        let (place, first, left) = outcome(ways, entry, found);
        // A bit for each way that moves: those up to the place.
        let moves = u32::MAX >> (31 - place);
        let mut carried = _mm512_set1_epi64(first.cast_signed());
        for at in 0..W / LANES {
            // SAFETY: as above.
            let here = unsafe { _mm512_loadu_si512(base.add(at)) };
            let moved = _mm512_alignr_epi64::<7>(here, carried);
            carried = here;
            #[allow(clippy::cast_possible_truncation, reason = "eight bits are meant")]
            let these = (moves >> (at * LANES)) as u8;
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(base.add(at), _mm512_mask_mov_epi64(here, these, moved)) };
        }
        (found != 0, left)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What came of each access, and what the set holds after all.
    struct Stream<'a, const W: usize>(&'a [(u64, bool)]);

    impl<const W: usize> Job for Stream<'_, W> {
        type Output = (Vec<(bool, Entry)>, [Entry; W]);

        #[inline(always)]
        fn run<L: Lru>(self) -> Self::Output {
            let mut ways = [Entry::EMPTY; W];
            let entries = self.0.iter().map(|&(line, dirty)| Entry::new(line, dirty));
            (entries.map(|entry| L::access(&mut ways, entry)).collect(), ways)
        }
    }

    fn same<const W: usize>(stream: &[(u64, bool)]) -> Result<(), TestCaseError> {
        let naive = Stream::<W>(stream).run::<Scalar>();
        prop_assert_eq!(&naive, &run(W, Stream::<W>(stream)));
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("bmi2") {
            #[allow(unsafe_code, reason = "what `run` prefers something else to")]
            // SAFETY: the processor has what it was made for.
            let narrow = unsafe { x86::four(Stream::<W>(stream)) };
            prop_assert_eq!(&naive, &narrow);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn all_at_once_is_one_after_the_other(
            stream in proptest::collection::vec((0_u64..40, any::<bool>()), 1..400)
        ) {
            same::<4>(&stream)?;
            same::<8>(&stream)?;
            same::<12>(&stream)?;
            same::<16>(&stream)?;
            same::<20>(&stream)?;
            same::<24>(&stream)?;
        }
    }
}
