//! Fills the zone: a thread takes fresh memory in blocks, learns the colours of its pages, and keeps
//! those that are wanted. Pages of other colours are held, since the kernel would hand them out
//! again at once, until they are too many. Blocks of huge pages, which are split, do not have that
//! problem where many are free, and on bare metal cost less; in a guest whose free memory the host
//! has taken back they can cost several times as much. So both are tried, and the cheaper is used.
//! Where cached files fill the memory a few huge pages come again and again: they are held, too.

use std::collections::HashSet;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_color::{Color, Pfn, Vpn};
use huepage_policy::pace::{Alternate, AlternateSettings, Gap, GapSettings};

use super::FileCacheError;
use super::budget::Budget;
use super::zone::{BLOCK_PAGES, PooledFrame, Task, Zone};
use crate::color::probe::{LocalBench, OwnPages, ReferenceMemory};
use crate::color::sources::{Candidate, ColorSource};
use crate::kernel::cpus::node_of;
use crate::kernel::page_cache;
use crate::kernel::pressure::Pressure;
use crate::kernel::procfs::{FrameFlagsReader, PageEntry, Pagemap, ProcRoot};
use crate::kernel::zones::{free_huge_pages, usual_frames};

/// Pages of a huge page.
const HUGE_PAGES: usize = 512;
/// Huge pages that must be free for some to be asked for: where there are few the kernel would move
/// pages of others to make more, also out of the colours that they were just brought into.
const FREE_HUGE_PAGES: u64 = 64;
/// The smallest bound that is worth anything.
const FEWEST_PAGES: usize = 64;
/// What part of its bound the stock may take while memory is short.
const SHORT_MEMORY_PARTS: usize = 8;
/// How long the thread sleeps when there is nothing to do; it looks at the memory then.
const IDLE_SLEEP: Duration = Duration::from_millis(100);
/// How long the bound of the stock is taken to be the same.
const BOUND_INTERVAL: Duration = Duration::from_millis(50);
/// How long it waits after memory was short.
const SHORT_MEMORY_PAUSE: Duration = Duration::from_millis(20);

/// Of the frames of a block, one in so many is remembered.
const REMEMBERED_FRAMES: u64 = 32;

/// The pages of a block.
struct FoundPages {
    /// Those whose frames files would get.
    candidates: Vec<Candidate>,
    /// Addresses of the others.
    away: Vec<u64>,
    /// There was a huge page.
    huge: bool,
    /// Most of them were there before, and given back.
    again: bool,
}

/// The thread and what ends it.
#[derive(Debug)]
pub(super) struct Gatherer {
    zone: Arc<Zone>,
    thread: Option<JoinHandle<()>>,
}

impl Gatherer {
    /// Starts to fill `zone` on `cpu`, with colours from `source`. `asked` bounds the stock, in
    /// bytes.
    pub fn start(
        zone: &Arc<Zone>,
        source: Box<dyn ColorSource>,
        cpu: usize,
        asked: Option<u64>,
    ) -> Gatherer {
        let shared = Arc::clone(zone);
        let thread = std::thread::spawn(move || {
            let ended = Work::new(Arc::clone(&shared), source, cpu, asked).and_then(Work::run);
            if let Err(error) = ended {
                shared.fail(error);
            }
        });
        Gatherer { zone: Arc::clone(zone), thread: Some(thread) }
    }
}

impl Drop for Gatherer {
    fn drop(&mut self) {
        self.zone.close();
        // A panic there was printed already.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Work {
    zone: Arc<Zone>,
    source: Box<dyn ColorSource>,
    bench: LocalBench,
    asked: Option<u64>,
    budget: Budget,
    root: ProcRoot,
    pagemap: Pagemap,
    flags: FrameFlagsReader,
    pressure: Pressure,
    /// The memory node of the CPU, and so that of the thread that files are read by.
    node: usize,
    /// The bound of the stock in pages, and when it was looked up.
    limit: Option<(Instant, usize)>,
    give: page_cache::FrameRelease,
    /// The second kind of block is of huge pages.
    blocks: Alternate,
    /// Small ones would be those that were just given back; the other way round after the next
    /// time.
    only_huge: bool,
    /// Some frames of all blocks since pages were last given back.
    seen: HashSet<u64>,
    /// Pauses while nothing wanted is found.
    pause: Gap,
    /// Pages of other colours that the kernel would hand out again at once.
    held: Vec<(Arc<OwnPages>, Vec<libc::iovec>)>,
    /// And pages of wanted colours that the stock has enough of.
    surplus: Vec<PooledFrame>,
    /// How many all these are.
    held_pages: usize,
    /// Pages looked at since the last wanted one.
    barren_pages: usize,
}

/// A bench on a CPU, which the thread is pinned to from now on, with the reference pages of
/// `source` if it measures.
pub(super) fn bench_for(
    source: &dyn ColorSource,
    cpu: usize,
) -> Result<LocalBench, FileCacheError> {
    let Some((file, bytes)) = source.reference() else { return Ok(LocalBench::new(cpu)?) };
    let file = file.try_clone_to_owned().map_err(FileCacheError::os("sharing reference pages"))?;
    let pages = usize::try_from(bytes / 4096).unwrap_or(0);
    let memory = Arc::new(ReferenceMemory::map(file, pages)?);
    Ok(LocalBench::with_reference(cpu, memory)?)
}

impl Work {
    fn new(
        zone: Arc<Zone>,
        source: Box<dyn ColorSource>,
        cpu: usize,
        asked: Option<u64>,
    ) -> Result<Work, FileCacheError> {
        let (root, node) = (ProcRoot::default(), node_of(cpu));
        Ok(Work {
            bench: bench_for(&*source, cpu)?,
            pagemap: root.pagemap(std::process::id().cast_signed())?,
            flags: FrameFlagsReader::open(&root)?,
            pressure: Pressure::on_memory(&root),
            node,
            budget: Budget::of_node(node),
            limit: None,
            give: page_cache::FrameRelease::new().map_err(FileCacheError::os("pidfd_open"))?,
            blocks: Alternate::new(AlternateSettings::BLOCKS),
            only_huge: false,
            seen: HashSet::new(),
            pause: Gap::new(GapSettings::BARREN_BLOCKS),
            held: Vec::new(),
            surplus: Vec::new(),
            held_pages: 0,
            barren_pages: 0,
            zone,
            source,
            asked,
            root,
        })
    }

    fn run(mut self) -> Result<(), FileCacheError> {
        loop {
            let bound = self.limit();
            let limit = if self.pressure.is_short() { bound / SHORT_MEMORY_PARTS } else { bound };
            let (task, dropped) = self.zone.task(limit);
            self.give_back(&dropped);
            match task {
                Task::End => return Ok(()),
                Task::Wait => {
                    self.release();
                    self.zone.doze(IDLE_SLEEP);
                }
                Task::Gather if limit < FEWEST_PAGES => self.wait_for_memory(bound >= FEWEST_PAGES),
                Task::Gather => self.gather(limit)?,
            }
        }
    }

    fn limit(&mut self) -> usize {
        if let Some((at, limit)) = self.limit
            && at.elapsed() < BOUND_INTERVAL
        {
            return limit;
        }
        let bytes = self.budget.bound(self.asked);
        let limit = usize::try_from(bytes / 4096).unwrap_or(usize::MAX);
        self.limit = Some((Instant::now(), limit));
        limit
    }

    /// Under pressure everybody waits a little; where there is no memory at all nobody does.
    fn wait_for_memory(&mut self, short: bool) {
        self.release();
        if !short {
            self.zone.run_dry();
        }
        self.zone.rest(SHORT_MEMORY_PAUSE);
    }

    fn gather(&mut self, limit: usize) -> Result<(), FileCacheError> {
        let pages = BLOCK_PAGES.min(limit);
        let huge = (self.only_huge || self.blocks.choose_second()) && self.huge_are_free();
        let (taken, start) = (OwnPages::reserve_aligned(pages), Instant::now());
        let taken = taken.and_then(|block| block.populate(huge).map(|()| block));
        let Ok(block) = taken else {
            self.wait_for_memory(false);
            return Ok(());
        };
        let FoundPages { candidates, away, huge, again } = self.candidates(&block)?;
        self.blocks.cost(huge, for_each(start.elapsed(), candidates.len()));
        let hold = !huge || again;
        let block = Arc::new(block);
        self.bench.allow_pages(&block);
        let colors = self.source.measure(&mut self.bench, &candidates, None);
        self.bench.forbid_pages(&block);
        let colors = colors?;
        let found = self.sort(&block, hold, &candidates, &colors, away);
        self.barren_pages = if found.is_empty() { self.barren_pages + block.count() } else { 0 };
        let dropped = self.zone.add(found, candidates.len() as u64);
        if hold {
            // What was given back now would be the next block.
            self.held_pages += dropped.len();
            self.surplus.extend(dropped);
        } else {
            self.give_back(&dropped);
        }
        self.keep_bound(pages);
        Ok(())
    }

    fn huge_are_free(&self) -> bool {
        let text = std::fs::read_to_string(self.root.0.join("buddyinfo")).unwrap_or_default();
        free_huge_pages(&text, self.node) >= FREE_HUGE_PAGES
    }

    /// Frees the frames of pages that are not kept; the others of their block go on being.
    fn give_back(&mut self, pages: &[PooledFrame]) {
        let addresses: Vec<u64> = pages.iter().map(|page| page.address).collect();
        // What cannot be given back is when the block goes.
        let _ = self.give.release(&page_cache::ranges(&addresses));
    }

    /// The pages of a block, whose huge pages are split. Those of a huge page that could not be split
    /// are left out: their frames would not come free.
    fn candidates(&mut self, block: &OwnPages) -> Result<FoundPages, FileCacheError> {
        let text = std::fs::read_to_string(self.root.0.join("zoneinfo")).unwrap_or_default();
        let usual = usual_frames(&text, self.node).unwrap_or(0..u64::MAX);
        let mut entries = Vec::new();
        self.pagemap.entries(Vpn(block.base() / 4096), block.count(), &mut entries)?;
        let page = |(address, entry): (u64, &PageEntry)| {
            entry.pfn().map(|frame| Candidate { address, frame })
        };
        let again = self.came_again(&entries);
        let (mut found, mut huge) = (Vec::with_capacity(block.count()), false);
        for (some, base) in entries.chunks(HUGE_PAGES).zip(block.range().step_by(HUGE_PAGES * 4096))
        {
            let first = some[0].pfn();
            if self.is_huge(first) {
                huge = true;
                block.split(base);
                if self.is_huge(first) {
                    continue;
                }
            }
            found.extend((base..).step_by(4096).zip(some).filter_map(page));
        }
        let (candidates, away): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|page| usual.contains(&page.frame.0));
        let away = away.into_iter().map(|page| page.address).collect();
        Ok(FoundPages { candidates, away, huge, again })
    }

    /// Whether most frames of a block were seen since pages were last given back.
    fn came_again(&mut self, entries: &[PageEntry]) -> bool {
        let frames = entries.iter().filter_map(|entry| entry.pfn());
        let some: Vec<u64> =
            frames.map(|frame| frame.0).filter(|f| f.is_multiple_of(REMEMBERED_FRAMES)).collect();
        let seen = &mut self.seen;
        2 * some.iter().filter(|&&frame| !seen.insert(frame)).count() > some.len()
    }

    fn is_huge(&self, frame: Option<Pfn>) -> bool {
        frame.is_some_and(|frame| self.flags.flags(frame).is_ok_and(|flags| flags.thp()))
    }

    /// Keeps what is wanted, and holds the rest and the `others` or gives them back.
    fn sort(
        &mut self,
        block: &Arc<OwnPages>,
        hold: bool,
        pages: &[Candidate],
        colors: &[Option<Color>],
        mut others: Vec<u64>,
    ) -> Vec<(Color, PooledFrame)> {
        let mut found = Vec::with_capacity(pages.len());
        for (page, color) in pages.iter().zip(colors) {
            match color.filter(|&c| self.zone.wanted().contains(c)) {
                Some(color) => {
                    let block = Arc::clone(block);
                    let Candidate { address, frame } = *page;
                    found.push((color, PooledFrame { address, frame, _block: block }));
                }
                None => others.push(page.address),
            }
        }
        let ranges = page_cache::ranges(&others);
        if !hold {
            // What cannot be given back is when the block goes.
            let _ = self.give.release(&ranges);
        } else if !others.is_empty() {
            self.held_pages += others.len();
            self.held.push((Arc::clone(block), ranges));
        }
        found
    }

    /// Gives pages of other colours back. What cannot be is when its block goes.
    fn release(&mut self) {
        self.held_pages = 0;
        self.seen.clear();
        self.held.drain(..).for_each(|(_block, others)| drop(self.give.release(&others)));
        let surplus = std::mem::take(&mut self.surplus);
        self.give_back(&surplus);
    }

    /// What is held must not grow beyond its bound. What is given back comes again, so that the
    /// other kind of block is tried then. And where nothing is found in as much memory nobody
    /// should wait for it, and it is looked for less and less often. Chance does not count here:
    /// whoever took the wanted frames before us left memory without any. `block` is what one block
    /// has, which is held in any case.
    fn keep_bound(&mut self, block: usize) {
        if self.barren_pages == 0 {
            self.pause.reset();
        }
        if self.held_pages <= block && self.barren_pages <= BLOCK_PAGES {
            return;
        }
        let most = usize::try_from(self.budget.spare() / 4096).unwrap_or(0);
        if self.held_pages > most.max(block) {
            self.release();
            self.only_huge = !self.only_huge;
        }
        if self.barren_pages > most.max(BLOCK_PAGES) {
            self.zone.run_dry();
            let pause = self.pause.after(Duration::ZERO, false);
            self.rest(pause);
        }
    }

    /// Waits so long, or until no more frames are wanted. What is held is given back when memory is
    /// short meanwhile.
    fn rest(&mut self, pause: Duration) {
        let start = Instant::now();
        loop {
            if self.pressure.is_short() {
                self.release();
            }
            let left = pause.saturating_sub(start.elapsed());
            if left.is_zero() || !self.zone.rest(left.min(IDLE_SLEEP)) {
                return;
            }
        }
    }
}

/// Nanoseconds for each of so many pages.
#[allow(clippy::cast_precision_loss, reason = "nanoseconds of a block")]
fn for_each(time: Duration, pages: usize) -> f64 {
    time.as_nanos() as f64 / pages.max(1) as f64
}

#[cfg(test)]
mod tests {
    use huepage_color::{CacheLevel, ColorMap, ColorSet, LinearColors, Provenance};

    use super::*;
    use crate::color::sources::Computed;

    #[test]
    fn the_zone_fills_with_frames_of_wanted_colours_and_keeps_its_bound() {
        if !rustix::process::geteuid().is_root() {
            return huepage_testing::skip("the_zone_fills_with_frames", "frame numbers take root");
        }
        let colors = LinearColors::new(vec![1 << 12, 1 << 13, 1 << 14, 1 << 15]).unwrap();
        let map = ColorMap::linear(CacheLevel::L2, colors, Provenance::Pfn).unwrap();
        let zone = Arc::new(Zone::new(ColorSet::parse("3,9", 16).unwrap(), Arc::default()));
        let cpu = crate::kernel::cpus::allowed_cpus()[0];
        let gatherer = Gatherer::start(&zone, Box::new(Computed(map.clone())), cpu, Some(1 << 20));
        let want = ColorSet::parse("9", 16).unwrap();
        let got = zone.take(64, &want, Duration::from_secs(20)).unwrap();
        assert_eq!(got.len(), 64);
        assert!(got.iter().all(|(_, page)| map.color(page.frame) == Some(Color(9))));
        let zones = std::fs::read_to_string("/proc/zoneinfo").unwrap();
        let usual = usual_frames(&zones, node_of(cpu)).expect("memory left in some zone");
        assert!(got.iter().all(|(_, page)| usual.contains(&page.frame.0)), "{usual:x?}");
        assert!(zone.used().peak_pages <= 256, "{:?}", zone.used());
        drop(gatherer);
        assert_eq!(zone.task(1000).0, Task::End);
    }
}
