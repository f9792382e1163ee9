//! One vote on a batch of pages: every class is streamed in turn, and after each all pages of the
//! batch are timed, with pages of known class (controls) among them. Builds the jobs of a vote and
//! reads their latencies as bins above the latency of a page that was not evicted. What the bins
//! say is for `classify` to judge.

use super::ProbeError;
use super::bench::{TimingBench, TimingJob};
use super::classes::ColorClasses;
use super::likelihood::{Scale, quantile};
use super::params::{MAX_ROUNDS, MAX_STREAM};
use super::timing::RoundDesc;
use fastrand::Rng;

/// Percentile of the controls of other classes that stands for a page that was not evicted.
const BASE: usize = 40;

/// Controls of a vote, of all classes together, at least and at most (or one of each class, if those are
/// more): few give a poor base, many cost time.
const FEWEST_CONTROLS: usize = 8;
const MOST_CONTROLS: usize = 16;

/// Classes below which there are too few controls to show what pages of other classes look like.
const FEW_CLASSES: usize = 16;

/// What the pages of a batch are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Batch {
    /// Pages of a program.
    Foreign,
    /// Pages of the classes: one that is streamed, or is a control as well, is not judged.
    Reference,
    /// The same, but many are of no class: where there are few classes, they show what pages of others look like.
    Unsorted,
}

/// What a place in the list of timed pages is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Of the batch: its index.
    Candidate(usize),
    /// Of a known class.
    Control(u16),
}

/// Places, in each class, of the pages that are controls for a batch of `pages`. Timing them costs as
/// much as timing the batch, so that a small one has few, of some classes chosen by chance: half of them among
/// the `streamed` ones.
fn choose_controls(
    classes: &ColorClasses,
    streamed: &[usize],
    pages: usize,
    random: &mut Rng,
) -> Vec<Vec<usize>> {
    let each = classes.params.controls;
    let some = pages.clamp(FEWEST_CONTROLS, MOST_CONTROLS).div_ceil(each);
    let mut order: Vec<usize> = (0..classes.classes.len()).collect();
    random.shuffle(&mut order);
    let (mut first, others): (Vec<usize>, Vec<usize>) =
        order.into_iter().partition(|class| streamed.contains(class));
    let rest = first.split_off(first.len().min(some.div_ceil(2)));
    let order = [first, others, rest].concat();
    let mut controls = vec![Vec::new(); order.len()];
    for &class in order.iter().take(some) {
        controls[class] = in_turn(classes.classes[class].len(), random).take(each).collect();
    }
    controls
}

/// Places of a class of so many pages, which may be none, from any on.
fn in_turn(size: usize, random: &mut Rng) -> impl Iterator<Item = usize> + use<> {
    let start = random.usize(..size.max(1));
    (start..size).chain(0..start)
}

/// What one round says.
pub(crate) struct Round {
    /// The class that was streamed.
    pub(crate) class: u16,
    /// Candidates that were timed, with their bins.
    pub(crate) candidates: Vec<(usize, usize)>,
    /// Bins of the controls of this class.
    pub(crate) own: Vec<usize>,
    /// Bins of the controls of other classes.
    pub(crate) others: Vec<usize>,
}

/// A vote that is being taken.
pub(crate) struct Vote<'a> {
    classes: &'a ColorClasses,
    base: u64,
    offsets: Vec<u16>,
    /// Pages of a class that are streamed.
    stream: usize,
    /// How often they are.
    passes: u32,
    reload: Vec<u64>,
    roles: Vec<Role>,
    /// Places of each class's controls in the class.
    controls: Vec<Vec<usize>>,
    batch: Batch,
}

impl<'a> Vote<'a> {
    /// A vote on `pages`, of their kind, with so many offsets in use and so many pages of each class streamed, by
    /// classes most of which are `streamed`.
    pub(crate) fn new(
        classes: &'a ColorClasses,
        base: u64,
        pages: &[u64],
        (spread, stream, passes): (usize, usize, u32),
        (batch, streamed): (Batch, &[usize]),
        random: &mut Rng,
    ) -> Vote<'a> {
        let mut offsets = classes.params.offsets(random);
        offsets.truncate(spread.max(classes.params.depth as usize + 1));
        let controls = choose_controls(classes, streamed, pages.len(), random);
        let (reload, roles) = (Vec::new(), Vec::new());
        let mut vote =
            Vote { classes, base, offsets, stream, passes, reload, roles, controls, batch };
        vote.list(pages, random);
        vote
    }

    /// Lists candidates and controls in random order: who shares offsets with whom changes with every
    /// vote, since pages of one colour that do may evict each other.
    fn list(&mut self, pages: &[u64], random: &mut Rng) {
        let candidate = |(i, &page): (usize, &u64)| (Role::Candidate(i), page);
        let mut all: Vec<(Role, u64)> = pages.iter().enumerate().map(candidate).collect();
        for (class, places) in self.controls.iter().enumerate() {
            let control = |&place| (Role::Control(class as u16), self.address(class, place));
            all.extend(places.iter().map(control));
        }
        random.shuffle(&mut all);
        for (role, page) in all {
            let chain = self.reload.len() * self.classes.params.depth as usize;
            self.reload.push(page + u64::from(self.offsets[chain % self.offsets.len()]));
            self.roles.push(role);
        }
    }

    fn address(&self, class: usize, place: usize) -> u64 {
        self.base + u64::from(self.classes.classes[class][place]) * 4096
    }

    /// Streams classes in random order, and times the pages after each.
    pub(crate) fn take(
        &self,
        bench: &mut dyn TimingBench,
        streamed: &[usize],
        scale: Scale,
        random: &mut Rng,
    ) -> Result<Vec<Round>, ProbeError> {
        let mut order = streamed.to_vec();
        random.shuffle(&mut order);
        let mut rounds = Vec::with_capacity(order.len());
        for some in order.chunks(MAX_ROUNDS.min(MAX_STREAM / self.stream)) {
            let job = self.job(some, random);
            let result = bench.run(&job)?;
            for (i, &class) in some.iter().enumerate() {
                let desc = job.rounds[i];
                let streamed = &job.stream[desc.first as usize..][..desc.len as usize];
                let latencies = result.round(i, self.reload.len());
                rounds.push(self.read(class, streamed, latencies, scale));
            }
        }
        Ok(rounds)
    }

    fn job(&self, streamed: &[usize], random: &mut Rng) -> TimingJob {
        let params = &self.classes.params;
        let mut job = TimingJob {
            offsets: self.offsets.clone(),
            passes: self.passes,
            reload: self.reload.clone(),
            prime: true,
            depth: params.depth,
            ..TimingJob::default()
        };
        for &class in streamed {
            let first = job.stream.len();
            let places = in_turn(self.classes.classes[class].len(), random);
            let free = places.filter(|place| !self.controls[class].contains(place));
            job.stream.extend(free.take(self.stream).map(|place| self.address(class, place)));
            let len = (job.stream.len() - first) as u32;
            job.rounds.push(RoundDesc { first: first as u32, len });
        }
        job
    }

    /// Latencies of one round as bins.
    fn read(&self, class: usize, streamed: &[u64], latencies: &[u16], scale: Scale) -> Round {
        let class = class as u16;
        let shows_others = self.batch == Batch::Unsorted && self.controls.len() < FEW_CLASSES;
        let (mut own, mut others) = (Vec::new(), Vec::new());
        for (role, &ticks) in self.roles.iter().zip(latencies) {
            match role {
                Role::Control(of) if *of == class => own.push(ticks),
                Role::Control(_) => others.push(ticks),
                Role::Candidate(_) if shows_others => others.push(ticks),
                Role::Candidate(_) => {}
            }
        }
        let base = i32::from(quantile(&mut others, BASE));
        let bin = |ticks: u16| scale.bin(i32::from(ticks) - base);
        let used = self.used(streamed);
        let mut candidates = Vec::with_capacity(self.roles.len());
        for ((role, &ticks), line) in self.roles.iter().zip(latencies).zip(&self.reload) {
            if let Role::Candidate(page) = *role
                && (used.is_empty() || used.binary_search(&(line & !4095)).is_err())
            {
                candidates.push((page, bin(ticks)));
            }
        }
        let bins = |ticks: Vec<u16>| ticks.into_iter().map(bin).collect();
        Round { class, candidates, own: bins(own), others: bins(others) }
    }

    /// Pages of the classes that are streamed or are controls, ascending, where such are candidates as well.
    fn used(&self, streamed: &[u64]) -> Vec<u64> {
        if self.batch == Batch::Foreign {
            return Vec::new();
        }
        let mut used = streamed.to_vec();
        for (class, places) in self.controls.iter().enumerate() {
            used.extend(places.iter().map(|&place| self.address(class, place)));
        }
        used.sort_unstable();
        used
    }
}
