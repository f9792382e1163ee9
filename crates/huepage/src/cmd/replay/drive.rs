//! Which policies a recording is replayed into, and what they make of it: a recording is read once, and
//! every step of it is told to all of them. A policy that needs more than the recording has is refused with
//! the sensor to record with. What comes of it is printed elsewhere.

use std::collections::BTreeMap;

use clap::ValueEnum;
use huepage_color::Vpn;
use huepage_linux::conflicts::offline as conflicts;
use huepage_linux::superpages::Choice;
use huepage_linux::superpages::replayed::{self, Replay};
use huepage_policy::qos::Engine;
use huepage_policy::qos::offline::{Listener, Told};
use huepage_policy::recording::touches::{self, Sampled, Step};
use huepage_policy::recording::{Heard, Reader, Recorded, Sensor};
use huepage_policy::residency::offline::{self as confine, Cache};
use huepage_policy::residency::recording as residency;
use serde::Serialize;

use super::ReplayArgs;
use crate::exit::{CmdError, ExitCode};

/// A policy that a recording can be replayed into.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driven {
    /// None: the counts alone
    None,
    /// Confines pages that pollute the cache to a part of it; of residency, or of loads
    Rocs,
    /// Superpages once the misses that one would have prevented make an eighth of its cost; of accessed
    /// bits, or of TLB misses, as the next three
    ApproxOnline,
    /// The same, but rests where that does not help
    Throttle,
    /// As approx-online, and by what would have stayed in the TLB
    Online,
    /// Superpages as soon as every page of one was touched
    Asap,
    /// Spreads pages in use that crowd a few colours; of residency recorded with --in-use
    SnapshotMiss,
    /// Divides the cache among recordings by bounds on their miss rates; of residency
    Coloris,
    /// The same, for the fewest misses that are foretold
    Utility,
}

impl Driven {
    /// The name as the command line has it.
    pub fn text(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// The superpage policy that it is.
    const fn choice(self) -> Option<Choice> {
        match self {
            Driven::ApproxOnline => Some(Choice::ApproxOnline),
            Driven::Throttle => Some(Choice::Throttle),
            Driven::Online => Some(Choice::Online),
            Driven::Asap => Some(Choice::Asap),
            _ => None,
        }
    }

    /// Who divides a cache among recordings, if that is what it does.
    pub const fn engine(self) -> Option<Engine> {
        match self {
            Driven::Coloris => Some(Engine::Coloris),
            Driven::Utility => Some(Engine::Utility),
            _ => None,
        }
    }

    /// Why it cannot be driven with what was begun to be read; `None` if it can.
    fn lacking(self, reader: &Reader) -> Option<String> {
        let has = match (reader.residency(), reader.touches()) {
            (Some(found), _) => return self.lacking_in_residency(&found.head),
            (_, Some(found)) => &found.head,
            _ => return None,
        };
        let what = has.samples.as_ref().map_or("accessed bits", |samples| samples.event.text());
        let needs =
            |what: &str, sensor: &str| format!("{} {what}; record with {sensor}", self.text());
        match (self, self.choice()) {
            (_, Some(choice)) => replayed::lacking(choice, has),
            (Driven::Rocs, _) if is_loads(has) => None,
            (Driven::Rocs, _) => Some(needs(
                &format!("goes by what is in the cache, and the recording has {what}"),
                "--sensor residency, or --sensor pmu --event loads",
            )),
            (Driven::SnapshotMiss, _) => Some(needs(
                &format!(
                    "goes by pages in use and what of them is in the cache, and the recording has {what}"
                ),
                "--sensor residency --in-use",
            )),
            (Driven::Coloris | Driven::Utility, _) => Some(needs(
                &format!("goes by miss rates, and the recording has {what}"),
                "--sensor residency",
            )),
            _ => None,
        }
    }

    fn lacking_in_residency(self, head: &residency::Head) -> Option<String> {
        let what = match self {
            Driven::ApproxOnline | Driven::Throttle | Driven::Online => {
                "goes by TLB misses, and the recording has residency; record with --sensor accessed-bits, or --sensor pmu --event tlb-misses"
            }
            Driven::Asap => {
                "goes by which pages are there, block by block, and the recording has residency; record with --sensor accessed-bits"
            }
            Driven::SnapshotMiss if head.in_use.is_none() => {
                "goes by pages in use and their colours, and the recording has neither; record with --sensor residency --in-use"
            }
            Driven::Rocs | Driven::Coloris | Driven::Utility if head.in_use.is_some() => {
                "goes by all memory of a process, and the recording has pages in use alone; record with --sensor residency, without --in-use"
            }
            _ => return None,
        };
        Some(format!("{} {what}", self.text()))
    }
}

fn is_loads(head: &touches::Head) -> bool {
    head.samples.as_ref().is_some_and(|samples| samples.event == Sampled::Loads)
}

/// What ROCS would do.
#[derive(Clone, Debug, Serialize)]
pub struct RocsSays {
    pub colors: u16,
    pub ways: u16,
    pub buffer_colors: u16,
    /// Pages that it would confine, of those that it had samples of.
    pub confined: u64,
    pub sampled: u64,
    #[serde(skip)]
    pub by_area: Vec<u64>,
}

/// What a policy made of a recording.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// Nothing: it was none.
    Nothing,
    Superpages(replayed::Outcome),
    Rocs(RocsSays),
    Conflicts(conflicts::Outcome),
}

/// A recording that was read, and what came of it.
pub struct Read {
    /// What the rows call it.
    pub name: String,
    pub recorded: Recorded,
    /// Of each policy that is for one recording alone, in the order in which they were asked for.
    pub outcomes: Vec<(Driven, Outcome)>,
    /// What a division among recordings goes by.
    pub readings: Vec<Told>,
}

/// A recording on its way through some policies.
pub struct Drives<'a> {
    args: &'a ReplayArgs,
    policies: Vec<Driven>,
    superpages: Vec<(Driven, Replay)>,
    conflicts: Option<conflicts::Replay>,
    listener: Option<Listener>,
    loads: BTreeMap<Vpn, [u64; 2]>,
}

impl<'a> Drives<'a> {
    /// For a recording whose head was read: the policies that were asked for, or the usual one of its
    /// sensor. The counts without a policy are always among them, to hold the others against.
    pub fn begin(args: &'a ReplayArgs, reader: &Reader) -> Result<Drives<'a>, CmdError> {
        let mut policies = args.policy.clone();
        if policies.is_empty() {
            policies.extend(usual(reader));
        }
        if !policies.contains(&Driven::None) {
            policies.insert(0, Driven::None);
        }
        if let Some(why) = policies.iter().find_map(|policy| policy.lacking(reader)) {
            return Err(CmdError::new(ExitCode::BadFile, why));
        }
        let mut drives = Drives {
            args,
            superpages: Vec::new(),
            conflicts: None,
            listener: None,
            loads: BTreeMap::new(),
            policies,
        };
        drives.open(reader)?;
        Ok(drives)
    }

    fn open(&mut self, reader: &Reader) -> Result<(), CmdError> {
        if let Some(found) = reader.touches() {
            let overhead = self.args.memory_overhead;
            let of =
                |&policy: &Driven| (policy, Replay::new(&found.head, policy.choice(), overhead));
            let wanted = |policy: &&Driven| **policy == Driven::None || policy.choice().is_some();
            self.superpages = self.policies.iter().filter(wanted).map(of).collect();
        }
        let Some(found) = reader.residency() else { return Ok(()) };
        if self.policies.contains(&Driven::SnapshotMiss) {
            self.conflicts = conflicts::Replay::new(&found.head);
        }
        if self.policies.iter().any(|policy| policy.engine().is_some()) {
            self.listener = Some(Listener::new(&found.tally, super::cache(self.args)?.colors));
        }
        Ok(())
    }

    /// The next line was read.
    pub fn hear(&mut self, heard: &Heard) {
        match heard {
            Heard::Frame => {}
            Heard::Look(look) => {
                self.conflicts.iter_mut().for_each(|replay| replay.look(look));
                self.listener.iter_mut().for_each(|listener| listener.look(look));
            }
            Heard::Step(step) => {
                self.superpages.iter_mut().for_each(|(_, replay)| replay.step(step));
                if let Step::Samples(samples) = step
                    && self.policies.contains(&Driven::Rocs)
                {
                    self.note_loads(samples);
                }
            }
        }
    }

    fn note_loads(&mut self, samples: &touches::Samples) {
        for (pages, missed) in [(&samples.missed, 1), (&samples.hit, 0)] {
            for &page in pages {
                let counts = self.loads.entry(Vpn(page)).or_default();
                *counts = [counts[0] + 1, counts[1] + missed];
            }
        }
    }

    /// All of it was read.
    pub fn finish(self, name: String, recorded: Recorded) -> Result<Read, CmdError> {
        let mut outcomes = Vec::new();
        for &policy in self.policies.iter().filter(|policy| policy.engine().is_none()) {
            outcomes.push((policy, self.outcome(policy, &recorded)?));
        }
        let readings = self.listener.map(Listener::finish).unwrap_or_default();
        Ok(Read { name, recorded, outcomes, readings })
    }

    fn outcome(&self, policy: Driven, recorded: &Recorded) -> Result<Outcome, CmdError> {
        if let Some((_, replay)) = self.superpages.iter().find(|(own, _)| *own == policy) {
            return Ok(Outcome::Superpages(replay.outcome()));
        }
        match (policy, recorded) {
            (Driven::Rocs, Recorded::Residency(found)) => {
                Ok(Outcome::Rocs(confined(found, super::cache(self.args)?)?))
            }
            (Driven::Rocs, Recorded::Touches(found)) => {
                let cache = super::cache(self.args)?;
                Ok(Outcome::Rocs(confined_of_loads(&self.loads, found, cache)?))
            }
            (Driven::SnapshotMiss, _) => {
                let outcome = self.conflicts.as_ref().map(conflicts::Replay::outcome);
                Ok(Outcome::Conflicts(outcome.unwrap_or_default()))
            }
            _ => Ok(Outcome::Nothing),
        }
    }
}

/// The policy of a sensor when none is named.
fn usual(reader: &Reader) -> Option<Driven> {
    if let Some(found) = reader.residency() {
        let in_use = found.head.in_use.is_some();
        return Some(if in_use { Driven::SnapshotMiss } else { Driven::Rocs });
    }
    let head = &reader.touches()?.head;
    match head.samples.as_ref().map(|samples| samples.event) {
        None | Some(Sampled::TlbMisses) => Some(Driven::ApproxOnline),
        Some(Sampled::Loads) => Some(Driven::Rocs),
        Some(Sampled::PageFaults) => Some(Driven::Asap),
    }
}

/// The sensor of a recording.
pub fn sensor(recorded: &Recorded) -> Sensor {
    match recorded {
        Recorded::Residency(_) => Sensor::Residency,
        Recorded::Touches(found) => found.head.sensor,
    }
}

fn confined(recorded: &residency::Recorded, cache: Cache) -> Result<RocsSays, CmdError> {
    let found =
        confine::confined(&recorded.tally, recorded.errors(), cache).ok_or_else(too_many)?;
    Ok(says(cache, found.sampled, found.by_area))
}

fn confined_of_loads(
    loads: &BTreeMap<Vpn, [u64; 2]>,
    recorded: &touches::Recorded,
    cache: Cache,
) -> Result<RocsSays, CmdError> {
    let pages = confine::confined_of(loads, cache).ok_or_else(too_many)?;
    let areas = &recorded.tally.areas;
    let mut by_area = vec![0; areas.len()];
    for page in pages {
        let address = page.0 * huepage_color::PAGE_BYTES;
        let inside = |area: &touches::AreaTouched| (area.start..area.end).contains(&address);
        let at = areas.iter().position(inside).unwrap_or(areas.len() - 1);
        by_area[at] += 1;
    }
    Ok(says(cache, loads.len() as u64, by_area))
}

fn says(cache: Cache, sampled: u64, by_area: Vec<u64>) -> RocsSays {
    RocsSays {
        colors: cache.colors,
        ways: cache.ways,
        buffer_colors: cache.buffer,
        confined: by_area.iter().sum(),
        sampled,
        by_area,
    }
}

fn too_many() -> CmdError {
    let what = format!(
        "the process had more than {} pages resident, too many to lay out; use --policy none",
        confine::MOST_PAGES
    );
    CmdError::new(ExitCode::BadFile, what)
}
