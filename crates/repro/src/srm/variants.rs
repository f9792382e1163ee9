//! How frames are chosen: as Linux does, without regard for colours; by SRM-buffer; and by parts of
//! it, so that what each part does can be told. Nothing is run here.

use std::sync::{Arc, Mutex};

use huepage_color::{Color, ColorSet};
use huepage_policy::{Rescan, SrmBuffer, SrmSettings};
use serde::Serialize;

use super::place::PaperMachine;
use crate::run::{self, SharedPolicy};
use huepage_sim::experiment::{FrameMapping, WishError};
use huepage_sim::feedback::Sense;
use huepage_sim::frames::Choice;
use huepage_sim::machine::Machine;
use huepage_sim::system::{RunError, System};

/// A way to choose frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SrmVariant {
    /// Any frame for everything.
    Linux,
    /// Colours in turn for process memory, any frame for files: that part of SRM-buffer alone.
    Turns,
    /// All blocks of files in one colour, any frame for process memory (section 2).
    OneColor,
    /// SRM-buffer with this threshold.
    Srm(u64),
    /// SRM-buffer with its threshold of 256 and the detector of repeated scans.
    Rescan,
}

impl SrmVariant {
    /// SRM-buffer as the paper has it.
    pub const SRM: SrmVariant = SrmVariant::Srm(SrmSettings::THRESHOLD);

    /// The words for a person.
    pub fn text(self) -> String {
        match self {
            SrmVariant::Linux => "Linux".into(),
            SrmVariant::Turns => "colours in turn".into(),
            SrmVariant::OneColor => "one colour".into(),
            SrmVariant::SRM => "SRM-buffer".into(),
            SrmVariant::Srm(threshold) => format!("SRM-buffer, Tl {threshold}"),
            SrmVariant::Rescan => "SRM-buffer, detector".into(),
        }
    }

    fn settings(self, machine: &Machine, colors: u16) -> Option<SrmSettings> {
        let paper = SrmSettings::paper(colors);
        match self {
            SrmVariant::Srm(threshold) => Some(SrmSettings { threshold, ..paper }),
            SrmVariant::Rescan => {
                let last = machine.data_path().last().map(|&at| machine.cache[at].size.0 >> 12);
                let rescan = Some(Rescan::new(last.unwrap_or(0)));
                Some(SrmSettings { rescan, ..paper })
            }
            _ => None,
        }
    }
}

/// A miss of the page cache finds its sequence in a table: some hundred cycles, beside the
/// hundred thousand and more of the disk. (The paper gives no figure but "low".)
const MISS_COST: u64 = 200;
/// A use of a cached block is counted in a table: a hundred cycles; only the detector asks for it.
const USE_COST: u64 = 100;
/// What Linux does after long use: frames at random, from this seed.
pub(super) const LINUX: FrameMapping = FrameMapping::Random(7);

/// What is done for each program before its first access.
pub struct Placement {
    variant: SrmVariant,
    colors: u16,
    policy: Option<Arc<Mutex<SrmBuffer>>>,
    /// Whether SRM-buffer gives process memory all colours in turn.
    memory: bool,
    /// Cycles to find the sequence of a block.
    lookup: u64,
}

const XEON: &str = include_str!("../../../../machines/xeon-5355.toml");
const CORE_I7: &str = include_str!("../../../../machines/core-i7-860.toml");
const XEON_7560: &str = include_str!("../../../../machines/xeon-7560.toml");

/// The machine's description.
///
/// # Errors
/// When it is not sound.
pub fn machine(place: PaperMachine) -> Result<Machine, WishError> {
    let text = match place {
        PaperMachine::Xeon => XEON,
        PaperMachine::CoreI7 => CORE_I7,
        PaperMachine::Xeon7560 => XEON_7560,
    };
    run::machine(text)
}

impl SrmVariant {
    /// The machine at work, with a way to choose frames where colours play no part, and what to do with
    /// its programs.
    ///
    /// # Errors
    /// When the machine has no colours.
    pub fn build(
        self,
        machine: Machine,
        mapping: FrameMapping,
    ) -> Result<(System, Placement), WishError> {
        let mut system = run::system(machine.clone(), mapping)?;
        let colors = system.frames_mut().colors();
        let policy =
            self.settings(&machine, colors).map(|s| Arc::new(Mutex::new(SrmBuffer::new(s))));
        Ok((system, Placement { variant: self, colors, policy, memory: true, lookup: MISS_COST }))
    }
}

impl Placement {
    /// Leaves process memory where Linux puts it.
    pub(super) fn files_alone(self) -> Placement {
        Placement { memory: false, ..self }
    }

    /// A sequence is found in so many cycles.
    pub(super) fn with_lookups_of(self, lookup: u64) -> Placement {
        Placement { lookup, ..self }
    }

    /// Prepares a program's address space.
    ///
    /// # Errors
    /// When there are too many.
    pub fn prepare(&self, system: &mut System, space: u16) -> Result<(), RunError> {
        let all = ColorSet::all(self.colors);
        match self.variant {
            SrmVariant::Linux => {}
            SrmVariant::Turns => system.frames_mut().choose_for(space, Choice::BinHopping),
            SrmVariant::OneColor => {
                let one = ColorSet::from_colors([Color(0)], self.colors).unwrap_or(all);
                system.frames_mut().choose_for_files_of(space, Some(Choice::Partition(one)));
            }
            // From the coloured zone where no frame is free.
            SrmVariant::Srm(_) | SrmVariant::Rescan if !self.memory => {}
            SrmVariant::Srm(_) | SrmVariant::Rescan => {
                system.frames_mut().choose_for(space, Choice::Partition(all));
            }
        }
        if let Some(policy) = &self.policy {
            let file_use_cost = (self.variant == SrmVariant::Rescan).then_some(USE_COST);
            let sense = Sense { file_miss_cost: self.lookup, file_use_cost, ..Sense::default() };
            system.govern(space, Box::new(SharedPolicy(Arc::clone(policy))), sense)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_the_papers() {
        // Section 2: 64 colours; 8 MiB and 4 KiB pages in 16 ways.
        for (place, colors, cores) in [(PaperMachine::Xeon, 64, 8), (PaperMachine::CoreI7, 128, 4)]
        {
            let machine = machine(place).expect("a sound machine");
            let (mut system, placement) =
                SrmVariant::Rescan.build(machine, LINUX).expect("colours");
            assert_eq!((system.frames_mut().colors(), system.cores()), (colors, cores));
            let policy = placement.policy.as_ref().expect("a policy");
            assert_eq!(policy.lock().expect("one thread").marked().count(), 0);
        }
    }
}
