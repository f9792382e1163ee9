//! Pages that a budget's moves put where they are, and colours that such pages conflicted in. A move
//! in vain is worse than none while the page stays: it conflicts with a page that had its colour to
//! itself. So a page that may not move on goes back to where it was, and for a while no other is put
//! where it failed. Knows nothing of caches and spends nothing.

use std::collections::HashMap;

use huepage_color::{Color, ColorSet, NumberHash, Vpn};

use crate::backoff::Doubling;

/// Doublings of a colour's rest at most.
const DOUBLINGS: u32 = 15;

/// What came of moves; see the [module](self). Memory in proportion to the pages moved and the
/// colours.
#[derive(Clone, Debug)]
pub struct MovedPages {
    /// Where pages were before they were first moved.
    from: HashMap<Vpn, Color, NumberHash>,
    /// By colour, until when it is no target, and the rest that is next.
    hot: Vec<(u64, Doubling)>,
}

impl MovedPages {
    /// Nothing moved yet, over so many colours; one in which a page fails is no target for so long,
    /// twice as long each time.
    pub fn new(colors: u16, rest: u64) -> MovedPages {
        let hot = vec![(0, Doubling::new(rest, DOUBLINGS)); usize::from(colors)];
        MovedPages { from: HashMap::default(), hot }
    }

    /// Whether a move put the page where it is.
    pub fn has_moved(&self, page: Vpn) -> bool {
        self.from.contains_key(&page)
    }

    /// A page is moved.
    pub fn moves(&mut self, page: Vpn, from: Color, to: Color) {
        if *self.from.entry(page).or_insert(from) == to {
            self.from.remove(&page);
        }
    }

    /// A page conflicts in this colour; if a move put it there, others keep off it.
    pub fn conflicts(&mut self, page: Vpn, here: Color, now: u64) {
        let moved = self.has_moved(page);
        if let Some((until, rests)) = self.hot.get_mut(usize::from(here.0)).filter(|_| moved)
            && *until <= now
        {
            *until = now.saturating_add(rests.take());
        }
    }

    /// Where a page was before it was moved, if that is another colour; it can be asked once.
    pub fn take_back(&mut self, page: Vpn, here: Color) -> Option<Color> {
        self.from.remove(&page).filter(|from| *from != here)
    }

    /// A page stays, or is where something else put it.
    pub fn forget(&mut self, page: Vpn) {
        self.from.remove(&page);
    }

    /// These colours and those that are no targets for a page now.
    pub fn no_targets_of(&self, page: Vpn, avoid: &ColorSet, now: u64) -> ColorSet {
        let mut all = avoid.clone();
        self.from.get(&page).into_iter().for_each(|first| _ = all.insert(*first));
        for (color, (until, _)) in (0..).zip(&self.hot) {
            if *until > now {
                all.insert(Color(color));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_goes_back_once_and_others_keep_off_for_ever_longer() {
        let (page, [a, b, c]) = (Vpn(7), [Color(0), Color(1), Color(2)]);
        let mut placed = MovedPages::new(4, 10);
        placed.conflicts(page, b, 0);
        let hot =
            |placed: &MovedPages, now| placed.no_targets_of(Vpn(8), &ColorSet::empty(4), now).len();
        assert_eq!(hot(&placed, 0), 0, "nothing was moved there");
        placed.moves(page, a, b);
        placed.conflicts(page, b, 5);
        placed.conflicts(page, b, 6);
        assert_eq!([hot(&placed, 14), hot(&placed, 15)], [1, 0]);
        placed.conflicts(page, b, 20);
        assert_eq!([hot(&placed, 39), hot(&placed, 40)], [1, 0]);
        placed.moves(page, b, c);
        assert_eq!([placed.take_back(page, c), placed.take_back(page, a)], [Some(a), None]);
        placed.moves(page, a, b);
        placed.moves(page, b, a);
        assert!(!placed.has_moved(page), "it is back already");
    }
}
