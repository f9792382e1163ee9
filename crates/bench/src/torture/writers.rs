//! Writers: random increments in every kind of private memory against a shadow copy.
//!
//! The shadow lies in shared memory, which nothing moves, so an update lost by moving a page
//! cannot be lost in both. Each word belongs to one thread (plain load and store: a lost
//! store shows) except the last of each page, which all threads add to atomically. The kernel
//! writes too: pipes and `/dev/zero` are read straight into the memory, across page ends.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::{Ctx, TorturePlan, TortureWorker};
use crate::mix::{Rng, pattern, range};
use crate::sys::{self, MappedMemory, WORDS};

/// The sites of this mode.
pub const SITES: [&str; 8] = [
    "writers.mmap",
    "writers.heap",
    "writers.bss",
    "writers.data",
    "writers.stack",
    "writers.shared-words",
    "writers.pipe",
    "writers.zero",
];

const BSS_PAGES: usize = 256;
const DATA_PAGES: usize = 64;
const STACK_PAGES: usize = 32;
/// Updates between two looks at the shadow.
const BURST: usize = 8192;
/// Words compared at each look.
const LOOK: usize = 2048;

static BSS: [AtomicU64; BSS_PAGES * WORDS] = [const { AtomicU64::new(0) }; BSS_PAGES * WORDS];
static DATA: [AtomicU64; DATA_PAGES * WORDS] = [const { AtomicU64::new(9) }; DATA_PAGES * WORDS];

/// One region and its shadow, seen by one thread.
struct Region<'a> {
    site: &'static str,
    words: &'a [AtomicU64],
    shadow: &'a [AtomicU64],
    /// This thread's part: words whose number leaves `me` modulo `threads`.
    me: usize,
    threads: usize,
}

impl Region<'_> {
    /// A random word of this thread.
    fn pick(&self, rng: &mut Rng) -> usize {
        let mut place = rng.usize(..self.words.len() / self.threads) * self.threads + self.me;
        if place % WORDS == WORDS - 1 && self.threads > 1 {
            place -= self.threads;
        }
        place
    }

    fn update(&self, rng: &mut Rng) {
        let place = self.pick(rng);
        let by = rng.u64(..);
        let word = &self.words[place];
        word.store(word.load(Relaxed).wrapping_add(by), Relaxed);
        let shadow = &self.shadow[place];
        shadow.store(shadow.load(Relaxed).wrapping_add(by), Relaxed);
    }

    fn look(&self, ctx: &Ctx, rng: &mut Rng) {
        if ctx.strikes(self.site) {
            let place = self.pick(rng);
            self.words[place].fetch_xor(1 << 17, Relaxed);
            ctx.record(self.site, 1, self.compare(ctx, place));
        }
        let mut wrong = 0;
        for _ in 0..LOOK {
            wrong += self.compare(ctx, self.pick(rng));
        }
        ctx.record(self.site, LOOK as u64, wrong);
    }

    /// Compares all words of this thread.
    fn compare_all(&self, ctx: &Ctx) {
        let mut checks = 0;
        let mut wrong = 0;
        for place in (self.me..self.words.len()).step_by(self.threads) {
            if place % WORDS != WORDS - 1 || self.threads == 1 {
                checks += 1;
                wrong += self.compare(ctx, place);
            }
        }
        ctx.record(self.site, checks, wrong);
    }

    /// Compares one word and makes it right again, so that one fault counts once.
    fn compare(&self, ctx: &Ctx, place: usize) -> u64 {
        let (want, got) = (self.shadow[place].load(Relaxed), self.words[place].load(Relaxed));
        if want == got {
            return 0;
        }
        let at = std::ptr::from_ref(&self.words[place]);
        ctx.complain(self.site, &format!("{at:p}: expected {want:#x}, found {got:#x}"));
        self.words[place].store(want, Relaxed);
        1
    }
}

/// The memory that all threads write to.
struct Common {
    mmap: MappedMemory,
    heap: Vec<AtomicU64>,
    shadow: MappedMemory,
    threads: usize,
    finished: AtomicUsize,
}

impl Common {
    fn new(plan: &TorturePlan) -> Common {
        let pages = plan.mib * 128;
        let all = pages * 2 + BSS_PAGES + DATA_PAGES + plan.threads * STACK_PAGES;
        let shadow = MappedMemory::shared(all).expect("memory for the shadow");
        let common = Common {
            mmap: MappedMemory::private(pages).expect("memory for the writers"),
            heap: (0..pages * WORDS).map(|_| AtomicU64::new(0)).collect(),
            shadow,
            threads: plan.threads,
            finished: AtomicUsize::new(0),
        };
        for (words, shadow) in common.regions().iter().map(|(_, w, s)| (w, s)) {
            for (word, shadow) in words.iter().zip(*shadow) {
                shadow.store(word.load(Relaxed), Relaxed);
            }
        }
        common
    }

    fn regions(&self) -> [(&'static str, &[AtomicU64], &[AtomicU64]); 4] {
        let mut rest = self.shadow.words();
        let mut with_shadow = |site, words: &'static [AtomicU64]| {
            let (shadow, tail) = rest.split_at(words.len());
            rest = tail;
            (site, words, shadow)
        };
        let bss = with_shadow("writers.bss", &BSS);
        let data = with_shadow("writers.data", &DATA);
        let (mmap, tail) = rest.split_at(self.mmap.words().len());
        let heap = &tail[..self.heap.len()];
        [bss, data, ("writers.mmap", self.mmap.words(), mmap), ("writers.heap", &self.heap, heap)]
    }

    /// The shadow of one thread's stack memory.
    fn stack_shadow(&self, me: usize) -> &[AtomicU64] {
        let words = self.shadow.words();
        let len = STACK_PAGES * WORDS;
        &words[words.len() - (me + 1) * len..][..len]
    }

    /// Adds to a word that all threads add to; the sum of each page is checked at the end.
    fn add_shared(&self, rng: &mut Rng) {
        let (_, words, shadow) = self.regions()[rng.usize(..4)];
        let place = rng.usize(..words.len() / WORDS) * WORDS + WORDS - 1;
        let by = rng.u64(..);
        words[place].fetch_add(by, Relaxed);
        shadow[place].fetch_add(by, Relaxed);
    }

    fn compare_shared(&self, ctx: &Ctx) {
        let site = "writers.shared-words";
        ctx.sabotage(site, &self.mmap.words()[WORDS - 1..WORDS]);
        for (_, words, shadow) in self.regions() {
            for place in (WORDS - 1..words.len()).step_by(WORDS) {
                ctx.expect(site, shadow[place].load(Relaxed), words[place].load(Relaxed));
            }
        }
    }
}

/// Reads on until all words are read: a stopped and continued thread (as by a debugger) may
/// get less from one call, with the kernel's blessing.
fn read_all(fd: BorrowedFd<'_>, words: &[AtomicU64]) -> std::io::Result<usize> {
    let mut done = 0;
    while done < words.len() {
        match sys::read_into(fd, &words[done..])? {
            0 => break,
            got if got % 8 == 0 => done += got / 8,
            odd => return Err(std::io::Error::other(format!("{odd} bytes read"))),
        }
    }
    Ok(done * 8)
}

/// Reads pipes and `/dev/zero` straight into memory.
struct Inbox {
    area: MappedMemory,
    letter: MappedMemory,
    ends: (OwnedFd, OwnedFd),
    zero: std::fs::File,
    epoch: u64,
}

const INBOX_PAGES: usize = 64;
const LETTER_WORDS: usize = 4 * WORDS;

impl Inbox {
    fn new() -> std::io::Result<Inbox> {
        Ok(Inbox {
            area: MappedMemory::private(INBOX_PAGES)?,
            letter: MappedMemory::private(4)?,
            ends: sys::pipe()?,
            zero: std::fs::File::open("/dev/zero")?,
            epoch: 0,
        })
    }

    /// A random place that a letter of random length fits in, rarely at a page's beginning.
    fn place(&self, rng: &mut Rng) -> &[AtomicU64] {
        let words = self.area.words();
        &words[range(rng, words.len(), LETTER_WORDS)]
    }

    fn pipe(&mut self, ctx: &Ctx, rng: &mut Rng) {
        self.epoch += 1;
        let (site, epoch) = ("writers.pipe", self.epoch);
        let target = self.place(rng);
        let letter = &self.letter.words()[..target.len()];
        for (place, word) in (0..).zip(letter) {
            word.store(pattern(7, epoch, place), Relaxed);
        }
        let sent = sys::write_from(self.ends.1.as_fd(), letter);
        let got = sent.and_then(|_| read_all(self.ends.0.as_fd(), target));
        ctx.expect(site, size_of_val(letter) as u64, got.unwrap_or(0) as u64);
        ctx.sabotage(site, target);
        ctx.expect_words(site, target, |place| pattern(7, epoch, place));
    }

    fn zero(&self, ctx: &Ctx, rng: &mut Rng) {
        let target = self.place(rng);
        let got = read_all(self.zero.as_fd(), target);
        ctx.expect("writers.zero", size_of_val(target) as u64, got.unwrap_or(0) as u64);
        ctx.sabotage("writers.zero", target);
        ctx.expect_words("writers.zero", target, |_| 0);
    }
}

fn work(ctx: &Ctx, common: &Common, me: usize) {
    let heart = ctx.heart(format!("writer {me}"));
    let mut rng = Rng::with_seed(ctx.plan.seed ^ (me as u64) << 8);
    let stack = [const { AtomicU64::new(0) }; STACK_PAGES * WORDS];
    let threads = common.threads;
    let mut regions: Vec<Region<'_>> = common
        .regions()
        .into_iter()
        .map(|(site, words, shadow)| Region { site, words, shadow, me, threads })
        .collect();
    let (shadow, site) = (common.stack_shadow(me), "writers.stack");
    regions.push(Region { site, words: &stack, shadow, me: 0, threads: 1 });
    let Some(mut inbox) = ctx.expect_ok("writers.pipe", Inbox::new()) else { return };
    while !ctx.done() {
        for _ in 0..BURST {
            regions[rng.usize(..regions.len())].update(&mut rng);
        }
        for _ in 0..16 {
            common.add_shared(&mut rng);
        }
        for region in &regions {
            region.look(ctx, &mut rng);
        }
        inbox.pipe(ctx, &mut rng);
        inbox.zero(ctx, &mut rng);
        heart.beat();
    }
    for region in &regions {
        region.compare_all(ctx);
        heart.beat();
    }
    if common.finished.fetch_add(1, AcqRel) + 1 == threads {
        common.compare_shared(ctx);
    }
}

/// The threads of this mode.
pub fn workers(plan: &TorturePlan) -> Vec<TortureWorker<'static>> {
    let common = Arc::new(Common::new(plan));
    (0..plan.threads)
        .map(|me| {
            let common = Arc::clone(&common);
            Box::new(move |ctx: &Ctx| work(ctx, &common, me)) as TortureWorker<'static>
        })
        .collect()
}
