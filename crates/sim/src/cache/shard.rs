//! A hierarchy in parts: sets whose numbers differ in the lowest bits of lines have nothing to do with each
//! other, on any level. So each part holds the lines of some of these bits, knows them by the rest, and can
//! run on a processor of its own. Put together again the parts are what one hierarchy would be.

use huepage_model::sets::{CacheEntry, Replacement, Sets};

use super::{Cache, CacheCounts, Hierarchy};

impl Hierarchy {
    /// Whether caches can be divided by so many of the lowest bits of lines; else why not.
    ///
    /// # Errors
    /// What stands against it.
    pub fn can_divide(&self, bits: u32) -> Result<(), &'static str> {
        let lines = self.caches.first().map_or(0, |cache| cache.line_bits);
        self.caches.iter().try_for_each(|cache| {
            if !cache.is_simple() {
                return Err(
                    "a cache has a buffer, a prefetcher, victims or a write policy of its own",
                );
            }
            if cache.sets.plain_slots() == 0 || cache.line_bits != lines {
                return Err("a cache is not plain LRU, or has lines of another size");
            }
            if cache.placing.divided(bits).is_none() {
                return Err("the sets of a cache are not chosen by bits, or too few");
            }
            Ok(())
        })
    }

    /// One of the parts, empty.
    ///
    /// # Panics
    /// If it cannot be.
    pub fn part(&self, bits: u32) -> Hierarchy {
        let mut part = Hierarchy::new();
        part.caches = self.caches.iter().map(|cache| cache.part(bits)).collect();
        part.links.clone_from(&self.links);
        part
    }

    /// Takes over what parts hold and have counted, in the order of their bits. It has run nothing itself.
    pub fn put_together(&mut self, parts: &[&Hierarchy], bits: u32) {
        for (number, cache) in self.caches.iter_mut().enumerate() {
            let those = parts.iter().map(|part| &part.caches[number]);
            cache.put_together(those, bits);
        }
        for part in parts {
            self.memory_reads += part.memory_reads;
            self.memory_writes += part.memory_writes;
            let begun = (0..part.links.len()).filter(|&first| part.links[first].has_begun());
            begun.for_each(|first| self.begin_once(first));
        }
    }
}

impl Cache {
    fn part(&self, bits: u32) -> Cache {
        let sets = Sets::new(self.sets.sets() >> bits, self.sets.ways(), Replacement::Lru, 0);
        let most = if self.sets.is_narrow() { 0 } else { u64::MAX };
        let Some(placing) = self.placing.divided(bits) else { unreachable!("it was asked before") };
        Cache::placed(sets.for_lines_below(most), placing, self.line_bits, self.write)
    }

    fn put_together<'a>(&mut self, parts: impl Iterator<Item = &'a Cache>, bits: u32) {
        let mut counts = CacheCounts::default();
        for (low, part) in (0_u64..).zip(parts) {
            counts.add(&part.counts);
            // The oldest of a set first: what comes last was used last.
            let mut lines: Vec<_> = part.sets.lines().collect();
            lines.reverse();
            for (_, entry) in lines {
                let line = entry.line() << bits | low;
                self.sets.fill(self.placing.set_of(line), CacheEntry::new(line, entry.is_dirty()));
            }
        }
        self.counts = counts;
    }
}
