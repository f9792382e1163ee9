//! FIXED (Romer 1998, section 3.1): every page has one size from its first touch on. It sees page
//! faults. To stand for a machine of larger pages, which copies nothing, the engine has to place
//! pages where their superpage will be (the simulator's reservation of the same order).

use huepage_color::Vpn;

use crate::event::{Action, Event, Policy};
use crate::input::InputKind;

/// The policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    order: u32,
}

impl Fixed {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] = &[InputKind::Faults];

    /// Pages of 2^`order` base pages; 0 does nothing.
    pub const fn new(order: u32) -> Fixed {
        Fixed { order }
    }
}

impl Policy for Fixed {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        if let Event::Faulted { page, .. } = event
            && self.order > 0
        {
            let page = Vpn(page.0 >> self.order << self.order);
            actions.push(Action::Promote { page, order: self.order });
        }
    }
}
