//! Threads: created and joined at a high rate, with their stacks and thread-locals checked.
//!
//! Every thread fills part of its stack, grows it by recursion, takes a signal on a stack of
//! its own, meets others at a mutex and a channel, and must find everything as it left it.
//! A join that never returns is caught by the watchdog.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::AtomicU64;
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::thread::Builder;

use super::{Ctx, TorturePlan, TortureWorker};
use crate::mix::{Rng, pattern};
use crate::sys::{self, MappedMemory};

/// The sites of this mode.
pub const SITES: [&str; 6] = [
    "threads.stack",
    "threads.deep-stack",
    "threads.tls",
    "threads.join",
    "threads.signal",
    "threads.mutex",
];

/// Threads alive at once, per worker.
const CROWD: u64 = 8;
const STACK_WORDS: usize = 2048;

thread_local! {
    static NAME: Cell<u64> = const { Cell::new(0) };
    static MORE: [Cell<u64>; 256] = const { [const { Cell::new(5) }; 256] };
}

/// Fills a frame of stack at every level on the way down and checks it on the way up.
fn descend(ctx: &Ctx, id: u64, depth: u64) {
    let frame: [AtomicU64; 256] =
        std::array::from_fn(|at| AtomicU64::new(pattern(id, depth, at as u64)));
    let frame = black_box(&frame);
    if depth > 0 {
        descend(ctx, id, depth - 1);
    } else {
        std::thread::yield_now();
    }
    ctx.sabotage("threads.deep-stack", frame);
    ctx.expect_words("threads.deep-stack", frame, |at| pattern(id, depth, at));
}

fn check_stack(ctx: &Ctx, id: u64) {
    let stack: [AtomicU64; STACK_WORDS] =
        std::array::from_fn(|at| AtomicU64::new(pattern(id, 1, at as u64)));
    let stack = black_box(&stack);
    std::thread::yield_now();
    ctx.sabotage("threads.stack", stack);
    ctx.expect_words("threads.stack", stack, |at| pattern(id, 1, at));
}

fn set_locals(id: u64) {
    NAME.set(id);
    MORE.with(|cells| cells.iter().for_each(|c| c.set(c.get() + id)));
}

fn check_locals(ctx: &Ctx, id: u64) {
    if ctx.strikes("threads.tls") {
        NAME.set(id ^ 0x10);
    }
    ctx.expect("threads.tls", id, NAME.get());
    let sum: u64 = MORE.with(|cells| cells.iter().map(Cell::get).sum());
    ctx.expect("threads.tls", 256 * (5 + id), sum);
}

/// A meeting point: everyone adds under the mutex, the last one wakes all.
#[derive(Default)]
struct Meeting {
    sum: Mutex<(u64, u64)>,
    all_here: Condvar,
}

impl Meeting {
    /// Adds `id`, waits for all, gives back the sum of all.
    fn attend(&self, id: u64) -> u64 {
        let mut sum = self.sum.lock().unwrap_or_else(PoisonError::into_inner);
        sum.0 += 1;
        sum.1 += id;
        if sum.0 == CROWD {
            self.all_here.notify_all();
        }
        let waited = self.all_here.wait_while(sum, |s| s.0 < CROWD);
        waited.unwrap_or_else(PoisonError::into_inner).1
    }
}

fn visit(ctx: &Ctx, id: u64, meeting: &Meeting, total: u64) -> u64 {
    set_locals(id);
    check_stack(ctx, id);
    descend(ctx, id, 4 + id % 16);
    ctx.expect("threads.mutex", total, meeting.attend(id));
    check_locals(ctx, id);
    pattern(id, 2, 0)
}

/// One crowd of threads, from creation to join.
fn crowd(ctx: &Ctx, first: u64, rng: &mut Rng) {
    let ids = first..first + CROWD;
    let damage = u64::from(ctx.strikes("threads.mutex"));
    let (meeting, total) = (Meeting::default(), ids.clone().sum::<u64>() + damage);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for id in ids.clone() {
            let (meeting, sender) = (&meeting, sender.clone());
            let size = (128 << rng.usize(..4)) << 10;
            let spawned = Builder::new().stack_size(size).spawn_scoped(scope, move || {
                let _ = sender.send(visit(ctx, id, meeting, total));
            });
            ctx.expect_ok("threads.join", spawned);
        }
    });
    drop(sender);
    let damage = u64::from(ctx.strikes("threads.join"));
    let expected = ids.fold(0, |sum, id| pattern(id, 2, 0).wrapping_add(sum)) ^ damage;
    ctx.expect("threads.join", expected, receiver.iter().fold(0, |sum, x| x.wrapping_add(sum)));
}

fn crowds(ctx: &Ctx, me: u64) {
    let heart = ctx.heart(format!("crowd {me}"));
    let mut rng = Rng::with_seed(ctx.plan.seed ^ me);
    let mut first = me << 32;
    while !ctx.done() {
        crowd(ctx, first, &mut rng);
        first += CROWD;
        heart.beat();
    }
}

/// Signals on a signal stack that was just emptied: the kernel itself writes to it.
fn signals(ctx: &Ctx) {
    let heart = ctx.heart("signals");
    let Some(stack) = ctx.expect_ok("threads.signal", MappedMemory::private(16)) else { return };
    let mut sent = sys::signals_seen();
    while !ctx.done() {
        ctx.expect_ok("threads.signal", stack.advise(0..16, libc::MADV_DONTNEED));
        ctx.expect_ok("threads.signal", sys::signal_on(&stack));
        sent += 1 + u64::from(ctx.strikes("threads.signal"));
        let seen = sys::signals_seen();
        ctx.expect("threads.signal", sent, seen);
        sent = seen;
        if ctx.strikes("hang") {
            std::thread::sleep(std::time::Duration::from_secs(3600));
        }
        std::thread::sleep(std::time::Duration::from_micros(500));
        heart.beat();
    }
}

/// The threads of this mode, which make many more.
pub fn workers(plan: &TorturePlan) -> Vec<TortureWorker<'static>> {
    let crowds = (0..plan.threads.div_ceil(2) as u64)
        .map(|me| Box::new(move |ctx: &Ctx| crowds(ctx, me)) as TortureWorker<'static>);
    crowds.chain([Box::new(signals) as TortureWorker<'static>]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_meeting_gives_everyone_the_whole_sum() {
        let meeting = Meeting::default();
        let sums = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for id in 0..CROWD {
                let (meeting, sums) = (&meeting, &sums);
                scope.spawn(move || sums.fetch_add(meeting.attend(id), Ordering::Relaxed));
            }
        });
        assert_eq!(sums.into_inner(), CROWD * (CROWD * (CROWD - 1) / 2));
    }
}
