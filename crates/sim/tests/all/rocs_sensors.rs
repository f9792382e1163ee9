//! What ROCS needs of a machine: samples of loads that missed the nearest cache, with a handler that
//! takes time and lines, sampling that can be switched, and prefetched lines that come too late.

use std::sync::mpsc::{Receiver, Sender, channel};

use huepage_policy::{Action, Event, Policy};
use huepage_sim::feedback::{Every, Sense};
use huepage_sim::frames::{Choice, Frames};
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::system::System;

/// One level of 1 KiB in two ways, and memory behind a second of 64 KiB.
fn machine(extra: &str) -> System {
    let text = format!(
        "name = \"any\"\nmemory = \"64M\"\nmemory_latency = 100\n{extra}\
         [[cache]]\nlevel = 1\nkind = \"data\"\nsize = \"1K\"\nways = 2\nline = 64\nlatency = 1\n\
         [[cache]]\nlevel = 2\nsize = \"64K\"\nways = 8\nline = 64\nlatency = 11\n"
    );
    let text = match extra.contains("prefetch_latency") {
        true => text + "stride = { degree = 1, table = 4 }\n",
        false => text,
    };
    let machine = Machine::parse(&text).expect("a sound machine");
    let frames = machine.memory.0 >> 12;
    System::new(machine, Frames::new(frames, Choice::InOrder, None))
}

fn load(line: u64) -> Record {
    Record { instructions: 10, ..Record::plain(line * 64, AccessKind::Load) }
}

/// The fifth line and those after it come by prefetching, one line ahead: the stride is believed
/// when it was seen three times. Each takes the rest of its way, less what has passed since.
#[test]
fn a_prefetched_line_is_waited_for() {
    let run = |latency: u64| {
        let mut system = machine(&format!("prefetch_latency = {latency}\n"));
        (0..64).for_each(|line| system.access(0, &load(line)).expect("memory"));
        system.check().expect("sound");
        let report = system.report();
        (system.costs(0), report.caches[1].1)
    };
    let (at_once, counts) = run(0);
    assert_eq!(at_once.buffer_cycles, 0);
    assert!((55..=61).contains(&counts.useful), "{counts:?}");
    let (late, same) = run(100);
    assert_eq!(
        (late.memory, late.miss_cycles, same.useful),
        (at_once.memory, at_once.miss_cycles, counts.useful)
    );
    // From one access to the next pass 10 cycles of instructions, 10 for the second level and
    // what was waited for: waits of w and 80 - w alternate or settle at 40, half of what is left.
    let each = late.buffer_cycles as f64 / counts.useful as f64;
    assert!((30.0..60.0).contains(&each), "{each} cycles a line");
    // A line that is asked for long after it was fetched is not waited for.
    let mut system = machine("prefetch_latency = 100\n");
    let slow = |line: u64| Record { instructions: 500, ..load(line) };
    (0..64).for_each(|line| system.access(0, &slow(line)).expect("memory"));
    assert_eq!(system.costs(0).buffer_cycles, 0);
}

/// Tells what it hears, and stops sampling after so many samples.
struct Listener {
    to: Sender<Event>,
    left: u32,
}

impl Policy for Listener {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.to.send(event).expect("the test listens");
        if matches!(event, Event::Sample { .. }) {
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                actions.push(Action::TellSamples(false));
            }
        }
    }
}

fn governed(left: u32, sense: Sense) -> (System, Receiver<Event>) {
    let (to, heard) = channel();
    let mut system = machine("");
    system.govern(0, Box::new(Listener { to, left }), sense).expect("a space");
    (system, heard)
}

fn samples(heard: &Receiver<Event>) -> Vec<(u64, u32)> {
    let sample = |event| match event {
        Event::Sample { page, missed, .. } => Some((page.0, missed)),
        _ => None,
    };
    heard.try_iter().filter_map(sample).collect()
}

#[test]
fn only_loads_that_missed_are_sampled_and_only_while_wanted() {
    let sample = Some(Every { every: 50, cost: 7 });
    let sense = Sense { sample, sample_misses: true, ..Sense::default() };
    let (mut system, heard) = governed(3, sense);
    // One line hits again and again; a new page comes every 20 accesses, by a store every other
    // time.
    for i in 0..400_u64 {
        let kind = if (i / 20).is_multiple_of(2) { AccessKind::Load } else { AccessKind::Store };
        let address = if i % 20 == 19 { (1 + i / 20) << 12 } else { 0 };
        let kind = if address == 0 { AccessKind::Load } else { kind };
        let record = Record { instructions: 10, ..Record::plain(address, kind) };
        system.access(0, &record).expect("memory");
    }
    // The very first access is longer than a period.
    assert_eq!(samples(&heard), [(0, 2), (1, 2), (3, 2)]);
    assert_eq!(system.costs(0).policy_cycles, 3 * 7);
    system.check().expect("sound");
}

/// The handler's 16 lines fill the nearest cache of 16 lines.
#[test]
fn the_handler_pushes_lines_out() {
    let run = |handler_lines| {
        let sample = Some(Every { every: 100, cost: 0 });
        let sense = Sense { sample, sample_misses: false, handler_lines, ..Sense::default() };
        let (mut system, heard) = governed(u32::MAX, sense);
        (0..4000).for_each(|i| system.access(0, &load(i % 8)).expect("memory"));
        system.check().expect("handler frames are counted");
        let refills = system.costs(0).miss_cycles[0];
        system.release(0).expect("the policy");
        system.check().expect("handler frames are given back");
        (refills, samples(&heard).len())
    };
    let (undisturbed, some) = run(0);
    let (disturbed, _) = run(16);
    assert!(some > 100, "{some} samples");
    assert_eq!(undisturbed, 0);
    // Most of eight lines come back from the second level after each.
    assert!(disturbed >= 10 * 4 * some as u64, "{disturbed} cycles after {some} samples");
}
