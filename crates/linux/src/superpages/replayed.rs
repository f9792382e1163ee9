//! Superpages chosen for a recording instead of for a program, by the code that chooses them live: what
//! was touched or sampled becomes TLB misses as it did there, the policy is told of them, and what it wants
//! built counts as built. So its misses are no more from then on; the program itself stays as it was
//! recorded, so what it would have done with the time saved is not known. Reads nothing of this machine.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use huepage_color::Vpn;
use huepage_policy::recording::touches::{Group, Head, Look, Sampled, Samples, Step, Survey};
use huepage_policy::{Action, AreaKind, Construction, Event, Policy, Refusal, Resident};
use serde::Serialize;

use super::brain::{Brain, Choice, FIRST_PRICE};
use super::ground::{Block, Ground, holes};
use super::hands::{NotBuilt, ORDER, PAGES};
use super::replay::{Miss, Replayed, WEIGHT, misses};
use super::tlb::TlbShape;
use super::{replay, sensor};
use crate::probe::Shuffler;

/// What chance begins with: a recording is replayed the same every time.
const SEED: u64 = 1;

/// What a policy would have done, and what would have been left to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
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
    brain: Option<Brain>,
    choice: Option<Choice>,
    shape: TlbShape,
    /// Pages that may be added for each that is resident.
    overhead: f64,
    /// Misses that a sample stands for.
    period: u64,
    /// Whether samples are of misses.
    sampled: bool,
    ground: Ground,
    resident: u64,
    /// Pages that each superpage has added.
    built: HashMap<u64, u64>,
    /// Full blocks that were told to a policy that goes by what is resident.
    told: HashSet<u64>,
    listens: bool,
    random: Shuffler,
    actions: Vec<Action>,
    now: f64,
    /// CPU seconds of the process at the first look.
    began: Option<f64>,
    times: Vec<f64>,
    walks: f64,
    refused: BTreeMap<NotBuilt, u64>,
}

/// Why a policy cannot be driven with a recording, with the sensor to record with; `None` if it can.
pub fn lacking(choice: Choice, head: &Head) -> Option<String> {
    let event = head.samples.as_ref().map(|samples| samples.event);
    let what = match event {
        _ if !choice.needs_misses() => return None,
        None | Some(Sampled::TlbMisses) => return None,
        Some(event) => event.text(),
    };
    Some(format!(
        "{} goes by TLB misses, and the recording has {what}; record with --sensor accessed-bits, or --sensor pmu --event tlb-misses",
        choice.text()
    ))
}

impl Replay {
    /// At the beginning of a recording; with a policy, or with none for what its misses are without one.
    /// Superpages may add so many pages for each that is resident.
    pub fn new(head: &Head, choice: Option<Choice>, memory_overhead: f64) -> Replay {
        let entries = usize::try_from(head.tlb.entries).unwrap_or(usize::MAX);
        let shape = TlbShape { entries, known: true, walk_ns: head.tlb.walk_ns };
        let samples = head.samples.as_ref();
        Replay {
            brain: choice.map(|choice| Brain::new(choice, &shape)),
            choice,
            shape,
            overhead: memory_overhead,
            period: samples.map_or(1, |samples| samples.period),
            sampled: samples.is_some_and(|samples| samples.event == Sampled::TlbMisses),
            ground: Ground::default(),
            resident: 0,
            built: HashMap::new(),
            told: HashSet::new(),
            listens: true,
            random: Shuffler::new(SEED),
            actions: Vec::new(),
            now: 0.0,
            began: None,
            times: Vec::new(),
            walks: 0.0,
            refused: BTreeMap::new(),
        }
    }

    /// The next step of the recording. Takes about what the policy takes live: some microseconds for each
    /// block that was looked at.
    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Survey(survey) => self.survey(survey),
            Step::Look(look) => self.look(look),
            Step::Samples(samples) => self.samples(samples),
        }
    }

    /// What would have been done so far.
    pub fn outcome(&self) -> Outcome {
        let promotions = self.times.len() as u64;
        // Never below zero, and far below what a number holds.
        let walks = self.walks.round() as u64;
        Outcome {
            walks,
            promotions,
            refused: self.refused.clone(),
            filled_pages: self.filled(),
            resident_pages: self.resident,
            tlb_seconds: self.walks * self.shape.walk_ns as f64 / 1e9,
            promotion_seconds: (promotions * FIRST_PRICE) as f64 / 1e9,
            half_after: self.times.get(self.times.len().saturating_sub(1) / 2).copied(),
        }
    }

    fn survey(&mut self, survey: &Survey) {
        (self.now, self.resident) = (survey.survey, survey.resident);
        for block in &survey.blocks {
            let huge = block.huge || self.built.contains_key(&block.at);
            let resident = if huge { whole() } else { block.resident };
            let now = Block { resident, zero: block.zero, huge };
            self.ground.blocks.insert(block.at, now);
        }
        for at in &survey.gone {
            self.ground.blocks.remove(at);
            self.told.remove(at);
            if self.built.remove(at).is_some() {
                let page = Vpn(at * PAGES);
                self.tell(Event::Demoted { page, order: ORDER, interfering: false });
            }
        }
        let blocks = self.ground.blocks.values();
        self.ground.resident_pages = blocks.map(|block| u64::from(block.resident)).sum();
        if self.choice.is_some_and(|choice| !choice.needs_misses()) {
            self.tell_resident();
        }
    }

    /// Tells a policy that goes by touched pages of blocks that are full, as live.
    fn tell_resident(&mut self) {
        let full = |(_, block): &(&u64, &Block)| !block.huge && holes(**block) == 0;
        let mut new: Vec<u64> = self.ground.blocks.iter().filter(full).map(|(&at, _)| at).collect();
        new.retain(|&at| self.told.insert(at));
        for at in new {
            for page in at * PAGES..(at + 1) * PAGES {
                let (kind, color, obstacle) = (AreaKind::Anonymous, None, None);
                let resident = Resident { page: Vpn(page), color, kind, obstacle };
                self.tell(Event::Resident(resident));
            }
        }
    }

    fn look(&mut self, look: &Look) {
        let ran = self.pass(look.at, look.cpu);
        let small = |group: &&Group| !self.is_huge(group.block);
        let sampled: Vec<replay::Sampled> =
            look.groups.iter().filter(small).map(of_recording).collect();
        let window = Duration::from_nanos(look.window_ns);
        let seen = sensor::Look { window, sampled, slow: look.slow, misses: Vec::new() };
        let found = misses(&self.shape, &self.ground, &seen, &mut self.random);
        // The first look at a block stands for a time before the recording, too.
        let lasts = seen.sampled.iter().map(|one| (one.block, one.stands_for.min(ran)));
        let lasts: HashMap<u64, f64> = lasts.collect();
        let all = found.rates.iter();
        self.walks += all.map(|(at, rate)| rate * lasts.get(at).unwrap_or(&0.0)).sum::<f64>();
        self.tell_misses(&found);
    }

    fn samples(&mut self, samples: &Samples) {
        let _ = self.pass(samples.at, samples.cpu);
        if !self.sampled {
            return;
        }
        let times = usize::try_from((self.period / WEIGHT).max(1)).unwrap_or(1);
        let (mut found, mut left) = (Replayed::default(), 0);
        for page in samples.missed.iter().map(|&page| Vpn(page)) {
            let known = self.ground.blocks.get(&(page.0 / PAGES));
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

    fn tell_misses(&mut self, found: &Replayed) {
        if !self.listens || !self.choice.is_some_and(Choice::needs_misses) {
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
        let Some(brain) = &mut self.brain else { return };
        brain.handle(event, &mut self.actions);
        while let Some(action) = self.actions.pop() {
            let answer = match action {
                Action::Quote { page, order } => {
                    Event::Quoted { page, order, construction: self.quote(page) }
                }
                Action::Promote { page, order: ORDER } => self.build(page),
                Action::Promote { page, order } => {
                    Event::NotPromoted { page, order, why: Refusal::Other }
                }
                Action::TellTlbMisses(on) => {
                    self.listens = on;
                    continue;
                }
                _ => continue,
            };
            if let Some(brain) = &mut self.brain {
                brain.handle(answer, &mut self.actions);
            }
        }
    }

    fn quote(&mut self, page: Vpn) -> Construction {
        match self.may_build(page.0 / PAGES) {
            Ok(block) => Construction::Copy { pages: u64::from(block.resident) },
            Err(why) => {
                *self.refused.entry(why).or_default() += 1;
                Construction::Impossible(Refusal::Other)
            }
        }
    }

    /// What is there, if a superpage may take its place: within the memory that may be added.
    fn may_build(&self, at: u64) -> Result<Block, NotBuilt> {
        let block = self.ground.blocks.get(&at).copied().ok_or(NotBuilt::Gone)?;
        let allowed = self.resident as f64 * self.overhead;
        let fits = holes(block) == 0 || (self.filled() + holes(block)) as f64 <= allowed;
        if fits { Ok(block) } else { Err(NotBuilt::Sparse) }
    }

    fn build(&mut self, page: Vpn) -> Event {
        let at = page.0 / PAGES;
        match self.may_build(at) {
            Ok(block) if !block.huge => {
                self.built.insert(at, holes(block));
                self.times.push(self.now);
                self.ground.blocks.insert(at, Block { resident: whole(), zero: 0, huge: true });
                Event::Promoted { page, order: ORDER }
            }
            // Somebody else had built it.
            Ok(_) => Event::Promoted { page, order: ORDER },
            Err(why) => {
                *self.refused.entry(why).or_default() += 1;
                Event::NotPromoted { page, order: ORDER, why: Refusal::Other }
            }
        }
    }

    fn is_huge(&self, at: u64) -> bool {
        self.ground.blocks.get(&at).is_some_and(|block| block.huge)
    }

    fn filled(&self) -> u64 {
        self.built.values().sum()
    }
}

/// Base pages of a superpage.
fn whole() -> u16 {
    u16::try_from(PAGES).unwrap_or(u16::MAX)
}

fn of_recording(group: &Group) -> replay::Sampled {
    let Group { block, pages, resident, stands_for, ref touched, ref late } = *group;
    let (touched, late) = (touched.clone(), late.clone());
    replay::Sampled { block, pages, touched, late, resident, stands_for }
}

#[cfg(test)]
mod tests;
