//! The form in which is saved which pages of a process were touched, as accessed bits tell it, or which
//! accesses were sampled, as a PMU or the kernel tells it; and the reader of it. Beside them stands what is
//! resident in each aligned 2 MiB, without which nobody knows where a superpage could be built: a survey has
//! what changed since the one before. Lines in, counts and steps out; nothing in a line is believed before
//! it fits what came before.

use std::collections::{BTreeMap, HashSet};

use huepage_color::PAGE_BYTES;
use serde::{Deserialize, Serialize};

use super::{Heard, LAST, RecordedSensor, parsed};
use crate::AreaKind;

/// Pages of a block: 2 MiB.
pub const PAGES: u64 = 512;
/// Blocks that a process has, at most: 2 TiB, far more than any sensor surveys.
const MOST_BLOCKS: usize = 1 << 20;
/// Blocks that one look looks at, at most.
const MOST_GROUPS: usize = 1 << 12;
/// Samples of one line, at most.
const MOST_SAMPLES: usize = 1 << 20;
/// Seconds that one look stands for, at most, and that anything lasts.
const LONGEST: f64 = 1e9;
/// Nanoseconds in which touches are gathered, at most.
const LONGEST_WINDOW: u64 = 60_000_000_000;

/// The first line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TouchHead {
    /// [`VERSION`](super::VERSION).
    pub huepage_recording: u64,
    /// Who saw it.
    pub sensor: RecordedSensor,
    /// The process.
    pub pid: i32,
    /// The TLB of the machine.
    pub tlb: RecordedTlb,
    /// What was sampled; of a PMU alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Sampling>,
    /// The areas of the process by address, as they were at the beginning.
    pub areas: Vec<RecordedArea>,
}

/// A TLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedTlb {
    /// Pages of 4 KiB that its last level holds.
    pub entries: u64,
    /// Nanoseconds that a miss takes.
    pub walk_ns: u64,
}

/// How samples were taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sampling {
    /// What was sampled.
    pub event: SampledEvent,
    /// Who sampled it, for a person.
    pub source: String,
    /// How many there are for each that was sampled; 0 if that is not known.
    pub period: u64,
    /// The level of the cache that loads asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<u8>,
}

/// What is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SampledEvent {
    /// Accesses that missed the TLB.
    TlbMisses,
    /// Loads that asked a cache, and whether it had the line.
    Loads,
    /// First touches of pages.
    PageFaults,
}

impl SampledEvent {
    /// The name as the command line has it.
    pub const fn text(self) -> &'static str {
        match self {
            SampledEvent::TlbMisses => "tlb-misses",
            SampledEvent::Loads => "loads",
            SampledEvent::PageFaults => "page-faults",
        }
    }
}

/// An area of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedArea {
    /// Its first byte.
    pub start: u64,
    /// One past its last byte.
    pub end: u64,
    /// What it is for.
    pub kind: AreaKind,
    /// Its file, or what the kernel calls it.
    pub name: String,
}

/// What is resident in one aligned 2 MiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u16, u16, bool)", into = "(u64, u16, u16, bool)")]
pub struct ResidentBlock {
    /// Its address divided by 2 MiB.
    pub at: u64,
    /// Pages with a frame of their own, or of a superpage; with `zero` at most [`PAGES`].
    pub resident: u16,
    /// Pages mapped to the frame of zeroes that all share.
    pub zero: u16,
    /// Whether it is mapped as one page.
    pub huge: bool,
}

impl From<(u64, u16, u16, bool)> for ResidentBlock {
    fn from((at, resident, zero, huge): (u64, u16, u16, bool)) -> ResidentBlock {
        ResidentBlock { at, resident, zero, huge }
    }
}

impl From<ResidentBlock> for (u64, u16, u16, bool) {
    fn from(block: ResidentBlock) -> (u64, u16, u16, bool) {
        (block.at, block.resident, block.zero, block.huge)
    }
}

/// What is resident, as far as it changed since the survey before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Survey {
    /// Seconds since the beginning.
    pub survey: f64,
    /// Resident pages of all the process.
    pub resident: u64,
    /// Blocks that are new or otherwise than before, ascending.
    pub blocks: Vec<ResidentBlock>,
    /// Blocks, by address divided by 2 MiB, that were and are no more.
    pub gone: Vec<u64>,
}

/// A look at accessed bits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TouchLook {
    /// Seconds since the beginning.
    pub at: f64,
    /// CPU seconds that the process has used, ever.
    pub cpu: f64,
    /// Nanoseconds in which touches were gathered.
    pub window_ns: u64,
    /// Whether the TLB is turned over only in the second half of that time.
    pub slow: bool,
    /// Pages that were looked at.
    pub groups: Vec<BlockLook>,
}

/// Pages of a block that were looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockLook {
    /// The address of the block divided by 2 MiB.
    pub block: u64,
    /// Pages that were looked at.
    pub pages: u32,
    /// Resident pages of the block, at least as many.
    pub resident: u32,
    /// CPU seconds that the look stands for.
    pub stands_for: f64,
    /// Those that were touched, counted from the block's first, ascending.
    pub touched: Vec<u16>,
    /// Those of them that were touched in the second half alone.
    pub late: Vec<u16>,
}

/// Samples since the line before: pages, by address divided by 4096, in the order in which they came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TouchSamples {
    /// Seconds since the beginning.
    pub at: f64,
    /// CPU seconds that the process has used, ever.
    pub cpu: f64,
    /// Misses, or first touches.
    pub missed: Vec<u64>,
    /// Of loads: those that the cache had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hit: Vec<u64>,
}

/// A line between the head and the totals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TouchStep {
    /// What is resident.
    Survey(Survey),
    /// What was touched.
    Look(TouchLook),
    /// What was sampled.
    Samples(TouchSamples),
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TouchTail {
    /// The totals.
    pub end: TouchTotals,
}

/// What the sensor counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TouchTotals {
    /// Looks, or lines with samples.
    pub looks: u64,
    /// Pages looked at.
    pub pages: u64,
    /// Those of them that were touched.
    pub touched: u64,
    /// Samples.
    pub samples: u64,
    /// Samples that were lost, as the kernel told.
    pub lost: u64,
    /// Samples that were left out: of the kernel, without an address, or of another kind.
    pub unusable: u64,
    /// Seconds that it lasted.
    pub seconds: f64,
    /// CPU seconds that it took.
    pub cpu_seconds: f64,
    /// Whether the process ended meanwhile.
    pub ended: bool,
}

/// An area, and what was seen of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AreaTouched {
    /// Its first byte; 0 of what was mapped after the beginning.
    #[serde(serialize_with = "huepage_color::as_hex")]
    pub start: u64,
    /// One past its last byte.
    #[serde(serialize_with = "huepage_color::as_hex")]
    pub end: u64,
    /// What it is for.
    pub kind: AreaKind,
    /// Its file, or what the kernel calls it.
    pub name: String,
    /// Its pages that are resident, in whole blocks of memory in which superpages are built.
    pub resident: u64,
    /// Pages looked at, each as often as it was.
    pub pages: u64,
    /// Those that were touched.
    pub touched: u64,
    /// Samples in it.
    pub samples: u64,
}

/// What was seen in all. The sensor counts here while it watches, and a replay of its recording counts
/// here again, so that both come to the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TouchTally {
    /// By address; the last is for what was mapped later.
    pub areas: Vec<AreaTouched>,
    /// Blocks with anything resident, as surveyed last.
    pub blocks: BTreeMap<u64, ResidentBlock>,
    /// Resident pages of the process, as surveyed last.
    pub resident: u64,
    /// Surveys.
    pub surveys: u64,
    /// Looks, or lines with samples.
    pub looks: u64,
    /// Pages looked at.
    pub pages: u64,
    /// Those that were touched.
    pub touched: u64,
    /// Samples.
    pub samples: u64,
}

impl TouchTally {
    /// Nothing seen yet.
    pub fn of(head: &TouchHead) -> TouchTally {
        let seen = |area: &RecordedArea| AreaTouched {
            start: area.start,
            end: area.end,
            kind: area.kind,
            name: area.name.clone(),
            resident: 0,
            pages: 0,
            touched: 0,
            samples: 0,
        };
        let (kind, name) = (AreaKind::Anonymous, "mapped later".to_owned());
        let later = RecordedArea { start: 0, end: 0, kind, name };
        let areas = head.areas.iter().chain([&later]).map(seen).collect();
        TouchTally { areas, ..TouchTally::default() }
    }

    /// Counts a step. Takes time in proportion to its length.
    pub fn note(&mut self, step: &TouchStep) {
        match step {
            TouchStep::Survey(survey) => self.survey(survey),
            TouchStep::Look(look) => {
                self.looks += 1;
                for group in &look.groups {
                    let (pages, touched) = (u64::from(group.pages), group.touched.len() as u64);
                    (self.pages, self.touched) = (self.pages + pages, self.touched + touched);
                    let area = self.area(group.block * PAGES * PAGE_BYTES);
                    (area.pages, area.touched) = (area.pages + pages, area.touched + touched);
                }
            }
            TouchStep::Samples(samples) => {
                self.looks += 1;
                for page in samples.missed.iter().chain(&samples.hit) {
                    self.samples += 1;
                    self.area(page * PAGE_BYTES).samples += 1;
                }
            }
        }
    }

    fn survey(&mut self, survey: &Survey) {
        (self.surveys, self.resident) = (self.surveys + 1, survey.resident);
        for &block in &survey.blocks {
            let before = self.blocks.insert(block.at, block).map_or(0, |block| block.resident);
            let area = self.area(block.at * PAGES * PAGE_BYTES);
            area.resident = (area.resident + u64::from(block.resident)) - u64::from(before);
        }
        for &at in &survey.gone {
            let before = self.blocks.remove(&at).map_or(0, |block| block.resident);
            self.area(at * PAGES * PAGE_BYTES).resident -= u64::from(before);
        }
    }

    /// The area that an address lies in.
    fn area(&mut self, address: u64) -> &mut AreaTouched {
        let later = self.areas.len() - 1;
        let at = self.areas[..later].partition_point(|area| area.end <= address);
        let inside = at < later && self.areas[at].start <= address;
        &mut self.areas[if inside { at } else { later }]
    }

    /// The steps that a survey has to tell of what is there now.
    pub fn changes(&self, now: &BTreeMap<u64, ResidentBlock>) -> (Vec<ResidentBlock>, Vec<u64>) {
        let other = |block: &&ResidentBlock| self.blocks.get(&block.at) != Some(block);
        let gone = self.blocks.keys().filter(|at| !now.contains_key(at));
        (now.values().filter(other).copied().collect(), gone.copied().collect())
    }
}

/// What a recording holds.
#[derive(Clone, Debug, PartialEq)]
pub struct TouchRecording {
    /// Whose it is.
    pub head: TouchHead,
    /// What was seen: the same as the sensor counted.
    pub tally: TouchTally,
    /// When the last step was, in seconds since the beginning.
    pub last: f64,
    /// CPU seconds of the process at the first and at the last look or sample.
    pub cpu: Option<[f64; 2]>,
    /// The totals; `None` of a recording that was cut short.
    pub totals: Option<TouchTotals>,
}

/// Any line behind the first.
#[derive(Deserialize)]
#[serde(untagged)]
enum Behind {
    Step(TouchStep),
    Tail(TouchTail),
}

impl TouchHead {
    /// Whether it has samples if its sensor takes some, and areas follow each other; in a few words, why not.
    fn check(&self) -> Result<(), String> {
        match (self.sensor, &self.samples) {
            (RecordedSensor::AccessedBits, Some(_)) => {
                return Err("accessed bits are not sampled".to_owned());
            }
            (RecordedSensor::Pmu, None) => {
                return Err("it does not say what was sampled".to_owned());
            }
            _ => {}
        }
        let fits = |n: u64, most: u64| (1..=most).contains(&n);
        if !(fits(self.tlb.entries, 1 << 24) && fits(self.tlb.walk_ns, 1 << 20)) {
            return Err("there is no such TLB".to_owned());
        }
        if self.samples.as_ref().is_some_and(|samples| samples.period > 1 << 40) {
            return Err("there is no such period of samples".to_owned());
        }
        let mut before = 0;
        for RecordedArea { start, end, .. } in &self.areas {
            let whole = start % PAGE_BYTES == 0 && end % PAGE_BYTES == 0;
            if !(whole && before <= *start && start < end && *end <= LAST) {
                let place = format!("the area {start:x}-{end:x}");
                return Err(format!("{place} is no range of pages behind those before it"));
            }
            before = *end;
        }
        Ok(())
    }
}

impl TouchRecording {
    /// What a head says, of which nothing was seen yet.
    pub(super) fn begin(text: &[u8]) -> Result<TouchRecording, String> {
        let head: TouchHead = parsed(text)?;
        head.check()?;
        let tally = TouchTally::of(&head);
        Ok(TouchRecording { head, tally, last: 0.0, cpu: None, totals: None })
    }

    /// Takes a line behind the head and before the totals.
    pub(super) fn line(&mut self, text: &[u8]) -> Result<Heard, String> {
        match parsed::<Behind>(text) {
            Ok(Behind::Step(step)) => {
                self.take(&step)?;
                Ok(Heard::Step(step))
            }
            Ok(Behind::Tail(TouchTail { end })) => {
                self.check_totals(&end)?;
                self.totals = Some(end);
                Ok(Heard::Frame)
            }
            Err(_) => Err("it is no survey, look, sample or total".to_owned()),
        }
    }

    /// Checks a step and counts it.
    fn take(&mut self, step: &TouchStep) -> Result<(), String> {
        let at = match step {
            TouchStep::Survey(survey) => {
                self.check_survey(survey)?;
                survey.survey
            }
            TouchStep::Look(look) => {
                self.check_look(look)?;
                self.pass(look.cpu)?;
                look.at
            }
            TouchStep::Samples(samples) => {
                self.check_samples(samples)?;
                self.pass(samples.cpu)?;
                samples.at
            }
        };
        if !(self.last <= at && at <= LONGEST) {
            return Err(format!("{at} s is before the line before it"));
        }
        self.last = at;
        self.tally.note(step);
        Ok(())
    }

    /// The process has used so much CPU time.
    fn pass(&mut self, cpu: f64) -> Result<(), String> {
        let [first, last] = self.cpu.unwrap_or([cpu; 2]);
        if !(last <= cpu && (0.0..=LONGEST).contains(&cpu)) {
            return Err(format!("{cpu} s of CPU time are less than before"));
        }
        self.cpu = Some([first, cpu]);
        Ok(())
    }

    fn check_survey(&self, survey: &Survey) -> Result<(), String> {
        let Survey { blocks, gone, resident, .. } = survey;
        let last = LAST / (PAGES * PAGE_BYTES);
        let fits = |block: &ResidentBlock| {
            let pages = u64::from(block.resident) + u64::from(block.zero);
            block.at < last && (1..=PAGES).contains(&pages)
        };
        if !blocks.iter().all(fits) || *resident > LAST / PAGE_BYTES {
            return Err("there is no such block of memory".to_owned());
        }
        if blocks.windows(2).any(|two| two[0].at >= two[1].at) {
            return Err("blocks are out of order".to_owned());
        }
        let known = |at: &u64| self.tally.blocks.contains_key(at);
        let changed: HashSet<u64> = blocks.iter().map(|block| block.at).collect();
        let once: HashSet<u64> = gone.iter().copied().collect();
        if !gone.iter().all(|at| known(at) && !changed.contains(at)) || once.len() != gone.len() {
            return Err("a block is gone that was not there".to_owned());
        }
        if self.tally.blocks.len() + blocks.len() > MOST_BLOCKS {
            return Err(format!("more than {MOST_BLOCKS} blocks are more than any sensor surveys"));
        }
        Ok(())
    }

    fn check_look(&self, look: &TouchLook) -> Result<(), String> {
        if self.head.sensor != RecordedSensor::AccessedBits {
            return Err("accessed bits in a recording of samples".to_owned());
        }
        if look.groups.len() > MOST_GROUPS || !(1..=LONGEST_WINDOW).contains(&look.window_ns) {
            return Err("no sensor looks like this".to_owned());
        }
        let mut seen = HashSet::new();
        let fits = |group: &BlockLook| seen.insert(group.block) && group.is_sound();
        if !look.groups.iter().all(fits) {
            return Err("pages of a block do not fit it".to_owned());
        }
        Ok(())
    }

    fn check_samples(&self, samples: &TouchSamples) -> Result<(), String> {
        let Some(sampling) = &self.head.samples else {
            return Err("samples in a recording of accessed bits".to_owned());
        };
        if sampling.event != SampledEvent::Loads && !samples.hit.is_empty() {
            return Err("hits among misses".to_owned());
        }
        if samples.missed.len() + samples.hit.len() > MOST_SAMPLES {
            return Err("more samples than any sensor takes at once".to_owned());
        }
        let mut pages = samples.missed.iter().chain(&samples.hit);
        if pages.any(|page| *page >= LAST / PAGE_BYTES) {
            return Err("there is no such page".to_owned());
        }
        Ok(())
    }

    fn check_totals(&self, totals: &TouchTotals) -> Result<(), String> {
        let TouchTally { looks, pages, touched, samples, .. } = self.tally;
        let said = [totals.looks, totals.pages, totals.touched, totals.samples];
        if said != [looks, pages, touched, samples] {
            return Err("the totals are not those of the lines before".to_owned());
        }
        let times = [totals.seconds, totals.cpu_seconds];
        if times.iter().any(|time| !(0.0..=LONGEST).contains(time)) {
            return Err("the totals cannot be those of these lines".to_owned());
        }
        Ok(())
    }
}

impl BlockLook {
    fn is_sound(&self) -> bool {
        let BlockLook { block, pages, resident, stands_for, touched, late } = self;
        let ascending = |pages: &[u16]| pages.windows(2).all(|two| two[0] < two[1]);
        let whole = u32::try_from(PAGES).unwrap_or(u32::MAX);
        *block < LAST / (PAGES * PAGE_BYTES)
            && (1..=*resident).contains(pages)
            && *resident <= whole
            && (0.0..=LONGEST).contains(stands_for)
            && touched.len() <= usize::try_from(*pages).unwrap_or(0)
            && touched.iter().all(|page| u64::from(*page) < PAGES)
            && ascending(touched)
            && ascending(late)
            && late.iter().all(|page| touched.binary_search(page).is_ok())
    }
}
