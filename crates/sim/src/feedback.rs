//! What a policy gets to see, and what seeing costs: the sensors of the papers' hardware and of
//! today's. Each turns what happens to one address space into events, and each event is
//! charged. Nothing here decides anything.

use std::collections::HashMap;

use huepage_color::{NumberHash, Vpn};
use huepage_policy::{Action, Event, Policy};
use serde::{Deserialize, Serialize};

/// Which sensors are on. Periods and costs are in cycles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sense {
    /// Every TLB miss is told, and the handler takes so much longer. TLBs that software fills
    /// tell every miss in any case.
    pub tlb_miss_cost: Option<u64>,
    /// Cycles for telling of each block that was not in the page cache.
    pub file_miss_cost: u64,
    /// A counter of requests that memory answered runs over after so many.
    pub overflow: Option<Every>,
    /// An access is sampled after so many cycles.
    pub sample: Option<Every>,
    /// The accessed bits are looked at after so many cycles; the cost is per mapped page.
    pub access_scan: Option<Every>,
    /// An audit of all resident pages after so many cycles; the cost is per mapped page.
    pub audit: Option<Every>,
    /// Sums of cycles and instructions after so many cycles.
    pub progress: Option<Every>,
    /// A cache miss look-aside buffer.
    pub cml: Option<Cml>,
}

/// A period and what it costs each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Every {
    /// Cycles, or events, in between; at least 1.
    pub every: u64,
    /// Cycles each time.
    #[serde(default)]
    pub cost: u64,
}

/// A buffer of the pages that miss most (Romer 1998, section 5.2), its LRU segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cml {
    /// Pages in the buffer.
    pub entries: usize,
    /// Misses of one page that raise an interrupt.
    pub threshold: u64,
    /// Cycles of an interrupt.
    #[serde(default)]
    pub cost: u64,
}

/// Sensors that go off by the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    Sample,
    AccessScan,
    Audit,
    Progress,
}

/// A policy and the state of its sensors.
pub(crate) struct Watch {
    pub(crate) policy: Box<dyn Policy + Send>,
    pub(crate) sense: Sense,
    pub(crate) actions: Vec<Action>,
    due: [u64; 4],
    misses: u64,
    /// It does not want to hear of TLB misses now.
    pub(crate) deaf: bool,
    /// Misses by page, the latest last.
    cml: Vec<(Vpn, u64)>,
    /// Pages touched since the last look.
    pub(crate) touched: HashMap<u64, u32, NumberHash>,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("sense", &self.sense).finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) fn new(policy: Box<dyn Policy + Send>, sense: Sense) -> Watch {
        let due = [sense.sample, sense.access_scan, sense.audit, sense.progress]
            .map(|every| every.map_or(u64::MAX, |e| e.every.max(1)));
        let (actions, cml, touched) = (Vec::new(), Vec::new(), HashMap::default());
        Watch { policy, sense, actions, due, misses: 0, deaf: false, cml, touched }
    }

    /// When the next sensor goes off.
    pub(crate) fn next(&self) -> u64 {
        self.due.iter().copied().min().unwrap_or(u64::MAX)
    }

    /// A sensor that is due at this time, which is then due again a period later.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<(Alarm, Every)> {
        const ALARMS: [Alarm; 4] =
            [Alarm::Sample, Alarm::AccessScan, Alarm::Audit, Alarm::Progress];
        let at = self.due.iter().position(|&due| due <= now)?;
        let sense = &self.sense;
        let every = [sense.sample, sense.access_scan, sense.audit, sense.progress][at]?;
        // One that was missed is not made up for.
        self.due[at] = now + every.every.max(1);
        Some((ALARMS[at], every))
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.policy.handle(event, &mut self.actions);
    }

    /// A request of a page was answered by memory; gives the cycles that sensors took.
    pub(crate) fn missed(&mut self, page: Vpn) -> u64 {
        let mut cost = 0;
        self.misses += 1;
        if let Some(overflow) = self.sense.overflow
            && self.misses >= overflow.every
        {
            self.tell(Event::MissOverflow { misses: self.misses });
            self.misses = 0;
            cost += overflow.cost;
        }
        cost + self.count_in_cml(page)
    }

    fn count_in_cml(&mut self, page: Vpn) -> u64 {
        let Some(cml) = self.sense.cml else { return 0 };
        let found = self.cml.iter().position(|&(held, _)| held == page);
        let misses = found.map_or(0, |at| self.cml.remove(at).1) + 1;
        if misses >= cml.threshold {
            self.tell(Event::Conflict { page, misses });
            return cml.cost;
        }
        if self.cml.len() == cml.entries.max(1) {
            self.cml.remove(0);
        }
        self.cml.push((page, misses));
        0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    struct Tell(Sender<Event>);

    impl Policy for Tell {
        fn handle(&mut self, event: Event, _: &mut Vec<Action>) {
            self.0.send(event).expect("the test listens");
        }
    }

    #[test]
    fn the_buffer_raises_an_interrupt_for_pages_that_miss_again_while_they_are_in_it() {
        let (to, heard) = channel();
        let cml = Some(Cml { entries: 2, threshold: 3, cost: 10 });
        let mut watch = Watch::new(Box::new(Tell(to)), Sense { cml, ..Sense::default() });
        // Page 1 misses three times while it is held; page 2 is pushed out in between.
        let costs: Vec<u64> = [1, 2, 1, 3, 2, 3, 2, 1].map(|p| watch.missed(Vpn(p))).to_vec();
        assert_eq!(costs.iter().sum::<u64>(), 0);
        assert_eq!(watch.missed(Vpn(1)), 0);
        assert_eq!(watch.missed(Vpn(1)), 10);
        let events: Vec<Event> = heard.try_iter().collect();
        assert_eq!(events, [Event::Conflict { page: Vpn(1), misses: 3 }]);
    }

    #[test]
    fn counters_run_over_and_clocks_go_off_at_their_periods() {
        let (to, heard) = channel();
        let overflow = Some(Every { every: 3, cost: 7 });
        let sample = Some(Every { every: 100, cost: 1 });
        let progress = Some(Every { every: 250, cost: 0 });
        let sense = Sense { overflow, sample, progress, ..Sense::default() };
        let mut watch = Watch::new(Box::new(Tell(to)), sense);
        let costs: Vec<u64> = (0..7).map(|p| watch.missed(Vpn(p))).collect();
        assert_eq!(costs, [0, 0, 7, 0, 0, 7, 0]);
        assert_eq!(heard.try_iter().count(), 2);
        assert_eq!(watch.next(), 100);
        assert_eq!(watch.take_due(99), None);
        assert_eq!(watch.take_due(260), Some((Alarm::Sample, Every { every: 100, cost: 1 })));
        assert_eq!(watch.take_due(260).map(|due| due.0), Some(Alarm::Progress));
        assert_eq!(watch.next(), 360);
    }
}
