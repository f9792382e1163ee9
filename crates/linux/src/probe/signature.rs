//! Finds groups of pages that are likely of one colour, all colours at once. Random subsets
//! that hold about a way-full of each colour evict some colours and not others; pages of one
//! colour share that fate. After enough subsets each page has a signature, and pages with
//! like signatures make a group. Noise flips bits of signatures without blurring the groups.
//! The groups are suspicions: whether they are classes is tested elsewhere.

use super::bench::{TimingBench, TimingJob};
use super::calibrate::{Calibration, quantile};
use super::params::{MAX_STREAM, ProbeParams};
use super::timing::RoundDesc;
use super::{ProbeError, Shuffler};

/// Subsets, that is bits of a signature.
const SUBSETS: u32 = 96;
/// Lines tested in one round. They share [`OFFSETS`] offsets, so that hardly two of them are
/// in the same set, while a round stays too short for much to come between.
const LINES: usize = 256;
/// Offsets of one round.
const OFFSETS: usize = 16;
/// Shares of evicted lines, in percent, between which a subset tells something.
const TELLING: std::ops::RangeInclusive<usize> = 15..=85;
/// Differences between own and other pages, as a share of the bits, below which a group is
/// not one.
const LEAST_CONTRAST: f32 = 0.12;

/// Which subsets evicted a page, and of which that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Signature {
    bits: u128,
    known: u128,
}

impl Signature {
    fn note(&mut self, subset: u32, evicted: bool) {
        self.known |= 1 << subset;
        self.bits |= u128::from(evicted) << subset;
    }

    /// Share of the bits known of both that differ, 0 to 1; 1 if there are none.
    fn distance(&self, other: &Signature) -> f32 {
        let known = self.known & other.known;
        let differ = (self.bits ^ other.bits) & known;
        if known == 0 { 1.0 } else { differ.count_ones() as f32 / known.count_ones() as f32 }
    }

    /// What most of the signatures say, bit by bit.
    fn majority(of: &[Signature]) -> Signature {
        let mut center = Signature::default();
        for subset in 0..SUBSETS {
            let known = of.iter().filter(|s| s.known >> subset & 1 == 1);
            let (ones, all) = known
                .fold((0, 0), |(ones, all), s| (ones + (s.bits >> subset & 1) as usize, all + 1));
            if all > 0 {
                center.note(subset, ones * 2 > all);
            }
        }
        center
    }
}

/// Measures signatures.
pub(crate) struct Prober<'a> {
    pub(crate) bench: &'a mut dyn TimingBench,
    pub(crate) params: &'a ProbeParams,
    pub(crate) calibration: Calibration,
    pub(crate) random: &'a mut Shuffler,
}

impl Prober<'_> {
    /// The signature of every page of `sample`, with subsets drawn from `pool`.
    pub(crate) fn signatures(
        &mut self,
        pool: &[u64],
        sample: &[u64],
    ) -> Result<Vec<Signature>, ProbeError> {
        let mut signatures = vec![Signature::default(); sample.len()];
        let mut pool = pool.to_vec();
        let mut size = usize::from(self.params.colors) * self.params.ways as usize;
        let (mut subset, mut attempts) = (0, 0);
        while subset < SUBSETS && attempts < SUBSETS * 3 {
            attempts += 1;
            size = size.clamp(self.params.ways as usize * 2, MAX_STREAM.min(pool.len() * 2 / 3));
            self.random.shuffle(&mut pool);
            let mut chosen = pool[..size].to_vec();
            let share = self.try_subset(&chosen, sample, subset, &mut signatures)?;
            match share {
                0..40 => size += size / 32 + 1,
                61.. => size -= size / 32 + 1,
                _ => {}
            }
            if TELLING.contains(&share) {
                chosen.sort_unstable();
                forget_own(&chosen, sample, subset, &mut signatures);
                subset += 1;
            } else {
                signatures.iter_mut().for_each(|s| *s = clear(*s, subset));
            }
        }
        Ok(signatures)
    }

    /// Notes which lines one subset evicts; returns their share in percent.
    fn try_subset(
        &mut self,
        chosen: &[u64],
        sample: &[u64],
        subset: u32,
        signatures: &mut [Signature],
    ) -> Result<usize, ProbeError> {
        let (mut out, mut all) = (0, 0);
        let some = if self.params.depth > 1 { LINES / 2 } else { LINES };
        for (pages, signatures) in sample.chunks(some).zip(signatures.chunks_mut(some)) {
            if let Some(evicted) = self.round(chosen, pages)? {
                all += pages.len();
                out += evicted.iter().filter(|e| **e).count();
                signatures.iter_mut().zip(evicted).for_each(|(s, e)| s.note(subset, e));
            }
        }
        Ok(out * 100 / all.max(1))
    }

    /// One line of each page: evicted or not. `None` if the round was interrupted.
    fn round(&mut self, chosen: &[u64], pages: &[u64]) -> Result<Option<Vec<bool>>, ProbeError> {
        let pitch = self.params.pitch();
        let mut offsets: Vec<u16> = (0..self.params.lines()).map(|i| i as u16 * pitch).collect();
        self.random.shuffle(&mut offsets);
        // Several together may lie in any order: see `ProbeParams::depth`.
        if self.params.depth == 1 {
            offsets.truncate(OFFSETS);
        }
        let job = TimingJob {
            stream: chosen.to_vec(),
            rounds: vec![RoundDesc { first: 0, len: chosen.len() as u32 }],
            reload: pages
                .iter()
                .map(|page| page + u64::from(offsets[self.random.below(offsets.len())]))
                .collect(),
            passes: self.params.passes,
            prime: true,
            depth: self.params.depth,
            offsets,
        };
        let result = self.bench.run(&job)?;
        let loads = chosen.len() * job.offsets.len() * job.passes as usize;
        let timely =
            result.elapsed[0] <= self.calibration.limit(loads, pages.len() * job.depth as usize);
        Ok(timely.then(|| {
            // About half is evicted, so a low quantile stands for a hit.
            let threshold = quantile(&result.latencies, 10) + self.calibration.gap;
            result.latencies.iter().map(|&ticks| ticks > threshold).collect()
        }))
    }
}

fn clear(signature: Signature, subset: u32) -> Signature {
    let keep = !(1 << subset);
    Signature { bits: signature.bits & keep, known: signature.known & keep }
}

/// A page that was streamed itself says nothing about the subset. `chosen` is sorted.
fn forget_own(chosen: &[u64], sample: &[u64], subset: u32, signatures: &mut [Signature]) {
    for (page, signature) in sample.iter().zip(signatures) {
        if chosen.binary_search(page).is_ok() {
            *signature = clear(*signature, subset);
        }
    }
}

/// Groups of like signatures, as indexes, each at least large enough to be streamed; the
/// pages nearest to the middle of the group first.
pub(crate) fn cluster(
    signatures: &[Signature],
    params: &ProbeParams,
    random: &mut Shuffler,
) -> Vec<Vec<usize>> {
    let colors = usize::from(params.colors);
    let mut free: Vec<usize> = (0..signatures.len()).collect();
    let mut groups = Vec::new();
    random.shuffle(&mut free);
    for attempt in 0..colors * 4 {
        if free.len() < params.stream || groups.len() == colors {
            break;
        }
        let seed = free[attempt % free.len()];
        let seeded = nearest(signatures, &signatures[seed], &free, params.stream / 2);
        let Some(group) = settle(signatures, seeded, params) else { continue };
        free.retain(|i| !group.contains(i));
        if group.len() >= params.stream {
            groups.push(group);
        }
    }
    groups
}

fn nearest(
    signatures: &[Signature],
    center: &Signature,
    among: &[usize],
    count: usize,
) -> Vec<usize> {
    let mut order = among.to_vec();
    order.sort_by(|&a, &b| {
        center.distance(&signatures[a]).total_cmp(&center.distance(&signatures[b]))
    });
    order.truncate(count);
    order
}

/// Lets a group find its middle and its border; `None` if it does not stand out.
fn settle(
    signatures: &[Signature],
    mut group: Vec<usize>,
    params: &ProbeParams,
) -> Option<Vec<usize>> {
    let expected = signatures.len() / usize::from(params.colors);
    let all: Vec<usize> = (0..signatures.len()).collect();
    for _ in 0..3 {
        let members: Vec<Signature> = group.iter().map(|&i| signatures[i]).collect();
        let center = Signature::majority(&members);
        let order = nearest(signatures, &center, &all, all.len());
        let far = |place: usize| center.distance(&signatures[order[place]]);
        let (near, others) = (far(expected / 4), far(order.len() * 3 / 4));
        if others - near < LEAST_CONTRAST {
            return None;
        }
        let border = near + (others - near) * 0.4;
        let size = (0..order.len()).take_while(|&i| far(i) < border).count();
        group = order[..size].to_vec();
    }
    (group.len() <= expected * 3).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::super::model::ModelBench;
    use super::*;

    fn groups_of(colors: u16, ways: u32, wrong: usize) -> (ModelBench, Vec<u64>, Vec<Vec<usize>>) {
        let params = ProbeParams::new(colors, ways, 64, u32::from(colors) * 64);
        let mut model = ModelBench::new(ways as usize, 0, 9);
        model.wrong = wrong;
        let pool = model.populate(1 << 20, params.candidates, colors);
        let random = &mut Shuffler::new(4);
        let calibration = Calibration { gap: 20, pace: 10.0 };
        let sample = pool[..usize::from(colors) * params.stream * 2].to_vec();
        let mut prober = Prober { bench: &mut model, params: &params, calibration, random };
        let signatures = prober.signatures(&pool, &sample).unwrap();
        let groups = cluster(&signatures, &params, random);
        (model, sample, groups)
    }

    fn purity(model: &ModelBench, sample: &[u64], group: &[usize]) -> f32 {
        let color = |i: usize| model.color(sample[i]);
        let same = group.iter().filter(|&&i| color(i) == color(group[0])).count();
        same as f32 / group.len() as f32
    }

    #[test]
    fn groups_are_of_one_colour_even_with_many_wrong_latencies() {
        for wrong in [0, 1000, 2000] {
            let (model, sample, groups) = groups_of(16, 16, wrong);
            assert!(groups.len() >= 12, "{} groups with {wrong} wrong", groups.len());
            for group in &groups {
                assert!(purity(&model, &sample, group) > 0.9, "{wrong} wrong");
            }
        }
    }

    #[test]
    fn a_signature_counts_only_what_is_known_of_both() {
        let (mut a, mut b) = (Signature::default(), Signature::default());
        assert_eq!(a.distance(&b), 1.0);
        a.note(0, true);
        b.note(0, false);
        a.note(1, true);
        b.note(1, true);
        b.note(2, true);
        assert_eq!(a.distance(&b), 0.5);
        assert_eq!(clear(a, 0).distance(&b), 0.0);
        assert_eq!(Signature::majority(&[a, b, b]), b);
    }
}
