//! Forkers: every child must see the memory as it was at the moment of the fork.
//!
//! One thread rewrites random pages of its region, epoch by epoch, and forks; the child
//! recomputes what each page held in that epoch and compares every word, while the parent is
//! already changing it. A second thread hammers pairs of counters in a region of its own;
//! the order of its two stores bounds what a copy taken at one instant may hold. Children
//! write to their copies and check that this stayed theirs; some fork again. `vfork` and
//! `posix_spawn` children are made too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Ctx, TorturePlan, TortureWorker};
use crate::mix::{Rng, pattern, scramble};
use crate::sys::{self, ChildEnd, MappedMemory, WORDS};

/// The sites of this mode.
pub const SITES: [&str; 7] = [
    "forkers.child",
    "forkers.nested",
    "forkers.own-copy",
    "forkers.pairs",
    "forkers.parent",
    "forkers.vfork",
    "forkers.spawn",
];

/// Children at work at once.
const BROOD: usize = 4;
const PAIR_PAGES: usize = 64;
/// Status bits of a child: which of its checks failed.
const CHILD: u8 = 1;
const NESTED: u8 = 2;
const OWN: u8 = 4;
const PAIRS: u8 = 8;

/// The region whose contents are a function of the epoch.
struct Region {
    area: MappedMemory,
}

impl Region {
    /// Whether an epoch rewrites a page: one in four, and all in epoch 0.
    fn rewrites(page: u64, epoch: u64) -> bool {
        epoch == 0 || scramble(page << 32 ^ epoch) & 3 == 0
    }

    /// The last epoch up to `epoch` that rewrote a page.
    fn written(page: u64, epoch: u64) -> u64 {
        (0..=epoch).rev().find(|e| Region::rewrites(page, *e)).unwrap_or(0)
    }

    fn rewrite(&self, epoch: u64) {
        for page in 0..self.area.pages() {
            if Region::rewrites(page as u64, epoch) {
                self.fill(page, epoch);
            }
        }
    }

    fn fill(&self, page: usize, epoch: u64) {
        for (place, word) in (0..).zip(self.area.page(page)) {
            word.store(pattern(page as u64, epoch, place), Ordering::Relaxed);
        }
    }

    /// Pages that do not hold what they held at the end of `epoch`; allocates nothing.
    fn wrong_pages(&self, epoch: u64) -> usize {
        (0..self.area.pages()).filter(|page| !self.holds(*page, epoch)).count()
    }

    fn holds(&self, page: usize, epoch: u64) -> bool {
        let epoch = Region::written(page as u64, epoch);
        (0..)
            .zip(self.area.page(page))
            .all(|(place, word)| word.load(Ordering::Relaxed) == pattern(page as u64, epoch, place))
    }
}

/// Pairs of counters: a thread adds 1 to the first, then to the second, page by page.
struct Pairs {
    area: MappedMemory,
}

impl Pairs {
    fn hammer(&self) {
        for page in 0..PAIR_PAGES {
            for place in (0..WORDS).step_by(64) {
                self.area.page(page)[place].fetch_add(1, Ordering::SeqCst);
                self.area.page(page)[place + 1].fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// A lower bound for every counter in a copy taken from now on.
    fn lap(&self) -> u64 {
        self.area.words()[(PAIR_PAGES - 1) * WORDS + WORDS - 63].load(Ordering::SeqCst)
    }

    /// Whether a copy is impossible: a counter below `lap`, or a pair more than 1 apart.
    fn impossible(&self, lap: u64) -> bool {
        self.area.words().chunks(64).any(|chunk| {
            let first = chunk[0].load(Ordering::SeqCst);
            let second = chunk[1].load(Ordering::SeqCst);
            second < lap || first < second || first - second > 1
        })
    }
}

struct Shared {
    region: Region,
    pairs: Pairs,
}

/// What a child does; only memory and system calls, for it is alone in a copied process.
fn child(shared: &Shared, epoch: u64, lap: u64, nest: bool) -> u8 {
    let mut status = 0;
    if shared.region.wrong_pages(epoch) > 0 {
        status |= CHILD;
    }
    if shared.pairs.impossible(lap) {
        status |= PAIRS;
    }
    let mine = epoch | 1 << 60;
    for page in (0..shared.region.area.pages()).step_by(3) {
        shared.region.fill(page, mine);
    }
    if nest {
        let inner = sys::fork(|| if holds_own(&shared.region, epoch, mine) { 0 } else { NESTED });
        match inner.and_then(sys::wait) {
            Ok(ChildEnd::Status(0)) => {}
            _ => status |= NESTED,
        }
    }
    if !holds_own(&shared.region, epoch, mine) {
        status |= OWN;
    }
    status
}

/// Whether every third page holds the child's own pattern and the others the parent's.
fn holds_own(region: &Region, epoch: u64, mine: u64) -> bool {
    (0..region.area.pages()).all(|page| {
        if page % 3 != 0 {
            return region.holds(page, epoch);
        }
        let mut words = (0..).zip(region.area.page(page));
        words.all(|(at, word)| word.load(Ordering::Relaxed) == pattern(page as u64, mine, at))
    })
}

fn judge(ctx: &Ctx, ended: std::io::Result<ChildEnd>) {
    let bits = match ended {
        Ok(ChildEnd::Status(status)) => u8::try_from(status).unwrap_or(u8::MAX),
        other => {
            ctx.complain("forkers.child", &format!("a child ended as {other:?}"));
            u8::MAX
        }
    };
    let sites = [
        (CHILD, "forkers.child"),
        (NESTED, "forkers.nested"),
        (OWN, "forkers.own-copy"),
        (PAIRS, "forkers.pairs"),
    ];
    for (bit, site) in sites {
        if bits & bit != 0 {
            ctx.complain(site, &format!("a child reports {bits:#x}"));
        }
        ctx.record(site, 1, u64::from(bits & bit != 0));
    }
}

/// Damage to do inside a child, as the site's name says.
fn damage(ctx: &Ctx) -> Option<u8> {
    if ctx.strikes("forkers.child") {
        return Some(CHILD);
    }
    if ctx.strikes("forkers.nested") {
        return Some(NESTED);
    }
    if ctx.strikes("forkers.own-copy") {
        return Some(OWN);
    }
    ctx.strikes("forkers.pairs").then_some(PAIRS)
}

/// Like [`child`], after flipping a byte of the copy it looks at.
fn damaged_child(shared: &Shared, epoch: u64, lap: u64, what: u8) -> u8 {
    let words = shared.region.area.words();
    match what {
        CHILD => drop(words[777].fetch_xor(0x100, Ordering::Relaxed)),
        PAIRS => drop(shared.pairs.area.words()[640].fetch_xor(0x100, Ordering::Relaxed)),
        _ => {
            let mine = epoch | 1 << 60;
            child(shared, epoch, lap, false);
            let look = || {
                words[WORDS + 5].fetch_xor(1, Ordering::Relaxed);
                if holds_own(&shared.region, epoch, mine) { 0 } else { what }
            };
            if what == OWN {
                return look();
            }
            return match sys::fork(look).and_then(sys::wait) {
                Ok(ChildEnd::Status(0)) => 0,
                _ => NESTED,
            };
        }
    }
    child(shared, epoch, lap, false)
}

fn fork_one(ctx: &Ctx, shared: &Shared, epoch: u64, nest: bool) -> std::io::Result<i32> {
    let lap = shared.pairs.lap();
    match damage(ctx) {
        Some(what) => sys::fork(|| damaged_child(shared, epoch, lap, what)),
        None => sys::fork(|| child(shared, epoch, lap, nest)),
    }
}

fn fork_on(ctx: &Ctx, shared: &Shared) {
    let heart = ctx.heart("forker");
    let mut brood = VecDeque::new();
    let mut epoch = 0;
    shared.region.rewrite(0);
    while !ctx.done() {
        match fork_one(ctx, shared, epoch, epoch % 8 == 7) {
            Ok(pid) => brood.push_back(pid),
            Err(error) => ctx.complain("forkers.child", &format!("cannot fork: {error}")),
        }
        epoch += 1;
        shared.region.rewrite(epoch);
        if epoch % 4 == 0 {
            ctx.sabotage("forkers.parent", shared.region.area.words());
            let wrong = shared.region.wrong_pages(epoch) as u64;
            ctx.record("forkers.parent", shared.region.area.pages() as u64, wrong);
            if wrong > 0 {
                ctx.complain("forkers.parent", &format!("{wrong} pages changed"));
                (0..=epoch).for_each(|e| shared.region.rewrite(e));
            }
        }
        while brood.len() >= BROOD {
            judge(ctx, sys::wait(brood.pop_front().unwrap_or(0)));
        }
        heart.beat();
    }
    brood.into_iter().for_each(|pid| judge(ctx, sys::wait(pid)));
}

fn hammer_on(ctx: &Ctx, shared: &Shared) {
    let heart = ctx.heart("hammer");
    while !ctx.done() {
        for _ in 0..64 {
            shared.pairs.hammer();
        }
        std::thread::sleep(std::time::Duration::from_micros(200));
        heart.beat();
    }
}

fn spawn_on(ctx: &Ctx) {
    let heart = ctx.heart("spawner");
    let (Ok(stack), Ok(area)) = (MappedMemory::private(8), MappedMemory::private(1)) else {
        return;
    };
    let mut rng = Rng::with_seed(ctx.plan.seed ^ 0xf0f0);
    let mut calls = 0;
    while !ctx.done() {
        calls += 1;
        let word = &area.words()[5];
        let ended = sys::vfork_add(word, &stack);
        ctx.expect("forkers.vfork", 1, u64::from(matches!(ended, Ok(ChildEnd::Status(7)))));
        ctx.sabotage("forkers.vfork", &area.words()[5..6]);
        let got = word.swap(calls, Ordering::Relaxed);
        ctx.expect("forkers.vfork", calls, got);
        if calls % 16 == 1 {
            spawn_one(ctx, rng.usize(..1000));
        }
        heart.beat();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Starts this program anew to echo a number.
fn spawn_one(ctx: &Ctx, number: usize) {
    let Ok(own) = std::env::current_exe() else { return };
    let sent = if ctx.strikes("forkers.spawn") { number + 1 } else { number };
    let output = std::process::Command::new(own).arg("echo").arg(sent.to_string()).output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let got = text.ok().and_then(|t| t.parse().ok()).unwrap_or(u64::MAX);
    ctx.expect("forkers.spawn", number as u64, got);
}

/// The threads of this mode.
pub fn workers(plan: &TorturePlan) -> Vec<TortureWorker<'static>> {
    let pages = (plan.mib * 32).min(2048);
    let shared = Arc::new(Shared {
        region: Region { area: MappedMemory::private(pages).expect("memory for the forkers") },
        pairs: Pairs { area: MappedMemory::private(PAIR_PAGES).expect("memory for the pairs") },
    });
    let other = Arc::clone(&shared);
    vec![
        Box::new(move |ctx: &Ctx| fork_on(ctx, &shared)),
        Box::new(move |ctx: &Ctx| hammer_on(ctx, &other)),
        Box::new(spawn_on),
    ]
}
