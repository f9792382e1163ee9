//! What language runtimes and fast servers do: threads of their own on stacks of 2 KiB, counters per CPU by
//! restartable sequences, buffers that are given to the kernel once and for all.
//!
//! Each act knows every word that may change: a word beside a small stack, a count that was lost or a read
//! that landed in an old frame is wrong.

use std::fs::File;
use std::io::{self, Write as _};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::runtime_calls::{CpuCounters, FixedBuffer, SmallStack, block_signals};
use super::{Ctx, TorturePlan, TortureWorker};
use crate::mix::{Rng, pattern};
use crate::sys::{MappedMemory, PAGE, WORDS};

/// The sites of this mode.
pub const SITES: [&str; 3] =
    ["runtimes.small-stacks", "runtimes.cpu-counters", "runtimes.fixed-buffers"];

/// Bytes of a small stack, as coroutines have them.
const STACK: usize = 2048;
/// Bytes between two stacks, which belong to something else.
const GAP: usize = 64;
/// Small stacks of an act.
const STACKS: usize = 8;
/// Turns of the empty loop that runs with the stack pointer at a stack's very end: some 20 us.
const SPIN_TURNS: u64 = 40_000;
/// Threads that count at once: more than there are CPUs, so that they interrupt each other.
const COUNTING_THREADS: usize = 4;
/// Increments of each of them in an act.
const INCREMENTS: u64 = 2_000;
/// Pages of a buffer that io_uring keeps.
const BUFFER_PAGES: usize = 16;
/// Reads into one buffer.
const READS: usize = 32;

fn seeded(seed: u64) -> impl Fn(u64) -> u64 {
    move |place| pattern(seed, 4, place)
}

/// Coroutines that run with the stack pointer at the last word of their stacks.
fn small_stacks(ctx: &Ctx, seed: u64) -> io::Result<()> {
    const SITE: &str = SITES[0];
    let area = MappedMemory::private((STACKS * (STACK + GAP)).div_ceil(PAGE) + 1)?;
    let right = seeded(seed);
    (0..).zip(area.words()).for_each(|(place, word)| word.store(right(place), Relaxed));
    let start = |number: usize| (GAP + number * (STACK + GAP)) / 8;
    let words = |number| &area.words()[start(number)..start(number) + STACK / 8];
    let mut stacks: Vec<SmallStack<'_>> =
        (0..STACKS).map(|number| SmallStack::new(words(number))).collect::<io::Result<_>>()?;
    for _ in 0..4 {
        for stack in &mut stacks {
            stack.resume(SPIN_TURNS)?;
        }
    }
    drop(stacks);
    // What lies below each stack, and its lower half, which nothing has used.
    for number in 0..=STACKS {
        let from = start(number) - GAP / 8;
        let to = if number < STACKS { start(number) + STACK / 16 } else { area.words().len() };
        let checked = &area.words()[from..to];
        ctx.sabotage(SITE, checked);
        ctx.expect_words(SITE, checked, |at| right(from as u64 + at));
    }
    Ok(())
}

/// Threads that count, each on the CPU where it happens to be, without locks: none is lost.
fn cpu_counters(ctx: &Ctx, _seed: u64) -> io::Result<()> {
    const SITE: &str = SITES[1];
    let Some(counters) = CpuCounters::new()? else {
        ctx.skip("runtimes.cpu-counters: the C library registers no restartable sequences");
        return Ok(());
    };
    std::thread::scope(|scope| {
        for _ in 0..COUNTING_THREADS {
            scope.spawn(|| (0..INCREMENTS).for_each(|_| counters.increment()));
        }
    });
    ctx.sabotage(SITE, counters.words());
    let counted = counters.words().iter().map(|word| word.load(Relaxed)).fold(0, u64::wrapping_add);
    ctx.expect(SITE, COUNTING_THREADS as u64 * INCREMENTS, counted);
    Ok(())
}

/// Reads into memory that the kernel has pinned for as long as the ring lives.
fn fixed_buffers(ctx: &Ctx, seed: u64) -> io::Result<()> {
    const SITE: &str = SITES[2];
    let area = MappedMemory::private(BUFFER_PAGES)?;
    area.words().iter().for_each(|word| word.store(seed, Relaxed));
    let mut buffer = match FixedBuffer::register(&area) {
        Ok(buffer) => buffer,
        Err(error) => {
            ctx.skip(&format!("runtimes.fixed-buffers: {error}"));
            return Ok(());
        }
    };
    let (file, right) = (patterned(ctx, seed)?, seeded(seed));
    let mut rng = Rng::with_seed(seed);
    for _ in 0..READS {
        let (from, to) = (rng.usize(..BUFFER_PAGES), rng.usize(..BUFFER_PAGES));
        buffer.read_page(&file, from, to)?;
        let page: &[AtomicU64] = area.page(to);
        ctx.sabotage(SITE, page);
        ctx.expect_words(SITE, page, |at| right((from * WORDS) as u64 + at));
        std::thread::yield_now();
    }
    Ok(())
}

/// A file without a name, of the pattern.
fn patterned(ctx: &Ctx, seed: u64) -> io::Result<File> {
    let (mut file, right) = (tempfile::tempfile_in(&ctx.plan.dir)?, seeded(seed));
    let words = (0..(BUFFER_PAGES * WORDS) as u64).flat_map(|place| right(place).to_ne_bytes());
    file.write_all(&words.collect::<Vec<u8>>())?;
    Ok(file)
}

/// One act after the other, in random order.
fn acts(ctx: &Ctx, seed: u64) {
    type Act = fn(&Ctx, u64) -> io::Result<()>;
    let acts: [Act; 3] = [small_stacks, cpu_counters, fixed_buffers];
    let (heart, mut rng) = (ctx.heart(format!("runtimes {seed}")), Rng::with_seed(seed));
    // A signal's frame is larger than a small stack.
    ctx.expect_ok(SITES[0], block_signals());
    while !ctx.done() {
        let which = rng.usize(..acts.len());
        ctx.expect_ok(SITES[which], acts[which](ctx, rng.u64(..) | 1));
        heart.beat();
    }
}

/// The workers of this mode.
pub fn workers(plan: &TorturePlan) -> Vec<TortureWorker<'static>> {
    let seeds = (0..plan.threads as u64).map(|n| plan.seed ^ (n << 8) ^ 0x7274);
    seeds.map(|seed| -> TortureWorker<'static> { Box::new(move |ctx| acts(ctx, seed)) }).collect()
}
