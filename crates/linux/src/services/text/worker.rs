//! The thread that places the text of a group while its supervisor does other things.
//!
//! It looks for mappings that were not there before, soon after a process came and ever more
//! rarely while nothing does, and has the pages of each file placed once per mapping of it: not
//! again because they came to lie elsewhere since. A process that executes the pages would have
//! them back, in any colour, before they can be placed: it is held still for that, for some
//! milliseconds per quarter mebibyte. The thread takes a fifth of one CPU at most, but for what it is
//! told to do at once. Whatever fails, processes go on; failures are in the report.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_color::{Color, ColorSet};
use huepage_policy::pace::{Gap, GapSettings};
use serde::{Deserialize, Serialize};

use super::{Fate, Left, MOST_PAGES, Text, TextOwners, join, missing, texts};
use crate::color::partition_registry::Registry;
use crate::color::sources::ColorSource;
use crate::inject::hold::Hold;
use crate::kernel::mappers::{FileId, Mappers};
use crate::kernel::page_cache;
use crate::kernel::procfs::ProcRoot;
use crate::services::files::{
    FileCacheError, FileRequest, PlacementRefusal, PlacementTally, Placer, PlacerOptions,
};

/// Pages placed before it is looked whether the thread is to end: 16 MiB.
const STRIDE_PAGES: u64 = 4096;
/// Pages placed while processes are held, which takes some milliseconds; they run for as long
/// before they are held again.
const HELD_PAGES: u64 = 64;
/// Most processes that are held at a time; pages that so many execute are seldom one's alone.
const MOST_HELD_PROCESSES: usize = 8;
/// How often pages that did not come are tried for, and after what time again.
const PLACING_PASSES: u32 = 3;
const PASS_INTERVAL: Duration = Duration::from_millis(50);
/// Niceness of the thread, as of all that programs may have to wait for.
const NICENESS: i32 = -10;
/// Files that are remembered at most beyond those that are mapped.
const REMEMBERED_FILES: usize = 4096;

/// What goes where.
#[derive(Clone, Debug)]
pub struct TextOptions {
    /// The partition.
    pub own: ColorSet,
    /// For files that several partitions map; such files are left if there is none.
    pub shared: Option<ColorSet>,
    /// Who is in other partitions.
    pub registry: Registry,
    /// How files are placed.
    pub placer: PlacerOptions,
}

/// What became of text so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TextReport {
    /// Files that were to be placed.
    pub files: u64,
    /// Their pages.
    #[serde(flatten)]
    pub tally: PlacementTally,
    /// Files that were left altogether, by reason.
    pub left: BTreeMap<Left, u64>,
    /// Seconds that placing took.
    pub seconds: f64,
    /// Why nothing more is placed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

enum Order {
    /// These are the members.
    Members(Vec<i32>),
    /// These are more of them, whose text is to be placed at once; who is to be told hears of it
    /// when this is dropped.
    Now(Vec<i32>, Sender<()>),
}

/// Has the text of a group placed until it is dropped, which ends it within moments.
pub struct TextWorker {
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    ending: Arc<AtomicBool>,
    report: Arc<Mutex<TextReport>>,
    members: Vec<i32>,
}

impl TextWorker {
    /// Starts the thread. Nothing is gathered before there is something to place.
    pub fn start(source: Box<dyn ColorSource>, options: TextOptions) -> TextWorker {
        let (orders, inbox) = channel();
        let (ending, report) = (Arc::<AtomicBool>::default(), Arc::<Mutex<TextReport>>::default());
        let worker = Worker {
            source,
            options,
            root: ProcRoot::default(),
            members: Vec::new(),
            sizes: HashMap::new(),
            known: HashMap::new(),
            ending: Arc::clone(&ending),
            report: Arc::clone(&report),
        };
        let thread = std::thread::spawn(move || worker.run(&inbox));
        TextWorker {
            orders: Some(orders),
            thread: Some(thread),
            ending,
            report,
            members: Vec::new(),
        }
    }

    fn tell(&self, order: Order) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
    }

    /// Says who the members are; cheap if it is who they were.
    pub fn set_members(&mut self, pids: &[i32]) {
        if self.members != pids {
            pids.clone_into(&mut self.members);
            self.tell(Order::Members(pids.to_vec()));
        }
    }

    /// Has the text of a process placed at once, one that is stopped for instance, and waits for
    /// that. False when it took longer than `limit` and goes on.
    pub fn place_now(&self, pid: i32, limit: Duration) -> bool {
        let (done, told) = channel();
        self.tell(Order::Now(vec![pid], done));
        !matches!(told.recv_timeout(limit), Err(RecvTimeoutError::Timeout))
    }

    /// What became of text so far.
    pub fn report(&self) -> TextReport {
        self.report.lock().map(|report| report.clone()).unwrap_or_default()
    }
}

impl Drop for TextWorker {
    fn drop(&mut self) {
        self.ending.store(true, Relaxed);
        self.orders = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// What was decided of a file, for which pages and for whom.
struct Known {
    fate: Fate,
    pages: Vec<Range<u64>>,
    pids: Vec<i32>,
}

/// A file with pages that are to be placed.
struct Due {
    id: FileId,
    text: Text,
    pages: Vec<Range<u64>>,
    fate: Fate,
    /// All processes that map it: members of partitions, and none else.
    pids: Vec<i32>,
}

struct Worker {
    source: Box<dyn ColorSource>,
    options: TextOptions,
    root: ProcRoot,
    members: Vec<i32>,
    /// Size of each member's address space when it was looked at.
    sizes: HashMap<i32, u64>,
    known: HashMap<FileId, Known>,
    ending: Arc<AtomicBool>,
    report: Arc<Mutex<TextReport>>,
}

impl Worker {
    fn run(mut self, orders: &Receiver<Order>) {
        let (soon, mut gap) = (GapSettings::TEXT.shortest, Gap::new(GapSettings::TEXT));
        let mut next = Instant::now() + soon;
        // Without the right to it, so be it.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        while self.is_going_on() {
            let answer = match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(Order::Members(pids)) => {
                    self.sizes.retain(|pid, _| pids.contains(pid));
                    self.members = pids;
                    next = next.min(Instant::now() + soon);
                    continue;
                }
                Ok(Order::Now(pids, done)) => {
                    self.members.extend(pids);
                    Some(done)
                }
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let began = Instant::now();
            let found = self.look();
            drop(answer);
            next = Instant::now() + gap.after(began.elapsed(), found);
        }
    }

    fn is_going_on(&self) -> bool {
        let failed = self.report.lock().is_ok_and(|report| report.error.is_some());
        !failed && !self.ending.load(Relaxed)
    }

    /// Looks for text that was not there before, and places it; whether there was any.
    fn look(&mut self) -> bool {
        let changed = self.changed();
        if changed.is_empty() {
            return false;
        }
        let due = self.due(texts(&self.root, &changed));
        if !due.is_empty()
            && let Err(error) = self.place(&due)
        {
            self.note(|report| report.error = Some(error.to_string()));
        }
        !due.is_empty()
    }

    /// Members whose address space has another size than before.
    fn changed(&mut self) -> Vec<i32> {
        let sizes = &mut self.sizes;
        let mut changed = self.members.clone();
        changed.retain(|&pid| {
            let size = self.root.statm(pid).map_or(0, |statm| statm.size);
            sizes.insert(pid, size) != Some(size)
        });
        changed
    }

    /// Decides over files with pages or processes that were not known.
    fn due(&mut self, found: BTreeMap<FileId, Text>) -> Vec<Due> {
        let is_new = |id: &FileId, text: &Text| {
            self.known.get(id).is_none_or(|known| {
                !missing(&text.pages, &known.pages).is_empty()
                    || text.pids().iter().any(|pid| !known.pids.contains(pid))
            })
        };
        let news: Vec<_> = found.into_iter().filter(|(id, text)| is_new(id, text)).collect();
        if news.is_empty() {
            return Vec::new();
        }
        let Ok(mappers) = Mappers::read(&self.root) else { return Vec::new() };
        let tree = TextOwners::read(&self.root, &self.members, &self.partitioned());
        if self.known.len() > REMEMBERED_FILES {
            self.known.retain(|id, _| !mappers.mappings_of(*id).is_empty());
        }
        news.into_iter().filter_map(|(id, text)| self.decide(id, text, &mappers, &tree)).collect()
    }

    /// The processes in partitions of other supervisors.
    fn partitioned(&self) -> Vec<i32> {
        let own = std::process::id().cast_signed();
        let entries = self.options.registry.list().unwrap_or_default();
        entries.into_iter().filter(|e| e.pid != own).flat_map(|e| e.members).collect()
    }

    /// What is to be done with a file, if anything.
    fn decide(
        &mut self,
        id: FileId,
        text: Text,
        mappers: &Mappers,
        tree: &TextOwners,
    ) -> Option<Due> {
        let mut fate = tree.fate(&mappers.pids(id), self.options.shared.is_some());
        if text.len() > MOST_PAGES {
            fate = Fate::Left(Left::Large);
        }
        let before = self.known.remove(&id);
        let same = before.as_ref().is_some_and(|known| known.fate == fate);
        let (mut pages, mut pids) = before.map_or_else(Default::default, |k| (k.pages, k.pids));
        let due = if same { missing(&text.pages, &pages) } else { text.pages.clone() };
        pages.extend(text.pages.iter().cloned());
        join(&mut pages);
        pids.retain(|&pid| tree.is_own(pid));
        pids.extend(text.pids());
        self.known.insert(id, Known { fate, pages, pids });
        match fate {
            Fate::Left(why) if !same => self.count_left(why),
            Fate::Own | Fate::Shared if !due.is_empty() => {
                self.note(|report| report.files += u64::from(!same));
                return Some(Due { pids: mappers.pids(id), id, text, pages: due, fate });
            }
            _ => {}
        }
        None
    }

    fn count_left(&self, why: Left) {
        self.note(|report| *report.left.entry(why).or_default() += 1);
    }

    fn note(&self, change: impl FnOnce(&mut TextReport)) {
        if let Ok(mut report) = self.report.lock() {
            change(&mut report);
        }
    }

    /// Places files with a placer of their own: between, its frames are of more use elsewhere.
    fn place(&self, due: &[Due]) -> Result<(), FileCacheError> {
        let began = Instant::now();
        let none = ColorSet::empty(self.options.own.universe());
        let wanted = self.options.own.union(self.options.shared.as_ref().unwrap_or(&none));
        let mut placer = Placer::start(self.source.another(), wanted, &self.options.placer)?;
        for due in due {
            let tally = self.place_file(&mut placer, due)?;
            self.note(|report| report.tally += tally);
        }
        self.note(|report| report.seconds += began.elapsed().as_secs_f64());
        Ok(())
    }

    /// Places a file, a few times if not all of it comes.
    fn place_file(&self, placer: &mut Placer, due: &Due) -> Result<PlacementTally, FileCacheError> {
        let Some(file) = due.text.open(&self.root, due.id).map(Arc::new) else {
            self.count_left(Left::Unreadable);
            return Ok(PlacementTally::default());
        };
        // Nobody is to be held while that takes its time; what fails is seen later.
        due.pages.iter().for_each(|range| drop(page_cache::write_back(&file, range)));
        let mut all = self.pass(placer, due, &file)?;
        for _ in 1..PLACING_PASSES {
            if !could_come(&all, due.pids.len() > 1) || self.ending.load(Relaxed) {
                break;
            }
            std::thread::sleep(PASS_INTERVAL);
            let again = self.pass(placer, due, &file)?;
            all = PlacementTally { placed: (all.placed + again.placed).min(again.pages), ..again };
            let refused: u64 = all.refused.values().sum();
            all.already = all.pages.saturating_sub(all.placed + refused);
        }
        Ok(all)
    }

    /// Has all pages placed once.
    fn pass(
        &self,
        placer: &mut Placer,
        due: &Due,
        file: &Arc<File>,
    ) -> Result<PlacementTally, FileCacheError> {
        let shared = self.options.shared.as_ref().filter(|_| due.fate == Fate::Shared);
        let want = shared.unwrap_or(&self.options.own);
        let (mut may_hold, mut tally) =
            (due.pids.len() <= MOST_HELD_PROCESSES, PlacementTally::default());
        for range in &due.pages {
            let mut first = range.start;
            while first < range.end && !self.ending.load(Relaxed) {
                let left = range.end - first;
                let held = may_hold.then(|| self.hold(placer, want, &due.pids)).flatten();
                let began = Instant::now();
                may_hold = held.is_some();
                let pages = left.min(held.as_ref().map_or(STRIDE_PAGES, |(_, pages)| *pages));
                let (file, want) = (Arc::clone(file), want.clone());
                placer.place(&FileRequest { file, first, pages, want })?;
                if held.is_some() {
                    let slice = placer.settle()?;
                    drop(held);
                    // Where several map all of it there is nothing to hold them for.
                    may_hold =
                        slice.placed > 0 || !slice.refused.contains_key(&PlacementRefusal::Mapped);
                    tally += slice;
                    std::thread::sleep(began.elapsed());
                }
                first += pages;
            }
        }
        tally += placer.settle()?;
        Ok(tally)
    }

    /// Holds processes, once there are frames enough that they need not be waited for; and for how
    /// many pages. `None` if that is not possible, they stand still already, or there are hardly
    /// any frames.
    fn hold(&self, placer: &Placer, want: &ColorSet, pids: &[i32]) -> Option<(Hold, u64)> {
        let above = 2 * HELD_PAGES / u64::from(want.len()).max(1);
        let stock = placer.stock(want, above, true);
        let count = |color: Color| stock.get(usize::from(color.0)).copied().unwrap_or(0);
        // As many again may be taken by others.
        let pages = (want.iter().map(count).sum::<u64>() / 2).min(HELD_PAGES);
        if pages == 0 {
            return None;
        }
        Some((Hold::on(&self.root, pids).ok().filter(|hold| !hold.is_empty())?, pages))
    }
}

/// Whether some pages did not come that may do so another time. Of one process, those that are
/// mapped came back while they were placed; of several, they may be in use by all.
fn could_come(tally: &PlacementTally, by_several: bool) -> bool {
    use PlacementRefusal::{Locked, Mapped, Missed, Written};
    let refused = |why: &PlacementRefusal| tally.refused.contains_key(why);
    [Locked, Missed, Written].iter().any(refused)
        || refused(&Mapped) && (!by_several || tally.placed > 0)
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of them short")]
mod tests {
    use super::*;
    use crate::color::sources::Computed;
    use crate::kernel::procfs::fake::Fake;
    use huepage_color::{CacheLevel, ColorMap, IndexFunction, Provenance};

    fn worker(fake: &Fake, shared: bool) -> Worker {
        let index = IndexFunction::linear(6, 10).expect("a cache");
        let map = ColorMap::computed(CacheLevel::L2, &index, Provenance::Pfn).expect("colours");
        let own = ColorSet::first(2, map.colors());
        let all = ColorSet::all(map.colors());
        let registry = Registry::open_at(fake.root.0.join("run"), ProcRoot::default());
        Worker {
            source: Box::new(Computed(map)),
            options: TextOptions {
                own,
                shared: shared.then_some(all),
                registry: registry.expect("a fresh directory"),
                placer: PlacerOptions::default(),
            },
            root: fake.root.clone(),
            members: vec![5],
            sizes: HashMap::new(),
            known: HashMap::new(),
            ending: Arc::default(),
            report: Arc::default(),
        }
    }

    fn canned() -> Fake {
        let fake = Fake::new();
        fake.put("5/maps", "1000-3000 r-xp 00000000 08:01 10 /bin/a\n");
        fake.put("5/task/5/children", "").put("5/statm", "2 2 2 0 0 0 0");
        fake
    }

    /// The inodes and pages that a look finds to be placed.
    fn due(worker: &mut Worker) -> Vec<(u64, Vec<Range<u64>>)> {
        let changed = worker.changed();
        let found = worker.due(texts(&worker.root, &changed));
        found.into_iter().map(|due| (due.id.inode, due.pages)).collect()
    }

    #[test]
    fn reports_travel_as_json() {
        let mut report = TextReport { files: 3, ..TextReport::default() };
        report.left.insert(Left::Outside, 2);
        report.tally.pages = 7;
        report.tally.refuse(PlacementRefusal::NoFrames, 5);
        let text = serde_json::to_string(&report).expect("written");
        assert!(text.contains(r#""left_alone":{"no-frames":5}"#), "{text}");
        let read: TextReport = serde_json::from_str(&text).expect("read");
        assert_eq!((read.files, read.left, read.tally), (3, report.left, report.tally));
    }

    #[test]
    fn each_mapping_is_placed_once() {
        let fake = canned();
        let mut worker = worker(&fake, false);
        assert_eq!(due(&mut worker), [(10, vec![0..2])]);
        assert!(due(&mut worker).is_empty());
        let more = "1000-3000 r-xp 00000000 08:01 10 /bin/a\n\
                    4000-6000 r-xp 00001000 08:01 10 /bin/a\n\
                    8000-9000 r-xp 00000000 08:01 11 /lib/b\n";
        fake.put("5/maps", more);
        assert!(due(&mut worker).is_empty(), "the size is what it was");
        fake.put("5/statm", "5 5 5 0 0 0 0");
        assert_eq!(due(&mut worker), [(10, vec![2..3]), (11, vec![0..1])]);
        assert_eq!(worker.report.lock().expect("no panic").files, 2);
    }

    #[test]
    fn files_of_others_are_left_and_counted_once() {
        let fake = canned();
        fake.put("7/maps", "1000-3000 r-xp 00000000 08:01 10 /bin/a\n");
        let mut worker = worker(&fake, true);
        assert!(due(&mut worker).is_empty());
        worker.sizes.clear();
        assert!(due(&mut worker).is_empty());
        let report = worker.report.lock().expect("no panic").clone();
        assert_eq!((report.files, &report.left), (0, &BTreeMap::from([(Left::Outside, 1)])));
    }

    #[test]
    fn a_file_that_others_let_go_of_is_placed_when_another_member_maps_it() {
        let fake = canned();
        fake.put("7/maps", "1000-3000 r-xp 00000000 08:01 10 /bin/a\n");
        let mut worker = worker(&fake, false);
        assert!(due(&mut worker).is_empty());
        fake.put("7/maps", "");
        fake.put("6/maps", "1000-2000 r-xp 00000000 08:01 10 /bin/a\n");
        fake.put("6/task/6/children", "").put("6/statm", "1 1 1 0 0 0 0");
        worker.members.push(6);
        assert_eq!(due(&mut worker), [(10, vec![0..1])]);
    }
}
