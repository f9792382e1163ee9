//! Conflict recolouring in the simulator: the thesis's strawman and kernels on its machine
//! (Romer 1998, tables 4-2 and 4-6), for every policy of `huepage_policy::conflict`.

use huepage_policy::conflict::{Active, CacheShape, CmlPolicy, Periodic, Snapshot, SnapshotFit};
use huepage_policy::superpage::{ApproxOnline, Bounds, Settings, Throttle};
use huepage_policy::{Combined, Policy};
use huepage_sim::cost::Costs;
use huepage_sim::experiment::{Experiment, Mapping};
use huepage_sim::feedback::Sense;
use huepage_sim::machine::Machine;
use huepage_sim::record::Record;
use huepage_sim::romer;
use huepage_sim::workloads::Spec;

const ALPHA: &str = include_str!("../../../machines/alpha-3000-500.toml");

type Boxed = Box<dyn Policy + Send>;

fn alpha(ways: usize) -> Machine {
    let mut machine = Machine::parse(ALPHA).unwrap();
    machine.cache[2].ways = ways;
    machine
}

fn run(machine: Machine, mapping: Mapping, workload: &str, watch: Option<(Boxed, Sense)>) -> Costs {
    let (level, partitions, audit) = (None, Vec::new(), None);
    let wish = Experiment { machine, level, mapping, partitions, audit, fragment: 0.0 };
    let mut system = wish.build().unwrap();
    if let Some((policy, sense)) = watch {
        system.govern(0, policy, sense).unwrap();
    }
    let spec: Spec = workload.parse().unwrap();
    spec.run(|record: Record| system.access(0, &record).unwrap());
    system.finish();
    system.check().unwrap();
    system.costs(0)
}

/// Level 2 MCPI: misses of the L2, of the TLB, and all that policies cost (section 4.3.3).
fn l2_mcpi(costs: &Costs) -> f64 {
    let rates = costs.rates();
    rates.l2_miss_cpi + rates.tlb_mcpi + rates.recolor_cpi + rates.policy_cpi
}

fn all(shape: CacheShape) -> Vec<(&'static str, Boxed, Sense)> {
    vec![
        ("Active-Naive", Box::new(Active::naive(shape)), romer::active()),
        ("Active-Delay", Box::new(Active::delay(shape)), romer::active()),
        ("Active-Throttle", Box::new(Active::throttle(shape)), romer::active()),
        ("Periodic-Random", Box::new(Periodic::random(shape, 1)), romer::periodic()),
        ("Periodic-Color", Box::new(Periodic::color(shape)), romer::periodic()),
        ("Snapshot", Box::new(Snapshot::plain(shape)), romer::snapshot(false)),
        ("Snapshot-Delay", Box::new(Snapshot::delay(shape)), romer::snapshot(true)),
        ("Snapshot-Miss", Box::new(Snapshot::miss(shape)), romer::snapshot_miss()),
        ("Snapshot-Fit", Box::new(SnapshotFit::new(shape)), romer::snapshot_fit()),
        ("CML", Box::new(CmlPolicy::thesis(shape)), romer::cml(shape)),
        ("CML+", Box::new(CmlPolicy::budgeted(shape)), romer::cml(shape)),
    ]
}

#[test]
#[ignore = "prints a table"]
fn table() {
    let shape = romer::shape(&alpha(1)).unwrap();
    for mapping in [if std::env::var("R").is_ok() { Mapping::Random(7) } else { Mapping::Coloring }]
    {
        for w in std::env::var("W").unwrap_or("strawman".into()).split(';') {
            let start = std::time::Instant::now();
            let show = |name: &str, c: &Costs| {
                let r = c.rates();
                println!(
                    "{name:16} mcpi {:.3} l2 {:.3} = miss {:.3} tlb {:.3} recolor {:.3} policy {:.3}; moves {} refused {} cycles {} instr {}",
                    r.mcpi,
                    l2_mcpi(c),
                    r.l2_miss_cpi,
                    r.tlb_mcpi,
                    r.recolor_cpi,
                    r.policy_cpi,
                    c.recolorings,
                    c.refusals,
                    c.cycles(),
                    c.instructions
                );
            };
            println!("== {w} {mapping:?}");
            show("direct", &run(alpha(1), mapping, w, None));
            show("two-way", &run(alpha(2), mapping, w, None));
            for (name, policy, sense) in all(shape) {
                if std::env::var("P").is_ok_and(|p| !p.split(',').any(|p| p == name)) {
                    continue;
                }
                show(name, &run(alpha(1), mapping, w, Some((policy, sense))));
            }
            println!("{:?}", start.elapsed());
        }
    }
}

const TLB: &str = include_str!("../../../machines/romer-tlb.toml");

fn throttle() -> Throttle {
    Throttle::new(ApproxOnline::new(Settings::default()), Bounds::default())
}

fn combinations(shape: CacheShape) -> Vec<(&'static str, Boxed, Sense)> {
    vec![
        ("THROTTLE", Box::new(throttle()), romer::promotion()),
        ("CML", Box::new(CmlPolicy::thesis(shape)), romer::cml(shape)),
        ("CML+", Box::new(CmlPolicy::budgeted(shape)), romer::cml(shape)),
        (
            "COMBINED-0",
            Box::new(Combined::with_hold(throttle(), CmlPolicy::thesis(shape), 0)),
            romer::combined(shape),
        ),
        (
            "COMBINED",
            Box::new(Combined::new(throttle(), CmlPolicy::thesis(shape))),
            romer::combined(shape),
        ),
        (
            "COMBINED+",
            Box::new(Combined::new(throttle(), CmlPolicy::budgeted(shape))),
            romer::combined(shape),
        ),
    ]
}

#[test]
#[ignore = "prints a table"]
fn combined_table() {
    let machine = || Machine::parse(TLB).unwrap();
    let shape = romer::shape(&machine()).unwrap();
    let mapping = if std::env::var("R").is_ok() { Mapping::Random(7) } else { Mapping::Coloring };
    for w in std::env::var("W").unwrap_or("strawman".into()).split(';') {
        let show = |name: &str, c: &Costs| {
            let r = c.rates();
            println!(
                "{name:12} mcpi {:.3} l2 {:.3} tlb {:.3} (promotion {:.3}) recolor {:.3} policy {:.3}; moves {} promotions {} demotions {} refused {} Mcycles {}",
                r.mcpi,
                r.l2_miss_cpi,
                r.tlb_mcpi,
                c.promotion_cycles as f64 / c.instructions as f64,
                r.recolor_cpi,
                r.policy_cpi,
                c.recolorings,
                c.promotions,
                c.demotions,
                c.refusals,
                c.cycles() / 1_000_000
            );
        };
        println!("== {w} {mapping:?}");
        show("DM", &run(machine(), mapping, w, None));
        for (name, policy, sense) in combinations(shape) {
            show(name, &run(machine(), mapping, w, Some((policy, sense))));
        }
    }
}
