//! Systems that differ only in the frames that pages get, run at once: what their TLBs and
//! nearest caches answer is the same for all, so that a leader works it out once, and only
//! what those lack goes through the caches of each. That makes sweeps over partitions and
//! mappings several times as fast. What comes out is what each would give alone; a test
//! compares. As soon as an access comes that cannot be shared, each goes on by itself.

use huepage_color::{Pfn, Vpn};

use super::{RunError, System};
use crate::cache::batch::LineRequest;
use crate::frames::{Choice, Frames};
use crate::record::Record;

/// Requests that wait before they go through the caches of one system after the other: enough
/// that each finds its own state at hand for most of them.
const WAITING: usize = 1 << 16;

/// Systems that a leader leads.
#[derive(Debug, Default)]
pub(super) struct Twins {
    all: Vec<Twin>,
    /// Whether what the nearest caches and TLBs answer is still worked out for all at once.
    together: bool,
    /// What the nearest caches lacked and others were not asked for yet.
    waiting: Vec<LineRequest>,
    /// Whose it is: core, space, and where it ends.
    parts: Vec<(usize, u16, usize)>,
}

#[derive(Debug)]
struct Twin {
    system: System,
    /// The frame that stands here for each of the leader's.
    frames: Vec<u32>,
}

impl System {
    /// A system that leads others, which must be the same machine, without policies, page heat,
    /// simulated walks and caches with extras, index the nearest cache within a page, and not
    /// have run. It does nothing of its own: what it is told to run they do.
    ///
    /// # Errors
    /// Those systems, when it cannot be.
    pub fn leading(systems: Vec<System>) -> Result<System, Vec<System>> {
        let Some(first) = systems.first() else { return Err(systems) };
        let alike = |other: &System| other.machine == first.machine && other.can_have_twins();
        if !systems.iter().all(alike) {
            return Err(systems);
        }
        let frames = systems.iter().map(|system| system.frames.total()).max().unwrap_or(0);
        // The leader's frames follow each other, so that what stands for them is found soon.
        let mut leader =
            System::new(first.machine.clone(), Frames::new(frames, Choice::InOrder, None));
        let twin = |system| Twin { system, frames: Vec::new() };
        leader.twins.all = systems.into_iter().map(twin).collect();
        leader.twins.together = true;
        Ok(leader)
    }

    /// Nothing has run yet, nothing is watched, and batches go level by level.
    fn can_have_twins(&self) -> bool {
        let fresh = self.spaces.iter().all(|state| !state.is_used() && state.watch.is_none());
        let page_lines = 1 << (12 - self.line_bits.min(12));
        let shared = |core: usize| {
            self.goes_by_levels(core)
                && self.hierarchy.sets_within(&self.cores[core].paths[0], page_lines)
        };
        fresh && self.colored != Some(0) && (0..self.cores.len()).all(shared)
    }

    /// The systems that it led, each as if it had run alone, in the order in which they came.
    pub fn into_twins(mut self) -> Vec<System> {
        self.part();
        self.twins.all.into_iter().map(|twin| twin.system).collect()
    }

    /// A system that it leads, in the order in which they came.
    pub fn twin_mut(&mut self, number: usize) -> Option<&mut System> {
        self.twins.all.get_mut(number).map(|twin| &mut twin.system)
    }

    pub(super) const fn leads(&self) -> bool {
        self.twins.together
    }

    /// Whether it led systems that now go by themselves.
    pub(super) const fn has_parted(&self) -> bool {
        !self.twins.together && !self.twins.all.is_empty()
    }

    /// Has every system go on by itself: what was shared becomes part of each.
    pub(super) fn part(&mut self) {
        self.let_go();
        if std::mem::replace(&mut self.twins.together, false) {
            let mut all = std::mem::take(&mut self.twins.all);
            all.iter_mut().for_each(|twin| twin.become_itself(self));
            self.twins.all = all;
        }
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
                twin.frames.resize(at + 1, 0);
            }
            // As page tables keep them.
            twin.frames[at] = u32::try_from(own.0).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// What the nearest cache lacks is to go through the others' further ones.
    pub(super) fn share_misses(&mut self, core: usize, space: u16, requests: &[LineRequest]) {
        let Twins { waiting, parts, .. } = &mut self.twins;
        waiting.extend_from_slice(requests);
        match parts.last_mut().filter(|last| (last.0, last.1) == (core, space)) {
            Some(last) => last.2 = waiting.len(),
            None => parts.push((core, space, waiting.len())),
        }
        if waiting.len() >= WAITING {
            self.let_go();
        }
    }

    /// What waits goes through the caches of all.
    pub(super) fn let_go(&mut self) {
        let (bits, twins) = (12 - self.line_bits.min(12), &mut self.twins);
        for Twin { system, frames } in &mut twins.all {
            let mut from = 0;
            for &(core, space, end) in &twins.parts {
                let requests = &twins.waiting[from..end];
                system.ask_translated(core, space, requests, |line| move_line(line, bits, frames));
                from = end;
            }
        }
        twins.waiting.clear();
        twins.parts.clear();
    }
}

impl Twin {
    /// Takes over what the leader worked out for all.
    fn become_itself(&mut self, leader: &System) {
        let (bits, frames) = (12 - leader.line_bits, &self.frames);
        let own = &mut self.system;
        for (core, model) in own.cores.iter_mut().zip(&leader.cores) {
            core.tlbs.clone_from(&model.tlbs);
            let translate = |line| move_line(line, bits, frames);
            own.hierarchy.copy_nearest(&model.paths[0], &leader.hierarchy, translate);
        }
        own.walks = leader.walks;
        for (state, model) in own.spaces.iter_mut().zip(&leader.spaces) {
            state.costs.accesses = model.costs.accesses;
            state.costs.instructions = model.costs.instructions;
            state.costs.tlb_cycles = model.costs.tlb_cycles;
        }
    }
}

/// Where one of the leader's lines lies in another system.
#[inline(always)]
fn move_line(line: u64, bits: u32, frames: &[u32]) -> u64 {
    let frame = usize::try_from(line >> bits).unwrap_or(usize::MAX);
    u64::from(frames[frame]) << bits | line & ((1 << bits) - 1)
}
