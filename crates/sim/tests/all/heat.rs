//! Counting by page: nothing is lost, and nothing else changes by it.

use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::System;

fn system() -> System {
    let text = include_str!("../../../../machines/cascade-lake-like.toml");
    let experiment = Experiment {
        machine: Machine::parse(text).expect("a machine"),
        level: Some(2),
        mapping: FrameMapping::Random(1),
        partitions: Vec::new(),
        audit: None,
        fragment: 0.0,
    };
    experiment.build().expect("it can be built")
}

fn records() -> Vec<Record> {
    let address = |i: u64| 0x7000_0000 + i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (2 << 20) / 8 * 8;
    (0..200_000).map(|i| Record::plain(address(i), AccessKind::Load)).collect()
}

#[test]
fn pages_add_up_to_the_caches_counts_and_the_report_is_the_same() {
    let (mut plain, mut counted) = (system(), system());
    counted.count_pages();
    for system in [&mut plain, &mut counted] {
        system.run(0, &records()).expect("it runs");
        system.finish();
        system.check().expect("sound");
    }
    let report = plain.report();
    assert_eq!(report, counted.report());
    assert!(plain.heat().is_none());
    let total = counted.heat().expect("counted").total();
    assert_eq!(total.accesses, report.caches[0].1.total());
    // Level 2 is the one whose colours count.
    let colors = report.colors.expect("colours");
    assert_eq!(total.misses, colors.misses.iter().sum::<u64>());
    assert!(total.misses > 0 && total.misses < total.accesses);
    counted.forget_counts();
    assert_eq!(counted.heat().expect("counted").total(), Default::default());
}
