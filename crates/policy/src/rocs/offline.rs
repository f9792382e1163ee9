//! What ROCS would do about a process of which residency is known: the policy gets the profile that the
//! live sensor would have made of it ([`crate::residency::profile`]), and the mapping that it tries is taken to be one that
//! helps. Says which pages, moves none. Pages that were not looked at are taken to be like those around them.

use std::collections::BTreeMap;

use huepage_color::{Color, ColorSet, Vpn};

use super::{Rocs, RocsSettings, SearchMethod, Stage};
use crate::residency::{Errors, ResidencyTally, Segment, profile};
use crate::{Event, Policy};

/// Pages of a process, at most: what is beyond takes more memory than an answer is worth.
pub const MOST_PAGES: u64 = 1 << 22;

/// A cache whose colours ROCS may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RocsCache {
    /// Colours, at least 2.
    pub colors: u16,
    /// Lines per set.
    pub ways: u16,
    /// Colours of the pollute buffer, at least 1 and less than all.
    pub buffer: u16,
}

/// What the policy would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    /// Pages that it would confine of each area, in the order of the tally.
    pub by_area: Vec<u64>,
    /// Pages that it was told of requests to.
    pub sampled: u64,
}

/// What ROCS with its model would confine in the pollute buffer of a cache, where looks are wrong so often;
/// `None` for a process with more than [`MOST_PAGES`]. Takes some hundred nanoseconds for each page and sample.
pub fn confined(tally: &ResidencyTally, errors: Errors, cache: RocsCache) -> Option<Confined> {
    let resident = tally.areas.iter().try_fold(0_u64, |sum, area| sum.checked_add(area.resident));
    resident.filter(|resident| *resident <= MOST_PAGES)?;
    let (segments, area_of) = numbered(tally);
    let mut rocs = rocs(cache);
    (0..area_of.len() as u64).for_each(|page| place(&mut rocs, page, cache));
    let pages = |segment: &Segment| (segment.first.0..segment.last.0).map(Vpn).collect();
    drive(&mut rocs, |each| profile::tell(&segments, errors, pages, each));
    let mut by_area = vec![0; tally.areas.len()];
    for page in &rocs.stack[..rocs.confined] {
        let area = usize::try_from(page.page.0).ok().and_then(|at| area_of.get(at));
        area.into_iter().for_each(|&area| by_area[area] += 1);
    }
    Some(Confined { by_area, sampled: rocs.stack.len() as u64 })
}

/// The same of sampled loads that asked the cache: by page, how many, and how many of these missed. The
/// pages that it would confine, in no order; `None` for more than [`MOST_PAGES`].
pub fn confined_of(loads: &BTreeMap<Vpn, [u64; 2]>, cache: RocsCache) -> Option<Vec<Vpn>> {
    (loads.len() as u64 <= MOST_PAGES).then_some(())?;
    let mut rocs = rocs(cache);
    loads.keys().for_each(|page| place(&mut rocs, page.0, cache));
    drive(&mut rocs, |each| {
        for (&page, &[all, missed]) in loads {
            for sample in 0..all {
                each(Event::Sample { page, missed: 1, memory: sample < missed });
            }
        }
        each(Event::AccessedOver);
    });
    Some(rocs.stack[..rocs.confined].iter().map(|page| page.page).collect())
}

/// Says that a page has a frame, of colours in turn.
fn place(rocs: &mut Rocs, page: u64, cache: RocsCache) {
    let color = u16::try_from(page % u64::from(cache.colors)).ok().map(Color);
    rocs.handle(Event::Placed { page: Vpn(page), color }, &mut Vec::new());
}

/// The policy with lengths of one step: time is made up.
fn rocs(cache: RocsCache) -> Rocs {
    let buffer = ColorSet::first(cache.buffer, cache.colors);
    Rocs::new(RocsSettings {
        method: SearchMethod::Model { ways: cache.ways },
        start: 0,
        interval: 1,
        samples: u64::MAX,
        trial: 1,
        settle: 0,
        least_miss_rate: 0.0,
        prefetch_off: false,
        review: None,
        ..RocsSettings::paper(buffer)
    })
}

/// The segments with their pages numbered one after the other, and the area of each page.
fn numbered(tally: &ResidencyTally) -> (Vec<Segment>, Vec<usize>) {
    let mut area_of = Vec::new();
    let mut segments = Vec::new();
    for (area, segment) in tally.segments() {
        let first = area_of.len() as u64;
        let pages = usize::try_from(segment.pages).unwrap_or(0);
        area_of.extend(std::iter::repeat_n(area, pages));
        let last = Vpn(area_of.len() as u64);
        segments.push(Segment { first: Vpn(first), last, ..segment });
    }
    (segments, area_of)
}

/// Through a profile and one trial, which is told to have helped.
fn drive(rocs: &mut Rocs, tell: impl FnOnce(&mut dyn FnMut(Event))) {
    let mut actions = Vec::new();
    let (mut cycles, mut instructions) = (0, 0);
    let mut pass = |rocs: &mut Rocs, fast: u64| {
        cycles += 1;
        instructions += fast;
        rocs.handle(Event::Progress { cycles, instructions }, &mut Vec::new());
    };
    pass(rocs, 1);
    tell(&mut |event| rocs.handle(event, &mut actions));
    // A trial takes a few steps; a policy that waits for more than it is told would wait for ever.
    for _ in 0..STEPS {
        match rocs.stage {
            Stage::Baseline => pass(rocs, 1),
            Stage::Trying => pass(rocs, FASTER),
            _ => return,
        }
    }
}

/// Steps of time until the trial is over, at most.
const STEPS: usize = 100;
/// Instructions per cycle with the mapping, against 1 without: more than any policy asks for.
const FASTER: u64 = 4;
