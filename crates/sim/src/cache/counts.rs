//! What a cache counts.

use crate::record::AccessKind;

/// Counts by kind with their names.
fn by_kind<S: serde::Serializer>(counts: &[u64; 3], to: S) -> Result<S::Ok, S::Error> {
    let [fetches, loads, stores] = counts;
    to.collect_map([("fetches", fetches), ("loads", loads), ("stores", stores)])
}

/// Accesses of each kind and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CacheCounts {
    /// Requests for lines by kind (fetches, loads, stores), each a hit or a miss: of the
    /// program at the nearest level, of the level above at the others.
    #[serde(serialize_with = "by_kind")]
    pub accesses: [u64; 3],
    /// Of these, misses.
    #[serde(serialize_with = "by_kind")]
    pub misses: [u64; 3],
    /// Hits in the second place: the victim cache, or the other place of a column.
    pub second_hits: u64,
    /// Dirty lines, or single writes, that came from the level above.
    pub writes_in: u64,
    /// Of these, those whose line was not there.
    pub write_misses: u64,
    /// Dirty lines, or single writes, meant for the level below (or its write buffer).
    pub writes_out: u64,
    /// Lines that had to leave since a level below lost them, or since they were asked for
    /// under another virtual address.
    pub invalidated: u64,
    /// Writes that joined one in the write buffer, or left it together with their line.
    pub merged: u64,
    /// Times the processor waited for the write buffer.
    pub stalls: u64,
    /// Cycles of these.
    pub stall_cycles: u64,
    /// Requests of prefetchers above.
    pub prefetch_reads: u64,
    /// Of these, misses.
    pub prefetch_misses: u64,
    /// Lines that its own prefetchers brought.
    pub prefetched: u64,
    /// Of these, lines asked for later.
    pub useful: u64,
    /// Of these, lines that left without having been asked for.
    pub useless: u64,
}

impl CacheCounts {
    /// All accesses.
    pub fn total(&self) -> u64 {
        self.accesses.iter().sum()
    }

    /// All misses.
    pub fn missed(&self) -> u64 {
        self.misses.iter().sum()
    }

    /// Misses per access; 0 without any.
    pub fn miss_rate(&self) -> f64 {
        if self.total() == 0 { 0.0 } else { self.missed() as f64 / self.total() as f64 }
    }

    /// Adds the counts of another cache of the same level.
    pub fn add(&mut self, other: &CacheCounts) {
        for kind in 0..3 {
            self.accesses[kind] += other.accesses[kind];
            self.misses[kind] += other.misses[kind];
        }
        self.second_hits += other.second_hits;
        self.writes_in += other.writes_in;
        self.write_misses += other.write_misses;
        self.writes_out += other.writes_out;
        self.invalidated += other.invalidated;
        self.merged += other.merged;
        self.stalls += other.stalls;
        self.stall_cycles += other.stall_cycles;
        self.prefetch_reads += other.prefetch_reads;
        self.prefetch_misses += other.prefetch_misses;
        self.prefetched += other.prefetched;
        self.useful += other.useful;
        self.useless += other.useless;
    }

    /// A request of a kind, or of a prefetcher above.
    pub(super) fn note(&mut self, kind: Option<AccessKind>, miss: bool) {
        if let Some(kind) = kind {
            self.accesses[kind as usize] += 1;
            self.misses[kind as usize] += u64::from(miss);
        } else {
            self.prefetch_reads += 1;
            self.prefetch_misses += u64::from(miss);
        }
    }
}
