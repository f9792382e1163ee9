//! A hash join: a fact table passes by, and every record of it probes a hash table. SRM-buffer 2011,
//! section 4.2: records of 128 bytes; a dimension table of 100,000 to 600,000 records of which a tenth is
//! selected, so that with entries of 64 bytes the hash table has 0.15 to 0.9 of that paper's cache of 4 MiB.
//! Here it has 0.6 of the cache, heads included. The fact table is 32 caches long and scanned again and
//! again in place of 4 GiB once.

use std::io;
use std::sync::atomic::Ordering::Relaxed;

use super::PolluterOptions;
use crate::mix::Rng;
use crate::sys::{self, MappedMemory};

/// Words of a fact and of an entry.
const FACT: usize = 16;
const ENTRY: usize = 8;
/// Facts between two looks at the clock.
const BATCH: usize = 1 << 14;

/// Runs it.
///
/// # Errors
/// When there is no memory, or nobody to talk to.
pub fn run(options: &PolluterOptions) -> io::Result<()> {
    let mut rng = Rng::with_seed(1);
    let entries = MappedMemory::private(options.of_cache(0.55) / sys::PAGE)?;
    let heads = MappedMemory::private(options.of_cache(0.05) / sys::PAGE)?;
    let facts = MappedMemory::private(options.of_cache(32.0) / sys::PAGE)?;
    let (n, buckets) = (entries.words().len() / ENTRY, heads.words().len());
    for at in 0..n {
        let entry = &entries.words()[at * ENTRY..];
        let bucket = at % buckets;
        entry[0].store(at as u64, Relaxed);
        entry[1].store(rng.u64(..) >> 40, Relaxed);
        entry[2].store(heads.words()[bucket].load(Relaxed), Relaxed);
        heads.words()[bucket].store(at as u64 + 1, Relaxed);
    }
    for fact in facts.words().chunks(FACT) {
        // One in ten finds its partner.
        fact[0].store(rng.usize(..n * 10) as u64, Relaxed);
        fact[1].store(rng.u64(..) >> 40, Relaxed);
    }
    let (mut at, mut sum) = (0, 0_u64);
    let before = [&facts, &heads, &entries].map(fingerprint);
    let probes = facts.words().len() / FACT;
    options.present(&[&facts], &[&entries, &heads], || {
        for _ in 0..BATCH {
            let fact = &facts.words()[at * FACT..];
            sum = sum.wrapping_add(
                probe(&entries, &heads, fact[0].load(Relaxed)) * fact[1].load(Relaxed),
            );
            at = (at + 1) % probes;
        }
        BATCH as u64
    })?;
    std::hint::black_box(sum);
    let same = [&facts, &heads, &entries].map(fingerprint) == before;
    if same { Ok(()) } else { Err(io::Error::other("memory has changed that was only read")) }
}

/// A number that hangs on every word and its place.
fn fingerprint(area: &MappedMemory) -> u64 {
    let words = area.words().iter().map(|word| word.load(Relaxed));
    words.fold(0, |sum: u64, word| sum.rotate_left(7).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ word)
}

/// The weight of a key, 0 if it has none.
fn probe(entries: &MappedMemory, heads: &MappedMemory, key: u64) -> u64 {
    let buckets = heads.words().len() as u64;
    let mut next = heads.words()[usize::try_from(key % buckets).unwrap_or(0)].load(Relaxed);
    while next > 0 {
        let entry = &entries.words()[usize::try_from(next - 1).unwrap_or(0) * ENTRY..];
        if entry[0].load(Relaxed) == key {
            return entry[1].load(Relaxed);
        }
        next = entry[2].load(Relaxed);
    }
    0
}
