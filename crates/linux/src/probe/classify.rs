//! Sorts pages into colours. One vote on a batch takes one round per class: stream pages of
//! the class at the offsets in use, then time one line of every page of the batch. Controls of
//! known class, spread through the batch, give the latency of a line that was not evicted and
//! show whether the round is to be believed. Votes that agree make a verdict; a page on which
//! they do not is undecided rather than wrong. Pages are only loaded, never written.

use std::thread;
use std::time::Duration;

use huepage_color::Color;

use super::bench::{TimingBench, TimingJob, TimingResult};
use super::calibrate::quantile;
use super::classes::ColorClasses;
use super::params::{MAX_ROUNDS, MAX_STREAM, ProbeParams, WARMERS};
use super::timing::RoundDesc;
use super::{ProbeError, Shuffler};

/// What the votes say of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The colour; `None` if the votes disagree.
    pub color: Option<Color>,
    /// Votes for the best colour.
    pub votes_for: u8,
    /// Votes in all; 0 if every attempt was void.
    pub votes: u8,
}

impl Verdict {
    /// Share of the votes for the best colour, 0 to 1.
    pub fn confidence(&self) -> f32 {
        f32::from(self.votes_for) / f32::from(self.votes.max(1))
    }
}

/// What classification has cost since the classifier was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProbeStats {
    /// Rounds run.
    pub rounds: u64,
    /// Rounds whose controls contradicted or that were interrupted.
    pub invalid: u64,
    /// Votes given up because a round stayed invalid.
    pub void_votes: u64,
    /// Pages that needed more votes than planned.
    pub extra: u64,
}

/// How a re-measurement compares with colours known before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    /// Pages of the same colour as before.
    pub same: usize,
    /// Pages of another colour.
    pub different: usize,
    /// Pages that are undecided now.
    pub undecided: usize,
}

/// Lines per vote up to which a small batch tests several lines of each page.
const SMALL: usize = 128;
/// Most lines of one page in a vote.
const MAX_LINES: usize = 8;
/// Extra votes on pages that are undecided.
const MAX_EXTRA: usize = 12;
/// Attempts at a vote before it is given up.
const ATTEMPTS: u32 = 6;
/// Repetitions of the rounds of a vote that are invalid.
const REDO: u32 = 3;

/// Times that pages are sorted anew when every vote was void, and the rest before each.
const CALMS: u32 = 8;
const CALM: Duration = Duration::from_millis(100);

/// Sorts pages by the classes of one cache level.
#[derive(Clone, Debug)]
pub struct Classifier {
    classes: ColorClasses,
    votes: u8,
    random: Shuffler,
    stats: ProbeStats,
}

impl Classifier {
    /// A classifier that takes two votes on every page.
    pub fn new(classes: ColorClasses) -> Classifier {
        let random = Shuffler::new(u64::from(std::process::id()) + 77);
        Classifier { classes, votes: 2, random, stats: ProbeStats::default() }
    }

    /// Takes `votes` votes (1 to 8) before the first decision. One vote costs half as much,
    /// and errs about ten times as often.
    pub fn with_votes(mut self, votes: u8) -> Classifier {
        self.votes = votes.clamp(1, 8);
        self
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
    /// in any number. Large numbers are cheaper per page: batches hold some 700.
    ///
    /// # Errors
    /// `Stale` if all votes on the pages were void, several times over with a rest in between, and
    /// whatever the bench fails of.
    pub fn classify(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u64],
    ) -> Result<Vec<Verdict>, ProbeError> {
        for _ in 1..CALMS {
            match self.classify_once(bench, pages) {
                // Neighbours have noisy moments that pass.
                Err(ProbeError::Stale { .. }) => thread::sleep(CALM),
                result => return result,
            }
        }
        self.classify_once(bench, pages)
    }

    fn classify_once(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u64],
    ) -> Result<Vec<Verdict>, ProbeError> {
        let mut tally = Tally::new(pages.len(), usize::from(self.colors()));
        let before = self.stats;
        let mut open: Vec<usize> = (0..pages.len()).collect();
        for pass in 0..usize::from(self.votes) + MAX_EXTRA {
            if open.is_empty() {
                break;
            }
            if pass == usize::from(self.votes) {
                self.stats.extra += open.len() as u64;
            }
            self.vote_all(bench, pages, &open, &mut tally)?;
            open.retain(|&i| !tally.decide(i, self.votes));
        }
        if !pages.is_empty() && tally.votes.iter().all(|&n| n == 0) {
            let invalid = (self.stats.invalid - before.invalid) as u32;
            return Err(ProbeError::Stale { invalid });
        }
        Ok(tally.verdicts)
    }

    /// Measures pages again and compares with the colours they had.
    ///
    /// # Errors
    /// As [`Self::classify`].
    pub fn recheck(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u64],
        colors: &[Color],
    ) -> Result<Agreement, ProbeError> {
        let mut found = Agreement::default();
        for (verdict, &was) in self.classify(bench, pages)?.iter().zip(colors) {
            match verdict.color {
                Some(color) if color == was => found.same += 1,
                Some(_) => found.different += 1,
                None => found.undecided += 1,
            }
        }
        Ok(found)
    }

    /// One vote on each of the pages named by `which`.
    fn vote_all(
        &mut self,
        bench: &mut dyn TimingBench,
        pages: &[u64],
        which: &[usize],
        tally: &mut Tally,
    ) -> Result<(), ProbeError> {
        for part in which.chunks(self.classes.params.batch) {
            for attempt in 0..ATTEMPTS {
                let lines = self.lines(pages, part);
                if let Some(evicted) = self.vote(bench, &lines)? {
                    tally.add(&lines, &evicted);
                    break;
                }
                self.stats.void_votes += 1;
                if attempt > 1 {
                    thread::sleep(Duration::from_micros(500));
                }
            }
        }
        Ok(())
    }

    /// The lines to time: one per page with all offsets used evenly, or several in a small
    /// batch, where the controls cost more than the pages.
    fn lines(&mut self, pages: &[u64], part: &[usize]) -> Vec<Line> {
        let params = self.classes.params;
        let each = (SMALL / part.len().max(1)).clamp(1, MAX_LINES / params.depth.min(2) as usize);
        let mut lines = Vec::with_capacity(part.len() * each);
        let mut offsets: Vec<u16> =
            (0..params.lines()).map(|i| i as u16 * params.pitch()).collect();
        for (n, &page) in part.iter().enumerate() {
            let line = |offset| Line { page, address: pages[page] + u64::from(offset), offset };
            if each > 1 {
                lines.extend(spread_lines(&params, &mut self.random, each).into_iter().map(line));
                continue;
            }
            if n % offsets.len() == 0 {
                self.random.shuffle(&mut offsets);
            }
            lines.push(line(offsets[n % offsets.len()]));
        }
        lines
    }

    /// One vote: for every line, which classes evicted it. `None` if a round stays invalid.
    fn vote(
        &mut self,
        bench: &mut dyn TimingBench,
        lines: &[Line],
    ) -> Result<Option<Evicted>, ProbeError> {
        let batch = Batch::new(&self.classes, bench.reference_base(), lines, &mut self.random);
        let mut evicted = Evicted::new(lines.len(), usize::from(self.colors()));
        let mut open: Vec<usize> = (0..evicted.colors).collect();
        self.random.shuffle(&mut open);
        for _ in 0..=REDO {
            let mut invalid = Vec::new();
            for some in open.chunks(MAX_ROUNDS.min(MAX_STREAM / self.classes.params.stream)) {
                let job = batch.job(&self.classes, some);
                let result = bench.run(&job)?;
                self.stats.rounds += some.len() as u64;
                invalid.extend(batch.judge(&self.classes, some, &result, &mut evicted));
            }
            self.stats.invalid += invalid.len() as u64;
            if invalid.is_empty() {
                return Ok(Some(evicted));
            }
            open = invalid;
        }
        Ok(None)
    }
}

/// A line under test.
#[derive(Clone, Copy, Debug)]
struct Line {
    page: usize,
    address: u64,
    offset: u16,
}

/// Which classes evicted which line.
struct Evicted {
    cells: Vec<bool>,
    colors: usize,
}

impl Evicted {
    fn new(lines: usize, colors: usize) -> Evicted {
        Evicted { cells: vec![false; lines * colors], colors }
    }
}

/// What a place in the reload list is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Warms the timing code.
    Warmer,
    /// Belongs to the batch: index of the line.
    Candidate(u32),
    /// Is of a known class.
    Control(u16),
}

/// The reload list of one vote: candidates with controls spread among them.
struct Batch {
    base: u64,
    offsets: Vec<u16>,
    reload: Vec<u64>,
    roles: Vec<Role>,
}

impl Batch {
    fn new(classes: &ColorClasses, base: u64, lines: &[Line], random: &mut Shuffler) -> Batch {
        let params = &classes.params;
        let mut offsets: Vec<u16> = lines.iter().map(|line| line.offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        random.shuffle(&mut offsets);
        if params.depth > 1 {
            offsets = params.offsets(random);
        }
        let mut batch = Batch { base, offsets, reload: Vec::new(), roles: Vec::new() };
        let controls = control_order(classes, random);
        for &(class, place) in controls.iter().cycle().take(WARMERS) {
            batch.push_reference(classes, class, place, Role::Warmer);
        }
        let mut next = controls.iter().enumerate().peekable();
        for (i, line) in lines.iter().enumerate() {
            while next.peek().is_some_and(|(k, _)| k * lines.len() <= i * controls.len()) {
                if let Some((_, &(class, place))) = next.next() {
                    batch.push_reference(classes, class, place, Role::Control(class as u16));
                }
            }
            batch.reload.push(line.address);
            batch.roles.push(Role::Candidate(i as u32));
        }
        for (_, &(class, place)) in next {
            batch.push_reference(classes, class, place, Role::Control(class as u16));
        }
        batch
    }

    fn push_reference(&mut self, classes: &ColorClasses, class: usize, place: usize, role: Role) {
        let offset = self.offsets[(self.reload.len() * 5) % self.offsets.len()];
        self.reload.push(self.address(classes, class, place) + u64::from(offset));
        self.roles.push(role);
    }

    fn address(&self, classes: &ColorClasses, class: usize, place: usize) -> u64 {
        self.base + u64::from(classes.classes[class][place]) * 4096
    }

    fn job(&self, classes: &ColorClasses, streamed: &[usize]) -> TimingJob {
        let take = classes.params.stream;
        let mut job = TimingJob {
            offsets: self.offsets.clone(),
            passes: classes.params.passes,
            reload: self.reload.clone(),
            prime: true,
            depth: classes.params.depth,
            ..TimingJob::default()
        };
        for &class in streamed {
            job.rounds.push(RoundDesc { first: job.stream.len() as u32, len: take as u32 });
            job.stream.extend((0..take).map(|place| self.address(classes, class, place)));
        }
        job
    }

    /// Notes which candidates each round evicted; returns the classes of invalid rounds.
    fn judge(
        &self,
        classes: &ColorClasses,
        streamed: &[usize],
        result: &TimingResult,
        evicted: &mut Evicted,
    ) -> Vec<usize> {
        let params = &classes.params;
        let loads = params.stream * self.offsets.len() * params.passes as usize;
        let limit =
            classes.calibration.limit(loads, self.reload.len() * classes.params.depth as usize);
        let mut invalid = Vec::new();
        for (round, &class) in streamed.iter().enumerate() {
            let latencies = result.round(round, self.reload.len());
            let timely = result.elapsed[round] <= limit;
            if !timely || !self.judge_round(classes, class, latencies, evicted) {
                invalid.push(class);
            }
        }
        invalid
    }

    /// Judges one round, segment by segment, as latencies drift within it. Says whether its
    /// controls behaved; what is noted of an invalid round is overwritten by its repetition.
    fn judge_round(
        &self,
        classes: &ColorClasses,
        class: usize,
        latencies: &[u16],
        evicted: &mut Evicted,
    ) -> bool {
        let per_class = classes.params.controls;
        let others = per_class * (evicted.colors - 1);
        let segment = self.reload.len().div_ceil((others / 8).clamp(1, 4));
        let (mut own_out, mut others_out) = (0, 0);
        for (roles, ticks) in self.roles.chunks(segment).zip(latencies.chunks(segment)) {
            let base: Vec<u16> = roles
                .iter()
                .zip(ticks)
                .filter(|(r, _)| matches!(r, Role::Control(c) if usize::from(*c) != class))
                .map(|(_, &t)| t)
                .collect();
            let threshold = quantile(&base, 50).saturating_add(classes.calibration.gap);
            for (role, &ticks) in roles.iter().zip(ticks) {
                let out = ticks > threshold;
                match *role {
                    Role::Candidate(i) => evicted.cells[i as usize * evicted.colors + class] = out,
                    Role::Control(c) if usize::from(c) == class => own_out += usize::from(out),
                    Role::Control(_) => others_out += usize::from(out),
                    Role::Warmer => {}
                }
            }
        }
        let needed = if per_class > 1 { per_class - (per_class / 8).max(1) } else { 1 };
        own_out >= needed && others_out * 8 <= others
    }
}

/// The controls of a batch, as class and place in the class: `controls` rows, each of all
/// classes in random order, none of them a page that is streamed.
fn control_order(classes: &ColorClasses, random: &mut Shuffler) -> Vec<(usize, usize)> {
    let params = &classes.params;
    let mut row: Vec<usize> = (0..classes.classes.len()).collect();
    let mut order = Vec::with_capacity(row.len() * params.controls);
    let turn = random.below(1 << 16);
    for control in 0..params.controls {
        random.shuffle(&mut row);
        for &class in &row {
            let spare = classes.classes[class].len() - params.stream;
            order.push((class, params.stream + (turn + control) % spare));
        }
    }
    order
}

/// Up to `n` offsets of lines such that none disturbs another: not the neighbour that a prefetcher
/// brings along, and no two at the same place of both halves of the page. A page of 4 KiB has room
/// for 16 lines of 64 bytes.
fn spread_lines(params: &ProbeParams, random: &mut Shuffler, n: usize) -> Vec<u16> {
    let pitch = params.pitch();
    let mut pairs: Vec<u16> = (0..(params.lines() as u16 / 4).max(1)).collect();
    random.shuffle(&mut pairs);
    pairs.truncate(n);
    let place = |pair: u16| {
        let bits = random.next() >> 20;
        (pair * 2 + (bits & 1) as u16) * pitch + (bits >> 1 & 1) as u16 * 2048
    };
    pairs.into_iter().map(place).collect()
}

/// The votes on all pages of one call.
struct Tally {
    scores: Vec<u8>,
    votes: Vec<u8>,
    colors: usize,
    verdicts: Vec<Verdict>,
}

impl Tally {
    fn new(pages: usize, colors: usize) -> Tally {
        Tally {
            scores: vec![0; pages * colors],
            votes: vec![0; pages],
            colors,
            verdicts: vec![Verdict::default(); pages],
        }
    }

    fn add(&mut self, lines: &[Line], evicted: &Evicted) {
        for (line, cells) in lines.iter().zip(evicted.cells.chunks(self.colors)) {
            self.votes[line.page] += 1;
            let scores = &mut self.scores[line.page * self.colors..][..self.colors];
            scores.iter_mut().zip(cells).for_each(|(score, &out)| *score += u8::from(out));
        }
    }

    /// Updates the verdict on a page; whether it is decided.
    fn decide(&mut self, page: usize, needed: u8) -> bool {
        let scores = &self.scores[page * self.colors..][..self.colors];
        let votes = self.votes[page];
        let (color, best, second) = best_two(scores);
        let sure = clear(votes, best, second, needed);
        let color = sure.then_some(Color(color));
        self.verdicts[page] = Verdict { color, votes_for: best, votes };
        sure
    }
}

/// The best colour, its votes, and the votes of the next best.
fn best_two(scores: &[u8]) -> (u16, u8, u8) {
    let (mut color, mut best, mut second) = (0, 0, 0);
    for (i, &score) in scores.iter().enumerate() {
        if score > best {
            (color, best, second) = (i as u16, score, best);
        } else {
            second = second.max(score);
        }
    }
    (color, best, second)
}

/// Whether the votes decide: all for one and hardly any for another, or, when there were
/// more of them, a lead of two and two thirds of the votes.
fn clear(votes: u8, best: u8, second: u8, needed: u8) -> bool {
    let united = votes >= needed && best == votes && second <= votes / 2 && votes > 0;
    let led = votes >= 3 && best >= second + 2 && u16::from(best) * 3 >= u16::from(votes) * 2;
    united || (votes >= needed && led)
}

#[cfg(test)]
mod tests {
    use super::super::calibrate::Calibration;
    use super::super::model::ModelBench;
    use super::*;

    const BASE: u64 = 1 << 30;
    const POOL: u64 = 1 << 40;

    fn setup(colors: u16, seed: u64) -> (ModelBench, Classifier) {
        let params = ProbeParams::new(colors, 16, 64, 64 * u32::from(colors));
        let mut model = ModelBench::new(16, BASE, seed);
        let count = u32::from(colors) * 90;
        model.populate(BASE, count as usize, colors);
        let mut classes = vec![Vec::new(); usize::from(colors)];
        for i in 0..count {
            classes[usize::from(model.color(BASE + u64::from(i) * 4096))].push(i);
        }
        let calibration = Calibration { gap: 20, pace: 10.0 };
        (model, Classifier::new(ColorClasses { params, calibration, classes }))
    }

    fn wrong(model: &ModelBench, pages: &[u64], verdicts: &[Verdict]) -> (usize, usize) {
        let wrong = |(page, v): &(&u64, &Verdict)| {
            v.color.is_some_and(|color| color.0 != model.color(**page))
        };
        let errors = pages.iter().zip(verdicts).filter(wrong).count();
        (errors, verdicts.iter().filter(|v| v.color.is_none()).count())
    }

    #[test]
    fn a_quiet_machine_gives_every_colour() {
        for colors in [2, 3, 16, 100, 254] {
            let (mut model, mut classifier) = setup(colors, 1);
            let pages = model.populate(POOL, 1500, colors);
            let verdicts = classifier.classify(&mut model, &pages).unwrap();
            assert_eq!(wrong(&model, &pages, &verdicts), (0, 0), "{colors} colours");
            assert!(verdicts.iter().all(|v| v.votes == 2 && v.confidence() == 1.0));
        }
    }

    #[test]
    fn batches_of_any_size() {
        let (mut model, mut classifier) = setup(16, 2);
        for n in [0, 1, 2, 3, 17, 63, 64, 65, 703, 705] {
            let pages = model.populate(POOL, n, 16);
            let verdicts = classifier.classify(&mut model, &pages).unwrap();
            assert_eq!(verdicts.len(), n);
            assert_eq!(wrong(&model, &pages, &verdicts), (0, 0), "{n} pages");
        }
    }

    #[test]
    fn a_batch_of_one_colour() {
        let (mut model, mut classifier) = setup(16, 3);
        let pages = model.populate(POOL, 8000, 16);
        let pages: Vec<u64> = pages.into_iter().filter(|&p| model.color(p) == 5).collect();
        let verdicts = classifier.classify(&mut model, &pages).unwrap();
        assert!(verdicts.iter().all(|v| v.color == Some(Color(5))));
    }

    #[test]
    fn noise_leaves_pages_undecided_rather_than_wrong() {
        let (mut model, mut classifier) = setup(16, 4);
        (model.wrong, model.interrupted, model.drift) = (100, 500, 5);
        let pages = model.populate(POOL, 10_000, 16);
        let verdicts = classifier.classify(&mut model, &pages).unwrap();
        let (wrong, undecided) = wrong(&model, &pages, &verdicts);
        assert!(wrong <= 10 && undecided <= 100, "{wrong} wrong, {undecided} undecided");
        let stats = classifier.stats();
        assert!(stats.invalid > 0 && stats.extra > 0 && stats.rounds > stats.invalid, "{stats:?}");
    }

    #[test]
    fn references_that_changed_are_noticed() {
        let (mut model, mut classifier) = setup(16, 5);
        let pages = model.populate(POOL, 100, 16);
        model.populate(BASE, 16 * 90, 16);
        let error = classifier.classify(&mut model, &pages).unwrap_err();
        assert!(matches!(error, ProbeError::Stale { invalid } if invalid > 0), "{error}");
    }

    #[test]
    fn a_recheck_finds_pages_that_changed() {
        let (mut model, mut classifier) = setup(16, 6);
        let pages = model.populate(POOL, 300, 16);
        let was: Vec<Color> = pages.iter().map(|&p| Color(model.color(p))).collect();
        let moved = pages[7];
        model.moved.insert(moved, (model.color(moved) + 1) % 16);
        let found = classifier.recheck(&mut model, &pages, &was).unwrap();
        assert_eq!(found, Agreement { same: 299, different: 1, undecided: 0 });
    }

    #[test]
    fn votes_decide_only_when_they_are_clear() {
        assert!(clear(2, 2, 0, 2) && clear(2, 2, 1, 2) && clear(1, 1, 0, 1));
        assert!(!clear(2, 2, 2, 2) && !clear(2, 1, 0, 2) && !clear(1, 1, 1, 1));
        assert!(!clear(1, 1, 0, 2) && !clear(0, 0, 0, 1));
        assert!(clear(3, 2, 0, 2) && !clear(3, 2, 1, 2) && !clear(4, 2, 0, 2));
        assert!(clear(8, 7, 1, 2) && !clear(8, 5, 0, 2));
    }

    #[test]
    fn spread_lines_share_neither_pair_nor_half() {
        let params = ProbeParams::new(16, 16, 64, 1024);
        let mut random = Shuffler::new(3);
        for _ in 0..100 {
            let lines = spread_lines(&params, &mut random, 9);
            let mut pairs: Vec<u16> = lines.iter().map(|o| o % 2048 / 128).collect();
            pairs.sort_unstable();
            pairs.dedup();
            assert_eq!(pairs.len(), 9);
            assert!(lines.iter().all(|&o| o < 4096 && o % 64 == 0), "{lines:?}");
        }
    }
}
