//! What APPROX-ONLINE's bookkeeping costs per TLB miss: the promise is at most 60 ns. Streams of
//! pages that miss are made beforehand, so that little but the policy is timed, by the time
//! that its thread has on a processor; of several rounds over all streams the median counts:
//! `cargo run --release -p huepage-policy --example superpage_speed`. Ends with status 1 if the
//! promise is broken with charges put off, which is how the policy runs unless told otherwise.

use std::hint::black_box;
use std::process::ExitCode;

use huepage_color::Vpn;
use huepage_policy::conflict::target::Random;
use huepage_policy::superpage::{ApproxOnline, Online, Settings};
use huepage_policy::{Event, Policy, Prices};
use rustix::time::{ClockId, clock_gettime};

const MISSES: usize = 4_000_000;
const ENTRIES: usize = 32;
const MOST: f64 = 60.0;
const ROUNDS: usize = 5;

/// The pages that miss, one after the other.
fn stream(pages: impl Iterator<Item = u64>) -> Vec<u32> {
    pages.take(MISSES).map(|page| u32::try_from(page).expect("pages of a few MiB")).collect()
}

/// Numbers below `n`.
fn random(n: u64) -> impl Iterator<Item = u64> {
    let mut random = Random::new(1);
    std::iter::repeat_with(move || random.below(n))
}

/// Nanoseconds that this thread has had on a processor.
fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// One run, in ns per miss. The TLB is FIFO: every page named misses, as pages are far more than
/// entries. Construction costs so much that none is ever built: the books are all that is done.
fn measure(pages: &[u32], mut policy: impl Policy) -> f64 {
    let mut actions = Vec::new();
    let start = processor_time();
    for (i, &page) in pages.iter().enumerate() {
        let victim = i.checked_sub(ENTRIES).map(|gone| (Vpn(u64::from(pages[gone])), 0));
        let event = Event::TlbMiss { page: Vpn(u64::from(page)), order: 0, victim };
        policy.handle(event, &mut actions);
    }
    let taken = processor_time() - start;
    black_box(&policy);
    assert!(actions.is_empty(), "nothing is worth that much");
    taken / pages.len() as f64
}

fn settings(deferred: bool) -> Settings {
    let prices = Prices { per_kib: 3_000_000, ..Prices::default() };
    Settings { deferred, prices, ..Settings::default() }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    let column = |stride: u64, pages: u64| (0..).map(move |i: u64| i * stride % pages);
    let streams = [
        ("4 MiB in order", stream(column(1, 1024))),
        ("32 MiB down the columns", stream(column(257, 8192))),
        ("8 MiB at random", stream(random(2048))),
        ("42 MiB at random", stream(random(10_650))),
        ("280 MiB at random", stream(random(71_680))),
    ];
    let mut runs = vec![[const { Vec::new() }; 2]; streams.len()];
    for _ in 0..ROUNDS {
        for ((_, pages), runs) in streams.iter().zip(&mut runs) {
            runs[0].push(measure(pages, ApproxOnline::new(settings(true))));
            runs[1].push(measure(pages, ApproxOnline::new(settings(false))));
        }
    }
    let mut worst = 0.0_f64;
    println!("ns per TLB miss, creation of the books included, median of {ROUNDS} rounds:");
    for ((name, pages), runs) in streams.iter().zip(runs) {
        let [deferred, eager] = runs.map(median);
        worst = worst.max(deferred);
        let online = measure(&pages[..MISSES / 20], Online::new(&settings(false)));
        println!(
            "{name:24} {deferred:5.1} put off above 64 KiB, {eager:5.1} not; ONLINE {online:5.0}"
        );
    }
    println!("worst {worst:.1}, promised at most {MOST}");
    if worst <= MOST { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
