//! What databases do all day: a hash join, a scan with aggregation, look-ups in a B-tree, and a
//! query that does all of that and sorts.
//! Tables are files that are read block by block through a small ring of buffers.

use super::Parameters;
use super::file::File;
use super::file_access::{FileNumber, ROOM_BITS};
use super::memory::{Array, Checksum, ProgramMemory, SplitMix, scramble};
use super::sort::{RECORD, sort};

/// Bytes of a block, as PostgreSQL reads them.
const BLOCK: usize = 8192;
/// Blocks of the ring that a scan of a large table goes through (SRM-buffer section 4.2,
/// footnote 3: a very small space; PostgreSQL's is 256 KiB).
const RING: usize = 32;
/// Bytes of a record of a fact table (SRM-buffer section 4.2).
const FACT: usize = 128;
/// Bytes of a record of a dimension table (SRM-buffer section 4.2).
const DIMENSION: usize = 256;

/// A table in files of up to 1 GiB. A record's key and value follow from its number.
struct Table {
    first: u32,
    record: usize,
    records: usize,
    seed: u64,
}

impl Table {
    /// The key of a record and the number it carries, which the text of the block hides.
    fn fields(&self, record: usize) -> (u64, u64) {
        let word = scramble(self.seed ^ record as u64);
        (word >> 20, word & 0xfffff)
    }

    /// Reads the table from start to end; `act` gets each record's number and its place in
    /// memory after the block was copied there.
    fn scan<M: ProgramMemory>(
        &self,
        m: &mut M,
        ring: &mut Array<u8>,
        mut act: impl FnMut(&mut M, usize, u64),
    ) {
        let per_block = BLOCK / self.record;
        let per_file = (1_usize << ROOM_BITS) / BLOCK;
        for block in 0..self.records.div_ceil(per_block) {
            let number = u32::try_from(block / per_file).unwrap_or(u32::MAX);
            let id = FileNumber(self.first + number);
            let file = File { id, bytes: 1 << ROOM_BITS, seed: self.seed };
            let at = block % RING * BLOCK;
            file.read(m, block % per_file * BLOCK, ring, at, BLOCK);
            for slot in 0..per_block.min(self.records - block * per_block) {
                m.work(12);
                act(m, block * per_block + slot, ring.address(at + slot * self.record));
            }
        }
    }
}

/// Reads two fields at the start of a record.
fn read_fields<M: ProgramMemory>(m: &mut M, address: u64) {
    m.touch(address, 8, crate::record::AccessKind::Load);
    m.touch(address + 8, 8, crate::record::AccessKind::Load);
}

/// One record in so many is selected by a join of two tables (SRM-buffer section 4.2).
const SELECT: u64 = 10;
/// And by one of more tables: TPC-H's customers of a region.
const SELECT_REGION: u64 = 5;

/// Joins a fact table with a tenth of a dimension table by hash. The size is that of the
/// dimension table; the fact table has `rounds` records for each of the dimension's.
///
/// Stands for the hash-join queries of SRM-buffer section 4.2: dimension tables of 24 to
/// 146 MiB (100,000 to 600,000 records of 256 bytes), selectivity 10 %, a hash table of the
/// selected records that every record of the fact table (128 bytes each) probes. The hash
/// table is what the cache should keep; both tables stream past it. The paper's fact table
/// has 4 GiB, which is 335 rounds of the default size.
pub fn hash_join<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let records = (p.size / DIMENSION).max(1);
    let dimension = Table { first: 0, record: DIMENSION, records, seed: p.seed };
    let facts = Table { first: 16, record: FACT, records: records * p.rounds, seed: p.seed ^ 1 };
    let mut ring = m.array(RING * BLOCK);
    let table = Hash::build(m, &dimension, SELECT, &mut ring);
    let (mut sum, mut matches) = (0_u64, 0_u64);
    facts.scan(m, &mut ring, |m, record, address| {
        read_fields(m, address);
        let (word, value) = facts.fields(record);
        if let Some(weight) = table.find(m, word % records as u64) {
            matches += 1;
            sum = sum.wrapping_add(value.wrapping_mul(weight));
        }
    });
    scramble(sum) ^ matches
}

/// A chained hash table of the selected records: heads, and entries of key, weight and next.
struct Hash {
    heads: Array<u32>,
    entries: Array<u64>,
}

/// Words of an entry: key, weight, next, and what of the record the query needs.
const ENTRY: usize = 8;

impl Hash {
    /// A table of one in `select` of a dimension's records.
    fn build<M: ProgramMemory>(
        m: &mut M,
        dimension: &Table,
        select: u64,
        ring: &mut Array<u8>,
    ) -> Hash {
        let selected = |record: &usize| dimension.fields(*record).0.is_multiple_of(select);
        let n = (0..dimension.records).filter(selected).count();
        let mut hash = Hash { heads: m.array(n.next_power_of_two()), entries: m.array(n * ENTRY) };
        let mut used = 0;
        dimension.scan(m, ring, |m, record, address| {
            read_fields(m, address);
            if selected(&record) {
                hash.insert(m, used, record as u64, dimension.fields(record).1);
                used += 1;
            }
        });
        hash
    }

    fn bucket(&self, key: u64) -> usize {
        usize::try_from(scramble(key)).unwrap_or(0) & (self.heads.len() - 1)
    }

    fn insert<M: ProgramMemory>(&mut self, m: &mut M, at: usize, key: u64, weight: u64) {
        let bucket = self.bucket(key);
        let next = m.load(&self.heads, bucket);
        for (word, value) in [key, weight, u64::from(next), 0, 0, 0, 0, 0].into_iter().enumerate() {
            m.store(&mut self.entries, at * ENTRY + word, value);
        }
        m.work(10);
        m.store(&mut self.heads, bucket, u32::try_from(at + 1).unwrap_or(0));
    }

    /// The weight of a key.
    fn find<M: ProgramMemory>(&self, m: &mut M, key: u64) -> Option<u64> {
        m.work(10);
        let mut at = m.load(&self.heads, self.bucket(key)) as usize;
        while at > 0 {
            let entry = (at - 1) * ENTRY;
            m.work(4);
            if m.load(&self.entries, entry) == key {
                return Some(m.load(&self.entries, entry + 1));
            }
            at = usize::try_from(m.load(&self.entries, entry + 2)).unwrap_or(0);
        }
        None
    }
}

/// Rows that are sorted at a time: with the room that they are sorted into, PostgreSQL's 1 MiB
/// (`work_mem`, version 8.3).
const SORTED: usize = 8192;

/// Joins a fact table with two dimension tables by hash, looks the rows that are left up in an index,
/// and sorts them. The size is that of the larger dimension table, of which a fifth is
/// selected; the other one and the index have a quarter of its records. The fact table has `rounds`
/// records for each of the dimension's.
///
/// Stands for the second group of TPC-H's queries in SRM-buffer section 4.2: "multi-level joins, index
/// scans, and sortings" in memory of the process, with sequential scans of tables at the leaves.
/// One fact in five passes the first join, and all of these the second, which is an outer one.
pub fn multi_join<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let (records, few) = ((p.size / DIMENSION).max(4), (p.size / DIMENSION / 4).max(1));
    let table = |first, record, records, seed| Table { first, record, records, seed };
    let large = table(0, DIMENSION, records, p.seed);
    let small = table(8, DIMENSION, few, p.seed ^ 2);
    let facts = table(16, FACT, records * p.rounds, p.seed ^ 1);
    let mut ring = m.array(RING * BLOCK);
    let [outer, inner] = [&large, &small].map(|t| Hash::build(m, t, SELECT_REGION, &mut ring));
    let (index, mut rows) = (Tree::new(m, few, p.seed), Sorter::new(m));
    facts.scan(m, &mut ring, |m, record, address| {
        read_fields(m, address);
        let (word, value) = facts.fields(record);
        if let Some(weight) = outer.find(m, word % records as u64) {
            let at = scramble(word);
            let other = inner.find(m, at % few as u64).unwrap_or(0);
            let key = index.key(usize::try_from(at % (2 * few as u64)).unwrap_or(0));
            let found = index.find(m, key).unwrap_or(0);
            rows.push(m, [at, value.wrapping_mul(weight), other, found]);
        }
    });
    rows.finish(m)
}

/// Rows that are sorted whenever there are enough of them.
struct Sorter {
    rows: Array<u64>,
    room: Array<u64>,
    count: usize,
    sum: Checksum,
}

impl Sorter {
    fn new<M: ProgramMemory>(m: &mut M) -> Sorter {
        let (rows, room) = (m.array(SORTED * RECORD), m.array(SORTED * RECORD));
        Sorter { rows, room, count: 0, sum: Checksum::default() }
    }

    fn push<M: ProgramMemory>(&mut self, m: &mut M, row: [u64; 4]) {
        for (word, value) in row.into_iter().enumerate() {
            m.store(&mut self.rows, self.count * RECORD + word, value);
        }
        self.count += 1;
        if self.count == SORTED {
            self.sort(m);
        }
    }

    /// Sorts all rows and takes them in order.
    fn sort<M: ProgramMemory>(&mut self, m: &mut M) {
        sort(m, &mut self.rows, &mut self.room);
        for row in 0..SORTED {
            for word in 0..4 {
                self.sum.add(m.load(&self.rows, row * RECORD + word));
            }
        }
        self.count = 0;
    }

    /// A checksum of all rows in order; what is in no full batch comes unsorted.
    fn finish<M: ProgramMemory>(mut self, m: &mut M) -> u64 {
        for word in 0..self.count * RECORD {
            self.sum.add(m.load(&self.rows, word));
        }
        self.sum.value()
    }
}

/// Groups of the aggregation.
const GROUPS: usize = 4096;

/// Reads a fact table and adds up the records that fulfil a condition by group, `rounds` times.
/// The size is that of the table.
///
/// Stands for the sequential-scan queries of SRM-buffer section 4.2: statistics over the fact
/// table (4 GiB, records of 128 bytes) with a hash aggregate over those that satisfy the WHERE
/// clause. It needs little of the cache itself and takes all of it.
pub fn table_scan<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let facts = Table { first: 0, record: FACT, records: p.size / FACT, seed: p.seed };
    let mut ring = m.array(RING * BLOCK);
    let mut groups = m.array::<u64>(GROUPS);
    for _ in 0..p.rounds {
        facts.scan(m, &mut ring, |m, record, address| {
            read_fields(m, address);
            let (word, value) = facts.fields(record);
            if word % 4 == 0 {
                let group = usize::try_from(scramble(word)).unwrap_or(0) % GROUPS;
                m.work(12);
                m.update(&mut groups, group, |sum| sum.wrapping_add(value));
            }
        });
    }
    let mut sum = Checksum::default();
    (0..GROUPS).for_each(|group| sum.add(m.load(&groups, group)));
    sum.value()
}

/// Keys per node: with them, as many children fill a page of 4 KiB.
const FANOUT: usize = 256;

/// Looks up random keys in a B-tree of full nodes, one look-up for four keys and round.
///
/// Stands for the nested join of coral (Romer table 3-1: 33.0 MB, and table 3-2: 41.4 % of the
/// time in TLB misses) and for the index scans of TPC-H (SRM-buffer section 4.2): the root and
/// the level below are in the cache and in the TLB, a leaf nearly never is, and a search in
/// it touches eight lines.
pub fn btree<M: ProgramMemory>(m: &mut M, p: &Parameters) -> u64 {
    let tree = Tree::new(m, (p.size / 16).max(1), p.seed);
    let mut random = SplitMix::new(p.seed ^ 1);
    let mut sum = Checksum::default();
    for _ in 0..p.rounds * (tree.keys / 4).max(1) {
        let key = tree.key(random.below(2 * tree.keys));
        sum.add(tree.find(m, key).unwrap_or(0));
    }
    sum.value()
}

/// Levels from the root down; each is an array of sorted keys, the lowest with values.
struct Tree {
    levels: Vec<Array<u64>>,
    values: Array<u64>,
    keys: usize,
    seed: u64,
}

impl Tree {
    /// A tree of the even keys.
    fn new<M: ProgramMemory>(m: &mut M, keys: usize, seed: u64) -> Tree {
        let leaves = m.filled(keys, |i| 2 * i as u64);
        let values = m.filled(keys, |i| scramble(seed ^ i as u64));
        let mut levels = vec![leaves];
        while levels[0].len() > FANOUT {
            let below = &levels[0];
            let n = below.len().div_ceil(FANOUT);
            let mut level = m.array(n);
            for node in 0..n {
                let first = m.load(below, node * FANOUT);
                m.store(&mut level, node, first);
            }
            levels.insert(0, level);
        }
        Tree { levels, values, keys, seed }
    }

    /// A key that is there if `i` is even.
    fn key(&self, i: usize) -> u64 {
        i as u64 ^ (self.seed & 1)
    }

    /// The value of a key.
    fn find<M: ProgramMemory>(&self, m: &mut M, key: u64) -> Option<u64> {
        let mut node = 0;
        for level in &self.levels {
            let end = ((node + 1) * FANOUT).min(level.len());
            node = last_not_above(m, level, node * FANOUT, end, key);
        }
        let leaves = self.levels.last()?;
        (m.load(leaves, node) == key).then(|| m.load(&self.values, node))
    }
}

/// The last place from `low` to `high` whose key is at most `key`, or `low`.
fn last_not_above<M: ProgramMemory>(
    m: &mut M,
    level: &Array<u64>,
    mut low: usize,
    mut high: usize,
    key: u64,
) -> usize {
    while high - low > 1 {
        let middle = low.midpoint(high);
        m.work(5);
        if m.load(level, middle) <= key {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::memory::Native;
    use super::*;

    #[test]
    fn the_join_is_the_naive_one() {
        let p = Parameters { size: 300 * DIMENSION, seed: 4, rounds: 5 };
        let dimension = Table { first: 0, record: DIMENSION, records: 300, seed: 4 };
        let facts = Table { first: 16, record: FACT, records: 1500, seed: 5 };
        let selected: HashMap<u64, u64> = (0..300)
            .filter(|&record| dimension.fields(record).0.is_multiple_of(SELECT))
            .map(|record| (record as u64, dimension.fields(record).1))
            .collect();
        let (mut sum, mut matches) = (0_u64, 0);
        for (word, value) in (0..1500).map(|record| facts.fields(record)) {
            if let Some(weight) = selected.get(&(word % 300)) {
                matches += 1;
                sum = sum.wrapping_add(value.wrapping_mul(*weight));
            }
        }
        assert!((75..300).contains(&matches), "{matches} of 1500 match");
        assert_eq!(hash_join(&mut Native, &p), scramble(sum) ^ matches);
    }

    #[test]
    fn a_query_takes_each_batch_of_rows_in_order() {
        let mut rows = Sorter::new(&mut Native);
        let keys = |n: usize| (0..n as u64).map(|i| scramble(i) % 1000);
        keys(SORTED + 3).for_each(|key| rows.push(&mut Native, [key, 0, 0, key + 1]));
        assert_eq!(rows.count, 3);
        let mut want: Vec<u64> = keys(SORTED).collect();
        want.sort_unstable();
        let mut sum = Checksum::default();
        want.iter().for_each(|&key| [key, 0, 0, key + 1].into_iter().for_each(|w| sum.add(w)));
        let before = sum.value();
        assert_eq!(rows.sum.value(), before);
        assert_ne!(rows.finish(&mut Native), before, "the last three count, too");
    }

    #[test]
    fn a_tree_finds_what_is_there_and_nothing_else() {
        for keys in [1, 255, 256, 257, 70_000] {
            let tree = Tree::new(&mut Native, keys, 2);
            for i in (0..keys).step_by(keys / 100 + 1).chain([keys - 1]) {
                let want = scramble(2 ^ i as u64);
                assert_eq!(tree.find(&mut Native, 2 * i as u64), Some(want), "{i} of {keys}");
                assert_eq!(tree.find(&mut Native, 2 * i as u64 + 1), None);
            }
        }
    }

    #[test]
    fn a_scan_reads_every_record_once() {
        let table = Table { first: 0, record: FACT, records: 1000, seed: 1 };
        let mut ring = Native.array(RING * BLOCK);
        let mut seen = Vec::new();
        table.scan(&mut Native, &mut ring, |_, record, _| seen.push(record));
        assert_eq!(seen, (0..1000).collect::<Vec<_>>());
    }
}
