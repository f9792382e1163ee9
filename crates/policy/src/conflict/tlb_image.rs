//! What the TLB holds, as a handler that fills it knows: pages enter when they miss and leave
//! as the victims of others. Where several programs share a TLB, entries that made way for
//! another program's pages stay here until they miss again.

use std::collections::HashMap;

use huepage_color::{Color, ColorSet, NumberHash, Vpn};

use super::pages::PageColors;
use crate::event::Event;

/// Base pages in the TLB by colour, those that came first in front. Memory in proportion to
/// the TLB; an event takes time in proportion to the pages of one colour.
#[derive(Clone, Debug)]
pub struct TlbImage {
    /// The colour under which a page is filed, and in how many TLBs (of data and of
    /// instructions) it is.
    held: HashMap<Vpn, (Color, u8), NumberHash>,
    groups: Vec<Vec<Vpn>>,
}

impl TlbImage {
    /// An empty TLB.
    pub fn new(colors: u16) -> TlbImage {
        TlbImage { held: HashMap::default(), groups: vec![Vec::new(); usize::from(colors)] }
    }

    /// Learns what an event says of the TLB. A page whose colour is not known does not count.
    pub fn note(&mut self, event: &Event, colors: &PageColors) {
        match *event {
            Event::TlbMiss { page, order, victim } => {
                victim.into_iter().for_each(|(gone, _)| self.leave(gone));
                if let Some(color) = colors.color(page).filter(|_| order == 0) {
                    self.enter(page, color);
                }
            }
            Event::Moved { page } | Event::Placed { page, .. } => self.remove(page),
            Event::TlbFlushed => {
                self.held.clear();
                self.groups.iter_mut().for_each(Vec::clear);
            }
            _ => {}
        }
    }

    /// A page of a colour has entered.
    fn enter(&mut self, page: Vpn, color: Color) {
        let Some(group) = self.groups.get_mut(usize::from(color.0)) else { return };
        match self.held.get_mut(&page) {
            Some((_, copies)) => *copies = 2,
            None => {
                self.held.insert(page, (color, 1));
                group.push(page);
            }
        }
    }

    /// A page made way in one TLB.
    fn leave(&mut self, page: Vpn) {
        match self.held.get_mut(&page) {
            Some((_, copies)) if *copies > 1 => *copies -= 1,
            _ => self.remove(page),
        }
    }

    /// No TLB has the page any more: it was invalidated, or moved.
    pub fn remove(&mut self, page: Vpn) {
        if let Some((color, _)) = self.held.remove(&page) {
            self.groups[usize::from(color.0)].retain(|&held| held != page);
        }
    }

    /// The pages of a colour.
    pub fn group(&self, color: Color) -> &[Vpn] {
        self.groups.get(usize::from(color.0)).map_or(&[], Vec::as_slice)
    }

    /// All groups, by colour.
    pub fn groups(&self) -> &[Vec<Vpn>] {
        &self.groups
    }

    /// How many pages it holds.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The colours of which it has `room` pages or more: one more would conflict.
    pub fn full(&self, room: usize) -> ColorSet {
        let universe = u16::try_from(self.groups.len()).unwrap_or(u16::MAX);
        let mut full = ColorSet::empty(universe);
        for color in (0..universe).filter(|&c| self.groups[usize::from(c)].len() >= room) {
            full.insert(Color(color));
        }
        full
    }
}
