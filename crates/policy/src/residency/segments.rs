//! Neighbouring pages that are used alike, found by cutting the pages of an area in two where their
//! shares differ most, as long as that is no chance. Where pages of different use lie mixed, each is
//! taken for itself, drawn towards the others while little was seen of it.
//!
//! n log n for n pages where cuts are few; n times their number at most.

use huepage_color::Vpn;

use super::{Errors, PageSeen, whole};

/// How much likelier two parts have to be than one for a cut, as a logarithm: a cut by chance in one of
/// a few hundred areas of some thousand pages.
const SURE: f64 = 10.0;
/// Most cuts behind each other.
const DEEPEST: u32 = 12;
/// Looks, all pages of a part together, below which it is not cut.
const LEAST: u64 = 16;
/// How many standard deviations the spread of pages' shares has to be above that of chance for them to
/// be taken one by one.
const MIXED: f64 = 5.0;
/// Looks that the others' share counts for where pages are taken one by one.
const DRAWN: f64 = 2.0;

/// Pages that are used alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    /// The first of them that was looked at.
    pub first: Vpn,
    /// The last of them that was looked at.
    pub last: Vpn,
    /// Pages that were looked at.
    pub sampled_pages: u32,
    /// Of these, used at all.
    pub used: u32,
    /// Looks at lines of them.
    pub samples: u64,
    /// Those that found the line in the cache.
    pub found: u64,
    /// Resident pages that they stand for.
    pub pages: u64,
}

impl Segment {
    /// The share of its lines that is in the cache, 0 to 1; with few looks not quite either.
    pub fn there(&self, errors: Errors) -> f64 {
        let samples = self.samples as f64;
        errors.correct((self.found as f64 + 0.5) / (samples + 1.0)).max(0.25 / (samples + 1.0))
    }

    /// How many of its pages are used.
    pub fn used_pages(&self) -> f64 {
        self.pages as f64 * f64::from(self.used) / f64::from(self.sampled_pages.max(1))
    }
}

/// The segments of an area of which `resident` pages are in memory, ascending. `seen`: pages of it that
/// were looked at, ascending; they are to stand for all.
pub fn segments(seen: &[PageSeen], resident: u64) -> Vec<Segment> {
    let mut parts = Vec::new();
    if !seen.is_empty() {
        cut(seen, DEEPEST, &mut parts);
    }
    let each = resident.max(seen.len() as u64) as f64 / seen.len().max(1) as f64;
    parts.iter_mut().for_each(|part| part.pages = whole(f64::from(part.sampled_pages) * each));
    parts
}

fn cut(seen: &[PageSeen], deepest: u32, parts: &mut Vec<Segment>) {
    match best_cut(seen).filter(|&(_, gain)| deepest > 0 && gain > SURE) {
        Some((at, _)) => {
            cut(&seen[..at], deepest - 1, parts);
            cut(&seen[at..], deepest - 1, parts);
        }
        None if is_mixed(seen) => one_by_one(seen, parts),
        None => parts.push(together(seen)),
    }
}

fn together(seen: &[PageSeen]) -> Segment {
    let sum = |of: fn(&PageSeen) -> u64| seen.iter().map(of).sum::<u64>();
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Segment {
        first: seen[0].page,
        last: seen[seen.len() - 1].page,
        sampled_pages: count(seen.len()),
        used: count(seen.iter().filter(|page| page.used).count()),
        samples: sum(|page| page.samples.into()),
        found: sum(|page| page.found.into()),
        pages: seen.len() as u64,
    }
}

/// Where a cut makes most difference, and how much: what the likelihood gains, as a logarithm. Looks
/// and uses are both taken into account.
fn best_cut(seen: &[PageSeen]) -> Option<(usize, f64)> {
    let all = Counts::of(seen);
    if seen.len() < 2 || all.samples < LEAST as f64 {
        return None;
    }
    let (mut left, mut best) = (Counts::default(), None);
    for (at, page) in (1..seen.len()).zip(seen) {
        left.add(page);
        let gain = left.likelihood() + all.without(left).likelihood() - all.likelihood();
        if best.is_none_or(|(_, most)| gain > most) {
            best = Some((at, gain));
        }
    }
    best
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    pages: f64,
    used: f64,
    samples: f64,
    found: f64,
}

impl Counts {
    fn of(seen: &[PageSeen]) -> Counts {
        let mut all = Counts::default();
        seen.iter().for_each(|page| all.add(page));
        all
    }

    fn add(&mut self, page: &PageSeen) {
        self.pages += 1.0;
        self.used += f64::from(u8::from(page.used));
        self.samples += f64::from(page.samples);
        self.found += f64::from(page.found);
    }

    fn without(self, other: Counts) -> Counts {
        Counts {
            pages: self.pages - other.pages,
            used: self.used - other.used,
            samples: self.samples - other.samples,
            found: self.found - other.found,
        }
    }

    fn likelihood(self) -> f64 {
        // Whether a page was used is one answer of a page; neighbours give the same.
        binomial(self.found, self.samples) + binomial(self.used, self.pages) / 4.0
    }
}

/// The logarithm of the likelihood of `k` of `n` under the share that fits best.
fn binomial(k: f64, n: f64) -> f64 {
    let part = |some: f64| if some > 0.0 { some * (some / n).ln() } else { 0.0 };
    part(k) + part(n - k)
}

/// Whether the shares of pages differ by more than chance (a chi-squared test).
fn is_mixed(seen: &[PageSeen]) -> bool {
    let all = Counts::of(seen);
    let share = all.found / all.samples.max(1.0);
    let variance = share * (1.0 - share);
    if variance <= 0.0 {
        return false;
    }
    let looked = seen.iter().filter(|page| page.samples > 0);
    let (mut sum, mut pages) = (0.0_f64, 0.0_f64);
    for page in looked {
        let samples = f64::from(page.samples);
        let off = f64::from(page.found) - samples * share;
        sum += off * off / (samples * variance);
        pages += 1.0;
    }
    sum > pages + MIXED * (2.0 * pages).sqrt()
}

/// Each page a segment, with some looks added that went as those at all of them.
fn one_by_one(seen: &[PageSeen], parts: &mut Vec<Segment>) {
    let all = Counts::of(seen);
    let share = all.found / all.samples.max(1.0);
    // Whole looks are counted; ten times as many keep the fractions.
    const PARTS: f64 = 10.0;
    parts.extend(seen.iter().map(|page| {
        let mut part = together(std::slice::from_ref(page));
        let weight = 1.0 / (1.0 + DRAWN / f64::from(page.samples.max(1)));
        let own = f64::from(page.found) / f64::from(page.samples.max(1));
        let drawn = if page.samples > 0 { weight * own + (1.0 - weight) * share } else { share };
        part.samples = whole((f64::from(page.samples) + DRAWN) * PARTS);
        part.found = whole(drawn * part.samples as f64);
        part
    }));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(at: u64, samples: u32, found: u32) -> PageSeen {
        PageSeen { page: Vpn(at), samples, found, used: true }
    }

    /// Pages with so many looks each, found with a share by chance.
    fn some(
        from: u64,
        n: u64,
        samples: u32,
        share: f64,
        random: &mut fastrand::Rng,
    ) -> Vec<PageSeen> {
        let found =
            |random: &mut fastrand::Rng| (0..samples).filter(|_| random.f64() < share).count();
        (from..from + n)
            .map(|at| page(at, samples, u32::try_from(found(random)).unwrap()))
            .collect()
    }

    #[test]
    fn a_hot_array_between_streams_is_found() {
        let random = &mut fastrand::Rng::with_seed(5);
        let mut seen = some(0, 900, 3, 0.03, random);
        seen.extend(some(900, 130, 3, 0.9, random));
        seen.extend(some(1030, 500, 3, 0.02, random));
        let parts = segments(&seen, seen.len() as u64);
        assert_eq!(parts.len(), 3, "{parts:?}");
        assert!(parts[1].first.0.abs_diff(900) <= 2 && parts[1].last.0.abs_diff(1029) <= 2);
        assert!(parts[1].there(Errors::default()) > 0.8);
        assert_eq!(parts.iter().map(|part| part.pages).sum::<u64>(), 1530);
    }

    #[test]
    fn pages_that_are_alike_stay_together() {
        let random = &mut fastrand::Rng::with_seed(6);
        for share in [0.0, 0.02, 0.5, 1.0] {
            let parts = segments(&some(0, 2000, 4, share, random), 100_000);
            assert_eq!((parts.len(), parts[0].pages), (1, 100_000), "{share}");
        }
    }

    #[test]
    fn mixed_pages_are_taken_one_by_one() {
        let random = &mut fastrand::Rng::with_seed(7);
        let mut seen = some(0, 400, 12, 0.05, random);
        for (at, seen) in (0..).zip(&mut seen) {
            if random.bool() {
                *seen = some(at, 1, 12, 0.9, random)[0];
            }
        }
        let parts = segments(&seen, 400);
        assert!(parts.len() > 200, "{}", parts.len());
        let hot = parts.iter().filter(|part| part.there(Errors::default()) > 0.5).count();
        assert!((150..250).contains(&hot), "{hot}");
    }

    #[test]
    fn memory_that_nobody_uses_is_told_from_a_stream() {
        let random = &mut fastrand::Rng::with_seed(8);
        let mut seen = some(0, 600, 4, 0.02, random);
        seen[200..].iter_mut().for_each(|page| page.used = false);
        let parts = segments(&seen, 600);
        assert_eq!(parts.len(), 2, "{parts:?}");
        assert_eq!((parts[0].used, parts[1].used), (200, 0));
        assert!(parts[1].used_pages() == 0.0);
    }

    proptest! {
        #[test]
        fn every_page_is_in_one_segment(looks in proptest::collection::vec((0..20_u32, 0..20_u32, any::<bool>()), 1..300)) {
            let seen: Vec<PageSeen> = (0..).zip(&looks).map(|(at, &(samples, found, used))| {
                PageSeen { page: Vpn(at), samples, found: found.min(samples), used }
            }).collect();
            let parts = segments(&seen, seen.len() as u64);
            prop_assert_eq!(parts[0].first, Vpn(0));
            prop_assert_eq!(parts[parts.len() - 1].last, Vpn(seen.len() as u64 - 1));
            prop_assert!(parts.windows(2).all(|two| two[0].last.0 + 1 == two[1].first.0));
            prop_assert_eq!(parts.iter().map(|part| part.sampled_pages as usize).sum::<usize>(), seen.len());
            prop_assert!(parts.iter().all(|part| part.found <= part.samples && part.used <= part.sampled_pages));
        }
    }
}
