//! What the bookkeeping of APPROX-ONLINE takes per TLB miss on this processor: the one figure of
//! the experiment that is measured and not simulated.

use std::hint::black_box;

use crate::report::StatementResult;
use huepage_color::Vpn;
use huepage_policy::superpage::{ApproxOnline, Settings};
use huepage_policy::{Event, Policy, Prices};
use rustix::time::{ClockId, clock_gettime};

const MISSES: u32 = 2_000_000;
const ENTRIES: usize = 32;
const MOST: f64 = 60.0;

/// The statement about it.
pub fn claim() -> StatementResult {
    let streams = [("32 MiB down the columns", 8192, true), ("42 MiB at random", 10_650, false)];
    let found = streams.map(|(name, pages, order)| {
        let mut runs: Vec<f64> = (0..3).map(|_| measure(&stream(pages, order))).collect();
        runs.sort_by(f64::total_cmp);
        (name, runs[1])
    });
    let measured = found.map(|(name, ns)| format!("{ns:.0} ns {name}")).join(", ");
    StatementResult {
        text: format!("the books of APPROX-ONLINE take at most {MOST} ns per TLB miss"),
        measured,
        holds: found.iter().all(|(_, ns)| *ns <= MOST),
    }
}

/// Pages that miss one after the other.
fn stream(pages: u64, in_order: bool) -> Vec<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    };
    (0..u64::from(MISSES)).map(|i| (if in_order { i * 257 } else { random() }) % pages).collect()
}

/// Nanoseconds per miss of a FIFO TLB; nothing is ever built, it costs too much.
fn measure(pages: &[u64]) -> f64 {
    let prices = Prices { per_kib: 3_000_000, ..Prices::default() };
    let mut policy = ApproxOnline::new(Settings { prices, ..Settings::default() });
    let mut actions = Vec::new();
    let started = processor_time();
    for (i, &page) in pages.iter().enumerate() {
        let victim = i.checked_sub(ENTRIES).map(|gone| (Vpn(pages[gone]), 0));
        policy.handle(Event::TlbMiss { page: Vpn(page), order: 0, victim }, &mut actions);
    }
    let taken = processor_time() - started;
    black_box((&policy, &actions));
    taken / f64::from(MISSES)
}

/// Nanoseconds that this thread has had on a processor.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
