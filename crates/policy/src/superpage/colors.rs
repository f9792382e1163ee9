//! Superpages inside a partition. A block of 2^n frames has the colours that the index function
//! gives its frames: all of them if it is large enough. Around any policy, this lets a superpage
//! pass if some block of its size lies in the partition, and has it made of the largest pages
//! that do otherwise; if there are none it is refused. Nothing is ever moved out of the
//! partition for a superpage. Which block it gets is up to the engine.
//!
//! Not in the papers: Romer's superpages ignore partitions, and Scolari's partitions forgo
//! superpages. A hash that spreads 2 MiB over all colours can leave smaller blocks with few.
//!
//! Memory: an entry per group of pages seen of the largest size that fits.

use std::collections::HashSet;

use huepage_color::{
    ClassError, Color, ColorSet, IndexFunction, NumberHash, PageClasses, PageSize, PhysAddr, Vpn,
    gf2,
};

use super::sizes::PageSizes;
use crate::event::{Action, Construction, Event, MoveRefusal, Policy};

/// The orders of which some aligned block has colours of a set only. Colours are those of
/// base pages under the index function.
///
/// # Errors
/// As [`PageClasses::new`].
pub fn orders_inside(
    index: &IndexFunction,
    set: &ColorSet,
    sizes: &PageSizes,
) -> Result<Vec<u32>, ClassError> {
    let base = PageClasses::new(index, PageSize::BASE)?;
    let color = |address: u64| u16::try_from(base.color(PhysAddr(address).pfn())).map(Color);
    let inside =
        |address| color(address).is_ok_and(|color| color.0 < set.universe() && set.contains(color));
    let mut orders = Vec::new();
    for &order in sizes.orders() {
        let Some(size) = PageSize::from_order(order) else { continue };
        let classes = PageClasses::new(index, size)?;
        let block = |class| gf2::representative(classes.masks(), class);
        let fits = |start: u64| (start..start + size.bytes()).step_by(4096).all(&inside);
        if (0..1 << classes.masks().len()).any(|class| fits(block(class))) {
            orders.push(order);
        }
    }
    Ok(orders)
}

/// A policy for a program in a partition.
#[derive(Clone, Debug)]
pub struct InPartition<P> {
    /// The policy inside.
    pub inner: P,
    /// Orders above 0 of which some block lies in the partition, ascending.
    pub fits: Vec<u32>,
    /// Groups of the largest of these that were seen, and those that are superpages.
    seen: HashSet<u64, NumberHash>,
    whole: HashSet<u64, NumberHash>,
    wishes: Vec<Action>,
}

impl<P: Policy> InPartition<P> {
    /// Around a policy for the same sizes.
    ///
    /// # Errors
    /// As [`orders_inside`].
    pub fn new(
        inner: P,
        index: &IndexFunction,
        set: &ColorSet,
        sizes: &PageSizes,
    ) -> Result<InPartition<P>, ClassError> {
        let mut fits = orders_inside(index, set, sizes)?;
        fits.retain(|&order| order > 0);
        let (seen, whole) = (HashSet::default(), HashSet::default());
        Ok(InPartition { inner, fits, seen, whole, wishes: Vec::new() })
    }

    fn note(&mut self, event: Event) {
        let Some(&largest) = self.fits.last() else { return };
        match event {
            Event::TlbMiss { page, .. } | Event::Faulted { page, .. } => {
                self.seen.insert(page.0 >> largest);
            }
            Event::Promoted { page, order } if order == largest => {
                self.whole.insert(page.0 >> largest);
            }
            Event::Demoted { page, .. } => {
                self.whole.remove(&(page.0 >> largest));
            }
            _ => {}
        }
    }

    /// What can be built instead of a superpage that does not fit.
    fn build_parts(&self, page: Vpn, order: u32, actions: &mut Vec<Action>) {
        let Some(&size) = self.fits.iter().rfind(|&&fits| fits < order) else { return };
        let groups = page.0 >> order << (order - size)..((page.0 >> order) + 1) << (order - size);
        let missing = |group: &u64| self.seen.contains(group) && !self.whole.contains(group);
        let wishes = groups.filter(|group| self.fits.last() != Some(&size) || missing(group));
        actions
            .extend(wishes.map(|group| Action::Promote { page: Vpn(group << size), order: size }));
    }
}

impl<P: Policy> Policy for InPartition<P> {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        self.note(event);
        let mut wishes = std::mem::take(&mut self.wishes);
        self.inner.handle(event, &mut wishes);
        let mut at = 0;
        while let Some(&wish) = wishes.get(at) {
            at += 1;
            let (page, order, answer) = match wish {
                Action::Promote { page, order } => {
                    (page, order, Event::NotPromoted { page, order, why: MoveRefusal::NoFrame })
                }
                Action::Quote { page, order } => {
                    let construction = Construction::Impossible(MoveRefusal::NoFrame);
                    (page, order, Event::Quoted { page, order, construction })
                }
                _ => (Vpn(0), 0, event),
            };
            if order == 0 || self.fits.contains(&order) {
                actions.push(wish);
                continue;
            }
            self.build_parts(page, order, actions);
            self.inner.handle(answer, &mut wishes);
        }
        wishes.clear();
        self.wishes = wishes;
    }
}
