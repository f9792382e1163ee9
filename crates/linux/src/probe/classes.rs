//! Builds the colour classes: which of a pool of candidate pages compete for the same sets.
//! Groups that `signature` suspects to be of one colour are put to the test: all pages that a
//! group evicts are its class, whose members are then asked again by members of their own.
//! Every class must evict itself and no other. Where the pages come from is not its business.

use std::thread;
use std::time::{Duration, Instant};

use super::bench::{TimingBench, TimingJob};
use super::calibrate::{Calibration, quantile};
use super::params::{MAX_RELOAD, ProbeParams};
use super::signature::{Prober, cluster};
use super::timing::RoundDesc;
use super::validate::validate;
use super::{ProbeError, Shuffler};

/// The reference classes of one cache level: page indexes per colour.
#[derive(Clone, Debug, PartialEq)]
pub struct ColorClasses {
    /// The numbers they were built with.
    pub params: ProbeParams,
    /// The latencies of this machine.
    pub calibration: Calibration,
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
}

/// Rounds of membership voting, and how many must agree.
const VOTES: u8 = 5;
const NEEDED: u8 = 4;
/// Passes over the stream in membership rounds, where one more costs little.
const PASSES: u32 = 3;
/// Searches without result and groups that were refused, since the last class, before all
/// classes are given up: one of them may be wrong and keep the others from being found.
const PATIENCE: u32 = 25;
/// The owner of pages that belong to no class for sure.
const NEITHER: u16 = u16::MAX;
/// The pause after a failure, per failure since the last class: noise comes in phases.
const PAUSE: Duration = Duration::from_millis(1);

/// Builds and validates the classes out of some of the `candidates` (indexes of populated pages
/// relative to the bench's reference base), taking at most `limit` of wall time.
///
/// # Errors
/// `Classes` if not all classes were found or validated, and whatever the bench fails of.
pub fn build_classes(
    bench: &mut dyn TimingBench,
    params: &ProbeParams,
    candidates: &[u32],
    limit: Duration,
) -> Result<ColorClasses, ProbeError> {
    let mut random = Shuffler::new(bench.reference_base() ^ u64::from(std::process::id()));
    let mut pages = candidates.to_vec();
    random.shuffle(&mut pages);
    pages.truncate(params.candidates);
    let base = bench.reference_base();
    let addresses: Vec<u64> = pages.iter().map(|&i| base + u64::from(i) * 4096).collect();
    let calibration = Calibration::measure(bench, params, &addresses, &mut random)?;
    let mut builder = Builder::new(bench, params, calibration, addresses, random);
    let deadline = Instant::now() + limit;
    let classes = builder.all(deadline)?;
    let calibration = builder.calibration;
    let classes = classes.iter().map(|c| c.iter().map(|&i| pages[i]).collect()).collect();
    let mut built = ColorClasses { params: *params, calibration, classes };
    check(bench, &mut built, deadline)?;
    for class in &mut built.classes {
        class.truncate(params.keep_refs());
    }
    Ok(built)
}

/// Validates classes; a time of noise says nothing against them.
fn check(
    bench: &mut dyn TimingBench,
    built: &mut ColorClasses,
    deadline: Instant,
) -> Result<(), ProbeError> {
    let found = loop {
        match validate(bench, built) {
            Err(ProbeError::Stale { .. }) if Instant::now() < deadline => thread::sleep(PAUSE),
            found => break found?,
        }
    };
    found.must_hold(built)
}

struct Builder<'a> {
    bench: &'a mut dyn TimingBench,
    params: &'a ProbeParams,
    calibration: Calibration,
    addresses: Vec<u64>,
    owner: Vec<Option<u16>>,
    random: Shuffler,
    classes: Vec<Vec<usize>>,
    /// Searches without result and groups refused, in all.
    failures: u32,
    /// Of these, since the last class.
    fruitless: u32,
    trouble: &'static str,
}

impl<'a> Builder<'a> {
    fn new(
        bench: &'a mut dyn TimingBench,
        params: &'a ProbeParams,
        calibration: Calibration,
        addresses: Vec<u64>,
        random: Shuffler,
    ) -> Builder<'a> {
        Builder {
            bench,
            params,
            calibration,
            owner: vec![None; addresses.len()],
            addresses,
            random,
            classes: Vec::new(),
            failures: 0,
            fruitless: 0,
            trouble: "no groups of pages that evict each other",
        }
    }

    fn all(&mut self, deadline: Instant) -> Result<Vec<Vec<usize>>, ProbeError> {
        while self.missing() > 0 {
            if Instant::now() > deadline {
                return Err(self.incomplete());
            }
            if self.fruitless > PATIENCE {
                self.start_over();
            }
            if self.fruitless > 0 {
                thread::sleep(PAUSE * self.fruitless);
                self.calibrate()?;
            }
            self.search()?;
        }
        Ok(std::mem::take(&mut self.classes))
    }

    fn missing(&self) -> usize {
        usize::from(self.params.colors) - self.classes.len()
    }

    /// One search for groups; every group that stands the test becomes a class.
    fn search(&mut self) -> Result<(), ProbeError> {
        let sample = self.sample();
        let pages = self.addresses_of(&sample);
        let (bench, random) = (&mut *self.bench, &mut self.random);
        let mut prober =
            Prober { bench, params: self.params, calibration: self.calibration, random };
        let signatures = prober.signatures(&self.addresses, &pages)?;
        let groups = cluster(&signatures, self.params, &mut self.random);
        let before = self.classes.len();
        for group in groups {
            let group: Vec<usize> = group.iter().map(|&i| sample[i]).collect();
            self.test(&group)?;
        }
        if self.classes.len() == before {
            self.fail();
        }
        Ok(())
    }

    fn fail(&mut self) {
        self.failures += 1;
        self.fruitless += 1;
    }

    fn start_over(&mut self) {
        self.classes.clear();
        self.owner.fill(None);
        self.fruitless = 0;
    }

    /// Pages to look for groups among: those without a class first, then others, so that all
    /// colours are present.
    fn sample(&mut self) -> Vec<usize> {
        let mut all: Vec<usize> = (0..self.addresses.len()).collect();
        self.random.shuffle(&mut all);
        all.sort_by_key(|&i| self.owner[i].is_some());
        let free = self.owner.iter().filter(|o| o.is_none()).count();
        let size = usize::from(self.params.colors) * self.params.stream * 2;
        let wanted = (self.missing() * self.params.stream * 3).min(free);
        let mut sample = all.split_off(all.len().min(wanted));
        std::mem::swap(&mut sample, &mut all);
        self.random.shuffle(&mut all);
        sample.extend(all.into_iter().take(size.saturating_sub(wanted)));
        sample
    }

    /// Makes a class of a group, unless it is one already or does not stand the test.
    fn test(&mut self, group: &[usize]) -> Result<(), ProbeError> {
        let owned = group.iter().filter(|&&i| self.owner[i].is_some()).count();
        if owned * 2 > group.len() || self.missing() == 0 {
            return Ok(());
        }
        let take = self.params.stream.min(group.len());
        let rough = self.members(&self.addresses_of(&group[..take]))?;
        let class = self.refine(&rough)?;
        match self.judge(class) {
            Ok(members) => self.adopt(members),
            Err(why) => {
                self.trouble = why;
                self.fail();
            }
        }
        Ok(())
    }

    fn calibrate(&mut self) -> Result<(), ProbeError> {
        let (bench, random) = (&mut *self.bench, &mut self.random);
        self.calibration = Calibration::measure(bench, self.params, &self.addresses, random)?;
        Ok(())
    }

    fn incomplete(&self) -> ProbeError {
        ProbeError::Classes {
            found: self.classes.len() as u16,
            expected: self.params.colors,
            why: format!("{} ({} attempts failed)", self.trouble, self.failures),
        }
    }

    fn adopt(&mut self, members: Vec<usize>) {
        let color = self.classes.len() as u16;
        members.iter().for_each(|&i| self.owner[i] = Some(color));
        self.classes.push(members);
        self.fruitless = 0;
    }

    /// The first answer misses pages of the evicting set itself, as a page that is streamed is
    /// not evicted. So the class is asked again, with two sets made of its own members: each
    /// judges all pages that it does not contain.
    fn refine(&mut self, rough: &[bool]) -> Result<Vec<usize>, ProbeError> {
        let mut members: Vec<usize> = (0..rough.len()).filter(|&i| rough[i]).collect();
        let take = self.params.stream;
        if members.len() < 2 * take {
            return Ok(members);
        }
        self.random.shuffle(&mut members);
        let (first, second) = (members[..take].to_vec(), members[take..2 * take].to_vec());
        let by_first = self.members(&self.addresses_of(&first))?;
        let by_second = self.members(&self.addresses_of(&second))?;
        let judged = |i: usize| match (first.contains(&i), second.contains(&i)) {
            (true, _) => by_second[i],
            (_, true) => by_first[i],
            _ => by_first[i] && by_second[i],
        };
        Ok((0..rough.len()).filter(|&i| judged(i)).collect())
    }

    fn addresses_of(&self, indexes: &[usize]) -> Vec<u64> {
        indexes.iter().map(|&i| self.addresses[i]).collect()
    }

    /// A class must not be nearly all pages, and not overlap with others much. Nothing is said of
    /// its share: memory need not have as many pages of each colour.
    fn judge(&mut self, mut class: Vec<usize>) -> Result<Vec<usize>, &'static str> {
        let size = class.len();
        if size * 4 > self.addresses.len() * 3 {
            return Err("a class has an unlikely size");
        }
        let (free, owned): (Vec<usize>, Vec<usize>) =
            class.iter().partition(|&&i| self.owner[i].is_none());
        if owned.len() * 3 > size {
            return Err("two classes overlap");
        }
        if owned.len() * 20 > size {
            self.take_away(&owned);
        }
        class = free;
        if class.len() < self.params.stream * 2 + self.params.controls {
            return Err("a class has too few pages");
        }
        self.random.shuffle(&mut class);
        Ok(class)
    }

    /// Pages that two classes claim are of neither.
    fn take_away(&mut self, pages: &[usize]) {
        pages.iter().for_each(|&i| self.owner[i] = Some(NEITHER));
        for class in &mut self.classes {
            class.retain(|i| !pages.contains(i));
        }
    }

    /// Which of all pages are evicted by streaming `set`, by majority of several rounds.
    fn members(&mut self, set: &[u64]) -> Result<Vec<bool>, ProbeError> {
        let mut votes = vec![0u8; self.addresses.len()];
        // A round must not take long, or others come between.
        let some = self.params.timed(MAX_RELOAD - 32);
        for start in (0..self.addresses.len()).step_by(some) {
            let end = (start + some).min(self.addresses.len());
            let mut voids = 0;
            let mut done = 0;
            while done < VOTES {
                match self.member_round(set, start, end)? {
                    Some(evicted) => {
                        done += 1;
                        evicted.iter().for_each(|&i| votes[i] += 1);
                    }
                    None if voids > 100 => return Ok(vec![false; votes.len()]),
                    None => voids += 1,
                }
            }
        }
        Ok(votes.iter().map(|&n| n >= NEEDED).collect())
    }

    /// The pages of one stretch that look evicted; `None` if the round makes no sense.
    fn member_round(
        &mut self,
        set: &[u64],
        start: usize,
        end: usize,
    ) -> Result<Option<Vec<usize>>, ProbeError> {
        let offsets = self.params.offsets(&mut self.random);
        let passes = if self.params.depth > 1 { self.params.passes } else { PASSES };
        let reload: Vec<u64> = self.addresses[start..end]
            .iter()
            .map(|page| page + u64::from(offsets[self.random.below(offsets.len())]))
            .collect();
        let job = TimingJob {
            stream: set.to_vec(),
            rounds: vec![RoundDesc { first: 0, len: set.len() as u32 }],
            offsets,
            passes,
            reload,
            depth: self.params.depth,
            prime: true,
        };
        let result = self.bench.run(&job)?;
        let loads = set.len() * job.offsets.len() * passes as usize;
        if result.elapsed[0] > self.calibration.limit(loads, (end - start) * job.depth as usize) {
            return Ok(None);
        }
        let colors = usize::from(self.params.colors);
        Ok(slow_lines(&result.latencies, colors, self.calibration.gap)
            .map(|slow| slow.into_iter().map(|i| i + start).collect()))
    }
}

/// Lines evicted out of a mixture in which one in `colors` should be; the base is taken from
/// stretches of the list, as latencies drift. `None` if far too many look evicted.
fn slow_lines(latencies: &[u16], colors: usize, gap: u16) -> Option<Vec<usize>> {
    let percent = 50 - 50 / colors;
    let most = |n: usize| (n * 4 / colors).min(n * (colors + 1) / (2 * colors)).max(8);
    let mut slow = Vec::new();
    for (chunk, part) in latencies.chunks(192).enumerate() {
        let threshold = quantile(part, percent) + gap;
        let before = slow.len();
        slow.extend((0..part.len()).filter(|&i| part[i] > threshold).map(|i| chunk * 192 + i));
        if slow.len() - before > most(part.len()) {
            return None;
        }
    }
    Some(slow)
}

#[cfg(test)]
mod tests {
    use super::super::model::ModelBench;
    use super::*;

    const BASE: u64 = 1 << 30;

    fn check(colors: u16, ways: u32, wrong: usize, interrupted: usize) {
        let params = ProbeParams::new(colors, ways, 64, u32::from(colors) * 64);
        let mut model = ModelBench::new(ways as usize, BASE, u64::from(colors));
        (model.wrong, model.interrupted, model.drift) = (wrong, interrupted, 3);
        check_with(params, model);
    }

    fn check_with(params: ProbeParams, mut model: ModelBench) {
        let colors = params.colors;
        model.populate(BASE, params.candidates, colors);
        let all: Vec<u32> = (0..params.candidates as u32).collect();
        let built = build_classes(&mut model, &params, &all, Duration::from_secs(60)).unwrap();
        assert_eq!(built.classes.len(), usize::from(colors));
        let mut seen = Vec::new();
        for class in &built.classes {
            assert!(class.len() >= params.least_refs(), "{} pages", class.len());
            let color = model.color(BASE + u64::from(class[0]) * 4096);
            let same = |&&i: &&u32| model.color(BASE + u64::from(i) * 4096) == color;
            assert_eq!(class.iter().filter(same).count(), class.len());
            seen.push(color);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), usize::from(colors));
    }

    #[test]
    fn a_clock_of_large_steps_and_lines_in_another_order_in_each_page() {
        let params = ProbeParams::new(16, 16, 64, 1024).with_clock(26);
        assert_eq!((params.depth, params.passes), (8, 1));
        let mut model = ModelBench::new(16, BASE, 3);
        (model.wrong, model.mixed) = (100, true);
        check_with(params, model);
    }

    #[test]
    fn a_quiet_machine() {
        check(16, 16, 0, 0);
    }

    #[test]
    fn other_geometries() {
        check(2, 8, 0, 0);
        check(8, 20, 0, 0);
        check(32, 16, 0, 0);
    }

    #[test]
    fn a_noisy_machine() {
        check(16, 16, 50, 200);
    }

    #[test]
    fn a_very_noisy_machine() {
        check(16, 16, 600, 1000);
        check(8, 20, 600, 1000);
    }

    /// Pages of two colours taken for a class keep both from being found, so that it has to go.
    #[test]
    fn a_wrong_class_does_not_stay() {
        let params = ProbeParams::new(4, 16, 64, 256);
        let mut model = ModelBench::new(16, BASE, 7);
        let addresses = model.populate(BASE, params.candidates, 4);
        let colors: Vec<u16> = addresses.iter().map(|&page| model.color(page)).collect();
        let wrong: Vec<usize> =
            (0..colors.len()).filter(|i| colors[*i] < 2 && i % 2 == 0).collect();
        let mut random = Shuffler::new(1);
        let calibration =
            Calibration::measure(&mut model, &params, &addresses, &mut random).unwrap();
        let mut builder = Builder::new(&mut model, &params, calibration, addresses, random);
        builder.adopt(wrong);
        let classes = builder.all(Instant::now() + Duration::from_secs(60)).unwrap();
        assert!(builder.failures > PATIENCE);
        assert!(classes.iter().all(|class| class.iter().all(|&i| colors[i] == colors[class[0]])));
    }

    #[test]
    fn a_cache_with_fewer_colours_than_promised_is_an_error() {
        let params = ProbeParams::new(16, 16, 64, 1024);
        let mut model = ModelBench::new(16, BASE, 5);
        model.populate(BASE, params.candidates, 8);
        let all: Vec<u32> = (0..params.candidates as u32).collect();
        let built = build_classes(&mut model, &params, &all, Duration::from_secs(2));
        assert!(matches!(built, Err(ProbeError::Classes { .. })), "{built:?}");
    }
}
