//! The colours of a program's pages, as far as events told them. Knows nothing of caches.

use std::collections::{HashMap, HashSet};

use huepage_color::{Color, NumberHash, Vpn};

use crate::event::{Action, Event};

/// Page to colour, and the moves that were asked for and not yet answered. Memory in
/// proportion to the pages told of; constant time per event, but for broken superpages, which
/// take time in proportion to their base pages.
#[derive(Clone, Debug, Default)]
pub struct PageColors {
    at: HashMap<Vpn, Color, NumberHash>,
    asked: HashMap<Vpn, Color, NumberHash>,
    /// Pages that are parts of superpages.
    joined: HashSet<Vpn, NumberHash>,
}

impl PageColors {
    /// Learns what an event says of colours.
    pub fn note(&mut self, event: &Event) {
        match *event {
            Event::Faulted { page, color } => self.set(page, color),
            Event::Placed { page, color } => {
                self.set(page, color);
                self.joined.insert(page);
            }
            Event::Resident(seen) => self.set(seen.page, seen.color),
            Event::Moved { page } => {
                let color = self.asked.remove(&page);
                self.set(page, color);
                self.joined.remove(&page);
            }
            Event::Refused { page, .. } => _ = self.asked.remove(&page),
            Event::Demoted { page, order, .. } if !self.joined.is_empty() => {
                let first = page.0 >> order.min(52) << order.min(52);
                for part in first..first + (1 << order.min(52)) {
                    self.joined.remove(&Vpn(part));
                }
            }
            _ => {}
        }
    }

    fn set(&mut self, page: Vpn, color: Option<Color>) {
        match color {
            Some(color) => self.at.insert(page, color),
            None => self.at.remove(&page),
        };
    }

    /// The colour of a page, if it is known.
    pub fn color(&self, page: Vpn) -> Option<Color> {
        self.at.get(&page).copied()
    }

    /// Pages whose colour is known.
    pub fn known(&self) -> u64 {
        self.at.len() as u64
    }

    /// Whether a page is part of a superpage.
    pub fn is_joined(&self, page: Vpn) -> bool {
        self.joined.contains(&page)
    }

    /// Whether a move of the page was asked for and is not answered.
    pub fn is_asked(&self, page: Vpn) -> bool {
        self.asked.contains_key(&page)
    }

    /// The wish to move a page, which is remembered until it is answered.
    pub fn recolour(&mut self, page: Vpn, to: Color) -> Action {
        self.asked.insert(page, to);
        Action::Recolour { page, to }
    }
}
