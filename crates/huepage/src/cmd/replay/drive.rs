//! Which policies a recording is replayed into, and what they make of it: a recording is read once, and
//! every step of it is told to all of them. A policy that needs more than the recording has is refused with
//! the sensor to record with. What comes of it is printed elsewhere.

use std::collections::BTreeMap;
use std::str::FromStr;

use huepage_color::Vpn;
use huepage_linux::services::superpages::replayed::Replay;
use huepage_linux::services::superpages::{needs_misses, replayed};
use huepage_policy::Policy;
use huepage_policy::coloris;
use huepage_policy::coloris::offline::{Listener, Told};
use huepage_policy::conflict::replayed::{ConflictOutcome, ConflictReplay};
use huepage_policy::recording::touches::{self, SampledEvent, TouchStep};
use huepage_policy::recording::{Heard, RecordedSensor, Recording, RecordingReader, residency};
use huepage_policy::registry::{self, Family, Host, POLICIES, Settings};
use huepage_policy::rocs::offline::{self as confine, RocsCache};
use serde::Serialize;

use super::ReplayArgs;
use crate::exit::{CmdError, ExitCode};

/// A policy that a recording can be replayed into.
#[derive(Clone, Debug, PartialEq)]
pub struct Driven(Settings);

impl FromStr for Driven {
    type Err = String;

    fn from_str(text: &str) -> Result<Driven, String> {
        let policy = Settings::parse(text).map_err(|error| error.to_string())?;
        let sized = |_| policy.lacks_size().map_or(Ok(()), Err);
        let Err(why) = registry::replay(policy.entry()).and_then(sized) else {
            return Ok(Driven(policy));
        };
        let fed = POLICIES.iter().filter(|entry| registry::replay(entry).is_ok());
        let names: Vec<&str> = fed.map(|entry| entry.name).collect();
        Err(format!("{} {why}; choose {}", policy.name(), names.join(", ")))
    }
}

impl Driven {
    /// One of the registry's that is known to be there.
    fn usual(name: &str) -> Driven {
        Driven(Settings::parse(name).unwrap_or_else(|_| unreachable!("the registry has it")))
    }

    /// As the command line has it.
    pub fn text(&self) -> String {
        self.0.to_string()
    }

    /// Whether it is no policy at all.
    pub fn is_nothing(&self) -> bool {
        self.0.entry().family == Family::Nothing
    }

    /// The superpage policy that it is.
    fn superpages(&self) -> Option<&Settings> {
        Some(&self.0).filter(|policy| policy.entry().family == Family::Superpages)
    }

    fn confines(&self) -> bool {
        self.0.entry().family == Family::Pollute
    }

    /// Whether it divides a cache among recordings.
    pub fn divides(&self) -> bool {
        self.0.entry().family == Family::Division
    }

    /// Its parameters, if that is what it does.
    ///
    /// # Errors
    /// When there is no cache to divide.
    pub fn coloris(&self, host: &Host) -> Result<coloris::Settings, CmdError> {
        self.0.coloris(host).map_err(|error| CmdError::new(ExitCode::Colors, error))
    }

    fn recolors(&self) -> bool {
        use Family::{ActiveConflicts, PeriodicConflicts, Snapshots};
        matches!(self.0.entry().family, ActiveConflicts | PeriodicConflicts | Snapshots)
    }

    /// Why it cannot be driven with what was begun to be read; `None` if it can.
    fn lacking(&self, reader: &RecordingReader) -> Option<String> {
        let has = match (reader.residency(), reader.touches()) {
            (Some(found), _) => return self.lacking_in_residency(&found.head),
            (_, Some(found)) => &found.head,
            _ => return None,
        };
        let what = has.samples.as_ref().map_or("accessed bits", |samples| samples.event.text());
        let needs =
            |what: &str, sensor: &str| format!("{} {what}; record with {sensor}", self.text());
        match (self.0.entry().family, self.superpages()) {
            (_, Some(policy)) => replayed::lacking(policy, has),
            (Family::Pollute, _) if is_loads(has) => None,
            (Family::Pollute, _) => Some(needs(
                &format!("goes by what is in the cache, and the recording has {what}"),
                "--sensor residency, or --sensor pmu --event loads",
            )),
            _ if self.recolors() => Some(needs(
                &format!(
                    "goes by pages in use and what of them is in the cache, and the recording has {what}"
                ),
                "--sensor residency --in-use",
            )),
            (Family::Division, _) => Some(needs(
                &format!("goes by miss rates, and the recording has {what}"),
                "--sensor residency",
            )),
            _ => None,
        }
    }

    fn lacking_in_residency(&self, head: &residency::ResidencyHead) -> Option<String> {
        let what = match self.0.entry().family {
            Family::Superpages if self.superpages().is_some_and(needs_misses) => {
                "goes by TLB misses, and the recording has residency; record with --sensor accessed-bits, or --sensor pmu --event tlb-misses"
            }
            Family::Superpages => {
                "goes by which pages are there, block by block, and the recording has residency; record with --sensor accessed-bits"
            }
            _ if self.recolors() && head.in_use.is_none() => {
                "goes by pages in use and their colours, and the recording has neither; record with --sensor residency --in-use"
            }
            Family::Pollute | Family::Division if head.in_use.is_some() => {
                "goes by all memory of a process, and the recording has pages in use alone; record with --sensor residency, without --in-use"
            }
            _ => return None,
        };
        Some(format!("{} {what}", self.text()))
    }
}

fn is_loads(head: &touches::TouchHead) -> bool {
    head.samples.as_ref().is_some_and(|samples| samples.event == SampledEvent::Loads)
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
pub enum PolicyOutcome {
    Nothing,
    Superpages(replayed::ReplayOutcome),
    Rocs(RocsSays),
    Conflicts(ConflictOutcome),
}

/// A recording that was read, and what came of it.
pub struct Read {
    /// What the rows call it.
    pub name: String,
    pub recorded: Recording,
    /// Of each policy that is for one recording alone, in the order in which they were asked for.
    pub outcomes: Vec<(Driven, PolicyOutcome)>,
    /// What a division among recordings goes by.
    pub readings: Vec<Told>,
}

/// A recording on its way through some policies.
pub struct Drives<'a> {
    args: &'a ReplayArgs,
    policies: Vec<Driven>,
    superpages: Vec<(Driven, Replay)>,
    conflicts: Vec<(Driven, ConflictReplay<Box<dyn Policy + Send>>)>,
    listener: Option<Listener>,
    loads: BTreeMap<Vpn, [u64; 2]>,
}

impl<'a> Drives<'a> {
    /// For a recording whose head was read: the policies that were asked for, or the usual one of its
    /// sensor. The counts without a policy are always among them, to hold the others against.
    pub fn begin(args: &'a ReplayArgs, reader: &RecordingReader) -> Result<Drives<'a>, CmdError> {
        let mut policies = args.policy.clone();
        if policies.is_empty() {
            policies.extend(usual(reader));
        }
        if !policies.iter().any(Driven::is_nothing) {
            policies.insert(0, Driven::usual("none"));
        }
        if let Some(why) = policies.iter().find_map(|policy| policy.lacking(reader)) {
            return Err(CmdError::new(ExitCode::BadFile, why));
        }
        let mut drives = Drives {
            args,
            superpages: Vec::new(),
            conflicts: Vec::new(),
            listener: None,
            loads: BTreeMap::new(),
            policies,
        };
        drives.open(reader)?;
        Ok(drives)
    }

    fn open(&mut self, reader: &RecordingReader) -> Result<(), CmdError> {
        if let Some(found) = reader.touches() {
            let overhead = self.args.memory_overhead;
            let of = |policy: &Driven| {
                (policy.clone(), Replay::new(&found.head, policy.superpages(), overhead))
            };
            let wanted = |policy: &&Driven| policy.is_nothing() || policy.superpages().is_some();
            self.superpages = self.policies.iter().filter(wanted).map(of).collect();
        }
        let Some(found) = reader.residency() else { return Ok(()) };
        for policy in self.policies.iter().filter(|policy| policy.recolors()) {
            let replay = ConflictReplay::new(&found.head, |usual| policy.0.in_use(usual).ok());
            self.conflicts.extend(replay.map(|replay| (policy.clone(), replay)));
        }
        if self.policies.iter().any(Driven::divides) {
            self.listener = Some(Listener::new(&found.tally, super::cache(self.args)?.colors));
        }
        Ok(())
    }

    /// The next line was read.
    pub fn hear(&mut self, heard: &Heard) {
        match heard {
            Heard::Frame => {}
            Heard::Look(look) => {
                self.conflicts.iter_mut().for_each(|(_, replay)| replay.look(look));
                self.listener.iter_mut().for_each(|listener| listener.look(look));
            }
            Heard::Step(step) => {
                self.superpages.iter_mut().for_each(|(_, replay)| replay.step(step));
                if let TouchStep::Samples(samples) = step
                    && self.policies.iter().any(Driven::confines)
                {
                    self.note_loads(samples);
                }
            }
        }
    }

    fn note_loads(&mut self, samples: &touches::TouchSamples) {
        for (pages, missed) in [(&samples.missed, 1), (&samples.hit, 0)] {
            for &page in pages {
                let counts = self.loads.entry(Vpn(page)).or_default();
                *counts = [counts[0] + 1, counts[1] + missed];
            }
        }
    }

    /// All of it was read.
    pub fn finish(self, name: String, recorded: Recording) -> Result<Read, CmdError> {
        let mut outcomes = Vec::new();
        for policy in self.policies.iter().filter(|policy| !policy.divides()) {
            outcomes.push((policy.clone(), self.outcome(policy, &recorded)?));
        }
        let readings = self.listener.map(Listener::finish).unwrap_or_default();
        Ok(Read { name, recorded, outcomes, readings })
    }

    fn outcome(&self, policy: &Driven, recorded: &Recording) -> Result<PolicyOutcome, CmdError> {
        if let Some((_, replay)) = self.superpages.iter().find(|(own, _)| own == policy) {
            return Ok(PolicyOutcome::Superpages(replay.outcome()));
        }
        if let Some((_, replay)) = self.conflicts.iter().find(|(own, _)| own == policy) {
            return Ok(PolicyOutcome::Conflicts(replay.outcome()));
        }
        match (policy.0.entry().family, recorded) {
            (Family::Pollute, Recording::Residency(found)) => {
                Ok(PolicyOutcome::Rocs(confined(found, super::cache(self.args)?)?))
            }
            (Family::Pollute, Recording::Touches(found)) => {
                let cache = super::cache(self.args)?;
                Ok(PolicyOutcome::Rocs(confined_of_loads(&self.loads, found, cache)?))
            }
            _ => Ok(PolicyOutcome::Nothing),
        }
    }
}

/// The policy of a sensor when none is named.
fn usual(reader: &RecordingReader) -> Option<Driven> {
    if let Some(found) = reader.residency() {
        let in_use = found.head.in_use.is_some();
        return Some(Driven::usual(if in_use { "snapshot-in-use" } else { "rocs" }));
    }
    let head = &reader.touches()?.head;
    let name = match head.samples.as_ref().map(|samples| samples.event) {
        None | Some(SampledEvent::TlbMisses) => "approx-online",
        Some(SampledEvent::Loads) => "rocs",
        Some(SampledEvent::PageFaults) => "asap",
    };
    Some(Driven::usual(name))
}

/// The sensor of a recording.
pub fn sensor(recorded: &Recording) -> RecordedSensor {
    match recorded {
        Recording::Residency(_) => RecordedSensor::Residency,
        Recording::Touches(found) => found.head.sensor,
    }
}

fn confined(
    recorded: &residency::ResidencyRecording,
    cache: RocsCache,
) -> Result<RocsSays, CmdError> {
    let found =
        confine::confined(&recorded.tally, recorded.errors(), cache).ok_or_else(too_many)?;
    Ok(says(cache, found.sampled, found.by_area))
}

fn confined_of_loads(
    loads: &BTreeMap<Vpn, [u64; 2]>,
    recorded: &touches::TouchRecording,
    cache: RocsCache,
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

fn says(cache: RocsCache, sampled: u64, by_area: Vec<u64>) -> RocsSays {
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
