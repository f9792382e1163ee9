//! One cache: where a line belongs, how writes are treated, and what was counted.
//!
//! How several caches work together is the business of [`hierarchy`].

pub mod batch;
mod buffer;
mod check;
mod column;
mod counts;
mod departures;
mod exchange;
pub mod hierarchy;
pub mod optimistic;
pub mod order;
mod pair;
mod placing;
mod prefetch;
pub(crate) mod repeats;
mod shard;
pub mod strips;
mod undo;

use huepage_color::IndexFunction;

pub use buffer::BufferSpec;
pub use counts::CacheCounts;
pub use hierarchy::{Departure, Hierarchy, Inclusion, Path};
pub use huepage_model::sets::{self, AccessOutcome, CacheEntry, Replacement, Sets};
pub use prefetch::{NextLineSpec, Prefetch, StrideSpec};

use buffer::WriteBuffer;
use column::Column;
use placing::Placing;
use prefetch::Prefetcher;

/// What a write does to a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WritePolicy {
    /// Fetch the line, keep the write here until the line leaves.
    #[default]
    BackAllocate,
    /// A write that hits stays here until the line leaves; one that misses is passed on and
    /// does not bring the line in.
    BackNoAllocate,
    /// Fetch the line, and pass every write on at once.
    ThroughAllocate,
    /// Pass every write on at once; a write does not bring the line in.
    ThroughNoAllocate,
}

impl WritePolicy {
    /// Whether writes stay until the line leaves.
    pub const fn is_back(self) -> bool {
        matches!(self, WritePolicy::BackAllocate | WritePolicy::BackNoAllocate)
    }

    /// Whether a write brings the line in.
    pub const fn allocates(self) -> bool {
        matches!(self, WritePolicy::BackAllocate | WritePolicy::ThroughAllocate)
    }
}

/// Which address chooses the set; the line is known by its physical address always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IndexBy {
    /// The physical one.
    #[default]
    Physical,
    /// The virtual one: for a cache that no other is above of. A line is in one set at most:
    /// asked for under another virtual address, it moves, as in processors that rule out
    /// synonyms in hardware; that counts as a miss and an invalidation.
    Virtual,
}

/// An access: where it goes, and by which address a set is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    physical: u64,
    index: u64,
}

impl At {
    const fn physical(address: u64) -> At {
        At { physical: address, index: address }
    }
}

/// What came of a look-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Miss,
    Hit,
    /// In the second place looked at: the victim cache, or the other place of a column.
    Second,
}

/// What common caches do not have.
#[derive(Clone, Debug, Default)]
struct Extras {
    column: Option<Column>,
    /// A victim cache: one set.
    victims: Option<Sets>,
    /// Cycles more for a hit in the second place.
    second: u64,
}

/// One cache.
#[derive(Clone, Debug)]
pub struct Cache {
    sets: Sets,
    placing: Placing,
    line_bits: u32,
    write: WritePolicy,
    /// Whether sets are chosen by the virtual address.
    by_virtual: bool,
    extras: Option<Box<Extras>>,
    buffer: Option<Box<WriteBuffer>>,
    prefetcher: Option<Box<Prefetcher>>,
    /// What was counted so far.
    pub counts: CacheCounts,
}

impl Cache {
    /// A cache whose sets are chosen by the address bits above the line, or by the rest of a
    /// division when there are not 2^n sets.
    pub fn new(sets: Sets, line_bits: u32, write: WritePolicy) -> Cache {
        let placing = Placing::whole(sets.sets() as u64);
        Cache::placed(sets, placing, line_bits, write)
    }

    /// A cache with this index function.
    ///
    /// # Panics
    /// If the function does not have as many places as there are sets.
    pub fn indexed(sets: Sets, function: IndexFunction, write: WritePolicy) -> Cache {
        let per_slice = 1_usize << function.set_bits();
        let places = per_slice * function.slices() as usize;
        assert_eq!(places, sets.sets(), "places of the index function");
        let line_bits = function.line_bits();
        Cache::placed(sets, Placing::of(function), line_bits, write)
    }

    fn placed(sets: Sets, placing: Placing, line_bits: u32, write: WritePolicy) -> Cache {
        let (counts, extras, buffer, prefetcher) = (CacheCounts::default(), None, None, None);
        let by_virtual = false;
        Cache { sets, placing, line_bits, write, by_virtual, extras, buffer, prefetcher, counts }
    }

    /// With a victim cache of so many lines beside it (Jouppi, ISCA 1990; Romer 1998, 5.5.3):
    /// what leaves the cache stays there for a while, and what is found there changes places
    /// with what it makes leave. A hit there costs `latency` cycles more.
    ///
    /// # Panics
    /// Without entries, or in a column-associative cache.
    pub fn with_victims(mut self, entries: usize, latency: u64) -> Cache {
        let extras = self.extras.get_or_insert_default();
        assert!(extras.column.is_none(), "a victim cache of a column-associative cache");
        extras.victims = Some(Sets::new(1, entries, Replacement::Lru, 1));
        extras.second = latency;
        self
    }

    /// Column-associative; a hit in the second place costs `latency` cycles more.
    ///
    /// # Panics
    /// If it is not direct-mapped with 2^n sets, at least 2, or has a victim cache.
    pub fn column_associative(mut self, latency: u64) -> Cache {
        let sets = self.sets.sets();
        assert!(self.sets.ways() == 1 && sets.is_power_of_two() && sets > 1, "{sets} sets");
        let extras = self.extras.get_or_insert_default();
        assert!(extras.victims.is_none() && !self.by_virtual, "other extras");
        extras.column = Some(Column::new(sets));
        extras.second = latency;
        self
    }

    /// Indexed by the virtual address. See [`IndexBy::Virtual`].
    ///
    /// # Panics
    /// If it is column-associative.
    pub fn virtually_indexed(mut self) -> Cache {
        let column = self.extras.as_ref().is_some_and(|extras| extras.column.is_some());
        assert!(!column, "a virtual index of a column-associative cache");
        self.by_virtual = true;
        self
    }

    /// With a write buffer towards what is below.
    ///
    /// # Panics
    /// Without entries.
    pub fn with_buffer(mut self, spec: BufferSpec) -> Cache {
        assert!(spec.entries > 0, "a write buffer without entries");
        self.buffer = Some(Box::new(WriteBuffer::new(spec, self.line_bits)));
        self
    }

    /// With prefetchers.
    ///
    /// # Panics
    /// If a stride prefetcher has no table.
    pub fn with_prefetchers(
        mut self,
        next_line: Option<NextLineSpec>,
        stride: Option<StrideSpec>,
    ) -> Cache {
        assert!(stride.is_none_or(|spec| spec.table > 0), "a stride prefetcher without a table");
        self.prefetcher = Some(Box::new(Prefetcher::new(next_line, stride)));
        self
    }

    /// The same, empty, for a memory of so many bytes: smaller memories take less room.
    pub fn for_memory(mut self, bytes: u64) -> Cache {
        self.sets = self.sets.for_lines_below(bytes >> self.line_bits);
        self
    }

    /// Switches a prefetcher on or off; whether there is such a one.
    pub fn switch(&mut self, which: Prefetch, on: bool) -> bool {
        self.prefetcher.as_mut().is_some_and(|prefetcher| prefetcher.switch(which, on))
    }

    /// Whether sets are chosen by the virtual address.
    pub const fn is_virtual(&self) -> bool {
        self.by_virtual
    }

    /// log2 of the bytes of a line.
    pub const fn line_bits(&self) -> u32 {
        self.line_bits
    }

    /// The sets and what is in them; a victim cache is not among them.
    pub const fn contents(&self) -> &Sets {
        &self.sets
    }

    /// Every line, by its first address, and whether it is dirty; a victim cache included.
    pub fn lines(&self) -> impl Iterator<Item = (u64, bool)> + '_ {
        let victims = self.extras.iter().filter_map(|extras| extras.victims.as_ref());
        let all = [&self.sets].into_iter().chain(victims).flat_map(Sets::lines);
        all.map(|(_, entry)| (self.address(entry), entry.is_dirty()))
    }

    /// Writes that wait in its buffer.
    pub fn buffered(&self) -> usize {
        self.buffer.as_ref().map_or(0, |buffer| buffer.len())
    }

    /// Prefetched lines that are here and were not asked for.
    pub fn unused(&self) -> usize {
        self.prefetcher.as_ref().map_or(0, |prefetcher| prefetcher.unused.len())
    }

    /// The set of an address.
    #[inline]
    pub fn set_of(&self, address: u64) -> usize {
        self.placing.set_of(address >> self.line_bits)
    }

    /// Whether it is written back to and has nothing special.
    fn is_simple(&self) -> bool {
        let special = self.by_virtual
            || self.extras.is_some()
            || self.buffer.is_some()
            || self.prefetcher.is_some();
        self.write == WritePolicy::BackAllocate && !special
    }

    /// Looks up and brings in at once: only for a cache without extras.
    #[inline]
    fn access(&mut self, address: u64, dirty: bool) -> AccessOutcome {
        let set = self.set_of(address);
        self.sets.access(set, CacheEntry::new(address >> self.line_bits, dirty))
    }

    /// Looks a line up and notes its use.
    #[inline]
    fn find(&mut self, at: At, dirty: bool) -> Found {
        let set = self.set_of(at.index);
        let entry = CacheEntry::new(at.physical >> self.line_bits, dirty);
        let Some(extras) = &mut self.extras else {
            return if self.sets.touch(set, entry) { Found::Hit } else { Found::Miss };
        };
        if let Some(column) = &mut extras.column {
            return column.find(&mut self.sets, set, entry);
        }
        if self.sets.touch(set, entry) {
            return Found::Hit;
        }
        let Some(mut held) = extras.victims.as_mut().and_then(|v| v.remove(0, entry.line())) else {
            return Found::Miss;
        };
        held.soil(entry);
        let gone = self.sets.fill(set, held);
        self.hold(gone);
        Found::Second
    }

    /// Brings a line in that was looked up and not found; what leaves for it.
    #[inline]
    fn fill(&mut self, at: At, dirty: bool) -> CacheEntry {
        let set = self.set_of(at.index);
        let mut entry = CacheEntry::new(at.physical >> self.line_bits, dirty);
        if self.by_virtual {
            // Under another virtual address the line was in another set.
            let mut others = self.homes(at.physical).filter(|&home| home != set);
            if let Some(synonym) = others.find_map(|home| self.sets.remove(home, entry.line())) {
                entry.soil(synonym);
                self.counts.invalidated += 1;
            }
        }
        let Some(extras) = &mut self.extras else { return self.sets.fill(set, entry) };
        if let Some(column) = &mut extras.column {
            return column.fill(&mut self.sets, set, entry);
        }
        let gone = self.sets.fill(set, entry);
        self.hold(gone)
    }

    /// Gives what left the sets to the victim cache, if there is one; what leaves the cache.
    fn hold(&mut self, gone: CacheEntry) -> CacheEntry {
        match self.extras.as_mut().and_then(|extras| extras.victims.as_mut()) {
            Some(victims) if gone.is_line() => victims.fill(0, gone),
            _ => gone,
        }
    }

    /// The distance of sets in which a line may be under other virtual addresses, if there is more than one.
    fn synonym_step(&self) -> Option<usize> {
        let page = 1 << PAGE_BITS.saturating_sub(self.line_bits);
        (self.by_virtual && page < self.sets.sets()).then_some(page)
    }

    /// Sets where the line of a physical address may be, in the order in which to look.
    fn homes(&self, address: u64) -> Homes {
        let (set, sets) = (self.set_of(address), self.sets.sets());
        if let Some(column) = self.extras.as_ref().and_then(|extras| extras.column.as_ref()) {
            return Homes { set, step: column.other(set).abs_diff(set), left: 2, sets };
        }
        if !self.by_virtual {
            return Homes { set, step: 0, left: 1, sets };
        }
        // Virtual addresses differ from it by whole pages.
        let page = 1 << PAGE_BITS.saturating_sub(self.line_bits);
        let step = if self.placing.mask().is_some() { page.min(sets) } else { 1 };
        Homes { set: set % step, step, left: sets / step, sets }
    }

    /// Whether the line of a physical address is there.
    #[inline]
    pub fn contains(&self, address: u64) -> bool {
        let line = address >> self.line_bits;
        let held = self.extras.as_ref().and_then(|extras| extras.victims.as_ref());
        self.homes(address).any(|set| self.sets.contains(set, line))
            || held.is_some_and(|victims| victims.contains(0, line))
    }

    /// Whether a line is there, by its number.
    #[inline(always)]
    fn has_line(&self, line: u64) -> bool {
        match self.extras.is_none() && !self.by_virtual {
            true => self.sets.contains(self.placing.set_of(line), line),
            false => self.contains(line << self.line_bits),
        }
    }

    /// Takes the line of a physical address out.
    #[inline]
    fn take(&mut self, address: u64) -> Option<CacheEntry> {
        let line = address >> self.line_bits;
        let taken = self.homes(address).find_map(|set| self.sets.remove(set, line));
        let victims = self.extras.as_mut().and_then(|extras| extras.victims.as_mut());
        taken.or_else(|| victims.and_then(|victims| victims.remove(0, line)))
    }

    /// Notes that a prefetched line is asked for; when it arrives, if it is one and this is the
    /// first time.
    fn used(&mut self, address: u64) -> Option<u64> {
        let line = address >> self.line_bits;
        let arrival = self.prefetcher.as_mut().and_then(|p| p.unused.remove(line));
        self.counts.useful += u64::from(arrival.is_some());
        arrival
    }

    /// Notes that a line has left.
    #[inline]
    fn left(&mut self, entry: CacheEntry) {
        let Some(prefetcher) = &mut self.prefetcher else { return };
        self.counts.useless += u64::from(prefetcher.unused.remove(entry.line()).is_some());
    }

    /// The first address of an entry's line.
    const fn address(&self, entry: CacheEntry) -> u64 {
        entry.line() << self.line_bits
    }
}

/// log2 of the bytes within which virtual addresses are physical ones.
const PAGE_BITS: u32 = 12;

/// Sets at equal distances.
struct Homes {
    set: usize,
    step: usize,
    left: usize,
    sets: usize,
}

impl Iterator for Homes {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let set = self.set;
        self.set =
            if set + self.step < self.sets { set + self.step } else { set + self.step - self.sets };
        Some(set)
    }
}
