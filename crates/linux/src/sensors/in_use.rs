//! Which pages a process uses again and again: their accessed bits are cleared, together with what TLBs
//! remember, and are set again within each of several short windows. Pages that a scan passes by are
//! not, for it comes back too late. Nothing of the process changes but what the kernel takes for the
//! age of its pages.

use std::ops::Range;
use std::time::{Duration, Instant};

use huepage_color::{PAGE_BYTES, Vpn};

use crate::color::line_timer::ResidencyError;
use crate::kernel::page_tables::{AddressSpace, BlockMapping, PageTables, TablesError};
use crate::kernel::process_memory::ProcessMemory;
use crate::kernel::procfs::{Categories, Pagemap, PagemapRegion, ProcRoot, ScanQuery, obstacle};

/// Windows in which a page has to be used, and the CPU time of the process that one takes.
const WINDOW_COUNT: usize = 4;
const WINDOW_CPU_TIME: Duration = Duration::from_millis(2);
/// How long a window may take by the clock.
const LONGEST_WINDOW: Duration = Duration::from_millis(100);
/// Pages of a process, at most: 2 GiB.
const MOST_PAGES: u64 = 1 << 19;

/// See the module's head.
pub(crate) struct InUse {
    pid: i32,
    root: ProcRoot,
    process: ProcessMemory,
    pagemap: Pagemap,
    tables: PageTables,
    space: AddressSpace,
    /// Of the first window: pages that were touched, and the CPU time of the process.
    first_window: (u64, Duration),
}

/// How a process uses its pages now; those of superpages are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageUse {
    /// Pages that it uses again and again.
    pub reused_pages: u64,
    /// Pages that it touched within a window.
    pub touched_pages: u64,
    /// CPU time of the process in that window.
    pub cpu: Duration,
}

/// Looks at how a process uses its pages; `None` of one with more than 2 GiB. Takes some 100 ms, and a few
/// milliseconds of the process.
///
/// # Errors
/// When the process has ended, or the kernel does not let us.
pub fn page_use(pid: i32) -> Result<Option<PageUse>, ResidencyError> {
    let mut in_use = InUse::open(pid)?;
    let Some(pages) = in_use.find()? else { return Ok(None) };
    let (touched_pages, cpu) = in_use.first_window;
    Ok(Some(PageUse { reused_pages: pages.len() as u64, touched_pages, cpu }))
}

fn of_tables(error: TablesError) -> ResidencyError {
    match error {
        TablesError::NotPermitted => ResidencyError::NotPermitted,
        TablesError::NoProcess(pid) => ResidencyError::Gone(pid),
        other => ResidencyError::NotSupported(other.to_string()),
    }
}

impl InUse {
    /// Takes some 20 ms.
    ///
    /// # Errors
    /// When the process has ended, or the kernel does not let us.
    pub fn open(pid: i32) -> Result<InUse, ResidencyError> {
        let root = ProcRoot::default();
        let process = ProcessMemory::open(pid).map_err(|_| ResidencyError::Gone(pid))?;
        let tables = PageTables::open().map_err(of_tables)?;
        let space = tables.space(pid).map_err(of_tables)?;
        let (pagemap, first_window) = (root.pagemap(pid)?, (0, Duration::ZERO));
        Ok(InUse { pid, pagemap, root, process, tables, space, first_window })
    }

    /// The pages that are used again and again, ascending, of those that could be moved; none of
    /// superpages, which have many colours. `None` if there is too much memory. Takes some
    /// 60 ns for each resident page, and the process some milliseconds meanwhile.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn find(&mut self) -> Result<Option<Vec<Vpn>>, ResidencyError> {
        let regions = self.resident()?;
        if regions.iter().map(PagemapRegion::pages).sum::<u64>() > MOST_PAGES {
            return Ok(None);
        }
        let all = regions.iter().flat_map(|r| r.start / PAGE_BYTES..r.end / PAGE_BYTES);
        let mut pages = self.among(&all.map(Vpn).collect::<Vec<_>>(), |present, _| present)?;
        for window in 0..WINDOW_COUNT {
            let before = self.process.cpu_time();
            self.forget(&pages);
            self.wait();
            pages = self.among(&pages, |_, accessed| accessed)?;
            if window == 0 {
                let took = self.process.cpu_time().saturating_sub(before);
                self.first_window = (pages.len() as u64, took);
            }
        }
        Ok(Some(pages))
    }

    fn resident(&self) -> Result<Vec<PagemapRegion>, ResidencyError> {
        let mut query = ScanQuery::present();
        query.none_of = Categories::PFNZERO;
        query.report = Categories::PRESENT;
        let mut regions = Vec::new();
        let areas = self.root.maps(self.pid)?;
        for area in areas.iter().filter(|area| obstacle(area).is_none()) {
            self.pagemap.scan(area.start..area.end, &query, &mut regions)?;
        }
        Ok(regions)
    }

    /// Those of some pages, ascending, of which page tables say so: whether they are present, and whether
    /// they were used.
    fn among(
        &mut self,
        pages: &[Vpn],
        wanted: fn(bool, bool) -> bool,
    ) -> Result<Vec<Vpn>, ResidencyError> {
        let mut blocks: Vec<u64> = pages.iter().map(|page| page.0 >> 9).collect();
        blocks.dedup();
        let mut found = Vec::new();
        self.tables.read(&self.space, &blocks, &mut found).map_err(of_tables)?;
        let mut chosen = Vec::new();
        for (same, block) in pages.chunk_by(|a, b| a.0 >> 9 == b.0 >> 9).zip(&found) {
            let BlockMapping::Pages { present, accessed } = block else { continue };
            let at = |page: &Vpn| usize::try_from(page.0 & 511).unwrap_or(0);
            let is_wanted = |page: &&Vpn| wanted(present.get(at(page)), accessed.get(at(page)));
            chosen.extend(same.iter().filter(is_wanted));
        }
        Ok(chosen)
    }

    /// Marks pages as not used, as far as that is possible.
    fn forget(&self, pages: &[Vpn]) {
        let ranges = ranges(pages);
        let mut rest = &ranges[..];
        while !rest.is_empty() {
            let done = self.process.forget(rest);
            rest = rest.get(done + 1..).unwrap_or_default();
        }
    }

    /// Until the process has run for a window.
    fn wait(&self) {
        let (before, started) = (self.process.cpu_time(), Instant::now());
        loop {
            std::thread::sleep(WINDOW_CPU_TIME);
            let ran = self.process.cpu_time().saturating_sub(before);
            if 4 * ran >= 3 * WINDOW_CPU_TIME || started.elapsed() >= LONGEST_WINDOW {
                return;
            }
        }
    }
}

/// Pages as ranges of addresses.
fn ranges(pages: &[Vpn]) -> Vec<Range<u64>> {
    let runs = pages.chunk_by(|a, b| a.0 + 1 == b.0);
    runs.map(|run| run[0].0 * PAGE_BYTES..(run[run.len() - 1].0 + 1) * PAGE_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range() {
        let pages = [1, 2, 3, 7, 9, 10].map(Vpn);
        let expected = [4096..4 * 4096, 7 * 4096..8 * 4096, 9 * 4096..11 * 4096];
        assert_eq!(ranges(&pages), expected);
        assert_eq!(ranges(&[]), []);
    }
}
