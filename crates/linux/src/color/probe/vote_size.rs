//! How large a vote is: pages of a batch, offsets in use, and how far classes are streamed. What pays
//! depends on the cache and on who else uses it, and changes: each size learns what its latencies say and
//! what it costs, and the one is taken that says most in its time. Estimates stand in until it was tried.

use std::ops::Range;

use super::likelihood::Likelihood;
use super::params::ProbeParams;
use super::vote::Round;
use fastrand::Rng;

/// Sizes of batches: pages, and offsets in use. Small ones are over sooner, so that neighbours evict
/// less meanwhile; in large ones more pages share what is streamed. The last has so few offsets that pages of
/// one colour evict each other unless there are many colours.
const BATCHES: [(usize, usize); 6] = [(2, 4), (12, 16), (48, 32), (144, 64), (432, 64), (432, 32)];
/// How many times the ways are streamed and how often, and the share of a class's pages that is believed to be
/// evicted by that before anything is learnt: where the oldest line is evicted twice is enough, elsewhere not. At few
/// offsets less is evicted than at many (Zen 5: half of what is timed at 4, all at 64), but more the second time.
const STREAMED: [(usize, u32, f32); 3] = [(2, 1, 0.8), (3, 1, 0.98), (3, 2, 0.98)];
/// The share of a class's pages, beyond that of others, that has to be evicted by what tells one colour from two
/// that are mixed: of those more evicts either.
const EVICTS: f32 = 0.4;
/// Halves of the ways that are streamed for that at first, how often, and the share that is believed to be evicted: of
/// two colours that are mixed, each is streamed less than it has ways.
const COMPARED: (usize, u32, f32) = (3, 1, 0.6);
/// Kinds of weather, by the controls of other classes that a round evicted: few, many, most; and the share
/// that is believed to be evicted before anything is learnt.
const WEATHERS: usize = 3;
const EVICTED: [f32; WEATHERS] = [0.03, 0.3, 0.75];
/// One vote in so many has a size by chance, as what pays changes.
const EXPLORES: usize = 32;
/// How fast running means follow.
const FOLLOWS: f32 = 0.2;
/// Seconds that a streamed line and a timed page take, until a size was tried.
const LOAD: f32 = 8e-9;
const TIMED: f32 = 50e-9;
/// The place of the batch that may say most in its time of one page, too, as its offsets are more.
const OF_ONE: usize = 1;
/// The places of the largest batches to confirm pages of one class, and to tell one colour from two.
const CONFIRM: usize = 2;
const COMPARE: usize = 3;

/// What is known of votes of one size.
#[derive(Clone, Debug)]
pub(crate) struct VoteSize {
    /// Pages of a batch, at most.
    pub(super) pages: usize,
    /// Offsets in use.
    pub(super) spread: usize,
    /// Pages of each class that are streamed.
    pub(super) stream: usize,
    /// How often.
    pub(super) passes: u32,
    weather: [Likelihood; WEATHERS],
    /// Lead that a vote is expected to give a page, in nats: running mean.
    info: f32,
    /// Seconds that a vote takes for each class that is streamed: running mean, once it was taken.
    cost: f32,
    tried: bool,
}

impl VoteSize {
    fn new((pages, spread): (usize, usize), (stream, passes, own): (usize, u32, f32)) -> VoteSize {
        let weather = EVICTED.map(|other| Likelihood::new(own, other));
        let cost = (spread * stream) as f32 * passes as f32 * LOAD + pages as f32 * TIMED;
        let info = weather[0].info();
        VoteSize { pages, spread, stream, passes, info, weather, cost, tried: false }
    }

    /// Whether a page of another class than was streamed seems to be evicted.
    fn is_out(&self, bin: usize) -> bool {
        self.weather[0].ratio(bin) > 1.0
    }

    /// Learns from the controls of some rounds; their kinds of weather. The kind in which a control was
    /// timed is told by the others: by itself it would always be what is usual there.
    pub(super) fn learn(&mut self, rounds: &[Round]) -> Vec<usize> {
        let (mut kinds, mut notes) = (Vec::with_capacity(rounds.len()), Vec::new());
        for round in rounds {
            let count = round.others.len();
            let out = round.others.iter().filter(|&&bin| self.is_out(bin)).count();
            let kind = weather_of(out, count);
            notes.extend(round.own.iter().map(|&bin| (kind, true, bin)));
            let without = |bin| weather_of(out - usize::from(self.is_out(bin)), count - 1);
            notes.extend(round.others.iter().map(|&bin| (without(bin), false, bin)));
            kinds.push(kind);
        }
        notes.into_iter().for_each(|(kind, own, bin)| self.weather[kind].note(own, bin));
        self.weather.iter_mut().for_each(Likelihood::settle);
        kinds
    }

    /// What a latency says in a kind of weather, in nats.
    pub(super) fn ratio(&self, kind: usize, bin: usize) -> f32 {
        self.weather[kind].ratio(bin)
    }

    /// Lead that a vote is expected to give a page, in nats.
    pub(super) fn info(&self) -> f32 {
        self.info
    }

    /// Notes what a vote gave and cost: the weather of its rounds, its pages, and the seconds that it took for each
    /// class.
    pub(super) fn account(&mut self, kinds: &[usize], pages: usize, took: f32) {
        let sum: f32 = kinds.iter().map(|&kind| self.weather[kind].info()).sum();
        let info = sum / kinds.len().max(1) as f32;
        if !self.tried {
            (self.info, self.cost, self.tried) = (info, took, true);
        }
        self.info += FOLLOWS * (info - self.info);
        // A batch of less than its size costs nearly as much.
        if pages * 4 >= self.pages * 3 {
            self.cost += FOLLOWS * (took - self.cost);
        }
    }

    /// Whether its controls show which class is streamed.
    fn tells(&self) -> bool {
        self.weather.iter().any(Likelihood::tells)
    }

    /// Nats per second that a batch of so many pages is expected to give.
    fn rate(&self, open: usize) -> f32 {
        self.info * open.min(self.pages) as f32 / self.cost
    }
}

/// The kind of weather, by how many of some controls were evicted.
fn weather_of(out: usize, controls: usize) -> usize {
    match out * 8 {
        few if few <= controls => 0,
        some if some <= 4 * controls => 1,
        _ => 2,
    }
}

/// All sizes: each batch with each stream.
#[derive(Clone, Debug)]
pub(crate) struct VoteSizes(Vec<VoteSize>);

impl VoteSizes {
    /// The place of the largest batch.
    pub(super) const LARGEST: usize = BATCHES.len() - 1;

    pub(super) fn new(params: &ProbeParams) -> VoteSizes {
        let ways = params.ways as usize;
        let streamed = STREAMED
            .map(|(times, passes, own)| ((ways * times).max(8).min(params.stream), passes, own));
        let all = BATCHES
            .into_iter()
            .flat_map(|batch| streamed.map(|stream| VoteSize::new(batch, stream)));
        let (halves, passes, own) = COMPARED;
        let compared = VoteSize::new(BATCHES[COMPARE], (ways * halves / 2, passes, own));
        VoteSizes(all.chain([compared]).collect())
    }

    pub(super) fn get(&mut self, size: usize) -> &mut VoteSize {
        &mut self.0[size]
    }

    /// Whether any was found to tell which class is streamed.
    pub(super) fn tell(&self) -> bool {
        self.0.iter().any(VoteSize::tells)
    }

    /// Forgets most: after a rest little of what was learnt before holds.
    pub(super) fn rest(&mut self) {
        self.0.iter_mut().flat_map(|size| &mut size.weather).for_each(Likelihood::rest);
    }

    /// The size that is expected to say most in its time of so many pages, with no batch behind the
    /// `largest`; or any, now and then.
    pub(super) fn choose(&self, open: usize, largest: usize, random: &mut Rng) -> usize {
        let batches = largest.min(smallest_for(open).max(OF_ONE)) + 1;
        if random.usize(..EXPLORES) == 0 {
            return random.usize(..batches * STREAMED.len());
        }
        self.best(0..batches, open)
    }

    /// The size to stream one class against so many pages, with no batch behind the `largest`.
    pub(super) fn to_confirm(&self, open: usize, largest: usize) -> usize {
        let batch = smallest_for(open).min(CONFIRM).min(largest);
        self.best(batch..batch.max(OF_ONE.min(largest)) + 1, open)
    }

    /// The size to tell whether so many pages are all of the class that is streamed: as little as evicts them, less
    /// than twice the ways at first.
    pub(super) fn to_compare(&self, open: usize) -> usize {
        let first = smallest_for(open).min(COMPARE) * STREAMED.len();
        let evicts = |&size: &usize| self.0[size].weather[0].evicts() > EVICTS;
        let sizes = first..first + STREAMED.len();
        [self.0.len() - 1].into_iter().chain(sizes.clone()).find(evicts).unwrap_or(sizes.end - 1)
    }

    fn best(&self, batches: Range<usize>, open: usize) -> usize {
        let rate = |&size: &usize| self.0[size].rate(open);
        let sizes = batches.start * STREAMED.len()..batches.end * STREAMED.len();
        sizes.max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(0)
    }
}

/// The place of the smallest batch that so many pages fit into, or of the largest.
fn smallest_for(open: usize) -> usize {
    BATCHES.iter().position(|&(pages, _)| pages >= open).unwrap_or(VoteSizes::LARGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> VoteSizes {
        VoteSizes::new(&ProbeParams::new(32, 16, 64, 2048))
    }

    /// The size that is chosen most often, by its pages, offsets and pages streamed.
    fn usual(sizes: &VoteSizes, open: usize, largest: usize) -> (usize, usize, usize) {
        let mut random = Rng::with_seed(1);
        let mut times = vec![0; sizes.0.len()];
        (0..99).for_each(|_| times[sizes.choose(open, largest, &mut random)] += 1);
        let most = (0..times.len()).max_by_key(|&size| times[size]).unwrap();
        (sizes.0[most].pages, sizes.0[most].spread, sizes.0[most].stream)
    }

    #[test]
    fn many_pages_share_what_is_streamed() {
        let sizes = sizes();
        let pages = |open, largest| usual(&sizes, open, largest).0;
        assert_eq!([1, 9, 700].map(|open| pages(open, VoteSizes::LARGEST)), [2, 12, 432]);
        assert!(pages(700, 1) <= 12);
    }

    #[test]
    fn what_says_nothing_is_left_and_what_costs_less_is_taken() {
        let mut sizes = sizes();
        let chosen = |sizes: &VoteSizes| usual(sizes, 700, VoteSizes::LARGEST);
        assert_eq!(chosen(&sizes), (432, 32, 48));
        for size in sizes.0.iter_mut().filter(|size| size.spread == 32 && size.stream == 48) {
            (size.info, size.tried) = (0.0, true);
        }
        assert_eq!(chosen(&sizes), (432, 64, 48));
        let of = |size: &&mut VoteSize| (size.pages, size.stream) == (432, 32);
        sizes.0.iter_mut().filter(of).for_each(|size| size.info = 8.0);
        assert_eq!(chosen(&sizes), (432, 32, 32));
    }

    #[test]
    fn one_colour_is_told_from_two_by_as_little_as_evicts() {
        let mut sizes = sizes();
        let stream = |sizes: &VoteSizes| sizes.0[sizes.to_compare(99)].stream;
        assert_eq!(stream(&sizes), 24, "of two colours 12 lines each, where there are 16 ways");
        for (evicts_too_little, next) in [(24, 32), (32, 48)] {
            for size in sizes.0.iter_mut().filter(|size| size.stream == evicts_too_little) {
                (0..99).for_each(|i| size.weather[0].note(i % 2 == 0, 3));
            }
            assert_eq!(stream(&sizes), next);
        }
    }

    #[test]
    fn few_pages_are_confirmed_with_few_lines() {
        let sizes = sizes();
        let spread = |open, largest| sizes.0[sizes.to_confirm(open, largest)].spread;
        assert_eq!(
            [(1, 4), (9, 4), (20, 4), (20, 1)].map(|(n, most)| spread(n, most)),
            [4, 16, 32, 16]
        );
    }
}
