//! Systems that differ only in the frames that pages get, run at once: what their TLBs and
//! nearest caches answer is the same for all, so that a leader works it out once, and only
//! what those lack goes through the caches of each, strip by strip ([`crate::cache::strips`]), or in
//! batches where caches are no LRU. That makes sweeps over partitions and mappings several times as
//! fast. What comes out is what each would give alone; a test compares. As soon as an access comes
//! that cannot be shared, each goes on by itself.

use huepage_color::{Pfn, Vpn};

use super::{ColorCounts, RunError, System};
use crate::cache::batch::LineRequest;
use crate::cache::strips::{Follow, PointCounts, StripShape, Strips, follower, stack};
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
    /// How the others' caches can follow the nearest, if they can.
    shape: Option<StripShape>,
    /// The nearest cache that they follow, once it is known of which core it is.
    strips: Option<Box<Strips>>,
    followers: Vec<Box<dyn Follow>>,
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
    /// Which of the followers is its.
    follower: usize,
}

impl System {
    /// A system that leads others, which must be the same machine up to the nearest cache for data, without
    /// policies, page heat, simulated walks and caches with extras, index that cache within a page, and
    /// not have run. Machines with an inclusive or exclusive level, and those that differ behind the
    /// nearest cache, must be LRU in two or three levels, of which none but the last is inclusive or
    /// exclusive. It does nothing of its own: what it is told to run they do.
    ///
    /// # Errors
    /// Those systems, when it cannot be.
    pub fn leading(systems: Vec<System>) -> Result<System, Vec<System>> {
        let Some(first) = systems.first() else { return Err(systems) };
        let alike = |other: &System| {
            let same = match first.strip_shape() {
                Some(shape) => {
                    other.strip_shape() == Some(shape)
                        && other.machine.is_same_up_to_nearest(&first.machine)
                }
                None => other.machine == first.machine,
            };
            same && other.can_have_twins()
        };
        if !systems.iter().all(alike) {
            return Err(systems);
        }
        let frames = systems.iter().map(|system| system.frames.total()).max().unwrap_or(0);
        // The leader's frames follow each other, so that what stands for them is found soon.
        let mut leader =
            System::new(first.machine.clone(), Frames::new(frames, Choice::InOrder, None));
        let twin = |system| Twin { system, frames: Vec::new(), follower: 0 };
        leader.twins.shape = leader.strip_shape();
        leader.twins.all = systems.into_iter().map(twin).collect();
        leader.twins.together = true;
        Ok(leader)
    }

    /// Nothing has run yet, nothing is watched, and what lies behind the nearest caches can follow.
    fn can_have_twins(&self) -> bool {
        let fresh = self.spaces.iter().all(|state| !state.is_used() && state.watch.is_none());
        let page_lines = 1 << (12 - self.line_bits.min(12));
        let in_batches = |core: usize| {
            self.goes_by_levels(core)
                && self.hierarchy.sets_within(&self.cores[core].paths[0], page_lines)
        };
        let in_batches = || (0..self.cores.len()).all(in_batches);
        fresh && self.colored != Some(0) && (self.strip_shape().is_some() || in_batches())
    }

    /// How its caches can follow a nearest one: the same from each core.
    fn strip_shape(&self) -> Option<StripShape> {
        let plain = !self.tells_tlbs() && (0..self.cores.len()).all(|core| self.is_staged(core));
        let frames = self.frames.total();
        let shape =
            |core: &super::Core| self.hierarchy.strip_shape(&core.paths[0], self.line_bits, frames);
        let mut shapes = self.cores.iter().map(shape);
        let first = shapes.next().flatten().filter(|_| plain)?;
        shapes.all(|shape| shape == Some(first)).then_some(first)
    }

    /// Whether what a core does can be for all of them: caches follow those of one core only.
    pub(super) fn can_lead(&mut self, core: usize) -> bool {
        let Twins { all, shape, strips, followers, .. } = &mut self.twins;
        let Some(shape) = *shape else { return true };
        let nearest = strips.get_or_insert_with(|| {
            *followers = follow(shape, all, core);
            Box::new(Strips::new(shape, &self.hierarchy, &self.cores[core].paths[0], core))
        });
        nearest.core() == core
    }

    /// Whether another system differs in nothing but the number of ways of the last level, as far as can be
    /// told before they have run.
    fn differs_in_ways(&self, other: &System) -> bool {
        let mut like = other.machine.clone();
        let Some(&last) = self.machine.data_path().last() else { return false };
        let (own, its) = (&self.machine.cache[last], &mut like.cache[last]);
        let differ = own.ways != its.ways && own.sets() == its.sets();
        its.clone_from(own);
        differ
            && like == self.machine
            && self.colored == other.colored
            && self.frames.is_alike(&other.frames)
    }

    /// The ways of the last level for data.
    fn last_ways(&self) -> usize {
        self.machine.data_path().last().map_or(0, |&last| self.machine.cache[last].real_ways())
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
        for number in 0..self.twins.all.len() {
            let twin = &mut self.twins.all[number];
            let own = twin.system.fault(space, page)?.frame();
            if twin.frames.len() <= at {
                twin.frames.resize(at + 1, 0);
            }
            // As page tables keep them.
            twin.frames[at] = u32::try_from(own.0).unwrap_or(u32::MAX);
            if self.twins.strips.is_some() {
                self.twins.place_page(number, at, own);
            }
        }
        Ok(())
    }

    /// Accesses go through the nearest cache and then through the others' further ones, if those follow;
    /// whether they do.
    pub(super) fn share_accesses(&mut self, space: u16, requests: &[LineRequest]) -> bool {
        let Some(strips) = self.twins.strips.as_mut().filter(|_| self.twins.together) else {
            return false;
        };
        if strips.wait(space, requests) {
            self.let_go();
        }
        true
    }

    /// Forgets what was counted for all.
    pub(super) fn forget_shared(&mut self) {
        let Twins { strips, followers, .. } = &mut self.twins;
        strips.iter_mut().for_each(|strips| strips.forget_counts());
        followers.iter_mut().for_each(|follower| follower.forget());
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
        let Twins { strips, followers, .. } = &mut self.twins;
        if let Some(strips) = strips {
            strips.run(|strip, log| {
                followers.iter_mut().for_each(|follower| follower.follow(strip, log));
            });
            return self.twins.settle();
        }
        let (bits, twins) = (12 - self.line_bits.min(12), &mut self.twins);
        for Twin { system, frames, .. } in &mut twins.all {
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

impl Twins {
    /// A page of the leader's has got a frame in one of them. Those that follow together part if it is
    /// not the same in all.
    fn place_page(&mut self, number: usize, at: usize, own: Pfn) {
        let follower = self.all[number].follower;
        let first = self.all.iter().position(|twin| twin.follower == follower);
        let first = first.filter(|&first| first != number);
        if first.is_some_and(|first| self.all[first].frames[at] != self.all[number].frames[at]) {
            self.follow_alone(number);
        } else if first.is_some() {
            return;
        }
        let twin = &self.all[number];
        let frames = &twin.system.frames;
        let color = frames.color(own).map_or(frames.colors(), |color| color.0);
        self.followers[twin.follower].see_page(at, twin.frames[at], color);
    }

    /// Gives one that follows together with others a follower of its own.
    fn follow_alone(&mut self, number: usize) {
        self.settle();
        let (own, core) = (self.followers.len(), self.strips.as_ref().map(|strips| strips.core()));
        let Twin { system, follower, .. } = &mut self.all[number];
        let path = &system.cores[core.unwrap_or(0)].paths[0];
        if let Some(alone) = self.followers[*follower].alone((&system.hierarchy, path)) {
            self.followers.push(alone);
            *follower = own;
        }
    }

    /// All count what their followers have.
    fn settle(&mut self) {
        let Some(core) = self.strips.as_ref().map(|strips| strips.core()) else { return };
        for (number, follower) in self.followers.iter_mut().enumerate() {
            let mut those: Vec<&mut Twin> =
                self.all.iter_mut().filter(|twin| twin.follower == number).collect();
            let members = those.iter_mut().map(|twin| {
                let System { hierarchy, cores, .. } = &mut twin.system;
                (hierarchy, &cores[core].paths[0])
            });
            let settled = follower.settle(&mut members.collect::<Vec<_>>());
            those.into_iter().zip(settled).for_each(|(twin, settled)| twin.count(settled));
        }
    }
}

/// Followers for all of them, which know whose they are then: one for those that differ in the ways of the
/// last level only, which then have their pages in the same frames.
fn follow(shape: StripShape, all: &mut [Twin], core: usize) -> Vec<Box<dyn Follow>> {
    let mut followers = Vec::new();
    let mut left: Vec<usize> = (0..all.len()).collect();
    while let Some(&first) = left.first() {
        let mut together: Vec<usize> = Vec::new();
        for &number in &left {
            let goes = |&other: &usize| all[number].system.differs_in_ways(&all[other].system);
            if together.iter().all(goes) {
                together.push(number);
            }
        }
        let most = together.iter().copied().max_by_key(|&number| all[number].system.last_ways());
        let System { hierarchy, cores, colored, .. } = &all[most.unwrap_or(first)].system;
        let (path, several) = (&cores[core].paths[0], together.len() > 1);
        let stack = several.then(|| stack(shape, hierarchy, path, *colored)).flatten();
        let follower = stack.unwrap_or_else(|| {
            together = vec![first];
            let System { hierarchy, cores, colored, .. } = &all[first].system;
            follower(shape, hierarchy, &cores[core].paths[0], *colored)
        });
        together.iter().for_each(|&number| all[number].follower = followers.len());
        left.retain(|number| !together.contains(number));
        followers.push(follower);
    }
    followers
}

impl Twin {
    /// Counts what its follower has.
    fn count(&mut self, settled: PointCounts) {
        for (space, found) in (0..).zip(&settled.found) {
            self.system.charge_misses(space, found);
        }
        let ColorCounts { accesses, misses } = &mut self.system.colors;
        let counts = accesses.iter_mut().zip(misses).zip(settled.colors);
        for ((asked, missed), [more_asked, more_missed]) in counts {
            (*asked, *missed) = (*asked + more_asked, *missed + more_missed);
        }
    }

    /// Takes over what the leader worked out for all.
    fn become_itself(&mut self, leader: &System) {
        let (bits, frames) = (12 - leader.line_bits, &self.frames);
        let own = &mut self.system;
        if let Some(strips) = &leader.twins.strips {
            let path = &own.cores[strips.core()].paths[0];
            leader.twins.followers[self.follower].hand_over(&mut own.hierarchy, path, strips);
        }
        for (core, model) in own.cores.iter_mut().zip(&leader.cores) {
            core.tlbs.clone_from(&model.tlbs);
            if leader.twins.shape.is_some() {
                continue;
            }
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
