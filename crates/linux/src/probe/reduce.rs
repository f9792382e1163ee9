//! Group testing: thins out a set of pages that evicts a given page until hardly more than a
//! way-full of competing pages is left. Says nothing about the other members of the class.

use super::bench::{TimingBench, TimingJob};
use super::calibrate::{Calibration, quantile};
use super::params::ProbeParams;
use super::timing::RoundDesc;
use super::{ProbeError, Shuffler};

/// Lines of the page that are tested at once.
const LINES: usize = 8;
/// Pages whose lines of one offset push another out of the first level.
const FILL: usize = 14;
/// Tests of smaller sets before a reduction is given up.
const MAX_TESTS: u32 = 1500;
/// Failed tests in a row after which the set itself is tested again.
const PATIENCE: u32 = 30;
/// Times that removed groups may be put back.
const MAX_BACKTRACKS: u32 = 25;

/// Reduces evicting sets.
pub(crate) struct Reducer<'a> {
    bench: &'a mut dyn TimingBench,
    params: &'a ProbeParams,
    calibration: Calibration,
    pool: &'a [u64],
    random: &'a mut Shuffler,
}

impl<'a> Reducer<'a> {
    /// `pool` are any pages of mixed colours.
    pub(crate) fn new(
        bench: &'a mut dyn TimingBench,
        params: &'a ProbeParams,
        calibration: Calibration,
        pool: &'a [u64],
        random: &'a mut Shuffler,
    ) -> Reducer<'a> {
        Reducer { bench, params, calibration, pool, random }
    }

    /// A subset of `set` of at most one and a half way-fulls that evicts `page`; `None` if
    /// the set does not evict it or resists.
    pub(crate) fn reduce(
        &mut self,
        page: u64,
        mut set: Vec<u64>,
    ) -> Result<Option<Vec<u64>>, ProbeError> {
        if !self.evicts(page, &set)? {
            return Ok(None);
        }
        let mut removed: Vec<Vec<u64>> = Vec::new();
        let (mut failed, mut backtracks, mut tests) = (0, 0, 0);
        while set.len() > self.params.ways as usize + 1 && tests < MAX_TESTS {
            if failed > PATIENCE {
                if self.evicts(page, &set)? || self.evicts(page, &set)? {
                    if set.len() <= self.enough() {
                        break;
                    }
                    failed = PATIENCE / 2;
                } else if backtracks < MAX_BACKTRACKS && !removed.is_empty() {
                    backtracks += 1;
                    failed = 0;
                    put_back(&mut set, &mut removed);
                    self.random.shuffle(&mut set);
                } else {
                    break;
                }
            }
            tests += 1;
            let (kept, group) = self.split(&set);
            if self.evicts(page, &kept)? {
                set = kept;
                removed.push(group);
                failed = 0;
            } else {
                failed += 1;
            }
        }
        Ok((set.len() <= self.enough()).then_some(set))
    }

    fn enough(&self) -> usize {
        let ways = self.params.ways as usize;
        (ways + ways / 2).max(ways + 2)
    }

    /// The set without a random group, and the group: of `ways + 2` groups at least one can
    /// be spared.
    fn split(&mut self, set: &[u64]) -> (Vec<u64>, Vec<u64>) {
        let size = (set.len() / (self.params.ways as usize + 2)).max(1);
        let start = self.random.below(set.len());
        let turned = set[start..].iter().chain(&set[..start]).copied();
        let mut group: Vec<u64> = turned.collect();
        let kept = group.split_off(size);
        (kept, group)
    }

    /// Twice the same answer, as the mistakes of one test would pile up.
    fn evicts(&mut self, page: u64, set: &[u64]) -> Result<bool, ProbeError> {
        Ok(self.evicts_once(page, set)? && self.evicts_once(page, set)?)
    }

    fn evicts_once(&mut self, page: u64, set: &[u64]) -> Result<bool, ProbeError> {
        let first = self.evicted_lines(page, set)?;
        match first {
            0..=2 => Ok(false),
            7.. => Ok(true),
            _ => Ok(first + self.evicted_lines(page, set)? >= 10),
        }
    }

    /// How many of [`LINES`] lines of the page are evicted by streaming the set once. A round
    /// before it streams just enough random pages to push the lines out of the first level:
    /// what they cost then is a hit, at the processor's speed of this very moment.
    fn evicted_lines(&mut self, page: u64, set: &[u64]) -> Result<usize, ProbeError> {
        let lines = spread_lines(self.params, self.random, LINES);
        let mut stream: Vec<u64> =
            (0..FILL).map(|_| self.pool[self.random.below(self.pool.len())]).collect();
        stream.retain(|&other| other != page);
        let fill = RoundDesc { first: 0, len: stream.len() as u32 };
        let whole = RoundDesc { first: fill.len, len: set.len() as u32 };
        stream.extend_from_slice(set);
        let job = TimingJob {
            stream,
            rounds: vec![fill, fill, whole],
            reload: lines.iter().map(|&offset| page + u64::from(offset)).collect(),
            offsets: lines,
            passes: 2,
            prime: true,
        };
        let limit = self.calibration.limit(set.len() * job.offsets.len() * 2, job.reload.len());
        for _ in 0..50 {
            let result = self.bench.run(&job)?;
            if result.elapsed.iter().all(|&ticks| ticks <= limit) {
                let hit = quantile(result.round(1, job.reload.len()), 50);
                let threshold = hit.saturating_add(self.calibration.gap);
                let slow = result.round(2, job.reload.len()).iter();
                return Ok(slow.filter(|&&ticks| ticks > threshold).count());
            }
        }
        Ok(0)
    }
}

fn put_back(set: &mut Vec<u64>, removed: &mut Vec<Vec<u64>>) {
    for _ in 0..2 {
        set.extend(removed.pop().into_iter().flatten());
    }
}

/// Up to `n` offsets of lines such that none disturbs another: neither the neighbour that a
/// prefetcher brings along, nor the line in the other half of the page that warms the
/// translation. A page of 4 KiB has room for 16 lines of 64 bytes.
pub(crate) fn spread_lines(params: &ProbeParams, random: &mut Shuffler, n: usize) -> Vec<u16> {
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

#[cfg(test)]
mod tests {
    use super::super::model::ModelBench;
    use super::*;

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

    #[test]
    fn a_reduced_set_holds_a_way_full_of_the_right_colour() {
        let params = ProbeParams::new(16, 16, 64, 1024);
        let mut model = ModelBench::new(16, 0, 9);
        let pages = model.populate(1 << 20, 497, 16);
        let calibration = Calibration { gap: 20, pace: 10.0 };
        let random = &mut Shuffler::new(4);
        let mut reducer = Reducer::new(&mut model, &params, calibration, &pages, random);
        let set = reducer.reduce(pages[0], pages[1..].to_vec()).unwrap().unwrap();
        let color = model.color(pages[0]);
        let same = set.iter().filter(|&&page| model.color(page) == color).count();
        assert!(set.len() <= 24 && same >= 16, "{same} of {}", set.len());
    }

    #[test]
    fn a_set_that_does_not_evict_gives_nothing() {
        let params = ProbeParams::new(16, 16, 64, 1024);
        let mut model = ModelBench::new(16, 0, 9);
        let pages = model.populate(1 << 20, 100, 16);
        let calibration = Calibration { gap: 20, pace: 10.0 };
        let random = &mut Shuffler::new(4);
        let mut reducer = Reducer::new(&mut model, &params, calibration, &pages, random);
        assert_eq!(reducer.reduce(pages[0], pages[1..].to_vec()).unwrap(), None);
    }
}
