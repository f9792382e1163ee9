//! Many accesses level by level instead of one by one: first all of them at the nearest cache,
//! then what it passes on at the next, and so on. Where no level can tell another what to do
//! (plain paths: write-back, nothing inclusive or exclusive), each level sees the same
//! requests in the same order as one by one, so that counts and contents come out the same; a
//! test compares the two. A level's loop is short, and the sets it will look at are known well
//! ahead, so that the processor that simulates need not wait for its own memory.

use super::{Cache, Counts, Entry, Hierarchy, Outcome, Path};
use crate::record::Kind;

/// How many requests ahead a level's sets are fetched.
const AHEAD: usize = 8;

/// An access of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Touch {
    /// Where, in physical memory.
    pub physical: u64,
    /// What it does.
    pub kind: Kind,
    /// The answer: the depth of the cache that had it, as [`Hierarchy::access`] gives it.
    pub depth: u8,
}

/// What a level asks of the next.
#[derive(Clone, Copy, Debug)]
struct Request {
    address: u64,
    /// Whose; [`WRITE`] for a dirty line that left.
    touch: u32,
}

const WRITE: u32 = u32::MAX;

/// Room that batches use again and again.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    now: Vec<Request>,
    next: Vec<Request>,
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
        lists.now.clear();
        nearest(&mut self.caches[path.first], touches, &mut lists.now);
        let (mut number, mut depth) = (self.links[path.first].next, 1);
        while let Some(at) = number {
            lists.next.clear();
            let cache = &mut self.caches[at];
            match cache.sets.plain_ways() {
                8 => level::<8>(cache, depth, touches, lists),
                16 => level::<16>(cache, depth, touches, lists),
                12 => level::<12>(cache, depth, touches, lists),
                _ => level::<0>(cache, depth, touches, lists),
            }
            std::mem::swap(&mut lists.now, &mut lists.next);
            number = self.links[at].next;
            depth += 1;
        }
        for request in &lists.now {
            if request.touch == WRITE {
                self.memory_writes += 1;
            } else {
                touches[request.touch as usize].depth = depth;
                self.memory_reads += 1;
            }
        }
    }
}

fn nearest(cache: &mut Cache, touches: &mut [Touch], out: &mut Vec<Request>) {
    match cache.sets.plain_ways() {
        8 => first::<8>(cache, touches, out),
        4 => first::<4>(cache, touches, out),
        12 => first::<12>(cache, touches, out),
        2 => first::<2>(cache, touches, out),
        _ => first::<0>(cache, touches, out),
    }
}

/// One access at a cache whose sets have `W` ways and are plain LRU; 0: any.
#[inline(always)]
fn access<const W: usize>(cache: &mut Cache, address: u64, dirty: bool) -> Outcome {
    let entry = Entry::new(address >> cache.line_bits, dirty);
    let set = cache.set_of(address);
    if W == 0 { cache.sets.access(set, entry) } else { cache.sets.lru::<W>(set, entry) }
}

fn first<const W: usize>(cache: &mut Cache, touches: &mut [Touch], out: &mut Vec<Request>) {
    let (mut accesses, mut misses) = ([0; 3], [0; 3]);
    for (touch, place) in touches.iter_mut().zip(0_u32..) {
        let kind = touch.kind as usize;
        accesses[kind] += 1;
        touch.depth = 0;
        let Outcome::Miss(victim) = access::<W>(cache, touch.physical, touch.kind == Kind::Store)
        else {
            continue;
        };
        misses[kind] += 1;
        out.push(Request { address: touch.physical, touch: place });
        if victim.is_dirty() {
            cache.counts.writes_out += 1;
            out.push(Request { address: cache.address(victim), touch: WRITE });
        }
    }
    cache.counts.add(&Counts { accesses, misses, ..Counts::default() });
}

fn level<const W: usize>(cache: &mut Cache, depth: u8, touches: &mut [Touch], lists: &mut Lists) {
    let (mut accesses, mut misses) = ([0; 3], [0; 3]);
    let (mut writes, mut write_misses, mut out) = (0, 0, 0);
    for (at, request) in lists.now.iter().enumerate() {
        if let Some(ahead) = lists.now.get(at + AHEAD) {
            cache.sets.fetch_ahead(cache.set_of(ahead.address));
        }
        let write = request.touch == WRITE;
        let outcome = access::<W>(cache, request.address, write);
        let missed = u64::from(outcome != Outcome::Hit);
        if write {
            writes += 1;
            write_misses += missed;
        } else {
            let touch = &mut touches[request.touch as usize];
            accesses[touch.kind as usize] += 1;
            misses[touch.kind as usize] += missed;
            touch.depth = depth;
            if missed > 0 {
                lists.next.push(*request);
            }
        }
        if let Outcome::Miss(victim) = outcome
            && victim.is_dirty()
        {
            out += 1;
            lists.next.push(Request { address: cache.address(victim), touch: WRITE });
        }
    }
    cache.counts.add(&Counts {
        accesses,
        misses,
        writes_in: writes,
        write_misses,
        writes_out: out,
        ..Counts::default()
    });
}
