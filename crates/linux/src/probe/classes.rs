//! Builds the colour classes from nothing: which of a pool of candidate pages compete for the same
//! sets. A regression (`regress`) gives, for each of some pages ("pivots"), how much more
//! each page of the pool slows it down than others do; pivots of one colour are slowed down by the
//! same pages. Groups of such pivots are suspicions, which the classifier puts to the test: it sorts
//! the whole pool by them. Where the pages come from is not its business.

use std::time::Duration;

use huepage_color::PAGE_BYTES;

use super::bench::TimingBench;
use super::classify::Classifier;
use super::params::ProbeParams;
use super::regress::{Group, PIVOTS, Regression, merge, regress, similarity};
use super::{ProbeError, Shuffler};

/// The reference classes of one cache level: page indexes per colour.
#[derive(Clone, Debug, PartialEq)]
pub struct ColorClasses {
    /// The numbers they were built with.
    pub params: ProbeParams,
    /// For each colour, the indexes of its pages among the reference pages.
    pub classes: Vec<Vec<u32>>,
}

impl ColorClasses {
    /// The number of colours.
    pub fn colors(&self) -> u16 {
        self.params.colors
    }

    /// All page indexes, class by class.
    pub fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.classes.iter().flatten().copied()
    }

    /// Takes other classes; how many of `pages` are in another class than before, or in none.
    pub(crate) fn replace(&mut self, classes: Vec<Vec<u32>>, pages: &[u32]) -> usize {
        let same = |(old, new): (&Vec<u32>, &Vec<u32>)| {
            new.iter().filter(|page| old.contains(page)).count()
        };
        let kept: usize = self.classes.iter().zip(&classes).map(same).sum();
        self.classes = classes;
        pages.len() - kept
    }
}

/// Likeness of a pivot's row to a group from which on the pivot belongs to it, and of two groups from
/// which on they are one; in standard deviations of the likeness of rows without anything in common.
const LIKE: f32 = 6.0;
const SAME: f32 = 8.0;
/// Regressions in vain after which what was found is given up: something of it is wrong, or they were
/// too short, so that the next are longer, up to so many times.
const GIVE_UP: u32 = 9;
const LONGEST: u32 = 8;
/// What is tried in turn: subsets of so many halves of the lines that fill the cache, and whether all lines
/// of pages are streamed. One page more makes the largest difference around as many lines as ways
/// where the oldest is evicted, beyond that elsewhere. Some lines of pages take a quarter of the time,
/// in which neighbours evict less; but some caches mix high address bits into the place of a line
/// within its page, so that all lines have to be streamed.
const HOW: [(usize, bool); 3] = [(2, false), (4, false), (3, true)];
/// Regressions in vain after which the group with the most pages is given up: two colours may have
/// been taken for one.
const SHED: u32 = 5;
/// Pages that a pivot is chosen from: the one that fits least into what is known.
const CHOICE: usize = 12;
/// Pages that may still change their class, of 100, when classes are taken to be right.
const STRAY: usize = 2;
/// Times that the pool is sorted by one suspicion.
const SORTS: u32 = 5;
/// Candidates that are sorted together to fill classes that have too few pages.
const MORE: usize = 512;
/// Pages that are sorted first, as a part of all: of a wrong suspicion many stay undecided.
const SAMPLE: usize = 8;
/// CPU time to sort by a suspicion, per page and regression so far.
const SORTING: Duration = Duration::from_micros(60);

/// Builds the classes out of some of the `candidates` (indexes of populated pages relative to the
/// bench's reference base), in about `limit` of CPU time at most.
///
/// # Errors
/// `Classes` if not all classes were found, and whatever the bench fails of.
pub fn build_classes(
    bench: &mut dyn TimingBench,
    params: &ProbeParams,
    candidates: &[u32],
    limit: Duration,
) -> Result<ColorClasses, ProbeError> {
    let mut builder = Builder::new(params, candidates, bench.reference_base());
    let until = bench.worked() + limit;
    let mut turn = 0;
    while bench.worked() < until {
        builder.search(bench, turn)?;
        turn += 1;
        if let Some(suspected) = builder.suspected()
            && let Some(found) = builder.test(bench, suspected, turn)?
        {
            return Ok(found);
        }
    }
    let expected = params.colors;
    let why = format!("{turn} searches in {} s of CPU time gave no more", limit.as_secs());
    Err(ProbeError::Classes { found: builder.most.min(expected - 1), expected, why })
}

struct Builder<'a> {
    params: &'a ProbeParams,
    /// Where the reference pages are mapped.
    base: u64,
    /// All candidates in random order; those that are not in the pool are at the end.
    candidates: Vec<u32>,
    /// The pool: indexes and addresses.
    pages: Vec<u32>,
    addresses: Vec<u64>,
    random: Shuffler,
    groups: Vec<Group>,
    /// How well each page fits into the group it fits best.
    fits: Vec<f32>,
    /// Most groups of many pages that there ever were.
    most: u16,
    /// The group that most pages fit into.
    largest: usize,
}

impl<'a> Builder<'a> {
    fn new(params: &'a ProbeParams, candidates: &[u32], base: u64) -> Builder<'a> {
        Builder {
            params,
            base,
            candidates: candidates.to_vec(),
            pages: Vec::new(),
            addresses: Vec::new(),
            random: Shuffler::new(base),
            groups: Vec::new(),
            fits: Vec::new(),
            most: 0,
            largest: 0,
        }
    }

    /// Begins anew, with a pool of other pages, half as many more each time: of the rarest colour there may
    /// have been too few.
    fn draw_pool(&mut self, times: u32) {
        self.random.shuffle(&mut self.candidates);
        let size = self.params.candidates * (2 + times as usize) / 2;
        let size = size.min(self.candidates.len());
        self.pages = self.candidates[..size].to_vec();
        let address = |&page: &u32| self.base + u64::from(page) * PAGE_BYTES;
        self.addresses = self.pages.iter().map(address).collect();
        self.groups.clear();
        self.fits.clear();
    }

    /// One regression; its pivots are added to the groups.
    fn search(&mut self, bench: &mut dyn TimingBench, turn: u32) -> Result<(), ProbeError> {
        if turn.is_multiple_of(GIVE_UP) {
            self.draw_pool(turn / GIVE_UP);
        }
        if turn % SHED == SHED - 1 && self.groups.len() >= usize::from(self.params.colors) {
            self.groups.swap_remove(self.largest);
            self.fits.clear();
        }
        let pivots: Vec<usize> = (0..PIVOTS).map(|_| self.pivot()).collect();
        let (pool, random) = (&self.addresses, &mut self.random);
        let (halves, whole) = HOW[turn as usize % HOW.len()];
        let how = Regression { halves, whole, times: (1 + turn / GIVE_UP).min(LONGEST) };
        let rows = regress(bench, self.params, pool, &pivots, how, random)?;
        let chance = (self.pages.len() as f32).sqrt().recip();
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

    fn pivot(&mut self) -> usize {
        let any = |random: &mut Shuffler, n| random.below(n);
        let mut best = any(&mut self.random, self.pages.len());
        for _ in 0..if self.fits.is_empty() { 0 } else { CHOICE } {
            let other = any(&mut self.random, self.pages.len());
            if self.fits[other] < self.fits[best] {
                best = other;
            }
        }
        best
    }

    /// The groups that many pages fit into, as classes, if there are as many as colours.
    fn suspected(&mut self) -> Option<Vec<Vec<u32>>> {
        let colors = usize::from(self.params.colors);
        // A page of a group's own colour has about this much of it.
        let least = 0.3 * ((colors - 1) as f32).sqrt();
        // A pivot that is like no other was disturbed, once there are enough others.
        if self.groups.iter().filter(|group| group.members > 1).count() >= colors {
            self.groups.retain(|group| group.members > 1);
        }
        let mut classes = vec![Vec::new(); self.groups.len()];
        self.fits = vec![f32::NEG_INFINITY; self.pages.len()];
        for (page, fit) in self.fits.iter_mut().enumerate() {
            let fits = self.groups.iter().map(|group| group.center[page]).enumerate();
            let Some((group, best)) = fits.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            *fit = best;
            if best >= least {
                classes[group].push(self.pages[page]);
            }
        }
        let sizes = classes.iter().map(Vec::len).enumerate();
        self.largest = sizes.max_by_key(|size| size.1).map_or(0, |size| size.0);
        classes.sort_by_key(|class| std::cmp::Reverse(class.len()));
        let enough = self.params.fewest_refs();
        let found = classes.iter().take(colors).filter(|class| class.len() >= enough).count();
        self.most = self.most.max(found as u16);
        classes.truncate(colors);
        (found == colors).then_some(classes)
    }

    /// Sorts the pool by suspected classes until it stays as it is; `None` if it does not.
    fn test(
        &mut self,
        bench: &mut dyn TimingBench,
        classes: Vec<Vec<u32>>,
        turn: u32,
    ) -> Result<Option<ColorClasses>, ProbeError> {
        let mut probe = Classifier::new(ColorClasses { params: *self.params, classes });
        let mut before = self.pages.len();
        let sample = &self.pages[..before / SAMPLE];
        let time = |pages: usize| SORTING * turn * pages as u32;
        let undecided = probe.undecided(bench, sample, time(sample.len()))?;
        if undecided * 100 > sample.len() * STRAY {
            return Ok(None);
        }
        for _ in 0..SORTS {
            let least = self.params.fewest_refs();
            match probe.heal_with(bench, &self.pages, least, Some(time(self.pages.len()))) {
                Ok(changed) if changed * 100 <= self.pages.len() * STRAY => {
                    return self.fill(bench, probe);
                }
                Ok(changed) if changed < before => before = changed,
                Ok(_) | Err(ProbeError::Stale { .. }) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Adds candidates that are not in the pool until every class has enough: memory that a confined program
    /// has just given back has few pages of some colours. `None` if there are too few of one.
    fn fill(
        &self,
        bench: &mut dyn TimingBench,
        mut probe: Classifier,
    ) -> Result<Option<ColorClasses>, ProbeError> {
        let enough = self.params.least_refs();
        for more in self.candidates[self.pages.len()..].chunks(MORE) {
            if probe.classes().classes.iter().all(|class| class.len() >= enough) {
                return Ok(Some(probe.classes().clone()));
            }
            probe.add(bench, more)?;
        }
        let full = probe.classes().classes.iter().all(|class| class.len() >= enough);
        Ok(full.then(|| probe.classes().clone()))
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
        let all: Vec<u32> = (0..params.candidates as u32).collect();
        let limit = Duration::from_secs(300);
        let built = build_classes(&mut model, &params, &all, limit).unwrap();
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

    #[test]
    fn a_pool_with_few_pages_of_some_colours() {
        let params = params(8, 8, 26);
        let mut model = ModelBench::new(&params, Replacement::Lru, BASE);
        let pages = model.populate(BASE, params.candidates * 8, 8);
        // Two of three pages of a quarter of the colours are of another.
        for (i, &page) in pages.iter().enumerate().filter(|(i, _)| i % 3 > 0) {
            let color = model.color(page);
            if color < 2 {
                model.relocate(page, 2 + (i % 6) as u16);
            }
        }
        let all: Vec<u32> = (0..pages.len() as u32).collect();
        let built = build_classes(&mut model, &params, &all, Duration::from_secs(30)).unwrap();
        assert!(built.classes.iter().all(|class| class.len() >= params.least_refs()));
        let color = |page: u32| model.color(BASE + u64::from(page) * 4096);
        let strays =
            |class: &Vec<u32>| class.iter().filter(|&&p| color(p) != color(class[0])).count();
        assert!(built.classes.iter().map(strays).sum::<usize>() * 100 <= params.candidates);
        let mut found: Vec<u16> = built.classes.iter().map(|class| color(class[0])).collect();
        found.sort_unstable();
        assert_eq!(found, (0..8).collect::<Vec<_>>());
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
        let all: Vec<u32> = (0..params.candidates as u32).collect();
        let built = build_classes(&mut model, &params, &all, Duration::from_millis(300));
        let error = built.unwrap_err();
        assert!(
            matches!(error, ProbeError::Classes { found, expected: 16, .. } if found < 16),
            "{error}"
        );
    }
}
