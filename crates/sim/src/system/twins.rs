//! Systems that differ from another only in the frames that their pages get: what its TLBs and
//! nearest caches answer is the same for all, so that it is worked out once, and only what
//! those lack goes through the caches of each. That makes sweeps over partitions and mappings
//! several times as fast. What comes out is what each would give alone; a test compares. As
//! soon as an access comes that cannot be shared, every system goes on by itself.

use huepage_color::{Pfn, Vpn};

use super::{RunError, System};
use crate::cache::batch::{Lists, Tally};
use crate::record::Record;

/// Systems that do what this one does.
#[derive(Debug, Default)]
pub(super) struct Twins {
    all: Vec<Twin>,
    /// Whether what the nearest caches and TLBs answer is still worked out for all at once.
    together: bool,
}

#[derive(Debug)]
struct Twin {
    system: System,
    /// The frame that stands here for each frame of the first system.
    frames: Vec<Pfn>,
}

impl Twins {
    pub(super) const fn are_together(&self) -> bool {
        self.together
    }
}

impl System {
    /// Has another system do what this one does from now on, before either has run. Given back
    /// if that cannot be: they must be the same machine, without policies, page heat, simulated
    /// walks and caches with extras, and index the nearest cache within a page.
    ///
    /// # Errors
    /// The system itself, when it cannot be.
    pub fn add_twin(&mut self, twin: System) -> Result<(), Box<System>> {
        let same = self.machine == twin.machine && self.colored == twin.colored;
        if !same || !self.can_have_twins() || !twin.can_have_twins() {
            return Err(Box::new(twin));
        }
        self.twins.all.push(Twin { system: twin, frames: Vec::new() });
        self.twins.together = true;
        Ok(())
    }

    /// Nothing has run yet, nothing is watched, and batches go level by level.
    fn can_have_twins(&self) -> bool {
        let fresh = self.spaces.iter().all(|state| !state.is_used() && state.watch.is_none());
        let page_lines = 1 << (12 - self.line_bits.min(12));
        let shared = |core: usize| {
            self.is_staged(core)
                && self.hierarchy.sets_within(&self.cores[core].paths[0], page_lines)
        };
        fresh && self.colored != Some(0) && (0..self.cores.len()).all(shared)
    }

    /// The systems that were added, each as if it had run alone.
    pub fn take_twins(&mut self) -> Vec<System> {
        self.part();
        std::mem::take(&mut self.twins.all).into_iter().map(|twin| twin.system).collect()
    }

    /// Another system that does what this one does, in the order in which they were added.
    pub fn twin_mut(&mut self, number: usize) -> Option<&mut System> {
        self.twins.all.get_mut(number).map(|twin| &mut twin.system)
    }

    /// Has every system go on by itself: what was shared becomes part of each.
    pub(super) fn part(&mut self) {
        if !std::mem::replace(&mut self.twins.together, false) {
            return;
        }
        let mut all = std::mem::take(&mut self.twins.all);
        all.iter_mut().for_each(|twin| twin.become_itself(self));
        self.twins.all = all;
    }

    /// What [`Self::run`] does, for the others where all go by themselves.
    pub(super) fn run_apart(&mut self, core: usize, records: &[Record]) -> Result<(), RunError> {
        self.each_twin(|twin| twin.run(core, records))
    }

    /// Does to all others what is done to this one.
    pub(super) fn each_twin(
        &mut self,
        mut what: impl FnMut(&mut System) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        self.twins.all.iter_mut().try_for_each(|twin| what(&mut twin.system))
    }

    /// Makes a space in all of them.
    pub(super) fn share_space(&mut self, space: u16) -> Result<(), RunError> {
        self.make_room(space)?;
        self.each_twin(|twin| twin.make_room(space))
    }

    /// A page has got a frame here; it gets one in all others.
    pub(super) fn share_fault(
        &mut self,
        space: u16,
        page: Vpn,
        frame: Pfn,
    ) -> Result<(), RunError> {
        if !self.twins.together {
            return Ok(());
        }
        let at = usize::try_from(frame.0).unwrap_or(usize::MAX);
        for twin in &mut self.twins.all {
            let own = twin.system.fault(space, page)?.frame();
            if twin.frames.len() <= at {
                twin.frames.resize(at + 1, Pfn(0));
            }
            twin.frames[at] = own;
        }
        Ok(())
    }

    /// What the nearest cache lacks goes through the others' further ones.
    pub(super) fn share_misses(&mut self, core: usize, space: u16, asked: Tally, lists: &Lists) {
        if !self.twins.together {
            return;
        }
        let bits = 12 - self.line_bits;
        for Twin { system, frames } in &mut self.twins.all {
            let translate = |line: u64| move_line(line, bits, frames);
            system.ask_translated(core, space, asked, lists, translate);
        }
    }
}

impl Twin {
    /// Takes over what the first system worked out for all.
    fn become_itself(&mut self, first: &System) {
        let (bits, frames) = (12 - first.line_bits, &self.frames);
        let own = &mut self.system;
        for (core, model) in own.cores.iter_mut().zip(&first.cores) {
            core.tlbs.clone_from(&model.tlbs);
            let translate = |line| move_line(line, bits, frames);
            own.hierarchy.copy_nearest(&model.paths[0], &first.hierarchy, translate);
        }
        own.walks = first.walks;
        for (state, model) in own.spaces.iter_mut().zip(&first.spaces) {
            state.costs.accesses = model.costs.accesses;
            state.costs.instructions = model.costs.instructions;
            state.costs.tlb_cycles = model.costs.tlb_cycles;
        }
    }
}

/// Where a line of the first system lies in another one.
#[inline(always)]
fn move_line(line: u64, bits: u32, frames: &[Pfn]) -> u64 {
    let frame = usize::try_from(line >> bits).unwrap_or(usize::MAX);
    frames[frame].0 << bits | line & ((1 << bits) - 1)
}
