//! What to do about base pages that cannot be part of a superpage for now (Romer 1998, section
//! 3.7.2, "demotion"): around any policy, it remembers which page broke which superpage, has
//! what is left of it put together again as far as possible, which needs no copy, keeps the
//! policy from building over the page, and has the superpage built anew once the page is as
//! its neighbours again.
//!
//! Memory: an entry per page that stands in the way.

use std::collections::BTreeMap;

use huepage_color::Vpn;

use super::sizes::PageSizes;
use crate::event::{Action, Construction, Event, MoveRefusal, Policy};

/// A policy that knows which pages stand in the way.
#[derive(Clone, Debug)]
pub struct Interfering<P> {
    /// The policy inside.
    pub inner: P,
    sizes: PageSizes,
    /// The largest superpage that each page broke.
    broken: BTreeMap<u64, u32>,
    wishes: Vec<Action>,
}

impl<P: Policy> Interfering<P> {
    /// Around a policy for the same sizes.
    pub const fn new(inner: P, sizes: PageSizes) -> Interfering<P> {
        Interfering { inner, sizes, broken: BTreeMap::new(), wishes: Vec::new() }
    }

    fn is_blocked(&self, page: Vpn, order: u32) -> bool {
        let first = page.0 >> order << order;
        self.broken.range(first..first + (1 << order)).next().is_some()
    }

    /// Has the largest parts of a superpage built that nobody stands in the way of.
    fn rebuild(&self, first: u64, order: u32, actions: &mut Vec<Action>) {
        let Some(&below) = self.sizes.orders().iter().rfind(|&&smaller| smaller < order) else {
            return;
        };
        for part in (first..first + (1 << order)).step_by(1 << below) {
            if self.is_blocked(Vpn(part), below) {
                self.rebuild(part, below, actions);
            } else if below > 0 {
                actions.push(Action::Promote { page: Vpn(part), order: below });
            }
        }
    }

    /// Has the largest superpage built that a page broke and nobody else stands in the way of.
    fn restore(&mut self, page: Vpn, actions: &mut Vec<Action>) {
        let Some(order) = self.broken.remove(&page.0) else { return };
        let whole = self.sizes.orders().iter().rev().copied();
        let whole = whole.filter(|&size| size > 0 && size <= order);
        if let Some(order) = whole.into_iter().find(|&order| !self.is_blocked(page, order)) {
            actions.push(Action::Promote { page: Vpn(page.0 >> order << order), order });
        }
    }

    /// Lets the policy have its way but where somebody stands in it.
    fn pass(&mut self, event: Event, actions: &mut Vec<Action>) {
        let mut wishes = std::mem::take(&mut self.wishes);
        self.inner.handle(event, &mut wishes);
        let mut at = 0;
        while let Some(&wish) = wishes.get(at) {
            at += 1;
            let why = MoveRefusal::Other;
            let answer = match wish {
                Action::Promote { page, order } if self.is_blocked(page, order) => {
                    Event::NotPromoted { page, order, why }
                }
                Action::Quote { page, order } if self.is_blocked(page, order) => {
                    Event::Quoted { page, order, construction: Construction::Impossible(why) }
                }
                _ => {
                    actions.push(wish);
                    continue;
                }
            };
            self.inner.handle(answer, &mut wishes);
        }
        wishes.clear();
        self.wishes = wishes;
    }
}

impl<P: Policy> Policy for Interfering<P> {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.pass(event, actions);
        match event {
            Event::Demoted { page, order, interfering: true } => {
                let broken = self.broken.entry(page.0).or_default();
                *broken = order.max(*broken);
                self.rebuild(page.0 >> order << order, order, actions);
            }
            Event::Restored { page } => self.restore(page, actions),
            _ => {}
        }
    }
}
