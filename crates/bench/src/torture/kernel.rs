//! Pages that the kernel hands on, merges or takes out, small signal stacks, and faults that the
//! program serves itself.
//!
//! Each act leaves its pages with contents that are known, whoever moved them meanwhile.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;

use super::calls::{self, OwnFaults};
use super::{Ctx, TorturePlan, TortureWorker};
use crate::mix::{Rng, pattern};
use crate::sys::{self, MappedMemory, PAGE, WORDS};

/// The sites of this mode.
pub const SITES: [&str; 5] = [
    "kernel.vmsplice",
    "kernel.merge",
    "kernel.process-madvise",
    "kernel.signal-stack",
    "kernel.own-faults",
];

/// Pages of an act.
const PAGES: usize = 16;

fn fill(area: &MappedMemory, seed: u64) {
    for (place, word) in (0..).zip(area.words()) {
        word.store(pattern(seed, 3, place), Relaxed);
    }
}

/// Pages lent to a pipe arrive as they were, and stay.
fn vmsplice(ctx: &Ctx, seed: u64) -> std::io::Result<()> {
    const SITE: &str = "kernel.vmsplice";
    let (lent, came) = (MappedMemory::private(PAGES / 2)?, MappedMemory::private(PAGES / 2)?);
    fill(&lent, seed);
    let (read, write) = sys::pipe()?;
    let taken = calls::lend(write.as_fd(), lent.words())? / 8;
    std::thread::yield_now();
    let mut done = 0;
    while done < taken {
        done += sys::read_into(read.as_fd(), &came.words()[done..taken])? / 8;
    }
    ctx.sabotage(SITE, &came.words()[..taken]);
    ctx.expect_words(SITE, &came.words()[..taken], |at| pattern(seed, 3, at));
    ctx.expect_words(SITE, lent.words(), |at| pattern(seed, 3, at));
    Ok(())
}

/// Two areas with the same contents, which the kernel may merge, until one is written to.
fn merge(ctx: &Ctx, seed: u64) -> std::io::Result<()> {
    const SITE: &str = "kernel.merge";
    let (one, two) = (MappedMemory::private(PAGES)?, MappedMemory::private(PAGES)?);
    [&one, &two].into_iter().for_each(|area| fill(area, seed));
    for area in [&one, &two] {
        if let Err(error) = area.advise(0..PAGES, libc::MADV_MERGEABLE) {
            ctx.skip(&format!("pages are not merged here: {error}"));
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(2));
    (0..PAGES).for_each(|page| one.page(page)[7].store(seed, Relaxed));
    ctx.sabotage(SITE, two.words());
    ctx.expect_words(SITE, two.words(), |at| pattern(seed, 3, at));
    let written = |at: u64| if at % WORDS as u64 == 7 { seed } else { pattern(seed, 3, at) };
    ctx.expect_words(SITE, one.words(), written);
    Ok(())
}

/// Pages that are taken out and put to the end of the line come back as they were.
fn process_madvise(ctx: &Ctx, seed: u64) -> std::io::Result<()> {
    const SITE: &str = "kernel.process-madvise";
    let area = MappedMemory::private(PAGES)?;
    fill(&area, seed);
    for advice in [libc::MADV_COLD, libc::MADV_PAGEOUT, libc::MADV_WILLNEED] {
        ctx.expect_ok(SITE, calls::advise_by_pidfd(&area, advice));
    }
    ctx.sabotage(SITE, area.words());
    ctx.expect_words(SITE, area.words(), |at| pattern(seed, 3, at));
    Ok(())
}

/// What lies around the smallest signal stack there may be is not touched by signals taken on it.
fn signal_stack(ctx: &Ctx, seed: u64) -> std::io::Result<()> {
    const SITE: &str = "kernel.signal-stack";
    let size = calls::least_signal_stack().next_multiple_of(16) + 512;
    let area = MappedMemory::private(2 + size / PAGE + 1)?;
    fill(&area, seed);
    let start = PAGE - 256;
    for _ in 0..32 {
        ctx.expect_ok(SITE, calls::signal_within(&area, start..start + size));
    }
    ctx.sabotage(SITE, &area.words()[..start / 8]);
    ctx.expect_words(SITE, &area.words()[..start / 8], |at| pattern(seed, 3, at));
    let above = (start + size) / 8;
    let after = |at: u64| pattern(seed, 3, at + above as u64);
    ctx.expect_words(SITE, &area.words()[above..], after);
    Ok(())
}

/// Watches an area; refusals by the kernel are counted, and it is asked again for a second, as whoever serves
/// faults would have to: huepage has to see the first one, and a page may be moved at that moment. Longer than that
/// none may be refused; how often one is hangs on how soon huepage gets a CPU. The descriptor stays open meanwhile: one
/// that is open for some microseconds at a time nobody can be sure to see.
fn own(ctx: &Ctx, area: &MappedMemory) -> std::io::Result<OwnFaults> {
    const TRIES: u32 = 200;
    let own = OwnFaults::open()?;
    for _ in 0..TRIES {
        match own.watch(area) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => ctx.busy(),
            other => return other.map(|()| own),
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    own.watch(area).map(|()| own)
}

/// Missing pages that the program itself provides, one by one, while another thread reads them.
fn own_faults(ctx: &Ctx, seed: u64) -> std::io::Result<()> {
    const SITE: &str = "kernel.own-faults";
    let (area, source) = (MappedMemory::private(PAGES)?, MappedMemory::private(PAGES)?);
    fill(&source, seed);
    let own = match own(ctx, &area) {
        Ok(own) => own,
        Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
            ctx.skip(&format!("faults of one's own: {error}"));
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    // Pages beside those that were touched may be there before anybody touches them, under huepage as by huge
    // pages: whoever serves faults discards what there is.
    area.advise(0..PAGES, libc::MADV_DONTNEED)?;
    std::thread::scope(|scope| {
        let reader = scope
            .spawn(|| (0..PAGES).map(|page| area.page(page)[9].load(Relaxed)).collect::<Vec<_>>());
        // Whatever happens, the reader must not wait for ever.
        for _ in 0..40 * PAGES {
            if reader.is_finished() {
                break;
            }
            let served = own.next(25).and_then(|fault| match fault {
                Some(at) => own.serve(at, source.page((at - area.address()) / PAGE)),
                None => Ok(()),
            });
            ctx.expect_ok(SITE, served);
        }
        ctx.expect_ok(SITE, own.release(&area));
        let read = reader.join().unwrap_or_default();
        let right = |page: u64| pattern(seed, 3, page * WORDS as u64 + 9);
        for (page, word) in (0..).zip(read) {
            ctx.expect(SITE, right(page), word);
        }
    });
    ctx.sabotage(SITE, area.words());
    ctx.expect_words(SITE, area.words(), |at| pattern(seed, 3, at));
    Ok(())
}

/// One act after the other, in random order.
fn acts(ctx: &Ctx, seed: u64) {
    type Act = fn(&Ctx, u64) -> std::io::Result<()>;
    let acts: [Act; 5] = [vmsplice, merge, process_madvise, signal_stack, own_faults];
    let (heart, mut rng) = (ctx.heart(format!("kernel {seed}")), Rng::with_seed(seed));
    while !ctx.done() {
        let which = rng.usize(..acts.len());
        ctx.expect_ok(SITES[which], acts[which](ctx, rng.u64(..) | 1));
        heart.beat();
    }
}

/// The workers of this mode.
pub fn workers(plan: &TorturePlan) -> Vec<TortureWorker<'static>> {
    let seeds = (0..plan.threads as u64).map(|n| plan.seed ^ (n << 8) ^ 0x6b65);
    seeds.map(|seed| -> TortureWorker<'static> { Box::new(move |ctx| acts(ctx, seed)) }).collect()
}
