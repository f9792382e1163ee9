//! Active policies (Romer 1998, section 4.2.2): no more pages of a colour are let into the TLB
//! than its sets have room for. Active-Naive moves the page that comes; Active-Delay throws
//! another page of the colour out of the TLB and counts, and moves one at a count; Active-
//! Throttle stops watching for a while after each move. Needs every TLB miss with its victim,
//! and, to be throttled, the time. Each miss is charged by the engine; thinking takes time in
//! proportion to the pages of one colour, a move in proportion to the colours.

use super::CacheShape;
use super::pages::PageColors;
use super::target::{Clues, TargetChoice, Targets};
use super::tlb_image::TlbImage;
use crate::event::{Action, Event, Policy};
use crate::input::InputKind;
use huepage_color::{Color, Vpn};

/// How eagerly pages are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveSettings {
    /// TLB misses to conflicting pages of a colour before one is moved; 0 or 1: at once.
    pub delay: u32,
    /// Cycles after a move in which nothing is watched; 0: none.
    pub rest: u64,
}

impl ActiveSettings {
    /// Active-Naive: no delay, no limit (table 4-5).
    pub const NAIVE: ActiveSettings = ActiveSettings { delay: 0, rest: 0 };
    /// Active-Delay: 100 TLB misses (table 4-5).
    pub const DELAY: ActiveSettings = ActiveSettings { delay: 100, rest: 0 };
    /// Active-Throttle: 100 TLB misses, one move in 10^6 cycles (table 4-5).
    pub const THROTTLE: ActiveSettings = ActiveSettings { delay: 100, rest: 1_000_000 };
}

/// The policies; see the [module](self).
#[derive(Clone, Debug)]
pub struct Active {
    shape: CacheShape,
    settings: ActiveSettings,
    colors: PageColors,
    /// What the policy takes the TLB to hold.
    pub image: TlbImage,
    targets: Targets,
    counts: Vec<u32>,
    now: u64,
    rests_until: u64,
}

impl Active {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] =
        &[InputKind::Faults, InputKind::TlbMisses, InputKind::Cycles];

    /// Active-Naive, with the thesis's parameters.
    pub fn naive(shape: CacheShape) -> Active {
        Active::new(shape, ActiveSettings::NAIVE)
    }

    /// Active-Delay, with the thesis's parameters.
    pub fn delay(shape: CacheShape) -> Active {
        Active::new(shape, ActiveSettings::DELAY)
    }

    /// Active-Throttle, with the thesis's parameters.
    pub fn throttle(shape: CacheShape) -> Active {
        Active::new(shape, ActiveSettings::THROTTLE)
    }

    /// Any other.
    pub fn new(shape: CacheShape, settings: ActiveSettings) -> Active {
        Active {
            shape,
            settings,
            colors: PageColors::default(),
            image: TlbImage::new(shape.colors),
            targets: Targets::new(TargetChoice::Sequential, shape.colors, 0),
            counts: vec![0; usize::from(shape.colors)],
            now: 0,
            rests_until: 0,
        }
    }

    fn missed(&mut self, page: Vpn, actions: &mut Vec<Action>) {
        let Some(color) = self.colors.color(page) else { return };
        let crowded = self.image.group(color).len() > self.shape.room();
        if !crowded || self.now < self.rests_until {
            return;
        }
        if self.settings.delay <= 1 {
            self.move_away(page, color, actions);
            return;
        }
        self.throw_out_for(page, color, actions);
        let count = &mut self.counts[usize::from(color.0)];
        *count += 1;
        if *count >= self.settings.delay {
            *count = 0;
            self.move_away(page, color, actions);
        }
    }

    /// The oldest pages of a colour leave the TLB until those that stay fit.
    fn throw_out_for(&mut self, page: Vpn, color: Color, actions: &mut Vec<Action>) {
        let group = self.image.group(color);
        let excess = group.len() - self.shape.room();
        let oldest = group.iter().copied().filter(|&other| other != page).take(excess);
        for other in oldest.collect::<Vec<_>>() {
            self.image.remove(other);
            actions.push(Action::ForgetTranslation { page: other });
        }
    }

    fn move_away(&mut self, page: Vpn, from: Color, actions: &mut Vec<Action>) {
        let mut avoid = self.image.full(self.shape.room());
        avoid.insert(from);
        if self.colors.is_asked(page) {
            return;
        }
        if let Some(to) = self.targets.pick(&avoid, Clues::default()) {
            actions.push(self.colors.recolour(page, to));
            self.rests_until = self.now + self.settings.rest;
        }
    }
}

impl Policy for Active {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.colors.note(&event);
        self.image.note(&event, &self.colors);
        match event {
            Event::TlbMiss { page, order: 0, .. } => self.missed(page, actions),
            Event::Progress { cycles, .. } => self.now = cycles,
            _ => {}
        }
    }
}
