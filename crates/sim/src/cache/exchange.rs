//! What an exclusive cache does with a batch of requests: it gives up the lines that it is asked for,
//! and keeps those that have left the level above.

use huepage_model::lanes::{EntryWord, Isa, LaneJob, Lru};

use super::batch::{LOGGED, LineRequest, List, RequestTally};
use super::placing::Placing;
use super::{Cache, CacheCounts, CacheEntry};

/// How many requests ahead sets are fetched.
const AHEAD: usize = 8;

/// Lines that may be in a set of lines, or are not: each sets two bits of one word. Of lines that are not in a
/// set of a thousand, one in two hundred may be.
#[derive(Clone, Debug)]
pub(super) struct Filter(Vec<u64>);

impl Default for Filter {
    fn default() -> Filter {
        Filter(vec![0; Filter::WORDS])
    }
}

impl Filter {
    const WORDS: usize = 512;

    pub(super) fn set_to(&mut self, lines: impl Iterator<Item = u64>) {
        self.0.fill(0);
        lines.for_each(|line| self.add(line));
    }

    fn add(&mut self, line: u64) {
        let (word, bits) = Filter::place(line);
        self.0[word] |= bits;
    }

    #[inline(always)]
    pub(super) fn may_have(&self, line: u64) -> bool {
        let (word, bits) = Filter::place(line);
        self.0[word] & bits == bits
    }

    #[inline(always)]
    const fn place(line: u64) -> (usize, u64) {
        let hash = line.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((hash >> 55) as usize, 1 << (hash >> 49 & 63) | 1 << (hash >> 43 & 63))
    }
}

/// Room for a batch, used again and again.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    /// What the cache is asked for and has to keep, in order.
    pub(super) kept: List,
    /// Lines that it does not take, since another cache above has them.
    pub(super) refused: List,
    /// Dirty lines that it gave up and that have not come back: they are dirty above.
    pub(super) given: List,
    may_be_given: Filter,
}

impl Exchange {
    /// Nothing yet, and room for so many requests.
    pub(super) fn clear(&mut self, most: usize) {
        self.kept.clear(most);
        self.refused.clear(most);
        self.given.clear(most);
        self.may_be_given.set_to(std::iter::empty());
    }

    /// Runs what is to be done. What the cache asks of memory is left in `out`; what that is, what was counted,
    /// and how many lines came back that were not known to be dirty above.
    pub(super) fn run(
        &mut self,
        cache: &mut Cache,
        out: &mut List,
    ) -> (RequestTally, CacheCounts, u64) {
        let (mut counts, soiled) = match cache.sets.plain_slots() {
            1 => self.of_width::<1>(cache, out),
            2 => self.of_width::<2>(cache, out),
            8 => self.of_width::<8>(cache, out),
            16 => self.of_width::<16>(cache, out),
            24 => self.of_width::<24>(cache, out),
            slots => unreachable!("no loop over {slots} slots, but over {LOGGED:?}"),
        };
        let refused = std::mem::take(&mut self.refused);
        let mut passed_by = 0;
        for &request in refused.all() {
            let soiled = self.comes_back(request) && !request.is_dirty_line();
            passed_by += u64::from(soiled);
            counts.writes_in += u64::from(soiled || request.is_dirty_line());
            counts.writes_out += u64::from(soiled || request.is_dirty_line());
        }
        self.refused = refused;
        (RequestTally::of_list(out.all(), counts.writes_out), counts, soiled + passed_by)
    }

    fn of_width<const W: usize>(
        &mut self,
        cache: &mut Cache,
        out: &mut List,
    ) -> (CacheCounts, u64) {
        let (ways, placing) = (cache.sets.ways(), &cache.placing);
        match cache.sets.plain::<u32, W>() {
            Some(sets) => Isa::best().run(Loop { sets, ways, placing, exchange: self, out }),
            None => unreachable!("the slots are of another size"),
        }
    }

    /// Whether a line that leaves the level above was given to it dirty in this batch; it is forgotten.
    #[inline(always)]
    fn comes_back(&mut self, request: LineRequest) -> bool {
        self.may_be_given.may_have(request.line()) && self.take_given(request)
    }

    #[cold]
    fn take_given(&mut self, request: LineRequest) -> bool {
        self.given
            .remove(|given| given.line() == request.line() && given.number() <= request.number())
    }
}

/// The loop over sets of `W` slots.
struct Loop<'a, const W: usize> {
    sets: &'a mut [[u32; W]],
    ways: usize,
    placing: &'a Placing,
    exchange: &'a mut Exchange,
    out: &'a mut List,
}

impl<const W: usize> LaneJob for Loop<'_, W> {
    type Output = (CacheCounts, u64);

    #[inline(always)]
    fn run<L: Lru>(self) -> (CacheCounts, u64) {
        let Loop { sets, ways, placing, exchange, out } = self;
        let (mut counts, mut soiled) = (CacheCounts::default(), 0);
        let kept = std::mem::take(&mut exchange.kept);
        for (at, &request) in kept.all().iter().enumerate() {
            if let Some(ahead) = kept.all().get(at + AHEAD) {
                sets[placing.set_of(ahead.line())]
                    .iter()
                    .step_by(16)
                    .for_each(huepage_model::hint::fetch);
            }
            let set = &mut sets[placing.set_of(request.line())];
            if request.is_access() {
                let found = L::find(set, u32::pack(CacheEntry::new(request.line(), false)));
                counts.note(Some(request.access_kind()), found == 0);
                if found == 0 {
                    out.push(request);
                } else if L::take(set, found.trailing_zeros()).entry().is_dirty() {
                    exchange.given.push(request);
                    exchange.may_be_given.add(request.line());
                }
                continue;
            }
            let known = request.is_dirty_line();
            // One that was written above as well is no longer to be made dirty there.
            let given = exchange.comes_back(request);
            let dirty = known || given;
            soiled += u64::from(given && !known);
            let entry = u32::pack(CacheEntry::new(request.line(), dirty));
            let (hit, gone) = L::access(set, ways, entry);
            counts.writes_in += u64::from(dirty);
            counts.write_misses += u64::from(dirty && !hit);
            counts.writes_out += u64::from(gone.entry().is_dirty());
        }
        exchange.kept = kept;
        (counts, soiled)
    }
}
