//! What a policy gets to see, and what seeing costs: the sensors of the papers' hardware and of
//! today's. Each turns what happens to one address space into events, and each event is
//! charged. Nothing here decides anything.

use std::collections::{HashMap, HashSet};

use huepage_color::{NumberHash, Pfn};
use huepage_policy::{Action, Event, Policy};
use serde::{Deserialize, Serialize};

pub use crate::cml::Cml;
use crate::cml::CmlBuffer;

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
    /// An access is sampled after so many cycles: the one during which they end.
    pub sample: Option<Every>,
    /// The accessed bits are looked at after so many cycles; the cost is per mapped page.
    pub access_scan: Option<Every>,
    /// An audit of all resident pages after so many cycles; the cost is per mapped page.
    pub audit: Option<Every>,
    /// Sums of cycles and instructions after so many cycles.
    pub progress: Option<Every>,
    /// A cache miss look-aside buffer.
    pub cml: Option<Cml>,
    /// Cycles of a recolouring on top of copying the page through the caches.
    pub recolor_cost: u64,
    /// Cycles for dropping all translations because a policy asked for it, and for what it
    /// does with what it sees then.
    pub flush_cost: u64,
    /// Only loads that the nearest cache lacked are sampled: the first such load that ends after the period
    /// (ROCS 2008, section 3.1).
    pub sample_misses: bool,
    /// What is sampled begins after the period: an access during which it ends is passed over. The longer
    /// accesses take, the more of them are such, so that without this misses are sampled more often than they
    /// are made.
    pub sample_later: bool,
    /// Lines that the handler of a sample touches, besides one of its table of pages: they push
    /// out what the program has in the nearest cache (section 3.1).
    pub handler_lines: u64,
    /// Cycles per mapped page of a walk of the page table that a policy asks for.
    pub table_cost: u64,
    /// Cycles of the fault at the touch of a trapped page.
    pub trap_cost: u64,
    /// Every use of a block that is in the page cache is told, and takes so much longer.
    pub file_use_cost: Option<u64>,
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
    /// A sample was due before the access under way began.
    armed: bool,
    misses: u64,
    /// It does not want to hear of TLB misses now.
    pub(crate) deaf: bool,
    pub(crate) cml: Option<CmlBuffer>,
    /// References by colour when the buffer was cleared.
    pub(crate) references: Vec<u64>,
    /// Pages touched since the last look.
    pub(crate) touched: HashMap<u64, u32, NumberHash>,
    /// Frames of the handler of samples: its own, and those of its table of pages.
    pub(crate) handler: HashMap<u64, Pfn, NumberHash>,
    /// The policy has cleared the accessed bits and will read them.
    pub(crate) notes_accesses: bool,
    /// Base pages whose next touch is told.
    pub(crate) trapped: HashSet<u64, NumberHash>,
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
        let (actions, cml, touched) =
            (Vec::new(), sense.cml.map(CmlBuffer::new), HashMap::default());
        let (misses, deaf, references) = (0, false, Vec::new());
        let (handler, notes_accesses, trapped) = (HashMap::default(), false, HashSet::default());
        Watch {
            policy,
            sense,
            actions,
            due,
            armed: false,
            misses,
            deaf,
            cml,
            references,
            touched,
            handler,
            notes_accesses,
            trapped,
        }
    }

    /// Samples from a period after this time on, or no more.
    pub(crate) fn sample(&mut self, on: bool, now: u64) {
        let period = self.sense.sample.map(|every| every.every.max(1));
        let due = period.filter(|_| on).map(|period| now + period);
        self.due[Alarm::Sample as usize] = due.unwrap_or(u64::MAX);
        self.armed = false;
    }

    /// Whether this access can be sampled: one that began when the sample was due.
    pub(crate) const fn may_sample(&self, missed: bool) -> bool {
        (self.armed || !self.sense.sample_later) && (missed || !self.sense.sample_misses)
    }

    /// An access has ended; the next can be sampled if a sample is due.
    pub(crate) const fn arm(&mut self, now: u64) {
        self.armed = self.due[Alarm::Sample as usize] <= now;
    }

    /// When the next sensor goes off.
    pub(crate) fn next(&self) -> u64 {
        self.due.iter().copied().min().unwrap_or(u64::MAX)
    }

    /// A sensor that is due at this time, which is then due again a period later. A sample has to
    /// wait for an access that can be `sampled`.
    pub(crate) fn take_due(&mut self, now: u64, sampled: bool) -> Option<(Alarm, Every)> {
        const ALARMS: [Alarm; 4] =
            [Alarm::Sample, Alarm::AccessScan, Alarm::Audit, Alarm::Progress];
        let waits = |at: usize| at == Alarm::Sample as usize && !sampled;
        let at = (0..self.due.len()).find(|&at| self.due[at] <= now && !waits(at))?;
        let sense = &self.sense;
        let every = [sense.sample, sense.access_scan, sense.audit, sense.progress][at]?;
        // One that was missed is not made up for.
        self.due[at] = now + every.every.max(1);
        Some((ALARMS[at], every))
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.policy.handle(event, &mut self.actions);
    }

    /// Whether it hears of nothing but files and pages touched for the first time, where TLBs are not
    /// filled by software.
    pub(crate) fn is_quiet(&self) -> bool {
        let sense = &self.sense;
        let clocks = [sense.overflow, sense.sample, sense.access_scan, sense.audit, sense.progress];
        let asks = clocks.iter().any(Option::is_some) || sense.tlb_miss_cost.is_some();
        !asks && self.cml.is_none() && !self.notes_accesses && self.trapped.is_empty()
    }

    /// A request was answered by memory; gives the cycles that sensors took.
    pub(crate) fn missed(&mut self) -> u64 {
        self.misses += 1;
        if let Some(overflow) = self.sense.overflow
            && self.misses >= overflow.every
        {
            self.tell(Event::MissOverflow { misses: self.misses });
            self.misses = 0;
            return overflow.cost;
        }
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
    fn counters_run_over_and_clocks_go_off_at_their_periods() {
        let (to, heard) = channel();
        let overflow = Some(Every { every: 3, cost: 7 });
        let sample = Some(Every { every: 100, cost: 1 });
        let progress = Some(Every { every: 250, cost: 0 });
        let sense = Sense { overflow, sample, progress, ..Sense::default() };
        let mut watch = Watch::new(Box::new(Tell(to)), sense);
        let costs: Vec<u64> = (0..7).map(|_| watch.missed()).collect();
        assert_eq!(costs, [0, 0, 7, 0, 0, 7, 0]);
        assert_eq!(heard.try_iter().count(), 2);
        assert_eq!(watch.next(), 100);
        assert_eq!(watch.take_due(99, true), None);
        assert_eq!(watch.take_due(260, true), Some((Alarm::Sample, Every { every: 100, cost: 1 })));
        assert_eq!(watch.take_due(260, true).map(|due| due.0), Some(Alarm::Progress));
        assert_eq!(watch.next(), 360);
    }

    #[test]
    fn what_is_under_way_when_a_sample_is_due_is_passed_over_if_asked() {
        let sampled = |sample_later| {
            let (to, _heard) = channel();
            let sample = Some(Every { every: 100, cost: 5 });
            let sense = Sense { sample, sample_misses: true, sample_later, ..Sense::default() };
            let mut watch = Watch::new(Box::new(Tell(to)), sense);
            // Ends of accesses, and whether each missed.
            let ends = [(90, true), (290, true), (295, false), (495, true), (505, true)];
            let mut taken = |&(now, missed): &(u64, bool)| {
                let may = watch.may_sample(missed);
                let due = watch.take_due(now, may).is_some();
                watch.arm(now);
                due
            };
            ends.iter().map(&mut taken).collect::<Vec<bool>>()
        };
        assert_eq!(sampled(false), [false, true, false, true, false]);
        assert_eq!(sampled(true), [false, false, false, true, false]);
    }

    #[test]
    fn samples_wait_for_what_can_be_sampled_and_stop_when_told() {
        let (to, _heard) = channel();
        let sample = Some(Every { every: 100, cost: 5 });
        let progress = Some(Every { every: 150, cost: 0 });
        let sense = Sense { sample, progress, ..Sense::default() };
        let mut watch = Watch::new(Box::new(Tell(to)), sense);
        assert_eq!(watch.take_due(150, false).map(|due| due.0), Some(Alarm::Progress));
        assert_eq!(watch.take_due(151, false), None);
        assert_eq!(watch.take_due(152, true).map(|due| due.0), Some(Alarm::Sample));
        watch.sample(false, 160);
        assert_eq!((watch.take_due(280, true), watch.next()), (None, 300));
        watch.sample(true, 280);
        watch.take_due(300, true);
        assert_eq!((watch.next(), watch.take_due(379, true)), (380, None));
    }
}
