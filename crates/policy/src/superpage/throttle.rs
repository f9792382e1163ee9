//! THROTTLE (Romer 1998, section 6.5): APPROX-ONLINE that stops listening when it does not help.
//! After every window of instructions in which TLB misses were still frequent it rests, until
//! what it has cost since it last began, bookkeeping and construction, is below a target of
//! cycles per instruction. It sees TLB misses with their victims, and sums of instructions.
//!
//! While it rests the engine is told to stop telling of misses, so that they cost no more than
//! without a policy; when it begins anew it takes the TLB to be empty.

use super::approx::ApproxOnline;
use crate::event::{Action, Event, Policy};
use crate::input::InputKind;
use crate::prices::Prices;

/// When to rest, and for how long.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RestBounds {
    /// Instructions between checks.
    pub window: u64,
    /// Misses per instruction above which it rests.
    pub frequency: f64,
    /// Cycles per instruction that the policy may cost in the long run.
    pub target: f64,
    /// Cycles of bookkeeping per miss; the engine's sensor should charge the same.
    pub bookkeeping: u64,
}

impl Default for RestBounds {
    /// Section 6.5.2: 10 million instructions, 0.001 misses, 0.02 cycles; table 3-3: 100 cycles.
    fn default() -> RestBounds {
        RestBounds { window: 10_000_000, frequency: 0.001, target: 0.02, bookkeeping: 100 }
    }
}

impl RestBounds {
    /// Bounds that hold whatever the program does. The thesis's frequency lets misses go on that
    /// cost 0.1 cycles per instruction to book, five times its target; here it is so low that
    /// misses below it stay within the target, a miss being charged with its bookkeeping and
    /// its part in the construction that `prefetch` (see [`super::Settings`], above 0) makes
    /// it pay for. Rests come sooner in return.
    pub fn strict(prices: Prices, prefetch: f64) -> RestBounds {
        let bounds = RestBounds::default();
        let construction = prices.miss as f64 / prefetch.max(f64::MIN_POSITIVE);
        let frequency = bounds.target / (bounds.bookkeeping as f64 + construction);
        RestBounds { frequency, ..bounds }
    }
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Throttle {
    inner: ApproxOnline,
    bounds: RestBounds,
    /// Whether it rests.
    pub resting: bool,
    /// Instructions at the start of the window, and when it last began.
    window: u64,
    began: u64,
    /// Misses in the window.
    misses: u64,
    /// Cycles since it last began.
    spent: u64,
    /// How often it has begun to rest.
    pub rests: u64,
}

impl Throttle {
    /// What it hears of.
    pub const NEEDS: &'static [InputKind] = &[InputKind::TlbMisses, InputKind::Instructions];

    /// A throttle on a policy that has seen nothing yet.
    pub const fn new(inner: ApproxOnline, bounds: RestBounds) -> Throttle {
        Throttle {
            inner,
            bounds,
            resting: false,
            window: 0,
            began: 0,
            misses: 0,
            spent: 0,
            rests: 0,
        }
    }

    /// As [`ApproxOnline::reprice`].
    pub const fn reprice(&mut self, prices: Prices) {
        self.inner.reprice(prices);
    }

    fn progress(&mut self, instructions: u64, actions: &mut Vec<Action>) {
        if instructions < self.window {
            // The engine counts anew.
            (self.window, self.began) = (instructions, instructions);
        }
        let paid = self.spent as f64 <= self.bounds.target * (instructions - self.began) as f64;
        if self.resting {
            if paid {
                self.begin(instructions, actions);
            }
            return;
        }
        let window = instructions - self.window;
        if window < self.bounds.window {
            return;
        }
        let frequent = self.misses as f64 > self.bounds.frequency * window as f64;
        (self.window, self.misses) = (instructions, 0);
        if frequent && !paid {
            self.resting = true;
            self.rests += 1;
            actions.push(Action::TellTlbMisses(false));
        }
    }

    fn begin(&mut self, instructions: u64, actions: &mut Vec<Action>) {
        self.inner.forget_entries();
        (self.resting, self.misses, self.spent) = (false, 0, 0);
        (self.window, self.began) = (instructions, instructions);
        actions.push(Action::TellTlbMisses(true));
    }
}

impl Policy for Throttle {
    fn handle(&mut self, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Progress { instructions, .. } => return self.progress(instructions, actions),
            Event::TlbMiss { .. } if self.resting => return,
            Event::TlbMiss { .. } => {
                self.misses += 1;
                self.spent += self.bounds.bookkeeping;
            }
            Event::Promoted { order, .. } => {
                self.spent += self.inner.settings().prices.build(1 << order);
            }
            _ => {}
        }
        self.inner.handle(event, actions);
    }
}
