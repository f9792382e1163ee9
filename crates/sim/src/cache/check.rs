//! What must hold of caches at any moment, whatever was asked of them.

use std::collections::HashSet;

use super::{Cache, Hierarchy, Inclusion};

impl Hierarchy {
    /// Whether no line is twice in a cache, every line is in a set it belongs to, no cache
    /// holds more than it can, inclusive levels hold what is above them and exclusive ones
    /// nothing of it, and the counts agree with each other.
    ///
    /// # Errors
    /// In words, what does not hold.
    pub fn check(&self) -> Result<(), String> {
        for (number, cache) in self.caches.iter().enumerate() {
            cache.check().map_err(|what| format!("cache {number} {what}"))?;
            for &upper in &self.links[number].above {
                self.check_pair(upper, number)?;
            }
        }
        Ok(())
    }

    fn check_pair(&self, upper: usize, lower: usize) -> Result<(), String> {
        let mut lines = self.caches[upper].lines().map(|(address, _)| address);
        let below = &self.caches[lower];
        let (bad, what) = match self.links[lower].inclusion {
            Inclusion::None => return Ok(()),
            Inclusion::Inclusive => (lines.find(|&line| !below.contains(line)), "lacks"),
            Inclusion::Exclusive => (lines.find(|&line| below.contains(line)), "also has"),
        };
        match bad {
            Some(line) => Err(format!("cache {lower} {what} {line:#x} of cache {upper} above")),
            None => Ok(()),
        }
    }
}

impl Cache {
    /// What does not hold of this cache alone.
    fn check(&self) -> Result<(), String> {
        let (mut seen, mut capacity) = (HashSet::new(), self.sets.sets() * self.sets.ways());
        let victims = self.extras.as_ref().and_then(|extras| extras.victims.as_ref());
        capacity += victims.map_or(0, |victims| victims.ways());
        if let Some((line, _)) = self.lines().find(|&(line, _)| !seen.insert(line)) {
            return Err(format!("holds {line:#x} twice"));
        }
        if seen.len() > capacity {
            return Err(format!("holds {} lines and has room for {capacity}", seen.len()));
        }
        for (set, entry) in self.sets.lines() {
            if !self.belongs(self.address(entry), set) {
                return Err(format!("holds {:#x} in a foreign set", self.address(entry)));
            }
        }
        self.check_counts(&seen)
    }

    fn belongs(&self, address: u64, set: usize) -> bool {
        let column = self.extras.as_ref().and_then(|extras| extras.column.as_ref());
        match column.filter(|column| column.is_rehashed(set)) {
            Some(column) => self.set_of(address) == column.other(set),
            None if column.is_some() => self.set_of(address) == set,
            None => self.homes(address).any(|home| home == set),
        }
    }

    fn check_counts(&self, lines: &HashSet<u64>) -> Result<(), String> {
        let counts = &self.counts;
        if (0..3).any(|kind| counts.misses[kind] > counts.accesses[kind])
            || counts.write_misses > counts.writes_in
            || counts.prefetch_misses > counts.prefetch_reads
        {
            return Err(format!("missed more often than it was asked: {counts:?}"));
        }
        let Some(prefetcher) = &self.prefetcher else { return Ok(()) };
        if prefetcher.unused.lines().any(|line| !lines.contains(&(line << self.line_bits))) {
            return Err("waits for the use of a line it does not hold".into());
        }
        let known = counts.useful + counts.useless + prefetcher.unused.len() as u64;
        if known != counts.prefetched {
            return Err(format!("prefetched {} lines and knows of {known}", counts.prefetched));
        }
        Ok(())
    }
}
