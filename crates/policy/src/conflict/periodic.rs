//! Periodic policies (Romer 1998, section 4.2.3): by the clock, one page of those in the TLB is
//! moved. Periodic-Random takes any, Periodic-Color one of a colour of which there are more
//! than fit. Need the time, and TLB misses with their victims to know what the TLB holds.
//! Neither asks whether there are misses at all. A miss takes constant time, a look at the TLB
//! time in proportion to its entries and the colours.

use huepage_color::{Color, Vpn};

use super::CacheShape;
use super::pages::PageColors;
use super::target::{Clues, Random, TargetChoice, Targets};
use super::tlb_image::TlbImage;
use crate::event::{Action, Event, Policy};
use crate::input::InputKind;

/// Which page is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Any page in the TLB: Periodic-Random.
    Any,
    /// One of those that conflict: Periodic-Color.
    Conflicting,
}

/// The policies; see the [module](self).
#[derive(Clone, Debug)]
pub struct Periodic {
    shape: CacheShape,
    pick: Pick,
    /// Cycles between moves.
    period: u64,
    due: u64,
    /// The colour looked at last, so that all get their turn.
    last: usize,
    colors: PageColors,
    image: TlbImage,
    targets: Targets,
    random: Random,
}

/// Cycles between moves (table 4-5).
const PERIOD: u64 = 2_000_000;

impl Periodic {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] =
        &[InputKind::Faults, InputKind::TlbMisses, InputKind::Cycles];

    /// Periodic-Random: one move in 2 x 10^6 cycles (table 4-5).
    pub fn random(shape: CacheShape, seed: u64) -> Periodic {
        Periodic::new(shape, Pick::Any, PERIOD, seed)
    }

    /// Periodic-Color: one move in 2 x 10^6 cycles (table 4-5).
    pub fn color(shape: CacheShape) -> Periodic {
        Periodic::new(shape, Pick::Conflicting, PERIOD, 0)
    }

    /// Any other; `period` in cycles.
    pub fn new(shape: CacheShape, pick: Pick, period: u64, seed: u64) -> Periodic {
        let how = if pick == Pick::Any { TargetChoice::Random } else { TargetChoice::Sequential };
        Periodic {
            shape,
            pick,
            period,
            due: period,
            last: 0,
            colors: PageColors::default(),
            image: TlbImage::new(shape.colors),
            targets: Targets::new(how, shape.colors, seed),
            random: Random::new(seed.wrapping_add(1)),
        }
    }

    fn look(&mut self, actions: &mut Vec<Action>) {
        let found = match self.pick {
            Pick::Any => self.any(),
            Pick::Conflicting => self.conflicting(),
        };
        let Some((page, from)) = found else { return };
        let mut avoid = self.image.full(self.shape.room());
        if self.pick == Pick::Any {
            // It does not look at colours, but for the one that the page has.
            avoid = huepage_color::ColorSet::empty(self.shape.colors);
        }
        avoid.insert(from);
        if let Some(to) = self.targets.pick(&avoid, Clues::default()) {
            actions.push(self.colors.recolour(page, to));
        }
    }

    fn any(&mut self) -> Option<(Vpn, Color)> {
        if self.image.is_empty() {
            return None;
        }
        let at = self.random.index(self.image.len());
        let page = *self.image.groups().iter().flatten().nth(at)?;
        Some((page, self.colors.color(page)?))
    }

    /// The page that came last, of the next colour of which there are too many.
    fn conflicting(&mut self) -> Option<(Vpn, Color)> {
        let (groups, room) = (self.image.groups(), self.shape.room());
        let order = (1..=groups.len()).map(|step| (self.last + step) % groups.len());
        let at = order.into_iter().find(|&at| groups[at].len() > room)?;
        let page = *groups[at].last()?;
        self.last = at;
        Some((page, self.colors.color(page)?))
    }
}

impl Policy for Periodic {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.colors.note(&event);
        self.image.note(&event, &self.colors);
        if let Event::Progress { cycles, .. } = event
            && cycles >= self.due
        {
            self.due = cycles + self.period;
            self.look(actions);
        }
    }
}
