//! Builds the colour classes from nothing: which of a pool of candidate pages compete for the same
//! sets. A regression (`regress`) gives, for each of some pages ("pivots"), how much more
//! each page of the pool slows it down than others do; pivots of one colour are slowed down by the
//! same pages. Groups of such pivots are suspicions, which are put to the test: pages of a group have to
//! evict each other. Groups that do become classes, the classifier sorts the pool by them, and the search
//! goes on among the pages that are in no class: there are fewer of them each time, of fewer colours.
//! Where the pages come from is not its business.

use std::cmp::Reverse;
use std::time::Duration;

use huepage_color::PAGE_BYTES;

use super::ProbeError;
use super::bench::TimingBench;
use super::classes::ColorClasses;
use super::classify::Classifier;
use super::params::ProbeParams;
use super::regress::{Group, Regression, merge, regress, similarity};
use super::vote_size::VoteSizes;
use fastrand::Rng;

/// Likeness of a pivot's row to a group from which on the pivot belongs to it, and of two groups from
/// which on they are one; in standard deviations of the likeness of rows without anything in common.
const LIKE: f32 = 6.0;
const SAME: f32 = 8.0;
/// Searches in a row without a new class after which what is left is sorted again, and added to in the next; after
/// which it is looked whether two are of one colour; and after which all are given up. Regressions that bring
/// nothing are too short, so that the next are longer, up to so many times.
const SWEEP: u32 = 2;
const TWINS: u32 = 3;
const GIVE_UP: u32 = 4;
/// Classes that are given up because they may have two colours, without there being more after it, until all are.
const DISSOLVED: u32 = 6;
/// Suspicions for each missing colour that are kept, the surest.
const SUSPECTED: usize = 3;
const LONGEST: u32 = 8;
/// What is tried in turn: subsets of so many halves of the lines that fill the cache, and whether all lines
/// of pages are streamed. One page more makes the largest difference around as many lines as ways
/// where the oldest is evicted, beyond that elsewhere. Some lines of pages take a quarter of the time,
/// in which neighbours evict less; but some caches mix high address bits into the place of a line
/// within its page, so that all lines have to be streamed. That is left out while searches without bring classes.
const HOW: [(usize, bool); 3] = [(2, false), (4, false), (3, true)];
const PARTS: usize = 2;
/// Pages of a group that are timed to see which groups evict them; votes on that, which double with each pool, so
/// often; and the likelihood, in nats, of half of the pages from which on a group does.
const SAMPLED: usize = 5;
const VOTES: u32 = 3;
const MORE_VOTES: u32 = 4;
const EVICT: f32 = 8.0;
/// Of what speaks for the surest, what has to speak for others: less do pages of two colours, each of which
/// is streamed too little to evict all.
const SURE: f32 = 0.4;
/// A class may have two colours if it has more than so many halves of the median of all, and what is left if it has
/// more than so many of what a colour has in the mean.
const LARGE: usize = 3;
/// Pages that may still change their class, of 100, when classes are taken to be right.
const STRAY: usize = 2;
/// Times that the pool is sorted by what seems to be all classes.
const SORTS: u32 = 5;
/// Candidates that are sorted together to fill classes that have too few pages, and how often at most for those that
/// have enough, but fewer than are worth keeping.
const MORE: usize = 512;
const FILLS: usize = 16;
/// CPU time to sort by suspected classes, per page and pool so far, and for how many pages at least: each class
/// is streamed however few they are.
const SORTING: Duration = Duration::from_micros(60);
const LEAST_SORTED: usize = 512;
/// Candidates are added until so many pages of those that colours have in the mean are left for each missing one,
/// so many times at most in one search. Those that bring less than one of so many that are wanted are followed by
/// others from elsewhere in memory.
const GROWTHS: u32 = 6;
const POOR: usize = 8;

/// Where candidates come from.
pub trait CandidateSource {
    /// More candidates, which lie elsewhere in memory than those before: populated pages, by their index relative to
    /// the bench's reference base. None when there are no more.
    ///
    /// # Errors
    /// `Os` if not even the first can be had.
    fn more(&mut self) -> Result<Vec<u32>, ProbeError>;
}

/// Pages that are there already come all at once.
impl CandidateSource for Vec<u32> {
    fn more(&mut self) -> Result<Vec<u32>, ProbeError> {
        Ok(std::mem::take(self))
    }
}

/// Builds the classes out of some of the candidates, in about `limit` of CPU time at most.
///
/// # Errors
/// `Classes` if not all classes were found, and whatever the bench or the source fails of.
pub fn build_classes(
    bench: &mut dyn TimingBench,
    params: &ProbeParams,
    source: &mut dyn CandidateSource,
    limit: Duration,
) -> Result<ColorClasses, ProbeError> {
    let mut builder = Builder::new(params, source, bench.reference_base())?;
    let until = bench.worked() + limit;
    while bench.worked() < until {
        builder.search(bench)?;
        builder.adopt(bench)?;
        if builder.missing() == 0
            && let Some(found) = builder.settle(bench)?
        {
            return Ok(found);
        }
    }
    let expected = params.colors;
    let (turn, seconds) = (builder.turn, limit.as_secs());
    let why = format!("{turn} searches in {seconds} s of CPU time gave no more");
    Err(ProbeError::Classes { found: builder.most.min(expected - 1), expected, why })
}

struct Builder<'a> {
    params: &'a ProbeParams,
    source: &'a mut dyn CandidateSource,
    /// Where the reference pages are mapped.
    base: u64,
    /// The candidates so far in random order; those that were not drawn are at the end.
    candidates: Vec<u32>,
    /// Pages that were drawn into this pool, and how many pools there were.
    pool: usize,
    draws: u32,
    /// How often all classes seemed to be found and did not settle.
    unsettled: u32,
    /// Classes of pages of the pool, and its pages that are in none. Pages that were drawn for colours of which
    /// there are few are in none of these if they are of another.
    classes: Vec<Vec<u32>>,
    rest: Vec<u32>,
    /// Suspicions among the rest.
    groups: Vec<Group>,
    /// What is known of votes.
    sizes: VoteSizes,
    random: Rng,
    /// Searches, in all and since there was a new class.
    turn: u32,
    stuck: u32,
    /// Classes that were given up because they may have two colours since there were more of them than ever.
    dissolved: u32,
    /// Most classes that there ever were.
    most: u16,
}

impl<'a> Builder<'a> {
    fn new(
        params: &'a ProbeParams,
        source: &'a mut dyn CandidateSource,
        base: u64,
    ) -> Result<Builder<'a>, ProbeError> {
        let mut builder = Builder {
            params,
            candidates: source.more()?,
            source,
            base,
            pool: 0,
            draws: 0,
            unsettled: 0,
            classes: Vec::new(),
            rest: Vec::new(),
            groups: Vec::new(),
            sizes: VoteSizes::new(params),
            random: Rng::with_seed(base),
            turn: 0,
            stuck: 0,
            dissolved: 0,
            most: 0,
        };
        builder.draw_pool()?;
        Ok(builder)
    }

    /// Begins anew, with a pool of other pages, half as many more each time and from more memory: of the rarest
    /// colour there may have been too few.
    fn draw_pool(&mut self) -> Result<(), ProbeError> {
        if self.draws > 0 {
            self.candidates.extend(self.source.more()?);
        }
        self.random.shuffle(&mut self.candidates);
        let size = self.params.candidates * (2 + self.draws as usize) / 2;
        self.pool = size.min(self.candidates.len());
        self.rest = self.candidates[..self.pool].to_vec();
        self.classes.clear();
        self.groups.clear();
        (self.draws, self.stuck, self.dissolved) = (self.draws + 1, 0, 0);
        Ok(())
    }

    /// Colours of which there is no class.
    fn missing(&self) -> usize {
        usize::from(self.params.colors) - self.classes.len()
    }

    /// Whether half of the colours or more have a class.
    fn knows_most(&self) -> bool {
        self.missing() * 2 <= usize::from(self.params.colors)
    }

    /// Votes on pages of a group: where neighbours evict most of everything, one says little.
    fn votes(&self) -> u32 {
        VOTES << self.effort()
    }

    /// CPU time to sort so many pages.
    fn sorting(&self, pages: usize) -> Duration {
        SORTING * pages.max(LEAST_SORTED) as u32 * (1 << self.effort())
    }

    /// How often votes and time to sort are doubled: with each pool and with each time that what seemed to be all
    /// classes did not settle.
    fn effort(&self) -> u32 {
        (self.draws - 1 + self.unsettled).min(MORE_VOTES)
    }

    /// Pages that a group needs to be put to the test.
    fn least(&self) -> usize {
        self.params.least_refs() + SAMPLED
    }

    /// One regression among the rest; its pivots are added to the groups.
    fn search(&mut self, bench: &mut dyn TimingBench) -> Result<(), ProbeError> {
        self.turn += 1;
        self.stuck += 1;
        if self.stuck == TWINS || self.missing() == 0 {
            self.drop_twins(bench)?;
        }
        let few = |builder: &Self| builder.rest.len() < builder.least();
        let hidden = few(self) || self.stuck > 1 && self.knows_most();
        if self.missing() > 0 && !(hidden && self.dissolve_large()) {
            if few(self) || self.stuck > SWEEP && self.knows_most() {
                self.grow(bench)?;
            }
            if few(self) && !self.dissolve_large() {
                self.dissolve_least_sure(bench)?;
            }
        }
        if self.stuck > GIVE_UP || self.dissolved > DISSOLVED || few(self) || self.missing() == 0 {
            self.draw_pool()?;
        }
        let rows = if self.may_be_one_class() { Vec::new() } else { self.regress(bench)? };
        if rows.is_empty() && self.has_few_left() {
            // Nothing to tell it from: what is left has to be one colour, but for some strays.
            self.random.shuffle(&mut self.rest);
            self.groups = vec![Group { center: vec![1.0; self.rest.len()], members: 1 }];
            return Ok(());
        }
        let chance = (self.rest.len() as f32).sqrt().recip();
        for row in rows {
            let likeness = |group: &Group| similarity(&row, &group.center);
            let best = self.groups.iter().map(likeness).enumerate();
            match best.max_by(|a, b| a.1.total_cmp(&b.1)) {
                Some((group, like)) if like > LIKE * chance => self.groups[group].add(&row, 1),
                _ => self.groups.push(Group { center: row, members: 1 }),
            }
        }
        merge(&mut self.groups, SAME * chance);
        Ok(())
    }

    fn regress(&mut self, bench: &mut dyn TimingBench) -> Result<Vec<Vec<f32>>, ProbeError> {
        let needs_whole = self.classes.is_empty() || self.stuck > 1;
        let ways = if needs_whole { &HOW[..] } else { &HOW[..PARTS] };
        let (halves, whole) = ways[(self.turn as usize - 1) % ways.len()];
        // Those among few pages take little.
        let longer = if self.knows_most() { 2 * self.stuck } else { self.stuck / 2 };
        let times = (self.draws + longer).min(LONGEST);
        let how = Regression { colors: self.missing().max(2), halves, whole, times };
        let address = |&page: &u32| self.base + u64::from(page) * PAGE_BYTES;
        let addresses: Vec<u64> = self.rest.iter().map(address).collect();
        let pivots: Vec<usize> =
            (0..how.pivots()).map(|_| self.random.usize(..self.rest.len())).collect();
        regress(bench, self.params, &addresses, &pivots, how, &mut self.random)
    }

    /// Whether the pages that are left may all be of the one missing colour. If they were not the last time, they
    /// are searched.
    fn may_be_one_class(&self) -> bool {
        self.missing() == 1 && self.has_few_left() && self.stuck % 2 == 1
    }

    /// Whether fewer pages are left than two colours have.
    fn has_few_left(&self) -> bool {
        self.rest.len() * usize::from(self.params.colors) * 2 < LARGE * self.pool
    }

    /// Adds candidates of no class to the rest until it has enough for the missing colours, of which memory that a
    /// confined program has just given back has few or none. Those of a known colour go into its class if that has
    /// few.
    fn grow(&mut self, bench: &mut dyn TimingBench) -> Result<(), ProbeError> {
        let enough = self.missing() * self.mean();
        for _ in 0..GROWTHS {
            let before = self.rest.len();
            if before >= enough {
                break;
            }
            let end = self.candidates.len().min(self.pool + self.params.candidates);
            let more = self.candidates[self.pool..end].to_vec();
            self.pool = end;
            self.sort_more(bench, more)?;
            if (self.rest.len() - before) * POOR < enough && !self.draw_elsewhere()? {
                break;
            }
        }
        Ok(())
    }

    /// Adds candidates: of no class to the rest, of a class that has few to it.
    fn sort_more(&mut self, bench: &mut dyn TimingBench, more: Vec<u32>) -> Result<(), ProbeError> {
        let limit = self.sorting(more.len());
        let keep = self.params.keep_refs();
        let sort = |probe: &mut Classifier| probe.assign(bench, &more, limit);
        let sorted = self.classify(self.classes.clone(), sort)?;
        for (page, class) in more.into_iter().zip(sorted) {
            match class.map(|class| &mut self.classes[class]) {
                Some(class) if class.len() < keep => class.push(page),
                Some(_) => {}
                None => self.rest.push(page),
            }
        }
        self.groups.clear();
        Ok(())
    }

    /// Has the next candidates come from elsewhere in memory; whether there are any.
    fn draw_elsewhere(&mut self) -> Result<bool, ProbeError> {
        let mut more = self.source.more()?;
        if more.is_empty() {
            return Ok(self.pool < self.candidates.len());
        }
        self.random.shuffle(&mut more);
        self.candidates.truncate(self.pool);
        self.candidates.extend(more);
        Ok(true)
    }

    /// Pages of each colour in a first pool, in the mean.
    fn mean(&self) -> usize {
        self.params.candidates / usize::from(self.params.colors)
    }

    /// Gives up one of the classes that are so much larger than most that they may have two colours, the largest
    /// first; whether there was one that was not given up before. Memory may as well have many pages of a colour.
    fn dissolve_large(&mut self) -> bool {
        let large = self.large_classes();
        let next = large.get(self.dissolved as usize).copied();
        if let Some(class) = next {
            self.dissolve(class);
            self.dissolved += 1;
        }
        next.is_some()
    }

    /// Classes that are much larger than most, the largest first.
    fn large_classes(&self) -> Vec<usize> {
        let size = |&class: &usize| self.classes[class].len();
        let mut order: Vec<usize> = (0..self.classes.len()).collect();
        order.sort_by_key(|class| Reverse(size(class)));
        let usual = order.get(order.len() / 2).map_or(0, size);
        order.retain(|class| size(class) * 2 > LARGE * usual);
        order
    }

    /// Gives up the class that evicts its own pages least: where a colour is missing and no pages are left, one
    /// has two. If that was another, the next that does.
    fn dissolve_least_sure(&mut self, bench: &mut dyn TimingBench) -> Result<(), ProbeError> {
        let evicts = self.compare_classes(bench)?;
        let mut order: Vec<usize> = (0..evicts.len()).collect();
        order.sort_by(|&a, &b| evicts[a][a].total_cmp(&evicts[b][b]));
        let before = (self.dissolved as usize).saturating_sub(self.large_classes().len());
        if let Some(&class) = order.get(before % order.len().max(1)) {
            self.dissolve(class);
        }
        self.dissolved += 1;
        Ok(())
    }

    fn dissolve(&mut self, class: usize) {
        self.rest.extend(self.classes.swap_remove(class));
        // Pages of one class that are timed together would evict each other.
        self.random.shuffle(&mut self.rest);
        self.groups.clear();
    }

    /// How surely each class evicts some pages of each.
    fn compare_classes(
        &mut self,
        bench: &mut dyn TimingBench,
    ) -> Result<Vec<Vec<f32>>, ProbeError> {
        self.classes.iter_mut().for_each(|class| self.random.shuffle(class));
        let sample = |class: &Vec<u32>| class.iter().take(SAMPLED).copied().collect();
        let samples: Vec<Vec<u32>> = self.classes.iter().map(sample).collect();
        let votes = self.votes();
        self.classify(self.classes.clone(), |probe| probe.compare(bench, &samples, votes))
    }

    /// Gives up classes that are of the same colour as another: their pages are in none again.
    fn drop_twins(&mut self, bench: &mut dyn TimingBench) -> Result<(), ProbeError> {
        if self.classes.is_empty() {
            return Ok(());
        }
        let evicts = self.compare_classes(bench)?;
        for class in (0..evicts.len()).rev() {
            let twin = |other: usize| {
                let (one, two) = (evicts[class][other], evicts[other][class]);
                one.min(two) > 0.0 && one + two > EVICT
            };
            if (0..class).any(twin) {
                self.dissolve(class);
            }
        }
        Ok(())
    }

    /// Puts the groups to the test. Those whose pages evict each other become classes, and the rest is sorted
    /// by all classes; those that evict pages of another are one with it; the others stay suspicions.
    fn adopt(&mut self, bench: &mut dyn TimingBench) -> Result<(), ProbeError> {
        let known = self.classes.len();
        let (mut found, suspected) = self.prove(bench)?;
        self.groups = suspected;
        if found.is_empty() {
            // Pages of known classes may hide those that are searched.
            let sweep = known > 0 && self.stuck == SWEEP;
            return if sweep { self.sort_rest(bench, known) } else { Ok(()) };
        }
        found.truncate(self.missing());
        let best: Vec<Vec<u32>> = found.iter().map(|group| self.best_pages(group).0).collect();
        self.classes.extend(best);
        self.sort_rest(bench, known)?;
        if self.classes.len() > known {
            self.stuck = 0;
        }
        if self.classes.len() > usize::from(self.most) {
            (self.most, self.dissolved) = (self.classes.len() as u16, 0);
        }
        Ok(())
    }

    /// Sorts the rest by all classes. Those from `known` on are made of pages of the rest, and keep those that
    /// are not found to be of another: what is streamed cannot be judged. One that keeps too few was of another
    /// colour than it seemed to be, and is given up.
    fn sort_rest(&mut self, bench: &mut dyn TimingBench, known: usize) -> Result<(), ProbeError> {
        let limit = self.sorting(self.rest.len());
        let rest = self.rest.clone();
        let sort = |probe: &mut Classifier| probe.assign(bench, &rest, limit);
        let sorted = self.classify(self.classes.clone(), sort)?;
        let made = self.classes.split_off(known);
        self.classes.resize(known + made.len(), Vec::new());
        let own =
            |page: u32| made.iter().position(|class| class.contains(&page)).map(|i| known + i);
        let class = |(&page, sorted): (&u32, Option<usize>)| sorted.or_else(|| own(page));
        let found: Vec<Option<usize>> = self.rest.iter().zip(sorted).map(class).collect();
        for (&page, class) in self.rest.iter().zip(&found) {
            class.iter().for_each(|&class| self.classes[class].push(page));
        }
        let left: Vec<bool> = found.iter().map(Option::is_none).collect();
        let mut keep = left.iter();
        self.rest.retain(|_| keep.next() == Some(&true));
        self.groups.iter_mut().for_each(|group| group.keep(&left));
        for class in (known..self.classes.len()).rev() {
            if self.classes[class].len() < self.params.fewest_refs() {
                self.dissolve(class);
            }
        }
        Ok(())
    }

    /// Groups that evict their own pages and those of no class, each once, the surest first; and those of
    /// which it is not sure.
    fn prove(
        &mut self,
        bench: &mut dyn TimingBench,
    ) -> Result<(Vec<Group>, Vec<Group>), ProbeError> {
        if self.groups.is_empty() {
            return Ok((Vec::new(), Vec::new()));
        }
        let known = self.classes.len();
        let groups = std::mem::take(&mut self.groups);
        let (best, samples): (Vec<_>, Vec<_>) =
            groups.iter().map(|group| self.best_pages(group)).unzip();
        let classes = self.classes.iter().cloned().chain(best).collect();
        let votes = self.votes();
        let evicts = self.classify(classes, |probe| probe.compare(bench, &samples, votes))?;
        let own = |group: usize| evicts[group][known + group];
        let mut order: Vec<(usize, Group)> = groups.into_iter().enumerate().collect();
        order.sort_by(|a, b| own(b.0).total_cmp(&own(a.0)));
        let mut kept: Vec<(usize, Group)> = Vec::with_capacity(order.len());
        for (group, found) in order {
            let both = |other: usize| evicts[group][known + other] + evicts[other][known + group];
            let twin = kept.iter_mut().find(|(other, _)| both(*other) > EVICT);
            if let Some((_, twin)) = twin {
                twin.add(&found.center, found.members);
            } else if own(group) > -EVICT && evicts[group][..known].iter().all(|&e| e < EVICT) {
                kept.push((group, found));
            }
        }
        let least = kept.first().map_or(EVICT, |(surest, _)| EVICT.max(SURE * own(*surest)));
        let sure = kept.iter().take_while(|(group, _)| own(*group) >= least).count();
        let mut unsure = kept.split_off(sure);
        unsure.truncate(SUSPECTED * self.missing());
        let groups = |list: Vec<(usize, Group)>| list.into_iter().map(|(_, group)| group).collect();
        Ok((groups(kept), groups(unsure)))
    }

    /// The pages of the rest that fit best into a group: enough to stream and to control, and some others.
    fn best_pages(&self, group: &Group) -> (Vec<u32>, Vec<u32>) {
        let mut order: Vec<usize> = (0..self.rest.len()).collect();
        order.sort_by(|&a, &b| group.center[b].total_cmp(&group.center[a]));
        let pages = |places: &[usize]| places.iter().map(|&place| self.rest[place]).collect();
        let (best, others) = order.split_at(self.params.least_refs());
        (pages(best), pages(&others[..SAMPLED]))
    }

    fn classifier(&self, classes: Vec<Vec<u32>>) -> Classifier {
        let params = ProbeParams { colors: classes.len() as u16, ..*self.params };
        Classifier::new(ColorClasses { params, classes }).with_sizes(self.sizes.clone())
    }

    /// Has a classifier by these classes do something; what it learns of votes is kept.
    fn classify<T>(
        &mut self,
        classes: Vec<Vec<u32>>,
        work: impl FnOnce(&mut Classifier) -> T,
    ) -> T {
        let mut probe = self.classifier(classes);
        let found = work(&mut probe);
        self.sizes = probe.into_sizes();
        found
    }

    /// Sorts the pool by all classes until it stays as it is; `None` if it does not.
    fn settle(&mut self, bench: &mut dyn TimingBench) -> Result<Option<ColorClasses>, ProbeError> {
        let mut probe = self.classifier(self.classes.clone());
        let mut pages = [self.classes.concat(), self.rest.clone()].concat();
        // As in `dissolve`.
        self.random.shuffle(&mut pages);
        let limit = self.sorting(pages.len());
        let mut before = pages.len();
        for _ in 0..SORTS {
            let least = self.params.fewest_refs();
            match probe.heal_with(bench, &pages, least, Some(limit)) {
                Ok(changed) if changed * 100 <= pages.len() * STRAY => {
                    return self.fill(bench, probe);
                }
                Ok(changed) if changed < before => before = changed,
                Ok(_) | Err(ProbeError::Stale { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        self.unsettled += 1;
        Ok(None)
    }

    /// Adds candidates that were not drawn until every class has as many as are worth keeping: one that has just enough
    /// could not lose a page. Of a rare colour fewer have to do. `None` if there are too few of one.
    fn fill(
        &self,
        bench: &mut dyn TimingBench,
        mut probe: Classifier,
    ) -> Result<Option<ColorClasses>, ProbeError> {
        let (keep, least) = (self.params.keep_refs(), self.params.least_refs());
        let smallest = |probe: &Classifier| probe.classes().classes.iter().map(Vec::len).min();
        for (turn, more) in self.candidates[self.pool..].chunks(MORE).enumerate() {
            let enough = if turn < FILLS { keep } else { least };
            if smallest(&probe) >= Some(enough) {
                break;
            }
            probe.add(bench, more)?;
        }
        Ok((smallest(&probe) >= Some(least)).then(|| probe.classes().clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{ModelBench, Replacement};
    use super::*;

    const BASE: u64 = 1 << 30;

    fn params(colors: u16, ways: u32, step: u32) -> ProbeParams {
        ProbeParams::new(colors, ways, 64, u32::from(colors) * 64).with_clock(step)
    }

    /// Builds classes on a model and asserts that they are its colours.
    fn builds(params: ProbeParams, mut model: ModelBench) {
        model.populate(BASE, params.candidates, params.colors);
        let mut all: Vec<u32> = (0..params.candidates as u32).collect();
        let limit = Duration::from_secs(300);
        let built = build_classes(&mut model, &params, &mut all, limit).unwrap();
        let color = |page: u32| model.color(BASE + u64::from(page) * 4096);
        let mut seen: Vec<u16> = built.classes.iter().map(|class| color(class[0])).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..params.colors).collect::<Vec<_>>(), "{params:?}");
        let wrong =
            built.classes.iter().flat_map(|c| c.iter().filter(|&&p| color(p) != color(c[0])));
        assert!(wrong.count() * 200 <= params.candidates, "{params:?}");
    }

    fn builds_geometry(colors: u16, ways: u32) {
        let params = params(colors, ways, 26);
        builds(params, ModelBench::new(&params, Replacement::Lru, BASE));
    }

    #[test]
    fn classes_can_lose_pages() {
        let params = params(16, 16, 26);
        let mut model = ModelBench::new(&params, Replacement::Lru, BASE);
        let pages = model.populate(BASE, params.candidates * 8, params.colors);
        // Of every other colour there is a third as much.
        for &page in pages.iter().step_by(2) {
            model.relocate(page, model.color(page) | 1);
        }
        let mut all: Vec<u32> = (0..pages.len() as u32).collect();
        let limit = Duration::from_secs(300);
        let built = build_classes(&mut model, &params, &mut all, limit).unwrap();
        let sizes: Vec<usize> = built.classes.iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|&size| size >= params.keep_refs()), "{sizes:?}");
    }

    #[test]
    fn few_colours() {
        builds_geometry(2, 8);
        builds_geometry(8, 4);
    }

    #[test]
    fn many_ways() {
        builds_geometry(16, 16);
    }

    #[test]
    fn neighbours_and_interruptions_cost_time_only() {
        for evicted in [10, 75] {
            let params = params(8, 8, 24);
            let mut model = ModelBench::new(&params, Replacement::Lru, BASE).with_step(24.45);
            (model.evicted, model.interrupted) = (evicted, 200);
            builds(params, model);
        }
    }

    /// Builds classes where a quarter of the colours have one page of so many that others have.
    fn builds_with_rare_colours(colors: u16, evicted: usize, rare: usize, limit: Duration) {
        let params = params(colors, 8, 26);
        let mut model = ModelBench::new(&params, Replacement::Lru, BASE);
        model.evicted = evicted;
        let pages = model.populate(BASE, params.candidates * 8, colors);
        for (i, &page) in pages.iter().enumerate().filter(|(i, _)| i % rare > 0) {
            if model.color(page) < colors / 4 {
                model.relocate(page, colors / 4 + i as u16 % (colors - colors / 4));
            }
        }
        let mut all: Vec<u32> = (0..pages.len() as u32).collect();
        let built = build_classes(&mut model, &params, &mut all, limit).unwrap();
        assert!(built.classes.iter().all(|class| class.len() >= params.least_refs()));
        let color = |page: u32| model.color(BASE + u64::from(page) * 4096);
        let strays =
            |class: &Vec<u32>| class.iter().filter(|&&p| color(p) != color(class[0])).count();
        assert!(built.classes.iter().map(strays).sum::<usize>() * 100 <= params.candidates);
        let mut found: Vec<u16> = built.classes.iter().map(|class| color(class[0])).collect();
        found.sort_unstable();
        assert_eq!(found, (0..colors).collect::<Vec<_>>());
    }

    #[test]
    fn pools_with_few_pages_of_some_colours() {
        for (rare, seconds) in [(2, 3), (3, 5)] {
            builds_with_rare_colours(8, 0, rare, Duration::from_secs(seconds));
            builds_with_rare_colours(16, 30, rare, Duration::from_secs(seconds));
        }
    }

    #[test]
    fn memory_without_any_page_of_some_colours_is_left_for_other_memory() {
        /// Memory in parts, of which only the third has all colours.
        struct Parts(Vec<Vec<u32>>);
        impl CandidateSource for Parts {
            fn more(&mut self) -> Result<Vec<u32>, ProbeError> {
                Ok(self.0.pop().unwrap_or_default())
            }
        }
        let params = params(16, 8, 26);
        let mut model = ModelBench::new(&params, Replacement::Lru, BASE);
        let part = params.candidates * 4;
        let pages = model.populate(BASE, part * 3, 16);
        for (i, &page) in pages[..part * 2].iter().enumerate() {
            if model.color(page) < 4 {
                model.relocate(page, 4 + i as u16 % 12);
            }
        }
        let indexes: Vec<u32> = (0..pages.len() as u32).collect();
        let mut parts = Parts(indexes.chunks(part).rev().map(<[u32]>::to_vec).collect());
        let limit = Duration::from_secs(3);
        let built = build_classes(&mut model, &params, &mut parts, limit).unwrap();
        let color = |page: u32| model.color(BASE + u64::from(page) * 4096);
        let mut found: Vec<u16> = built.classes.iter().map(|class| color(class[0])).collect();
        found.sort_unstable();
        assert_eq!(found, (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn a_class_that_loses_its_pages_to_others_is_given_up() {
        let params = params(8, 8, 26);
        let mut model = ModelBench::new(&params, Replacement::Lru, BASE);
        model.populate(BASE, params.candidates, 8);
        let mut all: Vec<u32> = (0..params.candidates as u32).collect();
        let mut builder = Builder::new(&params, &mut all, BASE).unwrap();
        let pages = builder.rest.clone();
        let color = |page: u32| model.color(BASE + u64::from(page) * 4096);
        let of = |wanted: u16| pages.iter().copied().filter(move |&page| color(page) == wanted);
        let known = [of(0).collect::<Vec<u32>>(), of(1).collect()];
        builder.rest.retain(|page| !known.concat().contains(page));
        let made: Vec<u32> = of(2).take(3).collect();
        builder.classes = [&known[..], &[made, Vec::new(), of(3).collect()]].concat();
        builder.sort_rest(&mut model, 2).unwrap();
        let lengths: Vec<usize> = builder.classes.iter().map(Vec::len).collect();
        assert!(lengths.iter().all(|&pages| pages >= params.fewest_refs()), "{lengths:?}");
        assert_eq!(builder.classes.len(), 3, "{lengths:?}");
        let mut all = [builder.classes.concat(), builder.rest.clone()].concat();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), pages.len(), "no page is lost");
    }

    #[test]
    fn lines_in_another_order_in_each_page() {
        let params = params(8, 8, 26);
        let mut model = ModelBench::new(&params, Replacement::Lru, BASE);
        model.mixed = true;
        builds(params, model);
    }

    #[test]
    fn a_cache_with_fewer_colours_than_promised_is_an_error() {
        let params = params(16, 8, 26);
        let mut model = ModelBench::new(&params, Replacement::Lru, BASE);
        model.populate(BASE, params.candidates, 8);
        let mut all: Vec<u32> = (0..params.candidates as u32).collect();
        let built = build_classes(&mut model, &params, &mut all, Duration::from_millis(300));
        let error = built.unwrap_err();
        assert!(
            matches!(error, ProbeError::Classes { found, expected: 16, .. } if found < 16),
            "{error}"
        );
    }
}
