//! COMBINED beside its parts (Romer 1998, section 6.6) on workloads that stand for the thesis's:
//! total, cache and TLB MCPI of THROTTLE, of CML-Fit and of both, and whether both together stay
//! within 0.03 of the sum of what each leaves of its own problem, and behind neither. Pages lie
//! by chance, on the machine of table 6-2. Fails when fewer than six of ten do.
//!
//! `cargo run --release -p huepage-sim --example romer_combined -- [SPEC ...]`

use huepage_policy::conflict::{CacheShape, CmlPolicy};
use huepage_policy::superpage::{ApproxOnline, RestBounds, Settings, Throttle};
use huepage_policy::{Combined, Policy};
use huepage_sim::cost::Rates;
use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::feedback::Sense;
use huepage_sim::machine::Machine;
use huepage_sim::record::Record;
use huepage_sim::romer;
use huepage_sim::workloads::WorkloadSpec;

const MACHINE: &str = include_str!("../../../machines/romer-tlb.toml");

/// Kernels of the programs in the thesis's tables, and sizes around its cache. The thesis's runs
/// take 10^9 cycles and more; these take 3 x 10^7 and more.
const WORKLOADS: [&str; 12] = [
    "lu:size=500K",
    "mergesort:size=360K,rounds=40",
    "art:size=400K,rounds=40",
    "tomcatv:size=450K,rounds=20",
    "gauss:size=600K",
    "block-tridiagonal:size=1M,rounds=10",
    "compress",
    "fft:size=1M,rounds=4",
    "cholesky:size=640K",
    "spmv:size=500K,rounds=40",
    "btree:size=4M,rounds=4",
    "gups:size=2M,rounds=4",
];

/// What a run spends per instruction.
struct Spent {
    total: f64,
    tlb: f64,
    cache: f64,
}

impl From<Rates> for Spent {
    fn from(rates: Rates) -> Spent {
        let cache = rates.l2_miss_cpi + rates.recolor_cpi + rates.policy_cpi;
        Spent { total: rates.mcpi, tlb: rates.tlb_mcpi, cache }
    }
}

fn run(workload: &str, policy: Option<(Box<dyn Policy + Send>, Sense)>) -> Spent {
    let machine = Machine::parse(MACHINE).expect("a sound machine");
    let (level, partitions, audit) = (None, Vec::new(), None);
    let mapping = FrameMapping::Random(7);
    let wish = Experiment { machine, level, mapping, partitions, audit, fragment: 0.0 };
    let mut system = wish.build().expect("a sound experiment");
    if let Some((policy, sense)) = policy {
        system.govern(0, policy, sense).expect("a space that can be");
    }
    let spec: WorkloadSpec = workload.parse().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2)
    });
    spec.run(&mut |record: Record| system.access(0, &record).expect("memory enough"));
    system.finish();
    system.check().expect("sound books");
    system.costs(0).rates().into()
}

/// Prints a line; whether COMBINED stays near the sum of its parts and behind neither.
fn compare(workload: &str, shape: CacheShape) -> bool {
    let throttle = || Throttle::new(ApproxOnline::new(Settings::default()), RestBounds::default());
    let cml = || CmlPolicy::budgeted(shape);
    let none = run(workload, None);
    let one = run(workload, Some((Box::new(throttle()), romer::promotion())));
    let other = run(workload, Some((Box::new(cml()), romer::cml(shape))));
    let policy = Box::new(Combined::new(throttle(), cml()));
    let both = run(workload, Some((policy, romer::combined(shape))));
    let (sum, ours) = (one.tlb + other.cache, both.tlb + both.cache);
    let holds = ours <= sum + 0.03 && both.total <= one.total.max(other.total);
    println!(
        "{workload:36} {:6.3} {:6.3} {:6.3} {:6.3}   {:6.3} {:6.3} {:6.3} {:6.3}   {:6.3} {ours:6.3}   {}",
        none.total,
        one.total,
        other.total,
        both.total,
        one.tlb,
        other.cache,
        both.tlb,
        both.cache,
        sum,
        if holds { "holds" } else { "does not hold" }
    );
    holds
}

fn main() {
    let machine = Machine::parse(MACHINE).expect("a sound machine");
    let shape = romer::shape(&machine).expect("a cache with colours");
    let named: Vec<String> = std::env::args().skip(1).collect();
    let workloads: Vec<&str> = match named.is_empty() {
        true => WORKLOADS.to_vec(),
        false => named.iter().map(String::as_str).collect(),
    };
    println!(
        "{:36} MCPI: none, THROTTLE, CML-Fit, COMBINED; parts: TLB of one, cache of the other, COMBINED's; sums",
        ""
    );
    let held = workloads.iter().filter(|workload| compare(workload, shape)).count();
    println!("{held} of {} hold", workloads.len());
    if held * 10 < workloads.len() * 6 {
        std::process::exit(1);
    }
}
