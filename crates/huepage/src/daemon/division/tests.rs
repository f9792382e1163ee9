//! One policy: what a simulated machine's counters say of programs leads to the same colours whether the
//! simulator's host tells it or the daemon's, for the same words.

use huepage_color::ColorSet;
use huepage_policy::coloris::Reading;
use huepage_policy::registry::Settings;
use huepage_sim::experiment::{Experiment, FrameMapping, WishError};
use huepage_sim::governed::{Governed, Overseeing};
use huepage_sim::machine::Machine;
use huepage_sim::record::{AccessKind, Record};
use huepage_sim::schedule::{AccessSource, Overseer, Schedule, SchedulePlan};
use huepage_sim::system::System;

use super::*;

/// Four cores, and a last level of 64 colours.
const MACHINE: &str = include_str!("../../../../../machines/xeon-e5506.toml");
const COLORS: u16 = 64;
/// Cycles of a period, which stands for five seconds.
const PERIOD: u64 = 1_000_000;
const ACCESSES: u64 = 600_000;
/// Requests of a period below which a program does not use the cache.
const LEAST: u64 = 100;

/// Loads by chance.
struct Walk {
    bytes: u64,
    state: u64,
}

impl AccessSource<WishError> for Walk {
    fn next(&mut self, batch: &mut Vec<Record>) -> Result<bool, WishError> {
        batch.clear();
        for _ in 0..512 {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            batch.push(Record::plain(
                0x1000_0000 + (self.state >> 20) % self.bytes,
                AccessKind::Load,
            ));
        }
        Ok(true)
    }

    fn restart(&mut self) -> Result<(), WishError> {
        Ok(())
    }
}

/// What was counted in a period, and the colours after it.
#[derive(Debug, Default)]
struct Round {
    now: f64,
    rates: Vec<f64>,
    colors: Vec<ColorSet>,
}

/// Reads the counters that the simulator's host reads, before it does.
struct Recorder<'a, 'b> {
    host: Overseeing<'a, 'b, WishError, fn(WishError) -> WishError>,
    programs: Vec<usize>,
    due: u64,
    before: Vec<(u64, u64)>,
    rounds: Vec<Round>,
}

impl Recorder<'_, '_> {
    /// Miss rates since the last period.
    fn rates(&mut self, system: &System) -> Vec<f64> {
        let spaces = 0..u16::try_from(self.programs.len()).unwrap();
        let counts: Vec<(u64, u64)> = spaces.map(|space| system.last_level(space)).collect();
        self.before.resize(counts.len(), (0, 0));
        let rate = |(now, then): (&(u64, u64), &(u64, u64))| {
            let (requests, misses) = (now.0 - then.0, now.1 - then.1);
            if requests < LEAST { 0.0 } else { misses as f64 / requests as f64 }
        };
        let rates = counts.iter().zip(&self.before).map(rate).collect();
        self.before = counts;
        rates
    }
}

impl Overseer<WishError> for Recorder<'_, '_> {
    fn announce(
        &mut self,
        system: &mut System,
        program: usize,
        space: u16,
    ) -> Result<(), WishError> {
        self.programs.push(program);
        self.host.announce(system, program, space)
    }

    fn tick(&mut self, system: &mut System, clock: u64, accesses: u64) {
        let due = clock >= self.due;
        let mut round = Round { now: 5.0 * clock as f64 / PERIOD as f64, ..Round::default() };
        if due {
            round.rates = self.rates(system);
            self.due += PERIOD;
        }
        self.host.tick(system, clock, accesses);
        if due {
            let division = self.host.oversight.division().unwrap();
            let spaces = 0..self.programs.len();
            round.colors = spaces.filter_map(|at| division.colors(at).cloned()).collect();
            self.rounds.push(round);
        }
    }
}

/// Runs programs that walk over so many KiB each, in turns on four cores.
fn simulated(policy: &str, programs: &[u64]) -> Vec<Round> {
    let keys = format!("low=20%,high=40%,floor=4,period={PERIOD},least-requests={LEAST}");
    let machine = Machine::parse(MACHINE).unwrap();
    let (mapping, partitions) = (FrameMapping::InOrder, Vec::new());
    let experiment =
        Experiment { machine, level: None, mapping, partitions, audit: None, fragment: 0.0 };
    let policy = Settings::parse(&format!("{policy},{keys}")).unwrap();
    let run = Governed { policy, experiment, as_mapped: false };
    let (mut system, mut oversight) =
        (run.experiment.build().unwrap(), run.oversight(Vec::new()).unwrap());
    let plan = SchedulePlan { quantum: PERIOD / 4, limit: ACCESSES, ..SchedulePlan::default() };
    let mut schedule = Schedule::new(system.cores(), plan);
    for kib in programs {
        schedule.add(Box::new(Walk { bytes: kib << 10, state: 1 }));
    }
    let (error, mut heard): (fn(WishError) -> WishError, _) = (|error| error, |_| ());
    let host = Overseeing { oversight: &mut oversight, error, heard: &mut heard };
    let (programs, before, rounds) = (Vec::new(), Vec::new(), Vec::new());
    let mut recorder = Recorder { host, programs, due: 2 * PERIOD, before, rounds };
    schedule.oversee(&mut system, &mut recorder).unwrap();
    assert!(recorder.programs.is_sorted(), "groups are in the order of programs");
    recorder.rounds
}

/// Tells the daemon's host what was recorded, and compares; how often colours changed.
fn compared(policy: &str, programs: &[u64]) -> usize {
    let rounds = simulated(policy, programs);
    let group = |at: usize| {
        format!(
            "[[group]]\nname = \"g{at}\"\npid = {}\nmiss_rate = {{ low = 0.2, high = 0.4 }}\nfloor = 4\n",
            at + 100
        )
    };
    let groups: String = (0..programs.len()).map(group).collect();
    let text = format!("[daemon]\nengine = \"{policy}\"\n{groups}");
    let config = DaemonConfig::parse(&text, Path::new("huepage.toml")).unwrap();
    let all = ColorSet::all(COLORS);
    let mut division =
        divide(&config, &crate::fuzz_entry::CACHE, &all, &DaemonState::default()).unwrap();
    let mut changes = 0;
    for round in &rounds {
        let holders = division.holders.iter();
        let of = |(&holder, &value): (&AppId, &f64)| {
            (holder, Some(Reading { value, margin: 0.0 }), None)
        };
        let readings = holders.zip(&round.rates).map(of).collect();
        let decisions = decide(&mut division.manager, readings, false, round.now);
        changes += decisions.iter().filter(|one| one.is_change()).count();
        let colors: Vec<ColorSet> =
            division.holders.iter().map(|&holder| division.colors(holder, COLORS)).collect();
        assert_eq!(colors, round.colors, "after {} s", round.now);
    }
    assert!(rounds.len() > 20, "{}", rounds.len());
    changes
}

/// One hungry program, two that fit their sections, and one with next to no memory.
const FOUR: [u64; 4] = [3 << 10, 512, 256, 16];

#[test]
fn by_signals_both_hosts_give_the_same_colours() {
    let policy = "coloris:by=signals,shared=on,unit=4,patience=1,rest=0,per-second=0";
    assert!(compared(policy, &FOUR) >= 4);
    // Two programs of one core share its section, and others' colours.
    // The first ones are alike, so that the second ones begin in the order of cores, too.
    let crowd = [512, 512, 512, 512, 16, 3 << 10, 64, 768];
    assert!(compared(&format!("{policy},sections=4"), &crowd) >= 4);
}

#[test]
fn by_priority_both_hosts_give_the_same_colours() {
    let policy = "coloris:by=priority,shared=off,unit=4,patience=2,rest=6,per-second=2,again=30";
    assert!(compared(policy, &FOUR) >= 4);
}

#[test]
fn nothing_changes_while_it_is_frozen() {
    let text =
        "[[group]]\nname = \"a\"\npid = 1\nmiss_rate = { low = 0.2, high = 0.4 }\nceiling = 4\n";
    let config = DaemonConfig::parse(text, Path::new("huepage.toml")).unwrap();
    let all = ColorSet::all(16);
    let mut division =
        divide(&config, &crate::fuzz_entry::CACHE, &all, &DaemonState::default()).unwrap();
    let mut round = |frozen, now| {
        let reading = Some(Reading { value: 0.9, margin: 0.0 });
        decide(&mut division.manager, vec![(AppId(0), reading, None)], frozen, now).len()
    };
    assert_eq!([round(true, 1.0), round(true, 2.0), round(false, 3.0)], [0, 0, 1], "its ceiling");
}
