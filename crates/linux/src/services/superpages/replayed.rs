//! Superpages chosen for a recording instead of for a program, by the code that chooses them live: what
//! was touched or sampled becomes TLB misses as it did there, the policy is told of them, and what it wants
//! built counts as built. So its misses are no more from then on; the program itself stays as it was
//! recorded, so what it would have done with the time saved is not known. Reads nothing of this machine.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use huepage_color::Vpn;
use huepage_policy::recording::touches::{
    BlockLook, SampledEvent, Survey, TouchHead, TouchLook, TouchSamples, TouchStep,
};
use huepage_policy::registry::{Host, Settings};
use huepage_policy::superpage::MemoryBound;
use huepage_policy::{Action, Construction, Event, MoveRefusal, Policy};
use serde::Serialize;

use super::live_policy::{self, LivePolicy, PACING, TouchedPages, needs_misses};
use crate::kernel::process_memory::{NotBuilt, SUPERPAGE_ORDER, SUPERPAGE_PAGES};
use crate::sensors::superpage_map::{BlockResidency, SuperpageMap, holes};
use crate::sensors::tlb::TlbShape;
use crate::sensors::tlb::replay::{MISSES_PER_SAMPLE, ReplayedLook};
use crate::sensors::tlb::sensor::{Miss, SampledBlock, SensorLook};
use crate::sensors::tlb::turnover::misses;
use fastrand::Rng;

/// What chance begins with: a recording is replayed the same every time.
const RANDOM_SEED: u64 = 1;

/// What a policy would have done, and what would have been left to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplayOutcome {
    /// TLB misses that are left, as estimated over the time of the recording.
    pub walks: u64,
    /// Superpages built.
    pub promotions: u64,
    /// Superpages that were not built, by reason.
    pub refused: BTreeMap<NotBuilt, u64>,
    /// Pages that superpages have added at the end.
    pub filled_pages: u64,
    /// Resident pages of the process at the end, as recorded.
    pub resident_pages: u64,
    /// Seconds that TLB misses take.
    pub tlb_seconds: f64,
    /// Seconds that building takes.
    pub promotion_seconds: f64,
    /// Seconds from the beginning to the superpage at which half of them were there.
    pub half_after: Option<f64>,
}

/// One recording on its way through a policy, or through none: then its misses are counted alone.
#[derive(Debug)]
pub struct Replay {
    live_policy: Option<LivePolicy>,
    /// Whether the policy hears of TLB misses; none without one.
    hears: Option<bool>,
    shape: TlbShape,
    /// Pages that may be added for each that is resident.
    overhead: f64,
    /// Misses that a sample stands for.
    period: u64,
    /// Whether samples are of misses.
    sampled: bool,
    map: SuperpageMap,
    resident: u64,
    /// Pages that each superpage has added.
    built: HashMap<u64, u64>,
    /// Pages that were told to a policy that goes by first touches.
    touched: Option<TouchedPages>,
    listens: bool,
    random: Rng,
    actions: Vec<Action>,
    now: f64,
    /// CPU seconds of the process at the first look.
    began: Option<f64>,
    times: Vec<f64>,
    walks: f64,
    refused: BTreeMap<NotBuilt, u64>,
}

fn shape(head: &TouchHead) -> TlbShape {
    let entries = usize::try_from(head.tlb.entries).unwrap_or(usize::MAX);
    TlbShape { entries, known: true, walk_ns: head.tlb.walk_ns }
}

/// What the policies of a recording are made for: the machine that it was made on, as live.
pub fn host(head: &TouchHead) -> Host {
    live_policy::host(&shape(head))
}

/// Why a policy cannot be driven with a recording, with the sensor to record with; `None` if it can.
pub fn lacking(policy: &Settings, head: &TouchHead) -> Option<String> {
    let event = head.samples.as_ref().map(|samples| samples.event);
    let what = match event {
        _ if !needs_misses(policy) => return None,
        None | Some(SampledEvent::TlbMisses) => return None,
        Some(event) => event.text(),
    };
    Some(format!(
        "{} goes by TLB misses, and the recording has {what}; record with --sensor accessed-bits, or --sensor pmu --event tlb-misses",
        policy.name()
    ))
}

impl Replay {
    /// At the beginning of a recording; with a policy, or with none for what its misses are without one.
    /// Superpages may add so many pages for each that is resident.
    pub fn new(head: &TouchHead, policy: Option<&Settings>, memory_overhead: f64) -> Replay {
        let shape = shape(head);
        let samples = head.samples.as_ref();
        Replay {
            live_policy: policy.map(|policy| LivePolicy::new(policy, &shape)),
            hears: policy.map(needs_misses),
            shape,
            overhead: memory_overhead,
            period: samples.map_or(1, |samples| samples.period),
            sampled: samples.is_some_and(|samples| samples.event == SampledEvent::TlbMisses),
            map: SuperpageMap::default(),
            resident: 0,
            built: HashMap::new(),
            touched: policy.and_then(TouchedPages::wanted_by),
            listens: true,
            random: Rng::with_seed(RANDOM_SEED),
            actions: Vec::new(),
            now: 0.0,
            began: None,
            times: Vec::new(),
            walks: 0.0,
            refused: BTreeMap::new(),
        }
    }

    /// The same, by a policy around which something is put that sees what it hears and wants.
    pub fn watched(
        head: &TouchHead,
        policy: &Settings,
        memory_overhead: f64,
        around: impl FnOnce(Box<dyn Policy + Send>) -> Box<dyn Policy + Send>,
    ) -> Replay {
        let replay = Replay::new(head, Some(policy), memory_overhead);
        let live_policy = replay.live_policy.map(|policy| policy.inside(around));
        Replay { live_policy, ..replay }
    }

    /// The next step of the recording. Takes about what the policy takes live: some microseconds for each
    /// block that was looked at.
    pub fn step(&mut self, step: &TouchStep) {
        match step {
            TouchStep::Survey(survey) => self.survey(survey),
            TouchStep::Look(look) => self.look(look),
            TouchStep::Samples(samples) => self.samples(samples),
        }
    }

    /// What would have been done so far.
    pub fn outcome(&self) -> ReplayOutcome {
        let promotions = self.times.len() as u64;
        // Never below zero, and far below what a number holds.
        let walks = self.walks.round() as u64;
        ReplayOutcome {
            walks,
            promotions,
            refused: self.refused.clone(),
            filled_pages: self.filled(),
            resident_pages: self.resident,
            tlb_seconds: self.walks * self.shape.walk_ns as f64 / 1e9,
            promotion_seconds: (promotions * PACING.first_price_ns) as f64 / 1e9,
            half_after: self.times.get(self.times.len().saturating_sub(1) / 2).copied(),
        }
    }

    fn survey(&mut self, survey: &Survey) {
        (self.now, self.resident) = (survey.survey, survey.resident);
        for block in &survey.blocks {
            let huge = block.huge || self.built.contains_key(&block.at);
            let resident = if huge { whole() } else { block.resident };
            let now = BlockResidency { resident, zero: block.zero, huge };
            self.map.blocks.insert(block.at, now);
        }
        for at in &survey.gone {
            self.map.blocks.remove(at);
            self.touched.iter_mut().for_each(|touched| touched.forget(*at));
            if self.built.remove(at).is_some() {
                let page = Vpn(at * SUPERPAGE_PAGES);
                self.tell(Event::Demoted { page, order: SUPERPAGE_ORDER, interfering: false });
            }
        }
        let blocks = self.map.blocks.values();
        self.map.resident_pages = blocks.map(|block| u64::from(block.resident)).sum();
        self.tell_touched();
    }

    /// Tells a policy that goes by first touches of pages that are new, as live.
    fn tell_touched(&mut self) {
        let new = self.touched.as_mut().map(|touched| touched.new_in(&self.map));
        for page in new.unwrap_or_default() {
            self.tell(Event::Faulted { page, color: None });
        }
    }

    fn look(&mut self, look: &TouchLook) {
        let ran = self.pass(look.at, look.cpu);
        let small = |group: &&BlockLook| !self.is_huge(group.block);
        let sampled: Vec<SampledBlock> =
            look.groups.iter().filter(small).map(of_recording).collect();
        let window = Duration::from_nanos(look.window_ns);
        let (slow, half) = (look.slow, Some(window / 2));
        let seen = SensorLook { window, half, sampled, slow, misses: Vec::new() };
        let found = misses(&self.shape, &self.map, &seen, &mut self.random);
        // The first look at a block stands for a time before the recording, too.
        let lasts = seen.sampled.iter().map(|one| (one.block, one.stands_for.min(ran)));
        let lasts: HashMap<u64, f64> = lasts.collect();
        let all = found.rates.iter();
        self.walks += all.map(|(at, rate)| rate * lasts.get(at).unwrap_or(&0.0)).sum::<f64>();
        self.tell_misses(&found);
    }

    fn samples(&mut self, samples: &TouchSamples) {
        let _ = self.pass(samples.at, samples.cpu);
        if !self.sampled {
            return;
        }
        let times = usize::try_from((self.period / MISSES_PER_SAMPLE).max(1)).unwrap_or(1);
        let (mut found, mut left) = (ReplayedLook::default(), 0);
        for page in samples.missed.iter().map(|&page| Vpn(page)) {
            let known = self.map.blocks.get(&(page.0 / SUPERPAGE_PAGES));
            left += u64::from(known.is_none_or(|block| !block.huge));
            if known.is_some_and(|block| !block.huge) {
                found.misses.extend(std::iter::repeat_n(Miss { page, victim: None }, times));
            }
        }
        self.walks += (left * self.period.max(1)) as f64;
        self.tell_misses(&found);
    }

    /// It is so late, and the process has used so much CPU time; how much of it since the first look.
    fn pass(&mut self, now: f64, cpu: f64) -> f64 {
        self.now = now;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds")]
        let time = (cpu * 1e9) as u64;
        self.tell(Event::Progress { cycles: time, instructions: time });
        cpu - *self.began.get_or_insert(cpu)
    }

    fn tell_misses(&mut self, found: &ReplayedLook) {
        if !self.listens || self.hears != Some(true) {
            return;
        }
        self.tell(Event::TlbFlushed);
        for miss in &found.misses {
            let victim = miss.victim.map(|page| (page, 0));
            self.tell(Event::TlbMiss { page: miss.page, order: 0, victim });
        }
    }

    /// Tells the policy, and does what it wants.
    fn tell(&mut self, event: Event) {
        let Some(live_policy) = &mut self.live_policy else { return };
        live_policy.handle(event, &mut self.actions);
        while let Some(action) = self.actions.pop() {
            let answer = match action {
                Action::Quote { page, order } => {
                    Event::Quoted { page, order, construction: self.quote(page) }
                }
                Action::Promote { page, order: SUPERPAGE_ORDER } => self.build(page),
                Action::Promote { page, order } => {
                    Event::NotPromoted { page, order, why: MoveRefusal::Other }
                }
                Action::TellTlbMisses(on) => {
                    self.listens = on;
                    continue;
                }
                _ => continue,
            };
            if let Some(live_policy) = &mut self.live_policy {
                live_policy.handle(answer, &mut self.actions);
            }
        }
    }

    fn quote(&mut self, page: Vpn) -> Construction {
        match self.may_build(page.0 / SUPERPAGE_PAGES) {
            Ok(block) => Construction::Copy { pages: u64::from(block.resident) },
            Err(why) => {
                *self.refused.entry(why).or_default() += 1;
                Construction::Impossible(MoveRefusal::Other)
            }
        }
    }

    /// What is there, if a superpage may take its place: within the memory that may be added.
    fn may_build(&self, at: u64) -> Result<BlockResidency, NotBuilt> {
        let block = self.map.blocks.get(&at).copied().ok_or(NotBuilt::Gone)?;
        let (filled, overhead) = (self.filled(), self.overhead);
        // What was recorded is without them.
        let bound = MemoryBound { resident: self.resident + filled, filled, overhead };
        if bound.allows(holes(block)) { Ok(block) } else { Err(NotBuilt::Sparse) }
    }

    fn build(&mut self, page: Vpn) -> Event {
        let at = page.0 / SUPERPAGE_PAGES;
        match self.may_build(at) {
            Ok(block) if !block.huge => {
                self.built.insert(at, holes(block));
                self.times.push(self.now);
                self.map
                    .blocks
                    .insert(at, BlockResidency { resident: whole(), zero: 0, huge: true });
                Event::Promoted { page, order: SUPERPAGE_ORDER }
            }
            // Somebody else had built it.
            Ok(_) => Event::Promoted { page, order: SUPERPAGE_ORDER },
            Err(why) => {
                *self.refused.entry(why).or_default() += 1;
                Event::NotPromoted { page, order: SUPERPAGE_ORDER, why: MoveRefusal::Other }
            }
        }
    }

    fn is_huge(&self, at: u64) -> bool {
        self.map.blocks.get(&at).is_some_and(|block| block.huge)
    }

    fn filled(&self) -> u64 {
        self.built.values().sum()
    }
}

/// Base pages of a superpage.
fn whole() -> u16 {
    u16::try_from(SUPERPAGE_PAGES).unwrap_or(u16::MAX)
}

fn of_recording(group: &BlockLook) -> SampledBlock {
    let BlockLook { block, pages, resident, stands_for, ref touched, ref late } = *group;
    let (touched, late) = (touched.clone(), late.clone());
    SampledBlock { block, pages, touched, late, resident, stands_for }
}

#[cfg(test)]
mod tests;
