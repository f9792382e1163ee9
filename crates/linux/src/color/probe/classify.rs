//! Sorts pages into colours. Votes on batches of pages (`vote`) become log-likelihood
//! ratios by histograms that are learnt from pages of known class in the same votes
//! (`likelihood`); they add up, for each page and class, until one class leads. No vote is
//! void: in noise a latency says less, so that a page takes longer. Pages are only loaded.

use std::time::{Duration, Instant};

use huepage_color::{Color, ColorSet};

use super::ProbeError;
use super::bench::TimingBench;
use super::classes::ColorClasses;
use super::likelihood::Scale;
use super::vote::{Batch, Vote};
use super::vote_size::VoteSizes;
use fastrand::Rng;

/// What the votes say of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageVerdict {
    /// The colour; `None` if none leads by enough.
    pub color: Option<Color>,
    /// The lead of the best class over the next, as a log-likelihood in nats.
    pub lead: f32,
    /// Whether the page is of none of the colours that were looked for.
    pub is_other: bool,
}

/// What classification has cost since the classifier was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeStats {
    /// Rounds run.
    pub rounds: u64,
    /// Rounds in which more than an eighth of the pages that should have stayed were evicted.
    pub noisy: u64,
    /// Votes taken, each on a batch of pages.
    pub votes: u64,
    /// Reference pages that changed their class or lost it.
    pub healed: u64,
}

/// The lead that decides, in nats: one page in 400,000 is wrong if the latencies are independent.
const DECIDES: f32 = 13.0;
/// What has to speak for the best class itself where a page may be of none, in nats: classes that strangers
/// get into are sorted again.
const IS_OF_A_CLASS: f32 = 4.0;
/// The lead that a page was to be expected to have, after which its votes are thrown away: its colour
/// may have changed meanwhile.
const OVERDUE: f32 = 3.0 * DECIDES;
/// Times that a page begins anew before it is left undecided.
const RESTARTS: u8 = 3;
/// The lead of a page from which on only its best class is streamed against it, which takes a fraction of
/// a vote; and pages of a batch for that: few, as all may be of one colour.
const FAVORS: f32 = 6.0;
const CONFIRMS: usize = 24;
/// What has to speak against each of some classes for a page to be taken for one of the others, in nats, where
/// only pages of those classes are looked for: one that is missed costs no more than another look elsewhere.
const IS_OTHER: f32 = 4.0;
/// Times that pages are confirmed after each vote.
const CONFIRMATIONS: usize = 2;
/// Pages up to which a vote streams a few classes at a time: as soon as each page has its class the rest need not
/// be streamed, which saves half of a vote on one page and nothing on many.
const ALONE: usize = 2;
/// [`FAVORS`] and [`CONFIRMATIONS`] where a vote streams a few classes: nothing speaks against the others yet.
const FAVORS_ALONE: f32 = 3.0;
const CONFIRMATIONS_ALONE: usize = 4;
/// The lead from which on a page is taken to have stayed what it was, in nats: one that was moved is found
/// out at the next look, if not at this one.
const STAYS: f32 = 5.0;
/// One reference page in so many may be undecided, where all are sorted within a time.
const UNDECIDED: usize = 16;
/// Times that the class of such a page is streamed by one job, as taking pages of a program out for a job
/// costs more than that, and jobs before it is left undecided: sorting takes a hundred times as long.
const AT_ONCE: usize = 4;
const DOUBTS: usize = 4;
/// Classes below which the median is not what most do.
const FEW: usize = 4;
/// The rest after which what was learnt is mostly forgotten.
const REST: Duration = Duration::from_millis(100);
/// How long classes are believed to hold: the host moves pages.
const HOLDS: Duration = Duration::from_secs(60);
/// Time without a decision after which pages are left undecided.
const PATIENCE: Duration = Duration::from_secs(2);
/// Times as long as that until classes that show nothing are given up: the busiest neighbour has
/// rested by then. What is waited in between, so that neighbours come and go.
const QUIET: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// Sorts pages by the classes of one cache level.
#[derive(Clone, Debug)]
pub struct Classifier {
    classes: ColorClasses,
    sizes: VoteSizes,
    scale: Scale,
    random: Rng,
    stats: ProbeStats,
    /// When it last measured, and when the classes were last found to hold.
    measured: Option<Instant>,
    held: Option<Instant>,
    /// [`PATIENCE`], less in tests.
    patience: Duration,
    /// Whether somebody else keeps the classes true.
    follows: bool,
}

/// What a vote streams.
#[derive(Clone, Copy, Debug)]
enum Streamed<'a> {
    /// These classes, once each.
    InTurn(&'a [usize]),
    /// One class, so many times.
    One { class: usize, times: usize },
}

/// The pages of one call and what is known of them.
struct Tally<'a> {
    pages: &'a [u64],
    scores: Vec<f32>,
    /// Lead that each page was to be expected to have by now, and times it began anew.
    expected: Vec<f32>,
    restarts: Vec<u8>,
    colors: usize,
    /// The classes that are streamed: all, or those whose pages are looked for.
    streamed: Vec<usize>,
    verdicts: Vec<PageVerdict>,
    batch: Batch,
    /// The largest size of batch that works for these pages.
    largest: usize,
}

impl<'a> Tally<'a> {
    fn new(pages: &'a [u64], colors: usize, batch: Batch) -> Tally<'a> {
        Tally {
            pages,
            scores: vec![0.0; pages.len() * colors],
            expected: vec![0.0; pages.len()],
            restarts: vec![0; pages.len()],
            colors,
            streamed: (0..colors).collect(),
            verdicts: vec![PageVerdict::default(); pages.len()],
            batch,
            largest: VoteSizes::LARGEST,
        }
    }

    /// Streams only these classes: pages of others are left undecided.
    fn among(mut self, wanted: Option<&ColorSet>) -> Tally<'a> {
        if let Some(wanted) = wanted {
            self.streamed.retain(|&class| wanted.contains(Color(class as u16)));
        }
        self
    }

    fn is_for_some(&self) -> bool {
        self.streamed.len() < self.colors
    }

    /// Whether a page is of none of the classes that are looked for, where that is enough to know.
    fn is_other(&self, page: usize) -> bool {
        let scores = &self.scores[page * self.colors..][..self.colors];
        self.is_for_some() && self.streamed.iter().all(|&class| scores[class] <= -IS_OTHER)
    }

    /// Notes that a vote by so many classes was expected to give the pages such a lead, had it been by all.
    fn expect(&mut self, pages: &[usize], classes: usize, lead: f32) {
        // Pages of the classes are not judged when they are streamed themselves. And nothing speaks against
        // classes that are not streamed.
        let full = self.batch == Batch::Foreign && !self.is_for_some();
        let lead = if full { lead } else { lead / 2.0 };
        let share = classes as f32 / self.streamed.len().max(1) as f32;
        pages.iter().for_each(|&page| self.expected[page] += lead * share);
    }

    fn scores_of(&mut self, page: usize) -> &mut [f32] {
        &mut self.scores[page * self.colors..][..self.colors]
    }

    /// Updates the verdict on a page; whether it is to be timed no more.
    fn decide(&mut self, page: usize) -> bool {
        let (color, lead) = leader(self.scores_of(page));
        // That it is of none of the classes is possible as well.
        let is_one = self.batch != Batch::Unsorted
            || self.scores_of(page)[usize::from(color)] >= IS_OF_A_CLASS;
        if lead >= DECIDES && is_one {
            self.verdicts[page] = PageVerdict { color: Some(Color(color)), lead, is_other: false };
            return true;
        }
        self.verdicts[page].lead = lead;
        self.verdicts[page].is_other = self.is_other(page);
        if self.verdicts[page].is_other {
            return true;
        }
        let is_none = self.scores_of(page).iter().all(|&score| score <= -DECIDES);
        if self.batch == Batch::Unsorted && is_none {
            return true;
        }
        if self.expected[page] < OVERDUE {
            return false;
        }
        self.scores_of(page).fill(0.0);
        self.expected[page] = 0.0;
        self.restarts[page] += 1;
        // Many pages of one colour evict each other, whatever is streamed.
        let left = VoteSizes::LARGEST.saturating_sub(usize::from(self.restarts[page]));
        self.largest = self.largest.min(left);
        self.restarts[page] > RESTARTS
    }
}

/// The class with the highest score and its lead over the next; none if nothing speaks for it.
fn leader(scores: &[f32]) -> (u16, f32) {
    let (mut color, mut best, mut second) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
    for (i, &score) in scores.iter().enumerate() {
        if score > best {
            (color, best, second) = (i as u16, score, best);
        } else {
            second = second.max(score);
        }
    }
    (color, if best > 1.0 { best - second } else { 0.0 })
}

/// The lower median; 0 of none.
fn median(mut values: Vec<f32>) -> f32 {
    values.sort_by(f32::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// Where some reference pages are mapped.
fn addresses(bench: &dyn TimingBench, pages: &[u32]) -> Vec<u64> {
    let base = bench.reference_base();
    pages.iter().map(|&page| base + u64::from(page) * 4096).collect()
}

impl Classifier {
    /// A classifier by these classes, which are taken to hold when it is first used.
    pub fn new(classes: ColorClasses) -> Classifier {
        let unit = classes.params.step.max(6 * classes.params.depth) as i32;
        let seed = classes.pages().map(u64::from).sum();
        Classifier {
            sizes: VoteSizes::new(&classes.params),
            classes,
            scale: Scale { unit },
            random: Rng::with_seed(seed),
            stats: ProbeStats::default(),
            measured: None,
            held: None,
            patience: PATIENCE,
            follows: false,
        }
    }

    /// Goes by these classes from now on, which somebody else keeps true: they are never sorted anew by what
    /// is measured here.
    pub fn follow(&mut self, classes: ColorClasses) {
        (self.classes, self.follows) = (classes, true);
    }

    /// The same, with what was learnt of votes before.
    pub(crate) fn with_sizes(self, sizes: VoteSizes) -> Classifier {
        Classifier { sizes, ..self }
    }

    /// What it has learnt of votes.
    pub(crate) fn into_sizes(self) -> VoteSizes {
        self.sizes
    }

    /// The number of colours.
    pub fn colors(&self) -> u16 {
        self.classes.colors()
    }

    /// The reference classes.
    pub fn classes(&self) -> &ColorClasses {
        &self.classes
    }

    /// What it has cost so far.
    pub fn stats(&self) -> ProbeStats {
        self.stats
    }

    /// The colours of `pages`: page base addresses in the bench's address space, populated,
    /// in any number. Many at once are cheaper per page. Noise makes it take longer. Now and then, and when
    /// no page can be decided, the reference pages are sorted anew.
    ///
    /// # Errors
    /// `Stale` if streaming a class makes no difference to its own pages, for long enough that there were
    /// quiet moments, and whatever the bench fails of.
    pub fn classify(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u64],
    ) -> Result<Vec<PageVerdict>, ProbeError> {
        self.classify_among(bench, pages, None)
    }

    /// As [`Self::classify`], for who looks for pages of the `wanted` colours only: pages of others get no
    /// verdict, nor does one in fifty of those. It takes less time the fewer colours are wanted.
    ///
    /// # Errors
    /// As [`Self::classify`].
    pub fn classify_among(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u64],
        wanted: Option<&ColorSet>,
    ) -> Result<Vec<PageVerdict>, ProbeError> {
        let began = bench.now();
        let held = *self.held.get_or_insert(began);
        if began.saturating_duration_since(held) > HOLDS && !pages.is_empty() {
            self.heal_if_possible(bench)?;
        }
        loop {
            let tally = Tally::new(pages, usize::from(self.colors()), Batch::Foreign);
            let verdicts = self.sort_by(bench, tally.among(wanted), None)?;
            let decided = verdicts.iter().any(|page| page.color.is_some() || page.is_other);
            if pages.is_empty() || decided || self.sizes.tell() {
                return Ok(verdicts);
            }
            if bench.now().saturating_duration_since(began) > QUIET * self.patience {
                return Err(ProbeError::Stale { rounds: self.stats.rounds });
            }
            bench.rest(PAUSE);
            self.heal_if_possible(bench)?;
        }
    }

    /// Heals, or leaves the classes as they are for a while. Those that somebody else keeps stay as they are.
    fn heal_if_possible(&mut self, bench: &mut dyn TimingBench) -> Result<(), ProbeError> {
        if self.follows {
            return Ok(());
        }
        self.held = Some(bench.now());
        match self.heal(bench) {
            Ok(_) | Err(ProbeError::Stale { .. }) => Ok(()),
            Err(other) => Err(other),
        }
    }

    /// Measures pages whose colours are known from before, which takes a fraction of sorting them: only
    /// that class is streamed. Pages of which that speaks against it are sorted, within a time; those that
    /// are undecided then may still be what they were.
    ///
    /// # Errors
    /// Whatever the bench fails of.
    pub fn confirm(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u64],
        colors: &[Color],
        limit: Duration,
    ) -> Result<Vec<PageVerdict>, ProbeError> {
        self.forget_after_rest(bench.now());
        let mut tally = Tally::new(pages, usize::from(self.colors()), Batch::Foreign);
        let (mut open, mut moved): (Vec<usize>, _) = ((0..pages.len()).collect(), Vec::new());
        for _ in 0..DOUBTS {
            let mut by_class = vec![Vec::new(); tally.colors];
            open.iter().for_each(|&page| by_class[usize::from(colors[page].0)].push(page));
            self.vote_by_class(bench, &by_class, AT_ONCE, &mut tally)?;
            open.retain(|&page| {
                let lead = tally.scores_of(page)[usize::from(colors[page].0)];
                if lead >= STAYS {
                    tally.verdicts[page] =
                        PageVerdict { color: Some(colors[page]), lead, is_other: false };
                } else if lead <= -STAYS {
                    moved.push(page);
                }
                lead.abs() < STAYS
            });
        }
        let addresses: Vec<u64> = moved.iter().map(|&page| pages[page]).collect();
        let sorted = self.sort(bench, &addresses, Batch::Foreign, Some(limit))?;
        moved.iter().zip(sorted).for_each(|(&page, verdict)| tally.verdicts[page] = verdict);
        Ok(tally.verdicts)
    }

    /// Sorts the reference pages anew: one that the host has moved changes its class, one that is
    /// undecided leaves it. Returns how many did. If a class would have too few pages left, nothing
    /// is changed.
    ///
    /// # Errors
    /// `Stale` if a class has too few pages, and whatever the bench fails of.
    pub fn heal(&mut self, bench: &mut dyn TimingBench) -> Result<usize, ProbeError> {
        let pages: Vec<u32> = self.classes.pages().collect();
        self.heal_with(bench, &pages, self.classes.params.fewest_refs(), None)
    }

    /// What so many votes say of the pages (indexes of reference pages) of some lists, by list and class: the
    /// log-likelihood, in nats, that streaming the class evicts the median page of the list, above that of the
    /// median class: where neighbours evict most, what evicts says little, and what does not says much.
    pub(crate) fn compare(
        &mut self,
        bench: &mut dyn TimingBench,
        lists: &[Vec<u32>],
        votes: u32,
    ) -> Result<Vec<Vec<f32>>, ProbeError> {
        let addresses = addresses(bench, &lists.concat());
        let classes = usize::from(self.colors());
        let mut tally = Tally::new(&addresses, classes, Batch::Unsorted);
        let (all, streamed): (Vec<usize>, _) =
            ((0..addresses.len()).collect(), tally.streamed.clone());
        for _ in 0..votes {
            let choose = |sizes: &VoteSizes, open, _: &mut Rng| sizes.to_compare(open);
            self.vote_each(bench, &all, &streamed, &mut tally, choose)?;
        }
        let mut pages = tally.scores.chunks(classes);
        let medians = |list: &Vec<u32>| {
            let scores: Vec<&[f32]> = pages.by_ref().take(list.len()).collect();
            let of = |class: usize| median(scores.iter().map(|page| page[class]).collect());
            let all: Vec<f32> = (0..classes).map(of).collect();
            let usual = if classes < FEW { 0.0 } else { median(all.clone()) };
            all.iter().map(|score| score - usual).collect()
        };
        Ok(lists.iter().map(medians).collect())
    }

    /// The class of each of `pages`, indexes of reference pages, as far as it can be told within so much CPU
    /// time: many may be of none.
    pub(crate) fn assign(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u32],
        limit: Duration,
    ) -> Result<Vec<Option<usize>>, ProbeError> {
        let addresses = addresses(bench, pages);
        let verdicts = self.sort(bench, &addresses, Batch::Unsorted, Some(limit))?;
        Ok(verdicts.iter().map(|verdict| verdict.color.map(|color| usize::from(color.0))).collect())
    }

    /// Sorts all of `pages`, indexes of reference pages, within some CPU time, and makes them the classes if
    /// each has `least` pages.
    pub(crate) fn heal_with(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u32],
        least: usize,
        limit: Option<Duration>,
    ) -> Result<usize, ProbeError> {
        let addresses = addresses(bench, pages);
        let verdicts = self.sort(bench, &addresses, Batch::Reference, limit)?;
        self.take_classes(pages, &verdicts, least, bench.now())
    }

    /// As [`Self::heal`], of `pages`, indexes of reference pages: those that were undecided before come
    /// back. If many are undecided when the CPU time is over it was too noisy, which says nothing against the
    /// pages: then nothing is changed.
    ///
    /// # Errors
    /// As [`Self::heal`].
    pub fn heal_among(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u32],
        limit: Duration,
    ) -> Result<usize, ProbeError> {
        let addresses = addresses(bench, pages);
        let verdicts = self.sort(bench, &addresses, Batch::Reference, Some(limit))?;
        let undecided = verdicts.iter().filter(|verdict| verdict.color.is_none()).count();
        if undecided * UNDECIDED > pages.len() {
            Ok(0)
        } else {
            let least = self.classes.params.fewest_refs();
            self.take_classes(pages, &verdicts, least, bench.now())
        }
    }

    /// Makes classes of pages by what was found of them; how many are in another class than before.
    /// Each class needs `least` pages.
    fn take_classes(
        &mut self,
        pages: &[u32],
        verdicts: &[PageVerdict],
        least: usize,
        now: Instant,
    ) -> Result<usize, ProbeError> {
        let mut classes = vec![Vec::new(); usize::from(self.colors())];
        for (&page, verdict) in pages.iter().zip(verdicts) {
            if let Some(color) = verdict.color {
                classes[usize::from(color.0)].push(page);
            }
        }
        if classes.iter().any(|class| class.len() < least) {
            return Err(ProbeError::Stale { rounds: self.stats.rounds });
        }
        let changed = self.classes.replace(classes, pages);
        self.stats.healed += changed as u64;
        self.held = Some(now);
        Ok(changed)
    }

    /// Sorts more pages, indexes of reference pages that are in no class, into the classes that have few.
    pub(crate) fn add(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u32],
    ) -> Result<(), ProbeError> {
        let addresses = addresses(bench, pages);
        let verdicts = self.sort(bench, &addresses, Batch::Foreign, None)?;
        let keep = self.classes.params.keep_refs();
        for (&page, verdict) in pages.iter().zip(&verdicts) {
            let Some(color) = verdict.color else { continue };
            let class = &mut self.classes.classes[usize::from(color.0)];
            if class.len() < keep {
                class.push(page);
            }
        }
        Ok(())
    }

    /// Votes until all pages are decided, or nothing comes of it.
    fn sort(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u64],
        batch: Batch,
        limit: Option<Duration>,
    ) -> Result<Vec<PageVerdict>, ProbeError> {
        self.sort_by(bench, Tally::new(pages, usize::from(self.colors()), batch), limit)
    }

    fn sort_by(
        &mut self,
        bench: &mut dyn TimingBench,
        mut tally: Tally<'_>,
        limit: Option<Duration>,
    ) -> Result<Vec<PageVerdict>, ProbeError> {
        let mut decided = bench.now();
        self.forget_after_rest(decided);
        let mut open: Vec<usize> = (0..tally.pages.len()).collect();
        let (mut now, began) = (decided, bench.worked());
        while !open.is_empty()
            && now.saturating_duration_since(decided) < self.patience
            && limit.is_none_or(|limit| bench.worked() <= began + limit)
        {
            let before = open.len();
            self.pass(bench, &mut open, &mut tally)?;
            now = bench.now();
            if open.len() < before {
                decided = now;
            }
        }
        self.measured = Some(now);
        Ok(tally.verdicts)
    }

    fn forget_after_rest(&mut self, now: Instant) {
        if self.measured.is_none_or(|at| now.saturating_duration_since(at) > REST) {
            self.sizes.rest();
        }
    }

    /// One vote on each of the open pages; those that are decided leave the list.
    fn pass(
        &mut self,
        bench: &mut dyn TimingBench,
        open: &mut Vec<usize>,
        tally: &mut Tally<'_>,
    ) -> Result<(), ProbeError> {
        let mut streamed = tally.streamed.clone();
        self.random.shuffle(&mut streamed);
        let (part, favors, times) = match bench.least_rounds() {
            few if few < streamed.len() && open.len() <= ALONE => {
                (few, FAVORS_ALONE, CONFIRMATIONS_ALONE)
            }
            _ => (usize::MAX, FAVORS, CONFIRMATIONS),
        };
        for some in streamed.chunks(part) {
            self.vote_by(bench, open, some, tally)?;
            open.retain(|&page| !tally.decide(page));
            for _ in 0..times {
                self.favor(bench, open, favors, tally)?;
                open.retain(|&page| !tally.decide(page));
            }
        }
        Ok(())
    }

    /// One vote by these classes on each of the pages.
    fn vote_by(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[usize],
        streamed: &[usize],
        tally: &mut Tally<'_>,
    ) -> Result<(), ProbeError> {
        let largest = tally.largest;
        let choose =
            |sizes: &VoteSizes, open, random: &mut Rng| sizes.choose(open, largest, random);
        self.vote_each(bench, pages, streamed, tally, choose)
    }

    /// The same in batches of a size that is chosen by how many pages are left.
    fn vote_each(
        &mut self,
        bench: &mut dyn TimingBench,
        mut pages: &[usize],
        streamed: &[usize],
        tally: &mut Tally<'_>,
        choose: impl Fn(&VoteSizes, usize, &mut Rng) -> usize,
    ) -> Result<(), ProbeError> {
        while !pages.is_empty() {
            let at_once = bench.most_pages();
            let size = choose(&self.sizes, pages.len().min(at_once), &mut self.random);
            let most = self.sizes.get(size).pages.min(at_once);
            let (some, after) = pages.split_at(pages.len().min(most));
            self.vote(bench, size, some, Streamed::InTurn(streamed), tally)?;
            pages = after;
        }
        Ok(())
    }

    /// Streams only their best class against pages that have one, by such a lead.
    fn favor(
        &mut self,
        bench: &mut dyn TimingBench,
        open: &[usize],
        favors: f32,
        tally: &mut Tally<'_>,
    ) -> Result<(), ProbeError> {
        let mut favored = vec![Vec::new(); tally.colors];
        for &page in open {
            let (color, lead) = leader(tally.scores_of(page));
            if lead >= favors {
                favored[usize::from(color)].push(page);
            }
        }
        self.vote_by_class(bench, &favored, 1, tally)
    }

    /// Streams each class against the pages that are listed for it.
    fn vote_by_class(
        &mut self,
        bench: &mut dyn TimingBench,
        listed: &[Vec<usize>],
        times: usize,
        tally: &mut Tally<'_>,
    ) -> Result<(), ProbeError> {
        for (class, listed) in listed.iter().enumerate() {
            for some in listed.chunks(CONFIRMS) {
                let size = self.sizes.to_confirm(some.len(), tally.largest);
                self.vote(bench, size, some, Streamed::One { class, times }, tally)?;
            }
        }
        Ok(())
    }

    /// One vote on some pages. What its own controls say is learnt first: a change of the weather must not be
    /// judged by the weather before.
    fn vote(
        &mut self,
        bench: &mut dyn TimingBench,
        size: usize,
        pages: &[usize],
        streamed: Streamed<'_>,
        tally: &mut Tally<'_>,
    ) -> Result<(), ProbeError> {
        let started = bench.now();
        let addresses: Vec<u64> = pages.iter().map(|&page| tally.pages[page]).collect();
        let (size, random) = (self.sizes.get(size), &mut self.random);
        let (base, batch) = (bench.reference_base(), tally.batch);
        let (classes, controlled) = match streamed {
            Streamed::InTurn(classes) => (classes.to_vec(), classes),
            Streamed::One { class, times } => (vec![class; times], &tally.streamed[..]),
        };
        let extent = (size.spread, size.stream, size.passes);
        let vote = Vote::new(&self.classes, base, &addresses, extent, (batch, controlled), random);
        let rounds = vote.take(bench, &classes, self.scale, random)?;
        let took = bench.now().saturating_duration_since(started).as_secs_f32();
        let kinds = size.learn(&rounds);
        for (round, &kind) in rounds.iter().zip(&kinds) {
            for &(candidate, bin) in &round.candidates {
                let class = usize::from(round.class);
                tally.scores_of(pages[candidate])[class] += size.ratio(kind, bin);
            }
        }
        if matches!(streamed, Streamed::InTurn(_)) {
            size.account(&kinds, pages.len(), took / classes.len().max(1) as f32);
            tally.expect(pages, classes.len(), size.info());
        }
        self.stats.votes += 1;
        self.stats.rounds += rounds.len() as u64;
        self.stats.noisy += kinds.iter().filter(|&&kind| kind > 0).count() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{ModelBench, Replacement};
    use super::super::params::ProbeParams;
    use super::*;

    const BASE: u64 = 1 << 30;
    const POOL: u64 = 1 << 40;

    fn setup(colors: u16, step: u32) -> (ModelBench, Classifier) {
        let params = ProbeParams::new(colors, 8, 64, 64 * u32::from(colors)).with_clock(step);
        let mut model = ModelBench::new(&params, Replacement::Random, BASE);
        model.populate(BASE, params.candidates, colors);
        let mut classes = vec![Vec::new(); usize::from(colors)];
        for i in 0..params.candidates as u32 {
            classes[usize::from(model.color(BASE + u64::from(i) * 4096))].push(i);
        }
        (model, Classifier::new(ColorClasses { params, classes }))
    }

    fn wrong(model: &ModelBench, pages: &[u64], verdicts: &[PageVerdict]) -> (usize, usize) {
        let wrong = |(page, v): &(&u64, &PageVerdict)| {
            v.color.is_some_and(|color| color.0 != model.color(**page))
        };
        let errors = pages.iter().zip(verdicts).filter(wrong).count();
        (errors, verdicts.iter().filter(|v| v.color.is_none()).count())
    }

    #[test]
    fn a_quiet_machine_gives_every_colour() {
        for (colors, step) in [(2, 1), (3, 26), (16, 1), (16, 36), (100, 26), (254, 24)] {
            let (mut model, mut classifier) = setup(colors, step);
            let pages = model.populate(POOL, 800, colors);
            let verdicts = classifier.classify(&mut model, &pages).unwrap();
            assert_eq!(wrong(&model, &pages, &verdicts), (0, 0), "{colors} colours");
            assert!(verdicts.iter().all(|v| v.lead >= DECIDES));
        }
    }

    #[test]
    fn pages_of_wanted_colours_are_found_at_a_part_of_the_cost() {
        for (evicted, missed) in [(0, 20), (30, 40)] {
            let (mut model, mut classifier) = setup(32, 26);
            model.evicted = evicted;
            let pages = model.populate(POOL, 1500, 32);
            classifier.classify(&mut model, &pages).unwrap();
            let all = classifier.stats().rounds;
            let wanted = ColorSet::from_colors((4..8).map(Color), 32).unwrap();
            let found = classifier.classify_among(&mut model, &pages, Some(&wanted)).unwrap();
            assert_eq!(wrong(&model, &pages, &found).0, 0, "{evicted} %");
            let is_wanted = |page: u64| wanted.contains(Color(model.color(page)));
            let lost =
                pages.iter().zip(&found).filter(|&(&p, v)| is_wanted(p) && v.color.is_none());
            let strays = pages.iter().zip(&found).filter(|&(&p, v)| !is_wanted(p) && !v.is_other);
            let (lost, strays) = (lost.count(), strays.count());
            assert!(lost <= missed && strays <= 15, "{evicted} %: {lost} lost, {strays} undecided");
            let rounds = classifier.stats().rounds - all;
            assert!(rounds * 2 < all, "{evicted} %: {rounds} rounds, {all} for all colours");
        }
    }

    /// As in memory that another partition has given back: nothing comes of it, soon.
    #[test]
    fn a_batch_without_a_wanted_colour_is_over_soon() {
        let (mut model, mut classifier) = setup(16, 26);
        let pages = model.populate(POOL, 1500, 16);
        let pages: Vec<u64> = pages.into_iter().filter(|&page| model.color(page) != 5).collect();
        let wanted = ColorSet::from_colors([Color(5)], 16).unwrap();
        let began = model.now();
        for some in [&pages[..20], &pages[..700]] {
            let found = classifier.classify_among(&mut model, some, Some(&wanted)).unwrap();
            assert!(found.iter().all(|verdict| verdict.color.is_none() && verdict.is_other));
        }
        assert!(model.now().saturating_duration_since(began) < PATIENCE);
    }

    #[test]
    fn a_page_alone_needs_half_of_the_classes() {
        for evicted in [0, 20, 50, 80] {
            let (mut model, mut classifier) = setup(32, 26);
            model.evicted = evicted;
            let pages = model.populate(POOL, 400, 32);
            let sort = |&page: &u64| classifier.classify(&mut model, &[page]).unwrap();
            let found: Vec<PageVerdict> = pages.iter().flat_map(sort).collect();
            let rounds = classifier.stats().rounds / 400;
            assert_eq!(wrong(&model, &pages, &found), (0, 0), "{evicted} %");
            assert!(rounds < 30, "{evicted} %: {rounds} rounds");
        }
    }

    #[test]
    fn calls_of_any_size() {
        let (mut model, mut classifier) = setup(16, 26);
        for n in [0, 1, 2, 11, 12, 13, 143, 145, 703] {
            let pages = model.populate(POOL, n, 16);
            let verdicts = classifier.classify(&mut model, &pages).unwrap();
            assert_eq!(verdicts.len(), n);
            assert_eq!(wrong(&model, &pages, &verdicts), (0, 0), "{n} pages");
        }
    }

    #[test]
    fn pages_of_one_colour_that_evict_each_other() {
        let (mut model, mut classifier) = setup(16, 26);
        let pages = model.populate(POOL, 6000, 16);
        let pages: Vec<u64> = pages.into_iter().filter(|&p| model.color(p) == 5).collect();
        let verdicts = classifier.classify(&mut model, &pages).unwrap();
        assert!(pages.len() > 300 && verdicts.iter().all(|v| v.color == Some(Color(5))));
    }

    #[test]
    fn neighbours_cost_time_and_mislead_nobody() {
        for evicted in [10, 50, 80, 90] {
            let (mut model, mut classifier) = setup(16, 26);
            (model.evicted, model.interrupted) = (evicted, 300);
            let pages = model.populate(POOL, 500, 16);
            let verdicts = classifier.classify(&mut model, &pages).unwrap();
            let (wrong, undecided) = wrong(&model, &pages, &verdicts);
            assert!(wrong <= 1 && undecided <= 5, "{evicted} %: {wrong} wrong, {undecided} not");
            // Windows are so short that few neighbours make a round noisy.
            assert!(evicted < 50 || classifier.stats().noisy > 0, "{evicted} %");
        }
    }

    #[test]
    fn a_class_that_has_just_enough_may_lose_pages() {
        let (mut model, mut classifier) = setup(16, 26);
        let params = classifier.classes.params;
        classifier.classes.classes[3].truncate(params.least_refs());
        for &page in &classifier.classes.classes[3][..4] {
            model.relocate(BASE + u64::from(page) * 4096, 7);
        }
        classifier.heal(&mut model).unwrap();
        let left = classifier.classes.classes[3].len();
        assert!((params.fewest_refs()..params.least_refs()).contains(&left), "{left} pages");
        let pages = model.populate(POOL, 800, 16);
        let verdicts = classifier.classify(&mut model, &pages).unwrap();
        assert_eq!(wrong(&model, &pages, &verdicts), (0, 0));
    }

    #[test]
    fn reference_pages_that_moved_are_put_where_they_belong() {
        let (mut model, mut classifier) = setup(16, 26);
        let all: Vec<u32> = classifier.classes.pages().collect();
        let mut moved = 0;
        for page in all.iter().step_by(7).map(|&page| BASE + u64::from(page) * 4096) {
            model.relocate(page, (model.color(page) + 3) % 16);
            moved += 1;
        }
        let changed = classifier.heal(&mut model).unwrap();
        assert!((moved..moved + all.len() / 100).contains(&changed), "{changed} of {moved}");
        assert!(classifier.heal(&mut model).unwrap() < all.len() / 50);
        let of = |page: u32| usize::from(model.color(BASE + u64::from(page) * 4096));
        let classes = classifier.classes.classes.iter().enumerate();
        let strays = classes.flat_map(|(c, class)| class.iter().filter(move |&&p| of(p) != c));
        assert!(strays.count() <= 1);
    }

    #[test]
    fn reference_pages_without_any_colour_in_common_are_told() {
        let (mut model, mut classifier) = setup(16, 26);
        classifier.patience = Duration::from_millis(20);
        let pages = model.populate(POOL, 100, 16);
        model.populate(BASE, classifier.classes.params.candidates, 16);
        for some in [&pages[..], &pages[..1]] {
            let error = classifier.classify(&mut model, some).unwrap_err();
            assert!(matches!(error, ProbeError::Stale { rounds } if rounds > 0), "{error}");
        }
    }

    #[test]
    fn pages_that_were_moved_are_found_at_a_fraction_of_the_cost() {
        for (evicted, missed) in [(0, 0), (30, 3)] {
            let (sorting, confirming) = sorted_and_confirmed(evicted, missed);
            assert!(confirming * 3 < sorting * 2, "{evicted} %: {confirming:?} of {sorting:?}");
        }
    }

    /// Time of the model that it takes to sort pages, and to find out which of them have been moved since.
    fn sorted_and_confirmed(evicted: usize, missed: usize) -> (Duration, Duration) {
        let (mut model, mut classifier) = setup(16, 26);
        model.evicted = evicted;
        let began = model.worked();
        let pages = model.populate(POOL, 1500, 16);
        let was: Vec<Color> = pages.iter().map(|&p| Color(model.color(p))).collect();
        classifier.classify(&mut model, &pages).unwrap();
        let sorting = model.worked() - began;
        pages.iter().step_by(30).for_each(|&p| model.relocate(p, (model.color(p) + 3) % 16));
        let minute = Duration::from_secs(60);
        let found = classifier.confirm(&mut model, &pages, &was, minute).unwrap();
        let (wrong, undecided) = wrong(&model, &pages, &found);
        assert!(wrong <= missed && undecided <= 5 * missed, "{evicted} %: {wrong}, {undecided}");
        (sorting, model.worked() - began - sorting)
    }

    #[test]
    fn only_a_class_that_something_speaks_for_leads() {
        assert_eq!(leader(&[-9.0, -2.0, -30.0]).1, 0.0);
        assert_eq!(leader(&[-9.0, 5.0, -3.0]), (1, 8.0));
        assert_eq!(leader(&[5.0, 5.0]), (0, 0.0));
    }
}
