//! ASAP and ASAP-4-64 (Romer 1998, section 3.4.4): a superpage is built as soon as a share of its
//! base pages was touched, whatever it costs and brings. They see page faults (and pages found
//! resident when they begin late), no TLB misses.

use std::collections::HashMap;

use huepage_color::{NumberHash, Vpn};

use super::sizes::PageSizes;
use crate::event::{Action, Event, Policy};
use crate::input::InputKind;

/// The policy.
#[derive(Clone, Debug)]
pub struct Asap {
    sizes: PageSizes,
    /// Base pages in memory that promote, by size.
    needed: Vec<u64>,
    /// Base pages in memory, by superpage.
    filled: HashMap<u64, u64, NumberHash>,
}

const fn key(page: Vpn, order: u32) -> u64 {
    page.0 >> order << order << 1 | 1 << order
}

impl Asap {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] = &[InputKind::Faults];

    /// ASAP-4-64: pages of 64 KiB once half of their base pages were touched.
    pub fn four_64() -> Asap {
        let sizes = PageSizes::new(&[4]).unwrap_or_else(|| unreachable!("an order below 18"));
        Asap::with_share(sizes, 0.5)
    }

    /// Superpages of these sizes once this share of their base pages was touched, above 0 to 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as saturates")]
    pub fn with_share(sizes: PageSizes, share: f64) -> Asap {
        let needed = |&order: &u32| (share * (1_u64 << order) as f64).ceil().max(1.0) as u64;
        let needed = sizes.orders().iter().map(needed).collect();
        Asap { sizes, needed, filled: HashMap::default() }
    }

    /// One more base page is in memory: the largest superpage that has enough just now.
    fn touched(&mut self, page: Vpn) -> Option<u32> {
        if self.filled.insert(key(page, 0), 1).is_some() {
            return None;
        }
        let mut due = None;
        for (&order, &needed) in self.sizes.orders().iter().zip(&self.needed).skip(1) {
            let filled = self.filled.entry(key(page, order)).or_default();
            *filled += 1;
            if *filled == needed {
                due = Some(order);
            }
        }
        due
    }

    /// All of a superpage is in memory now, so that a larger one may have enough.
    fn promoted(&mut self, page: Vpn, order: u32) -> Option<u32> {
        let pages = page.0..page.0 + (1 << order);
        pages.filter_map(|page| self.touched(Vpn(page))).max().filter(|&due| due > order)
    }
}

impl Policy for Asap {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        let (page, due) = match event {
            Event::Faulted { page, .. } => (page, self.touched(page)),
            Event::Resident(resident) => (resident.page, self.touched(resident.page)),
            Event::Promoted { page, order } => (page, self.promoted(page, order)),
            _ => return,
        };
        if let Some(order) = due {
            actions.push(Action::Promote { page: Vpn(page.0 >> order << order), order });
        }
    }
}
