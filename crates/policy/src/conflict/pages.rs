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
    /// Pages that came with a superpage and were not heard of otherwise.
    untouched: HashSet<Vpn, NumberHash>,
    /// Touched pages by colour; a page that is being moved counts where it is and where it goes.
    population: Vec<u64>,
}

impl PageColors {
    /// Learns what an event says of colours.
    pub fn note(&mut self, event: &Event) {
        match *event {
            Event::Faulted { page, color } => self.set(page, color),
            Event::Placed { page, color } => {
                if color.is_some() && !self.at.contains_key(&page) {
                    self.untouched.insert(page);
                }
                self.set(page, color);
                self.joined.insert(page);
            }
            Event::CmlEntry { page, .. } => self.touch(page),
            Event::Resident(seen) => self.set(seen.page, seen.color),
            Event::Moved { page } => {
                let color = self.answered(page);
                self.set(page, color);
                self.joined.remove(&page);
            }
            Event::Refused { page, .. } => _ = self.answered(page),
            Event::Demoted { page, order, .. } if !self.joined.is_empty() => {
                let first = page.0 >> order.min(52) << order.min(52);
                for part in first..first + (1 << order.min(52)) {
                    self.joined.remove(&Vpn(part));
                }
            }
            _ => {}
        }
    }

    /// A page misses, so it is in use, however it came.
    fn touch(&mut self, page: Vpn) {
        if !self.untouched.is_empty() && self.untouched.remove(&page) {
            self.count(self.color(page), 1);
        }
    }

    fn set(&mut self, page: Vpn, color: Option<Color>) {
        let old = match color {
            Some(color) => self.at.insert(page, color),
            None => self.at.remove(&page),
        };
        if !self.untouched.contains(&page) {
            self.count(old, -1);
            self.count(color, 1);
        }
    }

    fn count(&mut self, color: Option<Color>, by: i64) {
        let Some(at) = color.map(|color| usize::from(color.0)) else { return };
        if self.population.len() <= at {
            self.population.resize(at + 1, 0);
        }
        self.population[at] = self.population[at].saturating_add_signed(by);
    }

    /// Where a page was to go whose move is answered.
    fn answered(&mut self, page: Vpn) -> Option<Color> {
        let to = self.asked.remove(&page);
        self.count(to, -1);
        to
    }

    /// The colour of a page, if it is known.
    pub fn color(&self, page: Vpn) -> Option<Color> {
        self.at.get(&page).copied()
    }

    /// Pages whose colour is known and that were touched.
    pub fn touched(&self) -> u64 {
        self.at.len().saturating_sub(self.untouched.len()) as u64
    }

    /// Touched pages by colour, up to the last colour that has any; those that are being moved
    /// count twice.
    pub fn population(&self) -> &[u64] {
        &self.population
    }

    /// Whether there are superpages.
    pub fn any_joined(&self) -> bool {
        !self.joined.is_empty()
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
        let before = self.asked.insert(page, to);
        self.count(before, -1);
        self.count(Some(to), 1);
        Action::Recolour { page, to }
    }
}
