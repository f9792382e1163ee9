//! The buffer pool in a trace of a database: the kernel's copies are in no trace of a program, but
//! a pool that holds the whole table is shared memory, which the page cache holds as it holds
//! files. So the largest region that a trace touches is taken for one file, if it is large enough,
//! and everything else stays memory.

use std::collections::BTreeSet;

use huepage_color::{VirtAddr, Vpn};

use huepage_sim::record::{AccessKind, Record};
use huepage_sim::workloads::FileNumber;
use huepage_sim::workloads::file_access::{FILES, ROOM_BITS};

/// Pages that a region may leave out in a row: those of tables that no query asks for.
const GAP: u64 = 64;
/// Pages of the smallest pool: 8 MiB, as large as the largest cache of the experiment.
const SMALLEST: u64 = 2048;

/// First page and the one after the last; none if there is none.
type Region = Option<(u64, u64)>;

/// Looks for the pool, and then puts it where files are.
#[derive(Clone, Debug, Default)]
pub struct PoolPlacement {
    region: Region,
}

impl PoolPlacement {
    /// From all pages of data that a trace touches.
    pub fn find(pages: &BTreeSet<u64>) -> PoolPlacement {
        let (mut best, mut current): (Region, Region) = (None, None);
        for &page in pages {
            current = match current {
                Some((first, end)) if page - end <= GAP => Some((first, page + 1)),
                _ => Some((page, page + 1)),
            };
            best = larger(best, current);
        }
        let most = 1 << (ROOM_BITS - 12);
        let fits = |&(first, end): &(u64, u64)| (SMALLEST..=most).contains(&(end - first));
        PoolPlacement { region: best.filter(fits) }
    }

    /// Notes the pages of records for [`Self::find`].
    pub fn note(records: &[Record], pages: &mut BTreeSet<u64>) {
        let data = records.iter().filter(|record| record.kind != AccessKind::Fetch);
        let mut last = u64::MAX;
        for page in data.map(|record| record.address.vpn().0) {
            if page != last {
                pages.insert(page);
                last = page;
            }
        }
    }

    /// Pages of the pool; 0 if there is none.
    pub fn pages(&self) -> u64 {
        self.region.map_or(0, |(first, end)| end - first)
    }

    /// Puts accesses to the pool where files are, and what lies where files are elsewhere.
    pub fn rewrite(&self, records: &mut [Record]) {
        for record in records {
            let page = record.address.vpn().0;
            let inside = self.region.filter(|(first, end)| (*first..*end).contains(&page));
            record.address = match inside {
                Some((first, _)) => {
                    let offset = record.address.0 - Vpn(first).base().0;
                    FileNumber(0).address(offset)
                }
                // Addresses of programs end at 2^47.
                None if record.address.0 >= FILES => VirtAddr(record.address.0 + (1 << 47)),
                None => record.address,
            };
        }
    }
}

/// The larger of two regions, the first of equals.
fn larger(one: Region, other: Region) -> Region {
    let size = |region: Region| region.map_or(0, |(first, end)| end - first);
    if size(other) > size(one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_region_becomes_a_file_and_the_rest_stays() {
        let at = |page: u64| Record::plain(page << 12 | 8, AccessKind::Load);
        let pool = 0x7_0000_0000_u64;
        // Every third page of a pool, a heap that is smaller, and code far away.
        let data = (0..1000).map(|i| at(pool + 3 * i)).chain((0..500).map(|i| at(16 + i)));
        let mut records: Vec<Record> = data.collect();
        records.push(Record { kind: AccessKind::Fetch, ..at(0x5_5550_0000) });
        let mut pages = BTreeSet::new();
        PoolPlacement::note(&records, &mut pages);
        assert_eq!(pages.len(), 1500);
        let found = PoolPlacement::find(&pages);
        assert_eq!(found.pages(), 2998);
        found.rewrite(&mut records);
        assert_eq!(FileNumber::of(records[1].address), Some((FileNumber(0), 3 * 4096 + 8)));
        assert_eq!(records[1000], at(16));
        assert_eq!(FileNumber::of(records[1500].address), None, "code is no file");
        let small: BTreeSet<u64> = (0..2047).collect();
        assert_eq!(PoolPlacement::find(&small).pages(), 0);
        let mut high = [at(0x5_5550_0000)];
        PoolPlacement::find(&small).rewrite(&mut high);
        assert_eq!(FileNumber::of(high[0].address), None);
    }
}
