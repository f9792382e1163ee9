//! The cache miss look-aside buffer in its place between the last cache and memory: it sees
//! every line that this cache misses, of loads, fetches and stores alike, by physical address.
//! Each governed space has a buffer of its own, so that programs do not push each other out.

use std::collections::HashMap;

use huepage_color::{Color, NumberHash, Pfn, Vpn};
use huepage_policy::Event;

use super::System;

/// Whose page is in a frame.
pub(super) type Owners = HashMap<u64, (u16, Vpn), NumberHash>;

impl System {
    /// Misses of the last level are told from now on, if they were not before.
    pub(super) fn watch_memory(&mut self, references: bool) {
        let path = self.machine.data_path();
        if references && self.colored.is_none() {
            self.count_colors_at(path.len().saturating_sub(1));
        }
        let last = path.last().and_then(|last| self.specs.iter().position(|spec| spec == last));
        self.hierarchy.watch(last);
        let mut owners = Owners::default();
        for (space, state) in (0..).zip(&self.spaces) {
            for (page, at) in state.table.pages() {
                let parts = (0..1_u64 << at.order()).map(|i| (at.frame().0 + i, page.0 + i));
                owners.extend(parts.map(|(frame, page)| (frame, (space, Vpn(page)))));
            }
        }
        self.owners = Some(owners);
    }

    /// A page has a frame.
    pub(super) fn note_owner(&mut self, space: u16, page: Vpn, frame: Pfn) {
        if let Some(owners) = &mut self.owners {
            owners.insert(frame.0, (space, page));
        }
    }

    /// A page has left a frame. What missed there is neither that page's, which now is elsewhere, nor the next
    /// one's in the frame: memory of the thesis has no end (section 4.3.2), so its frames are not used again.
    pub(super) fn forget_owner(&mut self, frame: Pfn) {
        let owner = self.owners.as_mut().and_then(|owners| owners.remove(&frame.0));
        let Some((space, _)) = owner else { return };
        if let Some(buffer) =
            self.spaces[usize::from(space)].watch.as_mut().and_then(|watch| watch.cml.as_mut())
        {
            buffer.forget(frame);
        }
    }

    /// Counts what the last level has missed since the last call.
    #[cold]
    pub(super) fn count_misses(&mut self) {
        let lines: Vec<u64> = self.hierarchy.missed().collect();
        for line in lines {
            let frame = Pfn(line >> 12);
            let owner = self.owners.as_ref().and_then(|owners| owners.get(&frame.0).copied());
            let Some((space, page)) = owner else { continue };
            let watch = self.spaces[usize::from(space)].watch.as_mut();
            let misses = watch.and_then(|watch| watch.cml.as_mut()?.miss(frame));
            if let Some(misses) = misses {
                self.interrupt(space, page, misses);
            }
        }
    }

    /// The buffer is read, and the policy told.
    fn interrupt(&mut self, space: u16, page: Vpn, misses: u64) {
        let (state, counts) = (&mut self.spaces[usize::from(space)], &self.colors.accesses);
        let (Some(watch), Some(owners)) = (&mut state.watch, &self.owners) else { return };
        let Some(buffer) = &watch.cml else { return };
        let page_of = |frame: Pfn| owners.get(&frame.0).filter(|owner| owner.0 == space);
        let entries = buffer.entries().filter_map(|(frame, n)| Some((page_of(frame)?.1, n)));
        for (page, misses) in entries.collect::<Vec<_>>() {
            watch.tell(Event::CmlEntry { page, misses });
        }
        let spec = watch.sense.cml;
        for (color, &count) in (0..).map(Color).zip(counts) {
            if spec.is_some_and(|spec| spec.references) {
                let before = watch.references.get(usize::from(color.0)).copied();
                let references = count - before.unwrap_or(0).min(count);
                watch.tell(Event::ColorReferences { color, references });
            }
        }
        watch.tell(Event::Conflict { page, misses });
        state.costs.policy_cycles += spec.map_or(0, |spec| spec.cost);
        state.alarm = 0;
    }

    /// Sets the buffer of a space to zero.
    pub(super) fn clear_cml(&mut self, space: u16) {
        let counts = &self.colors.accesses;
        let Some(watch) = &mut self.spaces[usize::from(space)].watch else { return };
        watch.cml.iter_mut().for_each(super::super::cml::CmlBuffer::clear);
        watch.references.clone_from(counts);
    }

    /// Keeps a count for a page of a space whatever else misses.
    pub(super) fn fix_in_cml(&mut self, space: u16, page: Vpn) {
        let Some(at) = self.mapping(space, page) else { return };
        if let Some(watch) = &mut self.spaces[usize::from(space)].watch
            && let Some(buffer) = &mut watch.cml
        {
            buffer.fix(at.frame());
        }
    }
}
