//! What COLORIS needs of the simulator: traps, accessed bits on demand, audits on demand, the
//! counters of the last cache and the lines requested of it; and a recolourer at work on a
//! machine.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use huepage_color::{Color, ColorSet, Vpn};
use huepage_policy::coloris::{Growth, Recolorer};
use huepage_policy::{Action, Event, Policy};
use huepage_sim::experiment::{Experiment, FrameMapping};
use huepage_sim::feedback::{Every, Sense};
use huepage_sim::frames::Choice;
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::System;

fn system() -> System {
    let machine = Machine::parse(include_str!("../small.toml")).expect("a sound machine");
    let (mapping, partitions) = (FrameMapping::InOrder, Vec::new());
    Experiment { machine, level: None, mapping, partitions, audit: None, fragment: 0.0 }
        .build()
        .expect("a sound experiment")
}

fn touch(system: &mut System, page: u64, line: u64) {
    let record = Record::plain(page << 12 | line << 6, AccessKind::Load);
    system.access(0, &record).expect("memory enough");
}

/// Does what it is told and tells what it hears.
struct Told(Arc<Mutex<Vec<Action>>>, Sender<Event>);

impl Policy for Told {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        actions.append(&mut self.0.lock().expect("no panic"));
        self.1.send(event).expect("the test listens");
    }
}

#[test]
fn a_trapped_page_is_told_once_and_costs_a_fault() {
    let (mut system, wishes, (to, heard)) = (system(), Arc::default(), channel());
    let sense = Sense { trap_cost: 1000, table_cost: 10, ..Sense::default() };
    system.govern(0, Box::new(Told(Arc::clone(&wishes), to)), sense).expect("a space");
    (0..4).for_each(|page| touch(&mut system, page, 0));
    *wishes.lock().unwrap() = vec![Action::Trap { page: Vpn(2) }, Action::Trap { page: Vpn(9) }];
    system.audit_now(0, 0);
    assert_eq!(system.costs(0).policy_cycles, 40, "four pages were walked");
    let audit: Vec<Event> =
        heard.try_iter().filter(|e| !matches!(e, Event::Faulted { .. })).collect();
    assert_eq!((audit[0], audit[5]), (Event::Audit, Event::AuditOver));
    let before = system.costs(0).tlb_cycles;
    (0..4).chain(0..4).for_each(|page| touch(&mut system, page, 0));
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [Event::Trapped { page: Vpn(2) }]);
    // Its translation had to be found again, and nobody else's.
    assert_eq!(system.costs(0).tlb_cycles - before, 1020);
    touch(&mut system, 9, 0);
    assert!(
        heard.try_iter().all(|event| !matches!(event, Event::Trapped { .. })),
        "new, not trapped"
    );
}

#[test]
fn accessed_bits_are_those_since_they_were_cleared() {
    let (mut system, wishes, (to, heard)) = (system(), Arc::default(), channel());
    system.govern(0, Box::new(Told(Arc::clone(&wishes), to)), Sense::default()).expect("a space");
    let ask = |system: &mut System, action| {
        *wishes.lock().unwrap() = vec![action];
        system.audit_now(0, 0);
    };
    (0..6).for_each(|page| touch(&mut system, page, 0));
    ask(&mut system, Action::ClearAccessed);
    [5, 1, 5].into_iter().for_each(|page| touch(&mut system, page, 1));
    ask(&mut system, Action::ReadAccessed);
    let accessed = |heard: &std::sync::mpsc::Receiver<Event>| {
        let pages = heard.try_iter().filter_map(|event| match event {
            Event::Accessed { page, .. } => Some(page.0),
            _ => None,
        });
        pages.collect::<Vec<u64>>()
    };
    assert_eq!(accessed(&heard), [1, 5]);
    touch(&mut system, 3, 1);
    ask(&mut system, Action::ReadAccessed);
    assert_eq!(accessed(&heard), [0_u64; 0], "nothing is remembered any more");
}

#[test]
fn the_last_cache_is_counted_per_program_and_its_lines_are_kept() {
    let mut system = system();
    // 96 lines: more than the first level holds, less than the second.
    let lines = || (0..96).map(|i| (i / 64, i % 64));
    lines().for_each(|(page, line)| touch(&mut system, page, line));
    assert_eq!(system.last_level(0), (96, 96));
    system.sample_requests(0, Some(50));
    lines().for_each(|(page, line)| touch(&mut system, page, line));
    assert_eq!(system.last_level(0), (192, 96), "hits in the second level are requests of it");
    let mut kept = Vec::new();
    system.take_requests(0, &mut kept);
    assert_eq!(kept, (0..96).collect::<Vec<u64>>());
    assert_eq!(system.costs(0).policy_cycles, 96 * 50);
    system.sample_requests(0, None);
    lines().for_each(|(page, line)| touch(&mut system, page, line));
    system.take_requests(0, &mut kept);
    assert_eq!((kept.len(), system.costs(0).policy_cycles), (96, 96 * 50));
}

#[test]
fn counters_of_batches_are_those_of_single_accesses() {
    let records: Vec<Record> =
        (0..20_000_u64).map(|i| Record::plain(i * 7919 % 300_000, AccessKind::Load)).collect();
    let (mut single, mut batches) = (system(), system());
    single.sample_requests(0, Some(0));
    records.iter().for_each(|record| single.access(0, record).expect("memory"));
    records.chunks(700).for_each(|some| batches.run(0, some).expect("memory"));
    assert_eq!(single.last_level(0), batches.last_level(0));
    assert!(batches.last_level(0).1 > 1000);
}

/// A recolourer that the test can speak to.
struct Shared(Arc<Mutex<Recolorer>>);

impl Policy for Shared {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.0.lock().expect("no panic").handle(event, actions);
    }
}

#[test]
fn pages_follow_their_partition_when_it_shrinks_and_grows() {
    for growth in [Growth::SelectiveMoving { ways: 4 }, Growth::Redistribution { window: 1000 }] {
        let set = |text: &str| ColorSet::parse(text, 8).expect("a set");
        let (mut system, first) = (system(), set("0-3"));
        system.frames_mut().choose_for(0, Choice::Partition(first.clone()));
        let engine = Arc::new(Mutex::new(Recolorer::new(first, growth)));
        let progress = Some(Every { every: 250, cost: 0 });
        let sense = Sense { progress, ..Sense::default() };
        system.govern(0, Box::new(Shared(Arc::clone(&engine))), sense).expect("a space");
        let round = |system: &mut System| (0..40).for_each(|page| touch(system, page, page % 64));
        round(&mut system);
        for (colors, within) in [("2-3", "2-3"), ("2-7", "2-7")] {
            system.frames_mut().choose_for(0, Choice::Partition(set(colors)));
            engine.lock().unwrap().assign(set(colors));
            system.audit_now(0, 0);
            (0..8).for_each(|_| round(&mut system));
            let by_color = &system.report().spaces[0].pages_by_color;
            let outside = (0..8).filter(|&c| !set(within).contains(Color(c)));
            let outside: u64 = outside.map(|c| by_color[usize::from(c)]).sum();
            assert_eq!(outside, 0, "{growth:?}, {colors}: {by_color:?}");
            assert!(engine.lock().unwrap().is_idle(), "{growth:?}, {colors}");
        }
        let by_color = system.report().spaces[0].pages_by_color.clone();
        assert!((4..8).all(|color| by_color[color] > 0), "{growth:?}: {by_color:?}");
        system.check().expect("sound");
    }
}
