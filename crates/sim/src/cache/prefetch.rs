//! Prefetchers of one cache: from the lines it is asked for, guesses the lines that will be
//! asked for next. Knows neither what the cache holds nor how lines are fetched.
//!
//! Traces have no program counters, so strides are learnt per 4 KiB frame, and no guess leaves
//! the frame: the next frame belongs to another page.

use std::collections::HashMap;

use huepage_color::NumberHash;
use serde::{Deserialize, Serialize};

/// A frame is 2^12 bytes.
const FRAME_BITS: u32 = 12;
/// Repetitions of a stride until it is believed, and the most that are remembered.
const BELIEVED: u8 = 2;
const CERTAIN: u8 = 3;

/// One of the prefetchers of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prefetch {
    /// The lines after one that missed, or that was prefetched and is now used for the first
    /// time (tagged prefetching; Smith, Computing Surveys 1982).
    NextLine,
    /// The lines that follow at the distance seen twice in a frame.
    Stride,
}

/// A next-line prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextLineSpec {
    /// Lines ahead.
    pub degree: u64,
    /// Whether it works from the start; a policy can switch it.
    #[serde(default = "yes")]
    pub on: bool,
}

/// A stride prefetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrideSpec {
    /// Strides ahead.
    pub degree: u64,
    /// Frames it can follow at once; the one that was used longest ago makes way.
    pub table: usize,
    /// Whether it works from the start; a policy can switch it.
    #[serde(default = "yes")]
    pub on: bool,
}

const fn yes() -> bool {
    true
}

/// What is known of the accesses to a frame.
#[derive(Clone, Copy, Debug, Default)]
struct Walk {
    last: u64,
    /// Lines from one access to the next, wrapping.
    stride: u64,
    confidence: u8,
}

/// Lines that came by prefetching and were not asked for since, and when they arrive. Most lines that are
/// looked for are none of them, which is seen without a hash table.
#[derive(Clone, Debug)]
pub(super) struct Unused {
    arrivals: HashMap<u64, u64, NumberHash>,
    /// How many there are with the same lowest bits.
    alike: Box<[u32; 1 << ALIKE_BITS]>,
}

/// Lowest bits of lines that are told apart first.
const ALIKE_BITS: u32 = 10;

impl Unused {
    fn new() -> Unused {
        Unused { arrivals: HashMap::default(), alike: Box::new([0; 1 << ALIKE_BITS]) }
    }

    #[inline(always)]
    fn alike(&mut self, line: u64) -> &mut u32 {
        let place = line & ((1 << ALIKE_BITS) - 1);
        &mut self.alike[usize::try_from(place).unwrap_or(0)]
    }

    pub(super) fn insert(&mut self, line: u64, arrival: u64) {
        let new = self.arrivals.insert(line, arrival).is_none();
        *self.alike(line) += u32::from(new);
    }

    /// Takes a line out; when it arrives.
    #[inline(always)]
    pub(super) fn remove(&mut self, line: u64) -> Option<u64> {
        if *self.alike(line) == 0 {
            return None;
        }
        let arrival = self.arrivals.remove(&line);
        *self.alike(line) -= u32::from(arrival.is_some());
        arrival
    }

    pub(super) fn clear(&mut self) {
        self.arrivals.clear();
        self.alike.fill(0);
    }

    pub(super) fn len(&self) -> usize {
        self.arrivals.len()
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = u64> + '_ {
        self.arrivals.keys().copied()
    }
}

/// The prefetchers of a cache.
#[derive(Clone, Debug)]
pub(super) struct Prefetcher {
    next_line: Option<NextLineSpec>,
    stride: Option<StrideSpec>,
    /// Frames that are followed, by place: beside each other, since all are compared for every lesson.
    frames: Vec<u64>,
    walks: Vec<Walk>,
    /// When each was used last, in lessons.
    used: Vec<u64>,
    lessons: u64,
    /// What it brought in vain so far.
    pub unused: Unused,
}

impl Prefetcher {
    pub(super) fn new(next_line: Option<NextLineSpec>, stride: Option<StrideSpec>) -> Prefetcher {
        let table = stride.map_or(0, |spec| spec.table);
        let (frames, walks) = (vec![u64::MAX; table], vec![Walk::default(); table]);
        let (used, lessons, unused) = (vec![0; table], 0, Unused::new());
        Prefetcher { next_line, stride, frames, walks, used, lessons, unused }
    }

    /// Switches one on or off; whether the cache has such a one.
    pub(super) fn switch(&mut self, which: Prefetch, on: bool) -> bool {
        match which {
            Prefetch::NextLine => self.next_line.as_mut().map(|spec| spec.on = on).is_some(),
            Prefetch::Stride => self.stride.as_mut().map(|spec| spec.on = on).is_some(),
        }
    }

    /// Learns that a line was asked for, and gives the lines that should follow. `fresh`: it
    /// missed, or was prefetched and not asked for before.
    #[inline]
    pub(super) fn note(&mut self, line: u64, line_bits: u32, fresh: bool, wanted: &mut Vec<u64>) {
        let within = FRAME_BITS.saturating_sub(line_bits);
        let mut ahead = |stride: u64, degree: u64| {
            let lines = (1..=degree).map(|step| line.wrapping_add(stride.wrapping_mul(step)));
            wanted.extend(lines.take_while(|next| next >> within == line >> within));
        };
        if let Some(spec) = self.next_line.filter(|spec| spec.on && fresh) {
            ahead(1, spec.degree);
        }
        if let Some(spec) = self.stride.filter(|spec| spec.on)
            && let Some(stride) = self.learn(line, line >> within)
        {
            ahead(stride, spec.degree);
        }
    }

    /// The stride to believe in after an access to a line.
    #[inline]
    fn learn(&mut self, line: u64, frame: u64) -> Option<u64> {
        self.lessons += 1;
        // Compared without a branch for each: which of them it is cannot be guessed.
        let known = |place, (at, &known): (usize, &u64)| if known == frame { at } else { place };
        let place = self.frames.iter().enumerate().fold(usize::MAX, known);
        if place == usize::MAX {
            self.follow(line, frame);
            return None;
        }
        self.used[place] = self.lessons;
        let walk = &mut self.walks[place];
        let step = line.wrapping_sub(walk.last);
        if step == 0 {
            return None;
        }
        walk.last = line;
        match step == walk.stride {
            true => walk.confidence = CERTAIN.min(walk.confidence + 1),
            false if walk.confidence > 0 => walk.confidence -= 1,
            false => walk.stride = step,
        }
        (walk.confidence >= BELIEVED).then_some(walk.stride)
    }

    /// Follows a frame from a line on in place of the one that was used longest ago.
    fn follow(&mut self, line: u64, frame: u64) {
        // A loop: comparing by a closure calls it for every place.
        let (mut place, mut oldest) = (0, u64::MAX);
        for (at, &used) in self.used.iter().enumerate() {
            (place, oldest) = if used < oldest { (at, used) } else { (place, oldest) };
        }
        self.frames[place] = frame;
        self.walks[place] = Walk { last: line, ..Walk::default() };
        self.used[place] = self.lessons;
    }
}
