//! Churn: everything that programs do to their mappings, in random order, each time with
//! the contents verified. The single acts are in `churn_acts`; this module runs them.
//!
//! The break (`brk`) belongs to the allocator of a threaded process, so it is churned by a
//! process of its own, started from the same program.

use std::process::{Command, Stdio};

use super::churn_acts::ACTS;
use super::{Ctx, TorturePlan, TortureWorker};
use crate::mix::{Rng, pattern};
use crate::sys::{Break, WORDS};

/// The sites of this mode: one per act, and the break.
pub const SITES: [&str; 16] = [
    "churn.protect",
    "churn.grow",
    "churn.move-over",
    "churn.dontunmap",
    "churn.renew",
    "churn.same-address",
    "churn.dontneed",
    "churn.free",
    "churn.wipe-on-fork",
    "churn.lock",
    "churn.many-areas",
    "churn.zero-page",
    "churn.huge",
    "churn.private-file",
    "churn.remote",
    "churn.brk",
];

/// Pages of the area that an act works on.
fn pages(plan: &TorturePlan) -> usize {
    (plan.mib * 4).clamp(32, 512)
}

fn act_on(ctx: &Ctx, me: u64) {
    let heart = ctx.heart(format!("churn {me}"));
    let mut rng = Rng::with_seed(ctx.plan.seed ^ 0xc0 ^ me << 16);
    let pages = pages(&ctx.plan);
    while !ctx.done() {
        let (site, act) = ACTS[rng.usize(..ACTS.len())];
        if let Err(error) = act(ctx, pages, &mut rng) {
            ctx.complain(site, &format!("a system call failed: {error}"));
            ctx.record(site, 1, 1);
        }
        heart.beat();
    }
}

/// Runs the break's own process again and again, half a second at a time.
fn brk_processes(ctx: &Ctx) {
    let heart = ctx.heart("brk");
    let Ok(own) = std::env::current_exe() else { return };
    while !ctx.done() {
        let sabotage = if ctx.strikes("churn.brk") { "1" } else { "0" };
        let mut command = Command::new(&own);
        command.args(["brk", "0.5", sabotage]).stdin(Stdio::null());
        let status = command.status();
        ctx.expect("churn.brk", 0, status.map_or(u64::MAX, |s| u64::from(!s.success())));
        heart.beat();
    }
}

/// Grows and shrinks the break for so many seconds; the number of wrong words.
///
/// Must run in a process without other threads, and allocates nothing.
pub fn brk_main(seconds: f64, sabotage: bool) -> std::io::Result<u64> {
    let started = std::time::Instant::now();
    let mut heap = Break::here()?;
    let (mut rng, mut size, mut wrong, mut epoch) = (Rng::with_seed(11), 0, 0, 0);
    while started.elapsed().as_secs_f64() < seconds {
        let next = 1 + rng.usize(..512);
        heap.set(next)?;
        epoch += 1;
        if sabotage && epoch == 5 {
            heap.words()[0].fetch_xor(1, std::sync::atomic::Ordering::Relaxed);
        }
        wrong += check_break(&heap, size.min(next));
        fill_break(&heap);
        size = next;
    }
    Ok(wrong)
}

fn fill_break(heap: &Break) {
    for (place, word) in (0..).zip(heap.words()) {
        word.store(pattern(1, 1, place % 500) ^ place, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Words that do not hold what was written (the first `kept` pages) or zero (the rest).
fn check_break(heap: &Break, kept: usize) -> u64 {
    let holds = |place: u64| pattern(1, 1, place % 500) ^ place;
    let kept = (kept * WORDS) as u64;
    let expected = |place| if place < kept { holds(place) } else { 0 };
    let words = (0..).zip(heap.words());
    words
        .filter(|(at, word)| word.load(std::sync::atomic::Ordering::Relaxed) != expected(*at))
        .count() as u64
}

/// The threads of this mode.
pub fn workers(plan: &TorturePlan) -> Vec<TortureWorker<'static>> {
    let acts = (0..plan.threads as u64)
        .map(|me| Box::new(move |ctx: &Ctx| act_on(ctx, me)) as TortureWorker<'static>);
    acts.chain([Box::new(brk_processes) as TortureWorker<'static>]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::torture::churn_acts::ACTS;

    #[test]
    fn every_site_but_the_break_has_its_act() {
        let acts: Vec<&str> = ACTS.iter().map(|(site, _)| *site).collect();
        assert_eq!(acts, SITES[..SITES.len() - 1]);
    }
}
