//! Many accesses level by level instead of one by one: first all of them at the nearest cache,
//! then what it passes on at the next, and so on. Where no level can tell another what to do
//! (plain paths: write-back, nothing inclusive or exclusive), each level sees the same
//! requests in the same order as one by one, so that counts and contents come out the same; a
//! test compares the two. A level's loop is short, knows the sets it will look at well ahead, and
//! has no branch that depends on hit or miss: the processor that simulates need not wait for its
//! own memory, nor guess.

use std::marker::PhantomData;

use super::lanes::{self, Job, Lru};
use super::{Cache, Counts, Entry, Hierarchy, Outcome, Path, Placing};
use crate::record::Kind;

/// How many requests ahead a level's sets are fetched.
const AHEAD: usize = 8;

/// An access of a batch.
#[derive(Clone, Copy, Debug, Default)]
pub struct Touch {
    /// Where, in physical memory.
    pub physical: u64,
    /// Whether it writes; batches hold no fetches.
    pub store: bool,
    /// The answer: the depth of the cache that had it, as [`Hierarchy::access`] gives it.
    pub depth: u8,
}

/// What a level asks of the next.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    address: u64,
    /// Whose; [`WRITE`] for a dirty line that left.
    touch: u32,
}

const WRITE: u32 = u32::MAX;

/// Requests, with room for more.
#[derive(Clone, Debug, Default)]
struct List {
    items: Vec<Request>,
    len: usize,
}

impl List {
    /// Empties it and makes room for `most`.
    fn clear(&mut self, most: usize) {
        self.len = 0;
        if self.items.len() < most {
            self.items.resize(most, Request::default());
        }
    }

    fn all(&self) -> &[Request] {
        &self.items[..self.len]
    }

    /// What is filled.
    fn end(&mut self) -> End<'_> {
        End { items: &mut self.items, len: 0 }
    }
}

/// An empty list that is being filled: what it knows stays in registers.
struct End<'a> {
    items: &'a mut [Request],
    len: usize,
}

impl End<'_> {
    /// Adds one if `wanted`, without a branch.
    #[inline(always)]
    fn put(&mut self, request: Request, wanted: bool) {
        self.items[self.len] = request;
        self.len += usize::from(wanted);
    }
}

/// Room that batches use again and again.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    now: List,
    next: List,
}

impl Hierarchy {
    /// Whether a path can be run level by level.
    pub fn is_staged(&self, path: &Path) -> bool {
        let mut number = Some(path.first);
        let bits = self.caches[path.first].line_bits;
        while let Some(at) = number {
            if self.caches[at].line_bits != bits {
                return false;
            }
            number = self.links[at].next;
        }
        path.fast && path.plain && self.watched.is_none()
    }

    /// Runs a batch on a path that [`Self::is_staged`]; fills in the depths.
    pub fn run_staged(&mut self, path: &Path, touches: &mut [Touch], lists: &mut Lists) {
        lists.now.clear(2 * touches.len());
        let counts = nearest(&mut self.caches[path.first], touches, &mut lists.now);
        self.caches[path.first].counts.add(&counts);
        let (mut number, mut depth) = (self.links[path.first].next, 1);
        while let Some(at) = number {
            lists.next.clear(2 * lists.now.len);
            let counts = level(&mut self.caches[at], depth, touches, lists);
            self.caches[at].counts.add(&counts);
            std::mem::swap(&mut lists.now, &mut lists.next);
            number = self.links[at].next;
            depth += 1;
        }
        for request in lists.now.all() {
            if request.touch == WRITE {
                self.memory_writes += 1;
            } else {
                touches[request.touch as usize].depth = depth;
                self.memory_reads += 1;
            }
        }
    }
}

/// A cache as a loop needs it, taken apart so that nothing has to be loaded again for every
/// access. A type for each kind of cache and processor, so that all of a loop is made for it.
trait Ask {
    /// Whether the line was there, and else what left for it.
    fn ask(&mut self, address: u64, dirty: bool) -> (bool, Entry);
    /// The address of a line.
    fn address(&self, line: Entry) -> u64;
    /// A hint that an address will be asked for soon.
    fn expect(&self, address: u64);
}

/// Sets chosen by plain bits, of `W` ways.
struct Bits<'a, const W: usize> {
    sets: &'a mut [[Entry; W]],
    mask: u64,
    line_bits: u32,
}

impl<const W: usize> Bits<'_, W> {
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "a set number fits, as the sets do")]
    const fn set_of(&self, address: u64) -> usize {
        (address >> self.line_bits & self.mask) as usize
    }
}

/// The same, replaced by plain LRU.
struct Plain<'a, L, const W: usize>(Bits<'a, W>, PhantomData<L>);

impl<L: Lru, const W: usize> Ask for Plain<'_, L, W> {
    #[inline(always)]
    fn ask(&mut self, address: u64, dirty: bool) -> (bool, Entry) {
        let set = self.0.set_of(address);
        L::access(&mut self.0.sets[set], Entry::new(address >> self.0.line_bits, dirty))
    }

    #[inline(always)]
    fn address(&self, line: Entry) -> u64 {
        line.line() << self.0.line_bits
    }

    #[inline(always)]
    fn expect(&self, address: u64) {
        let set = &self.0.sets[self.0.set_of(address)];
        crate::hint::fetch(&set[0]);
        if W > 8 {
            crate::hint::fetch(&set[8]);
        }
        if W > 16 {
            crate::hint::fetch(&set[16]);
        }
    }
}

/// Any other.
struct Any<'a>(&'a mut Cache);

impl Ask for Any<'_> {
    #[inline(always)]
    fn ask(&mut self, address: u64, dirty: bool) -> (bool, Entry) {
        match self.0.access(address, dirty) {
            Outcome::Hit => (true, Entry::EMPTY),
            Outcome::Miss(victim) => (false, victim),
        }
    }

    fn address(&self, line: Entry) -> u64 {
        self.0.address(line)
    }

    fn expect(&self, address: u64) {
        self.0.sets.fetch_ahead(self.0.set_of(address));
    }
}

impl Cache {
    /// Itself taken apart, if it is plain and has `W` ways.
    fn bits<const W: usize>(&mut self) -> Option<Bits<'_, W>> {
        let Placing::Bits { mask } = self.placing else { return None };
        Some(Bits { mask, line_bits: self.line_bits, sets: self.sets.plain::<W>()? })
    }
}

fn nearest(cache: &mut Cache, touches: &mut [Touch], out: &mut List) -> Counts {
    match cache.sets.plain_ways() {
        8 => first::<8>(cache, touches, out),
        4 => first::<4>(cache, touches, out),
        12 => first::<12>(cache, touches, out),
        2 => first::<2>(cache, touches, out),
        _ => first_by(Any(cache), touches, out),
    }
}

/// The loop of the nearest level, over `W` ways.
struct First<'a, const W: usize> {
    cache: Bits<'a, W>,
    touches: &'a mut [Touch],
    out: &'a mut List,
}

impl<const W: usize> Job for First<'_, W> {
    type Output = Counts;

    #[inline(always)]
    fn run<L: Lru>(self) -> Counts {
        first_by(Plain::<L, W>(self.cache, PhantomData), self.touches, self.out)
    }
}

fn first<const W: usize>(cache: &mut Cache, touches: &mut [Touch], out: &mut List) -> Counts {
    match cache.bits::<W>() {
        Some(cache) => lanes::run(W, First { cache, touches, out }),
        None => first_by(Any(cache), touches, out),
    }
}

#[inline(always)]
fn first_by(mut cache: impl Ask, touches: &mut [Touch], out: &mut List) -> Counts {
    let (mut stores, mut misses, mut store_misses, mut gone) = (0, 0, 0, 0);
    let all = touches.len() as u64;
    let mut end = out.end();
    for (touch, place) in touches.iter_mut().zip(0_u32..) {
        touch.depth = 0;
        let (hit, victim) = cache.ask(touch.physical, touch.store);
        stores += u64::from(touch.store);
        misses += u64::from(!hit);
        store_misses += u64::from(touch.store & !hit);
        gone += u64::from(victim.is_dirty());
        end.put(Request { address: touch.physical, touch: place }, !hit);
        end.put(Request { address: cache.address(victim), touch: WRITE }, victim.is_dirty());
    }
    out.len = end.len;
    Counts {
        accesses: by_kind(all, stores),
        misses: by_kind(misses, store_misses),
        writes_out: gone,
        ..Counts::default()
    }
}

/// Counts by kind, of loads and stores together and of stores.
fn by_kind(all: u64, stores: u64) -> [u64; 3] {
    let mut counts = [0; 3];
    counts[Kind::Load as usize] = all - stores;
    counts[Kind::Store as usize] = stores;
    counts
}

fn level(cache: &mut Cache, depth: u8, touches: &mut [Touch], lists: &mut Lists) -> Counts {
    match cache.sets.plain_ways() {
        8 => level_of::<8>(cache, depth, touches, lists),
        16 => level_of::<16>(cache, depth, touches, lists),
        12 => level_of::<12>(cache, depth, touches, lists),
        20 => level_of::<20>(cache, depth, touches, lists),
        24 => level_of::<24>(cache, depth, touches, lists),
        _ => level_by(Any(cache), depth, touches, lists),
    }
}

/// The loop of a further level, over `W` ways.
struct Further<'a, const W: usize> {
    cache: Bits<'a, W>,
    depth: u8,
    touches: &'a mut [Touch],
    lists: &'a mut Lists,
}

impl<const W: usize> Job for Further<'_, W> {
    type Output = Counts;

    #[inline(always)]
    fn run<L: Lru>(self) -> Counts {
        let cache = Plain::<L, W>(self.cache, PhantomData);
        level_by(cache, self.depth, self.touches, self.lists)
    }
}

fn level_of<const W: usize>(
    cache: &mut Cache,
    depth: u8,
    touches: &mut [Touch],
    lists: &mut Lists,
) -> Counts {
    match cache.bits::<W>() {
        Some(cache) => lanes::run(W, Further { cache, depth, touches, lists }),
        None => level_by(Any(cache), depth, touches, lists),
    }
}

#[inline(always)]
fn level_by(mut cache: impl Ask, depth: u8, touches: &mut [Touch], lists: &mut Lists) -> Counts {
    let Lists { now, next } = lists;
    let (mut writes, mut write_misses, mut gone) = (0, 0, 0);
    let (mut stores, mut misses, mut store_misses) = (0, 0, 0);
    let mut scrap = Touch::default();
    let (requests, mut end) = (now.all(), next.end());
    for (at, request) in requests.iter().enumerate() {
        if let Some(ahead) = requests.get(at + AHEAD) {
            cache.expect(ahead.address);
        }
        let write = request.touch == WRITE;
        let (hit, victim) = cache.ask(request.address, write);
        // What is written back belongs to no access any more.
        let touch = touches.get_mut(request.touch as usize).unwrap_or(&mut scrap);
        touch.depth = depth;
        let store = touch.store & !write;
        stores += u64::from(store);
        store_misses += u64::from(store & !hit);
        writes += u64::from(write);
        write_misses += u64::from(write & !hit);
        misses += u64::from(!hit);
        gone += u64::from(victim.is_dirty());
        end.put(*request, !hit & !write);
        end.put(Request { address: cache.address(victim), touch: WRITE }, victim.is_dirty());
    }
    next.len = end.len;
    Counts {
        accesses: by_kind(requests.len() as u64 - writes, stores),
        misses: by_kind(misses - write_misses, store_misses),
        writes_in: writes,
        write_misses,
        writes_out: gone,
        ..Counts::default()
    }
}
