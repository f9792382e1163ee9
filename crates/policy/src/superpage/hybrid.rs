//! Reservation and superpages together (Romer 1998, section 3.8.3): while frames lie where a
//! 64 KiB page will be, because the engine reserved them, that page is built as soon as enough
//! of it was touched, as in ASAP-4-64 but only if nothing has to be copied; everything else is
//! left to APPROX-ONLINE with thresholds by real construction cost. It sees page faults, TLB
//! misses with their victims, and what superpages would take.

use huepage_color::Vpn;

use super::approx::{ApproxOnline, Settings};
use super::asap::Asap;
use super::sizes::PageSizes;
use crate::event::{Action, Construction, Event, Policy};
use crate::input::InputKind;

/// The policy.
#[derive(Clone, Debug)]
pub struct Hybrid {
    reserved: Asap,
    order: u32,
    rest: ApproxOnline,
    /// Superpages that it has asked about for the sake of a reservation.
    asked: Vec<Vpn>,
}

impl Hybrid {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] =
        &[InputKind::Faults, InputKind::TlbMisses, InputKind::Quotes];

    /// Blocks of 2^`order` base pages are reserved, 1 to 18 (the thesis: 4), and become
    /// superpages when this share of them was touched, above 0 to 1; the rest goes by
    /// `settings`, with `by_construction` set. None if the order is too large.
    pub fn new(settings: Settings, order: u32, share: f64) -> Option<Hybrid> {
        let reserved = Asap::with_share(PageSizes::new(&[order])?, share);
        let rest = ApproxOnline::new(Settings { by_construction: true, ..settings });
        Some(Hybrid { reserved, order, rest, asked: Vec::new() })
    }

    /// Whether a quote is for a reservation.
    fn was_asked(&mut self, page: Vpn, order: u32) -> bool {
        let at = self.asked.iter().position(|&asked| asked == page);
        at.filter(|_| order == self.order).map(|at| self.asked.swap_remove(at)).is_some()
    }
}

impl Policy for Hybrid {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        if let Event::Quoted { page, order, construction } = event
            && self.was_asked(page, order)
        {
            if construction == Construction::InPlace {
                actions.push(Action::Promote { page, order });
            }
            return;
        }
        let before = actions.len();
        self.reserved.handle(event, actions);
        for wish in &mut actions[before..] {
            if let Action::Promote { page, order } = *wish {
                self.asked.push(page);
                *wish = Action::Quote { page, order };
            }
        }
        self.rest.handle(event, actions);
    }
}
