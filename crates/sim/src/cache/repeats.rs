//! Accesses that change nothing: a line that is asked for again before any other of its set is a hit, and
//! stays the newest of its set. Most accesses of programs are such. They are left out before the caches are
//! asked, which takes a fifth of the time, and counted as the hits that they are.

use super::batch::{
    COUNT_BITS, KIND_BITS, LineRequest, List, Lists, RequestTally, STORE, by_width,
};
use super::placing::Placing;
use super::{Hierarchy, Path};

/// Groups of sets whose newest lines are known: as many as the usual nearest cache has sets.
const GROUPS: usize = 64;

/// The bits of lines by which sets of a cache differ. None is right for every cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SetBits(u64);

impl SetBits {
    pub(super) fn of(placing: &Placing) -> SetBits {
        SetBits(placing.mask().unwrap_or(0))
    }

    /// Tells `put` of each request, and whether a cache has to be asked that replaces by plain LRU; gives
    /// what it need not be asked. It is all that the cache is asked in that time.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "one of few groups")]
    pub(crate) fn sift(
        self,
        asked: &[LineRequest],
        mut put: impl FnMut(usize, LineRequest, bool),
    ) -> RequestTally {
        let groups = self.0 as usize % GROUPS;
        let (mut newest, mut hits) = ([u64::MAX; GROUPS], 0_u64);
        for (at, &request) in asked.iter().enumerate() {
            let newest = &mut newest[request.line() as usize & groups];
            let other = (*newest ^ request.0) >> KIND_BITS != 0;
            // A store makes a clean line dirty.
            let wanted = other | (request.0 & !*newest & STORE != 0);
            *newest = request.0 | if other { 0 } else { *newest };
            put(at, request, wanted);
            hits += u64::from(!wanted) << (COUNT_BITS * request.kind());
        }
        RequestTally::of(hits)
    }
}

/// Leaves in `kept` what a cache that replaces by plain LRU has to be asked, numbered from `numbers` on if
/// they have to be told apart; gives the hits that are left out.
pub(super) fn leave_out_repeats(
    asked: &[LineRequest],
    sets: SetBits,
    numbers: Option<usize>,
    kept: &mut List,
) -> RequestTally {
    kept.clear(asked.len());
    let mut end = kept.end();
    let hits = sets.sift(asked, |at, request, wanted| {
        end.put(numbers.map_or(request, |first| request.numbered(first + at)), wanted);
    });
    end.finish();
    hits
}

/// Leaves all in `kept`, numbered from `first` on.
pub(super) fn number_all(asked: &[LineRequest], first: usize, kept: &mut List) {
    kept.clear(asked.len());
    let mut end = kept.end();
    (first..).zip(asked).for_each(|(number, request)| end.put(request.numbered(number), true));
    end.finish();
}

impl Hierarchy {
    /// Runs a batch through the nearest cache of a path that [`Self::is_staged`]; what it asks
    /// of the next is left in `lists`.
    pub fn run_nearest(
        &mut self,
        path: &Path,
        batch: &[LineRequest],
        lists: &mut Lists,
    ) -> RequestTally {
        let cache = &mut self.caches[path.first];
        if cache.sets.plain_slots() == 0 {
            return self.run_nearest_sifted(path, batch, lists);
        }
        let mut kept = std::mem::take(&mut lists.next);
        let hits = leave_out_repeats(batch, SetBits::of(&cache.placing), None, &mut kept);
        hits.count_hits(&mut cache.counts);
        let asked = self.run_nearest_sifted(path, kept.all(), lists);
        lists.next = kept;
        asked
    }

    /// The same for a batch from which repeats have been left out.
    pub(crate) fn run_nearest_sifted(
        &mut self,
        path: &Path,
        batch: &[LineRequest],
        lists: &mut Lists,
    ) -> RequestTally {
        lists.now.clear(2 * batch.len());
        by_width(&mut self.caches[path.first], batch, STORE, &mut lists.now)
    }

    /// The bits by which sets of the nearest cache differ.
    pub(crate) fn nearest_sets(&self, path: &Path) -> SetBits {
        SetBits::of(&self.caches[path.first].placing)
    }

    /// Counts hits in the nearest cache, which was not asked.
    pub(crate) fn add_nearest_hits(&mut self, path: &Path, hits: RequestTally) {
        hits.count_hits(&mut self.caches[path.first].counts);
    }
}
