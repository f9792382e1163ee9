//! Which page is in the pollute buffer (ROCS 2008, section 4), and the wishes that bring it there
//! and back. Chooses no pages.
//!
//! Constant time per page, but for [`PolluteBuffer::spread`], which is linear in its pages.

use std::collections::HashMap;

use huepage_color::{Color, ColorSet, NumberHash, Vpn};

use crate::event::{Action, Event};

/// The buffer's colours and where pages are.
#[derive(Clone, Debug)]
pub struct PolluteBuffer {
    inside: ColorSet,
    outside: ColorSet,
    at: HashMap<Vpn, Color, NumberHash>,
    asked: HashMap<Vpn, Color, NumberHash>,
    /// Where pages were before they were first moved.
    home: HashMap<Vpn, Color, NumberHash>,
    /// The colours used last, inside and outside.
    last: [Option<Color>; 2],
}

impl PolluteBuffer {
    /// Of these colours.
    pub fn new(inside: ColorSet) -> PolluteBuffer {
        let outside = inside.complement();
        let (at, asked, home) = (HashMap::default(), HashMap::default(), HashMap::default());
        PolluteBuffer { inside, outside, at, asked, home, last: [None; 2] }
    }

    /// Learns where pages are.
    pub fn note(&mut self, event: &Event) {
        match *event {
            Event::Faulted { page, color } | Event::Placed { page, color } => self.set(page, color),
            Event::Resident(seen) => self.set(seen.page, seen.color),
            Event::Moved { page } => {
                let to = self.asked.remove(&page);
                self.set(page, to);
            }
            Event::Refused { page, .. } => _ = self.asked.remove(&page),
            _ => {}
        }
    }

    fn set(&mut self, page: Vpn, color: Option<Color>) {
        match color {
            Some(color) => self.at.insert(page, color),
            None => self.at.remove(&page),
        };
    }

    /// Whether a page is in the buffer's colours, confined or by chance.
    pub fn holds(&self, page: Vpn) -> bool {
        self.at.get(&page).is_some_and(|&color| self.inside.contains(color))
    }

    /// Pages in the buffer's colours.
    pub fn pages(&self) -> impl Iterator<Item = Vpn> + '_ {
        self.at.iter().filter(|(_, color)| self.inside.contains(**color)).map(|(&page, _)| page)
    }

    /// Puts a page into the buffer, its colours in turn.
    pub fn confine(&mut self, page: Vpn, actions: &mut Vec<Action>) {
        if !self.holds(page) {
            let to = turn(&self.inside, &mut self.last[0]);
            self.recolour(page, to, actions);
        }
    }

    /// Takes a page out: home, or to the colours outside in turn if that is in the buffer. Turns for
    /// all would even out what chance has given to some colours: of a loop that is a little larger
    /// than the cache, no colour would have few enough pages for hits any more.
    pub fn release(&mut self, page: Vpn, actions: &mut Vec<Action>) {
        if !self.holds(page) {
            return;
        }
        let home = self.home.get(&page).copied().filter(|&home| self.outside.contains(home));
        let to = home.or_else(|| turn(&self.outside, &mut self.last[1]));
        self.recolour(page, to, actions);
    }

    /// Every page that was moved goes back to the colour it had at first.
    pub fn undo(&mut self, actions: &mut Vec<Action>) {
        let mut moved: Vec<(Vpn, Color)> = self.home.drain().collect();
        moved.sort_unstable();
        for (page, home) in moved {
            if self.at.get(&page).is_some_and(|&color| color != home) {
                self.asked.insert(page, home);
                actions.push(Action::Recolour { page, to: home });
            }
        }
    }

    /// Moves pages of colours outside that have more of these than `room` to those that have
    /// fewer.
    pub fn spread(&mut self, pages: &[Vpn], room: usize, actions: &mut Vec<Action>) {
        let mut used = vec![0; usize::from(self.outside.universe())];
        let mut many = Vec::new();
        // Those that are on their way already take room where they go.
        let (going, others): (Vec<Vpn>, Vec<Vpn>) =
            pages.iter().partition(|page| self.asked.contains_key(page));
        going.iter().for_each(|page| used[usize::from(self.asked[page].0)] += 1);
        for page in others {
            let Some(&color) = self.at.get(&page).filter(|&&c| self.outside.contains(c)) else {
                continue;
            };
            let used = &mut used[usize::from(color.0)];
            if *used < room { *used += 1 } else { many.push(page) }
        }
        let free = self.outside.iter().flat_map(|color| {
            let used = used[usize::from(color.0)];
            std::iter::repeat_n(color, room.saturating_sub(used))
        });
        let moves: Vec<(Vpn, Color)> = many.into_iter().zip(free).collect();
        moves.into_iter().for_each(|(page, to)| self.recolour(page, Some(to), actions));
    }

    fn recolour(&mut self, page: Vpn, to: Option<Color>, actions: &mut Vec<Action>) {
        let (Some(to), Some(&from)) = (to, self.at.get(&page)) else { return };
        self.home.entry(page).or_insert(from);
        self.asked.insert(page, to);
        actions.push(Action::Recolour { page, to });
    }
}

/// The colour after the last one.
fn turn(set: &ColorSet, last: &mut Option<Color>) -> Option<Color> {
    let next = last.and_then(|last| set.next_after(last)).or_else(|| set.first_color());
    *last = next;
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_leave_the_buffer_take_room_from_those_that_are_spread() {
        let mut buffer = PolluteBuffer::new(ColorSet::parse("3", 4).unwrap());
        // Six pages of one colour outside, three in the buffer by chance: nine of room for three each.
        let color = |page: u64| Some(Color(if page < 6 { 0 } else { 3 }));
        let pages: Vec<Vpn> = (0..9).map(Vpn).collect();
        for &page in &pages {
            buffer.note(&Event::Placed { page, color: color(page.0) });
        }
        let mut actions = Vec::new();
        pages.iter().for_each(|&page| buffer.release(page, &mut actions));
        buffer.spread(&pages, 3, &mut actions);
        let asked: Vec<Vpn> = buffer.asked.keys().copied().collect();
        asked.into_iter().for_each(|page| buffer.note(&Event::Moved { page }));
        let mut used = [0; 4];
        for page in &pages {
            used[usize::from(buffer.at.get(page).map_or(0, |color| color.0))] += 1;
        }
        assert_eq!((used, actions.len()), ([3, 3, 3, 0], 7));
    }
}
