//! One stream of accesses on several processors: pages get their frames here, in order; what caches are
//! asked goes to parts of them that have nothing to do with each other ([`Hierarchy::part`]), and what
//! TLBs are asked is one part more, which threads run a block later. What comes out is what one thread gives; a test compares. As soon
//! as an access comes that cannot go that way, the parts are put together and one thread goes on.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use huepage_color::{ColorMap, Pfn};

use super::fast::{MOST_REQUESTS, Room, look_up};
use super::{ColorCounts, System};
use crate::cache::batch::{LineRequest, Lists, MOST_DEPTHS, RequestTally};
use crate::cache::optimistic::Stages;
use crate::cache::repeats::SetBits;
use crate::cache::{Hierarchy, Path};
use crate::tlb::{PageLookUp, Tlb, TlbCounts};

/// log2 of the most parts: enough for a few threads, few enough that a part of the usual nearest cache has
/// eight sets: requests for one set wait for each other. There are fewer where a cache has few sets.
const MOST_BITS: u32 = 3;
const PARTS: usize = 1 << MOST_BITS;
/// Requests in a block.
const BLOCK: usize = 1 << 14;

/// How long a thread looks for what it waits for before it sleeps: to be woken takes as long as a few parts
/// of a block.
const AWAKE: Duration = Duration::from_micros(100);

/// Why a run stays on one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct OneThread(&'static str);

/// Whose the next requests of a block are.
#[derive(Debug)]
struct Owner {
    core: usize,
    space: u16,
    /// Where they end in each part.
    ends: [usize; PARTS],
    /// Hits in the nearest cache that are in no part.
    hits: RequestTally,
}

/// Requests by part, and whose they are.
#[derive(Debug)]
struct Block {
    /// Room for all of a block in each part.
    requests: Vec<LineRequest>,
    /// Where they end in each part.
    ends: [usize; PARTS],
    owners: Vec<Owner>,
    filled: usize,
    /// Changed where they are looked up.
    pages: Mutex<Vec<PageLookUp>>,
    /// Whose pages they are: core, space, how often pages were asked for again, and where they end.
    page_owners: Vec<(usize, u16, u64, usize)>,
}

/// The TLBs of all cores, and what they found.
#[derive(Debug)]
struct TlbPart {
    /// With the levels that are asked for data.
    cores: Vec<(Vec<Tlb>, Vec<usize>)>,
    stalls: Vec<u64>,
    /// By space, what no TLB had, and cycles.
    found: Vec<(u64, u64)>,
}

/// A part of the caches, and what it found.
#[derive(Debug)]
struct Part {
    /// The lowest bits of its lines, and how many they are.
    low: u64,
    bits: u32,
    caches: Hierarchy,
    /// The way of data of each core.
    paths: Vec<Path>,
    lists: Lists,
    stages: Stages,
    /// By space, accesses by the depth that answered.
    found: Vec<[u64; MOST_DEPTHS]>,
    map: Option<ColorMap>,
    colored: Option<usize>,
    colors: ColorCounts,
    line_bits: u32,
}

/// A block that is being run.
#[derive(Debug)]
struct Job {
    parts: Arc<Vec<Mutex<Part>>>,
    tlbs: Arc<Mutex<TlbPart>>,
    block: Block,
    /// Blocks before it.
    number: usize,
    turns: Arc<Turns>,
}

/// For each task, twice the number of the block that is next, and one more while somebody runs that: TLBs are the
/// first task, and parts follow.
type Turns = [AtomicUsize; 1 + PARTS];

/// A task that somebody runs, who says when it is over, or that nobody can run any more.
struct Running<'a>(&'a AtomicUsize, usize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let next = if std::thread::panicking() { usize::MAX } else { self.1 };
        self.0.store(next, Ordering::Release);
    }
}

impl Job {
    /// Runs tasks until all are begun: those of this thread first, which are the same in each block, so that
    /// what they know stays in this processor's caches; then the last ones of the others.
    fn help(&self, thread: usize, threads: usize) {
        let tasks = 1 + self.parts.len();
        let (start, end) = (thread * tasks / threads, (thread + 1) * tasks / threads);
        let is_left = |turn: &AtomicUsize| turn.load(Ordering::Relaxed) <= 2 * self.number;
        while self.turns[..tasks].iter().any(is_left) {
            for task in (start..end).chain((0..start).rev()).chain((end..tasks).rev()) {
                self.begin(task);
            }
            // Somebody may have to end a task of the block before.
            std::thread::yield_now();
        }
    }

    /// Runs a task if it is its turn.
    fn begin(&self, task: usize) {
        let (turn, own) = (&self.turns[task], 2 * self.number);
        if turn.compare_exchange(own, own + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            let _running = Running(turn, own + 2);
            self.run(task);
        }
    }

    fn run(&self, task: usize) {
        match task.checked_sub(1) {
            None => lock(&self.tlbs).run(&self.block),
            Some(part) => lock(&self.parts[part]).run(&self.block),
        }
    }
}

/// A thread, and the ways to it and back, where it says when it has no part left.
#[derive(Debug)]
struct Worker {
    jobs: Sender<Arc<Job>>,
    done: Receiver<()>,
    thread: JoinHandle<()>,
}

/// The threads of a system and what they run.
#[derive(Debug)]
pub(super) struct Threads {
    parts: Arc<Vec<Mutex<Part>>>,
    tlbs: Arc<Mutex<TlbPart>>,
    bits: u32,
    filling: Block,
    /// In order, two at most; all of those before the last are begun.
    running: VecDeque<Arc<Job>>,
    /// How many there have been.
    blocks: usize,
    turns: Arc<Turns>,
    workers: Vec<Worker>,
    /// Blocks that are used again.
    spare: Vec<Block>,
}

/// # Panics
/// If a thread has panicked while it ran this part: its counts would be wrong.
fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(|_| panic!("a thread that runs caches has panicked"))
}

impl System {
    /// Uses so many threads from now on, this one included, as long as accesses come in whole batches of a
    /// program that nobody watches. Counts are complete after [`System::finish`].
    ///
    /// # Errors
    /// Why this machine stays on one thread: its caches cannot be divided, or it has run before.
    pub fn use_threads(&mut self, threads: usize) -> Result<(), OneThread> {
        if threads < 2 {
            return Ok(());
        }
        let path = |core: usize| self.goes_by_levels(core) || self.goes_by_trial(core);
        if self.spaces.iter().any(super::State::is_used) || self.leads() {
            return Err(OneThread("it has run before"));
        }
        if !(0..self.cores.len()).all(path) {
            return Err(OneThread("its accesses go one after the other"));
        }
        if !self.cores.iter().all(super::Core::is_plain) {
            return Err(OneThread("a TLB takes large pages only"));
        }
        let mut bits = MOST_BITS;
        while let Err(why) = self.hierarchy.can_divide(bits) {
            bits -= 1;
            if bits == 0 {
                return Err(OneThread(why));
            }
        }
        let parts = (0..1 << bits).map(|low| Mutex::new(self.part_of(low, bits)));
        let parts = Arc::new(parts.collect::<Vec<_>>());
        let workers: Vec<Worker> =
            (1..threads).filter_map(|own| worker(own - 1, threads)).collect();
        if workers.is_empty() {
            return Err(OneThread("the system starts no thread"));
        }
        let tlbs = Arc::new(Mutex::new(self.tlb_part()));
        self.threads = Some(Box::new(Threads::new(parts, tlbs, bits, workers)));
        Ok(())
    }

    /// For tests: whoever runs this part from now on panics, since it has no path to take. Whether there is one.
    #[doc(hidden)]
    pub fn spoil_part(&mut self, part: usize) -> bool {
        let part = self.threads.as_ref().and_then(|threads| threads.parts.get(part));
        part.map(|part| lock(part).paths.clear()).is_some()
    }

    /// Whether several threads run it still.
    pub const fn runs_by_threads(&self) -> bool {
        self.threads.is_some()
    }

    fn part_of(&self, low: u64, bits: u32) -> Part {
        Part {
            low,
            bits,
            caches: self.hierarchy.part(bits),
            paths: self.cores.iter().map(|core| core.paths[0].clone()).collect(),
            lists: Lists::default(),
            stages: Stages::for_sifted(),
            found: Vec::new(),
            map: self.frames.color_map().cloned(),
            colored: self.colored,
            colors: self.colors.zeros(),
            line_bits: self.line_bits,
        }
    }

    fn tlb_part(&self) -> TlbPart {
        let own = |core: &super::Core| (core.tlbs.clone(), core.tlb_paths[0].clone());
        TlbPart {
            cores: self.cores.iter().map(own).collect(),
            stalls: self.tlb_stalls.clone(),
            found: Vec::new(),
        }
    }

    /// What TLBs are asked goes to their part.
    pub(super) fn share_pages(&mut self, core: usize, space: u16, room: &Room) {
        let Some(threads) = &mut self.threads else { return };
        let repeats = (room.filled - room.listed) as u64;
        threads.filling.add_pages(core, space, &room.pages[..room.listed], repeats);
    }

    /// What caches are asked goes to the parts.
    pub(super) fn share_requests(&mut self, core: usize, space: u16, requests: &[LineRequest]) {
        let Some(threads) = &mut self.threads else { return };
        let sets = self.hierarchy.nearest_sets(&self.cores[core].paths[0]);
        threads.filling.add((core, space), requests, sets, threads.bits);
        if threads.filling.filled >= BLOCK {
            threads.next_block();
        }
    }

    /// Everything so far has gone through the parts, and programs are charged for it.
    pub(super) fn catch_up(&mut self) {
        let Some(mut threads) = self.threads.take() else { return };
        threads.next_block();
        threads.wait();
        for part in threads.parts.iter() {
            let mut part = lock(part);
            for (space, found) in (0..).zip(std::mem::take(&mut part.found)) {
                self.charge_misses(space, &found);
            }
            self.colors.add(&part.colors);
            part.colors = part.colors.zeros();
        }
        let found = std::mem::take(&mut lock(&threads.tlbs).found);
        for (state, (walks, cycles)) in self.spaces.iter_mut().zip(found) {
            self.walks += walks;
            state.costs.tlb_cycles += cycles;
        }
        self.threads = Some(threads);
    }

    /// The caches are in one piece from now on.
    pub(super) fn put_together(&mut self) {
        self.catch_up();
        let Some(threads) = self.threads.take() else { return };
        let parts: Vec<_> = threads.parts.iter().map(lock).collect();
        let caches: Vec<&Hierarchy> = parts.iter().map(|part| &part.caches).collect();
        self.hierarchy.put_together(&caches, threads.bits);
        for (core, (tlbs, _)) in self.cores.iter_mut().zip(&mut lock(&threads.tlbs).cores) {
            core.tlbs = std::mem::take(tlbs);
        }
    }

    /// Forgets what the parts have counted.
    pub(super) fn forget_parts(&mut self) {
        self.catch_up();
        let parts = self.threads.iter().flat_map(|threads| threads.parts.iter());
        parts.for_each(|part| lock(part).caches.forget_counts());
        if let Some(threads) = &self.threads {
            let tlbs = &mut *lock(&threads.tlbs);
            let all = tlbs.cores.iter_mut().flat_map(|(tlbs, _)| tlbs);
            all.for_each(|tlb| tlb.counts = TlbCounts::default());
        }
    }
}

/// What comes next, which is expected soon.
fn soon<T>(from: &Receiver<T>) -> Result<T, RecvError> {
    let since = Instant::now();
    loop {
        match from.try_recv() {
            Ok(next) => return Ok(next),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
            Err(TryRecvError::Empty) if since.elapsed() < AWAKE => std::hint::spin_loop(),
            Err(TryRecvError::Empty) => return from.recv(),
        }
    }
}

/// A thread that runs what it is sent.
fn worker(own: usize, threads: usize) -> Option<Worker> {
    let (jobs, given) = channel::<Arc<Job>>();
    let (say, done) = channel();
    let run = move || {
        while let Ok(job) = soon(&given) {
            job.help(own, threads);
            // Whoever waits takes the block apart.
            drop(job);
            if say.send(()).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("caches".to_owned()).spawn(run).ok()?;
    Some(Worker { jobs, done, thread })
}

impl Threads {
    fn new(
        parts: Arc<Vec<Mutex<Part>>>,
        tlbs: Arc<Mutex<TlbPart>>,
        bits: u32,
        workers: Vec<Worker>,
    ) -> Threads {
        Threads {
            parts,
            tlbs,
            bits,
            filling: Block::new(),
            running: VecDeque::new(),
            blocks: 0,
            turns: Arc::default(),
            workers,
            spare: Vec::new(),
        }
    }

    /// What is filled runs next, while another block is filled; the one before it is helped until all of it is
    /// begun. So nobody waits for the last task of a block.
    fn next_block(&mut self) {
        while self.running.len() > 1 {
            self.end_oldest();
        }
        let next = self.spare.pop().unwrap_or_else(Block::new);
        let block = std::mem::replace(&mut self.filling, next);
        let (parts, tlbs) = (Arc::clone(&self.parts), Arc::clone(&self.tlbs));
        let (number, turns) = (self.blocks, Arc::clone(&self.turns));
        let job = Arc::new(Job { parts, tlbs, block, number, turns });
        for worker in &self.workers {
            // Whether it is still there is seen when it is waited for.
            let _ = worker.jobs.send(Arc::clone(&job));
        }
        if let Some(before) = self.running.front() {
            before.help(self.workers.len(), self.workers.len() + 1);
        }
        self.running.push_back(job);
        self.blocks += 1;
    }

    fn wait(&mut self) {
        while !self.running.is_empty() {
            self.end_oldest();
        }
    }

    fn end_oldest(&mut self) {
        let Some(job) = self.running.pop_front() else { return };
        // This thread also finds frames: its tasks are the last, which others begin when they have none left.
        job.help(self.workers.len(), self.workers.len() + 1);
        for worker in &self.workers {
            assert!(soon(&worker.done).is_ok(), "a thread that runs caches has ended");
        }
        self.spare.extend(Arc::into_inner(job).map(|mut job| {
            job.block.clear();
            job.block
        }));
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.wait();
        }
        for Worker { jobs, thread, .. } in self.workers.drain(..) {
            drop(jobs);
            let _ = thread.join();
        }
    }
}

impl Block {
    /// Most requests of a part: a batch more than those that are enough.
    const ROOM: usize = BLOCK + MOST_REQUESTS;
    const STARTS: [usize; PARTS] = {
        let (mut starts, mut part) = ([0; PARTS], 1);
        while part < PARTS {
            starts[part] = part * Block::ROOM;
            part += 1;
        }
        starts
    };

    fn new() -> Block {
        Block {
            requests: vec![LineRequest::default(); PARTS * Block::ROOM],
            ends: Block::STARTS,
            owners: Vec::new(),
            filled: 0,
            pages: Mutex::default(),
            page_owners: Vec::new(),
        }
    }

    fn pages(&mut self) -> &mut Vec<PageLookUp> {
        self.pages.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn clear(&mut self) {
        self.ends = Block::STARTS;
        self.owners.clear();
        self.filled = 0;
        self.pages().clear();
        self.page_owners.clear();
    }

    fn add_pages(&mut self, core: usize, space: u16, pages: &[PageLookUp], repeats: u64) {
        let all = self.pages();
        all.extend_from_slice(pages);
        let end = all.len();
        match self.page_owners.last_mut().filter(|last| (last.0, last.1) == (core, space)) {
            Some(last) => (last.2, last.3) = (last.2 + repeats, end),
            None => self.page_owners.push((core, space, repeats, end)),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "one of few parts")]
    fn add(
        &mut self,
        (core, space): (usize, u16),
        requests: &[LineRequest],
        sets: SetBits,
        bits: u32,
    ) {
        debug_assert!(requests.len() <= MOST_REQUESTS && self.filled < BLOCK);
        let (mask, to, mut ends) = ((1 << bits) - 1, self.requests.as_mut_slice(), self.ends);
        let hits = sets.sift(requests, |_, request, wanted| {
            let end = &mut ends[request.line() as usize & mask & (PARTS - 1)];
            to[*end] = request.without(bits);
            *end += usize::from(wanted);
        });
        self.filled = ends.iter().zip(Block::STARTS).map(|(end, start)| end - start).sum();
        self.ends = ends;
        match self.owners.last_mut().filter(|last| (last.core, last.space) == (core, space)) {
            Some(last) => {
                last.ends = ends;
                last.hits.add(hits);
            }
            None => self.owners.push(Owner { core, space, ends, hits }),
        }
    }
}

impl TlbPart {
    /// What is asked of TLBs in a block.
    fn run(&mut self, block: &Block) {
        let (mut pages, mut from) = (lock(&block.pages), 0);
        for &(core, space, repeats, end) in &block.page_owners {
            let (tlbs, levels) = &mut self.cores[core];
            let asked = (space, repeats, &self.stalls[..]);
            let (missing, cycles) = look_up(tlbs, levels, &mut pages[from..end], asked, |_| ());
            let at = usize::from(space);
            if self.found.len() <= at {
                self.found.resize(at + 1, (0, 0));
            }
            self.found[at].0 += missing as u64;
            self.found[at].1 += cycles;
            from = end;
        }
    }
}

impl Part {
    /// Its requests of a block.
    fn run(&mut self, block: &Block) {
        let part = usize::try_from(self.low).unwrap_or(0);
        let mut from = Block::STARTS[part];
        for owner in &block.owners {
            let all = &block.requests[from..owner.ends[part]];
            all.chunks(512).for_each(|requests| self.ask(owner.core, owner.space, requests));
            from = owner.ends[part];
            if part == 0 {
                self.caches.add_nearest_hits(&self.paths[owner.core], owner.hits);
            }
        }
    }

    fn ask(&mut self, core: usize, space: u16, requests: &[LineRequest]) {
        let Part {
            low, bits, caches, paths, lists, stages, map, colored, colors, line_bits, ..
        } = self;
        let color = |request: &LineRequest| {
            let line = request.line() << *bits | *low;
            map.as_ref().and_then(|map| map.color(Pfn(line << *line_bits >> 12)))
        };
        let note = super::fast::color_notes(color, colors, *colored);
        let (path, mut found) = (&paths[core], [0; MOST_DEPTHS]);
        if caches.is_staged(path, *line_bits) {
            let asked = caches.run_nearest_sifted(path, requests, lists);
            caches.run_further(path, asked, lists, &mut found, note);
        } else {
            caches.run_optimistic(path, requests, stages, &mut found, note);
        }
        let at = usize::from(space);
        if self.found.len() <= at {
            self.found.resize(at + 1, [0; MOST_DEPTHS]);
        }
        self.found[at].iter_mut().zip(found).for_each(|(sum, found)| *sum += found);
    }
}
